/* SPDX-License-Identifier: MIT */
/*
 * For tests that run real processes: a line on which they report and by which their end
 * is seen, the shapes of trees that are hard to end, and waits that are patient but not
 * for ever.
 *
 * A line is a pipe that a tree of processes writes to. Each of its bytes is somebody's
 * message, and its end means that nobody who could write is alive.
 *
 * A test program is its own job: executed with TEST_JOB=name in its environment it calls
 * run_job(name), which the test defines, instead of the tests.
 *
 * Children never return into the harness and never CHECK: they MUST, and leave with
 * _exit().
 */
#ifndef PICKET_TEST_PROCS_H
#define PICKET_TEST_PROCS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/deadline.h"
#include "cli/procscan.h"
#include "cli/proctree.h"
#include "tap.h"

/* Longer than anything takes on a busy machine, shorter than the test runner's own
 * limit. */
#define PATIENCE_MS 120000

#define MUST(cond) ((cond) ? (void)0 : _exit(99))

/* What a tree writes to, as seen by the processes of the tree and by the test. */
struct line {
    int in;
    int out;
};

static inline struct line line_open(void)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    CHECK(fcntl(fds[0], F_SETFD, FD_CLOEXEC) == 0);
    return (struct line){fds[0], fds[1]};
}

/* The next byte, 0 at the end, -1 when nothing came in time. */
static inline int line_next_within(const struct line *l, int timeout_ms)
{
    struct pollfd p = {.fd = l->in, .events = POLLIN};
    char byte = 0;
    int n;
    do {
        n = poll(&p, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    if (n <= 0 || read(l->in, &byte, 1) < 0) {
        return -1;
    }
    return byte;
}

static inline int line_next(const struct line *l)
{
    return line_next_within(l, PATIENCE_MS);
}

/* Reads until the end. False when it did not come in time. */
static inline bool line_ends_within(const struct line *l, int timeout_ms)
{
    int byte;
    do {
        byte = line_next_within(l, timeout_ms);
    } while (byte > 0);
    return byte == 0;
}

static inline bool line_ends(const struct line *l)
{
    return line_ends_within(l, PATIENCE_MS);
}

/* Waits for `count` bytes, whatever they are. */
static inline bool line_brings(const struct line *l, int count)
{
    while (count > 0 && line_next(l) > 0) {
        count--;
    }
    return count == 0;
}

static inline void write_byte(int fd, char byte)
{
    MUST(write(fd, &byte, 1) == 1);
}

static inline void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    (void)nanosleep(&t, NULL);
}

/* Jobs end by themselves if a broken test lets them live. */
static inline _Noreturn void linger(void)
{
    uint64_t until = pk_clock_ms() + 2 * PATIENCE_MS;
    while (pk_clock_ms() < until) {
        sleep_ms(1000);
    }
    _exit(98);
}

/* Ignores SIGTERM in three generations, each in a session of its own; the third is an
 * orphan. Three live processes, which write 'u' each. */
static inline _Noreturn void be_stubborn(int out)
{
    (void)signal(SIGTERM, SIG_IGN);
    if (fork() == 0) {
        MUST(setsid() > 0);
        if (fork() == 0) {
            MUST(setsid() > 0);
            pid_t middle = getpid();
            pid_t third = fork();
            MUST(third >= 0);
            if (third > 0) {
                _exit(0);
            }
            MUST(setsid() > 0);
            while (getppid() == middle) {
                sleep_ms(1);
            }
        }
    }
    write_byte(out, 'u');
    linger();
}

/* A storm: chains of processes that never are the same twice, since each forks, lets its
 * child go on, and dies; and children made as fast as can be. Both stop on their own, so
 * that a broken test does not take the machine along. */
enum { STORM_CHAINS = 8, STORM_HOPS = 3000, STORM_CHILDREN = 150 };

static inline _Noreturn void hop(int out)
{
    (void)signal(SIGTERM, SIG_IGN);
    for (int hops = 0; hops < STORM_HOPS; hops++) {
        struct timespec moment = {0, 100000};
        pid_t next = fork();
        if (next > 0) {
            _exit(0);
        }
        if (hops == 10) {
            write_byte(out, 'h');
        }
        if (hops % 7 == 0) {
            (void)setsid();
        }
        (void)nanosleep(&moment, NULL);
    }
    linger();
}

/* Writes a byte for each chain that got going. */
static inline _Noreturn void be_storm(int out)
{
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < STORM_CHAINS; i++) {
        if (fork() == 0) {
            hop(out);
        }
    }
    for (int i = 0; i < STORM_CHILDREN; i++) {
        if (fork() == 0) {
            linger();
        }
    }
    linger();
}

/* The number in an environment variable, or -1. */
static inline int env_number(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? -1 : (int)strtol(text, NULL, 10);
}

/* On SIGTERM writes 'T' and exits with 5. Writes 'u' when ready for it. */
static inline void obey_now(int signo)
{
    (void)signo;
    write_byte(env_number("TEST_FD"), 'T');
    _exit(5);
}

static inline void name_fd(int out)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", out);
    MUST(setenv("TEST_FD", text, 1) == 0);
}

static inline _Noreturn void be_obedient(int out)
{
    name_fd(out);
    (void)signal(SIGTERM, obey_now);
    write_byte(out, 'u');
    linger();
}

static inline char state_of(pid_t pid)
{
    struct pk_proc p;
    return pk_procscan_read(pid, &p) ? p.state : '-';
}

/* Waits until a process is stopped (or, the other way round, is not). */
static inline bool becomes_stopped(pid_t pid, bool stopped)
{
    uint64_t until = pk_clock_ms() + PATIENCE_MS;
    while ((state_of(pid) == 'T') != stopped) {
        if (pk_clock_ms() > until) {
            return false;
        }
        sleep_ms(2);
    }
    return true;
}

/* Waits for the end of a child; its wait status, or -1. */
static inline int end_of(pid_t pid)
{
    uint64_t until = pk_clock_ms() + PATIENCE_MS;
    int status;
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0 && pk_clock_ms() < until) {
        sleep_ms(2);
    }
    return got == pid ? status : -1;
}

/* Memory that forked processes share with the test. */
static inline void *shared_memory(size_t size)
{
    void *at =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

/* Ends what an earlier test left; the test program is a subreaper, so nothing is out of
 * reach. */
static inline void clean_up(void)
{
    (void)pk_proctree_kill(0, false, PATIENCE_MS);
}

static inline void set_up(void)
{
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    clean_up();
}

/* The test program as a job. A test that has jobs defines it; it does not return. */
_Noreturn void run_job(const char *name, int out);

#define RUN_AS_JOB_IF_ASKED()                                                            \
    __attribute__((constructor)) static void become_job(void)                            \
    {                                                                                    \
        const char *name = getenv("TEST_JOB");                                           \
        if (name != NULL) {                                                              \
            run_job(name, env_number("TEST_FD"));                                        \
        }                                                                                \
    }

#endif
