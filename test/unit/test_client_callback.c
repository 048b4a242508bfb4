/* SPDX-License-Identifier: MIT */
/* The callback of picket_on_renewal(): what it may call, and who waits for it. */
#include <picket.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/client.h"
#include "hooked.h"
#include "interposed.h"
#include "statedir.h"
#include "tap.h"

enum { LONG_TTL_MS = 600000, SHORT_TTL_MS = 3000 };

/* A client that holds "db"; its callback runs `body` when it is called first. Another one
 * is in the way at "busy". */
struct scene {
    struct picket *p, *other;
    struct picket_lock *lock, *in_the_way, *waiting;
    void (*body)(struct scene *s);
    _Atomic unsigned calls;
    _Atomic bool done;
    _Atomic bool may_end;
};

static char url[4300];

static struct picket *open_client(uint32_t ttl_ms)
{
    struct picket *p = NULL;
    struct picket_options o = {.ttl_ms = ttl_ms};
    CHECK(picket_open(url, &o, &p) == PICKET_OK);
    return p;
}

static struct picket_lock *take(struct picket *p, const char *name)
{
    struct picket_lock *l;
    CHECK(picket_acquire(p, name, NULL, &l) == PICKET_OK);
    return l;
}

static void renewed(uint64_t safe_until_ms, void *ctx)
{
    struct scene *s = ctx;
    CHECK(safe_until_ms != 0);
    if (s->calls++ == 0) {
        s->body(s);
        s->done = true;
    }
}

static void set(struct scene *s, uint32_t ttl_ms, void (*body)(struct scene *s))
{
    struct picket_want busy = {.name = "busy"};
    dir_fresh();
    (void)snprintf(url, sizeof url, "local:%s", state);
    *s = (struct scene){.p = open_client(ttl_ms), .other = open_client(LONG_TTL_MS)};
    s->body = body;
    hook_client(s->p);
    s->in_the_way = take(s->other, "busy");
    s->lock = take(s->p, "db");
    CHECK(picket_enqueue(s->p, &busy, 1, NULL, &s->waiting) == PICKET_OK);
    picket_on_renewal(s->lock, renewed, s);
}

static void strike(struct scene *s)
{
    picket_close(s->p);
    picket_close(s->other);
}

/* Runs the body in a callback of this thread, then in one of the client's own. */
static void check_inside(void (*body)(struct scene *s))
{
    struct scene s;
    set(&s, LONG_TTL_MS, body);
    CHECK(picket_extend(s.p, 0) == PICKET_OK);
    CHECK(s.done);
    CHECK_U64(s.calls, 1);
    strike(&s);
    for (uint32_t ttl_ms = SHORT_TTL_MS; ttl_ms == SHORT_TTL_MS || !s.done; ttl_ms *= 2) {
        set(&s, ttl_ms, body);
        while (!s.done && picket_lease(s.p) != 0) { /* lost: the machine was too busy */
            (void)usleep(1000);
        }
        strike(&s);
    }
}

/* ---- calls from inside ---- */

static void ask_the_handles(struct scene *s)
{
    CHECK(picket_state(s->lock) == PICKET_HELD);
    CHECK(picket_token(s->lock) != 0);
    CHECK(picket_left_ms(s->lock) > 0 && picket_safe_until_ms(s->lock) > 0);
    CHECK(picket_checkpoint(s->lock, 0) == PICKET_OK);
    CHECK(picket_loss_fd(s->lock) >= 0 && picket_ready_fd(s->lock) >= 0);
    CHECK_STR(picket_loss_reason(s->lock), "");
    CHECK(picket_lease(s->p) != 0);
    CHECK(picket_guarantees(s->p) != NULL);
    CHECK(picket_wait(s->lock, -1) == PICKET_OK); /* it is decided */
}

TEST(callback__may_ask_its_handles)
{
    check_inside(ask_the_handles);
}

static void look_around(struct scene *s)
{
    struct picket_view *v;
    CHECK(picket_show(s->p, "db", &v) == PICKET_OK);
    picket_view_free(v);
    CHECK(picket_list(s->p, "", NULL, 10, &v) == PICKET_OK);
    picket_view_free(v);
    CHECK(picket_lease_show(s->p, picket_lease(s->p), &v) == PICKET_OK);
    picket_view_free(v);
}

TEST(callback__may_look)
{
    check_inside(look_around);
}

static void acquire_more(struct scene *s)
{
    struct picket_lock *l;
    struct picket_want want = {.name = "more"};
    CHECK(picket_try(s->p, "more", NULL, &l) == PICKET_OK);
    CHECK(picket_release(l) == PICKET_OK);
    picket_lock_close(l);
    CHECK(picket_try(s->p, "busy", NULL, &l) == PICKET_BUSY);
    CHECK(picket_enqueue(s->p, &want, 1, NULL, &l) == PICKET_OK);
    CHECK(picket_wait(l, -1) == PICKET_OK);
    picket_lock_close(l);
    CHECK(picket_cancel(s->waiting) == PICKET_OK);
    picket_lock_close(s->waiting);
}

