/* SPDX-License-Identifier: MIT */
/*
 * What a trace has been through: a run in which nothing was broken says little when
 * nothing has happened in it either. Looks at records alone, as the checkers do.
 */
#ifndef PICKET_SIM_COVERAGE_H
#define PICKET_SIM_COVERAGE_H

#include <stdbool.h>

#include "sim/world.h"

/*  X(event, name) */
#define PK_COVERED(X)                                                                    \
    X(WAITED, "granted after waiting")                                                   \
    X(LEFT, "left the queue without a grant")                                            \
    X(EXPIRED, "a hold expired")                                                         \
    X(EXPIRED_PAUSED, "a hold expired while its holder was paused")                      \
    X(EXPIRED_CUT, "a hold expired while its holder was cut off")                        \
    X(ZOMBIE, "a program went on believing after its hold had ended")                    \
    X(LATE_GRANT, "a grant arrived after the lease had ended")                           \
    X(UNKNOWN_HOLD, "a hold ended that its holder never knew of")                        \
    X(RELEASE_LOST, "a release got lost")                                                \
    X(RENEWAL_LOST, "a renewal got lost")                                                \
    X(LATE_WRITE, "a write arrived after its hold had ended")                            \
    X(WRITE_REFUSED, "a write was refused")                                              \
    X(CLAIM_REFUSED, "a claim was refused")                                              \
    X(FAILOVER_HELD, "the leader changed while the lock was held")                       \
    X(HOLDER_CRASHED, "a holder crashed")                                                \
    X(CLOCK_JUMPED, "a node's clock jumped")                                             \
    X(NODE_EMPTIED, "a node restarted empty")

enum pk_covered {
#define X(event, name) PK_COVERED_##event,
    PK_COVERED(X)
#undef X
        PK_COVERED_COUNT
};

const char *pk_covered_name(enum pk_covered c);

/* A zeroed struct is ready. */
struct pk_coverage {
    uint64_t counts[PK_COVERED_COUNT];
    struct pk_covered_client {
        bool holds, knows, believes, paused, waits;
        uint64_t lease_ends_us; /* by the service */
        uint64_t cut_until_us;
        uint32_t held, believed; /* sections */
    } clients[PK_CLIENTS_MAX];
};

void pk_coverage_feed(struct pk_coverage *c, const struct pk_record *r);

#endif
