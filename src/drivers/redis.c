/* SPDX-License-Identifier: MIT */
/*
 * Locks in one Redis: redis://:PASSWORD@HOST:PORT/NUMBER. Everything that has to be one
 * step is in lua/lock.lua, which also says what is kept where.
 *
 * A lease is a key with the TTL; holds are keys that end with it. A renewal prolongs both
 * in one step and reports the holds that are gone. Whoever leaves a lock tells the next
 * in its queue through that one's own channel (redis_inbox.h). A holder that dies tells
 * nobody, nor does another client's DEL: so the first in a queue looks when the holder's
 * key would end and every few seconds, and everybody else looks after the one before it.
 *
 * All of it can be repeated: a claim is known by its lease and request (P8).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/redis_inbox.h"
#include "drivers/redis_settings.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/memory.h"

#define FORM "redis://:PASSWORD@HOST:PORT/NUMBER"

enum {
    LOOK_MS = 2000,    /* how often the first of a queue looks; and up to half more */
    PATROL_MS = 30000, /* how often all others do, at least */
    PAGE = 200,        /* locks in one answer of a scan */
};

extern const char pk_lock_lua[];

struct redis {
    struct pk_url url;
    char prefix[PK_REDIS_PREFIX_MAX + 1];
    struct pk_redis_link link;
    struct pk_redis_inbox inbox;
    struct pk_store *bridge;
    uint64_t lease;        /* that this client has opened last */
    uint64_t unsure_break; /* a break whose answer never came */
};

/* ---- calling the script ---- */

static void begin(const struct redis *r, const char *verb, struct pk_redis_words *w)
{
    pk_redis_call(&r->link, w);
    pk_redis_add_text(w, "0");
    pk_redis_add_text(w, verb);
    pk_redis_add_text(w, r->prefix);
}

/* The i-th word of an answer, or of one of its rows. */
static struct pk_bytes word_at(const redisReply *r, size_t i)
{
    const redisReply *e = r != NULL && i < r->elements ? r->element[i] : NULL;
    return e != NULL && e->str != NULL ? pk_bytes(e->str, (size_t)e->len)
                                       : pk_bytes("", 0);
}

static int64_t number_at(const redisReply *r, size_t i)
{
    const redisReply *e = r != NULL && i < r->elements ? r->element[i] : NULL;
    return e == NULL                        ? 0
           : e->type == REDIS_REPLY_INTEGER ? (int64_t)e->integer
           : e->str != NULL                 ? (int64_t)strtoll(e->str, NULL, 10)
                                            : 0;
}

static bool says(const redisReply *r, const char *word)
{
    return pk_bytes_equal(word_at(r, 0), pk_text(word));
}

/* Asks, and turns the first word of the answer into a status. `*out` is NULL unless it
 * is OK. */
static enum picket_status ask(struct redis *r, struct pk_redis_words *w,
                              uint64_t until_ms, redisReply **out)
{
    *out = NULL;
    enum picket_status s = pk_redis_run(&r->link, w, false, until_ms, out);
    if (*out == NULL) {
        return s;
    }
    if ((*out)->type == REDIS_REPLY_ERROR) {
        s = pk_redis_refused(r->link.where, (*out)->str);
    } else if (says(*out, "lost")) {
        s = pk_fail_plain(PICKET_LOST);
    } else if (says(*out, "notheld")) {
        s = pk_fail_plain(PICKET_NOTHELD);
    }
    if (s != PICKET_OK) {
        freeReplyObject(*out);
        *out = NULL;
    }
    return s;
}

/* The same for those who want to know nothing else. */
static enum picket_status simply(struct redis *r, struct pk_redis_words *w,
                                 uint64_t until_ms)
{
    redisReply *reply;
    enum picket_status s = ask(r, w, until_ms, &reply);
    freeReplyObject(reply);
    return s;
}

/* ---- leases ---- */

static void meet(void *own, struct pk_store *b)
{
    struct redis *r = own;
    r->bridge = b;
    r->inbox.bridge = b;
}

