/* SPDX-License-Identifier: MIT */
#include "raft/file_ring.h"

#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/door.h"
#include "host/fd.h"

enum { ENTRIES = 32 }; /* handed over together; more than these may be under way */

struct pk_file_ring {
    struct io_uring ring;
    int event;
};

/* A filter may allow the ring and refuse its use, so one empty request goes through. */
static bool works(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool writes = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct io_uring_cqe *cqe = NULL;
    if (!writes || sqe == NULL) {
        return false;
    }
    io_uring_prep_nop(sqe);
    if (io_uring_submit_and_wait(ring, 1) != 1 || io_uring_peek_cqe(ring, &cqe) != 0) {
        return false;
    }
    io_uring_cqe_seen(ring, cqe);
    return true;
}

struct pk_file_ring *pk_file_ring_new(void)
{
    struct pk_file_ring *r = pk_door_resize(NULL, sizeof *r);
    memset(r, 0, sizeof *r);
    r->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->event >= 0 && io_uring_queue_init(ENTRIES, &r->ring, 0) == 0) {
        if (works(&r->ring) && io_uring_register_eventfd(&r->ring, r->event) == 0) {
            return r;
        }
        io_uring_queue_exit(&r->ring);
    }
    pk_fd_close(&r->event);
    return pk_door_resize(r, 0);
}

void pk_file_ring_free(struct pk_file_ring *r)
{
    io_uring_queue_exit(&r->ring);
    pk_fd_close(&r->event);
    (void)pk_door_resize(r, 0);
}

int pk_file_ring_fd(const struct pk_file_ring *r)
{
    return r->event;
}

int pk_file_ring_write(struct pk_file_ring *r, struct pk_file_request *q)
{
    const struct pk_disk_part *part = &q->op->parts[0];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->ring);
    if (sqe == NULL) {
        return EBUSY;
    }
    io_uring_prep_write(sqe, q->fd, part->bytes + q->written,
                        (unsigned)(part->len - q->written), q->op->offset + q->written);
    io_uring_sqe_set_data(sqe, q);
    int n;
    do {
        n = io_uring_submit(&r->ring);
    } while (n == -EINTR);
    if (io_uring_sq_ready(&r->ring) == 0) {
        return 0;
    }
    /* Left in the ring, it would go out with the next one, when its memory is gone. */
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL);
    return n < 0 ? -n : EIO;
}

/* Takes the result of a write in; false: the rest of it is under way. */
static bool has_ended(struct pk_file_ring *r, struct pk_file_request *q, int result)
{
    size_t len = q->op->parts[0].len;
    q->error = result < 0 ? -result : result == 0 ? EIO : 0;
    q->written += result > 0 ? (size_t)result : 0;
    if (q->error == EINTR || (q->error == 0 && q->written < len)) {
        q->error = pk_file_ring_write(r, q);
        return q->error != 0;
    }
    return true;
}

void pk_file_ring_reap(struct pk_file_ring *r,
                       void (*finished)(void *ctx, struct pk_file_request *q), void *ctx)
{
    uint64_t count;
    while (read(r->event, &count, sizeof count) < 0 && errno == EINTR) {
    }
    /* What is begun by `finished` and ends at once waits for the next turn of the loop,
     * or the loop would do nothing else. */
    for (unsigned ready = io_uring_cq_ready(&r->ring); ready > 0; ready--) {
        struct io_uring_cqe *cqe = NULL;
        if (io_uring_peek_cqe(&r->ring, &cqe) != 0) {
            break;
        }
        struct pk_file_request *q = io_uring_cqe_get_data(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&r->ring, cqe);
        if (q != NULL && has_ended(r, q, result)) {
            finished(ctx, q);
        }
    }
}
