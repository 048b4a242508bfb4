/* SPDX-License-Identifier: MIT */
/* The public API over the embedded default, with real files, threads and processes. */
#include <dlfcn.h>
#include <picket.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/client.h"
#include "client/keeper.h"
#include "host/clock.h"
#include "statedir.h"
#include "tap.h"

static char url[4300];

static void fresh(void)
{
    dir_fresh();
    snprintf(url, sizeof url, "local:%s", state);
}

static struct picket *open_client(uint32_t ttl_ms)
{
    struct picket *p = NULL;
    struct picket_options o = {.ttl_ms = ttl_ms, .note = "a test"};
    CHECK(picket_open(url, &o, &p) == PICKET_OK);
    return p;
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

TEST(client__closing_does_not_hide_why)
{
    fresh();
    struct picket *p = open_client(0);
    struct picket *other = open_client(0);
    struct picket_lock *l;
    struct picket_lock *none;
    char why[256];
    CHECK(picket_acquire(p, "a", NULL, &l) == PICKET_OK);
    CHECK(picket_break(other, "a", picket_token(l), "test") == PICKET_OK);
    CHECK(picket_acquire(p, "", NULL, &none) == PICKET_BADARG);
    snprintf(why, sizeof why, "%s", picket_last_error());
    picket_lock_close(l); /* which is not held any more: an error of its own */
    CHECK_STR(picket_last_error(), why);
    picket_close(p);
    picket_close(other);
    CHECK_STR(picket_last_error(), why);
}

TEST(client__acquire_release_and_tokens_grow)
{
    fresh();
    struct picket *p = open_client(0);
    uint64_t before = 0;
    for (int i = 0; i < 5; i++) {
        struct picket_lock *l;
        CHECK(picket_acquire(p, "a", NULL, &l) == PICKET_OK);
        CHECK(picket_state(l) == PICKET_HELD);
        CHECK(picket_token(l) > before);
        CHECK(picket_checkpoint(l, 1000) == PICKET_OK);
        CHECK(picket_checkpoint(l, 60000) == PICKET_AT_RISK);
        before = picket_token(l);
        CHECK(picket_release(l) == PICKET_OK);
        CHECK(picket_release(l) == PICKET_OK); /* again is fine */
        CHECK(picket_state(l) == PICKET_RELEASED);
        CHECK(picket_checkpoint(l, 0) == PICKET_NOTHELD);
        picket_lock_close(l);
    }
    picket_close(p);
}

TEST(client__busy_names_the_holder)
{
    fresh();
    struct picket *a = open_client(0);
    struct picket *b = open_client(0);
    struct picket_lock *l, *m;
    CHECK(picket_acquire(a, "db", NULL, &l) == PICKET_OK);
    CHECK(picket_try(b, "db", NULL, &m) == PICKET_BUSY);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %d", (int)getpid());
    CHECK(strstr(picket_last_error(), pid) != NULL);
    CHECK(strstr(picket_last_error(), "a test") != NULL);
    struct picket_acquire_options wait = {.wait_ms = 50};
    CHECK(picket_acquire(b, "db", &wait, &m) == PICKET_TIMEOUT);
    CHECK(strstr(picket_last_error(), pid) != NULL);
    struct picket_view *v;
    CHECK(picket_show(a, "db", &v) == PICKET_OK);
    CHECK_U64(v->holders, 1);
    CHECK_U64(v->waiters, 0); /* a wait that timed out leaves nothing behind */
    CHECK_U64(v->rows[0].pid, (uint64_t)getpid());
    CHECK_STR(v->rows[0].note, "a test");
    picket_view_free(v);
    picket_close(b);
    picket_close(a);
}

TEST(client__try_never_waits)
{
    fresh();
    struct picket *a = open_client(0);
    struct picket *b = open_client(0);
    struct picket_lock *l, *m;
    struct picket_acquire_options o = {.wait_ms = 1000};
    CHECK(picket_acquire(a, "db", NULL, &l) == PICKET_OK);
    CHECK(picket_try(b, "db", &o, &m) == PICKET_BUSY);
    picket_close(b);
    picket_close(a);
}

/* What is written into the label that others read is one line. */
TEST(client__a_note_stays_on_its_line)
{
    fresh();
    struct picket *p;
    struct picket_lock *l;
    struct picket_view *v;
    struct picket_options o = {.note = "nightly\nnote=of somebody else"};
    CHECK(picket_open(url, &o, &p) == PICKET_OK);
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    CHECK(picket_show(p, "db", &v) == PICKET_OK);
    CHECK_STR(v->rows[0].note, "nightly note=of somebody else");
    picket_view_free(v);
    picket_close(p);
}

TEST(client__shows_for_how_long_a_lock_is_held)
{
    fresh();
    struct picket *p = open_client(60000);
    struct picket_lock *l;
    struct picket_view *v;
    CHECK(picket_acquire(p, "earlier", NULL, &l) == PICKET_OK);
    (void)usleep(300000); /* a store that is older than the hold */
    uint64_t before = pk_clock_ms();
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    uint64_t held_ms = 0;
    while (held_ms == 0) { /* until the store's clock has gone on */
        CHECK(picket_show(p, "db", &v) == PICKET_OK);
        held_ms = v->rows[0].for_ms;
        picket_view_free(v);
    }
    CHECK(held_ms <= pk_clock_ms() - before + 1);
    CHECK(picket_show(p, "earlier", &v) == PICKET_OK);
    CHECK(v->rows[0].for_ms >= 300);
    picket_view_free(v);
    picket_close(p);
}

TEST(client__handles_close_their_descriptors)
{
    fresh();
    struct picket *p = open_client(60000);
    struct picket_lock *l;
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    size_t before = entries_of("/proc/self/fd");
    CHECK(picket_loss_fd(l) >= 0 && picket_ready_fd(l) >= 0);
    CHECK_U64(entries_of("/proc/self/fd"), before + 2);
    picket_lock_close(l);
    CHECK_U64(entries_of("/proc/self/fd"), before);
    picket_close(p);
}

struct waiter {
    pthread_t thread;
    struct picket *p;
    uint64_t token;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;
    struct picket_lock *l;
    if (picket_acquire(w->p, "q", NULL, &l) == PICKET_OK) {
        w->token = picket_token(l);
        picket_lock_close(l);
    }
    return NULL;
}

/* Any number of threads may wait on one lease; each gets its own grant. */
TEST(client__threads_share_a_lease)
{
    fresh();
    struct picket *p = open_client(0);
    struct picket_lock *l;
    CHECK(picket_acquire(p, "q", NULL, &l) == PICKET_OK);
    struct waiter w[8] = {{0}};
    for (int i = 0; i < 8; i++) {
        w[i].p = p;
        CHECK(pthread_create(&w[i].thread, NULL, wait_for_it, &w[i]) == 0);
    }
    CHECK(picket_release(l) == PICKET_OK);
    for (int i = 0; i < 8; i++) {
        pthread_join(w[i].thread, NULL);
        CHECK(w[i].token > picket_token(l));
        for (int k = 0; k < i; k++) {
            CHECK(w[i].token != w[k].token);
        }
    }
    picket_close(p);
}

TEST(client__cancel_leaves_nothing_behind)
{
    fresh();
    struct picket *a = open_client(0);
    struct picket *b = open_client(0);
    struct picket_lock *l, *m;
    CHECK(picket_acquire(a, "db", NULL, &l) == PICKET_OK);
    struct picket_want want = {.name = "db"};
    CHECK(picket_enqueue(b, &want, 1, NULL, &m) == PICKET_OK);
    CHECK(picket_state(m) == PICKET_WAITING);
    CHECK(!readable(picket_ready_fd(m), 0));
    CHECK(picket_cancel(m) == PICKET_OK);
    CHECK(readable(picket_ready_fd(m), 0));
    CHECK(picket_wait(m, 0) == PICKET_CANCELLED);
    picket_lock_close(m);
    struct picket_view *v;
    CHECK(picket_show(a, "db", &v) == PICKET_OK);
    CHECK_U64(v->waiters, 0);
    picket_view_free(v);
    picket_close(b);
    picket_close(a);
}

/* A set is all or nothing, and has one token. */
TEST(client__sets_are_all_or_nothing)
{
    fresh();
    struct picket *a = open_client(0);
    struct picket *b = open_client(0);
    struct picket_lock *l, *m;
    CHECK(picket_acquire(a, "y", NULL, &l) == PICKET_OK);
    struct picket_want wants[] = {{.name = "x"}, {.name = "y"}};
    struct picket_acquire_options now = {.wait_ms = 0};
    CHECK(picket_acquire_set(b, wants, 2, &now, &m) == PICKET_BUSY);
    struct picket_view *v;
    CHECK(picket_show(a, "x", &v) == PICKET_OK);
    CHECK_U64(v->holders, 0);
    picket_view_free(v);
    CHECK(picket_release(l) == PICKET_OK);
    CHECK(picket_acquire_set(b, wants, 2, &now, &m) == PICKET_OK);
    CHECK(picket_try(a, "x", NULL, &l) == PICKET_BUSY);
    CHECK(picket_release(m) == PICKET_OK);
    CHECK(picket_try(a, "x", NULL, &l) == PICKET_OK);
    picket_close(b);
    picket_close(a);
}

/* A broken lock is told to its holder, with the reason, and its descriptor turns
 * readable. */
TEST(client__break_reaches_the_holder)
{
    fresh();
    struct picket *a = open_client(0);
    struct picket *b = open_client(0);
    struct picket_lock *l;
    CHECK(picket_acquire(a, "db", NULL, &l) == PICKET_OK);
    int fd = picket_loss_fd(l);
    CHECK(!readable(fd, 0));
    CHECK(picket_break(b, "db", picket_token(l), "it hangs") == PICKET_OK);
    CHECK(readable(fd, 120000));
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK(strstr(picket_loss_reason(l), "it hangs") != NULL);
    CHECK(picket_checkpoint(l, 0) == PICKET_LOST);
    CHECK(picket_release(l) == PICKET_LOST);
    CHECK(picket_break(b, "db", picket_token(l), "again") == PICKET_NOTHELD);
    picket_close(b);
    picket_close(a);
}

/* P5: with the store out of reach, the loss is told by the local clock alone. */
TEST(client__loss_needs_no_store)
{
    fresh();
    struct picket *p = open_client(300);
    struct picket_lock *l;
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    int fd = picket_loss_fd(l);
    char command[8400];
    snprintf(command, sizeof command, "exec flock '%s' sleep 3", in_state("lock"));
    pid_t blocker = fork();
    if (blocker == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(1);
    }
    CHECK(readable(fd, 120000));
    CHECK(picket_state(l) == PICKET_GONE);
    kill(blocker, SIGKILL);
    waitpid(blocker, NULL, 0);
    picket_close(p);
}

struct extension {
    pthread_t thread;
    struct picket *p;
    enum picket_status status;
};

static void *extend(void *arg)
{
    struct extension *e = arg;
    e->status = picket_extend(e->p, 0);
    return NULL;
}

/* Takes the store away from everybody, as a stopped process would, until it is closed. */
static int block_store(void)
{
    int fd = open(in_state("lock"), O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    return fd;
}

/* P5: a renewal that is answered after the safe time revives nothing, although the lease
 * lives on at the store. */
TEST(client__lost_is_final_even_if_renewed)
{
    fresh();
    struct picket_options o = {.ttl_ms = 8000, .margin_ms = 6000};
    struct extension e = {0};
    struct picket_lock *l;
    CHECK(picket_open(url, &o, &e.p) == PICKET_OK);
    CHECK(picket_acquire(e.p, "db", NULL, &l) == PICKET_OK);
    int loss = picket_loss_fd(l);
    CHECK(!readable(loss, 1000)); /* so that the renewal, if it counted, would help */
    int store = block_store();
    CHECK(pthread_create(&e.thread, NULL, extend, &e) == 0);
    CHECK(readable(loss, 120000));
    CHECK(close(store) == 0);
    pthread_join(e.thread, NULL);
    CHECK(e.status == PICKET_LOST);
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK(picket_checkpoint(l, 0) == PICKET_LOST);
    picket_close(e.p);
}

/* P5: what is left counts from before the renewal was sent, not from its answer. */
TEST(client__validity_counts_from_the_sending)
{
    fresh();
    struct picket_options o = {.ttl_ms = 60000};
    struct extension e = {0};
    struct picket_lock *l;
    CHECK(picket_open(url, &o, &e.p) == PICKET_OK);
    CHECK(picket_acquire(e.p, "db", NULL, &l) == PICKET_OK);
    bool before = false;
    for (int attempt = 0; attempt < 10 && !before; attempt++) {
        int store = block_store();
        CHECK(pthread_create(&e.thread, NULL, extend, &e) == 0);
        usleep(200000); /* usually enough for the thread to send; else once more */
        uint64_t unblocked = pk_clock_ms();
        CHECK(close(store) == 0);
        pthread_join(e.thread, NULL);
        CHECK(e.status == PICKET_OK);
        uint64_t valid_ms = 60000 - pk_keeper_margin(60000, 0);
        before = picket_safe_until_ms(l) - valid_ms < unblocked;
    }
    CHECK(before);
    picket_close(e.p);
}

/* ---- a lease that ends while it is being opened ---- */

static struct picket *opened_by; /* not NULL: its lease ends as its keeper starts */

/* The client library's own calls come here, too. */
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&create, &symbol, sizeof create);
    int store = opened_by != NULL ? block_store() : -1;
    int failed = create(t, a, run, arg);
    if (store >= 0) {
        while (picket_lease(opened_by) != 0) {
            (void)usleep(1000);
        }
        CHECK(close(store) == 0);
    }
    return failed;
}

