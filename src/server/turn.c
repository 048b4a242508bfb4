/* SPDX-License-Identifier: MIT */
/*
 * Two rings, both in the order in which answers are given: what is in flight (entries of
 * the log, and reads that need none), and all that is pending (pending.h). The oldest
 * pending belong to the first flight, the newest have been gathered and wait for the end
 * of the turn; commands among them wait in the replica's room. In a steady state nothing
 * is allocated here.
 *
 * A read that stands behind a command of its turn is answered when that command has been
 * run, from the state that it left: the entry's commit confirms it. Reads that no command
 * came before are a flight of their own, confirmed by a round (read_index.h), or by the
 * commit of a later entry of this node, which proves the same. An entry behind such reads
 * begins with a TICK, so that they see none of its commands.
 */
#include "server/turn.h"

#include <string.h>

#include "core/door.h"
#include "server/turn_inside.h"

enum {
    ELECTION_MS = 300,
    DIGEST_EVERY = 8192,
    DIGEST_MS = 60 * 1000,
    IN_FLIGHT = 32,
    BATCH_BYTES = 1024 * 1024,
    RETRY_MS = 100, /* after a tick that nobody took, or a round that nobody heard */
};

/* ---- the rings ---- */

struct pk_flight *pk_flight_at(struct pk_turn *t, uint32_t i)
{
    return &t->flights[(t->first_flight + i) % (t->in_flight + PK_READ_FLIGHTS)];
}

bool pk_flight_is_entry(const struct pk_flight *f)
{
    return f->batch != 0;
}

void pk_flight_push(struct pk_turn *t, struct pk_flight f)
{
    PK_ASSERT(t->n_flights < t->in_flight + PK_READ_FLIGHTS);
    *pk_flight_at(t, t->n_flights++) = f;
    t->n_entries += pk_flight_is_entry(&f);
}

void pk_flight_drop_first(struct pk_turn *t)
{
    const struct pk_flight *f = pk_flight_at(t, 0);
    PK_ASSERT(f->n_pending == 0);
    t->n_entries -= pk_flight_is_entry(f);
    t->counts.finished += pk_flight_is_entry(f);
    t->first_flight = (t->first_flight + 1) % (t->in_flight + PK_READ_FLIGHTS);
    t->n_flights--;
}

struct pk_pending_one pk_flight_take(struct pk_turn *t)
{
    struct pk_flight *f = pk_flight_at(t, 0);
    struct pk_pending_one one = *pk_pending_at(&t->pending, 0);
    PK_ASSERT(f->n_pending > 0);
    f->n_pending--;
    t->n_commands -= one.kind == PK_PENDING_COMMAND;
    pk_pending_drop_first(&t->pending);
    return one;
}

/* ---- refusing ---- */

/* A read that is not answered was not done, whatever became of commands. Nodes that ask
 * will ask again. */
static void refuse(struct pk_turn *t, struct pk_pending_one one, enum pk_refusal why)
{
    bool reads = one.kind == PK_PENDING_READ;
    if (one.kind == PK_PENDING_ASKED) {
        return;
    }
    why = reads && why == PK_REFUSED_UNKNOWN ? PK_REFUSED_NOT_LEADER : why;
    t->counts.unknown += why == PK_REFUSED_UNKNOWN;
    t->counts.refused += why != PK_REFUSED_UNKNOWN;
    t->refusing = true;
    t->hooks.refuse(t->hooks.ctx, one.ticket, why);
    t->refusing = false;
}

void pk_flight_refuse_first(struct pk_turn *t, enum pk_refusal why)
{
    while (pk_flight_at(t, 0)->n_pending > 0) {
        refuse(t, pk_flight_take(t), why);
    }
    pk_flight_drop_first(t);
}

