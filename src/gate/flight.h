/* SPDX-License-Identifier: MIT */
/*
 * What is in flight, for other gates to see: rule A4 among shared gates.
 *
 * A gate has requests of a token in flight only while it holds the lock
 *
 *     NAME/flight/RESOURCE/TOKEN
 *
 * shared, from before the token is claimed until the last of them has left. Who comes
 * with a higher token claims it, then looks which lower ones have such a lock, and takes
 * each of them exclusively: that is granted when nobody flies with it any more. Nothing
 * slips through in between: a gate that gets the lock of a lower token after that look
 * claims after it as well, and is refused.
 *
 * A gate that dies loses its locks with its lease. What it had sent may still be at work
 * then, as with any gate that dies (docs/gate.md).
 */
#ifndef PICKET_GATE_FLIGHT_H
#define PICKET_GATE_FLIGHT_H

#include <picket.h>

#include "core/tree.h"
#include "gate/admit.h"

/* ---- the locks that this gate holds; for the loop's thread ---- */

struct pk_flights {
    struct pk_tree held;
};

/* The lock for that token, or NULL. */
struct picket_lock *pk_flights_find(const struct pk_flights *f, struct pk_bytes resource,
                                    uint64_t token);
/* From now on that is the lock: nothing lower is in flight anywhere. */
void pk_flights_keep(struct pk_flights *f, struct pk_bytes resource, uint64_t token,
                     struct picket_lock *lock);
/* Forgets one that nothing flies under any more and returns it, to be closed; NULL: there
 * is none. */
struct picket_lock *pk_flights_idle(struct pk_flights *f, const struct pk_admit *a);
void pk_flights_free(struct pk_flights *f); /* the locks are the client's to close */

/* ---- one claim; blocks, so it is for the thread pool ---- */

struct pk_flight_claim {
    struct picket *store;
    const char *gate; /* its name */
    struct pk_bytes resource;
    uint64_t token;
    uint64_t patience_ms;     /* for lower tokens of other gates */
    struct picket_lock *lock; /* what is held; becomes what is to be kept: NULL, none */
    uint64_t fence;           /* on OK, STALE and TIMEOUT */
};

/* OK: it may fly; STALE; TIMEOUT: the fence is raised, but lower ones are still in flight
 * elsewhere; anything else: not known. */
enum picket_status pk_flight_claim(struct pk_flight_claim *c);

#endif
