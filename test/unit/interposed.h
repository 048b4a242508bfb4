/* SPDX-License-Identifier: MIT */
/*
 * For tests that want something to happen between two steps of a call: the locking of one
 * mutex by the calling thread runs a function first, and who waits for a condition is
 * noted. The client library's own calls come here, too.
 */
#ifndef PICKET_TEST_INTERPOSED_H
#define PICKET_TEST_INTERPOSED_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

static _Thread_local struct {
    pthread_mutex_t *mutex; /* NULL: nothing is to happen */
    unsigned before;        /* so many times it is locked without anything happening */
    void (*happen)(void *ctx);
    void *ctx;
} interposed;

/* How many waits for a condition have begun, of any thread. */
static _Atomic unsigned interposed_waits;

/* Before this thread locks the mutex for the time number `nth`, from 0. */
static inline void interpose(pthread_mutex_t *mutex, unsigned nth,
                             void (*happen)(void *ctx), void *ctx)
{
    interposed.mutex = mutex;
    interposed.before = nth;
    interposed.happen = happen;
    interposed.ctx = ctx;
}

/* Whether it has happened; it won't any more. */
static inline bool interpose_end(void)
{
    bool happened = interposed.mutex == NULL;
    interposed.mutex = NULL;
    return happened;
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    static int (*lock)(pthread_mutex_t *);
    if (lock == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        memcpy(&lock, &symbol, sizeof lock);
    }
    if (m == interposed.mutex && interposed.before-- == 0) {
        interposed.mutex = NULL;
        interposed.happen(interposed.ctx);
    }
    return lock(m);
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    const struct timespec never = {.tv_sec = INT32_MAX};
    interposed_waits++;
    return pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, &never);
}

#endif
