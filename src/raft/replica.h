/* SPDX-License-Identifier: MIT */
/*
 * One replica: the lock machine behind the consensus library.
 *
 * Takes proposals (raft/entry.h), and runs every committed entry on its machine, in log
 * order, the same on every node. It knows nothing of clients, time or loops: the
 * embedder gives it a raft_io (raft/uvio.h, or the simulator's) and hooks. Deeper rules
 * of the library's use are kept in here: one buffer per proposal, lengths in multiples
 * of 8, guards, no callbacks of requests (what became of a proposal, its entry tells;
 * what became of a change of members, the configuration).
 *
 * Threading: none. Hooks are called from inside calls of the library; they must not
 * propose, change members, close or free.
 */
#ifndef PICKET_RAFT_REPLICA_H
#define PICKET_RAFT_REPLICA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/machine.h"
#include "raft/entry.h"
#include "raft/guard.h"
#include "raft/log_use.h"
#include "raft/snapshot.h"

struct raft_io;
struct pk_replica;

enum {
    PK_MEMBERS_MAX = 16,
    PK_ADDRESS_MAX = 128,             /* "name@host:port" with its NUL */
    PK_ENTRY_MAX = 2 * 1024 * 1024,   /* bytes of one entry; a larger body is refused */
    PK_BODY_MAX = PK_ENTRY_MAX - 256, /* bytes of one command, or one piece of a backup */
};

enum pk_member_role { PK_MEMBER_VOTER, PK_MEMBER_STANDBY, PK_MEMBER_SPARE };

struct pk_member {
    uint64_t id;
    char address[PK_ADDRESS_MAX];
    enum pk_member_role role;
};

/* The name in the member's "name@host:port", into `out`; false: there is none that fits,
 * and `out` is "". */
bool pk_member_name(const struct pk_member *m, char *out, size_t size);
/* The "host:port" in it; "": there is none. */
const char *pk_member_host(const struct pk_member *m);
/* The member of that name; NULL: there is none. */
const struct pk_member *pk_member_named(const struct pk_member *members, size_t n,
                                        const char *name);

struct pk_replica_options {
    uint64_t id;
    const char *address;
    uint64_t origin;      /* random: this run of this process */
    uint32_t election_ms; /* 0: 300; heartbeat is a tenth */
    /* How large the log is; NULL: not known, and only entries are counted. */
    struct pk_log_use (*use)(void *ctx);
    void *use_ctx;
    uint32_t threshold; /* entries between snapshots at most; 0: only bytes count */
    uint32_t trailing;  /* entries kept behind a snapshot at most; 0: likewise */
    uint16_t reserve;   /* KiB that a disk must have left for new entries */
    uint32_t seed;      /* of the library's own randomness; 0: leave it alone */
    struct pk_raft_guard_switches guards_off;
};

/* One command of one entry has been run. RESTORE and ADOPT are one step each, without a
 * command: the effects have one REPLY (verb LEAP), with OK, or BADARG and why. */
struct pk_step {
    const struct pk_entry *entry;
    uint64_t nth; /* of the entry's commands, from 0 */
    const struct pk_command *command;
    const struct pk_effects *effects;
};

struct pk_replica_hooks {
    void *ctx;
    void (*stepped)(void *ctx, const struct pk_step *s);
    /* The whole entry has been run; `e->index` is its place in the log. */
    void (*applied)(void *ctx, const struct pk_entry *e);
    /* The state was replaced, by a leader's snapshot or by a restored backup: whoever
     * watches has missed something, and the clock may have jumped. */
    void (*replaced)(void *ctx);
    /* The digest of the state after entry `index`, for all other nodes: each of them
     * gives it to its own pk_replica_hear_mark. NULL: there are no others. */
    void (*marked)(void *ctx, uint64_t index, uint64_t digest);
    /* What libraft has to say: level 1 is an error, 2 a warning, higher ones are details.
     * NULL: nobody wants to know. */
    void (*trace)(void *ctx, int level, const char *message);
    /* This replica can't go on (its state is not the majority's, or its log can't be
     * read). Must not
     * come back to the library: stop the process, or in the simulator this node. From
     * here on it runs nothing, proposes nothing and takes no snapshot. While
     * pk_replica_start runs it is not called: start returns the sentence. */
    void (*broken)(void *ctx, const char *why);
};

/* Prepares a replica on `io`. NULL with a sentence in `why` (of `size`) on failure. */
struct pk_replica *pk_replica_new(struct raft_io *io, const struct pk_replica_options *o,
                                  const struct pk_replica_hooks *hooks, char *why,
                                  size_t size);
/* The first configuration, the same on each first node; does nothing when there is
 * already a log. Before start. NULL, or why not. */
