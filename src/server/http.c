/* SPDX-License-Identifier: MIT */
#include "server/http.h"

#include <stdio.h>
#include <uv.h>

#include "core/door.h"
#include "server/address.h"
#include "server/http_request.h"
#include "server/page.h"

enum {
    READ_BYTES = 4096,
    HEAD_BYTES = 1536,         /* of an answer's status line and headers */
    KERNEL_BYTES = 128 * 1024, /* that the kernel may keep for one slow client */
    KEEPALIVE_S = 60, /* of silence after which the kernel asks a stream's other end */
};

/* On every answer. */
#define ALWAYS                                                                           \
    "X-Content-Type-Options: nosniff\r\n"                                                \
    "Referrer-Policy: no-referrer\r\n"                                                   \
    "Cross-Origin-Resource-Policy: same-origin\r\n"                                      \
    "\r\n"
/* Pages may use what we serve, and nothing else; those of the program say themselves what
 * they need (server/page.h). */
#define POLICY                                                                           \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "          \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#define USUAL                                                                            \
    "Content-Security-Policy: " POLICY "\r\n"                                            \
    "Cache-Control: no-store\r\n"
#define PLAIN_TEXT "text/plain; charset=utf-8"

enum stage {
    READING,   /* a request, or waiting for one */
    QUEUED,    /* the request is whole, and others are answered first */
    ANSWERING, /* the answer is on its way; nothing is read */
    STREAMING, /* and goes on; what the client sends is thrown away */
    PARTING,   /* all is sent; waiting for the client's end, so that it gets it all */
    CLOSING,
};

/* A connection. */
struct pk_http_stream {
    struct pk_http *http;
    struct pk_http_stream *next, **back;
    struct pk_http_stream *next_queued;
    enum stage stage;
    int handles; /* not closed yet */
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_write_t write;
    uv_shutdown_t shutdown;

    struct pk_http_request request;
    char in[READ_BYTES];
    size_t in_at, in_len; /* what has been read and not dealt with */

    char head[HEAD_BYTES];
    struct pk_resp_out flight; /* being written */
    struct pk_resp_out out;    /* of a stream, to be written after it */
    size_t untaken;            /* when the timer last looked */
    bool writing, last;        /* last: no request after this answer */
    bool ended;                /* by pk_http_end */
    void (*gone)(void *owner);
    void *owner;
};

struct pk_http {
    struct pk_http_options options;
    uv_tcp_t listener;
    uint16_t port;
    struct pk_http_stream *first;
    struct pk_http_stream *queued; /* by arrival */
    uv_idle_t turn;                /* runs while somebody is queued */
    uint32_t connections, streams;
    uint32_t open; /* connections, those turned away, the listener, and the turn */
    bool closing;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

/* ---- the end of things ---- */

static void one_less(struct pk_http *h)
{
    PK_ASSERT(h->open > 0);
    if (--h->open == 0) {
        if (h->closed != NULL) {
            h->closed(h->closed_ctx);
        }
        pk_door_resize(h, 0);
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct pk_http_stream *c = handle->data;
    if (--c->handles > 0) {
        return;
    }
    struct pk_http *h = c->http;
    *c->back = c->next;
    if (c->next != NULL) {
        c->next->back = c->back;
    }
    h->connections--;
    if (c->gone != NULL) {
        h->streams--;
        c->gone(c->owner);
    }
    pk_resp_free(&c->flight);
    pk_resp_free(&c->out);
    pk_door_resize(c, 0);
    one_less(h);
}

static void leave_queue(struct pk_http_stream *c)
{
    struct pk_http_stream **at = &c->http->queued;
    while (*at != c) {
        at = &(*at)->next_queued;
    }
    *at = c->next_queued;
    c->next_queued = NULL;
}

static void close_now(struct pk_http_stream *c)
{
    if (c->stage == QUEUED) {
        leave_queue(c);
    }
    if (c->stage != CLOSING) {
        c->stage = CLOSING;
        uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
        uv_close((uv_handle_t *)&c->timer, on_handle_closed);
    }
}

/* ---- time ---- */

static void refuse(struct pk_http_stream *c, int status, const char *why);

static size_t untaken(const struct pk_http_stream *c)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp);
}

/* Comes each request_ms from the beginning of a stage on. */
static void on_time(uv_timer_t *timer)
{
    struct pk_http_stream *c = timer->data;
    bool idle = c->stage == STREAMING && !c->writing;
    bool moving = c->writing && untaken(c) != c->untaken;
    if (c->stage == READING && c->request.taken > 0) {
        refuse(c, 408, "the request took too long");
    } else if (idle || moving) {
        c->untaken = untaken(c);
    } else {
        close_now(c);
    }
}

