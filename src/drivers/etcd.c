/* SPDX-License-Identifier: MIT */
/* Locks in etcd: leases, and claims as keys in the order of their creation. */
#include "drivers/etcd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/memory.h"

#define FORM "etcd://[USER:PASSWORD@]HOST[:PORT],HOST...[/PREFIX]"

enum { PORT = 2379 };

/* ---- keys ---- */

void pk_etcd_key_lock(const struct pk_etcd *e, const char *name, char *out)
{
    char escaped[PK_KEY_MAX];
    pk_key_escape(name, escaped);
    snprintf(out, PK_ETCD_KEY_MAX, "%s/%s/", e->prefix, escaped);
}

void pk_etcd_key_note(const struct pk_etcd *e, uint64_t lease, char *out)
{
    snprintf(out, PK_ETCD_KEY_MAX, "%s/%%note/%" PRIx64, e->prefix, lease);
}

void pk_etcd_key_left(const struct pk_etcd *e, uint64_t lease, uint64_t request,
                      char *out)
{
    snprintf(out, PK_ETCD_KEY_MAX, "%s/%%left/%" PRIx64 "-%" PRIu64, e->prefix, lease,
             request);
}

void pk_etcd_key_end(const char *key, char *out)
{
    size_t len = strlen(key);
    PK_ASSERT(len > 0 && len < PK_ETCD_KEY_MAX && (unsigned char)key[len - 1] < 0xff);
    memcpy(out, key, len + 1);
    out[len - 1]++;
}

bool pk_etcd_key_read(const struct pk_etcd *e, struct pk_bytes key,
                      char name[PK_NAME_MAX + 1], enum pk_mode *mode)
{
    size_t before = strlen(e->prefix) + 1;
    if (key.len <= before || memcmp(key.data, e->prefix, before - 1) != 0) {
        return false;
    }
    const char *at = key.data + before;
    const char *slash = memchr(at, '/', key.len - before);
    if (slash == NULL || !pk_key_unescape(pk_bytes(at, (size_t)(slash - at)), name)) {
        return false;
    }
    bool shared = slash + 1 < key.data + key.len && slash[1] == '~';
    *mode = shared ? PK_SHARED : PK_EXCLUSIVE;
    return true;
}

bool pk_etcd_key_after(struct pk_bytes key, char *out)
{
    if (key.len + 2 > PK_ETCD_KEY_MAX) {
        return false;
    }
    memcpy(out, key.data, key.len);
    memcpy(out + key.len, "\x01", 2);
    return true;
}

/* ---- questions ---- */

enum picket_status pk_etcd_page(struct pk_etcd_caller *c, const struct pk_etcd_find *find,
                                uint64_t until_ms, struct pk_etcd_found *out)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    pk_etcd_put_find(&request, find);
    enum picket_status s = pk_etcd_call(c, "KV/Range", &request, until_ms, &reply);
    pk_pb_free(&request);
    *out = (struct pk_etcd_found){0};
    if (s == PICKET_OK && !pk_etcd_read_found(reply, out)) {
        s = pk_etcd_fail_garbled(c);
    }
    return s == PICKET_UNKNOWN ? PICKET_UNREACHABLE : s; /* a read changes nothing */
}

enum picket_status pk_etcd_ping(struct pk_etcd *e, struct pk_etcd_caller *c,
                                uint64_t until_ms, struct pk_etcd_header *out)
{
    struct pk_etcd_found found;
    char key[PK_ETCD_KEY_MAX];
    pk_etcd_key_note(e, 0, key); /* nobody's, but within what we may read */
    enum picket_status s =
        pk_etcd_page(c, &(struct pk_etcd_find){.key = pk_text(key)}, until_ms, &found);
    *out = found.header;
    return s;
}

enum picket_status pk_etcd_txn(struct pk_etcd_caller *c, struct pk_pb_out *request,
                               uint64_t until_ms, struct pk_etcd_txn *out)
{
    struct pk_bytes reply;
    *out = (struct pk_etcd_txn){0};
    enum picket_status s = pk_etcd_call(c, "KV/Txn", request, until_ms, &reply);
    pk_pb_free(request);
    if (s != PICKET_OK) {
        return pk_etcd_refused(c, "lease not found") ? pk_fail_plain(PICKET_LOST) : s;
    }
    return pk_etcd_read_txn(reply, out) ? PICKET_OK : pk_etcd_fail_garbled(c);
}

