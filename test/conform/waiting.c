/* SPDX-License-Identifier: MIT */
/* Queues: who is next, giving up, and giving back. */
#include <pthread.h>

#include "conform.h"

/* P7: in the order of the queue; one release wakes one waiter, and nobody else. */
TEST(queue__is_first_come_first_served)
{
    begin();
    needs(fair(), "a fair queue");
    enum { QUEUE = 6 };
    const char *name = name_of("q");
    struct picket *p[QUEUE];
    struct picket_lock *l[QUEUE];
    struct picket *holder = open_client(LONG_TTL_MS);
    struct picket_lock *held = take(holder, name);
    for (uint32_t i = 0; i < QUEUE; i++) {
        p[i] = open_client(LONG_TTL_MS);
        l[i] = enqueue(p[i], name, NULL);
        CHECK(picket_state(l[i]) == PICKET_WAITING);
        CHECK_U64(picket_token(l[i]), 0);
        CHECK_WAITERS(holder, name, i + 1);
    }
    uint64_t last = picket_token(held);
    for (int i = 0; i < QUEUE; i++) {
        CHECK_OK(picket_release(i == 0 ? held : l[i - 1]));
        await_grant(l[i]);
        CHECK_LATER(picket_token(l[i]), last);
        last = picket_token(l[i]);
        for (int k = i + 1; k < QUEUE; k++) {
            CHECK(picket_state(l[k]) == PICKET_WAITING);
            CHECK(!readable(picket_ready_fd(l[k]), 0));
        }
    }
    for (int i = 0; i < QUEUE; i++) {
        picket_close(p[i]);
    }
    picket_close(holder);
}

/* The queue as others see it; without one, the holder. */
TEST(queue__can_be_looked_at)
{
    begin();
    const char *name = name_of("q");
    struct picket *p[3];
    struct picket_lock *l[3];
    for (int i = 0; i < 3; i++) {
        p[i] = open_client(LONG_TTL_MS);
        l[i] = enqueue(p[i], name, NULL);
    }
    struct picket_view *v;
    bool passed;
    uint32_t n = fair() ? 3 : 1; /* rows in an order that is known */
    CHECK_OK(picket_show(p[2], name, &v));
    CHECK_STR(v->name, name);
    CHECK_U64(v->holders, 1);
    CHECK(fair() ? v->waiters == 2 : v->waiters <= 2);
    CHECK_U64(v->n_rows, v->holders + v->waiters);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_U64(v->rows[i].lease, picket_lease(p[i]));
        CHECK_U64(v->rows[i].place, i);
        CHECK_U64(v->rows[i].token, picket_token(l[i]));
        CHECK_U64(v->rows[i].pid, (uint64_t)getpid());
        CHECK_STR(v->rows[i].note, "conform");
        CHECK(v->rows[i].left_ms > 0 && v->rows[i].left_ms <= LONG_TTL_MS);
    }
    picket_view_free(v);
    uint64_t before = now_ms();
    do { /* and how long they have been there */
        (void)usleep(1000);
        CHECK(now_ms() < before + PATIENCE_MS);
        CHECK_OK(picket_show(p[2], name, &v));
        CHECK(v->n_rows >= n);
        passed =
            v->rows[0].for_ms >= v->rows[n - 1].for_ms && v->rows[n - 1].for_ms >= 20;
        picket_view_free(v);
    } while (!passed);
    for (int i = 0; i < 3; i++) {
        picket_close(p[i]);
    }
    /* A lock that nobody has or wants is no error. */
    struct picket *q = open_client(0);
    CHECK_OK(picket_show(q, name, &v));
    CHECK_U64(v->n_rows, 0);
    CHECK_U64(v->holders + v->waiters, 0);
    picket_view_free(v);
    picket_close(q);
}

