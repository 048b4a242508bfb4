/* SPDX-License-Identifier: MIT */
/*
 * One loop: sleep until the next thing to do or the next event, take in the events, then
 * advance. Events only note what happened; advance() alone decides, from those notes and
 * the clock, so that no order of events leads elsewhere than another.
 *
 *     WAITING --go--> RUNNING <--thaw/freeze--> FROZEN
 *                        |                        |
 *                      ENDING (SIGTERM sent) --> KILLING --> DONE
 */
#include "cli/guardian.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/deadline.h"
#include "cli/errors.h"
#include "cli/fds.h"
#include "cli/proctree.h"
#include "core/door.h"
#include "host/fd.h"

enum {
    REAPED_PER_TURN = 1000, /* so that no storm of deaths keeps us from the clock */
    FREEZE_PATIENCE_MS = 500,
    REFREEZE_MS = 100,      /* while something does not stand still */
    MAIN_PATIENCE_MS = 500, /* for the main process to die first, and show its status */
    KILL_PATIENCE_MS = 2000,
    KILL_AGAIN_MS = 1000, /* while something does not die */
};

enum phase { WAITING, RUNNING, FROZEN, ENDING, KILLING, DONE };

struct guardian {
    const struct pk_guardian_options *o;
    int fd, keeper_fd, signal_fd, alarm_fd;
    struct pk_job job;
    struct pk_proctree_reaper reaper;
    enum phase phase;
    /* Notes of events. */
    bool keeper_gone;
    bool quit;
    bool lost; /* said the keeper */
    bool main_ended;
    bool childless;
    bool reap_more; /* not all the dead have been reaped */
    int status;     /* of the main process, once it has ended */
    int exec_error;
    /* What was decided. */
    bool started;
    bool by_loss; /* the tree is being ended because of a loss, not of the main's end */
    bool main_given_up; /* its status is not waited for any more */
    bool reported;      /* the last report is out */
    uint32_t left;
    char left_name[PK_PROC_NAME_MAX]; /* of the first of them */
    uint64_t kill_at; /* from the moment of SIGTERM; the limit() may come sooner */
    uint64_t look_at; /* FROZEN, KILLING: do it again then */
};

static uint64_t safe_until(const struct guardian *g)
{
    uint64_t ms = atomic_load(&g->o->shared->safe_until_ms);
    return ms == 0 ? PK_DEADLINE_NEVER : ms;
}

/* Nothing of the tree may run after this. */
static uint64_t limit(const struct guardian *g)
{
    uint64_t safe = safe_until(g);
    bool grace = g->o->guard.grace_ms > 0;
    return grace ? safe : pk_deadline_add(safe, g->o->guard.kill_after_ms);
}

static uint64_t kill_time(const struct guardian *g)
{
    return pk_deadline_min(g->kill_at, limit(g));
}

static void report(const struct guardian *g, struct pk_guard_report r)
{
    r.pid = g->started ? g->job.pid : 0;
    /* Fails when the keeper is gone, or stopped for so long that hundreds are unread.
     * Either way it misses nothing: our end of the socket, when we go, is what it acts
     * upon. */
    (void)pk_fd_send(g->fd, &r, sizeof r, MSG_DONTWAIT);
}

static void report_end(struct guardian *g)
{
    struct pk_guard_report r = {.event = PK_GUARD_LOST, .status = PK_GUARD_NO_STATUS};
    r.status = g->started ? g->status : r.status;
    r.left = g->left;
    memcpy(r.name, g->left_name, sizeof r.name);
    r.late = pk_clock_ms() >= safe_until(g);
    r.error = g->exec_error;
    if (g->started && g->exec_error != 0) {
        r.event = PK_GUARD_EXEC_FAILED;
    } else if (!g->by_loss) {
        r.event = PK_GUARD_EXITED;
    }
    if (!g->reported) {
        report(g, r);
    }
    g->reported = true;
}

static void close_loss_pipe(struct guardian *g)
{
    if (g->job.loss_fd >= 0) {
        (void)close(g->job.loss_fd);
        g->job.loss_fd = -1;
    }
}

/* Learns how the exec went; ready once the pipe is readable, or its writer dead. */
static void read_exec_result(struct guardian *g)
{
    int error = 0;
    ssize_t n;
    do {
        n = read(g->job.exec_fd, &error, sizeof error);
    } while (n < 0 && errno == EINTR);
    (void)close(g->job.exec_fd);
    g->job.exec_fd = -1;
    if (n == (ssize_t)sizeof error) {
        g->exec_error = error;
    } else if (g->started && g->exec_error == 0) {
        report(g, (struct pk_guard_report){.event = PK_GUARD_STARTED,
                                           .status = PK_GUARD_NO_STATUS});
    }
}

