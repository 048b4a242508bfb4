/* SPDX-License-Identifier: MIT */
#include "sim_node.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"

enum { TURN_US = 300 }; /* what comes in within that time may share a turn */

static void to_client(struct sim_node *n, uint32_t client, const struct sim_answer *from)
{
    uint32_t to = SIM_NODES_MAX + client;
    if (n->condition == SIM_SICK) {
        return;
    }
    struct sim_answer *a = sim_net_message(n->shared->net, n->place, to, sizeof *a);
    struct sim_message head = a->head;
    *a = *from;
    a->head = head;
    a->made_us = n->shared->queue->now_us;
    a->effect.name = a->effect.value = a->effect.label = pk_text("");
    a->effect.by = a->effect.why = pk_text("");
    sim_net_send(&a->head);
}

/* ---- answers ---- */

/* A ticket: who is the client and its connection, what the attempt. */
static struct pk_ticket ticket_for(const struct sim_request *r)
{
    uint64_t client = r->head.from - SIM_NODES_MAX;
    return (struct pk_ticket){r->connection * SIM_CLIENTS_MAX + client, r->attempt};
}

static void on_answer(void *ctx, struct pk_ticket t, const struct pk_command *c,
                      const struct pk_effects *e)
{
    struct sim_node *n = ctx;
    if (t.what == 0 || n->condition == SIM_SICK) {
        return; /* 0: the operator's, see sim_operator.c */
    }
    sim_check_answered(n->shared->check, t.what, c, e,
                       pk_replica_standing(n->replica).applied_index);
    n->shared->check->sights->follower_reads += !pk_turn_serving(n->turn);
    uint32_t client = (uint32_t)(t.who % SIM_CLIENTS_MAX);
    struct sim_answer a = {
        .kind = SIM_REPLY, .attempt = t.what, .connection = t.who / SIM_CLIENTS_MAX};
    for (uint32_t i = 0; i < e->count; i++) {
        const struct pk_effect *x = &e->list[i];
        if (x->kind == PK_REPLY) {
            a.effect = *x;
        } else if (x->kind == PK_ROW_HOLD && c->verb == PK_LOCK_SHOW) {
            a.shown[a.n_shown] = x->token;
            a.n_shown += a.n_shown + 1 < SIM_SHOWN_MAX;
        }
    }
    struct sim_session *s = &n->sessions[client];
    if (c->verb == PK_LEASE_OPEN && s->connection == a.connection) {
        s->lease = a.effect.lease;
    }
    to_client(n, client, &a);
}

static void refuse(struct sim_node *n, struct pk_ticket t, enum pk_refusal why)
{
    if (n->condition == SIM_SICK) {
        return;
    }
    sim_check_refused(n->shared->check, t.what, why == PK_REFUSED_UNKNOWN,
                      why == PK_REFUSED_NO_SPACE);
    struct sim_answer a = {.kind = SIM_REFUSAL,
                           .attempt = t.what,
                           .connection = t.who / SIM_CLIENTS_MAX,
                           .refusal = why,
                           .leader = pk_replica_standing(n->replica).leader_id};
    to_client(n, (uint32_t)(t.who % SIM_CLIENTS_MAX), &a);
}

static void on_refuse(void *ctx, struct pk_ticket t, enum pk_refusal why)
{
    if (t.what != 0) {
        refuse(ctx, t, why);
    }
}

static bool is_news(const struct pk_effect *e)
{
    return e->kind == PK_EV_GRANTED || e->kind == PK_EV_LEFT || e->kind == PK_EV_ENDED ||
           e->kind == PK_EV_LEASE_ENDED;
}

static void on_events(void *ctx, const struct pk_effects *e)
{
    struct sim_node *n = ctx;
    for (uint32_t i = 0; i < e->count; i++) {
        const struct pk_effect *x = &e->list[i];
        for (uint32_t c = 0; c < SIM_CLIENTS_MAX && is_news(x) && x->part == 0; c++) {
            const struct sim_session *s = &n->sessions[c];
            if (s->connection != 0 && s->lease == x->lease) {
                struct sim_answer a = {
                    .kind = SIM_EVENT, .connection = s->connection, .effect = *x};
                to_client(n, c, &a);
            }
        }
    }
}

