/* SPDX-License-Identifier: MIT */
/*
 * Messages as libraft writes them, by its documented layout; that it really writes them
 * so, test_uvio shows, where nothing but real ones pass.
 */
#include "raft/frame.h"

#include "core/wire.h"
#include "tap.h"

enum { APPEND = 1, APPEND_RESULT, VOTE, VOTE_RESULT, SNAPSHOT, TIMEOUT_NOW };

static unsigned char bytes[2 * PK_FRAME_HEADER_MAX];
static size_t len;

static void put(uint64_t word)
{
    pk_put_u64(bytes + len, word);
    len += 8;
}

static void begin(unsigned type, uint64_t header)
{
    len = 0;
    put(type | 1 << 16); /* version 1 */
    put(header);
}

static void put_words(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        put(1000 + i);
    }
}

static uint64_t entry_word(unsigned type, uint64_t size)
{
    return type | size << 32;
}

/* AppendEntries with a table of `n` entries, as the header length says. */
static void begin_append(uint64_t n)
{
    begin(APPEND, 8 * (4 + 1 + 2 * n + 1));
    put_words(4);
    put(n);
}

/* The verdict on all bytes, the same in one piece and one by one. */
static const char *verdict(void)
{
    static struct pk_frame whole, split;
    memset(&whole, 0, sizeof whole);
    memset(&split, 0, sizeof split);
    const char *why = pk_frame_check(&whole, bytes, len);
    const char *again = NULL;
    for (size_t i = 0; i < len && again == NULL; i++) {
        again = pk_frame_check(&split, bytes + i, 1);
    }
    CHECK_STR(why, again);
    return why;
}

static bool is_at_a_beginning(void)
{
    static struct pk_frame f;
    memset(&f, 0, sizeof f);
    CHECK_STR(pk_frame_check(&f, bytes, len), NULL);
    return f.at == 0 && !f.in_payload;
}

static void put_configuration(const char *first, const char *second, unsigned role)
{
    unsigned char conf[256] = {1, 2};
    size_t at = 9;
    conf[at] = 11;
    at += 8;
    memcpy(conf + at, first, strlen(first) + 1);
    at += strlen(first) + 1;
    conf[at++] = 1;
    conf[at] = 12;
    at += 8;
    memcpy(conf + at, second, strlen(second) + 1);
    at += strlen(second) + 1;
    conf[at++] = (unsigned char)role;
    at = (at + 7) / 8 * 8;
    begin(SNAPSHOT, 8 * 7 + at);
    put_words(4);
    put(at);
    memcpy(bytes + len, conf, at);
    len += at;
}

TEST(frame__small_messages_pass)
{
    static const unsigned words[] = {0, 0, 4, 5, 3, 0, 3};
    for (unsigned type = APPEND_RESULT; type <= TIMEOUT_NOW; type++) {
        if (type != SNAPSHOT) {
            begin(type, 8 * words[type]);
            put_words(words[type]);
            CHECK(is_at_a_beginning());
            CHECK_STR(verdict(), NULL);
        }
    }
}

/* The library reads so many bytes, whatever the header's length is. */
TEST(frame__small_messages_are_not_too_small)
{
    static const unsigned words[] = {0, 5, 4, 5, 3, 6, 3};
    for (unsigned type = APPEND; type <= TIMEOUT_NOW; type++) {
        begin(type, 8 * (words[type] - 1));
        CHECK(verdict() != NULL);
        begin(type, 0);
        CHECK(verdict() != NULL);
        begin(type, 8 * words[type] + 1);
        CHECK(verdict() != NULL);
    }
}

TEST(frame__lengths_of_headers_are_bounded)
{
    for (unsigned type = APPEND; type <= TIMEOUT_NOW; type++) {
        begin(type, PK_FRAME_HEADER_MAX + 8);
        CHECK(verdict() != NULL);
        begin(type, UINT64_MAX - 7);
        CHECK(verdict() != NULL);
    }
    begin(APPEND, PK_FRAME_HEADER_MAX);
    CHECK_STR(verdict(), NULL);
    begin(VOTE, 1024);
    CHECK(verdict() != NULL);
}

TEST(frame__unknown_types_are_refused)
{
    begin(0, 24);
    CHECK(verdict() != NULL);
    begin(7, 24);
    CHECK(verdict() != NULL);
    len = 8; /* at once, without waiting for more */
    CHECK(verdict() != NULL);
}

TEST(frame__a_heartbeat_passes)
{
    begin_append(0);
    put(0);
    CHECK(is_at_a_beginning());
}