static enum picket_status lease_open(void *own, struct pk_tenancy *t, uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    begin(r, "open", &w);
    pk_redis_add_number(&w, t->id);
    pk_redis_add_number(&w, t->ttl_ms);
    pk_redis_add_text(&w, r->inbox.channel);
    r->lease = t->id;
    return simply(r, &w, until_ms);
}

/* The store need not remember it any longer. If that fails, the next renewal is told of
 * it again. */
static void forget_hold(struct redis *r, uint64_t lease, uint64_t request,
                        uint64_t until_ms)
{
    struct pk_redis_words w;
    begin(r, "forget", &w);
    pk_redis_add_number(&w, lease);
    pk_redis_add_number(&w, request);
    enum picket_status unimportant = simply(r, &w, until_ms);
    (void)unimportant;
}

/* Tells of the holds that the answer to a renewal says are gone. */
static void tell_gone(struct redis *r, uint64_t lease, const redisReply *answer,
                      uint64_t until_ms)
{
    for (size_t i = 2; i + 1 < answer->elements; i += 2) {
        uint64_t request = (uint64_t)number_at(answer, i);
        char *by = answer->element[i + 1]->str;
        char *why = by != NULL ? strchr(by, '\n') : NULL;
        if (why != NULL) {
            *why++ = '\0';
            pk_bridge_ended(r->bridge, lease, request, PK_END_BROKEN, by, why);
        } else {
            pk_bridge_ended(r->bridge, lease, request, PK_END_FORGOTTEN, "", "");
        }
        if (lease == r->lease) { /* another's owner has not heard of it yet */
            forget_hold(r, lease, request, until_ms);
        }
    }
}

static enum picket_status lease_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                      uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    redisReply *reply = NULL;
    begin(r, "renew", &w);
    pk_redis_add_number(&w, lease);
    pk_redis_add_number(&w, *ttl_ms);
    enum picket_status s = ask(r, &w, until_ms, &reply);
    if (s == PICKET_OK) {
        *ttl_ms = (uint64_t)number_at(reply, 1);
        tell_gone(r, lease, reply, until_ms);
        freeReplyObject(reply);
    }
    return s;
}

static enum picket_status lease_close(void *own, uint64_t lease, uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    begin(r, "close", &w);
    pk_redis_add_number(&w, lease);
    enum picket_status s = simply(r, &w, until_ms);
    return s == PICKET_LOST && r->link.repeated ? PICKET_OK : s;
}

static enum picket_status lease_look(void *own, uint64_t lease, uint64_t *left_ms,
                                     uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    redisReply *reply = NULL;
    begin(r, "look", &w);
    pk_redis_add_number(&w, lease);
    enum picket_status s = ask(r, &w, until_ms, &reply);
    *left_ms = s == PICKET_OK ? (uint64_t)number_at(reply, 1) : 0;
    freeReplyObject(reply);
    return s;
}

/* ---- claims ---- */

/* Some keys are not for locks, whatever the prefix. */
static enum picket_status check_name(const struct redis *r, const char *name)
{
    static const char *const ours[] = {"picket-token:", "picket-queue:", "picket-lease:",
                                       "picket-names:", "picket:fence:{"};
    char key[PK_REDIS_PREFIX_MAX + PK_NAME_MAX + 1];
    (void)snprintf(key, sizeof key, "%s%s", r->prefix, name);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (strncmp(key, ours[i], strlen(ours[i])) == 0) {
            return pk_fail(PICKET_BADARG, "keys in Redis that begin with %s are no locks",
                           ours[i]);
        }
    }
    return PICKET_OK;
}

/* When a waiter looks again, by what the script says of whom it waits for. */
static uint64_t look_again(bool first, int64_t left_ms)
{
    uint64_t most = first ? LOOK_MS + pk_random() % (LOOK_MS / 2) : PATROL_MS;
    uint64_t ends = left_ms < 0 ? most : (uint64_t)left_ms + 1;
    /* Those behind the first are not in a hurry, and not all at once. */
    ends += first ? 0 : pk_random() % 200;
    return pk_clock_ms() + (ends < most ? ends : most);
}

