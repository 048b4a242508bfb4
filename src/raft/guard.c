/* SPDX-License-Identifier: MIT */
#include "raft/guard.h"

#include <stddef.h>

#include <raft.h>

#include "core/door.h"

enum { REMEMBERED = 16 };

/* A snapshot that is being loaded for somebody else. */
struct loading {
    struct raft_io_snapshot_get inner;
    struct raft_io_snapshot_get *outer;
    raft_io_snapshot_get_cb cb;
    struct pk_raft_guard *guard;
    struct loading *next;
};

struct pk_raft_guard {
    struct raft_io *io;
    struct raft_io original; /* the members as they were */
    struct raft *raft;
    raft_io_recv_cb receive;
    struct pk_raft_guard_switches off;
    struct pk_raft_guard_counts counts;
    struct loading *loading;
    struct { /* what was loaded last, oldest overwritten first */
        raft_index index;
        raft_term term;
    } loaded[REMEMBERED];
    unsigned n_loaded;
};

/* The library keeps itself in io->data, and leaves raft->data to us. */
static struct pk_raft_guard *guard_of(const struct raft_io *io)
{
    return ((struct raft *)io->data)->data;
}

/* ---- G1, G2, G4, G5 and G9: what comes in ---- */

static bool would_crash(const struct pk_raft_guard *g, const struct raft_message *m)
{
    return m->type == RAFT_INSTALL_SNAPSHOT && !g->off.no_g1 &&
           (g->raft->legacy.snapshot_taking || g->raft->snapshot.installing);
}

static bool would_go_back(const struct pk_raft_guard *g, const struct raft_message *m)
{
    if (m->type != RAFT_APPEND_ENTRIES || g->off.no_g2) {
        return false;
    }
    const struct raft_append_entries *a = &m->append_entries;
    raft_index ours = raft_commit_index(g->raft);
    return a->prev_log_index + a->n_entries < ours && a->leader_commit > ours;
}

/* How many entries may stay together: up to the first configuration but for the first
 * entry. All of them are in one block of memory, which the library frees as a whole. */
static unsigned entries_before_change(const struct raft_append_entries *a)
{
    unsigned n = a->n_entries < 1 ? 0 : 1;
    while (n < a->n_entries && a->entries[n].type != RAFT_CHANGE) {
        n++;
    }
    return n;
}

static void cut_before_change(struct pk_raft_guard *g, struct raft_message *m)
{
    if (m->type != RAFT_APPEND_ENTRIES || g->off.no_g4) {
        return;
    }
    unsigned n = entries_before_change(&m->append_entries);
    if (n < m->append_entries.n_entries) {
        g->counts.g4++;
        m->append_entries.n_entries = n;
    }
}

static bool is_late_vote(const struct pk_raft_guard *g, const struct raft_message *m)
{
    return m->type == RAFT_REQUEST_VOTE_RESULT && !g->off.no_g5 &&
           raft_state(g->raft) != RAFT_CANDIDATE;
}

/* ---- G8: asked for a vote before we know that we have one ---- */

/* What the library knows of this node, if that is not that it votes; else NULL. */
static struct raft_server *own_role(const struct pk_raft_guard *g)
{
    struct raft_configuration *c = &g->raft->configuration;
    for (unsigned i = 0; i < c->n; i++) {
        if (c->servers[i].id == g->raft->id) {
            return c->servers[i].role == RAFT_VOTER ? NULL : &c->servers[i];
        }
    }
    return NULL;
}

static bool hears_no_leader(const struct pk_raft_guard *g)
{
    raft_time (*clock)(struct raft_io *) = g->io->time;
    return clock(g->io) - g->raft->election_timer_start >= g->raft->election_timeout;
}

/* True: the message has been dealt with. */
static bool vote_all_the_same(struct pk_raft_guard *g, struct raft_message *m)
{
    bool asked = m->type == RAFT_REQUEST_VOTE && !g->off.no_g8;
    struct raft_server *own = asked ? own_role(g) : NULL;
    if (own == NULL || !hears_no_leader(g)) {
        return false;
    }
    int role = own->role;
    g->counts.g8++;
    own->role = RAFT_VOTER;
    m->request_vote.disrupt_leader = true;
    g->receive(g->io, m); /* a vote changes no configuration */
    own->role = role;
    return true;
}

