/* SPDX-License-Identifier: MIT */
/* Overwrites by io_uring: one ring, whose completions make a descriptor readable. In
 * builds without liburing there is never a ring (file_ring_none.c). */
#ifndef PICKET_RAFT_FILE_RING_H
#define PICKET_RAFT_FILE_RING_H

#include "raft/file_io.h"

struct pk_file_ring;

/* NULL: the kernel, a seccomp filter or a limit refuses it. */
struct pk_file_ring *pk_file_ring_new(void);
/* No request may be under way. */
void pk_file_ring_free(struct pk_file_ring *r);
/* Readable once there is something to reap. */
int pk_file_ring_fd(const struct pk_file_ring *r);
/* Begins an OVERWRITE. 0, or an errno: it has not begun. */
int pk_file_ring_write(struct pk_file_ring *r, struct pk_file_request *q);
/* Calls `finished` for each request that has ended, with `error` set. */
void pk_file_ring_reap(struct pk_file_ring *r,
                       void (*finished)(void *ctx, struct pk_file_request *q), void *ctx);

#endif
