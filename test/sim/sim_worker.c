/* SPDX-License-Identifier: MIT */
/* What a client wants: one request at a time, drawn by lot, and its claims. */
#include "core/door.h"
#include "sim_client.h"

enum {
    FIRST_SEMAPHORE = 5, /* locks from here on are semaphores */
    SLOTS = 2,
    ASK_AGAIN_MS = 900, /* about a wait of which nothing is heard */
    SEEN_ROWS = SIM_SHOWN_MAX,
};

/* ---- thinking ---- */

static void think(struct sim_client *cl);

static void thought(void *self, uint64_t unused, void *load)
{
    (void)unused;
    (void)load;
    struct sim_client *cl = self;
    cl->thinking = false;
    think(cl);
}

void sim_worker_wake(struct sim_client *cl)
{
    if (!cl->thinking) {
        cl->thinking = true;
        uint64_t in_us = rng_between(&cl->rng, SIM_MS, cl->habits->pace_ms * SIM_MS);
        sim_process_at(&cl->process, cl->shared->queue->now_us + in_us, thought, 0, NULL);
    }
}

static void ask(struct sim_client *cl, const struct pk_command *c, uint32_t claim)
{
    sim_client_call(cl, &cl->work, c, 0, claim);
}

/* ---- claims ---- */

static struct sim_claim *claim_of(struct sim_client *cl, uint64_t op)
{
    for (uint32_t i = 0; i < SIM_CLAIMS; i++) {
        if (cl->claims[i].phase != SIM_FREE && cl->claims[i].op == op) {
            return &cl->claims[i];
        }
    }
    return NULL;
}

static uint32_t claim_in(const struct sim_client *cl, enum sim_phase phase)
{
    uint32_t i = 0;
    while (i < SIM_CLAIMS && (cl->claims[i].phase != phase || cl->claims[i].leaving)) {
        i++;
    }
    return i;
}

static void drop_claim(struct sim_client *cl, struct sim_claim *claim)
{
    if (claim->phase == SIM_HELD) {
        sim_check_let_go(cl->shared->check, claim->op);
        cl->zombie = claim->token;
    }
    *claim = (struct sim_claim){.phase = SIM_FREE};
}

/* The service says that it is ours. */
static void hold(struct sim_client *cl, struct sim_claim *claim, uint64_t token)
{
    if (sim_client_overdue(cl)) {
        return; /* too late: everything is dropped already */
    }
    claim->phase = SIM_HELD;
    claim->token = token;
    claim->hold_until_ms = UINT64_MAX;
    uint64_t max_hold = claim->acquire.max_hold_ms;
    if (max_hold != 0) { /* as client/lock.c does, from before it can have been granted */
        claim->hold_until_ms = claim->sent_ms + max_hold - pk_keeper_margin(max_hold, 0);
    }
    claim->due_ms = sim_client_ms(cl) + rng_between(&cl->rng, 5, 600);
    sim_check_believed(cl->shared->check, claim->op, token,
                       sim_client_until_us(cl, claim));
}

static void choose_parts(struct sim_client *cl, struct pk_command *c)
{
    uint32_t first = (uint32_t)rng_below(&cl->rng, cl->habits->locks);
    bool set = first < FIRST_SEMAPHORE && rng_chance(&cl->rng, 150);
    c->n_parts = set ? (uint32_t)rng_between(&cl->rng, 2, SIM_PARTS_MAX) : 1;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        uint32_t lock = set ? (first + i) % FIRST_SEMAPHORE : first;
        struct pk_part *p = &c->parts[i];
        p->name = sim_lock_name(lock);
        p->mode = lock >= FIRST_SEMAPHORE     ? PK_SLOT
                  : rng_chance(&cl->rng, 250) ? PK_SHARED
                                              : PK_EXCLUSIVE;
        p->slots = p->mode != PK_SLOT ? 0 : rng_chance(&cl->rng, 30) ? SLOTS + 1 : SLOTS;
    }
}

static void acquire(struct sim_client *cl, uint32_t i)
{
    struct pk_command c = {.verb = PK_LOCK_ACQUIRE, .lease = cl->lease};
    struct sim_claim *claim = &cl->claims[i];
    choose_parts(cl, &c);
    uint64_t lot = rng_below(&cl->rng, 100);
    c.wait_ms = lot < 25   ? 0
                : lot < 65 ? rng_between(&cl->rng, 50, 2000)
                           : PK_WAIT_FOREVER;
    c.max_hold_ms = rng_chance(&cl->rng, 80) ? rng_between(&cl->rng, 60, 1500) : 0;
    c.lock_delay_ms = rng_chance(&cl->rng, 100) ? rng_between(&cl->rng, 20, 400) : 0;
    ask(cl, &c, i);
    *claim = (struct sim_claim){.phase = SIM_ASKED,
                                .op = cl->work.op,
                                .acquire = cl->work.c,
                                .sent_ms = sim_client_ms(cl),
                                .hold_until_ms = UINT64_MAX};
}

