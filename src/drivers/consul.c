/* SPDX-License-Identifier: MIT */
/* Locks in Consul: leases and claims; consul.h says how they stand in the store. */
#include "drivers/consul.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "core/utf8.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/memory.h"

#define FORM "consul://[:TOKEN@]HOST[:PORT][/PREFIX]"

enum {
    PORT = 8500,
    TRIES = 5,         /* at a key that changes meanwhile */
    UNTOLD_MS = 1000,  /* until who is not told looks again */
    DELAYED_MS = 1000, /* until a lock under lock-delay is looked at again */
};

/* ---- standing ---- */

/* Where a claim stands, as its key says. */
static bool is_ours(const struct pk_consul_key *k, const char *session, uint64_t request,
                    uint64_t *token)
{
    uint64_t by = 0;
    struct pk_bytes card;
    return k->there && strcmp(k->session, session) == 0 &&
           pk_consul_key_claim(k, &by, token, &card) && by == request;
}

static void add_lock(json_t *txn, const struct pk_consul_watch *w, struct pk_bytes value)
{
    pk_consul_op_add(txn, &(struct pk_consul_op){.verb = "lock",
                                                 .key = w->key,
                                                 .session = w->session,
                                                 .value = value,
                                                 .has_value = true});
}

static void add_check(json_t *txn, const char *key, uint64_t index)
{
    pk_consul_op_add(txn, &(struct pk_consul_op){.verb = index != 0 ? "check-index"
                                                                    : "check-not-exists",
                                                 .key = key,
                                                 .index = index});
}

enum taken { TAKEN, BUSY, CHANGED, DELAYED };

/* Takes the lock, which was free in the state `index` (0: there was no key). */
static enum picket_status take(struct pk_consul *c, struct pk_consul_lease *l,
                               struct pk_stake *k, uint64_t index, uint64_t until_ms,
                               enum taken *taken)
{
    struct pk_consul_watch *w = k->own;
    char key[PK_CONSUL_KEY_ROOM];
    uint64_t granted = 0;
    size_t refused = 0;
    json_t *txn = json_array();
    pk_consul_ticket_key(c, l->id, key);
    add_check(txn, key, l->ticket);
    add_check(txn, w->key, index);
    add_lock(txn, w, k->card);
    enum picket_status s = pk_consul_run(c, &c->call, txn, &granted, &refused, until_ms);
    *taken = CHANGED;
    if (s == PICKET_OK) {
        *taken = TAKEN;
        k->state = PK_CLAIM_HELD;
        k->token = granted;
        pk_consul_watch_hold(c, w, granted, granted);
    } else if (s == PICKET_UNKNOWN) {
        w->unsure = true;
    } else if (s == PICKET_NOTHELD) {
        s = PICKET_OK;
        if (pk_consul_said(&c->call, "lock delay")) {
            *taken = DELAYED;
        } else if (pk_consul_said(&c->call, "invalid session")) {
            s = pk_fail_plain(PICKET_LOST);
        } else if (refused == 0) {
            s = pk_consul_ticket_read(c, l, until_ms);
        }
    }
    return s;
}

/* It does not hold: it waits, or it is over. Then nothing of it may come true later. */
static enum picket_status stand_aside(struct pk_consul *c, struct pk_consul_lease *l,
                                      struct pk_stake *k, bool wait, uint64_t until_ms)
{
    struct pk_consul_watch *w = k->own;
    k->state = wait ? PK_CLAIM_WAITING : PK_CLAIM_NONE;
    if (wait || !w->unsure) {
        return PICKET_OK;
    }
    enum picket_status s = pk_consul_ticket_write(c, l, k->card, until_ms);
    w->unsure = s != PICKET_OK;
    return s;
}

