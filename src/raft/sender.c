/* SPDX-License-Identifier: MIT */
/*
 * Senders: for each node that a message was sent to, the connection that we dialled and
 * the messages that are not written yet.
 *
 *     PAUSED      no connection; the next redial decides        -> DIALLING, or gone
 *     DIALLING    a handshake is under way                      -> CONNECTED, PAUSED
 *     CONNECTED   messages are written as they come             -> CLOSING
 *     CLOSING     the connection failed and is being closed     -> PAUSED
 *
 * The engine sends again what is lost, and old messages are worth little, so few wait
 * for a connection. Messages on a connection whose node does not read are bounded in
 * number, and entries in bytes (P10).
 */
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "raft/transport_inside.h"

enum {
    REDIALS_PER_ELECTION = 3,
    WANTED_MS = 60 * 1000, /* after the last message a connection is kept up so long */
};

enum sender_state { PAUSED, DIALLING, CONNECTED, CLOSING };

/* One message on its way out; a note when it has no request. */
struct pk_outgoing {
    struct pk_outgoing *next;
    struct pk_sender *sender;
    struct raft_io_send *req;
    struct pk_encoded *encoded; /* NULL: it can't be sent */
    uv_write_t write;
    int status; /* once it has failed */
};

struct pk_sender {
    struct pk_transport *t;
    struct pk_sender *next;
    enum sender_state state;
    uint64_t id;
    enum pk_purpose purpose;
    char address[PK_NODE_ADDRESS_MAX];
    uv_tcp_t *tcp; /* CONNECTED, CLOSING */
    struct pk_outgoing *waiting, **last_waiting;
    size_t n_waiting;
    size_t unsent;         /* messages that wait or are being written */
    uint64_t unsent_bytes; /* of their payloads */
    uint64_t sent_ms;      /* the loop's time of the last send */
};

/* ---- messages ---- */

static void free_outgoing(struct pk_outgoing *o)
{
    pk_door_resize(o->encoded, 0);
    pk_door_resize(o, 0);
}

/* A message has come to its end. */
static void finish(struct pk_outgoing *o, int status)
{
    struct raft_io_send *req = o->req;
    free_outgoing(o);
    if (req != NULL && req->cb != NULL) {
        req->cb(req, status);
    }
}

void pk_senders_flush(struct pk_transport *t)
{
    while (t->failed != NULL) {
        struct pk_outgoing *o = t->failed;
        t->failed = o->next;
        if (t->failed == NULL) {
            t->last_failed = &t->failed;
        }
        finish(o, o->status);
    }
}

void pk_senders_later(uv_timer_t *later)
{
    pk_senders_flush(later->data);
}

/* Calls back from the loop, since whoever sends does not expect it from inside. */
static void fail_later(struct pk_transport *t, struct pk_outgoing *o, int status)
{
    o->status = status;
    o->next = NULL;
    *t->last_failed = o;
    t->last_failed = &o->next;
    if (!t->closing) {
        (void)uv_timer_start(&t->later, pk_senders_later, 0, 0);
    }
}

static void count_out(struct pk_outgoing *o)
{
    o->sender->unsent--;
    o->sender->unsent_bytes -= o->encoded->payload;
}

static void fail_oldest(struct pk_sender *s, int status)
{
    struct pk_outgoing *o = s->waiting;
    s->waiting = o->next;
    if (s->waiting == NULL) {
        s->last_waiting = &s->waiting;
    }
    s->n_waiting--;
    count_out(o);
    fail_later(s->t, o, status);
}

/* One message is sent however large it is. */
static bool has_room(const struct pk_sender *s, const struct pk_encoded *e)
{
    uint64_t sum = s->unsent_bytes + e->payload;
    return s->unsent < PK_UNSENT_MAX &&
           (e->payload == 0 || s->unsent_bytes == 0 || sum <= PK_UNSENT_BYTES_MAX);
}

/* ---- connections ---- */

