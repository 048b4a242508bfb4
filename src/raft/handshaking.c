/* SPDX-License-Identifier: MIT */
/*
 * Handshakes under way, dialled or answered: addresses are looked up and tried one after
 * the other, greetings are sent and read, and all of it ends at a deadline. What is said
 * is the business of the handshake's kind.
 */
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "host/version.h"
#include "raft/transport_inside.h"

/* A question to the resolver, which can't always be called off. */
struct pk_lookup {
    uv_getaddrinfo_t req;
    struct pk_handshake *handshake; /* NULL: nobody waits for the answer any more */
};

bool pk_endpoint_split(const char *text, struct pk_endpoint *out)
{
    const char *colon = strrchr(text, ':');
    size_t len = colon == NULL ? 0 : (size_t)(colon - text);
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    if (bracketed) {
        text++;
        len -= 2;
    }
    if (colon == NULL || len >= sizeof out->host || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || colon[1] == '\0') {
        return false;
    }
    (void)snprintf(out->host, sizeof out->host, "%.*s", (int)len, text);
    (void)snprintf(out->port, sizeof out->port, "%s", colon + 1);
    bool one_colon = memchr(text, ':', len) == NULL;
    return bracketed || one_colon;
}

/* ---- which there are ---- */

static void set_alarm(struct pk_transport *t)
{
    uint64_t now = uv_now(t->o.loop);
    if (t->handshakes == NULL) {
        (void)uv_timer_stop(&t->alarm);
        return;
    }
    uint64_t at = t->handshakes->deadline_ms;
    (void)uv_timer_start(&t->alarm, pk_handshakes_alarm, at > now ? at - now : 0, 0);
}

/* Deadlines are in the order of arrival, since all handshakes get the same time. */
static void join(struct pk_handshake *h)
{
    struct pk_transport *t = h->t;
    h->deadline_ms = uv_now(t->o.loop) + PK_HANDSHAKE_MS;
    h->prev = t->newest;
    *(t->newest == NULL ? &t->handshakes : &t->newest->next) = h;
    t->newest = h;
    t->strangers += h->kind->greet == NULL;
    set_alarm(t);
}

static void leave(struct pk_handshake *h)
{
    struct pk_transport *t = h->t;
    *(h->prev == NULL ? &t->handshakes : &h->prev->next) = h->next;
    *(h->next == NULL ? &t->newest : &h->next->prev) = h->prev;
    t->strangers -= h->kind->greet == NULL;
    set_alarm(t);
}

struct pk_handshake *pk_handshake_new(struct pk_transport *t,
                                      const struct pk_handshake_kind *kind, void *ctx)
{
    struct pk_handshake *h = pk_door_resize(NULL, sizeof *h);
    memset(h, 0, sizeof *h);
    h->t = t;
    h->kind = kind;
    h->ctx = ctx;
    h->why = "it can't be connected to";
    h->tcp = pk_door_resize(NULL, sizeof *h->tcp);
    PK_ASSERT(uv_tcp_init(t->o.loop, h->tcp) == 0);
    h->tcp->data = h;
    t->open++;
    join(h);
    return h;
}

static void free_handshake(struct pk_handshake *h)
{
    if (h->lookup != NULL) {
        h->lookup->handshake = NULL;
        (void)uv_cancel((uv_req_t *)&h->lookup->req);
    }
    uv_freeaddrinfo(h->found);
    pk_door_resize(h, 0);
}

/* ---- ends ---- */

static void dial_next(struct pk_handshake *h);

static void on_closed(uv_handle_t *handle)
{
    struct pk_handshake *h = handle->data;
    struct pk_transport *t = h->t;
    if (h->again) {
        h->again = false;
        PK_ASSERT(uv_tcp_init(t->o.loop, h->tcp) == 0);
        h->tcp->data = h;
        dial_next(h);
        return;
    }
    void (*failed)(void *ctx, const char *why) = h->kind->failed;
    void *ctx = h->ctx;
    const char *why = h->why;
    pk_door_resize(h->tcp, 0);
    free_handshake(h);
    if (failed != NULL) {
        failed(ctx, why);
    }
    pk_transport_gone(t);
}

void pk_handshake_end(struct pk_handshake *h)
{
    h->again = false;
    leave(h);
    if (!uv_is_closing((uv_handle_t *)h->tcp)) {
        uv_close((uv_handle_t *)h->tcp, on_closed);
    }
}

