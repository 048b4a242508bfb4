/* SPDX-License-Identifier: MIT */
/*
 * One node: the real admission (server/turn.h) on the real replica (raft/replica.h) on
 * the simulated raft_io, with what stands for its event loop and its connections.
 *
 * Requests that come in close together are taken into one turn. A paused node does
 * nothing, while its messages wait and its clock goes on. A crashed one has its disk
 * left.
 *
 * The state of a sick node is not that of the others any more. What it applies is not
 * judged, and its answers do not reach clients. It ends before it sends a snapshot, which
 * would make its receiver sick too: no comparison of states can prevent that.
 */
#ifndef PICKET_SIM_NODE_H
#define PICKET_SIM_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/turn.h"
#include "sim_check.h"
#include "sim_io.h"
#include "sim_net.h"

/* What nodes and clients have in common. */
struct sim_shared {
    struct sim_queue *queue;
    struct sim_net *net;
    struct sim_check *check;
    struct sim_io_counts *io_counts;
    struct pk_raft_guard_counts guards; /* of all lives that are over */
    uint32_t election_ms;
    uint32_t threshold, trailing; /* of snapshots; 0: the product's */
    uint32_t digest_every, digest_ms, in_flight, batch_bytes;
    /* A node has to end, because its disk failed or its state differs from that of the
     * others: from inside of its own doings. */
    void (*stopped)(void *ctx, uint32_t place);
    void *stopped_ctx;
};

/* From a client to a node: an encoded command. */
struct sim_request {
    struct sim_message head;
    uint64_t attempt;
    uint64_t connection;
    uint64_t lease; /* whose events the client wants to hear of; 0: none */
    size_t len;
    unsigned char bytes[];
};

enum sim_answer_kind {
    SIM_REPLY,
    SIM_REFUSAL,
    SIM_EVENT, /* something happened on the client's lease */
    SIM_GAP,   /* something may have happened: ask */
};

/* From a node to a client. */
struct sim_answer {
    struct sim_message head;
    enum sim_answer_kind kind;
    uint64_t attempt, connection;
    enum pk_refusal refusal;
    uint64_t leader;         /* id; 0: not known */
    struct pk_effect effect; /* the reply or the event; without its bytes */
    uint64_t made_us;
    uint32_t n_shown; /* LOCK SHOW: tokens of the holders */
    uint64_t shown[SIM_SHOWN_MAX];
};

/* What is wrong with a node for good. */
enum sim_condition {
    SIM_SOUND,
    SIM_DAMAGED,  /* its disk was: a start may be refused */
    SIM_SICK,     /* its state differs; when it ends, it is dead */
    SIM_DEAD,     /* it never starts again */
    SIM_REPLACED, /* and another node has its place in the cluster */
};

struct sim_session {
    uint64_t connection; /* 0: none */
    uint64_t lease;
};

struct sim_node {
    struct sim_process process;
    struct sim_shared *shared;
    struct rng rng;
    uint32_t place;
    struct sim_disk disk;
    struct sim_speed speed;
    struct sim_promised promised;
    bool has_started; /* its directory has an identity: files must be there */
    enum sim_condition condition;

    /* One life. */
    struct sim_heap heap;
    struct sim_io *io;
    struct pk_turn *turn;
    struct pk_replica *replica;
    struct pk_replica_hooks above; /* the turn's */
    struct sim_applying applying;
    bool turn_comes;
    bool failed;       /* it has to end and does nothing more */
    bool adopting;     /* the entry that is being applied is a backup's last one */
    uint64_t timer_ms; /* when the turn wants to be called; UINT64_MAX: never */
    struct sim_session sessions[SIM_CLIENTS_MAX];
    struct sim_request **waiting; /* for a turn with room */
    size_t n_waiting, waiting_capacity;
    char why[320]; /* the last start was refused */
};

void sim_node_init(struct sim_node *n, struct sim_shared *shared, uint32_t place,
                   struct rng rng);
void sim_node_free(struct sim_node *n);
/* Begins a life. `members`: the first configuration of a first life; 0 of them: the node
 * waits to be added. NULL, or why the start was refused; then the node is down. */
const char *sim_node_start(struct sim_node *n, const struct pk_member *members,
                           size_t n_members);
/* The process ends, or even the power goes. */
void sim_node_crash(struct sim_node *n, bool power);
/* Its disk is empty from now on, as if it had never started. The node is down. */
void sim_node_wipe(struct sim_node *n);
/* Runs a command on its machine that is in no log. */
void sim_node_sicken(struct sim_node *n);
void sim_node_resume(struct sim_node *n);
void sim_node_full(struct sim_node *n, bool full);
struct pk_member sim_node_member(uint32_t place);

/* Lets the node do what its caller has begun: call it after any use of turn or replica
 * from outside. */
void sim_node_end_turn(struct sim_node *n);
/* The library's memory is this node's from now on: call it before such a use. */
void sim_node_enter(struct sim_node *n);

bool sim_node_serves(const struct sim_node *n);

#endif
