/* SPDX-License-Identifier: MIT */
/* The log's bytes and what a start makes of them: every bit flipped, every sector lost,
 * every way in which a power cut can tear what was in flight. */
#include <stdlib.h>

#include "core/wire.h"
#include "raft/crc32c.h"
#include "raft/log_scan.h"
#include "tap.h"

enum {
    SEGMENTS = 3,
    BLOCKS = 4,
    SIZE = BLOCKS * PK_BLOCK,
    SECTORS = SIZE / PK_SECTOR,
    BATCHES_MAX = 32,
    ENTRIES_MAX = 64,
};

static const struct pk_log_owner owner = {.cluster = 77, .incarnation = 0x5eed1234};

/* A small log in memory, as the store would write it. */
struct small_log {
    unsigned char bytes[SEGMENTS][SIZE];
    uint64_t number, index; /* the last ones */
    uint32_t chain;
    struct pk_log_place at; /* behind the last batch */
    struct pk_log_place batch_at[BATCHES_MAX];
    size_t batch_size[BATCHES_MAX];
};

/* What a start finds in it. */
struct found {
    enum pk_scan_verdict verdict;
    struct pk_log_place at;
    uint64_t highest;
    uint64_t first, count; /* indexes */
    uint64_t terms[ENTRIES_MAX];
    bool malformed;
};

static struct small_log *empty_log(void)
{
    struct small_log *l = calloc(1, sizeof *l);
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        pk_segment_fill(&owner, i, l->bytes[i], SIZE);
    }
    return l;
}

/* Puts a batch of `n` entries of `len` bytes behind the last one, or into `segment`. */
static void put(struct small_log *l, size_t n, uint32_t len, uint64_t durable)
{
    static unsigned char big[20000];
    struct pk_record records[8];
    memset(big, 0xa7, sizeof big);
    for (size_t i = 0; i < n; i++) {
        records[i] = (struct pk_record){
            .term = l->number + 1, .type = PK_RECORD_COMMAND, .data = big, .len = len};
    }
    size_t size = (size_t)pk_batch_size(n, n * ((len + 7) / 8 * 8));
    if (l->at.offset + size > SIZE) {
        l->at.segment = (l->at.segment + 1) % SEGMENTS;
        l->at.offset = 0;
    }
    struct pk_batch_head h = {.owner = owner,
                              .number = l->number + 1,
                              .before = l->number,
                              .durable = durable,
                              .first_index = l->index + 1,
                              .last_index = l->index + n,
                              .last_term = l->number + 1,
                              .chain = l->chain};
    l->chain = pk_batch_encode(&h, l->at, records, n,
                               l->bytes[l->at.segment] + l->at.offset, size);
    l->number++;
    l->index += n;
    l->batch_at[l->number] = l->at;
    l->batch_size[l->number] = size;
    l->at.offset += size;
}

static void take(void *ctx, struct pk_log_place at, const struct pk_batch_head *h,
                 const unsigned char *in)
{
    struct found *f = ctx;
    struct pk_batch_cursor c;
    struct pk_record r;
    static unsigned char gathered[SIZE];
    (void)at;
    pk_batch_gather(h, in, gathered);
    f->malformed = f->malformed || !pk_batch_open(&c, h, gathered);
    f->first = f->count == 0 ? h->first_index : f->first;
    while (!f->malformed && pk_batch_next(&c, &r) && f->count < ENTRIES_MAX) {
        f->terms[f->count++] = r.term;
        f->malformed = f->malformed || (r.len > 0 && r.data[r.len - 1] != 0xa7);
    }
}

/* A start after every segment has been looked at. */
static struct found scan(const struct small_log *l, const struct pk_segment_look *looks,
                         uint64_t needed, uint64_t mark)
{
    struct found f = {0};
    struct pk_scan s = {
        .owner = &owner, .looks = looks, .segments = SEGMENTS, .batch = take, .ctx = &f};
    uint32_t segment;
    pk_scan_begin(&s, needed);
    while (pk_scan_wants(&s, &segment)) {
        pk_scan_take(&s, l->bytes[segment], SIZE);
    }
    f.verdict = pk_scan_end(&s, mark);
    f.at = s.at;
    f.highest = s.highest;
    return f;
}

