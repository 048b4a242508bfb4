/* SPDX-License-Identifier: MIT */
#include "cli/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/door.h"

void pk_job_save_signals(struct pk_job_signals *s)
{
    PK_ASSERT(sigprocmask(SIG_SETMASK, NULL, &s->mask) == 0);
    sigemptyset(&s->ignored);
    for (int signo = 1; signo <= SIGRTMAX; signo++) {
        struct sigaction action;
        /* The C library keeps two for itself and refuses to speak of them. */
        if (sigaction(signo, NULL, &action) == 0 && action.sa_handler == SIG_IGN) {
            sigaddset(&s->ignored, signo);
        }
    }
}

static void restore_signals(const struct pk_job_signals *s)
{
    for (int signo = 1; signo <= SIGRTMAX; signo++) {
        struct sigaction action = {.sa_handler = SIG_DFL};
        if (sigismember(&s->ignored, signo) == 1) {
            action.sa_handler = SIG_IGN;
        }
        (void)sigaction(signo, &action,
                        NULL); /* SIGKILL and the like: nothing to restore */
    }
    PK_ASSERT(sigprocmask(SIG_SETMASK, &s->mask, NULL) == 0);
}

void pk_job_set_env(const char *env, size_t size)
{
    for (const char *at = env; at < env + size; at += strlen(at) + 1) {
        const char *equals = strchr(at, '=');
        PK_ASSERT(equals != NULL && equals > at);
        char *name = strndup(at, (size_t)(equals - at));
        PK_ASSERT(name != NULL && setenv(name, equals + 1, 1) == 0);
        free(name);
    }
}

int pk_job_pack_env(const char *const env[], char *buf, size_t room)
{
    size_t used = 0;
    for (size_t i = 0; env != NULL && env[i] != NULL; i++) {
        size_t size = strlen(env[i]) + 1;
        if (env[i][0] == '=' || strchr(env[i], '=') == NULL) {
            return -EINVAL;
        }
        if (size > room - used) {
            return -E2BIG;
        }
        memcpy(buf + used, env[i], size);
        used += size;
    }
    return (int)used;
}

int pk_job_give_loss_fd(int fd)
{
    char number[16];
    (void)snprintf(number, sizeof number, "%d", fd);
    if (fcntl(fd, F_SETFD, 0) < 0 || setenv("PICKET_LOSS_FD", number, 1) < 0) {
        return errno;
    }
    return 0;
}

int pk_job_exec_code(int error)
{
    return error == ENOENT ? 127 : 126;
}

/* The child's way to exec. Returns the errno of what failed. */
static int become(const struct pk_job_options *o, pid_t parent, int loss_fd)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        return errno;
    }
    if (getppid() != parent) {
        _exit(1); /* it died before it could take us along */
    }
    if (setpgid(0, o->group) < 0) {
        return errno;
    }
    pk_job_set_env(o->env, o->env_size);
    int error = loss_fd < 0 ? 0 : pk_job_give_loss_fd(loss_fd);
    if (error != 0) {
        return error;
    }
    restore_signals(o->signals);
    (void)execvp(o->argv[0], o->argv);
    return errno;
}

static void close_pair(const int fds[2])
{
    for (int i = 0; i < 2; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

int pk_job_start(const struct pk_job_options *o, struct pk_job *job)
{
    int loss[2] = {-1, -1};
    int exec[2] = {-1, -1};
    pid_t parent = getpid();
    /* The loss pipe first, so that the job gets a low number: a shell's `<&3` takes one
     * digit. */
    if (o->loss_fd && pipe2(loss, O_CLOEXEC) < 0) {
        return -errno;
    }
    pid_t pid = pipe2(exec, O_CLOEXEC) < 0 ? -1 : fork();
    if (pid < 0) {
        int error = errno;
        close_pair(loss);
        close_pair(exec);
        return -error;
    }
    if (pid == 0) {
        int error = become(o, parent, loss[0]);
        ssize_t n = write(exec[1], &error, sizeof error);
        _exit(n == (ssize_t)sizeof error ? pk_job_exec_code(error) : 1);
    }
    if (o->loss_fd) {
        (void)close(loss[0]);
    }
    (void)close(exec[1]);
    *job = (struct pk_job){.pid = pid, .exec_fd = exec[0], .loss_fd = loss[1]};
    return 0;
}