/* Refuses the commands that have been gathered, and keeps the reads. */
static void refuse_commands(struct pk_turn *t, enum pk_refusal why)
{
    struct pk_gathered g = t->gathered;
    size_t first = t->pending.count - g.n_pending;
    for (uint32_t i = 0; i < g.n_pending; i++) {
        struct pk_pending_one one = *pk_pending_at(&t->pending, first + i);
        if (one.kind == PK_PENDING_COMMAND) {
            refuse(t, one, why);
        }
    }
    (void)pk_pending_drop_commands(&t->pending, g.n_pending);
    t->gathered = (struct pk_gathered){.kind = PK_ENTRY_COMMANDS,
                                       .n_pending = g.n_reads,
                                       .n_reads = g.n_reads,
                                       .read_bytes = g.read_bytes};
}

/* ---- from the replica: entries that were run ---- */

static bool is_in_flight(struct pk_turn *t, const struct pk_entry *e)
{
    uint32_t i = 0;
    while (i < t->n_flights && pk_flight_at(t, i)->batch != e->batch) {
        i++;
    }
    return e->origin == t->origin && i < t->n_flights;
}

/* The flight of an entry that we proposed in this reign, else NULL. What is before it is
 * finished first. An entry that was passed over went in by a snapshot, and what became of
 * it we did not see. Reads are confirmed: the entry was proposed after they had come, and
 * it could not have been committed, had there been another leader by then. */
static const struct pk_flight *flight_of(struct pk_turn *t, const struct pk_entry *e)
{
    if (!is_in_flight(t, e)) {
        return NULL;
    }
    while (pk_flight_at(t, 0)->batch != e->batch) {
        if (pk_flight_is_entry(pk_flight_at(t, 0))) {
            pk_flight_refuse_first(t, PK_REFUSED_UNKNOWN);
        } else {
            pk_reads_run(t, e->index, e->stamp_ms);
            pk_flight_drop_first(t);
        }
    }
    return pk_flight_at(t, 0);
}

static void on_stepped(void *ctx, const struct pk_step *s)
{
    struct pk_turn *t = ctx;
    const struct pk_flight *f = flight_of(t, s->entry);
    bool own_tick = f != NULL && f->led && s->nth == 0;
    if (f != NULL && f->n_pending > 0 && !own_tick) {
        struct pk_pending_one one = pk_flight_take(t);
        PK_ASSERT(one.kind == PK_PENDING_COMMAND);
        t->hooks.answer(t->hooks.ctx, one.ticket, s->command, s->effects);
    }
    if (t->hooks.stepped != NULL) {
        t->hooks.stepped(t->hooks.ctx, s);
    }
    t->hooks.events(t->hooks.ctx, s->effects);
    if (f != NULL) {
        pk_reads_run(t, s->entry->index, s->entry->stamp_ms);
    }
}

static void on_applied(void *ctx, const struct pk_entry *e)
{
    struct pk_turn *t = ctx;
    if (flight_of(t, e) == NULL) {
        return;
    }
    t->barrier_stands = t->barrier_stands || e->batch == t->barrier;
    pk_flight_drop_first(t);
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
        .gathered = PK_NOTHING_GATHERED,
        .reign = {.pause_ms = or_default(o->election_ms, ELECTION_MS)},
    };
    t->flights =
        pk_door_resize(NULL, (t->in_flight + PK_READ_FLIGHTS) * sizeof *t->flights);
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
    pk_pending_free(&t->pending);
    pk_effects_free(&t->effects);
    pk_door_resize(t->scratch, 0);
    pk_door_resize(t->flights, 0);
    pk_door_resize(t, 0);
}

/* ---- taking in ---- */

bool pk_turn_serving(const struct pk_turn *t)
{
    return t->serving && !t->draining;
}

/* Writes the command behind those gathered. */
static void gather(struct pk_turn *t, const struct pk_command *c)
{
    struct pk_gathered *g = &t->gathered;
    size_t size = pk_command_size(c);
    unsigned char *room = pk_replica_room(t->replica, g->bytes + size);
    uint32_t needs = pk_command_needs(c);
    pk_command_encode(c, room + g->bytes);
    g->bytes += size;
    g->count++;
    g->needs = needs > g->needs ? needs : g->needs;
}

