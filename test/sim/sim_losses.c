/* SPDX-License-Identifier: MIT */
/*
 * Nodes that are lost: damaged and wiped disks, states that differ.
 *
 * A node counts as lost from the fault on until another one has taken its place. Only a
 * minority of the voters is lost at a time, because P3 is not promised beyond that.
 */
#include <inttypes.h>

#include "core/door.h"
#include "sim_world.h"

enum { LEADER_SHARE = 350, IMPORTANT_SHARE = 600 }; /* of a thousand */

static bool is_lost(const struct sim_world *w, uint32_t place)
{
    switch (w->nodes[place].condition) {
    case SIM_DAMAGED:
        return !w->gone[place];
    case SIM_SICK:
    case SIM_DEAD:
        return true;
    default:
        return false;
    }
}

uint32_t sim_losses_count(const struct sim_world *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        n += is_lost(w, i);
    }
    return n;
}

uint32_t sim_losses_in(const struct sim_world *w, enum sim_condition condition)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        n += w->nodes[i].condition == condition;
    }
    return n;
}

bool sim_losses_leave_a_place(const struct sim_world *w)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        wanted += is_lost(w, i) && w->successor[i] == 0;
    }
    return w->n_nodes + wanted < SIM_NODES_MAX;
}

/* ---- choosing ---- */

static bool can_be_lost(const struct sim_world *w, const struct pk_member *m)
{
    const struct sim_node *n = &w->nodes[m->id - 1];
    return m->role == PK_MEMBER_VOTER && n->condition == SIM_SOUND && n->process.up &&
           !n->process.paused && !n->failed;
}

/* A voter that may be lost now; NULL: none. */
static struct sim_node *choose(struct sim_world *w)
{
    struct pk_member members[PK_MEMBERS_MAX];
    struct sim_node *leader = sim_world_leader(w);
    bool others_change =
        w->plan.replacing == 0 && (w->plan.joining != 0 || w->plan.leaving != 0);
    if (leader == NULL || others_change || !sim_losses_leave_a_place(w)) {
        return NULL;
    }
    size_t n = pk_replica_members(leader->replica, members, NULL);
    uint32_t voters = 0;
    for (size_t i = 0; i < n; i++) {
        voters += members[i].role == PK_MEMBER_VOTER;
    }
    if (2 * (sim_losses_count(w) + 1) >= voters) {
        return NULL;
    }
    bool wants_leader = rng_chance(&w->rng, LEADER_SHARE);
    size_t from = (size_t)rng_below(&w->rng, n);
    struct sim_node *found = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct pk_member *m = &members[(from + i) % n];
        bool leads = m->id == leader->place + 1;
        if (can_be_lost(w, m) && (found == NULL || (wants_leader && leads))) {
            found = &w->nodes[m->id - 1];
        }
    }
    return found;
}

/* ---- faults ---- */

/* Any file, and more often one without which a start can't do. */
static struct sim_file *choose_file(struct sim_world *w, struct sim_disk *d)
{
    bool important = rng_chance(&w->rng, IMPORTANT_SHARE);
    uint32_t from = (uint32_t)rng_below(&w->rng, d->n_files);
    for (uint32_t i = 0; i < d->n_files && important; i++) {
        struct sim_file *f = &d->files[(from + i) % d->n_files];
        if (f->name[0] == 'l' || f->name[1] == 'e') { /* log-..., meta */
            return f;
        }
    }
    return &d->files[from];
}

bool sim_losses_damage(struct sim_world *w)
{
    static const char *const words[SIM_DAMAGES] = {
        [SIM_FLIP] = "a bit is flipped",
        [SIM_ZERO] = "a sector is zeroed",
        [SIM_CUT] = "the end is cut off",
        [SIM_LOSE] = "the file is lost",
    };
    struct sim_node *n = choose(w);
    if (n == NULL) {
        return false;
    }
    sim_nemesis_crash(w, n);
    enum sim_damage how = (enum sim_damage)rng_below(&w->rng, SIM_DAMAGES);
    struct sim_file *f = choose_file(w, &n->disk);
    sim_world_say(w, "raft/%s of node %" PRIu32 ": %s", f->name, n->place + 1,
                  words[how]);
    sim_disk_damage(&n->disk, f, how, &w->rng);
    n->condition = SIM_DAMAGED;
    return true;
}

/* Its id went with its directory: it comes back as a node that nobody knows. */
static void start_as_stranger(void *self, uint64_t place, void *load)
{
    (void)load;
    struct sim_world *w = self;
    if (!w->healing && w->successor[place] == 0) {
        w->successor[place] = sim_world_add_node(w) + 1;
        w->totals->strangers++;
    }
}

bool sim_losses_wipe(struct sim_world *w)
{
    struct sim_node *n = choose(w);
    if (n == NULL) {
        return false;
    }
    sim_world_say(w, "the disk of node %" PRIu32 " is wiped", n->place + 1);
    sim_nemesis_crash(w, n);
    sim_node_wipe(n);
    if (!w->options.old_identity) {
        n->condition = SIM_DEAD;
        uint64_t in_us = rng_between(&w->rng, 20, 3000) * SIM_MS;
        sim_process_at(&w->fate, w->queue.now_us + in_us, start_as_stranger, n->place,
                       NULL);
    }
    return true;
}

bool sim_losses_sicken(struct sim_world *w)
{
    struct sim_node *n = choose(w);
    if (n == NULL) {
        return false;
    }
    sim_world_say(w, "the state of node %" PRIu32 " goes astray", n->place + 1);
    sim_node_sicken(n);
    return true;
}
