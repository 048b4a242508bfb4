/* SPDX-License-Identifier: MIT */
/* What goes wrong: faults drawn by lot, each of which ends by itself after a while. */
#include <inttypes.h>

#include "core/door.h"
#include "sim_world.h"

enum { HEALTHY_LEAST_US = 100, HEALTHY_MOST_US = 1500 };

static const struct sim_speed good_disk = {60, 600, 40 * SIM_MS};

static uint64_t draw_ms(struct sim_world *w, uint64_t least, uint64_t most)
{
    return rng_between(&w->rng, least, most);
}

/* Lets it happen in so many milliseconds. */
static void in_ms(struct sim_world *w, uint64_t ms, sim_action *happen, uint64_t what)
{
    sim_process_at(&w->fate, w->queue.now_us + ms * SIM_MS, happen, what, NULL);
}

/* A node that is up, by lot; NULL: none. */
static struct sim_node *any_node(struct sim_world *w)
{
    uint32_t from = (uint32_t)rng_below(&w->rng, w->n_nodes);
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *n = &w->nodes[(from + i) % w->n_nodes];
        if (n->process.up && !n->process.paused) {
            return n;
        }
    }
    return NULL;
}

/* ---- nodes ---- */

static void restart(void *self, uint64_t place, void *load)
{
    (void)load;
    struct sim_world *w = self;
    const struct sim_node *n = &w->nodes[place];
    if (!n->process.up && !w->gone[place] && !w->healing && n->condition != SIM_DEAD) {
        sim_world_say(w, "node %" PRIu64 " starts", place + 1);
        sim_world_start_node(w, (uint32_t)place);
    }
}

void sim_nemesis_crash(struct sim_world *w, struct sim_node *n)
{
    sim_world_say(w, "node %" PRIu32 " crashes", n->place + 1);
    sim_node_crash(n, rng_chance(&w->rng, 500));
    in_ms(w, draw_ms(w, 20, 3000), restart, n->place);
}

static bool crash(struct sim_world *w)
{
    struct sim_node *leader = sim_world_leader(w);
    struct sim_node *n =
        leader != NULL && rng_chance(&w->rng, 500) ? leader : any_node(w);
    if (n != NULL) {
        sim_nemesis_crash(w, n);
    }
    return n != NULL;
}

static bool crash_all(struct sim_world *w)
{
    bool any = false;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].process.up) {
            sim_nemesis_crash(w, &w->nodes[i]);
            any = true;
        }
    }
    return any;
}

static void wake_node(void *self, uint64_t what, void *load)
{
    (void)load;
    struct sim_world *w = self;
    struct sim_node *n = &w->nodes[what % SIM_NODES_MAX];
    if (n->process.paused && n->process.life == what / SIM_NODES_MAX) {
        sim_world_say(w, "node %" PRIu32 " wakes up", n->place + 1);
        sim_node_resume(n);
    }
}

static bool pause_this(struct sim_world *w, struct sim_node *n)
{
    if (n == NULL) {
        return false;
    }
    /* Around one election timeout, or far beyond. */
    uint64_t ms = rng_chance(&w->rng, 500) ? draw_ms(w, 50, 700) : draw_ms(w, 700, 4000);
    sim_world_say(w, "node %" PRIu32 " is paused for %" PRIu64 " ms", n->place + 1, ms);
    w->net.places[n->place].loses = rng_chance(&w->rng, 500);
    sim_process_pause(&n->process);
    in_ms(w, ms, wake_node, n->process.life * SIM_NODES_MAX + n->place);
    return true;
}

static bool pause_node(struct sim_world *w)
{
    return pause_this(w, any_node(w));
}

static bool pause_leader(struct sim_world *w)
{
    return pause_this(w, sim_world_leader(w));
}

/* ---- disks ---- */

static void disk_recovers(void *self, uint64_t place, void *load)
{
    (void)load;
    struct sim_world *w = self;
    w->nodes[place].speed = good_disk;
    w->nodes[place].disk.fail_in = 0;
    w->nodes[place].disk.fail_kinds = 0;
    w->nodes[place].disk.overstates = false;
    sim_node_full(&w->nodes[place], false);
}

static bool slow_disk(struct sim_world *w)
{
    uint32_t place = (uint32_t)rng_below(&w->rng, w->n_nodes);
    struct sim_speed *s = &w->nodes[place].speed;
    s->most_us = draw_ms(w, 2, 80) * SIM_MS;
    s->snapshot_us = draw_ms(w, 50, 800) * SIM_MS;
    in_ms(w, draw_ms(w, 300, 4000), disk_recovers, place);
    return true;
}

