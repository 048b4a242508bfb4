/* SPDX-License-Identifier: MIT */
/* Life of a log store, term and vote, and its segments. */
#include "raft/store.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "host/version.h"
#include "raft/store_inside.h"

enum {
    LOG_BYTES = 256 * 1024 * 1024,
    FIRST_SEGMENTS = 2,
    SEGMENTS_PER_SNAPSHOT = 4, /* at least are written before the next one */
    PARTS_OF_LOG = 4,       /* a snapshot after so much of it, and as much kept behind */
    IDLE_TICKS = 10,        /* then the mark is flushed */
    LEFT_FREE_SEGMENTS = 4, /* of the disk, for snapshots */
};

static const char meta_name[] = "meta";
const char pk_store_mark_name[] = "mark";

/* ---- words ---- */

int pk_store_refuse(struct pk_store *s, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(s->why, sizeof s->why, format, args);
    va_end(args);
    return error;
}

const char *pk_store_why(const struct pk_store *s)
{
    return s->why;
}

void pk_store_fail(struct pk_store *s, const char *what, int error)
{
    if (!s->failed) {
        s->failed = true;
        pk_store_refuse(s, 0, "can't write raft/%s: %s; nothing more is acknowledged",
                        what, strerror(error));
        s->o.failed(s->o.ctx, s->why);
    }
}

void pk_store_segment_name(uint32_t segment, char out[PK_DISK_NAME_MAX])
{
    (void)snprintf(out, PK_DISK_NAME_MAX, "log-%03u", (unsigned)segment);
}

/* ---- files, at once ---- */

struct pk_disk_op pk_store_op(enum pk_disk_kind kind, const char *name)
{
    struct pk_disk_op op = {.kind = kind};
    (void)snprintf(op.name, sizeof op.name, "%s", name);
    return op;
}

int pk_store_now(struct pk_store *s, struct pk_disk_op *op)
{
    return s->o.disk->now(s->o.disk->ctx, op);
}

int pk_store_read(struct pk_store *s, const char *name, unsigned char **out, size_t *len)
{
    struct pk_disk_op op = pk_store_op(PK_DISK_READ, name);
    int error = pk_store_now(s, &op);
    *out = op.bytes;
    *len = op.len;
    return error;
}

int pk_store_store(struct pk_store *s, const char *name, const unsigned char *bytes,
                   size_t len)
{
    struct pk_disk_op op = pk_store_op(PK_DISK_STORE, name);
    op.parts[0] = (struct pk_disk_part){bytes, len};
    op.n_parts = 1;
    return pk_store_now(s, &op);
}

static void fill_segment(const struct pk_store *s, uint32_t segment, unsigned char *out)
{
    pk_segment_fill(&s->o.owner, segment, out, s->meta.segment_bytes);
}

/* ---- meta ---- */

/* Aligned room for both slots. */
struct slots {
    _Alignas(PK_DISK_BLOCK) unsigned char bytes[2][PK_META_SLOT];
};

static int write_slot(struct pk_store *s, const struct slots *slots, size_t slot)
{
    struct pk_disk_op op = pk_store_op(PK_DISK_OVERWRITE, meta_name);
    op.offset = slot * PK_META_SLOT;
    op.parts[0] = (struct pk_disk_part){slots->bytes[slot], PK_META_SLOT};
    op.n_parts = 1;
    return pk_store_now(s, &op);
}

/* One slot after the other: at any moment one of them is whole. */
int pk_store_write_meta(struct pk_store *s)
{
    struct slots slots;
    s->meta.version++;
    for (size_t i = 0; i < 2; i++) {
        pk_meta_encode(&s->meta, slots.bytes[i]);
        int error = write_slot(s, &slots, i);
        if (error != 0) {
            pk_store_fail(s, meta_name, error);
            return RAFT_IOERR;
        }
    }
    return 0;
}

int pk_store_set_term(struct pk_store *s, raft_term term)
{
    s->meta.term = term;
    s->meta.vote = 0;
    return pk_store_write_meta(s);
}

