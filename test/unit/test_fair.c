/* SPDX-License-Identifier: MIT */
/* Fair shares of turns: worlds of flows that ask for much or little, turn by turn. */
#include <string.h>

#include "server/fair.h"
#include "tap.h"

enum { FLOWS_MAX = 200 };

/* A connection: `backlog` requests of `cost` units each are there to be served. */
struct asker {
    struct pk_flow flow;
    uint32_t cost, debt; /* debt: units charged after each request */
    uint64_t backlog, served;
};

static struct pk_fair fair;
static struct asker askers[FLOWS_MAX];
static uint32_t n_askers;

static void begin(void)
{
    memset(&fair, 0, sizeof fair);
    memset(askers, 0, sizeof askers);
    n_askers = 0;
}

static struct asker *add(uint32_t cost, uint64_t backlog)
{
    struct asker *a = &askers[n_askers++];
    a->cost = cost;
    a->backlog = backlog;
    pk_fair_wake(&fair, &a->flow);
    return a;
}

/* Serves as much of its backlog as it can pay for. */
static void serve(struct asker *a)
{
    while (a->backlog > 0) {
        if (!pk_fair_pay(&fair, &a->flow, a->cost)) {
            pk_fair_wait(&fair, &a->flow);
            return;
        }
        pk_fair_charge(&a->flow, a->debt);
        a->backlog--;
        a->served++;
    }
}

/* One turn, as the server has it; returns the units that it took in. */
static uint64_t turn(void)
{
    struct pk_flow *w;
    pk_fair_begin(&fair);
    while ((w = pk_fair_next(&fair)) != NULL) {
        serve((struct asker *)w); /* its first member */
    }
    return fair.spent;
}

#define FOR_EVER (UINT64_C(1) << 60)

/* ---- bounds of a turn ---- */

TEST(fair__whoever_is_alone_gets_the_whole_budget)
{
    begin();
    const struct asker *a = add(1, FOR_EVER);
    for (int i = 1; i <= 5; i++) {
        uint64_t spent = turn();
        CHECK(spent >= PK_FAIR_BUDGET && spent < PK_FAIR_BUDGET + PK_FAIR_SHARE);
    }
    CHECK(a->served >= 5 * PK_FAIR_BUDGET);
}

TEST(fair__a_turn_is_bounded_with_any_number_of_floods)
{
    begin();
    for (int i = 0; i < FLOWS_MAX; i++) {
        add(1, FOR_EVER);
    }
    uint64_t first = turn(); /* all come at once, each with its share */
    CHECK(first <= PK_FAIR_CEILING);
    for (int i = 0; i < 20; i++) {
        CHECK(turn() < PK_FAIR_BUDGET + PK_FAIR_SHARE);
    }
}

TEST(fair__those_beyond_the_ceiling_come_next)
{
    begin();
    for (int i = 0; i < FLOWS_MAX; i++) {
        add(PK_FAIR_SHARE, 1);
    }
    uint32_t turns = 0;
    uint64_t served = 0;
    while (served < FLOWS_MAX && turns < 100) {
        CHECK(turn() <= PK_FAIR_CEILING);
        turns++;
        served = 0;
        for (int i = 0; i < FLOWS_MAX; i++) {
            served += askers[i].served;
        }
    }
    CHECK_U64(served, FLOWS_MAX);
    CHECK(!pk_fair_has_work(&fair));
}

/* ---- who is served ---- */

TEST(fair__little_is_served_at_once_beside_floods)
{
    begin();
    for (int i = 0; i < 16; i++) {
        add(1, FOR_EVER);
    }
    struct asker *honest = add(2, 1);
    turn();
    CHECK_U64(honest->served, 1);
    for (uint64_t i = 2; i < 50; i++) {
        /* It arrives when the floods have had the budget of this turn. */
        turn();
        honest->backlog = 1;
        serve(honest);
        CHECK_U64(honest->served, i);
        CHECK_U64(honest->flow.state, PK_FLOW_IDLE);
    }
}

TEST(fair__floods_get_the_same_whatever_a_request_costs)
{
    begin();
    const struct asker *small = add(1, FOR_EVER);
    const struct asker *large = add(63, FOR_EVER);
    const struct asker *dear = add(1001, FOR_EVER);
    struct asker *answers = add(1, FOR_EVER);
    answers->debt = 256; /* asks for little and gets much */
    for (int i = 0; i < 4000; i++) {
        turn();
    }
    uint64_t fourth =
        (small->flow.spent + large->flow.spent + dear->flow.spent + answers->flow.spent) /
        4;
    for (uint32_t i = 0; i < n_askers; i++) {
        uint64_t got = askers[i].flow.spent;
        CHECK(got > fourth - fourth / 50 && got < fourth + fourth / 50);
    }
}

TEST(fair__a_dear_request_is_served_beside_many_floods)
{
    begin();
    for (int i = 0; i < 100; i++) {
        add(1, FOR_EVER);
    }
    const struct asker *dear = add(1001, 1);
    uint32_t turns = 0;
    while (dear->served == 0 && turns < 1000) {
        turn();
        turns++;
    }
    /* A round of the queue takes 101 shares, and it needs 16 rounds. */
    CHECK(turns <= 16 * 101 * PK_FAIR_SHARE / PK_FAIR_BUDGET + 16);
}

TEST(fair__a_dear_request_is_served_at_once_if_nobody_else_asks)
{
    begin();
    const struct asker *dear = add(1001, 1);
    turn();
    CHECK_U64(dear->served, 1);
}

