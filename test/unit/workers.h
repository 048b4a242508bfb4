/* SPDX-License-Identifier: MIT */
/*
 * For tests of several processes over one state directory: workers, which are told things
 * and report, one byte each, and memory that all of them share.
 *
 * Workers never return into the harness and never CHECK: they MUST, and leave by _exit.
 */
#ifndef PICKET_TEST_WORKERS_H
#define PICKET_TEST_WORKERS_H

#include <errno.h>
#include <picket.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "host/clock.h"
#include "statedir.h"

enum {
    /* Longer than anything takes on a busy machine. */
    PATIENCE_MS = 120000,
    /* A TTL whose renewals, and whatever hangs on them, come after all patience. */
    LONG_TTL_MS = 600000,
    WORKERS_MAX = 16,
};

#define MUST(cond) ((cond) ? (void)0 : die(__LINE__, #cond))

static inline _Noreturn void die(int line, const char *what)
{
    printf("# worker: line %d: not true: %s (%s)\n", line, what, picket_last_error());
    (void)fflush(stdout);
    _exit(99);
}

struct worker {
    pid_t pid;
    int to, from;
};

static struct worker workers[WORKERS_MAX];

/* Kills a worker as hard as can be, and sees it dead. */
static inline void fire(struct worker *w)
{
    if (w->pid > 0) {
        (void)kill(w->pid, SIGKILL);
        (void)waitpid(w->pid, NULL, 0);
        (void)close(w->to);
        (void)close(w->from);
        *w = (struct worker){0};
    }
}

__attribute__((destructor)) static void fire_all(void)
{
    for (int i = 0; i < WORKERS_MAX; i++) {
        fire(&workers[i]);
    }
}

static inline struct worker *hire(void (*job)(int in, int out, void *arg), void *arg)
{
    int to[2], from[2], i = 0;
    while (i < WORKERS_MAX && workers[i].pid > 0) {
        i++;
    }
    CHECK(i < WORKERS_MAX);
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        MUST(getppid() == parent);
        for (int k = 0; k < WORKERS_MAX; k++) {
            if (workers[k].pid > 0) { /* its end must be seen when it comes */
                (void)close(workers[k].to);
                (void)close(workers[k].from);
            }
        }
        (void)close(to[1]);
        (void)close(from[0]);
        job(to[0], from[1], arg);
        _exit(0);
    }
    CHECK(pid > 0);
    (void)close(to[0]);
    (void)close(from[1]);
    workers[i] = (struct worker){pid, to[1], from[0]};
    return &workers[i];
}

/* The next byte from a descriptor; 0: it has ended; -1: nothing came in time. */
static inline int next_byte(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char byte = 0;
    int n;
    do {
        n = poll(&p, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    return n <= 0 ? -1 : read(fd, &byte, 1) == 1 ? byte : 0;
}

static inline void put_byte(int fd, char byte)
{
    MUST(write(fd, &byte, 1) == 1);
}

/* What the worker reports next. */
static inline int hear(const struct worker *w)
{
    return next_byte(w->from, PATIENCE_MS);
}

static inline void tell(const struct worker *w, char byte)
{
    CHECK(write(w->to, &byte, 1) == 1);
}

/* In a worker: waits until it is told `byte`. */
static inline void await(int in, char byte)
{
    int told = next_byte(in, 2 * PATIENCE_MS);
    if (told == 0) {
        _exit(0); /* the test is over */
    }
    MUST(told == byte);
}

/* Zeroed memory that workers hired later share with us. */
static inline void *share(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static inline bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&p, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

/* ---- the store ---- */

static inline void fresh(void)
{
    fire_all();
    dir_fresh();
}

static inline const char *url(void)
{
    static char text[4300];
    (void)snprintf(text, sizeof text, "local:%s", state);
    return text;
}

/* Both in tests and in workers: NULL when it can't be opened. */
static inline struct picket *try_open(uint32_t ttl_ms)
{
    struct picket *p = NULL;
    struct picket_options o = {.ttl_ms = ttl_ms};
    return picket_open(url(), &o, &p) == PICKET_OK ? p : NULL;
}

static inline struct picket *open_client(uint32_t ttl_ms)
{
    struct picket *p = try_open(ttl_ms);
    CHECK(p != NULL);
    return p;
}

static inline struct picket_lock *take(struct picket *p, const char *name)
{
    struct picket_lock *l;
    CHECK(picket_acquire(p, name, NULL, &l) == PICKET_OK);
    return l;
}

static inline struct picket_lock *enqueue(struct picket *p, const char *name,
                                          const struct picket_acquire_options *o)
{
    struct picket_lock *l;
    struct picket_want want = {.name = name, .mode = o == NULL ? 0 : o->mode};
    CHECK(picket_enqueue(p, &want, 1, o, &l) == PICKET_OK);
    return l;
}

static inline uint32_t waiters_of(struct picket *p, const char *name)
{
    struct picket_view *v;
    CHECK(picket_show(p, name, &v) == PICKET_OK);
    uint32_t n = v->waiters;
    picket_view_free(v);
    return n;
}

/* Makes others' events pass by, and then the journal be a new one without them. */
static inline void compact(struct picket *p)
{
    static char large[60000];
    struct stat before, now;
    struct picket_acquire_options o = {.value = large, .value_len = sizeof large};
    memset(large, 'x', sizeof large);
    CHECK(stat(in_state("journal"), &before) == 0);
    do {
        struct picket_lock *l;
        CHECK(picket_acquire(p, "for compaction", &o, &l) == PICKET_OK);
        picket_lock_close(l);
        CHECK(stat(in_state("journal"), &now) == 0);
    } while (now.st_ino == before.st_ino);
}

#endif