int pk_store_set_vote(struct pk_store *s, raft_id vote)
{
    s->meta.vote = vote;
    return pk_store_write_meta(s);
}

const struct pk_meta *pk_store_meta(const struct pk_store *s)
{
    return &s->meta;
}

/* ---- segments ---- */

static uint32_t segments_max(const struct pk_store *s)
{
    uint64_t n = s->o.log_bytes / s->meta.segment_bytes;
    n = n < PK_STORE_SEGMENTS_LEAST ? PK_STORE_SEGMENTS_LEAST : n;
    return n < PK_STORE_SEGMENTS_MAX ? (uint32_t)n : PK_STORE_SEGMENTS_MAX;
}

static uint32_t spares(const struct pk_store *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->meta.segments; i++) {
        n += !s->segments[i].used && i != s->current;
    }
    return n;
}

/* Bytes in segments that are ready, and that no entry in our hands will take. */
static uint64_t free_bytes(const struct pk_store *s)
{
    uint64_t left = s->meta.segment_bytes - s->offset;
    left += (uint64_t)spares(s) * s->meta.segment_bytes;
    return left > s->pending ? left - s->pending : 0;
}

static bool makes_room(const struct pk_store *s)
{
    return s->making_bytes != NULL || pk_store_writes_snapshot(s);
}

unsigned short pk_store_reserve(const struct pk_store *s)
{
    uint64_t kib = s->meta.segment_bytes / 1024;
    return kib < UINT16_MAX ? (unsigned short)kib : UINT16_MAX;
}

/* A disk that is busy is not a full one: while it makes room, nothing is refused. */
unsigned short pk_store_capacity(const struct pk_store *s)
{
    uint64_t kib = free_bytes(s) / 1024;
    if (kib < pk_store_reserve(s) && makes_room(s)) {
        return pk_store_reserve(s);
    }
    return kib < UINT16_MAX ? (unsigned short)kib : UINT16_MAX;
}

static void on_segment_made(struct pk_disk_op *op, int error)
{
    struct pk_store *s = op->data;
    s->making_bytes = pk_door_resize(s->making_bytes, 0);
    s->lacks_space = s->making_waits = error == ENOSPC;
    if (error != 0 && error != ENOSPC) {
        pk_store_fail(s, op->name, error);
    }
    if (error == 0 && !s->failed) {
        s->meta.segments++;
        (void)pk_store_write_meta(s);
    }
    if (!s->failed) {
        pk_store_pump(s);
        pk_store_maybe_closed(s);
    }
}

static bool has_room_for_segment(const struct pk_store *s)
{
    uint64_t room = s->o.disk->room(s->o.disk->ctx);
    return room / s->meta.segment_bytes > LEFT_FREE_SEGMENTS;
}

/* Has the next segment made, if few are ready. */
void pk_store_keep_spares(struct pk_store *s)
{
    if (s->making_bytes != NULL || s->making_waits || s->closing ||
        spares(s) >= PK_STORE_SPARES || s->meta.segments >= segments_max(s)) {
        return;
    }
    s->lacks_space = !has_room_for_segment(s);
    if (s->lacks_space) {
        return;
    }
    uint32_t segment = s->meta.segments;
    size_t len = s->meta.segment_bytes;
    char name[PK_DISK_NAME_MAX];
    pk_store_segment_name(segment, name);
    s->making_bytes = pk_door_resize(NULL, len);
    fill_segment(s, segment, s->making_bytes);
    s->making = pk_store_op(PK_DISK_STORE, name);
    s->making.parts[0] = (struct pk_disk_part){s->making_bytes, len};
    s->making.n_parts = 1;
    s->making.done = on_segment_made;
    s->making.data = s;
    s->o.disk->submit(s->o.disk->ctx, &s->making);
}

