/* SPDX-License-Identifier: MIT */
/* Leases: how long they live, how they end, and who is told. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "conform.h"

struct holder {
    char name[192];
    uint32_t ttl_ms;
    struct picket_acquire_options o;
    _Atomic uint64_t safe_until_ms, token;
};

static struct holder *new_holder(const char *name, uint32_t ttl_ms)
{
    struct holder *h = share(sizeof *h);
    (void)snprintf(h->name, sizeof h->name, "%s", name);
    h->ttl_ms = ttl_ms;
    h->o.wait_ms = PICKET_FOREVER;
    return h;
}

static void note_safe(uint64_t safe_until_ms, void *ctx)
{
    ((struct holder *)ctx)->safe_until_ms = safe_until_ms;
}

/* Holds the lock, renewing, until told to look at it ('?'), 'l' when it is lost, 'h' if
 * not; or to release it ('r'): 'l' when it was gone before. */
static void be_a_holder(int in, int out, void *arg)
{
    struct holder *h = arg;
    struct picket *p = try_open(h->ttl_ms);
    struct picket_lock *l;
    MUST(p != NULL && picket_acquire(p, h->name, &h->o, &l) == PICKET_OK);
    picket_on_renewal(l, note_safe, h);
    if (h->safe_until_ms == 0) {
        h->safe_until_ms = picket_safe_until_ms(l);
    }
    h->token = picket_token(l);
    say(out, 'h');
    for (;;) {
        await(in, '?');
        say(out, picket_checkpoint(l, 0) == PICKET_LOST ? 'l' : 'h');
        await(in, 'r');
        enum picket_status s = picket_release(l);
        say(out, s == PICKET_LOST || s == PICKET_NOTHELD ? 'l' : 'h');
    }
}

/* P9, P4: a killed holder is followed, but not before its own view has ended; unless its
 * lease is not meant to outlive its process. */
TEST(expiry__follows_a_killed_holder)
{
    begin();
    const char *name = name_of("db");
    for (int i = 0; i < 2; i++) {
        struct holder *h = new_holder(name, SHORT_TTL_MS);
        struct worker *w = hire(be_a_holder, h);
        CHECK(hear(w) == 'h');
        struct picket *p = open_client(LONG_TTL_MS);
        struct picket_lock *l = enqueue(p, name, NULL);
        CHECK(picket_state(l) == PICKET_WAITING);
        /* So that it dies early, or after some renewals. */
        CHECK(!readable(picket_ready_fd(l), i * 900));
        fire(w);
        await_grant(l);
        CHECK(!guarantees()->by_id || now_ms() >= h->safe_until_ms);
        CHECK_LATER(picket_token(l), h->token);
        picket_close(p);
    }
}

/* The zombie story: stopped past its TTL and followed, it knows as soon as it wakes up
 * (P5), its write is refused (P6), and its release takes nothing from who came after. */
TEST(expiry__is_known_to_a_holder_that_was_stopped)
{
    begin();
    const char *name = name_of("db"), *resource = name_of("file");
    struct holder *h = new_holder(name, SHORT_TTL_MS);
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = enqueue(p, name, NULL), *m;
    freeze(w);
    await_grant(l);
    CHECK(now_ms() >= h->safe_until_ms);
    tell(w, '?');
    CHECK(kill(w->pid, SIGCONT) == 0);
    CHECK(hear(w) == 'l');
    tell(w, 'r');
    CHECK(hear(w) == 'l');
    CHECK_OK(picket_checkpoint(l, 1));
    CHECK_U64(holders_of(p, name), 1);
    CHECK_IS(picket_try(p, name, NULL, &m), PICKET_BUSY);
    CHECK_OK(picket_extend(p, 0)); /* which would find out */
    CHECK_OK(picket_checkpoint(l, 1));
    if (guarantees()->fence) {
        uint64_t fence = 0;
        CHECK_OK(picket_fence_claim(p, resource, picket_token(l), &fence));
        CHECK_IS(picket_fence_set(p, resource, h->token, "z", 1, &fence), PICKET_STALE);
        CHECK_U64(fence, picket_token(l));
    }
    picket_close(p);
}

