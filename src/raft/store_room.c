/* SPDX-License-Identifier: MIT */
/* The room that a log has: segments that are ready, capacity, when a snapshot is due. */
#include <errno.h>

#include "core/door.h"
#include "raft/store_inside.h"

enum {
    PARTS_OF_LOG = 4,       /* a snapshot after so much of it, and as much kept behind */
    LEFT_FREE_SEGMENTS = 4, /* of the disk, for snapshots */
};

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
    pk_segment_fill(&s->o.owner, segment, s->making_bytes, len);
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

struct pk_log_use pk_store_use(const struct pk_store *s)
{
    struct pk_log_use use = {.since = s->written - s->written_at_snapshot};
    uint64_t part = (uint64_t)segments_max(s) * s->meta.segment_bytes / PARTS_OF_LOG;
    bool no_more = s->lacks_space || s->meta.segments >= segments_max(s);
    bool pressed = no_more && spares(s) < PK_STORE_SPARES;
    for (uint32_t i = 0; i < s->meta.segments; i++) {
        use.bytes += s->segments[i].used ? s->meta.segment_bytes : 0;
    }
    use.wants =
        s->put_pause == 0 &&
        (use.since >= part || (pressed && use.since >= s->meta.segment_bytes / 2));
    uint64_t enough = s->meta.segment_bytes + pk_store_batch_most(s);
    use.waits = makes_room(s) && free_bytes(s) < enough;
    use.keep_from = keep_from(s, pressed ? 0 : part);
    return use;
}
