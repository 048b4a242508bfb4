/* SPDX-License-Identifier: MIT */
#include "raft/link.h"

#include <string.h>

#include "core/door.h"
#include "host/memory.h"

struct pk_link *pk_link_new(uv_loop_t *loop)
{
    struct pk_link *l = raft_malloc(sizeof *l);
    if (l == NULL) {
        pk_memory_out();
    }
    memset(l, 0, sizeof *l);
    PK_ASSERT(uv_tcp_init(loop, &l->tcp) == 0);
    return l;
}

/* ---- which there are ---- */

struct pk_link *pk_links_find(const struct pk_links *all, uint64_t peer)
{
    struct pk_link *l = all->first;
    while (l != NULL && l->peer != peer) {
        l = l->next;
    }
    return l;
}

static void join(struct pk_links *all, struct pk_link *l)
{
    l->all = all;
    l->prev = NULL;
    l->next = all->first;
    if (l->next != NULL) {
        l->next->prev = l;
    }
    all->first = l;
}

static void leave(struct pk_link *l)
{
    *(l->prev == NULL ? &l->all->first : &l->prev->next) = l->next;
    if (l->next != NULL) {
        l->next->prev = l->prev;
    }
}

void pk_links_forget(struct pk_links *all)
{
    all->first = NULL;
}

/* ---- to libraft ---- */

/* libraft closes a stream only while one of its callbacks runs, or when all of it
 * closes. Once it has, the link is ours no more. */
static bool is_let_go(const struct pk_link *l)
{
    return uv_is_closing((const uv_handle_t *)&l->tcp);
}

/* Tells libraft that the stream has come to its end. */
static void end(struct pk_link *l, ssize_t status)
{
    uv_buf_t none = uv_buf_init(NULL, 0);
    l->lib_read((uv_stream_t *)&l->tcp, status, &none);
    PK_ASSERT(is_let_go(l));
    leave(l);
}

static void pass_on(struct pk_link *l, const char *bytes, size_t len)
{
    while (len > 0) {
        uv_buf_t room = uv_buf_init(NULL, 0);
        l->lib_alloc((uv_handle_t *)&l->tcp, len, &room);
        if (room.base == NULL || room.len == 0) {
            end(l, UV_ENOBUFS);
            return;
        }
        size_t n = room.len < len ? room.len : len;
        memcpy(room.base, bytes, n);
        l->lib_read((uv_stream_t *)&l->tcp, (ssize_t)n, &room);
        if (is_let_go(l)) {
            leave(l);
            return;
        }
        bytes += n;
        len -= n;
    }
}

/* ---- from the socket ---- */

static void make_room(uv_handle_t *h, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    struct pk_links *all = ((struct pk_link *)h)->all;
    *out = uv_buf_init(all->buffer, sizeof all->buffer);
}

static void take_in(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct pk_link *l = (struct pk_link *)s;
    if (n == 0) {
        return; /* nothing there, after all */
    }
    if (n < 0) {
        end(l, n);
        return;
    }
    l->heard_ms = uv_now(l->tcp.loop);
    const unsigned char *bytes = (const unsigned char *)buf->base;
    const char *why = pk_frame_check(&l->frame, bytes, (size_t)n);
    if (why != NULL) {
        l->all->refused(l->all->ctx, l->name, why);
        end(l, UV_ECONNABORTED);
        return;
    }
    pass_on(l, buf->base, (size_t)n);
}

void pk_links_give(struct pk_links *all, struct pk_link *l, raft_uv_accept_cb accept,
                   struct raft_uv_transport *raft, const char *address)
{
    uv_stream_t *s = (uv_stream_t *)&l->tcp;
    struct pk_link *older = pk_links_find(all, l->peer);
    if (older != NULL) {
        end(older, UV_ECONNRESET);
    }
    accept(raft, l->peer, address, s);
    if (is_let_go(l)) {
        return; /* it had no memory for it */
    }
    l->lib_alloc = s->alloc_cb;
    l->lib_read = s->read_cb;
    PK_ASSERT(l->lib_alloc != NULL && l->lib_read != NULL);
    (void)uv_read_stop(s);
    PK_ASSERT(uv_read_start(s, make_room, take_in) == 0);
    l->heard_ms = uv_now(l->tcp.loop);
    join(all, l);
}
