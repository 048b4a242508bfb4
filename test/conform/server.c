/* SPDX-License-Identifier: MIT */
/*
 * The server stands still, dies and comes back: who holds is told in time, who waits is
 * not stranded, who comes back can go on. These cases have the store to themselves.
 */
#include <pthread.h>

#include "conform.h"

/* Takes the lock, with a client that may have lost its lease meanwhile without having
 * noticed: then it is told so once, and goes on with a new one. */
static struct picket_lock *take_anew(struct picket *p, const char *name)
{
    struct picket_acquire_options o = {.wait_ms = PATIENCE_MS};
    struct picket_lock *l;
    enum picket_status s = picket_acquire(p, name, &o, &l);
    if (s == PICKET_LOST) {
        s = picket_acquire(p, name, &o, &l);
    }
    CHECK_OK(s);
    return l;
}

static _Atomic uint64_t acknowledged; /* the safe time of the last renewal */

static void note_renewal(uint64_t safe_until_ms, void *unused)
{
    (void)unused;
    acknowledged = safe_until_ms;
}

/* From the first moment on at which the last renewal that was answered does not cover it,
 * the handle says that the lock is lost. Nothing but the clock decides when that is. */
static void check_told_in_time(struct picket_lock *l)
{
    uint64_t until;
    do {
        until = acknowledged;
        CHECK(readable(picket_loss_fd(l), PATIENCE_MS));
        while (now_ms() <= until) {
            (void)usleep(1000);
        }
    } while (until != acknowledged);
    CHECK_IS(picket_checkpoint(l, 0), PICKET_LOST);
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK_U64(picket_left_ms(l), 0);
}

/* What is told of a store that does not answer. */
static void check_away(enum picket_status s)
{
    printf("# %s:\n", picket_status_name(s));
    check_sentence();
    CHECK(s == PICKET_UNREACHABLE || s == PICKET_UNKNOWN);
}

static struct picket_lock *take_and_note(struct picket *p, const char *name)
{
    struct picket_lock *l = take(p, name);
    acknowledged = picket_safe_until_ms(l);
    picket_on_renewal(l, note_renewal, NULL);
    return l;
}

/* P5: by the holder's own clock; the server need not be there for that. Calls meanwhile
 * come back, and what became of them does not stand in anybody's way later (P9). */
TEST(server__stopped__holder_is_told_in_time)
{
    begin();
    needs_control();
    const char *name = name_of("db");
    struct picket *a = open_client(SHORT_TTL_MS);
    struct picket *b = open_client(SHORT_TTL_MS);
    struct picket_lock *l = take_and_note(a, name), *m;
    picket_lock_close(take(b, name_of("other"))); /* so that it has a lease */
    const char *left = name_of("left");
    struct picket *d = open_client(SHORT_TTL_MS);
    (void)take(d, left);
    control("stop");
    check_told_in_time(l);
    uint64_t before = now_ms();
    struct picket_acquire_options o = {.wait_ms = 500};
    enum picket_status s = picket_acquire(b, name, &o, &m);
    if (s != PICKET_LOST && s != PICKET_TIMEOUT) {
        check_away(s);
    }
    picket_close(d);
    CHECK(now_ms() < before + PATIENCE_MS);
    control("cont");
    struct picket *c = open_client(LONG_TTL_MS);
    (void)take(c, left);
    struct picket_lock *next = take(c, name);
    CHECK_LATER(picket_token(next), picket_token(l));
    CHECK_OK(picket_release(next));
    /* Those who were there before go on, too. */
    picket_lock_close(take_anew(a, name));
    picket_lock_close(take_anew(b, name));
    picket_close(c);
    picket_close(b);
    picket_close(a);
}

