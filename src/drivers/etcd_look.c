/* SPDX-License-Identifier: MIT */
/* What others have in etcd, and ending it for them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/etcd.h"
#include "host/clock.h"

enum {
    PAGE = 200,      /* keys asked for at once */
    TTLS_ASKED = 16, /* of how many leases the rest of their time is asked */
};

/* ---- scan ---- */

/* One claim, copied out of the answer. */
struct entry {
    char *key;
    char *value;
    struct pk_etcd_kv kv; /* borrows from the two */
};

/* All claims of one lock: their keys stand side by side. */
struct lock_seen {
    char name[PK_NAME_MAX + 1];
    struct entry *list;
    size_t count, capacity;
};

struct walk {
    struct pk_etcd *e;
    struct pk_scan *scan;
    const char *wanted;
    bool whole_name;
    uint64_t until_ms;
    struct lock_seen lock;
    uint32_t asked; /* leases */
};

static char *copy_of(struct pk_bytes text)
{
    char *copy = pk_door_resize(NULL, (size_t)text.len + 1);
    if (text.len > 0) {
        memcpy(copy, text.data, text.len);
    }
    return copy;
}

static void collect(struct lock_seen *lock, const struct pk_etcd_kv *kv)
{
    if (lock->count == lock->capacity) {
        lock->capacity = 2 * lock->capacity + 8;
        lock->list = pk_door_resize(lock->list, lock->capacity * sizeof lock->list[0]);
    }
    struct entry *n = &lock->list[lock->count++];
    *n = (struct entry){.key = copy_of(kv->key), .value = copy_of(kv->value), .kv = *kv};
    n->kv.key.data = n->key;
    n->kv.value.data = n->value;
}

static int older(const void *left, const void *right)
{
    const struct entry *a = left;
    const struct entry *b = right;
    return (a->kv.created > b->kv.created) - (a->kv.created < b->kv.created);
}

/* What is left of the lease, if it is worth asking. */
static uint64_t left_ms(struct walk *w, uint64_t lease)
{
    int64_t left_s = 0;
    if (!w->whole_name || lease == 0 || w->asked++ >= TTLS_ASKED ||
        pk_etcd_lease_left(&w->e->caller, lease, w->until_ms, &left_s) != PICKET_OK) {
        return 0;
    }
    return left_s > 0 ? (uint64_t)left_s * 1000 : 1;
}

/* Shows the lock that is complete, by the rule of etcd.h, and makes room for the next. */
static void show_lock(struct walk *w)
{
    struct lock_seen *lock = &w->lock;
    bool exclusive = false; /* one is ahead */
    if (lock->count > 0) {
        qsort(lock->list, lock->count, sizeof lock->list[0], older);
    }
    for (size_t i = 0; i < lock->count; i++) {
        const struct pk_etcd_kv *kv = &lock->list[i].kv;
        char name[PK_NAME_MAX + 1];
        enum pk_mode mode = PK_EXCLUSIVE;
        (void)pk_etcd_key_read(w->e, kv->key, name, &mode);
        bool held = mode == PK_SHARED ? !exclusive : i == 0;
        exclusive = exclusive || mode == PK_EXCLUSIVE;
        pk_bridge_see(w->scan, &(struct pk_sight){.name = pk_text(lock->name),
                                                  .card = kv->value,
                                                  .held = held,
                                                  .token = kv->created,
                                                  .order = kv->created,
                                                  .left_ms = left_ms(w, kv->lease)});
        (void)pk_door_resize(lock->list[i].key, 0);
        (void)pk_door_resize(lock->list[i].value, 0);
    }
    lock->count = 0;
}

static void walk_over(struct walk *w, const struct pk_etcd_kv *kv)
{
    char name[PK_NAME_MAX + 1];
    enum pk_mode mode;
    if (!pk_etcd_key_read(w->e, kv->key, name, &mode) ||
        strncmp(name, w->wanted, strlen(w->wanted)) != 0) {
        return;
    }
    if (strcmp(name, w->lock.name) != 0) {
        show_lock(w);
        memcpy(w->lock.name, name, sizeof name);
    }
    collect(&w->lock, kv);
}

/* The range of keys in which the claims are. */
static void range_of(struct walk *w, char *from, char *end)
{
    char escaped[PK_KEY_MAX];
    if (w->whole_name) {
        pk_etcd_key_lock(w->e, w->wanted, from);
    } else {
        /* A name of dots alone is escaped in another way than the beginning of one. */
        bool dots = w->wanted[strspn(w->wanted, ".")] == '\0';
        pk_key_escape(dots ? "" : w->wanted, escaped);
        snprintf(from, PK_ETCD_KEY_MAX, "%s/%s", w->e->prefix, escaped);
    }
    pk_etcd_key_end(from, end);
}