/* Whether the locks are still held after three times the TTL. A machine that is too busy
 * to renew in time proves nothing, and the client says so itself. */
static bool still_held(struct picket_lock *const *l, size_t n, uint32_t ttl_ms)
{
    struct pollfd fds[8] = {{0}};
    for (size_t i = 0; i < n; i++) {
        fds[i] = (struct pollfd){.fd = picket_loss_fd(l[i]), .events = POLLIN};
    }
    if (poll(fds, n, (int)(3 * ttl_ms)) == 0) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        const char *why = picket_loss_reason(l[i]);
        printf("# %s\n", why);
        CHECK(why[0] == '\0' || strstr(why, "not renewed") != NULL);
    }
    return false;
}

/* P4: what is renewed does not end, for many times its TTL, held or waiting. */
TEST(renewal__keeps_a_lease_alive)
{
    begin();
    bool held = false;
    for (uint32_t ttl_ms = SHORT_TTL_MS; !held; ttl_ms *= 2) {
        CHECK(ttl_ms < PATIENCE_MS);
        const char *name = name_of("db");
        struct picket *a = open_client(ttl_ms);
        struct picket *b = open_client(ttl_ms);
        struct picket_lock *l[] = {take(a, name), take(b, name_of("other"))};
        struct picket_lock *waiting = enqueue(b, name, NULL);
        held = still_held(l, 2, ttl_ms);
        if (held) {
            CHECK(picket_state(waiting) == PICKET_WAITING);
            CHECK_OK(picket_checkpoint(l[0], 1));
            CHECK_OK(picket_checkpoint(l[1], 1));
            CHECK_OK(picket_release(l[0]));
            await_grant(waiting);
        }
        picket_close(a);
        picket_close(b);
    }
}

TEST(renewal__is_told)
{
    begin();
    struct holder *h = new_holder(name_of("db"), SHORT_TTL_MS);
    struct picket *p = open_client(SHORT_TTL_MS);
    struct picket_lock *l = take(p, h->name);
    uint64_t first = picket_safe_until_ms(l);
    picket_on_renewal(l, note_safe, h);
    for (uint64_t until = now_ms() + PATIENCE_MS; h->safe_until_ms == 0;) {
        CHECK(now_ms() < until);
        (void)usleep(5000);
    }
    CHECK(h->safe_until_ms > first);
    CHECK(picket_left_ms(l) <= SHORT_TTL_MS);
    picket_close(p);
}

TEST(loss__by_an_operator_is_told_with_the_reason)
{
    begin();
    needs(guarantees()->tokens, "tokens, to name a hold by");
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    struct picket_lock *kept = take(a, name_of("kept"));
    int loss = picket_loss_fd(l);
    CHECK(!readable(loss, 0));
    CHECK_STR(picket_loss_reason(l), "");
    struct picket_lock *m = enqueue(b, name, NULL);
    CHECK_OK(picket_break(b, name, picket_token(l), "it hangs"));
    CHECK(readable(loss, PATIENCE_MS));
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK_REASON("it hangs", picket_loss_reason(l));
    CHECK_IS(picket_checkpoint(l, 0), PICKET_LOST);
    CHECK_U64(picket_left_ms(l), 0);
    CHECK_IS(picket_release(l), PICKET_LOST);
    await_grant(m);
    CHECK_LATER(picket_token(m), picket_token(l));
    CHECK_IS(picket_break(b, name, picket_token(l), "again"), PICKET_NOTHELD);
    /* Only that lock: the lease and all else on it live on. */
    CHECK_OK(picket_checkpoint(kept, 1));
    picket_close(b);
    picket_close(a);
}