/* Enough of them at once make leaders refuse. */
static bool full_disk(struct sim_world *w)
{
    uint32_t many = (uint32_t)rng_between(&w->rng, 1, w->n_nodes);
    uint32_t from = (uint32_t)rng_below(&w->rng, w->n_nodes);
    uint64_t ms = draw_ms(w, 200, 2500);
    sim_world_say(w, "%" PRIu32 " disks are full", many);
    for (uint32_t i = 0; i < many; i++) {
        uint32_t place = (from + i) % w->n_nodes;
        sim_node_full(&w->nodes[place], true);
        w->nodes[place].disk.overstates = rng_chance(&w->rng, 500);
        in_ms(w, ms, disk_recovers, place);
    }
    return true;
}

/* One of the next operations of the node's disk fails, which ends the node; or one of the
 * next that store, sync or read a whole file, which are few. */
static bool disk_error(struct sim_world *w)
{
    struct sim_node *n = any_node(w);
    if (n == NULL) {
        return false;
    }
    uint64_t lot = rng_below(&w->rng, 10);
    n->disk.fail_kinds = lot < 4   ? 0
                         : lot < 7 ? 1U << PK_DISK_STORE
                         : lot < 9 ? 1U << PK_DISK_SYNC
                                   : 1U << PK_DISK_READ;
    n->disk.fail_in = (int)draw_ms(w, 1, lot < 4 ? 12 : lot < 9 ? 2 : 1);
    return true;
}

static void clear_away(void *self, uint64_t what, void *load)
{
    (void)load;
    struct sim_world *w = self;
    struct sim_node *n = &w->nodes[what % SIM_NODES_MAX];
    if (n->process.up && n->process.life == what / SIM_NODES_MAX) {
        sim_nemesis_crash(w, n);
    }
}

void sim_nemesis_stopped(void *world, uint32_t place)
{
    struct sim_world *w = world;
    struct sim_node *n = &w->nodes[place];
    sim_world_say(w, "node %" PRIu32 " ends: its %s", place + 1,
                  n->condition == SIM_SICK ? "state differs" : "disk failed");
    if (!n->process.paused) {
        sim_process_pause(&n->process);
    }
    in_ms(w, 0, clear_away, n->process.life * SIM_NODES_MAX + place);
}

/* ---- the network ---- */

static void heal_links(void *self, uint64_t unused, void *load)
{
    (void)unused;
    (void)load;
    struct sim_world *w = self;
    sim_world_say(w, "links are whole again");
    sim_net_heal(&w->net);
}

static void cut_both(struct sim_world *w, uint32_t a, uint32_t b)
{
    sim_net_cut(&w->net, a, b);
    sim_net_cut(&w->net, b, a);
}

static void heal_links_later(struct sim_world *w)
{
    in_ms(w, draw_ms(w, 100, 3500), heal_links, 0);
}

/* Clients stay with one side or the other. */
static bool halves(struct sim_world *w)
{
    uint64_t side = rng_next(&w->rng);
    sim_world_say(w, "a partition into halves");
    for (uint32_t a = 0; a < SIM_PLACES; a++) {
        for (uint32_t b = 0; b < a; b++) {
            if (((side >> a) & 1) != ((side >> b) & 1)) {
                cut_both(w, a, b);
            }
        }
    }
    heal_links_later(w);
    return true;
}

/* From the other nodes; clients may still reach it. */
static bool isolate_leader(struct sim_world *w)
{
    const struct sim_node *n = sim_world_leader(w);
    if (n == NULL) {
        return false;
    }
    uint64_t how = rng_below(&w->rng, 3); /* in, out, both */
    sim_world_say(w, "leader %" PRIu32 " is cut off (%" PRIu64 ")", n->place + 1, how);
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        if (i != n->place && how != 1) {
            sim_net_cut(&w->net, i, n->place);
        }
        if (i != n->place && how != 0) {
            sim_net_cut(&w->net, n->place, i);
        }
    }
    heal_links_later(w);
    return true;
}

static bool one_way(struct sim_world *w)
{
    uint32_t from = (uint32_t)rng_below(&w->rng, w->n_nodes);
    uint32_t to = (uint32_t)rng_below(&w->rng, w->n_nodes);
    sim_world_say(w, "nothing goes from %" PRIu32 " to %" PRIu32, from + 1, to + 1);
    sim_net_cut(&w->net, from, to);
    heal_links_later(w);
    return from != to;
}

