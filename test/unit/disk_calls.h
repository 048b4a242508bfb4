/* SPDX-License-Identifier: MIT */
/*
 * For tests of what goes to a disk: the calls of the C library that reach it, in the
 * order in which they were made, and faults in them. The functions here stand in the
 * place of the C library's and liburing's, also for the code that is tested.
 */
#ifndef PICKET_TEST_DISK_CALLS_H
#define PICKET_TEST_DISK_CALLS_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef PICKET_WITH_URING
#include <liburing.h>
#endif

enum { CALLS_MAX = 256, CALL_PART = 4096, CALL_PATIENCE_S = 20 };

static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t calls_moved = PTHREAD_COND_INITIALIZER;

/* Under calls_lock. */
static struct {
    /* One letter each: o open, a fallocate, w write, u io_uring, d fdatasync, f fsync,
     * F fsync of a folder. */
    char made[CALLS_MAX];
    size_t n;
    int open_flags;    /* of the last open */
    bool tried_direct; /* an open had O_DIRECT */
    bool late;         /* a held call has waited too long, and went on */

    char fail;         /* calls with this letter... */
    int fail_with;     /* ... fail with this errno; */
    int interruptions; /* so many of them only, if that is EINTR */
    bool in_parts;     /* writes take at most CALL_PART bytes */
    bool no_direct;    /* opening with O_DIRECT fails */
    bool no_direct_io; /* reading after it fails */
    bool no_ring;      /* io_uring is refused when it is made, */
    bool no_enter;     /* or when it is used */
    char hold;         /* calls with this letter wait until this changes */
    unsigned held, let_go_at;
} calls;

static inline void calls_reset(void)
{
    (void)pthread_mutex_lock(&calls_lock);
    memset(&calls, 0, sizeof calls);
    (void)pthread_cond_broadcast(&calls_moved);
    (void)pthread_mutex_unlock(&calls_lock);
}

/* What was called since the last time. */
static inline const char *calls_made(void)
{
    static char made[CALLS_MAX];
    (void)pthread_mutex_lock(&calls_lock);
    memcpy(made, calls.made, sizeof made);
    memset(calls.made, 0, sizeof calls.made);
    calls.n = 0;
    (void)pthread_mutex_unlock(&calls_lock);
    return made;
}

static inline void calls_fail(char letter, int with)
{
    (void)pthread_mutex_lock(&calls_lock);
    calls.fail = letter;
    calls.fail_with = with;
    calls.interruptions = with == EINTR ? 2 : 0;
    (void)pthread_mutex_unlock(&calls_lock);
}

/* Calls with this letter wait until `let_go_at` of them are there; 0: for another call
 * of this function. Nobody waits for ever, so that a test fails rather than hangs. */
static inline void calls_hold(char letter, unsigned let_go_at)
{
    (void)pthread_mutex_lock(&calls_lock);
    calls.hold = letter;
    calls.held = 0;
    calls.let_go_at = let_go_at;
    (void)pthread_cond_broadcast(&calls_moved);
    (void)pthread_mutex_unlock(&calls_lock);
}

static inline void call_wait(char letter)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CALL_PATIENCE_S;
    calls.held++;
    (void)pthread_cond_broadcast(&calls_moved);
    while (calls.hold == letter &&
           (calls.let_go_at == 0 || calls.held < calls.let_go_at)) {
        if (pthread_cond_timedwait(&calls_moved, &calls_lock, &until) != 0) {
            calls.late = true;
            break;
        }
    }
}

/* Notes the call; 0, or the errno that it is to fail with. */
static inline int call(char letter)
{
    int error = 0;
    (void)pthread_mutex_lock(&calls_lock);
    if (calls.n < sizeof calls.made - 1) {
        calls.made[calls.n++] = letter;
    }
    if (calls.hold == letter) {
        call_wait(letter);
    }
    if (calls.fail == letter) {
        error = calls.fail_with;
        if (error == EINTR && --calls.interruptions == 0) {
            calls.fail = '\0';
        }
    }
    (void)pthread_mutex_unlock(&calls_lock);
    return error;
}

static inline long call_result(int error, long result)
{
    if (error != 0) {
        errno = error;
        return -1;
    }
    return result;
}

static inline size_t call_part(size_t len)
{
    return calls.in_parts && len > CALL_PART ? CALL_PART : len;
}

ssize_t pwrite64(int fd, const void *data, size_t len, off64_t offset)
{
    int error = call('w');
    return call_result(
        error, error != 0 ? 0 : syscall(SYS_pwrite64, fd, data, call_part(len), offset));
}

ssize_t pread64(int fd, void *out, size_t len, off64_t offset)
{
    bool direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
    if (calls.no_direct_io && direct) {
        errno = EINVAL;
        return -1;
    }
    return syscall(SYS_pread64, fd, out, len, offset);
}

int fdatasync(int fd)
{
    int error = call('d');
    return (int)call_result(error, error != 0 ? 0 : syscall(SYS_fdatasync, fd));
}

int fsync(int fd)
{
    struct stat st;
    bool folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    int error = call(folder ? 'F' : 'f');
    return (int)call_result(error, error != 0 ? 0 : syscall(SYS_fsync, fd));
}

int posix_fallocate64(int fd, off64_t offset, off64_t len)
{
    int error = call('a');
    if (error != 0) {
        return error;
    }
    return syscall(SYS_fallocate, fd, 0, offset, len) == 0 ? 0 : errno;
}

int openat64(int folder, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    unsigned mode = va_arg(more, unsigned);
    va_end(more);
    (void)pthread_mutex_lock(&calls_lock);
    calls.open_flags = flags;
    calls.tried_direct = calls.tried_direct || (flags & O_DIRECT) != 0;
    (void)pthread_mutex_unlock(&calls_lock);
    int error = call('o');
    error = error == 0 && calls.no_direct && (flags & O_DIRECT) != 0 ? EINVAL : error;
    return (int)call_result(
        error, error != 0 ? 0 : syscall(SYS_openat, folder, path, flags, mode));
}

#ifdef PICKET_WITH_URING

/* Has the same faults as pwrite: requests are made shorter on their way to the kernel,
 * results are changed on their way back. */
int io_uring_submit(struct io_uring *ring)
{
    static int (*real)(struct io_uring *);
    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "io_uring_submit");
        memcpy(&real, &symbol, sizeof real);
    }
    struct io_uring_sq *sq = &ring->sq;
    struct io_uring_sqe *sqe = &sq->sqes[(sq->sqe_tail - 1) & *sq->kring_mask];
    sqe->len = (unsigned)call_part(sqe->len);
    int error = call('u');
    if (error == EBUSY) { /* the kernel takes nothing */
        return -EBUSY;
    }
    int n = real(ring);
    while (error != 0 && io_uring_cq_ready(ring) == 0) {
        (void)usleep(100);
    }
    if (error != 0) {
        struct io_uring_cq *cq = &ring->cq;
        cq->cqes[(*cq->ktail - 1) & *cq->kring_mask].res = -error;
    }
    return n;
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned wait)
{
    static int (*real)(struct io_uring *, unsigned);
    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
        memcpy(&real, &symbol, sizeof real);
    }
    return calls.no_enter ? -EPERM : real(ring, wait);
}

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    static int (*real)(unsigned, struct io_uring *, unsigned);
    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "io_uring_queue_init");
        memcpy(&real, &symbol, sizeof real);
    }
    return calls.no_ring ? -EPERM : real(entries, ring, flags);
}

#endif

#endif