/* Asks about one lease. */
static enum picket_status ask_lease(struct pk_etcd_caller *c, const char *method,
                                    uint64_t lease, uint64_t until_ms,
                                    struct pk_etcd_lease *out)
{
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    *out = (struct pk_etcd_lease){0};
    pk_pb_uint(&request, 1, lease);
    enum picket_status s = pk_etcd_call(c, method, &request, until_ms, &reply);
    pk_pb_free(&request);
    if (s != PICKET_OK) {
        return pk_etcd_refused(c, "lease not found") ? pk_fail_plain(PICKET_LOST) : s;
    }
    return pk_etcd_read_lease(reply, out) ? PICKET_OK : pk_etcd_fail_garbled(c);
}

enum picket_status pk_etcd_lease_left(struct pk_etcd_caller *c, uint64_t lease,
                                      uint64_t until_ms, int64_t *left_s)
{
    struct pk_etcd_lease found;
    enum picket_status s = ask_lease(c, "Lease/LeaseTimeToLive", lease, until_ms, &found);
    *left_s = s == PICKET_LOST ? -1 : found.ttl_s;
    return s == PICKET_LOST ? PICKET_OK : s;
}

/* ---- leases ---- */

static void remember(struct pk_etcd *e, struct pk_etcd_kept kept)
{
    pthread_mutex_lock(&e->ear.mutex);
    size_t at = 0;
    while (at < e->n_kept && e->kept[at].id != kept.id) {
        at++;
    }
    if (at == PK_ETCD_LEASES_MAX) {
        memmove(&e->kept[0], &e->kept[1], sizeof e->kept - sizeof e->kept[0]);
        at--;
    }
    e->kept[at] = kept;
    e->n_kept = at < e->n_kept ? e->n_kept : at + 1;
    pthread_mutex_unlock(&e->ear.mutex);
}

static struct pk_etcd_kept recall(struct pk_etcd *e, uint64_t lease)
{
    struct pk_etcd_kept found = {0};
    pthread_mutex_lock(&e->ear.mutex);
    for (size_t i = 0; i < e->n_kept; i++) {
        found = e->kept[i].id == lease ? e->kept[i] : found;
    }
    pthread_mutex_unlock(&e->ear.mutex);
    return found;
}

/* A leader that was stopped, and does not know yet that there is another one, answers
 * renewals all the same, though they don't count. (Seen with etcd 3.4.23: a lease that
 * had been revoked was renewed.) So something is asked that can only be answered together
 * with a majority: if the term is still the same, the renewal was the true leader's. */
static enum picket_status confirm(struct pk_etcd *e, const struct pk_etcd_header *renewed,
                                  uint64_t until_ms)
{
    struct pk_etcd_header now;
    enum picket_status s = pk_etcd_ping(e, &e->caller, until_ms, &now);
    if (s == PICKET_OK && now.term != renewed->term) {
        s = pk_fail(PICKET_UNKNOWN, "%s: another leader meanwhile", e->site.shown);
    }
    return s == PICKET_UNREACHABLE ? PICKET_UNKNOWN : s; /* it may have counted */
}

/* Renews it at the server; what it is good for then, in ms. */
static enum picket_status keep_alive(struct pk_etcd *e, uint64_t lease, uint64_t until_ms,
                                     uint64_t *granted_ms)
{
    struct pk_etcd_lease renewed;
    enum picket_status s =
        ask_lease(&e->caller, "Lease/LeaseKeepAlive", lease, until_ms, &renewed);
    if (s == PICKET_OK) {
        s = confirm(e, &renewed.header, until_ms);
    }
    if (s == PICKET_OK && renewed.ttl_s <= 0) {
        s = pk_fail_plain(PICKET_LOST);
    }
    *granted_ms = s == PICKET_OK ? (uint64_t)renewed.ttl_s * 1000 : 0;
    return s;
}