TEST(callback__may_acquire_and_close_others)
{
    check_inside(acquire_more);
}

static void use_leases(struct scene *s)
{
    uint64_t left = 0;
    CHECK(picket_extend(s->p, 2 * LONG_TTL_MS) == PICKET_OK);
    CHECK(picket_left_ms(s->lock) > LONG_TTL_MS);
    CHECK(picket_lease_renew(s->p, picket_lease(s->other), 0, &left) == PICKET_OK);
    CHECK(left > 0);
    CHECK(picket_lease_release(s->p, picket_lease(s->other), "busy",
                               picket_token(s->in_the_way)) == PICKET_OK);
    CHECK(picket_break(s->p, "db", 1 << 30, "not there") == PICKET_NOTHELD);
    CHECK(picket_set_value(s->lock, "v", 1) == PICKET_OK);
    CHECK(picket_lease_close(s->p, picket_lease(s->other)) == PICKET_OK);
}

/* check_inside has seen that a renewal of its own does not call it again. */
TEST(callback__may_extend_and_use_leases)
{
    check_inside(use_leases);
}

static void use_fences(struct scene *s)
{
    uint64_t token = picket_token(s->lock), fence = 0;
    struct picket_fence_state shown;
    char *value;
    size_t len;
    CHECK(picket_fence_claim(s->p, "file", token, &fence) == PICKET_OK);
    CHECK(picket_fence_check(s->p, "file", token, &fence) == PICKET_OK);
    CHECK(picket_fence_set(s->p, "file", token, "v", 1, &fence) == PICKET_OK);
    CHECK(picket_fence_keep(s->p, "kept", token, "v", 1, 60000) == PICKET_OK);
    CHECK(picket_fence_get(s->p, "file", token, &value, &len, &fence) == PICKET_OK);
    free(value);
    CHECK(picket_fence_mode(s->p, "file", 1) == PICKET_OK);
    CHECK(picket_fence_show(s->p, "file", &shown) == PICKET_OK);
}

TEST(callback__may_use_fences)
{
    check_inside(use_fences);
}

static void watch(struct scene *s)
{
    struct picket_watch *w;
    struct picket_event e;
    CHECK(picket_watch_open(s->p, "", &w) == PICKET_OK);
    CHECK(picket_watch_fd(w) >= 0);
    CHECK(picket_watch_next(w, 0, &e) == PICKET_TIMEOUT);
    picket_watch_close(w);
}

TEST(callback__may_watch)
{
    check_inside(watch);
}

static void open_another(struct scene *s)
{
    (void)s;
    struct picket *q = open_client(LONG_TTL_MS);
    picket_lock_close(take(q, "mine"));
    picket_close(q);
}

TEST(callback__may_use_another_client)
{
    check_inside(open_another);
}

/* Each of these would wait for the thread that runs the callback. */
static void wait_inside(struct scene *s)
{
    struct picket_lock *l;
    struct picket_acquire_options bounded = {.wait_ms = 1000};
    CHECK(picket_wait(s->waiting, 0) == PICKET_TIMEOUT); /* which is no waiting */
    CHECK(picket_wait(s->waiting, 1000) == PICKET_DENIED);
    CHECK(picket_wait(s->waiting, -1) == PICKET_DENIED);
    CHECK(strstr(picket_last_error(), "picket_wait()") != NULL);
    CHECK(picket_acquire(s->p, "busy", &bounded, &l) == PICKET_DENIED);
    CHECK(picket_acquire(s->p, "free", NULL, &l) == PICKET_DENIED);
    CHECK(strstr(picket_last_error(), "picket_enqueue()") != NULL);
    CHECK(picket_state(s->waiting) == PICKET_WAITING); /* and keeps its place */
}

TEST(callback__is_refused_what_would_wait_for_it)
{
    check_inside(wait_inside);
}

static void close_client(struct scene *s)
{
    picket_close(s->p);
    CHECK(strstr(picket_last_error(), "picket_close()") != NULL);
    CHECK(picket_checkpoint(s->lock, 0) == PICKET_OK);
}

TEST(callback__closing_its_client_does_nothing)
{
    check_inside(close_client);
}

static void release_own(struct scene *s)
{
    CHECK(picket_release(s->lock) == PICKET_OK);
    CHECK(picket_state(s->lock) == PICKET_RELEASED);
}

TEST(callback__may_release_its_lock)
{
    check_inside(release_own);
}

static void close_own(struct scene *s)
{
    picket_lock_close(s->lock);
}

TEST(callback__may_close_its_lock)
{
    check_inside(close_own);
    struct scene s;
    set(&s, LONG_TTL_MS, close_own);
    CHECK(picket_extend(s.p, 0) == PICKET_OK);
    CHECK(picket_extend(s.p, 0) == PICKET_OK);
    CHECK_U64(s.calls, 1);
    picket_lock_close(take(s.other, "db")); /* it is free */
    strike(&s);
}

