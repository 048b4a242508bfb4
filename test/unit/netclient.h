/* SPDX-License-Identifier: MIT */
/* Clients of fake nodes, for the tests of the network driver. */
#ifndef PICKET_TEST_NETCLIENT_H
#define PICKET_TEST_NETCLIENT_H

#include <errno.h>

#include "fakenode.h"

enum { PATIENCE_MS = 20000, LONG_TTL_MS = 120000 };

static inline struct picket *open_client(const char *url, uint32_t ttl_ms)
{
    struct picket *p = NULL;
    struct picket_options o = {.ttl_ms = ttl_ms};
    CHECK(picket_open(url, &o, &p) == PICKET_OK);
    return p;
}

static inline struct picket_lock *take(struct picket *p, const char *name)
{
    struct picket_lock *l;
    CHECK(picket_acquire(p, name, NULL, &l) == PICKET_OK);
    return l;
}

static inline struct picket_lock *enqueue(struct picket *p, const char *name,
                                          const struct picket_acquire_options *o)
{
    struct picket_want want = {.name = name};
    struct picket_lock *l;
    CHECK(picket_enqueue(p, &want, 1, o, &l) == PICKET_OK);
    return l;
}

static inline bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&p, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

#endif