static void keep_redialling(struct pk_transport *t)
{
    uint64_t ms = pk_transport_election_ms(t) / REDIALS_PER_ELECTION;
    if (!t->closing && !uv_is_active((uv_handle_t *)&t->redial)) {
        (void)uv_timer_start(&t->redial, pk_senders_redial, ms, ms);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct pk_sender *s = handle->data;
    struct pk_transport *t = s->t;
    PK_ASSERT(s->state == CLOSING);
    pk_door_resize(s->tcp, 0);
    s->tcp = NULL;
    s->state = PAUSED;
    keep_redialling(t);
    pk_transport_gone(t);
}

/* Messages that are being written are called back before the connection is closed. */
static void disconnect(struct pk_sender *s)
{
    PK_ASSERT(s->state == CONNECTED);
    s->state = CLOSING;
    uv_close((uv_handle_t *)s->tcp, on_closed);
}

static void on_written(uv_write_t *write, int status)
{
    struct pk_outgoing *o = write->data;
    struct pk_sender *s = o->sender;
    count_out(o);
    if (status < 0 && s->state == CONNECTED) {
        disconnect(s);
    }
    finish(o, status == 0 ? 0 : s->t->closing ? RAFT_CANCELED : RAFT_NOCONNECTION);
}

static void write_out(struct pk_sender *s, struct pk_outgoing *o)
{
    o->write.data = o;
    if (uv_write(&o->write, (uv_stream_t *)s->tcp, o->encoded->parts, o->encoded->n,
                 on_written) != 0) {
        count_out(o);
        fail_later(s->t, o, RAFT_NOCONNECTION);
    }
}

static void make_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    struct pk_sender *s = handle->data;
    *out = uv_buf_init(s->t->buffer, sizeof s->t->buffer);
}

/* Nothing should come this way but the end of the connection. */
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    struct pk_sender *s = stream->data;
    if (n != 0 && s->state == CONNECTED) {
        disconnect(s);
    }
}

void pk_sender_connected(struct pk_sender *s, uv_tcp_t *tcp)
{
    PK_ASSERT(s->state == DIALLING);
    s->state = CONNECTED;
    s->tcp = tcp;
    tcp->data = s;
    while (s->waiting != NULL) {
        struct pk_outgoing *o = s->waiting;
        s->waiting = o->next;
        write_out(s, o);
    }
    s->last_waiting = &s->waiting;
    s->n_waiting = 0;
    if (uv_read_start((uv_stream_t *)tcp, make_room, on_read) != 0) {
        disconnect(s);
    }
}

void pk_sender_failed(void *sender, const char *why)
{
    (void)why;
    struct pk_sender *s = sender;
    PK_ASSERT(s->state == DIALLING);
    s->state = PAUSED;
    keep_redialling(s->t);
}

static void dial(struct pk_sender *s)
{
    PK_ASSERT(s->state == PAUSED);
    s->state = DIALLING;
    pk_transport_dial(s->t, s, s->id, s->address, s->purpose);
}

/* ---- which there are ---- */

static bool is_member(const struct pk_sender *s)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_transport_members(s->t, members);
    size_t i = 0;
    while (i < n && members[i].id != s->id) {
        i++;
    }
    return i < n;
}

static bool is_wanted(const struct pk_sender *s)
{
    bool recent = uv_now(s->t->o.loop) - s->sent_ms < WANTED_MS;
    bool standing = s->purpose == PK_FOR_MESSAGES && is_member(s);
    return s->waiting != NULL || recent || standing;
}

static void remove_sender(struct pk_sender *s)
{
    struct pk_transport *t = s->t;
    struct pk_sender **at = &t->senders;
    while (*at != s) {
        at = &(*at)->next;
    }
    PK_ASSERT(s->unsent == 0);
    *at = s->next;
    t->n_senders--;
    pk_door_resize(s, 0);
}

void pk_senders_redial(uv_timer_t *redial)
{
    struct pk_transport *t = redial->data;
    bool all_connected = true;
    struct pk_sender *next;
    for (struct pk_sender *s = t->senders; s != NULL; s = next) {
        next = s->next;
        if (s->state == PAUSED && !is_wanted(s)) {
            remove_sender(s);
            continue;
        }
        if (s->state == PAUSED) {
            dial(s);
        }
        all_connected = all_connected && s->state == CONNECTED;
    }
    if (all_connected) {
        (void)uv_timer_stop(&t->redial);
    }
}

static struct pk_sender *find(const struct pk_transport *t, uint64_t id,
                              enum pk_purpose purpose)
{
    struct pk_sender *s = t->senders;
    while (s != NULL && (s->id != id || s->purpose != purpose)) {
        s = s->next;
    }
    return s;
}

