/* SPDX-License-Identifier: MIT */
/*
 * Connections of clients. One request at a time, in order: while one is under way, what
 * comes after it stays in the block (P10). Each wait has its limit: for a request, for
 * the rest of its head, for the rest of its body, for the client to take its answer.
 */
#include <arpa/inet.h>
#include <http_parser.h>
#include <stdio.h>

#include "core/door.h"
#include "core/tree.h"
#include "gate/inside.h"
#include "gate/say.h"

enum {
    PART_MS = 3000, /* for a client to end its side after our last word */
    REST_MAX = 65536,
};

static void run(struct pk_client *c);

/* ---- the end ---- */

void pk_client_close(struct pk_client *c)
{
    PK_ASSERT(c->exchange == NULL);
    pk_wire_close(&c->wire);
}

/* All is said. Closing at once would take away from the client what it has not read yet,
 * if it is still sending; so our half is closed and its end waited for. */
static void part(struct pk_client *c)
{
    c->parting = true;
    c->wire.late_ms = pk_gate_now(c->gate) + PART_MS;
    c->wire.at = c->wire.len = 0;
    if (c->wire.ended) {
        pk_client_close(c);
        return;
    }
    pk_wire_shut(&c->wire);
    pk_wire_read(&c->wire);
}

static void await_another(struct pk_client *c)
{
    c->begun = false;
    c->scanned = 0;
    c->wire.late_ms = pk_gate_now(c->gate) + c->gate->options.idle_ms;
}

void pk_client_next(struct pk_client *c, bool close)
{
    c->answering = false;
    c->last = c->last || close || c->gate->draining;
    await_another(c);
    if (!c->wire.closing && !c->running) {
        run(c);
    }
}

/* ---- answers of our own ---- */

enum pk_wire_sent pk_client_send(struct pk_client *c, struct pk_bytes more)
{
    uv_buf_t bufs[] = {
        uv_buf_init(c->out.data, (unsigned)c->out.len),
        uv_buf_init((char *)(uintptr_t)more.data, more.len),
    };
    return pk_wire_send(&c->wire, bufs, more.len > 0 ? 2 : 1);
}

static void say_reason(struct pk_resp_out *out, const struct pk_exchange *x,
                       enum pk_outcome o, const char *why)
{
    pk_say(out, "{\"error\":");
    pk_say_string(out, pk_text(pk_outcome_name(o)));
    if (x != NULL && x->ask.resource_len > 0 && x->ask.flaw == PK_WISH_FINE) {
        pk_say(out, ",\"resource\":");
        pk_say_string(out, pk_bytes(x->ask.resource, x->ask.resource_len));
    }
    if (x != NULL && x->ask.has_token) {
        pk_say(out, ",\"token\":");
        pk_say_number(out, x->ask.token);
    }
    if (x != NULL && x->fence != 0) {
        pk_say(out, ",\"fence\":");
        pk_say_number(out, x->fence);
    }
    if (x != NULL && o == PK_OUTCOME_NOT_KEPT) {
        pk_say(out, ",\"status\":");
        pk_say_number(out, (uint64_t)x->status);
    }
    pk_say(out, ",\"message\":");
    pk_say_string(out, pk_text(why));
    pk_say(out, "}\n");
}

static void say_answer(struct pk_client *c, const struct pk_exchange *x, int status,
                       struct pk_bytes body, bool close)
{
    struct pk_resp_out *out = &c->out;
    char length[PK_RESP_DIGITS_MAX + 1] = {0};
    bool old = x != NULL && x->old;
    (void)pk_resp_digits(length, body.len);
    out->len = 0;
    pk_rewrite_status(out, status, pk_bytes("", 0));
    pk_rewrite_field(out, "Content-Type", "application/json");
    pk_rewrite_field(out, "Content-Length", length);
    pk_rewrite_field(out, "Cache-Control", "no-store");
    if (status == 503) {
        pk_rewrite_field(out, "Retry-After", "1");
    }
    struct pk_rewrite_answer end = {.close = close, .old = old};
    pk_rewrite_end(out, &end);
    if (x == NULL || !x->to_head) {
        pk_resp_raw(out, body.data, body.len);
    }
}

