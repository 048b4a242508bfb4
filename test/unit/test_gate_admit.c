/* SPDX-License-Identifier: MIT */
/* Admission: each rule by itself, then random sequences beside a slow, obvious model. */
#include "core/door.h"
#include "core/tree.h"
#include "gate/admit.h"
#include "tap.h"

enum { FOREVER_MS = 1000000 };

static struct pk_admit *alone(uint64_t drain_ms, uint64_t cut_off_ms)
{
    return pk_admit_new(&(struct pk_admit_options){
        .drain_ms = drain_ms, .cut_off_ms = cut_off_ms, .resources_max = 4});
}

static struct pk_admit *shared(void)
{
    return pk_admit_new(&(struct pk_admit_options){
        .shared = true, .drain_ms = FOREVER_MS, .resources_max = 4});
}

static void arrive(struct pk_admit *a, struct pk_admit_ticket *t, uint64_t token)
{
    *t = (struct pk_admit_ticket){0};
    pk_admit_arrive(a, t, pk_text("r"), token, 0);
}

/* Takes out the one claim there must be, and wants this token in it. */
static struct pk_admit_claim claim_of(struct pk_admit *a, uint64_t token)
{
    struct pk_admit_claim c, another;
    CHECK(pk_admit_claim(a, &c));
    CHECK_U64(c.token, token);
    CHECK(!pk_admit_claim(a, &another));
    return c;
}

static void confirm(struct pk_admit *a, uint64_t token)
{
    struct pk_admit_claim c = claim_of(a, token);
    pk_admit_claimed(a, &c, token, 0);
}

static bool decided(struct pk_admit *a, struct pk_admit_ticket *t,
                    enum pk_admit_verdict verdict)
{
    return pk_admit_decided(a) == t && t->verdict == verdict;
}

static bool quiet(struct pk_admit *a)
{
    struct pk_admit_claim c;
    return pk_admit_decided(a) == NULL && !pk_admit_claim(a, &c) &&
           pk_admit_wrong(a) == NULL;
}

static void finish(struct pk_admit *a)
{
    CHECK(quiet(a));
    pk_admit_free(a);
}

static void fly(struct pk_admit *a, struct pk_admit_ticket *one)
{
    arrive(a, one, 1);
    confirm(a, 1);
    CHECK(decided(a, one, PK_ADMIT_GO));
}

/* One flies with token 1, and the store has confirmed the other's, which is 2. */
static void fly_and_raise(struct pk_admit *a, struct pk_admit_ticket *one,
                          struct pk_admit_ticket *two)
{
    fly(a, one);
    arrive(a, two, 2);
    confirm(a, 2);
}

/* The store is asked once; from then on memory knows, alone. */
TEST(admit__asks_the_store_before_the_first_and_no_more)
{
    struct pk_admit *a = alone(FOREVER_MS, 0);
    struct pk_admit_ticket one, two, low;
    arrive(a, &one, 5);
    CHECK(pk_admit_decided(a) == NULL);
    confirm(a, 5);
    CHECK(decided(a, &one, PK_ADMIT_GO));
    arrive(a, &two, 5);
    CHECK(decided(a, &two, PK_ADMIT_GO));
    arrive(a, &low, 4);
    CHECK(decided(a, &low, PK_ADMIT_STALE));
    CHECK_U64(low.fence, 5);
    CHECK(quiet(a));
    pk_admit_leave(a, &one);
    pk_admit_leave(a, &two);
    finish(a);
}

/* A fence that the store has from before a restart counts. */
TEST(admit__believes_a_store_that_knows_a_higher_fence)
{
    struct pk_admit *a = alone(FOREVER_MS, 0);
    struct pk_admit_ticket one, two;
    arrive(a, &one, 5);
    struct pk_admit_claim c = claim_of(a, 5);
    pk_admit_claimed(a, &c, 9, 0);
    CHECK(decided(a, &one, PK_ADMIT_STALE));
    CHECK_U64(one.fence, 9);
    arrive(a, &two, 9);
    CHECK(decided(a, &two, PK_ADMIT_GO));
    pk_admit_leave(a, &two);
    finish(a);
}

TEST(admit__a_higher_token_waits_for_lower_ones_in_flight)
{
    struct pk_admit *a = alone(FOREVER_MS, 0);
    struct pk_admit_ticket old[2], new[2], late;
    arrive(a, &old[0], 1);
    confirm(a, 1);
    arrive(a, &old[1], 1);
    CHECK(decided(a, &old[0], PK_ADMIT_GO));
    CHECK(decided(a, &old[1], PK_ADMIT_GO));
    arrive(a, &new[0], 2);
    confirm(a, 2);
    arrive(a, &new[1], 2);
    arrive(a, &late, 1);
    CHECK(decided(a, &late, PK_ADMIT_STALE));
    CHECK(quiet(a));
    CHECK_U64(pk_admit_counts(a).waiting, 2);
    pk_admit_leave(a, &old[0]);
    CHECK(quiet(a));
    pk_admit_leave(a, &old[1]);
    CHECK(decided(a, &new[0], PK_ADMIT_GO));
    CHECK(decided(a, &new[1], PK_ADMIT_GO));
    pk_admit_leave(a, &new[0]);
    pk_admit_leave(a, &new[1]);
    finish(a);
}

