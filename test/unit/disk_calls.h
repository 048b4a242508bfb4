/* SPDX-License-Identifier: MIT */
/*
 * For tests of what goes to a disk: the calls of the C library that reach it, in the
 * order in which they were made, and faults in them. The functions here stand in the
 * place of the C library's, also for the code that is tested.
 */
#ifndef PICKET_TEST_DISK_CALLS_H
#define PICKET_TEST_DISK_CALLS_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLS_MAX = 256, CALL_PART = 4096, CALL_PATIENCE_S = 20 };

static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t calls_moved = PTHREAD_COND_INITIALIZER;

/* Under calls_lock. */
static struct {
    /* One letter each: o open, a fallocate, w write, u io_submit, d fdatasync, f fsync,
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
    bool no_setup;     /* io_setup is refused */
    bool no_submit;    /* io_submit is refused */
    unsigned delay_us; /* of what io_submit has begun */
    uint64_t failed;   /* the write that has failed since io_submit; 0: none */
    int failed_with;
    char hold; /* calls with this letter wait until this changes */
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

/* The C library's syscall(), which the one below hides. */
static inline long call_real(long number, const long *args)
{
    static long (*real)(long, ...);
    if (real == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "syscall");
        memcpy(&real, &symbol, sizeof real);
    }
    return real(number, args[0], args[1], args[2], args[3], args[4], args[5]);
}

/* Takes a write like the kernel, and lets it fail like the kernel: later. */
static inline long call_submit(const long *args)
{
    struct iocb **blocks = (struct iocb **)args[2];
    struct iocb *block = blocks[0];
    if (calls.no_submit) {
        (void)call('u');
        return call_result(EPERM, 0);
    }
    block->aio_nbytes = call_part(block->aio_nbytes);
    calls.failed_with = call('u');
    if (calls.failed_with == 0) {
        return call_real(SYS_io_submit, args);
    }
    uint64_t one = 1;
    calls.failed = block->aio_data;
    return write((int)block->aio_resfd, &one, sizeof one) == sizeof one ? 1 : -1;
}

static inline long call_events(const long *args)
{
    struct io_event *events = (struct io_event *)args[3];
    (void)usleep(calls.delay_us);
    if (calls.failed == 0) {
        return call_real(SYS_io_getevents, args);
    }
    events[0] = (struct io_event){.data = calls.failed, .res = -calls.failed_with};
    calls.failed = 0;
    return 1;
}

/* It reads six arguments, also where the caller gave fewer. */
__attribute__((no_sanitize_address)) long syscall(long number, ...)
{
    long args[6];
    va_list more;
    va_start(more, number);
    for (int i = 0; i < 6; i++) {
        args[i] = va_arg(more, long);
    }
    va_end(more);
    switch (number) {
    case SYS_io_setup:
        return calls.no_setup ? call_result(EPERM, 0) : call_real(number, args);
    case SYS_io_submit:
        return call_submit(args);
    case SYS_io_getevents:
        return call_events(args);
    default:
        return call_real(number, args);
    }
}

#endif
