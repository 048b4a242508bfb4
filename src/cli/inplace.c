/* SPDX-License-Identifier: MIT */
/*
 * A command under a lock without a parent of ours: `-F`, over cli/nofork.h. This process
 * becomes the command; the helper has the client.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/nofork.h"
#include "cli/supervise.h"
#include "core/door.h"
#include "host/fd.h"

/* Watches for a loss that the deadline alone doesn't tell, while pk_nofork_watch()
 * blocks. */
struct lookout {
    struct pk_nofork *nofork;
    int loss_fd;
    int stop_fd;
    pthread_t thread;
};

static void *look_out(void *ctx)
{
    struct lookout *o = ctx;
    struct pollfd fds[] = {{.fd = o->loss_fd, .events = POLLIN},
                           {.fd = o->stop_fd, .events = POLLIN}};
    while (poll(fds, 2, -1) < 0) {
        PK_ASSERT(errno == EINTR);
    }
    if (fds[0].revents != 0) {
        pk_nofork_lost(o->nofork);
    }
    return NULL;
}

/* False when there can be no lookout; the deadline still guards. */
static bool start_lookout(struct lookout *o, struct pk_nofork *n, struct picket_lock *l)
{
    *o = (struct lookout){.nofork = n, .loss_fd = picket_loss_fd(l)};
    o->stop_fd = o->loss_fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC);
    if (o->stop_fd < 0) {
        return false;
    }
    if (pthread_create(&o->thread, NULL, look_out, o) != 0) {
        (void)close(o->stop_fd);
        return false;
    }
    return true;
}

static void stop_lookout(struct lookout *o)
{
    pk_fd_poke(o->stop_fd);
    PK_ASSERT(pthread_join(o->thread, NULL) == 0);
    (void)close(o->stop_fd);
}

static void renewed(uint64_t safe_until_ms, void *ctx)
{
    pk_nofork_safe_until(ctx, safe_until_ms);
}

/* The lock is ours: the other process becomes the command, and we watch over it. */
static void guard(struct pk_supervise *s, struct pk_nofork *n, struct picket *p,
                  struct picket_lock *l)
{
    const char *env[PK_SUPERVISE_ENV];
    struct lookout lookout;
    uint32_t left = 0;
    uint64_t safe = picket_safe_until_ms(l);
    if (safe == 0) {
        (void)pk_errors_fail("%s was lost at once: %s; nothing was run", s->grant->name,
                             pk_supervise_reason(l));
        (void)pk_nofork_exit(n, PK_EXIT_LOST);
        return;
    }
    picket_on_renewal(l, renewed, n);
    pk_nofork_safe_until(n, safe);
    pk_supervise_make_env(s, p, l, env);
    int error = pk_nofork_go(n, env);
    pk_supervise_free_env(env);
    if (error < 0) {
        (void)pk_errors_fail("can't start the command: %s", strerror(-error));
        (void)pk_nofork_exit(n, PK_EXIT_ERROR);
        return;
    }
    bool looking = start_lookout(&lookout, n, l);
    if (pk_nofork_watch(n, &left) == PK_NOFORK_EXITED) {
        pk_supervise_release(s, l);
    } else {
        (void)pk_errors_fail("%s lost: %s; its command was ended", s->grant->name,
                             pk_supervise_reason(l));
    }
    if (left > 0) {
        pk_supervise_say_left(left);
        picket_detach(p);
    }
    if (looking) {
        stop_lookout(&lookout);
    }
}

static void help(struct pk_supervise *s, struct pk_nofork *n)
{
    struct picket *p = NULL;
    struct picket_lock *l = NULL;
    /* Signals go to the other process; when one ends it, nobody wants the lock. */
    struct pk_grant_wait wait = {.signal_fd = -1, .gone_fd = pk_nofork_fd(n)};
    int code = pk_grant_open(s->common, s->grant, &p);
    if (code == 0) {
        code = pk_grant_take(p, s->grant, &wait, &l);
    }
    if (code == 0) {
        guard(s, n, p, l);
    } else {
        (void)pk_nofork_exit(n, code);
    }
    picket_close(p);
}

int pk_supervise_in_place(struct pk_supervise *s)
{
    struct pk_nofork n;
    int side = pk_nofork_split(&n, (uint32_t)s->kill_after_ms, true);
    if (side < 0) {
        return pk_errors_fail("can't start the helper: %s", strerror(-side));
    }
    if (side == PK_NOFORK_HELPER) {
        help(s, &n);
        _exit(0);
    }
    int code = pk_nofork_become(&n, s->argv);
    if (code == 126 || code == 127) {
        (void)pk_errors_fail("can't run %s: %s", s->argv[0], strerror(errno));
    }
    return code;
}
