/* SPDX-License-Identifier: MIT */
/*
 * Sessions. The library connects, pings and connects again by itself; a session that the
 * server has ended is only told of when some server could be asked, so that what is
 * believed must end by our own clock (P5): the client sees to that, we say what is left.
 *
 * What a holder may believe in. The leader counts a session's timeout T from when it last
 * heard of the session. A follower answers by itself, and tells the leader of it twice in
 * a tick; should it die before, the leader has never heard of it. So of a renewal we only
 * know that the leader has heard of the one before, if there was time for the telling in
 * between: a fifth of T, which is about half a tick even for the shortest sessions.
 * Believed is T after that one, and two thirds of T at most. The sessions that we ask for
 * are half as long again as the TTL, so that renewals at a third of it always find that
 * much.
 *
 * A renewal is a transaction that changes nothing. It has to be committed by a majority,
 * which proves that the leader was one, and knew the session. `sync` would cost less, but
 * is answered by a leader that was deposed and does not know it yet.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/zk_inside.h"
#include "host/clock.h"

enum {
    LOOKING_TIMEOUT_MS = 10000, /* of a session that carries nothing */
    FIRST_LOOK_MS = 500,        /* without a connection: then we look for the reason */
    NEXT_LOOK_MS = 2000,
    SOCKET_AT = 2, /* in `fds`, after the two ends of the library's own pipe */
};

/* As /proc calls them. */
#define PIPE "pipe:["
#define SOCKET "socket:["

/* ---- descriptors ---- */

/* The library opens a pipe and sockets that are not close-on-exec, and tells nobody their
 * numbers. So we look for them: the pipe among what is new when a session has begun, the
 * socket among those that are connected to the session's server. Both are told from what
 * others have by being non-blocking and not yet close-on-exec. */

struct open_fds {
    struct pk_zk_fd *list;
    size_t count;
};

static bool identify(int fd, const char *kind, struct pk_zk_fd *out)
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out->what, sizeof out->what - 1);
    out->fd = fd;
    out->what[n > 0 ? n : 0] = '\0';
    return strncmp(out->what, kind, strlen(kind)) == 0;
}