TEST(admit__who_waits_and_is_overtaken_is_stale)
{
    struct pk_admit *a = alone(FOREVER_MS, 0);
    struct pk_admit_ticket one, two, three;
    fly_and_raise(a, &one, &two);
    arrive(a, &three, 3);
    confirm(a, 3);
    CHECK(decided(a, &two, PK_ADMIT_STALE));
    CHECK_U64(two.fence, 3);
    CHECK(quiet(a));
    pk_admit_leave(a, &one);
    CHECK(decided(a, &three, PK_ADMIT_GO));
    pk_admit_leave(a, &three);
    finish(a);
}

/* Those that arrive during a claim share the next one, for the highest of them. */
TEST(admit__one_claim_at_a_time_serves_many)
{
    struct pk_admit *a = shared();
    struct pk_admit_ticket t[4];
    arrive(a, &t[0], 1);
    arrive(a, &t[1], 3);
    arrive(a, &t[2], 2);
    arrive(a, &t[3], 3);
    confirm(a, 1);
    CHECK(decided(a, &t[0], PK_ADMIT_GO));
    pk_admit_leave(a, &t[0]);
    confirm(a, 3);
    CHECK(decided(a, &t[1], PK_ADMIT_GO));
    CHECK(decided(a, &t[2], PK_ADMIT_STALE));
    CHECK(decided(a, &t[3], PK_ADMIT_GO));
    pk_admit_leave(a, &t[1]);
    pk_admit_leave(a, &t[3]);
    finish(a);
}

/* Shared, what was true a moment ago is not relied on. */
TEST(admit__shared_asks_for_each_arrival)
{
    struct pk_admit *a = shared();
    struct pk_admit_ticket one, two;
    arrive(a, &one, 5);
    confirm(a, 5);
    CHECK(decided(a, &one, PK_ADMIT_GO));
    arrive(a, &two, 5);
    struct pk_admit_claim c = claim_of(a, 5);
    pk_admit_claimed(a, &c, 7, 0); /* another gate was faster */
    CHECK(decided(a, &two, PK_ADMIT_STALE));
    pk_admit_leave(a, &one);
    finish(a);
}

TEST(admit__waits_no_longer_than_drain_and_the_fence_stays)
{
    struct pk_admit *a = alone(100, 0);
    struct pk_admit_ticket one, two, again;
    fly_and_raise(a, &one, &two);
    pk_admit_tick(a, 99);
    CHECK(quiet(a));
    pk_admit_tick(a, 100);
    CHECK(decided(a, &two, PK_ADMIT_LATE));
    arrive(a, &again, 1);
    CHECK(decided(a, &again, PK_ADMIT_STALE));
    pk_admit_leave(a, &one);
    finish(a);
}

TEST(admit__counts_each_wait_from_its_own_beginning)
{
    struct pk_admit *a = alone(100, 0);
    struct pk_admit_ticket one, two, again;
    fly_and_raise(a, &one, &two);
    pk_admit_tick(a, 60);
    again = (struct pk_admit_ticket){0};
    pk_admit_arrive(a, &again, pk_text("r"), 2, 60);
    pk_admit_tick(a, 159);
    CHECK(decided(a, &two, PK_ADMIT_LATE));
    CHECK(quiet(a));
    pk_admit_tick(a, 160);
    CHECK(decided(a, &again, PK_ADMIT_LATE));
    pk_admit_leave(a, &one);
    finish(a);
}

TEST(admit__cuts_off_once_and_waits_for_the_end)
{
    struct pk_admit *a = alone(FOREVER_MS, 50);
    struct pk_admit_ticket one, two;
    fly_and_raise(a, &one, &two);
    pk_admit_tick(a, 49);
    CHECK(quiet(a));
    pk_admit_tick(a, 50);
    CHECK(decided(a, &one, PK_ADMIT_CUT));
    pk_admit_tick(a, 60);
    CHECK(quiet(a)); /* not told twice, and the waiter waits still */
    pk_admit_leave(a, &one);
    CHECK(decided(a, &two, PK_ADMIT_GO));
    pk_admit_leave(a, &two);
    finish(a);
}

