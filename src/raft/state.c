/* SPDX-License-Identifier: MIT */
/*
 * What is replicated: the machine, how far it has come, and a backup on its way in.
 * Entries are run here, snapshots and backups are written and read.
 *
 * A snapshot for the consensus library:
 *     "PKFS"  version (1 byte)  index of the last entry run
 *     length and bytes of the staged backup
 *     digest of all bytes before it (8 bytes, little endian)
 *     the machine's snapshot, which ends with a digest of its own
 *
 * A backup for operators:
 *     "PKBK"  version (1 byte)  the machine's snapshot
 *     digest of all bytes before it (8 bytes, little endian)
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/inside.h"

static const char state_magic[5] = {'P', 'K', 'F', 'S', 1};
static const char backup_magic[5] = {'P', 'K', 'B', 'K', 1};

enum { DIGEST_BYTES = 8, SNAPSHOT_BUFFERS = 2 };

/* ---- a backup on its way in ---- */

static void clear_staging(struct pk_staging *s)
{
    pk_door_resize(s->bytes, 0);
    *s = (struct pk_staging){0};
}

static void stage(struct pk_staging *s, struct pk_bytes piece)
{
    if (s->len + piece.len > s->capacity) {
        size_t twice = 2 * s->capacity;
        size_t wanted = s->len + piece.len;
        s->capacity = wanted > twice ? wanted : twice;
        s->bytes = pk_door_resize(s->bytes, s->capacity);
    }
    if (piece.len > 0) {
        memcpy(s->bytes + s->len, piece.data, piece.len);
        s->len += piece.len;
    }
}

/* NULL, or why the piece is refused. A piece at 0 begins anew. */
static const char *take_piece(struct pk_staging *s, const struct pk_entry *e)
{
    if (e->count == 0) {
        clear_staging(s);
    }
    if (e->count != s->len) {
        return "this piece does not begin where the one before it ended";
    }
    if (e->body.len > PK_BACKUP_MAX - s->len) {
        return "a backup has at most 1 GiB";
    }
    stage(s, e->body);
    return NULL;
}

/* The machine of a backup; NULL with a sentence in *why. */
static struct pk_machine *open_backup(const unsigned char *in, size_t len,
                                      const char **why)
{
    if (len < sizeof backup_magic + DIGEST_BYTES ||
        memcmp(in, backup_magic, sizeof backup_magic) != 0) {
        *why = "this is not a backup, or one of another version";
        return NULL;
    }
    size_t covered = len - DIGEST_BYTES;
    if (pk_digest(PK_DIGEST_START, in, covered) != pk_get_u64(in + covered)) {
        *why = "the backup is damaged or not complete";
        return NULL;
    }
    struct pk_machine *m =
        pk_machine_restore(in + sizeof backup_magic, covered - sizeof backup_magic);
    *why = m == NULL ? "the state in the backup can't be read" : NULL;
    return m;
}

const char *pk_backup_wrong(const unsigned char *in, size_t len)
{
    const char *why = NULL;
    if (len > PK_BACKUP_MAX) {
        return "a backup has at most 1 GiB";
    }
    pk_machine_free(open_backup(in, len, &why));
    return why;
}

