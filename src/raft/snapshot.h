/* SPDX-License-Identifier: MIT */
/*
 * Snapshots as they travel between the machine, the disk and the consensus library.
 *
 * The library wants a snapshot as one buffer in memory. A state may have a million locks,
 * and the loop must not stand still for it: so the library gets a buffer with a handle,
 * and the bytes go in slices past it. While a snapshot is taken they come from a source
 * (a view of the machine, core/machine.h); while one is loaded they go to a loader.
 *
 *     the bytes   offset  bytes
 *                      0      4   "PKFS"
 *                      4      1   cluster version of the state: how to read the rest
 *                      5      8   index of the last entry that was run
 *                     13      8   length of the staged backup
 *                     21      8   digest of the bytes before
 *                     29    ...   the staged backup
 *                           ...   the machine's snapshot, which ends with its digest
 */
#ifndef PICKET_RAFT_SNAPSHOT_H
#define PICKET_RAFT_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct raft_buffer;
struct pk_machine;
struct pk_backup_reader;

/* ---- taking ---- */

enum pk_source_state {
    PK_SOURCE_MORE, /* bytes may follow, even if there were none this time */
    PK_SOURCE_END,  /* these were the last ones */
    PK_SOURCE_GONE, /* the snapshot can't be completed: give it up */
};

struct pk_snapshot_source {
    void *ctx;
    /* Copies the next bytes, at most `room`; *n says how many. Its cost is bounded by
     * `room` and a constant. */
    enum pk_source_state (*read)(void *ctx, unsigned char *to, size_t room, size_t *n);
};

/* ---- loading ---- */

/* Makes a state of bytes, in slices of any size. For any thread. */
struct pk_snapshot_loader {
    void *(*begin)(void);
    /* False: the bytes are damaged or of a version that this build does not run. */
    bool (*feed)(void *load, const unsigned char *bytes, size_t len);
    /* After feed was false: that version; 0: the bytes are damaged. */
    uint32_t (*needs)(const void *load);
    /* The state; NULL: the bytes were not complete. Frees `load`. */
    void *(*end)(void *load);
    void (*drop)(void *state);
};

/* Makes a struct pk_state. */
extern const struct pk_snapshot_loader pk_state_loader;

/* ---- a backup on its way in ---- */

struct pk_staged_piece {
    struct pk_staged_piece *next;
    size_t len;
    unsigned char bytes[];
};

/* Only grows, and is shared: by the state, and by a snapshot of the moment when it had
 * fewer pieces. Each piece is fed to the reader as it is added, so that the machine of
 * the backup is there when the last piece is. */
struct pk_staging {
    unsigned refs;
    uint64_t len;
    struct pk_staged_piece *first, *last;
    struct pk_backup_reader *reader; /* NULL: it has no bytes, or was taken away */
};

struct pk_staging *pk_staging_new(void);
void pk_staging_add(struct pk_staging *s, const void *bytes, size_t len);
/* NULL is no staging. */
void pk_staging_drop(struct pk_staging *s);
/* The machine of the reader, which is gone then; NULL: there is no reader. */
struct pk_machine *pk_staging_take_machine(struct pk_staging *s);
/* Frees the first piece of a staging that nobody shares. False: there is none. */
bool pk_staging_free_piece(struct pk_staging *s);

/* ---- what is replicated ---- */

struct pk_state {
    struct pk_machine *machine;
    uint64_t last_entry; /* index of the last entry run */
    struct pk_staging *staging;
};

/* The state as it is now, while it goes on: begins a view of its machine. */
struct pk_state_view;
struct pk_state_view *pk_state_view_begin(const struct pk_state *s);
struct pk_snapshot_source *pk_state_view_source(struct pk_state_view *v);
/* Ends the machine's view; from then on the source is gone. Must be called before the
 * machine is freed. */
void pk_state_view_end(struct pk_state_view *v);
/* All bytes were read, and their digest was not the machine's. */
bool pk_state_view_is_unsound(const struct pk_state_view *v);
void pk_state_view_free(struct pk_state_view *v);

/* ---- in the library's buffers ---- */

/* The bytes of one snapshot: other bytes have another id. */
struct pk_snapshot_id {
    uint64_t index, term; /* of the last entry in it */
    uint64_t size;        /* bytes of the state; 0: there is none */
    uint32_t sum;         /* their checksum */
};

bool pk_snapshot_same(const struct pk_snapshot_id *a, const struct pk_snapshot_id *b);

/* Some bytes of a state on their way to another node; with none it is a question. */
struct pk_snapshot_chunk {
    struct pk_snapshot_id id;
    uint64_t offset;
    const unsigned char *bytes;
    size_t len;
};

struct pk_snapshot_handle {
    const void *self; /* the handle's own address, which no bytes of a snapshot know */
    struct pk_snapshot_source *source; /* NULL, or the snapshot is being taken */
    struct pk_snapshot_id id;          /* it is in a slot of the log store */
    void *state;                       /* NULL, or it has been loaded */
};

void pk_snapshot_handle_init(struct pk_snapshot_handle *h);
/* NULL: the buffer has the bytes of a snapshot. */
struct pk_snapshot_handle *pk_snapshot_handle_of(const struct raft_buffer *b);

#endif
