/* SPDX-License-Identifier: MIT */
#include "cli/supervise.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/deadline.h"
#include "cli/guard.h"
#include "cli/signals.h"
#include "cli/values.h"
#include "core/door.h"
#include "host/memory.h"

enum {
    TTL_MS = 10000,
    KILL_AFTER_MS = 5000,
    DELAY_BEYOND_KILL_MS = 1000, /* from the last SIGKILL to everybody being gone */
    OVERDUE_MS = 5000,           /* for a guardian that was told of a loss */
};

#define BY_KILL_AFTER UINT64_MAX /* of a lock-delay that was not given */

#define AT(field) offsetof(struct pk_supervise, field)
#define LEASE_AT(field) offsetof(struct pk_grant, field)

const struct pk_option pk_supervise_options[] = {
    {PK_OPTION_SPAN, 0, "kill-after", "TIME",
     "on loss, between SIGTERM and SIGKILL (default: 5s)", AT(kill_after_ms), 0,
     PK_DELAY_MAX_MS},
    {PK_OPTION_FLAG, 0, "wait-children", NULL,
     "the command ends with the last process that it\nstarted, and the lock is held "
     "until then",
     AT(wait_children), 0, 0},
    {PK_OPTION_FLAG, 0, "leave-children", NULL,
     "processes that outlive the command run on, although\nthe lock is released: "
     "nothing guards them",
     AT(leave_children), 0, 0},
    {PK_OPTION_FLAG, 'F', "no-fork", NULL,
     "become the command instead of being its parent; a\nhelper beside it keeps the "
     "lease, a loss shows as\n128+N, and processes that outlive the command are\nleft "
     "as with --leave-children",
     AT(no_fork), 0, 0},
    {0},
};

const struct pk_option pk_supervise_lease_options[] = {
    PK_GRANT_TTL("how long the lease outlives us (default: 10s)"),
    {PK_OPTION_SPAN, 0, "grace", "TIME",
     "when the lease can't be renewed in time, freeze the\ncommand for so long before it "
     "is "
     "killed (default: 0s)",
     LEASE_AT(grace_ms), 0, PK_TTL_MAX_MS},
    {PK_OPTION_SPAN, 0, "lock-delay", "TIME",
     "after an unclean end the lock stays closed so long\n(default: --kill-after + 1s "
     "with a command)",
     LEASE_AT(lock_delay_ms), 0, PK_DELAY_MAX_MS},
    {0},
};

/* What the guardian must learn of the keeper after the fork. */
struct heirloom {
    _Atomic uint64_t lease;
};

struct keeper {
    struct pk_supervise *s;
    struct pk_guard guard;
    struct heirloom *heirloom;
    struct picket *client;
    struct picket_lock *lock;
    int signal_fd;
    int alarm_fd;
    uint64_t told_ms; /* when the guardian was told of the loss; NEVER: not */
    uint32_t left;    /* processes that could not be ended */
    bool ours;        /* the command ended before the lock was lost */
};

void pk_supervise_make_env(const struct pk_supervise *s, struct picket *p,
                           struct picket_lock *l, const char *env[PK_SUPERVISE_ENV])
{
    char *made[PK_SUPERVISE_ENV] = {NULL};
    char *url = pk_cli_url(s->common);
    size_t count = 0;
    made[count++] = pk_memory_print("PICKET_LOCK=%s", s->grant->name);
    made[count++] = pk_memory_print("PICKET_LEASE=%" PRIu64, picket_lease(p));
    made[count++] = pk_memory_print("PICKET_TTL_MS=%" PRIu64, s->grant->ttl_ms);
    made[count++] = pk_memory_print("PICKET_URL=%s", url);
    if (picket_token(l) != 0) { /* a store without tokens: none is better than a 0 */
        made[count++] = pk_memory_print("PICKET_TOKEN=%" PRIu64, picket_token(l));
    }
    if (s->env != NULL) {
        made[count] = pk_memory_copy(s->env);
    }
    for (size_t i = 0; i < PK_SUPERVISE_ENV; i++) {
        env[i] = made[i];
    }
    free(url);
}

