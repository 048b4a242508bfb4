/* SPDX-License-Identifier: MIT */
/* Reads: taken in, confirmed by rounds (read_index.h), answered from the own state. */
#include <string.h>

#include "core/door.h"
#include "server/turn_inside.h"

enum {
    RETRY_MS = 100,     /* after a round that nobody heard */
    PATIENCE_MS = 3000, /* in which a leader must have been found */
};

/* ---- taking in ---- */

bool pk_turn_reads(const struct pk_turn *t)
{
    bool follows = t->term == 0 && t->standing.leader_id != 0;
    return (t->serving || follows) && !t->draining;
}

/* Adds what is no command; its bytes are to be written to what this returns. */
static unsigned char *gather(struct pk_turn *t, enum pk_pending_kind kind,
                             struct pk_ticket ticket, uint32_t size)
{
    t->gathered.n_pending++;
    t->gathered.n_reads++;
    t->gathered.read_bytes += size;
    return pk_pending_add(&t->pending, kind, ticket, size);
}

bool pk_reads_add(struct pk_turn *t, const struct pk_command *c, struct pk_ticket ticket)
{
    size_t size = pk_command_size(c);
    if (!pk_turn_reads(t) || t->refusing ||
        !pk_turn_has_room(t, t->gathered.read_bytes, size)) {
        return false;
    }
    pk_command_encode(c, gather(t, PK_PENDING_READ, ticket, (uint32_t)size));
    return true;
}

/* ---- answering ---- */

/* Cluster time as far as this node can tell it without asking. */
static uint64_t cluster_ms(const struct pk_turn *t)
{
    return t->serving ? t->reign.tau_ms : 0;
}

/* Says to the node that asked up to which index it must have applied the log. */
static void answer_asked(struct pk_turn *t, uint64_t node, uint64_t index)
{
    struct pk_read_note n;
    bool sound = pk_read_note_decode(t->scratch, PK_READ_NOTE_BYTES, &n);
    PK_ASSERT(sound && n.kind == PK_READ_ASK);
    n.kind = PK_READ_INDEX;
    n.index = index;
    n.clock_ms = cluster_ms(t);
    t->hooks.note(t->hooks.ctx, node, &n);
}

/* Answers the first pending request of the first flight, which is no command. */
static void run_read(struct pk_turn *t, uint64_t index, uint64_t clock_ms)
{
    uint32_t size = pk_pending_at(&t->pending, 0)->bytes;
    if (size > t->scratch_size) {
        t->scratch = pk_door_resize(t->scratch, size);
        t->scratch_size = size;
    }
    /* More may be taken in while it is answered, and that moves the bytes. */
    memcpy(t->scratch, pk_pending_first_bytes(&t->pending), size);
    struct pk_pending_one one = pk_flight_take(t);
    if (one.kind == PK_PENDING_ASKED) {
        answer_asked(t, one.ticket.who, index);
        return;
    }
    struct pk_command c;
    size_t used = pk_command_decode(t->scratch, size, &c);
    PK_ASSERT(used == size);
    c.stamp_ms = clock_ms;
    pk_effects_reset(&t->effects);
    pk_machine_read(pk_replica_machine(t->replica), &c, &t->effects);
    t->counts.reads++;
    t->hooks.answer(t->hooks.ctx, one.ticket, &c, &t->effects);
    t->hooks.events(t->hooks.ctx, &t->effects);
}

void pk_reads_run(struct pk_turn *t, uint64_t index, uint64_t clock_ms)
{
    while (pk_flight_at(t, 0)->n_pending > 0 &&
           pk_pending_at(&t->pending, 0)->kind != PK_PENDING_COMMAND) {
        run_read(t, index, clock_ms);
    }
}

/* ---- rounds ---- */

/* Reads alone become a flight of their own, unless something is due that should end
 * before they are answered, and an entry for it has to wait. */
static void launch(struct pk_turn *t)
{
    bool due = t->serving && pk_turn_must_hold(t) && pk_turn_tick_is_due(t);
    if (t->gathered.n_reads == 0 || t->gathered.count > 0 || due ||
        t->n_flights - t->n_entries == PK_READ_FLIGHTS) {
        return;
    }
    pk_flight_push(
        t, (struct pk_flight){.n_pending = t->gathered.n_reads, .since_ms = t->now_ms});
    t->gathered = PK_NOTHING_GATHERED;
}

static size_t voters_of(struct pk_turn *t, uint64_t *ids)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(t->replica, members, NULL);
    size_t voters = 0;
    for (size_t i = 0; i < n; i++) {
        if (members[i].role == PK_MEMBER_VOTER) {
            ids[voters++] = members[i].id;
        }
    }
    return voters;
}

