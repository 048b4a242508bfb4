/* SPDX-License-Identifier: MIT */
/* What the bridge does when answers get lost, the store is away, or time passes. */
#include <pthread.h>
#include <stdio.h>

#include "board.h"

static const struct picket_guarantees promises = {
    .driver = "board", .fairness = "fifo", .tokens = 1, .election = 1};

static struct board board;

/* One client of the board, with a lease. */
struct guest {
    struct visit visit;
    struct pk_store *store;
    struct pk_effects answer, events;
    uint64_t lease, request;
};

static uint64_t soon(void)
{
    return pk_clock_ms() + 1000;
}

/* The status of the call; the reply's own is in the answer. */
static enum picket_status ask(struct guest *g, struct pk_command c)
{
    pk_effects_reset(&g->answer);
    return pk_bridge_call(g->store, &c, soon(), &g->answer);
}

static enum pk_status reply_of(struct guest *g, struct pk_command c)
{
    CHECK(ask(g, c) == PICKET_OK);
    CHECK(g->answer.count > 0 && g->answer.list[0].kind == PK_REPLY);
    return g->answer.list[0].status;
}

static void arrive(struct guest *g)
{
    static uint64_t openings;
    *g = (struct guest){.visit = {.board = &board}};
    CHECK(pk_bridge_open(&board_ops, &promises, &g->visit, &g->store) == PICKET_OK);
    struct pk_command open = {.verb = PK_LEASE_OPEN,
                              .request = ++openings,
                              .ttl_ms = 10000,
                              .label = pk_text("host=here\npid=1")};
    CHECK(reply_of(g, open) == PK_OK);
    CHECK_U64(g->answer.list[0].left_ms, 10000);
    g->lease = g->answer.list[0].lease;
    CHECK(g->lease != 0);
    pk_bridge_attend(g->store, g->lease);
}

static void arrive_all(struct guest *g, size_t n)
{
    board = (struct board){0};
    for (size_t i = 0; i < n; i++) {
        arrive(&g[i]);
    }
}

static void depart(struct guest *g, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        pk_bridge_close(g[i].store);
        CHECK(g[i].visit.closed);
        pk_effects_free(&g[i].answer);
        pk_effects_free(&g[i].events);
    }
}

static struct pk_command acquire(struct guest *g, const char *name, uint64_t wait_ms)
{
    return (struct pk_command){.verb = PK_LOCK_ACQUIRE,
                               .lease = g->lease,
                               .request = ++g->request,
                               .parts = {{pk_text(name), 0, PK_EXCLUSIVE}},
                               .n_parts = 1,
                               .wait_ms = wait_ms};
}

static struct pk_command release(struct guest *g, const char *name, uint64_t token)
{
    return (struct pk_command){.verb = PK_LOCK_RELEASE,
                               .lease = g->lease,
                               .request = ++g->request,
                               .name = pk_text(name),
                               .token = token};
}

static struct pk_command cancel(struct guest *g, uint64_t target)
{
    return (struct pk_command){.verb = PK_LOCK_CANCEL,
                               .lease = g->lease,
                               .request = ++g->request,
                               .target = target};
}

/* Lets the keeper's thread work until there is news. */
static const struct pk_effect *news(struct guest *g)
{
    uint64_t since;
    uint64_t limit = pk_clock_ms() + 10000;
    pk_effects_reset(&g->events);
    while (g->events.count == 0 && pk_clock_ms() < limit) {
        CHECK(pk_bridge_news(g->store, &g->events, &since));
        if (g->events.count == 0) {
            pk_bridge_wait(g->store, soon(), true);
        }
    }
    CHECK(g->events.count > 0);
    return &g->events.list[0];
}

static void expect_quiet(struct guest *g)
{
    uint64_t since;
    pk_effects_reset(&g->events);
    pk_bridge_wait(g->store, pk_clock_ms(), true);
    CHECK(pk_bridge_news(g->store, &g->events, &since));
    CHECK_U64(g->events.count, 0);
}

/* ---- as it should be ---- */

