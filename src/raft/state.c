/* SPDX-License-Identifier: MIT */
/*
 * What is replicated: the machine, how far it has come, and a backup on its way in.
 * Entries are run here, snapshots are begun and taken in (snapshot.h), backups are made
 * and restored (backup.h).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/version.h"
#include "host/version.h"
#include "raft/inside.h"

/* ---- a backup on its way in ---- */

/* The staged bytes are dropped, and the machine that was being made of them. */
static void clear_staging(struct pk_replica *r)
{
    pk_garbage_add_staging(&r->garbage, r->state.staging);
    r->state.staging = pk_staging_new();
}

/* NULL, or why the piece is refused. A piece at 0 begins anew. Which pieces are refused
 * depends on their offsets alone, what is in them is judged by ADOPT: the same on every
 * node, also on one that has loaded the earlier pieces from a snapshot. */
static const char *take_piece(struct pk_replica *r, const struct pk_entry *e)
{
    if (e->count == 0 && r->state.staging->len > 0) {
        clear_staging(r);
    }
    if (e->count != r->state.staging->len) {
        return "this piece does not begin where the one before it ended";
    }
    if (e->body.len > PK_BACKUP_MAX - r->state.staging->len) {
        return "a backup has at most 4 GiB";
    }
    pk_staging_add(r->state.staging, e->body.data, e->body.len);
    return NULL;
}

/* A machine has no view when it is freed. A snapshot that is being taken is given up, and
 * taken later; so is a backup. */
static void stop_taking(struct pk_replica *r)
{
    if (r->taking != NULL) {
        pk_state_view_end(r->taking);
    }
    if (r->backup != NULL) {
        pk_backup_end(r->backup);
    }
}

/* Leaps above all tokens ever given out, by the backup's past or by ours (P2). NULL, or
 * why that can't be. */
static const char *leap(struct pk_machine *m, uint64_t floor, struct pk_effects *out)
{
    struct pk_command c = {.verb = PK_LEAP, .token = floor};
    pk_machine_step(m, &c, out);
    bool done = out->list[0].kind == PK_REPLY && out->list[0].status == PK_OK;
    return done && pk_machine_last_token(m) > floor
               ? NULL
               : "there are no tokens left to leap to";
}

/* NULL, or why a backup of that version can't become the state of this cluster. A replica
 * that can't read what others can must stop: its state would be another one. */
static const char *version_wrong(struct pk_replica *r, uint32_t version)
{
    static _Thread_local char text[160];
    uint32_t ours = pk_machine_version(r->state.machine);
    if (version > ours) {
        (void)snprintf(text, sizeof text,
                       "the backup needs cluster version %u; the cluster has version %u",
                       version, ours);
        return text;
    }
    if (version != 0 && version < PK_VERSION_OLDEST) {
        pk_replica_break(r, pk_version_needed("the backup that is restored", version));
        return r->why;
    }
    return NULL;
}

/* The cluster keeps its version: every state of an older one is a state of it (N3). */
static void keep_version(struct pk_machine *m, const struct pk_machine *cluster)
{
    struct pk_effects unused = {0};
    uint32_t to = pk_machine_version(cluster);
    uint64_t hold = pk_machine_version_is_held(cluster) ? PK_VERSION_HOLD : 0;
    do {
        uint32_t next = pk_machine_version(m) + (pk_machine_version(m) < to);
        struct pk_command c = {.verb = PK_SET_VERSION, .version = next, .flags = hold};
        pk_machine_step(m, &c, &unused);
    } while (pk_machine_version(m) < to);
    pk_effects_free(&unused);
}

/* The machine that was made of the staged pieces, as they came, becomes the state: a
 * pointer and a LEAP, whose work is bounded (S5). Its digest proves that the pieces are
 * what a machine has written, so its invariants need not be derived anew here, which
 * would take time in the size of the state. Stamp 0: what it holds ends by the restore,
 * not by the time that has passed since. */
