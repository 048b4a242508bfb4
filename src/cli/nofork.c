/* SPDX-License-Identifier: MIT */
#include "cli/nofork.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/deadline.h"
#include "cli/errors.h"
#include "cli/fds.h"
#include "cli/guardian.h"
#include "cli/job.h"
#include "cli/procscan.h"
#include "cli/proctree.h"
#include "core/door.h"
#include "host/fd.h"

enum { KILL_PATIENCE_MS = 5000 };

/* Everything that both sides share; [0] is the job's end of each pair, [1] the
 * helper's. */
struct channel {
    int fd[2];
    int loss[2];
    int job_fd;
};

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
}

static int open_channel(struct channel *c, bool loss_fd)
{
    *c = (struct channel){{-1, -1}, {-1, -1}, -1};
    /* The loss pipe first: its number is the job's to see, and a low one is handier. */
    if (loss_fd && pipe2(c->loss, O_CLOEXEC) < 0) {
        return -errno;
    }
    /* Opened by the job of itself: the helper can't get somebody else's. */
    c->job_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (c->job_fd < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c->fd) < 0) {
        int error = errno;
        close_all(c->loss, 2);
        close_all(&c->job_fd, 1);
        return -error;
    }
    return 0;
}

static void become_helper(struct pk_nofork *n, const struct channel *c)
{
    sigset_t all;
    sigfillset(&all);
    PK_ASSERT(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    PK_ASSERT(setsid() == getpid());
    (void)prctl(PR_SET_NAME, "picket guard");
    n->fd = pk_fds_raise(c->fd[1]);
    n->loss_fd = pk_fds_raise(c->loss[1]);
    n->job_fd = pk_fds_raise(c->job_fd);
    n->poke_fd = pk_fds_raise(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    n->alarm_fd = pk_fds_raise(pk_timer_fd(0));
    if (n->poke_fd < 0 || n->alarm_fd < 0) { /* before the command runs unguarded */
        _exit(pk_errors_fail("can't watch over the command: %s", strerror(errno)));
    }
    const int own[] = {n->fd, n->loss_fd, n->job_fd, n->poke_fd, n->alarm_fd};
    pk_fds_drop_inherited(own, sizeof own / sizeof own[0]);
}

/* Waits for the process that only stood between us and the helper; its exit code is an
 * errno. */
static int await_middle(pid_t middle)
{
    int status = 0;
    while (waitpid(middle, &status, 0) < 0) {
        PK_ASSERT(errno == EINTR || errno == ECHILD);
        if (errno == ECHILD) {
            return 0; /* SIGCHLD is ignored; a helper that isn't there will be noticed */
        }
    }
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int pk_nofork_split(struct pk_nofork *n, uint32_t kill_after_ms, bool loss_fd)
{
    struct channel c;
    if (!pk_procscan_usable()) {
        return -ENOTSUP;
    }
    int error = open_channel(&c, loss_fd);
    if (error < 0) {
        return error;
    }
    *n = (struct pk_nofork){.fd = c.fd[0], .loss_fd = c.loss[0], .job = getpid()};
    n->job_fd = -1;
    n->poke_fd = -1;
    n->alarm_fd = -1;
    n->kill_after_ms = kill_after_ms;
    pid_t middle = fork();
    if (middle == 0) {
        pid_t helper = fork();
        if (helper == 0) {
            become_helper(n, &c);
            return PK_NOFORK_HELPER;
        }
        _exit(helper < 0 ? errno : 0);
    }
    error = middle < 0 ? -errno : await_middle(middle);
    close_all(&c.fd[1], 1);
    close_all(&c.loss[1], 1);
    close_all(&c.job_fd, 1);
    if (error < 0) {
        close_all(&c.fd[0], 1);
        close_all(&c.loss[0], 1);
        return error;
    }
    return PK_NOFORK_JOB;
}

int pk_nofork_become(struct pk_nofork *n, char *const argv[])
{
    static struct pk_guard_message m;
    ssize_t size;
    do {
        size = recv(n->fd, &m, sizeof m, 0);
    } while (size < 0 && errno == EINTR);
    if (size <= 0) {
        return PK_EXIT_ERROR;
    }
    PK_ASSERT((size_t)size == offsetof(struct pk_guard_message, env) + m.env_size);
    if (m.order != PK_GUARD_ORDER_GO) {
        return m.value;
    }
    /* Not before now: the helper, orphaned while we were one, would have become our
     * child. */
    PK_ASSERT(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    pk_job_set_env(m.env, m.env_size);
    int error = n->loss_fd < 0 ? 0 : pk_job_give_loss_fd(n->loss_fd);
    if (error != 0) {
        return pk_errors_fail("can't tell the command of a loss: %s", strerror(error));
    }
    (void)execvp(argv[0], argv);
    return pk_job_exec_code(errno);
}

int pk_nofork_fd(const struct pk_nofork *n)
{
    return n->job_fd;
}

static void poke(struct pk_nofork *n)
{
    /* Fails only when so many pokes are unread that it is awake anyway. */
    ssize_t written = write(n->poke_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written;
}

void pk_nofork_safe_until(struct pk_nofork *n, uint64_t ms)
{
    PK_ASSERT(ms != 0);
    uint64_t before = atomic_exchange(&n->safe_until_ms, ms);
    if (ms < before || before == 0) {
        poke(n);
    }
}

void pk_nofork_lost(struct pk_nofork *n)
{
    atomic_store(&n->lost, true);
    poke(n);
}

static int tell(struct pk_nofork *n, const struct pk_guard_message *m)
{
    size_t size = offsetof(struct pk_guard_message, env) + m->env_size;
    return pk_fd_send(n->fd, m, size, 0) ? 0 : -errno;
}

int pk_nofork_go(struct pk_nofork *n, const char *const env[])
{
    static struct pk_guard_message m;
    if (atomic_load(&n->safe_until_ms) == 0) {
        return -EINVAL;
    }
    int used = pk_job_pack_env(env, m.env, sizeof m.env);
    if (used < 0) {
        return used;
    }
    m.order = PK_GUARD_ORDER_GO;
    m.env_size = (uint32_t)used;
    return tell(n, &m);
}

int pk_nofork_exit(struct pk_nofork *n, int code)
{
    static struct pk_guard_message m;
    m.order = PK_GUARD_ORDER_QUIT;
    m.value = code;
    m.env_size = 0;
    return tell(n, &m);
}

/* Sleeps until something may have changed. True when the job has ended. */
static bool job_ended(struct pk_nofork *n, int alarm_fd, uint64_t until_ms)
{
    struct pollfd fds[] = {{.fd = n->job_fd, .events = POLLIN},
                           {.fd = n->poke_fd, .events = POLLIN},
                           {.fd = alarm_fd, .events = POLLIN}};
    uint64_t pokes;
    pk_deadline_set(alarm_fd, until_ms);
    if (poll(fds, 3, -1) < 0) {
        PK_ASSERT(errno == EINTR || errno == ENOMEM);
        return false;
    }
    if (fds[1].revents != 0) {
        ssize_t got = read(n->poke_fd, &pokes, sizeof pokes);
        (void)got;
    }
    return fds[0].revents != 0;
}

enum pk_nofork_end pk_nofork_watch(struct pk_nofork *n, uint32_t *left)
{
    uint64_t now;
    uint64_t safe;
    *left = 0;
    do {
        safe = atomic_load(&n->safe_until_ms);
        safe = safe == 0 ? PK_DEADLINE_NEVER : safe;
        now = pk_clock_ms();
        if (now >= safe || atomic_load(&n->lost)) {
            break;
        }
    } while (!job_ended(n, n->alarm_fd, safe));
    bool lost = now >= safe || atomic_load(&n->lost);
    pk_fd_close(&n->alarm_fd);
    close_all(&n->loss_fd, 1);
    n->loss_fd = -1;
    if (!lost) {
        return PK_NOFORK_EXITED;
    }
    uint64_t limit = pk_deadline_add(safe, n->kill_after_ms);
    uint32_t kill_after = pk_deadline_left(limit, n->kill_after_ms);
    *left = pk_proctree_end(n->job, true, kill_after, KILL_PATIENCE_MS);
    return PK_NOFORK_LOST;
}
