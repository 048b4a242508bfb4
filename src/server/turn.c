/* SPDX-License-Identifier: MIT */
/*
 * Two rings, both in the order of the log: the entries in flight, and the tickets of all
 * commands not yet answered. The oldest tickets belong to the oldest entry in flight, the
 * newest to the commands that wait in the replica's room for the end of the turn. In a
 * steady state nothing is allocated here.
 */
#include "server/turn.h"

#include "core/door.h"

enum {
    ELECTION_MS = 300,
    DIGEST_EVERY = 8192,
    DIGEST_MS = 60 * 1000,
    IN_FLIGHT = 32,
    BATCH_BYTES = 1024 * 1024,
    RETRY_MS = 100, /* after a tick that nobody took */
    TICKETS_LEAST = 64,
};

/* An entry of ours, proposed and not yet applied. */
struct flight {
    uint64_t batch;
    enum pk_entry_kind kind;
    uint64_t stamp_ms; /* the clock will have come this far; 0: it moves no clock */
    uint32_t n_tickets;
};

/* What has been taken in and waits for the end of the turn. */
struct gathered {
    enum pk_entry_kind kind;
    uint32_t n_tickets;
    uint64_t count; /* as the entry's: commands, or offset */
    size_t bytes;
    uint32_t needs; /* cluster version of the commands */
};

struct pk_turn {
    struct pk_turn_hooks hooks;
    struct pk_replica *replica;
    uint64_t origin;
    uint32_t digest_every, digest_ms, in_flight, batch_bytes;

    struct pk_ticket *tickets; /* a ring; the capacity is a power of two */
    size_t tickets_capacity, first_ticket, n_tickets;
    struct flight *flights; /* a ring of `in_flight` */
    uint32_t first_flight, n_flights;
    struct gathered gathered;
    uint64_t last_batch;
    uint32_t since_mark; /* entries */
    uint64_t marked_ms;  /* when the last entry with a mark was proposed */

    struct pk_reign reign;
    struct pk_standing standing; /* when last looked */
    bool looked;
    uint64_t now_ms;
    uint64_t term;       /* that we lead; 0: none */
    uint64_t barrier;    /* batch of this term's first entry; 0: not proposed */
    bool barrier_stands; /* it has been applied */
    bool serving, draining;
    bool replaced; /* the machine's clock is another one */
    bool refusing; /* commands are being refused: none is taken in */
    bool told_serving;
    uint64_t told_leader;
    struct pk_turn_counts counts;
};

/* ---- the rings ---- */

static struct pk_ticket *ticket_at(struct pk_turn *t, size_t i)
{
    return &t->tickets[(t->first_ticket + i) & (t->tickets_capacity - 1)];
}

static void grow_tickets(struct pk_turn *t)
{
    size_t old = t->tickets_capacity;
    size_t capacity = old == 0 ? TICKETS_LEAST : 2 * old;
    struct pk_ticket *to = pk_door_resize(NULL, capacity * sizeof *to);
    for (size_t i = 0; i < t->n_tickets; i++) {
        to[i] = *ticket_at(t, i);
    }
    pk_door_resize(t->tickets, 0);
    t->tickets = to;
    t->tickets_capacity = capacity;
    t->first_ticket = 0;
}

static void push_ticket(struct pk_turn *t, struct pk_ticket ticket)
{
    if (t->n_tickets == t->tickets_capacity) {
        grow_tickets(t);
    }
    *ticket_at(t, t->n_tickets) = ticket;
    t->n_tickets++;
    t->gathered.n_tickets++;
}

static void drop_first_tickets(struct pk_turn *t, uint32_t n)
{
    if (n > 0) {
        t->first_ticket = (t->first_ticket + n) & (t->tickets_capacity - 1);
        t->n_tickets -= n;
    }
}

static struct flight *flight_at(struct pk_turn *t, uint32_t i)
{
    return &t->flights[(t->first_flight + i) % t->in_flight];
}