TEST(bridge__tells_a_waiter_of_its_turn)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    uint64_t token = g[0].answer.list[0].token;
    CHECK(token != 0);
    CHECK(reply_of(&g[1], acquire(&g[1], "a", PK_WAIT_FOREVER)) == PK_QUEUED);
    enum pk_claim_state state;
    uint64_t held;
    CHECK(pk_bridge_claim(g[1].store, g[1].lease, 1, &state, &held) == PICKET_OK);
    CHECK(state == PK_CLAIM_WAITING && held == 0);
    CHECK(reply_of(&g[0], release(&g[0], "a", token)) == PK_OK);
    pk_bridge_stir(g[1].store, g[1].lease, 1);
    const struct pk_effect *e = news(&g[1]);
    CHECK(e->kind == PK_EV_GRANTED);
    CHECK(e->token > token);
    CHECK(pk_bridge_claim(g[1].store, g[1].lease, 1, &state, &held) == PICKET_OK);
    CHECK(state == PK_CLAIM_HELD && held == e->token);
    depart(g, 2);
}

/* No polling: nobody asks before something was said. */
TEST(bridge__asks_only_when_there_is_a_reason)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    CHECK(reply_of(&g[1], acquire(&g[1], "a", PK_WAIT_FOREVER)) == PK_QUEUED);
    unsigned stands = g[1].visit.stands;
    for (int i = 0; i < 5; i++) {
        pk_bridge_wait(g[1].store, pk_clock_ms() + 5, true);
    }
    CHECK_U64(g[1].visit.stands, stands);
    depart(g, 2);
}

/* What changes while it is asked about is asked about again. */
TEST(bridge__does_not_miss_a_change_during_the_question)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    g[1].visit.stir = true;
    CHECK(reply_of(&g[1], acquire(&g[1], "a", PK_WAIT_FOREVER)) == PK_QUEUED);
    unsigned stands = g[1].visit.stands;
    pk_bridge_wait(g[1].store, soon(), true);
    CHECK_U64(g[1].visit.stands, stands + 1);
    depart(g, 2);
}

TEST(bridge__names_who_is_in_the_way)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    CHECK(reply_of(&g[1], acquire(&g[1], "a", 0)) == PK_BUSY);
    CHECK_U64(g[1].answer.count, 2);
    CHECK(g[1].answer.list[1].kind == PK_ROW_HOLD);
    CHECK_U64(g[1].answer.list[1].lease, g[0].lease);
    CHECK(pk_bytes_equal(g[1].answer.list[1].label, pk_text("host=here\npid=1")));
    CHECK_U64(board.count, 1);
    CHECK_U64(g[1].visit.forgotten, 1);
    depart(g, 2);
}

/* ---- answers that get lost ---- */

TEST(bridge__repeats_an_acquire_without_a_second_claim)
{
    struct guest g[1];
    arrive_all(g, 1);
    struct pk_command c = acquire(&g[0], "a", 0);
    g[0].visit.fate = ANSWER_LOST;
    CHECK(ask(&g[0], c) == PICKET_UNKNOWN);
    CHECK_U64(board.count, 1);
    g[0].visit.fate = NOT_ASKED; /* it may have been done all the same */
    CHECK(ask(&g[0], c) == PICKET_UNKNOWN);
    g[0].visit.fate = ANSWERED;
    CHECK(reply_of(&g[0], c) == PK_OK);
    CHECK_U64(board.count, 1);
    depart(g, 1);
}

TEST(bridge__forgets_an_acquire_that_never_went_out)
{
    struct guest g[1];
    arrive_all(g, 1);
    g[0].visit.fate = NOT_ASKED;
    CHECK(ask(&g[0], acquire(&g[0], "a", 0)) == PICKET_UNREACHABLE);
    CHECK_U64(g[0].visit.forgotten, 1);
    depart(g, 1);
}