static void enter(struct pk_http_stream *c, enum stage stage)
{
    uint64_t ms = c->http->options.request_ms;
    c->stage = stage;
    uv_timer_start(&c->timer, on_time, ms, ms);
}

/* ---- writing ---- */

static void read_on(struct pk_http_stream *c);
static void take_request(struct pk_http_stream *c);

static void on_shutdown(uv_shutdown_t *req, int status)
{
    (void)req; /* the client's end, or time, does the rest */
    (void)status;
}

/* All is said. Closing at once would take away from the client what it has not read yet,
 * if it is still sending; so our half is closed and its end waited for. */
static void part(struct pk_http_stream *c)
{
    enter(c, PARTING);
    if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shutdown) != 0) {
        close_now(c);
        return;
    }
    read_on(c);
}

static void on_written(uv_write_t *req, int status);

static void write_out(struct pk_http_stream *c, const uv_buf_t *bufs, unsigned n)
{
    PK_ASSERT(!c->writing);
    c->writing = true;
    int failed = uv_write(&c->write, (uv_stream_t *)&c->tcp, bufs, n, on_written);
    c->untaken = untaken(c);
    if (failed != 0) {
        c->writing = false;
        close_now(c);
    }
}

/* Sends what a stream has gathered, in one piece. */
static void push(struct pk_http_stream *c)
{
    if (c->out.len > 0) {
        struct pk_resp_out empty = c->flight;
        empty.len = 0;
        c->flight = c->out;
        c->out = empty;
        uv_buf_t buf = uv_buf_init(c->flight.data, (unsigned)c->flight.len);
        write_out(c, &buf, 1);
    } else if (c->ended) {
        part(c);
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct pk_http_stream *c = req->data;
    c->writing = false;
    if (c->stage == CLOSING) {
        return;
    }
    if (status != 0) {
        close_now(c);
        return;
    }
    c->flight.len = 0;
    if (c->last) {
        part(c);
    } else if (c->stage == STREAMING) {
        push(c);
    } else if (c->gone != NULL) {
        enter(c, STREAMING);
        read_on(c); /* to learn of its end */
        push(c);
    } else {
        pk_resp_free(&c->flight);
        enter(c, READING);
        take_request(c);
    }
}

/* ---- answering ---- */

/* The headers that tell about the body, and the body: a page's is not ours to free. */
static uv_buf_t describe(struct pk_http_stream *c, struct pk_http_answer *a, char *out,
                         size_t size)
{
    const struct pk_page *p = a->page;
    char length[48] = "";
    if (p == NULL) {
        if (a->gone == NULL) {
            (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n", a->body.len);
        }
        int n = snprintf(out, size, "Content-Type: %s\r\n%s" USUAL, a->type, length);
        PK_ASSERT(n > 0 && n < (int)size);
        return uv_buf_init(a->body.data, (unsigned)a->body.len);
    }
    bool has = pk_bytes_equal(c->request.has_tag, pk_text(p->tag));
    bool packed = c->request.takes_gzip;
    size_t len = packed ? p->packed_len : p->plain_len;
    if (has) {
        a->status = 304; /* which has no body, and does not say how long it would be */
    } else {
        (void)snprintf(length, sizeof length, "Content-Length: %zu\r\n", len);
    }
    int n = snprintf(
        out, size,
        "Content-Type: text/html; charset=utf-8\r\n%s%s"
        "Vary: Accept, Accept-Encoding\r\nETag: %s\r\nCache-Control: no-cache\r\n"
        "Content-Security-Policy: %s\r\n",
        length, packed && !has ? "Content-Encoding: gzip\r\n" : "", p->tag, p->policy);
    PK_ASSERT(n > 0 && n < (int)size);
    const unsigned char *bytes = packed ? p->packed : p->plain;
    return uv_buf_init((char *)(uintptr_t)bytes, has ? 0 : (unsigned)len);
}

static void write_answer(struct pk_http_stream *c, struct pk_http_answer *a)
{
    bool goes_on = a->gone != NULL;
    bool close = goes_on || !c->request.keep_alive;
    char about[HEAD_BYTES - 256];
    uv_buf_t body = describe(c, a, about, sizeof about);
    int n = snprintf(c->head, sizeof c->head, "HTTP/1.1 %d %s\r\n%s%s%s" ALWAYS,
                     a->status, http_status_str((enum http_status)a->status), about,
                     a->status == 405 ? "Allow: GET, HEAD\r\n" : "",
                     close            ? "Connection: close\r\n"
                     : c->request.old ? "Connection: keep-alive\r\n"
                                      : "");
    PK_ASSERT(n > 0 && n < (int)sizeof c->head);
    c->last = c->request.head_only ? close : close && !goes_on;
    pk_resp_free(&c->flight);
    c->flight = a->body;
    body.len = c->request.head_only ? 0 : body.len;
    uv_buf_t bufs[] = {uv_buf_init(c->head, (unsigned)n), body};
    enter(c, ANSWERING);
    uv_read_stop((uv_stream_t *)&c->tcp);
    write_out(c, bufs, body.len > 0 ? 2 : 1);
}

static void say(struct pk_http_answer *a, int status, const char *why)
{
    pk_resp_free(&a->body);
    a->status = status;
    a->type = PLAIN_TEXT;
    pk_resp_raw(&a->body, why, strlen(why));
    pk_resp_raw(&a->body, "\n", 1);
}

static void refuse(struct pk_http_stream *c, int status, const char *why)
{
    struct pk_http_answer a = {0};
    c->request.keep_alive = false;
    say(&a, status, why);
    write_answer(c, &a);
}

static void answer(struct pk_http_stream *c)
{
    struct pk_http *h = c->http;
    struct pk_http_answer a = {.status = 200, .type = PLAIN_TEXT};
    a.html = c->request.takes_html;
    a.stream = h->streams < PK_HTTP_STREAMS_MAX ? c : NULL;
    h->options.get(h->options.ctx, c->request.path, c->request.query, &a);
    PK_ASSERT(a.gone == NULL || a.stream == c);
    if (a.body.len > PK_HTTP_UNSENT_MAX) {
        say(&a, 500, "the answer is too long");
    }
    if (a.gone != NULL) {
        h->streams++;
        c->gone = a.gone;
        c->owner = a.owner;
    }
    write_answer(c, &a);
}

static void on_turn(uv_idle_t *turn)
{
    struct pk_http_stream *c = ((struct pk_http *)turn->data)->queued;
    if (c == NULL) {
        (void)uv_idle_stop(turn);
        return;
    }
    leave_queue(c);
    answer(c);
}

static void queue(struct pk_http_stream *c)
{
    struct pk_http_stream **end = &c->http->queued;
    while (*end != NULL) { /* at most PK_HTTP_CONNECTIONS_MAX */
        end = &(*end)->next_queued;
    }
    *end = c;
    enter(c, QUEUED);
    (void)uv_read_stop((uv_stream_t *)&c->tcp);
    (void)uv_idle_start(&c->http->turn, on_turn);
}

/* Deals with what has been read; asks for more when it is not a whole request. */
static void take_request(struct pk_http_stream *c)
{
    size_t used = 0;
    struct pk_bytes in = pk_bytes(c->in + c->in_at, c->in_len - c->in_at);
    enum pk_http_got got = pk_http_request_read(&c->request, in, &used);
    c->in_at += used;
    if (got == PK_HTTP_MORE) {
        read_on(c);
    } else if (c->request.refusal != 0) {
        refuse(c, c->request.refusal, c->request.why);
    } else {
        queue(c);
    }
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct pk_http_stream *c = handle->data;
    (void)suggested;
    *buf = uv_buf_init(c->in, sizeof c->in);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct pk_http_stream *c = stream->data;
    (void)buf;
    if (n < 0) {
        close_now(c);
    } else if (n > 0 && c->stage == READING) {
        c->in_at = 0;
        c->in_len = (size_t)n;
        take_request(c);
    }
}

/* Goes on reading, if it was stopped. */
static void read_on(struct pk_http_stream *c)
{
    int failed = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
    if (failed != 0 && failed != UV_EALREADY) {
        close_now(c);
    }
}

/* ---- connections ---- */

static void on_away_closed(uv_handle_t *handle)
{
    struct pk_http *h = handle->data;
    pk_door_resize(handle, 0);
    one_less(h);
}

/* One too many: it is told so, if it takes as much at once, and closed. */
static void turn_away(struct pk_http *h)
{
    static char text[] = "HTTP/1.1 503 Service Unavailable\r\n"
                         "Content-Type: " PLAIN_TEXT "\r\nContent-Length: 21\r\n"
                         "Connection: close\r\n" USUAL ALWAYS "too many connections\n";
    uv_tcp_t *tcp = pk_door_resize(NULL, sizeof *tcp);
    PK_ASSERT(uv_tcp_init(h->options.loop, tcp) == 0);
    tcp->data = h;
    h->open++;
    if (uv_accept((uv_stream_t *)&h->listener, (uv_stream_t *)tcp) == 0) {
        uv_buf_t buf = uv_buf_init(text, sizeof text - 1);
        (void)uv_try_write((uv_stream_t *)tcp, &buf, 1);
    }
    uv_close((uv_handle_t *)tcp, on_away_closed);
}

static struct pk_http_stream *new_connection(struct pk_http *h)
{
    struct pk_http_stream *c = pk_door_resize(NULL, sizeof *c);
    memset(c, 0, sizeof *c);
    c->http = h;
    PK_ASSERT(uv_tcp_init(h->options.loop, &c->tcp) == 0);
    PK_ASSERT(uv_timer_init(h->options.loop, &c->timer) == 0);
    c->handles = 2;
    c->tcp.data = c->timer.data = c->write.data = c;
    pk_http_request_init(&c->request, h->options.hosts);
    c->next = h->first;
    c->back = &h->first;
    if (c->next != NULL) {
        c->next->back = &c->next;
    }
    h->first = c;
    h->connections++;
    h->open++;
    return c;
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct pk_http *h = listener->data;
    if (status != 0 || h->closing) {
        return;
    }
    if (h->connections >= PK_HTTP_CONNECTIONS_MAX) {
        turn_away(h);
        return;
    }
    struct pk_http_stream *c = new_connection(h);
    int kernel_bytes = KERNEL_BYTES;
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) != 0) {
        close_now(c);
        return;
    }
    (void)uv_tcp_nodelay(&c->tcp, 1);
    (void)uv_tcp_keepalive(&c->tcp, 1, KEEPALIVE_S);
    (void)uv_send_buffer_size((uv_handle_t *)&c->tcp, &kernel_bytes);
    enter(c, READING);
    read_on(c);
}

