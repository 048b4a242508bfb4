/* SPDX-License-Identifier: MIT */
/* Life of a log store, term and vote, and the way of entries to the disk. */
#include "raft/store.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/store_inside.h"

enum {
    LOG_BYTES = 256 * 1024 * 1024,
    BATCH_BYTES = 1024 * 1024, /* of entries in one batch, if it has more than one */
    BATCH_RECORDS = 256,
    FIRST_SEGMENTS = 2,
    PARTS_OF_LOG = 4,       /* a snapshot after so much of it, and as much kept behind */
    IDLE_TICKS = 10,        /* then the mark is flushed */
    LEFT_FREE_SEGMENTS = 4, /* of the disk, for snapshots */
};

static const char meta_name[] = "meta";
static const char mark_name[] = "mark";

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

static struct pk_disk_op op_of(enum pk_disk_kind kind, const char *name)
{
    struct pk_disk_op op = {.kind = kind};
    (void)snprintf(op.name, sizeof op.name, "%s", name);
    return op;
}

static int at_once(struct pk_store *s, struct pk_disk_op *op)
{
    return s->o.disk->now(s->o.disk->ctx, op);
}

int pk_store_read(struct pk_store *s, const char *name, unsigned char **out, size_t *len)
{
    struct pk_disk_op op = op_of(PK_DISK_READ, name);
    int error = at_once(s, &op);
    *out = op.bytes;
    *len = op.len;
    return error;
}

