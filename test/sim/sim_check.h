/* SPDX-License-Identifier: MIT */
/*
 * The judge: sees all that nodes apply and answer and all that clients send and believe,
 * in real time, and says which promise is broken.
 *
 * Every try to get a request through is an attempt with a number of its own, which
 * travels in the command's `principal`: so an entry of the log can be traced to the very
 * message that it came from. All tries of one request are one operation; its number is
 * the request id.
 *
 * The first node that applies an index defines what the log says there; all others must
 * do the same (R12). From that one log the promises P1, P2, P7 and P9 are checked by
 * test/model/watch.c, the others here.
 */
#ifndef PICKET_SIM_CHECK_H
#define PICKET_SIM_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "model/watch.h"
#include "raft/replica.h"
#include "sim_queue.h"

enum {
    SIM_LOCKS = 8,
    SIM_FENCES = 4,
    SIM_PARTS_MAX = 3,
    SIM_SHOWN_MAX = 32,
    SIM_RATE_PPM = 10000, /* clocks run at most that much fast or slow */
};

/* "lock/3", "fence/1": what the name is of, or UINT32_MAX. */
uint32_t sim_lock_of(struct pk_bytes name);
uint32_t sim_fence_of(struct pk_bytes name);
struct pk_bytes sim_lock_name(uint32_t lock);
struct pk_bytes sim_fence_name(uint32_t fence);

enum sim_fate {
    SIM_UNDER_WAY,
    SIM_REFUSED,  /* told "not done": it must never happen */
    SIM_UNKNOWN,  /* told so */
    SIM_ANSWERED, /* told what the log says */
};

struct sim_attempt {
    uint64_t op;
    enum pk_verb verb;
    enum sim_fate fate;
    uint64_t sent_us;
    uint64_t acked_before; /* the highest index acknowledged when it was sent */
    uint64_t index;        /* where the log has it; 0: nowhere yet */
    enum pk_status status; /* what the log says of it */
    uint64_t token, lease;
};

struct sim_op {
    enum pk_verb verb;
    uint32_t client;
    uint64_t lease;
    uint32_t n_parts; /* of an acquire */
    struct {
        uint32_t lock, slots;
        enum pk_mode mode;
    } parts[SIM_PARTS_MAX];
    /* What the log says. */
    bool settled; /* an answer that must stay (P8) */
    enum pk_status status;
    uint64_t answer_token, answer_lease;
    uint32_t grants, writes;
    uint64_t queued_us;
    uint64_t token, ended_us; /* of the hold; 0: not (yet) */
    bool voided;              /* an operator took it away */
    /* What clients were told. */
    uint64_t told_us;     /* of the grant */
    uint64_t released_us; /* that the release was done */
};

struct sim_lease {
    uint64_t id;
    uint64_t ttl_ms;
    uint64_t sent_us; /* the latest sending of a renewal that the log has */
    bool ended;
};

/* A client that trusts in a lock. */
struct sim_belief {
    uint32_t client, lock, slots;
    enum pk_mode mode;
    uint64_t op;
    uint64_t until_us;
};

struct sim_logged {
    uint64_t index;
    uint64_t digest;  /* of the entry and of its effects */
    uint64_t machine; /* digest of the state after it; 0: not taken */
};

/* Things that must have happened somewhere, or a green run says nothing. */
#define SIM_SIGHTS(X)                                                                    \
    X(entries, "entries in logs")                                                        \
    X(commands, "commands run")                                                          \
    X(answers, "answers given")                                                          \
    X(granted_at_once, "grants at once")                                                 \
    X(granted_later, "grants after waiting")                                             \
    X(granted_over_failover, "grants to who waited while leaders changed")               \
    X(sets_granted, "sets granted")                                                      \
    X(shared_granted, "shared grants")                                                   \
    X(slots_granted, "slots granted")                                                    \
    X(busy, "tries refused as busy")                                                     \
    X(timeouts, "waits timed out")                                                       \
    X(cancelled, "waits cancelled")                                                      \
    X(releases, "releases")                                                              \
    X(expiries, "leases expired")                                                        \
    X(expiries_of_holders, "holds lost by expiry")                                       \
    X(overheld, "holds ended by max-hold")                                               \
    X(broken, "holds broken")                                                            \
    X(closings, "locks closed by a lock-delay")                                          \
    X(lost_answers, "commands on leases that had ended")                                 \
    X(repeats, "repeats answered from memory")                                           \
    X(too_old, "repeats refused as too old")                                             \
    X(mismatches, "semaphores with other slots")                                         \
    X(fence_accepted, "fenced writes and reads accepted")                                \
    X(fence_stale, "zombies refused by a fence")                                         \
    X(unknown, "answers `unknown`")                                                      \
    X(unknown_done, "`unknown` that had happened or did later")                          \
    X(not_leader, "answers `not leader`")                                                \
    X(no_space, "answers `disk full`")                                                   \
    X(reads, "reads compared with what was acknowledged")                                \
    X(follower_reads, "reads answered by followers")                                     \
    X(beliefs, "grants that clients trusted in")                                         \
    X(beliefs_renewed, "renewals that kept them")                                        \
    X(beliefs_lapsed, "beliefs that ended by the client's own clock")                    \
    X(replayed, "entries applied again after a restart")                                 \
    X(digests, "states compared by digest")                                              \
    X(terms, "terms with a serving leader")                                              \
    X(stopped, "sick nodes stopped by the digests")                                      \
    X(restores, "backups restored")