static void note_reaped(void *ctx, pid_t pid, int status)
{
    struct guardian *g = ctx;
    if (pid == g->job.pid) {
        g->main_ended = true;
        g->status = status;
    }
}

static void reap(struct guardian *g)
{
    enum pk_proctree_children c = pk_proctree_reap(REAPED_PER_TURN, &g->reaper);
    g->childless = c == PK_CHILDREN_NONE;
    g->reap_more = c == PK_CHILDREN_MORE;
}

static void conclude(struct guardian *g)
{
    if (g->job.exec_fd >= 0) {
        read_exec_result(g);
    }
    close_loss_pipe(g);
    report_end(g);
    g->phase = DONE;
}

static void begin_ending(struct guardian *g, bool by_loss)
{
    uint64_t now = pk_clock_ms();
    bool frozen = g->phase == FROZEN;
    atomic_store(&g->o->shared->wake, 0);
    g->by_loss = by_loss;
    g->look_at = 0;
    g->kill_at = frozen ? now : pk_deadline_add(now, g->o->guard.kill_after_ms);
    if (by_loss) {
        close_loss_pipe(g);
    }
    if (g->childless) {
        conclude(g);
        return;
    }
    g->left = by_loss ? 0 : pk_proctree_count(0, false, g->left_name);
    g->phase = KILLING;
    /* A frozen process would have to run to obey a SIGTERM, and its time is over. */
    if (!frozen && now < kill_time(g)) {
        (void)pk_proctree_signal(0, false, SIGTERM, &g->reaper);
        (void)pk_proctree_signal(0, false, SIGCONT, &g->reaper);
        g->phase = ENDING;
    }
}

static void freeze(struct guardian *g)
{
    uint32_t moving = pk_proctree_freeze(0, false, FREEZE_PATIENCE_MS, &g->reaper);
    uint64_t again = pk_deadline_add(pk_clock_ms(), REFREEZE_MS);
    g->look_at = moving == 0 ? PK_DEADLINE_NEVER : again;
}

static void begin_frozen(struct guardian *g)
{
    freeze(g);
    g->phase = FROZEN;
    /* Before the next look at safe_until_ms; see struct pk_guard_shared. */
    atomic_store(&g->o->shared->wake, 1);
    report(g, (struct pk_guard_report){.event = PK_GUARD_FROZEN,
                                       .status = PK_GUARD_NO_STATUS});
}

static void end_frozen(struct guardian *g)
{
    atomic_store(&g->o->shared->wake, 0);
    g->phase = RUNNING;
    pk_proctree_thaw(0, false);
    report(g, (struct pk_guard_report){.event = PK_GUARD_THAWED,
                                       .status = PK_GUARD_NO_STATUS});
}

static bool told_to_end(const struct guardian *g)
{
    return g->keeper_gone || g->quit || g->lost;
}

/* Whether the main process' end ends the job: not while its children are waited for. */
static bool job_ended(const struct guardian *g)
{
    bool waits = g->o->guard.children == PK_GUARD_WAIT_CHILDREN;
    return g->exec_error != 0 || (g->main_ended && (g->childless || !waits));
}

/* The children may run on only as long as the lock is ours to release. */
static bool may_leave(const struct guardian *g)
{
    return g->o->guard.children == PK_GUARD_LEAVE_CHILDREN && g->exec_error == 0 &&
           !told_to_end(g) && pk_clock_ms() < safe_until(g);
}

static void leave_children(struct guardian *g)
{
    g->left = pk_proctree_count(0, false, g->left_name);
    conclude(g);
}

static void advance_running(struct guardian *g)
{
    if (job_ended(g) && may_leave(g)) {
        leave_children(g);
    } else if (job_ended(g)) {
        begin_ending(g, false);
    } else if (told_to_end(g)) {
        begin_ending(g, true);
    } else if (pk_clock_ms() >= safe_until(g)) {
        if (g->o->guard.grace_ms > 0) {
            begin_frozen(g);
        } else {
            begin_ending(g, true);
        }
    }
}

static void advance_frozen(struct guardian *g)
{
    uint64_t safe = safe_until(g);
    uint64_t now = pk_clock_ms();
    bool expired = now >= pk_deadline_add(safe, g->o->guard.grace_ms);
    if (job_ended(g)) {
        begin_ending(g, false);
    } else if (told_to_end(g) || expired) {
        begin_ending(g, true);
    } else if (now < safe) {
        end_frozen(g);
    } else if (now >= g->look_at) {
        freeze(g);
    }
}