/* Reads the key, and takes the lock if it is free. */
static enum picket_status look_and_take(struct pk_consul *c, struct pk_consul_lease *l,
                                        struct pk_stake *k, bool wait, uint64_t until_ms,
                                        enum taken *taken)
{
    struct pk_consul_watch *w = k->own;
    struct pk_consul_key key = {0};
    uint64_t token = 0;
    enum picket_status s = pk_consul_get(c, &c->call, w->key, &key, until_ms);
    bool ours = s == PICKET_OK && is_ours(&key, w->session, k->request, &token);
    bool held = key.session[0] != '\0';
    uint64_t index = key.index;
    uint64_t seen = key.seen;
    pk_consul_key_free(&key);
    if (s != PICKET_OK) {
        return s;
    }
    if (ours) {
        *taken = TAKEN;
        k->state = PK_CLAIM_HELD;
        k->token = token;
        pk_consul_watch_hold(c, w, index, token);
        return PICKET_OK;
    }
    if (held) {
        *taken = BUSY;
        bool told = wait && pk_consul_watch_wait(c, w, seen);
        k->again_ms = pk_clock_ms() + (told ? PK_CONSUL_LOOK_MS : UNTOLD_MS);
        return PICKET_OK;
    }
    return take(c, l, k, index, until_ms, taken);
}

static enum picket_status consul_stand(void *own, struct pk_stake *k, bool wait,
                                       uint64_t until_ms)
{
    struct pk_consul *c = own;
    struct pk_consul_lease *l = pk_consul_lease_find(c, k->lease);
    if (l == NULL) {
        return pk_fail_plain(PICKET_LOST);
    }
    enum picket_status s = PICKET_OK;
    enum taken taken = CHANGED;
    if (k->own == NULL) {
        char key[PK_CONSUL_KEY_ROOM];
        pk_consul_lock_key(c, k->name, key);
        k->own = pk_consul_watch_new(c, k->lease, k->request, key, l->session);
        /* Most locks are free, and a free one has no key. Later we look first: whoever is
         * woken in vain should not cost the store a write. */
        s = take(c, l, k, 0, until_ms, &taken);
    }
    for (int i = 0; i < TRIES && s == PICKET_OK && taken == CHANGED; i++) {
        s = look_and_take(c, l, k, wait, until_ms, &taken);
    }
    if (s != PICKET_OK || taken == TAKEN) {
        return s;
    }
    if (taken != BUSY) {
        k->again_ms = pk_clock_ms() + pk_random() % (taken == DELAYED ? DELAYED_MS : 50);
    }
    return stand_aside(c, l, k, wait, until_ms);
}

/* ---- leaving ---- */

/* Deletes the key as it was at that index, and so the hold. NOTHELD: it has changed. */
static enum picket_status delete_key(struct pk_consul *c, const char *key, uint64_t index,
                                     uint64_t until_ms)
{
    uint64_t unused = 0;
    size_t refused = 0;
    json_t *txn = json_array();
    pk_consul_op_add(
        txn, &(struct pk_consul_op){.verb = "delete-cas", .key = key, .index = index});
    return pk_consul_run(c, &c->call, txn, &unused, &refused, until_ms);
}

/* Ends the hold of that session which `request` made, or which has `token` if that is
 * not 0. */
static enum picket_status end_hold(struct pk_consul *c, const char *key,
                                   const char *session, uint64_t request, uint64_t token,
                                   uint64_t until_ms)
{
    for (int i = 0; i < TRIES; i++) {
        struct pk_consul_key k = {0};
        uint64_t by = 0;
        uint64_t its = 0;
        struct pk_bytes card;
        enum picket_status s = pk_consul_get(c, &c->call, key, &k, until_ms);
        bool there = s == PICKET_OK && k.there && strcmp(k.session, session) == 0 &&
                     pk_consul_key_claim(&k, &by, &its, &card) &&
                     (token != 0 ? its == token : by == request);
        uint64_t index = k.index;
        pk_consul_key_free(&k);
        if (s == PICKET_OK) {
            s = there ? delete_key(c, key, index, until_ms) : PICKET_NOTHELD;
        }
        if (s != PICKET_NOTHELD || !there) {
            return s == PICKET_NOTHELD ? pk_fail_plain(s) : s;
        }
    }
    return pk_fail(PICKET_UNREACHABLE, "%s: the key changes all the time", c->show);
}