TEST(bridge__repeats_a_release_without_crying_loss)
{
    struct guest g[1];
    arrive_all(g, 1);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    uint64_t token = g[0].answer.list[0].token;
    g[0].visit.fate = ANSWER_LOST;
    CHECK(ask(&g[0], release(&g[0], "a", token)) == PICKET_UNKNOWN);
    CHECK_U64(board.count, 0);
    g[0].visit.fate = ANSWERED;
    CHECK(reply_of(&g[0], release(&g[0], "a", token)) == PK_OK);
    CHECK(reply_of(&g[0], release(&g[0], "a", token)) == PK_NOTHELD);
    depart(g, 1);
}

/* The keeper's thread may be quicker than whoever asks again. */
TEST(bridge__remembers_a_release_that_it_finished_by_itself)
{
    struct guest g[1];
    arrive_all(g, 1);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    uint64_t token = g[0].answer.list[0].token;
    g[0].visit.fate = NOT_ASKED;
    CHECK(ask(&g[0], release(&g[0], "a", token)) == PICKET_UNREACHABLE);
    g[0].visit.fate = ANSWERED;
    for (int i = 0; i < 1000 && board.count > 0; i++) {
        pk_bridge_wait(g[0].store, soon(), false);
    }
    CHECK_U64(board.count, 0);
    CHECK(reply_of(&g[0], release(&g[0], "a", token)) == PK_OK);
    CHECK(reply_of(&g[0], release(&g[0], "a", token)) == PK_NOTHELD);
    depart(g, 1);
}

/* P9: nobody holds what nobody wants any more, even if the store was away when it was
 * said. */
TEST(bridge__takes_back_later_what_it_could_not_at_once)
{
    struct guest g[1];
    arrive_all(g, 1);
    g[0].visit.fate = ANSWER_LOST;
    CHECK(ask(&g[0], acquire(&g[0], "a", PK_WAIT_FOREVER)) == PICKET_UNKNOWN);
    g[0].visit.fate = NOT_ASKED;
    CHECK(ask(&g[0], cancel(&g[0], 1)) == PICKET_UNREACHABLE);
    CHECK_U64(board.count, 1);
    g[0].visit.fate = ANSWERED;
    for (int i = 0; i < 1000 && board.count > 0; i++) {
        pk_bridge_wait(g[0].store, soon(), false);
    }
    CHECK_U64(board.count, 0);
    expect_quiet(&g[0]);
    depart(g, 1);
}

/* A late copy of the acquire must not undo the cancel that came after it. */
TEST(bridge__does_not_take_up_again_what_was_cancelled)
{
    struct guest g[1];
    arrive_all(g, 1);
    struct pk_command c = acquire(&g[0], "a", PK_WAIT_FOREVER);
    g[0].visit.fate = ANSWER_LOST;
    CHECK(ask(&g[0], c) == PICKET_UNKNOWN);
    g[0].visit.fate = NOT_ASKED;
    CHECK(ask(&g[0], cancel(&g[0], c.request)) == PICKET_UNREACHABLE);
    g[0].visit.fate = ANSWERED;
    CHECK(ask(&g[0], c) == PICKET_CANCELLED);
    depart(g, 1);
}

/* ---- limits ---- */

TEST(bridge__ends_a_wait_at_its_limit_and_leaves_nothing)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    CHECK(reply_of(&g[1], acquire(&g[1], "a", 20)) == PK_QUEUED);
    const struct pk_effect *e = news(&g[1]);
    CHECK(e->kind == PK_EV_LEFT && e->end == PK_END_TIMED_OUT);
    CHECK_U64(board.count, 1);
    depart(g, 2);
}

TEST(bridge__ends_a_wait_at_its_limit_although_the_store_is_away)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    CHECK(reply_of(&g[1], acquire(&g[1], "a", 20)) == PK_QUEUED);
    g[1].visit.fate = NOT_ASKED;
    const struct pk_effect *e = news(&g[1]);
    CHECK(e->kind == PK_EV_LEFT && e->end == PK_END_TIMED_OUT);
    CHECK_U64(board.count, 2);
    g[1].visit.fate = ANSWERED;
    for (int i = 0; i < 1000 && board.count > 1; i++) {
        pk_bridge_wait(g[1].store, soon(), false);
    }
    CHECK_U64(board.count, 1);
    expect_quiet(&g[1]);
    depart(g, 2);
}

