/* SPDX-License-Identifier: MIT */
/*
 * One client: keeps a lease alive by the real keeper's arithmetic (client/keeper.h) on a
 * clock of its own, takes and gives back locks, writes behind fences, reads.
 *
 * sim_client.c gets requests through: finds the leader, loses patience, tries again with
 * the same request id on another node, keeps the lease. sim_worker.c decides what to ask
 * for and takes in the answers.
 */
#ifndef PICKET_SIM_CLIENT_H
#define PICKET_SIM_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/keeper.h"
#include "sim_node.h"

enum { SIM_CLAIMS = 3, SIM_PAST = 24, SIM_DIGITS = 20 };

/* A request on its way. */
struct sim_call {
    bool active;
    bool again;      /* of an operation that was answered before */
    uint64_t serial; /* timers of earlier tries are void */
    struct pk_command c;
    char principal[SIM_DIGITS]; /* the attempt's number */
    uint64_t op, attempt;
    uint64_t first_ms; /* own time of the first sending */
    uint32_t tries;
    uint32_t claim;      /* which claim it is about; SIM_CLAIMS: none */
    uint64_t acked_then; /* FENCE GET: see sim_check_fence_seen */
};

enum sim_phase { SIM_FREE, SIM_ASKED, SIM_WAITING, SIM_HELD };

/* What the client knows of an acquire of its own. */
struct sim_claim {
    enum sim_phase phase;
    bool leaving; /* its release or cancel is on its way */
    uint64_t op;
    struct pk_command acquire;
    uint64_t token;
    uint64_t sent_ms;       /* own time of asking first */
    uint64_t hold_until_ms; /* by its max-hold; UINT64_MAX: none */
    uint64_t due_ms;        /* WAITING: ask again; HELD: give back */
};

/* A command that was answered, to be repeated some day. */
struct sim_past {
    struct pk_command c;
    uint64_t op;
};

/* How the clients of a world behave. */
struct sim_habits {
    uint64_t pace_ms; /* between two requests, at most */
    uint64_t ttl_least_ms, ttl_most_ms;
    uint64_t patience_ms; /* with one try */
    uint32_t nodes;       /* places to turn to */
    uint32_t locks;       /* how many there are: fewer are fought for more */
};

struct sim_client {
    struct sim_process process;
    struct sim_shared *shared;
    const struct sim_habits *habits;
    struct rng rng;
    uint32_t number;
    uint32_t node; /* place */
    uint64_t connection;

    uint64_t lease; /* 0: none */
    uint64_t stale; /* given up and still to be closed; 0: none */
    uint64_t ttl_ms;
    struct pk_keeper keeper;
    unsigned char renewed[8]; /* the lease's id, for RENEW */
    uint64_t keeping;         /* serial of the keeper's timers */

    struct sim_call work, renewal;
    struct sim_claim claims[SIM_CLAIMS];
    struct sim_past past[SIM_PAST];
    uint32_t n_past;
    uint64_t zombie;     /* a token that was lost */
    uint64_t seen_token; /* of somebody, as a read showed */
    uint32_t seen_lock;
    bool thinking;
    bool leaving; /* give back everything and ask for nothing more */
};

void sim_client_init(struct sim_client *cl, struct sim_shared *shared,
                     const struct sim_habits *habits, uint32_t number, struct rng rng);
void sim_client_start(struct sim_client *cl);
void sim_client_free(struct sim_client *cl);
/* From now on it only gives back. */
void sim_client_leave(struct sim_client *cl);
/* It has left, and nothing of it is under way. */
bool sim_client_is_done(const struct sim_client *cl);

/* ---- between sim_client.c and sim_worker.c ---- */

uint64_t sim_client_ms(const struct sim_client *cl);
/* Begins to get `c` through; its request id is set here, unless `op` (not 0) is an
 * earlier operation that is repeated. */
void sim_client_call(struct sim_client *cl, struct sim_call *call,
                     const struct pk_command *c, uint64_t op, uint32_t claim);
/* The lease was opened by a request first sent then. */
void sim_client_opened(struct sim_client *cl, uint64_t lease, uint64_t sent_ms);
/* The lease is over, as the service says or as the own clock does. */
void sim_client_lose(struct sim_client *cl, bool tell_service);
/* True when the own clock says that the lease is lost, which is final. */
bool sim_client_overdue(struct sim_client *cl);
/* Until when the client trusts in the claim, in real time. */
uint64_t sim_client_until_us(const struct sim_client *cl, const struct sim_claim *claim);

/* An answer to the work call. */
void sim_worker_answered(struct sim_client *cl, const struct sim_answer *a);
/* Something happened on the lease. */
void sim_worker_told(struct sim_client *cl, const struct pk_effect *e);
/* Something may have happened. */
void sim_worker_missed(struct sim_client *cl);
void sim_worker_lost(struct sim_client *cl);
/* Looks for something to do, in a while. */
void sim_worker_wake(struct sim_client *cl);

#endif
