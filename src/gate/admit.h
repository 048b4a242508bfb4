/* SPDX-License-Identifier: MIT */
/*
 * Who may pass: the gate's memory of fences and of what is in flight. Pure: no sockets,
 * no store, no clock but what it is told; so all of it can be tested by sequences.
 *
 * Each request with a token has a ticket for its resource. Rules:
 *
 *  A1 (P6) A token below the resource's fence is refused: STALE.
 *  A2 A token is passed only after the store has confirmed it: the fence there is at the
 *     token, durably, so a lower one is refused from then on, by whomever. Alone, what
 *     was confirmed once is remembered; shared, each arrival is confirmed anew.
 *  A3 One claim at a time for each resource, for the highest token that has arrived;
 *     those that arrive meanwhile share the next one.
 *  A4 A ticket flies (is in flight upstream) only when none with a lower token flies.
 *     Until then it waits; equals go in order of arrival. A waiter that is overtaken by
 *     a higher claim is STALE (A1). Shared, a claim waits for those at other gates, and
 *     is answered `blocked` when that takes too long (flight.h).
 *  A5 A waiter waits no longer than drain_ms: LATE. The fence stays where it is.
 *  A6 With cut_off_ms, those that are in the way of a waiter for that long are CUT: they
 *     fly until their owner says that they have left.
 *  A7 A claim whose outcome is unknown: UNSURE, and the fence has to be learned again.
 *  A8 Forgotten resources cost nothing: the store knows their fences. At most
 *     resources_max are remembered; one that is in use is never forgotten.
 *
 * Nothing calls back: verdicts and claims to make queue up and are taken out by
 * pk_admit_decided and pk_admit_claim after each step.
 */
#ifndef PICKET_GATE_ADMIT_H
#define PICKET_GATE_ADMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "gate/list.h"

struct pk_admit;
struct pk_admit_resource;

struct pk_admit_options {
    bool shared;         /* other gates raise the same fences */
    bool shadow;         /* nobody waits; `delayed` says who would have */
    uint64_t drain_ms;   /* A5 */
    uint64_t cut_off_ms; /* A6; 0: never */
    size_t resources_max;
};

enum pk_admit_verdict {
    PK_ADMIT_NONE,
    PK_ADMIT_GO,     /* it flies; pk_admit_leave when it has ended */
    PK_ADMIT_STALE,  /* `fence` says above what */
    PK_ADMIT_LATE,   /* lower ones are still in flight */
    PK_ADMIT_UNSURE, /* the store could not be asked, or the gate stands no more */
    PK_ADMIT_CUT,    /* it flew; end it and leave */
};

enum pk_admit_place {
    PK_ADMIT_OUT, /* of no resource: not arrived, refused, or left */
    PK_ADMIT_ASKING,
    PK_ADMIT_ASKED, /* covered by the claim that is under way */
    PK_ADMIT_WAITING,
    PK_ADMIT_FLYING,
};

/* One request's; a part of it, zeroed at first. */
struct pk_admit_ticket {
    struct pk_admit_resource *resource;
    struct pk_list_link link; /* in its place */
    struct pk_list_link due;  /* among those with a verdict to be taken */
    enum pk_admit_place place;
    enum pk_admit_verdict verdict;
    uint64_t token;
    uint64_t fence;    /* when it was decided */
    uint64_t since_ms; /* when it began to wait */
    bool delayed;      /* it has waited for lower ones, or would have */
    bool cut;
};

struct pk_admit *pk_admit_new(const struct pk_admit_options *o);
void pk_admit_free(struct pk_admit *a); /* all tickets must have left */

void pk_admit_arrive(struct pk_admit *a, struct pk_admit_ticket *t, struct pk_bytes name,
                     uint64_t token, uint64_t now_ms);
/* Gives up waiting, or has ended; fine at any time, also twice. */
void pk_admit_leave(struct pk_admit *a, struct pk_admit_ticket *t);
/* Time passes. */
void pk_admit_tick(struct pk_admit *a, uint64_t now_ms);
/* The gate stood aside: others may have raised any fence. What is not in flight is
 * UNSURE, and each fence has to be learned again. */
void pk_admit_forget(struct pk_admit *a);

/* The next ticket with a verdict; NULL: none. */
struct pk_admit_ticket *pk_admit_decided(struct pk_admit *a);

struct pk_admit_claim {
    struct pk_admit_resource *resource;
    struct pk_bytes name; /* valid until the claim is answered */
    uint64_t token;
    uint64_t epoch;
    bool blocked; /* answered with: lower ones are in flight at other gates */
};

/* The next claim to make at the store; each must be answered once. */
bool pk_admit_claim(struct pk_admit *a, struct pk_admit_claim *out);
/* Its answer: the fence that the store now has, or 0: not known (A7). */
void pk_admit_claimed(struct pk_admit *a, const struct pk_admit_claim *c, uint64_t fence,
                      uint64_t now_ms);

struct pk_admit_counts {
    uint64_t resources, flying, waiting, raises;
};
struct pk_admit_counts pk_admit_counts(const struct pk_admit *a);

/* For looking, by name: the first after `after` (empty: from the start). */
struct pk_admit_row {
    struct pk_bytes name;
    uint64_t fence; /* 0: has to be learned */
    uint64_t flying, older, waiting;
    uint64_t claiming; /* the token that is being claimed; 0: none */
};
bool pk_admit_look(const struct pk_admit *a, struct pk_bytes name,
                   struct pk_admit_row *out);
bool pk_admit_show(const struct pk_admit *a, struct pk_bytes after,
                   struct pk_admit_row *out);

/* NULL, or which of the rules above the state breaks; for tests. */
const char *pk_admit_wrong(const struct pk_admit *a);

#endif