static struct found start(const struct small_log *l, uint64_t needed, uint64_t mark)
{
    struct pk_segment_look looks[SEGMENTS];
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        pk_scan_look(&owner, i, l->bytes[i], SIZE, &looks[i]);
    }
    return scan(l, looks, needed, mark);
}

/* Six batches in two segments, the last of them durable. */
static struct small_log *whole_log(void)
{
    struct small_log *l = empty_log();
    put(l, 1, 100, 0);
    put(l, 2, 3000, 1);
    put(l, 1, 8, 2);
    put(l, 3, 1500, 3);
    put(l, 1, 0, 4);
    put(l, 2, 50, 5);
    return l;
}

/* Like that, after the segments have been used before, so that all old content is old
 * batches and none is the filling of a new segment. The log begins with entry *needed. */
static struct small_log *used_log(uint64_t *needed)
{
    struct small_log *l = empty_log();
    for (uint64_t i = 0; i < 12; i++) {
        put(l, 1, i % 3 == 0 ? 5000 : 100, i);
    }
    *needed = l->index - 2;
    return l;
}

static void is_whole(const struct found *f, const struct small_log *l)
{
    CHECK(f->verdict == PK_SCAN_SOUND && !f->malformed);
    CHECK_U64(f->first + f->count - 1, l->index);
}

/* ---- a log that is as it was written ---- */

TEST(scan__finds_every_entry)
{
    struct small_log *l = whole_log();
    struct found f = start(l, 1, 6);
    is_whole(&f, l);
    CHECK_U64(f.first, 1);
    CHECK_U64(f.terms[0], 1);
    CHECK_U64(f.terms[9], 6);
    CHECK_U64(f.at.segment, l->at.segment);
    CHECK_U64(f.at.offset, l->at.offset);
    CHECK_U64(f.highest, 6);
    free(l);
}

TEST(scan__of_nothing_is_an_empty_log)
{
    struct small_log *l = empty_log();
    struct found f = start(l, 1, 0);
    CHECK(f.verdict == PK_SCAN_SOUND);
    CHECK_U64(f.count, 0);
    CHECK_U64(f.at.offset, 0);
    free(l);
}

TEST(scan__begins_behind_a_snapshot_when_segments_are_used_again)
{
    uint64_t needed;
    struct small_log *l = used_log(&needed);
    struct found f = start(l, needed, 12);
    is_whole(&f, l);
    CHECK(f.first <= needed);
    free(l);
}

/* Two logs went apart: batch 6 has the same number in both, and another content. */
TEST(scan__takes_a_batch_only_behind_the_one_it_was_written_after)
{
    struct small_log *l = whole_log(), *other = empty_log();
    memcpy(other, l, sizeof *other);
    other->at = l->batch_at[6];
    other->number = 5;
    other->index -= 2;
    put(other, 2, 58, 5); /* one more than the 50 bytes of whole_log */
    put(l, 1, 8, 5);
    put(other, 1, 8, 5);
    struct pk_log_place at = l->batch_at[7];
    CHECK(at.segment == other->batch_at[7].segment &&
          at.offset == other->batch_at[7].offset);
    memcpy(l->bytes[at.segment] + at.offset, other->bytes[at.segment] + at.offset,
           l->batch_size[7]);
    struct found f = start(l, 1, 0);
    CHECK_U64(f.terms[f.count - 1], 6);
    free(other);
    free(l);
}

/* ---- damage ---- */

/* Whatever was done to one sector: the start refuses, or it finds everything. */
static void is_refused_or_harmless(const struct small_log *l, uint64_t needed)
{
    struct found f = start(l, needed, 0); /* without the help of a mark */
    if (f.verdict == PK_SCAN_SOUND) {
        is_whole(&f, l);
    }
}

