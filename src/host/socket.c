/* SPDX-License-Identifier: MIT */
#include "host/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

enum {
    USER_TIMEOUT_MS =
        3000,             /* for what was sent to be acknowledged by the peer's kernel */
    KEEPALIVE_IDLE_S = 5, /* a peer that lost power is noticed about 8 s later */
    KEEPALIVE_INTERVAL_S = 1,
    KEEPALIVE_PROBES = 3,
};

void pk_socket_tune(int fd)
{
    static const struct {
        int level, option, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        (void)setsockopt(fd, options[i].level, options[i].option, &options[i].value,
                         sizeof options[i].value);
    }
}
