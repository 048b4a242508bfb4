/* SPDX-License-Identifier: MIT */
#include "sim_client.h"

#include <string.h>

#include "core/door.h"

uint64_t sim_client_ms(const struct sim_client *cl)
{
    return sim_process_ms(&cl->process);
}

/* Lets it happen when the own clock shows `ms`. */
static void at_ms(struct sim_client *cl, uint64_t ms, sim_action *happen, uint64_t what)
{
    sim_process_at(&cl->process, sim_clock_when_us(&cl->process.clock, ms), happen, what,
                   NULL);
}

/* ---- getting requests through ---- */

static void move_to(struct sim_client *cl, uint32_t node)
{
    cl->node = node;
    cl->connection++;
    sim_worker_missed(cl);
}

static void move_on(struct sim_client *cl)
{
    move_to(cl, (uint32_t)rng_below(&cl->rng, cl->habits->nodes));
}

/* The number as text, at the end of `out`. */
static struct pk_bytes decimal(uint64_t v, char out[SIM_DIGITS])
{
    size_t at = SIM_DIGITS;
    do {
        out[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    return pk_bytes(out + at, SIM_DIGITS - at);
}

static void patience_ends(void *self, uint64_t what, void *load);

/* Any node may be asked what is; all else goes to the node that the client stays with. */
static uint32_t node_for(struct sim_client *cl, const struct pk_command *c)
{
    bool anywhere = pk_command_is_read(c) && rng_chance(&cl->rng, 500);
    return anywhere ? (uint32_t)rng_below(&cl->rng, cl->habits->nodes) : cl->node;
}

static void transmit(struct sim_client *cl, struct sim_call *call)
{
    call->attempt = sim_check_attempt(cl->shared->check, call->op, call->c.verb);
    if (call->c.verb == PK_FENCE_GET) {
        call->acked_then = cl->shared->check->fences[sim_fence_of(call->c.name)].acked;
    }
    call->serial++;
    call->tries++;
    call->c.principal = decimal(call->attempt, call->principal);
    size_t len = pk_command_size(&call->c);
    struct sim_request *r = sim_net_message(cl->shared->net, SIM_NODES_MAX + cl->number,
                                            node_for(cl, &call->c), sizeof *r + len);
    r->attempt = call->attempt;
    r->connection = cl->connection;
    r->lease = cl->lease;
    r->len = len;
    pk_command_encode(&call->c, r->bytes);
    sim_net_send(&r->head);
    uint64_t patience = cl->habits->patience_ms;
    patience = patience / 2 + rng_below(&cl->rng, patience);
    bool renews = call == &cl->renewal;
    at_ms(cl, sim_client_ms(cl) + patience, patience_ends, call->serial * 2 + renews);
}

void sim_client_call(struct sim_client *cl, struct sim_call *call,
                     const struct pk_command *c, uint64_t op, uint32_t claim)
{
    PK_ASSERT(!call->active);
    call->active = true;
    call->again = op != 0;
    call->c = *c;
    call->claim = claim;
    call->tries = 0;
    call->first_ms = sim_client_ms(cl);
    call->op = op != 0 ? op : sim_check_op(cl->shared->check, cl->number, c);
    if ((pk_verb_fields(c->verb) & PK_F_REQUEST) != 0) {
        call->c.request = call->op;
    }
    transmit(cl, call);
}

static struct sim_call *call_of(struct sim_client *cl, uint64_t what)
{
    struct sim_call *call = what % 2 == 1 ? &cl->renewal : &cl->work;
    return call->active && call->serial == what / 2 ? call : NULL;
}

static void try_again(void *self, uint64_t what, void *load)
{
    (void)load;
    struct sim_client *cl = self;
    struct sim_call *call = call_of(cl, what);
    if (call != NULL) {
        transmit(cl, call);
    }
}

static void try_later(struct sim_client *cl, struct sim_call *call, uint64_t most_ms)
{
    bool renews = call == &cl->renewal;
    uint64_t pause = pk_backoff_ms(call->tries, 5, most_ms, rng_next(&cl->rng));
    call->serial++;
    at_ms(cl, sim_client_ms(cl) + pause, try_again, call->serial * 2 + renews);
}

static void renewal_failed(struct sim_client *cl);

/* The answer does not come: it may have been done or not. The same request on another
 * node finds out (P8). */
static void patience_ends(void *self, uint64_t what, void *load)
{
    (void)load;
    struct sim_client *cl = self;
    struct sim_call *call = call_of(cl, what);
    if (call == NULL) {
        return;
    }
    move_on(cl);
    if (call == &cl->renewal) {
        renewal_failed(cl);
    } else {
        transmit(cl, call);
    }
}

static void refused(struct sim_client *cl, struct sim_call *call,
                    const struct sim_answer *a)
{
    if (a->refusal == PK_REFUSED_NOT_LEADER) {
        uint64_t hint = a->leader - 1;
        bool known = a->leader != 0 && hint != cl->node && hint < cl->habits->nodes;
        if (known) {
            move_to(cl, (uint32_t)hint);
        } else {
            move_on(cl);
        }
    }
    try_later(cl, call, a->refusal == PK_REFUSED_NO_SPACE ? 400 : 100);
}

/* ---- keeping the lease ---- */

bool sim_client_overdue(struct sim_client *cl)
{
    if (cl->lease == 0 ||
        pk_keeper_trust(&cl->keeper, sim_client_ms(cl)) != PK_TRUST_LOST) {
        return false;
    }
    sim_client_lose(cl, true);
    return true;
}

uint64_t sim_client_until_us(const struct sim_client *cl, const struct sim_claim *claim)
{
    uint64_t until_ms = pk_keeper_safe_until(&cl->keeper);
    until_ms = claim->hold_until_ms < until_ms ? claim->hold_until_ms : until_ms;
    return sim_clock_when_us(&cl->process.clock, until_ms);
}

static void renew(void *self, uint64_t serial, void *load)
{
    (void)load;
    struct sim_client *cl = self;
    if (serial != cl->keeping || cl->lease == 0 || sim_client_overdue(cl)) {
        return;
    }
    struct pk_command c = {.verb = PK_LEASE_RENEW, .leases = cl->renewed, .n_leases = 1};
    if (!cl->renewal.active) {
        sim_client_call(cl, &cl->renewal, &c, 0, SIM_CLAIMS);
    }
}

static void look_at_clock(void *self, uint64_t serial, void *load)
{
    (void)load;
    struct sim_client *cl = self;
    if (serial == cl->keeping) {
        sim_client_overdue(cl);
    }
}

static void set_keeper(struct sim_client *cl)
{
    cl->keeping++;
    at_ms(cl, cl->keeper.next_ms, renew, cl->keeping);
    at_ms(cl, pk_keeper_lost_at(&cl->keeper), look_at_clock, cl->keeping);
}

static void renewal_failed(struct sim_client *cl)
{
    cl->renewal.active = false;
    if (cl->lease != 0 && !sim_client_overdue(cl)) {
        pk_keeper_failed(&cl->keeper, sim_client_ms(cl), rng_next(&cl->rng));
        set_keeper(cl);
    }
}

void sim_client_opened(struct sim_client *cl, uint64_t lease, uint64_t sent_ms)
{
    cl->lease = lease;
    pk_command_put_lease(cl->renewed, 0, lease);
    pk_keeper_acked(&cl->keeper, sent_ms, cl->ttl_ms, 0);
    if (!sim_client_overdue(cl)) {
        set_keeper(cl);
    }
}

/* P5: counted from the sending, and not at all when it comes too late. */
static void renewal_answered(struct sim_client *cl, const struct sim_answer *a)
{
    cl->renewal.active = false;
    if (cl->lease == 0 || sim_client_overdue(cl)) {
        return;
    }
    if (a->effect.status != PK_OK) {
        sim_client_lose(cl, false);
        return;
    }
    pk_keeper_acked(&cl->keeper, cl->renewal.first_ms, a->effect.left_ms, 0);
    set_keeper(cl);
    for (uint32_t i = 0; i < SIM_CLAIMS; i++) {
        const struct sim_claim *claim = &cl->claims[i];
        if (claim->phase == SIM_HELD && !claim->leaving) {
            sim_check_renewed(cl->shared->check, claim->op,
                              sim_client_until_us(cl, claim));
        }
    }
}

void sim_client_lose(struct sim_client *cl, bool tell_service)
{
    if (tell_service) {
        cl->stale = cl->lease;
    }
    cl->lease = 0;
    cl->keeping++;
    cl->renewal.active = false;
    sim_worker_lost(cl);
}

/* ---- messages ---- */

static void replied(struct sim_client *cl, const struct sim_answer *a)
{
    struct sim_call *call = cl->work.active && cl->work.attempt == a->attempt ? &cl->work
                            : cl->renewal.active && cl->renewal.attempt == a->attempt
                                ? &cl->renewal
                                : NULL;
    if (call == NULL) {
        return; /* nobody waits for it any more */
    }
    if (a->kind == SIM_REFUSAL) {
        refused(cl, call, a);
        return;
    }
    sim_check_acked(cl->shared->check, a->attempt);
    if (call == &cl->renewal) {
        renewal_answered(cl, a);
    } else {
        sim_worker_answered(cl, a);
    }
}

static void receive(void *self, struct sim_message *m)
{
    struct sim_client *cl = self;
    struct sim_answer a = *(struct sim_answer *)m;
    sim_heap_give(m);
    if (a.connection != cl->connection) {
        return; /* of a connection that was closed */
    }
    switch (a.kind) {
    case SIM_REPLY:
    case SIM_REFUSAL:
        replied(cl, &a);
        break;
    case SIM_EVENT:
        sim_worker_told(cl, &a.effect);
        break;
    case SIM_GAP:
        sim_worker_missed(cl);
        break;
    }
}

/* ---- life ---- */

void sim_client_init(struct sim_client *cl, struct sim_shared *shared,
                     const struct sim_habits *habits, uint32_t number, struct rng rng)
{
    memset(cl, 0, sizeof *cl);
    sim_process_init(&cl->process, shared->queue, cl);
    cl->shared = shared;
    cl->habits = habits;
    cl->number = number;
    cl->rng = rng;
    shared->net->places[SIM_NODES_MAX + number] =
        (struct sim_place){.who = &cl->process, .receive = receive};
}

void sim_client_start(struct sim_client *cl)
{
    int64_t ppm = (int64_t)rng_below(&cl->rng, 2 * SIM_RATE_PPM + 1) - SIM_RATE_PPM;
    uint64_t offset_us = rng_below(&cl->rng, UINT64_C(1) << 50);
    sim_process_start(&cl->process, (struct sim_clock){offset_us, ppm});
    cl->connection = 1;
    cl->node = (uint32_t)rng_below(&cl->rng, cl->habits->nodes);
    cl->ttl_ms = rng_between(&cl->rng, cl->habits->ttl_least_ms, cl->habits->ttl_most_ms);
    sim_worker_wake(cl);
}

void sim_client_free(struct sim_client *cl)
{
    sim_process_free(&cl->process);
}

void sim_client_leave(struct sim_client *cl)
{
    cl->leaving = true;
    sim_worker_wake(cl);
}

bool sim_client_is_done(const struct sim_client *cl)
{
    return cl->leaving && cl->lease == 0 && cl->stale == 0 && !cl->work.active;
}