/* The oldest segments first: a log has no holes. */
void pk_store_release(struct pk_store *s, uint64_t index)
{
    for (;;) {
        struct pk_segment *oldest = NULL;
        for (uint32_t i = 0; i < s->meta.segments; i++) {
            struct pk_segment *g = &s->segments[i];
            if (g->used && i != s->current &&
                (oldest == NULL || g->order < oldest->order)) {
                oldest = g;
            }
        }
        if (oldest == NULL || oldest->last_index >= index) {
            return;
        }
        *oldest = (struct pk_segment){0};
    }
}

/* All segments that were begun before batch `number`. */
void pk_store_release_before(struct pk_store *s, uint64_t number)
{
    for (uint32_t i = 0; i < s->meta.segments; i++) {
        if (s->segments[i].used && s->segments[i].order < number) {
            s->segments[i] = (struct pk_segment){0};
        }
    }
}

/* ---- now and then ---- */

static void on_mark_synced(struct pk_disk_op *op, int error)
{
    struct pk_store *s = op->data;
    (void)error; /* see note_durable */
    s->is_syncing = false;
    pk_store_maybe_closed(s);
}

static void sync_mark(struct pk_store *s)
{
    s->mark_dirty = false;
    s->is_syncing = true;
    s->syncing = pk_store_op(PK_DISK_SYNC, pk_store_mark_name);
    s->syncing.done = on_mark_synced;
    s->syncing.data = s;
    s->o.disk->submit(s->o.disk->ctx, &s->syncing);
}

void pk_store_tick(struct pk_store *s)
{
    if (s->failed || s->closing) {
        return;
    }
    bool idle = s->mark_dirty && !s->is_syncing && s->n_flights == 0;
    s->idle_ticks = idle ? s->idle_ticks + 1 : 0;
    if (s->idle_ticks > IDLE_TICKS) {
        sync_mark(s);
    }
    s->put_pause -= s->put_pause > 0;
    pk_store_retry_snapshot(s);
    pk_store_tick_incoming(s);
    pk_store_tick_sent(s);
    s->making_waits = false;
    pk_store_pump(s);
}

/* The segments of the newest `most` bytes stay; the index of their first entry. */
static uint64_t keep_from(const struct pk_store *s, uint64_t most)
{
    uint64_t bytes = s->segments[s->current].bytes;
    uint64_t order = s->segments[s->current].order;
    uint64_t from = s->segments[s->current].first_index;
    for (;;) {
        const struct pk_segment *next = NULL;
        for (uint32_t i = 0; i < s->meta.segments; i++) {
            const struct pk_segment *g = &s->segments[i];
            if (g->used && g->order < order && (next == NULL || g->order > next->order)) {
                next = g;
            }
        }
        if (next == NULL || bytes + next->bytes > most) {
            return from;
        }
        bytes += next->bytes;
        order = next->order;
        from = next->first_index < from ? next->first_index : from;
    }
}

/* So much is written before the next snapshot is taken, and so much is kept behind it.
 * More for larger states, whose snapshots cost more; little for small ones, because
 * segments that are used again cost less than new ones. */
static uint64_t part_of_log(const struct pk_store *s)
{
    uint64_t most = (uint64_t)segments_max(s) * s->meta.segment_bytes / PARTS_OF_LOG;
    uint64_t least = (uint64_t)SEGMENTS_PER_SNAPSHOT * s->meta.segment_bytes;
    uint64_t part = 2 * s->state_bytes > least ? 2 * s->state_bytes : least;
    return part < most ? part : most;
}

/* Nodes take their snapshots at different times, although their logs are the same. */
static uint64_t due_bytes(const struct pk_store *s)
{
    enum { STEPS = 8, BITS = 3, PARTS = 32 };
    _Static_assert(STEPS == 1 << BITS, "a number below STEPS");
    uint64_t part = part_of_log(s);
    uint64_t step = s->o.owner.incarnation * UINT64_C(0x9e3779b97f4a7c15) >> (64 - BITS);
    return part - part / PARTS * step;
}

/* There is no room for more segments. */
static bool is_pressed(const struct pk_store *s)
{
    bool no_more = s->lacks_space || s->meta.segments >= segments_max(s);
    return no_more && spares(s) < PK_STORE_SPARES;
}