/* All open ones of that kind. */
static struct open_fds list_fds(const char *kind)
{
    struct open_fds all = {0};
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char *end;
        long fd = strtol(e->d_name, &end, 10);
        struct pk_zk_fd one;
        if (end != e->d_name && *end == '\0' && identify((int)fd, kind, &one)) {
            all.list = pk_door_resize(all.list, (all.count + 1) * sizeof one);
            all.list[all.count++] = one;
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return all;
}

static bool same_fd(const struct pk_zk_fd *a, const struct pk_zk_fd *b)
{
    return a->fd == b->fd && strcmp(a->what, b->what) == 0;
}

static bool among(const struct open_fds *all, const struct pk_zk_fd *one)
{
    for (size_t i = 0; i < all->count; i++) {
        if (same_fd(&all->list[i], one)) {
            return true;
        }
    }
    return false;
}

/* As the library leaves them. */
static bool is_bare(int fd)
{
    int status = fcntl(fd, F_GETFL);
    int flags = fcntl(fd, F_GETFD);
    return status >= 0 && (status & O_NONBLOCK) != 0 && flags >= 0 &&
           (flags & FD_CLOEXEC) == 0;
}

/* The two are of one family; flow and scope don't matter. */
static bool same_address(const struct sockaddr_storage *a,
                         const struct sockaddr_storage *b)
{
    struct sockaddr_in a4, b4;
    struct sockaddr_in6 a6, b6;
    memcpy(&a4, a, sizeof a4);
    memcpy(&b4, b, sizeof b4);
    memcpy(&a6, a, sizeof a6);
    memcpy(&b6, b, sizeof b6);
    return a4.sin_port == b4.sin_port &&
           (a->ss_family == AF_INET
                ? a4.sin_addr.s_addr == b4.sin_addr.s_addr
                : memcmp(&a6.sin6_addr, &b6.sin6_addr, sizeof a6.sin6_addr) == 0);
}

static bool is_connected_to(int fd, const struct sockaddr_storage *to)
{
    struct sockaddr_storage peer = {0};
    socklen_t len = sizeof peer;
    return getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
           peer.ss_family == to->ss_family && same_address(&peer, to);
}

static void find_pipe(struct pk_zk_session *s, const struct open_fds *before)
{
    struct open_fds after = list_fds(PIPE);
    int n = 0;
    for (size_t i = 0; i < after.count && n < SOCKET_AT; i++) {
        const struct pk_zk_fd *one = &after.list[i];
        if (!among(before, one) && is_bare(one->fd)) {
            fcntl(one->fd, F_SETFD, FD_CLOEXEC);
            s->fds[n++] = *one;
        }
    }
    (void)pk_door_resize(after.list, 0);
}

static void find_socket(struct pk_zk_session *s, zhandle_t *handle)
{
    struct sockaddr_storage server = {0};
    socklen_t len = sizeof server;
    if (zookeeper_get_connected_host(handle, (struct sockaddr *)&server, &len) == NULL) {
        return;
    }
    struct open_fds all = list_fds(SOCKET);
    for (size_t i = 0; i < all.count; i++) {
        const struct pk_zk_fd *one = &all.list[i];
        if (is_bare(one->fd) && is_connected_to(one->fd, &server)) {
            fcntl(one->fd, F_SETFD, FD_CLOEXEC);
            s->fds[SOCKET_AT] = *one;
        }
    }
    (void)pk_door_resize(all.list, 0);
}

/* In the child of a fork: no thread of the library is there, and nothing is locked. What
 * can't be found again stays open until the child execs or ends, which does no harm: a
 * session ends by its timeout, whoever still has its socket. */
void pk_zk_forked(void *own)
{
    struct pk_zk *z = own;
    for (struct pk_zk_session *s = z->sessions; s != NULL; s = s->next) {
        for (int i = 0; i < PK_ZK_FDS_MAX; i++) {
            struct pk_zk_fd now;
            const char *kind = i == SOCKET_AT ? SOCKET : PIPE;
            if (s->fds[i].fd >= 0 && identify(s->fds[i].fd, kind, &now) &&
                same_fd(&now, &s->fds[i])) {
                close(now.fd);
            }
        }
    }
}

/* ---- what the library tells ---- */

static void on_session(zhandle_t *handle, int type, int state, const char *path,
                       void *context)
{
    struct pk_zk_session *s = context;
    struct pk_zk *z = s->store;
    (void)path;
    if (type != ZOO_SESSION_EVENT) {
        return;
    }
    if (state == ZOO_CONNECTED_STATE) {
        find_socket(s, handle);
    }
    pthread_mutex_lock(&z->mutex);
    s->state = state;
    if (state == ZOO_CONNECTED_STATE) {
        s->timeout_ms = (uint64_t)zoo_recv_timeout(handle);
        s->id = (uint64_t)zoo_client_id(handle)->client_id & INT64_MAX;
    }
    uint64_t lease = s->lease;
    pthread_cond_broadcast(&z->changed);
    pthread_mutex_unlock(&z->mutex);
    if (lease != 0 && state == ZOO_CONNECTED_STATE) {
        pk_bridge_stir(z->bridge, lease, 0);
    } else if (lease != 0 && state == ZOO_EXPIRED_SESSION_STATE) {
        pk_bridge_lease_ended(z->bridge, lease, PK_END_EXPIRED);
    }
}

static void on_log(const char *message)
{
    (void)message; /* stderr belongs to the program */
}

/* ---- beginning and ending ---- */

enum picket_status pk_zk_begin(struct pk_zk *z, uint64_t wish, uint64_t timeout_ms,
                               struct pk_zk_session **out)
{
    struct pk_zk_session *s = pk_door_resize(NULL, sizeof *s);
    *s = (struct pk_zk_session){.store = z, .wish = wish, .begun_ms = pk_clock_ms()};
    s->last_ms = s->known_ms = s->begun_ms;
    for (int i = 0; i < PK_ZK_FDS_MAX; i++) {
        s->fds[i].fd = -1;
    }
    struct open_fds before = list_fds(PIPE);
    sigset_t every, mask; /* signals are for the program's own threads */
    sigfillset(&every);
    pthread_sigmask(SIG_BLOCK, &every, &mask);
    int timeout = timeout_ms < INT32_MAX ? (int)timeout_ms : INT32_MAX;
    zhandle_t *handle =
        zookeeper_init2(z->hosts, on_session, timeout, NULL, s, 0, on_log);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (handle != NULL) {
        /* Else it looks names up in every round of its loop; a fork in the middle of that
         * leaves the child with the resolver's lock taken. */
        (void)zoo_set_servers_resolution_delay(handle, -1);
        find_pipe(s, &before);
    }
    (void)pk_door_resize(before.list, 0);
    if (handle == NULL) {
        (void)pk_door_resize(s, 0);
        bool full = error == EAGAIN || error == ENOMEM;
        return pk_fail(PICKET_UNREACHABLE, "%s can't be reached: %s", z->shown,
                       full ? "no threads are left for it"
                            : "nobody knows its servers by that name");
    }
    char who[512]; /* as long as the library's own buffers */
    int n = snprintf(who, sizeof who, "%s:%s", z->url.user, z->url.password);
    if (z->url.user[0] != '\0' && n > 0) {
        zoo_add_auth(handle, "digest", who, n, NULL, NULL);
    }
    s->handle = handle;
    s->next = z->sessions;
    z->sessions = s;
    *out = s;
    return PICKET_OK;
}

void pk_zk_end(struct pk_zk_session *s)
{
    struct pk_zk *z = s->store;
    struct pk_zk_session **at = &z->sessions;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    zookeeper_close(s->handle); /* from here on no thread of the library knows it */
    for (struct pk_zk_claim *k = s->claims; k != NULL; k = k->next) {
        k->session = NULL;
    }
    (void)pk_door_resize(s, 0);
}

struct pk_zk_session *pk_zk_session_of(struct pk_zk *z, uint64_t lease)
{
    struct pk_zk_session *s = z->sessions;
    while (s != NULL && (s->lease != lease || lease == 0)) {
        s = s->next;
    }
    return s;
}

/* ---- connecting ---- */

/* The session's state, as soon as it is one that decides, or at that time. */
static int wait_for_state(struct pk_zk_session *s, uint64_t until_ms)
{
    struct pk_zk *z = s->store;
    struct timespec until = pk_clock_monotonic(until_ms);
    int late = 0;
    pthread_mutex_lock(&z->mutex);
    while (s->state != ZOO_CONNECTED_STATE && s->state != ZOO_EXPIRED_SESSION_STATE &&
           s->state != ZOO_AUTH_FAILED_STATE && late == 0) {
        late = pthread_cond_timedwait(&z->changed, &z->mutex, &until);
    }
    int state = s->state;
    pthread_mutex_unlock(&z->mutex);
    return state;
}

/* Has it never been connected, we look for the reason now and then; else the library will
 * find its way back sooner than we would find out. */
enum picket_status pk_zk_ready(struct pk_zk_session *s, uint64_t until_ms)
{
    struct pk_zk *z = s->store;
    bool first = s->lease == 0;
    enum picket_status why = PICKET_OK;
    for (uint64_t pause = FIRST_LOOK_MS;; pause = NEXT_LOOK_MS) {
        uint64_t now = pk_clock_ms();
        bool last = !first || now + pause >= until_ms;
        int state = wait_for_state(s, last ? until_ms : now + pause);
        if (state == ZOO_CONNECTED_STATE) {
            return PICKET_OK;
        }
        if (state == ZOO_EXPIRED_SESSION_STATE) {
            return pk_zk_verdict(z, ZSESSIONEXPIRED);
        }
        if (state == ZOO_AUTH_FAILED_STATE) {
            return pk_zk_verdict(z, ZAUTHFAILED);
        }
        if (last) {
            return why != PICKET_OK
                       ? why
                       : pk_fail(PICKET_UNREACHABLE, "%s can't be reached", z->shown);
        }
        why = pk_zk_why_not(z, until_ms);
        if (why != PICKET_UNREACHABLE) {
            return why;
        }
    }
}

enum picket_status pk_zk_any(struct pk_zk *z, uint64_t until_ms,
                             struct pk_zk_session **out)
{
    struct pk_zk_session *s = z->sessions;
    for (struct pk_zk_session *next; s != NULL; s = next) {
        next = s->next;
        if (is_unrecoverable(s->handle) == ZOK) {
            break;
        }
        if (s->wish == 0) {
            pk_zk_end(s);
        }
    }
    if (s == NULL) {
        enum picket_status status = pk_zk_begin(z, 0, LOOKING_TIMEOUT_MS, &s);
        if (status != PICKET_OK) {
            return status;
        }
        PK_ASSERT(s != NULL);
    }
    *out = s;
    return pk_zk_ready(s, until_ms);
}

/* ---- time ---- */

uint64_t pk_zk_believable(uint64_t timeout_ms)
{
    return timeout_ms * 2 / 3;
}

uint64_t pk_zk_timeout(struct pk_zk_session *s)
{
    pthread_mutex_lock(&s->store->mutex);
    uint64_t timeout_ms = s->timeout_ms;
    pthread_mutex_unlock(&s->store->mutex);
    return timeout_ms;
}

uint64_t pk_zk_session_renewed(struct pk_zk_session *s, uint64_t timeout_ms,
                               uint64_t sent_ms)
{
    if (sent_ms - s->last_ms >= timeout_ms / 5) {
        s->known_ms = s->last_ms;
        s->last_ms = sent_ms;
    }
    uint64_t end = s->known_ms + timeout_ms;
    uint64_t left = end > sent_ms ? end - sent_ms : 0;
    uint64_t most = pk_zk_believable(timeout_ms);
    left = left < most ? left : most;
    return left < s->ttl_ms ? left : s->ttl_ms;
}