/* A TICK of our own, behind what has been gathered. Reads that came first are answered
 * when it has been run. */
static void gather_tick(struct pk_turn *t)
{
    struct pk_command c = {.verb = PK_TICK};
    t->gathered.led = t->gathered.led || t->gathered.count == 0;
    gather(t, &c);
}

bool pk_turn_has_room(const struct pk_turn *t, size_t have, size_t size)
{
    PK_ASSERT(size <= PK_BODY_MAX);
    return t->gathered.kind == PK_ENTRY_COMMANDS &&
           (have == 0 || have + size <= t->batch_bytes);
}

bool pk_turn_add(struct pk_turn *t, const struct pk_command *c, struct pk_ticket ticket)
{
    if (pk_command_is_read(c)) {
        return pk_reads_add(t, c, ticket);
    }
    if (!pk_turn_serving(t) || t->refusing ||
        !pk_turn_has_room(t, t->gathered.bytes, pk_command_size(c))) {
        return false;
    }
    bool behind_reads = t->gathered.n_reads > 0 || t->n_flights > t->n_entries;
    if (t->gathered.count == 0 && behind_reads) {
        gather_tick(t);
    }
    gather(t, c);
    t->gathered.n_pending++;
    (void)pk_pending_add(&t->pending, PK_PENDING_COMMAND, ticket, 0);
    return true;
}

/* Restore and adopt are entries of their own kind: nothing else is in their turn. */
static bool gather_alone(struct pk_turn *t, struct pk_gathered g, struct pk_ticket ticket)
{
    if (!pk_turn_serving(t) || t->refusing || t->gathered.n_pending > 0) {
        return false;
    }
    t->gathered = g;
    t->gathered.n_pending = 1;
    (void)pk_pending_add(&t->pending, PK_PENDING_COMMAND, ticket, 0);
    return true;
}

bool pk_turn_add_restore(struct pk_turn *t, struct pk_bytes piece, uint64_t offset,
                         struct pk_ticket ticket)
{
    PK_ASSERT(piece.len <= PK_BODY_MAX);
    struct pk_gathered g = {
        .kind = PK_ENTRY_RESTORE, .count = offset, .bytes = piece.len};
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
    return gather_alone(t, (struct pk_gathered){.kind = PK_ENTRY_ADOPT}, ticket);
}

/* ---- proposing ---- */

bool pk_turn_tick_is_due(struct pk_turn *t)
{
    uint64_t deadline = pk_machine_next_deadline(pk_replica_machine(t->replica));
    if (t->reign.tau_ms < deadline) {
        return false;
    }
    for (uint32_t i = 0; i < t->n_flights; i++) {
        if (pk_flight_at(t, i)->stamp_ms >= deadline) {
            return false;
        }
    }
    return true;
}

/* An adoption changes the clock, and a stamp of before must not follow it. */
static bool adoption_is_in_flight(struct pk_turn *t)
{
    for (uint32_t i = 0; i < t->n_flights; i++) {
        if (pk_flight_at(t, i)->kind == PK_ENTRY_ADOPT) {
            return true;
        }
    }
    return false;
}

/* An entry costs every node a write to disk, so it should be worth it: while others are
 * on their way, it waits until it carries as much as they do. Whoever is alone never
 * waits; with many clients there are about two entries in flight, each with half of
 * what is asked. */
static bool is_worth_it(const struct pk_turn *t)
{
    size_t gathered = t->gathered.n_pending - t->gathered.n_reads;
    return gathered > 0 && (t->n_entries == 0 || gathered >= t->n_commands);
}

bool pk_turn_must_hold(struct pk_turn *t)
{
    return t->n_entries == t->in_flight || t->standing.transferring ||
           adoption_is_in_flight(t) || pk_replica_should_wait(t->replica);
}

/* States are compared now and then, also when there is nothing else to do. */
static bool mark_is_due(const struct pk_turn *t)
{
    return t->serving && t->now_ms - t->marked_ms >= t->digest_ms;
}