/* Each of the 393,216. Only the segment of the bit is looked at again. */
static void flip_every_bit(struct small_log *l, uint64_t needed)
{
    struct pk_segment_look looks[SEGMENTS], kept;
    for (uint32_t i = 0; i < SEGMENTS; i++) {
        pk_scan_look(&owner, i, l->bytes[i], SIZE, &looks[i]);
    }
    for (size_t i = 0; i < SEGMENTS * (size_t)SIZE * 8; i++) {
        uint32_t segment = (uint32_t)(i / 8 / SIZE);
        unsigned char *byte = &l->bytes[segment][i / 8 % SIZE];
        kept = looks[segment];
        *byte ^= (unsigned char)(1U << i % 8);
        pk_scan_look(&owner, segment, l->bytes[segment], SIZE, &looks[segment]);
        struct found f = scan(l, looks, needed, 0); /* without the help of a mark */
        if (f.verdict == PK_SCAN_SOUND) {
            is_whole(&f, l);
        }
        *byte ^= (unsigned char)(1U << i % 8);
        looks[segment] = kept;
    }
}

TEST(damage__no_flipped_bit_loses_an_entry)
{
    struct small_log *l = whole_log();
    flip_every_bit(l, 1);
    free(l);
}

TEST(damage__no_flipped_bit_loses_an_entry_of_used_segments)
{
    uint64_t needed;
    struct small_log *l = used_log(&needed);
    flip_every_bit(l, needed);
    free(l);
}

/* Zeros, ones, and the content of any other sector in its place. */
static void overwrite_every_sector(struct small_log *l, uint64_t needed)
{
    unsigned char *all = l->bytes[0];
    for (size_t i = 0; i < SEGMENTS * (size_t)SECTORS; i++) {
        unsigned char before[PK_SECTOR];
        memcpy(before, all + i * PK_SECTOR, PK_SECTOR);
        memset(all + i * PK_SECTOR, 0, PK_SECTOR);
        is_refused_or_harmless(l, needed);
        memset(all + i * PK_SECTOR, 0xff, PK_SECTOR);
        is_refused_or_harmless(l, needed);
        for (size_t from = 0; from < SEGMENTS * (size_t)SECTORS; from++) {
            if (from != i) {
                memcpy(all + i * PK_SECTOR, all + from * PK_SECTOR, PK_SECTOR);
                is_refused_or_harmless(l, needed);
            }
        }
        memcpy(all + i * PK_SECTOR, before, PK_SECTOR);
    }
}

TEST(damage__no_overwritten_sector_loses_an_entry)
{
    uint64_t needed;
    struct small_log *l = whole_log();
    overwrite_every_sector(l, 1);
    free(l);
    l = used_log(&needed);
    overwrite_every_sector(l, needed);
    free(l);
}

/* The last batch begins a segment, and nothing was written later that knows of it. */
TEST(damage__to_the_only_batch_of_a_segment_is_seen)
{
    struct small_log *l = empty_log();
    do {
        put(l, 1, 3000, l->number);
    } while (l->at.segment == 0);
    for (size_t i = 0; i < l->batch_size[l->number]; i++) {
        l->bytes[1][i] ^= 1;
        struct found f = start(l, 1, 0);
        CHECK(f.verdict == PK_SCAN_DAMAGED);
        CHECK_U64(f.at.segment, 1);
        l->bytes[1][i] ^= 1;
    }
    free(l);
}

/* The refusal says where. */
TEST(damage__is_told_with_its_place)
{
    struct small_log *l = whole_log();
    struct pk_log_place at = l->batch_at[4];
    l->bytes[at.segment][at.offset + 700] ^= 4;
    struct found f = start(l, 1, 6);
    CHECK(f.verdict == PK_SCAN_DAMAGED);
    CHECK_U64(f.at.segment, at.segment);
    CHECK_U64(f.at.offset, at.offset);
    free(l);
}