static bool star(struct sim_world *w)
{
    uint32_t middle = (uint32_t)rng_below(&w->rng, w->n_nodes);
    sim_world_say(w, "all links but those of %" PRIu32 " are cut", middle + 1);
    for (uint32_t a = 0; a < w->n_nodes; a++) {
        for (uint32_t b = 0; b < a; b++) {
            if (a != middle && b != middle) {
                cut_both(w, a, b);
            }
        }
    }
    heal_links_later(w);
    return true;
}

static bool cut_client(struct sim_world *w)
{
    uint32_t client = SIM_NODES_MAX + (uint32_t)rng_below(&w->rng, w->n_clients);
    bool deaf = rng_chance(&w->rng, 500); /* it is heard, and hears nothing */
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        sim_net_cut(&w->net, i, client);
        if (!deaf) {
            sim_net_cut(&w->net, client, i);
        }
    }
    heal_links_later(w);
    return true;
}

static void calm_net(void *self, uint64_t unused, void *load)
{
    (void)unused;
    (void)load;
    struct sim_world *w = self;
    w->net.loss = 0;
    w->net.stall = 0;
    w->net.least_us = HEALTHY_LEAST_US;
    w->net.most_us = HEALTHY_MOST_US;
}

static bool loss(struct sim_world *w)
{
    w->net.loss = (uint32_t)draw_ms(w, 5, 300);
    in_ms(w, draw_ms(w, 200, 3000), calm_net, 0);
    return true;
}

static bool slow_net(struct sim_world *w)
{
    w->net.most_us = draw_ms(w, 5, 120) * SIM_MS;
    in_ms(w, draw_ms(w, 200, 3000), calm_net, 0);
    return true;
}

static bool stalls(struct sim_world *w)
{
    w->net.stall = (uint32_t)draw_ms(w, 1, 20);
    w->net.stall_us = draw_ms(w, 100, 2500) * SIM_MS;
    in_ms(w, draw_ms(w, 200, 3000), calm_net, 0);
    return true;
}

/* ---- clients ---- */

static void wake_client(void *self, uint64_t number, void *load)
{
    (void)load;
    struct sim_world *w = self;
    if (w->clients[number].process.paused) {
        sim_process_resume(&w->clients[number].process);
    }
}

static bool pause_client(struct sim_world *w)
{
    uint32_t number = (uint32_t)rng_below(&w->rng, w->n_clients);
    struct sim_client *cl = &w->clients[number];
    if (cl->process.paused) {
        return false;
    }
    uint64_t ms = draw_ms(w, cl->ttl_ms / 4, cl->ttl_ms * 2);
    sim_world_say(w, "client %" PRIu32 " is paused for %" PRIu64 " ms", number, ms);
    sim_process_pause(&cl->process);
    in_ms(w, ms, wake_client, number);
    return true;
}

/* ---- operators ---- */

static void take_in_again(void *self, uint64_t what, void *load)
{
    (void)load;
    struct sim_world *w = self;
    struct sim_node *n = &w->nodes[what % SIM_NODES_MAX];
    if (n->process.up && n->process.life == what / SIM_NODES_MAX) {
        pk_turn_resume(n->turn);
    }
}

/* Politely, so that nothing is left under way, or at once. */
static bool transfer(struct sim_world *w)
{
    struct sim_node *n = sim_world_leader(w);
    if (n == NULL) {
        return false;
    }
    sim_node_enter(n);
    if (rng_chance(&w->rng, 500)) {
        pk_turn_drain(n->turn);
        in_ms(w, draw_ms(w, 100, 1000), take_in_again,
              n->process.life * SIM_NODES_MAX + n->place);
    }
    bool begun = pk_replica_transfer(n->replica, 0) == NULL;
    sim_world_say(w, "leader %" PRIu32 " hands over: %d", n->place + 1, begun);
    sim_node_end_turn(n);
    return begun;
}

static bool join(struct sim_world *w)
{
    if (w->plan.joining != 0 || w->plan.replacing != 0 || !sim_losses_leave_a_place(w)) {
        return false;
    }
    sim_operator_join(w);
    return true;
}

static bool leave(struct sim_world *w)
{
    if (w->plan.leaving != 0 || sim_losses_count(w) > 0) {
        return false;
    }
    sim_operator_leave(w);
    return w->plan.leaving != 0;
}