/* Who is cut off has less to go by than who gets no answer: nobody listens. */
TEST(server__killed__holder_is_told_in_time)
{
    begin();
    needs_control();
    const char *name = name_of("db");
    struct picket *a = open_client(SHORT_TTL_MS);
    struct picket_lock *l = take_and_note(a, name), *m;
    control("kill");
    uint64_t before = now_ms();
    /* Of several nodes one is dead, and the lock lives on. */
    bool lives_on = !readable(picket_loss_fd(l), 2 * SHORT_TTL_MS);
    if (!lives_on) {
        check_told_in_time(l);
        enum picket_status s = picket_try(a, name, NULL, &m);
        if (s == PICKET_OK) {
            CHECK_OK(picket_release(m)); /* another node serves by now, */
        } else if (s != PICKET_BUSY) {   /* where the old lease may not be over yet */
            check_away(s);
        }
    } else {
        CHECK_OK(picket_checkpoint(l, 0));
    }
    CHECK(now_ms() < before + 2 * (uint64_t)PATIENCE_MS);
    control("restart");
    uint64_t token = picket_token(l);
    (void)picket_release(l);
    struct picket_lock *next = take_anew(a, name);
    CHECK_LATER(picket_token(next), token);
    picket_close(a);
}

static void await_renewal(uint64_t before)
{
    for (uint64_t until = now_ms() + PATIENCE_MS; acknowledged == before;) {
        CHECK(now_ms() < until);
        (void)usleep(5000);
    }
}

struct shortening {
    struct picket *p;
    enum picket_status s;
};

static void *shorten(void *arg)
{
    struct shortening *w = arg;
    w->s = picket_extend(w->p, SHORT_TTL_MS);
    return NULL;
}

/* P4, P5: the store hears of a shorter TTL, but the answer gets lost, so that the holder
 * still believes in the longer one. Nobody follows it before that has ended. */
TEST(server__muted__a_shorter_ttl_ends_nothing_early)
{
    begin();
    needs(guarantees()->extend, "another TTL");
    const char *name = name_of("db");
    struct shortening w = {.p = open_through(6 * SHORT_TTL_MS), .s = PICKET_OK};
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take_and_note(w.p, name), *m;
    pthread_t thread;
    enum picket_status s;
    /* Once the client has renewed by itself, nothing of its beginning is under way that
     * would be muted in place of the request that matters. */
    await_renewal(acknowledged);
    CHECK_OK(picket_extend(w.p, 0));
    control("mute");
    CHECK(pthread_create(&thread, NULL, shorten, &w) == 0);
    uint64_t until = now_ms() + PATIENCE_MS;
    while ((s = picket_try(b, name, NULL, &m)) == PICKET_BUSY && now_ms() < until) {
        (void)usleep(20000);
    }
    uint64_t left = picket_left_ms(l);
    CHECK_OK(s);
    CHECK_U64(left, 0);
    CHECK(picket_state(l) == PICKET_GONE);
    control("unmute");
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(w.s != PICKET_OK);
    picket_close(w.p);
    picket_close(b);
}

/* A client whose connection died while it was not needed: it makes a new one, and tokens
 * go on from where they were (P2, P3). */
TEST(server__restarted__idle_client_goes_on)
{
    begin();
    needs_control();
    const char *name = name_of("db");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(p, name);
    uint64_t first = picket_token(l);
    picket_lock_close(l);
    control("kill");
    control("restart");
    l = take_anew(p, name);
    CHECK_LATER(picket_token(l), first);
    struct picket *q = open_client(LONG_TTL_MS);
    struct picket_lock *m;
    CHECK_IS(picket_try(q, name, NULL, &m), PICKET_BUSY);
    CHECK_OK(picket_release(l));
    CHECK_OK(picket_try(q, name, NULL, &m));
    CHECK_LATER(picket_token(m), picket_token(l));
    picket_close(p);
    picket_close(q);
}

/* P9: who waits gets it in the end, or is told that its lease is gone. */
TEST(server__restarted__waiter_is_not_stranded)
{
    begin();
    needs_control();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    struct picket_lock *m = enqueue(b, name, NULL);
    CHECK(picket_state(m) == PICKET_WAITING);
    control("kill");
    control("restart");
    enum picket_status s = picket_release(l);
    CHECK(s == PICKET_OK || s == PICKET_LOST || s == PICKET_NOTHELD);
    CHECK(readable(picket_ready_fd(m), PATIENCE_MS));
    s = picket_wait(m, 0);
    CHECK(s == PICKET_OK || s == PICKET_LOST);
    if (s == PICKET_LOST) {
        m = take_anew(b, name);
    }
    CHECK_LATER(picket_token(m), picket_token(l));
    CHECK_OK(picket_checkpoint(m, 1));
    picket_close(a);
    picket_close(b);
}