/* The keeper may give a lease up before the call that opened it has read its id. That is
 * a lost lease, and acquire takes another one. */
TEST(client__lease_lost_at_once_is_replaced)
{
    fresh();
    struct picket_options o = {.ttl_ms = 500};
    struct picket_lock *l;
    CHECK(picket_open(url, &o, &opened_by) == PICKET_OK);
    enum picket_status s = picket_acquire(opened_by, "db", NULL, &l);
    struct picket *p = opened_by;
    opened_by = NULL;
    CHECK(s == PICKET_OK || s == PICKET_LOST); /* lost twice: a slow machine */
    picket_close(p);
}

/* Grace is for a lease that may come back. The loss descriptor is a timer. */
TEST(client__max_hold_ends_without_grace)
{
    fresh();
    struct picket_options o = {.ttl_ms = 60000, .grace_ms = 3600000};
    struct picket_acquire_options hold = {.max_hold_ms = 30000};
    struct picket *p;
    struct picket_lock *l;
    struct itimerspec left;
    CHECK(picket_open(url, &o, &p) == PICKET_OK);
    CHECK(picket_acquire(p, "db", &hold, &l) == PICKET_OK);
    CHECK(timerfd_gettime(picket_loss_fd(l), &left) == 0);
    CHECK(left.it_value.tv_sec < 30);
    picket_close(p);
}

