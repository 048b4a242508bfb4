/* SPDX-License-Identifier: MIT */
#include "server/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/door.h"
#include "host/clock.h"
#include "server/address.h"

static bool fail(struct pk_ask *a, const char *what, const char *detail)
{
    (void)snprintf(a->why, sizeof a->why, "%s: %s", what, detail);
    pk_ask_close(a);
    return false;
}

/* Waits for the descriptor until `until_ms`; false: too late. */
static bool ready(int fd, short events, uint64_t until_ms)
{
    for (;;) {
        uint64_t now = pk_clock_ms();
        int left = until_ms > now ? (int)(until_ms - now) : 0;
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left);
        if (n > 0) {
            return true;
        }
        if (n == 0 || errno != EINTR) {
            return false;
        }
    }
}

bool pk_ask_open(struct pk_ask *a, const char *address, uint32_t ms)
{
    memset(a, 0, sizeof *a);
    a->fd = -1;
    struct sockaddr_storage where;
    const char *wrong = pk_address_resolve(address, &where);
    if (wrong != NULL) {
        return fail(a, address, wrong);
    }
    a->fd = socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (a->fd < 0) {
        return fail(a, address, strerror(errno));
    }
    int one = 1;
    (void)setsockopt(a->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    socklen_t size = where.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                 : sizeof(struct sockaddr_in);
    if (connect(a->fd, (const struct sockaddr *)&where, size) != 0 &&
        errno != EINPROGRESS) {
        return fail(a, address, strerror(errno));
    }
    int error = 0;
    socklen_t len = sizeof error;
    if (!ready(a->fd, POLLOUT, pk_clock_ms() + ms)) {
        return fail(a, address, "no answer");
    }
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) {
        return fail(a, address, strerror(error));
    }
    return true;
}

void pk_ask_close(struct pk_ask *a)
{
    if (a->fd >= 0) {
        (void)close(a->fd);
    }
    a->fd = -1;
    a->in = pk_door_resize(a->in, 0);
    a->in_len = a->in_capacity = a->used = 0;
}

static bool send_all(struct pk_ask *a, const char *data, size_t len, uint64_t until_ms)
{
    while (len > 0) {
        ssize_t n = send(a->fd, data, len, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno != EAGAIN && errno != EINTR) {
            return fail(a, "can't send", strerror(errno));
        } else if (!ready(a->fd, POLLOUT, until_ms)) {
            return fail(a, "can't send", "no answer in time");
        }
    }
    return true;
}

/* Reads what there is, or waits for more until `until_ms`. ANSWERED: bytes came. */
static enum pk_ask_got receive_more(struct pk_ask *a, uint64_t until_ms)
{
    if (a->in_capacity - a->in_len < 4096) {
        a->in_capacity = a->in_capacity == 0 ? 16384 : a->in_capacity * 2;
        a->in = pk_door_resize(a->in, a->in_capacity);
    }
    for (;;) {
        ssize_t n = recv(a->fd, a->in + a->in_len, a->in_capacity - a->in_len, 0);
        if (n > 0) {
            a->in_len += (size_t)n;
            return PK_ASK_ANSWERED;
        }
        if (n == 0) {
            (void)fail(a, "no answer", "the connection was closed");
            return PK_ASK_ENDED;
        }
        if (errno != EAGAIN && errno != EINTR) {
            (void)fail(a, "no answer", strerror(errno));
            return PK_ASK_ENDED;
        }
        if (!ready(a->fd, POLLIN, until_ms)) {
            return PK_ASK_LATE;
        }
    }
}

bool pk_ask_send(struct pk_ask *a, const struct pk_resp_out *request, uint32_t ms)
{
    a->in_len -= a->used;
    if (a->in_len > 0) {
        memmove(a->in, a->in + a->used, a->in_len);
    }
    a->used = 0;
    return send_all(a, request->data, request->len, pk_clock_ms() + ms);
}

enum pk_ask_got pk_ask_receive(struct pk_ask *a, uint32_t ms, struct pk_bytes *answer)
{
    uint64_t until = pk_clock_ms() + ms;
    for (;;) {
        struct pk_bytes rest =
            a->in == NULL ? pk_text("") : pk_bytes(a->in + a->used, a->in_len - a->used);
        size_t one;
        enum pk_resp_got got = pk_resp_whole(rest, &one);
        if (got == PK_RESP_BAD) {
            (void)fail(a, "no answer", "what came is not RESP");
            return PK_ASK_ENDED;
        }
        if (got == PK_RESP_ONE) {
            a->used += one;
            *answer = pk_bytes(rest.data, one);
            if (rest.data[0] != '>') {
                return PK_ASK_ANSWERED;
            }
            continue;
        }
        enum pk_ask_got more = receive_more(a, until);
        if (more != PK_ASK_ANSWERED) {
            return more;
        }
    }
}

bool pk_ask(struct pk_ask *a, const struct pk_resp_out *request, uint32_t ms,
            struct pk_bytes *answer, bool *sent)
{
    uint64_t began = pk_clock_ms();
    *sent = pk_ask_send(a, request, ms);
    if (!*sent) {
        return false;
    }
    uint64_t took = pk_clock_ms() - began;
    switch (pk_ask_receive(a, took < ms ? ms - (uint32_t)took : 0, answer)) {
    case PK_ASK_ANSWERED:
        return true;
    case PK_ASK_LATE:
        return fail(a, "no answer", "not in time");
    case PK_ASK_ENDED:
        return false;
    }
    return false;
}

bool pk_ask_words(struct pk_ask *a, const char *const *words, size_t n, uint32_t ms,
                  struct pk_bytes *answer, bool *sent)
{
    struct pk_resp_out request = {0};
    pk_resp_array(&request, n);
    for (size_t i = 0; i < n; i++) {
        pk_resp_text(&request, words[i]);
    }
    bool ok = pk_ask(a, &request, ms, answer, sent);
    pk_resp_free(&request);
    return ok;
}