static const char *adopt(struct pk_replica *r)
{
    struct pk_staging *staging = r->state.staging;
    if (staging->reader == NULL) {
        return "there is no backup to adopt";
    }
    const char *why = version_wrong(r, pk_backup_version(staging->reader));
    if (why == NULL) {
        why = pk_backup_wrong(staging->reader);
    }
    struct pk_machine *m = pk_staging_take_machine(staging);
    clear_staging(r);
    if (why == NULL) {
        keep_version(m, r->state.machine);
        why = leap(m, pk_machine_last_token(r->state.machine), &r->effects);
    }
    if (why != NULL) {
        pk_garbage_add_machine(&r->garbage, m);
        return why;
    }
    stop_taking(r);
    pk_garbage_add_machine(&r->garbage, r->state.machine);
    r->state.machine = m;
    return NULL;
}

/* ---- running entries ---- */

static void tell_step(struct pk_replica *r, const struct pk_entry *e, uint64_t nth,
                      const struct pk_command *c)
{
    struct pk_step step = {.entry = e, .nth = nth, .command = c, .effects = &r->effects};
    r->hooks.stepped(r->hooks.ctx, &step);
}

static bool run_commands(struct pk_replica *r, const struct pk_entry *e)
{
    const unsigned char *at = (const unsigned char *)e->body.data;
    size_t left = e->body.len;
    for (uint64_t i = 0; i < e->count; i++) {
        struct pk_command c;
        size_t n = pk_command_decode(at, left, &c);
        if (n == 0) {
            return false;
        }
        at += n;
        left -= n;
        c.stamp_ms = e->stamp_ms;
        pk_effects_reset(&r->effects);
        pk_machine_step(r->state.machine, &c, &r->effects);
        tell_step(r, e, i, &c);
    }
    return left == 0;
}

static void answer(struct pk_replica *r, const char *wrong)
{
    pk_effects_reset(&r->effects);
    pk_effects_add(&r->effects, &(struct pk_effect){
                                    .kind = PK_REPLY,
                                    .verb = PK_LEAP,
                                    .status = wrong == NULL ? PK_OK : PK_BADARG,
                                    .why = pk_text(wrong),
                                });
}

static void run_restore(struct pk_replica *r, const struct pk_entry *e)
{
    answer(r, take_piece(r, e));
    tell_step(r, e, 0, NULL);
}

static void run_adopt(struct pk_replica *r, const struct pk_entry *e)
{
    pk_effects_reset(&r->effects);
    const char *wrong = adopt(r);
    if (wrong != NULL) {
        answer(r, wrong);
    }
    tell_step(r, e, 0, NULL);
    if (wrong == NULL) {
        r->hooks.replaced(r->hooks.ctx);
    }
}

/* A state that is not the majority's must acknowledge nothing more. */
static void compare(struct pk_replica *r, uint64_t index)
{
    uint64_t voters[PK_MEMBERS_MAX];
    const struct raft_configuration *c = &r->raft.configuration;
    size_t n = 0;
    for (unsigned i = 0; i < c->n && n < PK_MEMBERS_MAX; i++) {
        if (c->servers[i].role == RAFT_VOTER) {
            voters[n++] = c->servers[i].id;
        }
    }
    if (!pk_agreement_holds(&r->agreement, r->raft.id, index, voters, n)) {
        char why[320];
        (void)snprintf(why, sizeof why,
                       "the state after entry %" PRIu64 " differs from that of the other "
                       "nodes, so this node is the damaged one; replace it: start it "
                       "with an empty directory, then 'picket cluster replace'",
                       index);
        pk_replica_break(r, why);
    }
}

static void take_mark(struct pk_replica *r, uint64_t index)
{
    struct pk_mark mark = {index, pk_machine_digest(r->state.machine)};
    pk_agreement_hear(&r->agreement, r->raft.id, mark);
    if (r->hooks.marked != NULL) {
        r->hooks.marked(r->hooks.ctx, mark.index, mark.digest);
    }
    compare(r, index);
}

void pk_replica_hear_mark(struct pk_replica *r, uint64_t id, uint64_t index,
                          uint64_t digest)
{
    if (!r->broken && !r->closing) {
        pk_agreement_hear(&r->agreement, id, (struct pk_mark){index, digest});
        compare(r, index);
    }
}

static bool run(struct pk_replica *r, const struct pk_entry *e)
{
    bool sound = true;
    switch (e->kind) {
    case PK_ENTRY_COMMANDS:
        sound = run_commands(r, e);
        break;
    case PK_ENTRY_RESTORE:
        run_restore(r, e);
        break;
    case PK_ENTRY_ADOPT:
        run_adopt(r, e);
        break;
    }
    return sound;
}

