/* SPDX-License-Identifier: MIT */
/*
 * Overwrites by the kernel's asynchronous I/O (io_submit): no thread of ours takes part,
 * and completions make a descriptor readable.
 */
#ifndef PICKET_RAFT_FILE_AIO_H
#define PICKET_RAFT_FILE_AIO_H

#include "raft/file_io.h"

struct pk_file_aio;

/* NULL: the kernel, a seccomp filter or a limit refuses it. */
struct pk_file_aio *pk_file_aio_new(void);
/* No request may be under way. */
void pk_file_aio_free(struct pk_file_aio *a);
/* Readable once there is something to reap. */
int pk_file_aio_fd(const struct pk_file_aio *a);
/* Begins an OVERWRITE of a descriptor with O_DIRECT. False: it has not begun, since it
 * would have to wait or is refused, and a thread should do it. */
bool pk_file_aio_write(struct pk_file_aio *a, struct pk_file_request *r);
/* Calls `finished` for each request that has ended, with `error` set; EAGAIN: a thread
 * should do it. */
void pk_file_aio_reap(struct pk_file_aio *a,
                      void (*finished)(void *ctx, struct pk_file_request *r), void *ctx);

#endif