/* Renewals keep a lock for many times its TTL. */
TEST(client__lease_is_renewed)
{
    fresh();
    struct picket *p = open_client(3000);
    struct picket_lock *l;
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    CHECK(!readable(picket_loss_fd(l), 7000));
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    CHECK(picket_release(l) == PICKET_OK);
    picket_close(p);
}

/* A thread takes a number for its request, and before it sends it, others send more
 * requests than the store remembers: the number is too old, but the request was never
 * run. */
TEST(client__a_request_overtaken_by_others_is_sent_again)
{
    fresh();
    struct picket *p = open_client(60000);
    struct picket_lock *l, *m;
    struct pk_effects answer = {0};
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    struct pk_command c = {.verb = PK_LOCK_RELEASE,
                           .lease = picket_lease(p),
                           .request = pk_client_request(p),
                           .name = pk_text("db"),
                           .token = picket_token(l)};
    for (int i = 0; i < 40; i++) {
        CHECK(picket_acquire(p, "other", NULL, &m) == PICKET_OK);
        picket_lock_close(m);
    }
    CHECK(pk_client_call(p, &c, pk_clock_ms() + 20000, &answer) == PICKET_OK);
    CHECK(pk_client_verdict(&answer) == PICKET_OK);
    pk_effects_free(&answer);
    CHECK(picket_try(p, "db", NULL, &m) == PICKET_OK);
    picket_close(p);
}

