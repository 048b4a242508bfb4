/* SPDX-License-Identifier: MIT */
#include "drivers/remote_link.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/door.h"
#include "host/fd.h"
#include "host/socket.h"

enum {
    READ_BYTES = 64 * 1024,   /* room for one read */
    KEEP_BYTES = 1024 * 1024, /* of a buffer that is kept when it is empty */
};

void pk_link_init(struct pk_link *l)
{
    memset(l, 0, sizeof *l);
    l->fd = -1;
}

static bool fail(struct pk_link *l, const char *why)
{
    (void)snprintf(l->trouble, sizeof l->trouble, "%s", why);
    return false;
}

static bool fail_with(struct pk_link *l, int error)
{
    return fail(l, strerror(error));
}

static void forget_found(struct pk_link *l)
{
    if (l->found != NULL) {
        freeaddrinfo(l->found);
        l->found = NULL;
        l->next = NULL;
    }
}

void pk_link_hang_up(struct pk_link *l)
{
    pk_fd_close(&l->fd);
    forget_found(l);
    l->out.len = 0;
    l->sent = 0;
    l->in_len = 0;
    l->used = 0;
    l->needed = 0;
}

void pk_link_free(struct pk_link *l)
{
    pk_link_hang_up(l);
    pk_resp_free(&l->out);
    pk_door_resize(l->in, 0);
    l->in = NULL;
}

/* ---- connecting ---- */

bool pk_link_find(struct pk_link *l, const struct pk_place *place)
{
    char port[8];
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    (void)snprintf(port, sizeof port, "%u", (unsigned)place->port);
    forget_found(l);
    int failed = getaddrinfo(place->host, port, &hints, &l->found);
    if (failed != 0) {
        l->found = NULL;
        return failed == EAI_SYSTEM ? fail_with(l, errno) : fail(l, gai_strerror(failed));
    }
    l->next = l->found;
    return true;
}

bool pk_link_dial(struct pk_link *l)
{
    pk_fd_close(&l->fd);
    while (l->next != NULL) {
        const struct addrinfo *a = l->next;
        l->next = a->ai_next;
        l->fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                       a->ai_protocol);
        if (l->fd >= 0) {
            pk_socket_tune(l->fd);
            if (connect(l->fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) {
                return true;
            }
        }
        (void)fail_with(l, errno);
        pk_fd_close(&l->fd);
    }
    return false;
}

bool pk_link_connected(struct pk_link *l)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0) {
        error = errno;
    }
    if (error != 0) {
        return fail_with(l, error);
    }
    forget_found(l);
    return true;
}

/* ---- bytes ---- */

bool pk_link_unsent(const struct pk_link *l)
{
    return l->sent < l->out.len;
}

bool pk_link_flush(struct pk_link *l)
{
    while (l->sent < l->out.len) {
        ssize_t n = send(l->fd, l->out.data + l->sent, l->out.len - l->sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            l->sent += (size_t)n;
        } else if (errno == EAGAIN) {
            return true;
        } else if (errno != EINTR) {
            return fail_with(l, errno);
        }
    }
    l->out.len = 0;
    l->sent = 0;
    if (l->out.capacity > KEEP_BYTES) {
        pk_resp_free(&l->out);
    }
    return true;
}

/* Moves what is left to the front and makes room behind it. */
static void make_room(struct pk_link *l)
{
    l->in_len -= l->used;
    if (l->in_len > 0 && l->used > 0) {
        memmove(l->in, l->in + l->used, l->in_len);
    }
    l->used = 0;
    size_t wanted = l->in_len + READ_BYTES;
    bool bloated = l->in_len == 0 && l->in_capacity > KEEP_BYTES;
    if (l->in_capacity < wanted || bloated) {
        wanted = bloated || wanted > 2 * l->in_capacity ? wanted : 2 * l->in_capacity;
        l->in = pk_door_resize(l->in, wanted);
        l->in_capacity = wanted;
    }
}

bool pk_link_fill(struct pk_link *l)
{
    make_room(l);
    ssize_t n = recv(l->fd, l->in + l->in_len, l->in_capacity - l->in_len, MSG_DONTWAIT);
    if (n > 0) {
        l->in_len += (size_t)n;
        return true;
    }
    if (n == 0) {
        return fail(l, "the connection was closed");
    }
    return errno == EAGAIN || errno == EINTR || fail_with(l, errno);
}

enum pk_resp_got pk_link_next(struct pk_link *l, struct pk_bytes *out)
{
    size_t there = l->in_len - l->used;
    if (there == 0 || there < l->needed) {
        return PK_RESP_MORE;
    }
    size_t length = 0;
    enum pk_resp_got got = pk_resp_whole(pk_bytes(l->in + l->used, there), &length);
    if (got == PK_RESP_ONE) {
        *out = pk_bytes(l->in + l->used, length);
        l->used += length;
        l->needed = 0;
    } else if (got == PK_RESP_MORE) {
        l->needed = length;
    }
    return got;
}
