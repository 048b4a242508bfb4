/* SPDX-License-Identifier: MIT */
/* Leases: how long they live, how they end, and who is told. */
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
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

/* Holds the lock, renewing, until told to look at it: 'l' when it is lost, 'h' if not. */
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
    }
}

/* P9, P4: a killed holder is followed, but not before its own view has ended. */
TEST(expiry__follows_a_killed_holder)
{
    begin();
    const char *name = name_of("db");
    struct picket *p = open_client(LONG_TTL_MS);
    for (int i = 0; i < 2; i++) {
        struct holder *h = new_holder(name, SHORT_TTL_MS);
        struct worker *w = hire(be_a_holder, h);
        CHECK(hear(w) == 'h');
        struct picket_lock *l = enqueue(p, name, NULL);
        CHECK(picket_state(l) == PICKET_WAITING);
        /* So that it dies early, or after some renewals. */
        CHECK(!readable(picket_ready_fd(l), i * 900));
        fire(w);
        await_grant(l);
        CHECK(now_ms() >= h->safe_until_ms);
        CHECK(picket_token(l) > h->token);
        CHECK(picket_release(l) == PICKET_OK);
    }
    picket_close(p);
}

/* The zombie story: stopped past its TTL and followed, it knows as soon as it wakes up
 * (P5), and its write is refused (P6). */
TEST(expiry__is_known_to_a_holder_that_was_stopped)
{
    begin();
    const char *name = name_of("db"), *resource = name_of("file");
    struct picket *p = open_client(LONG_TTL_MS);
    struct holder *h = new_holder(name, SHORT_TTL_MS);
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    tell(w, '?');
    CHECK(hear(w) == 'h');
    struct picket_lock *l = enqueue(p, name, NULL);
    CHECK(kill(w->pid, SIGSTOP) == 0);
    await_grant(l);
    CHECK(now_ms() >= h->safe_until_ms);
    tell(w, '?');
    CHECK(kill(w->pid, SIGCONT) == 0);
    CHECK(hear(w) == 'l');
    if (offers(guarantees()->fence, "fences")) {
        uint64_t fence = 0;
        CHECK(picket_fence_claim(p, resource, picket_token(l), &fence) == PICKET_OK);
        CHECK(picket_fence_set(p, resource, h->token, "z", 1, &fence) == PICKET_STALE);
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
            CHECK(picket_checkpoint(l[0], 1) == PICKET_OK);
            CHECK(picket_checkpoint(l[1], 1) == PICKET_OK);
            CHECK(picket_release(l[0]) == PICKET_OK);
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
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    struct picket_lock *kept = take(a, name_of("kept"));
    int loss = picket_loss_fd(l);
    CHECK(!readable(loss, 0));
    CHECK_STR(picket_loss_reason(l), "");
    struct picket_lock *m = enqueue(b, name, NULL);
    CHECK(picket_break(b, name, picket_token(l), "it hangs") == PICKET_OK);
    CHECK(readable(loss, PATIENCE_MS));
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK(strstr(picket_loss_reason(l), "it hangs") != NULL);
    CHECK(picket_checkpoint(l, 0) == PICKET_LOST);
    CHECK_U64(picket_left_ms(l), 0);
    CHECK(picket_release(l) == PICKET_LOST);
    await_grant(m);
    CHECK(picket_break(b, name, picket_token(l), "again") == PICKET_NOTHELD);
    /* Only that lock: the lease and all else on it live on. */
    CHECK(picket_checkpoint(kept, 1) == PICKET_OK);
    picket_close(b);
    picket_close(a);
}

TEST(loss__of_the_lease_is_the_loss_of_all_on_it)
{
    begin();
    const char *name = name_of("db"), *second = name_of("second"), *wanted = name_of("w");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *in_the_way = take(b, wanted);
    struct picket_lock *l = take(a, name);
    struct picket_lock *m = take(a, second);
    struct picket_lock *waiting = enqueue(a, wanted, NULL);
    uint64_t lease = picket_lease(a);
    CHECK(picket_lease_close(b, lease) == PICKET_OK);
    CHECK(readable(picket_loss_fd(l), PATIENCE_MS));
    CHECK(readable(picket_loss_fd(m), PATIENCE_MS));
    CHECK(readable(picket_ready_fd(waiting), PATIENCE_MS));
    CHECK(picket_wait(waiting, 0) == PICKET_LOST);
    CHECK(picket_state(l) == PICKET_GONE && picket_state(m) == PICKET_GONE);
    CHECK(picket_checkpoint(in_the_way, 1) == PICKET_OK);
    /* The client itself goes on, with a new lease. */
    struct picket_lock *again = take(a, name);
    CHECK(picket_token(again) > picket_token(m));
    CHECK(picket_lease(a) != lease && picket_lease(a) != 0);
    picket_close(a);
    picket_close(b);
}

TEST(max_hold__ends_in_spite_of_renewals)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(SHORT_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER,
                                       .max_hold_ms = 2 * SHORT_TTL_MS};
    struct picket_lock *l, *m;
    CHECK(picket_acquire(a, name, &o, &l) == PICKET_OK);
    m = enqueue(b, name, NULL);
    struct pollfd fds[] = {{.fd = picket_loss_fd(l), .events = POLLIN},
                           {.fd = picket_ready_fd(m), .events = POLLIN}};
    CHECK(poll(fds, 2, PATIENCE_MS) > 0);
    CHECK(fds[0].revents != 0); /* the holder first, whoever comes second (P5) */
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK(strstr(picket_loss_reason(l), "overheld") != NULL);
    await_grant(m);
    CHECK(picket_token(m) > picket_token(l));
    /* Only the hold is over: the lease lives, and can be used. */
    CHECK(picket_try(a, name_of("other"), NULL, &l) == PICKET_OK);
    picket_close(a);
    picket_close(b);
}

