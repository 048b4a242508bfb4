/* SPDX-License-Identifier: MIT */
#include "raft/file_disk.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "core/door.h"
#include "raft/file_aio.h"
#include "raft/file_io.h"

enum {
    WRITERS = 4, /* as many overwrites as the store keeps under way */
    /* The kernel ends a durable write in a thread of its own, bound to one processor. If
     * that is busy, others are faster: after so many writes in a row of so many
     * microseconds, our threads do so many. */
    LATE_TIMES = 2,
    LATE_US = 1000,
    AFTER_LATE = 64,
};

struct queue {
    struct pk_file_request *first, **end;
};

/* Threads that take requests from one queue. */
struct pool {
    struct pk_file_disk *d;
    pthread_cond_t wanted;
    struct queue queue;
    pthread_t threads[WRITERS];
    unsigned n_threads;
};

enum state { OPEN, DRAINING, CLOSING };

struct pk_file_disk {
    struct pk_disk disk;
    struct pk_files files;
    uv_loop_t *loop;
    void (*wrote)(void *ctx, uint64_t us);
    void *ctx;

    enum state state;
    unsigned under_way;
    struct pk_file_request *spare; /* for reuse, so that a commit allocates nothing */
    struct pk_file_aio *aio;       /* NULL: writers alone */
    uv_poll_t aio_ready;
    bool adapts;          /* late writes have consequences */
    unsigned late;        /* in a row */
    unsigned for_threads; /* overwrites that do not go there, although they could */
    uv_async_t woken;     /* `finished` has something */
    unsigned handles;
    void (*closed)(void *ctx);
    void *closed_ctx;

    pthread_mutex_t lock; /* of what follows */
    struct pool writers, background;
    struct queue finished;
    bool stopped;
};

/* ---- queues ---- */

static void queue_init(struct queue *q)
{
    q->first = NULL;
    q->end = &q->first;
}

static void push(struct queue *q, struct pk_file_request *r)
{
    r->next = NULL;
    *q->end = r;
    q->end = &r->next;
}

static struct pk_file_request *pop(struct queue *q)
{
    struct pk_file_request *r = q->first;
    if (r != NULL) {
        q->first = r->next;
        q->end = r->next == NULL ? &q->first : q->end;
    }
    return r;
}

/* ---- threads ---- */