static enum picket_status lease_open(void *own, struct pk_tenancy *t, uint64_t until_ms)
{
    struct pk_etcd *e = own;
    struct pk_pb_out request = {0};
    struct pk_bytes reply;
    struct pk_etcd_lease granted;
    uint64_t granted_ms = 0;
    uint64_t sent = pk_clock_ms();
    enum picket_status s = pk_etcd_check(e, until_ms);
    if (s != PICKET_OK) {
        return s;
    }
    pk_pb_uint(&request, 1, (t->ttl_ms + 999) / 1000);
    pk_pb_uint(&request, 2, t->id);
    s = pk_etcd_call(&e->caller, "Lease/LeaseGrant", &request, until_ms, &reply);
    pk_pb_free(&request);
    if (s == PICKET_OK && pk_etcd_read_lease(reply, &granted) && granted.ttl_s > 0) {
        granted_ms = (uint64_t)granted.ttl_s * 1000;
    } else if (s == PICKET_OK) {
        s = pk_etcd_fail_garbled(&e->caller);
    } else if (pk_etcd_refused(&e->caller, "lease already exists")) {
        s = keep_alive(e, t->id, until_ms, &granted_ms); /* the answer was lost */
        s = s == PICKET_LOST ? PICKET_UNKNOWN : s;       /* it will be given out again */
    }
    if (s == PICKET_OK) {
        t->ttl_ms = t->ttl_ms < granted_ms ? t->ttl_ms : granted_ms;
        remember(e, (struct pk_etcd_kept){t->id, t->ttl_ms, sent, granted_ms});
    }
    return s;
}

static enum picket_status lease_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                      uint64_t until_ms)
{
    struct pk_etcd *e = own;
    struct pk_etcd_kept kept = recall(e, lease);
    uint64_t granted_ms = 0;
    uint64_t sent = pk_clock_ms();
    enum picket_status s = keep_alive(e, lease, until_ms, &granted_ms);
    if (s != PICKET_OK) {
        return s;
    }
    if (*ttl_ms > granted_ms) {
        return pk_fail(PICKET_UNSUPPORTED,
                       "a lease of etcd keeps the TTL it was opened with, here %" PRIu64
                       " s: open another one for more",
                       granted_ms / 1000);
    }
    uint64_t wanted = *ttl_ms != 0 ? *ttl_ms : kept.ttl_ms;
    *ttl_ms = wanted != 0 && wanted < granted_ms ? wanted : granted_ms;
    remember(e, (struct pk_etcd_kept){lease, *ttl_ms, sent, granted_ms});
    return PICKET_OK;
}

static enum picket_status lease_close(void *own, uint64_t lease, uint64_t until_ms)
{
    struct pk_etcd *e = own;
    struct pk_pb_out request = {0};
    struct pk_etcd_txn unused;
    struct pk_etcd_lease answer;
    struct pk_etcd_kept kept = recall(e, lease);
    /* Who watches is to know that this is no expiry; if that fails, they don't. */
    pk_etcd_op_note(e, &request, lease, "closed");
    enum picket_status s = pk_etcd_txn(&e->caller, &request, until_ms, &unused);
    if (s != PICKET_LOST) {
        s = ask_lease(&e->caller, "Lease/LeaseRevoke", lease, until_ms, &answer);
    }
    /* etcd does not remember leases: one that we never saw is called unknown. */
    bool never = s == PICKET_LOST && kept.id == 0 && !e->caller.doubt;
    if (!never && kept.id == 0) {
        remember(e, (struct pk_etcd_kept){.id = lease});
    }
    return never ? pk_fail_plain(PICKET_NOTFOUND) : s;
}

static enum picket_status lease_look(void *own, uint64_t lease, uint64_t *left_ms,
                                     uint64_t until_ms)
{
    struct pk_etcd *e = own;
    int64_t left_s;
    enum picket_status s = pk_etcd_lease_left(&e->caller, lease, until_ms, &left_s);
    *left_ms = s == PICKET_OK && left_s > 0 ? (uint64_t)left_s * 1000 : 0;
    return s == PICKET_OK && left_s < 0 ? pk_fail_plain(PICKET_LOST) : s;
}

