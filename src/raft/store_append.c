/* SPDX-License-Identifier: MIT */
/* The way of entries to the disk: gathered, written as batches, acknowledged in order. */
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/store_inside.h"

enum { BATCH_RECORDS = 256 };

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

/* Where a batch of `size` bytes goes: behind the last one, or into a spare segment.
 * False: there is none. */
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
        PK_ASSERT(a != NULL);
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
    f->op = pk_store_op(PK_DISK_OVERWRITE, name);
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

uint64_t pk_store_batch_most(const struct pk_store *s)
{
    uint64_t half = s->meta.segment_bytes / 2;
    return half < PK_STORE_BATCH_BYTES ? half : PK_STORE_BATCH_BYTES;
}

/* Hands one batch of what is pending to the disk. False: there is no place for it. */
static bool write_batch(struct pk_store *s)
{
    static _Thread_local struct draft d; /* large */
    unsigned taken[BATCH_RECORDS];
    size_t n;
    d.n = 0;
    d.data = 0;
    d.most = pk_store_batch_most(s);
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
    pk_store_keep_spares(s);
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
    s->mark_dirty = s->o.disk->note(s->o.disk->ctx, pk_store_mark_name, offset, sector,
                                    sizeof sector) == 0;
    s->idle_ticks = 0;
}

static struct pk_append *take_durable(struct pk_store *s)
{
    struct pk_append *list = NULL, **end = &list;
    while (s->n_flights > 0 && s->flights[s->first_flight].done) {
        struct pk_flight *f = &s->flights[s->first_flight];
        s->durable = f->number;
        if (f->resets != 0) {
            pk_store_release_before(s, f->resets);
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
    struct pk_disk_op op = pk_store_op(PK_DISK_OVERWRITE, "log-000");
    op.parts[0] = (struct pk_disk_part){f->room, (size_t)size};
    op.n_parts = 1;
    int error = pk_store_now(s, &op);
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
