/* SPDX-License-Identifier: MIT */
#include "cli/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/door.h"
#include "host/memory.h"

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
        char *name = pk_memory_copy_n(at, (size_t)(equals - at));
        if (setenv(name, equals + 1, 1) != 0) {
            pk_memory_out();
        }
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

/* The word to go: this byte, since a message can't be empty, and the environment
 * strings. */
enum { GO = 'g' };

/* Waits for the word. Without one there is nothing to do here: our parent is gone. */
static void await_go(int fd)
{
    static char message[1 + PK_JOB_ENV_MAX];
    ssize_t n;
    do {
        n = recv(fd, message, sizeof message, 0);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        _exit(1);
    }
    PK_ASSERT(message[0] == GO);
    pk_job_set_env(message + 1, (size_t)n - 1);
}

/* The child's way to exec. Returns the errno of what failed. */
static int become(const struct pk_job_options *o, pid_t parent, int go_fd, int loss_fd)
{
    sigset_t all;
    sigfillset(&all);
    PK_ASSERT(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        return errno;
    }
    if (getppid() != parent) {
        _exit(1); /* it died before it could take us along */
    }
    await_go(go_fd);
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

int pk_job_prepare(const struct pk_job_options *o, struct pk_job *job)
{
    int loss[2] = {-1, -1};
    int exec[2] = {-1, -1};
    int word[2] = {-1, -1};
    pid_t parent = getpid();
    pid_t pid = -1;
    /* The loss pipe first, so that the job gets a low number: a shell's `<&3` takes one
     * digit. */
    if ((!o->loss_fd || pipe2(loss, O_CLOEXEC) == 0) && pipe2(exec, O_CLOEXEC) == 0 &&
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, word) == 0) {
        pid = fork();
    }
    if (pid < 0) {
        int error = errno;
        close_pair(loss);
        close_pair(exec);
        close_pair(word);
        return -error;
    }
    if (pid == 0) {
        (void)close(word[1]);
        if (o->loss_fd) {
            (void)close(loss[1]);
        }
        int error = become(o, parent, word[0], loss[0]);
        ssize_t n = write(exec[1], &error, sizeof error);
        _exit(n == (ssize_t)sizeof error ? pk_job_exec_code(error) : 1);
    }
    if (o->loss_fd) {
        (void)close(loss[0]);
    }
    (void)close(exec[1]);
    (void)close(word[0]);
    *job = (struct pk_job){pid, word[1], exec[0], loss[1]};
    return 0;
}

int pk_job_go(struct pk_job *job, const char *env, size_t size)
{
    char go = GO;
    struct iovec parts[] = {{&go, 1}, {(char *)(uintptr_t)env, size}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n;
    do {
        n = sendmsg(job->go_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    int error = n < 0 ? -errno : 0;
    (void)close(job->go_fd);
    job->go_fd = -1;
    return error;
}
