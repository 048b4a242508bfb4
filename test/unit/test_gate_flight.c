/* SPDX-License-Identifier: MIT */
/* What is in flight at several gates: two clients of one store play two gates. */
#include "gate/flight.h"
#include "statedir.h"
#include "tap.h"

static char url[4300];

static struct picket *open_store(void)
{
    struct picket *p = NULL;
    CHECK(picket_open(url, NULL, &p) == PICKET_OK);
    return p;
}

static void fresh(void)
{
    dir_fresh();
    snprintf(url, sizeof url, "local:%s", state);
}

static struct pk_flight_claim claim_of(struct picket *store, const char *resource,
                                       uint64_t token)
{
    return (struct pk_flight_claim){.store = store,
                                    .gate = "gate",
                                    .resource = pk_text(resource),
                                    .token = token,
                                    .patience_ms = 50};
}

TEST(flight__a_higher_token_waits_for_lower_ones_elsewhere)
{
    fresh();
    struct picket *one = open_store();
    struct picket *two = open_store();
    struct pk_flight_claim low = claim_of(one, "r", 7);
    struct pk_flight_claim high = claim_of(two, "r", 8);
    CHECK(pk_flight_claim(&low) == PICKET_OK);
    CHECK(low.lock != NULL);
    CHECK(pk_flight_claim(&high) == PICKET_TIMEOUT);
    CHECK_U64(high.fence, 8); /* raised all the same: no more lower ones */
    CHECK(high.lock == NULL);
    picket_lock_close(low.lock); /* the last of them has left */
    CHECK(pk_flight_claim(&high) == PICKET_OK);
    picket_close(one);
    picket_close(two);
}

TEST(flight__a_lower_token_leaves_nothing_behind)
{
    fresh();
    struct picket *one = open_store();
    struct picket_view *v = NULL;
    struct pk_flight_claim high = claim_of(one, "r", 8);
    struct pk_flight_claim low = claim_of(one, "r", 7);
    CHECK(pk_flight_claim(&high) == PICKET_OK);
    CHECK(pk_flight_claim(&low) == PICKET_STALE);
    CHECK_U64(low.fence, 8);
    CHECK(low.lock == NULL);
    CHECK(picket_list(one, "gate/flight/", NULL, 10, &v) == PICKET_OK);
    CHECK_U64(v->n_rows, 1);
    CHECK_STR(v->rows[0].name, "gate/flight/r/8");
    picket_view_free(v);
    picket_close(one);
}

/* "a" and "a/3" are two resources, though the locks of one begin like the other's. */
TEST(flight__resources_below_each_other_are_kept_apart)
{
    fresh();
    struct picket *one = open_store();
    struct picket *two = open_store();
    struct pk_flight_claim below = claim_of(one, "a/3", 1);
    struct pk_flight_claim above = claim_of(two, "a", 9);
    CHECK(pk_flight_claim(&below) == PICKET_OK);
    CHECK(pk_flight_claim(&above) == PICKET_OK);
    picket_close(one);
    picket_close(two);
}

/* The lower token's lock comes after a page full of locks of other resources. */
TEST(flight__looks_at_all_pages)
{
    enum { OTHERS = 101 }; /* more than a page */
    fresh();
    struct picket *one = open_store();
    struct picket *two = open_store();
    char name[64];
    struct picket_lock *lock;
    for (int i = 0; i < OTHERS; i++) {
        (void)snprintf(name, sizeof name, "gate/flight/r/000%03d/1", i);
        CHECK(picket_try(one, name, NULL, &lock) == PICKET_OK);
    }
    struct pk_flight_claim low = claim_of(one, "r", 7);
    struct pk_flight_claim high = claim_of(two, "r", 8);
    CHECK(pk_flight_claim(&low) == PICKET_OK);
    CHECK(pk_flight_claim(&high) == PICKET_TIMEOUT);
    picket_lock_close(low.lock);
    CHECK(pk_flight_claim(&high) == PICKET_OK);
    picket_close(one);
    picket_close(two);
}

TEST(flight__equal_tokens_of_two_gates_fly_together)
{
    fresh();
    struct picket *one = open_store();
    struct picket *two = open_store();
    struct pk_flight_claim a = claim_of(one, "r", 7);
    struct pk_flight_claim b = claim_of(two, "r", 7);
    CHECK(pk_flight_claim(&a) == PICKET_OK);
    CHECK(pk_flight_claim(&b) == PICKET_OK);
    CHECK(pk_flight_claim(&a) == PICKET_OK); /* the next request, under the same lock */
    picket_close(one);
    picket_close(two);
}

/* ---- what this gate keeps, and for how long ---- */

static struct pk_admit *new_admit(void)
{
    const struct pk_admit_options o = {
        .shared = true, .drain_ms = 1000, .resources_max = 4};
    return pk_admit_new(&o);
}

/* Arrives and is let through, as far as the store is concerned. */
static void fly(struct pk_admit *a, struct pk_admit_ticket *t, uint64_t token)
{
    struct pk_admit_claim c;
    pk_admit_arrive(a, t, pk_text("r"), token, 0);
    CHECK(pk_admit_claim(a, &c));
    pk_admit_claimed(a, &c, token, 0);
    (void)pk_admit_decided(a);
}

TEST(flights__a_lock_is_kept_while_something_flies_under_it)
{
    struct pk_admit *a = new_admit();
    struct pk_flights f = {.held = {0}};
    struct pk_admit_ticket t = {0};
    struct picket_lock *lock = (struct picket_lock *)&t; /* never looked into */
    fly(a, &t, 7);
    pk_flights_keep(&f, pk_text("r"), 7, lock);
    CHECK(pk_flights_find(&f, pk_text("r"), 7) == lock);
    CHECK(pk_flights_find(&f, pk_text("r"), 8) == NULL);
    CHECK(pk_flights_idle(&f, a) == NULL);
    pk_admit_leave(a, &t);
    CHECK(pk_flights_idle(&f, a) == lock);
    CHECK(pk_flights_find(&f, pk_text("r"), 7) == NULL);
    pk_flights_free(&f);
    pk_admit_free(a);
}

/* Else the claim, which waits for the lower token's lock, would wait for ourselves. */
TEST(flights__a_lower_lock_goes_while_a_higher_token_is_claimed)
{
    struct pk_admit *a = new_admit();
    struct pk_flights f = {.held = {0}};
    struct pk_admit_ticket old = {0};
    struct pk_admit_ticket new = {0};
    struct pk_admit_claim c;
    struct picket_lock *lock = (struct picket_lock *)&old;
    fly(a, &old, 7);
    pk_flights_keep(&f, pk_text("r"), 7, lock);
    pk_admit_arrive(a, &new, pk_text("r"), 8, 0);
    CHECK(pk_admit_claim(a, &c));
    CHECK(pk_flights_idle(&f, a) == NULL);
    pk_admit_leave(a, &old);
    CHECK(pk_flights_idle(&f, a) == lock);
    pk_admit_claimed(a, &c, 8, 0);
    CHECK(pk_admit_decided(a) == &new &&new.verdict == PK_ADMIT_GO);
    pk_admit_leave(a, &new);
    pk_admit_free(a);
}
