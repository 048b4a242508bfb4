/* SPDX-License-Identifier: MIT */
/*
 * Redlock: a lock is held by whoever has its key on a majority of independent Redis
 * servers: redlock://H1:P1,H2:P2,...
 *
 * There is no lease in the store: it is this process' memory, and every hold has its own
 * key on each node, with the TTL. A hold is valid for TTL - elapsed - drift (1 % and 2
 * ms): what elapses is counted by the client, from before it asked (P5); the drift is
 * taken off the TTL that it is told. What is not a majority is taken back everywhere.
 *
 * There is no token that would be safe: a counter on each node can go back with it, and
 * no two majorities need agree on one. So there is none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/bridge.h"
#include "drivers/redlock_nodes.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/memory.h"

enum {
    AGAIN_MS = 200, /* until the next attempt; between half of it and one and a half */
    TRIES = 3,      /* of somebody who doesn't wait, while votes are split */
    SPLIT_MS = 20,  /* between them, at most */
};

/* A hold of ours, as the nodes know it. */
struct hold {
    struct hold *next;
    uint64_t request;
    char *name, *card;
    struct pk_redlock_pair pair; /* of the two */
};

struct redlock {
    struct pk_nodes nodes;
    struct pk_store *bridge;
    uint64_t lease;          /* 0: none */
    uint64_t valid_until_ms; /* of the lease, by our own clock */
    struct hold *holds;
};

/* ---- time ---- */

/* What a TTL is worth, less what clocks may differ in. */
static uint64_t less_drift(uint64_t ttl_ms)
{
    uint64_t drift = ttl_ms / 100 + 2;
    return ttl_ms > drift ? ttl_ms - drift : 0;
}

static bool alive(const struct redlock *r, uint64_t lease)
{
    return lease != 0 && lease == r->lease && pk_clock_ms() < r->valid_until_ms;
}

/* ---- holds ---- */

static void remember(struct redlock *r, struct pk_stake *k)
{
    if (k->own != NULL) {
        return;
    }
    struct hold *h = pk_door_resize(NULL, sizeof *h);
    *h = (struct hold){.next = r->holds, .request = k->request};
    h->name = pk_memory_copy(k->name);
    h->card = pk_memory_copy_n(k->card.data, k->card.len);
    h->pair = (struct pk_redlock_pair){h->name, pk_bytes(h->card, k->card.len),
                                       k->lock_delay_ms};
    r->holds = h;
    k->own = h;
}

static void forget(void *own, struct pk_stake *k)
{
    struct redlock *r = own;
    struct hold **at = &r->holds;
    while (*at != NULL && *at != k->own) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        struct hold *h = *at;
        *at = h->next;
        free(h->name);
        free(h->card);
        (void)pk_door_resize(h, 0);
    }
    k->own = NULL;
}

/* ---- taking and leaving ---- */

/* Takes it back on all nodes, also on those that have not answered; those that have now,
 * and *ours: on which it was. */
static uint32_t drop(struct redlock *r, const struct pk_redlock_pair *pair,
                     uint64_t until_ms, uint32_t *ours)
{
    struct pk_nodes *n = &r->nodes;
    struct pk_redlock_question q = {
        .verb = "drop", .pairs = pair, .n_pairs = 1, .mask = pk_nodes_all(n)};
    uint32_t answered = pk_nodes_ask(n, &q, pk_nodes_limit(&r->nodes, until_ms));
    *ours = pk_nodes_saying(n, answered, 0, "ours");
    return answered;
}

/* Whether nobody has a majority of what was answered: then it is free, and the votes are
 * only split among those who want it. */
static bool is_split(const struct pk_nodes *n, uint32_t answered)
{
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t same = 0;
        for (uint32_t j = 0; j < n->count; j++) {
            same += (answered >> i & 1) != 0 && (answered >> j & 1) != 0 &&
                    pk_bytes_equal(pk_nodes_word(n, i, 0), pk_nodes_word(n, j, 0));
        }
        if (same >= n->majority) {
            return false;
        }
    }
    return true;
}

/* One attempt. OK: k->state; *split: somebody else may have more luck than we, or we the
 * next time. */