/* The same acquire again: the claim it made, or the answer that is remembered. */
static void ask_again(struct sim_client *cl, uint32_t i)
{
    cl->claims[i].due_ms = sim_client_ms(cl) + ASK_AGAIN_MS;
    sim_client_call(cl, &cl->work, &cl->claims[i].acquire, cl->claims[i].op, i);
}

static void release(struct sim_client *cl, uint32_t i)
{
    struct sim_claim *claim = &cl->claims[i];
    struct pk_command c = {.verb = PK_LOCK_RELEASE,
                           .lease = cl->lease,
                           .name = claim->acquire.parts[0].name,
                           .token = claim->token};
    claim->leaving = true;
    sim_check_let_go(cl->shared->check, claim->op);
    ask(cl, &c, i);
}

static void cancel(struct sim_client *cl, uint32_t i)
{
    struct pk_command c = {
        .verb = PK_LOCK_CANCEL, .lease = cl->lease, .target = cl->claims[i].op};
    cl->claims[i].leaving = true;
    ask(cl, &c, i);
}

/* ---- other wishes ---- */

static void open_lease(struct sim_client *cl)
{
    struct pk_command c = {
        .verb = PK_LEASE_OPEN, .ttl_ms = cl->ttl_ms, .label = pk_text("sim")};
    ask(cl, &c, SIM_CLAIMS);
}

static void close_lease(struct sim_client *cl, uint64_t lease)
{
    struct pk_command c = {.verb = PK_LEASE_CLOSE, .lease = lease};
    for (uint32_t i = 0; i < SIM_CLAIMS && lease == cl->lease; i++) {
        if (cl->claims[i].phase != SIM_FREE) {
            cl->claims[i].leaving = true;
            sim_check_let_go(cl->shared->check, cl->claims[i].op);
        }
    }
    ask(cl, &c, SIM_CLAIMS);
}

/* With a token of now, or with one that was lost: the fence knows. */
static void use_fence(struct sim_client *cl)
{
    uint32_t held = claim_in(cl, SIM_HELD);
    bool zombie = cl->zombie != 0 && rng_chance(&cl->rng, 200);
    uint64_t token = zombie ? cl->zombie : held < SIM_CLAIMS ? cl->claims[held].token : 0;
    uint32_t lock =
        held < SIM_CLAIMS ? sim_lock_of(cl->claims[held].acquire.parts[0].name) : 0;
    uint64_t lot = rng_below(&cl->rng, 4);
    struct pk_command c = {.verb = token == 0 || lot == 0 ? PK_FENCE_GET
                                   : lot == 1             ? PK_FENCE_CLAIM
                                   : lot == 2             ? PK_FENCE_CHECK
                                                          : PK_FENCE_SET,
                           .name = sim_fence_name(lock % SIM_FENCES),
                           .token = token};
    if (c.verb == PK_FENCE_GET && rng_chance(&cl->rng, 500)) {
        c.token = 0;
    }
    if (c.verb == PK_FENCE_SET) {
        c.value = pk_text("written");
    }
    ask(cl, &c, SIM_CLAIMS);
}

static void show_lock(struct sim_client *cl)
{
    uint32_t lock = (uint32_t)rng_below(&cl->rng, cl->habits->locks);
    struct pk_command c = {
        .verb = PK_LOCK_SHOW, .name = sim_lock_name(lock), .count = SEEN_ROWS};
    ask(cl, &c, SIM_CLAIMS);
}

static void set_value(struct sim_client *cl, uint32_t i)
{
    struct pk_command c = {.verb = PK_LOCK_VALUE,
                           .lease = cl->lease,
                           .name = cl->claims[i].acquire.parts[0].name,
                           .token = cl->claims[i].token,
                           .value = pk_text("here")};
    ask(cl, &c, i);
}

static void break_lock(struct sim_client *cl)
{
    struct pk_command c = {.verb = PK_LOCK_BREAK,
                           .name = sim_lock_name(cl->seen_lock),
                           .token = cl->seen_token,
                           .reason = pk_text("for once")};
    cl->seen_token = 0;
    ask(cl, &c, SIM_CLAIMS);
}

