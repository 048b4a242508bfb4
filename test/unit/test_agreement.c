/* SPDX-License-Identifier: MIT */
/* Whose state is the damaged one, by the digests that nodes told each other. */
#include "raft/agreement.h"
#include "tap.h"

enum { INDEX = 40, GOOD = 7, BAD = 9 };

/* What node 1 thinks when nodes 1, 2, 3 ... have these digests; 0: not heard. */
static bool holds(size_t n, const uint64_t digests[])
{
    struct pk_agreement a = {0};
    uint64_t voters[PK_AGREEMENT_NODES];
    for (size_t i = 0; i < n; i++) {
        voters[i] = i + 1;
        if (digests[i] != 0) {
            pk_agreement_hear(&a, i + 1, (struct pk_mark){INDEX, digests[i]});
        }
    }
    return pk_agreement_holds(&a, 1, INDEX, voters, n);
}

#define HOLDS(n, ...) holds(n, (const uint64_t[]){__VA_ARGS__})

TEST(agreement__of_three_the_one_that_differs_stops)
{
    CHECK(HOLDS(3, GOOD, GOOD, GOOD));
    CHECK(HOLDS(3, GOOD, BAD, GOOD));
    CHECK(!HOLDS(3, BAD, GOOD, GOOD));
}

/* Who has not been heard may agree with us. */
TEST(agreement__of_three_nobody_stops_for_one_voice)
{
    CHECK(HOLDS(3, GOOD, 0, 0));
    CHECK(HOLDS(3, GOOD, BAD, 0));
    CHECK(HOLDS(3, BAD, GOOD, 0));
}

TEST(agreement__of_two_that_differ_both_stop)
{
    CHECK(!HOLDS(2, GOOD, BAD));
    CHECK(!HOLDS(2, BAD, GOOD));
    CHECK(HOLDS(2, GOOD, GOOD));
    CHECK(HOLDS(2, GOOD, 0));
}

TEST(agreement__of_five_a_minority_stops)
{
    CHECK(!HOLDS(5, BAD, BAD, GOOD, GOOD, GOOD));
    CHECK(HOLDS(5, GOOD, GOOD, GOOD, BAD, BAD));
    CHECK(HOLDS(5, BAD, BAD, GOOD, GOOD, 0));
}

TEST(agreement__of_three_that_all_differ_all_stop)
{
    CHECK(!HOLDS(3, GOOD, BAD, 11));
}

TEST(agreement__of_one_is_its_own_majority)
{
    CHECK(HOLDS(1, GOOD));
}

/* Some are a little ahead: digests of other entries are not compared. */
TEST(agreement__is_about_one_entry)
{
    struct pk_agreement a = {0};
    const uint64_t voters[] = {1, 2, 3};
    pk_agreement_hear(&a, 1, (struct pk_mark){INDEX, GOOD});
    pk_agreement_hear(&a, 2, (struct pk_mark){INDEX + 8, BAD});
    pk_agreement_hear(&a, 3, (struct pk_mark){INDEX - 8, BAD});
    CHECK(pk_agreement_holds(&a, 1, INDEX, voters, 3));
    pk_agreement_hear(&a, 2, (struct pk_mark){INDEX, BAD}); /* and older ones still are */
    pk_agreement_hear(&a, 3, (struct pk_mark){INDEX, BAD});
    pk_agreement_hear(&a, 2, (struct pk_mark){INDEX + 16, GOOD});
    CHECK(!pk_agreement_holds(&a, 1, INDEX, voters, 3));
}

/* A standby is judged by the voters, and judges nobody. */
TEST(agreement__counts_voters_only)
{
    struct pk_agreement a = {0};
    const uint64_t voters[] = {1, 2, 3};
    pk_agreement_hear(&a, 1, (struct pk_mark){INDEX, GOOD});
    pk_agreement_hear(&a, 8, (struct pk_mark){INDEX, BAD});
    pk_agreement_hear(&a, 9, (struct pk_mark){INDEX, BAD});
    CHECK(pk_agreement_holds(&a, 1, INDEX, voters, 3));
    pk_agreement_hear(&a, 2, (struct pk_mark){INDEX, GOOD});
    CHECK(!pk_agreement_holds(&a, 8, INDEX, voters, 3));
}

TEST(agreement__forgets_nodes_that_are_long_gone)
{
    struct pk_agreement a = {0};
    const uint64_t voters[] = {100};
    for (uint64_t id = 1; id <= 100; id++) {
        pk_agreement_hear(&a, id, (struct pk_mark){INDEX, GOOD});
    }
    CHECK(pk_agreement_holds(&a, 100, INDEX, voters, 1));
}
