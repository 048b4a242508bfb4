/* SPDX-License-Identifier: MIT */
/* A replica's life, its standing, and proposals. state.c runs the entries. */
#include "raft/replica.h"

#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/version.h"
#include "host/memory.h"
#include "raft/inside.h"

enum {
    ELECTION_MS = 300,
    HEARTBEATS = 10, /* within one election timeout */
    INSTALL_SNAPSHOT_MS = 5000,
    ENTRIES_MAX = 1 << 30, /* as good as no limit */
    ROOM_LEAST = 1024,
};

void pk_replica_break(struct pk_replica *r, const char *why)
{
    if (r->broken) {
        return;
    }
    snprintf(r->why, sizeof r->why, "%s", why);
    r->broken = true;
    if (!r->starting) {
        r->hooks.broken(r->hooks.ctx, r->why);
    }
}

/* Why something was just refused: in the words of our disk, or else in the library's. */
static const char *refusal(struct pk_replica *r, const char *what, int rv)
{
    const char *said = r->io->errmsg;
    said = said[0] != '\0' ? said : raft_errmsg(&r->raft);
    said = said[0] != '\0' ? said : raft_strerror(rv);
    snprintf(r->why, sizeof r->why, "%s: %s", what, said);
    return r->why;
}

/* ---- libraft ---- */

static void on_trace(struct raft_tracer *t, int type, const void *info)
{
    struct pk_replica *r = t->impl;
    const struct raft_tracer_info *i = info;
    if (type == RAFT_TRACER_DIAGNOSTIC) {
        r->hooks.trace(r->hooks.ctx, i->diagnostic.level, i->diagnostic.message);
    }
}

/* ---- life ---- */

static void settle(struct raft *raft, const struct pk_replica_options *o)
{
    unsigned election = o->election_ms != 0 ? o->election_ms : ELECTION_MS;
    raft_set_election_timeout(raft, election);
    raft_set_heartbeat_timeout(raft, election / HEARTBEATS);
    raft_set_install_snapshot_timeout(raft, INSTALL_SNAPSHOT_MS);
    raft_set_pre_vote(raft, true);
    raft_set_snapshot_threshold(raft, o->threshold != 0 ? o->threshold : ENTRIES_MAX);
    raft_set_snapshot_trailing(raft, o->trailing != 0 ? o->trailing : ENTRIES_MAX);
    raft_set_capacity_threshold(raft, o->reserve);
    if (o->seed != 0) {
        raft_seed(raft, o->seed);
    }
}

void pk_replica_let_go(struct pk_replica *r)
{
    if (r->use != NULL && !r->raft.legacy.snapshot_taking) {
        raft_set_snapshot_trailing(&r->raft, 1);
        raft_set_snapshot_threshold(&r->raft, 1);
    }
}

/* libraft counts entries. What is limited is bytes: so its counts are set anew, from the
 * bytes that the log has now. While a snapshot is being written, the count to keep stays,
 * because libraft reads it again at the end. */
static void bound_log(struct pk_replica *r)
{
    unsigned threshold = r->threshold != 0 ? r->threshold : ENTRIES_MAX;
    if (r->use == NULL || r->broken || r->closing) {
        return;
    }
    struct pk_log_use use = r->use(r->use_ctx);
    r->waits = use.waits;
    if (r->raft.legacy.snapshot_taking) {
        raft_set_snapshot_threshold(&r->raft, threshold); /* one is enough */
        return;
    }
    if (use.snapshot < r->lowered_at) {
        pk_replica_let_go(r);
        return;
    }
    uint64_t applied = raft_last_applied(&r->raft);
    uint64_t kept = applied >= use.keep_from ? applied - use.keep_from + 1 : 1;
    unsigned most = r->trailing != 0 ? r->trailing : ENTRIES_MAX;
    raft_set_snapshot_trailing(&r->raft, kept < most ? (unsigned)kept : most);
    raft_set_snapshot_threshold(&r->raft, use.wants ? 1 : threshold);
}

bool pk_replica_should_wait(const struct pk_replica *r)
{
    return r->waits;
}

void pk_replica_poll(struct pk_replica *r)
{
    pk_members_poll(r);
    bound_log(r);
    pk_garbage_free_some(&r->garbage);
}

uint32_t pk_replica_data_version(const struct pk_replica *r)
{
    uint64_t snapshot = r->use == NULL ? 0 : r->use(r->use_ctx).snapshot;
    return snapshot < r->lowered_at ? r->lowered_from
                                    : pk_machine_version(r->state.machine);
}