/* Something that was answered long ago: P8 has no end. */
static void repeat(struct sim_client *cl)
{
    uint32_t kept = cl->n_past < SIM_PAST ? cl->n_past : SIM_PAST;
    const struct sim_past *p = &cl->past[rng_below(&cl->rng, kept)];
    struct pk_command c = p->c;
    sim_client_call(cl, &cl->work, &c, p->op, SIM_CLAIMS);
}

static void configure(struct sim_client *cl)
{
    struct pk_command c = {.verb = PK_CONFIGURE, .limits = pk_limits_default()};
    c.limits.replies = (uint32_t)rng_between(&cl->rng, 3, 16);
    c.limits.lock_waiters = (uint32_t)rng_between(&cl->rng, 2, 12);
    ask(cl, &c, SIM_CLAIMS);
}

/* ---- choosing ---- */

/* What can't wait: true when something was asked. */
static bool do_what_is_due(struct sim_client *cl)
{
    uint64_t now = sim_client_ms(cl);
    for (uint32_t i = 0; i < SIM_CLAIMS; i++) {
        const struct sim_claim *claim = &cl->claims[i];
        if (claim->leaving || now < claim->due_ms) {
            continue;
        }
        if (claim->phase == SIM_HELD) {
            release(cl, i);
            return true;
        }
        if (claim->phase == SIM_WAITING) {
            ask_again(cl, i);
            return true;
        }
    }
    return false;
}

/* True when there was something left to give back. */
static bool give_back(struct sim_client *cl)
{
    uint32_t held = claim_in(cl, SIM_HELD);
    uint32_t waiting = claim_in(cl, SIM_WAITING);
    if (held < SIM_CLAIMS) {
        release(cl, held);
    } else if (waiting < SIM_CLAIMS) {
        cancel(cl, waiting);
    } else {
        return false;
    }
    return true;
}

static void do_something(struct sim_client *cl)
{
    uint32_t unused = claim_in(cl, SIM_FREE);
    uint32_t waiting = claim_in(cl, SIM_WAITING);
    uint32_t held = claim_in(cl, SIM_HELD);
    uint64_t lot = rng_below(&cl->rng, 1000);
    if (lot < 550 && unused < SIM_CLAIMS) {
        acquire(cl, unused);
    } else if (lot < 700) {
        use_fence(cl);
    } else if (lot < 840) {
        show_lock(cl);
    } else if (lot < 880 && waiting < SIM_CLAIMS) {
        cancel(cl, waiting);
    } else if (lot < 910 && held < SIM_CLAIMS) {
        set_value(cl, held);
    } else if (lot < 970 && cl->n_past > 0) {
        repeat(cl);
    } else if (lot < 980 && cl->seen_token != 0) {
        break_lock(cl);
    } else if (lot < 983) {
        configure(cl);
    } else if (lot < 990) {
        close_lease(cl, cl->lease);
    } else {
        sim_worker_wake(cl);
    }
}

static void think(struct sim_client *cl)
{
    if (cl->work.active) {
        return;
    }
    sim_client_overdue(cl);
    if (cl->stale != 0) {
        close_lease(cl, cl->stale);
    } else if (cl->lease == 0 && !cl->leaving) {
        open_lease(cl);
    } else if (cl->lease != 0 && cl->leaving) {
        if (!give_back(cl)) {
            close_lease(cl, cl->lease);
        }
    } else if (cl->lease != 0 && !do_what_is_due(cl)) {
        do_something(cl);
    }
}

/* ---- answers ---- */

static void acquire_answered(struct sim_client *cl, struct sim_claim *claim,
                             const struct pk_effect *r)
{
    if (r->status == PK_OK && claim->phase != SIM_HELD && !claim->leaving) {
        hold(cl, claim, r->token);
    } else if (r->status == PK_QUEUED && claim->phase == SIM_ASKED) {
        claim->phase = SIM_WAITING;
        claim->due_ms = sim_client_ms(cl) + ASK_AGAIN_MS;
    } else if (r->status != PK_OK && r->status != PK_QUEUED) {
        drop_claim(cl, claim);
    }
}

static void shown(struct sim_client *cl, const struct sim_answer *a)
{
    uint32_t lock = sim_lock_of(cl->work.c.name);
    sim_check_shown(cl->shared->check, a->attempt, lock, a->shown, a->n_shown,
                    a->made_us);
    if (a->n_shown > 0) {
        cl->seen_lock = lock;
        cl->seen_token = a->shown[0];
    }
}

