/* SPDX-License-Identifier: MIT */
/* The fields of a turn, private to turn.c (commands, entries, time) and turn_reads.c. */
#ifndef PICKET_SERVER_TURN_INSIDE_H
#define PICKET_SERVER_TURN_INSIDE_H

#include "server/pending.h"
#include "server/turn.h"

enum {
    /* Flights of reads; beyond, reads are gathered: they cost one round together. */
    PK_READ_FLIGHTS = 2,
};

/* An entry of ours that has been proposed and not yet applied, or reads without one. */
struct pk_flight {
    uint64_t batch; /* of the entry; 0: reads */
    uint32_t n_pending;
    /* Of an entry: */
    enum pk_entry_kind kind;
    bool led;          /* its first command is a TICK that nobody waits for */
    uint64_t stamp_ms; /* the clock will have come this far; 0: it moves no clock */
    /* Of reads: */
    bool confirmed;
    uint64_t round;    /* that confirms them; 0: none has begun */
    uint64_t index;    /* on a follower: up to which the log must have been applied. A
                          leader's own entries are flights before the reads, and all
                          others were applied before it began to serve. */
    uint64_t clock_ms; /* the leader's cluster time, on a follower */
    uint64_t since_ms;
};

/* What has been taken in and waits for the end of the turn. */
struct pk_gathered {
    enum pk_entry_kind kind;
    uint32_t n_pending, n_reads; /* all, and those that are no commands */
    uint64_t count;              /* as the entry's: commands, or offset */
    size_t bytes, read_bytes;
    uint32_t needs; /* cluster version of the commands */
    bool led;
};

struct pk_turn {
    struct pk_turn_hooks hooks;
    struct pk_replica *replica;
    uint64_t origin;
    uint32_t digest_every, digest_ms, in_flight, batch_bytes;

    struct pk_pending pending;
    struct pk_flight *flights; /* a ring of `in_flight` and PK_READ_FLIGHTS */
    uint32_t first_flight, n_flights;
    uint32_t n_entries;  /* flights that are entries: at most `in_flight` */
    uint64_t n_commands; /* pending in them */
    struct pk_gathered gathered;
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
    bool refusing; /* requests are being refused: none is taken in */

    struct pk_read_rounds rounds;
    uint64_t asked_ms;         /* when the last round began, */
    uint64_t asked_of;         /* and of which leader; 0: of nobody */
    uint64_t asked_in;         /* and in which term */
    struct pk_effects effects; /* of the read that is being answered */
    unsigned char *scratch;    /* its bytes */
    size_t scratch_size;
    bool told_serving;
    uint64_t told_leader;
    struct pk_turn_counts counts;
};

#define PK_NOTHING_GATHERED ((struct pk_gathered){.kind = PK_ENTRY_COMMANDS})

/* ---- turn.c ---- */

/* The i-th flight, from 0: the first one has the oldest of what is pending. */
struct pk_flight *pk_flight_at(struct pk_turn *t, uint32_t i);
/* Whether it is an entry; if not, it is reads. */
bool pk_flight_is_entry(const struct pk_flight *f);
void pk_flight_push(struct pk_turn *t, struct pk_flight f);
/* Takes the first pending request out of the first flight. */
struct pk_pending_one pk_flight_take(struct pk_turn *t);
/* Everything that was pending in it has been answered. */
void pk_flight_drop_first(struct pk_turn *t);
/* Nothing in it will be answered. */
void pk_flight_refuse_first(struct pk_turn *t, enum pk_refusal why);

/* No entry can be proposed now. */
bool pk_turn_must_hold(struct pk_turn *t);
/* Something is due, and no entry in flight will see to it. */
bool pk_turn_tick_is_due(struct pk_turn *t);
/* Whether `size` bytes more fit into this turn beside the `have` that it has. */
bool pk_turn_has_room(const struct pk_turn *t, size_t have, size_t size);

/* ---- turn_reads.c ---- */

/* Takes the read in; false: not now. */
bool pk_reads_add(struct pk_turn *t, const struct pk_command *c, struct pk_ticket ticket);
/* Answers the reads at the front of the first flight, up to its next command, from the
 * state as it is: that of entry `index`, or of a part of it. Times left are told as of
 * cluster time `clock_ms`. */
void pk_reads_run(struct pk_turn *t, uint64_t index, uint64_t clock_ms);
/* At the end of a turn: makes a flight of reads that have been gathered alone, begins a
 * round if one is wanted, answers what can be answered, refuses what has waited for too
 * long. */
void pk_reads_end_turn(struct pk_turn *t);

#endif
