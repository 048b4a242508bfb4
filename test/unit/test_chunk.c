/* SPDX-License-Identifier: MIT */
/* Chunks of snapshots among the messages between nodes (raft/message.h). */
#include "core/door.h"
#include "core/wire.h"
#include "raft/crc32c.h"
#include "raft/message.h"
#include "raft/store.h"
#include "tap.h"

enum { FROM = 77, MOST = 2 * PK_STORE_CHUNK_MAX };

static unsigned char data[PK_STORE_CHUNK_MAX], bytes[MOST];
static size_t len;
static struct pk_message_reader reader;

/* The frame says that so many bytes follow, and its checksum is right. */
static void announce(uint64_t payload)
{
    uint32_t sum;
    pk_put_u64(bytes + 8, payload);
    sum = pk_crc32c(0, bytes, 16);
    sum = pk_crc32c(sum, bytes + PK_MESSAGE_FRAME, bytes[4]);
    for (unsigned i = 0; i < 4; i++) {
        bytes[16 + i] = (unsigned char)(sum >> 8 * i);
    }
}

static enum pk_message_state verdict(void)
{
    size_t used;
    enum pk_message_state state = pk_message_read(&reader, bytes, len, &used);
    pk_message_reader_free(&reader);
    return state;
}

static struct pk_snapshot_chunk chunk_of(size_t n)
{
    memset(data, 0x3c, n);
    return (struct pk_snapshot_chunk){
        .id = {.index = 11, .term = 12, .size = UINT64_C(5) << 32, .sum = 0xfffffff0},
        .offset = UINT64_C(4) << 32,
        .bytes = data,
        .len = n};
}

static void write_chunk(const struct pk_snapshot_chunk *c)
{
    struct pk_encoded *e = pk_chunk_encode(c, FROM);
    len = 0;
    for (unsigned i = 0; i < e->n; i++) {
        CHECK(len + e->parts[i].len <= sizeof bytes);
        memcpy(bytes + len, e->parts[i].base, e->parts[i].len);
        len += e->parts[i].len;
    }
    pk_door_resize(e, 0);
}

TEST(message__chunks_come_through_in_any_pieces)
{
    static const size_t sizes[] = {0, 1, 777, 100000};
    static const size_t pieces[] = {1, 19, 68, 69, 4096, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t k = 0; k < sizeof pieces / sizeof pieces[0]; k++) {
            struct pk_snapshot_chunk c = chunk_of(sizes[i]);
            enum pk_message_state state = PK_MESSAGE_PART;
            write_chunk(&c);
            for (size_t at = 0, used = 0; at < len; at += used) {
                size_t n = len - at < pieces[k] ? len - at : pieces[k];
                CHECK(state == PK_MESSAGE_PART);
                state = pk_message_read(&reader, bytes + at, n, &used);
            }
            CHECK(state == PK_MESSAGE_CHUNKED);
            CHECK_U64(reader.from, FROM);
            CHECK(pk_snapshot_same(&reader.chunk.id, &c.id));
            CHECK_U64(reader.chunk.offset, c.offset);
            CHECK_U64(reader.chunk.len, c.len);
            CHECK(c.len == 0 || memcmp(reader.chunk.bytes, c.bytes, c.len) == 0);
            pk_message_reader_free(&reader);
        }
    }
}

TEST(message__every_flipped_bit_of_a_chunk_is_seen)
{
    struct pk_snapshot_chunk c = chunk_of(40);
    write_chunk(&c);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        size_t used;
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        enum pk_message_state state = pk_message_read(&reader, bytes, len, &used);
        CHECK(state == PK_MESSAGE_WRONG || state == PK_MESSAGE_PART);
        pk_message_reader_free(&reader);
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
}

/* What it says about itself is held against bounds before memory is taken for it. */
TEST(message__chunks_are_bounded)
{
    struct pk_snapshot_chunk c = chunk_of(40);
    write_chunk(&c);
    announce((uint64_t)PK_STORE_CHUNK_MAX + 1);
    CHECK(verdict() == PK_MESSAGE_WRONG);
    CHECK(reader.payload == NULL);
    c.offset = c.id.size - 39; /* ends behind the state */
    write_chunk(&c);
    CHECK(verdict() == PK_MESSAGE_WRONG);
    c.offset = UINT64_MAX - 10;
    write_chunk(&c);
    CHECK(verdict() == PK_MESSAGE_WRONG);
    c.offset = c.id.size - 40;
    write_chunk(&c);
    CHECK(verdict() == PK_MESSAGE_CHUNKED);
}
