/* SPDX-License-Identifier: MIT */
/* The fields of a log store, private to store.c, store_load.c and store_snapshot.c. */
#ifndef PICKET_RAFT_STORE_INSIDE_H
#define PICKET_RAFT_STORE_INSIDE_H

#include "raft/store.h"

enum {
    PK_STORE_DEPTH = 4,  /* batches on their way to the disk */
    PK_STORE_SPARES = 2, /* segments that are kept ready */
    PK_STORE_SLOTS = 3,  /* of snapshots */
    PK_STORE_BATCH_BYTES =
        1024 * 1024,     /* of entries in one batch, if there are several */
    PK_STORE_PAUSE = 10, /* ticks before a snapshot that lacked space is tried again */
};

struct pk_segment {
    bool used;            /* holds batches of the log */
    uint64_t order;       /* number of its first batch */
    uint64_t first_index; /* of its first entry */
    uint64_t last_index;  /* the highest of an entry in it */
    uint64_t bytes;       /* of its batches */
};

/* An append on its way; before its entries the log may have to be cut. */
struct pk_append {
    struct pk_append *next;
    struct raft_io_append *req;
    const struct raft_entry *entries;
    unsigned n, written; /* entries, and those that are in batches */
    uint64_t truncate;   /* the first entry that is void; 0: none */
    uint64_t reset;      /* the index at which an empty log goes on; 0: it is not reset */
};

/* A batch on its way to the disk. */
struct pk_flight {
    struct pk_disk_op op;
    struct pk_store *store;
    unsigned char *memory; /* `room` is aligned in it */
    unsigned char *room;
    size_t size;             /* of room */
    uint64_t number;         /* of the batch */
    uint64_t resets;         /* segments before this batch hold nothing that counts; 0 */
    struct pk_append *whole; /* appends that are durable with this batch */
    struct pk_append **end;
    bool done;
};

struct pk_snapshot_put;
struct pk_snapshot_read;
struct pk_snapshot_sent;

/*
 * A snapshot that another node sends. Its state goes to a slot as it comes.
 *
 *     NONE         there is no such
 *     OPENING      the slot's old head is being overwritten
 *     READY        the next chunk can come
 *     WRITING      a chunk is being written
 *     WHOLE        all of it is there, and the checksum is right
 *     INSTALLING   libraft has asked for it: store_snapshot.c reads it
 */
enum pk_incoming_state {
    PK_INCOMING_NONE,
    PK_INCOMING_OPENING,
    PK_INCOMING_READY,
    PK_INCOMING_WRITING,
    PK_INCOMING_WHOLE,
    PK_INCOMING_INSTALLING,
};

struct pk_incoming {
    enum pk_incoming_state state;
    struct pk_disk_op op;
    struct pk_snapshot_id id;
    uint64_t peer; /* whose it is */
    unsigned slot;
    uint64_t have;        /* bytes that are written */
    uint32_t sum;         /* of these */
    unsigned idle_ticks;  /* since the last chunk */
    unsigned char *bytes; /* the chunk that is being written, or the head */
    size_t len;           /* of the chunk */
};

struct pk_store {
    struct pk_store_options o;
    struct pk_meta meta;
    char why[PK_STORE_WHY_MAX];
    bool failed;

    struct pk_segment segments[PK_STORE_SEGMENTS_MAX];
    uint32_t current; /* the segment that is written to */
    uint64_t offset;  /* in it, behind the last batch */
    struct pk_disk_op making;
    unsigned char *making_bytes; /* NULL: no segment is being made */
    bool lacks_space;            /* the last attempt to make one failed for that */
    bool making_waits;           /* for the next tick, after such a failure */

    uint64_t number, chosen; /* of the last batch; the highest number ever seen */
    uint32_t chain;
    uint64_t durable; /* number of the last batch that is durable with all before */
    uint64_t written, written_at_snapshot; /* bytes of batches */
    uint64_t state_bytes;                  /* of the newest snapshot */
    uint64_t batched_index, batched_term;  /* of the last entry in a batch */
    uint64_t tail_index;                   /* of the last entry handed to us */
    uint64_t truncate, reset;              /* for the next append; 0: none */

    struct pk_append *first, **end; /* not yet in a batch */
    uint64_t pending;               /* bytes that they will take */
    struct pk_append *spare_appends;
    struct pk_flight flights[PK_STORE_DEPTH]; /* a ring */
    unsigned first_flight, n_flights;

    bool mark_slot, mark_dirty;
    unsigned idle_ticks;
    struct pk_disk_op syncing;
    bool is_syncing;