static enum picket_status attempt(struct redlock *r, struct pk_stake *k,
                                  uint64_t until_ms, bool *split)
{
    struct pk_nodes *n = &r->nodes;
    const struct pk_redlock_pair pair = {k->name, k->card, k->lock_delay_ms};
    struct pk_redlock_question q = {.verb = "take",
                                    .ttl_ms = r->nodes.ttl_ms,
                                    .pairs = &pair,
                                    .n_pairs = 1,
                                    .mask = pk_nodes_all(n)};
    char why[PK_SENTENCE_MAX];
    uint64_t sent = pk_clock_ms();
    uint32_t answered = pk_nodes_ask(n, &q, pk_nodes_limit(&r->nodes, until_ms));
    uint32_t ours = pk_nodes_saying(n, answered, 0, "ours");
    bool valid = pk_clock_ms() < sent + less_drift(r->nodes.ttl_ms);
    k->state = PK_CLAIM_NONE;
    *split = is_split(n, answered);
    if (pk_nodes_count(ours) >= n->majority && valid && alive(r, k->lease)) {
        k->state = PK_CLAIM_HELD;
        k->token = 0;
        remember(r, k);
        return PICKET_OK;
    }
    bool few = pk_nodes_count(answered) < n->majority;
    enum picket_status s = few ? pk_nodes_fail(n, answered, false) : PICKET_OK;
    uint32_t taken = ours | pk_nodes_maybe(n, answered);
    pk_sentence_save(why);
    uint32_t dropped = drop(r, &pair, until_ms, &ours);
    if (s == PICKET_UNREACHABLE && (taken & ~dropped) != 0) {
        s = PICKET_UNKNOWN; /* its key may be where nobody answers */
    }
    pk_sentence_restore(why);
    return !alive(r, k->lease) ? pk_fail_plain(PICKET_LOST) : s;
}

static void nap(uint64_t ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

static enum picket_status stand(void *own, struct pk_stake *k, bool wait,
                                uint64_t until_ms)
{
    struct redlock *r = own;
    bool split = true;
    enum picket_status s = PICKET_OK;
    if (!alive(r, k->lease)) {
        return pk_fail_plain(PICKET_LOST);
    }
    for (int i = 0; i < (wait ? 1 : TRIES) && split; i++) {
        if (i > 0) {
            nap(1 + pk_random() % SPLIT_MS);
        }
        s = attempt(r, k, until_ms, &split);
        if (s != PICKET_OK || k->state == PK_CLAIM_HELD) {
            return s;
        }
    }
    if (wait) {
        k->state = PK_CLAIM_WAITING;
        k->again_ms = pk_clock_ms() + AGAIN_MS / 2 + pk_random() % AGAIN_MS;
    }
    return s;
}

static enum picket_status leave(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct redlock *r = own;
    const struct pk_redlock_pair pair = {k->name, k->card, k->lock_delay_ms};
    uint32_t ours = 0;
    uint32_t answered = drop(r, &pair, until_ms, &ours);
    if (pk_nodes_count(answered) < r->nodes.majority) {
        return pk_nodes_fail(&r->nodes, answered, true);
    }
    return ours != 0 ? PICKET_OK : pk_fail_plain(PICKET_NOTHELD);
}

static enum picket_status rewrite(void *own, struct pk_stake *k, uint64_t until_ms)
{
    (void)own, (void)k, (void)until_ms;
    return pk_fail(PICKET_UNSUPPORTED,
                   "redlock can't change the value of a lock on all nodes in one step");
}

static enum picket_status break_hold(void *own, const struct pk_command *c,
                                     uint64_t until_ms)
{
    (void)own, (void)c, (void)until_ms;
    return pk_fail(PICKET_UNSUPPORTED,
                   "redlock has no tokens, so nobody can say which hold");
}

/* ---- leases ---- */

static void meet(void *own, struct pk_store *b)
{
    struct redlock *r = own;
    r->bridge = b;
}

static enum picket_status lease_open(void *own, struct pk_tenancy *t, uint64_t until_ms)
{
    struct redlock *r = own;
    (void)until_ms; /* nobody is asked before there is something to hold */
    r->lease = t->id;
    r->nodes.ttl_ms = t->ttl_ms;
    t->ttl_ms = less_drift(r->nodes.ttl_ms);
    r->valid_until_ms = pk_clock_ms() + t->ttl_ms;
    return PICKET_OK;
}

/* Fills in up to a page of holds from `*at` on. */
static uint32_t page_of(struct hold **at, struct hold **holds,
                        struct pk_redlock_pair *pairs)
{
    uint32_t count = 0;
    for (; *at != NULL && count < PK_REDLOCK_PAIRS_MAX; *at = (*at)->next) {
        holds[count] = *at;
        pairs[count++] = (*at)->pair;
    }
    return count;
}

/* Puts holds that we certainly have back on the nodes that have lost them: a node that
 * was restarted empty would give its vote to anybody. */
static void assert_again(struct redlock *r, const struct pk_redlock_pair *pairs,
                         const uint32_t *missing, uint32_t count, uint64_t until_ms)
{
    struct pk_redlock_pair lost[PK_REDLOCK_PAIRS_MAX];
    for (uint32_t node = 0; node < r->nodes.count; node++) {
        struct pk_redlock_question q = {.verb = "take",
                                        .ttl_ms = r->nodes.ttl_ms,
                                        .pairs = lost,
                                        .mask = UINT32_C(1) << node};
        for (uint32_t i = 0; i < count; i++) {
            if ((missing[i] & q.mask) != 0) {
                lost[q.n_pairs++] = pairs[i];
            }
        }
        if (q.n_pairs > 0) {
            (void)pk_nodes_ask(&r->nodes, &q, pk_nodes_limit(&r->nodes, until_ms));
        }
    }
}

/* Tells that they are lost, and takes back what a minority may have of them. */
static void lose(struct redlock *r, struct hold *const *lost, uint32_t count,
                 uint64_t until_ms)
{
    struct pk_redlock_pair pairs[PK_REDLOCK_PAIRS_MAX];
    struct pk_redlock_question q = {.verb = "drop",
                                    .pairs = pairs,
                                    .n_pairs = count,
                                    .mask = pk_nodes_all(&r->nodes)};
    for (uint32_t i = 0; i < count; i++) {
        pairs[i] = lost[i]->pair;
        pk_bridge_ended(r->bridge, r->lease, lost[i]->request, PK_END_FORGOTTEN, "", "");
    }
    if (count > 0) {
        (void)pk_nodes_ask(&r->nodes, &q, pk_nodes_limit(&r->nodes, until_ms));
    }
}

/* Renews a page. A hold is kept if a majority still had it. It is lost if that can't be,
 * whatever the silent nodes say; in between nobody knows. */
static enum picket_status renew_page(struct redlock *r, struct hold **holds,
                                     const struct pk_redlock_pair *pairs, uint32_t count,
                                     uint64_t until_ms)
{
    struct pk_nodes *n = &r->nodes;
    uint32_t missing[PK_REDLOCK_PAIRS_MAX] = {0};
    struct hold *lost[PK_REDLOCK_PAIRS_MAX];
    uint32_t n_lost = 0;
    bool doubtful = false;
    struct pk_redlock_question q = {.verb = "keep",
                                    .ttl_ms = r->nodes.ttl_ms,
                                    .pairs = pairs,
                                    .n_pairs = count,
                                    .mask = pk_nodes_all(n)};
    uint32_t answered = pk_nodes_ask(n, &q, pk_nodes_limit(&r->nodes, until_ms));
    uint32_t silent = n->count - pk_nodes_count(answered);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t ours = pk_nodes_count(pk_nodes_saying(n, answered, i, "ours"));
        if (ours >= n->majority) {
            missing[i] = pk_nodes_saying(n, answered, i, "missing");
        } else if (ours + silent < n->majority) {
            lost[n_lost++] = holds[i];
        } else {
            doubtful = true;
        }
    }
    enum picket_status s = doubtful ? pk_nodes_fail(n, answered, true) : PICKET_OK;
    lose(r, lost, n_lost, until_ms);
    assert_again(r, pairs, missing, count, until_ms);
    return s;
}