void pk_supervise_free_env(const char *env[PK_SUPERVISE_ENV])
{
    for (size_t i = 0; i < PK_SUPERVISE_ENV; i++) {
        free((void *)(uintptr_t)env[i]);
    }
}

const char *pk_supervise_reason(struct picket_lock *l)
{
    const char *reason = picket_loss_reason(l);
    return reason[0] != '\0' ? reason : "its lease was not renewed in time";
}

void pk_supervise_release(const struct pk_supervise *s, struct picket_lock *l)
{
    enum picket_status status = picket_release(l);
    if (status == PICKET_LOST || status == PICKET_NOTHELD) {
        pk_errors_remark("%s was lost (%s) before its command had ended; check its work",
                         s->grant->name, pk_supervise_reason(l));
    } else if (status != PICKET_OK) {
        pk_errors_remark("%s is free only when its lease ends: %s", s->grant->name,
                         picket_last_error());
    } else {
        pk_errors_detail("%s released", s->grant->name);
    }
}

void pk_supervise_say_left(uint32_t left)
{
    (void)pk_errors_fail(
        "%" PRIu32 " of its processes could not be killed; look for them", left);
}

/* In the guardian, after the keeper died and the tree is gone: nobody else will give the
 * lease back. */
static void close_orphan(void *ctx)
{
    const struct keeper *k = ctx;
    uint64_t lease = atomic_load(&k->heirloom->lease);
    struct picket *p;
    if (lease == 0 || picket_open(k->s->common->url, NULL, &p) != PICKET_OK) {
        return;
    }
    if (picket_lease_close(p, lease) != PICKET_OK) {
        pk_errors_detail("lease %" PRIu64 " is left to end by itself", lease);
    }
    picket_close(p);
}

/* Everything that wants a process with one thread. 0, or an exit code. */
static int prepare(struct keeper *k)
{
    struct pk_guard_options o = {
        .argv = k->s->argv,
        .kill_after_ms = (uint32_t)k->s->kill_after_ms,
        .grace_ms = (uint32_t)k->s->grant->grace_ms,
        .loss_fd = true,
        .children = k->s->wait_children    ? PK_GUARD_WAIT_CHILDREN
                    : k->s->leave_children ? PK_GUARD_LEAVE_CHILDREN
                                           : PK_GUARD_END_CHILDREN,
        .orphaned_cb = close_orphan,
        .ctx = k,
    };
    void *page = mmap(NULL, sizeof *k->heirloom, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return pk_errors_fail("out of memory");
    }
    k->heirloom = page;
    int error = pk_guard_start(&k->guard, &o);
    if (error == -ENOTSUP) {
        return pk_errors_fail(
            "there is no /proc to watch the command's processes by; mount it");
    }
    if (error < 0) {
        return pk_errors_fail("can't start the guardian: %s", strerror(-error));
    }
    k->signal_fd = pk_signals_catch();
    k->alarm_fd = k->signal_fd < 0 ? -1 : pk_timer_fd(0);
    if (k->signal_fd >= 0 && k->alarm_fd < 0) {
        (void)pk_errors_fail("can't set an alarm: %s", strerror(errno));
    }
    if (k->alarm_fd < 0) {
        pk_guard_close(&k->guard);
        return PK_EXIT_ERROR;
    }
    return 0;
}

static void renewed(uint64_t safe_until_ms, void *ctx)
{
    pk_guard_safe_until(ctx, safe_until_ms);
}

/* Takes the lock and lets the command go. -1 when it runs, or the code to exit with. */
static int launch(struct keeper *k)
{
    const char *env[PK_SUPERVISE_ENV];
    struct pk_grant_wait wait = {.signal_fd = k->signal_fd,
                                 .gone_fd = pk_guard_fd(&k->guard),
                                 .lease = &k->heirloom->lease};
    int code = pk_grant_open(k->s->common, k->s->grant, &k->client);
    if (code != 0) {
        return code;
    }
    code = pk_grant_take(k->client, k->s->grant, &wait, &k->lock);
    if (code != 0) {
        return code == PK_EXIT_SIGNAL
                   ? pk_errors_fail("the guardian died; nothing was run")
                   : code;
    }
    code = k->s->granted == NULL ? -1 : k->s->granted(k->s->ctx, k->client, k->lock);
    if (code >= 0) {
        return code;
    }
    uint64_t safe = picket_safe_until_ms(k->lock);
    if (safe == 0) {
        (void)pk_errors_fail("%s was lost at once: %s; nothing was run",
                             k->s->grant->name, pk_supervise_reason(k->lock));
        return PK_EXIT_LOST;
    }
    if (picket_loss_fd(k->lock) < 0) { /* else a break would go unnoticed */
        return pk_errors_status(PICKET_LIMIT);
    }
    picket_on_renewal(k->lock, renewed, &k->guard);
    pk_guard_safe_until(&k->guard, safe);
    pk_supervise_make_env(k->s, k->client, k->lock, env);
    int error = pk_guard_go(&k->guard, env);
    pk_supervise_free_env(env);
    return error < 0 ? pk_errors_fail("can't start the command: %s", strerror(-error))
                     : -1;
}

