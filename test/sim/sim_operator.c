/* SPDX-License-Identifier: MIT */
/*
 * The operator: lets nodes join and leave, replaces lost ones, puts backups back. Goes
 * towards its aim step by step, by whoever leads at the moment, and tries again when a
 * step came to nothing.
 */
#include <inttypes.h>

#include "core/door.h"
#include "sim_world.h"

enum { LOOK_MS = 120, PIECES = 3, VOTERS_LEAST = 3, SLICE_BYTES = 512 };

static void look(void *self, uint64_t unused, void *load);

static void look_later(struct sim_world *w)
{
    sim_process_at(&w->fate, w->queue.now_us + LOOK_MS * SIM_MS, look, 0, NULL);
}

void sim_operator_begin(struct sim_world *w)
{
    static const enum sim_fault concern[] = {
        SIM_FAULT_join,   SIM_FAULT_leave, SIM_FAULT_restore,
        SIM_FAULT_damage, SIM_FAULT_wipe,  SIM_FAULT_sick,
    };
    bool any = false;
    for (size_t i = 0; i < sizeof concern / sizeof *concern; i++) {
        any = any || w->faults[concern[i]];
    }
    if (any) {
        look_later(w);
    }
}

void sim_operator_free(struct sim_world *w)
{
    pk_door_resize(w->plan.backup, 0);
    w->plan.backup = NULL;
    w->plan.source = NULL;
}

/* ---- members ---- */

/* The member with that id as the leader knows it; NULL: none. */
static const struct pk_member *find(const struct pk_member *m, size_t n, uint64_t id)
{
    for (size_t i = 0; i < n; i++) {
        if (m[i].id == id) {
            return &m[i];
        }
    }
    return NULL;
}

static void changed(void *ctx, const char *wrong)
{
    struct sim_world *w = ctx;
    sim_world_say(w, "the change is done: %s", wrong == NULL ? "yes" : wrong);
    w->plan.changing = false;
    w->plan.confirmed = wrong == NULL;
}

static void change(struct sim_world *w, struct sim_node *leader, enum pk_change what,
                   uint32_t place)
{
    struct pk_member m = sim_node_member(place);
    struct sim_plan *o = &w->plan;
    sim_node_enter(leader);
    o->confirmed = false;
    o->changing = true;
    o->changer = leader;
    o->changing_life = leader->process.life;
    const char *wrong =
        pk_replica_change(leader->replica, what, m.id, m.address, changed, w);
    sim_world_say(w, "change %d of node %" PRIu32 ": %s", (int)what, place + 1,
                  wrong == NULL ? "begun" : wrong);
    if (wrong != NULL) {
        o->changing = false;
    }
    sim_node_end_turn(leader);
}

/* A change whose leader has crashed is told by nobody. */
static bool is_changing(const struct sim_plan *o)
{
    return o->changing && o->changer->process.up &&
           o->changer->process.life == o->changing_life;
}

static void joined(struct sim_world *w)
{
    uint32_t lost = w->plan.replacing;
    w->totals->joined += lost == 0;
    w->totals->replaced += lost != 0;
    w->plan.replacing = 0;
    if (lost != 0) {
        w->nodes[lost - 1].condition = SIM_REPLACED;
    }
}

static void go_on_joining(struct sim_world *w, struct sim_node *leader,
                          const struct pk_member *members, size_t n)
{
    uint32_t place = w->plan.joining - 1;
    const struct pk_member *m = find(members, n, place + 1);
    if (m == NULL) {
        change(w, leader, PK_CHANGE_ADD, place);
    } else if (m->role == PK_MEMBER_SPARE) {
        change(w, leader, PK_CHANGE_STANDBY, place);
    } else if (m->role == PK_MEMBER_STANDBY) {
        change(w, leader, PK_CHANGE_VOTER, place);
    } else if (w->plan.confirmed) {
        w->plan.joining = 0;
        joined(w);
    } else {
        w->plan.confirmed = true; /* it stands; the next look may go on */
    }
}

/* The cluster does not know the node any more. */
static void left(struct sim_world *w, uint32_t place)
{
    struct sim_node *n = &w->nodes[place];
    w->plan.leaving = 0;
    w->gone[place] = true;
    if (n->process.up) {
        sim_node_crash(n, false);
    }
    if (w->plan.replacing == 0) {
        w->totals->left++;
        n->condition = SIM_REPLACED; /* whatever it was, it is not lost */
        return;
    }
    if (w->successor[place] == 0) {
        w->successor[place] = sim_world_add_node(w) + 1;
    }
    w->plan.joining = w->successor[place];
}

/* Removes a lost node first, as its place may be needed; then another one joins. */
static bool begin_replacing(struct sim_world *w)
{
    struct sim_plan *o = &w->plan;
    for (uint32_t i = 0; i < w->n_nodes && !w->operator_is_away; i++) {
        const struct sim_node *n = &w->nodes[i];
        bool comes_back = !n->has_started && w->successor[i] == 0 && !w->healing;
        if (n->condition == SIM_DEAD && !comes_back) {
            sim_world_say(w, "node %" PRIu32 " shall be replaced", i + 1);
            o->replacing = o->leaving = i + 1;
            o->confirmed = false;
            return true;
        }
    }
    return false;
}