static void on_gap(void *ctx)
{
    struct sim_node *n = ctx;
    for (uint32_t c = 0; c < SIM_CLIENTS_MAX; c++) {
        if (n->sessions[c].connection != 0) {
            struct sim_answer a = {.kind = SIM_GAP,
                                   .connection = n->sessions[c].connection};
            to_client(n, c, &a);
        }
    }
}

static void on_standing(void *ctx, bool serving, uint64_t leader_id)
{
    struct sim_node *n = ctx;
    sim_queue_note(n->shared->queue, leader_id * 2 + serving);
}

/* To all others, as the transport does. */
static void on_marked(void *ctx, uint64_t index, uint64_t digest)
{
    struct sim_node *n = ctx;
    sim_io_tell_mark(n->io, index, digest);
}

static void on_note(void *ctx, uint64_t to, const struct pk_read_note *note)
{
    struct sim_node *n = ctx;
    unsigned char bytes[PK_READ_NOTE_BYTES];
    pk_read_note_encode(note, bytes);
    for (uint32_t place = 0; place < SIM_NODES_MAX; place++) {
        if (to == 0 || to == place + 1) {
            sim_io_note(n->io, place, bytes, sizeof bytes);
        }
    }
}

/* As the process would end: nothing happens to it any more, until it is cleared away. */
static void end_process(struct sim_node *n)
{
    n->failed = true;
    n->shared->stopped(n->shared->stopped_ctx, n->place);
}

static void on_io_failed(void *self, const char *why)
{
    struct sim_node *n = self;
    (void)why;
    end_process(n);
}

static void on_broken(void *ctx, const char *why)
{
    struct sim_node *n = ctx;
    if (n->failed) {
        return;
    }
    if (n->condition != SIM_SICK) {
        sim_violation("R12", "node %" PRIu32 " stops: %s", n->place + 1, why);
    }
    n->shared->check->sights->stopped++;
    sim_io_stop(n->io);
    end_process(n);
}

/* ---- between the replica and the turn: the judge hears it first ---- */

static void on_stepped(void *ctx, const struct pk_step *s)
{
    struct sim_node *n = ctx;
    n->adopting = s->entry->kind == PK_ENTRY_ADOPT;
    if (n->condition != SIM_SICK) {
        sim_check_stepped(n->shared->check, &n->applying, s);
    }
    n->above.stepped(n->above.ctx, s);
}

static void on_applied(void *ctx, const struct pk_entry *e)
{
    struct sim_node *n = ctx;
    if (n->condition != SIM_SICK) {
        sim_check_applied(n->shared->check, &n->applying, e,
                          pk_replica_machine(n->replica));
    }
    n->adopting = false;
    n->above.applied(n->above.ctx, e);
}

/* A snapshot of a healthy leader makes a sick node healthy, a restored backup does not.
 * The disk may still have snapshots of before. */
static void on_replaced(void *ctx)
{
    struct sim_node *n = ctx;
    if (n->condition == SIM_SICK && !n->adopting) {
        n->condition = SIM_DAMAGED;
        sim_io_withhold_snapshots(n->io, false);
    }
    n->above.replaced(n->above.ctx);
}

static void on_replica_marked(void *ctx, uint64_t index, uint64_t digest)
{
    struct sim_node *n = ctx;
    n->above.marked(n->above.ctx, index, digest);
}

static void on_replica_broken(void *ctx, const char *why)
{
    struct sim_node *n = ctx;
    n->above.broken(n->above.ctx, why);
}

/* ---- the loop ---- */

void sim_node_enter(struct sim_node *n)
{
    sim_heap_for_raft(&n->heap);
}

/* True when the request is dealt with; false when it has to wait for the next turn. */
static bool offer(struct sim_node *n, const struct sim_request *r)
{
    struct pk_command c;
    size_t len = pk_command_decode(r->bytes, r->len, &c);
    PK_ASSERT(len == r->len);
    bool here =
        pk_turn_serving(n->turn) || (pk_command_is_read(&c) && pk_turn_reads(n->turn));
    if (!here) {
        refuse(n, ticket_for(r), PK_REFUSED_NOT_LEADER);
        return true;
    }
    return pk_turn_add(n->turn, &c, ticket_for(r));
}