/* ---- G9: snapshots of another term ---- */

static bool is_old_snapshot(const struct pk_raft_guard *g, const struct raft_message *m)
{
    return m->type == RAFT_INSTALL_SNAPSHOT && !g->off.no_g9 &&
           m->install_snapshot.term < raft_current_term(g->raft);
}

static void drop_snapshot(struct raft_message *m)
{
    raft_configuration_close(&m->install_snapshot.conf);
    raft_free(m->install_snapshot.data.base);
}

static void receive_guarded(struct raft_io *io, struct raft_message *m)
{
    struct pk_raft_guard *g = guard_of(io);
    if (is_late_vote(g, m)) {
        g->counts.g5++;
        return;
    }
    if (would_crash(g, m)) {
        g->counts.g1++;
        drop_snapshot(m);
        return;
    }
    if (is_old_snapshot(g, m)) {
        g->counts.g9++;
        drop_snapshot(m);
        return;
    }
    if (vote_all_the_same(g, m)) {
        return;
    }
    cut_before_change(g, m);
    if (would_go_back(g, m)) {
        g->counts.g2++;
        m->append_entries.leader_commit = raft_commit_index(g->raft);
    }
    g->receive(io, m);
}

static int start_guarded(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                         raft_io_recv_cb receive)
{
    struct pk_raft_guard *g = guard_of(io);
    g->receive = receive;
    return g->original.start(io, msecs, tick, receive_guarded);
}

/* ---- G3: the snapshots that were loaded ---- */

static void drop_loading(struct pk_raft_guard *g, struct loading *l)
{
    struct loading **at = &g->loading;
    while (*at != l) {
        at = &(*at)->next;
    }
    *at = l->next;
    pk_door_resize(l, 0);
}

static void loaded(struct raft_io_snapshot_get *inner, struct raft_snapshot *s,
                   int status)
{
    struct loading *l = inner->data;
    struct pk_raft_guard *g = l->guard;
    struct raft_io_snapshot_get *outer = l->outer;
    raft_io_snapshot_get_cb cb = l->cb;
    drop_loading(g, l);
    if (status == 0) {
        unsigned at = g->n_loaded++ % REMEMBERED;
        g->loaded[at].index = s->index;
        g->loaded[at].term = s->term;
    }
    cb(outer, s, status);
}

static int snapshot_get_guarded(struct raft_io *io, struct raft_io_snapshot_get *req,
                                raft_io_snapshot_get_cb cb)
{
    struct pk_raft_guard *g = guard_of(io);
    struct loading *l = pk_door_resize(NULL, sizeof *l);
    *l = (struct loading){.outer = req, .cb = cb, .guard = g, .next = g->loading};
    l->inner.data = l;
    g->loading = l;
    req->cb = cb;
    int rv = g->original.snapshot_get(io, &l->inner, loaded);
    if (rv != 0) {
        drop_loading(g, l);
    }
    return rv;
}

/* 0: a snapshot that was never loaded. */
static raft_term term_of(const struct pk_raft_guard *g, raft_index index)
{
    for (unsigned i = 0; i < REMEMBERED; i++) {
        if (g->loaded[i].index == index) {
            return g->loaded[i].term;
        }
    }
    return 0;
}

/* ---- G3, G6 and G10: what goes out ---- */

/* The address of that member as it is now; NULL: there is no such member. */
static const char *address_of(const struct pk_raft_guard *g, raft_id id)
{
    const struct raft_configuration *c = &g->raft->configuration;
    for (unsigned i = 0; i < c->n; i++) {
        if (c->servers[i].id == id) {
            return c->servers[i].address;
        }
    }
    return NULL;
}