static enum picket_status stand(void *own, struct pk_stake *k, bool wait,
                                uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    redisReply *reply = NULL;
    enum picket_status s = check_name(r, k->name);
    if (s != PICKET_OK) {
        return s;
    }
    begin(r, "stand", &w);
    pk_redis_add_number(&w, k->lease);
    pk_redis_add_number(&w, k->request);
    pk_redis_add_text(&w, k->name);
    pk_redis_add_text(&w, wait ? "1" : "0");
    pk_redis_add(&w, k->card);
    pk_redis_add_number(&w, k->lock_delay_ms);
    s = ask(r, &w, until_ms, &reply);
    if (s != PICKET_OK) {
        return s;
    }
    bool first = says(reply, "first");
    if (says(reply, "held")) {
        k->state = PK_CLAIM_HELD;
        k->token = (uint64_t)number_at(reply, 1);
    } else if (first || says(reply, "waiting")) {
        k->state = PK_CLAIM_WAITING;
        k->again_ms = look_again(first, number_at(reply, 1));
    } else {
        k->state = PK_CLAIM_NONE;
    }
    freeReplyObject(reply);
    return PICKET_OK;
}

static void add_claim(struct pk_redis_words *w, const struct pk_stake *k)
{
    pk_redis_add_number(w, k->lease);
    pk_redis_add_number(w, k->request);
    pk_redis_add_text(w, k->name);
}

static enum picket_status leave(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    begin(r, "leave", &w);
    add_claim(&w, k);
    enum picket_status s = simply(r, &w, until_ms);
    return s == PICKET_NOTHELD && r->link.repeated ? PICKET_OK : s;
}

static enum picket_status rewrite(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    begin(r, "rewrite", &w);
    add_claim(&w, k);
    pk_redis_add(&w, k->card);
    return simply(r, &w, until_ms);
}

static enum picket_status release(void *own, uint64_t lease, const char *name,
                                  uint64_t token, uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    begin(r, "release", &w);
    pk_redis_add_number(&w, lease);
    pk_redis_add_text(&w, name);
    pk_redis_add_number(&w, token);
    enum picket_status s = simply(r, &w, until_ms);
    return s == PICKET_NOTHELD && r->link.repeated ? PICKET_OK : s;
}

static enum picket_status break_hold(void *own, const struct pk_command *c,
                                     uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    begin(r, "break", &w);
    char *why =
        pk_memory_print("%.*s\n%.*s", (int)c->principal.len,
                        c->principal.len > 0 ? c->principal.data : "", (int)c->reason.len,
                        c->reason.len > 0 ? c->reason.data : "");
    pk_redis_add(&w, c->name);
    pk_redis_add_number(&w, c->token);
    pk_redis_add_text(&w, why);
    enum picket_status s = simply(r, &w, until_ms);
    free(why);
    bool repeated =
        r->link.repeated || (c->request != 0 && c->request == r->unsure_break);
    r->unsure_break = s == PICKET_UNKNOWN ? c->request : 0;
    return s == PICKET_NOTHELD && repeated ? PICKET_OK : s;
}

/* ---- looking ---- */

static void see_rows(const redisReply *reply, struct pk_scan *scan)
{
    for (size_t i = 2; i < reply->elements; i++) {
        const redisReply *row = reply->element[i];
        int64_t left = number_at(row, 4);
        if (pk_bytes_equal(word_at(row, 3), pk_text("closed"))) {
            pk_bridge_see_closed(scan, (uint64_t)left);
            continue;
        }
        struct pk_sight seen = {.name = word_at(row, 0),
                                .held = number_at(row, 1) == 1,
                                .token = (uint64_t)number_at(row, 2),
                                .order = (uint64_t)number_at(row, 3),
                                .left_ms = left > 0 ? (uint64_t)left : 0,
                                .card = word_at(row, 5)};
        pk_bridge_see(scan, &seen);
    }
}