static void fence_answered(struct sim_client *cl, const struct sim_answer *a)
{
    const struct pk_command *c = &cl->work.c;
    if (c->verb == PK_FENCE_GET && c->token == 0) {
        sim_check_fence_seen(cl->shared->check, a->attempt, a->effect.token,
                             cl->work.acked_then);
    } else if (c->verb != PK_FENCE_CHECK && a->effect.status == PK_OK) {
        sim_check_fence_acked(cl->shared->check, a->attempt, sim_fence_of(c->name),
                              a->effect.token);
    }
}

static void remember(struct sim_client *cl)
{
    uint32_t fields = pk_verb_fields(cl->work.c.verb);
    if ((fields & PK_F_REQUEST) != 0 && cl->work.c.verb != PK_CONFIGURE) {
        cl->past[cl->n_past++ % SIM_PAST] = (struct sim_past){cl->work.c, cl->work.op};
    }
}

/* What the answer means for the claim that it is about. */
static void claim_answered(struct sim_client *cl, struct sim_claim *claim,
                           const struct pk_effect *r)
{
    if (claim->phase == SIM_FREE) {
        return; /* news of its end were faster */
    }
    switch (cl->work.c.verb) {
    case PK_LOCK_ACQUIRE:
        acquire_answered(cl, claim, r);
        break;
    case PK_LOCK_RELEASE:
    case PK_LOCK_CANCEL:
        if (r->status == PK_OK) {
            sim_check_released(cl->shared->check, claim->op);
        }
        drop_claim(cl, claim);
        break;
    default:
        break;
    }
}

/* The answer concerns the lease that we have now. */
static bool is_of_today(const struct sim_client *cl)
{
    return cl->lease != 0 && cl->work.c.lease == cl->lease;
}

void sim_worker_answered(struct sim_client *cl, const struct sim_answer *a)
{
    const struct pk_effect *r = &a->effect;
    const struct pk_command *c = &cl->work.c;
    cl->work.active = false;
    bool lost = r->status == PK_LOST || r->status == PK_NOTFOUND;
    if (c->verb == PK_LEASE_OPEN) {
        if (!cl->work.again && r->status == PK_OK) {
            sim_client_opened(cl, r->lease, cl->work.first_ms);
        }
    } else if (c->verb == PK_LEASE_CLOSE) {
        if (c->lease == cl->lease && cl->lease != 0) {
            sim_client_lose(cl, false);
        }
        cl->stale = c->lease == cl->stale ? 0 : cl->stale;
    } else if (c->verb == PK_LOCK_SHOW) {
        shown(cl, a);
    } else if (c->verb >= PK_FENCE_CLAIM && c->verb <= PK_FENCE_GET) {
        fence_answered(cl, a);
    } else if (lost && is_of_today(cl)) {
        sim_client_lose(cl, false);
    } else if (cl->work.claim < SIM_CLAIMS && is_of_today(cl)) {
        claim_answered(cl, &cl->claims[cl->work.claim], r);
    }
    remember(cl);
    sim_worker_wake(cl);
}

/* ---- news ---- */

void sim_worker_told(struct sim_client *cl, const struct pk_effect *e)
{
    if (e->lease != cl->lease || cl->lease == 0 || sim_client_overdue(cl)) {
        return;
    }
    if (e->kind == PK_EV_LEASE_ENDED) {
        sim_client_lose(cl, false);
        return;
    }
    struct sim_claim *claim = claim_of(cl, e->request);
    if (claim == NULL || claim->leaving) {
        return;
    }
    if (e->kind == PK_EV_GRANTED && claim->phase != SIM_HELD) {
        hold(cl, claim, e->token);
    } else if (e->kind == PK_EV_LEFT && claim->phase != SIM_HELD) {
        drop_claim(cl, claim);
    } else if (e->kind == PK_EV_ENDED && claim->phase == SIM_HELD) {
        drop_claim(cl, claim);
    }
}

void sim_worker_missed(struct sim_client *cl)
{
    for (uint32_t i = 0; i < SIM_CLAIMS; i++) {
        if (cl->claims[i].phase == SIM_WAITING) {
            cl->claims[i].due_ms = 0;
        }
    }
}

void sim_worker_lost(struct sim_client *cl)
{
    for (uint32_t i = 0; i < SIM_CLAIMS; i++) {
        drop_claim(cl, &cl->claims[i]);
    }
    if (cl->work.active && cl->work.c.lease != 0 && cl->work.c.verb != PK_LEASE_CLOSE) {
        cl->work.active = false; /* nobody cares any more */
    }
    sim_worker_wake(cl);
}