const char *pk_replica_bootstrap(struct pk_replica *r, const struct pk_member *members,
                                 size_t n);
/* Loads snapshot and log and begins to take part. NULL, or why not. */
const char *pk_replica_start(struct pk_replica *r);
/* Ends taking part; `closed` is called when the raft_io may be freed, then
 * pk_replica_free. */
void pk_replica_close(struct pk_replica *r, void (*closed)(void *ctx), void *ctx);
void pk_replica_free(struct pk_replica *r);
/* The process is gone (simulated crash): frees memory without talking to anybody. What
 * the raft_io still owes the library must never be called back. */
void pk_replica_abandon(struct pk_replica *r);

/* ---- what it knows ---- */

struct pk_machine *pk_replica_machine(struct pk_replica *r);

struct pk_standing {
    bool leader; /* of `term`; says nothing about being up to date */
    bool candidate;
    uint64_t term;
    uint64_t leader_id; /* 0: not known */
    uint64_t last_index, commit_index, applied_index;
    bool transferring; /* leadership is being handed over: proposals are refused */
};
struct pk_standing pk_replica_standing(struct pk_replica *r);
/* The configuration in force; returns how many. `progress` (may be NULL): on a leader
 * the index up to which each one's log is known to match, else 0. */
size_t pk_replica_members(struct pk_replica *r, struct pk_member *out,
                          uint64_t *progress);
struct pk_raft_guard_counts pk_replica_guard_counts(const struct pk_replica *r);

/* The cluster version that a build must run to start with the files of this node. After
 * a lowering it follows when a snapshot has been taken. */
uint32_t pk_replica_data_version(const struct pk_replica *r);

/* Another node has told the digest of its state after that entry. */
void pk_replica_hear_mark(struct pk_replica *r, uint64_t id, uint64_t index,
                          uint64_t digest);

/* ---- proposing ---- */

enum pk_proposed {
    PK_PROPOSED,   /* in the log of this leader; whether it commits, entries will tell */
    PK_NOT_LEADER, /* not done */
    PK_NO_SPACE,   /* not done: a disk is full */
    PK_NOT_TAKEN,  /* not done, for another reason */
};

/* Room for the body of a proposal; valid until the next call of propose or room. The
 * bytes move when it grows, so ask before writing more. */
unsigned char *pk_replica_room(struct pk_replica *r, size_t body);
/* Proposes the body that stands in the room. Fills in the entry's origin, index and body.
 * Unless the answer is PK_PROPOSED the body stays in the room. */
enum pk_proposed pk_replica_propose(struct pk_replica *r, struct pk_entry *e,
                                    size_t body);

/* ---- membership, leader only; one change at a time ---- */

enum pk_change { PK_CHANGE_ADD, PK_CHANGE_STANDBY, PK_CHANGE_VOTER, PK_CHANGE_REMOVE };

/* Begins a change; `done` is called once with NULL or why it failed: from
 * pk_replica_poll, or from pk_replica_close. NULL, or at once why it can't begin (then
 * `done` is not called). ADD makes a spare, which takes part in nothing; STANDBY gets the
 * log; VOTER waits until the node has caught up. */
const char *pk_replica_change(struct pk_replica *r, enum pk_change what, uint64_t id,
                              const char *address,
                              void (*done)(void *ctx, const char *wrong), void *ctx);
/* Looks whether a change has come to its end, and whether the log has become so large
 * that a snapshot is due. Call it when the library may have done something; pk_turn_end
 * does. */
void pk_replica_poll(struct pk_replica *r);
/* As of the last pk_replica_poll: the log has little room, and the disk is making more.
 * Entries that are proposed now may be refused, later ones will not. */
bool pk_replica_should_wait(const struct pk_replica *r);
/* Hands leadership to `id` (0: to whoever is best). NULL, or why not. */
const char *pk_replica_transfer(struct pk_replica *r, uint64_t id);

/* ---- backup ---- */

/* Which moment a backup is of. */
struct pk_backup_of {
    uint64_t index; /* of the last entry that was run */
    uint64_t clock_ms, last_token;
};

/* Begins a backup (backup.h) of the state as it is now, while the replica goes on. False:
 * a snapshot or another backup is being made, ask again later. Until the state has been
 * read, the replica takes no snapshot of its own: so read on without waiting for others.
 */
bool pk_replica_backup_begin(struct pk_replica *r, struct pk_backup_of *of);
/* The next bytes; its cost is bounded by `room` and a constant. GONE: the state was
 * replaced meanwhile, or the replica is broken. */
enum pk_source_state pk_replica_backup_read(struct pk_replica *r, unsigned char *to,
                                            size_t room, size_t *n);
/* After END or GONE, or to give it up. */
void pk_replica_backup_end(struct pk_replica *r);

#endif