static enum picket_status consul_leave(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_consul *c = own;
    struct pk_consul_watch *w = k->own;
    struct pk_consul_lease *l = pk_consul_lease_find(c, k->lease);
    if (w == NULL || l == NULL) {
        return pk_fail_plain(l == NULL ? PICKET_LOST : PICKET_NOTHELD);
    }
    if (w->unsure) { /* what is under way must not come true after we have looked */
        enum picket_status s = pk_consul_ticket_write(c, l, k->card, until_ms);
        if (s != PICKET_OK) {
            return s;
        }
        w->unsure = false;
    } else if (!w->hold) {
        return PICKET_OK; /* who waits has nothing in the store */
    } else {
        enum picket_status s = delete_key(c, w->key, w->index, until_ms);
        if (s != PICKET_NOTHELD) {
            return s;
        }
    }
    return end_hold(c, w->key, w->session, k->request, 0, until_ms);
}

static void consul_forget(void *own, struct pk_stake *k)
{
    if (k->own != NULL) {
        pk_consul_watch_drop(own, k->own);
        k->own = NULL;
    }
}

static enum picket_status consul_rewrite(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_consul *c = own;
    struct pk_consul_watch *w = k->own;
    for (int i = 0; i < TRIES; i++) {
        struct pk_consul_key key = {0};
        uint64_t token = 0;
        enum picket_status s = pk_consul_get(c, &c->call, w->key, &key, until_ms);
        bool ours = s == PICKET_OK && is_ours(&key, w->session, k->request, &token);
        uint64_t index = key.index;
        pk_consul_key_free(&key);
        if (s == PICKET_OK && !ours) {
            pk_consul_ended(c, &c->call, w, until_ms);
            return pk_fail_plain(PICKET_NOTHELD);
        }
        if (s == PICKET_OK) {
            size_t len;
            size_t refused = 0;
            char *value = pk_consul_value(k->token, k->card, &len);
            json_t *txn = json_array();
            add_check(txn, w->key, index);
            add_lock(txn, w, pk_bytes(value, len));
            s = pk_consul_run(c, &c->call, txn, &index, &refused, until_ms);
            free(value);
        }
        if (s == PICKET_OK) {
            pk_consul_watch_hold(c, w, index, k->token);
        }
        if (s != PICKET_NOTHELD) {
            return s;
        }
    }
    return pk_fail(PICKET_UNREACHABLE, "%s: the key changes all the time", c->show);
}

static enum picket_status consul_release(void *own, uint64_t lease, const char *name,
                                         uint64_t token, uint64_t until_ms)
{
    struct pk_consul *c = own;
    struct pk_consul_lease *l = NULL;
    char key[PK_CONSUL_KEY_ROOM];
    enum picket_status s = pk_consul_lease_know(c, lease, until_ms, &l);
    if (s != PICKET_OK) {
        return s;
    }
    pk_consul_lock_key(c, name, key);
    return end_hold(c, key, l->session, 0, token, until_ms);
}

/* ---- breaking ---- */

static void note_key(char out[PK_CONSUL_KEY_ROOM], const char *lock_key, uint64_t token)
{
    size_t len = strlen(lock_key) - strlen("/.lock");
    (void)snprintf(out, PK_CONSUL_KEY_ROOM, "%.*s/.broken/", (int)len, lock_key);
    if (token != 0) {
        len = strlen(out);
        (void)snprintf(out + len, PK_CONSUL_KEY_ROOM - len, "%" PRIu64, token);
    }
}

/* The hold goes and the note comes in one step. Notes of earlier breaks go too, should
 * their holders have died before they read them. */
static enum picket_status break_at(struct pk_consul *c, const char *key, uint64_t index,
                                   const struct pk_command *b, uint64_t until_ms)
{
    char note[PK_CONSUL_KEY_ROOM];
    char all[PK_CONSUL_KEY_ROOM];
    uint64_t unused = 0;
    size_t refused = 0;
    json_t *txn = json_array();
    note_key(all, key, 0);
    note_key(note, key, b->token);
    char *text = pk_memory_print("%.*s\n%.*s", (int)b->principal.len, b->principal.data,
                                 (int)b->reason.len, b->reason.data);
    pk_consul_op_add(
        txn, &(struct pk_consul_op){.verb = "delete-cas", .key = key, .index = index});
    pk_consul_op_add(txn, &(struct pk_consul_op){.verb = "delete-tree", .key = all});
    pk_consul_op_add(txn, &(struct pk_consul_op){.verb = "set",
                                                 .key = note,
                                                 .value = pk_bytes(text, strlen(text)),
                                                 .has_value = true});
    free(text);
    return pk_consul_run(c, &c->call, txn, &unused, &refused, until_ms);
}

