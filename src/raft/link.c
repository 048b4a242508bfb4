/* SPDX-License-Identifier: MIT */
/*
 * Links: connections that other nodes have dialled, after their handshake. We only read
 * from them: messages go to the engine, notes to their hook. A message that breaks a rule
 * of message.h, or is of another node than the one that said hello, ends its link.
 */
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "raft/transport_inside.h"

/* ---- which there are ---- */

struct pk_link *pk_links_find(const struct pk_transport *t, uint64_t peer,
                              enum pk_purpose purpose)
{
    struct pk_link *l = t->links;
    while (l != NULL && (l->peer != peer || l->purpose != purpose)) {
        l = l->next;
    }
    return l;
}

static void join(struct pk_link *l)
{
    struct pk_transport *t = l->t;
    l->next = t->links;
    if (l->next != NULL) {
        l->next->prev = l;
    }
    t->links = l;
    t->n_links++;
}

static void leave(struct pk_link *l)
{
    *(l->prev == NULL ? &l->t->links : &l->prev->next) = l->next;
    if (l->next != NULL) {
        l->next->prev = l->prev;
    }
    l->t->n_links--;
}

static void on_closed(uv_handle_t *handle)
{
    struct pk_link *l = handle->data;
    struct pk_transport *t = l->t;
    pk_message_reader_free(&l->reader);
    pk_door_resize(l->tcp, 0);
    pk_door_resize(l, 0);
    pk_transport_gone(t);
}

static void end(struct pk_link *l)
{
    leave(l);
    uv_close((uv_handle_t *)l->tcp, on_closed);
}

void pk_links_close(struct pk_transport *t)
{
    while (t->links != NULL) {
        end(t->links);
    }
}

/* ---- what comes ---- */

static void refuse(struct pk_link *l, const char *why)
{
    l->t->counts.frames_refused++;
    pk_transport_tell(l->t, l->name, why);
    end(l);
}

/* Passes on what has become complete; the link may be ended then. */
static void pass_on(struct pk_link *l, enum pk_message_state state)
{
    struct pk_transport *t = l->t;
    if (state == PK_MESSAGE_WRONG) {
        refuse(l, l->reader.why);
    } else if (state != PK_MESSAGE_PART && l->reader.from != l->peer) {
        refuse(l, "a message is of another node than its connection");
    } else if (state != PK_MESSAGE_PART &&
               (state == PK_MESSAGE_CHUNKED) != (l->purpose == PK_FOR_SNAPSHOTS)) {
        refuse(l, "a message came on a connection for others");
    } else if (state == PK_MESSAGE_CHUNKED && t->chunk != NULL) {
        t->chunk(t->ctx, l->peer, &l->reader.chunk);
    } else if (state == PK_MESSAGE_WHOLE) {
        struct raft_message m;
        pk_message_take(&l->reader, &m);
        m.server_address = l->address;
        t->receive(t->ctx, &m);
    } else if (state == PK_MESSAGE_NOTED && t->note != NULL) {
        t->note(t->ctx, l->peer, l->reader.note, l->reader.note_len);
    }
}

/* Large payloads are read into their place, everything else into one buffer. */
static void make_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    struct pk_link *l = handle->data;
    size_t len;
    unsigned char *room = pk_message_room(&l->reader, &len);
    *out = room != NULL ? (uv_buf_t){.base = (char *)room, .len = len}
                        : (uv_buf_t){.base = l->t->buffer, .len = sizeof l->t->buffer};
}

static void take_in(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    struct pk_link *l = s->data;
    if (n == 0) {
        return; /* nothing there, after all */
    }
    if (n < 0) {
        end(l);
        return;
    }
    size_t len = (size_t)n;
    l->heard_ms = uv_now(l->t->o.loop);
    if (buf->base != l->t->buffer) {
        pass_on(l, pk_message_came(&l->reader, len));
        return;
    }
    const unsigned char *bytes = (const unsigned char *)buf->base;
    while (len > 0 && !uv_is_closing((uv_handle_t *)l->tcp)) {
        size_t used;
        enum pk_message_state state = pk_message_read(&l->reader, bytes, len, &used);
        bytes += used;
        len -= used;
        pass_on(l, state);
    }
}

void pk_links_begin(struct pk_transport *t, uv_tcp_t *tcp, const struct pk_greeting *from)
{
    struct pk_link *older = pk_links_find(t, from->from.id, from->purpose);
    if (older != NULL) {
        end(older);
    }
    struct pk_link *l = pk_door_resize(NULL, sizeof *l);
    memset(l, 0, sizeof *l);
    l->t = t;
    l->tcp = tcp;
    l->peer = from->from.id;
    l->run = from->run;
    l->purpose = from->purpose;
    l->release = from->release;
    l->heard_ms = uv_now(t->o.loop);
    (void)snprintf(l->name, sizeof l->name, "%s", from->from.name);
    (void)snprintf(l->address, sizeof l->address, "%s", from->address);
    tcp->data = l;
    join(l);
    if (uv_read_start((uv_stream_t *)tcp, make_room, take_in) != 0) {
        end(l);
    }
}
