/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "drivers/zk_inside.h"
#include "tap.h"

#define N(list) ((int)(sizeof(list) / sizeof(list)[0]))

/* ---- names ---- */

TEST(place__is_read_from_every_kind_of_name)
{
    static const struct {
        const char *node;
        uint64_t number;
        bool shared;
    } cases[] = {
        {"_c_7-1-lock-0000000012", 12, false},
        {"_c_7-1-rlock-0000000012", 12, true},
        {"_c_7-1-__lock__0000000003", 3, false},
        {"_c_7-1-__rlock__0000000003", 3, true},
        {"_c_4f6c-lock-2147483647", INT32_MAX, false},  /* Curator's */
        {"_c_4f6c-__READ__0000000001", 1, true},        /* its readers' */
        {"0a1b__lock__0000000000", 0, false},           /* kazoo's */
        {"0000000005", 5, false},                       /* anybody's */
        {"_c_7-1-lock--2147483648", 2147483648, false}, /* numbers that have gone on */
    };
    for (int i = 0; i < N(cases); i++) {
        struct pk_zk_place p;
        CHECK(pk_zk_place_read(cases[i].node, &p));
        CHECK_U64(p.number, cases[i].number);
        CHECK(p.shared == cases[i].shared);
    }
}

TEST(place__is_not_read_from_other_names)
{
    static const char *const nodes[] = {"",           "config",        "123456789",
                                        "000000000x", "lock-00 00000", "lock--000000005"};
    for (int i = 0; i < N(nodes); i++) {
        struct pk_zk_place p;
        CHECK(!pk_zk_place_read(nodes[i], &p));
    }
}

/* ---- who waits for whom ---- */

static const char *ahead;

static enum pk_claim_state stands(const char *own, const char *const *nodes, int n)
{
    struct String_vector all = {n, (char **)nodes};
    return pk_zk_stands(&all, own, &ahead);
}

TEST(queue__the_lowest_number_holds)
{
    static const char *const nodes[] = {"b-lock-0000000003", "leftover",
                                        "a-lock-0000000010", "c__lock__0000000002"};
    CHECK(stands(nodes[3], nodes, N(nodes)) == PK_CLAIM_HELD);
    CHECK(ahead == NULL);
    CHECK(stands(nodes[0], nodes, N(nodes)) == PK_CLAIM_WAITING);
    CHECK_STR(ahead, nodes[3]);
    CHECK(stands(nodes[2], nodes, N(nodes)) == PK_CLAIM_WAITING);
    CHECK_STR(ahead, nodes[0]);
}

TEST(queue__who_is_not_there_holds_nothing)
{
    static const char *const nodes[] = {"b-lock-0000000003"};
    CHECK(stands("a-lock-0000000002", nodes, N(nodes)) == PK_CLAIM_NONE);
    CHECK(stands("a-lock-0000000004", nodes, N(nodes)) == PK_CLAIM_NONE);
    CHECK(stands("a", nodes, 0) == PK_CLAIM_NONE);
}

TEST(queue__readers_wait_for_writers_alone)
{
    static const char *const nodes[] = {"a-rlock-0000000001", "b-rlock-0000000002",
                                        "c-lock-0000000003",  "d-rlock-0000000004",
                                        "e-rlock-0000000005", "f-lock-0000000006"};
    static const enum pk_claim_state wanted[] = {PK_CLAIM_HELD,    PK_CLAIM_HELD,
                                                 PK_CLAIM_WAITING, PK_CLAIM_WAITING,
                                                 PK_CLAIM_WAITING, PK_CLAIM_WAITING};
    static const int waits_for[] = {-1, -1, 1, 2, 2, 4};
    for (int i = 0; i < N(nodes); i++) {
        CHECK(stands(nodes[i], nodes, N(nodes)) == wanted[i]);
        CHECK(waits_for[i] < 0 ? ahead == NULL : ahead == nodes[waits_for[i]]);
    }
}

static int sorted(char **nodes, int n, int *held)
{
    struct String_vector all = {n, nodes};
    return pk_zk_sort(&all, held);
}