static void say_lost(struct keeper *k, const struct pk_guard_report *r)
{
    const char *name = k->s->grant->name;
    const char *done = "its command was ended";
    if (r->status == PK_GUARD_NO_STATUS && r->pid == 0) {
        done = "its command was not started";
    } else if (WIFSIGNALED(r->status) && WTERMSIG(r->status) == SIGKILL) {
        done = "its command was killed";
    }
    (void)pk_errors_fail("%s lost: %s; %s", name, pk_supervise_reason(k->lock), done);
    k->left = r->left;
}

/* The command ended by itself and had left processes behind. */
static void say_left_behind(const struct pk_supervise *s, const struct pk_guard_report *r)
{
    const char *ending = r->left == 1 ? "" : "es";
    if (s->leave_children) {
        pk_errors_remark("the command left %" PRIu32 " process%s behind (%s%s), running "
                         "on without the lock",
                         r->left, ending, r->name, r->left == 1 ? "" : ", ...");
    } else {
        pk_errors_remark("ended %" PRIu32 " process%s that the command left behind "
                         "(%s%s); --wait-children waits for them",
                         r->left, ending, r->name, r->left == 1 ? "" : ", ...");
    }
}

/* One report. The code to exit with, or -1: it goes on. */
static int hear(struct keeper *k, const struct pk_guard_report *r)
{
    const char *name = k->s->grant->name;
    char span[PK_SPAN_ROOM];
    switch (r->event) {
    case PK_GUARD_STARTED:
        pk_errors_detail("running %s, pid %d", k->s->argv[0], (int)r->pid);
        return -1;
    case PK_GUARD_FROZEN:
        pk_errors_remark(
            "%s can't be renewed in time; its command is frozen for up to %s", name,
            pk_values_span(k->s->grant->grace_ms, span));
        return -1;
    case PK_GUARD_THAWED:
        pk_errors_remark("%s is still ours; its command goes on", name);
        return -1;
    case PK_GUARD_EXITED:
        if (r->left > 0) {
            say_left_behind(k->s, r);
        }
        if (r->late) {
            pk_errors_remark("%s was lost before the last of its processes had ended; "
                             "check their work",
                             name);
        }
        break;
    case PK_GUARD_EXEC_FAILED:
        (void)pk_errors_fail("can't run %s: %s", k->s->argv[0], strerror(r->error));
        break;
    case PK_GUARD_LOST:
        say_lost(k, r);
        break;
    case PK_GUARD_GONE:
        (void)pk_errors_fail("the guardian died, so the command was ended");
        k->left = pk_guard_kill_all(&k->guard);
        break;
    }
    k->ours = r->event == PK_GUARD_EXITED || r->event == PK_GUARD_EXEC_FAILED;
    return pk_guard_exit_code(r);
}

static void pass_signals(struct keeper *k)
{
    struct signalfd_siginfo info;
    while (pk_signals_next(k->signal_fd, &info)) {
        if (pk_guard_should_forward(&info)) {
            (void)pk_guard_signal(&k->guard, (int)info.ssi_signo);
        }
    }
}

/* When a guardian that works would have reported the end of a lost command. */
static uint64_t overdue_ms(const struct keeper *k)
{
    return pk_deadline_min(pk_guard_overdue_ms(&k->guard),
                           pk_deadline_add(k->told_ms, k->s->kill_after_ms + OVERDUE_MS));
}