TEST(client__watch_tells_of_its_prefix_only)
{
    fresh();
    struct picket *p = open_client(60000);
    struct picket_watch *w;
    struct picket_lock *l;
    struct picket_event e;
    CHECK(picket_watch_open(p, "db/", &w) == PICKET_OK);
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    CHECK(picket_acquire(p, "dc/1", NULL, &l) == PICKET_OK);
    CHECK(picket_acquire(p, "db/1", NULL, &l) == PICKET_OK);
    CHECK(picket_watch_next(w, 20000, &e) == PICKET_OK);
    CHECK_STR(e.name, "db/1");
    picket_watch_close(w);
    picket_close(p);
}

TEST(client__a_store_that_promises_less_is_refused)
{
    const char *redlock = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    struct picket_options o = {.require = "correctness"};
    struct picket *p;
    fresh();
    CHECK(picket_open(url, &o, &p) == PICKET_OK);
    picket_close(p);
    if (picket_open(redlock, NULL, &p) != PICKET_OK) {
        SKIP("no such store is built in");
    }
    picket_close(p);
    CHECK(picket_open(redlock, &o, &p) == PICKET_UNSUPPORTED);
    CHECK(strstr(picket_last_error(), "promises only efficiency") != NULL);
    o.require = "efficiency";
    CHECK(picket_open(redlock, &o, &p) == PICKET_OK);
    picket_close(p);
}

