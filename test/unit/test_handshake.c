/* SPDX-License-Identifier: MIT */
#include "raft/handshake.h"

#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

static struct pk_greeting hello(void)
{
    struct pk_greeting g = {.kind = PK_HELLO, .cluster = 7, .to = 8, .run = 9};
    g.from = (struct pk_peer){.id = 10, .name = "n1"};
    (void)snprintf(g.from.client, sizeof g.from.client, "a:1");
    (void)snprintf(g.from.http, sizeof g.from.http, "a:2");
    (void)snprintf(g.address, sizeof g.address, "n1@a:3");
    g.release = pk_release_own();
    return g;
}

/* Decodes from a block of exactly that size, so that a sanitizer sees a read past it. */
static enum pk_greeting_state decode(const unsigned char *in, size_t len,
                                     struct pk_greeting *out)
{
    unsigned char *copy = malloc(len);
    CHECK(copy != NULL || len == 0);
    if (len > 0) {
        memcpy(copy, in, len);
    }
    enum pk_greeting_state s = pk_greeting_decode(copy, len, out);
    free(copy);
    return s;
}

static enum pk_greeting_state state_of(const struct pk_greeting *g)
{
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting again;
    return decode(bytes, pk_greeting_encode(g, bytes), &again);
}

TEST(handshake__what_is_said_is_heard)
{
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting g = hello(), out;
    for (int kind = PK_HELLO; kind <= PK_WELCOME; kind++) {
        g.kind = (enum pk_greeting_kind)kind;
        size_t len = pk_greeting_encode(&g, bytes);
        CHECK(decode(bytes, len, &out) == PK_GREETING_WHOLE);
        CHECK(memcmp(&g, &out, sizeof g) == 0);
    }
}

static struct pk_greeting tell(size_t n)
{
    struct pk_greeting g = hello();
    g.kind = PK_TELL;
    g.to = g.run = 0;
    memset(g.from.client, 0, sizeof g.from.client);
    memset(g.from.http, 0, sizeof g.from.http);
    g.n_members = n;
    for (size_t i = 0; i < n; i++) {
        g.members[i].id = 10 + i;
        g.members[i].role = (enum pk_member_role)(i % 3);
        (void)snprintf(g.members[i].address, PK_ADDRESS_MAX, "n%zu@a:%zu", i + 1, i);
    }
    return g;
}

TEST(handshake__what_is_asked_and_told_is_heard)
{
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting out, g = tell(0);
    g.kind = PK_ASK;
    g.cluster = 0;
    size_t len = pk_greeting_encode(&g, bytes);
    CHECK(decode(bytes, len, &out) == PK_GREETING_WHOLE);
    CHECK(memcmp(&g, &out, sizeof g) == 0);
    for (size_t n = 0; n <= PK_MEMBERS_MAX; n++) {
        g = tell(n);
        len = pk_greeting_encode(&g, bytes);
        CHECK(decode(bytes, len, &out) == PK_GREETING_WHOLE);
        CHECK(memcmp(&g, &out, sizeof g) == 0);
        for (size_t i = 0; i < len; i++) {
            CHECK(decode(bytes, i, &out) == PK_GREETING_PART);
        }
    }
}

TEST(handshake__members_that_are_told_of_are_sound)
{
    struct pk_greeting g = tell(3);
    g.members[2].id = g.members[0].id;
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    g = tell(3);
    g.members[1].id = 0;
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    g = tell(3);
    (void)snprintf(g.members[2].address, PK_ADDRESS_MAX, "n1@elsewhere:1");
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    (void)snprintf(g.members[2].address, PK_ADDRESS_MAX, "nowhere");
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    (void)snprintf(g.members[2].address, PK_ADDRESS_MAX, "n 3@a:1");
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    g = tell(3);
    g.members[0].role = (enum pk_member_role)3;
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    unsigned char bytes[PK_GREETING_MAX];
    g = tell(0);
    size_t len = pk_greeting_encode(&g, bytes);
    bytes[len - 1] = PK_MEMBERS_MAX + 1; /* how many there are */
    CHECK(decode(bytes, len, &g) == PK_GREETING_GARBAGE);
    g = tell(PK_MEMBERS_MAX);
    size_t at = len - 1;
    len = pk_greeting_encode(&g, bytes);
    CHECK(decode(bytes, len, &g) == PK_GREETING_WHOLE);
    CHECK_U64(bytes[at], PK_MEMBERS_MAX);
    bytes[at]++;
    CHECK(decode(bytes, len, &g) == PK_GREETING_GARBAGE);
}