/* The next request; NULL: the thread is to end. */
static struct pk_file_request *take(struct pool *pool)
{
    struct pk_file_disk *d = pool->d;
    (void)pthread_mutex_lock(&d->lock);
    struct pk_file_request *r = pop(&pool->queue);
    while (r == NULL && !d->stopped) {
        (void)pthread_cond_wait(&pool->wanted, &d->lock);
        r = pop(&pool->queue);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return r;
}

/* For any thread. Wakes the loop after the lock is given back, since it needs the lock;
 * `woken` is still open, because closing it waits for the threads. */
static void hand_back(struct pk_file_disk *d, struct pk_file_request *r)
{
    (void)pthread_mutex_lock(&d->lock);
    push(&d->finished, r);
    (void)pthread_mutex_unlock(&d->lock);
    PK_ASSERT(uv_async_send(&d->woken) == 0);
}

static void *work(void *arg)
{
    struct pool *pool = arg;
    struct pk_file_disk *d = pool->d;
    for (struct pk_file_request *r = take(pool); r != NULL; r = take(pool)) {
        r->error = pk_file_run(d->files.folder, r);
        hand_back(d, r);
    }
    return NULL;
}

/* 0 or an errno. Signals are for the loop's thread. */
static int start_threads(struct pool *pool, unsigned n)
{
    sigset_t all, old;
    int error = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    while (pool->n_threads < n && error == 0) {
        error = pthread_create(&pool->threads[pool->n_threads], NULL, work, pool);
        pool->n_threads += error == 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

static void join_threads(struct pool *pool)
{
    (void)pthread_cond_broadcast(&pool->wanted);
    while (pool->n_threads > 0) {
        (void)pthread_join(pool->threads[--pool->n_threads], NULL);
    }
}

/* The queues must be empty. */
static void stop_threads(struct pk_file_disk *d)
{
    (void)pthread_mutex_lock(&d->lock);
    d->stopped = true;
    (void)pthread_mutex_unlock(&d->lock);
    join_threads(&d->writers);
    join_threads(&d->background);
}

/* ---- closing ---- */

static void free_disk(struct pk_file_disk *d)
{
    while (d->spare != NULL) {
        struct pk_file_request *r = d->spare;
        d->spare = r->next;
        (void)pk_door_resize(r, 0);
    }
    if (d->aio != NULL) {
        pk_file_aio_free(d->aio);
    }
    pk_files_close(&d->files);
    (void)pthread_cond_destroy(&d->writers.wanted);
    (void)pthread_cond_destroy(&d->background.wanted);
    (void)pthread_mutex_destroy(&d->lock);
    (void)pk_door_resize(d, 0);
}

static void finish_close(struct pk_file_disk *d)
{
    void (*closed)(void *ctx) = d->closed;
    void *ctx = d->closed_ctx;
    free_disk(d);
    if (closed != NULL) {
        closed(ctx);
    }
}

static void on_handle_closed(uv_handle_t *h)
{
    struct pk_file_disk *d = h->data;
    if (--d->handles == 0) {
        finish_close(d);
    }
}

static void close_if_idle(struct pk_file_disk *d)
{
    if (d->state != DRAINING || d->under_way > 0) {
        return;
    }
    d->state = CLOSING;
    stop_threads(d);
    uv_close((uv_handle_t *)&d->woken, on_handle_closed);
    if (d->aio != NULL) {
        uv_close((uv_handle_t *)&d->aio_ready, on_handle_closed);
    }
}

void pk_file_disk_close(struct pk_file_disk *d, void (*closed)(void *ctx), void *ctx)
{
    PK_ASSERT(d->state == OPEN);
    d->closed = closed;
    d->closed_ctx = ctx;
    d->state = DRAINING;
    if (d->loop == NULL) {
        finish_close(d);
        return;
    }
    close_if_idle(d);
}

/* ---- operations ---- */

static uint64_t now_us(void)
{
    return uv_hrtime() / 1000;
}

static struct pk_file_request *new_request(struct pk_file_disk *d, struct pk_disk_op *op)
{
    struct pk_file_request *r = d->spare;
    if (r != NULL) {
        d->spare = r->next;
    } else {
        r = pk_door_resize(NULL, sizeof *r);
    }
    *r = (struct pk_file_request){.op = op, .began_us = now_us()};
    return r;
}

/* Gives the operation back to its owner, who may submit others or close the disk. */
static void deliver(void *ctx, struct pk_file_request *r)
{
    struct pk_file_disk *d = ctx;
    struct pk_disk_op *op = r->op;
    int error = r->error;
    uint64_t took_us = now_us() - r->began_us;
    r->next = d->spare;
    d->spare = r;
    if (op->kind == PK_DISK_OVERWRITE && error == 0 && d->wrote != NULL) {
        d->wrote(d->ctx, took_us);
    }
    op->done(op, error);
    d->under_way--;
    close_if_idle(d);
}

static void on_woken(uv_async_t *handle)
{
    struct pk_file_disk *d = handle->data;
    (void)pthread_mutex_lock(&d->lock);
    struct pk_file_request *r = d->finished.first;
    queue_init(&d->finished);
    (void)pthread_mutex_unlock(&d->lock);
    while (r != NULL) {
        struct pk_file_request *next = r->next;
        deliver(d, r);
        r = next;
    }
}

static void give_to_threads(struct pool *pool, struct pk_file_request *r)
{
    (void)pthread_mutex_lock(&pool->d->lock);
    push(&pool->queue, r);
    (void)pthread_mutex_unlock(&pool->d->lock);
    (void)pthread_cond_signal(&pool->wanted);
}

/* One that would have had to wait has not begun; a thread may wait. */
static void on_aio_ended(void *ctx, struct pk_file_request *r)
{
    struct pk_file_disk *d = ctx;
    if (r->error == EAGAIN) {
        give_to_threads(&d->writers, r);
        return;
    }
    d->late = d->adapts && now_us() - r->began_us > LATE_US ? d->late + 1 : 0;
    if (d->late >= LATE_TIMES) {
        d->for_threads = AFTER_LATE;
    }
    deliver(d, r);
}

static void on_aio_ready(uv_poll_t *handle, int status, int events)
{
    struct pk_file_disk *d = handle->data;
    (void)status;
    (void)events;
    pk_file_aio_reap(d->aio, on_aio_ended, d);
}

static bool may_use_aio(struct pk_file_disk *d, const struct pk_file_request *r)
{
    if (d->aio == NULL || !r->direct) {
        return false;
    }
    if (d->for_threads > 0) {
        d->for_threads--;
        return false;
    }
    return true;
}

static void submit(void *ctx, struct pk_disk_op *op)
{
    struct pk_file_disk *d = ctx;
    PK_ASSERT(d->loop != NULL && d->state != CLOSING);
    struct pk_file_request *r = new_request(d, op);
    d->under_way++;
    r->error = d->state != OPEN ? ECANCELED : pk_files_prepare(&d->files, r);
    if (r->error != 0) {
        hand_back(d, r);
    } else if (op->kind != PK_DISK_OVERWRITE) {
        give_to_threads(&d->background, r);
    } else if (!may_use_aio(d, r) || !pk_file_aio_write(d->aio, r)) {
        give_to_threads(&d->writers, r);
    }
}

static int run_now(void *ctx, struct pk_disk_op *op)
{
    struct pk_file_disk *d = ctx;
    struct pk_file_request r = {.op = op, .began_us = now_us()};
    int error = pk_files_prepare(&d->files, &r);
    error = error != 0 ? error : pk_file_run(d->files.folder, &r);
    if (op->kind == PK_DISK_OVERWRITE && error == 0 && d->wrote != NULL) {
        d->wrote(d->ctx, now_us() - r.began_us);
    }
    return error;
}

static int note(void *ctx, const char *name, uint64_t offset, const void *bytes,
                size_t len)
{
    struct pk_file_disk *d = ctx;
    return pk_files_note(&d->files, name, offset, bytes, len);
}

static int list(void *ctx, void (*each)(void *arg, const char *name, uint64_t size),
                void *arg)
{
    struct pk_file_disk *d = ctx;
    return pk_files_list(&d->files, each, arg);
}

static uint64_t room(void *ctx)
{
    struct pk_file_disk *d = ctx;
    return pk_files_room(&d->files);
}

/* ---- a new disk ---- */

/* What the environment says instead of AUTO. False: `why`. */
static bool choose(enum pk_file_disk_backend *backend, char *why, size_t size)
{
    const char *word = getenv("PICKET_DISK");
    if (*backend != PK_FILE_DISK_AUTO) {
        return true;
    }
    if (word == NULL || strcmp(word, "threads") == 0) {
        *backend = word == NULL ? PK_FILE_DISK_AUTO : PK_FILE_DISK_THREADS;
    } else if (strcmp(word, "aio") == 0) {
        *backend = PK_FILE_DISK_AIO;
    } else {
        (void)snprintf(why, size, "PICKET_DISK is \"%s\"; use aio or threads", word);
        return false;
    }
    return true;
}

static void init_pool(struct pk_file_disk *d, struct pool *pool)
{
    pool->d = d;
    queue_init(&pool->queue);
    PK_ASSERT(pthread_cond_init(&pool->wanted, NULL) == 0);
}

static void watch(struct pk_file_disk *d)
{
    d->woken.data = d;
    d->handles = 1;
    if (d->aio != NULL) {
        int fd = pk_file_aio_fd(d->aio);
        PK_ASSERT(uv_poll_init(d->loop, &d->aio_ready, fd) == 0);
        PK_ASSERT(uv_poll_start(&d->aio_ready, UV_READABLE, on_aio_ready) == 0);
        d->aio_ready.data = d;
        d->handles = 2;
    }
}

/* What submit needs: threads, the kernel's I/O, handles on the loop. False: `why`. */
static bool start(struct pk_file_disk *d, enum pk_file_disk_backend backend, char *why,
                  size_t size)
{
    if (!choose(&backend, why, size)) {
        return false;
    }
    d->adapts = backend == PK_FILE_DISK_AUTO;
    d->aio = backend != PK_FILE_DISK_THREADS ? pk_file_aio_new() : NULL;
    if (d->aio == NULL && backend == PK_FILE_DISK_AIO) {
        (void)snprintf(why, size, "the kernel refuses io_setup; use PICKET_DISK=threads");
        return false;
    }
    int error = start_threads(&d->background, 1);
    if (error == 0) {
        error = start_threads(&d->writers, WRITERS);
    }
    if (error == 0) {
        error = -uv_async_init(d->loop, &d->woken, on_woken);
    }
    if (error != 0) {
        (void)snprintf(why, size, "can't start the threads of the disk: %s",
                       strerror(error));
        stop_threads(d);
        return false;
    }
    watch(d);
    return true;
}

struct pk_file_disk *pk_file_disk_new(const struct pk_file_disk_options *o, char *why,
                                      size_t size)
{
    struct pk_files files;
    int error = pk_files_open(&files, o->dir);
    if (error != 0) {
        (void)snprintf(why, size, "can't use the folder %s: %s", o->dir, strerror(error));
        return NULL;
    }
    struct pk_file_disk *d = pk_door_resize(NULL, sizeof *d);
    memset(d, 0, sizeof *d);
    d->disk = (struct pk_disk){d, submit, run_now, note, list, room};
    d->files = files;
    d->loop = o->loop;
    d->wrote = o->wrote;
    d->ctx = o->ctx;
    PK_ASSERT(pthread_mutex_init(&d->lock, NULL) == 0);
    init_pool(d, &d->writers);
    init_pool(d, &d->background);
    queue_init(&d->finished);
    if (o->loop != NULL && !start(d, o->backend, why, size)) {
        free_disk(d);
        return NULL;
    }
    return d;
}

struct pk_disk *pk_file_disk(struct pk_file_disk *d)
{
    return &d->disk;
}

enum pk_file_disk_backend pk_file_disk_backend(const struct pk_file_disk *d)
{
    return d->aio != NULL ? PK_FILE_DISK_AIO : PK_FILE_DISK_THREADS;
}
