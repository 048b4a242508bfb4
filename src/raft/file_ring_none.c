/* SPDX-License-Identifier: MIT */
#include "raft/file_ring.h"

#include <errno.h>

struct pk_file_ring *pk_file_ring_new(void)
{
    return NULL;
}

void pk_file_ring_free(struct pk_file_ring *r)
{
    (void)r;
}

int pk_file_ring_fd(const struct pk_file_ring *r)
{
    (void)r;
    return -1;
}

int pk_file_ring_write(struct pk_file_ring *r, struct pk_file_request *q)
{
    (void)r;
    (void)q;
    return ENOSYS;
}

void pk_file_ring_reap(struct pk_file_ring *r,
                       void (*finished)(void *ctx, struct pk_file_request *q), void *ctx)
{
    (void)r;
    (void)finished;
    (void)ctx;
}
