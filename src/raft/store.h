/* SPDX-License-Identifier: MIT */
/*
 * The log store: the disk half of a raft_io. Keeps the log, term and vote, and snapshots
 * of one node in files of its own format (README.md), on any disk (disk.h).
 *
 * Up to four batches are on their way to the disk at a time; what arrives meanwhile is
 * written together. Entries are acknowledged in the order of the log, and only when
 * everything before them is durable too.
 *
 * A write that fails is told by `failed`, and nothing is acknowledged after it (D4 of
 * README.md). Only space for *new* files may be missing: then the store reports little
 * capacity, by which libraft refuses commands, and goes on when there is room.
 *
 * Threading: none. Functions named as in raft_io have its contracts.
 */
#ifndef PICKET_RAFT_STORE_H
#define PICKET_RAFT_STORE_H

#include <raft.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raft/disk.h"
#include "raft/log_format.h"
#include "raft/log_use.h"
#include "raft/snapshot.h"

enum {
    PK_STORE_SEGMENT = 4 * 1024 * 1024, /* holds the largest entry */
    PK_STORE_SLICE = 64 * 1024,
    PK_STORE_CHUNK_LEAST = 16 * 1024, /* of a snapshot on its way to another node */
    PK_STORE_CHUNK_MAX = 256 * 1024,
    PK_STORE_SEGMENTS_MAX = 256,
    PK_STORE_SEGMENTS_LEAST = 4,
    PK_STORE_WHY_MAX = 256, /* a sentence with its NUL */
};

/* As much state as the limits of the machine can be raised to, and a backup of as much
 * that is being restored. */
#define PK_STORE_STATE_MAX (UINT64_C(8) << 30)

struct pk_store_options {
    struct pk_disk *disk;
    struct pk_log_owner owner;
    uint32_t segment_bytes; /* 0: PK_STORE_SEGMENT; a multiple of PK_BLOCK */
    uint64_t log_bytes;     /* most that segments may take; 0: 256 MiB */
    uint32_t slice_bytes;   /* of a snapshot, at a time; 0: PK_STORE_SLICE */
    uint32_t chunk_bytes;   /* the first of them; 0: PK_STORE_CHUNK_LEAST */
    /* Makes a state of a snapshot's bytes, for whoever restores. NULL: a snapshot is
     * given out as bytes. */
    const struct pk_snapshot_loader *loader;
    /* What other nodes are to get (store_incoming.c, store_outgoing.c). Each may be lost
     * on its way. */
    void (*send_chunk)(void *ctx, uint64_t peer, const struct pk_snapshot_chunk *c);
    void (*send_have)(void *ctx, uint64_t peer, const struct pk_snapshot_id *id,
                      uint64_t have);
    void (*send_install)(void *ctx, const struct raft_message *m);
    /* A write failed: the node must end now, and must not call the store again. */
    void (*failed)(void *ctx, const char *why);
    void *ctx;
};

struct pk_store;

struct pk_store *pk_store_new(const struct pk_store_options *o);
/* Ends at once; what is under way must never be called back. */
void pk_store_free(struct pk_store *s);

/* Makes the files of a new node, over those of a start that was cut off before the node
 * belonged to a cluster. NULL, or a sentence. */
const char *pk_store_create(struct pk_store *s);
/* Opens the files that are there. NULL, or a sentence. */
const char *pk_store_open(struct pk_store *s);

/* ---- as in raft_io; after create or open ---- */

/* The log may hold no entry yet. */
int pk_store_bootstrap(struct pk_store *s, const struct raft_configuration *conf);
/* What a start needs. 0, or an error of libraft with a sentence in pk_store_why. */
struct pk_store_loaded {
    raft_term term;
    raft_id vote;
    struct raft_snapshot *snapshot; /* NULL: none */
    raft_index start;               /* index of the first entry */
    struct raft_entry *entries;
    size_t n;
};
int pk_store_load(struct pk_store *s, struct pk_store_loaded *out);
/* Frees what was loaded and is not needed. */
void pk_store_unload(struct pk_store *s, struct pk_store_loaded *l);
const char *pk_store_why(const struct pk_store *s);

int pk_store_set_term(struct pk_store *s, raft_term term);
int pk_store_set_vote(struct pk_store *s, raft_id vote);
int pk_store_append(struct pk_store *s, struct raft_io_append *req,
                    const struct raft_entry entries[], unsigned n, raft_io_append_cb cb);
int pk_store_truncate(struct pk_store *s, raft_index index);
int pk_store_snapshot_put(struct pk_store *s, unsigned trailing,
                          struct raft_io_snapshot_put *req,
                          const struct raft_snapshot *snapshot,
                          raft_io_snapshot_put_cb cb);
int pk_store_snapshot_get(struct pk_store *s, struct raft_io_snapshot_get *req,
                          raft_io_snapshot_get_cb cb);
/* Waits for what is under way, then calls `closed`. */
void pk_store_close(struct pk_store *s, void (*closed)(void *ctx), void *ctx);

/* ---- snapshots between nodes ---- */

/* libraft's InstallSnapshot to another node, with what snapshot_get has given it. The
 * state goes first, in chunks; then `send_install` gets the message, whose data is a name
 * of the state (pk_snapshot_name). While that goes on, further calls change nothing. */
void pk_store_send(struct pk_store *s, const struct raft_message *m);
/* A node says how far it has come with a snapshot. */
void pk_store_have(struct pk_store *s, uint64_t peer, const struct pk_snapshot_id *id,
                   uint64_t have);
/* A chunk of another node's snapshot; the bytes are good during the call. */
void pk_store_chunk(struct pk_store *s, uint64_t peer, const struct pk_snapshot_chunk *c);
/* InstallSnapshot from another node, with a name. True: its state is here, and its data
 * is now a handle for libraft. False: the message is to be dropped. */
bool pk_store_install(struct pk_store *s, struct raft_message *m);

enum { PK_SNAPSHOT_NAME = 16 }; /* bytes */
/* Size (8), checksum (4), 0 (4): the rest of the id stands in the message. */
void pk_snapshot_name(const struct pk_snapshot_id *id,
                      unsigned char out[PK_SNAPSHOT_NAME]);

/* ---- beside raft_io ---- */

/* Call it now and then, a few times a second: repeats what lacked space, and flushes the
 * mark of an idle log. */
void pk_store_tick(struct pk_store *s);
/* KiB that are certain to be there for entries: the capacity of raft_io. */
unsigned short pk_store_capacity(const struct pk_store *s);
/* Below this capacity nothing new is taken in: what is left is for terms and barriers. */
unsigned short pk_store_reserve(const struct pk_store *s);

struct pk_log_use pk_store_use(const struct pk_store *s);
/* Whether the disk has something to write, and the number of the last durable batch: if
 * it stays the same meanwhile, the disk stalls. */
bool pk_store_is_writing(const struct pk_store *s, uint64_t *durable);
/* Of the last entry that was handed over. */
uint64_t pk_store_last_index(const struct pk_store *s);

/* The configuration that was appended last, from meta: for `picket cluster recover`. */
const struct pk_meta *pk_store_meta(const struct pk_store *s);

#endif
