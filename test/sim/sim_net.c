/* SPDX-License-Identifier: MIT */
#include "sim_net.h"

#include <string.h>

#include "core/door.h"

void sim_net_init(struct sim_net *n, struct sim_queue *q, struct rng rng)
{
    memset(n, 0, sizeof *n);
    n->queue = q;
    n->rng = rng;
}

void *sim_net_message(struct sim_net *n, uint32_t from, uint32_t to, size_t size)
{
    PK_ASSERT(from < SIM_PLACES && to < SIM_PLACES && size >= sizeof(struct sim_message));
    struct sim_message *m = sim_queue_load(n->queue, size);
    *m = (struct sim_message){n, from, to};
    return m;
}

static void lose(struct sim_message *m)
{
    m->net->lost++;
    sim_heap_give(m);
}

void sim_net_arrive(void *self, uint64_t unused, void *load)
{
    (void)unused;
    struct sim_message *m = load;
    if (m->net->links[m->from][m->to].cut) {
        lose(m);
    } else {
        m->net->places[m->to].receive(self, m);
    }
}

void sim_net_send(struct sim_message *m)
{
    struct sim_net *n = m->net;
    struct sim_link *link = &n->links[m->from][m->to];
    struct sim_process *to = n->places[m->to].who;
    bool broken =
        n->places[m->to].loses && m->from < SIM_NODES_MAX && to != NULL && to->paused;
    n->sent++;
    if (to == NULL || link->cut || broken || rng_chance(&n->rng, n->loss)) {
        lose(m);
        return;
    }
    uint64_t at_us = n->queue->now_us + rng_between(&n->rng, n->least_us, n->most_us);
    if (rng_chance(&n->rng, n->stall)) {
        n->stalled++;
        at_us += rng_below(&n->rng, n->stall_us);
    }
    link->last_us = at_us > link->last_us ? at_us : link->last_us;
    sim_process_at(to, link->last_us, sim_net_arrive, 0, m);
}

void sim_net_cut(struct sim_net *n, uint32_t from, uint32_t to)
{
    n->links[from][to].cut = true;
}

void sim_net_heal(struct sim_net *n)
{
    for (uint32_t from = 0; from < SIM_PLACES; from++) {
        for (uint32_t to = 0; to < SIM_PLACES; to++) {
            n->links[from][to].cut = false;
        }
    }
}