struct sim_sights {
#define X(name, text) uint64_t name;
    SIM_SIGHTS(X)
#undef X
};

struct sim_check {
    struct sim_queue *queue;
    struct sim_sights *sights;
    struct watch watch;
    struct sim_logged *log;
    size_t n_log, log_capacity;
    struct sim_attempt *attempts; /* by number; 0 is nobody's */
    size_t n_attempts, attempts_capacity;
    struct sim_op *ops; /* by request id; 0 is nobody's */
    size_t n_ops, ops_capacity;
    struct sim_lease *leases; /* sorted by id */
    size_t n_leases, leases_capacity;
    uint64_t *holds[SIM_LOCKS]; /* operations, in the order of their grants */
    size_t n_holds[SIM_LOCKS], holds_capacity[SIM_LOCKS];
    struct sim_belief *beliefs;
    size_t n_beliefs, beliefs_capacity;
    struct {
        uint64_t token;
        uint64_t acked; /* the highest that somebody was told to be accepted */
    } fences[SIM_FENCES];
    uint32_t *leaders; /* by term: which node served, plus 1 */
    size_t n_leaders, leaders_capacity;
    uint64_t acked;           /* the highest index acknowledged to a client */
    uint64_t leader_since_us; /* when a term last got its leader */
    uint64_t restored_index;  /* where a backup last became the state; 0: never */
    uint64_t restored_us;     /* and when */
    bool restored;            /* by the entry that is being applied */
    bool verbose;             /* print the log */
};

/* How far a node has come with the entry that it is applying. */
struct sim_applying {
    uint64_t index, digest;
    uint64_t highest; /* of all its lives */
};

void sim_check_init(struct sim_check *k, struct sim_queue *q, struct sim_sights *sights);
void sim_check_free(struct sim_check *k);

/* What is reported goes here, and nothing after it. The text is one line. */
extern void (*sim_on_violation)(const char *text);
_Noreturn void sim_violation(const char *promise, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- what clients do ---- */

/* A new operation; its request id. */
uint64_t sim_check_op(struct sim_check *k, uint32_t client, const struct pk_command *c);
/* A new attempt of it, sent now; its number. */
uint64_t sim_check_attempt(struct sim_check *k, uint64_t op, enum pk_verb verb);
/* The answer to the attempt has reached its client. */
void sim_check_acked(struct sim_check *k, uint64_t attempt);
/* The client now trusts in the grant of `op`, until then by its own clock. */
void sim_check_believed(struct sim_check *k, uint64_t op, uint64_t token,
                        uint64_t until_us);
/* A renewal was acknowledged: what the client trusts in is good until then; a hold with
 * a bound of its own may end earlier. */
void sim_check_renewed(struct sim_check *k, uint64_t op, uint64_t until_us);
/* The client does not trust in `op` any more. */
void sim_check_let_go(struct sim_check *k, uint64_t op);
/* The answer to a LOCK SHOW, made at `made_us`: these tokens hold the lock. */
void sim_check_shown(struct sim_check *k, uint64_t attempt, uint32_t lock,
                     const uint64_t *tokens, uint32_t n, uint64_t made_us);
/* The release of `op` was acknowledged. */
void sim_check_released(struct sim_check *k, uint64_t op);
/* The fence accepted this token, and the client was told. */
void sim_check_fence_acked(struct sim_check *k, uint64_t attempt, uint32_t fence,
                           uint64_t token);
/* The answer to a FENCE GET without a token. */
void sim_check_fence_seen(struct sim_check *k, uint64_t attempt, uint64_t token,
                          uint64_t acked_when_sent);

/* ---- what nodes do ---- */

void sim_check_stepped(struct sim_check *k, struct sim_applying *a,
                       const struct pk_step *s);
void sim_check_applied(struct sim_check *k, struct sim_applying *a,
                       const struct pk_entry *e, struct pk_machine *m);
/* A node has answered the command of the attempt; it has applied the log up to there. */
void sim_check_answered(struct sim_check *k, uint64_t attempt, const struct pk_command *c,
                        const struct pk_effects *effects, uint64_t applied);
void sim_check_refused(struct sim_check *k, uint64_t attempt, bool unknown,
                       bool no_space);
void sim_check_serving(struct sim_check *k, uint32_t node, uint64_t term);
/* The index up to which the log is known. */
uint64_t sim_check_last_index(const struct sim_check *k);

/* ---- shared by sim_check.c and sim_trust.c ---- */

struct sim_op *sim_check_op_at(struct sim_check *k, uint64_t op);
/* The operation that was granted the lock with this token, or NULL. */
const struct sim_op *sim_check_holder(struct sim_check *k, uint32_t lock, uint64_t token);
/* P4: the lease expires now. */
void sim_check_expired(struct sim_check *k, const struct sim_lease *l);
/* The hold of `op` was taken away by an operator; nobody promised it to its holder. */
void sim_check_voided(struct sim_check *k, uint64_t op);

#endif