uint64_t pk_store_keep_from(const struct pk_store *s)
{
    return keep_from(s, is_pressed(s) ? 0 : part_of_log(s));
}

struct pk_log_use pk_store_use(const struct pk_store *s)
{
    struct pk_log_use use = {.since = s->written - s->written_at_snapshot};
    bool pressed = is_pressed(s);
    for (uint32_t i = 0; i < s->meta.segments; i++) {
        use.bytes += s->segments[i].used ? s->meta.segment_bytes : 0;
    }
    use.wants =
        s->put_pause == 0 && (use.since >= due_bytes(s) ||
                              (pressed && use.since >= s->meta.segment_bytes / 2));
    use.waits =
        makes_room(s) && free_bytes(s) < s->meta.segment_bytes + pk_store_batch_most(s);
    use.keep_from = use.wants ? pk_store_keep_from(s) : 0;
    use.snapshot = pk_store_newest(s) == NULL ? 0 : pk_store_newest(s)->index;
    return use;
}

bool pk_store_is_writing(const struct pk_store *s, uint64_t *durable)
{
    *durable = s->durable;
    return s->n_flights > 0;
}

uint64_t pk_store_last_index(const struct pk_store *s)
{
    return s->tail_index;
}

/* ---- life ---- */

struct pk_store *pk_store_new(const struct pk_store_options *o)
{
    struct pk_store *s = pk_door_resize(NULL, sizeof *s);
    memset(s, 0, sizeof *s);
    s->o = *o;
    s->o.log_bytes = o->log_bytes == 0 ? LOG_BYTES : o->log_bytes;
    s->o.segment_bytes = o->segment_bytes == 0 ? PK_STORE_SEGMENT : o->segment_bytes;
    s->o.slice_bytes = o->slice_bytes == 0 ? PK_STORE_SLICE : o->slice_bytes;
    s->o.chunk_bytes = o->chunk_bytes == 0 ? PK_STORE_CHUNK_LEAST : o->chunk_bytes;
    PK_ASSERT(s->o.segment_bytes % PK_BLOCK == 0);
    s->end = &s->first;
    return s;
}

static const char *wrong_file(struct pk_store *s, const char *name, int error)
{
    pk_store_refuse(s, 0, "can't make raft/%s: %s", name, strerror(error));
    return s->why;
}

const char *pk_store_create(struct pk_store *s)
{
    s->meta = (struct pk_meta){.owner = s->o.owner,
                               .segments = FIRST_SEGMENTS,
                               .segment_bytes = s->o.segment_bytes};
    unsigned char *bytes = pk_door_resize(NULL, s->meta.segment_bytes);
    char name[PK_DISK_NAME_MAX] = "";
    int error = 0;
    for (uint32_t i = 0; i < FIRST_SEGMENTS && error == 0; i++) {
        pk_store_segment_name(i, name);
        fill_segment(s, i, bytes);
        error = pk_store_store(s, name, bytes, s->meta.segment_bytes);
    }
    pk_door_resize(bytes, 0);
    unsigned char nothing[2 * PK_SECTOR] = {0};
    if (error == 0) {
        (void)snprintf(name, sizeof name, "%s", pk_store_mark_name);
        error = pk_store_store(s, name, nothing, sizeof nothing);
    }
    static const unsigned char no_snapshot[PK_SNAPSHOT_HEAD];
    for (unsigned i = 0; i < PK_STORE_SLOTS && error == 0; i++) {
        (void)snprintf(name, sizeof name, "snapshot-%u", i);
        error = pk_store_store(s, name, no_snapshot, sizeof no_snapshot);
    }
    struct slots slots;
    pk_meta_encode(&s->meta, slots.bytes[0]);
    pk_meta_encode(&s->meta, slots.bytes[1]);
    if (error == 0) {
        (void)snprintf(name, sizeof name, "%s", meta_name);
        error = pk_store_store(s, name, slots.bytes[0], sizeof slots.bytes);
    }
    return error == 0 ? NULL : wrong_file(s, name, error);
}

