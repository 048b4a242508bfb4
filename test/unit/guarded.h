/* SPDX-License-Identifier: MIT */
/*
 * For the tests of cli/guard.h: the jobs that they run, and a guardian run from the test
 * itself.
 */
#ifndef PICKET_TEST_GUARDED_H
#define PICKET_TEST_GUARDED_H

#include <dirent.h>
#include <stdatomic.h>

#include "cli/errors.h"
#include "cli/guard.h"
#include "procs.h"

#define FAR_MS 3600000u

/* ---- The jobs ---- */

static inline void say_got_it(int signo)
{
    (void)signo;
    write_byte(env_number("TEST_FD"), 'S');
}

static inline _Noreturn void job_signalled(int out)
{
    (void)signal(SIGUSR1, say_got_it);
    write_byte(out, 'u');
    linger();
}

static inline _Noreturn void job_tick(int out)
{
    (void)signal(SIGTERM, obey_now);
    for (int i = 0; i < 2 * PATIENCE_MS / 5; i++) {
        write_byte(out, 't');
        sleep_ms(5);
    }
    _exit(98);
}

static inline _Noreturn void job_leave_daemon(int out)
{
    if (fork() == 0) {
        MUST(setsid() > 0);
        if (fork() == 0) {
            (void)signal(SIGTERM, SIG_IGN);
            write_byte(out, 'u');
            linger();
        }
        _exit(0);
    }
    MUST(wait(NULL) > 0);
    char byte;
    MUST(read(env_number("TEST_WAIT"), &byte, 1) == 1); /* until the test has seen it */
    _exit(3);
}

static inline _Noreturn void job_await_loss(int out)
{
    int fd = env_number("PICKET_LOSS_FD");
    char byte;
    (void)signal(SIGTERM, SIG_IGN);
    write_byte(out, 'u');
    write_byte(out, read(fd, &byte, 1) == 0 ? 'e' : 'x');
    _exit(4);
}

static inline int open_fds(bool inheritable_only)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;
    MUST(d != NULL);
    while ((entry = readdir(d)) != NULL) {
        int fd =
            entry->d_name[0] == '.' ? dirfd(d) : (int)strtol(entry->d_name, NULL, 10);
        int flags = fcntl(fd, F_GETFD);
        count += fd != dirfd(d) && !(inheritable_only && (flags & FD_CLOEXEC) != 0);
    }
    (void)closedir(d);
    return count;
}

static inline void say(int out, bool yes)
{
    write_byte(out, yes ? 'y' : 'n');
}

/* What the job finds around it, one byte for each thing that is as it should be. */
static inline _Noreturn void job_look_around(int out)
{
    const char *greeting = getenv("GREETING");
    int loss_fd = env_number("PICKET_LOSS_FD");
    struct sigaction a;
    sigset_t mask;
    MUST(sigprocmask(SIG_SETMASK, NULL, &mask) == 0);
    say(out, greeting != NULL && strcmp(greeting, "hello = world") == 0);
    say(out, getpgrp() == env_number("TEST_GROUP"));
    say(out, getsid(0) == env_number("TEST_SESSION"));
    say(out, open_fds(false) == env_number("TEST_FDS"));
    say(out, loss_fd > 2 && loss_fd < 10 && fcntl(loss_fd, F_GETFD) == 0);
    say(out, sigismember(&mask, SIGUSR1) == 1);
    say(out, sigismember(&mask, SIGTERM) == 0 && sigismember(&mask, SIGCHLD) == 0);
    say(out, sigaction(SIGUSR2, NULL, &a) == 0 && a.sa_handler == SIG_IGN);
    say(out, sigaction(SIGCHLD, NULL, &a) == 0 && a.sa_handler == SIG_IGN);
    say(out, sigaction(SIGTERM, NULL, &a) == 0 && a.sa_handler == SIG_DFL);
    say(out, waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    _exit(0);
}

static inline _Noreturn void run_guarded_job(const char *name, int out)
{
    if (strcmp(name, "exit7") == 0) {
        _exit(7);
    } else if (strcmp(name, "kill9") == 0) {
        (void)raise(SIGKILL);
    } else if (strcmp(name, "stubborn") == 0) {
        be_stubborn(out);
    } else if (strcmp(name, "storm") == 0) {
        be_storm(out);
    } else if (strcmp(name, "obedient") == 0) {
        be_obedient(out);
    } else if (strcmp(name, "signalled") == 0) {
        job_signalled(out);
    } else if (strcmp(name, "tick") == 0) {
        job_tick(out);
    } else if (strcmp(name, "daemon") == 0) {
        job_leave_daemon(out);
    } else if (strcmp(name, "loss") == 0) {
        job_await_loss(out);
    } else if (strcmp(name, "around") == 0) {
        job_look_around(out);
    }
    _exit(96);
}

/* ---- The keeper's side ---- */

struct run {
    struct pk_guard g;
    struct line l;
};

static char *const self[] = {"/proc/self/exe", NULL};

/* Forks a guardian for the job of that name. */
static inline struct run prepare(struct pk_guard_options *o)
{
    struct run run;
    set_up();
    run.l = line_open();
    if (o->argv == NULL) {
        o->argv = self;
    }
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0); /* is for pk_guard_start() to set */
    CHECK_U64(pk_guard_start(&run.g, o), 0);
    pk_guard_safe_until(&run.g, pk_clock_ms() + FAR_MS);
    return run;
}

static inline void go(struct run *run, const char *job)
{
    char name[64];
    char fd[32];
    const char *env[] = {name, fd, NULL};
    (void)snprintf(name, sizeof name, "TEST_JOB=%s", job);
    (void)snprintf(fd, sizeof fd, "TEST_FD=%d", run->l.out);
    CHECK_U64(pk_guard_go(&run->g, env), 0);
    CHECK(close(run->l.out) == 0);
}

static inline struct run start(const char *job, struct pk_guard_options o)
{
    struct run run = prepare(&o);
    go(&run, job);
    return run;
}

static inline struct pk_guard_report next(struct run *run)
{
    struct pollfd p = {.fd = pk_guard_fd(&run->g), .events = POLLIN};
    struct pk_guard_report r;
    int n;
    do {
        n = poll(&p, 1, PATIENCE_MS);
    } while (n < 0 && errno == EINTR);
    CHECK(n == 1);
    CHECK_U64(pk_guard_report(&run->g, &r), 1);
    return r;
}

static inline struct pk_guard_report started(struct run *run)
{
    struct pk_guard_report r = next(run);
    CHECK_U64(r.event, PK_GUARD_STARTED);
    CHECK(r.pid > 0);
    return r;
}

static inline void finish(struct run *run)
{
    pk_guard_close(&run->g);
    CHECK(line_ends_within(&run->l, 0));
    CHECK(close(run->l.in) == 0);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

static inline void deadline_passes(struct run *run)
{
    pk_guard_safe_until(&run->g, pk_clock_ms());
}

#endif