struct pk_replica *pk_replica_new(struct raft_io *io, const struct pk_replica_options *o,
                                  const struct pk_replica_hooks *hooks, char *why,
                                  size_t size)
{
    struct pk_replica *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct pk_replica){.io = io,
                             .hooks = *hooks,
                             .origin = o->origin,
                             .use = o->use,
                             .use_ctx = o->use_ctx,
                             .threshold = o->threshold,
                             .trailing = o->trailing};
    r->tracer = (struct raft_tracer){.impl = r, .version = 2, .emit = on_trace};
    r->end_of_requests = &r->first_request;
    pk_state_open(r);
    r->guard = pk_raft_guard_install(io, &r->raft, o->guards_off);
    int rv = raft_init(&r->raft, io, &r->fsm, o->id, o->address);
    if (rv != 0) {
        snprintf(why, size, "%s", refusal(r, "the log can't be opened", rv));
        pk_replica_free(r);
        return NULL;
    }
    r->raft.tracer = hooks->trace == NULL ? NULL : &r->tracer;
    settle(&r->raft, o);
    return r;
}

const char *pk_replica_bootstrap(struct pk_replica *r, const struct pk_member *members,
                                 size_t n)
{
    static const int roles[] = {
        [PK_MEMBER_VOTER] = RAFT_VOTER,
        [PK_MEMBER_STANDBY] = RAFT_STANDBY,
        [PK_MEMBER_SPARE] = RAFT_SPARE,
    };
    if (n > PK_MEMBERS_MAX) {
        return "a cluster has at most 16 members";
    }
    struct raft_configuration conf;
    raft_configuration_init(&conf);
    int rv = 0;
    for (size_t i = 0; i < n && rv == 0; i++) {
        rv = raft_configuration_add(&conf, members[i].id, members[i].address,
                                    roles[members[i].role]);
    }
    if (rv == 0) {
        rv = raft_bootstrap(&r->raft, &conf);
    }
    raft_configuration_close(&conf);
    bool settled =
        rv == 0 || rv == RAFT_CANTBOOTSTRAP; /* the latter: has a log already */
    return settled ? NULL : refusal(r, "the first configuration can't be stored", rv);
}

const char *pk_replica_start(struct pk_replica *r)
{
    r->starting = true;
    int rv = raft_start(&r->raft);
    r->starting = false;
    if (r->broken) {
        return r->why;
    }
    return rv == 0 ? NULL : refusal(r, "the node can't start", rv);
}

static void on_closed(struct raft *raft)
{
    struct pk_replica *r = raft->fsm->data;
    r->closed(r->closed_ctx);
}

void pk_replica_close(struct pk_replica *r, void (*closed)(void *ctx), void *ctx)
{
    PK_ASSERT(!r->closing);
    r->closing = true;
    r->closed = closed;
    r->closed_ctx = ctx;
    pk_members_close(r);
    raft_close(&r->raft, on_closed);
}

static void free_requests(struct pk_request *q)
{
    while (q != NULL) {
        struct pk_request *next = q->next;
        pk_door_resize(q, 0);
        q = next;
    }
}

void pk_replica_free(struct pk_replica *r)
{
    free_requests(r->first_request);
    free_requests(r->spare_requests);
    raft_free(r->room);
    pk_state_free(r);
    pk_raft_guard_free(r->guard);
    pk_door_resize(r, 0);
}

static void close_at_once(struct raft_io *io, raft_io_close_cb cb)
{
    cb(io);
}

void pk_replica_abandon(struct pk_replica *r)
{
    void (*close)(struct raft_io *, raft_io_close_cb) = r->io->close;
    r->io->close = close_at_once;
    raft_close(&r->raft, NULL);
    r->io->close = close;
    pk_replica_free(r);
}

/* ---- what it knows ---- */

struct pk_machine *pk_replica_machine(struct pk_replica *r)
{
    return r->state.machine;
}

struct pk_standing pk_replica_standing(struct pk_replica *r)
{
    enum raft_state state = raft_state(&r->raft);
    raft_id leader = 0;
    const char *address = NULL;
    raft_leader(&r->raft, &leader, &address);
    return (struct pk_standing){
        .leader = state == RAFT_LEADER && !r->broken && !r->closing,
        .candidate = state == RAFT_CANDIDATE,
        .term = raft_current_term(&r->raft),
        .leader_id = leader,
        .last_index = raft_last_index(&r->raft),
        .commit_index = raft_commit_index(&r->raft),
        .applied_index = raft_last_applied(&r->raft),
        .transferring = raft_transferee(&r->raft) != 0,
    };
}

struct pk_raft_guard_counts pk_replica_guard_counts(const struct pk_replica *r)
{
    return pk_raft_guard_counts(r->guard);
}

