/* SPDX-License-Identifier: MIT */
#include "sim_disk.h"

#include <string.h>

void sim_disk_init(struct sim_disk *d, struct sim_heap *heap)
{
    *d = (struct sim_disk){.heap = heap, .first = 1};
}

struct sim_record *sim_record_new(struct sim_heap *h, uint64_t term, int type,
                                  const void *bytes, size_t len)
{
    struct sim_record *r = sim_heap_take(h, sizeof *r + len);
    r->term = term;
    r->type = type;
    r->len = len;
    if (len > 0) {
        memcpy(r->bytes, bytes, len);
    }
    return r;
}

struct sim_snapshot *sim_snapshot_new(struct sim_heap *h, size_t conf_len,
                                      size_t data_len)
{
    struct sim_snapshot *s = sim_heap_take(h, sizeof *s + conf_len + data_len);
    memset(s, 0, sizeof *s);
    s->conf_len = conf_len;
    s->data_len = data_len;
    return s;
}

void sim_disk_append(struct sim_disk *d, struct sim_record *r)
{
    if (d->count == d->capacity) {
        size_t capacity = d->capacity == 0 ? 64 : d->capacity * 2;
        struct sim_record **records =
            sim_heap_take(d->heap, capacity * sizeof *d->records);
        if (d->count > 0) {
            memcpy(records, d->records, d->count * sizeof *records);
        }
        sim_heap_give(d->records);
        d->records = records;
        d->capacity = capacity;
    }
    d->records[d->count++] = r;
}

void sim_disk_truncate(struct sim_disk *d, uint64_t index)
{
    while (d->count > 0 && d->first + d->count > index) {
        sim_heap_give(d->records[--d->count]);
    }
    if (index < d->first) {
        d->first = index; /* a snapshot was faster than the writes before it */
    }
}

/* Drops the entries before `index`. */
static void forget_before(struct sim_disk *d, uint64_t index)
{
    if (index <= d->first) {
        return;
    }
    size_t n = index - d->first < d->count ? (size_t)(index - d->first) : d->count;
    for (size_t i = 0; i < n; i++) {
        sim_heap_give(d->records[i]);
    }
    d->count -= n;
    d->first += n;
    if (d->count > 0) {
        memmove(d->records, d->records + n, d->count * sizeof *d->records);
    }
}

static void forget_all(struct sim_disk *d, uint64_t first)
{
    forget_before(d, d->first + d->count);
    d->first = first;
}

void sim_disk_put_snapshot(struct sim_disk *d, struct sim_snapshot *s, uint64_t trailing)
{
    sim_heap_give(d->snapshot);
    d->snapshot = s;
    if (trailing == 0) {
        forget_all(d, s->index + 1);
    } else if (s->index > trailing) {
        forget_before(d, s->index - trailing + 1);
    }
}

void sim_disk_recover(struct sim_disk *d)
{
    if (d->snapshot != NULL && d->first + d->count <= d->snapshot->index) {
        forget_all(d, d->snapshot->index + 1);
    }
}