/* The time in the queue is no part of the hold, also for a waiter that did nothing but
 * wait. */
TEST(max_hold__counts_from_the_grant)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_acquire_options o = {.wait_ms = PICKET_FOREVER, .max_hold_ms = 2000};
    struct picket_lock *l = take(a, name);
    struct picket_lock *m = enqueue(b, name, &o);
    CHECK(!readable(picket_ready_fd(m), 2500));
    uint64_t before = now_ms();
    CHECK(picket_release(l) == PICKET_OK);
    await_grant(m);
    CHECK(picket_safe_until_ms(m) >= before + 2000 - 250); /* less the margin */
    CHECK(picket_safe_until_ms(m) <= now_ms() + 2000);
    picket_close(a);
    picket_close(b);
}

/* After an unclean end the lock stays closed; told in cluster time, so no stopwatch. */
TEST(lock_delay__after_a_kill)
{
    begin();
    if (!offers(guarantees()->watch, "watching")) {
        return;
    }
    enum { DELAY_MS = 800 };
    const char *name = name_of("db");
    struct holder *h = new_holder(name, SHORT_TTL_MS);
    h->o.lock_delay_ms = DELAY_MS;
    struct worker *w = hire(be_a_holder, h);
    CHECK(hear(w) == 'h');
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_watch *watch;
    struct picket_event e;
    CHECK(picket_watch_open(p, name, &watch) == PICKET_OK);
    struct picket_lock *l = enqueue(p, name, NULL);
    fire(w);
    const char *const story[] = {"queued", "ended", "closed", "opened", "granted"};
    uint64_t ended = 0;
    for (int i = 0; i < 5; i++) {
        CHECK(picket_watch_next(watch, PATIENCE_MS, &e) == PICKET_OK);
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
    const char *name = name_of("db");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_acquire_options o = {.lock_delay_ms = 3600000};
    struct picket_lock *l;
    CHECK(picket_acquire(p, name, &o, &l) == PICKET_OK);
    CHECK(picket_release(l) == PICKET_OK);
    CHECK(picket_try(p, name, NULL, &l) == PICKET_OK);
    CHECK(picket_release(l) == PICKET_OK);
    /* A break is no clean end. */
    CHECK(picket_acquire(p, name, &o, &l) == PICKET_OK);
    CHECK(picket_break(p, name, picket_token(l), "to see") == PICKET_OK);
    CHECK(picket_try(p, name, NULL, &l) == PICKET_BUSY);
    CHECK(strstr(picket_last_error(), "closed") != NULL);
    struct picket_view *v;
    CHECK(picket_show(p, name, &v) == PICKET_OK);
    CHECK(v->closed_ms > 0 && v->closed_ms <= 3600000);
    picket_view_free(v);
    picket_close(p);
}

TEST(lease__carries_a_hundred_locks)
{
    begin();
    enum { LOCKS = 100 };
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l[LOCKS];
    struct pollfd lost[LOCKS];
    char text[32];
    for (int i = 0; i < LOCKS; i++) {
        (void)snprintf(text, sizeof text, "many/%d", i);
        l[i] = take(p, name_of(text));
        lost[i] = (struct pollfd){.fd = picket_loss_fd(l[i]), .events = POLLIN};
    }
    struct picket_view *v;
    CHECK(picket_lease_show(p, picket_lease(p), &v) == PICKET_OK);
    CHECK_U64(v->holders, LOCKS);
    CHECK_U64(v->n_rows, LOCKS);
    for (int i = 0; i < LOCKS; i++) {
        CHECK_U64(v->rows[i].token, picket_token(l[i]));
        CHECK(picket_checkpoint(l[i], 1) == PICKET_OK);
    }
    picket_view_free(v);
    /* All of them end with it. */
    struct picket *other = open_client(LONG_TTL_MS);
    CHECK(picket_lease_close(other, picket_lease(p)) == PICKET_OK);
    for (int i = 0; i < LOCKS; i++) {
        CHECK(readable(lost[i].fd, PATIENCE_MS));
    }
    picket_close(other);
    picket_close(p);
}

TEST(lease__can_be_used_by_its_id)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    CHECK_U64(picket_lease(a), 0);
    struct picket_lock *l = take(a, name);
    uint64_t lease = picket_lease(a);
    CHECK(lease != 0);
    struct picket_view *v;
    CHECK(picket_lease_show(b, lease, &v) == PICKET_OK);
    CHECK_U64(v->n_rows, 1);
    CHECK_STR(v->rows[0].name, name);
    CHECK_U64(v->rows[0].token, picket_token(l));
    picket_view_free(v);
    uint64_t left = 0;
    CHECK(picket_lease_renew(b, lease, 60000, &left) == PICKET_OK);
    CHECK_U64(left, 60000);
    CHECK(picket_lease_release(b, lease, name, picket_token(l)) == PICKET_OK);
    CHECK_U64(holders_of(b, name), 0);
    CHECK(picket_lease_close(b, lease) == PICKET_OK);
    CHECK(picket_lease_close(b, lease) == PICKET_OK); /* again is fine */
    CHECK(picket_lease_renew(b, lease, 0, &left) == PICKET_LOST);
    CHECK(picket_lease_show(b, lease, &v) == PICKET_LOST);
    CHECK(picket_lease_close(b, UINT64_C(1) << 50) == PICKET_NOTFOUND);
    picket_close(b);
    picket_close(a);
}