TEST(loss__of_the_lease_is_the_loss_of_all_on_it)
{
    begin();
    needs(guarantees()->by_id, "leases by their id");
    const char *name = name_of("db"), *second = name_of("second"), *wanted = name_of("w");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *in_the_way = take(b, wanted);
    struct picket_lock *l = take(a, name);
    struct picket_lock *m = take(a, second);
    struct picket_lock *waiting = enqueue(a, wanted, NULL);
    uint64_t lease = picket_lease(a);
    CHECK_OK(picket_lease_close(b, lease));
    CHECK(readable(picket_loss_fd(l), PATIENCE_MS));
    CHECK(readable(picket_loss_fd(m), PATIENCE_MS));
    CHECK(readable(picket_ready_fd(waiting), PATIENCE_MS));
    CHECK_IS(picket_wait(waiting, 0), PICKET_LOST);
    CHECK(picket_state(l) == PICKET_GONE && picket_state(m) == PICKET_GONE);
    CHECK_OK(picket_checkpoint(in_the_way, 1));
    /* The client itself goes on, with a new lease. */
    struct picket_lock *again = take(a, name);
    CHECK_LATER(picket_token(again), picket_token(l));
    CHECK(picket_lease(a) != lease && picket_lease(a) != 0);
    picket_close(a);
    picket_close(b);
}

struct tenant {
    char held[2][192], wanted[192];
};

/* Holds two locks and waits for a third; asked, says 'l' if all of that is lost. */
static void be_a_tenant(int in, int out, void *arg)
{
    struct tenant *t = arg;
    struct picket *p = try_open(SHORT_TTL_MS);
    struct picket_lock *l[2], *waiting;
    struct picket_want want = {.name = t->wanted};
    await(in, 'g');
    MUST(p != NULL);
    MUST(picket_acquire(p, t->held[0], NULL, &l[0]) == PICKET_OK);
    MUST(picket_acquire(p, t->held[1], NULL, &l[1]) == PICKET_OK);
    MUST(picket_enqueue(p, &want, 1, NULL, &waiting) == PICKET_OK);
    say(out, 'h');
    await(in, '?');
    bool lost = picket_state(l[0]) == PICKET_GONE && picket_state(l[1]) == PICKET_GONE &&
                readable(picket_loss_fd(l[0]), 0) && readable(picket_loss_fd(l[1]), 0);
    MUST(picket_wait(waiting, PATIENCE_MS) == PICKET_LOST);
    say(out, lost ? 'l' : 'h');
    /* The client itself goes on, with a new lease. */
    struct picket_lock *other;
    MUST(picket_acquire(p, t->wanted, NULL, &other) == PICKET_OK);
    say(out, 'n');
    picket_close(p);
}

/* P9, P5: what a client has ends together, in the store and for itself. */
TEST(loss__of_a_stopped_client_is_of_all_it_has)
{
    begin();
    struct tenant *t = share(sizeof *t);
    (void)snprintf(t->held[0], sizeof t->held[0], "%s", name_of("one"));
    (void)snprintf(t->held[1], sizeof t->held[1], "%s", name_of("two"));
    (void)snprintf(t->wanted, sizeof t->wanted, "%s", name_of("three"));
    struct worker *w = hire(be_a_tenant, t);
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *in_the_way = take(p, t->wanted);
    tell(w, 'g');
    CHECK(hear(w) == 'h');
    freeze(w);
    await_grant(enqueue(p, t->held[0], NULL));
    await_grant(enqueue(p, t->held[1], NULL));
    CHECK_U64(waiters_of(p, t->wanted), 0);
    tell(w, '?');
    CHECK(kill(w->pid, SIGCONT) == 0);
    CHECK(hear(w) == 'l');
    CHECK_OK(picket_release(in_the_way));
    CHECK(hear(w) == 'n');
    CHECK_U64((uint64_t)dismiss(w), 0);
    picket_close(p);
}

TEST(max_hold__ends_in_spite_of_renewals)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(3 * SHORT_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER,
                                       .max_hold_ms = 4 * SHORT_TTL_MS};
    struct picket_lock *l, *m;
    CHECK_OK(picket_acquire(a, name, &o, &l));
    m = enqueue(b, name, NULL);
    struct pollfd fds[] = {{.fd = picket_loss_fd(l), .events = POLLIN},
                           {.fd = picket_ready_fd(m), .events = POLLIN}};
    CHECK(poll(fds, 2, PATIENCE_MS) > 0);
    CHECK(fds[0].revents != 0); /* the holder first, whoever comes second (P5) */
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK_REASON("overheld", picket_loss_reason(l));
    await_grant(m);
    CHECK_LATER(picket_token(m), picket_token(l));
    /* Only the hold is over: the lease lives, and can be used. */
    CHECK_OK(picket_try(a, name_of("other"), NULL, &l));
    /* Also on a lease that needs no renewal for long. */
    struct picket *c = open_client(LONG_TTL_MS);
    (void)take(c, name_of("before"));
    (void)usleep(100000);
    name = name_of("last");
    CHECK_OK(picket_acquire(c, name, &o, &l));
    await_grant(enqueue(b, name, NULL));
    picket_close(a);
    picket_close(b);
    picket_close(c);
}