/* P1: who holds still does, or knows that it does not before anybody else comes in. */
TEST(server__restarted__never_two_holders)
{
    begin();
    needs_control();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name), *m;
    control("kill");
    control("restart");
    struct picket *b = open_client(LONG_TTL_MS);
    enum picket_status s = picket_try(b, name, NULL, &m);
    enum picket_status holder = picket_checkpoint(l, 1);
    if (s == PICKET_OK) {
        CHECK_IS(holder, PICKET_LOST);
    } else {
        CHECK_IS(s, PICKET_BUSY);
        s = picket_extend(a, 0);
        CHECK_IS(picket_checkpoint(l, 1), s);
        CHECK_IS(picket_release(l), s);
        CHECK(s == PICKET_OK || s == PICKET_LOST);
        m = take(b, name);
    }
    CHECK_LATER(picket_token(m), picket_token(l));
    picket_close(a);
    picket_close(b);
}

struct crowd {
    const char *name;
    struct picket *p;
    pthread_t thread;
    uint64_t grants, last;
    bool in_order;
};

static unsigned inside, crowded; /* under the lock, so a lost update shows */
static bool over;

static void *press_in(void *arg)
{
    struct crowd *c = arg;
    struct picket_acquire_options o = {.wait_ms = 1000};
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        struct picket_lock *l;
        if (picket_acquire(c->p, c->name, &o, &l) != PICKET_OK) {
            (void)usleep(10000);
            continue;
        }
        if (__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST) != 1) {
            __atomic_add_fetch(&crowded, 1, __ATOMIC_SEQ_CST);
        }
        c->in_order =
            c->in_order && (guarantees()->tokens == 0 || picket_token(l) > c->last);
        c->last = picket_token(l);
        (void)usleep(2000);
        /* One whose hold ended with the server may not count as being inside. */
        bool held = picket_checkpoint(l, 0) == PICKET_OK;
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&c->grants, held, __ATOMIC_SEQ_CST);
        picket_lock_close(l);
    }
    return NULL;
}

static void await_grants(const struct crowd *c, size_t n, uint64_t each)
{
    uint64_t until = now_ms() + 2 * (uint64_t)PATIENCE_MS;
    for (size_t i = 0; i < n; i++) {
        uint64_t wanted = __atomic_load_n(&c[i].grants, __ATOMIC_SEQ_CST) + each;
        while (__atomic_load_n(&c[i].grants, __ATOMIC_SEQ_CST) < wanted) {
            if (now_ms() > until) {
                for (size_t k = 0; k < n; k++) {
                    printf("# client %zu: %llu grants, now %u hold\n", k,
                           (unsigned long long)c[k].grants,
                           holders_of(c[k].p, c[k].name));
                }
                __atomic_store_n(&over, true, __ATOMIC_RELEASE);
                FAIL("grants go on");
            }
            (void)usleep(5000);
        }
    }
}

/* Several at once, without a pause for the fault: exclusion and order hold through it,
 * and the queue moves again within the TTL (P9), should something be left behind. */
TEST(server__restarted__under_contention)
{
    begin();
    needs_control();
    enum { CROWD = 3 };
    static struct crowd c[CROWD];
    const char *name = name_of("db");
    inside = crowded = 0;
    over = false;
    for (int i = 0; i < CROWD; i++) {
        c[i] = (struct crowd){.name = name, .p = open_client(5 * SHORT_TTL_MS)};
        c[i].in_order = true;
        CHECK(pthread_create(&c[i].thread, NULL, press_in, &c[i]) == 0);
    }
    await_grants(c, CROWD, 2);
    control("kill");
    control("restart");
    await_grants(c, CROWD, 2);
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    for (int i = 0; i < CROWD; i++) {
        pthread_join(c[i].thread, NULL);
        picket_close(c[i].p);
        CHECK(c[i].in_order);
    }
    CHECK_U64(crowded, 0);
}
