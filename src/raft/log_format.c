/* SPDX-License-Identifier: MIT */
#include "raft/log_format.h"

#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/crc32c.h"

static const char meta_magic[] = "PKMETA01"; /* two digits: PK_LOG_FORMAT */
static const char snapshot_magic[] = "PKSNAP01";
static const char batch_magic[] = "PKB1";

enum {
    MAGIC = 8,
    BATCH_MAGIC = 4,
    FIELDS = 64, /* bytes of meta and of a snapshot's head before the configuration */
    AT_SUM = PK_META_SLOT - 4,
    /* Offsets in a sector. */
    AT_STAMP = PK_SECTOR_DATA,
    AT_STAMP_SUM = PK_SECTOR - 4,
    /* Offsets in a batch. */
    AT_CHAIN = 4,
    AT_BYTES = 8,
    AT_RECORDS = 12,
    AT_CLUSTER = 16,
    AT_INCARNATION = 24,
    AT_NUMBER = 32,
    AT_BEFORE = 40,
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

/* ---- meta, mark, snapshots ---- */

static void seal(unsigned char *out, const void *configuration, uint32_t len)
{
    PK_ASSERT(len <= PK_CONFIGURATION_MAX);
    if (len > 0) {
        memcpy(out + FIELDS, configuration, len);
    }
    put_u32(out + AT_SUM, pk_crc32c(0, out, AT_SUM));
}

/* Copies the configuration, whose length has been read. */
static bool unseal(const unsigned char *in, const char *magic, void *configuration,
                   uint32_t len)
{
    if (memcmp(in, magic, MAGIC) != 0 || len > PK_CONFIGURATION_MAX ||
        get_u32(in + AT_SUM) != pk_crc32c(0, in, AT_SUM)) {
        return false;
    }
    memcpy(configuration, in + FIELDS, len);
    return true;
}

uint32_t pk_meta_format(const unsigned char in[PK_META_SLOT])
{
    enum { WORD = MAGIC - 2 };
    unsigned tens = in[WORD] - (unsigned)'0';
    unsigned ones = in[WORD + 1] - (unsigned)'0';
    bool good = memcmp(in, meta_magic, WORD) == 0 && tens <= 9 && ones <= 9 &&
                get_u32(in + AT_SUM) == pk_crc32c(0, in, AT_SUM);
    return good ? 10 * tens + ones : 0;
}

void pk_meta_encode(const struct pk_meta *m, unsigned char out[PK_META_SLOT])
{
    memset(out, 0, PK_META_SLOT);
    memcpy(out, meta_magic, MAGIC);
    pk_put_u64(out + 8, m->version);
    pk_put_u64(out + 16, m->owner.cluster);
    pk_put_u64(out + 24, m->owner.incarnation);
    pk_put_u64(out + 32, m->term);
    pk_put_u64(out + 40, m->vote);
    put_u32(out + 48, m->segments);
    put_u32(out + 52, m->segment_bytes);
    put_u32(out + 56, m->configuration_len);
    seal(out, m->configuration, m->configuration_len);
}

bool pk_meta_decode(const unsigned char in[PK_META_SLOT], struct pk_meta *out)
{
    out->version = pk_get_u64(in + 8);
    out->owner.cluster = pk_get_u64(in + 16);
    out->owner.incarnation = pk_get_u64(in + 24);
    out->term = pk_get_u64(in + 32);
    out->vote = pk_get_u64(in + 40);
    out->segments = get_u32(in + 48);
    out->segment_bytes = get_u32(in + 52);
    out->configuration_len = get_u32(in + 56);
    return unseal(in, meta_magic, out->configuration, out->configuration_len);
}

void pk_mark_encode(uint64_t incarnation, uint64_t durable, unsigned char out[PK_SECTOR])
{
    memset(out, 0, PK_SECTOR);
    pk_put_u64(out, durable);
    pk_put_u64(out + 8, incarnation);
    put_u32(out + 16, pk_crc32c(0, out, 16));
}

uint64_t pk_mark_decode(uint64_t incarnation, const unsigned char in[PK_SECTOR])
{
    bool good =
        pk_get_u64(in + 8) == incarnation && get_u32(in + 16) == pk_crc32c(0, in, 16);
    return good ? pk_get_u64(in) : 0;
}

void pk_snapshot_head_encode(const struct pk_snapshot_head *h,
                             unsigned char out[PK_SNAPSHOT_HEAD])
{
    memset(out, 0, PK_SNAPSHOT_HEAD);
    memcpy(out, snapshot_magic, MAGIC);
    pk_put_u64(out + 8, h->owner.cluster);
    pk_put_u64(out + 16, h->owner.incarnation);
    pk_put_u64(out + 24, h->index);
    pk_put_u64(out + 32, h->term);
    pk_put_u64(out + 40, h->configuration_index);
    pk_put_u64(out + 48, h->state_len);
    put_u32(out + 56, h->configuration_len);
    put_u32(out + 60, h->state_sum);
    seal(out, h->configuration, h->configuration_len);
}

bool pk_snapshot_head_decode(const struct pk_log_owner *owner, const unsigned char *in,
                             size_t len, struct pk_snapshot_head *out)
{
    if (len < PK_SNAPSHOT_HEAD) {
        return false;
    }
    out->owner.cluster = pk_get_u64(in + 8);
    out->owner.incarnation = pk_get_u64(in + 16);
    out->index = pk_get_u64(in + 24);
    out->term = pk_get_u64(in + 32);
    out->configuration_index = pk_get_u64(in + 40);
    out->state_len = pk_get_u64(in + 48);
    out->configuration_len = get_u32(in + 56);
    out->state_sum = get_u32(in + 60);
    return unseal(in, snapshot_magic, out->configuration, out->configuration_len) &&
           out->owner.cluster == owner->cluster &&
           out->owner.incarnation == owner->incarnation;
}

/* ---- sectors ---- */

/* Over the sector with its number. Whose it is and where it stands is no part of its
 * bytes but of its checksum: a sector in a wrong place does not check. */
static uint32_t stamp_sum(uint64_t incarnation, struct pk_log_place at,
                          const unsigned char *sector)
{
    unsigned char where[24];
    pk_put_u64(where, incarnation);
    pk_put_u64(where + 8, at.segment);
    pk_put_u64(where + 16, at.offset);
    uint32_t sum = pk_crc32c(0, where, sizeof where);
    return pk_crc32c(sum, sector, AT_STAMP_SUM);
}

/* Stamps all sectors of `out`; returns the checksum over their stamps. */
static uint32_t stamp_all(uint64_t incarnation, struct pk_log_place at, uint64_t number,
                          unsigned char *out, size_t len)
{
    uint32_t chain = 0;
    for (size_t i = 0; i < len; i += PK_SECTOR, at.offset += PK_SECTOR) {
        unsigned char *sector = out + i;
        pk_put_u64(sector + AT_STAMP, number);
        put_u32(sector + AT_STAMP_SUM, stamp_sum(incarnation, at, sector));
        chain = pk_crc32c(chain, sector + AT_STAMP, PK_SECTOR - AT_STAMP);
    }
    return chain;
}

void pk_segment_fill(const struct pk_log_owner *owner, uint32_t segment,
                     unsigned char *out, size_t len)
{
    memset(out, 0, len);
    (void)stamp_all(owner->incarnation, (struct pk_log_place){segment, 0}, 0, out, len);
}

bool pk_sector_check(const struct pk_log_owner *owner, struct pk_log_place at,
                     const unsigned char *in, uint64_t *number)
{
    *number = pk_get_u64(in + AT_STAMP);
    return get_u32(in + AT_STAMP_SUM) == stamp_sum(owner->incarnation, at, in);
}

/* ---- writing a batch ---- */

uint64_t pk_batch_size(uint64_t records, uint64_t padded_data)
{
    uint64_t bytes = PK_BATCH_HEAD + records * PK_RECORD_HEAD + padded_data;
    return round_up(bytes, PK_BLOCK_DATA) / PK_BLOCK_DATA * PK_BLOCK;
}

/* Bytes that run through the contents of sectors. */
struct stream {
    unsigned char *sector;
    size_t at; /* in the content of the sector */
};

static void put_bytes(struct stream *s, const void *data, size_t len)
{
    const unsigned char *from = data;
    while (len > 0) {
        if (s->at == PK_SECTOR_DATA) {
            s->sector += PK_SECTOR;
            s->at = 0;
        }
        size_t room = PK_SECTOR_DATA - s->at;
        size_t n = len < room ? len : room;
        memcpy(s->sector + s->at, from, n);
        s->at += n;
        from += n;
        len -= n;
    }
}

static void put_records(struct stream *s, const struct pk_record *records, size_t n)
{
    static const unsigned char zeros[8];
    for (size_t i = 0; i < n; i++) {
        unsigned char head[PK_RECORD_HEAD] = {0};
        pk_put_u64(head, records[i].term);
        put_u32(head + AT_LEN, records[i].len);
        head[AT_TYPE] = (unsigned char)records[i].type;
        put_bytes(s, head, sizeof head);
    }
    for (size_t i = 0; i < n; i++) {
        put_bytes(s, records[i].data, records[i].len);
        put_bytes(s, zeros, (size_t)(round_up(records[i].len, 8) - records[i].len));
    }
}

uint32_t pk_batch_encode(struct pk_batch_head *h, struct pk_log_place at,
                         const struct pk_record *records, size_t n, unsigned char *out,
                         size_t size)
{
    uint64_t bytes = PK_BATCH_HEAD + (uint64_t)n * PK_RECORD_HEAD;
    for (size_t i = 0; i < n; i++) {
        bytes += round_up(records[i].len, 8);
    }
    PK_ASSERT(n > 0 && n <= UINT32_MAX && bytes <= UINT32_MAX &&
              size == pk_batch_size(n, bytes - PK_BATCH_HEAD - n * PK_RECORD_HEAD));
    h->bytes = (uint32_t)bytes;
    h->records = (uint32_t)n;
    unsigned char head[PK_BATCH_HEAD];
    memcpy(head, batch_magic, BATCH_MAGIC);
    put_u32(head + AT_CHAIN, h->chain);
    put_u32(head + AT_BYTES, h->bytes);
    put_u32(head + AT_RECORDS, h->records);
    pk_put_u64(head + AT_CLUSTER, h->owner.cluster);
    pk_put_u64(head + AT_INCARNATION, h->owner.incarnation);
    pk_put_u64(head + AT_NUMBER, h->number);
    pk_put_u64(head + AT_BEFORE, h->before);
    pk_put_u64(head + AT_DURABLE, h->durable);
    pk_put_u64(head + AT_FIRST_INDEX, h->first_index);
    pk_put_u64(head + AT_LAST_INDEX, h->last_index);
    pk_put_u64(head + AT_LAST_TERM, h->last_term);
    memset(out, 0, size);
    struct stream s = {.sector = out};
    put_bytes(&s, head, sizeof head);
    put_records(&s, records, n);
    return stamp_all(h->owner.incarnation, at, h->number, out, size);
}

/* ---- reading a batch ---- */

static void get_head(const unsigned char *in, struct pk_batch_head *h)
{
    *h = (struct pk_batch_head){
        .chain = get_u32(in + AT_CHAIN),
        .bytes = get_u32(in + AT_BYTES),
        .records = get_u32(in + AT_RECORDS),
        .owner = {pk_get_u64(in + AT_CLUSTER), pk_get_u64(in + AT_INCARNATION)},
        .number = pk_get_u64(in + AT_NUMBER),
        .before = pk_get_u64(in + AT_BEFORE),
        .durable = pk_get_u64(in + AT_DURABLE),
        .first_index = pk_get_u64(in + AT_FIRST_INDEX),
        .last_index = pk_get_u64(in + AT_LAST_INDEX),
        .last_term = pk_get_u64(in + AT_LAST_TERM),
    };
}

/* Whether the first sector of a batch is here: its stamp and its head agree. */
static bool is_head(const unsigned char *in, const struct pk_batch_head *h,
                    uint64_t number)
{
    return memcmp(in, batch_magic, BATCH_MAGIC) == 0 && number != 0 &&
           h->number == number && h->records > 0 &&
           h->bytes >= PK_BATCH_HEAD + (uint64_t)h->records * PK_RECORD_HEAD;
}

static uint64_t size_of(const struct pk_batch_head *h)
{
    return pk_batch_size(0, h->bytes - PK_BATCH_HEAD);
}

enum pk_batch_state pk_batch_decode(const struct pk_batch_look *look,
                                    const unsigned char *in, size_t len,
                                    struct pk_batch_head *out, uint32_t *chain)
{
    uint64_t number;
    enum pk_batch_state state = PK_BATCH_GOOD;
    PK_ASSERT(len >= PK_BLOCK);
    if (!pk_sector_check(look->owner, look->at, in, &number)) {
        return PK_BATCH_BAD;
    }
    get_head(in, out);
    if (!is_head(in, out, number) || number <= look->above) {
        return PK_BATCH_NONE;
    }
    if (size_of(out) > len || out->owner.cluster != look->owner->cluster) {
        return PK_BATCH_BAD; /* its checksum is right, but nobody can have written it */
    }
    *chain = 0;
    for (uint64_t i = 0; i < size_of(out); i += PK_SECTOR) {
        struct pk_log_place at = {look->at.segment, look->at.offset + i};
        if (!pk_sector_check(look->owner, at, in + i, &number)) {
            return PK_BATCH_BAD;
        }
        state = number == out->number ? state : PK_BATCH_TORN;
        *chain = pk_crc32c(*chain, in + i + AT_STAMP, PK_SECTOR - AT_STAMP);
    }
    return state;
}

void pk_batch_gather(const struct pk_batch_head *h, const unsigned char *in,
                     unsigned char *out)
{
    for (uint32_t left = h->bytes; left > 0; in += PK_SECTOR) {
        uint32_t n = left < PK_SECTOR_DATA ? left : PK_SECTOR_DATA;
        memcpy(out, in, n);
        out += n;
        left -= n;
    }
}

static bool records_fit(const struct pk_batch_head *h, const unsigned char *gathered)
{
    const unsigned char *at = gathered + PK_BATCH_HEAD;
    uint64_t bytes = PK_BATCH_HEAD + (uint64_t)h->records * PK_RECORD_HEAD;
    for (uint32_t i = 0; i < h->records; i++, at += PK_RECORD_HEAD) {
        bool index_only =
            at[AT_TYPE] == PK_RECORD_TRUNCATION || at[AT_TYPE] == PK_RECORD_RESET;
        uint32_t len = get_u32(at + AT_LEN);
        if (at[AT_TYPE] < PK_RECORD_COMMAND || at[AT_TYPE] > PK_RECORD_RESET ||
            (index_only && len != 8)) {
            return false;
        }
        bytes += round_up(len, 8);
    }
    return bytes == h->bytes;
}

bool pk_batch_open(struct pk_batch_cursor *c, const struct pk_batch_head *h,
                   const unsigned char *gathered)
{
    *c = (struct pk_batch_cursor){
        .head = gathered + PK_BATCH_HEAD,
        .data = gathered + PK_BATCH_HEAD + (size_t)h->records * PK_RECORD_HEAD,
        .left = h->records,
    };
    return records_fit(h, gathered);
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