/* The time in the queue is no part of the hold, also for a waiter that did nothing but
 * wait. */
TEST(max_hold__counts_from_the_grant)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER, .max_hold_ms = 20000};
    struct picket_lock *l = take(a, name);
    struct picket_lock *m = enqueue(b, name, &o);
    CHECK(!readable(picket_ready_fd(m), 2500));
    uint64_t before = now_ms();
    CHECK_OK(picket_release(l));
    await_grant(m);
    CHECK(picket_safe_until_ms(m) >= before + 20000 - 500); /* less the margin */
    CHECK(picket_safe_until_ms(m) <= now_ms() + 20000);
    picket_close(a);
    picket_close(b);
}

enum { DELAY_MS = 800 };

/* After an unclean end the lock stays closed, from when the lease has ended: that is
 * after the holder's own view has. */
TEST(lock_delay__after_a_kill)
{
    begin();
    needs(guarantees()->lock_delay, "lock-delays");
    const char *name = name_of("db");
    struct holder *h = new_holder(name, SHORT_TTL_MS);
    h->o.lock_delay_ms = DELAY_MS;
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = enqueue(p, name, NULL);
    /* After renewals that must have prolonged the delay, too; unless the machine is too
     * busy to renew. */
    uint64_t first = h->safe_until_ms;
    while (h->safe_until_ms < first + DELAY_MS && !readable(picket_ready_fd(l), 5)) {
    }
    fire(w);
    await_grant(l);
    CHECK(now_ms() >= h->safe_until_ms + DELAY_MS);
    CHECK_LATER(picket_token(l), h->token);
    picket_close(p);
}

/* The whole story, in cluster time. */
TEST(lock_delay__is_told_to_who_watches)
{
    begin();
    needs(guarantees()->lock_delay && guarantees()->watch, "lock-delays to watch");
    const char *name = name_of("db");
    struct holder *h = new_holder(name, SHORT_TTL_MS);
    h->o.lock_delay_ms = DELAY_MS;
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_watch *watch;
    struct picket_event e;
    CHECK_OK(picket_watch_open(p, name, &watch));
    struct picket_lock *l = enqueue(p, name, NULL);
    fire(w);
    const char *const story[] = {"queued", "ended", "closed", "opened", "granted"};
    uint64_t ended = 0;
    for (int i = 0; i < 5; i++) {
        CHECK_OK(picket_watch_next(watch, PATIENCE_MS, &e));
        CHECK_STR(e.what, story[i]);
        ended = i == 1 ? e.time_ms : ended;
    }
    CHECK(e.time_ms >= ended + DELAY_MS);
    await_grant(l);
    CHECK_U64(e.token, picket_token(l));
    picket_watch_close(watch);
    picket_close(p);
}

/* A clean end closes nothing. */
TEST(lock_delay__not_after_a_release)
{
    begin();
    needs(guarantees()->lock_delay, "lock-delays");
    const char *name = name_of("db");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_acquire_options o = {.lock_delay_ms = 3600000};
    struct picket_lock *l;
    CHECK_OK(picket_acquire(p, name, &o, &l));
    CHECK_OK(picket_release(l));
    CHECK_OK(picket_try(p, name, NULL, &l));
    CHECK_OK(picket_release(l));
    if (guarantees()->tokens == 0) {
        picket_close(p);
        return;
    }
    /* A break is no clean end. */
    CHECK_OK(picket_acquire(p, name, &o, &l));
    CHECK_OK(picket_break(p, name, picket_token(l), "to see"));
    CHECK_IS(picket_try(p, name, NULL, &l), PICKET_BUSY);
    CHECK(strstr(picket_last_error(), "closed") != NULL);
    struct picket_view *v;
    CHECK_OK(picket_show(p, name, &v));
    CHECK(v->closed_ms > 0 && v->closed_ms <= 3600000);
    picket_view_free(v);
    picket_close(p);
}