size_t pk_replica_backup(struct pk_replica *r, unsigned char **out)
{
    unsigned char *state = NULL;
    size_t len = pk_machine_snapshot(r->machine, &state);
    struct pk_writer w = {
        .out = pk_door_resize(NULL, sizeof backup_magic + len + DIGEST_BYTES),
        .digest = PK_DIGEST_START,
        .digesting = true,
    };
    pk_write_raw(&w, backup_magic, sizeof backup_magic);
    pk_write_raw(&w, state, len);
    pk_put_u64(w.out + w.len, w.digest);
    pk_door_resize(state, 0);
    *out = w.out;
    return w.len + DIGEST_BYTES;
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

/* The staged backup becomes the state. Stamp 0: what it holds ends by the restore, not by
 * the time that has passed since. */
static const char *adopt(struct pk_replica *r)
{
    const char *why = NULL;
    struct pk_machine *m = open_backup(r->staging.bytes, r->staging.len, &why);
    clear_staging(&r->staging);
    if (m == NULL) {
        return why;
    }
    why = leap(m, pk_machine_last_token(r->machine), &r->effects);
    if (why != NULL) {
        pk_machine_free(m);
        return why;
    }
    pk_machine_free(r->machine);
    r->machine = m;
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
        pk_machine_step(r->machine, &c, &r->effects);
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
    answer(r, take_piece(&r->staging, e));
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
    struct pk_mark mark = {index, pk_machine_digest(r->machine)};
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

/* NULL, or why the entry at `place` of the log can't be run. */
static const char *apply_entry(struct pk_replica *r, const struct raft_buffer *buf,
                               uint64_t place)
{
    struct pk_entry e;
    if (!pk_entry_open(buf->base, buf->len, &e)) {
        return "is not readable";
    }
    if (e.index != place) {
        return "was made for another place";
    }
    if (e.index <= r->last_entry) {
        return NULL; /* has been run: see G2 of guard.h */
    }
    if (!run(r, &e)) {
        return "has commands that can't be read";
    }
    r->last_entry = e.index;
    r->hooks.applied(r->hooks.ctx, &e);
    if (e.mark) {
        take_mark(r, e.index);
    }
    return NULL;
}

/* Never fails towards the library, which would stop without a word. */
static int on_apply(struct raft_fsm *fsm, const struct raft_buffer *buf, void **result)
{
    struct pk_replica *r = fsm->data;
    *result = NULL;
    if (r->broken) {
        return 0;
    }
    uint64_t place = raft_last_applied(&r->raft) + 1;
    const char *wrong = apply_entry(r, buf, place);
    if (wrong != NULL) {
        char why[128];
        snprintf(why, sizeof why, "entry %" PRIu64 " of the log %s", place, wrong);
        pk_replica_break(r, why);
    }
    return 0;
}

/* ---- snapshots ---- */

static size_t write_head(const struct pk_replica *r, unsigned char *out)
{
    struct pk_writer w = {
        .out = out, .digest = PK_DIGEST_START, .digesting = out != NULL};
    pk_write_raw(&w, state_magic, sizeof state_magic);
    pk_write_uint(&w, r->last_entry);
    pk_write_uint(&w, r->staging.len);
    pk_write_raw(&w, r->staging.bytes, r->staging.len);
    if (out != NULL) {
        pk_put_u64(out + w.len, w.digest);
    }
    return w.len + DIGEST_BYTES;
}

/* Two buffers, so that the machine's bytes need not be copied. */
static int on_snapshot(struct raft_fsm *fsm, struct raft_buffer *bufs[], unsigned *n_bufs)
{
    struct pk_replica *r = fsm->data;
    if (r->broken) {
        return RAFT_CANCELED;
    }
    struct raft_buffer *list = pk_door_resize(NULL, SNAPSHOT_BUFFERS * sizeof *list);
    list[0].len = write_head(r, NULL);
    list[0].base = pk_door_resize(NULL, list[0].len);
    write_head(r, list[0].base);
    unsigned char *state = NULL;
    list[1].len = pk_machine_snapshot(r->machine, &state);
    list[1].base = state;
    r->snapshot = list;
    *bufs = list;
    *n_bufs = SNAPSHOT_BUFFERS;
    return 0;
}

/* The buffers of a snapshot that has been written, or that never will be. */
static void free_snapshot(struct pk_replica *r)
{
    for (unsigned i = 0; r->snapshot != NULL && i < SNAPSHOT_BUFFERS; i++) {
        pk_door_resize(r->snapshot[i].base, 0);
    }
    pk_door_resize(r->snapshot, 0);
    r->snapshot = NULL;
}

static int on_snapshot_written(struct raft_fsm *fsm, struct raft_buffer *bufs[],
                               unsigned *n_bufs)
{
    free_snapshot(fsm->data);
    *bufs = NULL;
    *n_bufs = 0;
    return 0;
}

/* False when the bytes are no snapshot; then the replica is as it was. */
static bool restore(struct pk_replica *r, const unsigned char *in, size_t len)
{
    struct pk_reader reader = {.at = in, .end = in + len};
    const unsigned char *magic = pk_read_raw(&reader, sizeof state_magic);
    uint64_t last_entry = pk_read_uint(&reader);
    struct pk_bytes staged = pk_read_bytes(&reader, PK_BACKUP_MAX);
    const unsigned char *digest = pk_read_raw(&reader, DIGEST_BYTES);
    if (reader.bad || memcmp(magic, state_magic, sizeof state_magic) != 0 ||
        pk_get_u64(digest) != pk_digest(PK_DIGEST_START, in, (size_t)(digest - in))) {
        return false;
    }
    struct pk_machine *m =
        pk_machine_restore(reader.at, (size_t)(reader.end - reader.at));
    if (m == NULL) {
        return false;
    }
    pk_machine_free(r->machine);
    r->machine = m;
    r->last_entry = last_entry;
    clear_staging(&r->staging);
    stage(&r->staging, staged);
    return true;
}

static int on_restore(struct raft_fsm *fsm, struct raft_buffer *buf)
{
    struct pk_replica *r = fsm->data;
    if (r->broken || !restore(r, buf->base, buf->len)) {
        pk_replica_break(r, "the snapshot is damaged or of another version");
        return RAFT_CORRUPT;
    }
    raft_free(buf->base);
    r->hooks.replaced(r->hooks.ctx);
    return 0;
}

/* ---- life ---- */

void pk_state_open(struct pk_replica *r)
{
    r->machine = pk_machine_new();
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
    free_snapshot(r);
    clear_staging(&r->staging);
    pk_effects_free(&r->effects);
    pk_machine_free(r->machine);
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
    if (snapshot != NULL && !restore(r, snapshot->bufs[0].base, snapshot->bufs[0].len)) {
        pk_replica_break(r, "the snapshot is damaged or of another version");
    }
    uint64_t covered = snapshot == NULL ? 0 : snapshot->index;
    for (size_t i = 0; i < n && !r->broken; i++) {
        uint64_t place = start + i;
        const char *wrong = NULL;
        if (entries[i].type == RAFT_COMMAND && place > covered) {
            wrong = apply_entry(r, &entries[i].buf, place);
        }
        if (wrong != NULL) {
            pk_replica_break(r, wrong);
        }
    }
    return r;
}
