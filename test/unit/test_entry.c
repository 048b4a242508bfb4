/* SPDX-License-Identifier: MIT */
#include "core/command.h"
#include "raft/entry.h"
#include "tap.h"

static const struct pk_entry full = {
    .kind = PK_ENTRY_COMMANDS,
    .mark = true,
    .origin = UINT64_C(0x1122334455667788),
    .batch = 9,
    .index = 1000,
    .stamp_ms = 123456789,
    .count = 2,
};

/* Seals `e` around a body of `len` bytes of 'x'; returns the size. */
static size_t seal(unsigned char *out, struct pk_entry e, size_t len)
{
    memset(out, 0xff, PK_ENTRY_HEAD + len + 8);
    memset(out + PK_ENTRY_HEAD, 'x', len);
    e.body = pk_bytes(NULL, len);
    pk_entry_seal(out, &e);
    return pk_entry_size(len);
}

TEST(entry__opens_what_was_sealed)
{
    for (size_t len = 2; len < 20; len++) {
        unsigned char bytes[128];
        struct pk_entry e;
        size_t size = seal(bytes, full, len);
        CHECK_U64(size % 8, 0);
        CHECK(pk_entry_open(bytes, size, &e));
        CHECK(e.kind == full.kind && e.mark);
        CHECK_U64(e.origin, full.origin);
        CHECK_U64(e.batch, full.batch);
        CHECK_U64(e.index, full.index);
        CHECK_U64(e.stamp_ms, full.stamp_ms);
        CHECK_U64(e.count, full.count);
        CHECK_U64(e.body.len,
                  len); /* to the byte: a piece of a backup can end anywhere */
        CHECK(e.body.data == (const char *)bytes + PK_ENTRY_HEAD);
    }
}

/* The bytes are the same on every machine and in every version that reads this one. */
TEST(entry__has_one_form)
{
    static const unsigned char expected[56] = {
        'P',  'K',  'E', 1, 1,    1,    6,    0,   0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
        0x22, 0x11, 9,   0, 0,    0,    0,    0,   0,    0,    0xe8, 3,    0,    0,
        0,    0,    0,   0, 0x15, 0xcd, 0x5b, 7,   0,    0,    0,    0,    2,    0,
        0,    0,    0,   0, 0,    0,    'x',  'x', 0,    0,    0,    0,    0,    0,
    };
    unsigned char bytes[128];
    CHECK_U64(seal(bytes, full, 2), sizeof expected);
    CHECK(memcmp(bytes, expected, sizeof expected) == 0);
}

TEST(entry__refuses_what_seal_can_not_have_written)
{
    static const struct {
        size_t at;
        unsigned char byte;
    } flaws[] = {
        {0, 'Q'}, {3, 2}, {4, 0},  {4, 4},  {5, 2},    {6, 8},
        {6, 9},   {7, 1}, {54, 1}, {55, 1}, {41, 200}, {6, 0xff},
    };
    unsigned char bytes[128];
    struct pk_entry e;
    for (size_t i = 0; i < sizeof flaws / sizeof flaws[0]; i++) {
        size_t size = seal(bytes, full, 2);
        CHECK(pk_entry_open(bytes, size, &e));
        bytes[flaws[i].at] = flaws[i].byte;
        CHECK(!pk_entry_open(bytes, size, &e));
    }
}

TEST(entry__refuses_every_other_length)
{
    unsigned char bytes[128];
    struct pk_entry e;
    size_t size = seal(bytes, full, 2);
    for (size_t len = 0; len < size; len++) {
        CHECK(!pk_entry_open(bytes, len, &e));
    }
}

TEST(entry__barrier_and_adopt_have_no_body)
{
    unsigned char bytes[128];
    struct pk_entry e;
    struct pk_entry barrier = {.kind = PK_ENTRY_COMMANDS, .batch = 1, .index = 2};
    struct pk_entry adopt = {.kind = PK_ENTRY_ADOPT, .batch = 1, .index = 2};
    CHECK(pk_entry_open(bytes, seal(bytes, barrier, 0), &e));
    CHECK(pk_entry_open(bytes, seal(bytes, adopt, 0), &e));
    CHECK(!pk_entry_open(bytes, seal(bytes, barrier, 1), &e));
    CHECK(!pk_entry_open(bytes, seal(bytes, adopt, 1), &e));
    adopt.count = 1;
    CHECK(!pk_entry_open(bytes, seal(bytes, adopt, 0), &e));
}
