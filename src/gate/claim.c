/* SPDX-License-Identifier: MIT */
/*
 * Claims at the store, on the thread pool. Alone, a claim is one question to the fence;
 * among shared gates it also sees to what is in flight elsewhere (flight.h).
 */
#include <stdio.h>

#include "core/door.h"
#include "core/tree.h"
#include "gate/inside.h"
#include "server/log.h"

struct claim {
    struct pk_chore chore;
    struct pk_admit_claim what;
    struct pk_flight_claim flight;
    enum picket_status status;
    uint64_t fence;
    char name[PK_NAME_MAX + 1]; /* of the fence */
};

/* In shadow mode nobody waits for anybody. */
static bool by_flights(const struct pk_gate *g)
{
    return g->options.shared && !g->options.shadow;
}

static void run_plain(struct pk_chore *j)
{
    struct claim *c = PK_OWNER(j, struct claim, chore);
    c->status =
        picket_fence_claim(j->gate->options.store, c->name, c->what.token, &c->fence);
}

static void run_flight(struct pk_chore *j)
{
    struct claim *c = PK_OWNER(j, struct claim, chore);
    c->status = pk_flight_claim(&c->flight);
    c->fence = c->flight.fence;
}

static void on_claimed(struct pk_chore *j)
{
    struct claim *c = PK_OWNER(j, struct claim, chore);
    struct pk_gate *g = j->gate;
    c->what.blocked = by_flights(g) && c->status == PICKET_TIMEOUT;
    bool told = c->status == PICKET_OK || c->status == PICKET_STALE || c->what.blocked;
    if (!told) {
        g->counts.claims_failed++;
        pk_log(PK_LOG_WARN, "claim-failed", "fence", c->name, "status",
               picket_status_name(c->status), NULL);
    }
    if (c->flight.lock != NULL) {
        pk_flights_keep(&g->flights, c->what.name, c->what.token, c->flight.lock);
    }
    pk_admit_claimed(g->admit, &c->what, told ? c->fence : 0, pk_gate_now(g));
    pk_door_resize(c, 0);
    pk_gate_turn(g);
}

void pk_claim_begin(struct pk_gate *g, const struct pk_admit_claim *what)
{
    struct claim *c = pk_door_resize(NULL, sizeof *c);
    memset(c, 0, sizeof *c);
    c->what = *what;
    c->chore.run = by_flights(g) ? run_flight : run_plain;
    c->chore.done = on_claimed;
    (void)snprintf(c->name, sizeof c->name, "%s/%.*s", g->options.name,
                   (int)what->name.len, what->name.data);
    c->flight = (struct pk_flight_claim){
        .store = g->options.store,
        .gate = g->options.name,
        .resource = what->name,
        .token = what->token,
        /* A little less than the request itself waits, so that it is told why. */
        .patience_ms = g->options.drain_ms - g->options.drain_ms / 8,
        .lock = pk_flights_find(&g->flights, what->name, what->token)};
    g->counts.claims++;
    pk_gate_chore(g, &c->chore);
}

bool pk_claim_stands(struct pk_exchange *x)
{
    struct pk_gate *g = x->gate;
    if (!by_flights(g) || !x->fenced) {
        return pk_stand_stands(&g->stand);
    }
    struct picket_lock *lock = pk_flights_find(
        &g->flights, pk_bytes(x->ask.resource, x->ask.resource_len), x->ask.token);
    return lock != NULL && picket_checkpoint(lock, 0) == PICKET_OK;
}

/* ---- what nothing flies under any more ---- */

struct parting {
    struct pk_chore chore;
    struct picket_lock *lock;
};

static void run_parting(struct pk_chore *j)
{
    picket_lock_close(PK_OWNER(j, struct parting, chore)->lock);
}

static void on_parted(struct pk_chore *j)
{
    pk_door_resize(PK_OWNER(j, struct parting, chore), 0);
}

void pk_claim_sweep(struct pk_gate *g)
{
    struct picket_lock *lock;
    while ((lock = pk_flights_idle(&g->flights, g->admit)) != NULL) {
        struct parting *p = pk_door_resize(NULL, sizeof *p);
        memset(p, 0, sizeof *p);
        p->lock = lock;
        p->chore.run = run_parting;
        p->chore.done = on_parted;
        pk_gate_chore(g, &p->chore);
    }
}
