/* SPDX-License-Identifier: MIT */
/*
 * What listens at an address. The library connects for ever and does not say what is
 * wrong. A server answers four-letter words without a session; even one that refuses them
 * says so in words that nobody else uses.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/error.h"
#include "drivers/zk_inside.h"
#include "host/clock.h"
#include "host/fd.h"

enum { PATIENCE_MS = 1000 }; /* with one server */

static bool await(int fd, short events, uint64_t until_ms)
{
    uint64_t now = pk_clock_ms();
    struct pollfd p = {.fd = fd, .events = events};
    return now < until_ms && poll(&p, 1, (int)(until_ms - now)) > 0;
}

/* Connected, or -1. */
static int connect_to(const struct addrinfo *a, uint64_t until_ms)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    int rc = connect(fd, a->ai_addr, a->ai_addrlen);
    if (rc != 0 && errno == EINPROGRESS && await(fd, POLLOUT, until_ms)) {
        int error = 0;
        socklen_t len = sizeof error;
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
        rc = error == 0 ? 0 : -1;
    }
    if (rc != 0) {
        pk_fd_close(&fd);
    }
    return fd;
}

static int connect_any(const struct pk_place *p, uint64_t until_ms)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", p->port);
    int fd = -1;
    if (getaddrinfo(p->host, port, &hints, &list) == 0) {
        for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
            fd = connect_to(a, until_ms);
        }
        freeaddrinfo(list);
    }
    return fd;
}

/* Sends the words and takes what comes, up to the end. False: nobody listens. */
static bool exchange(const struct pk_place *p, const char *words, uint64_t until_ms,
                     char *out, size_t size)
{
    uint64_t patience = pk_clock_ms() + PATIENCE_MS;
    until_ms = until_ms < patience ? until_ms : patience;
    out[0] = '\0';
    int fd = connect_any(p, until_ms);
    if (fd < 0) {
        return false;
    }
    size_t len = 0;
    ssize_t n = send(fd, words, strlen(words), MSG_NOSIGNAL);
    while (n > 0 && len + 1 < size && await(fd, POLLIN, until_ms)) {
        n = recv(fd, out + len, size - 1 - len, 0);
        len += n > 0 ? (size_t)n : 0;
    }
    out[len] = '\0';
    close(fd);
    return true;
}

static bool is_zookeeper(const char *answer)
{
    return strncmp(answer, "Zookeeper version:", 18) == 0 ||
           strncmp(answer, "clientPort=", 11) == 0 ||
           strncmp(answer, "secureClientPort=", 17) == 0 ||
           strstr(answer, "is not executed because it is not in the whitelist") != NULL;
}

enum pk_zk_kind pk_zk_four(const struct pk_place *p, const char *word, uint64_t until_ms,
                           char *out, size_t size)
{
    char other[16];
    if (!exchange(p, word, until_ms, out, size)) {
        return PK_ZK_ABSENT;
    }
    if (is_zookeeper(out)) {
        return PK_ZK_SERVES;
    }
    if (strstr(out, "not currently serving requests") != NULL) {
        return PK_ZK_IDLE;
    }
    if (out[0] != '\0') {
        return PK_ZK_OTHER;
    }
    /* Many servers wait for the end of a line, and then have something to say. To a
     * ZooKeeper this is a message that is too long: it hangs up. */
    bool listens = exchange(p, "PING\r\n\r\n", until_ms, other, sizeof other);
    return listens && other[0] != '\0' ? PK_ZK_OTHER : PK_ZK_SILENT;
}

enum picket_status pk_zk_why_not(const struct pk_zk *z, uint64_t until_ms)
{
    int count[PK_ZK_ABSENT + 1] = {0};
    char answer[256];
    for (uint32_t i = 0; i < z->places.count; i++) {
        count[pk_zk_four(&z->places.list[i], "srvr", until_ms, answer, sizeof answer)]++;
    }
    if (count[PK_ZK_OTHER] > 0 && count[PK_ZK_SERVES] + count[PK_ZK_IDLE] == 0) {
        return pk_fail(PICKET_STORE, "%s is no ZooKeeper: something else answers there",
                       z->shown);
    }
    const char *why =
        count[PK_ZK_SERVES] > 0 ? "its servers answer, but give no session in time"
        : count[PK_ZK_IDLE] > 0
            ? "it has no leader, so a majority of its servers must be away"
        : count[PK_ZK_SILENT] > 0 ? "something listens there, but does not answer"
                                  : "nobody listens there; is the server running?";
    return pk_fail(PICKET_UNREACHABLE, "%s can't be reached: %s", z->shown, why);
}
