/* SPDX-License-Identifier: MIT */
/* The driver for ZooKeeper: its URLs, its leases, and what it declares; see zk_inside.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/zk_inside.h"
#include "host/clock.h"
#include "host/memory.h"

#define ROOT "/picket"

/* The library gives a connection two thirds of the timeout to come about. */
enum { TIMEOUT_LEAST_MS = 1000 };

/* ---- leases ---- */

static void zk_meet(void *own, struct pk_store *b)
{
    struct pk_zk *z = own;
    z->bridge = b;
}

/* The sessions of leases that are over, those that nobody waited for, and the one for
 * looking: ours will do for that. */
static void end_others(struct pk_zk *z, uint64_t wish)
{
    for (struct pk_zk_session *s = z->sessions, *next; s != NULL; s = next) {
        next = s->next;
        bool stale = s->wish == wish && pk_clock_ms() - s->begun_ms > s->ttl_ms / 2;
        if (s->wish != wish || stale) {
            pk_zk_end(s);
        }
    }
}

static enum picket_status zk_lease_open(void *own, struct pk_tenancy *t,
                                        uint64_t until_ms)
{
    struct pk_zk *z = own;
    uint64_t asked = pk_clock_ms();
    end_others(z, t->id);
    struct pk_zk_session *s = z->sessions;
    while (s != NULL && s->wish != t->id) {
        s = s->next;
    }
    enum picket_status status = PICKET_OK;
    if (s == NULL) {
        uint64_t timeout_ms = (t->ttl_ms * 3 + 1) / 2;
        timeout_ms = timeout_ms > TIMEOUT_LEAST_MS ? timeout_ms : TIMEOUT_LEAST_MS;
        status = pk_zk_begin(z, t->id, timeout_ms, &s);
    }
    if (status != PICKET_OK) {
        return status;
    }
    s->ttl_ms = t->ttl_ms;
    status = pk_zk_ready(s, until_ms);
    if (status == PICKET_OK) {
        /* The server made it after it was begun, which may have been before this asking.
         */
        uint64_t end = s->begun_ms + pk_zk_timeout(s);
        uint64_t left = end > asked ? end - asked : 0;
        uint64_t most = pk_zk_believable(pk_zk_timeout(s));
        s->ttl_ms = t->ttl_ms < most ? t->ttl_ms : most;
        t->ttl_ms = left < s->ttl_ms ? left : s->ttl_ms;
        pthread_mutex_lock(&z->mutex);
        s->lease = t->id = s->id;
        pthread_mutex_unlock(&z->mutex);
    } else if (status == PICKET_LOST || status == PICKET_STORE) {
        pk_zk_end(s); /* of no use any more */
        status = status == PICKET_LOST ? PICKET_UNREACHABLE : status;
    }
    return status;
}

/* Tells again of the holds that are gone: the bridge may have been too busy. */
static void tell_gone(struct pk_zk *z, struct pk_zk_session *s)
{
    for (struct pk_zk_claim *k = s->claims; k != NULL; k = k->next) {
        pthread_mutex_lock(&z->mutex);
        bool gone = k->gone;
        struct pk_zk_break b = k->broken;
        pthread_mutex_unlock(&z->mutex);
        if (gone) {
            pk_bridge_ended(z->bridge, k->lease, k->request, PK_END_BROKEN, b.by, b.why);
        }
    }
}

static enum picket_status zk_lease_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                         uint64_t until_ms)
{
    struct pk_zk *z = own;
    struct pk_zk_session *s = pk_zk_session_of(z, lease);
    if (s == NULL) {
        return pk_fail_plain(PICKET_LOST);
    }
    uint64_t most = pk_zk_believable(pk_zk_timeout(s));
    if (*ttl_ms > most) {
        return pk_fail(PICKET_UNSUPPORTED,
                       "%s: the session was opened for at most %llu ms, and can't be "
                       "made longer",
                       z->shown, (unsigned long long)most);
    }
    s->ttl_ms = *ttl_ms != 0 ? *ttl_ms : s->ttl_ms;
    enum picket_status status = pk_zk_ready(s, until_ms);
    if (status != PICKET_OK) {
        return status;
    }
    uint64_t sent = pk_clock_ms();
    struct pk_zk_call c = {s, until_ms, NULL};
    status = pk_zk_verdict(z, pk_zk_nothing(&c));
    pk_zk_done(&c);
    if (status == PICKET_OK) {
        *ttl_ms = pk_zk_session_renewed(s, pk_zk_timeout(s), sent);
        tell_gone(z, s);
    }
    return status;
}

static enum picket_status zk_lease_close(void *own, uint64_t lease, uint64_t until_ms)
{
    struct pk_zk *z = own;
    struct pk_zk_session *s = pk_zk_session_of(z, lease);
    if (s == NULL) {
        return pk_fail_plain(PICKET_LOST);
    }
    pthread_mutex_lock(&z->mutex);
    for (struct pk_zk_claim *k = s->claims; k != NULL; k = k->next) {
        k->leaving = true;
    }
    pthread_mutex_unlock(&z->mutex);
    enum picket_status status = pk_zk_ready(s, until_ms);
    if (status == PICKET_OK) {
        /* The library does not wait for the end of the session, so that we let go of the
         * locks before it. */
        struct pk_zk_call c = {s, until_ms, NULL};
        status = pk_zk_verdict(z, pk_zk_delete_all(&c));
        pk_zk_done(&c);
    }
    /* In any case: the library would keep it alive for ever, and its locks with it (P9).
     */
    pk_zk_end(s);
    return status;
}

