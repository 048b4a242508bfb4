/* SPDX-License-Identifier: MIT */
/* The log's bytes and what a start makes of them: every bit flipped, every block lost. */
#include <stdio.h>
#include <stdlib.h>

#include "core/wire.h"
#include "raft/crc32c.h"
#include "raft/log_scan.h"
#include "tap.h"

enum {
    SEGMENTS = 2,
    BLOCKS = 6,
    SIZE = BLOCKS * PK_BLOCK,
    CLUSTER = 77,
    INCARNATION = 0x5eed1234,
    ENTRIES_MAX = 64,
};

/* A small log in memory, as the store would write it. */
struct small_log {
    unsigned char bytes[SEGMENTS][SIZE];
    uint64_t segment, batch, index; /* the last ones */
    size_t at;                      /* behind the last batch */
    uint32_t chain;
    size_t batch_at[16]; /* segment number * SIZE + offset */
    size_t batch_size[16];
};

struct entries {
    uint64_t terms[ENTRIES_MAX];
    uint32_t lens[ENTRIES_MAX];
    uint64_t first, count;
};

static void begin_segment(struct small_log *l, uint64_t durable)
{
    struct pk_segment_head h = {.number = ++l->segment,
                                .cluster = CLUSTER,
                                .incarnation = INCARNATION,
                                .first_batch = l->batch + 1,
                                .first_index = l->index + 1,
                                .durable = durable,
                                .chain = l->chain,
                                .size = SIZE};
    pk_segment_encode(&h, l->bytes[l->segment - 1]);
    l->at = PK_BLOCK;
}

static void put_batch(struct small_log *l, const struct pk_record *records, size_t n,
                      uint64_t durable)
{
    size_t size = pk_batch_size(records, n);
    struct pk_batch_head h = {.segment = l->segment,
                              .incarnation = INCARNATION,
                              .number = ++l->batch,
                              .durable = durable,
                              .first_index = l->index + 1,
                              .last_index = l->index + n,
                              .last_term = records[n - 1].term};
    CHECK(l->at + size <= SIZE);
    pk_batch_encode(&h, l->chain, records, n, l->bytes[l->segment - 1] + l->at);
    l->batch_at[l->batch] = (l->segment - 1) * SIZE + l->at;
    l->batch_size[l->batch] = size;
    l->chain = h.chain;
    l->index += n;
    l->at += size;
}

/* Five batches over two segments; `overlap`: each was written before the one before it
 * was known to be durable. */
static struct small_log *make_log(unsigned overlap)
{
    static unsigned char big[5000];
    struct small_log *l = calloc(1, sizeof *l);
    struct pk_record a = {.term = 1, .type = PK_RECORD_COMMAND, .data = big, .len = 100};
    struct pk_record b = {.term = 2, .type = PK_RECORD_COMMAND, .data = big, .len = 5000};
    struct pk_record two[] = {a, {.term = 2, .type = PK_RECORD_BARRIER, .data = big}};
    memset(big, 0xa7, sizeof big);
    begin_segment(l, 0);
    for (int i = 1; i <= 5; i++) {
        uint64_t durable = l->batch < overlap ? 0 : l->batch - overlap;
        if (i == 4) {
            begin_segment(l, durable);
        }
        put_batch(l, i % 2 == 0 ? &b : two, i % 2 == 0 ? 1 : 2, durable);
    }
    return l;
}

static void on_entry(void *ctx, uint64_t index, const struct pk_record *r)
{
    struct entries *e = ctx;
    if (e->count == 0) {
        e->first = index;
    }
    CHECK_U64(index, e->first + e->count);
    CHECK(e->count < ENTRIES_MAX);
    e->terms[e->count] = r->term;
    e->lens[e->count++] = r->len;
}

static void on_truncate(void *ctx, uint64_t index)
{
    struct entries *e = ctx;
    e->count = index - e->first;
}

static struct pk_scan_found scan(const struct small_log *l, uint64_t mark, bool same_boot,
                                 struct entries *e)
{
    struct pk_scan s;
    struct pk_scan_hooks hooks = {.ctx = e, .entry = on_entry, .truncate = on_truncate};
    struct pk_durable d = {.batch = mark, .incarnation = INCARNATION};
    *e = (struct entries){0};
    pk_scan_begin(&s, &hooks, &d, same_boot);
    for (int i = 0; i < SEGMENTS; i++) {
        struct pk_segment_head h;
        if (pk_segment_decode(l->bytes[i], &h)) {
            pk_scan_segment(&s, &h, l->bytes[i], SIZE);
        }
    }
    return pk_scan_end(&s, l->segment, 1);
}

/* ---- the checksum ---- */

