/* SPDX-License-Identifier: MIT */
/* What a forked child can do with the handles of its parent. */
#include <picket.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/client.h"
#include "statedir.h"
#include "tap.h"

/* ---- an allocator that can be closed ---- */

static volatile bool allocator_is_closed;

#if defined(__GLIBC__) && !TAP_SANITIZED
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *at, size_t size);
void __libc_free(void *at);

static void must_be_open(void)
{
    if (allocator_is_closed) {
        abort();
    }
}

void *malloc(size_t size)
{
    must_be_open();
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    must_be_open();
    return __libc_calloc(n, size);
}

void *realloc(void *at, size_t size)
{
    must_be_open();
    return __libc_realloc(at, size);
}

void free(void *at)
{
    if (at != NULL) { /* to free nothing takes no lock */
        must_be_open();
        __libc_free(at);
    }
}
#endif

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

struct handles {
    struct picket *p;
    struct picket_lock *held, *waiting;
    struct picket_watch *watch;
    uint64_t token;
};

static bool statuses_are_forked(const struct handles *h)
{
    const struct picket_want want = {.name = "db"};
    struct picket_lock *l;
    struct picket_watch *w;
    struct picket_view *v;
    struct picket_event e;
    struct picket_fence_state f;
    uint64_t n;
    return picket_release(h->held) == PICKET_FORKED &&
           picket_cancel(h->waiting) == PICKET_FORKED &&
           picket_wait(h->waiting, -1) == PICKET_FORKED &&
           picket_checkpoint(h->held, 0) == PICKET_FORKED &&
           picket_set_value(h->held, "x", 1) == PICKET_FORKED &&
           picket_extend(h->p, 0) == PICKET_FORKED &&
           picket_try(h->p, "db", NULL, &l) == PICKET_FORKED &&
           picket_enqueue(h->p, &want, 1, NULL, &l) == PICKET_FORKED &&
           picket_show(h->p, "db", &v) == PICKET_FORKED &&
           picket_watch_open(h->p, "", &w) == PICKET_FORKED &&
           picket_watch_next(h->watch, -1, &e) == PICKET_FORKED &&
           picket_fence_claim(h->p, "file", 1, &n) == PICKET_FORKED &&
           picket_fence_show(h->p, "file", &f) == PICKET_FORKED &&
           picket_break(h->p, "db", 1, "x") == PICKET_FORKED &&
           picket_lease_close(h->p, 1) == PICKET_FORKED &&
           strcmp(picket_last_error(), picket_status_text(PICKET_FORKED)) == 0;
}

static bool values_are_those_of_a_lost_lock(const struct handles *h)
{
    return picket_state(h->held) == PICKET_GONE &&
           picket_state(h->waiting) == PICKET_GONE && picket_lease(h->p) == 0 &&
           picket_left_ms(h->held) == 0 && picket_safe_until_ms(h->held) == 0 &&
           picket_loss_fd(h->held) == -1 && picket_ready_fd(h->waiting) == -1 &&
           picket_watch_fd(h->watch) == -1 && picket_loss_reason(h->held)[0] == '\0' &&
           picket_token(h->held) == h->token;
}

static void close_handles(struct handles *h)
{
    picket_watch_close(h->watch);
    picket_lock_close(h->waiting);
    picket_lock_close(h->held);
    picket_detach(h->p);
    picket_close(h->p);
}

/* A forked child can't use the handles, and its going away does not end the parent's
 * lock. None of its calls allocates or waits for a mutex: a thread of the parent may have
 * been inside of the allocator, or may have held any mutex of the client, at the fork. */
TEST(client__fork_leaves_the_lock_with_the_parent)
{
    fresh();
    struct handles h = {.p = open_client(60000)};
    struct picket *other = open_client(60000);
    struct picket_lock *in_the_way;
    CHECK(picket_acquire(h.p, "db", NULL, &h.held) == PICKET_OK);
    CHECK(picket_acquire(other, "queue", NULL, &in_the_way) == PICKET_OK);
    CHECK(picket_enqueue(h.p, &(struct picket_want){.name = "queue"}, 1, NULL,
                         &h.waiting) == PICKET_OK);
    CHECK(picket_watch_open(h.p, "", &h.watch) == PICKET_OK);
    h.token = picket_token(h.held);
    pthread_mutex_t *const mutexes[] = {&h.p->opening, &h.p->renewing, &h.p->absorbing,
                                        &h.p->mutex};
    for (size_t i = 0; i < sizeof mutexes / sizeof mutexes[0]; i++) {
        pthread_mutex_lock(mutexes[i]);
    }
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(120); /* ends a child that waits for a mutex */
        allocator_is_closed = true;
        bool refused = statuses_are_forked(&h) && values_are_those_of_a_lost_lock(&h);
        close_handles(&h);
        _exit(refused ? 0 : 1);
    }
    for (size_t i = sizeof mutexes / sizeof mutexes[0]; i > 0; i--) {
        pthread_mutex_unlock(mutexes[i - 1]);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_U64((uint64_t)status, 0);
    CHECK(picket_checkpoint(h.held, 1) == PICKET_OK);
    CHECK(picket_release(in_the_way) == PICKET_OK);
    CHECK(picket_wait(h.waiting, 120000) == PICKET_OK);
    CHECK(picket_release(h.held) == PICKET_OK);
    close_handles(&h);
    picket_close(other);
}
