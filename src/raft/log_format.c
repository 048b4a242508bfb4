/* SPDX-License-Identifier: MIT */
#include "raft/log_format.h"

#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/crc32c.h"

static const char meta_magic[] = "PKMETA01";
static const char segment_magic[] = "PKSEGM01";
static const char batch_magic[] = "PKBT";

enum {
    MAGIC = 8,
    BATCH_MAGIC = 4,
    /* Offsets in a batch. */
    AT_HEAD_SUM = 4,
    AT_CHAIN = 8,
    AT_BYTES = 12,
    AT_RECORDS = 16,
    AT_SEGMENT = 24,
    AT_INCARNATION = 32,
    AT_NUMBER = 40,
    AT_DURABLE = 48,
    AT_FIRST_INDEX = 56,
    AT_LAST_INDEX = 64,
    AT_LAST_TERM = 72,
    /* Offsets in a record's head. */
    AT_LEN = 8,
    AT_TYPE = 12,
};

static void put_u32(unsigned char *out, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (unsigned char)(v >> (8 * i));
    }
}

static uint32_t get_u32(const unsigned char *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- blocks with 64 bytes of fields and a checksum ---- */

enum { FIELDS = 64 };

static void seal(unsigned char *out)
{
    put_u32(out + FIELDS, pk_crc32c(0, out, FIELDS));
}

static bool is_sealed(const unsigned char *in, const char *magic)
{
    return memcmp(in, magic, MAGIC) == 0 &&
           get_u32(in + FIELDS) == pk_crc32c(0, in, FIELDS);
}

void pk_meta_encode(const struct pk_meta *m, unsigned char out[PK_BLOCK])
{
    memset(out, 0, PK_BLOCK);
    memcpy(out, meta_magic, MAGIC);
    pk_put_u64(out + 8, m->version);
    pk_put_u64(out + 16, m->cluster);
    pk_put_u64(out + 24, m->incarnation);
    pk_put_u64(out + 32, m->term);
    pk_put_u64(out + 40, m->vote);
    pk_put_u64(out + 48, m->newest);
    seal(out);
}

bool pk_meta_decode(const unsigned char in[PK_BLOCK], struct pk_meta *out)
{
    *out = (struct pk_meta){
        .version = pk_get_u64(in + 8),
        .cluster = pk_get_u64(in + 16),
        .incarnation = pk_get_u64(in + 24),
        .term = pk_get_u64(in + 32),
        .vote = pk_get_u64(in + 40),
        .newest = pk_get_u64(in + 48),
    };
    return is_sealed(in, meta_magic);
}

void pk_segment_encode(const struct pk_segment_head *h, unsigned char out[PK_BLOCK])
{
    memset(out, 0, PK_BLOCK);
    memcpy(out, segment_magic, MAGIC);
    pk_put_u64(out + 8, h->number);
    pk_put_u64(out + 16, h->cluster);
    pk_put_u64(out + 24, h->incarnation);
    pk_put_u64(out + 32, h->first_batch);
    pk_put_u64(out + 40, h->first_index);
    put_u32(out + 48, h->chain);
    put_u32(out + 52, h->size);
    pk_put_u64(out + 56, h->durable);
    seal(out);
}

bool pk_segment_decode(const unsigned char in[PK_BLOCK], struct pk_segment_head *out)
{
    *out = (struct pk_segment_head){
        .number = pk_get_u64(in + 8),
        .cluster = pk_get_u64(in + 16),
        .incarnation = pk_get_u64(in + 24),
        .first_batch = pk_get_u64(in + 32),
        .first_index = pk_get_u64(in + 40),
        .chain = get_u32(in + 48),
        .size = get_u32(in + 52),
        .durable = pk_get_u64(in + 56),
    };
    return is_sealed(in, segment_magic);
}

/* ---- durable ---- */

void pk_durable_encode(const struct pk_durable *d, unsigned char out[PK_DURABLE_SLOT])
{
    memset(out, 0, PK_DURABLE_SLOT);
    pk_put_u64(out, d->batch);
    pk_put_u64(out + 8, d->incarnation);
    memcpy(out + 16, d->boot, sizeof d->boot);
    pk_put_u64(out + 32, d->closed ? 1 : 0);
    put_u32(out + 40, pk_crc32c(0, out, 40));
}

bool pk_durable_decode(const unsigned char in[PK_DURABLE_SLOT], struct pk_durable *out)
{
    *out = (struct pk_durable){
        .batch = pk_get_u64(in),
        .incarnation = pk_get_u64(in + 8),
        .closed = pk_get_u64(in + 32) == 1,
    };
    memcpy(out->boot, in + 16, sizeof out->boot);
    return out->batch != 0 && get_u32(in + 40) == pk_crc32c(0, in, 40);
}

/* ---- batches ---- */

static uint64_t bytes_of(const struct pk_record *records, size_t n)
{
    uint64_t bytes = PK_BATCH_HEAD + (uint64_t)n * PK_RECORD_HEAD;
    for (size_t i = 0; i < n; i++) {
        bytes += round_up(records[i].len, 8);
    }
    return bytes;
}

size_t pk_batch_size(const struct pk_record *records, size_t n)
{
    uint64_t size = round_up(bytes_of(records, n), PK_BLOCK);
    return size <= UINT32_MAX ? (size_t)size : 0;
}

/* Over the one before, and all of this batch but its two checksums. */
static uint32_t chain_of(uint32_t before, const unsigned char *in, size_t bytes)
{
    unsigned char first[4];
    put_u32(first, before);
    uint32_t crc = pk_crc32c(0, first, sizeof first);
    return pk_crc32c(crc, in + AT_BYTES, bytes - AT_BYTES);
}

static void put_records(unsigned char *out, const struct pk_record *records, size_t n)
{
    unsigned char *data = out + n * PK_RECORD_HEAD;
    for (size_t i = 0; i < n; i++, out += PK_RECORD_HEAD) {
        pk_put_u64(out, records[i].term);
        put_u32(out + AT_LEN, records[i].len);
        out[AT_TYPE] = (unsigned char)records[i].type;
        if (records[i].len > 0) {
            memcpy(data, records[i].data, records[i].len);
        }
        data += round_up(records[i].len, 8);
    }
}

void pk_batch_encode(struct pk_batch_head *h, uint32_t before,
                     const struct pk_record *records, size_t n, unsigned char *out)
{
    size_t size = pk_batch_size(records, n);
    PK_ASSERT(size != 0 && n > 0);
    h->bytes = (uint32_t)bytes_of(records, n);
    h->records = (uint32_t)n;
    memset(out, 0, size);
    put_records(out + PK_BATCH_HEAD, records, n);
    memcpy(out, batch_magic, BATCH_MAGIC);
    put_u32(out + AT_BYTES, h->bytes);
    put_u32(out + AT_RECORDS, h->records);
    pk_put_u64(out + AT_SEGMENT, h->segment);
    pk_put_u64(out + AT_INCARNATION, h->incarnation);
    pk_put_u64(out + AT_NUMBER, h->number);
    pk_put_u64(out + AT_DURABLE, h->durable);
    pk_put_u64(out + AT_FIRST_INDEX, h->first_index);
    pk_put_u64(out + AT_LAST_INDEX, h->last_index);
    pk_put_u64(out + AT_LAST_TERM, h->last_term);
    /* The padding is covered, too: nothing on disk is outside of a checksum. */
    h->chain = chain_of(before, out, size);
    put_u32(out + AT_CHAIN, h->chain);
    put_u32(out + AT_HEAD_SUM, pk_crc32c(0, out + AT_CHAIN, PK_BATCH_HEAD - AT_CHAIN));
}

static void get_head(const unsigned char *in, struct pk_batch_head *h)
{
    *h = (struct pk_batch_head){
        .chain = get_u32(in + AT_CHAIN),
        .bytes = get_u32(in + AT_BYTES),
        .records = get_u32(in + AT_RECORDS),
        .segment = pk_get_u64(in + AT_SEGMENT),
        .incarnation = pk_get_u64(in + AT_INCARNATION),
        .number = pk_get_u64(in + AT_NUMBER),
        .durable = pk_get_u64(in + AT_DURABLE),
        .first_index = pk_get_u64(in + AT_FIRST_INDEX),
        .last_index = pk_get_u64(in + AT_LAST_INDEX),
        .last_term = pk_get_u64(in + AT_LAST_TERM),
    };
}

/* Whether the records fill the batch, no more and no less. */
static bool records_fit(const unsigned char *in, const struct pk_batch_head *h)
{
    uint64_t bytes = PK_BATCH_HEAD + (uint64_t)h->records * PK_RECORD_HEAD;
    const unsigned char *at = in + PK_BATCH_HEAD;
    if (bytes > h->bytes) {
        return false;
    }
    for (uint32_t i = 0; i < h->records; i++, at += PK_RECORD_HEAD) {
        uint32_t len = get_u32(at + AT_LEN);
        bool cut = at[AT_TYPE] == PK_RECORD_TRUNCATION;
        if (at[AT_TYPE] < PK_RECORD_COMMAND || at[AT_TYPE] > PK_RECORD_TRUNCATION ||
            (cut && len != 8)) {
            return false;
        }
        bytes += round_up(len, 8);
    }
    return bytes == h->bytes;
}

static bool is_this_segment(const struct pk_batch_head *h,
                            const struct pk_segment_head *segment)
{
    return h->segment == segment->number && h->incarnation == segment->incarnation;
}

enum pk_batch_state pk_batch_decode(const unsigned char *in, size_t len,
                                    const struct pk_segment_head *segment,
                                    uint32_t before, struct pk_batch_head *out)
{
    PK_ASSERT(len >= PK_BATCH_HEAD);
    get_head(in, out);
    bool ours = is_this_segment(out, segment);
    bool head = memcmp(in, batch_magic, BATCH_MAGIC) == 0 &&
                get_u32(in + AT_HEAD_SUM) ==
                    pk_crc32c(0, in + AT_CHAIN, PK_BATCH_HEAD - AT_CHAIN);
    if (!head) {
        /* One of the two numbers may be what is damaged. Data of an earlier use has
         * neither: nobody outside knows the incarnation. */
        bool trace =
            out->segment == segment->number || out->incarnation == segment->incarnation;
        return trace ? PK_BATCH_TRACE : PK_BATCH_BLANK;
    }
    if (!ours) {
        return PK_BATCH_BLANK;
    }
    uint64_t size = round_up(out->bytes, PK_BLOCK);
    bool good = out->records > 0 && size <= len &&
                chain_of(before, in, (size_t)size) == out->chain && records_fit(in, out);
    return good ? PK_BATCH_GOOD : PK_BATCH_BROKEN;
}

void pk_batch_open(struct pk_batch_cursor *c, const unsigned char *in)
{
    uint32_t n = get_u32(in + AT_RECORDS);
    *c = (struct pk_batch_cursor){
        .head = in + PK_BATCH_HEAD,
        .data = in + PK_BATCH_HEAD + (size_t)n * PK_RECORD_HEAD,
        .left = n,
    };
}

bool pk_batch_next(struct pk_batch_cursor *c, struct pk_record *out)
{
    if (c->left == 0) {
        return false;
    }
    *out = (struct pk_record){
        .term = pk_get_u64(c->head),
        .type = (enum pk_record_type)c->head[AT_TYPE],
        .data = c->data,
        .len = get_u32(c->head + AT_LEN),
    };
    c->head += PK_RECORD_HEAD;
    c->data += round_up(out->len, 8);
    c->left--;
    return true;
}