TEST(frame__entries_pass_and_the_next_message_is_found)
{
    begin_append(2);
    put(3);
    put(entry_word(1, 16));
    put(3);
    put(entry_word(3, 8));
    put(0);
    put_words(3);
    CHECK(is_at_a_beginning());
    put(99); /* a type that does not exist */
    CHECK(verdict() != NULL);
}

/* More entries than the header has room for: the library would read on behind it. */
TEST(frame__counts_must_fit_into_their_header)
{
    begin_append(2);
    pk_put_u64(bytes + 16 + 32, 3);
    CHECK(verdict() != NULL);
    pk_put_u64(bytes + 16 + 32, UINT64_MAX);
    CHECK(verdict() != NULL);
    pk_put_u64(bytes + 16 + 32, UINT64_C(1) << 60); /* times 16 is 0 */
    CHECK(verdict() != NULL);
    pk_put_u64(bytes + 16 + 32, 1); /* fewer is no harm */
    CHECK_STR(verdict(), NULL);
}

TEST(frame__entries_are_of_a_known_type_and_not_empty)
{
    const uint64_t wrong[] = {
        entry_word(0, 8), entry_word(4, 8), entry_word(1, 0),
        entry_word(1, 12), /* not a multiple of 8 */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        begin_append(1);
        put(3);
        put(wrong[i]);
        CHECK(verdict() != NULL);
    }
}

TEST(frame__entries_together_are_bounded)
{
    begin_append(2);
    put(3);
    put(entry_word(1, PK_FRAME_ENTRIES_MAX - 8));
    put(3);
    put(entry_word(1, 8));
    CHECK_STR(verdict(), NULL);
    len -= 8;
    put(entry_word(1, 16));
    CHECK(verdict() != NULL);
    begin_append(1);
    put(3);
    put(entry_word(1, 0xfffffff8));
    CHECK(verdict() != NULL);
}

TEST(frame__a_snapshot_passes)
{
    put_configuration("n1@a:1", "n2@b:2", 2);
    put(24);
    put(0);
    put_words(3);
    CHECK(is_at_a_beginning());
    CHECK_STR(verdict(), NULL);
}

TEST(frame__snapshots_are_bounded)
{
    put_configuration("n1@a:1", "n2@b:2", 1);
    put(PK_FRAME_SNAPSHOT_MAX);
    CHECK_STR(verdict(), NULL);
    len -= 8;
    put(PK_FRAME_SNAPSHOT_MAX + 1);
    CHECK(verdict() != NULL);
    len -= 8;
    put(0);
    CHECK(verdict() != NULL);
}

TEST(frame__configurations_fit_into_their_header)
{
    put_configuration("n1@a:1", "n2@b:2", 1);
    uint64_t right = pk_get_u64(bytes + 16 + 32);
    static const uint64_t wrong[] = {0, 4, 16, UINT64_MAX - 7, PK_FRAME_HEADER_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pk_put_u64(bytes + 16 + 32, wrong[i]);
        CHECK(verdict() != NULL);
    }
    pk_put_u64(bytes + 16 + 32, right + 16); /* two words behind it, data and unused */
    CHECK(verdict() != NULL);
    pk_put_u64(bytes + 16 + 32, right);
    CHECK_STR(verdict(), NULL);
}

TEST(frame__configurations_are_sound)
{
    put_configuration("n1@a:1", "n1@a:1", 1); /* the same address twice */
    CHECK(verdict() != NULL);
    put_configuration("n1@a:1", "n2@b:2", 3); /* no such role */
    CHECK(verdict() != NULL);
    put_configuration("n1@a:1", "n2@b:2", 1);
    size_t conf = 16 + 40;
    bytes[conf]++; /* format */
    CHECK(verdict() != NULL);
    bytes[conf]--;
    for (unsigned n = 0; n < 256; n++) {
        bytes[conf + 1] = (unsigned char)n; /* how many there are */
        CHECK((verdict() == NULL) == (n == 1 || n == 2));
    }
    bytes[conf + 1] = 2;
    bytes[conf + 9] = 12; /* the same id twice */
    CHECK(verdict() != NULL);
    bytes[conf + 9] = 0; /* no id */
    CHECK(verdict() != NULL);
    bytes[conf + 9] = 11;
    CHECK_STR(verdict(), NULL);
    memset(bytes + conf + 17, 'x', len - conf - 17); /* an address without an end */
    CHECK(verdict() != NULL);
}