static void drop_first_flight(struct pk_turn *t)
{
    drop_first_tickets(t, flight_at(t, 0)->n_tickets);
    t->first_flight = (t->first_flight + 1) % t->in_flight;
    t->n_flights--;
    t->counts.finished++;
}

/* ---- refusing ---- */

static void refuse(struct pk_turn *t, size_t first, uint32_t n, enum pk_refusal why)
{
    t->refusing = true;
    for (uint32_t i = 0; i < n; i++) {
        t->hooks.refuse(t->hooks.ctx, *ticket_at(t, first + i), why);
    }
    t->refusing = false;
    if (why == PK_REFUSED_UNKNOWN) {
        t->counts.unknown += n;
    } else {
        t->counts.refused += n;
    }
}

static void refuse_gathered(struct pk_turn *t, enum pk_refusal why)
{
    uint32_t n = t->gathered.n_tickets;
    refuse(t, t->n_tickets - n, n, why);
    t->n_tickets -= n;
    t->gathered = (struct gathered){.kind = PK_ENTRY_COMMANDS};
}

static void refuse_first_flight(struct pk_turn *t)
{
    refuse(t, 0, flight_at(t, 0)->n_tickets, PK_REFUSED_UNKNOWN);
    drop_first_flight(t);
}

/* ---- from the replica: entries that were run ---- */

/* The flight of an entry that we proposed in this reign, else NULL. One that was passed
 * over went in by a snapshot, and what became of it we did not see. */
static struct flight *flight_of(struct pk_turn *t, const struct pk_entry *e)
{
    if (e->origin != t->origin) {
        return NULL;
    }
    while (t->n_flights > 0 && flight_at(t, 0)->batch < e->batch) {
        refuse_first_flight(t);
    }
    bool ours = t->n_flights > 0 && flight_at(t, 0)->batch == e->batch;
    return ours ? flight_at(t, 0) : NULL;
}

static void on_stepped(void *ctx, const struct pk_step *s)
{
    struct pk_turn *t = ctx;
    const struct flight *f = flight_of(t, s->entry);
    if (f != NULL && s->nth < f->n_tickets) {
        t->hooks.answer(t->hooks.ctx, *ticket_at(t, (size_t)s->nth), s->command,
                        s->effects);
    }
    if (t->hooks.stepped != NULL) {
        t->hooks.stepped(t->hooks.ctx, s);
    }
    t->hooks.events(t->hooks.ctx, s->effects);
}

static void on_applied(void *ctx, const struct pk_entry *e)
{
    struct pk_turn *t = ctx;
    if (flight_of(t, e) == NULL) {
        return;
    }
    t->barrier_stands = t->barrier_stands || e->batch == t->barrier;
    drop_first_flight(t);
}

static void on_replaced(void *ctx)
{
    struct pk_turn *t = ctx;
    t->replaced = true;
    t->hooks.gap(t->hooks.ctx);
}

static void on_marked(void *ctx, uint64_t index, uint64_t digest)
{
    struct pk_turn *t = ctx;
    if (t->hooks.marked != NULL) {
        t->hooks.marked(t->hooks.ctx, index, digest);
    }
}

static void on_broken(void *ctx, const char *why)
{
    struct pk_turn *t = ctx;
    t->hooks.broken(t->hooks.ctx, why);
}

/* ---- life ---- */

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

struct pk_turn *pk_turn_new(const struct pk_turn_options *o,
                            const struct pk_turn_hooks *hooks)
{
    struct pk_turn *t = pk_door_resize(NULL, sizeof *t);
    *t = (struct pk_turn){
        .hooks = *hooks,
        .origin = o->origin,
        .digest_every = or_default(o->digest_every, DIGEST_EVERY),
        .digest_ms = or_default(o->digest_ms, DIGEST_MS),
        .in_flight = or_default(o->in_flight, IN_FLIGHT),
        .batch_bytes = or_default(o->batch_bytes, BATCH_BYTES),
        .gathered = {.kind = PK_ENTRY_COMMANDS},
        .reign = {.pause_ms = or_default(o->election_ms, ELECTION_MS)},
    };
    t->flights = pk_door_resize(NULL, t->in_flight * sizeof *t->flights);
    return t;
}