static void offer_again(struct sim_node *n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n->n_waiting; i++) {
        if (kept == 0 && offer(n, n->waiting[i])) {
            sim_heap_give(n->waiting[i]);
        } else {
            n->waiting[kept++] = n->waiting[i];
        }
    }
    n->n_waiting = kept;
}

static void turn_ends(void *self, uint64_t unused, void *load)
{
    (void)unused;
    (void)load;
    struct sim_node *n = self;
    n->turn_comes = false;
    sim_node_end_turn(n);
}

static void expect_turn(struct sim_node *n)
{
    if (!n->turn_comes) {
        n->turn_comes = true;
        uint64_t in_us = rng_below(&n->rng, TURN_US);
        sim_process_at(&n->process, n->shared->queue->now_us + in_us, turn_ends, 0, NULL);
    }
}

static void timer_is_due(void *self, uint64_t at_ms, void *load)
{
    (void)load;
    struct sim_node *n = self;
    if (n->timer_ms == at_ms) {
        n->timer_ms = UINT64_MAX;
        sim_node_end_turn(n);
    }
}

/* The turn's wish for the next call; a wish for now waits a moment all the same. */
static void set_timer(struct sim_node *n)
{
    uint64_t at_ms = pk_turn_next_ms(n->turn);
    uint64_t next_ms = sim_process_ms(&n->process) + 1;
    at_ms = at_ms < next_ms ? next_ms : at_ms;
    if (at_ms != n->timer_ms) {
        n->timer_ms = at_ms;
        if (at_ms != UINT64_MAX) {
            sim_process_at(&n->process, sim_clock_when_us(&n->process.clock, at_ms),
                           timer_is_due, at_ms, NULL);
        }
    }
}

void sim_node_end_turn(struct sim_node *n)
{
    sim_node_enter(n);
    pk_turn_end(n->turn, sim_process_ms(&n->process));
    sim_io_flush(n->io);
    if (n->n_waiting > 0) {
        offer_again(n);
        expect_turn(n);
    }
    if (pk_turn_serving(n->turn)) {
        sim_check_serving(n->shared->check, n->place,
                          pk_replica_standing(n->replica).term);
    }
    set_timer(n);
}

static void on_worked(void *self)
{
    struct sim_node *n = self;
    if (!n->turn_comes) {
        sim_node_end_turn(n);
    }
}

static void wait_for_room(struct sim_node *n, struct sim_request *r)
{
    if (n->n_waiting == n->waiting_capacity) {
        n->waiting_capacity = n->waiting_capacity == 0 ? 16 : n->waiting_capacity * 2;
        n->waiting = pk_door_resize(n->waiting,
                                    n->waiting_capacity * sizeof(struct sim_request *));
    }
    n->waiting[n->n_waiting++] = r;
}

static void hear_note(struct sim_node *n, uint64_t from, const void *bytes)
{
    struct pk_read_note note;
    bool sound = pk_read_note_decode(bytes, PK_READ_NOTE_BYTES, &note);
    PK_ASSERT(sound);
    sim_node_enter(n);
    pk_turn_hear(n->turn, from, &note);
}

static void receive(void *self, struct sim_message *m)
{
    struct sim_node *n = self;
    uint64_t index, digest;
    if (m->from < SIM_NODES_MAX && sim_io_is_mark(m, &index, &digest)) {
        uint64_t from = m->from + 1;
        sim_heap_give(m);
        sim_node_enter(n);
        pk_replica_hear_mark(n->replica, from, index, digest);
        return;
    }
    const void *note = m->from < SIM_NODES_MAX ? sim_io_note_in(m) : NULL;
    if (note != NULL) {
        hear_note(n, m->from + 1, note);
        sim_heap_give(m);
        expect_turn(n);
        return;
    }
    if (m->from < SIM_NODES_MAX) {
        sim_io_receive(n->io, m);
        return;
    }
    sim_node_enter(n);
    struct sim_request *r = (struct sim_request *)m;
    n->sessions[m->from - SIM_NODES_MAX] = (struct sim_session){r->connection, r->lease};
    if (n->n_waiting == 0 && offer(n, r)) {
        sim_heap_give(r);
    } else {
        wait_for_room(n, r);
    }
    expect_turn(n);
}