static enum picket_status scan(void *own, const char *name, bool whole_name,
                               struct pk_scan *scan, uint64_t until_ms)
{
    struct redis *r = own;
    struct pk_redis_words w;
    char after[PK_NAME_MAX + 1] = "";
    bool more = true;
    enum picket_status s = PICKET_OK;
    while (s == PICKET_OK && more) {
        redisReply *reply = NULL;
        begin(r, whole_name ? "show" : "list", &w);
        pk_redis_add_text(&w, name);
        if (!whole_name) {
            pk_redis_add_text(&w, after);
            pk_redis_add_number(&w, PAGE);
        }
        s = ask(r, &w, until_ms, &reply);
        if (s == PICKET_OK) {
            struct pk_bytes next = word_at(reply, 1);
            see_rows(reply, scan);
            more = next.len > 0;
            (void)snprintf(after, sizeof after, "%.*s", (int)next.len, next.data);
            freeReplyObject(reply);
        }
    }
    return s;
}

static bool await(void *own, uint64_t until_ms)
{
    struct redis *r = own;
    return pk_redis_inbox_await(&r->inbox, until_ms);
}

static enum picket_status examine(void *own, struct pk_findings *out, uint64_t until_ms)
{
    struct redis *r = own;
    return pk_redis_examine(&r->link, out, until_ms);
}

/* ---- opening and closing ---- */

static void forked(void *own)
{
    struct redis *r = own;
    pk_fd_close(&r->link.fd);
    pk_fd_close(&r->inbox.link.fd);
}

static void close_redis(void *own)
{
    struct redis *r = own;
    pk_redis_free(&r->link);
    pk_redis_free(&r->inbox.link);
    pk_url_free(&r->url);
    (void)pk_door_resize(r, 0);
}

static const struct pk_bridged operations = {.meet = meet,
                                             .lease_open = lease_open,
                                             .lease_renew = lease_renew,
                                             .lease_close = lease_close,
                                             .lease_look = lease_look,
                                             .stand = stand,
                                             .leave = leave,
                                             .rewrite = rewrite,
                                             .release = release,
                                             .break_hold = break_hold,
                                             .scan = scan,
                                             .await = await,
                                             .examine = examine,
                                             .forked = forked,
                                             .close = close_redis};

static enum picket_status read_url(struct redis *r, const char *rest)
{
    char *url = pk_memory_print("redis:%s", rest);
    enum picket_status s = pk_url_read(url, "socket prefix", FORM, &r->url);
    free(url);
    if (s == PICKET_OK) {
        s = pk_url_place(&r->url, FORM, &r->link.place);
    }
    if (s != PICKET_OK) {
        return s;
    }
    r->link.url = &r->url;
    pk_url_show(&r->url, r->link.where, sizeof r->link.where);
    if (r->url.hosts[0] == '\0' && pk_url_option(&r->url, "socket")[0] == '\0') {
        return pk_fail(PICKET_BADARG, "a host is missing; it is " FORM);
    }
    return pk_redis_settings(&r->url, r->link.where, r->prefix);
}

static enum picket_status open_redis(const char *rest, struct pk_store **out)
{
    struct redis *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct redis){.link = {.script = pk_lock_lua, .locks = true}};
    pk_redis_init(&r->link);
    pk_redis_init(&r->inbox.link);
    enum picket_status s = read_url(r, rest);
    if (s != PICKET_OK) {
        close_redis(r);
        return s;
    }
    pk_redis_inbox_init(&r->inbox, &r->link);
    return pk_bridge_open(&operations, &pk_redis_driver.guarantees, r, out);
}

const struct pk_driver pk_redis_driver = {
    .scheme = "redis",
    .form = FORM,
    .guarantees = {.driver = "redis",
                   .promise = "efficiency",
                   .scope = "one Redis server",
                   .token = "a counter of each lock, raised in the script that grants it",
                   .fairness = "fifo",
                   .waiting = "push, and a look at least every 3 s",
                   .clock = "Redis' wall clock: set forward, it ends leases early",
                   .failover =
                       "asynchronous replication: a promoted replica may not know "
                       "the lock, so that two hold it and the counter goes back",
                   .election = 1,
                   .lock_delay = 1,
                   .extend = 1,
                   .by_id = 1,
                   .reasons = 1,
                   .tokens = 1},
    .open = open_redis,
    PK_BRIDGE_DRIVER,
};