TEST(handshake__a_refusal_carries_its_sentence)
{
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting g = {.kind = PK_REFUSAL, .why = "the clusters differ"}, out;
    size_t len = pk_greeting_encode(&g, bytes);
    CHECK(decode(bytes, len, &out) == PK_GREETING_WHOLE);
    CHECK(out.kind == PK_REFUSAL);
    CHECK_STR(out.why, "the clusters differ");
}

TEST(handshake__the_longest_fits)
{
    struct pk_greeting g = hello();
    g.cluster = g.to = g.run = UINT64_MAX;
    g.from.id = UINT64_MAX >> 1;
    memset(g.from.name, 'n', sizeof g.from.name - 1);
    memset(g.from.client, 'c', sizeof g.from.client - 1);
    memset(g.from.http, 'h', sizeof g.from.http - 1);
    memset(g.address, 'a', sizeof g.address - 1);
    memcpy(g.address, g.from.name, sizeof g.from.name - 1);
    g.address[sizeof g.from.name - 1] = '@';
    CHECK(state_of(&g) == PK_GREETING_WHOLE);
    struct pk_greeting most = tell(PK_MEMBERS_MAX);
    most.cluster = UINT64_MAX;
    for (size_t i = 0; i < PK_MEMBERS_MAX; i++) {
        size_t at = strlen(most.members[i].address);
        memset(most.members[i].address + at, '1', PK_ADDRESS_MAX - 1 - at);
        most.members[i].id = (UINT64_MAX >> 1) - i;
    }
    CHECK(state_of(&most) == PK_GREETING_WHOLE);
    struct pk_greeting no = {.kind = PK_REFUSAL};
    memset(no.why, 'w', sizeof no.why - 1);
    CHECK(state_of(&no) == PK_GREETING_WHOLE);
}

TEST(handshake__a_beginning_is_a_part_and_a_byte_more_is_garbage)
{
    unsigned char bytes[PK_GREETING_MAX + 1] = {0};
    struct pk_greeting g = hello(), out;
    size_t len = pk_greeting_encode(&g, bytes);
    for (size_t i = 0; i < len; i++) {
        CHECK(decode(bytes, i, &out) == PK_GREETING_PART);
    }
    CHECK(decode(bytes, len + 1, &out) == PK_GREETING_GARBAGE);
}

TEST(handshake__garbage_shows_with_its_first_bytes)
{
    struct pk_greeting out;
    CHECK(decode((const unsigned char *)"GET / HTTP/1.1\r\n", 16, &out) ==
          PK_GREETING_GARBAGE);
    CHECK(decode((const unsigned char *)"PKHX", 4, &out) == PK_GREETING_GARBAGE);
    /* A length beyond all bounds is no reason to wait for it. */
    CHECK(decode((const unsigned char *)"PKHI\2\1\xff\xff", 8, &out) ==
          PK_GREETING_GARBAGE);
    CHECK(decode((const unsigned char *)"PKHI\2\6\1\0", 8, &out) == PK_GREETING_GARBAGE);
}

TEST(handshake__versions_can_tell_that_they_differ)
{
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting g = hello(), out;
    size_t len = pk_greeting_encode(&g, bytes);
    bytes[4]++;
    CHECK(decode(bytes, len - 1, &out) == PK_GREETING_PART);
    CHECK(decode(bytes, len, &out) == PK_GREETING_VERSION_DIFFERS);
    struct pk_greeting no = {.kind = PK_REFUSAL, .why = "the versions differ"};
    len = pk_greeting_encode(&no, bytes);
    bytes[4]++;
    CHECK(decode(bytes, len, &out) == PK_GREETING_WHOLE);
    CHECK_STR(out.why, "the versions differ");
}

/* What is whole can be relied on. */
TEST(handshake__who_speaks_is_consistent)
{
    struct pk_greeting g = hello();
    g.from.id = 0;
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    g.from.id = UINT64_C(1) << 63;
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    g = hello();
    (void)snprintf(g.address, sizeof g.address, "n2@a:3");
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    (void)snprintf(g.address, sizeof g.address, "n1");
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    g = hello();
    (void)snprintf(g.from.client, sizeof g.from.client, "a:1\nroot logged in");
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
    g = hello();
    (void)snprintf(g.from.name, sizeof g.from.name, "n 1");
    (void)snprintf(g.address, sizeof g.address, "n 1@a:3");
    CHECK(state_of(&g) == PK_GREETING_GARBAGE);
}