static void go_on_leaving(struct sim_world *w, struct sim_node *leader,
                          const struct pk_member *members, size_t n)
{
    struct sim_plan *o = &w->plan;
    uint32_t place = o->leaving - 1;
    if (find(members, n, place + 1) == NULL) {
        if (o->confirmed) {
            left(w, place);
        }
        o->confirmed = true;
    } else if (leader->place == place) {
        sim_node_enter(leader);
        pk_replica_transfer(leader->replica, 0);
        sim_node_end_turn(leader);
    } else {
        change(w, leader, PK_CHANGE_REMOVE, place);
    }
}

/* A new node with an empty disk and an id that nobody had before. */
void sim_operator_join(struct sim_world *w)
{
    w->plan.joining = sim_world_add_node(w) + 1;
    sim_world_say(w, "node %" PRIu32 " shall join", w->plan.joining);
}

void sim_operator_leave(struct sim_world *w)
{
    struct pk_member members[PK_MEMBERS_MAX];
    struct sim_node *leader = sim_world_leader(w);
    if (leader == NULL || w->plan.joining != 0) {
        return;
    }
    size_t n = pk_replica_members(leader->replica, members, NULL);
    if (n > VOTERS_LEAST) {
        const struct pk_member *m = &members[rng_below(&w->rng, n)];
        w->plan.leaving = (uint32_t)m->id;
        sim_world_say(w, "node %" PRIu64 " shall leave", m->id);
    }
}

/* ---- backups ---- */

/* Of any node that is sound, the leader or a follower, which may lag. */
void sim_operator_restore(struct sim_world *w)
{
    struct sim_plan *o = &w->plan;
    struct sim_node *n = &w->nodes[rng_below(&w->rng, w->n_nodes)];
    struct pk_backup_of of;
    if (!n->process.up || n->replica == NULL || n->failed || n->condition != SIM_SOUND) {
        return;
    }
    sim_node_enter(n);
    if (pk_replica_backup_begin(n->replica, &of)) {
        o->source = n;
        o->source_life = n->process.life;
        o->backup = pk_door_resize(NULL, SLICE_BYTES);
        o->backup_len = o->restored = 0;
        o->restore_us = w->queue.now_us + rng_between(&w->rng, 300, 4000) * SIM_MS;
        sim_world_say(w, "a backup of node %" PRIu32 " is begun", n->place + 1);
    }
}

/* One slice of it, while the node goes on. */
static void go_on_backing_up(struct sim_world *w)
{
    struct sim_plan *o = &w->plan;
    struct sim_node *n = o->source;
    if (!n->process.up || n->process.life != o->source_life || n->failed) {
        sim_operator_free(w); /* it went with its process */
        return;
    }
    if (n->process.paused) {
        return;
    }
    size_t len = 0;
    enum pk_source_state got = PK_SOURCE_GONE;
    sim_node_enter(n);
    if (n->condition == SIM_SOUND) {
        o->backup = pk_door_resize(o->backup, o->backup_len + SLICE_BYTES);
        got = pk_replica_backup_read(n->replica, o->backup + o->backup_len, SLICE_BYTES,
                                     &len);
    }
    o->backup_len += len;
    if (got == PK_SOURCE_MORE) {
        return;
    }
    pk_replica_backup_end(n->replica);
    o->source = NULL;
    if (got == PK_SOURCE_END) {
        sim_world_say(w, "a backup is taken");
    } else {
        sim_operator_free(w);
    }
}

static void go_on_restoring(struct sim_world *w, struct sim_node *leader)
{
    struct sim_plan *o = &w->plan;
    size_t piece = o->backup_len / PIECES + 1;
    size_t left = o->backup_len - o->restored;
    const struct pk_ticket nobody = {0, 0};
    sim_node_enter(leader);
    if (left > 0) {
        size_t len = left < piece ? left : piece;
        if (pk_turn_add_restore(leader->turn, pk_bytes(o->backup + o->restored, len),
                                o->restored, nobody)) {
            o->restored += len;
        }
    } else if (pk_turn_add_adopt(leader->turn, nobody)) {
        sim_world_say(w, "the backup is put back");
        sim_operator_free(w);
    }
    sim_node_end_turn(leader);
}

/* ---- looking ---- */

static void look(void *self, uint64_t unused, void *load)
{
    (void)unused;
    (void)load;
    struct sim_world *w = self;
    struct sim_plan *o = &w->plan;
    struct sim_node *leader = sim_world_leader(w);
    look_later(w);
    if (o->source != NULL) {
        go_on_backing_up(w);
    }
    if (leader == NULL || is_changing(o)) {
        return;
    }
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(leader->replica, members, NULL);
    if (o->joining != 0) {
        go_on_joining(w, leader, members, n);
    } else if (o->leaving != 0) {
        go_on_leaving(w, leader, members, n);
    } else if (begin_replacing(w)) {
        return; /* the next look goes on */
    } else if (o->backup != NULL && o->source == NULL &&
               w->queue.now_us >= o->restore_us && !w->healing) {
        go_on_restoring(w, leader);
    }
}