static bool restore(struct sim_world *w)
{
    if (w->plan.backup != NULL) {
        return false;
    }
    sim_operator_restore(w);
    return w->plan.backup != NULL;
}

static bool damage(struct sim_world *w)
{
    return sim_losses_damage(w);
}

static bool wipe(struct sim_world *w)
{
    return sim_losses_wipe(w);
}

static bool sick(struct sim_world *w)
{
    return sim_losses_sicken(w);
}

/* Not one that strikes: see take_down_more. */
static bool stay_down(struct sim_world *w)
{
    (void)w;
    return false;
}

/* ---- drawing ---- */

static bool (*const faults[SIM_FAULT_COUNT])(struct sim_world *) = {
#define X(name, share, text) [SIM_FAULT_##name] = name,
    SIM_FAULTS(X)
#undef X
};

static void strike(void *self, uint64_t unused, void *load)
{
    (void)unused;
    (void)load;
    struct sim_world *w = self;
    if (w->healing) {
        return;
    }
    uint32_t which = (uint32_t)rng_below(&w->rng, SIM_FAULT_COUNT);
    for (uint32_t i = 0; i < SIM_FAULT_COUNT && !w->faults[which]; i++) {
        which = (which + 1) % SIM_FAULT_COUNT;
    }
    if (w->faults[which] && faults[which](w)) {
        w->totals->faults[which]++;
        sim_queue_note(&w->queue, which);
    }
    in_ms(w, draw_ms(w, w->fault_every_ms / 8, w->fault_every_ms), strike, 0);
}

void sim_nemesis_begin(struct sim_world *w)
{
    static const uint32_t shares[SIM_FAULT_COUNT] = {
#define X(name, share, text) share,
        SIM_FAULTS(X)
#undef X
    };
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++) {
        enum sim_choice choice = w->options.faults[i];
        bool drawn = rng_chance(&w->rng, shares[i]) && !w->options.only;
        w->faults[i] = choice == SIM_ALWAYS || (choice == SIM_DRAWN && drawn);
    }
    w->operator_is_away = w->faults[SIM_FAULT_stay_down] && !w->faults[SIM_FAULT_join] &&
                          !w->faults[SIM_FAULT_leave];
    w->fault_every_ms = draw_ms(w, 300, 3000);
    calm_net(w, 0, NULL);
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
        w->nodes[i].speed = good_disk;
    }
    in_ms(w, draw_ms(w, 200, 1500), strike, 0);
}

/* While the operator is away a minority of the first nodes stays broken: those that are
 * lost, then others that are stopped here. */
static void take_down_more(struct sim_world *w)
{
    uint32_t lost = sim_losses_in(w, SIM_DEAD) + sim_losses_in(w, SIM_SICK);
    uint32_t most = (w->n_first - 1) / 2;
    PK_ASSERT(lost <= most);
    w->totals->left_lost += lost;
    w->totals->faults[SIM_FAULT_stay_down] += lost;
    for (uint32_t i = 0; i < w->n_first && lost < most; i++) {
        struct sim_node *n = &w->nodes[i];
        bool is_counted = n->condition == SIM_DEAD || n->condition == SIM_SICK;
        if (!is_counted && (!n->process.up || rng_chance(&w->rng, 500))) {
            lost++;
            w->totals->faults[SIM_FAULT_stay_down]++;
            w->gone[i] = true;
            if (n->process.up) {
                sim_node_crash(n, false);
            }
        }
    }
}

static void start_again(struct sim_world *w, enum sim_condition condition)
{
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        const struct sim_node *n = &w->nodes[i];
        if (!n->process.up && !w->gone[i] && n->condition == condition) {
            sim_world_start_node(w, i);
        }
    }
}

void sim_nemesis_heal(struct sim_world *w)
{
    w->healing = true;
    sim_world_say(w, "everything is healed");
    sim_net_heal(&w->net);
    calm_net(w, 0, NULL);
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct sim_node *n = &w->nodes[i];
        disk_recovers(w, i, NULL);
        if (n->process.up && n->failed) {
            sim_node_crash(n, false);
        }
        if (n->process.up && n->process.paused) {
            sim_node_resume(n);
        }
    }
    start_again(w, SIM_DAMAGED); /* first: whoever is refused stays down */
    if (w->operator_is_away) {
        take_down_more(w);
    }
    start_again(w, SIM_SOUND);
    for (uint32_t i = 0; i < w->n_clients; i++) {
        if (w->clients[i].process.paused) {
            sim_process_resume(&w->clients[i].process);
        }
    }
}
