/* SPDX-License-Identifier: MIT */
#include "cli/proctree.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/deadline.h"
#include "cli/procscan.h"
#include "core/door.h"

enum {
    SIGNAL_PASSES = 4, /* to catch what appears while a signal is handed out */
    QUIET_PASSES = 2,  /* that make a tree count as frozen, or a foreign one as gone */
    SIGNAL_PASSES_MS = 100,  /* and no further pass after this long */
    REAPED_PER_PASS = 10000, /* reaping one costs less than looking at it */
    WATCHED_MAX = 64,        /* deaths waited for at a time */
    NAP_FIRST_US = 200,      /* between two looks, when there is nothing to wait on */
    NAP_LONGEST_US = 20000,
    FREEZE_NAP_US = 2000, /* the same while freezing, which must not take long */
    FREEZE_BEFORE_KILL_MS = 200,
};

/* The root, by name and start, so that it can't turn into somebody else between two
 * passes. When it is not the caller, its death would scatter the tree; the roster
 * remembers everyone met so far, and each of them is a root in its turn. */
struct root {
    pid_t pid;
    uint64_t start;
    bool self;
    bool include;
    bool known;
    struct pk_proclist roster;
    const struct pk_proctree_reaper *reaper; /* NULL: leave the dead to somebody else */
};

static struct root root_of(pid_t pid, bool include_root)
{
    struct root root = {.include = include_root};
    struct pk_proc p;
    root.pid = pid == 0 ? getpid() : pid;
    root.self = root.pid == getpid();
    PK_ASSERT(!(root.self && include_root));
    if (!root.self && pk_procscan_read(root.pid, &p)) {
        root.known = true;
        root.start = p.start;
    }
    return root;
}

static void forget(struct root *root)
{
    pk_procscan_free(&root->roster);
}

static bool same(const struct pk_proc *a, const struct pk_proc *b)
{
    return a->pid == b->pid && a->start == b->start;
}

static bool listed(const struct pk_proclist *l, const struct pk_proc *p)
{
    for (size_t i = 0; i < l->count; i++) {
        if (same(&l->at[i], p)) {
            return true;
        }
    }
    return false;
}

/* Appends `p`, if it still lives and is to be a member, and everything below it. */
static void gather(const struct pk_proc *p, bool member, struct pk_proclist *l)
{
    struct pk_proclist below = {0};
    struct pk_proc now;
    pk_procscan_descendants(p->pid, &below, NULL, NULL);
    /* Asked after the scan: had it ended before, the scan may have seen another's
     * tree. */
    if (pk_procscan_read(p->pid, &now) && same(&now, p) && !now.dead) {
        if (member) {
            (void)pk_procscan_add(l, &now);
        }
        for (size_t i = 0; i < below.count; i++) {
            if (!below.at[i].dead && !listed(l, &below.at[i])) {
                (void)pk_procscan_add(l, &below.at[i]);
            }
        }
    }
    pk_procscan_free(&below);
}

/* Lists the live members of another process' tree. */
static void look_elsewhere(struct root *root, struct pk_proclist *l)
{
    struct pk_proc top = {.pid = root->pid, .start = root->start};
    l->count = 0;
    if (root->known) {
        gather(&top, root->include, l);
    }
    for (size_t i = 0; i < root->roster.count; i++) {
        const struct pk_proc *p = &root->roster.at[i];
        if (!same(p, &top) && !listed(l, p)) {
            gather(p, true, l);
        }
    }
    root->roster.count = 0;
    for (size_t i = 0; i < l->count; i++) {
        (void)pk_procscan_add(&root->roster, &l->at[i]);
    }
}

enum pk_proctree_children pk_proctree_reap(uint32_t most,
                                           const struct pk_proctree_reaper *reaper)
{
    for (uint32_t count = 0; count < most;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
        if (pid == 0) {
            return PK_CHILDREN_ALIVE;
        }
        if (pid < 0) {
            PK_ASSERT(errno == ECHILD || errno == EINTR);
            if (errno == ECHILD) {
                return PK_CHILDREN_NONE;
            }
            continue;
        }
        count++;
        if (reaper != NULL) {
            reaper->reaped_cb(reaper->ctx, pid, status);
        }
    }
    return PK_CHILDREN_MORE;
}

/* Lists the live members, parents first, and calls `visit_cb` for each as early as that
 * is safe. */
