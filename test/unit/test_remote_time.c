/* SPDX-License-Identifier: MIT */
/* The client over the network driver when answers and events come late, or fail: from
 * when a lease and a hold count, and what becomes of what nobody wants. */
#include "client/keeper.h"
#include "fakenode.h"

enum { HOLD_MS = 30000 };

/* The end of a hold by its holder's clock, when it counts from `since_ms`. */
static uint64_t hold_end(uint64_t since_ms)
{
    return since_ms + HOLD_MS - pk_keeper_margin(HOLD_MS, 0);
}

/* Returns when our clock shows a later time than now. */
static void let_time_pass(void)
{
    uint64_t now = pk_clock_ms();
    while (pk_clock_ms() <= now) {
        (void)usleep(1000);
    }
}

struct asking {
    pthread_t thread;
    struct picket *p;
    struct picket_acquire_options o;
    enum picket_status status;
    struct picket_lock *l;
};

static void *ask(void *arg)
{
    struct asking *a = arg;
    a->status = picket_acquire(a->p, "db", &a->o, &a->l);
    return NULL;
}

/* Acquires "db" from node 0, which answers requests that begin with `when` only some time
 * after it has heard one. Returns a time between the sending and the answer. */
static uint64_t acquire_slowly(struct asking *a, const char *when, const char *find)
{
    struct node *n = &world.nodes[0];
    struct heard h;
    node_misbehave(n, when, UINT32_MAX, true, "");
    CHECK(pthread_create(&a->thread, NULL, ask, a) == 0);
    for (uint64_t until = pk_clock_ms() + PATIENCE_MS; node_heard(n, find, &h, 1) == 0;) {
        CHECK(pk_clock_ms() < until);
        (void)usleep(1000);
    }
    uint64_t heard = pk_clock_ms();
    let_time_pass();
    node_misbehave(n, "", 0, false, NULL);
    node_cut(n); /* the client sends it again, over a new connection */
    pthread_join(a->thread, NULL);
    CHECK(a->status == PICKET_OK);
    return heard;
}

/* P5: a new lease counts from before the first copy of the request was sent: a store may
 * have run that one. */
TEST(remote__a_new_lease_counts_from_the_sending)
{
    world_begin(1);
    struct asking a = {.p = open_client(world_url(1), LONG_TTL_MS)};
    uint64_t heard = acquire_slowly(&a, "LEASE OPEN", "OPEN");
    uint64_t valid_ms = LONG_TTL_MS - pk_keeper_margin(LONG_TTL_MS, 0);
    CHECK(picket_safe_until_ms(a.l) <= heard + valid_ms);
    picket_close(a.p);
}

/* So does max-hold of a lock that is granted at once. */
TEST(remote__max_hold_of_a_slow_acquire_counts_from_the_sending)
{
    world_begin(1);
    struct asking a = {.p = open_client(world_url(1), LONG_TTL_MS),
                       .o = {.max_hold_ms = HOLD_MS}};
    (void)take(a.p, "other"); /* so that there is a lease */
    uint64_t heard = acquire_slowly(&a, "LOCK ACQUIRE", "db");
    CHECK(picket_safe_until_ms(a.l) <= hold_end(heard));
    picket_close(a.p);
}

/* An event carries its own time: max-hold counts from the grant, however late the news of
 * it comes. */
TEST(remote__max_hold_of_late_news_counts_from_the_grant)
{
    world_begin(2);
    struct picket *holder = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *waiter = open_client(node_url(&world.nodes[0]), LONG_TTL_MS);
    struct picket_lock *l = take(holder, "db");
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER, .max_hold_ms = HOLD_MS};
    struct picket_lock *m = enqueue(waiter, "db", &o);
    world_withhold();
    CHECK(picket_release(l) == PICKET_OK);
    uint64_t granted = pk_clock_ms();
    let_time_pass();
    CHECK(picket_state(m) == PICKET_WAITING);
    world_tell();
    CHECK(readable(picket_ready_fd(m), PATIENCE_MS));
    CHECK(picket_wait(m, 0) == PICKET_OK);
    CHECK(picket_safe_until_ms(m) <= hold_end(granted));
    picket_close(waiter);
    picket_close(holder);
}

/* Of a grant whose news was missed the time is not known: max-hold counts from when the
 * connection was last known to be well. */
TEST(remote__max_hold_of_a_missed_grant_counts_from_before_it)
{
    world_begin(2);
    struct picket *holder = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *waiter = open_client(node_url(&world.nodes[0]), LONG_TTL_MS);
    struct picket_lock *l = take(holder, "db");
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER, .max_hold_ms = HOLD_MS};
    struct picket_lock *m = enqueue(waiter, "db", &o);
    node_down(&world.nodes[0]);
    CHECK(picket_release(l) == PICKET_OK);
    uint64_t granted = pk_clock_ms();
    let_time_pass();
    (void)node_up(0);
    CHECK(readable(picket_ready_fd(m), PATIENCE_MS));
    CHECK(picket_wait(m, 0) == PICKET_OK);
    CHECK(picket_safe_until_ms(m) <= hold_end(granted));
    picket_close(waiter);
    picket_close(holder);
}

/* ---- giving back ---- */

/* P9: the caller was told UNKNOWN and has no handle, so the client takes the grant
 * back. */
TEST(remote__an_acquire_of_unknown_outcome_is_taken_back)
{
    world_begin(1);
    struct picket *p = open_client(world_url(1), LONG_TTL_MS);
    struct picket *other = open_client(world_url(1), LONG_TTL_MS);
    struct picket_acquire_options o = {.wait_ms = 200};
    struct picket_lock *l;
    (void)take(other, "other");
    node_misbehave(&world.nodes[0], "LOCK ACQUIRE", UINT32_MAX, false,
                   "-UNKNOWN leadership was lost\r\n");
    CHECK(picket_acquire(p, "db", &o, &l) == PICKET_UNKNOWN);
    node_misbehave(&world.nodes[0], "", 0, false, NULL);
    CHECK(picket_try(other, "db", NULL, &l) == PICKET_OK);
    CHECK(picket_token(l) > 2); /* "db" was granted before */
    picket_close(other);
    picket_close(p);
}

/* P9: so is a hold whose release failed when its handle was closed, after a renewal. */
TEST(remote__a_release_that_failed_on_close_is_repeated)
{
    world_begin(1);
    struct picket *p = open_client(world_url(1), 3000);
    struct picket *other = open_client(world_url(1), LONG_TTL_MS);
    struct picket_lock *l = take(p, "db");
    struct picket_lock *m = enqueue(other, "db", NULL);
    struct heard h;
    node_misbehave(&world.nodes[0], "LOCK RELEASE", 1, true,
                   "-NOSPACE the disk is full; nothing was changed\r\n");
    picket_lock_close(l);
    CHECK_U64(node_heard(&world.nodes[0], "RELEASE", &h, 1), 1);
    CHECK(picket_wait(m, PATIENCE_MS) == PICKET_OK);
    picket_close(other);
    picket_close(p);
}
