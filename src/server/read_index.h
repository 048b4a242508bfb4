/* SPDX-License-Identifier: MIT */
/*
 * Linearizable reads without a log entry of their own: Raft's ReadIndex. Pure.
 *
 * A node may answer a read from its own state when two things are known:
 *
 *   - this node has applied every write that was acknowledged before the read arrived;
 *   - the leader that vouches for it still led when the read had arrived.
 *
 * A leader that has applied an entry of its own term has applied everything that leaders
 * before it acknowledged, and knows its own. It begins a *round*: it asks all voters for
 * their term (PROBE), and each voter answers with the term that it is in (TERM). When a
 * majority, the leader included, is in the leader's own term, none of them had voted for
 * another leader when it answered. So a later leader is elected after the round began,
 * and commits nothing before that. A follower asks its leader (ASK), for which the
 * question is one more read; the leader answers up to which index the follower must have
 * applied the log (INDEX). No clock is trusted anywhere.
 *
 * Rounds have numbers that grow, and a later one that is confirmed confirms all before
 * it. Any note may be lost: then there is another round. `run` is a random number of the
 * process that asks, so that an answer to an earlier run of it is told apart.
 */
#ifndef PICKET_SERVER_READ_INDEX_H
#define PICKET_SERVER_READ_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pk_read_note_kind {
    PK_READ_PROBE = 1, /* leader to voter: which term are you in? */
    PK_READ_TERM,      /* voter to leader: in this one */
    PK_READ_ASK,       /* follower to leader: up to where must I have applied? */
    PK_READ_INDEX,     /* leader to follower: up to this index */
};

enum { PK_READ_NOTE_BYTES = 41, PK_READ_VOTERS_MAX = 16 };

/* What nodes tell each other about reads; fields that a kind does not have are 0. */
struct pk_read_note {
    enum pk_read_note_kind kind;
    uint64_t run, round; /* of the node that asks */
    uint64_t term;       /* PROBE: the leader's; TERM: the voter's */
    uint64_t index;      /* INDEX */
    uint64_t clock_ms;   /* INDEX: cluster time, for times left in answers */
};

void pk_read_note_encode(const struct pk_read_note *n,
                         unsigned char out[PK_READ_NOTE_BYTES]);
/* False: these bytes are no such note. */
bool pk_read_note_decode(const unsigned char *in, size_t len, struct pk_read_note *n);

/* The rounds of one node. Zeroed: none has begun. */
struct pk_read_rounds {
    uint64_t last;      /* begun */
    uint64_t confirmed; /* all up to this one are */
    size_t n;
    struct {
        uint64_t id, round; /* the newest round that the voter has answered */
    } heard[PK_READ_VOTERS_MAX];
};

/* Begins a round; its number. */
uint64_t pk_read_rounds_begin(struct pk_read_rounds *r);
/* Voter `id` has answered `round` with the leader's term. `voters` are the ids of all
 * voters of the leader's configuration, and `self` is the leader, which takes part in
 * its rounds if it is a voter; with `id` equal to `self`, nobody else has been heard. */
void pk_read_rounds_hear(struct pk_read_rounds *r, uint64_t id, uint64_t round,
                         const uint64_t *voters, size_t n, uint64_t self);
/* Another term, other answers: those of before count no more. */
void pk_read_rounds_forget(struct pk_read_rounds *r);

#endif