/* A disk that undoes a durable write: its sectors show what was there before. */
TEST(damage__an_undone_write_is_noticed_by_what_was_written_later)
{
    struct small_log *l = whole_log(), *before = empty_log();
    for (uint64_t number = 1; number <= 5; number++) {
        struct pk_log_place at = l->batch_at[number];
        unsigned char *place = l->bytes[at.segment] + at.offset;
        unsigned char kept[SIZE];
        memcpy(kept, place, l->batch_size[number]);
        memcpy(place, before->bytes[at.segment] + at.offset, l->batch_size[number]);
        struct found f = start(l, 1, 0);
        CHECK(f.verdict != PK_SCAN_SOUND);
        memcpy(place, kept, l->batch_size[number]);
    }
    free(before);
    free(l);
}

TEST(damage__an_undone_last_write_is_noticed_by_the_mark)
{
    struct small_log *l = whole_log(), *before = empty_log();
    struct pk_log_place at = l->batch_at[6];
    memcpy(l->bytes[at.segment] + at.offset, before->bytes[at.segment] + at.offset,
           l->batch_size[6]);
    struct found f = start(l, 1, 6);
    CHECK(f.verdict == PK_SCAN_LOST);
    free(before);
    free(l);
}

/* Entry 1 is needed, and the log begins later. */
TEST(damage__a_log_that_does_not_reach_back_is_refused)
{
    uint64_t needed;
    struct small_log *l = used_log(&needed);
    struct found f = start(l, 1, 0);
    CHECK(f.verdict == PK_SCAN_LOST);
    free(l);
}

TEST(damage__sectors_of_another_node_do_not_check)
{
    struct small_log *l = whole_log();
    struct pk_log_owner stranger = {.cluster = 77, .incarnation = 4};
    uint64_t number;
    CHECK(pk_sector_check(&owner, (struct pk_log_place){0, 0}, l->bytes[0], &number));
    CHECK(!pk_sector_check(&stranger, (struct pk_log_place){0, 0}, l->bytes[0], &number));
    free(l);
}

/* ---- power cuts ---- */

/* Batches `from` to `to` were in flight: of each of their sectors the old content is
 * there or the new one, as the bits of `kept` say. */
static void tear(struct small_log *torn, const struct small_log *l,
                 const struct small_log *before, uint64_t from, uint64_t to,
                 uint64_t kept)
{
    memcpy(torn, l, sizeof *torn);
    unsigned bit = 0;
    for (uint64_t number = from; number <= to; number++) {
        struct pk_log_place at = l->batch_at[number];
        for (size_t i = 0; i < l->batch_size[number]; i += PK_SECTOR, bit++) {
            if (((kept >> bit) & 1) == 0) {
                memcpy(torn->bytes[at.segment] + at.offset + i,
                       before->bytes[at.segment] + at.offset + i, PK_SECTOR);
            }
        }
    }
}

/* Nothing that was acknowledged is missing, and nothing is half there. */
static void is_sound(const struct small_log *torn, uint64_t needed, uint64_t durable,
                     const struct small_log *l)
{
    struct found f = start(torn, needed, durable);
    CHECK(f.verdict == PK_SCAN_SOUND && !f.malformed);
    uint64_t last = f.terms[f.count - 1]; /* terms are numbers of batches here */
    CHECK(last >= durable && last <= l->number);
    for (uint64_t i = 1; i < f.count; i++) {
        CHECK(f.terms[i] - f.terms[i - 1] <= 1);
    }
}

/* Two batches of a block each in flight: all 65536 ways. */
static void tear_in_every_way(const struct small_log *before, uint64_t needed,
                              uint64_t durable)
{
    struct small_log *l = malloc(sizeof *l), *torn = malloc(sizeof *torn);
    memcpy(l, before, sizeof *l);
    put(l, 1, 100, durable);
    put(l, 2, 200, durable);
    for (uint64_t kept = 0; kept < 65536; kept++) {
        tear(torn, l, before, durable + 1, durable + 2, kept);
        is_sound(torn, needed, durable, l);
    }
    free(torn);
    free(l);
}

TEST(power_cut__takes_only_what_was_in_flight)
{
    struct small_log *l = whole_log();
    tear_in_every_way(l, 1, 6);
    free(l);
}

TEST(power_cut__takes_only_what_was_in_flight_in_used_segments)
{
    uint64_t needed;
    struct small_log *l = used_log(&needed);
    tear_in_every_way(l, needed, 12);
    free(l);
}