static void on_trace(void *ctx, int level, const char *message)
{
    struct pk_turn *t = ctx;
    t->hooks.trace(t->hooks.ctx, level, message);
}

struct pk_replica_hooks pk_turn_replica_hooks(struct pk_turn *t)
{
    return (struct pk_replica_hooks){
        .trace = t->hooks.trace == NULL ? NULL : on_trace,
        .ctx = t,
        .stepped = on_stepped,
        .applied = on_applied,
        .replaced = on_replaced,
        .marked = on_marked,
        .broken = on_broken,
    };
}

void pk_turn_attach(struct pk_turn *t, struct pk_replica *r)
{
    t->replica = r;
}

void pk_turn_free(struct pk_turn *t)
{
    pk_door_resize(t->tickets, 0);
    pk_door_resize(t->flights, 0);
    pk_door_resize(t, 0);
}

/* ---- taking in ---- */

bool pk_turn_serving(const struct pk_turn *t)
{
    return t->serving && !t->draining;
}

static bool takes_in(const struct pk_turn *t)
{
    return pk_turn_serving(t) && !t->refusing;
}

/* Writes the command behind those gathered. */
static void gather(struct pk_turn *t, const struct pk_command *c, size_t size)
{
    struct gathered *g = &t->gathered;
    unsigned char *room = pk_replica_room(t->replica, g->bytes + size);
    uint32_t needs = pk_command_needs(c);
    pk_command_encode(c, room + g->bytes);
    g->bytes += size;
    g->count++;
    g->needs = needs > g->needs ? needs : g->needs;
}

bool pk_turn_add(struct pk_turn *t, const struct pk_command *c, struct pk_ticket ticket)
{
    if (!takes_in(t) || t->gathered.kind != PK_ENTRY_COMMANDS) {
        return false;
    }
    size_t size = pk_command_size(c);
    PK_ASSERT(size <= PK_BODY_MAX);
    if (t->gathered.bytes > 0 && t->gathered.bytes + size > t->batch_bytes) {
        return false;
    }
    gather(t, c, size);
    push_ticket(t, ticket);
    return true;
}

/* Restore and adopt are entries of their own kind: nothing else is in their turn. */
static bool gather_alone(struct pk_turn *t, struct gathered g, struct pk_ticket ticket)
{
    if (!takes_in(t) || t->gathered.n_tickets > 0) {
        return false;
    }
    t->gathered = g;
    push_ticket(t, ticket);
    return true;
}

bool pk_turn_add_restore(struct pk_turn *t, struct pk_bytes piece, uint64_t offset,
                         struct pk_ticket ticket)
{
    PK_ASSERT(piece.len <= PK_BODY_MAX);
    struct gathered g = {.kind = PK_ENTRY_RESTORE, .count = offset, .bytes = piece.len};
    if (!gather_alone(t, g, ticket)) {
        return false;
    }
    if (piece.len > 0) {
        memcpy(pk_replica_room(t->replica, piece.len), piece.data, piece.len);
    }
    return true;
}

bool pk_turn_add_adopt(struct pk_turn *t, struct pk_ticket ticket)
{
    return gather_alone(t, (struct gathered){.kind = PK_ENTRY_ADOPT}, ticket);
}

/* ---- proposing ---- */

/* Something is due, and no entry in flight will see to it. */
static bool tick_is_due(struct pk_turn *t)
{
    uint64_t deadline = pk_machine_next_deadline(pk_replica_machine(t->replica));
    if (t->reign.tau_ms < deadline) {
        return false;
    }
    for (uint32_t i = 0; i < t->n_flights; i++) {
        if (flight_at(t, i)->stamp_ms >= deadline) {
            return false;
        }
    }
    return true;
}

/* An adoption changes the clock, and a stamp of before must not follow it. */
static bool adoption_is_in_flight(struct pk_turn *t)
{
    return t->n_flights > 0 && flight_at(t, t->n_flights - 1)->kind == PK_ENTRY_ADOPT;
}