void sim_node_resume(struct sim_node *n)
{
    /* A loop that wakes up may have its timers run first, or read its sockets, end its
     * turn, and see only then how late it is. */
    uint64_t order = rng_below(&n->rng, 4);
    if (order == 0) {
        sim_process_resume_with(&n->process, sim_net_arrive);
    }
    if (order <= 1 && !n->failed) {
        sim_node_end_turn(n);
    }
    sim_process_resume(&n->process);
}

/* ---- life ---- */

struct pk_member sim_node_member(uint32_t place)
{
    struct pk_member m = {.id = place + 1, .role = PK_MEMBER_VOTER};
    snprintf(m.address, sizeof m.address, "%s", sim_io_address(place));
    return m;
}

void sim_node_init(struct sim_node *n, struct sim_shared *shared, uint32_t place,
                   struct rng rng)
{
    memset(n, 0, sizeof *n);
    sim_process_init(&n->process, shared->queue, n);
    sim_heap_init(&n->heap);
    n->shared = shared;
    n->place = place;
    n->rng = rng;
    sim_disk_init(&n->disk);
    shared->net->places[place] =
        (struct sim_place){.who = &n->process, .receive = receive};
}

static struct pk_turn *new_turn(struct sim_node *n, uint64_t origin)
{
    const struct pk_turn_hooks hooks = {.ctx = n,
                                        .answer = on_answer,
                                        .refuse = on_refuse,
                                        .events = on_events,
                                        .gap = on_gap,
                                        .standing = on_standing,
                                        .note = on_note,
                                        .marked = on_marked,
                                        .broken = on_broken};
    const struct pk_turn_options options = {.origin = origin,
                                            .election_ms = n->shared->election_ms,
                                            .digest_every = n->shared->digest_every,
                                            .digest_ms = n->shared->digest_ms,
                                            .in_flight = n->shared->in_flight,
                                            .batch_bytes = n->shared->batch_bytes};
    return pk_turn_new(&options, &hooks);
}

static struct pk_replica *new_replica(struct sim_node *n, uint64_t origin)
{
    const struct pk_replica_hooks hooks = {.ctx = n,
                                           .stepped = on_stepped,
                                           .applied = on_applied,
                                           .replaced = on_replaced,
                                           .marked = on_replica_marked,
                                           .broken = on_replica_broken};
    struct pk_member self = sim_node_member(n->place);
    const struct pk_replica_options options = {
        .id = self.id,
        .address = self.address,
        .origin = origin,
        .election_ms = n->shared->election_ms,
        .use = sim_io_use,
        .use_ctx = n->io,
        .threshold = n->shared->threshold,
        .trailing = n->shared->trailing,
        .reserve = sim_io_reserve(),
        .seed = 1 + (uint32_t)rng_below(&n->rng, INT32_MAX),
    };
    return pk_replica_new(sim_io_raft(n->io), &options, &hooks, n->why, sizeof n->why);
}

static struct sim_io *new_io(struct sim_node *n)
{
    const struct sim_io_options options = {.process = &n->process,
                                           .heap = &n->heap,
                                           .disk = &n->disk,
                                           .promised = &n->promised,
                                           .fresh = !n->has_started,
                                           .net = n->shared->net,
                                           .speed = &n->speed,
                                           .rng = &n->rng,
                                           .place = n->place,
                                           .worked = on_worked,
                                           .failed = on_io_failed};
    return sim_io_new(&options, n->shared->io_counts);
}

/* Values of clocks don't matter, rates do. */
static struct sim_clock any_clock(struct rng *r)
{
    int64_t ppm = (int64_t)rng_below(r, 2 * SIM_RATE_PPM + 1) - SIM_RATE_PPM;
    return (struct sim_clock){.offset_us = rng_below(r, UINT64_C(1) << 50), .ppm = ppm};
}