/* Somebody else's use of a lease takes nothing from its owner: neither the grant that it
 * waits for, nor the news of a loss. */
TEST(lease__used_by_others_still_tells_its_owner)
{
    begin();
    const char *name = name_of("db"), *wanted = name_of("wanted");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *in_the_way = take(b, wanted);
    struct picket_lock *l = take(a, name);
    struct picket_lock *waiting = enqueue(a, wanted, NULL);
    struct picket_view *v;
    uint64_t left;
    CHECK(picket_lease_renew(b, picket_lease(a), 0, &left) == PICKET_OK);
    CHECK(picket_lease_show(b, picket_lease(a), &v) == PICKET_OK);
    picket_view_free(v);
    CHECK(picket_release(in_the_way) == PICKET_OK);
    await_grant(waiting);
    CHECK(picket_lease_renew(b, picket_lease(a), 0, &left) == PICKET_OK);
    CHECK(picket_break(b, name, picket_token(l), "enough") == PICKET_OK);
    CHECK(readable(picket_loss_fd(l), PATIENCE_MS));
    picket_close(a);
    picket_close(b);
}

TEST(extend__changes_the_ttl)
{
    begin();
    struct picket *p = open_client(LONG_TTL_MS);
    CHECK(picket_extend(p, 0) == PICKET_LOST); /* there is none yet */
    struct picket_lock *l = take(p, name_of("db"));
    uint64_t safe = picket_safe_until_ms(l);
    CHECK(picket_extend(p, 2 * LONG_TTL_MS) == PICKET_OK);
    CHECK(picket_safe_until_ms(l) > safe + LONG_TTL_MS / 2);
    picket_close(p);
    /* Shorter: the next renewal must come by the new TTL. */
    bool held = false;
    for (uint32_t ttl_ms = SHORT_TTL_MS; !held; ttl_ms *= 2) {
        CHECK(ttl_ms < PATIENCE_MS);
        p = open_client(LONG_TTL_MS);
        l = take(p, name_of("db"));
        CHECK(picket_extend(p, ttl_ms) == PICKET_OK);
        CHECK(picket_left_ms(l) <= ttl_ms);
        held = still_held(&l, 1, ttl_ms);
        picket_close(p);
    }
}

