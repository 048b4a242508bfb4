/* SPDX-License-Identifier: MIT */
/*
 * Checkers: what must not happen, looked for in a trace record by record. They know
 * nothing of the world that made it, so a trace of a real cluster is judged by the same.
 */
#ifndef PICKET_SIM_CHECK_H
#define PICKET_SIM_CHECK_H

#include <stdbool.h>

#include "sim/prose.h"
#include "sim/world.h"

/*  X(check, name, what it means) */
#define PK_CHECKS(X)                                                                     \
    X(TWO_HOLDERS, "two-holders", "the service gave the lock to two at once (P1)")       \
    X(TOKEN_ORDER, "token-order", "a grant's token was not greater than the last (P2)")  \
    X(TWO_VALID, "two-valid", "two running clients trusted their leases at once (P5)")   \
    X(FENCE_BACK, "fence-back", "the resource took a lower token than before (P6)")      \
    X(LOST_UPDATE, "lost-update", "a write undid another one's")                         \
    X(STALE_WRITE, "stale-write", "a write was accepted after the next holder had read") \
    X(QUEUE_ORDER, "queue-order", "somebody was served before who came first (P7)")      \
    X(DIGESTS, "digests", "replicas of the same commands differ")

enum pk_check {
#define X(check, name, text) PK_CHECK_##check,
    PK_CHECKS(X)
#undef X
        PK_CHECK_COUNT
};

const char *pk_check_name(enum pk_check c);
const char *pk_check_text(enum pk_check c);
/* The check of that name; PK_CHECK_COUNT: there is none. */
enum pk_check pk_check_named(const char *name, size_t len);

struct pk_hit {
    enum pk_check check;
    uint32_t record; /* its number in the trace */
    uint64_t at_us;
    uint32_t who, other; /* who did it, and to whom */
    uint64_t token, other_token;
};

enum { PK_HITS_MAX = 64, PK_QUEUE_MAX = 256 };

/* A zeroed struct is ready. */
struct pk_checker {
    uint32_t records;
    uint32_t counts[PK_CHECK_COUNT]; /* how often each was hit */
    struct pk_hit hits[PK_HITS_MAX]; /* the first ones */
    uint32_t n_hits;
    /* The service's view. */
    bool held;
    uint32_t holder, newest_holder;
    uint64_t holder_token, newest_token;
    struct pk_queued {
        uint64_t claim;
        uint32_t who;
    } queue[PK_QUEUE_MAX];
    uint32_t n_queue;
    bool queue_full; /* there were more, so nothing is said about order any more */
    /* The clients'. */
    uint64_t trusts_until_us[PK_CLIENTS_MAX];
    uint64_t trusts_token[PK_CLIENTS_MAX];
    bool paused[PK_CLIENTS_MAX];
    /* The resource's. */
    uint64_t raised, highest, value, reader_token;
    uint32_t raised_by, highest_by, value_by, reader, reader_section;
    bool digested;
    uint64_t digest;
    /* The record that is being looked at: whose it is, and of which claim. */
    uint32_t who;
    uint64_t claim;
};

void pk_checker_feed(struct pk_checker *c, const struct pk_record *r);
/* The same for traces with more clients than a record can name. `claim` 0: it began to
 * wait before the trace, so its place in the queue is not known. */
void pk_checker_feed_as(struct pk_checker *c, const struct pk_record *r, uint32_t who,
                        uint64_t claim);
/* Feeds what is new since the last call. */
void pk_checker_catch_up(struct pk_checker *c, const struct pk_world *w);
/* The mask of all that were hit. */
uint32_t pk_checker_mask(const struct pk_checker *c);
/* What broke and why, in plain words. */
void pk_hit_explain(const struct pk_hit *h, struct pk_prose *out);
/* The same with names for who is in it. */
void pk_hit_explain_as(const struct pk_hit *h, const char *who, const char *other,
                       struct pk_prose *out);

#endif
