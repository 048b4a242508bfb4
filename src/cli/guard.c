/* SPDX-License-Identifier: MIT */
#include "cli/guard.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/deadline.h"
#include "cli/errors.h"
#include "cli/guardian.h"
#include "cli/procscan.h"
#include "cli/proctree.h"
#include "core/door.h"
#include "host/fd.h"

enum {
    KILL_PATIENCE_MS = 5000,
    OVERDUE_MS =
        5000, /* for a healthy guardian on a busy machine to find and kill a tree */
};

/* What the guardian is given, and the keeper keeps nothing of. */
static int make_channel(struct pk_guardian_options *o, int *keeper_end)
{
    int pair[2];
    void *page = mmap(NULL, sizeof *o->shared, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return -errno;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        int error = errno;
        (void)munmap(page, sizeof *o->shared);
        return -error;
    }
    o->shared = page;
    o->fd = pair[1];
    *keeper_end = pair[0];
    /* Opened by ourselves of ourselves: the guardian can't get somebody else's. */
    o->keeper_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    return 0;
}

int pk_guard_start(struct pk_guard *g, const struct pk_guard_options *o)
{
    struct pk_guardian_options guardian = {.guard = *o};
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    int keeper_end = -1;
    if (!pk_procscan_usable()) {
        return -ENOTSUP;
    }
    pk_job_save_signals(&guardian.signals);
    int error = make_channel(&guardian, &keeper_end);
    if (error < 0) {
        return error;
    }
    /* A SIGCHLD ignored by our caller would hide the guardian's end, and the job's from
     * it. */
    PK_ASSERT(sigaction(SIGCHLD, &by_default, NULL) == 0);
    PK_ASSERT(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(keeper_end);
        pk_guardian_run(&guardian);
    }
    error = pid < 0 ? -errno : 0;
    (void)close(guardian.fd);
    if (guardian.keeper_fd >= 0) {
        (void)close(guardian.keeper_fd);
    }
    if (error < 0) {
        (void)close(keeper_end);
        (void)munmap(guardian.shared, sizeof *guardian.shared);
        return error;
    }
    *g = (struct pk_guard){.pid = pid, .fd = keeper_end, .shared = guardian.shared};
    g->kill_after_ms = o->kill_after_ms;
    g->grace_ms = o->grace_ms;
    return 0;
}

static int say(struct pk_guard *g, const void *message, size_t size)
{
    return pk_fd_send(g->fd, message, size, MSG_DONTWAIT) ? 0 : -errno;
}

/* Orders without environment strings travel without the room for them. */
static int say_order(struct pk_guard *g, enum pk_guard_order order, int value)
{
    struct {
        enum pk_guard_order order;
        int value;
        uint32_t env_size;
    } head = {order, value, 0};
    return say(g, &head, sizeof head);
}

void pk_guard_safe_until(struct pk_guard *g, uint64_t ms)
{
    PK_ASSERT(ms != 0);
    uint64_t before = atomic_exchange(&g->shared->safe_until_ms, ms);
    if (ms < before || atomic_load(&g->shared->wake) != 0) {
        /* Fails when the guardian is gone, or has unread messages that wake it as
         * well. */
        (void)say_order(g, PK_GUARD_ORDER_LOOK, 0);
    }
}

int pk_guard_go(struct pk_guard *g, const char *const env[])
{
    static struct pk_guard_message m;
    if (atomic_load(&g->shared->safe_until_ms) == 0) {
        return -EINVAL;
    }
    int used = pk_job_pack_env(env, m.env, sizeof m.env);
    if (used < 0) {
        return used;
    }
    m.order = PK_GUARD_ORDER_GO;
    m.env_size = (uint32_t)used;
    return say(g, &m, offsetof(struct pk_guard_message, env) + m.env_size);
}

int pk_guard_signal(struct pk_guard *g, int signo)
{
    return say_order(g, PK_GUARD_ORDER_SIGNAL, signo);
}

int pk_guard_lost(struct pk_guard *g)
{
    return say_order(g, PK_GUARD_ORDER_LOST, 0);
}

int pk_guard_fd(const struct pk_guard *g)
{
    return g->fd;
}