static enum picket_status consul_break(void *own, const struct pk_command *b,
                                       uint64_t until_ms)
{
    struct pk_consul *c = own;
    char key[PK_CONSUL_KEY_ROOM];
    char *name = pk_memory_copy_n(b->name.data, b->name.len);
    pk_consul_lock_key(c, name, key);
    free(name);
    for (int i = 0; i < TRIES; i++) {
        struct pk_consul_key k = {0};
        uint64_t by = 0;
        uint64_t token = 0;
        struct pk_bytes card;
        enum picket_status s = pk_consul_get(c, &c->call, key, &k, until_ms);
        bool held = s == PICKET_OK && k.session[0] != '\0';
        if (held) { /* some other client's has a token too */
            (void)pk_consul_key_claim(&k, &by, &token, &card);
        }
        uint64_t index = k.index;
        pk_consul_key_free(&k);
        if (s == PICKET_OK && (!held || token != b->token)) {
            return pk_fail_plain(PICKET_NOTHELD);
        }
        if (s == PICKET_OK) {
            s = break_at(c, key, index, b, until_ms);
        }
        if (s != PICKET_NOTHELD) {
            return s;
        }
    }
    return pk_fail(PICKET_UNREACHABLE, "%s: the key changes all the time", c->show);
}

void pk_consul_ended(struct pk_consul *c, struct pk_consul_line *l,
                     const struct pk_consul_watch *w, uint64_t until_ms)
{
    char key[PK_CONSUL_KEY_ROOM];
    char path[PK_CONSUL_URL_ROOM];
    struct pk_consul_key note = {0};
    if (w->request == 0) {
        pk_bridge_lease_ended(c->bridge, w->lease, PK_END_EXPIRED);
        return;
    }
    note_key(key, w->key, w->token);
    enum picket_status s = pk_consul_get(c, l, key, &note, until_ms);
    char *why = s == PICKET_OK && note.there ? strchr(note.value, '\n') : NULL;
    if (why == NULL) {
        pk_bridge_ended(c->bridge, w->lease, w->request, PK_END_FORGOTTEN, NULL, NULL);
    } else {
        *why++ = '\0';
        pk_bridge_ended(c->bridge, w->lease, w->request, PK_END_BROKEN, note.value, why);
        pk_consul_path(path, key, "");
        const struct pk_consul_ask a = {
            .method = "DELETE", .path = path, .changes = true};
        s = pk_consul_ask(c, l, &a, until_ms); /* else the next break will */
    }
    (void)s;
    pk_consul_key_free(&note);
}

/* ---- opening and closing ---- */

static void consul_meet(void *own, struct pk_store *b)
{
    struct pk_consul *c = own;
    c->bridge = b;
}

static void consul_forked(void *own)
{
    struct pk_consul *c = own;
    pk_fd_close(&c->epoll_fd);
    for (size_t i = 0; i < PK_CONSUL_SOCKETS_MAX; i++) {
        pk_fd_close(&c->sockets[i]);
    }
}

static void consul_close(void *own)
{
    struct pk_consul *c = own;
    while (c->leases != NULL) { /* and their watches */
        pk_consul_lease_forget(c, c->leases->id);
    }
    pk_consul_watch_close(c);
    pk_consul_line_close(&c->call);
    curl_slist_free_all(c->headers);
    pk_url_free(&c->url);
    pthread_mutex_destroy(&c->mutex);
    (void)pk_door_resize(c, 0);
}

static const struct pk_bridged ops = {
    .meet = consul_meet,
    .lease_open = pk_consul_lease_open,
    .lease_renew = pk_consul_lease_renew,
    .lease_close = pk_consul_lease_close,
    .lease_look = pk_consul_lease_look,
    .stand = consul_stand,
    .leave = consul_leave,
    .forget = consul_forget,
    .rewrite = consul_rewrite,
    .release = consul_release,
    .break_hold = consul_break,
    .scan = pk_consul_scan,
    .await = pk_consul_await,
    .examine = pk_consul_examine,
    .forked = consul_forked,
    .close = consul_close,
};

