/* SPDX-License-Identifier: MIT */
/*
 * The network between nodes, and between clients and nodes: links in one direction each,
 * with delays, loss, stalls and cuts.
 *
 * Messages of one link arrive in order, as on a connection; a stall holds back all that
 * follow too. A cut loses what is sent and what is under way.
 */
#ifndef PICKET_SIM_NET_H
#define PICKET_SIM_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "rng.h"
#include "sim_queue.h"

enum {
    SIM_NODES_MAX = 16,
    SIM_CLIENTS_MAX = 10,
    SIM_PLACES = SIM_NODES_MAX + SIM_CLIENTS_MAX, /* nodes first */
};

struct sim_net;

/* What every message begins with. */
struct sim_message {
    struct sim_net *net;
    uint32_t from, to; /* places */
};

struct sim_link {
    bool cut;
    uint64_t last_us; /* arrival of the last message */
};

struct sim_place {
    struct sim_process *who;
    void (*receive)(void *self, struct sim_message *m); /* gives the message back */
    bool loses; /* what other nodes send to it while it is paused: their links break */
};

struct sim_net {
    struct sim_queue *queue;
    struct rng rng;
    struct sim_place places[SIM_PLACES];
    struct sim_link links[SIM_PLACES][SIM_PLACES];
    uint64_t least_us, most_us; /* of a message's way */
    uint32_t loss;              /* per mille */
    uint32_t stall;             /* per mille; up to stall_us more */
    uint64_t stall_us;
    uint64_t sent, lost, stalled;
};

void sim_net_init(struct sim_net *n, struct sim_queue *q, struct rng rng);
/* A new message of `size` bytes in all, to be filled in and sent. */
void *sim_net_message(struct sim_net *n, uint32_t from, uint32_t to, size_t size);
void sim_net_send(struct sim_message *m);
/* A message arrives: what may pile up while its receiver is paused. */
void sim_net_arrive(void *self, uint64_t unused, void *load);
void sim_net_cut(struct sim_net *n, uint32_t from, uint32_t to);
void sim_net_heal(struct sim_net *n);

#endif
