/* SPDX-License-Identifier: MIT */
/*
 * Who is served in a turn, by what requests cost: deficit round robin.
 *
 * A request costs units of work: a lease to renew, a name to look up, a row or a KiB of
 * an answer is one unit, which is about a microsecond. What a turn takes in becomes one
 * entry of the log, so a turn is bounded in units, not in requests:
 *
 *   PK_FAIR_SHARE    units of credit that each flow (a connection) gets in each turn, and
 *                    with each round of the queue
 *   PK_FAIR_BUDGET   units of a turn that flows beyond their share can have together
 *   PK_FAIR_CEILING  units of a turn at which nobody else is served in it
 *
 * A flow that has credit is served when its bytes arrive. One that has used up its credit
 * queues; the queue is served in rounds, with one more share for each flow, until the
 * budget is used up. So the turn is never idle while somebody has work, a flow that is
 * alone gets the whole budget, and one that asks for little is served ahead of those that
 * ask for much. A request that costs more than a share waits for as many rounds.
 *
 * Pure: knows no sockets, no clock and no loop.
 */
#ifndef PICKET_SERVER_FAIR_H
#define PICKET_SERVER_FAIR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/command.h"

enum {
    PK_FAIR_SHARE = 64,
    PK_FAIR_BUDGET = 512,
    PK_FAIR_CEILING = 4096,
    PK_FAIR_UNIT_BYTES = 1024, /* of a value or an answer */
};

enum pk_flow_state {
    PK_FLOW_IDLE,    /* in no list */
    PK_FLOW_WOKEN,   /* has something to do and may have credit for it */
    PK_FLOW_WAITING, /* has something to do and has used up its credit */
};

/* For whom connections work; all of one principal share an account. */
struct pk_account {
    uint64_t spent; /* units, since the start */
};

/* One connection. A zeroed struct is a new flow. */
struct pk_flow {
    enum pk_flow_state state;
    int64_t credit;             /* negative: work that was dearer than it looked */
    uint64_t shared;            /* the turn of its last share, from 1; 0: none yet */
    uint64_t spent;             /* units, since the start */
    struct pk_account *account; /* of its principal; NULL: not kept */
    struct pk_flow *next, *before;
};

struct pk_flows {
    struct pk_flow *first, *last;
};

/* A zeroed struct has no flows. */
struct pk_fair {
    struct pk_flows woken, waiting;
    uint64_t turn;
    uint64_t spent; /* in this turn */
    bool closed;    /* this turn takes no more, whatever the budget */
};

/* What a command costs, as far as it can be told beforehand. */
uint32_t pk_fair_cost(const struct pk_command *c);
/* What that many bytes of an answer cost. */
uint32_t pk_fair_bytes(uint64_t bytes);

/* A new turn: its budget is whole, and each flow gets a share when it first asks. */
void pk_fair_begin(struct pk_fair *f);
/* Nothing else fits into this turn. */
void pk_fair_close(struct pk_fair *f);

/* Takes the price of a request. False: the flow has not enough credit, or the turn is at
 * its ceiling; nothing happened, and the flow should wait. */
bool pk_fair_pay(struct pk_fair *f, struct pk_flow *w, uint32_t cost);
/* Gives the price back: the request was not served. */
void pk_fair_refund(struct pk_fair *f, struct pk_flow *w, uint32_t cost);
/* A request that was served has cost so much more. */
void pk_fair_charge(struct pk_flow *w, uint32_t cost);

/* The flow has something to do now. */
void pk_fair_wake(struct pk_fair *f, struct pk_flow *w);
/* The flow goes on when the queue gives it another share. */
void pk_fair_wait(struct pk_fair *f, struct pk_flow *w);
/* The same, ahead of all that wait: what it wants did not fit into this turn. */
void pk_fair_wait_first(struct pk_fair *f, struct pk_flow *w);
/* The flow is going, or has nothing to do. */
void pk_fair_leave(struct pk_fair *f, struct pk_flow *w);

/* The flow to be served next, which is in no list any more; NULL: none in this turn. */
struct pk_flow *pk_fair_next(struct pk_fair *f);
/* Whether pk_fair_next has, or would have in a new turn, somebody to serve. */
bool pk_fair_has_work(const struct pk_fair *f);
/* Whether pk_fair_next has somebody to serve in this turn. */
bool pk_fair_can_go_on(const struct pk_fair *f);

#endif