TEST(bridge__ends_a_hold_at_its_limit)
{
    struct guest g[1];
    arrive_all(g, 1);
    struct pk_command c = acquire(&g[0], "a", 0);
    c.max_hold_ms = 20;
    CHECK(reply_of(&g[0], c) == PK_OK);
    const struct pk_effect *e = news(&g[0]);
    CHECK(e->kind == PK_EV_ENDED && e->end == PK_END_OVERHELD);
    CHECK_U64(board.count, 0);
    depart(g, 1);
}

/* The store may have granted it as soon as it was asked, however late it answers. */
TEST(bridge__counts_a_hold_from_before_the_question)
{
    struct guest g[1];
    arrive_all(g, 1);
    struct pk_command c = acquire(&g[0], "a", 0);
    c.max_hold_ms = 20;
    g[0].visit.slow_ms = 5;
    CHECK(reply_of(&g[0], c) == PK_OK);
    CHECK(news(&g[0])->end == PK_END_OVERHELD);
    CHECK(g[0].visit.hold_until_ms <= g[0].visit.asked_ms + 20);
    depart(g, 1);
}

/* A store that is away is asked again and again, but not without a pause. */
TEST(bridge__asks_again_after_growing_pauses)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    uint64_t token = g[0].answer.list[0].token;
    CHECK(reply_of(&g[1], acquire(&g[1], "a", PK_WAIT_FOREVER)) == PK_QUEUED);
    g[1].visit.fate = NOT_ASKED;
    pk_bridge_stir(g[1].store, g[1].lease, 0);
    unsigned before = g[1].visit.stands;
    uint64_t until = pk_clock_ms() + 300;
    while (pk_clock_ms() < until) {
        pk_bridge_wait(g[1].store, until, true);
    }
    CHECK(g[1].visit.stands > before);
    CHECK(g[1].visit.stands - before < 12);
    CHECK(reply_of(&g[0], release(&g[0], "a", token)) == PK_OK);
    g[1].visit.fate = ANSWERED;
    CHECK(news(&g[1])->kind == PK_EV_GRANTED); /* nobody had to say so */
    depart(g, 2);
}

/* ---- ends that the store tells ---- */

TEST(bridge__tells_of_a_hold_that_was_ended)
{
    struct guest g[1];
    arrive_all(g, 1);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    uint64_t token = g[0].answer.list[0].token;
    pk_bridge_ended(g[0].store, g[0].lease, 1, PK_END_BROKEN, "eve@here", "it hangs");
    pk_bridge_ended(g[0].store, g[0].lease, 1, PK_END_FORGOTTEN, NULL, NULL);
    const struct pk_effect *e = news(&g[0]);
    CHECK_U64(g[0].events.count, 1); /* once is enough */
    CHECK(e->kind == PK_EV_ENDED && e->end == PK_END_BROKEN);
    CHECK(pk_bytes_equal(e->why, pk_text("it hangs")));
    CHECK(pk_bytes_equal(e->by, pk_text("eve@here")));
    CHECK(reply_of(&g[0], release(&g[0], "a", token)) == PK_NOTHELD);
    depart(g, 1);
}

/* Who could not listen for a while asks, with what it holds too. */
TEST(bridge__looks_after_holds_when_something_was_missed)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    CHECK(reply_of(&g[1], acquire(&g[1], "b", 0)) == PK_OK);
    expect_quiet(&g[0]);
    CHECK_U64(g[0].visit.renewals, 0);
    g[0].visit.missed = true;
    g[0].visit.broken = 1;
    const struct pk_effect *e = news(&g[0]);
    CHECK(e->kind == PK_EV_ENDED && e->end == PK_END_BROKEN && e->request == 1);
    CHECK_U64(g[0].visit.renewals, 1);
    g[0].visit.missed = true; /* and now it holds nothing */
    expect_quiet(&g[0]);
    CHECK_U64(g[0].visit.renewals, 1);
    board.ended = g[1].lease;
    g[1].visit.missed = true;
    e = news(&g[1]);
    CHECK(e->kind == PK_EV_LEASE_ENDED && e->lease == g[1].lease);
    depart(g, 2);
}