TEST(lease__carries_a_hundred_locks)
{
    begin();
    enum { LOCKS = 100 };
    const char *prefix = name_of("many/");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket *other = open_client(LONG_TTL_MS);
    struct picket_lock *l[LOCKS];
    int lost[LOCKS];
    char name[192];
    for (int i = 0; i < LOCKS; i++) {
        (void)snprintf(name, sizeof name, "%s%03d", prefix, i);
        l[i] = take(p, name);
        lost[i] = picket_loss_fd(l[i]);
    }
    struct picket_view *v;
    CHECK_OK(picket_list(other, prefix, NULL, 1000, &v));
    CHECK_U64(v->n_rows, LOCKS);
    for (int i = 0; i < LOCKS; i++) {
        CHECK_U64(v->rows[i].lease, picket_lease(p));
        CHECK_U64(v->rows[i].token, picket_token(l[i]));
    }
    picket_view_free(v);
    CHECK_OK(picket_extend(p, 0)); /* one renewal for all of them */
    for (int i = 0; i < LOCKS; i++) {
        CHECK_OK(picket_checkpoint(l[i], 1));
    }
    /* All of them end with it. */
    if (guarantees()->by_id) {
        CHECK_OK(picket_lease_close(other, picket_lease(p)));
        for (int i = 0; i < LOCKS; i++) {
            CHECK(readable(lost[i], PATIENCE_MS));
        }
    }
    picket_close(p);
    CHECK_OK(picket_list(other, prefix, NULL, 1000, &v));
    CHECK_U64(v->n_rows, 0);
    picket_view_free(v);
    picket_close(other);
}

/* Our own machine remembers leases that have ended, and tells them from those that never
 * were; other stores need not. */
#define CHECK_ENDED(call, status) check_ended((call), (status), __LINE__, #call)
static void check_ended(enum picket_status s, enum picket_status exactly, int line,
                        const char *what)
{
    bool remembers = guarantees()->fence != 0;
    bool any = s == PICKET_LOST || s == PICKET_NOTFOUND || s == exactly;
    check_status(!remembers && any ? exactly : s, exactly, __FILE__, line, what);
}