TEST(wait__that_times_out_leaves_nothing_behind)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name), *m;
    struct picket_acquire_options o = {.wait_ms = 100};
    CHECK_IS(picket_acquire(b, name, &o, &m), PICKET_TIMEOUT);
    CHECK_U64(waiters_of(a, name), 0);
    /* In two halves: the limit is the store's to keep, and it tells. */
    m = enqueue(b, name, &o);
    CHECK(readable(picket_ready_fd(m), PATIENCE_MS));
    CHECK_IS(picket_wait(m, 0), PICKET_TIMEOUT);
    CHECK(picket_state(m) == PICKET_RELEASED);
    CHECK_U64(waiters_of(a, name), 0);
    CHECK_OK(picket_release(l));
    CHECK_U64(holders_of(a, name), 0);
    CHECK_OK(picket_try(a, name, NULL, &l)); /* nobody stands in the way */
    picket_close(b);
    picket_close(a);
}

/* A limit of the call is not one of the place in the queue. */
TEST(wait__can_be_looked_at_again)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    struct picket_lock *m = enqueue(b, name, NULL);
    CHECK_IS(picket_wait(m, 0), PICKET_TIMEOUT);
    CHECK_IS(picket_wait(m, 50), PICKET_TIMEOUT);
    CHECK_WAITERS(a, name, 1);
    CHECK_OK(picket_release(l));
    CHECK_OK(picket_wait(m, PATIENCE_MS));
    CHECK_OK(picket_wait(m, 0));
    CHECK(picket_state(m) == PICKET_HELD);
    picket_close(b);
    picket_close(a);
}

static void *wait_for_ever(void *lock)
{
    return picket_wait(lock, PICKET_FOREVER) == PICKET_CANCELLED ? lock : NULL;
}

TEST(cancel__ends_the_wait_of_another_thread)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    struct picket_lock *m = enqueue(b, name, NULL);
    pthread_t thread;
    void *cancelled = NULL;
    CHECK(pthread_create(&thread, NULL, wait_for_ever, m) == 0);
    CHECK(!readable(picket_ready_fd(m), 50));
    CHECK_OK(picket_cancel(m));
    pthread_join(thread, &cancelled);
    CHECK(cancelled == m);
    CHECK(readable(picket_ready_fd(m), 0));
    CHECK_OK(picket_cancel(m)); /* again is fine */
    CHECK_U64(waiters_of(a, name), 0);
    picket_lock_close(m);
    /* Of a lock that is held, it is a release. */
    CHECK_OK(picket_cancel(l));
    CHECK_U64(holders_of(b, name), 0);
    CHECK_OK(picket_try(b, name, NULL, &m));
    picket_close(b);
    picket_close(a);
}

/* Whoever waits behind one that gives up is not held up by it. */
TEST(cancel__lets_those_behind_pass)
{
    begin();
    needs(guarantees()->shared && fair(), "a fair queue for shared locks");
    const char *name = name_of("doc");
    struct picket_acquire_options shared = {.mode = PICKET_SHARED,
                                            .wait_ms = PICKET_FOREVER};
    struct picket *p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = open_client(LONG_TTL_MS);
    }
    struct picket_lock *reader = enqueue(p[0], name, &shared);
    struct picket_lock *writer = enqueue(p[1], name, NULL);
    struct picket_lock *second = enqueue(p[2], name, &shared);
    CHECK(picket_state(reader) == PICKET_HELD);
    CHECK(picket_state(second) == PICKET_WAITING);
    CHECK_OK(picket_cancel(writer));
    await_grant(second);
    for (int i = 0; i < 3; i++) {
        picket_close(p[i]);
    }
}

/* ---- giving back ---- */

TEST(release__again_is_fine)
{
    begin();
    const char *name = name_of("db");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(p, name);
    CHECK_OK(picket_release(l));
    CHECK_OK(picket_release(l));
    CHECK(picket_state(l) == PICKET_RELEASED);
    CHECK_IS(picket_checkpoint(l, 0), PICKET_NOTHELD);
    CHECK_U64(picket_left_ms(l), 0);
    /* And takes nothing from whoever came after. */
    struct picket_lock *m = take(p, name);
    CHECK_OK(picket_release(l));
    CHECK_OK(picket_checkpoint(m, 1));
    CHECK_U64(holders_of(p, name), 1);
    picket_close(p);
}