/* The one for that node, dialled when it is new. NULL: there are too many. */
static struct pk_sender *sender_for(struct pk_transport *t, uint64_t id,
                                    const char *address, enum pk_purpose purpose)
{
    struct pk_sender *s = find(t, id, purpose);
    if (s == NULL && t->n_senders < PK_LINKS_MAX) {
        s = pk_door_resize(NULL, sizeof *s);
        *s = (struct pk_sender){.t = t, .id = id, .purpose = purpose, .next = t->senders};
        s->last_waiting = &s->waiting;
        (void)snprintf(s->address, sizeof s->address, "%s", address);
        t->senders = s;
        t->n_senders++;
        dial(s);
    } else if (s != NULL && strcmp(s->address, address) != 0) {
        /* It has moved. A handshake that is under way shows who is there. */
        (void)snprintf(s->address, sizeof s->address, "%s", address);
        if (s->state == CONNECTED) {
            disconnect(s);
        }
    }
    return s;
}

/* ---- sending ---- */

static void enqueue(struct pk_sender *s, struct pk_outgoing *o)
{
    o->sender = s;
    s->unsent++;
    s->unsent_bytes += o->encoded->payload;
    s->sent_ms = uv_now(s->t->o.loop);
    if (s->state == CONNECTED) {
        write_out(s, o);
        return;
    }
    *s->last_waiting = o;
    s->last_waiting = &o->next;
    s->n_waiting++;
    if (s->n_waiting > PK_WAITING_MAX) {
        fail_oldest(s, RAFT_NOCONNECTION);
    }
}

static struct pk_outgoing *new_outgoing(struct raft_io_send *req,
                                        struct pk_encoded *encoded)
{
    struct pk_outgoing *o = pk_door_resize(NULL, sizeof *o);
    *o = (struct pk_outgoing){.req = req, .encoded = encoded};
    return o;
}

int pk_transport_send(struct pk_transport *t, struct raft_io_send *req,
                      const struct raft_message *m,
                      void (*cb)(struct raft_io_send *req, int status))
{
    if (t->closing) {
        return RAFT_CANCELED;
    }
    req->cb = cb;
    struct pk_outgoing *o = new_outgoing(req, pk_message_encode(m, t->o.self->id));
    struct pk_sender *s = sender_for(t, m->server_id, m->server_address, PK_FOR_MESSAGES);
    if (s == NULL || o->encoded == NULL || !has_room(s, o->encoded)) {
        fail_later(t, o, RAFT_NOCONNECTION);
    } else {
        enqueue(s, o);
    }
    return 0;
}

void pk_transport_note(struct pk_transport *t, uint64_t peer, const void *bytes,
                       size_t len)
{
    struct pk_sender *s = find(t, peer, PK_FOR_MESSAGES);
    if (s == NULL || s->state != CONNECTED || s->unsent >= PK_UNSENT_MAX) {
        return;
    }
    enqueue(s, new_outgoing(NULL, pk_note_encode(bytes, len, t->o.self->id)));
}

void pk_transport_chunk(struct pk_transport *t, uint64_t peer,
                        const struct pk_snapshot_chunk *c)
{
    const struct pk_sender *known = find(t, peer, PK_FOR_MESSAGES);
    struct pk_sender *s = known == NULL || t->closing
                              ? NULL
                              : sender_for(t, peer, known->address, PK_FOR_SNAPSHOTS);
    if (s != NULL && (c->len == 0 || s->unsent_bytes == 0) && s->unsent < PK_UNSENT_MAX) {
        enqueue(s, new_outgoing(NULL, pk_chunk_encode(c, t->o.self->id)));
    }
}

/* ---- the end ---- */

void pk_senders_close(struct pk_transport *t)
{
    for (struct pk_sender *s = t->senders; s != NULL; s = s->next) {
        while (s->waiting != NULL) {
            fail_oldest(s, RAFT_CANCELED);
        }
        if (s->state == CONNECTED) {
            disconnect(s);
        }
    }
}

void pk_senders_free(struct pk_transport *t)
{
    while (t->senders != NULL) {
        PK_ASSERT(t->senders->state == PAUSED);
        remove_sender(t->senders);
    }
}