int pk_store_store(struct pk_store *s, const char *name, const unsigned char *bytes,
                   size_t len)
{
    struct pk_disk_op op = op_of(PK_DISK_STORE, name);
    op.parts[0] = (struct pk_disk_part){bytes, len};
    op.n_parts = 1;
    return at_once(s, &op);
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
    struct pk_disk_op op = op_of(PK_DISK_OVERWRITE, meta_name);
    op.offset = slot * PK_META_SLOT;
    op.parts[0] = (struct pk_disk_part){slots->bytes[slot], PK_META_SLOT};
    op.n_parts = 1;
    return at_once(s, &op);
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
static void keep_spares(struct pk_store *s)
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
    s->making = op_of(PK_DISK_STORE, name);
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
static void release_before_reset(struct pk_store *s, uint64_t number)
{
    for (uint32_t i = 0; i < s->meta.segments; i++) {
        if (s->segments[i].used && s->segments[i].order < number) {
            s->segments[i] = (struct pk_segment){0};
        }
    }
}

/* ---- batches ---- */

/* What goes into the next batch. */
struct draft {
    struct pk_record records[BATCH_RECORDS];
    size_t n;
    uint64_t data; /* bytes of the records, padded */
    uint64_t most; /* of them, if there is more than one entry */
    unsigned char indexes[BATCH_RECORDS][8];
    uint64_t first_index, last_index, last_term;
    bool resets;
};

static void add_record(struct draft *d, struct pk_record r)
{
    d->records[d->n++] = r;
    d->data += (r.len + UINT64_C(7)) / 8 * 8;
}

static void add_index(struct draft *d, enum pk_record_type type, uint64_t index)
{
    unsigned char *bytes = d->indexes[d->n];
    pk_put_u64(bytes, index);
    add_record(d, (struct pk_record){.type = type, .data = bytes, .len = 8});
    d->last_index = index - 1;
}

static bool is_full(const struct draft *d, size_t more)
{
    bool any = d->first_index != 0;
    return d->n + 3 > BATCH_RECORDS || (any && d->data + more > d->most);
}

/* Adds as much of an append as fits; true: all of it. */
static bool add_append(struct draft *d, const struct pk_append *a, unsigned *taken)
{
    if (a->written == 0 && a->reset != 0) {
        add_index(d, PK_RECORD_RESET, a->reset);
        d->resets = true;
    }
    if (a->written == 0 && a->truncate != 0) {
        add_index(d, PK_RECORD_TRUNCATION, a->truncate);
    }
    unsigned i = a->written;
    for (; i < a->n && !is_full(d, a->entries[i].buf.len); i++) {
        const struct raft_entry *e = &a->entries[i];
        add_record(d, (struct pk_record){.term = e->term,
                                         .type = (enum pk_record_type)e->type,
                                         .data = e->buf.base,
                                         .len = (uint32_t)e->buf.len});
        d->last_index++;
        d->last_term = e->term;
        d->first_index = d->first_index == 0 ? d->last_index : d->first_index;
    }
    *taken = i - a->written;
    return i == a->n;
}

/* Appends from the first pending one on. A reset begins a batch of its own. */
static void compose(const struct pk_store *s, struct draft *d, unsigned taken[],
                    size_t *n_appends)
{
    size_t n = 0;
    for (const struct pk_append *a = s->first; a != NULL && n < BATCH_RECORDS;
         a = a->next) {
        size_t first = a->n == 0 ? 0 : a->entries[a->written].buf.len;
        if (n > 0 && (a->reset != 0 || is_full(d, first))) {
            break;
        }
        bool whole = add_append(d, a, &taken[n++]);
        if (!whole) {
            break;
        }
    }
    *n_appends = n;
}

/* Where a batch of `size` bytes goes: behind the last one, or into a spare segment. False:
 * there is none. */
static bool find_place(struct pk_store *s, uint64_t size, bool anew)
{
    bool fresh = !s->segments[s->current].used;
    if ((!anew || fresh) && s->offset + size <= s->meta.segment_bytes) {
        return true;
    }
    for (uint32_t i = 0; i < s->meta.segments; i++) {
        if (!s->segments[i].used && i != s->current) {
            s->current = i;
            s->offset = 0;
            return true;
        }
    }
    return false;
}

static void make_room(struct pk_flight *f, size_t size)
{
    if (f->size < size) {
        f->memory = pk_door_resize(f->memory, 0);
        f->memory = pk_door_resize(NULL, size + PK_DISK_BLOCK);
        uintptr_t up = (uintptr_t)f->memory + PK_DISK_BLOCK - 1;
        f->room = f->memory + (up / PK_DISK_BLOCK * PK_DISK_BLOCK - (uintptr_t)f->memory);
        f->size = size;
    }
}

static void note_in_segment(struct pk_store *s, const struct draft *d, uint64_t size)
{
    struct pk_segment *g = &s->segments[s->current];
    if (!g->used) {
        *g = (struct pk_segment){
            .used = true, .order = s->number, .first_index = d->first_index};
    }
    g->last_index = d->last_index > g->last_index ? d->last_index : g->last_index;
    g->bytes += size;
}

/* About what an entry takes on disk. */
static uint64_t entry_bytes(const struct raft_entry *e)
{
    uint64_t bytes = PK_RECORD_HEAD + (e->buf.len + UINT64_C(7)) / 8 * 8;
    return bytes * PK_SECTOR / PK_SECTOR_DATA;
}

/* Moves the appends that are in the batch from the queue to the flight. */
static void move_appends(struct pk_store *s, struct pk_flight *f, const unsigned *taken,
                         size_t n)
{
    f->whole = NULL;
    f->end = &f->whole;
    for (size_t i = 0; i < n; i++) {
        struct pk_append *a = s->first;
        for (unsigned j = 0; j < taken[i]; j++) {
            s->pending -= entry_bytes(&a->entries[a->written + j]);
        }
        a->written += taken[i];
        if (a->written < a->n) {
            return;
        }
        s->first = a->next;
        s->end = s->first == NULL ? &s->first : s->end;
        a->next = NULL;
        *f->end = a;
        f->end = &a->next;
    }
}

static void on_batch_written(struct pk_disk_op *op, int error);

static void submit(struct pk_store *s, struct pk_flight *f, uint64_t size)
{
    char name[PK_DISK_NAME_MAX];
    pk_store_segment_name(s->current, name);
    f->store = s;
    f->done = false;
    f->number = s->number;
    f->op = op_of(PK_DISK_OVERWRITE, name);
    f->op.offset = s->offset;
    f->op.parts[0] = (struct pk_disk_part){f->room, (size_t)size};
    f->op.n_parts = 1;
    f->op.done = on_batch_written;
    f->op.data = f;
    s->offset += size;
    s->written += size;
    s->n_flights++;
    s->o.disk->submit(s->o.disk->ctx, &f->op);
}

static uint64_t batch_most(const struct pk_store *s)
{
    uint64_t half = s->meta.segment_bytes / 2;
    return half < BATCH_BYTES ? half : BATCH_BYTES;
}

/* Hands one batch of what is pending to the disk. False: there is no place for it. */
static bool write_batch(struct pk_store *s)
{
    static _Thread_local struct draft d; /* large */
    unsigned taken[BATCH_RECORDS];
    size_t n;
    d.n = 0;
    d.data = 0;
    d.most = batch_most(s);
    d.first_index = 0;
    d.resets = false;
    d.last_index = s->batched_index;
    d.last_term = s->batched_term;
    compose(s, &d, taken, &n);
    uint64_t size = pk_batch_size(d.n, d.data);
    if (!find_place(s, size, d.resets)) {
        return false;
    }
    struct pk_flight *f = &s->flights[(s->first_flight + s->n_flights) % PK_STORE_DEPTH];
    struct pk_batch_head h = {.owner = s->o.owner,
                              .number = ++s->chosen,
                              .before = s->number,
                              .durable = s->durable,
                              .first_index = d.first_index,
                              .last_index = d.last_index,
                              .last_term = d.last_term,
                              .chain = s->chain};
    make_room(f, (size_t)size);
    struct pk_log_place at = {s->current, s->offset};
    s->chain = pk_batch_encode(&h, at, d.records, d.n, f->room, (size_t)size);
    s->number = h.number;
    s->batched_index = d.last_index;
    s->batched_term = d.last_term;
    f->resets = d.resets ? h.number : 0;
    note_in_segment(s, &d, size);
    move_appends(s, f, taken, n);
    submit(s, f, size);
    return true;
}

void pk_store_pump(struct pk_store *s)
{
    while (s->first != NULL && s->n_flights < PK_STORE_DEPTH && !s->failed &&
           write_batch(s)) {
    }
    keep_spares(s);
}

/* ---- acknowledging ---- */

/* Notes how far the log is durable, before anybody hears of it. The note is only
 * evidence for a later start: if it can't be written, the log itself is still whole. */
static void note_durable(struct pk_store *s)
{
    unsigned char sector[PK_SECTOR];
    pk_mark_encode(s->o.owner.incarnation, s->durable, sector);
    uint64_t offset = s->mark_slot ? PK_SECTOR : 0;
    s->mark_slot = !s->mark_slot;
    s->mark_dirty =
        s->o.disk->note(s->o.disk->ctx, mark_name, offset, sector, sizeof sector) == 0;
    s->idle_ticks = 0;
}

static struct pk_append *take_durable(struct pk_store *s)
{
    struct pk_append *list = NULL, **end = &list;
    while (s->n_flights > 0 && s->flights[s->first_flight].done) {
        struct pk_flight *f = &s->flights[s->first_flight];
        s->durable = f->number;
        if (f->resets != 0) {
            release_before_reset(s, f->resets);
        }
        if (f->whole != NULL) {
            *end = f->whole;
            end = f->end;
        }
        s->first_flight = (s->first_flight + 1) % PK_STORE_DEPTH;
        s->n_flights--;
    }
    return list;
}

static void on_batch_written(struct pk_disk_op *op, int error)
{
    struct pk_flight *f = op->data;
    struct pk_store *s = f->store;
    if (error != 0) {
        pk_store_fail(s, op->name, error);
    }
    if (s->failed) {
        return;
    }
    f->done = true;
    uint64_t before = s->durable;
    struct pk_append *list = take_durable(s);
    if (s->durable != before) {
        note_durable(s);
    }
    while (list != NULL) {
        struct pk_append *a = list;
        struct raft_io_append *req = a->req;
        list = a->next;
        a->next = s->spare_appends;
        s->spare_appends = a;
        req->cb(req, 0);
    }
    pk_store_pump(s);
    if (s->n_flights == 0) {
        pk_store_retry_snapshot(s);
    }
    pk_store_maybe_closed(s);
}

/* ---- as in raft_io ---- */

static struct pk_append *new_append(struct pk_store *s)
{
    struct pk_append *a = s->spare_appends;
    if (a == NULL) {
        a = pk_door_resize(NULL, sizeof *a);
    } else {
        s->spare_appends = a->next;
    }
    *a = (struct pk_append){.truncate = s->truncate, .reset = s->reset};
    s->truncate = s->reset = 0;
    return a;
}

/* A configuration is also in meta, where it survives the log. */
static int note_configuration(struct pk_store *s, const struct raft_entry *e)
{
    if (e->buf.len > PK_CONFIGURATION_MAX) {
        return RAFT_TOOBIG;
    }
    memcpy(s->meta.configuration, e->buf.base, e->buf.len);
    s->meta.configuration_len = (uint32_t)e->buf.len;
    return pk_store_write_meta(s);
}

int pk_store_append(struct pk_store *s, struct raft_io_append *req,
                    const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    for (unsigned i = 0; i < n; i++) {
        PK_ASSERT(pk_batch_size(3, entries[i].buf.len + 24) <= s->meta.segment_bytes);
        int rv = entries[i].type == RAFT_CHANGE ? note_configuration(s, &entries[i]) : 0;
        if (rv != 0) {
            return rv;
        }
    }
    struct pk_append *a = new_append(s);
    req->cb = cb;
    a->req = req;
    a->entries = entries;
    a->n = n;
    s->tail_index += n;
    for (unsigned i = 0; i < n; i++) {
        s->pending += entry_bytes(&entries[i]);
    }
    *s->end = a;
    s->end = &a->next;
    pk_store_pump(s);
    return 0;
}

/* libraft calls this before every append. It becomes part of the batch that follows. */
int pk_store_truncate(struct pk_store *s, raft_index index)
{
    PK_ASSERT(index > 0);
    if (s->reset != 0) {
        PK_ASSERT(index == s->reset);
        return 0;
    }
    if (index <= s->tail_index) {
        s->truncate = s->truncate == 0 || index < s->truncate ? index : s->truncate;
        s->tail_index = index - 1;
    }
    return 0;
}

int pk_store_bootstrap(struct pk_store *s, const struct raft_configuration *conf)
{
    struct raft_buffer b;
    if (s->meta.term != 0 || s->number != 0) {
        return RAFT_CANTBOOTSTRAP;
    }
    int rv = raft_configuration_encode(conf, &b);
    if (rv != 0) {
        return rv;
    }
    struct raft_entry e = {.term = 1, .type = RAFT_CHANGE, .buf = b};
    struct pk_record r = {.term = 1,
                          .type = PK_RECORD_CONFIGURATION,
                          .data = b.base,
                          .len = (uint32_t)b.len};
    uint64_t size = pk_batch_size(1, (b.len + 7) / 8 * 8);
    struct pk_flight *f = &s->flights[0];
    struct pk_batch_head h = {.owner = s->o.owner,
                              .number = 1,
                              .first_index = 1,
                              .last_index = 1,
                              .last_term = 1};
    make_room(f, (size_t)size);
    (void)pk_batch_encode(&h, (struct pk_log_place){0, 0}, &r, 1, f->room, (size_t)size);
    struct pk_disk_op op = op_of(PK_DISK_OVERWRITE, "log-000");
    op.parts[0] = (struct pk_disk_part){f->room, (size_t)size};
    op.n_parts = 1;
    int error = at_once(s, &op);
    if (error != 0) {
        raft_free(b.base);
        return pk_store_refuse(s, RAFT_IOERR, "can't write raft/log-000: %s",
                               strerror(error));
    }
    s->meta.term = 1;
    rv = note_configuration(s, &e); /* writes meta */
    raft_free(b.base);
    return rv;
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
    s->syncing = op_of(PK_DISK_SYNC, mark_name);
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

struct pk_log_use pk_store_use(const struct pk_store *s)
{
    struct pk_log_use use = {.since = s->written - s->written_at_snapshot};
    uint64_t part = (uint64_t)segments_max(s) * s->meta.segment_bytes / PARTS_OF_LOG;
    bool no_more = s->lacks_space || s->meta.segments >= segments_max(s);
    bool pressed = no_more && spares(s) < PK_STORE_SPARES;
    for (uint32_t i = 0; i < s->meta.segments; i++) {
        use.bytes += s->segments[i].used ? s->meta.segment_bytes : 0;
    }
    use.wants = s->put_pause == 0 &&
                (use.since >= part ||
                 (pressed && use.since >= s->meta.segment_bytes / 2));
    use.waits = makes_room(s) && free_bytes(s) < s->meta.segment_bytes + batch_most(s);
    use.keep_from = keep_from(s, pressed ? 0 : part);
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
        (void)snprintf(name, sizeof name, "%s", mark_name);
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
    bool first = len == 2 * PK_META_SLOT && pk_meta_decode(in, &s->meta);
    bool second = len == 2 * PK_META_SLOT && pk_meta_decode(in + PK_META_SLOT, &other);
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
    pk_door_resize(s->put, 0);
    pk_store_free_reads(s);
    pk_door_resize(s, 0);
}

void pk_store_maybe_closed(struct pk_store *s)
{
    bool busy = s->n_flights > 0 || s->making_bytes != NULL || s->put != NULL ||
                s->reads != NULL || s->is_syncing;
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
