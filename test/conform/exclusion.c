/* SPDX-License-Identifier: MIT */
/* One holder at a time, tokens that grow, and what the other kinds of locks allow. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "conform.h"

/* What the lock protects: whoever is inside looks whether anybody else is. */
struct room {
    char name[192];
    atomic_int inside;
    atomic_uint double_holds, out_of_order, failures;
    volatile uint64_t counter; /* on purpose not atomic: a lost update shows */
    volatile uint64_t last_token;
};

static void visit(struct room *r, struct picket *p)
{
    struct picket_lock *l;
    if (picket_acquire(p, r->name, NULL, &l) != PICKET_OK) {
        printf("# %s\n", picket_last_error());
        r->failures++;
        return;
    }
    r->double_holds += atomic_fetch_add(&r->inside, 1) != 0;
    r->out_of_order += guarantees()->tokens != 0 && picket_token(l) <= r->last_token;
    r->last_token = picket_token(l);
    uint64_t seen = r->counter;
    sched_yield(); /* invites whoever should not be here */
    r->counter = seen + 1;
    atomic_fetch_sub(&r->inside, 1);
    r->failures += picket_release(l) != PICKET_OK;
    picket_lock_close(l);
}

static void check_room(const struct room *r, uint64_t visits)
{
    CHECK_U64(r->failures, 0);
    CHECK_U64(r->double_holds, 0);
    CHECK_U64(r->out_of_order, 0);
    CHECK_U64(r->counter, visits);
}

/* How often each comes: less often where waiting is a matter of luck. */
static int visits_each(void)
{
    return fair() ? 40 : 10;
}

struct visitor {
    pthread_t thread;
    struct room *room;
    struct picket *p;
};

static void *visit_often(void *arg)
{
    struct visitor *v = arg;
    for (int i = 0; i < visits_each(); i++) {
        visit(v->room, v->p);
    }
    return NULL;
}

