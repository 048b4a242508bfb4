/* SPDX-License-Identifier: MIT */
/*
 * The bytes of the log store's files (README.md has the layout): encoding and decoding,
 * without any I/O. Decoders are total: they accept any bytes.
 */
#ifndef PICKET_RAFT_LOG_FORMAT_H
#define PICKET_RAFT_LOG_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PK_LOG_FORMAT = 1,    /* of all files of the log store; meta says it for all */
    PK_SECTOR = 512,      /* what a disk writes whole or not at all */
    PK_SECTOR_DATA = 500, /* of it, before the stamp */
    PK_BLOCK = 4096,      /* batches begin at multiples of it */
    PK_BLOCK_DATA = PK_BLOCK / PK_SECTOR * PK_SECTOR_DATA,
    PK_BATCH_HEAD = 80,  /* bytes before the records of a batch */
    PK_RECORD_HEAD = 16, /* bytes of each record before its data */
    PK_META_SLOT = 8192,
    PK_SNAPSHOT_HEAD = 8192,
    PK_CONFIGURATION_MAX = PK_META_SLOT - 64 - 4,
};

/* Whose files these are: part of every checksum or field that could be mixed up. */
struct pk_log_owner {
    uint64_t cluster, incarnation;
};

/* ---- meta ---- */

struct pk_meta {
    uint64_t version; /* larger by one with each change */
    struct pk_log_owner owner;
    uint64_t term, vote;
    uint32_t segments, segment_bytes;
    uint32_t configuration_len;
    unsigned char configuration[PK_CONFIGURATION_MAX];
};

/* The format of a slot that checks, whether or not this build reads it; 0: it does not
 * check. */
uint32_t pk_meta_format(const unsigned char in[PK_META_SLOT]);
void pk_meta_encode(const struct pk_meta *m, unsigned char out[PK_META_SLOT]);
bool pk_meta_decode(const unsigned char in[PK_META_SLOT], struct pk_meta *out);

/* ---- mark ---- */

void pk_mark_encode(uint64_t incarnation, uint64_t durable, unsigned char out[PK_SECTOR]);
/* The number of a durable batch; 0: the slot says nothing. */
uint64_t pk_mark_decode(uint64_t incarnation, const unsigned char in[PK_SECTOR]);

/* ---- snapshots ---- */

struct pk_snapshot_head {
    struct pk_log_owner owner;
    uint64_t index, term, configuration_index;
    uint64_t state_len;
    uint32_t state_sum; /* checksum of the state */
    uint32_t configuration_len;
    unsigned char configuration[PK_CONFIGURATION_MAX];
};

void pk_snapshot_head_encode(const struct pk_snapshot_head *h,
                             unsigned char out[PK_SNAPSHOT_HEAD]);
/* False if the head does not check, or is another node's. The state is not looked at. */
bool pk_snapshot_head_decode(const struct pk_log_owner *owner, const unsigned char *in,
                             size_t len, struct pk_snapshot_head *out);

/* ---- batches ---- */

enum pk_record_type {
    PK_RECORD_COMMAND = 1,
    PK_RECORD_BARRIER = 2,
    PK_RECORD_CONFIGURATION = 3,
    PK_RECORD_TRUNCATION = 4, /* its data: the index from which on entries are void */
    PK_RECORD_RESET = 5,      /* its data: the index at which an empty log goes on */
};

struct pk_record {
    uint64_t term; /* 0 for a truncation and a reset */
    enum pk_record_type type;
    const unsigned char *data;
    uint32_t len;
};

struct pk_batch_head {
    struct pk_log_owner owner;
    uint64_t number, before;
    uint64_t durable;     /* last batch that was durable when this one was written */
    uint64_t first_index; /* of its first entry */
    uint64_t last_index, last_term; /* of the log, when all of it is taken in */
    uint32_t bytes;                 /* before the padding of its last block */
    uint32_t records;
    uint32_t chain; /* checksum over the stamps of the batch before */
};

/* Where a batch is, or a sector. */
struct pk_log_place {
    uint32_t segment;
    uint64_t offset;
};

/* Bytes on disk of a batch with so many records and bytes of data, each padded to a
 * multiple of 8. */
uint64_t pk_batch_size(uint64_t records, uint64_t padded_data);
/* Writes a batch for `at`; `size` is pk_batch_size(). Fills in bytes and records of the
 * head. Returns the chain for the batch behind it. */
uint32_t pk_batch_encode(struct pk_batch_head *h, struct pk_log_place at,
                         const struct pk_record *records, size_t n, unsigned char *out,
                         size_t size);
/* Fills a new segment: every sector stamped, none written by a batch. */
void pk_segment_fill(const struct pk_log_owner *owner, uint32_t segment,
                     unsigned char *out, size_t len);

/* False: the sector at `in` does not check. *number: of the batch that wrote it. */
bool pk_sector_check(const struct pk_log_owner *owner, struct pk_log_place at,
                     const unsigned char *in, uint64_t *number);

enum pk_batch_state {
    PK_BATCH_GOOD, /* all of it is there */
    PK_BATCH_TORN, /* a head, and some sectors of before: it was in flight */
    PK_BATCH_BAD,  /* a sector does not check */
    PK_BATCH_NONE, /* no batch begins here: older content */
};

/* What is looked for, and where. */
struct pk_batch_look {
    const struct pk_log_owner *owner;
    struct pk_log_place at;
    uint64_t above; /* a batch of this number or a lower one is older content */
};

/* Looks for a batch at `in`, which has `len` bytes to the end of its segment. *out has
 * the head on GOOD and TORN; *chain is for the batch behind a GOOD one. */
enum pk_batch_state pk_batch_decode(const struct pk_batch_look *look,
                                    const unsigned char *in, size_t len,
                                    struct pk_batch_head *out, uint32_t *chain);

/* Takes the stamps out of a GOOD batch: its h->bytes bytes, one after the other. */
void pk_batch_gather(const struct pk_batch_head *h, const unsigned char *in,
                     unsigned char *out);
/* The records of gathered bytes, one after the other. */
struct pk_batch_cursor {
    const unsigned char *head, *data;
    uint32_t left;
};
/* False: the records do not fill the batch. */
bool pk_batch_open(struct pk_batch_cursor *c, const struct pk_batch_head *h,
                   const unsigned char *gathered);
bool pk_batch_next(struct pk_batch_cursor *c, struct pk_record *out);

#endif
