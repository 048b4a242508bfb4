/* SPDX-License-Identifier: MIT */
#include "gate/wire.h"

#include <string.h>
#include <sys/socket.h>

#include "core/door.h"

void pk_wire_init(struct pk_wire *w, uv_loop_t *loop, const struct pk_wire_events *events,
                  void *owner)
{
    char *in = w->in;
    *w = (struct pk_wire){.events = events, .owner = owner};
    w->in = in != NULL ? in : pk_door_resize(NULL, PK_WIRE_BYTES);
    PK_ASSERT(uv_tcp_init(loop, &w->tcp) == 0);
    w->tcp.data = w->write.data = w->shutdown.data = w;
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct pk_wire *w = handle->data;
    (void)suggested;
    *buf = uv_buf_init(w->in + w->len, (unsigned)(PK_WIRE_BYTES - w->len));
}

static void stop_reading(struct pk_wire *w)
{
    if (w->reading) {
        w->reading = false;
        (void)uv_read_stop((uv_stream_t *)&w->tcp);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct pk_wire *w = stream->data;
    (void)buf;
    if (n < 0) {
        stop_reading(w);
        w->ended = true;
        w->events->ended(w->owner, (int)n);
    } else if (n > 0) {
        w->len += (size_t)n;
        if (w->len == PK_WIRE_BYTES) {
            stop_reading(w);
        }
        w->events->came(w->owner);
    }
}

void pk_wire_read(struct pk_wire *w)
{
    if (w->reading || w->ended || w->closing || w->len == PK_WIRE_BYTES) {
        return;
    }
    /* It can only fail for a handle that is closing. */
    w->reading = uv_read_start((uv_stream_t *)&w->tcp, on_alloc, on_read) == 0;
}

void pk_wire_use(struct pk_wire *w, size_t n)
{
    PK_ASSERT(n <= w->len - w->at);
    w->at += n;
}

void pk_wire_pack(struct pk_wire *w)
{
    if (w->at > 0) {
        memmove(w->in, w->in + w->at, w->len - w->at);
        w->len -= w->at;
        w->at = 0;
    }
}

/* ---- writing ---- */

static void on_sent(uv_write_t *req, int status)
{
    struct pk_wire *w = req->data;
    w->writing = false;
    if (!w->closing) {
        w->events->sent(w->owner, status);
    }
}

enum pk_wire_sent pk_wire_send(struct pk_wire *w, uv_buf_t *bufs, unsigned n)
{
    PK_ASSERT(!w->writing && n <= PK_WIRE_BUFS);
    size_t total = 0;
    for (unsigned i = 0; i < n; i++) {
        total += bufs[i].len;
    }
    int taken = uv_try_write((uv_stream_t *)&w->tcp, bufs, n);
    if (taken < 0 && taken != UV_EAGAIN) {
        return PK_WIRE_FAILED;
    }
    size_t gone = taken < 0 ? 0 : (size_t)taken;
    w->accepted += gone;
    if (gone == total) {
        return PK_WIRE_DONE;
    }
    w->accepted += total - gone; /* as good as: the kernel has some of it */
    while (gone >= bufs->len) {
        gone -= bufs->len;
        bufs++;
        n--;
    }
    bufs->base += gone;
    bufs->len -= gone;
    w->writing = true;
    if (uv_write(&w->write, (uv_stream_t *)&w->tcp, bufs, n, on_sent) != 0) {
        w->writing = false;
        return PK_WIRE_FAILED;
    }
    return PK_WIRE_PENDING;
}

/* ---- the end ---- */

static void on_shut(uv_shutdown_t *req, int status)
{
    (void)req; /* the peer's own end, or time, does the rest */
    (void)status;
}

void pk_wire_shut(struct pk_wire *w)
{
    if (!w->closing) {
        (void)uv_shutdown(&w->shutdown, (uv_stream_t *)&w->tcp, on_shut);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct pk_wire *w = handle->data;
    w->events->closed(w->owner);
}

void pk_wire_close(struct pk_wire *w)
{
    if (!w->closing) {
        w->closing = true;
        w->reading = false;
        w->late_ms = 0;
        uv_close((uv_handle_t *)&w->tcp, on_closed);
    }
}

void pk_wire_reset(struct pk_wire *w)
{
    uv_os_fd_t fd;
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (!w->closing && uv_fileno((uv_handle_t *)&w->tcp, &fd) == 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    pk_wire_close(w);
}