/* Where it is, what stands before all keys, and the token. */
static enum picket_status read_url(struct pk_consul *c, const char *rest)
{
    struct pk_place place;
    char *url = pk_memory_print("consul:%s", rest);
    enum picket_status s = pk_url_read(url, "", FORM, &c->url);
    free(url);
    if (s == PICKET_OK) {
        s = pk_url_place(&c->url, FORM, &place);
    }
    if (s != PICKET_OK) {
        return s;
    }
    size_t len = strlen(c->url.path);
    while (len > 0 && c->url.path[len - 1] == '/') {
        len--;
    }
    const char *prefix = len > 0 ? c->url.path : "picket";
    len = len > 0 ? len : strlen(prefix);
    if (place.host[0] == '\0' || c->url.user[0] != '\0' || prefix[0] == '/' ||
        len > PK_CONSUL_PREFIX_MAX || !pk_utf8_printable(pk_bytes(prefix, len), false) ||
        strpbrk(c->url.password, "\r\n") != NULL) {
        return pk_fail(PICKET_BADARG,
                       "that URL can't be read; it is " FORM
                       ", without a user, and a prefix of up to %d bytes",
                       PK_CONSUL_PREFIX_MAX);
    }
    bool six = strchr(place.host, ':') != NULL;
    (void)snprintf(c->prefix, sizeof c->prefix, "%.*s", (int)len, prefix);
    (void)snprintf(c->base, sizeof c->base, "http://%s%s%s:%u/v1", six ? "[" : "",
                   place.host, six ? "]" : "", place.port != 0 ? place.port : PORT);
    pk_url_show(&c->url, c->show, sizeof c->show);
    return PICKET_OK;
}

static void init_curl(void)
{
    (void)curl_global_init(CURL_GLOBAL_ALL);
}

static void add_header(struct pk_consul *c, const char *line)
{
    c->headers = curl_slist_append(c->headers, line);
    pk_memory_need(c->headers);
}

static enum picket_status consul_open(const char *rest, struct pk_store **out);

const struct pk_driver pk_consul_driver = {
    .scheme = "consul",
    .form = FORM,
    .guarantees = {.driver = "consul",
                   .promise = "correctness",
                   .scope = "a Consul datacenter",
                   .token = "Consul's raft index of the grant (ModifyIndex)",
                   .fairness = "none",
                   .waiting = "push, and a look at least every 15 s",
                   .clock = "rates within 1 %; a session ends after one to two times its "
                            "TTL, which is 10 s at least",
                   .failover = "TTLs begin anew with a new leader; a restored snapshot "
                               "takes tokens back",
                   .election = 1,
                   .by_id = 1,
                   .reasons = 1,
                   .tokens = 2},
    .open = consul_open,
    PK_BRIDGE_DRIVER,
};

static enum picket_status consul_open(const char *rest, struct pk_store **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, init_curl);
    struct pk_consul *c = pk_door_resize(NULL, sizeof *c);
    *c = (struct pk_consul){.epoll_fd = -1, .patience_ms = PK_CONSUL_PATIENCE_MS};
    (void)pthread_mutex_init(&c->mutex, NULL);
    for (size_t i = 0; i < PK_CONSUL_SOCKETS_MAX; i++) {
        c->sockets[i] = -1;
    }
    enum picket_status s = read_url(c, rest);
    if (s == PICKET_OK && c->url.password[0] != '\0') {
        char *line = pk_memory_print("X-Consul-Token: %s", c->url.password);
        add_header(c, line);
        free(line);
    }
    add_header(c, "Content-Type: application/json");
    add_header(c, "Expect:"); /* no asking whether a body is welcome */
    if (s == PICKET_OK && !pk_consul_watch_open(c)) {
        s = pk_fail(PICKET_LIMIT, "no file descriptors left: %s", strerror(errno));
    }
    if (s != PICKET_OK) {
        consul_close(c);
        return s;
    }
    pk_consul_line_open(c, &c->call);
    return pk_bridge_open(&ops, &pk_consul_driver.guarantees, c, out);
}