static void advance_ending(struct guardian *g)
{
    uint64_t now = pk_clock_ms();
    if (now >= safe_until(g)) {
        close_loss_pipe(g);
    }
    if (g->childless) {
        conclude(g);
    } else if (now >= kill_time(g)) {
        g->phase = KILLING;
    }
}

/* The first blow, to everybody at once; then the status of the main process is waited
 * for, since pk_proctree_kill() doesn't keep it. */
static void kill_main(struct guardian *g)
{
    (void)pk_proctree_signal(0, false, SIGKILL, &g->reaper);
    if (!g->main_ended && !g->main_given_up) {
        g->main_ended = pk_proctree_kill_child(g->job.pid, MAIN_PATIENCE_MS, &g->status);
        g->main_given_up = true; /* its pid may be somebody else's after this */
    }
}

static void advance_killing(struct guardian *g)
{
    uint32_t left = 0;
    if (!g->childless && pk_clock_ms() < g->look_at) {
        return;
    }
    if (!g->childless) {
        kill_main(g);
        left = pk_proctree_kill(0, false, KILL_PATIENCE_MS);
        g->childless = left == 0;
    }
    if (g->childless) {
        g->left = g->by_loss ? 0 : g->left;
        conclude(g);
        return;
    }
    /* An exit is reported only when the tree is gone: until then the lock stays with it.
     * A loss can't wait, since the lock doesn't. */
    if (g->by_loss) {
        g->left = left;
        report_end(g);
    }
    g->look_at = pk_deadline_add(pk_clock_ms(), KILL_AGAIN_MS);
}

static void advance(struct guardian *g)
{
    enum phase before;
    do {
        before = g->phase;
        switch (g->phase) {
        case WAITING:
            if (told_to_end(g)) {
                g->by_loss = true;
                g->phase = KILLING;
            }
            break;
        case RUNNING:
            advance_running(g);
            break;
        case FROZEN:
            advance_frozen(g);
            break;
        case ENDING:
            advance_ending(g);
            break;
        case KILLING:
            advance_killing(g);
            break;
        case DONE:
            break;
        }
    } while (g->phase != before);
}

static uint64_t next_time(const struct guardian *g)
{
    uint64_t safe = safe_until(g);
    switch (g->phase) {
    case RUNNING:
        return safe;
    case FROZEN:
        return pk_deadline_min(pk_deadline_add(safe, g->o->guard.grace_ms), g->look_at);
    case ENDING:
        return g->job.loss_fd >= 0 ? pk_deadline_min(safe, kill_time(g)) : kill_time(g);
    case KILLING:
        return g->look_at;
    case WAITING:
    case DONE:
        break;
    }
    return PK_DEADLINE_NEVER;
}

static void on_go(struct guardian *g, const struct pk_guard_message *m)
{
    if (g->phase != WAITING || told_to_end(g)) {
        return; /* one of the keeper's threads said so while another one said go */
    }
    if (pk_clock_ms() >= safe_until(g)) {
        g->lost = true;
        return;
    }
    if (g->exec_error == 0) {
        /* If somebody has killed it, it ends as if just after the start. */
        int error = pk_job_go(&g->job, m->env, m->env_size);
        g->exec_error = error == -EPIPE || error == -ECONNRESET ? 0 : -error;
    }
    g->started = true;
    g->phase = RUNNING;
}

/* To the main process or, when its children are waited for, to all of them. */
static void pass_signal(struct guardian *g, int signo)
{
    /* Not reaped yet, so the pid is still its. */
    if (g->job.pid > 0 && !g->main_ended && !g->main_given_up) {
        (void)kill(g->job.pid, signo);
    } else if (g->main_ended && (g->phase == RUNNING || g->phase == FROZEN)) {
        (void)pk_proctree_signal(0, false, signo, &g->reaper);
    }
}

static void on_message(struct guardian *g, const struct pk_guard_message *m)
{
    switch (m->order) {
    case PK_GUARD_ORDER_GO:
        on_go(g, m);
        break;
    case PK_GUARD_ORDER_SIGNAL:
        if (!(g->phase == FROZEN && m->value == SIGCONT)) {
            pass_signal(g, m->value);
        }
        break;
    case PK_GUARD_ORDER_LOST:
        g->lost = true;
        break;
    case PK_GUARD_ORDER_LOOK:
        break;
    case PK_GUARD_ORDER_QUIT:
        g->quit = true;
        break;
    }
}