/* The old address must not be read, only compared. False: nobody gets the message. */
static bool mend_address(struct pk_raft_guard *g, struct raft_message *m)
{
    const char *address = address_of(g, m->server_id);
    if (!g->off.no_g10 && address != m->server_address) {
        g->counts.g10++;
        m->server_address = address;
    }
    return g->off.no_g10 || address != NULL;
}

static void mend_snapshot(struct pk_raft_guard *g, struct raft_install_snapshot *s)
{
    raft_term term = g->off.no_g3 ? 0 : term_of(g, s->last_index);
    if (term != 0 && term != s->last_term) {
        g->counts.g3++;
        s->last_term = term;
    }
}

static void mend_refusal(struct pk_raft_guard *g, struct raft_request_vote_result *v)
{
    raft_term term = raft_current_term(g->raft);
    if (!g->off.no_g6 && !v->vote_granted && v->term < term) {
        g->counts.g6++;
        v->term = term;
    }
}

static int send_guarded(struct raft_io *io, struct raft_io_send *req,
                        const struct raft_message *m, raft_io_send_cb cb)
{
    struct pk_raft_guard *g = guard_of(io);
    struct raft_message mended = *m;
    if (m->type == RAFT_INSTALL_SNAPSHOT) {
        mend_snapshot(g, &mended.install_snapshot);
        if (!mend_address(g, &mended)) {
            cb(req, RAFT_CANCELED);
            return 0;
        }
    } else if (m->type == RAFT_REQUEST_VOTE_RESULT) {
        mend_refusal(g, &mended.request_vote_result);
    }
    return g->original.send(io, req, &mended, cb);
}

/* ---- G7: snapshots of our own ---- */

/* A configuration that the library takes for uncommitted is not, when the snapshot is of
 * entries behind it. */
static bool has_old_configuration(const struct pk_raft_guard *g,
                                  const struct raft_snapshot *s)
{
    raft_index newer = g->raft->configuration_uncommitted_index;
    return !g->off.no_g7 && newer > s->configuration_index && newer <= s->index;
}

static int snapshot_put_guarded(struct raft_io *io, unsigned trailing,
                                struct raft_io_snapshot_put *req,
                                const struct raft_snapshot *snapshot,
                                raft_io_snapshot_put_cb cb)
{
    struct pk_raft_guard *g = guard_of(io);
    bool received = trailing == 0;
    if (received || !has_old_configuration(g, snapshot)) {
        return g->original.snapshot_put(io, trailing, req, snapshot, cb);
    }
    /* It is the library's, which keeps it until it is written. The configuration is read
     * during the call; then the library has its own back, to free it. */
    struct raft_snapshot *own = (struct raft_snapshot *)snapshot;
    struct raft_snapshot before = *own;
    g->counts.g7++;
    own->configuration = g->raft->configuration;
    own->configuration_index = g->raft->configuration_uncommitted_index;
    int rv = g->original.snapshot_put(io, trailing, req, own, cb);
    own->configuration = before.configuration;
    own->configuration_index = before.configuration_index;
    return rv;
}

/* ---- putting it in and taking it out ---- */

struct pk_raft_guard *pk_raft_guard_install(struct raft_io *io, struct raft *raft,
                                            struct pk_raft_guard_switches off)
{
    struct pk_raft_guard *g = pk_door_resize(NULL, sizeof *g);
    *g = (struct pk_raft_guard){.io = io, .original = *io, .raft = raft, .off = off};
    raft->data = g;
    io->start = start_guarded;
    io->send = send_guarded;
    io->snapshot_get = snapshot_get_guarded;
    io->snapshot_put = snapshot_put_guarded;
    return g;
}

struct pk_raft_guard_counts pk_raft_guard_counts(const struct pk_raft_guard *g)
{
    return g->counts;
}

void pk_raft_guard_free(struct pk_raft_guard *g)
{
    while (g->loading != NULL) {
        drop_loading(g, g->loading);
    }
    g->io->start = g->original.start;
    g->io->send = g->original.send;
    g->io->snapshot_get = g->original.snapshot_get;
    g->io->snapshot_put = g->original.snapshot_put;
    pk_door_resize(g, 0);
}