/* An entry costs every node a write to disk, so it should be worth it: while others are
 * on their way, it waits until it carries as much as they do. Whoever is alone never
 * waits; with many clients there are about two entries in flight, each with half of
 * what is asked. */
static bool is_worth_it(const struct pk_turn *t)
{
    size_t gathered = t->gathered.n_tickets;
    return gathered > 0 && (t->n_flights == 0 || gathered >= t->n_tickets - gathered);
}

static bool must_hold(struct pk_turn *t)
{
    return t->n_flights == t->in_flight || t->standing.transferring ||
           adoption_is_in_flight(t) || pk_replica_should_wait(t->replica);
}

/* States are compared now and then, also when there is nothing else to do. */
static bool mark_is_due(const struct pk_turn *t)
{
    return t->serving && t->now_ms - t->marked_ms >= t->digest_ms;
}

/* Proposes what has been gathered. Its place among the flights is taken before, since
 * the answers may come from within. */
static enum pk_proposed propose(struct pk_turn *t, uint64_t stamp_ms)
{
    struct gathered g = t->gathered;
    struct pk_entry e = {
        .kind = g.kind,
        .needs = g.needs,
        .mark = t->since_mark + 1 >= t->digest_every || mark_is_due(t),
        .batch = ++t->last_batch,
        .stamp_ms = stamp_ms,
        .count = g.count,
    };
    bool moves_clock = g.kind == PK_ENTRY_COMMANDS && g.count > 0;
    *flight_at(t, t->n_flights) = (struct flight){
        .batch = e.batch,
        .kind = g.kind,
        .stamp_ms = moves_clock ? stamp_ms : 0,
        .n_tickets = g.n_tickets,
    };
    t->n_flights++;
    t->gathered = (struct gathered){.kind = PK_ENTRY_COMMANDS};
    enum pk_proposed outcome = pk_replica_propose(t->replica, &e, g.bytes);
    if (outcome != PK_PROPOSED) {
        t->n_flights--;
        t->gathered = g;
        return outcome;
    }
    t->since_mark = e.mark ? 0 : t->since_mark + 1;
    t->marked_ms = e.mark ? t->now_ms : t->marked_ms;
    t->counts.entries++;
    t->counts.commands += g.n_tickets;
    return outcome;
}

static enum pk_refusal refusal_for(enum pk_proposed outcome)
{
    switch (outcome) {
    case PK_NOT_LEADER:
        return PK_REFUSED_NOT_LEADER;
    case PK_NO_SPACE:
        return PK_REFUSED_NO_SPACE;
    default:
        return PK_REFUSED_UNKNOWN;
    }
}

/* The first entry of a term: when it has been applied, so has everything before it. */
static void propose_barrier(struct pk_turn *t)
{
    t->barrier = t->last_batch + 1;
    if (propose(t, 0) != PK_PROPOSED) {
        t->barrier = 0; /* another turn, another try */
    }
}

static void propose_gathered(struct pk_turn *t)
{
    bool tick = t->gathered.kind == PK_ENTRY_COMMANDS && tick_is_due(t);
    if (must_hold(t) || (!tick && !is_worth_it(t) && !mark_is_due(t))) {
        return;
    }
    if (tick) {
        struct pk_command c = {.verb = PK_TICK};
        gather(t, &c, pk_command_size(&c));
    }
    bool only_mark = t->gathered.kind == PK_ENTRY_COMMANDS && t->gathered.count == 0;
    enum pk_proposed outcome = propose(t, only_mark ? 0 : t->reign.tau_ms);
    if (outcome == PK_PROPOSED) {
        t->counts.ticks += tick;
        return;
    }
    refuse_gathered(t, refusal_for(outcome));
}

/* ---- the end of a turn ---- */