static void look(struct root *root, struct pk_proclist *l, pk_procscan_visit_cb *visit_cb,
                 void *ctx)
{
    size_t live = 0;
    if (root->self) {
        if (root->reaper != NULL) {
            (void)pk_proctree_reap(REAPED_PER_PASS, root->reaper);
        }
        pk_procscan_descendants(root->pid, l, visit_cb, ctx);
    } else {
        look_elsewhere(root, l);
    }
    for (size_t i = 0; i < l->count; i++) {
        if (!root->self && visit_cb != NULL) {
            visit_cb(ctx, &l->at[i]);
        }
        if (!l->at[i].dead) {
            l->at[live++] = l->at[i];
        }
    }
    l->count = live;
}

static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Signals exactly the process `p`: 0, or the errno. ESRCH: it is gone. */
static int hit(const struct pk_proc *p, int signo)
{
    struct pk_proc now;
    int error = 0;
    int fd = open_pidfd(p->pid);
    if (fd < 0 && errno == ESRCH) {
        return ESRCH;
    }
    /* The pid still names `p` after the pidfd was opened, so the pidfd does. */
    if (!pk_procscan_read(p->pid, &now) || now.start != p->start) {
        error = ESRCH;
    } else if (fd >= 0) {
        long sent = syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
        error = sent == 0 ? 0 : errno;
    } else {
        /* No pidfds here, or no descriptor left. */
        error = kill(p->pid, signo) == 0 ? 0 : errno;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return error;
}

static void nap(uint32_t *us, uint32_t longest_us)
{
    struct timespec t = {.tv_sec = 0, .tv_nsec = (long)*us * 1000L};
    (void)nanosleep(&t, NULL); /* cut short by a signal: one more look, no harm */
    *us = *us * 2 > longest_us ? longest_us : *us * 2;
}

static int by_identity(const void *a, const void *b)
{
    const struct pk_proc *x = a;
    const struct pk_proc *y = b;
    int order = (x->pid > y->pid) - (x->pid < y->pid);
    return order != 0 ? order : (x->start > y->start) - (x->start < y->start);
}

static bool contains(const struct pk_proclist *l, size_t sorted, const struct pk_proc *p)
{
    return sorted > 0 && bsearch(p, l->at, sorted, sizeof *p, by_identity) != NULL;
}

static uint32_t signal_members(struct root *root, int signo)
{
    struct pk_proclist now = {0};
    struct pk_proclist done = {0};
    uint32_t hits = 0;
    bool fresh = true;
    uint64_t until = pk_clock_ms() + SIGNAL_PASSES_MS;
    for (int pass = 0; fresh && pass < SIGNAL_PASSES; pass++) {
        size_t sorted = done.count;
        fresh = false;
        look(root, &now, NULL, NULL);
        for (size_t i = 0; i < now.count; i++) {
            size_t from_end = now.count - 1 - i;
            const struct pk_proc *p = &now.at[signo == SIGCONT ? from_end : i];
            if (!contains(&done, sorted, p)) {
                hits += hit(p, signo) == 0;
                fresh = pk_procscan_add(&done, p) || fresh;
            }
        }
        if (pk_clock_ms() >= until) {
            break;
        }
        if (done.count > 0) {
            qsort(done.at, done.count, sizeof *done.at, by_identity);
        }
    }
    pk_procscan_free(&now);
    pk_procscan_free(&done);
    return hits;
}

uint32_t pk_proctree_signal(pid_t root_pid, bool include_root, int signo,
                            const struct pk_proctree_reaper *reaper)
{
    struct root root = root_of(root_pid, include_root);
    root.reaper = reaper;
    uint32_t hits = signal_members(&root, signo);
    forget(&root);
    return hits;
}

/* One pass of stopping. */
struct stops {
    uint32_t sent;
    uint32_t denied;
};

static void stop(struct stops *s, const struct pk_proc *p)
{
    int error = hit(p, SIGSTOP);
    s->sent += error == 0;
    s->denied += error == EPERM;
}

static void stop_if_running(void *ctx, const struct pk_proc *p)
{
    bool stopped = p->dead || p->state == 'T' || p->state == 't';
    if (!stopped && p->state == 'Z') {
        stopped = pk_procscan_stopped(p->pid); /* its first thread has left */
    }
    if (!stopped) {
        stop(ctx, p);
    }
}

/* Stops whoever runs. A process that forks and exits at once, over and over, lives for a
 * tenth of a millisecond at a time; so it is signalled on sight, and the dead are cleared
 * away first. */
static struct stops stop_running(struct root *root, struct pk_proclist *l)
{
    struct stops s = {0};
    look(root, l, stop_if_running, &s);
    /* So far by their first threads only; the rest is looked at when those stand
     * still. */
    for (size_t i = 0; s.sent == 0 && i < l->count; i++) {
        if (!pk_procscan_stopped(l->at[i].pid)) {
            stop(&s, &l->at[i]);
        }
    }
    return s;
}

static uint32_t freeze(struct root *root, uint32_t patience_ms)
{
    struct pk_proclist l = {0};
    struct stops s;
    uint64_t until = pk_deadline_add(pk_clock_ms(), patience_ms);
    uint32_t us = NAP_FIRST_US;
    int quiet = 0;
    do {
        s = stop_running(root, &l);
        quiet = s.sent == 0 ? quiet + 1 : 0;
        if (s.sent > 0) {
            nap(&us, FREEZE_NAP_US);
        }
    } while (quiet < QUIET_PASSES && pk_clock_ms() < until);
    pk_procscan_free(&l);
    return s.sent + s.denied;
}

uint32_t pk_proctree_freeze(pid_t root_pid, bool include_root, uint32_t patience_ms,
                            const struct pk_proctree_reaper *reaper)
{
    struct root root = root_of(root_pid, include_root);
    root.reaper = reaper;
    uint32_t running = freeze(&root, patience_ms);
    forget(&root);
    return running;
}

void pk_proctree_thaw(pid_t root_pid, bool include_root)
{
    (void)pk_proctree_signal(root_pid, include_root, SIGCONT, NULL);
}

uint32_t pk_proctree_count(pid_t root_pid, bool include_root, char name[PK_PROC_NAME_MAX])
{
    struct root root = root_of(root_pid, include_root);
    struct pk_proclist l = {0};
    look(&root, &l, NULL, NULL);
    uint32_t count = (uint32_t)l.count;
    if (name != NULL) {
        name[0] = '\0';
    }
    for (size_t i = 0; name != NULL && i < l.count && name[0] == '\0'; i++) {
        pk_procscan_name(l.at[i].pid, name);
    }
    pk_procscan_free(&l);
    forget(&root);
    return count;
}

/* Opens pidfds of the members listed, as many as there is room for. */
static nfds_t watch(const struct pk_proclist *l, struct pollfd *watched, nfds_t room)
{
    nfds_t count = 0;
    for (size_t i = 0; i < l->count && count < room; i++) {
        struct pk_proc now;
        int fd = open_pidfd(l->at[i].pid);
        if (fd >= 0 && pk_procscan_read(l->at[i].pid, &now) && same(&now, &l->at[i])) {
            watched[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        } else if (fd >= 0) {
            (void)close(fd);
        }
    }
    return count;
}

/* Waits until all of `watched` are dead or the alarm, which comes first in it, goes
 * off. */
static void poll_deaths(struct pollfd *watched, nfds_t count)
{
    nfds_t waiting = count - 1;
    while (waiting > 0) {
        if (poll(watched, count, -1) < 0) {
            PK_ASSERT(errno == EINTR);
            continue;
        }
        if (watched[0].revents != 0) {
            break;
        }
        for (nfds_t i = 1; i < count; i++) {
            if (watched[i].fd >= 0 && watched[i].revents != 0) {
                (void)close(watched[i].fd);
                watched[i].fd = -1; /* poll() skips it */
                waiting--;
            }
        }
    }
}

/* Waits for the deaths of the members listed, WATCHED_MAX at a time, until `until_ms`.
 * Where there is nothing to wait on (all just gone, or no pidfds in this kernel) it
 * naps. */
static void await_deaths(const struct pk_proclist *l, uint64_t until_ms, uint32_t *nap_us)
{
    struct pollfd watched[1 + WATCHED_MAX];
    nfds_t count = 0;
    int alarm_fd = pk_timer_fd(0);
    if (alarm_fd >= 0) {
        pk_deadline_set(alarm_fd, until_ms);
        watched[0] = (struct pollfd){.fd = alarm_fd, .events = POLLIN};
        count = 1 + watch(l, watched + 1, WATCHED_MAX);
    }
    if (count > 1) {
        poll_deaths(watched, count);
    } else {
        nap(nap_us, NAP_LONGEST_US);
    }
    for (nfds_t i = 0; i < count; i++) {
        if (watched[i].fd >= 0) {
            (void)close(watched[i].fd);
        }
    }
}

/* Whether the tree has come to its end, given a fresh look at it. `quiet` counts the
 * looks in a row that found nobody. */
static bool all_gone(const struct root *root, const struct pk_proclist *l, int *quiet)
{
    if (root->self) {
        return pk_proctree_reap(REAPED_PER_PASS, NULL) == PK_CHILDREN_NONE;
    }
    *quiet = l->count == 0 ? *quiet + 1 : 0;
    return *quiet >= QUIET_PASSES;
}

static void kill_on_sight(void *ctx, const struct pk_proc *p)
{
    (void)ctx;
    if (!p->dead) {
        (void)hit(p, SIGKILL); /* gone: good; not allowed: it is counted as left */
    }
}

static uint32_t kill_members(struct root *root, uint64_t until_ms)
{
    struct pk_proclist l = {0};
    uint32_t nap_us = NAP_FIRST_US;
    uint32_t left = 0;
    int quiet = 0;
    for (;;) {
        (void)freeze(root, FREEZE_BEFORE_KILL_MS);
        look(root, &l, kill_on_sight, NULL);
        left = (uint32_t)l.count;
        if (all_gone(root, &l, &quiet)) {
            left = 0;
            break;
        }
        if (pk_clock_ms() >= until_ms) {
            left += root->self && left == 0; /* unseen, but the kernel knows of one */
            break;
        }
        await_deaths(&l, until_ms, &nap_us);
    }
    pk_procscan_free(&l);
    return left;
}

/* A tree can make dead children of ours faster than we get to reap them, and among
 * thousands of those the living are hard to find in time. So the kernel is told to clear
 * them away. */
static void ignore_children(const struct root *root, struct sigaction *before)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    if (root->self) {
        PK_ASSERT(sigaction(SIGCHLD, &ignore, before) == 0);
        while (pk_proctree_reap(REAPED_PER_PASS, NULL) == PK_CHILDREN_MORE) {
            continue; /* those from before; there are no new ones */
        }
    }
}

static void restore_children(const struct root *root, const struct sigaction *before)
{
    if (root->self) {
        PK_ASSERT(sigaction(SIGCHLD, before, NULL) == 0);
    }
}

static uint32_t kill_tree(struct root *root, uint32_t patience_ms)
{
    uint64_t until = pk_deadline_add(pk_clock_ms(), patience_ms);
    if (root->include) {
        /* A stopped root forks nothing and keeps its children findable: it goes last. */
        (void)freeze(root, FREEZE_BEFORE_KILL_MS);
        root->include = false;
        (void)kill_members(root, until);
        root->include = true;
    }
    return kill_members(root, until);
}

uint32_t pk_proctree_kill(pid_t root_pid, bool include_root, uint32_t patience_ms)
{
    struct root root = root_of(root_pid, include_root);
    struct sigaction before;
    ignore_children(&root, &before);
    uint32_t left = kill_tree(&root, patience_ms);
    restore_children(&root, &before);
    forget(&root);
    return left;
}

bool pk_proctree_kill_child(pid_t pid, uint32_t patience_ms, int *status)
{
    uint64_t until = pk_deadline_add(pk_clock_ms(), patience_ms);
    uint32_t nap_us = NAP_FIRST_US;
    struct pk_proc p;
    struct pk_proclist one = {.at = &p, .count = 1};
    PK_ASSERT(pid > 0);
    (void)kill(pid, SIGKILL); /* ours and not reaped, so the pid is its */
    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);
        if (got == pid) {
            return true;
        }
        if ((got < 0 && errno != EINTR) || pk_clock_ms() >= until) {
            return false;
        }
        if (pk_procscan_read(pid, &p)) {
            await_deaths(&one, until, &nap_us);
        }
    }
}

uint32_t pk_proctree_end(pid_t root_pid, bool include_root, uint32_t kill_after_ms,
                         uint32_t patience_ms)
{
    struct root root = root_of(root_pid, include_root);
    struct pk_proclist l = {0};
    uint64_t until = pk_deadline_add(pk_clock_ms(), kill_after_ms);
    uint32_t nap_us = NAP_FIRST_US;
    uint32_t left = 0;
    int quiet = 0;
    struct sigaction before;
    ignore_children(&root, &before);
    (void)signal_members(&root, SIGTERM);
    (void)signal_members(&root, SIGCONT);
    for (;;) {
        look(&root, &l, NULL, NULL);
        if (all_gone(&root, &l, &quiet)) {
            break;
        }
        if (pk_clock_ms() >= until) {
            left = kill_tree(&root, patience_ms);
            break;
        }
        await_deaths(&l, until, &nap_us);
    }
    restore_children(&root, &before);
    pk_procscan_free(&l);
    forget(&root);
    return left;
}
