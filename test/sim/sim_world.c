/* SPDX-License-Identifier: MIT */
#include "sim_world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"

enum {
    SETTLE_SECONDS = 3,  /* clients go on after the healing */
    FINISH_SECONDS = 12, /* then they have that long to give everything back */
    LOOK_MS = 250,
};

static struct sim_world *now_running;

const struct sim_world *sim_world_now(void)
{
    return now_running;
}

void sim_world_say(const struct sim_world *w, const char *format, ...)
{
    if (!w->options.verbose) {
        return;
    }
    va_list args;
    va_start(args, format);
    printf("# %10.6f ", (double)w->queue.now_us / SIM_SECOND);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

struct sim_node *sim_world_leader(struct sim_world *w)
{
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (sim_node_serves(&w->nodes[i])) {
            return &w->nodes[i];
        }
    }
    return NULL;
}

void sim_world_start_node(struct sim_world *w, uint32_t place)
{
    struct pk_member first[SIM_NODES_MAX];
    for (uint32_t i = 0; i < w->n_first; i++) {
        first[i] = sim_node_member(i);
    }
    struct sim_node *n = &w->nodes[place];
    const char *wrong = sim_node_start(n, first, place < w->n_first ? w->n_first : 0);
    if (wrong != NULL && n->condition != SIM_DAMAGED) {
        sim_violation("start", "node %" PRIu32 ": %s", place + 1, wrong);
    }
    if (n->condition == SIM_DAMAGED) {
        sim_world_say(w, "node %" PRIu32 ", damaged: %s", place + 1,
                      wrong == NULL ? "finds everything" : wrong);
        w->totals->refused += wrong != NULL;
        w->totals->survived += wrong == NULL;
        n->condition = wrong == NULL ? SIM_DAMAGED : SIM_DEAD;
    }
}

uint32_t sim_world_add_node(struct sim_world *w)
{
    PK_ASSERT(w->n_nodes < SIM_NODES_MAX);
    uint32_t place = w->n_nodes++;
    w->habits.nodes = w->n_nodes;
    sim_world_say(w, "node %" PRIu32 " starts empty", place + 1);
    sim_world_start_node(w, place);
    return place;
}

/* ---- making a world ---- */

static void draw_cluster(struct sim_world *w, struct rng *r)
{
    uint32_t nodes = w->options.nodes;
    w->n_first = nodes != 0 ? nodes : rng_chance(r, 700) ? 3 : 5;
    w->n_nodes = w->n_first;
    uint32_t often = rng_chance(r, 600) ? 64 : 1024; /* snapshots all the time, or not */
    often = w->options.snapshots != 0 ? w->options.snapshots : often;
    w->shared = (struct sim_shared){
        .queue = &w->queue,
        .net = &w->net,
        .check = &w->check,
        .io_counts = &w->totals->io,
        .election_ms = rng_chance(r, 700) ? 300 : 600,
        .threshold = often,
        .trailing = often / 4,
        .digest_every = (uint32_t)rng_between(r, 8, 64),
        .digest_ms = (uint32_t)rng_between(r, 200, 3000),
        .in_flight = rng_chance(r, 300) ? (uint32_t)rng_between(r, 1, 4) : 0,
        .batch_bytes = rng_chance(r, 200) ? 150 : 0,
        .stopped = sim_nemesis_stopped,
        .stopped_ctx = w,
    };
}

static void draw_clients(struct sim_world *w, struct rng *r)
{
    w->n_clients = (uint32_t)rng_between(r, 3, 7);
    w->habits = (struct sim_habits){
        .pace_ms = rng_between(r, 40, 250),
        .ttl_least_ms = 400,
        .ttl_most_ms = rng_between(r, 1000, 4000),
        .patience_ms = rng_between(r, 200, 600),
        .nodes = w->n_first,
        .locks = (uint32_t)rng_between(r, 2, SIM_LOCKS),
    };
}

static void make_world(struct sim_world *w, const struct sim_options *o,
                       struct sim_totals *totals)
{
    memset(w, 0, sizeof *w);
    w->options = *o;
    w->totals = totals;
    struct rng draw = rng_of(o->seed, 0);
    w->rng = rng_of(o->seed, 1);
    sim_queue_init(&w->queue);
    sim_net_init(&w->net, &w->queue, rng_of(o->seed, 2));
    sim_check_init(&w->check, &w->queue, &totals->sights);
    w->check.verbose = o->verbose;
    draw_cluster(w, &draw);
    draw_clients(w, &draw);
    sim_process_init(&w->fate, &w->queue, w);
    sim_process_start(&w->fate, (struct sim_clock){0, 0});
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
        sim_node_init(&w->nodes[i], &w->shared, i, rng_of(o->seed, 100 + i));
    }
    for (uint32_t i = 0; i < w->n_clients; i++) {
        sim_client_init(&w->clients[i], &w->shared, &w->habits, i,
                        rng_of(o->seed, 200 + i));
    }
    sim_nemesis_begin(w);
    sim_operator_begin(w);
}

static void count_disk(struct sim_totals *t, const struct sim_disk *d)
{
    for (uint32_t i = 0; i < SIM_DISK_KINDS; i++) {
        t->disk_errors[i] += d->failed[i];
    }
    t->no_space_segments += d->no_space_segments;
    t->no_space_snapshots += d->no_space_snapshots;
}