int pk_guard_report(struct pk_guard *g, struct pk_guard_report *r)
{
    for (;;) {
        ssize_t n = recv(g->fd, r, sizeof *r, MSG_DONTWAIT);
        if (n == (ssize_t)sizeof *r) {
            return 1;
        }
        if (n < 0 && errno == EAGAIN) {
            return 0;
        }
        /* ECONNRESET: it left messages of ours unread; its own reports come after it. */
        if (n < 0 && (errno == EINTR || errno == ECONNRESET)) {
            continue;
        }
        /* The end, or a socket that is no use any more: kill_all() is right for both. */
        *r = (struct pk_guard_report){.event = PK_GUARD_GONE,
                                      .status = PK_GUARD_NO_STATUS};
        return 1;
    }
}

static uint64_t deadline(const struct pk_guard *g)
{
    uint64_t ms = atomic_load(&g->shared->safe_until_ms);
    return ms == 0 ? PK_DEADLINE_NEVER : ms;
}

uint64_t pk_guard_overdue_ms(const struct pk_guard *g)
{
    uint64_t end = g->grace_ms > 0 ? g->grace_ms : g->kill_after_ms;
    return pk_deadline_add(pk_deadline_add(deadline(g), end), OVERDUE_MS);
}

static void reap_guardian(struct pk_guard *g)
{
    while (g->pid > 0 && waitpid(g->pid, NULL, 0) < 0) {
        PK_ASSERT(errno == EINTR || errno == ECHILD);
        if (errno == ECHILD) {
            break;
        }
    }
    g->pid = 0;
}

uint32_t pk_guard_kill_all(struct pk_guard *g)
{
    if (g->pid > 0) {
        /* Our child and not reaped: the pid is its. Its tree falls to us when it is
         * dead. */
        (void)kill(g->pid, SIGKILL);
        reap_guardian(g);
    }
    uint64_t safe = deadline(g);
    uint64_t limit = g->grace_ms > 0 ? safe : pk_deadline_add(safe, g->kill_after_ms);
    uint32_t kill_after = pk_deadline_left(limit, g->kill_after_ms);
    return kill_after == 0 ? pk_proctree_kill(0, false, KILL_PATIENCE_MS)
                           : pk_proctree_end(0, false, kill_after, KILL_PATIENCE_MS);
}

/* Whether the guardian leaves before it is overdue: its end of the socket goes with
 * it. */
static bool guardian_leaves(struct pk_guard *g)
{
    struct pollfd fds[] = {{.fd = g->fd}, {.fd = pk_timer_fd(0), .events = POLLIN}};
    uint64_t patience = (uint64_t)g->kill_after_ms + OVERDUE_MS;
    if (fds[1].fd < 0) {
        return false;
    }
    pk_deadline_set(fds[1].fd, pk_deadline_add(pk_clock_ms(), patience));
    int n;
    do {
        n = poll(fds, 2, -1);
    } while (n < 0 && errno == EINTR);
    (void)close(fds[1].fd);
    return n > 0 && fds[0].revents != 0;
}

void pk_guard_close(struct pk_guard *g)
{
    if (g->pid > 0) {
        (void)say_order(g, PK_GUARD_ORDER_QUIT, 0);
        if (!guardian_leaves(g)) {
            (void)pk_guard_kill_all(g);
        }
    }
    reap_guardian(g);
    (void)close(g->fd);
    (void)munmap(g->shared, sizeof *g->shared);
    *g = (struct pk_guard){.fd = -1};
}

int pk_guard_exit_code(const struct pk_guard_report *r)
{
    switch (r->event) {
    case PK_GUARD_EXITED:
        return WIFSIGNALED(r->status) ? PK_EXIT_SIGNAL + WTERMSIG(r->status)
                                      : WEXITSTATUS(r->status);
    case PK_GUARD_EXEC_FAILED:
        return pk_job_exec_code(r->error);
    case PK_GUARD_LOST:
        return PK_EXIT_LOST;
    case PK_GUARD_GONE:
    case PK_GUARD_STARTED:
    case PK_GUARD_FROZEN:
    case PK_GUARD_THAWED:
        break;
    }
    return PK_EXIT_ERROR;
}

void pk_guard_signals(sigset_t *set)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,   SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        sigaddset(set, signals[i]);
    }
}

bool pk_guard_should_forward(const struct signalfd_siginfo *info)
{
    sigset_t set;
    int signo = (int)info->ssi_signo;
    pk_guard_signals(&set);
    if (sigismember(&set, signo) != 1) {
        return false;
    }
    /* A hangup goes from the kernel to the session's leader alone. */
    bool only_to_us = signo == SIGHUP && getsid(0) == getpid();
    return info->ssi_code != SI_KERNEL || only_to_us;
}
