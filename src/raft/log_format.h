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
    PK_BLOCK = 4096,     /* what the disk writes at once */
    PK_BATCH_HEAD = 80,  /* bytes before the records of a batch */
    PK_RECORD_HEAD = 16, /* bytes of each record before its data */
    PK_DURABLE_SLOT = 64,
};

/* ---- meta ---- */

struct pk_meta {
    uint64_t version; /* larger by one with each change */
    uint64_t cluster, incarnation;
    uint64_t term, vote;
    uint64_t newest; /* number of the newest segment that has a batch */
};

void pk_meta_encode(const struct pk_meta *m, unsigned char out[PK_BLOCK]);
bool pk_meta_decode(const unsigned char in[PK_BLOCK], struct pk_meta *out);

/* ---- the head of a segment ---- */

struct pk_segment_head {
    uint64_t number;
    uint64_t cluster, incarnation;
    uint64_t first_batch, first_index;
    uint64_t durable; /* number of the last batch known to be durable */
    uint32_t chain;   /* checksum of the last batch before this segment */
    uint32_t size;    /* bytes of the file */
};

void pk_segment_encode(const struct pk_segment_head *h, unsigned char out[PK_BLOCK]);
bool pk_segment_decode(const unsigned char in[PK_BLOCK], struct pk_segment_head *out);

/* ---- batches ---- */

enum pk_record_type {
    PK_RECORD_COMMAND = 1,
    PK_RECORD_BARRIER = 2,
    PK_RECORD_CONFIGURATION = 3,
    PK_RECORD_TRUNCATION = 4, /* its data: the index from which on entries are void */
};

struct pk_record {
    uint64_t term; /* 0 for a truncation */
    enum pk_record_type type;
    const unsigned char *data;
    uint32_t len;
};

struct pk_batch_head {
    uint64_t segment, incarnation;
    uint64_t number;      /* of the batch: 1, 2, 3 ... */
    uint64_t durable;     /* last batch that was durable when this one was written */
    uint64_t first_index; /* of its first entry */
    uint64_t last_index, last_term; /* of the log, when all of it is taken in */
    uint32_t bytes;                 /* before the padding of its last block */
    uint32_t records;
    uint32_t chain; /* checksum over the one before and this one */
};

/* Bytes of a batch with its padding; 0: more than 32 bits can say. */
size_t pk_batch_size(const struct pk_record *records, size_t n);
/* Writes pk_batch_size() bytes. `before`: the chain of the batch before. Fills in bytes,
 * records and chain of the head. */
void pk_batch_encode(struct pk_batch_head *h, uint32_t before,
                     const struct pk_record *records, size_t n, unsigned char *out);

enum pk_batch_state {
    PK_BATCH_GOOD,   /* all of it checks, and follows the one before */
    PK_BATCH_BROKEN, /* its head checks, the rest does not */
    PK_BATCH_TRACE,  /* something of this segment is here, but its head does not check */
    PK_BATCH_BLANK,  /* zeros, or content of an earlier use of the file */
};

/* Looks for the batch at the start of `in`. `segment` is the file it is in; a batch of
 * another segment is content of an earlier use. *out has the head on GOOD and BROKEN. */
enum pk_batch_state pk_batch_decode(const unsigned char *in, size_t len,
                                    const struct pk_segment_head *segment,
                                    uint32_t before, struct pk_batch_head *out);

/* The records of a GOOD batch, one after the other. */
struct pk_batch_cursor {
    const unsigned char *head, *data;
    uint32_t left;
};
void pk_batch_open(struct pk_batch_cursor *c, const unsigned char *in);
bool pk_batch_next(struct pk_batch_cursor *c, struct pk_record *out);

/* ---- durable ---- */

struct pk_durable {
    uint64_t batch; /* the last one known to be durable */
    uint64_t incarnation;
    unsigned char boot[16]; /* of the machine, when that was noted */
    bool closed;            /* in order: no batch was begun after it */
};

void pk_durable_encode(const struct pk_durable *d, unsigned char out[PK_DURABLE_SLOT]);
bool pk_durable_decode(const unsigned char in[PK_DURABLE_SLOT], struct pk_durable *out);

#endif