static void end_life(struct sim_node *n, bool power)
{
    sim_node_enter(n);
    sim_io_crash(n->io, power);
    if (n->replica != NULL) {
        pk_replica_abandon(n->replica);
    }
    pk_turn_free(n->turn);
    sim_io_free(n->io);
    n->replica = NULL;
    n->turn = NULL;
    n->io = NULL;
    sim_heap_clear(&n->heap);
    for (size_t i = 0; i < n->n_waiting; i++) {
        sim_heap_give(n->waiting[i]);
    }
    n->n_waiting = 0;
    sim_process_kill(&n->process);
}

/* NULL, or why not. */
static const char *start_replica(struct sim_node *n, const struct pk_member *members,
                                 size_t n_members)
{
    pk_turn_attach(n->turn, n->replica);
    const char *wrong =
        n_members == 0 ? NULL : pk_replica_bootstrap(n->replica, members, n_members);
    wrong = wrong != NULL ? wrong : pk_replica_start(n->replica);
    if (wrong != NULL) {
        snprintf(n->why, sizeof n->why, "%s", wrong);
    }
    return wrong == NULL ? NULL : n->why;
}

const char *sim_node_start(struct sim_node *n, const struct pk_member *members,
                           size_t n_members)
{
    sim_process_start(&n->process, any_clock(&n->rng));
    sim_node_enter(n);
    n->applying.index = 0;
    n->turn_comes = false;
    n->failed = false;
    n->adopting = false;
    n->timer_ms = UINT64_MAX;
    memset(n->sessions, 0, sizeof n->sessions);
    uint64_t origin = rng_next(&n->rng);
    n->io = new_io(n);
    n->turn = new_turn(n, origin);
    n->above = pk_turn_replica_hooks(n->turn);
    n->replica = new_replica(n, origin);
    n->has_started = true;
    if (n->replica == NULL || start_replica(n, members, n_members) != NULL) {
        end_life(n, false);
        return n->why;
    }
    sim_node_end_turn(n);
    return NULL;
}

void sim_node_crash(struct sim_node *n, bool power)
{
    struct pk_raft_guard_counts g = pk_replica_guard_counts(n->replica);
    n->shared->guards.g1 += g.g1;
    n->shared->guards.g2 += g.g2;
    n->shared->guards.g3 += g.g3;
    n->shared->guards.g4 += g.g4;
    n->shared->guards.g5 += g.g5;
    n->shared->guards.g6 += g.g6;
    n->shared->guards.g7 += g.g7;
    n->shared->guards.g8 += g.g8;
    n->shared->guards.g9 += g.g9;
    n->shared->guards.g10 += g.g10;
    end_life(n, power);
    n->condition = n->condition == SIM_SICK ? SIM_DEAD : n->condition;
}

void sim_node_wipe(struct sim_node *n)
{
    PK_ASSERT(!n->process.up);
    sim_disk_wipe(&n->disk);
    n->promised = (struct sim_promised){0};
    n->has_started = false;
}

/* A leap of the tokens stays in the state, whatever the log says later. */
void sim_node_sicken(struct sim_node *n)
{
    struct pk_command hidden = {.verb = PK_LEAP};
    struct pk_effects unseen = {0};
    pk_machine_step(pk_replica_machine(n->replica), &hidden, &unseen);
    pk_effects_free(&unseen);
    n->condition = SIM_SICK;
    sim_io_withhold_snapshots(n->io, true);
}

void sim_node_full(struct sim_node *n, bool full)
{
    n->disk.full = full;
}

bool sim_node_serves(const struct sim_node *n)
{
    return n->process.up && !n->process.paused && pk_turn_serving(n->turn);
}

void sim_node_free(struct sim_node *n)
{
    if (n->process.up) {
        sim_node_crash(n, false);
    }
    sim_disk_free(&n->disk);
    pk_door_resize(n->waiting, 0);
    sim_process_free(&n->process);
}