    uint64_t slots[PK_STORE_SLOTS];            /* index of the snapshot in it; 0: none */
    struct pk_snapshot_id ids[PK_STORE_SLOTS]; /* likewise */
    struct pk_incoming incoming;
    struct pk_snapshot_sent *sent;   /* to other nodes, one for each */
    char bad_slot[PK_DISK_NAME_MAX]; /* one that a start could not use; "": none */
    struct pk_snapshot_put *put;     /* the one that is being written; NULL: none */
    bool put_lacked_space;           /* the last one that was tried failed for that */
    unsigned put_pause;              /* ticks until the next one may be tried */
    struct pk_snapshot_read *reads;  /* those that are being read */
    unsigned readers[PK_STORE_SLOTS];

    void (*closed)(void *ctx);
    void *closed_ctx;
    bool closing;
};

/* ---- store.c ---- */

/* Stores a sentence; returns `error`. */
__attribute__((format(printf, 3, 4))) int pk_store_refuse(struct pk_store *s, int error,
                                                          const char *format, ...);
/* A write failed; `what` was being written. */
void pk_store_fail(struct pk_store *s, const char *what, int error);
int pk_store_write_meta(struct pk_store *s);
struct pk_disk_op pk_store_op(enum pk_disk_kind kind, const char *name);
/* Does an operation at once. 0, or an errno. */
int pk_store_now(struct pk_store *s, struct pk_disk_op *op);
/* Has the next segment made, if few are ready. */
void pk_store_keep_spares(struct pk_store *s);
/* All segments that were begun before batch `number` are free. */
void pk_store_release_before(struct pk_store *s, uint64_t number);
/* Segments that hold only entries before `index` are free. */
void pk_store_release(struct pk_store *s, uint64_t index);
/* The first entry to keep behind a snapshot. */
uint64_t pk_store_keep_from(const struct pk_store *s);
void pk_store_maybe_closed(struct pk_store *s);
void pk_store_segment_name(uint32_t segment, char out[PK_DISK_NAME_MAX]);
/* Reads a file at once; free the bytes with pk_door_resize. 0, or an errno. */
int pk_store_read(struct pk_store *s, const char *name, unsigned char **out, size_t *len);
int pk_store_store(struct pk_store *s, const char *name, const unsigned char *bytes,
                   size_t len);

extern const char pk_store_mark_name[];

/* ---- store_append.c ---- */

/* Hands to the disk what can be. */
void pk_store_pump(struct pk_store *s);
/* The most that one batch takes on disk. */
uint64_t pk_store_batch_most(const struct pk_store *s);

/* ---- store_snapshot.c ---- */

/* The newest snapshot that checks; NULL in *out: there is none. */
int pk_store_find_snapshot(struct pk_store *s, struct raft_snapshot **out);
void pk_store_free_snapshot(struct pk_store *s, struct raft_snapshot *snapshot);
/* Whether one is being written, which will free segments. */
bool pk_store_writes_snapshot(const struct pk_store *s);
/* One that waits for space on the disk is tried again, or given up. */
void pk_store_retry_snapshot(struct pk_store *s);
void pk_store_cancel_snapshot(struct pk_store *s);
void pk_store_free_put(struct pk_store *s);
void pk_store_free_reads(struct pk_store *s);
void pk_store_slot_name(unsigned slot, char out[PK_DISK_NAME_MAX]);
/* The slot to overwrite; PK_STORE_SLOTS: none is free. */
unsigned pk_store_oldest_slot(const struct pk_store *s);
/* The newest snapshot that is whole; NULL: there is none. */
const struct pk_snapshot_id *pk_store_newest(const struct pk_store *s);
/* How long the file of a state should be. */
uint64_t pk_store_slot_size(uint64_t state_bytes);
/* A slot can't be read any more: the node ends. */
void pk_store_fail_slot(struct pk_store *s, const char *name, int error);

/* ---- store_incoming.c ---- */

void pk_store_tick_incoming(struct pk_store *s);
/* The disk has something to write for it. */
bool pk_store_is_receiving(const struct pk_store *s);
/* libraft has the snapshot now, or will not get it. */
void pk_store_end_incoming(struct pk_store *s);

/* ---- store_outgoing.c ---- */

void pk_store_tick_sent(struct pk_store *s);
bool pk_store_is_sending(const struct pk_store *s);
/* A slot is needed: the transfer whose receiver has been silent for the longest time is
 * given up. */
void pk_store_give_up_sent(struct pk_store *s);
void pk_store_free_sent(struct pk_store *s);

#define PK_STORE_REPLACE                                                                 \
    "; replace this node: start it with an empty directory, then 'picket cluster "       \
    "replace'"

#endif