/* Threads that share a client, and others that have their own. */
TEST(exclusion__among_threads)
{
    enum { THREADS = 6 };
    begin();
    struct room *r = share(sizeof *r);
    (void)snprintf(r->name, sizeof r->name, "%s", name_of("room"));
    struct picket *common = open_client(0);
    struct visitor v[THREADS];
    for (int i = 0; i < THREADS; i++) {
        v[i] = (struct visitor){.room = r};
        v[i].p = i % 2 == 0 ? common : open_client(0);
        CHECK(pthread_create(&v[i].thread, NULL, visit_often, &v[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(v[i].thread, NULL);
        if (v[i].p != common) {
            picket_close(v[i].p);
        }
    }
    picket_close(common);
    check_room(r, THREADS * (uint64_t)visits_each());
}

static void be_a_visitor(int in, int out, void *arg)
{
    struct picket *p = try_open(0);
    MUST(p != NULL);
    say(out, 'r');
    await(in, 'g');
    for (int i = 0; i < visits_each(); i++) {
        visit(arg, p);
    }
    picket_close(p);
}

TEST(exclusion__among_processes)
{
    enum { PROCESSES = 5 };
    begin();
    struct room *r = share(sizeof *r);
    struct worker *w[PROCESSES];
    (void)snprintf(r->name, sizeof r->name, "%s", name_of("room"));
    for (int i = 0; i < PROCESSES; i++) {
        w[i] = hire(be_a_visitor, r);
        CHECK(hear(w[i]) == 'r');
    }
    for (int i = 0; i < PROCESSES; i++) {
        tell(w[i], 'g');
    }
    for (int i = 0; i < PROCESSES; i++) {
        CHECK_U64(dismiss(w[i]), 0);
    }
    check_room(r, PROCESSES * (uint64_t)visits_each());
}

/* P2: every grant's token is greater than every earlier one's, whoever asks: of that lock
 * at least, and for whatever lock if the store says so. */
TEST(tokens__grow_with_every_grant)
{
    begin();
    needs(guarantees()->tokens, "tokens");
    const char *names[] = {name_of("a"), name_of("b"), name_of("c")};
    uint64_t last[3] = {0};
    for (int i = 0; i < 12; i++) {
        struct picket *p = open_client(0);
        for (int k = 0; k < 3; k++) {
            int which = (i + k) % 3;
            struct picket_lock *l = take(p, names[which]);
            uint64_t *before = &last[guarantees()->tokens == 2 ? 0 : which];
            CHECK(picket_token(l) > *before);
            *before = picket_token(l);
            if (i % 2 == 0) {
                picket_lock_close(l); /* else by closing the client */
            }
        }
        picket_close(p);
    }
}

/* P8: a new acquire by the same client is a new grant. */
TEST(tokens__are_not_given_twice_to_the_same)
{
    begin();
    needs(guarantees()->tokens, "tokens");
    const char *name = name_of("a");
    struct picket *p = open_client(0);
    struct picket_lock *l = take(p, name);
    uint64_t first = picket_token(l);
    CHECK(picket_token(l) == first);
    CHECK_OK(picket_release(l));
    struct picket_lock *m = take(p, name);
    CHECK(picket_token(m) > first);
    CHECK(picket_token(l) == first);
    picket_close(p);
}

TEST(busy__names_the_holder)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(0);
    struct picket *b = open_client(0);
    struct picket_lock *l = take(a, name), *m;
    char pid[32], token[40];
    (void)snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    (void)snprintf(token, sizeof token, "token %llu",
                   (unsigned long long)picket_token(l));
    CHECK_IS(picket_try(b, name, NULL, &m), PICKET_BUSY);
    CHECK(strstr(picket_last_error(), pid) != NULL);
    CHECK(guarantees()->tokens == 0 || strstr(picket_last_error(), token) != NULL);
    CHECK(strstr(picket_last_error(), name) != NULL);
    struct picket_acquire_options wait = {.wait_ms = 50};
    CHECK_IS(picket_acquire(b, name, &wait, &m), PICKET_TIMEOUT);
    CHECK(strstr(picket_last_error(), pid) != NULL);
    /* Not to oneself either: a lock is not re-entrant. */
    CHECK_IS(picket_try(a, name, NULL, &m), PICKET_BUSY);
    CHECK_OK(picket_release(l));
    CHECK_OK(picket_try(b, name, NULL, &m));
    picket_close(b);
    picket_close(a);
}

/* ---- other kinds ---- */

static struct picket_lock *take_as(struct picket *p, const char *name,
                                   enum picket_mode mode, uint32_t slots)
{
    struct picket_acquire_options o = {.mode = mode, .slots = slots};
    struct picket_lock *l;
    CHECK_OK(picket_try(p, name, &o, &l));
    return l;
}

TEST(shared__holders_are_together_and_a_writer_is_alone)
{
    begin();
    needs(guarantees()->shared, "shared locks");
    const char *name = name_of("doc");
    struct picket *p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = open_client(LONG_TTL_MS);
    }
    struct picket_acquire_options shared = {.mode = PICKET_SHARED};
    struct picket_lock *a = take_as(p[0], name, PICKET_SHARED, 0);
    struct picket_lock *b = take_as(p[1], name, PICKET_SHARED, 0), *c;
    CHECK_U64(holders_of(p[2], name), 2);
    CHECK_IS(picket_try(p[2], name, NULL, &c), PICKET_BUSY);
    struct picket_lock *writer = enqueue(p[2], name, NULL);
    CHECK_OK(picket_release(a));
    CHECK_U64(holders_of(p[0], name), 1);
    CHECK(picket_state(writer) == PICKET_WAITING);
    CHECK_OK(picket_release(b));
    await_grant(writer);
    CHECK_IS(picket_try(p[0], name, &shared, &c), PICKET_BUSY);
    CHECK_U64(holders_of(p[0], name), 1);
    CHECK_OK(picket_release(writer));
    a = take_as(p[0], name, PICKET_SHARED, 0);
    CHECK_LATER(picket_token(a), picket_token(writer));
    for (int i = 0; i < 3; i++) {
        picket_close(p[i]);
    }
}

/* Readers that come later don't pass a writer that waits, or it would starve; then they
 * come in together. */
TEST(shared__readers_queue_behind_a_writer)
{
    begin();
    needs(guarantees()->shared && fair(), "a fair queue for shared locks");
    const char *name = name_of("doc");
    struct picket *p[4];
    for (int i = 0; i < 4; i++) {
        p[i] = open_client(LONG_TTL_MS);
    }
    struct picket_acquire_options shared = {.mode = PICKET_SHARED,
                                            .wait_ms = PICKET_FOREVER};
    struct picket_lock *a = take_as(p[0], name, PICKET_SHARED, 0);
    struct picket_lock *writer = enqueue(p[1], name, NULL);
    struct picket_lock *c = enqueue(p[2], name, &shared);
    struct picket_lock *d = enqueue(p[3], name, &shared);
    CHECK_U64(holders_of(p[0], name), 1);
    CHECK_OK(picket_release(a));
    await_grant(writer);
    CHECK(picket_state(c) == PICKET_WAITING && picket_state(d) == PICKET_WAITING);
    CHECK_OK(picket_release(writer));
    await_grant(c);
    await_grant(d);
    CHECK_U64(holders_of(p[0], name), 2);
    CHECK(guarantees()->tokens == 0 || picket_token(c) != picket_token(d));
    for (int i = 0; i < 4; i++) {
        picket_close(p[i]);
    }
}

TEST(semaphore__has_so_many_slots_and_no_more)
{
    begin();
    needs(guarantees()->semaphore, "semaphores");
    enum { SLOTS = 3 };
    const char *name = name_of("pool");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket *q = open_client(LONG_TTL_MS);
    struct picket_lock *l[SLOTS], *m;
    for (int i = 0; i < SLOTS; i++) {
        l[i] = take_as(i % 2 == 0 ? p : q, name, PICKET_SLOT, SLOTS);
    }
    struct picket_acquire_options slot = {.mode = PICKET_SLOT, .slots = SLOTS};
    CHECK_IS(picket_try(q, name, &slot, &m), PICKET_BUSY);
    struct picket_acquire_options other = {.mode = PICKET_SLOT, .slots = SLOTS + 1};
    CHECK_IS(picket_try(q, name, &other, &m), PICKET_MISMATCH);
    CHECK(strstr(picket_last_error(), "3") != NULL);
    CHECK_IS(picket_try(q, name, NULL, &m), PICKET_MISMATCH);
    slot.wait_ms = PICKET_FOREVER;
    m = enqueue(q, name, &slot);
    CHECK(picket_state(m) == PICKET_WAITING);
    CHECK_OK(picket_release(l[1]));
    await_grant(m);
    CHECK_U64(holders_of(p, name), SLOTS);
    picket_close(p);
    picket_close(q);
    /* Empty, it may become anything. */
    p = open_client(LONG_TTL_MS);
    (void)take_as(p, name, PICKET_SLOT, 1);
    picket_close(p);
}

TEST(sets__are_all_or_nothing_with_one_token)
{
    begin();
    needs(guarantees()->sets, "sets");
    struct picket_want wants[] = {{.name = name_of("x")}, {.name = name_of("y")}};
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, wants[1].name), *m, *unused;
    struct picket_acquire_options now = {.wait_ms = 0};
    CHECK_IS(picket_acquire_set(b, wants, 2, &now, &m), PICKET_BUSY);
    CHECK_U64(holders_of(a, wants[0].name), 0);
    CHECK_OK(picket_enqueue(b, wants, 2, NULL, &m));
    CHECK(picket_state(m) == PICKET_WAITING);
    CHECK_OK(picket_release(l));
    await_grant(m);
    struct picket_view *v;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(picket_show(a, wants[i].name, &v));
        CHECK_U64(v->n_rows, 1);
        CHECK_U64(v->rows[0].token, picket_token(m));
        picket_view_free(v);
        CHECK_IS(picket_try(a, wants[i].name, NULL, &unused), PICKET_BUSY);
    }
    CHECK_OK(picket_release(m));
    CHECK_U64(holders_of(a, wants[0].name) + holders_of(a, wants[1].name), 0);
    struct picket_want twice[] = {{.name = wants[0].name}, {.name = wants[0].name}};
    CHECK_IS(picket_acquire_set(a, twice, 2, &now, &m), PICKET_BADARG);
    picket_close(a);
    picket_close(b);
}

struct pair {
    pthread_t thread;
    struct picket *p;
    struct picket_want wants[2];
    unsigned failures;
};

static void *take_pairs(void *arg)
{
    struct pair *t = arg;
    for (int i = 0; i < 30; i++) {
        struct picket_lock *l;
        if (picket_acquire_set(t->p, t->wants, 2, NULL, &l) != PICKET_OK) {
            t->failures++;
        } else {
            picket_lock_close(l);
        }
    }
    return NULL;
}

/* The two names in opposite orders, which deadlocks where locks are taken one by one. */
TEST(sets__do_not_deadlock)
{
    begin();
    needs(guarantees()->sets, "sets");
    const char *x = name_of("x"), *y = name_of("y");
    struct pair t[4] = {{0}};
    for (int i = 0; i < 4; i++) {
        t[i].p = open_client(LONG_TTL_MS);
        t[i].wants[i % 2].name = x;
        t[i].wants[1 - i % 2].name = y;
        CHECK(pthread_create(&t[i].thread, NULL, take_pairs, &t[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i].thread, NULL);
        CHECK_U64(t[i].failures, 0);
        picket_close(t[i].p);
    }
}