/* ---- streams ---- */

bool pk_http_send(struct pk_http_stream *s, struct pk_bytes data)
{
    if (s->ended || s->stage == PARTING || s->stage == CLOSING) {
        return false;
    }
    if (s->flight.len + s->out.len + data.len > PK_HTTP_UNSENT_MAX) {
        close_now(s);
        return false;
    }
    pk_resp_raw(&s->out, data.data, data.len);
    if (s->stage == STREAMING && !s->writing) {
        push(s);
    }
    return true;
}

bool pk_http_idle(const struct pk_http_stream *s)
{
    return s->stage == STREAMING && !s->writing && s->out.len == 0;
}

void pk_http_end(struct pk_http_stream *s)
{
    s->ended = true;
    if (s->stage == STREAMING && !s->writing) {
        push(s);
    }
}

/* ---- the server ---- */

static void on_part_closed(uv_handle_t *handle)
{
    one_less(handle->data);
}

struct pk_http *pk_http_new(const struct pk_http_options *o, const char **why)
{
    struct sockaddr_storage address;
    *why = pk_address_resolve(o->listen, &address);
    if (*why != NULL) {
        return NULL;
    }
    struct pk_http *h = pk_door_resize(NULL, sizeof *h);
    memset(h, 0, sizeof *h);
    h->options = *o;
    if (o->request_ms == 0) {
        h->options.request_ms = PK_HTTP_REQUEST_MS;
    }
    PK_ASSERT(uv_tcp_init(o->loop, &h->listener) == 0);
    h->listener.data = h;
    h->open = 1;
    int failed = pk_address_listen(&h->listener, &address, on_connection, &h->port);
    if (failed != 0) {
        *why = uv_strerror(failed);
        uv_close((uv_handle_t *)&h->listener, on_part_closed);
        return NULL;
    }
    PK_ASSERT(uv_idle_init(o->loop, &h->turn) == 0);
    h->turn.data = h;
    h->open++;
    return h;
}

uint16_t pk_http_port(const struct pk_http *h)
{
    return h->port;
}

void pk_http_close(struct pk_http *h, void (*closed)(void *ctx), void *ctx)
{
    PK_ASSERT(!h->closing);
    h->closing = true;
    h->closed = closed;
    h->closed_ctx = ctx;
    uv_close((uv_handle_t *)&h->listener, on_part_closed);
    uv_close((uv_handle_t *)&h->turn, on_part_closed);
    for (struct pk_http_stream *c = h->first; c != NULL; c = c->next) {
        close_now(c);
    }
}