/* ---- notes ---- */

void pk_etcd_op_note(const struct pk_etcd *e, struct pk_pb_out *request, uint64_t lease,
                     const char *text)
{
    char key[PK_ETCD_KEY_MAX];
    pk_etcd_key_note(e, lease, key);
    pk_etcd_op_write(request, PK_ETCD_THEN,
                     &(struct pk_etcd_write){
                         .key = pk_text(key), .value = pk_text(text), .lease = lease});
}

/* One line, from *at on; what is behind it becomes *at. */
static void take_line(struct pk_bytes *at, char *out, size_t size)
{
    const char *newline = at->len > 0 ? memchr(at->data, '\n', at->len) : NULL;
    size_t len = newline != NULL ? (size_t)(newline - at->data) : at->len;
    snprintf(out, size, "%.*s", (int)len, at->len > 0 ? at->data : "");
    len += newline != NULL;
    *at = len == 0 ? *at : pk_bytes(at->data + len, at->len - len);
}

enum pk_end pk_etcd_note_read(struct pk_bytes note, char by[PK_PRINCIPAL_MAX + 1],
                              char why[PK_REASON_MAX + 1])
{
    char what[16];
    take_line(&note, what, sizeof what);
    take_line(&note, by, PK_PRINCIPAL_MAX + 1);
    take_line(&note, why, PK_REASON_MAX + 1);
    return strcmp(what, "released") == 0 ? PK_END_RELEASED
           : strcmp(what, "closed") == 0 ? PK_END_CLOSED
           : strcmp(what, "broken") == 0 ? PK_END_BROKEN
                                         : PK_END_EXPIRED;
}

/* ---- claims ---- */

static uint64_t take_number(struct pk_etcd *e)
{
    return e->n_numbers > 0 ? e->numbers[--e->n_numbers] : ++e->last_number;
}

/* Whoever takes it next may find nothing of this claim, nor may anything of it come. */
static void give_number(struct pk_etcd *e, const struct pk_etcd_claim *claim)
{
    if (!claim->gone || claim->doubt) {
        return;
    }
    if (e->n_numbers == e->numbers_room) {
        e->numbers_room = 2 * e->numbers_room + 16;
        e->numbers = pk_door_resize(e->numbers, e->numbers_room * sizeof e->numbers[0]);
    }
    e->numbers[e->n_numbers++] = claim->number;
}

static struct pk_etcd_claim *claim_of(struct pk_etcd *e, struct pk_stake *k)
{
    struct pk_etcd_claim *claim = k->own;
    if (claim == NULL) {
        claim = pk_door_resize(NULL, sizeof *claim);
        *claim = (struct pk_etcd_claim){.lease = k->lease,
                                        .request = k->request,
                                        .number = take_number(e),
                                        .shared = k->mode == PK_SHARED};
        pk_etcd_key_lock(e, k->name, claim->lock);
        int n = snprintf(claim->key, sizeof claim->key, "%s%s%" PRIx64 "-%" PRIu64,
                         claim->lock, claim->shared ? "~" : "", k->lease, claim->number);
        PK_ASSERT(n > 0 && (size_t)n < sizeof claim->key);
        k->own = claim;
    }
    return claim;
}

/* The range of those that a claim has to wait for, if they are older. */
static void rivals(const struct pk_etcd_claim *claim, char *end)
{
    pk_etcd_key_end(claim->lock, end);
    if (claim->shared) {
        memcpy(end, claim->lock, strlen(claim->lock));
        memcpy(end + strlen(claim->lock), "~", 2);
    }
}

/* What stands ahead of the claim, by the newest of its rivals. */
static struct pk_bytes ahead_of(const struct pk_etcd_claim *claim,
                                struct pk_etcd_found *found)
{
    struct pk_etcd_kv kv;
    while (pk_etcd_next_kv(&found->kvs, &kv)) {
        if (!pk_bytes_equal(kv.key, pk_text(claim->key))) {
            return kv.key;
        }
    }
    return pk_bytes(NULL, 0);
}