static enum picket_status lease_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                      uint64_t until_ms)
{
    struct redlock *r = own;
    struct hold *holds[PK_REDLOCK_PAIRS_MAX];
    struct pk_redlock_pair pairs[PK_REDLOCK_PAIRS_MAX];
    if (!alive(r, lease)) {
        return pk_fail_plain(PICKET_LOST);
    }
    uint64_t before = r->nodes.ttl_ms;
    uint64_t sent = pk_clock_ms();
    r->nodes.ttl_ms = *ttl_ms != 0 ? *ttl_ms : r->nodes.ttl_ms;
    enum picket_status s = PICKET_OK;
    uint32_t count;
    for (struct hold *at = r->holds;
         s == PICKET_OK && (count = page_of(&at, holds, pairs)) > 0;) {
        s = renew_page(r, holds, pairs, count, until_ms);
    }
    if (s != PICKET_OK) {
        /* The client trusts in the TTL of before, so that keys taken next must last as
         * long; no key was made shorter (outlast in redlock.lua). */
        r->nodes.ttl_ms = before;
        return s;
    }
    *ttl_ms = less_drift(r->nodes.ttl_ms);
    r->valid_until_ms = sent + *ttl_ms;
    return PICKET_OK;
}

static enum picket_status lease_close(void *own, uint64_t lease, uint64_t until_ms)
{
    struct redlock *r = own;
    struct hold *holds[PK_REDLOCK_PAIRS_MAX];
    struct pk_redlock_pair pairs[PK_REDLOCK_PAIRS_MAX];
    enum picket_status s = PICKET_OK;
    uint32_t count;
    if (lease != r->lease) {
        return pk_fail_plain(PICKET_LOST);
    }
    r->valid_until_ms = 0;
    for (struct hold *at = r->holds; (count = page_of(&at, holds, pairs)) > 0;) {
        struct pk_redlock_question q = {.verb = "drop",
                                        .pairs = pairs,
                                        .n_pairs = count,
                                        .mask = pk_nodes_all(&r->nodes)};
        uint32_t answered =
            pk_nodes_ask(&r->nodes, &q, pk_nodes_limit(&r->nodes, until_ms));
        if (pk_nodes_count(answered) < r->nodes.majority) {
            s = pk_nodes_fail(&r->nodes, answered, true);
        }
    }
    return s;
}

