/* SPDX-License-Identifier: MIT */
/*
 * Admission: the turns of a node.
 *
 * All commands that arrive in one turn of the loop become one log entry. A turn stamps
 * the entry with cluster time (reign.h), proposes a TICK by itself when something is due,
 * and answers each command when its entry has been applied. It serves only from the
 * moment an entry of its own term has been applied; when leadership is lost, every
 * command that is pending is answered "unknown", because it may still commit.
 *
 * Reads (pk_command_is_read) are in no entry: each is answered by the node that was
 * asked, leader or not, from its own state, and sees everything acknowledged before it
 * (read_index.h). All answers are given in the order in which requests were taken in.
 *
 * Knows no sockets and no loop: the server (libuv) and the simulator drive the same
 * code. Time comes in as milliseconds of the node's own steady clock.
 */
#ifndef PICKET_SERVER_TURN_H
#define PICKET_SERVER_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "raft/replica.h"
#include "server/read_index.h"
#include "server/reign.h"

struct pk_turn;

/* Who asked, in the embedder's own terms. */
struct pk_ticket {
    uint64_t who;  /* e.g. connection and its generation */
    uint64_t what; /* e.g. how to answer */
};

enum pk_refusal {
    PK_REFUSED_NOT_LEADER, /* not done */
    PK_REFUSED_NO_SPACE,   /* not done: the disk is full */
    PK_REFUSED_UNKNOWN,    /* it may or may not happen yet */
};

struct pk_turn_hooks {
    void *ctx;
    /* The command was run: effects begin with its REPLY (after events of time passing;
     * find it by kind). Borrowed for the call. A read has the cluster time as of which it
     * was answered as its stamp. */
    void (*answer)(void *ctx, struct pk_ticket t, const struct pk_command *c,
                   const struct pk_effects *e);
    /* Nothing is taken in while it runs. */
    void (*refuse)(void *ctx, struct pk_ticket t, enum pk_refusal why);
    /* All effects of every step on this node, ours or not, and of the reads it answers:
     * the watch stream. Called after answer, so that a reply goes out before what it
     * caused. */
    void (*events)(void *ctx, const struct pk_effects *e);
    /* The same with the command, before it; NULL: nobody wants it. */
    void (*stepped)(void *ctx, const struct pk_step *s);
    /* The state was replaced: watchers have a gap. */
    void (*gap)(void *ctx);
    /* Serving began or ended, or another leader is known. */
    void (*standing)(void *ctx, bool serving, uint64_t leader_id);
    /* See pk_replica_hooks; NULL: nobody wants it. */
    void (*trace)(void *ctx, int level, const char *message);
    /* Sends a note to another node, which gives it to its own pk_turn_hear; 0: to all
     * other voters. It may get lost. */
    void (*note)(void *ctx, uint64_t to, const struct pk_read_note *n);
    /* See pk_replica_hooks; NULL: there are no other nodes. */
    void (*marked)(void *ctx, uint64_t index, uint64_t digest);
    void (*broken)(void *ctx, const char *why);
};

struct pk_turn_options {
    uint64_t origin;       /* the same as the replica's; another one in each run */
    uint32_t election_ms;  /* 0: 300 */
    uint32_t digest_every; /* entries between comparisons of states; 0: 8192 */
    uint32_t digest_ms;    /* and milliseconds, also when idle; 0: a minute */
    uint32_t in_flight;    /* entries proposed and not yet applied; 0: the default */
    uint32_t batch_bytes;  /* of one entry's commands; 0: 1 MiB */
};

struct pk_turn_counts {
    uint64_t entries, commands, ticks, unknown, refused;
    uint64_t reads, rounds; /* answered without an entry; asked other nodes for them */
    uint64_t finished;      /* entries of ours that were applied, or given up */
    uint64_t reigns;
    uint64_t leaderless_ms; /* own time without a known leader, summed */
    uint64_t left_out_ms;   /* of pauses, see reign.h */
};

struct pk_turn *pk_turn_new(const struct pk_turn_options *o,
                            const struct pk_turn_hooks *hooks);
/* The hooks to make the replica with, and then the replica itself. */
struct pk_replica_hooks pk_turn_replica_hooks(struct pk_turn *t);
void pk_turn_attach(struct pk_turn *t, struct pk_replica *r);
void pk_turn_free(struct pk_turn *t);

/* Commands are taken in only while serving. */
bool pk_turn_serving(const struct pk_turn *t);
/* Reads are taken in while serving, and on a node that knows its leader. */
bool pk_turn_reads(const struct pk_turn *t);
/* Takes the command into the present turn; its stamp is ignored. False: it can't be
 * served here, or this turn is full; nothing happened, offer it again in a later turn.
 * The command must be within the bounds of pk_command_wrong, which none above PK_BODY_MAX
 * bytes is. */
bool pk_turn_add(struct pk_turn *t, const struct pk_command *c, struct pk_ticket ticket);
/* Pieces of a backup to be restored (at most PK_BODY_MAX bytes each, in order), and the
 * final adoption; answered like commands (`c` NULL, one REPLY with OK or BADARG and
 * why). Each has a turn for itself: false when there is something in this one. */
bool pk_turn_add_restore(struct pk_turn *t, struct pk_bytes piece, uint64_t offset,
                         struct pk_ticket ticket);
bool pk_turn_add_adopt(struct pk_turn *t, struct pk_ticket ticket);

/* Another node has sent this note. End the turn soon after. */
void pk_turn_hear(struct pk_turn *t, uint64_t from, const struct pk_read_note *n);

/* Ends the turn: looks at the standing, stamps and proposes. Call it after all input of
 * a loop turn, and again when the library may have done something. */
void pk_turn_end(struct pk_turn *t, uint64_t now_ms);
/* The own time at which pk_turn_end wants to be called at the latest, because of the next
 * deadline of the machine (not later than half an election timeout from now, since a
 * longer step would look like a pause); UINT64_MAX: no wish. */
uint64_t pk_turn_next_ms(const struct pk_turn *t);

/* Whether nothing has been taken in since the last entry was proposed. */
bool pk_turn_is_empty(const struct pk_turn *t);
/* Commands taken in and not yet answered. */
uint64_t pk_turn_pending(const struct pk_turn *t);
/* No more commands from now on: leadership is handed over, or the node stops. What has
 * been taken in is still answered. Lasts until pk_turn_resume, over reigns too. */
void pk_turn_drain(struct pk_turn *t);
void pk_turn_resume(struct pk_turn *t);
/* The node ends, whatever is under way: everything taken in is refused now. */
void pk_turn_give_up(struct pk_turn *t);
struct pk_turn_counts pk_turn_counts(const struct pk_turn *t);
/* Cluster time now, on a node that serves: the machine's clock is that of the last entry.
 */
uint64_t pk_turn_clock(const struct pk_turn *t, uint64_t now_ms);

#endif