/* After a claim of unknown outcome, memory is not the truth any more. */
TEST(admit__is_unsure_when_the_store_is_and_learns_again)
{
    struct pk_admit *a = alone(FOREVER_MS, 0);
    struct pk_admit_ticket one, two, three;
    fly(a, &one);
    arrive(a, &two, 2);
    struct pk_admit_claim c = claim_of(a, 2);
    pk_admit_claimed(a, &c, 0, 0);
    CHECK(decided(a, &two, PK_ADMIT_UNSURE));
    arrive(a, &three, 1);
    c = claim_of(a, 1);
    pk_admit_claimed(a, &c, 2, 0); /* the raise had got through */
    CHECK(decided(a, &three, PK_ADMIT_STALE));
    pk_admit_leave(a, &one);
    finish(a);
}

/* A gate that lost its lock: nobody waits on, and a claim of before teaches nothing. */
TEST(admit__forgets_when_the_gate_stands_aside)
{
    struct pk_admit *a = alone(FOREVER_MS, 0);
    struct pk_admit_ticket one, two, three;
    fly(a, &one);
    arrive(a, &two, 2);
    struct pk_admit_claim c = claim_of(a, 2);
    pk_admit_forget(a);
    CHECK(decided(a, &two, PK_ADMIT_UNSURE));
    pk_admit_claimed(a, &c, 2, 0);
    arrive(a, &three, 2);
    CHECK(pk_admit_decided(a) == NULL);
    c = claim_of(a, 2);
    pk_admit_claimed(a, &c, 2, 0);
    CHECK_U64(three.place, PK_ADMIT_WAITING); /* for the one in flight, as before */
    pk_admit_leave(a, &one);
    CHECK(decided(a, &three, PK_ADMIT_GO));
    pk_admit_leave(a, &three);
    finish(a);
}

TEST(admit__shadow_delays_nobody_and_says_who_would_have_been)
{
    struct pk_admit *a = pk_admit_new(
        &(struct pk_admit_options){.shadow = true, .drain_ms = 1, .resources_max = 4});
    struct pk_admit_ticket one, two;
    arrive(a, &one, 1);
    confirm(a, 1);
    CHECK(decided(a, &one, PK_ADMIT_GO) && !one.delayed);
    arrive(a, &two, 2);
    confirm(a, 2);
    CHECK(decided(a, &two, PK_ADMIT_GO) && two.delayed);
    pk_admit_leave(a, &one);
    pk_admit_leave(a, &two);
    finish(a);
}

/* P10: what is in use is never forgotten, the rest is when there is no room. */
TEST(admit__remembers_so_many_resources_and_no_more)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
    struct pk_admit *a = alone(FOREVER_MS, 0);
    struct pk_admit_ticket busy = {0}, t;
    struct pk_admit_row row = {.name = pk_text("")};
    struct pk_admit_claim c;
    pk_admit_arrive(a, &busy, pk_text("busy"), 1, 0);
    c = claim_of(a, 1);
    pk_admit_claimed(a, &c, 1, 0);
    CHECK(decided(a, &busy, PK_ADMIT_GO));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        t = (struct pk_admit_ticket){0};
        pk_admit_arrive(a, &t, pk_text(names[i]), 3, 0);
        c = claim_of(a, 3);
        pk_admit_claimed(a, &c, 3, 0);
        CHECK(decided(a, &t, PK_ADMIT_GO));
        pk_admit_leave(a, &t);
        CHECK(pk_admit_counts(a).resources <= 4);
    }
    CHECK(pk_admit_show(a, row.name, &row));
    CHECK_U64(row.name.len, 4);
    CHECK_U64(row.flying, 1);
    pk_admit_leave(a, &busy);
    finish(a);
}

/* ---- random sequences ---- */

enum { TICKETS = 24, NAMES = 3, TOKENS = 12, STEPS = 200000 };

/* What is seen from outside: the store's fences, and what flies. */
static struct world {
    struct pk_admit *a;
    uint64_t state, now;
    uint64_t store[NAMES];     /* the truth */
    uint64_t confirmed[NAMES]; /* the highest token that was let through */
    struct pk_admit_ticket t[TICKETS];
    int name[TICKETS];
    bool used[TICKETS], flies[TICKETS];
    struct pk_admit_claim claims[NAMES];
    bool claiming[NAMES];
    uint64_t went, stale, late, cut, unsure;
} w;

static uint64_t dice(uint64_t sides)
{
    w.state = w.state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (w.state >> 33) % sides;
}

static const char *const resource_names[NAMES] = {"one", "two", "three"};

static int name_of_claim(const struct pk_admit_claim *c)
{
    for (int i = 0; i < NAMES; i++) {
        if (pk_bytes_equal(c->name, pk_text(resource_names[i]))) {
            return i;
        }
    }
    FAIL("a claim for nothing");
    return 0;
}