/* ---- looking: redlock_scan.c ---- */

static enum picket_status scan(void *own, const char *name, bool whole_name,
                               struct pk_scan *scan, uint64_t until_ms)
{
    struct redlock *r = own;
    return pk_redlock_scan(&r->nodes, name, whole_name, scan, until_ms);
}

static bool await(void *own, uint64_t until_ms)
{
    struct redlock *r = own;
    (void)pk_bridge_sleep(r->bridge, -1, until_ms);
    return false;
}

static void find_shape(const struct pk_nodes *n, struct pk_findings *out)
{
    if (n->count < 3) {
        pk_findings_add(out, PK_UNSAFE, "few-nodes",
                        "%s: %u node%s can't lose any; name three or five that are "
                        "independent of each other",
                        n->where, n->count, n->count == 1 ? "" : "s");
    } else if (n->count % 2 == 0) {
        pk_findings_add(out, PK_NOTE, "even-nodes",
                        "%s: %u nodes can lose no more than %u would; name an odd number",
                        n->where, n->count, n->count - 1);
    }
    pk_findings_add(out, PK_NOTE, "no-token",
                    "%s: Redlock has no fencing token, so a paused holder's late write "
                    "can't be refused",
                    n->where);
}

static enum picket_status examine(void *own, struct pk_findings *out, uint64_t until_ms)
{
    struct redlock *r = own;
    struct pk_nodes *n = &r->nodes;
    uint32_t answered = 0;
    find_shape(n, out);
    for (uint32_t i = 0; i < n->count; i++) {
        if (pk_redis_examine(&n->links[i], out, pk_nodes_limit(&r->nodes, until_ms)) ==
            PICKET_OK) {
            answered |= UINT32_C(1) << i;
        } else {
            pk_findings_add(out, PK_UNSAFE, "node-away", "%s", n->links[i].why);
        }
    }
    return pk_nodes_count(answered) >= n->majority ? PICKET_OK
                                                   : pk_nodes_fail(n, answered, false);
}

/* ---- opening and closing ---- */

static void forked(void *own)
{
    struct redlock *r = own;
    for (uint32_t i = 0; i < r->nodes.count; i++) {
        pk_fd_close(&r->nodes.links[i].fd);
    }
}

static void close_redlock(void *own)
{
    struct redlock *r = own;
    PK_ASSERT(r->holds == NULL);
    pk_nodes_free(&r->nodes);
    (void)pk_door_resize(r, 0);
}

static const struct pk_bridged operations = {.meet = meet,
                                             .lease_open = lease_open,
                                             .lease_renew = lease_renew,
                                             .lease_close = lease_close,
                                             .stand = stand,
                                             .leave = leave,
                                             .forget = forget,
                                             .rewrite = rewrite,
                                             .break_hold = break_hold,
                                             .scan = scan,
                                             .await = await,
                                             .examine = examine,
                                             .forked = forked,
                                             .close = close_redlock};

static enum picket_status open_redlock(const char *rest, struct pk_store **out)
{
    struct redlock *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct redlock){.lease = 0};
    enum picket_status s = pk_nodes_open(&r->nodes, rest);
    if (s != PICKET_OK) {
        close_redlock(r);
        return s;
    }
    return pk_bridge_open(&operations, &pk_redlock_driver.guarantees, r, out);
}

const struct pk_driver pk_redlock_driver = {
    .scheme = "redlock",
    .form = PK_REDLOCK_FORM,
    .guarantees = {.driver = "redlock",
                   .promise = "efficiency",
                   .scope = "a majority of independent Redis servers",
                   .token = "none: no counter of Redlock's would be safe",
                   .fairness = "none",
                   .waiting = "poll",
                   .clock = "rates within 1 %, and no server's wall clock set forward",
                   .failover = "a node that comes back without its keys votes again: two "
                               "may hold the lock",
                   .lock_delay = 1,
                   .extend = 1},
    .open = open_redlock,
    PK_BRIDGE_DRIVER,
};