/* And with what it waits for. */
TEST(bridge__looks_after_waits_when_something_was_missed)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    uint64_t token = g[0].answer.list[0].token;
    CHECK(reply_of(&g[1], acquire(&g[1], "a", PK_WAIT_FOREVER)) == PK_QUEUED);
    CHECK(reply_of(&g[0], release(&g[0], "a", token)) == PK_OK);
    expect_quiet(&g[1]);
    g[1].visit.missed = true;
    CHECK(news(&g[1])->kind == PK_EV_GRANTED);
    depart(g, 2);
}

/* The store was quicker than its own answer. */
TEST(bridge__tells_of_an_end_that_came_before_the_grant)
{
    struct guest g[1];
    arrive_all(g, 1);
    g[0].visit.end = true;
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    const struct pk_effect *e = news(&g[0]);
    CHECK(e->kind == PK_EV_ENDED && e->request == 1);
    CHECK_U64(board.count, 0);
    depart(g, 1);
}

TEST(bridge__tells_of_the_end_of_the_lease)
{
    struct guest g[2];
    arrive_all(g, 2);
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_OK);
    CHECK(reply_of(&g[1], acquire(&g[1], "a", PK_WAIT_FOREVER)) == PK_QUEUED);
    board.ended = g[1].lease; /* found when it stands again: never a grant (P4) */
    take_off(&board, place_of(&board, g[0].lease, 1));
    pk_bridge_stir(g[1].store, g[1].lease, 0);
    const struct pk_effect *e = news(&g[1]);
    CHECK(e->kind == PK_EV_LEASE_ENDED && e->lease == g[1].lease);
    CHECK(reply_of(&g[1], acquire(&g[1], "b", 0)) == PK_LOST);
    depart(g, 2);
}

/* Old news is no news: it is about a lease that the client has given up. */
TEST(bridge__says_nothing_about_leases_of_before)
{
    struct guest g[1];
    arrive_all(g, 1);
    pk_bridge_lease_ended(g[0].store, g[0].lease + 1000, PK_END_EXPIRED);
    expect_quiet(&g[0]);
    pk_bridge_lease_ended(g[0].store, g[0].lease, PK_END_EXPIRED);
    pk_bridge_attend(g[0].store, 0);
    expect_quiet(&g[0]);
    depart(g, 1);
}

/* ---- what is not there ---- */

TEST(bridge__refuses_what_was_not_declared)
{
    struct guest g[1];
    arrive_all(g, 1);
    struct pk_command shared = acquire(&g[0], "a", 0);
    shared.parts[0].mode = PK_SHARED;
    struct pk_command slot = acquire(&g[0], "a", 0);
    slot.parts[0] = (struct pk_part){pk_text("a"), 3, PK_SLOT};
    struct pk_command set = acquire(&g[0], "a", 0);
    set.parts[1] = (struct pk_part){pk_text("b"), 0, PK_EXCLUSIVE};
    set.n_parts = 2;
    struct pk_command delay = acquire(&g[0], "a", 0);
    delay.lock_delay_ms = 5;
    unsigned char id[8];
    pk_command_put_lease(id, 0, 4711);
    const struct pk_command refused[] = {
        shared,
        slot,
        set,
        delay,
        {.verb = PK_FENCE_CLAIM, .name = pk_text("r"), .token = 1},
        {.verb = PK_LEASE_RENEW, .leases = id, .n_leases = 1},
        {.verb = PK_LEASE_CLOSE, .lease = 4711},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        CHECK(ask(&g[0], refused[i]) == PICKET_UNSUPPORTED);
        printf("# %s\n", picket_last_error());
        CHECK(strstr(picket_last_error(), "board") != NULL);
    }
    struct pk_store *w;
    CHECK(pk_bridge_watch_open(g[0].store, &w) == PICKET_UNSUPPORTED);
    CHECK_U64(board.count, 0);
    depart(g, 1);
}