static bool zk_await(void *own, uint64_t until_ms)
{
    struct pk_zk *z = own;
    (void)pk_bridge_sleep(z->bridge, -1, until_ms);
    return false; /* each stake is stirred by itself */
}

/* ---- opening and closing ---- */

static void zk_close(void *own)
{
    struct pk_zk *z = own;
    while (z->sessions != NULL) {
        pk_zk_end(z->sessions);
    }
    pthread_cond_destroy(&z->changed);
    pthread_mutex_destroy(&z->mutex);
    pk_url_free(&z->url);
    free(z->hosts);
    free(z->root);
    (void)pk_door_resize(z, 0);
}

static const struct pk_bridged operations = {
    .meet = zk_meet,
    .lease_open = zk_lease_open,
    .lease_renew = zk_lease_renew,
    .lease_close = zk_lease_close,
    .stand = pk_zk_stand,
    .leave = pk_zk_leave,
    .forget = pk_zk_forget,
    .rewrite = pk_zk_rewrite,
    .break_hold = pk_zk_break_hold,
    .scan = pk_zk_scan,
    .await = zk_await,
    .examine = pk_zk_examine,
    .forked = pk_zk_forked,
    .close = zk_close,
};

/* ROOT of the URL as a path. BADARG: ZooKeeper would not have it. */
static enum picket_status read_root(struct pk_zk *z)
{
    size_t len = strlen(z->url.path);
    while (len > 0 && z->url.path[len - 1] == '/') {
        len--;
    }
    char *root = pk_memory_print("%s%.*s", len == 0 ? ROOT : "/", (int)len, z->url.path);
    z->root = root;
    bool wrong = false;
    for (const char *at = root; *at != '\0' && !wrong; at += strcspn(at, "/")) {
        at++; /* the slash */
        size_t n = strcspn(at, "/");
        wrong =
            n == 0 || (n == 1 && at[0] == '.') || (n == 2 && memcmp(at, "..", 2) == 0);
    }
    return wrong
               ? pk_fail(PICKET_BADARG,
                         "%s: ROOT has an empty part, or one of dots; it is " PK_ZK_FORM,
                         z->shown)
               : PICKET_OK;
}

static enum picket_status read_names(struct pk_zk *z)
{
    const char *names = pk_url_option(&z->url, "names");
    bool kazoo = strcmp(names, "kazoo") == 0;
    z->marks[0] = kazoo ? "-__lock__" : "-lock-";
    z->marks[1] = kazoo ? "-__rlock__" : "-rlock-";
    return kazoo || names[0] == '\0' || strcmp(names, "curator") == 0
               ? PICKET_OK
               : pk_fail(PICKET_BADARG, "%s: names can be curator or kazoo", z->shown);
}

static void list_hosts(struct pk_zk *z)
{
    for (uint32_t i = 0; i < z->places.count; i++) {
        const struct pk_place *p = &z->places.list[i];
        char *longer = pk_memory_print("%s%s%s:%u", i > 0 ? z->hosts : "",
                                       i > 0 ? "," : "", p->host, p->port);
        free(z->hosts);
        z->hosts = longer;
    }
}

static enum picket_status zk_open(const char *rest, struct pk_store **out)
{
    struct pk_zk *z = pk_door_resize(NULL, sizeof *z);
    memset(z, 0, sizeof *z);
    char *url = pk_memory_print("zk:%s", rest);
    enum picket_status s = pk_url_read(url, "names", PK_ZK_FORM, &z->url);
    free(url);
    if (s != PICKET_OK) {
        (void)pk_door_resize(z, 0);
        return s;
    }
    pthread_mutex_init(&z->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&z->changed, &attr);
    pthread_condattr_destroy(&attr);
    pk_url_show(&z->url, z->shown, sizeof z->shown);
    s = pk_url_places(&z->url, PK_ZK_PORT, PK_ZK_FORM, &z->places);
    s = s == PICKET_OK ? read_root(z) : s;
    s = s == PICKET_OK ? read_names(z) : s;
    if (s != PICKET_OK) {
        zk_close(z);
        return s;
    }
    list_hosts(z);
    return pk_bridge_open(&operations, &pk_zk_driver.guarantees, z, out);
}

const struct pk_driver pk_zk_driver = {
    .scheme = "zk",
    .form = "zk://HOST[:PORT],...[/ROOT]",
    .guarantees =
        {
            .driver = "zookeeper",
            .promise = "correctness",
            .scope = "an ensemble of ZooKeeper servers",
            .token = "the transaction that put the claim into the queue (czxid)",
            .fairness = "fifo",
            .waiting = "push",
            .clock = "the leader's monotonic clock, in ticks; rates within 1 %",
            .failover =
                "sessions go on under a new leader, with their whole timeout again; a "
                "minority may die",
            .shared = 1,
            .election = 1,
            .reasons = 1,
            .tokens = 1,
        },
    .open = zk_open,
    PK_BRIDGE_DRIVER,
};