TEST(client__election_value_is_seen_by_observers)
{
    fresh();
    struct picket *a = open_client(0);
    struct picket *b = open_client(0);
    struct picket_lock *l;
    struct picket_watch *w;
    struct picket_event e;
    CHECK(picket_watch_open(b, "leader", &w) == PICKET_OK);
    struct picket_acquire_options o = {.value = "node-1", .value_len = 6};
    CHECK(picket_acquire(a, "leader", &o, &l) == PICKET_OK);
    CHECK(picket_watch_next(w, 20000, &e) == PICKET_OK);
    CHECK_STR(e.what, "granted");
    CHECK_STR(e.value, "node-1");
    CHECK(picket_set_value(l, "node-1b", 7) == PICKET_OK);
    CHECK(picket_watch_next(w, 20000, &e) == PICKET_OK);
    CHECK_STR(e.what, "value");
    CHECK_STR(e.value, "node-1b");
    CHECK(picket_watch_next(w, 0, &e) == PICKET_TIMEOUT);
    picket_watch_close(w);
    picket_close(b);
    picket_close(a);
}

/* The zombie story (P6), through the API. */
TEST(client__fence_refuses_the_zombie)
{
    fresh();
    struct picket *p = open_client(0);
    uint64_t fence = 0;
    CHECK(picket_fence_set(p, "file", 1, "one", 3, &fence) == PICKET_OK);
    CHECK(picket_fence_check(p, "file", 2, &fence) == PICKET_UNCLAIMED);
    CHECK_U64(fence, 1);
    CHECK(picket_fence_claim(p, "file", 2, &fence) == PICKET_OK);
    fence = 0;
    CHECK(picket_fence_set(p, "file", 1, "zombie", 6, &fence) == PICKET_STALE);
    CHECK_U64(fence, 2);
    char *value;
    size_t len;
    fence = 0;
    CHECK(picket_fence_get(p, "file", 1, &value, &len, &fence) == PICKET_STALE);
    CHECK_U64(fence, 2);
    CHECK(picket_fence_get(p, "file", 0, &value, &len, &fence) == PICKET_OK);
    CHECK_STR(value, "one");
    free(value);
    picket_close(p);
}

/* A detached lease outlives its process' handle and can be ended by its id. */
TEST(client__detached_lease_lives_on)
{
    fresh();
    struct picket *a = open_client(60000);
    struct picket_lock *l;
    CHECK(picket_acquire(a, "db", NULL, &l) == PICKET_OK);
    uint64_t lease = picket_lease(a);
    uint64_t token = picket_token(l);
    picket_detach(a);
    picket_close(a);
    struct picket *b = open_client(0);
    struct picket_lock *m;
    uint64_t left = 0;
    CHECK(picket_try(b, "db", NULL, &m) == PICKET_BUSY);
    CHECK(picket_lease_renew(b, lease, 30000, &left) == PICKET_OK);
    CHECK_U64(left, 30000);
    CHECK(picket_lease_release(b, lease, "db", token + 1) == PICKET_NOTHELD);
    CHECK(picket_lease_release(b, lease, "db", token) == PICKET_OK);
    CHECK(picket_lease_close(b, lease) == PICKET_OK);
    CHECK(picket_lease_close(b, lease) == PICKET_OK);
    CHECK(picket_lease_close(b, 4711) == PICKET_NOTFOUND);
    picket_close(b);
}