static int end_overdue(struct keeper *k)
{
    k->left = pk_guard_kill_all(&k->guard);
    (void)pk_errors_fail(
        "%s lost: %s; the guardian did not answer, so its command was killed "
        "without it",
        k->s->grant->name, pk_supervise_reason(k->lock));
    return PK_EXIT_LOST;
}

/* Until nothing of the command is left. */
static int attend(struct keeper *k)
{
    struct pk_guard_report r;
    struct pollfd fds[] = {{.fd = pk_guard_fd(&k->guard), .events = POLLIN},
                           {.fd = k->signal_fd, .events = POLLIN},
                           {.fd = picket_loss_fd(k->lock), .events = POLLIN},
                           {.fd = k->alarm_fd, .events = POLLIN}};
    for (;;) {
        pk_deadline_set(k->alarm_fd, overdue_ms(k));
        int n = poll(fds, 4, -1);
        PK_ASSERT(n >= 0 || errno == EINTR);
        pass_signals(k);
        if (n > 0 && fds[2].revents != 0) {
            (void)pk_guard_lost(&k->guard);
            k->told_ms = pk_clock_ms();
            fds[2].fd = -1;
            fds[2].revents = 0;
        }
        while (pk_guard_report(&k->guard, &r) == 1) {
            int code = hear(k, &r);
            if (code >= 0) {
                return code;
            }
        }
        if (pk_clock_ms() >= overdue_ms(k)) {
            return end_overdue(k);
        }
    }
}

void pk_supervise_defaults(struct pk_supervise *s, struct pk_grant *g,
                           const struct pk_common *c)
{
    *s = (struct pk_supervise){.common = c, .grant = g, .kill_after_ms = KILL_AFTER_MS};
    g->ttl_ms = TTL_MS;
    g->lock_delay_ms = BY_KILL_AFTER;
}

int pk_supervise_check(struct pk_supervise *s)
{
    s->grant->job = s->argv;
    if (s->grant->lock_delay_ms == BY_KILL_AFTER) {
        bool nobody_to_end = s->argv == NULL;
        uint64_t delay = nobody_to_end ? 0 : s->kill_after_ms + DELAY_BEYOND_KILL_MS;
        s->grant->lock_delay_ms = delay < PK_DELAY_MAX_MS ? delay : PK_DELAY_MAX_MS;
    }
    if (s->wait_children && s->leave_children) {
        return pk_errors_fail("--wait-children and --leave-children exclude each other; "
                              "leave out one of them");
    }
    if (s->no_fork && s->wait_children) {
        return pk_errors_fail("-F and --wait-children exclude each other; leave out one "
                              "of them");
    }
    if (s->no_fork && s->grant->grace_ms > 0) {
        return pk_errors_fail("-F and --grace exclude each other; leave out one of them");
    }
    return pk_grant_check(s->grant);
}

static int run_beside(struct pk_supervise *s)
{
    struct keeper k = {.s = s, .signal_fd = -1, .alarm_fd = -1};
    k.told_ms = PK_DEADLINE_NEVER;
    int code = prepare(&k);
    if (code != 0) {
        return code;
    }
    code = launch(&k);
    if (code < 0) {
        code = attend(&k);
        if (k.ours && s->ended != NULL) {
            code = s->ended(s->ctx, k.client, k.lock, code);
        }
        if (k.ours) {
            pk_supervise_release(s, k.lock);
        }
    }
    if (k.left > 0) {
        /* The lease must run its course, and the lock-delay after it. */
        pk_supervise_say_left(k.left);
        picket_detach(k.client);
    }
    /* The client first: its thread moves the guard's deadline. */
    picket_close(k.client);
    pk_guard_close(&k.guard);
    (void)close(k.signal_fd);
    (void)close(k.alarm_fd);
    (void)munmap(k.heirloom, sizeof *k.heirloom);
    return code;
}

int pk_supervise(struct pk_supervise *s)
{
    int code = pk_supervise_check(s);
    if (code >= 0) {
        return code;
    }
    /* Not that of a lock around us, should ours have none. */
    (void)unsetenv("PICKET_TOKEN");
    return s->no_fork ? pk_supervise_in_place(s) : run_beside(s);
}
