/* SPDX-License-Identifier: MIT */
/*
 * Looking at the state as it stands, without a step and without copies: for whoever shows
 * it. All times are cluster time. Bytes are borrowed until the next step.
 */
#ifndef PICKET_CORE_LOOK_H
#define PICKET_CORE_LOOK_H

#include "core/machine.h"

struct pk_look_lock {
    struct pk_bytes name;
    uint32_t holders, waiters;
    uint32_t slots;           /* 0: exclusive and shared */
    uint64_t closed_until_ms; /* 0: it is open */
    /* Of the oldest hold; all 0 when there is none: */
    enum pk_mode mode;
    bool keyed; /* by a client of Redis' idiom; its value says who that is */
    uint64_t token, since_ms;
    uint64_t ends_ms, ttl_ms; /* of its lease, unless that is renewed; its TTL */
    struct pk_bytes label, value;
};

/* A hold, or a wait. */
struct pk_look_claim {
    uint64_t lease;
    uint64_t token;    /* 0: it waits */
    uint64_t since_ms; /* of the grant, or of queueing */
    uint64_t ends_ms, ttl_ms;
    uint32_t place; /* in the queue, from 1; 0: it holds */
    uint32_t parts; /* locks in its set */
    enum pk_mode mode;
    bool keyed;
    struct pk_bytes label, value;
};

/* Locks in the order of their names, those after `after` (empty: all), until `see` says
 * false. */
void pk_look_locks(const struct pk_machine *m, struct pk_bytes after,
                   bool (*see)(void *ctx, const struct pk_look_lock *l), void *ctx);
/* False: nobody holds it or waits for it, and it is open. */
bool pk_look_lock(const struct pk_machine *m, struct pk_bytes name,
                  struct pk_look_lock *out);
/* The holds of a lock, oldest first, or its queue in order, until `see` says false. */
void pk_look_holds(const struct pk_machine *m, struct pk_bytes name,
                   bool (*see)(void *ctx, const struct pk_look_claim *c), void *ctx);
void pk_look_waits(const struct pk_machine *m, struct pk_bytes name,
                   bool (*see)(void *ctx, const struct pk_look_claim *c), void *ctx);
/* Bytes of a fence's value; 0 when there is no such fence. */
uint32_t pk_look_fence_bytes(const struct pk_machine *m, struct pk_bytes name);
/* The label of a lease that is alive; empty for one that is not. */
struct pk_bytes pk_look_label(const struct pk_machine *m, uint64_t lease);

#endif