/* To close what never was is then what closing it again is. */
#define CHECK_NEVER_WAS(call)                                                            \
    check_ended((call), guarantees()->fence ? PICKET_NOTFOUND : PICKET_OK, __LINE__,     \
                #call)

TEST(lease__can_be_used_by_its_id)
{
    begin();
    needs(guarantees()->by_id, "leases by their id");
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    CHECK_U64(picket_lease(a), 0);
    struct picket_lock *l = take(a, name);
    uint64_t lease = picket_lease(a);
    CHECK(lease != 0);
    struct picket_view *v;
    CHECK_OK(picket_lease_show(b, lease, &v));
    CHECK_U64(v->n_rows, 1);
    CHECK_STR(v->rows[0].name, name);
    CHECK_U64(v->rows[0].token, picket_token(l));
    picket_view_free(v);
    uint64_t left = 0;
    uint32_t ttl_ms = guarantees()->extend ? 60000 : 0;
    CHECK_OK(picket_lease_renew(b, lease, ttl_ms, &left));
    CHECK(left > 0 && left <= (ttl_ms != 0 ? ttl_ms : LONG_TTL_MS));
    CHECK_OK(picket_lease_release(b, lease, name, picket_token(l)));
    CHECK_U64(holders_of(b, name), 0);
    CHECK_OK(picket_lease_close(b, lease));
    CHECK_ENDED(picket_lease_close(b, lease), PICKET_OK); /* again is fine */
    CHECK_ENDED(picket_lease_renew(b, lease, 0, &left), PICKET_LOST);
    CHECK_ENDED(picket_lease_show(b, lease, &v), PICKET_LOST);
    CHECK_NEVER_WAS(picket_lease_close(b, UINT64_C(1) << 50));
    picket_close(b);
    picket_close(a);
}

/* Somebody else's use of a lease takes nothing from its owner: neither the grant that it
 * waits for, nor the news of a loss. */
TEST(lease__used_by_others_still_tells_its_owner)
{
    begin();
    needs(guarantees()->by_id && guarantees()->tokens, "leases by their id, and tokens");
    const char *name = name_of("db"), *wanted = name_of("wanted");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *in_the_way = take(b, wanted);
    struct picket_lock *l = take(a, name);
    struct picket_lock *waiting = enqueue(a, wanted, NULL);
    struct picket_view *v;
    uint64_t left;
    CHECK_OK(picket_lease_renew(b, picket_lease(a), 0, &left));
    CHECK_OK(picket_lease_show(b, picket_lease(a), &v));
    picket_view_free(v);
    CHECK_OK(picket_release(in_the_way));
    await_grant(waiting);
    CHECK_OK(picket_lease_renew(b, picket_lease(a), 0, &left));
    CHECK_OK(picket_break(b, name, picket_token(l), "enough"));
    CHECK(readable(picket_loss_fd(l), PATIENCE_MS));
    picket_close(a);
    picket_close(b);
}

/* A store may tell few of those who use a lease what happens to it. The holder hears of
 * its loss, and the waiter of its grant, all the same: by the next renewal at the latest.
 */
TEST(others__in_any_number_keep_no_news_from_the_holder)
{
    enum { OTHERS = 6, TTL_MS = 30000 };
    begin();
    needs(guarantees()->by_id && guarantees()->tokens, "leases by their id, and tokens");
    const char *name = name_of("db"), *wanted = name_of("wanted");
    struct picket *a = open_client(TTL_MS), *others[OTHERS];
    struct picket_view *v;
    uint64_t left;
    for (int i = 0; i < OTHERS; i++) {
        others[i] = open_client(LONG_TTL_MS);
    }
    struct picket_lock *in_the_way = take(others[0], wanted);
    struct picket_lock *l = take(a, name);
    struct picket_lock *waiting = enqueue(a, wanted, NULL);
    for (int i = 0; i < OTHERS; i++) {
        CHECK_OK(picket_lease_show(others[i], picket_lease(a), &v));
        picket_view_free(v);
        CHECK_OK(picket_lease_renew(others[i], picket_lease(a), 0, &left));
    }
    CHECK_OK(picket_break(others[1], name, picket_token(l), "enough"));
    CHECK_OK(picket_release(in_the_way));
    CHECK(readable(picket_loss_fd(l), PATIENCE_MS));
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK_REASON("broken", picket_loss_reason(l));
    await_grant(waiting);
    CHECK_OK(picket_release(waiting));
    picket_close(a);
    for (int i = 0; i < OTHERS; i++) {
        picket_close(others[i]);
    }
}

TEST(extend__changes_the_ttl)
{
    begin();
    needs(guarantees()->extend, "another TTL");
    struct picket *p = open_client(LONG_TTL_MS);
    CHECK_IS(picket_extend(p, 0), PICKET_LOST); /* there is none yet */
    struct picket_lock *l = take(p, name_of("db"));
    uint64_t safe = picket_safe_until_ms(l);
    CHECK_OK(picket_extend(p, 2 * LONG_TTL_MS));
    CHECK(picket_safe_until_ms(l) > safe + LONG_TTL_MS / 2);
    picket_close(p);
    /* Shorter: the next renewal must come by the new TTL. */
    bool held = false;
    for (uint32_t ttl_ms = SHORT_TTL_MS; !held; ttl_ms *= 2) {
        CHECK(ttl_ms < PATIENCE_MS);
        p = open_client(LONG_TTL_MS);
        l = take(p, name_of("db"));
        CHECK_OK(picket_extend(p, ttl_ms));
        CHECK(picket_left_ms(l) <= ttl_ms);
        held = still_held(&l, 1, ttl_ms);
        picket_close(p);
    }
}

TEST(detach__leaves_the_lease_to_others)
{
    begin();
    needs(guarantees()->by_id, "leases by their id");
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name), *m;
    uint64_t lease = picket_lease(a), token = picket_token(l), left;
    picket_detach(a);
    CHECK_U64(picket_lease(a), 0);
    CHECK(picket_state(l) == PICKET_GONE);
    picket_close(a);
    struct picket *b = open_client(LONG_TTL_MS);
    CHECK_IS(picket_try(b, name, NULL, &m), PICKET_BUSY);
    CHECK_OK(picket_lease_renew(b, lease, 0, &left));
    CHECK_OK(picket_lease_release(b, lease, name, token));
    CHECK_OK(picket_try(b, name, NULL, &m));
    CHECK_OK(picket_lease_close(b, lease));
    picket_close(b);
}