TEST(release__by_a_stranger_is_refused)
{
    begin();
    needs(guarantees()->by_id && guarantees()->tokens, "leases by their id, and tokens");
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    (void)take(b, name_of("another")); /* so that it has a lease */
    uint64_t token = picket_token(l);
    CHECK_IS(picket_lease_release(b, picket_lease(b), name, token), PICKET_NOTHELD);
    CHECK_IS(picket_lease_release(b, picket_lease(a), name, token + 1), PICKET_NOTHELD);
    CHECK_IS(picket_lease_release(b, picket_lease(a), name_of("free"), token),
             PICKET_NOTHELD);
    CHECK_OK(picket_checkpoint(l, 1));
    CHECK_U64(holders_of(b, name), 1);
    picket_close(a);
    picket_close(b);
}

TEST(break__wants_the_right_token)
{
    begin();
    needs(guarantees()->tokens, "tokens");
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    CHECK_IS(picket_break(b, name, picket_token(l) + 1, "by mistake"), PICKET_NOTHELD);
    CHECK_IS(picket_break(b, name_of("free"), picket_token(l), "too"), PICKET_NOTHELD);
    CHECK_OK(picket_checkpoint(l, 1));
    CHECK_U64(holders_of(b, name), 1);
    picket_close(a);
    picket_close(b);
}

/* Closing the client gives everything back at once, whatever its TTL. */
TEST(close__releases_everything)
{
    begin();
    const char *held = name_of("held"), *wanted = name_of("wanted");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *mine = take(b, wanted);
    (void)take(a, held);
    (void)enqueue(a, wanted, NULL);
    struct picket_lock *l = enqueue(b, held, NULL);
    CHECK_WAITERS(b, wanted, 1);
    picket_close(a);
    await_grant(l);
    CHECK_U64(waiters_of(b, wanted), 0);
    CHECK_OK(picket_checkpoint(mine, 1));
    picket_close(b);
}

/* ---- arguments ---- */

TEST(arguments__that_are_wrong_are_explained)
{
    begin();
    struct picket *p = open_client(0);
    struct picket_lock *l;
    char longest[257];
    memset(longest, 'n', sizeof longest);
    longest[256] = '\0';
    CHECK_IS(picket_acquire(p, "", NULL, &l), PICKET_BADARG);
    CHECK_IS(picket_acquire(p, "a\nb", NULL, &l), PICKET_BADARG);
    CHECK_IS(picket_acquire(p, "\xff", NULL, &l), PICKET_BADARG);
    CHECK_IS(picket_acquire(p, longest, NULL, &l), PICKET_BADARG);
    CHECK(strlen(picket_last_error()) > 0);
    struct picket_acquire_options slots = {.mode = PICKET_SLOT};
    CHECK_IS(picket_acquire(p, name_of("s"), &slots, &l), PICKET_BADARG);
    CHECK_IS(picket_fence_claim(p, name_of("r"), 0, NULL), PICKET_BADARG);
    CHECK_U64(picket_lease(p), 0); /* nothing of this needed a lease */
    picket_close(p);
}

TEST(names__may_be_any_printable_text)
{
    begin();
    struct picket *p = open_client(LONG_TTL_MS);
    const char *odd[] = {name_of("with blanks  and \"quotes\""), name_of("%41=$#*?[]{}|"),
                         name_of("\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\x92"), name_of("-x"),
                         name_of("WAIT")};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct picket_lock *l = take(p, odd[i]), *m;
        struct picket_view *v;
        CHECK_IS(picket_try(p, odd[i], NULL, &m), PICKET_BUSY);
        CHECK(strstr(picket_last_error(), odd[i]) != NULL);
        CHECK_OK(picket_show(p, odd[i], &v));
        CHECK_U64(v->n_rows, 1);
        CHECK_STR(v->rows[0].name, odd[i]);
        picket_view_free(v);
        CHECK_OK(picket_release(l));
    }
    picket_close(p);
}