/* Proposes an entry. Its place among the flights is taken before, since the answers may
 * come from within. */
static enum pk_proposed propose(struct pk_turn *t, struct pk_gathered g,
                                uint64_t stamp_ms)
{
    struct pk_entry e = {
        .kind = g.kind,
        .needs = g.needs,
        .mark = t->since_mark + 1 >= t->digest_every || mark_is_due(t),
        .batch = ++t->last_batch,
        .stamp_ms = stamp_ms,
        .count = g.count,
    };
    bool moves_clock = g.kind == PK_ENTRY_COMMANDS && g.count > 0;
    uint32_t n_commands = g.n_pending - g.n_reads;
    pk_flight_push(t, (struct pk_flight){
                          .batch = e.batch,
                          .kind = g.kind,
                          .led = g.led,
                          .stamp_ms = moves_clock ? stamp_ms : 0,
                          .n_pending = g.n_pending,
                      });
    t->n_commands += n_commands;
    enum pk_proposed outcome = pk_replica_propose(t->replica, &e, g.bytes);
    if (outcome != PK_PROPOSED) {
        t->n_flights--;
        t->n_entries--;
        t->n_commands -= n_commands;
        return outcome;
    }
    t->since_mark = e.mark ? 0 : t->since_mark + 1;
    t->marked_ms = e.mark ? t->now_ms : t->marked_ms;
    t->counts.entries++;
    t->counts.commands += n_commands;
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
    if (propose(t, PK_NOTHING_GATHERED, 0) != PK_PROPOSED) {
        t->barrier = 0; /* another turn, another try */
    }
}

static void propose_gathered(struct pk_turn *t)
{
    bool only_reads = t->gathered.count == 0 && t->gathered.n_reads > 0;
    bool mark = mark_is_due(t);
    bool tick = t->gathered.kind == PK_ENTRY_COMMANDS &&
                (pk_turn_tick_is_due(t) || (mark && only_reads));
    if (pk_turn_must_hold(t) || (!tick && !is_worth_it(t) && !mark)) {
        return;
    }
    if (tick && !t->gathered.led) {
        gather_tick(t);
    }
    struct pk_gathered g = t->gathered;
    bool only_mark = g.kind == PK_ENTRY_COMMANDS && g.count == 0;
    t->gathered = PK_NOTHING_GATHERED;
    enum pk_proposed outcome = propose(t, g, only_mark ? 0 : t->reign.tau_ms);
    if (outcome == PK_PROPOSED) {
        t->counts.ticks += tick;
        return;
    }
    t->gathered = g;
    refuse_commands(t, refusal_for(outcome));
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
        pk_flight_refuse_first(t, PK_REFUSED_UNKNOWN);
    }
    refuse_commands(t, PK_REFUSED_NOT_LEADER);
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
    pk_reads_end_turn(t);
    tell_standing(t);
}

/* When the leader wants to look at the machine's next deadline, or to compare states. */
static uint64_t next_entry_ms(const struct pk_turn *t)
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
    bool waits = t->n_entries > 0 || t->standing.transferring;
    return waits ? UINT64_MAX : t->now_ms + RETRY_MS;
}

uint64_t pk_turn_next_ms(const struct pk_turn *t)
{
    uint64_t next = next_entry_ms(t);
    bool reads = t->n_flights > t->n_entries;
    return reads && t->now_ms + RETRY_MS < next ? t->now_ms + RETRY_MS : next;
}

/* ---- the rest ---- */

bool pk_turn_is_empty(const struct pk_turn *t)
{
    return t->gathered.n_pending == 0;
}

uint64_t pk_turn_pending(const struct pk_turn *t)
{
    return t->pending.count;
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
    while (t->pending.count > 0) { /* reads that were gathered */
        struct pk_pending_one one = *pk_pending_at(&t->pending, 0);
        pk_pending_drop_first(&t->pending);
        refuse(t, one, PK_REFUSED_NOT_LEADER);
    }
    t->gathered = PK_NOTHING_GATHERED;
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