TEST(queue__is_sorted_with_the_holders_first)
{
    char *nodes[] = {"c-lock-0000000009", "other", "b-rlock-0000000002",
                     "a-rlock-0000000001"};
    int held;
    CHECK(sorted(nodes, N(nodes), &held) == 3);
    CHECK(held == 2);
    CHECK_STR(nodes[0], "a-rlock-0000000001");
    CHECK_STR(nodes[1], "b-rlock-0000000002");
    CHECK_STR(nodes[2], "c-lock-0000000009");
    char *writers[] = {"b-rlock-0000000002", "a-lock-0000000001", "c-rlock-0000000003"};
    CHECK(sorted(writers, N(writers), &held) == 3);
    CHECK(held == 1);
    CHECK(sorted(NULL, 0, &held) == 0);
    CHECK(held == 0);
}

TEST(queue__a_claim_is_found_by_how_it_begins)
{
    char *nodes[] = {"_c_7-12-lock-0000000001", "_c_7-1-lock-0000000002"};
    struct String_vector all = {2, nodes};
    CHECK_STR(pk_zk_starts(&all, "_c_7-1-"), nodes[1]);
    CHECK(pk_zk_starts(&all, "_c_7-2-") == NULL);
}

/* ---- breaks ---- */

TEST(broken__is_read_as_it_was_written)
{
    struct pk_zk_break b = {.token = UINT64_MAX, .by = "root@vm", .why = ""}, back;
    memset(b.why, 'y', PK_REASON_MAX);
    size_t len;
    char *text = pk_zk_break_write(&b, &len);
    CHECK(pk_zk_break_read(pk_bytes(text, len), &back));
    CHECK_U64(back.token, b.token);
    CHECK_STR(back.by, b.by);
    CHECK_STR(back.why, b.why);
    for (size_t cut = 0; cut < len; cut++) {
        char *part = malloc(cut + 1); /* so that a sanitizer sees what is read */
        memcpy(part, text, cut);
        CHECK(!pk_zk_break_read(pk_bytes(part, cut), &back));
        free(part);
    }
    free(text);
}

TEST(broken__is_not_read_from_what_others_write)
{
    static const char *const texts[] = {
        "", "\n", "hello", "picket-break=1\ntoken=1\nwhy=a\nby=b\n",
        "picket-break=1\ntoken=1234567890123456789012345\nby=b\nwhy=a\n"};
    for (int i = 0; i < N(texts); i++) {
        struct pk_zk_break b;
        CHECK(!pk_zk_break_read(pk_text(texts[i]), &b));
    }
}

/* ---- time ---- */

static struct pk_zk_session session(uint64_t ttl_ms)
{
    return (struct pk_zk_session){.ttl_ms = ttl_ms, .last_ms = 1000, .known_ms = 1000};
}

TEST(time__renewals_at_a_third_find_the_whole_ttl)
{
    struct pk_zk_session s = session(10000);
    for (uint64_t at = 1000 + 3333; at < 1000000; at += 3333) {
        CHECK_U64(pk_zk_session_renewed(&s, 15000, at), 10000);
    }
}

/* What the leader has certainly heard of is the renewal before, not this one. */
TEST(time__after_a_gap_less_is_believed)
{
    struct pk_zk_session s = session(10000);
    CHECK_U64(pk_zk_session_renewed(&s, 15000, 1000 + 9000), 6000);
    CHECK_U64(pk_zk_session_renewed(&s, 15000, 1000 + 9100), 5900); /* too soon to tell */
    CHECK_U64(pk_zk_session_renewed(&s, 15000, 1000 + 12000), 10000);
    CHECK_U64(pk_zk_session_renewed(&s, 15000, 1000 + 40000), 0);
}

TEST(time__never_more_than_two_thirds_of_a_session)
{
    struct pk_zk_session s = session(10000);
    CHECK_U64(pk_zk_session_renewed(&s, 3000, 1000 + 700), 2000);
    s = session(500);
    CHECK_U64(pk_zk_session_renewed(&s, 30000, 1000 + 100), 500);
}