static void count(uint64_t safe_until_ms, void *ctx)
{
    (void)safe_until_ms;
    ((struct scene *)ctx)->calls += 100;
}

static void replace_own(struct scene *s)
{
    picket_on_renewal(s->lock, count, s);
}

TEST(callback__may_replace_itself)
{
    check_inside(replace_own);
    struct scene s;
    set(&s, LONG_TTL_MS, replace_own);
    CHECK(picket_extend(s.p, 0) == PICKET_OK);
    CHECK_U64(s.calls, 1);
    CHECK(picket_extend(s.p, 0) == PICKET_OK);
    CHECK_U64(s.calls, 101);
    strike(&s);
}

static void detach_own(struct scene *s)
{
    picket_detach(s->p);
    CHECK_U64(picket_lease(s->p), 0);
    CHECK(picket_state(s->lock) == PICKET_GONE);
    picket_lock_close(s->waiting);
    CHECK(picket_try(s->p, "more", NULL, &s->waiting) == PICKET_OK); /* on a new lease */
}

TEST(callback__may_detach_its_client)
{
    check_inside(detach_own);
}

/* ---- who waits for it ---- */

static void hold_up(struct scene *s)
{
    s->done = true; /* it has begun */
    while (!s->may_end) {
        (void)usleep(1000);
    }
}

struct second {
    struct scene *s;
    void (*run)(struct scene *s);
    pthread_t thread;
    _Atomic bool ended;
};

static void *run_second(void *arg)
{
    struct second *w = arg;
    w->run(w->s);
    w->ended = true;
    return NULL;
}

static void extend(struct scene *s)
{
    CHECK(picket_extend(s->p, 0) == PICKET_OK);
}

static void begin_callback(struct second *w, struct scene *s)
{
    *w = (struct second){.s = s, .run = extend};
    set(s, LONG_TTL_MS, hold_up);
    CHECK(pthread_create(&w->thread, NULL, run_second, w) == 0);
    while (!s->done) {
        (void)usleep(1000);
    }
}

static void end_callback(struct second *w)
{
    w->s->may_end = true;
    CHECK(pthread_join(w->thread, NULL) == 0);
}

/* Runs on another thread while the callback runs: it does not return before that. */
static void check_waits(void (*run)(struct scene *s))
{
    struct scene s;
    struct second caller, w = {.s = &s, .run = run};
    begin_callback(&caller, &s);
    unsigned before = interposed_waits;
    CHECK(pthread_create(&w.thread, NULL, run_second, &w) == 0);
    while (interposed_waits == before) {
        CHECK(!w.ended);
        (void)usleep(1000);
    }
    CHECK(!w.ended);
    end_callback(&caller);
    CHECK(pthread_join(w.thread, NULL) == 0);
    CHECK(picket_extend(s.p, 0) == PICKET_OK || picket_lease(s.p) == 0);
    CHECK_U64(s.calls, 1); /* and it is not called again */
    strike(&s);
}

static void take_away(struct scene *s)
{
    picket_on_renewal(s->lock, NULL, NULL);
}

TEST(callback__has_returned_when_it_is_taken_away)
{
    check_waits(take_away);
}

TEST(callback__has_returned_when_its_lock_is_closed)
{
    check_waits(close_own);
}

static void detach(struct scene *s)
{
    picket_detach(s->p);
}

TEST(callback__has_returned_when_its_client_is_detached)
{
    check_waits(detach);
}

/* Nobody else does: a callback that takes its time holds up no other call. */
TEST(callback__holds_up_nobody_else)
{
    struct scene s;
    struct second caller;
    begin_callback(&caller, &s);
    CHECK(picket_extend(s.p, 0) == PICKET_OK);
    CHECK(picket_checkpoint(s.lock, 1) == PICKET_OK);
    picket_lock_close(take(s.p, "more"));
    CHECK_U64(s.calls, 1);
    end_callback(&caller);
    CHECK_U64(s.calls, 2); /* the second renewal was told after the first */
    strike(&s);
}

/* ---- a lock that the store could not be told about ---- */

static enum picket_status keep_holds(struct pk_store *s, struct pk_command *c,
                                     uint64_t until_ms, struct pk_effects *out)
{
    return c->verb == PK_LOCK_RELEASE ? PICKET_STORE
                                      : pk_local_driver.call(s, c, until_ms, out);
}

/* The handle is closed, and what its callback needs may be gone. */
TEST(callback__is_not_called_for_a_closed_handle)
{
    struct scene s;
    set(&s, LONG_TTL_MS, extend);
    set_hook(keep_holds);
    picket_lock_close(s.lock);
    CHECK(picket_extend(s.p, 0) == PICKET_OK);
    CHECK_U64(s.calls, 0);
    set_hook(NULL);
    strike(&s);
}
