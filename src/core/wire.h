/* SPDX-License-Identifier: MIT */
/*
 * Bytes out and bytes in, for commands, snapshots and digests.
 *
 * Integers are little-endian base-128 varints in their one shortest form, strings are a
 * varint length and the bytes. A writer counts, writes or hashes: the same code that
 * writes a record also measures it and gives it its hash, so the three can't disagree.
 */
#ifndef PICKET_CORE_WIRE_H
#define PICKET_CORE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

struct pk_writer {
    unsigned char *out; /* NULL: count (and digest) only */
    size_t len;
    uint64_t digest;
    bool digesting;
    bool hashing; /* hash the values into `digest`, and do nothing else */
    bool kept;    /* with it: take the hashes that are kept for parts of a thing */
};

void pk_write_raw(struct pk_writer *w, const void *data, size_t len);
void pk_write_byte(struct pk_writer *w, unsigned byte);
void pk_write_uint(struct pk_writer *w, uint64_t v);
void pk_write_bytes(struct pk_writer *w, struct pk_bytes b);

/* A reader stops at the first flaw: `bad` stays set and everything read after it is 0. */
struct pk_reader {
    const unsigned char *at;
    const unsigned char *end;
    bool bad;
};

const unsigned char *pk_read_raw(struct pk_reader *r, size_t len);
unsigned pk_read_byte(struct pk_reader *r);
uint64_t pk_read_uint(struct pk_reader *r);
/* An integer in least..most; anything else is a flaw. */
uint64_t pk_read_ranged(struct pk_reader *r, uint64_t least, uint64_t most);
/* A string of at most `most` bytes, borrowed from the input. */
struct pk_bytes pk_read_bytes(struct pk_reader *r, size_t most);

void pk_put_u64(unsigned char *out, uint64_t v); /* 8 bytes, little endian */
uint64_t pk_get_u64(const unsigned char *in);
void pk_put_u32(unsigned char *out, uint32_t v); /* 4 bytes, little endian */
uint32_t pk_get_u32(const unsigned char *in);

/* FNV-1a, 64 bits: start from PK_DIGEST_START and go on with each piece. Guards against
 * damage, not against malice. */
#define PK_DIGEST_START UINT64_C(0xcbf29ce484222325)
uint64_t pk_digest(uint64_t digest, const void *data, size_t len);

/* Goes on with one value of a hash, and ends it. For sums of hashes, whose parts must
 * look random; not against malice either. */
uint64_t pk_hash(uint64_t hash, uint64_t value);
uint64_t pk_hash_end(uint64_t hash);

#endif