/* ---- proposing ---- */

unsigned char *pk_replica_room(struct pk_replica *r, size_t body)
{
    size_t size = pk_entry_size(body);
    if (r->room == NULL || size > r->room_size) {
        size_t least = r->room == NULL ? r->last_size : 2 * r->room_size;
        size_t wanted = size > least ? size : least;
        wanted = wanted > ROOM_LEAST ? wanted : ROOM_LEAST;
        unsigned char *room = raft_realloc(r->room, wanted);
        pk_memory_need(room);
        r->room = room;
        r->room_size = wanted;
    }
    return r->room + PK_ENTRY_HEAD;
}

/* The library lets go of a request when its entry has been applied or leadership is lost;
 * until then it is linked into a ring (next, previous) of requests, all of them ours. */
static bool is_free(const struct pk_request *q)
{
    void *const *previous = q->apply.queue[1];
    return previous[0] != &q->apply.queue;
}

static struct pk_request *spare_request(struct pk_replica *r)
{
    while (r->first_request != NULL && is_free(r->first_request)) {
        struct pk_request *q = r->first_request;
        r->first_request = q->next;
        q->next = r->spare_requests;
        r->spare_requests = q;
    }
    if (r->first_request == NULL) {
        r->end_of_requests = &r->first_request;
    }
    struct pk_request *q = r->spare_requests;
    if (q == NULL) {
        q = pk_door_resize(NULL, sizeof *q);
        q->next = NULL;
    }
    r->spare_requests = q->next;
    *q = (struct pk_request){0};
    return q;
}

/* A node that is elected while the disks are full fails to append the first entry of its
 * term, and with that error the library loses the news that it leads now. Later it would
 * not notice the loss of leadership either, and keep requests that nobody has any more.
 * So, whenever it is given a request as leader, it is told. */
void pk_replica_own_leadership(struct pk_replica *r)
{
    PK_ASSERT(raft_state(&r->raft) == RAFT_LEADER);
    r->raft.legacy.prev_state = RAFT_LEADER;
}

/* Entries stay in memory until a snapshot lets go of them: no byte too many. */
static struct raft_buffer fit_room(struct pk_replica *r, size_t size)
{
    unsigned char *room = raft_realloc(r->room, size);
    if (room != NULL) {
        r->room = room;
        r->room_size = size;
    }
    PK_ASSERT(size % 8 == 0);
    return (struct raft_buffer){.base = r->room, .len = size};
}

/* Why the library did not take the entry at `index`. An error after it has counted the
 * entry leaves log and library apart, and nobody knows what will become of it. */
static enum pk_proposed explain(struct pk_replica *r, int rv, uint64_t index)
{
    if (raft_last_index(&r->raft) >= index) {
        char why[128];
        snprintf(why, sizeof why, "the log can't be written: %s", raft_strerror(rv));
        r->room = NULL; /* nobody knows whose it is now */
        pk_replica_break(r, why);
        return PK_NOT_TAKEN;
    }
    switch (rv) {
    case RAFT_NOTLEADER:
        return PK_NOT_LEADER;
    case RAFT_NOSPACE:
        return PK_NO_SPACE;
    default:
        return PK_NOT_TAKEN;
    }
}

enum pk_proposed pk_replica_propose(struct pk_replica *r, struct pk_entry *e, size_t body)
{
    size_t size = pk_entry_size(body);
    if (r->broken || r->closing || size > PK_ENTRY_MAX) {
        return PK_NOT_TAKEN;
    }
    if (raft_state(&r->raft) != RAFT_LEADER || raft_transferee(&r->raft) != 0) {
        return PK_NOT_LEADER;
    }
    (void)pk_replica_room(r, body);
    struct pk_request *q = spare_request(r);
    struct raft_buffer buf = fit_room(r, size);
    PK_ASSERT(pk_version_runs(e->needs == 0 ? PK_VERSION_OLDEST : e->needs));
    e->origin = r->origin;
    e->index = raft_last_index(&r->raft) + 1;
    e->body = pk_bytes(r->room + PK_ENTRY_HEAD, body);
    pk_entry_seal(buf.base, e);
    pk_replica_own_leadership(r);
    /* One buffer for one request: more would be dropped without a word. */
    int rv = raft_apply(&r->raft, &q->apply, &buf, 1, NULL);
    if (rv != 0) {
        q->next = r->spare_requests;
        r->spare_requests = q;
        return explain(r, rv, e->index);
    }
    r->room = NULL;
    r->room_size = 0;
    r->last_size = size;
    *r->end_of_requests = q;
    r->end_of_requests = &q->next;
    return PK_PROPOSED;
}