uv_tcp_t *pk_handshake_take(struct pk_handshake *h)
{
    uv_tcp_t *tcp = h->tcp;
    (void)uv_read_stop((uv_stream_t *)tcp);
    tcp->data = NULL;
    leave(h);
    free_handshake(h);
    return tcp;
}

void pk_handshakes_alarm(uv_timer_t *alarm)
{
    struct pk_transport *t = alarm->data;
    while (t->handshakes != NULL && t->handshakes->deadline_ms <= uv_now(t->o.loop)) {
        t->handshakes->why = "no answer came in time";
        pk_handshake_end(t->handshakes);
    }
}

/* ---- words ---- */

bool pk_handshake_say(struct pk_handshake *h, const struct pk_greeting *g)
{
    unsigned char bytes[PK_GREETING_MAX];
    uv_buf_t out = uv_buf_init((char *)bytes, (unsigned)pk_greeting_encode(g, bytes));
    /* The first bytes on a new connection always fit into the socket's buffer. */
    return uv_try_write((uv_stream_t *)h->tcp, &out, 1) == (int)out.len;
}

static void make_room(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    struct pk_handshake *h = handle->data;
    *out = uv_buf_init((char *)h->in + h->have, (unsigned)(sizeof h->in - h->have));
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    struct pk_handshake *h = s->data;
    struct pk_greeting g;
    if (n < 0) {
        h->why = "the connection was closed";
        pk_handshake_end(h);
        return;
    }
    h->have += (size_t)n;
    switch (pk_greeting_decode(h->in, h->have, &g)) {
    case PK_GREETING_PART:
        break;
    case PK_GREETING_WHOLE:
        h->kind->hear(h, &g);
        break;
    case PK_GREETING_VERSION_DIFFERS:
        pk_transport_refuse(h, pk_format_needed("the greeting of the other node",
                                                h->in[4], PK_GREETING_VERSION));
        break;
    case PK_GREETING_GARBAGE:
        pk_transport_refuse(h, "these bytes are not of the protocol between nodes");
        break;
    }
}

bool pk_handshake_listen(struct pk_handshake *h)
{
    return uv_read_start((uv_stream_t *)h->tcp, make_room, on_read) == 0;
}

/* ---- dialling ---- */

/* A handle connects but once, so the next address needs a new one. */
static void dial_again(struct pk_handshake *h)
{
    h->again = true;
    uv_close((uv_handle_t *)h->tcp, on_closed);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct pk_handshake *h = req->data;
    if (uv_is_closing((uv_handle_t *)h->tcp)) {
        return; /* ended meanwhile; the close will call back */
    }
    if (status < 0) {
        dial_again(h);
    } else if (!h->kind->greet(h) || !pk_handshake_listen(h)) {
        pk_handshake_end(h);
    }
}

/* Dials the next of the addresses that were found. */
static void dial_next(struct pk_handshake *h)
{
    struct addrinfo *to = h->try_next;
    if (to == NULL) {
        pk_handshake_end(h);
        return;
    }
    h->try_next = to->ai_next;
    h->connect.data = h;
    if (uv_tcp_connect(&h->connect, h->tcp, to->ai_addr, on_connected) != 0) {
        dial_again(h);
    }
}

static void on_found(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    (void)status; /* nothing found is an empty list */
    struct pk_lookup *lookup = (struct pk_lookup *)req;
    struct pk_handshake *h = lookup->handshake;
    pk_door_resize(lookup, 0);
    if (h == NULL) {
        uv_freeaddrinfo(found);
        return;
    }
    h->lookup = NULL;
    h->found = found;
    h->try_next = found;
    if (!uv_is_closing((uv_handle_t *)h->tcp)) {
        dial_next(h);
    }
}

/* Numbers are understood at once, names by a thread of libuv's. */
void pk_handshake_dial(struct pk_handshake *h, const char *where)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct pk_endpoint at;
    if (!pk_endpoint_split(where, &at)) {
        h->why = "it is not HOST:PORT";
        pk_handshake_end(h);
        return;
    }
    if (getaddrinfo(at.host, at.port, &hints, &h->found) == 0) {
        h->try_next = h->found;
        dial_next(h);
        return;
    }
    h->found = NULL;
    hints.ai_flags = AI_NUMERICSERV;
    h->lookup = pk_door_resize(NULL, sizeof *h->lookup);
    h->lookup->handshake = h;
    if (uv_getaddrinfo(h->t->o.loop, &h->lookup->req, on_found, at.host, at.port,
                       &hints) != 0) {
        pk_door_resize(h->lookup, 0);
        h->lookup = NULL;
        pk_handshake_end(h);
    }
}