static enum picket_status stands(struct pk_etcd *e, struct pk_stake *k, uint64_t revision,
                                 struct pk_bytes ahead)
{
    struct pk_etcd_claim *claim = k->own;
    k->state = ahead.len > 0 ? PK_CLAIM_WAITING : PK_CLAIM_HELD;
    k->token = ahead.len > 0 ? 0 : claim->created;
    pk_etcd_ear_listen(e, claim, revision, ahead);
    return PICKET_OK;
}

/* Takes the claim's key away, and sees to it that it does not come back. */
static enum picket_status remove_claim(struct pk_etcd *e, struct pk_etcd_claim *claim,
                                       bool held, uint64_t until_ms, uint64_t *deleted)
{
    struct pk_pb_out request = {0};
    struct pk_etcd_txn txn;
    char left[PK_ETCD_KEY_MAX];
    pk_etcd_ear_ignore(e, claim);
    if (claim->doubt) {
        pk_etcd_key_left(e, claim->lease, claim->request, left);
        pk_etcd_op_write(
            &request, PK_ETCD_THEN,
            &(struct pk_etcd_write){.key = pk_text(left), .lease = claim->lease});
    } else { /* a late copy of this must not delete the number's next claim */
        pk_etcd_if_created(&request, pk_text(claim->key), pk_bytes(NULL, 0),
                           claim->created);
    }
    pk_etcd_op_note(e, &request, claim->lease, held ? "released" : "left");
    pk_etcd_op_delete(&request, PK_ETCD_THEN, pk_text(claim->key));
    enum picket_status s = pk_etcd_txn(&e->caller, &request, until_ms, &txn);
    *deleted = txn.deleted;
    claim->gone = s == PICKET_OK;
    return s;
}

/* Where a claim that is there stands now. That its key is still there, with its lease,
 * and that nothing is ahead, is seen in one step: so a grant is never one that its lease
 * does not back any more. */
static enum picket_status look(struct pk_etcd *e, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_etcd_claim *claim = k->own;
    struct pk_pb_out request = {0};
    struct pk_etcd_txn txn;
    struct pk_etcd_kv kv = {0};
    char end[PK_ETCD_KEY_MAX];
    rivals(claim, end);
    pk_etcd_op_find(
        &request, PK_ETCD_THEN,
        &(struct pk_etcd_find){.key = pk_text(claim->key), .keys_only = true});
    pk_etcd_op_find(&request, PK_ETCD_THEN,
                    &(struct pk_etcd_find){.key = pk_text(claim->lock),
                                           .end = pk_text(end),
                                           .order = PK_ETCD_NEWEST,
                                           .limit = 1,
                                           .max_create = claim->created - 1,
                                           .keys_only = true});
    enum picket_status s = pk_etcd_txn(&e->caller, &request, until_ms, &txn);
    if (s != PICKET_OK) {
        return s == PICKET_UNKNOWN ? PICKET_UNREACHABLE : s; /* it changes nothing */
    }
    if (txn.n_found != 2) {
        return pk_etcd_fail_garbled(&e->caller);
    }
    bool there = pk_etcd_next_kv(&txn.found[0].kvs, &kv);
    if (there && kv.created == claim->created && kv.lease == k->lease) {
        return stands(e, k, txn.header.revision, ahead_of(claim, &txn.found[1]));
    }
    uint64_t left_ms;
    pk_etcd_ear_ignore(e, claim);
    s = lease_look(e, k->lease, &left_ms, until_ms);
    k->state = PK_CLAIM_NONE;
    return s;
}

/* Creates the claim, unless it is there already, or left for good; not `wait`: or
 * somebody is in its way. */