/* ---- looking ---- */

TEST(bridge__lists_locks_in_order_and_in_pages)
{
    struct guest g[2];
    arrive_all(g, 2);
    const char *names[] = {"l/c", "l/a", "m/x", "l/b"};
    for (int i = 0; i < 4; i++) {
        CHECK(reply_of(&g[0], acquire(&g[0], names[i], 0)) == PK_OK);
    }
    CHECK(reply_of(&g[1], acquire(&g[1], "l/b", PK_WAIT_FOREVER)) == PK_QUEUED);
    struct pk_command list = {.verb = PK_LOCK_LIST, .name = pk_text("l/"), .count = 2};
    CHECK(reply_of(&g[0], list) == PK_OK);
    CHECK_U64(g[0].answer.count, 3);
    CHECK(pk_bytes_equal(g[0].answer.list[1].name, pk_text("l/a")));
    CHECK(pk_bytes_equal(g[0].answer.list[2].name, pk_text("l/b")));
    CHECK_U64(g[0].answer.list[2].holders, 1);
    CHECK_U64(g[0].answer.list[2].waiters, 1);
    list.cursor = pk_text("l/b");
    CHECK(reply_of(&g[0], list) == PK_OK);
    CHECK_U64(g[0].answer.count, 2);
    CHECK(pk_bytes_equal(g[0].answer.list[1].name, pk_text("l/c")));
    struct pk_command show = {.verb = PK_LOCK_SHOW, .name = pk_text("l/b"), .count = 9};
    CHECK(reply_of(&g[0], show) == PK_OK);
    CHECK_U64(g[0].answer.count, 3);
    CHECK(g[0].answer.list[1].kind == PK_ROW_HOLD);
    CHECK(g[0].answer.list[2].kind == PK_ROW_WAIT);
    CHECK_U64(g[0].answer.list[2].place, 1);
    CHECK_U64(g[0].answer.list[2].lease, g[1].lease);
    struct pk_command lease = {.verb = PK_LEASE_SHOW, .lease = g[0].lease, .count = 9};
    CHECK(reply_of(&g[0], lease) == PK_OK);
    CHECK_U64(g[0].answer.list[0].holders, 4);
    CHECK_U64(g[0].answer.count, 5);
    depart(g, 2);
}

TEST(bridge__shows_what_other_clients_wrote)
{
    struct guest g[1];
    arrive_all(g, 1);
    board.places[0] = (struct place){.name = "a", .order = 1, .card = "8f14e45fceea"};
    board.count = 1;
    board.orders = 1;
    CHECK(reply_of(&g[0], acquire(&g[0], "a", 0)) == PK_BUSY);
    CHECK(pk_bytes_equal(g[0].answer.list[1].label, pk_text("8f14e45fceea")));
    CHECK_U64(g[0].answer.list[1].lease, 0);
    depart(g, 1);
}

TEST(bridge__rewrites_a_value)
{
    struct guest g[1];
    arrive_all(g, 1);
    struct pk_command c = acquire(&g[0], "a", 0);
    c.value = pk_text("one");
    CHECK(reply_of(&g[0], c) == PK_OK);
    struct pk_command set = {.verb = PK_LOCK_VALUE,
                             .lease = g[0].lease,
                             .request = ++g[0].request,
                             .name = pk_text("a"),
                             .token = g[0].answer.list[0].token,
                             .value = pk_text("two")};
    CHECK(reply_of(&g[0], set) == PK_OK);
    struct pk_command show = {.verb = PK_LOCK_SHOW, .name = pk_text("a"), .count = 9};
    CHECK(reply_of(&g[0], show) == PK_OK);
    CHECK(pk_bytes_equal(g[0].answer.list[1].value, pk_text("two")));
    CHECK_U64(g[0].answer.list[1].lease, g[0].lease);
    set.token++;
    CHECK(reply_of(&g[0], set) == PK_NOTHELD);
    depart(g, 1);
}