TEST(fair__idle_turns_save_up_nothing)
{
    begin();
    struct asker *a = add(1, 1);
    for (int i = 0; i < 100; i++) {
        turn();
    }
    a->backlog = FOR_EVER;
    serve(a);
    CHECK_U64(a->served, 1 + PK_FAIR_SHARE);
    CHECK_U64(a->flow.state, PK_FLOW_WAITING);
}

TEST(fair__debt_stays_until_it_is_paid)
{
    begin();
    struct asker *a = add(1, 1);
    a->debt = 10 * PK_FAIR_SHARE;
    turn();
    CHECK_U64(a->served, 1);
    a->backlog = 1;
    a->debt = 0;
    pk_fair_begin(&fair);
    CHECK(!pk_fair_pay(&fair, &a->flow, 1));
    serve(a);
    uint32_t rounds = 0;
    while (pk_fair_next(&fair) != NULL) {
        serve(a);
        rounds++;
    }
    CHECK_U64(a->served, 2);
    CHECK_U64(rounds, 9); /* the turn's own share paid one of the ten */
}

/* ---- turns that are full for another reason ---- */

TEST(fair__a_closed_turn_serves_no_queue)
{
    begin();
    struct asker *a = add(1, FOR_EVER);
    struct asker *b = add(1, FOR_EVER);
    pk_fair_begin(&fair);
    CHECK(pk_fair_next(&fair) == &a->flow);
    CHECK(pk_fair_next(&fair) == &b->flow);
    pk_fair_wait(&fair, &a->flow);
    pk_fair_close(&fair);
    pk_fair_wait_first(&fair, &b->flow);
    CHECK(!pk_fair_can_go_on(&fair) && pk_fair_has_work(&fair));
    CHECK(pk_fair_next(&fair) == NULL);
    pk_fair_begin(&fair);
    CHECK(pk_fair_can_go_on(&fair));
    CHECK(pk_fair_next(&fair) == &b->flow); /* there is room for it now */
    CHECK(pk_fair_next(&fair) == &a->flow);
    CHECK(pk_fair_next(&fair) == NULL && !pk_fair_has_work(&fair));
}

TEST(fair__what_was_not_served_is_paid_back)
{
    begin();
    struct pk_account account = {0};
    struct asker *a = add(40, 1);
    a->flow.account = &account;
    pk_fair_begin(&fair);
    CHECK(pk_fair_next(&fair) == &a->flow);
    CHECK(pk_fair_pay(&fair, &a->flow, 40));
    CHECK(!pk_fair_pay(&fair, &a->flow, 40));
    pk_fair_refund(&fair, &a->flow, 40);
    CHECK_U64(fair.spent, 0);
    CHECK_U64(account.spent, 0);
    CHECK(pk_fair_pay(&fair, &a->flow, 40));
    CHECK_U64(account.spent, 40);
    CHECK_U64(a->flow.spent, 40);
}

/* ---- lists ---- */

TEST(fair__flows_leave_from_anywhere)
{
    for (uint32_t gone = 0; gone < 3; gone++) {
        for (int waiting = 0; waiting < 2; waiting++) {
            begin();
            for (uint32_t i = 0; i < 3; i++) {
                struct pk_flow *w = &add(1, 1)->flow;
                if (waiting) {
                    pk_fair_wait(&fair, w); /* which leaves the other list */
                }
            }
            pk_fair_leave(&fair, &askers[gone].flow);
            pk_fair_leave(&fair, &askers[gone].flow); /* nothing more happens */
            pk_fair_begin(&fair);
            for (uint32_t i = 0; i < 3; i++) {
                CHECK(i == gone || pk_fair_next(&fair) == &askers[i].flow);
            }
            CHECK(pk_fair_next(&fair) == NULL);
            CHECK(!pk_fair_has_work(&fair));
        }
    }
}

TEST(fair__waking_somebody_who_waits_changes_nothing)
{
    begin();
    struct asker *a = add(1, 1);
    struct asker *b = add(1, 1);
    pk_fair_wait(&fair, &a->flow);
    pk_fair_wake(&fair, &a->flow);
    pk_fair_wake(&fair, &b->flow);
    CHECK_U64(a->flow.state, PK_FLOW_WAITING);
    CHECK(pk_fair_next(&fair) == &b->flow);
}

/* ---- prices ---- */

TEST(fair__cost_is_what_a_command_makes_to_do)
{
    static char value[4096];
    struct pk_command renew = {.verb = PK_LEASE_RENEW, .n_leases = 4096};
    struct pk_command list = {.verb = PK_LOCK_LIST, .count = 1000};
    struct pk_command beyond = {.verb = PK_LOCK_LIST, .count = UINT64_MAX};
    struct pk_command set = {.verb = PK_LOCK_ACQUIRE, .n_parts = 16};
    struct pk_command fence = {.verb = PK_FENCE_SET,
                               .value = pk_bytes(value, sizeof value)};
    struct pk_command check = {.verb = PK_FENCE_CHECK};
    CHECK_U64(pk_fair_cost(&renew), 4097);
    CHECK_U64(pk_fair_cost(&list), 1001);
    CHECK_U64(pk_fair_cost(&beyond), 1001); /* which is refused */
    CHECK_U64(pk_fair_cost(&set), 17);
    CHECK_U64(pk_fair_cost(&fence), 5);
    CHECK_U64(pk_fair_cost(&check), 1);
}
