/* SPDX-License-Identifier: MIT */
/*
 * What a node has on disk: all of it that survives a crash.
 *
 * Term, vote, a log that begins anywhere, and one snapshot. Writes to log and snapshot
 * are queued by sim_io.c and reach the disk later; a crash cuts that queue anywhere.
 */
#ifndef PICKET_SIM_DISK_H
#define PICKET_SIM_DISK_H

#include <stddef.h>
#include <stdint.h>

#include "sim_heap.h"

/* One entry of the log. */
struct sim_record {
    uint64_t term;
    int type;
    size_t len;
    unsigned char bytes[];
};

struct sim_snapshot {
    uint64_t index, term;
    uint64_t conf_index;
    size_t conf_len, data_len;
    unsigned char bytes[]; /* configuration, then data */
};

struct sim_disk {
    struct sim_heap *heap; /* the world's: a disk outlives its processes */
    uint64_t term, vote;
    uint64_t first;              /* the index of records[0], also when there is none */
    struct sim_record **records; /* heap */
    size_t count, capacity;
    struct sim_snapshot *snapshot; /* NULL: none yet */
};

void sim_disk_init(struct sim_disk *d, struct sim_heap *heap);

/* Records and snapshots are made before they are written; the disk takes them over. */
struct sim_record *sim_record_new(struct sim_heap *h, uint64_t term, int type,
                                  const void *bytes, size_t len);
struct sim_snapshot *sim_snapshot_new(struct sim_heap *h, size_t conf_len,
                                      size_t data_len);

void sim_disk_append(struct sim_disk *d, struct sim_record *r);
/* Drops the entries from `index` on. */
void sim_disk_truncate(struct sim_disk *d, uint64_t index);
/* Replaces the snapshot; `trailing` entries before its index stay in the log, 0: the
 * whole log goes, as it came from elsewhere. */
void sim_disk_put_snapshot(struct sim_disk *d, struct sim_snapshot *s, uint64_t trailing);
/* What a start does first: a log that ends before the snapshot is of no use. */
void sim_disk_recover(struct sim_disk *d);

#endif