static enum picket_status create(struct pk_etcd *e, struct pk_stake *k, bool wait,
                                 uint64_t until_ms)
{
    struct pk_etcd_claim *claim = k->own;
    struct pk_pb_out request = {0};
    struct pk_etcd_txn txn;
    struct pk_etcd_kv kv = {0};
    char end[PK_ETCD_KEY_MAX], left[PK_ETCD_KEY_MAX];
    struct pk_bytes lock = pk_text(claim->lock);
    struct pk_bytes alone = {0};
    rivals(claim, end);
    pk_etcd_key_left(e, claim->lease, claim->request, left);
    pk_etcd_if_created(&request, pk_text(claim->key), alone, 0);
    pk_etcd_if_created(&request, pk_text(left), alone, 0);
    if (!wait) {
        pk_etcd_if_created(&request, lock, pk_text(end), 0);
    }
    pk_etcd_op_write(&request, PK_ETCD_THEN,
                     &(struct pk_etcd_write){.key = pk_text(claim->key),
                                             .value = k->card,
                                             .lease = k->lease});
    pk_etcd_op_find(&request, PK_ETCD_THEN,
                    &(struct pk_etcd_find){.key = lock,
                                           .end = pk_text(end),
                                           .order = PK_ETCD_NEWEST,
                                           .limit = 2, /* it may find itself, too */
                                           .keys_only = true});
    pk_etcd_op_find(
        &request, PK_ETCD_ELSE,
        &(struct pk_etcd_find){.key = pk_text(claim->key), .keys_only = true});
    enum picket_status s = pk_etcd_txn(&e->caller, &request, until_ms, &txn);
    claim->doubt = claim->doubt || e->caller.doubt;
    if (s != PICKET_OK) {
        return s;
    }
    if (txn.n_found != 1) {
        return pk_etcd_fail_garbled(&e->caller);
    }
    if (txn.done) {
        claim->created = txn.header.revision;
        return stands(e, k, txn.header.revision, ahead_of(claim, &txn.found[0]));
    }
    if (pk_etcd_next_kv(&txn.found[0].kvs, &kv)) {
        claim->created = kv.created; /* the answer to an earlier attempt was lost */
        return look(e, k, until_ms);
    }
    uint64_t deleted;
    k->state = PK_CLAIM_NONE;
    claim->gone = true;
    return claim->doubt ? remove_claim(e, claim, false, until_ms, &deleted) : PICKET_OK;
}

static enum picket_status stand(void *own, struct pk_stake *k, bool wait,
                                uint64_t until_ms)
{
    struct pk_etcd *e = own;
    const struct pk_etcd_claim *claim = claim_of(e, k);
    return claim->created == 0 ? create(e, k, wait, until_ms) : look(e, k, until_ms);
}

static enum picket_status leave(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_etcd *e = own;
    uint64_t deleted = 0;
    enum picket_status s =
        remove_claim(e, claim_of(e, k), k->state == PK_CLAIM_HELD, until_ms, &deleted);
    bool gone = s == PICKET_OK && deleted == 0 && !e->caller.doubt;
    return gone ? pk_fail_plain(PICKET_NOTHELD) : s;
}

static void forget(void *own, struct pk_stake *k)
{
    if (k->own != NULL) {
        pk_etcd_ear_ignore(own, k->own);
        give_number(own, k->own);
        k->own = pk_door_resize(k->own, 0);
    }
}

static enum picket_status rewrite(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_etcd *e = own;
    const struct pk_etcd_claim *claim = claim_of(e, k);
    struct pk_pb_out request = {0};
    struct pk_etcd_txn txn;
    pk_etcd_if_created(&request, pk_text(claim->key), pk_bytes(NULL, 0), claim->created);
    pk_etcd_op_write(&request, PK_ETCD_THEN,
                     &(struct pk_etcd_write){.key = pk_text(claim->key),
                                             .value = k->card,
                                             .keep_lease = true});
    enum picket_status s = pk_etcd_txn(&e->caller, &request, until_ms, &txn);
    return s == PICKET_OK && !txn.done ? pk_fail_plain(PICKET_NOTHELD) : s;
}

/* ---- the door ---- */

static void meet(void *own, struct pk_store *b)
{
    struct pk_etcd *e = own;
    e->bridge = b;
}

static void forked(void *own)
{
    struct pk_etcd *e = own;
    pk_etcd_line_forked(&e->caller.line);
    pk_etcd_line_forked(&e->ear.caller.line);
    pk_etcd_stream_forked(&e->ear.stream);
}