/* Throws away what has come of the rest of a refused request's body. */
static void skip_rest(struct pk_client *c)
{
    size_t kept;
    char *data = c->wire.in + c->wire.at;
    if (!c->rest.whole) {
        size_t len = c->wire.len - c->wire.at;
        pk_wire_use(&c->wire, pk_body_take(&c->rest, data, len, &kept));
    }
}

/* Whether the connection can be used on after a refusal: the rest of the body is there
 * or is short. A client that waits to be told to go on may never send it. */
static bool can_go_on(struct pk_client *c, const struct pk_exchange *x)
{
    if (x == NULL || x->body.bad || x->close) {
        return false;
    }
    c->rest = x->body;
    skip_rest(c);
    return c->rest.whole || (!x->expects && pk_body_left(&c->rest) <= REST_MAX);
}

static void answer(struct pk_client *c, struct pk_exchange *x, int status,
                   struct pk_bytes body)
{
    c->last = !can_go_on(c, x) || c->last || c->gate->draining;
    say_answer(c, x, status, body, c->last);
    c->answering = true;
    c->wire.late_ms = pk_gate_now(c->gate) + c->gate->options.body_ms;
    switch (pk_client_send(c, pk_bytes("", 0))) {
    case PK_WIRE_DONE:
        pk_client_next(c, false);
        break;
    case PK_WIRE_PENDING:
        break;
    case PK_WIRE_FAILED:
        pk_client_close(c);
        break;
    }
}

void pk_client_refuse(struct pk_client *c, struct pk_exchange *x, enum pk_outcome o,
                      const char *why)
{
    struct pk_resp_out body = {0};
    if (c->wire.writing) { /* it has not even taken what was said before */
        pk_wire_reset(&c->wire);
    }
    if (c->wire.closing) {
        return;
    }
    say_reason(&body, x, o, why);
    answer(c, x, pk_outcome_status(o), pk_bytes(body.data, body.len));
    pk_resp_free(&body);
}

/* A head that can't be taken: what follows it can't be trusted either. */
static void refuse_head(struct pk_client *c, int status, const char *why)
{
    struct pk_resp_out body = {0};
    c->gate->counts.outcomes[status == 408 ? PK_OUTCOME_SLOW : PK_OUTCOME_MALFORMED]++;
    say_reason(&body, NULL, status == 408 ? PK_OUTCOME_SLOW : PK_OUTCOME_MALFORMED, why);
    answer(c, NULL, status, pk_bytes(body.data, body.len));
    pk_resp_free(&body);
}

/* ---- heads ---- */

/* Empty lines before a request are passed over. */
static void skip_lines(struct pk_client *c)
{
    struct pk_wire *w = &c->wire;
    while (w->len - w->at >= 2 && w->in[w->at] == '\r' && w->in[w->at + 1] == '\n') {
        pk_wire_use(w, 2);
        c->scanned = 0;
    }
}

static void await_head(struct pk_client *c)
{
    struct pk_wire *w = &c->wire;
    if (w->ended) {
        pk_client_close(c);
        return;
    }
    if (!c->begun && (w->len > w->at || !c->rest.whole)) {
        c->begun = true;
        w->late_ms = pk_gate_now(c->gate) + c->gate->options.header_ms;
    }
    pk_wire_pack(w);
    pk_wire_read(w);
}

/* Takes a request out of the block. True: there may be another. */
static bool take_request(struct pk_client *c)
{
    struct pk_wire *w = &c->wire;
    if (!c->rest.whole) {
        skip_rest(c);
        if (!c->rest.whole) {
            await_head(c);
            return false;
        }
        await_another(c);
    }
    skip_lines(c);
    const char *data = w->in + w->at;
    size_t len = w->len - w->at;
    enum pk_scan scan = pk_head_scan(data, len, &c->scanned);
    if (scan == PK_SCAN_BAD) {
        refuse_head(c, 400, "lines end with CR LF");
        return true;
    }
    if (c->scanned > PK_HEAD_BYTES) {
        refuse_head(c, 431, "a head has at most 16384 bytes");
        return true;
    }
    if (scan == PK_SCAN_MORE) {
        await_head(c);
        return false;
    }
    struct pk_head *h = &c->gate->scratch;
    if (!pk_head_read_request(h, pk_bytes(data, c->scanned))) {
        refuse_head(c, h->refusal, h->why);
        return true;
    }
    pk_wire_use(w, c->scanned);
    w->late_ms = 0;
    pk_exchange_begin(c);
    if (c->exchange != NULL) {
        pk_wire_read(w); /* to learn of its end */
    }
    return true;
}