TEST(crc32c__agrees_with_the_standard)
{
    unsigned char zeros[32] = {0};
    CHECK_U64(pk_crc32c(0, "123456789", 9), 0xe3069283);
    CHECK_U64(pk_crc32c(0, zeros, sizeof zeros), 0x8a9136aa);
    CHECK_U64(pk_crc32c(pk_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

/* ---- whole logs ---- */

TEST(log_scan__finds_every_entry)
{
    struct small_log *l = make_log(0);
    struct entries e;
    struct pk_scan_found f = scan(l, 5, true, &e);
    CHECK(f.verdict == PK_SCAN_SOUND);
    CHECK_U64(f.last_batch, 5);
    CHECK_U64(e.count, 8);
    CHECK_U64(e.first, 1);
    CHECK_U64(e.terms[2], 2);
    CHECK_U64(e.lens[2], 5000);
    free(l);
}

TEST(log_scan__truncation_voids_what_is_behind_it)
{
    struct small_log *l = make_log(0);
    struct entries e;
    unsigned char index[8];
    pk_put_u64(index, 6);
    struct pk_record cut = {.type = PK_RECORD_TRUNCATION, .data = index, .len = 8};
    put_batch(l, &cut, 1, 5);
    CHECK(scan(l, 6, true, &e).verdict == PK_SCAN_SOUND);
    CHECK_U64(e.count, 5);
    free(l);
}

TEST(log_scan__misses_a_segment)
{
    struct small_log *l = make_log(0);
    struct entries e;
    memset(l->bytes[1], 0, SIZE);
    struct pk_scan_found f = scan(l, 0, false, &e);
    CHECK(f.verdict == PK_SCAN_MISSING);
    CHECK_U64(f.segment, 2);
    free(l);
}

/* A batch of the same number, whole in itself, does not fit between its neighbours. */
TEST(log_scan__a_batch_follows_the_one_it_was_written_after)
{
    struct small_log *l = make_log(0);
    struct entries e;
    unsigned char *place = &l->bytes[0][0] + l->batch_at[1];
    struct pk_record other = {
        .term = 1, .type = PK_RECORD_COMMAND, .data = place, .len = 8};
    struct pk_record two[] = {other, other};
    struct pk_batch_head h = {.segment = 1,
                              .incarnation = INCARNATION,
                              .number = 1,
                              .first_index = 1,
                              .last_index = 2,
                              .last_term = 1};
    unsigned char bytes[PK_BLOCK];
    pk_batch_encode(&h, 0, two, 2, bytes);
    memcpy(place, bytes, sizeof bytes);
    struct pk_scan_found f = scan(l, 5, true, &e);
    CHECK(f.verdict == PK_SCAN_DAMAGED);
    CHECK_U64(f.last_batch, 1);
    free(l);
}

/* ---- damage ---- */

/* D1 and D3: with one bit flipped, every acknowledged entry is found, or the start
 * refuses; after a power cut, it may also be in doubt about the last batch alone. */
static void flip_every_bit(unsigned overlap, bool power_cut)
{
    struct small_log *l = make_log(overlap);
    struct entries whole, e;
    CHECK(scan(l, 5, true, &whole).verdict == PK_SCAN_SOUND);
    unsigned long refused = 0, doubts = 0, harmless = 0;
    unsigned char *bytes = &l->bytes[0][0];
    for (size_t bit = 0; bit < (size_t)SEGMENTS * SIZE * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        struct pk_scan_found f = scan(l, power_cut ? 0 : 5, !power_cut, &e);
        if (f.verdict == PK_SCAN_SOUND) {
            CHECK(memcmp(&e, &whole, sizeof e) == 0);
            harmless++;
        } else if (f.verdict == PK_SCAN_DOUBT) {
            CHECK(power_cut && bit / 8 >= l->batch_at[5 - overlap]);
            doubts++;
        } else {
            refused++;
        }
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    printf("# refused %lu, in doubt %lu, harmless %lu\n", refused, doubts, harmless);
    CHECK(refused > 0 && harmless > 0 && (doubts > 0) == power_cut);
    free(l);
}

TEST(log_scan__every_flipped_bit_after_a_crash)
{
    flip_every_bit(0, false);
}

TEST(log_scan__every_flipped_bit_after_a_power_cut)
{
    flip_every_bit(0, true);
}

TEST(log_scan__every_flipped_bit_with_writes_that_overlapped)
{
    flip_every_bit(2, true);
}

/* ---- power cuts ---- */

/* D2: of the last three batches, in flight together, any blocks may be missing. What was
 * durable before them is found; nothing is refused. */
TEST(log_scan__every_torn_tail)
{
    enum { DURABLE = 2 };
    struct small_log *l = make_log(3), *torn = malloc(sizeof *torn);
    struct entries e;
    size_t blocks[16], n = 0;
    for (uint64_t b = DURABLE + 1; b <= 5; b++) {
        for (size_t at = 0; at < l->batch_size[b]; at += PK_BLOCK) {
            blocks[n++] = l->batch_at[b] + at;
        }
    }
    for (unsigned lost = 0; lost < 1u << n; lost++) {
        uint64_t good = DURABLE;
        *torn = *l;
        for (size_t i = 0; i < n; i++) {
            if ((lost >> i & 1) != 0) {
                memset(&torn->bytes[0][0] + blocks[i], 0, PK_BLOCK);
            }
        }
        for (uint64_t b = DURABLE + 1; b <= 5 && good == b - 1; b++) {
            bool all = memcmp(&torn->bytes[0][0] + l->batch_at[b],
                              &l->bytes[0][0] + l->batch_at[b], l->batch_size[b]) == 0;
            good += all;
        }
        struct pk_scan_found f = scan(torn, DURABLE, false, &e);
        CHECK(f.verdict == PK_SCAN_SOUND || f.verdict == PK_SCAN_DOUBT);
        CHECK_U64(f.last_batch, good);
        CHECK(scan(torn, DURABLE, true, &e).verdict == PK_SCAN_SOUND);
    }
    printf("# %u torn tails\n", 1u << n);
    free(torn);
    free(l);
}