static void free_site(struct pk_etcd_site *site)
{
    pk_url_free(&site->url);
    free(site->auth.token);
    pthread_mutex_destroy(&site->auth.mutex);
}

static void close_etcd(void *own)
{
    struct pk_etcd *e = own;
    pk_etcd_ear_free(e);
    pk_etcd_caller_free(&e->caller);
    free_site(&e->site);
    (void)pk_door_resize(e->numbers, 0);
    (void)pk_door_resize(e, 0);
}

static const struct pk_bridged ops = {
    .meet = meet,
    .lease_open = lease_open,
    .lease_renew = lease_renew,
    .lease_close = lease_close,
    .lease_look = lease_look,
    .stand = stand,
    .leave = leave,
    .forget = forget,
    .rewrite = rewrite,
    .release = pk_etcd_release,
    .break_hold = pk_etcd_break,
    .scan = pk_etcd_scan,
    .await = pk_etcd_await,
    .examine = pk_etcd_examine,
    .watch_open = pk_etcd_watch_open,
    .watch_next = pk_etcd_watch_next,
    .watch_fd = pk_etcd_watch_fd,
    .watch_close = pk_etcd_watch_close,
    .watch_forked = pk_etcd_watch_forked,
    .forked = forked,
    .close = close_etcd,
};

static enum picket_status read_url(const char *rest, struct pk_etcd *e)
{
    char *url = pk_memory_print("etcd:%s", rest);
    enum picket_status s = pk_url_read(url, "", FORM, &e->site.url);
    free(url);
    if (s == PICKET_OK) {
        s = pk_url_places(&e->site.url, PORT, FORM, &e->site.places);
    }
    if (s != PICKET_OK) {
        return s;
    }
    pk_url_show(&e->site.url, e->site.shown, sizeof e->site.shown);
    const char *path = e->site.url.path;
    size_t len = strlen(path);
    len -= len > 0 && path[len - 1] == '/';
    if (len > PK_ETCD_PREFIX_MAX) {
        return pk_fail(PICKET_BADARG, "the prefix in %s is longer than %d bytes",
                       e->site.shown, PK_ETCD_PREFIX_MAX);
    }
    if (e->site.url.password[0] != '\0' && e->site.url.user[0] == '\0') {
        return pk_fail(PICKET_BADARG, "%s has a password, but no user; it is %s",
                       e->site.shown, FORM);
    }
    snprintf(e->prefix, sizeof e->prefix, "%.*s", len > 0 ? (int)len : 6,
             len > 0 ? path : "picket");
    return PICKET_OK;
}

static enum picket_status etcd_open(const char *rest, struct pk_store **out)
{
    struct pk_etcd *e = pk_door_resize(NULL, sizeof *e);
    *e = (struct pk_etcd){0};
    pthread_mutex_init(&e->site.auth.mutex, NULL);
    enum picket_status s = read_url(rest, e);
    if (s == PICKET_OK) {
        s = pk_etcd_caller_init(&e->caller, &e->site);
    }
    if (s == PICKET_OK) {
        s = pk_etcd_ear_init(e);
        if (s != PICKET_OK) {
            pk_etcd_caller_free(&e->caller);
        }
    }
    if (s != PICKET_OK) {
        free_site(&e->site);
        (void)pk_door_resize(e, 0);
        return s;
    }
    return pk_bridge_open(&ops, &pk_etcd_driver.guarantees, e, out);
}

const struct pk_driver pk_etcd_driver = {
    .scheme = "etcd",
    .form = FORM,
    .guarantees = {.driver = "etcd",
                   .promise = "correctness",
                   .scope = "an etcd cluster",
                   .token = "the create revision of the claim's key",
                   .fairness = "fifo",
                   .waiting = "push",
                   .clock = "rates within 1 %, of the leader's monotonic clock",
                   .failover = "under a new leader leases get their whole TTL again, "
                               "never less; any minority may die",
                   .shared = 1,
                   .election = 1,
                   .watch = 1,
                   .by_id = 1,
                   .reasons = 1,
                   .tokens = 1},
    .open = etcd_open,
    PK_BRIDGE_DRIVER,
};