TEST(client__bad_arguments_are_explained)
{
    fresh();
    struct picket *p;
    struct picket_options o = {.ttl_ms = 10};
    CHECK(picket_open(url, &o, &p) == PICKET_BADARG);
    o.ttl_ms = 24 * 3600 * 1000 + 1;
    CHECK(picket_open(url, &o, &p) == PICKET_BADARG);
    o = (struct picket_options){.require = "speed"};
    CHECK(picket_open(url, &o, &p) == PICKET_BADARG);
    CHECK(picket_open("carrier-pigeon:home", NULL, &p) == PICKET_BADARG);
    p = open_client(0);
    struct picket_lock *l;
    CHECK(picket_acquire(p, "", NULL, &l) == PICKET_BADARG);
    CHECK(picket_acquire(p, "a\nb", NULL, &l) == PICKET_BADARG);
    struct picket_acquire_options slots = {.mode = PICKET_SLOT};
    CHECK(picket_acquire(p, "s", &slots, &l) == PICKET_BADARG);
    CHECK(picket_fence_claim(p, "r", 0, NULL) == PICKET_BADARG);
    CHECK_U64(picket_lease(p), 0); /* nothing of this needed a lease */
    picket_close(p);
}

TEST(client__a_port_of_postgres_is_a_port)
{
    struct picket *p;
    if (picket_open("postgres://bob:secret@127.0.0.1:1,127.0.0.1:65535/db", NULL, &p) !=
        PICKET_OK) {
        CHECK(strstr(picket_last_error(), "no driver for postgres") != NULL);
        SKIP("no PostgreSQL is built in");
    }
    picket_close(p);
    CHECK(picket_open("postgres://bob:secret@127.0.0.1:65536/db", NULL, &p) ==
          PICKET_BADARG);
    CHECK(strstr(picket_last_error(), "secret") == NULL);
}

struct mask {
    _Atomic bool known;
    sigset_t blocked;
};

static void note_mask(uint64_t safe_until_ms, void *ctx)
{
    struct mask *m = ctx;
    (void)safe_until_ms;
    if (!m->known) {
        pthread_sigmask(SIG_BLOCK, NULL, &m->blocked);
        m->known = true;
    }
}

/* Signals are for the program's own threads: a handler of the program never runs in the
 * client's. */
TEST(client__its_thread_takes_no_signals)
{
    fresh();
    struct picket *p = open_client(3000);
    struct picket_lock *l;
    static struct mask m;
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    picket_on_renewal(l, note_mask, &m);
    for (uint64_t until = pk_clock_ms() + 20000; !m.known;) {
        CHECK(pk_clock_ms() < until);
        (void)usleep(1000);
    }
    CHECK(sigismember(&m.blocked, SIGTERM) == 1);
    CHECK(sigismember(&m.blocked, SIGCHLD) == 1);
    picket_close(p);
}

TEST(client__statuses_have_outcomes)
{
    CHECK(picket_outcome(PICKET_OK) == PICKET_DONE);
    CHECK(picket_outcome(PICKET_BUSY) == PICKET_NOT_DONE);
    CHECK(picket_outcome(PICKET_UNKNOWN) == PICKET_OUTCOME_UNKNOWN);
    CHECK_STR(picket_status_name(PICKET_STALE), "STALE");
#define X(name, outcome, text)                                                           \
    CHECK_STR(picket_status_name(PICKET_##name), #name);                                 \
    CHECK_STR(picket_status_text(PICKET_##name), text);
    PICKET_STATUSES(X)
#undef X
    /* Only one leaves it open whether something was done. */
    for (int s = PICKET_OK + 1; s < PICKET_STATUS_COUNT; s++) {
        enum picket_outcome o = picket_outcome((enum picket_status)s);
        CHECK(o == (s == PICKET_UNKNOWN ? PICKET_OUTCOME_UNKNOWN : PICKET_NOT_DONE));
    }
    CHECK(picket_outcome(PICKET_TOOOLD) == PICKET_NOT_DONE);
}