static void check_go(int i)
{
    CHECK(!w.flies[i]);
    uint64_t token = w.t[i].token;
    int name = w.name[i];
    CHECK(token <= w.store[name]);     /* A2 */
    CHECK(token >= w.confirmed[name]); /* A1 */
    w.confirmed[name] = token;
    for (int k = 0; k < TICKETS; k++) {
        bool lower = w.flies[k] && w.name[k] == name && w.t[k].token < token;
        CHECK(!lower); /* A4 */
    }
    w.flies[i] = true;
    w.went++;
}

static void collect(void)
{
    struct pk_admit_ticket *t;
    struct pk_admit_claim c;
    while ((t = pk_admit_decided(w.a)) != NULL) {
        int i = (int)(t - w.t);
        CHECK(i >= 0 && i < TICKETS && w.used[i]);
        CHECK((t->verdict == PK_ADMIT_CUT) == w.flies[i]);
        if (t->verdict == PK_ADMIT_GO) {
            check_go(i);
            continue;
        }
        if (t->verdict == PK_ADMIT_STALE) {
            CHECK(t->token < w.store[w.name[i]]); /* nobody is refused without cause */
        }
        w.stale += t->verdict == PK_ADMIT_STALE;
        w.late += t->verdict == PK_ADMIT_LATE;
        w.cut += t->verdict == PK_ADMIT_CUT;
        w.unsure += t->verdict == PK_ADMIT_UNSURE;
        w.used[i] = t->verdict == PK_ADMIT_CUT;
    }
    while (pk_admit_claim(w.a, &c)) {
        int name = name_of_claim(&c);
        CHECK(!w.claiming[name]); /* A3 */
        w.claiming[name] = true;
        w.claims[name] = c;
    }
}

static void answer_claim(int name, bool shared_store)
{
    if (!w.claiming[name]) {
        return;
    }
    struct pk_admit_claim c = w.claims[name];
    uint64_t *fence = &w.store[name];
    if (shared_store && dice(8) == 0) {
        *fence += dice(2); /* another gate */
    }
    bool lost = dice(20) == 0, done = !lost || dice(2) == 0;
    if (done && c.token > *fence) {
        *fence = c.token;
    }
    w.claiming[name] = false;
    pk_admit_claimed(w.a, &c, lost ? 0 : *fence, w.now);
}

static void step(bool shared_store)
{
    int i = (int)dice(TICKETS);
    uint64_t what = dice(100);
    if (what < 55 && !w.used[i]) {
        w.name[i] = (int)dice(NAMES);
        w.used[i] = true;
        w.flies[i] = false;
        uint64_t token = 1 + w.store[w.name[i]] + dice(TOKENS);
        token = token > TOKENS / 2 ? token - TOKENS / 2 : 1;
        w.t[i] = (struct pk_admit_ticket){0};
        pk_admit_arrive(w.a, &w.t[i], pk_text(resource_names[w.name[i]]), token, w.now);
    } else if (what < 70 && w.used[i]) {
        pk_admit_leave(w.a, &w.t[i]);
        w.used[i] = w.flies[i] = false;
    } else if (what < 95) {
        answer_claim((int)dice(NAMES), shared_store);
    } else if (what < 99) {
        w.now += dice(30);
        pk_admit_tick(w.a, w.now);
    } else if (dice(10) == 0) {
        pk_admit_forget(w.a);
        w.store[dice(NAMES)] += shared_store ? 0 : 1; /* somebody stood in between */
    }
}

static void run_world(const struct pk_admit_options *o, uint64_t seed)
{
    memset(&w, 0, sizeof w);
    w.state = seed;
    w.a = pk_admit_new(o);
    for (int n = 0; n < STEPS; n++) {
        step(o->shared);
        const char *wrong = pk_admit_wrong(w.a);
        if (wrong != NULL) {
            FAIL(wrong);
        }
        collect();
    }
    CHECK(w.went > 1000 && w.stale > 1000 && w.unsure > 100 && w.late > 10);
    CHECK((w.cut > 10) == (o->cut_off_ms > 0));
    for (int i = 0; i < TICKETS; i++) {
        pk_admit_leave(w.a, &w.t[i]);
    }
    for (int i = 0; i < NAMES; i++) {
        answer_claim(i, false);
    }
    pk_admit_free(w.a);
}

TEST(admit__keeps_its_rules_alone)
{
    struct pk_admit_options o = {.drain_ms = 60, .resources_max = 2};
    run_world(&o, 1);
}

TEST(admit__keeps_its_rules_shared_and_cutting_off)
{
    struct pk_admit_options o = {
        .shared = true, .drain_ms = 60, .cut_off_ms = 30, .resources_max = 2};
    run_world(&o, 2);
}
