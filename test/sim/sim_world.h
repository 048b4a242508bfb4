/* SPDX-License-Identifier: MIT */
/*
 * A world: a cluster, its clients, and what goes wrong, all drawn from one number.
 *
 * Two phases. First faults of many kinds while the clients work: only safety counts.
 * Then everything is healed (in some worlds a minority of nodes stays down): the clients
 * finish, queues must move, and in the end nothing may be left and all nodes must have
 * the same state.
 */
#ifndef PICKET_SIM_WORLD_H
#define PICKET_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim_client.h"

/*  X(name, how many of a thousand worlds have it, text) */
#define SIM_FAULTS(X)                                                                    \
    X(crash, 700, "nodes crashed")                                                       \
    X(crash_all, 200, "all nodes crashed at once")                                       \
    X(halves, 400, "partitions into two halves")                                         \
    X(isolate_leader, 400, "leaders cut off")                                            \
    X(one_way, 400, "links cut in one direction")                                        \
    X(star, 250, "partitions with one node in the middle")                               \
    X(cut_client, 400, "clients cut off")                                                \
    X(loss, 400, "spells of lost messages")                                              \
    X(slow_net, 400, "spells of a slow network")                                         \
    X(stalls, 400, "spells of stalled links")                                            \
    X(slow_disk, 400, "slow disks")                                                      \
    X(full_disk, 200, "full disks")                                                      \
    X(disk_error, 250, "operations that a disk failed to do")                            \
    X(pause_node, 500, "nodes paused")                                                   \
    X(pause_leader, 400, "leaders paused")                                               \
    X(pause_client, 600, "clients paused")                                               \
    X(transfer, 400, "leadership handed over")                                           \
    X(join, 200, "nodes asked to join")                                                  \
    X(leave, 150, "nodes asked to leave")                                                \
    X(restore, 120, "backups put back")                                                  \
    X(damage, 250, "files damaged after a crash")                                        \
    X(wipe, 200, "disks wiped")                                                          \
    X(sick, 200, "states that went astray")                                              \
    X(stay_down, 300, "nodes of minorities that were not healed")

enum sim_fault {
#define X(name, share, text) SIM_FAULT_##name,
    SIM_FAULTS(X)
#undef X
        SIM_FAULT_COUNT
};

/* Over all worlds of a run. */
struct sim_totals {
    uint64_t worlds, virtual_us, events;
    uint64_t faults[SIM_FAULT_COUNT];
    uint64_t joined, left;
    uint64_t refused;             /* starts, because of damage */
    uint64_t survived;            /* starts in spite of it */
    uint64_t strangers;           /* wiped nodes that came back as new ones */
    uint64_t replaced, left_lost; /* lost nodes */
    uint64_t disk_errors[SIM_DISK_KINDS];
    uint64_t no_space_segments, no_space_snapshots;
    uint64_t messages, messages_lost, messages_stalled;
    struct sim_sights sights;
    struct sim_io_counts io;
    struct pk_raft_guard_counts guards;
};

enum sim_choice { SIM_DRAWN, SIM_ALWAYS, SIM_NEVER };

struct sim_options {
    uint64_t seed;
    uint32_t nodes;     /* 0: 3 or 5, drawn */
    uint32_t seconds;   /* of the first phase */
    uint32_t snapshots; /* entries between two; 0: drawn */
    bool verbose;
    bool only;         /* those faults that are chosen */
    bool old_identity; /* a wiped node comes back under its old id */
    enum sim_choice faults[SIM_FAULT_COUNT];
};

/* What the operator is about: a change of members, or a backup. */
struct sim_plan {
    uint32_t joining, leaving; /* places plus 1; 0: none */
    uint32_t replacing;        /* likewise, the lost node for which that is done */
    bool changing;             /* a change is under way */
    bool confirmed;            /* the last one came to its end */
    uint64_t changing_life;    /* of the node that leads it */
    struct sim_node *changer;
    struct sim_node *source; /* of whose state a backup is being made; NULL: none */
    uint64_t source_life;
    unsigned char *backup; /* NULL: there is none, and none is being made */
    size_t backup_len, restored;
    uint64_t restore_us; /* when to put it back */
};

struct sim_world {
    struct sim_options options;
    struct sim_totals *totals;
    struct rng rng;
    struct sim_queue queue;
    struct sim_net net;
    struct sim_check check;
    struct sim_shared shared;
    struct sim_habits habits;
    struct sim_node nodes[SIM_NODES_MAX];
    bool gone[SIM_NODES_MAX];          /* removed for good */
    uint32_t successor[SIM_NODES_MAX]; /* of a lost node: place plus 1; 0: none yet */
    uint32_t n_nodes;                  /* ever, initial ones first */
    uint32_t n_first;                  /* initial ones */
    struct sim_client clients[SIM_CLIENTS_MAX];
    uint32_t n_clients;
    struct sim_process fate; /* whose doings the faults are */
    bool faults[SIM_FAULT_COUNT];
    uint64_t fault_every_ms;
    bool healing;
    bool operator_is_away; /* lost nodes are not replaced */
    struct sim_plan plan;
};

/* Runs the world to its end; its hash. Does not come back when a promise is broken. */
uint64_t sim_world_run(const struct sim_options *o, struct sim_totals *totals);
/* The world that runs now, for whoever reports; NULL: none. */
const struct sim_world *sim_world_now(void);

/* ---- between the files of the world ---- */

void sim_world_say(const struct sim_world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The node that serves, or NULL. */
struct sim_node *sim_world_leader(struct sim_world *w);
/* A node whose disk was damaged may refuse to start, and is dead then. */
void sim_world_start_node(struct sim_world *w, uint32_t place);
/* Starts an empty node that waits to be admitted; its place. */
uint32_t sim_world_add_node(struct sim_world *w);

/* sim_nemesis.c */
void sim_nemesis_begin(struct sim_world *w);
void sim_nemesis_heal(struct sim_world *w);
/* The node's process ends, and is started again later. */
void sim_nemesis_crash(struct sim_world *w, struct sim_node *n);
/* The node has to end, because its disk failed or because it is sick. */
void sim_nemesis_stopped(void *world, uint32_t place);

/* sim_losses.c: faults, and what is lost */
bool sim_losses_damage(struct sim_world *w);
bool sim_losses_wipe(struct sim_world *w);
bool sim_losses_sicken(struct sim_world *w);
/* How many nodes are lost, and how many are in that condition. */
uint32_t sim_losses_count(const struct sim_world *w);
uint32_t sim_losses_in(const struct sim_world *w, enum sim_condition condition);
/* False: all places that are left are for the successors of lost nodes. */
bool sim_losses_leave_a_place(const struct sim_world *w);

/* sim_operator.c */
void sim_operator_begin(struct sim_world *w);
void sim_operator_join(struct sim_world *w);
void sim_operator_leave(struct sim_world *w);
void sim_operator_restore(struct sim_world *w);
void sim_operator_free(struct sim_world *w);

#endif