/* Voter `id` has answered a round with our term. */
static void hear_term(struct pk_turn *t, uint64_t id, uint64_t round)
{
    uint64_t voters[PK_MEMBERS_MAX];
    size_t n = voters_of(t, voters);
    pk_read_rounds_hear(&t->rounds, id, round, voters, n, t->standing.leader_id);
    for (uint32_t i = 0; i < t->n_flights; i++) {
        struct pk_flight *f = pk_flight_at(t, i);
        f->confirmed = f->confirmed || (f->round != 0 && f->round <= t->rounds.confirmed);
    }
}

static void begin_round(struct pk_turn *t)
{
    struct pk_read_note n = {.run = t->origin, .term = t->standing.term};
    n.round = pk_read_rounds_begin(&t->rounds);
    t->counts.rounds++;
    t->asked_ms = t->now_ms;
    for (uint32_t i = 0; i < t->n_flights; i++) {
        struct pk_flight *f = pk_flight_at(t, i);
        f->round = pk_flight_is_entry(f) || f->round != 0 ? f->round : n.round;
    }
    n.kind = t->serving ? PK_READ_PROBE : PK_READ_ASK;
    t->hooks.note(t->hooks.ctx, t->serving ? 0 : t->standing.leader_id, &n);
    if (t->serving) {
        hear_term(t, t->standing.leader_id, n.round); /* a lone voter is a majority */
    }
}

/* Another leader or term: rounds of before confirm nothing any more. */
static void forget_rounds(struct pk_turn *t)
{
    pk_read_rounds_forget(&t->rounds);
    for (uint32_t i = 0; i < t->n_flights; i++) {
        struct pk_flight *f = pk_flight_at(t, i);
        f->round = f->confirmed ? f->round : 0;
    }
}

/* Begins a round for reads that have none, or that have waited too long for theirs. */
static void ask(struct pk_turn *t)
{
    uint64_t of = t->serving || t->term == 0 ? t->standing.leader_id : 0;
    bool fresh = false;
    bool waiting = false;
    if (of != t->asked_of || t->standing.term != t->asked_in) {
        forget_rounds(t);
        t->asked_of = of;
        t->asked_in = t->standing.term;
    }
    for (uint32_t i = 0; i < t->n_flights; i++) {
        const struct pk_flight *f = pk_flight_at(t, i);
        bool asks = !pk_flight_is_entry(f) && !f->confirmed;
        waiting = waiting || asks;
        fresh = fresh || (asks && f->round == 0);
    }
    if (of != 0 && waiting && (fresh || t->now_ms - t->asked_ms >= RETRY_MS)) {
        begin_round(t);
    }
}

/* Answers the reads at the front that may be answered, refuses those that have waited for
 * too long. */
static void finish(struct pk_turn *t)
{
    while (t->n_flights > 0 && !pk_flight_is_entry(pk_flight_at(t, 0))) {
        const struct pk_flight *f = pk_flight_at(t, 0);
        uint64_t applied = pk_replica_standing(t->replica).applied_index;
        if (f->confirmed && applied >= f->index) {
            pk_reads_run(t, applied, t->serving ? cluster_ms(t) : f->clock_ms);
            pk_flight_drop_first(t);
        } else if (t->now_ms - f->since_ms > PATIENCE_MS) {
            pk_flight_refuse_first(t, PK_REFUSED_NOT_LEADER);
        } else {
            return;
        }
    }
}

/* The leader has said up to where we must have applied. */
static void hear_index(struct pk_turn *t, const struct pk_read_note *n)
{
    for (uint32_t i = 0; i < t->n_flights; i++) {
        struct pk_flight *f = pk_flight_at(t, i);
        if (f->round != 0 && f->round <= n->round && !f->confirmed) {
            f->confirmed = true;
            f->index = n->index;
            f->clock_ms = n->clock_ms;
        }
    }
}

void pk_turn_hear(struct pk_turn *t, uint64_t from, const struct pk_read_note *n)
{
    struct pk_read_note answer = *n;
    bool ours = n->run == t->origin;
    switch (n->kind) {
    case PK_READ_PROBE:
        answer.kind = PK_READ_TERM;
        answer.term = pk_replica_standing(t->replica).term;
        t->hooks.note(t->hooks.ctx, from, &answer);
        break;
    case PK_READ_TERM:
        if (ours && t->serving && n->term == t->term) {
            hear_term(t, from, n->round);
        }
        break;
    case PK_READ_ASK:
        if (pk_turn_serving(t) && !t->refusing &&
            pk_turn_has_room(t, t->gathered.read_bytes, PK_READ_NOTE_BYTES)) {
            pk_read_note_encode(n, gather(t, PK_PENDING_ASKED,
                                          (struct pk_ticket){.who = from},
                                          PK_READ_NOTE_BYTES));
        }
        break;
    case PK_READ_INDEX:
        if (ours && !t->serving) {
            hear_index(t, n);
        }
        break;
    }
}

void pk_reads_end_turn(struct pk_turn *t)
{
    launch(t);
    ask(t);
    finish(t);
}
