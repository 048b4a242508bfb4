/* SPDX-License-Identifier: MIT */
/*
 * Guards around a raft_io: cures, from the outside, for what libraft 0.22.1 does wrong
 * with snapshots, configurations and votes.
 *
 *  G1  InstallSnapshot that arrives while a snapshot of our own is being written makes
 *      the library follow a null pointer; one that follows another which is still being
 *      written is never freed. We drop the message; the leader sends again.
 *  G2  AppendEntries that ends before our commit index, with a higher leader_commit,
 *      moves the commit index *back*; a snapshot taken then is labelled too low and
 *      entries run twice. We clamp leader_commit. (The index inside each entry is the
 *      second cure, see entry.h.)
 *  G3  A leader labels a newer snapshot with the term of the older one, and the follower
 *      is stuck for good. We remember the term of each snapshot that was loaded and put
 *      it into the message.
 *  G4  A follower that gets a configuration as the second or a later entry of a message
 *      notes it under the index of the first. Its commit then passes unnoticed: this
 *      node, as leader, refuses every change of members, its snapshots carry an old
 *      configuration, and one that is overwritten is not rolled back. We cut the message
 *      before such an entry; the leader sends the rest again.
 *  G5  A vote that comes after its election is ignored, but not before a field has been
 *      read that only candidates have: by a byte of a pointer the library decides
 *      whether to raise its term. One time in hundreds it does so for nothing, and the
 *      cluster loses its leader. We drop such votes.
 *  G6  A node that refuses a pre-vote because its own term is higher answers with the
 *      term of the request. So a node with the longest log and a low term never learns
 *      why it is refused, while nobody else can be elected: with a minority down, the
 *      cluster has no leader for good. We put the node's own term into its answer.
 *  G7  A snapshot that is taken while a run of entries is being applied carries the
 *      configuration of before them, although its label is behind them. Who starts from
 *      it, or gets it, does not know who belongs to the cluster. We put the configuration
 *      into it that was in force at its index.
 *  G8  A node that has not learned yet that it is a voter refuses its vote, and for ever
 *      takes the last leader for alive. If that leader is lost before it could tell, the
 *      others may lack this one vote: with a minority down, the cluster has no leader
 *      for good. We let such a node vote, once it has not heard of a leader for as long
 *      as an election takes; whose vote counts is up to the candidate's configuration.
 *  G9  InstallSnapshot of an older term is answered with a last index that nobody has
 *      set. Should its sender lead again by then, in the term of the answer, it takes
 *      that for what this node has stored, and may commit what it has not. We drop the
 *      message; the sender learns of the term from other answers.
 *  G10 InstallSnapshot goes out when the snapshot has been read, to an address that the
 *      library looked up before. If the members have changed meanwhile, that memory has
 *      been freed. We look up the address again, and send nothing to a node that is no
 *      member any more.
 *
 * Works with any raft_io: the one on libuv and the simulator's. Guards can be switched
 * off one by one, for the tests that show that each is needed.
 */
#ifndef PICKET_RAFT_GUARD_H
#define PICKET_RAFT_GUARD_H

#include <stdbool.h>
#include <stdint.h>

struct raft;
struct raft_io;

struct pk_raft_guard;

struct pk_raft_guard_switches {
    /* Zeroed: all guards on. */
    bool no_g1, no_g2, no_g3, no_g4, no_g5, no_g6, no_g7, no_g8, no_g9, no_g10;
};

/* How often each guard had to step in. */
struct pk_raft_guard_counts {
    uint64_t g1, g2, g3, g4, g5, g6, g7, g8, g9, g10;
};

/* Replaces members of `io`, which must outlive the guard and gets them back when it is
 * freed. Call before raft_init(), with the `raft` that will be made on it; raft->data
 * belongs to the guard from then on. */
struct pk_raft_guard *pk_raft_guard_install(struct raft_io *io, struct raft *raft,
                                            struct pk_raft_guard_switches off);
struct pk_raft_guard_counts pk_raft_guard_counts(const struct pk_raft_guard *g);
/* After raft_close has called back. */
void pk_raft_guard_free(struct pk_raft_guard *g);

#endif