static void free_world(struct sim_world *w)
{
    struct sim_totals *t = w->totals;
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
        count_disk(t, &w->nodes[i].disk);
        sim_node_free(&w->nodes[i]);
    }
    for (uint32_t i = 0; i < w->n_clients; i++) {
        sim_client_free(&w->clients[i]);
    }
    t->worlds++;
    t->virtual_us += w->queue.now_us;
    t->events += w->queue.happened;
    t->messages += w->net.sent;
    t->messages_lost += w->net.lost;
    t->messages_stalled += w->net.stalled;
    t->guards.g1 += w->shared.guards.g1;
    t->guards.g2 += w->shared.guards.g2;
    t->guards.g3 += w->shared.guards.g3;
    t->guards.g4 += w->shared.guards.g4;
    t->guards.g5 += w->shared.guards.g5;
    t->guards.g6 += w->shared.guards.g6;
    t->guards.g7 += w->shared.guards.g7;
    t->guards.g8 += w->shared.guards.g8;
    t->guards.g9 += w->shared.guards.g9;
    t->guards.g10 += w->shared.guards.g10;
    sim_operator_free(w);
    sim_process_free(&w->fate);
    sim_check_free(&w->check);
    sim_queue_free(&w->queue);
}

/* ---- the end ---- */

/* True when the node is to have the log: a voter or a standby, by the leader's word. */
static bool has_a_part(const struct pk_member *members, size_t n, uint32_t place)
{
    for (size_t i = 0; i < n; i++) {
        if (members[i].id == place + 1) {
            return members[i].role != PK_MEMBER_SPARE;
        }
    }
    return false;
}

/* The nodes that should end with the same state; returns how many. */
static uint32_t equals(struct sim_world *w, struct sim_node **out)
{
    struct pk_member members[PK_MEMBERS_MAX];
    struct sim_node *leader = sim_world_leader(w);
    uint32_t count = 0;
    if (leader == NULL) {
        return 0;
    }
    size_t n = pk_replica_members(leader->replica, members, NULL);
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].process.up && has_a_part(members, n, i)) {
            out[count++] = &w->nodes[i];
        }
    }
    return count;
}

/* NULL when everybody has done what he had to do (P9), else what is missing. */
static const char *unfinished(struct sim_world *w)
{
    struct sim_node *nodes[SIM_NODES_MAX];
    uint32_t n = equals(w, nodes);
    for (uint32_t i = 0; i < w->n_clients; i++) {
        if (!sim_client_is_done(&w->clients[i])) {
            return "a client does not get through";
        }
    }
    if (w->plan.joining != 0 || w->plan.leaving != 0) {
        return "a change of members does not come to its end";
    }
    if (sim_losses_in(w, SIM_SICK) > 0) {
        return "a sick node is not stopped";
    }
    if (sim_losses_in(w, SIM_DEAD) > 0 && !w->operator_is_away) {
        return "a lost node is not replaced";
    }
    if (n == 0) {
        return "nobody leads";
    }
    for (uint32_t i = 0; i < n; i++) {
        if (pk_replica_standing(nodes[i]->replica).applied_index <
            sim_check_last_index(&w->check)) {
            return "a node does not catch up";
        }
    }
    return watch_leftover(&w->check.watch);
}

/* P3, R12: the whole log everywhere, and the same state. */
static void compare_states(struct sim_world *w)
{
    struct sim_node *nodes[SIM_NODES_MAX];
    uint32_t n = equals(w, nodes);
    uint64_t digest = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct pk_machine *m = pk_replica_machine(nodes[i]->replica);
        const char *wrong = pk_machine_check(m);
        if (wrong != NULL) {
            sim_violation("P1", "in the end the state is unsound: %s", wrong);
        }
        if (i > 0 && pk_machine_digest(m) != digest) {
            sim_violation("R12", "in the end node %" PRIu32 " has another state",
                          nodes[i]->place + 1);
        }
        digest = pk_machine_digest(m);
    }
}

static void finish(struct sim_world *w)
{
    uint64_t until_us = w->queue.now_us + FINISH_SECONDS * SIM_SECOND;
    for (uint32_t i = 0; i < w->n_clients; i++) {
        sim_client_leave(&w->clients[i]);
    }
    while (unfinished(w) != NULL) {
        if (w->queue.now_us >= until_us) {
            sim_violation("liveness", "%s", unfinished(w));
        }
        sim_queue_run(&w->queue, w->queue.now_us + LOOK_MS * SIM_MS);
    }
    compare_states(w);
}

uint64_t sim_world_run(const struct sim_options *o, struct sim_totals *totals)
{
    struct sim_world *w = pk_door_resize(NULL, sizeof *w);
    make_world(w, o, totals);
    now_running = w;
    for (uint32_t i = 0; i < w->n_first; i++) {
        sim_world_start_node(w, i);
    }
    for (uint32_t i = 0; i < w->n_clients; i++) {
        sim_client_start(&w->clients[i]);
    }
    sim_queue_run(&w->queue, o->seconds * (uint64_t)SIM_SECOND);
    sim_nemesis_heal(w);
    sim_queue_run(&w->queue, w->queue.now_us + SETTLE_SECONDS * SIM_SECOND);
    finish(w);
    uint64_t hash = w->queue.hash;
    free_world(w);
    now_running = NULL;
    pk_door_resize(w, 0);
    return hash;
}