/* The newer of the slots that check; the other one is written anew. */
static const char *read_meta(struct pk_store *s, const unsigned char *in, size_t len)
{
    struct pk_meta other;
    bool first = len == 2 * (size_t)PK_META_SLOT && pk_meta_decode(in, &s->meta);
    bool second =
        len == 2 * (size_t)PK_META_SLOT && pk_meta_decode(in + PK_META_SLOT, &other);
    uint32_t format = len == 2 * (size_t)PK_META_SLOT ? pk_meta_format(in) : 0;
    if (format > PK_LOG_FORMAT) { /* the first slot is the newer one, if they differ */
        pk_store_refuse(s, 0, "%s", pk_format_needed("raft/meta", format, PK_LOG_FORMAT));
        return s->why;
    }
    if (!first && !second) {
        pk_store_refuse(s, 0, "raft/meta is damaged" PK_STORE_REPLACE);
        return s->why;
    }
    if (!first || (second && other.version > s->meta.version)) {
        s->meta = other;
    }
    if (s->meta.owner.incarnation != s->o.owner.incarnation ||
        s->meta.owner.cluster != s->o.owner.cluster) {
        pk_store_refuse(s, 0, "raft/meta belongs to another node or cluster");
        return s->why;
    }
    bool same = first && second && memcmp(in, in + PK_META_SLOT, PK_META_SLOT) == 0;
    return same || pk_store_write_meta(s) == 0 ? NULL : s->why;
}

const char *pk_store_open(struct pk_store *s)
{
    unsigned char *bytes;
    size_t len;
    int error = pk_store_read(s, meta_name, &bytes, &len);
    if (error == ENOENT) {
        pk_store_refuse(s, 0, "raft/meta is gone" PK_STORE_REPLACE);
        return s->why;
    }
    if (error != 0) {
        pk_store_refuse(s, 0, "can't read raft/meta: %s", strerror(error));
        return s->why;
    }
    const char *wrong = read_meta(s, bytes, len);
    pk_door_resize(bytes, 0);
    return wrong;
}

static void free_appends(struct pk_append *a)
{
    while (a != NULL) {
        struct pk_append *next = a->next;
        pk_door_resize(a, 0);
        a = next;
    }
}

void pk_store_free(struct pk_store *s)
{
    free_appends(s->first);
    free_appends(s->spare_appends);
    for (unsigned i = 0; i < PK_STORE_DEPTH; i++) {
        free_appends(i < s->n_flights
                         ? s->flights[(s->first_flight + i) % PK_STORE_DEPTH].whole
                         : NULL);
        pk_door_resize(s->flights[i].memory, 0);
    }
    pk_door_resize(s->making_bytes, 0);
    pk_store_free_put(s);
    pk_store_free_reads(s);
    pk_store_free_sent(s);
    pk_door_resize(s->incoming.bytes, 0);
    pk_door_resize(s, 0);
}

void pk_store_maybe_closed(struct pk_store *s)
{
    bool busy = s->n_flights > 0 || s->making_bytes != NULL || s->put != NULL ||
                s->reads != NULL || s->is_syncing || pk_store_is_receiving(s) ||
                pk_store_is_sending(s);
    if (!s->closing || busy || s->closed == NULL) {
        return;
    }
    if (s->mark_dirty) {
        sync_mark(s);
        return;
    }
    void (*closed)(void *) = s->closed;
    s->closed = NULL;
    closed(s->closed_ctx);
}

void pk_store_close(struct pk_store *s, void (*closed)(void *ctx), void *ctx)
{
    s->closing = true;
    s->closed = closed;
    s->closed_ctx = ctx;
    /* What has not been handed to the disk never will be. */
    while (s->first != NULL) {
        struct pk_append *a = s->first;
        struct raft_io_append *req = a->req;
        s->first = a->next;
        a->next = s->spare_appends;
        s->spare_appends = a;
        req->cb(req, RAFT_CANCELED);
    }
    s->end = &s->first;
    s->pending = 0;
    pk_store_cancel_snapshot(s);
    pk_store_maybe_closed(s);
}