/* A release that runs no newer version than the present one can't run this entry, and
 * needs a snapshot behind it to start with. */
static void note_lowering(struct pk_replica *r, const struct pk_entry *e, uint32_t before)
{
    uint32_t needs = e->needs > before ? e->needs : before;
    if (needs > pk_machine_version(r->state.machine)) {
        r->lowered_at = e->index;
        r->lowered_from = needs;
        pk_replica_let_go(r);
    }
}

/* The entry at `place` of the log can't be run. */
static void break_at(struct pk_replica *r, uint64_t place, const char *wrong)
{
    char why[128];
    (void)snprintf(why, sizeof why, "entry %" PRIu64 " of the log %s", place, wrong);
    pk_replica_break(r, why);
}

static void break_at_version(struct pk_replica *r, uint64_t place, uint32_t version)
{
    char what[64];
    (void)snprintf(what, sizeof what, "entry %" PRIu64 " of the log", place);
    pk_replica_break(r, pk_version_needed(what, version));
}

/* Runs the entry at `place`; a replica that can't is broken from then on. */
static void apply_entry(struct pk_replica *r, const struct raft_buffer *buf,
                        uint64_t place)
{
    struct pk_entry e;
    uint32_t version = pk_entry_needs(buf->base, buf->len);
    if (version != 0 && !pk_version_runs(version)) {
        break_at_version(r, place, version);
    } else if (!pk_entry_open(buf->base, buf->len, &e)) {
        break_at(r, place, "is not readable");
    } else if (e.index != place) {
        break_at(r, place, "was made for another place");
    } else if (e.index > r->state.last_entry) { /* else it was run: G2 of guard.h */
        uint32_t before = pk_machine_version(r->state.machine);
        if (!run(r, &e)) {
            break_at(r, place, "has commands that can't be read");
            return;
        }
        r->state.last_entry = e.index;
        note_lowering(r, &e, before);
        r->hooks.applied(r->hooks.ctx, &e);
        if (e.mark) {
            take_mark(r, e.index);
        }
    }
}

/* Never fails towards the library, which would stop without a word. */
static int on_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct pk_replica *r = fsm->data;
    *result = NULL;
    if (r->broken) {
        return 0;
    }
    apply_entry(r, buf, raft_last_applied(&r->raft) + 1);
    return 0;
}

/* ---- snapshots ---- */

static void break_unsound(struct pk_replica *r)
{
    pk_replica_break(r, "the memory of this node is damaged: its state is not what its "
                        "digest says; check the memory of the machine");
}

/* The bytes are read while the machine goes on, by whoever writes the snapshot. */
static enum pk_source_state read_taking(void *ctx, unsigned char *to, size_t room,
                                        size_t *n)
{
    struct pk_replica *r = ctx;
    struct pk_snapshot_source *view = pk_state_view_source(r->taking);
    enum pk_source_state state = view->read(view->ctx, to, room, n);
    if (pk_state_view_is_unsound(r->taking)) {
        break_unsound(r);
    }
    return state;
}

static int on_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct pk_replica *r = fsm->data;
    if (r->broken) {
        return RAFT_CANCELED;
    }
    if (r->backup != NULL && pk_backup_views(r->backup)) {
        return RAFT_BUSY; /* one view at a time; the library asks again */
    }
    r->taking = pk_state_view_begin(&r->state);
    r->source = (struct pk_snapshot_source){.ctx = r, .read = read_taking};
    pk_snapshot_handle_init(&r->handle);
    r->handle.source = &r->source;
    r->buffer = (struct raft_buffer){.base = &r->handle, .len = sizeof r->handle};
    *bufs = &r->buffer;
    *n_bufs = 1;
    return 0;
}

/* The snapshot has been written, or never will be. */
static int on_snapshot_written(struct raft_fsm *fsm, struct raft_buffer *bufs[],
                               unsigned *n_bufs)
{
    struct pk_replica *r = fsm->data;
    pk_state_view_free(r->taking);
    r->taking = NULL;
    *bufs = NULL;
    *n_bufs = 0;
    return 0;
}