/* Damage to a batch that is not torn is never taken for a tear. */
TEST(power_cut__is_told_from_damage_in_every_sector)
{
    struct small_log *l = whole_log();
    struct pk_log_place at = l->batch_at[6];
    for (size_t i = 0; i < l->batch_size[6]; i += 1) {
        l->bytes[at.segment][at.offset + i] ^= 1;
        struct found f = start(l, 1, 0);
        CHECK(f.verdict == PK_SCAN_DAMAGED);
        l->bytes[at.segment][at.offset + i] ^= 1;
    }
    free(l);
}

/* ---- the other files ---- */

TEST(meta__every_flipped_bit_is_seen)
{
    static unsigned char slot[PK_META_SLOT];
    static struct pk_meta m, out;
    m = (struct pk_meta){.version = 3,
                         .owner = owner,
                         .term = 9,
                         .vote = 4,
                         .segments = 5,
                         .segment_bytes = SIZE,
                         .configuration_len = 3,
                         .configuration = "abc"};
    pk_meta_encode(&m, slot);
    CHECK(pk_meta_decode(slot, &out));
    CHECK_U64(out.vote, 4);
    CHECK_U64(out.segments, 5);
    CHECK(memcmp(out.configuration, "abc", 3) == 0);
    for (size_t bit = 0; bit < 8 * sizeof slot; bit++) {
        slot[bit / 8] ^= (unsigned char)(1U << bit % 8);
        CHECK(!pk_meta_decode(slot, &out));
        slot[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
}

TEST(mark__every_flipped_bit_of_it_is_seen)
{
    unsigned char slot[PK_SECTOR];
    pk_mark_encode(owner.incarnation, 77, slot);
    CHECK_U64(pk_mark_decode(owner.incarnation, slot), 77);
    CHECK_U64(pk_mark_decode(owner.incarnation + 1, slot), 0);
    for (size_t bit = 0; bit < 8 * 20; bit++) {
        slot[bit / 8] ^= (unsigned char)(1U << bit % 8);
        CHECK_U64(pk_mark_decode(owner.incarnation, slot), 0);
        slot[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
}

TEST(snapshot__every_flipped_bit_and_every_cut_of_its_head_is_seen)
{
    static unsigned char file[PK_SNAPSHOT_HEAD];
    static struct pk_snapshot_head h, out;
    h = (struct pk_snapshot_head){.owner = owner,
                                  .index = 100,
                                  .term = 3,
                                  .configuration_index = 2,
                                  .state_len = 700,
                                  .state_sum = 77,
                                  .configuration_len = 2,
                                  .configuration = "xy"};
    pk_snapshot_head_encode(&h, file);
    CHECK(pk_snapshot_head_decode(&owner, file, sizeof file, &out));
    CHECK_U64(out.index, 100);
    CHECK_U64(out.configuration_index, 2);
    CHECK_U64(out.state_len, 700);
    CHECK_U64(out.state_sum, 77);
    struct pk_log_owner stranger = {owner.cluster, owner.incarnation + 1};
    CHECK(!pk_snapshot_head_decode(&stranger, file, sizeof file, &out));
    stranger = (struct pk_log_owner){owner.cluster + 1, owner.incarnation};
    CHECK(!pk_snapshot_head_decode(&stranger, file, sizeof file, &out));
    for (size_t bit = 0; bit < 8 * sizeof file; bit++) {
        file[bit / 8] ^= (unsigned char)(1U << bit % 8);
        CHECK(!pk_snapshot_head_decode(&owner, file, sizeof file, &out));
        file[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    for (size_t len = 0; len < sizeof file; len++) {
        CHECK(!pk_snapshot_head_decode(&owner, file, len, &out));
    }
}

TEST(crc32c__is_the_standard_one)
{
    CHECK_U64(pk_crc32c(0, "123456789", 9), UINT32_C(0xe3069283));
    CHECK_U64(pk_crc32c(pk_crc32c(0, "12345", 5), "6789", 4), UINT32_C(0xe3069283));
}