enum picket_status pk_etcd_scan(void *own, const char *name, bool whole_name,
                                struct pk_scan *scan, uint64_t until_ms)
{
    struct walk w = {.e = own,
                     .scan = scan,
                     .wanted = name,
                     .whole_name = whole_name,
                     .until_ms = until_ms};
    char from[PK_ETCD_KEY_MAX], end[PK_ETCD_KEY_MAX];
    struct pk_etcd_find find = {.limit = PAGE};
    struct pk_etcd_found found = {.more = true};
    enum picket_status s = PICKET_OK;
    range_of(&w, from, end);
    while (s == PICKET_OK && found.more) {
        struct pk_etcd_kv kv = {0};
        find.key = pk_text(from);
        find.end = pk_text(end);
        s = pk_etcd_page(&w.e->caller, &find, until_ms, &found);
        while (s == PICKET_OK && pk_etcd_next_kv(&found.kvs, &kv)) {
            walk_over(&w, &kv);
        }
        find.revision = found.header.revision; /* all pages of one moment */
        found.more = found.more && pk_etcd_key_after(kv.key, from);
    }
    show_lock(&w);
    (void)pk_door_resize(w.lock.list, 0);
    return s;
}

/* ---- ending what others have ---- */

/* A claim that is to be ended. */
struct target {
    uint64_t token, lease, request; /* 0: it is somebody else's kind */
    char key[PK_ETCD_KEY_MAX];
};

/* The request that made a claim, as its card says; 0: it has none. */
static uint64_t request_of(struct pk_bytes value)
{
    struct pk_card card;
    char *room = pk_door_resize(NULL, (size_t)value.len + 1);
    bool ours = pk_card_read(value, room, &card);
    (void)pk_door_resize(room, 0);
    return ours ? card.request : 0;
}

/* The claim with that token. NOTHELD: there is none. */
static enum picket_status find_claim(struct pk_etcd *e, const char *name, uint64_t token,
                                     uint64_t until_ms, struct target *out)
{
    struct pk_etcd_found found;
    struct pk_etcd_kv kv = {0};
    char lock[PK_ETCD_KEY_MAX], end[PK_ETCD_KEY_MAX];
    pk_etcd_key_lock(e, name, lock);
    pk_etcd_key_end(lock, end);
    struct pk_etcd_find find = {.key = pk_text(lock),
                                .end = pk_text(end),
                                .min_create = token,
                                .max_create = token};
    enum picket_status s = pk_etcd_page(&e->caller, &find, until_ms, &found);
    *out = (struct target){.token = token};
    if (s != PICKET_OK) {
        return s;
    }
    if (!pk_etcd_next_kv(&found.kvs, &kv) || kv.key.len >= PK_ETCD_KEY_MAX) {
        return pk_fail_plain(PICKET_NOTHELD);
    }
    snprintf(out->key, sizeof out->key, "%.*s", (int)kv.key.len, kv.key.data);
    out->lease = kv.lease;
    out->request = request_of(kv.value);
    return PICKET_OK;
}

/* Deletes the key if it is still that claim's, with a note for its owner. */
static enum picket_status end_claim(struct pk_etcd *e, const struct target *t,
                                    const char *note, uint64_t until_ms)
{
    struct pk_pb_out request = {0};
    struct pk_etcd_txn txn;
    char left[PK_ETCD_KEY_MAX];
    pk_etcd_if_created(&request, pk_text(t->key), pk_bytes(NULL, 0), t->token);
    if (t->lease != 0) {
        pk_etcd_op_note(e, &request, t->lease, note);
    }
    if (t->request != 0) {
        /* Whether a copy of its creation is still on its way, only its owner knows. */
        pk_etcd_key_left(e, t->lease, t->request, left);
        pk_etcd_op_write(
            &request, PK_ETCD_THEN,
            &(struct pk_etcd_write){.key = pk_text(left), .lease = t->lease});
    }
    pk_etcd_op_delete(&request, PK_ETCD_THEN, pk_text(t->key));
    enum picket_status s = pk_etcd_txn(&e->caller, &request, until_ms, &txn);
    bool gone = s == PICKET_LOST || (s == PICKET_OK && !txn.done && !e->caller.doubt);
    return gone ? pk_fail_plain(PICKET_NOTHELD) : s;
}

enum picket_status pk_etcd_release(void *own, uint64_t lease, const char *name,
                                   uint64_t token, uint64_t until_ms)
{
    struct pk_etcd *e = own;
    struct target t;
    int64_t left_s = 0;
    enum picket_status s = find_claim(e, name, token, until_ms, &t);
    if (s == PICKET_OK && t.lease == lease) {
        return end_claim(e, &t, "released", until_ms);
    }
    if (s == PICKET_OK || s == PICKET_NOTHELD) {
        s = pk_etcd_lease_left(&e->caller, lease, until_ms, &left_s);
        s = s != PICKET_OK ? s : pk_fail_plain(left_s < 0 ? PICKET_LOST : PICKET_NOTHELD);
    }
    return s;
}

enum picket_status pk_etcd_break(void *own, const struct pk_command *c, uint64_t until_ms)
{
    struct pk_etcd *e = own;
    struct target t;
    char name[PK_NAME_MAX + 1];
    char note[PK_PRINCIPAL_MAX + PK_REASON_MAX + 16];
    snprintf(name, sizeof name, "%.*s", (int)c->name.len, c->name.data);
    enum picket_status s = find_claim(e, name, c->token, until_ms, &t);
    if (s == PICKET_OK) {
        snprintf(note, sizeof note, "broken\n%.*s\n%.*s\n", (int)c->principal.len,
                 c->principal.len > 0 ? c->principal.data : "", (int)c->reason.len,
                 c->reason.len > 0 ? c->reason.data : "");
        s = end_claim(e, &t, note, until_ms);
    }
    return s;
}