/* The state that the buffer stands for; NULL: it can't be read, and `r` is broken. */
static struct pk_state *open_snapshot(struct pk_replica *r, const struct raft_buffer *b)
{
    struct pk_snapshot_handle *h = pk_snapshot_handle_of(b);
    if (h != NULL) {
        struct pk_state *loaded = h->state;
        h->state = NULL;
        return loaded;
    }
    void *load = pk_state_loader.begin();
    bool good = pk_state_loader.feed(load, b->base, b->len);
    uint32_t needs = good ? 0 : pk_state_loader.needs(load);
    struct pk_state *s = pk_state_loader.end(load);
    if (s == NULL) {
        pk_replica_break(r, needs == 0 ? "the snapshot is damaged"
                                       : pk_version_needed("the snapshot", needs));
    }
    return s;
}

/* False when it is no snapshot that this build can load; then the replica is broken. */
static bool restore(struct pk_replica *r, const struct raft_buffer *b)
{
    struct pk_state *s = open_snapshot(r, b);
    if (s == NULL) {
        return false;
    }
    stop_taking(r);
    pk_garbage_add_machine(&r->garbage, r->state.machine);
    pk_garbage_add_staging(&r->garbage, r->state.staging);
    r->state = *s;
    pk_door_resize(s, 0);
    return true;
}

static int on_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct pk_replica *r = fsm->data;
    if (r->broken || !restore(r, buf)) {
        return RAFT_CORRUPT;
    }
    raft_free(buf->base);
    r->hooks.replaced(r->hooks.ctx);
    return 0;
}

/* ---- backups ---- */

bool pk_replica_backup_begin(struct pk_replica *r, struct pk_backup_of *of)
{
    if (r->broken || r->taking != NULL || r->backup != NULL) {
        return false;
    }
    *of = (struct pk_backup_of){.index = r->state.last_entry,
                                .clock_ms = pk_machine_clock(r->state.machine),
                                .last_token = pk_machine_last_token(r->state.machine)};
    r->backup = pk_backup_begin(r->state.machine);
    return true;
}

enum pk_source_state pk_replica_backup_read(struct pk_replica *r, unsigned char *to,
                                            size_t room, size_t *n)
{
    enum pk_source_state state = pk_backup_read(r->backup, to, room, n);
    if (pk_backup_is_unsound(r->backup)) {
        break_unsound(r);
    }
    return state;
}

void pk_replica_backup_end(struct pk_replica *r)
{
    pk_backup_free(r->backup);
    r->backup = NULL;
}

/* ---- life ---- */

void pk_state_open(struct pk_replica *r)
{
    r->state = (struct pk_state){pk_machine_new(), 0, pk_staging_new()};
    r->fsm = (struct raft_fsm){
        .version = 2,
        .data = r,
        .apply = on_apply,
        .snapshot = on_snapshot,
        .restore = on_restore,
        .snapshot_finalize = on_snapshot_written,
    };
}

void pk_state_free(struct pk_replica *r)
{
    pk_state_view_free(r->taking);
    pk_replica_backup_end(r);
    pk_garbage_free(&r->garbage);
    pk_effects_free(&r->effects);
    pk_machine_free(r->state.machine);
    pk_staging_drop(r->state.staging);
}

/* ---- without consensus ---- */

static void ignore_step(void *ctx, const struct pk_step *s)
{
    (void)ctx;
    (void)s;
}

static void ignore_entry(void *ctx, const struct pk_entry *e)
{
    (void)ctx;
    (void)e;
}

static void ignore(void *ctx)
{
    (void)ctx;
}

static void ignore_why(void *ctx, const char *why)
{
    (void)ctx;
    (void)why;
}

struct pk_replica *pk_state_offline(const struct raft_snapshot *snapshot,
                                    const struct raft_entry *entries, size_t n,
                                    uint64_t start)
{
    struct pk_replica *r = pk_door_resize(NULL, sizeof *r);
    memset(r, 0, sizeof *r);
    r->hooks = (struct pk_replica_hooks){.stepped = ignore_step,
                                         .applied = ignore_entry,
                                         .replaced = ignore,
                                         .broken = ignore_why};
    pk_state_open(r);
    if (snapshot != NULL) {
        (void)restore(r, &snapshot->bufs[0]);
    }
    uint64_t covered = snapshot == NULL ? 0 : snapshot->index;
    for (size_t i = 0; i < n && !r->broken; i++) {
        if (entries[i].type == RAFT_COMMAND && start + i > covered) {
            apply_entry(r, &entries[i].buf, start + i);
        }
    }
    return r;
}