TEST(checkpoint__refuses_what_the_lease_can_not_cover)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    struct picket_lock *m = enqueue(b, name, NULL);
    CHECK(picket_state(l) == PICKET_HELD);
    CHECK_OK(picket_checkpoint(l, 1000));
    CHECK(picket_checkpoint(l, LONG_TTL_MS) == PICKET_AT_RISK); /* there is a margin */
    CHECK_IS(picket_checkpoint(m, 0), PICKET_NOTHELD);
    CHECK(picket_left_ms(l) > LONG_TTL_MS / 2 && picket_left_ms(l) < LONG_TTL_MS);
    CHECK_U64(picket_left_ms(m), 0);
    CHECK_U64(picket_safe_until_ms(m), 0);
    picket_close(a);
    picket_close(b);
}

/* ---- fork ---- */

/* Sees the child end well, and the parent's lock as it was. */
static void check_parent(pid_t child, struct picket *p, struct picket_lock *l)
{
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_U64((uint64_t)status, 0);
    CHECK(!readable(picket_loss_fd(l), 0));
    CHECK_OK(picket_extend(p, 0)); /* by its own connection, which it still has */
    CHECK_OK(picket_checkpoint(l, 1));
    CHECK_OK(picket_release(l));
    picket_close(p);
}

/* The child uses the parent's handles only. That is safe whatever the other threads did
 * at the fork, so the child allocates and prints nothing either. */
TEST(fork__leaves_the_lock_with_the_parent)
{
    begin();
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(p, name_of("db"));
    struct picket_watch *w = NULL;
    if (guarantees()->watch) {
        CHECK_OK(picket_watch_open(p, "", &w));
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct picket_lock *m;
        struct picket_event e;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        bool refused = picket_release(l) == PICKET_FORKED &&
                       picket_checkpoint(l, 0) == PICKET_FORKED &&
                       picket_extend(p, 0) == PICKET_FORKED &&
                       picket_try(p, "", NULL, &m) == PICKET_FORKED &&
                       picket_state(l) == PICKET_GONE && picket_lease(p) == 0 &&
                       picket_left_ms(l) == 0 && picket_loss_fd(l) == -1;
        if (w != NULL) {
            refused = refused && picket_watch_fd(w) == -1 &&
                      picket_watch_next(w, -1, &e) == PICKET_FORKED;
        }
        picket_watch_close(w);
        picket_lock_close(l);
        picket_close(p);
        _exit(refused ? 0 : 1);
    }
    picket_watch_close(w);
    check_parent(child, p, l);
}

/* What glibc alone allows: the parent has threads, and the child allocates and starts
 * threads of its own. */
TEST(fork__lets_the_child_open_its_own_client)
{
    if (TAP_SANITIZED) {
        SKIP("a sanitizer's allocator may have been locked by another thread at the "
             "fork, and stays locked in the child");
    }
    begin();
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(p, name_of("db"));
    const char *name = name_of("child");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct picket_lock *m;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        picket_lock_close(l);
        picket_close(p);
        struct picket *own = try_open(0);
        bool usable = own != NULL && picket_try(own, name, NULL, &m) == PICKET_OK;
        picket_close(own);
        _exit(usable ? 0 : 1);
    }
    check_parent(child, p, l);
}