/* As many requests as can be dealt with now. A loop and not a chain of calls: a block
 * can hold hundreds of requests that are refused at once. */
static void run(struct pk_client *c)
{
    bool more = true;
    c->running = true;
    while (more && c->exchange == NULL && !c->answering && !c->wire.closing) {
        if (c->last) {
            part(c);
            break;
        }
        more = take_request(c);
    }
    c->running = false;
}

/* ---- what happens on the connection ---- */

static void on_came(void *owner)
{
    struct pk_client *c = owner;
    if (c->parting) {
        c->wire.at = c->wire.len = 0;
        pk_wire_read(&c->wire);
    } else if (c->exchange != NULL) {
        pk_exchange_client_came(c->exchange);
    } else if (!c->answering) {
        run(c);
    }
}

static void on_ended(void *owner, int error)
{
    struct pk_client *c = owner;
    if (c->exchange != NULL) {
        if (pk_exchange_client_ended(c->exchange, error)) {
            pk_client_close(c);
        }
    } else if (!c->answering || error != UV_EOF) {
        pk_client_close(c);
    }
}

static void on_sent(void *owner, int error)
{
    struct pk_client *c = owner;
    if (c->exchange != NULL && error == 0) {
        pk_exchange_client_sent(c->exchange);
    } else if (c->exchange != NULL) {
        pk_exchange_client_gone(c->exchange);
        pk_client_close(c);
    } else if (error != 0) {
        pk_client_close(c);
    } else {
        pk_client_next(c, false);
    }
}

static void on_closed(void *owner)
{
    struct pk_client *c = owner;
    PK_ASSERT(c->exchange == NULL);
    pk_list_remove(&c->link);
    c->gate->n_clients--;
    pk_resp_free(&c->out);
    pk_door_resize(c->wire.in, 0);
    pk_door_resize(c, 0);
}

static const struct pk_wire_events events = {on_came, on_ended, on_sent, on_closed};

void pk_client_late(struct pk_client *c)
{
    c->wire.late_ms = 0;
    if (c->exchange != NULL) {
        pk_exchange_client_late(c->exchange);
    } else if (c->begun && !c->answering && !c->parting) {
        refuse_head(c, 408, "the request does not come; send it faster");
    } else {
        pk_client_close(c);
    }
}

/* ---- accepting ---- */

static void name_peer(struct pk_client *c)
{
    struct sockaddr_storage peer;
    int len = sizeof peer;
    (void)snprintf(c->address, sizeof c->address, "unknown");
    if (uv_tcp_getpeername(&c->wire.tcp, (struct sockaddr *)&peer, &len) == 0) {
        bool six = peer.ss_family == AF_INET6;
        const void *from = six ? (void *)&((struct sockaddr_in6 *)&peer)->sin6_addr
                               : (void *)&((struct sockaddr_in *)&peer)->sin_addr;
        (void)inet_ntop(peer.ss_family, from, c->address, sizeof c->address);
    }
}

void pk_client_accept(struct pk_gate *g)
{
    struct pk_client *c = pk_door_resize(NULL, sizeof *c);
    memset(c, 0, sizeof *c);
    c->gate = g;
    pk_wire_init(&c->wire, &g->loop, &events, c);
    c->rest.whole = true;
    pk_list_push(&g->clients, &c->link);
    g->n_clients++;
    g->counts.connections++;
    int failed = uv_accept((uv_stream_t *)&g->listener, (uv_stream_t *)&c->wire.tcp);
    if (failed != 0 || g->n_clients > 2 * (size_t)g->options.connections) {
        pk_client_close(c); /* not even those who are told so may be too many */
        return;
    }
    (void)uv_tcp_nodelay(&c->wire.tcp, 1);
    name_peer(c);
    if (g->n_clients > g->options.connections) {
        g->counts.refused_connections++;
        g->counts.outcomes[PK_OUTCOME_FULL]++;
        pk_client_refuse(c, NULL, PK_OUTCOME_FULL, "too many connections; try again");
        return;
    }
    pk_client_next(c, false);
}