static void lose_term(struct pk_turn *t)
{
    t->term = 0;
    t->barrier = 0;
    t->barrier_stands = false;
    t->serving = false;
    pk_reign_end(&t->reign);
    while (t->n_flights > 0) {
        refuse_first_flight(t);
    }
    refuse_gathered(t, PK_REFUSED_NOT_LEADER);
}

static void look(struct pk_turn *t, uint64_t now_ms)
{
    if (t->looked && t->standing.leader_id == 0 && now_ms > t->now_ms) {
        t->counts.leaderless_ms += now_ms - t->now_ms;
    }
    t->looked = true;
    t->now_ms = now_ms;
    t->standing = pk_replica_standing(t->replica);
    if (t->term != 0 && (!t->standing.leader || t->standing.term != t->term)) {
        lose_term(t);
    }
    if (t->standing.leader) {
        t->term = t->standing.term;
    }
}

static void begin_reign(struct pk_turn *t)
{
    pk_reign_begin(&t->reign, pk_machine_clock(pk_replica_machine(t->replica)),
                   t->now_ms);
    t->replaced = false;
}

static void tell_standing(struct pk_turn *t)
{
    bool serving = pk_turn_serving(t);
    uint64_t leader = t->standing.leader_id;
    if (serving != t->told_serving || leader != t->told_leader) {
        t->told_serving = serving;
        t->told_leader = leader;
        t->hooks.standing(t->hooks.ctx, serving, leader);
    }
}

void pk_turn_end(struct pk_turn *t, uint64_t now_ms)
{
    pk_replica_poll(t->replica);
    look(t, now_ms);
    if (t->term != 0 && t->barrier == 0) {
        propose_barrier(t);
    }
    if (t->barrier_stands && !t->serving) {
        begin_reign(t);
        t->serving = true;
        t->marked_ms = now_ms;
        t->counts.reigns++;
    }
    if (t->serving) {
        if (t->replaced) {
            begin_reign(t);
        }
        pk_reign_stamp(&t->reign, now_ms);
        propose_gathered(t);
    }
    tell_standing(t);
}

uint64_t pk_turn_next_ms(const struct pk_turn *t)
{
    if (!t->serving) {
        return UINT64_MAX;
    }
    uint64_t deadline = pk_machine_next_deadline(pk_replica_machine(t->replica));
    uint64_t mark_ms = t->marked_ms + t->digest_ms;
    if (deadline == UINT64_MAX) {
        return mark_ms > t->now_ms ? mark_ms : t->now_ms + RETRY_MS;
    }
    if (deadline > t->reign.tau_ms) {
        /* In steps that a late loop can't make look like a pause. */
        uint64_t wait = deadline - t->reign.tau_ms;
        uint64_t most = t->reign.pause_ms / 2;
        return t->reign.now_ms + (wait < most ? wait : most);
    }
    /* Due. Either something is under way whose end will be a turn, or nobody took the
     * tick. */
    bool waits = t->n_flights > 0 || t->standing.transferring;
    return waits ? UINT64_MAX : t->now_ms + RETRY_MS;
}

/* ---- the rest ---- */

bool pk_turn_is_empty(const struct pk_turn *t)
{
    return t->gathered.n_tickets == 0;
}

uint64_t pk_turn_pending(const struct pk_turn *t)
{
    return t->n_tickets;
}

void pk_turn_drain(struct pk_turn *t)
{
    t->draining = true;
}

void pk_turn_resume(struct pk_turn *t)
{
    t->draining = false;
}

void pk_turn_give_up(struct pk_turn *t)
{
    t->draining = true;
    lose_term(t);
}

struct pk_turn_counts pk_turn_counts(const struct pk_turn *t)
{
    struct pk_turn_counts counts = t->counts;
    counts.left_out_ms = t->reign.left_out_ms;
    return counts;
}

uint64_t pk_turn_clock(const struct pk_turn *t, uint64_t now_ms)
{
    PK_ASSERT(t->serving);
    uint64_t since = now_ms > t->reign.now_ms ? now_ms - t->reign.now_ms : 0;
    return t->reign.tau_ms + (since > t->reign.pause_ms ? 0 : since);
}
