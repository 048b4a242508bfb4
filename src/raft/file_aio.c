/* SPDX-License-Identifier: MIT */
#include "raft/file_aio.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/door.h"
#include "host/fd.h"

enum { UNDER_WAY_MAX = 16 };

struct pk_file_aio {
    aio_context_t context;
    int event;
    unsigned under_way;
};

struct pk_file_aio *pk_file_aio_new(void)
{
    struct pk_file_aio *a = pk_door_resize(NULL, sizeof *a);
    *a = (struct pk_file_aio){.event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (a->event >= 0 && syscall(SYS_io_setup, UNDER_WAY_MAX, &a->context) == 0) {
        return a;
    }
    pk_fd_close(&a->event);
    return pk_door_resize(a, 0);
}

void pk_file_aio_free(struct pk_file_aio *a)
{
    (void)syscall(SYS_io_destroy, a->context);
    pk_fd_close(&a->event);
    (void)pk_door_resize(a, 0);
}

int pk_file_aio_fd(const struct pk_file_aio *a)
{
    return a->event;
}

bool pk_file_aio_write(struct pk_file_aio *a, struct pk_file_request *r)
{
    const struct pk_disk_part *part = &r->op->parts[0];
    struct iocb cb = {
        .aio_data = (uintptr_t)r,
        .aio_lio_opcode = IOCB_CMD_PWRITE,
        .aio_rw_flags = RWF_DSYNC | RWF_NOWAIT,
        .aio_fildes = (uint32_t)r->fd,
        .aio_buf = (uintptr_t)part->bytes,
        .aio_nbytes = part->len,
        .aio_offset = (int64_t)r->op->offset,
        .aio_flags = IOCB_FLAG_RESFD,
        .aio_resfd = (uint32_t)a->event,
    };
    struct iocb *cbs[] = {&cb};
    if (a->under_way == UNDER_WAY_MAX ||
        syscall(SYS_io_submit, a->context, 1, cbs) != 1) {
        return false;
    }
    a->under_way++;
    return true;
}

void pk_file_aio_reap(struct pk_file_aio *a,
                      void (*finished)(void *ctx, struct pk_file_request *r), void *ctx)
{
    uint64_t count;
    struct io_event events[UNDER_WAY_MAX]; /* all, or some would not be heard of again */
    struct timespec at_once = {0};
    while (read(a->event, &count, sizeof count) < 0 && errno == EINTR) {
    }
    long n = syscall(SYS_io_getevents, a->context, 0, UNDER_WAY_MAX, events, &at_once);
    a->under_way -= n > 0 ? (unsigned)n : 0;
    for (long i = 0; i < n; i++) {
        struct pk_file_request *r = (void *)(uintptr_t)events[i].data;
        int64_t result = events[i].res;
        bool whole = result == (int64_t)r->op->parts[0].len;
        bool anew = !whole && (result >= 0 || result == -EINTR);
        r->error = whole ? 0 : anew ? EAGAIN : (int)-result;
        finished(ctx, r);
    }
}