/* Takes in all that the keeper has said; its end means that the keeper is gone. */
static void on_socket(struct guardian *g)
{
    static struct pk_guard_message m;
    for (;;) {
        ssize_t n = recv(g->fd, &m, sizeof m, MSG_DONTWAIT);
        bool again = n < 0 && (errno == EINTR || errno == ECONNRESET);
        if (n > 0) {
            PK_ASSERT((size_t)n == offsetof(struct pk_guard_message, env) + m.env_size);
            on_message(g, &m);
        } else if (!again) {
            g->keeper_gone = n == 0 || errno != EAGAIN;
            return;
        }
    }
}

static void on_child_signal(struct guardian *g)
{
    struct signalfd_siginfo info;
    while (read(g->signal_fd, &info, sizeof info) > 0) {
        continue;
    }
    reap(g);
    /* In a frozen tree nobody ends or goes on by himself: somebody was overlooked, or
     * woken from outside (the shell's `fg` sends SIGCONT to the job's group). */
    if (g->phase == FROZEN) {
        g->look_at = 0;
    }
}

static void wait_for_events(struct guardian *g)
{
    enum { SOCKET, KEEPER, CHILD, ALARM, EXEC, COUNT };
    struct pollfd fds[COUNT] = {
        [SOCKET] = {.fd = g->keeper_gone ? -1 : g->fd, .events = POLLIN},
        [KEEPER] = {.fd = g->keeper_gone ? -1 : g->keeper_fd, .events = POLLIN},
        [CHILD] = {.fd = g->signal_fd, .events = POLLIN},
        [ALARM] = {.fd = g->alarm_fd, .events = POLLIN},
        [EXEC] = {.fd = g->started ? g->job.exec_fd : -1, .events = POLLIN},
    };
    pk_deadline_set(g->alarm_fd, next_time(g));
    if (poll(fds, COUNT, g->reap_more ? 0 : -1) < 0) {
        PK_ASSERT(errno == EINTR || errno == ENOMEM);
        return;
    }
    if (fds[EXEC].revents != 0) {
        read_exec_result(g);
    }
    if (fds[CHILD].revents != 0 || g->reap_more) {
        on_child_signal(g);
    }
    if (fds[SOCKET].revents != 0 || fds[KEEPER].revents != 0) {
        on_socket(g); /* what it said before it died counts */
    }
    g->keeper_gone = g->keeper_gone || fds[KEEPER].revents != 0;
}

static void prepare_job(struct guardian *g)
{
    struct pk_job_options o = {
        .argv = g->o->guard.argv,
        .loss_fd = g->o->guard.loss_fd,
        .signals = &g->o->signals,
    };
    int error = pk_job_prepare(&o, &g->job);
    if (error < 0) {
        g->exec_error = -error; /* told when it is asked for */
        g->childless = true;
    }
    g->job.go_fd = pk_fds_raise(g->job.go_fd);
    g->job.exec_fd = pk_fds_raise(g->job.exec_fd);
    g->job.loss_fd = pk_fds_raise(g->job.loss_fd);
}

static void set_up(struct guardian *g)
{
    sigset_t all;
    sigset_t child;
    /* Signals are the keeper's to handle. */
    sigfillset(&all);
    PK_ASSERT(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
    PK_ASSERT(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    g->fd = pk_fds_raise(g->o->fd);
    g->keeper_fd = pk_fds_raise(g->o->keeper_fd);
    g->signal_fd = pk_fds_raise(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    g->alarm_fd = pk_fds_raise(pk_timer_fd(0));
    if (g->signal_fd < 0 || g->alarm_fd < 0) {
        _exit(pk_errors_fail("can't watch over the command: %s", strerror(errno)));
    }
    prepare_job(g);
    /* The job stays in the keeper's session and group; we leave both, out of reach of
     * what is sent to them. See cli/job.h. */
    PK_ASSERT(setsid() == getpid());
    (void)prctl(PR_SET_NAME, "picket guard");
    const int own[] = {g->fd,        g->keeper_fd,   g->signal_fd,  g->alarm_fd,
                       g->job.go_fd, g->job.exec_fd, g->job.loss_fd};
    pk_fds_drop_inherited(own, sizeof own / sizeof own[0]);
}

_Noreturn void pk_guardian_run(const struct pk_guardian_options *o)
{
    struct guardian g = {
        .o = o,
        .phase = WAITING,
        .job = {.go_fd = -1, .exec_fd = -1, .loss_fd = -1},
        .status = PK_GUARD_NO_STATUS,
    };
    g.reaper = (struct pk_proctree_reaper){note_reaped, &g};
    set_up(&g);
    do {
        wait_for_events(&g);
        advance(&g);
    } while (g.phase != DONE || !(g.quit || g.keeper_gone));
    if (!g.quit && o->guard.orphaned_cb != NULL) {
        o->guard.orphaned_cb(o->guard.ctx);
    }
    _exit(0);
}
