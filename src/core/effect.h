/* SPDX-License-Identifier: MIT */
/*
 * Effects: what comes out of the machine.
 *
 * A step appends, in this order: what the passing of time did (events), then for the
 * command one REPLY (RENEW: one for each lease), the ROWs that belong to that reply, and
 * the EVENTs it caused. Events are the watch stream: each change of state makes exactly
 * one, on every replica; whoever wants to watch filters them by name. An event that
 * concerns a lease carries its id, so that the embedder can also push it to the owner.
 *
 * All bytes in effects are copies owned by the list: valid until the next reset.
 */
#ifndef PICKET_CORE_EFFECT_H
#define PICKET_CORE_EFFECT_H

#include <stdint.h>

#include "core/bytes.h"
#include "core/command.h"
#include "core/status.h"

enum pk_effect_kind {
    PK_REPLY, /* the answer: verb, status, lease, request, and what the status carries */
    /* Rows and events about a claim have, for one of its parts: name, mode, slots, part
     * and parts, lease, request, token. Rows also: since, left_ms, label, value. */
    PK_ROW_LOCK,        /* a lock in a LIST: its oldest hold's row, and holders, waiters,
                           closed_ms */
    PK_ROW_HOLD,        /* a hold */
    PK_ROW_WAIT,        /* a wait; place */
    PK_ROW_OUTCOME,     /* how an acquire ended (D2): lease, request, token, end */
    PK_EV_LEASE_OPENED, /* lease, label */
    PK_EV_LEASE_ENDED,  /* lease, end */
    PK_EV_QUEUED,       /* place */
    PK_EV_LEFT,         /* a waiter left its queue without a grant: end, lasted_ms */
    PK_EV_GRANTED,      /* value, lasted_ms */
    PK_EV_ENDED,        /* a hold ended: end, lasted_ms; if broken, by and why */
    PK_EV_VALUE,        /* value */
    PK_EV_CLOSED,       /* lock-delay began: name, closed_ms */
    PK_EV_OPENED,       /* lock-delay is over: name */
    PK_EV_FENCE_RAISED, /* name, token */
    PK_EV_FENCE_SET,    /* name, value, the writer's token */
    PK_EV_FENCE_MODE,   /* name, token, shadow */
    PK_EV_FENCE_SHADOWED, /* name, the token that shadow mode has let through */
    PK_EV_FENCE_ENDED,    /* it was to be kept no longer (F10): name, its last token */
    PK_EV_LEAPT,          /* the token counter leapt: token */
    PK_EFFECT_COUNT
};

const char *pk_effect_name(enum pk_effect_kind k); /* "granted" */

struct pk_effect {
    enum pk_effect_kind kind;
    enum pk_verb verb;
    enum pk_status status;
    enum pk_end end;
    enum pk_mode mode;
    uint32_t slots;
    uint32_t part, parts;      /* of a set: this is lock number part (from 0) of parts */
    uint32_t place;            /* in the queue, from 1 */
    uint32_t holders, waiters; /* TAKE, DROP: holders is how many keys */
    uint32_t shadow;           /* 1: the fence is in shadow mode */
    uint32_t value_bytes;      /* FENCE SHOW: how many there are */
    uint32_t more;             /* LIST, SHOW, RENEW: 1: rows were left out */
    uint32_t event;            /* of the lease: its number (D1); 0: none */
    enum pk_status would;      /* OK from a fence: what shadow mode kept it from saying */
    uint64_t lease, request, token;
    uint64_t seq;            /* of the claim: QUEUED, GRANTED and LEFT of one acquire
                                have the same; no part of the protocol */
    uint64_t epoch;          /* FENCE SHOW, FENCE MODE: of the fence's mode (F6) */
    uint64_t shadowed;       /* FENCE SHOW: calls let through by shadow mode so far */
    uint64_t left_ms;        /* of the lease; FENCE SHOW: of the register, 0: for good */
    uint64_t closed_ms;      /* of the lock's delay after an unclean end */
    uint64_t since_ms;       /* cluster time of the grant or of queueing */
    uint64_t lasted_ms;      /* of the wait that this ends, or of the hold */
    uint64_t renew_after_ms; /* reply to OPEN and RENEW: a server's wish; the machine
                                has none */
    struct pk_bytes name, value, label;
    struct pk_bytes by;  /* who broke a lock */
    struct pk_bytes why; /* their reason; what BADARG found wrong; which LIMIT */
};

struct pk_effect_block; /* a piece of the list's own byte store */

struct pk_effects {
    struct pk_effect *list;
    uint32_t count;
    uint32_t capacity;
    struct pk_effect_block *blocks; /* newest first; kept over resets, so a steady state
                                       allocates nothing */
};

/* A zeroed struct is an empty list. */
void pk_effects_reset(struct pk_effects *e);
void pk_effects_free(struct pk_effects *e);

/* Appends one effect and copies its bytes. The pointer is good until the next call. */
struct pk_effect *pk_effects_add(struct pk_effects *e, const struct pk_effect *from);

#endif