TEST(detach__leaves_the_lease_to_others)
{
    begin();
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name), *m;
    uint64_t lease = picket_lease(a), token = picket_token(l), left;
    picket_detach(a);
    CHECK_U64(picket_lease(a), 0);
    CHECK(picket_state(l) == PICKET_GONE);
    picket_close(a);
    struct picket *b = open_client(LONG_TTL_MS);
    CHECK(picket_try(b, name, NULL, &m) == PICKET_BUSY);
    CHECK(picket_lease_renew(b, lease, 0, &left) == PICKET_OK);
    CHECK(picket_lease_release(b, lease, name, token) == PICKET_OK);
    CHECK(picket_try(b, name, NULL, &m) == PICKET_OK);
    CHECK(picket_lease_close(b, lease) == PICKET_OK);
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
    CHECK(picket_checkpoint(l, 1000) == PICKET_OK);
    CHECK(picket_checkpoint(l, LONG_TTL_MS) == PICKET_AT_RISK); /* there is a margin */
    CHECK(picket_checkpoint(m, 0) == PICKET_NOTHELD);
    CHECK(picket_left_ms(l) > LONG_TTL_MS / 2 && picket_left_ms(l) < LONG_TTL_MS);
    CHECK_U64(picket_left_ms(m), 0);
    CHECK_U64(picket_safe_until_ms(m), 0);
    picket_close(a);
    picket_close(b);
}

/* ---- fork ---- */

TEST(fork__leaves_the_lock_with_the_parent)
{
    begin();
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(p, name_of("db"));
    pid_t child = fork();
    if (child == 0) {
        bool refused = picket_release(l) == PICKET_FORKED &&
                       picket_state(l) == PICKET_GONE && picket_lease(p) == 0 &&
                       picket_left_ms(l) == 0;
        picket_lock_close(l);
        picket_close(p);
        struct picket *own = try_open(0); /* its own is another matter */
        struct picket_lock *m;
        bool usable =
            own != NULL && picket_try(own, name_of("child"), NULL, &m) == PICKET_OK;
        picket_close(own);
        _exit(refused && usable ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_U64((uint64_t)status, 0);
    CHECK(!readable(picket_loss_fd(l), 0));
    CHECK(picket_extend(p, 0) ==
          PICKET_OK); /* by its own connection, which it still has */
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    CHECK(picket_release(l) == PICKET_OK);
    picket_close(p);
}
