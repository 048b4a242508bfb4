/* SPDX-License-Identifier: MIT */
/*
 * The bytes of an exchange. Both directions are pumps: a piece is taken out of one
 * connection's block, framed anew, and handed to the other connection; until that one
 * has taken it, there is no next piece, and a block that is full is not read into. So
 * what is in memory of a body is at most a block for each direction, however large it is.
 */
#include <stdio.h>

#include "core/door.h"
#include "gate/inside.h"

static char line_end[] = "\r\n";
static char last_chunk[] = "0\r\n\r\n";
static char end_and_last_chunk[] = "\r\n0\r\n\r\n";

static void no_answer(struct pk_exchange *x, int error);

/* ---- patience: one side at a time is waited for ---- */

void pk_relay_patience(struct pk_exchange *x)
{
    struct pk_gate *g = x->gate;
    struct pk_client *c = x->client;
    if (x->stage != PK_STAGE_FLYING || x->up == NULL) {
        return;
    }
    bool for_client = c != NULL && !x->up->wire.writing &&
                      (c->wire.writing || !(x->all_sent || x->deaf));
    uint64_t now = pk_gate_now(g);
    x->up->wire.late_ms = for_client || x->timed_out ? 0 : now + g->options.upstream_ms;
    if (c != NULL) {
        c->wire.late_ms = for_client ? now + g->options.body_ms : 0;
    }
}

/* ---- up: the request to the service ---- */

/* The next piece of the body, if any of it has come. */
struct pk_bytes pk_relay_piece(struct pk_exchange *x)
{
    struct pk_client *c = x->client;
    if (x->resend) {
        x->resend = false;
        return x->piece;
    }
    size_t kept = 0;
    char *data = c->wire.in + c->wire.at;
    pk_wire_use(&c->wire, pk_body_take(&x->body, data, c->wire.len - c->wire.at, &kept));
    if (x->once != NULL) {
        pk_once_hash(x->once, pk_bytes(data, kept));
        if (x->body.whole) {
            pk_once_hashed(x->once);
        }
    }
    return pk_bytes(data, kept);
}

static enum pk_wire_sent send_up(struct pk_exchange *x)
{
    uv_buf_t bufs[PK_WIRE_BUFS];
    unsigned n = 0;
    bool some = x->piece.len > 0, last = x->body.whole;
    if (!x->head_sent) {
        bufs[n++] = uv_buf_init(x->head.data, (unsigned)x->head.len);
    }
    if (x->chunked && some) {
        size_t len = pk_rewrite_chunk(x->chunk_up, x->piece.len);
        bufs[n++] = uv_buf_init(x->chunk_up, (unsigned)len);
    }
    if (some) {
        bufs[n++] = uv_buf_init((char *)(uintptr_t)x->piece.data, x->piece.len);
    }
    if (x->chunked && (some || last)) {
        char *tail = !last ? line_end : some ? end_and_last_chunk : last_chunk;
        bufs[n++] = uv_buf_init(tail, (unsigned)strlen(tail));
    }
    return n == 0 ? PK_WIRE_DONE : pk_wire_send(&x->up->wire, bufs, n);
}

/* What a pause has made stale must not go on: the gate may have been overtaken. */
static bool may_send(struct pk_exchange *x)
{
    if (pk_claim_stands(x)) {
        return true;
    }
    pk_exchange_cut(x, PK_OUTCOME_STANDBY, "this gate stands no more; try again");
    return false;
}

/* The service takes no more; it may have said why, so its answer is waited for. */
static void go_deaf(struct pk_exchange *x, int error)
{
    x->deaf = true;
    if (x->up->wire.accepted == 0) {
        no_answer(x, error);
    } else {
        pk_wire_read(&x->up->wire);
        pk_relay_patience(x);
    }
}

void pk_relay_truncate(struct pk_exchange *x)
{
    if (x->up != NULL && !x->up->wire.writing) {
        pk_wire_shut(&x->up->wire);
    }
}

static void read_client(struct pk_exchange *x)
{
    struct pk_client *c = x->client;
    if (!x->up->wire.writing) {
        pk_wire_pack(&c->wire);
    }
    pk_wire_read(&c->wire);
}

/* The client can't go on with its body. */
static void abandon_body(struct pk_exchange *x)
{
    struct pk_client *c = x->client;
    bool refusing = x->body.bad && !pk_exchange_begun(x);
    if (refusing) {
        pk_exchange_count(x, PK_OUTCOME_MALFORMED);
    }
    pk_exchange_client_gone(x);
    if (refusing) {
        pk_client_refuse(c, NULL, PK_OUTCOME_MALFORMED,
                         "the body is not what it should be");
    } else {
        pk_client_close(c);
    }
}

void pk_relay_up(struct pk_exchange *x)
{
    struct pk_upstream *u = x->up;
    if (x->client == NULL || x->all_sent || x->deaf || u->wire.writing || !may_send(x)) {
        return;
    }
    enum pk_wire_sent sent = PK_WIRE_DONE;
    while (sent == PK_WIRE_DONE && !x->all_sent && !x->body.bad) {
        x->piece = pk_relay_piece(x);
        if (x->head_sent && x->piece.len == 0 && !x->body.whole) {
            break; /* more has to come */
        }
        sent = send_up(x);
        x->head_sent = true;
        x->all_sent = x->body.whole;
    }
    if (sent == PK_WIRE_FAILED) {
        go_deaf(x, UV_EPIPE);
        return;
    }
    bool stuck = x->client->wire.ended && sent == PK_WIRE_DONE && !x->all_sent;
    if (x->body.bad || stuck) {
        abandon_body(x);
        return;
    }
    read_client(x);
    pk_relay_patience(x);
}

void pk_exchange_connected(struct pk_exchange *x)
{
    x->stage = PK_STAGE_FLYING;
    pk_wire_read(&x->up->wire);
    pk_relay_up(x);
}

void pk_exchange_up_sent(struct pk_exchange *x, int error)
{
    pk_door_resize(x->block, 0);
    x->block = NULL;
    if (error != 0) {
        go_deaf(x, error);
    } else if (x->truncated) {
        pk_relay_truncate(x);
        pk_relay_patience(x);
    } else if (x->client != NULL && x->all_sent) {
        read_client(x);
        pk_relay_patience(x);
    } else {
        pk_relay_up(x);
    }
}

/* ---- down: the answer to the client ---- */

/* Sends a piece of the answer; the last one may be empty. False: no more for now. */
bool pk_relay_send_down(struct pk_exchange *x, struct pk_bytes first,
                        struct pk_bytes piece, bool last)
{
    struct pk_client *c = x->client;
    uv_buf_t bufs[PK_WIRE_BUFS];
    unsigned n = 0;
    size_t len = (size_t)first.len + piece.len;
    x->all_taken = last;
    if (c == NULL) {
        return true;
    }
    if (x->head_due) {
        bufs[n++] = uv_buf_init(c->out.data, (unsigned)c->out.len);
        x->head_due = false;
    }
    if (x->chunks && len > 0) {
        bufs[n++] =
            uv_buf_init(x->chunk_down, (unsigned)pk_rewrite_chunk(x->chunk_down, len));
    }
    if (first.len > 0) {
        bufs[n++] = uv_buf_init((char *)(uintptr_t)first.data, first.len);
    }
    if (piece.len > 0) {
        bufs[n++] = uv_buf_init((char *)(uintptr_t)piece.data, piece.len);
    }
    if (x->chunks && (len > 0 || last)) {
        char *tail = !last ? line_end : len > 0 ? end_and_last_chunk : last_chunk;
        bufs[n++] = uv_buf_init(tail, (unsigned)strlen(tail));
    }
    enum pk_wire_sent sent = n == 0 ? PK_WIRE_DONE : pk_wire_send(&c->wire, bufs, n);
    if (sent == PK_WIRE_FAILED) {
        pk_client_close(pk_exchange_detach(x)); /* the loop goes on without it */
    }
    return sent != PK_WIRE_PENDING;
}

/* 1xx is passed on to whoever can understand it. */
static void pass_interim(struct pk_exchange *x, const struct pk_head *h)
{
    struct pk_client *c = x->client;
    if (c == NULL || x->old) {
        return;
    }
    c->out.len = 0;
    pk_rewrite_interim(&c->out, h);
    if (pk_client_send(c, pk_bytes("", 0)) == PK_WIRE_FAILED) {
        pk_client_close(pk_exchange_detach(x));
    }
}

static void take_answer(struct pk_exchange *x, const struct pk_head *h)
{
    x->answering = true;
    x->status = h->status;
    x->reusable = h->keep_alive;
    pk_body_init(&x->answer, h);
    bool endless = h->framing == PK_FRAMING_END || h->framing == PK_FRAMING_CHUNKED;
    x->chunks = endless && !x->old;
    x->close = x->close || !x->body.whole || (endless && x->old) || x->gate->draining;
    x->keeping =
        x->once != NULL && pk_keyed_is_final(h->status) && pk_once_answer(x->once, h);
    struct pk_rewrite_answer r = {.framing = x->chunks ? PK_FRAMING_CHUNKED
                                             : endless ? PK_FRAMING_END
                                                       : h->framing,
                                  .close = x->close,
                                  .old = x->old,
                                  .would_refuse = x->would_refuse};
    if (x->client != NULL) {
        x->client->out.len = 0;
        pk_rewrite_answer(&x->client->out, h, &r);
        x->head_due = true;
    }
}

/* Whether more will come from the service; if not, that was it. */
static bool await_more(struct pk_exchange *x, const char *why)
{
    struct pk_wire *w = &x->up->wire;
    if (w->ended) {
        pk_exchange_fail(x, PK_OUTCOME_UPSTREAM, why);
        return false;
    }
    pk_wire_pack(w);
    pk_wire_read(w);
    return false;
}

/* Reads a head of the answer. True: there is more to do at once. */
static bool read_answer(struct pk_exchange *x)
{
    struct pk_wire *w = &x->up->wire;
    const char *data = w->in + w->at;
    size_t len = w->len - w->at;
    if (len == 0 && w->ended) {
        no_answer(x, UV_EOF);
        return false;
    }
    switch (pk_head_scan(data, len, &x->scanned)) {
    case PK_SCAN_MORE:
        if (len > PK_HEAD_BYTES) {
            pk_exchange_fail(x, PK_OUTCOME_UPSTREAM,
                             "the service's answer has too long a head");
            return false;
        }
        return await_more(x, "the service broke off in the middle of an answer");
    case PK_SCAN_BAD:
        pk_exchange_fail(x, PK_OUTCOME_UPSTREAM,
                         "what the service answered is not HTTP/1");
        return false;
    default:
        break;
    }
    struct pk_head *h = &x->gate->scratch;
    if (!pk_head_read_answer(h, pk_bytes(data, x->scanned), x->to_head)) {
        pk_exchange_fail(x, PK_OUTCOME_UPSTREAM,
                         "what the service answered is not HTTP/1");
        return false;
    }
    pk_wire_use(w, x->scanned);
    x->scanned = 0;
    if (h->status < 200) {
        pass_interim(x, h);
    } else {
        take_answer(x, h);
    }
    return true;
}

/* Hands on a piece of the answer. True: there is more to do at once. */
static bool pass_down(struct pk_exchange *x, struct pk_bytes piece)
{
    bool last = x->answer.whole, live = x->once != NULL && !x->settled;
    struct pk_bytes first = pk_bytes("", 0);
    if (x->keeping && pk_once_gather(x->once, piece)) {
        if (last) {
            pk_keyed_hold(x, pk_bytes("", 0));
        }
        return !last;
    }
    if (x->keeping) { /* too large after all */
        x->keeping = false;
        first = pk_once_gathered(x->once);
    }
    if (last && live && first.len == 0) {
        pk_keyed_hold(x, piece);
        return false;
    }
    return pk_relay_send_down(x, first, piece, last && !live);
}

static bool step_down(struct pk_exchange *x)
{
    struct pk_wire *w = &x->up->wire;
    if (x->all_taken) {
        pk_exchange_finish(x);
        return false;
    }
    if (!x->answering) {
        return read_answer(x);
    }
    size_t kept;
    char *data = w->in + w->at;
    pk_wire_use(w, pk_body_take(&x->answer, data, w->len - w->at, &kept));
    if (x->answer.bad) {
        pk_exchange_fail(x, PK_OUTCOME_UPSTREAM,
                         "the service's answer is not what it announced");
        return false;
    }
    if (kept == 0 && w->ended) {
        (void)pk_body_end(&x->answer);
    }
    if (x->answer.whole) {
        pk_exchange_leave(x); /* it has done what it was told */
    } else if (kept == 0 && (!x->head_due || x->keeping)) {
        return await_more(x, "the service broke off in the middle of an answer");
    }
    return pass_down(x, pk_bytes(data, kept));
}

static bool client_is_busy(const struct pk_exchange *x)
{
    return x->client != NULL && x->client->wire.writing;
}

void pk_relay_down(struct pk_exchange *x)
{
    bool more = true;
    while (more && x->stage == PK_STAGE_FLYING && !client_is_busy(x)) {
        more = step_down(x);
    }
    pk_relay_patience(x);
}

/* It ended before a byte of an answer. One that was kept idle may have been closed in
 * the moment we took it: then, and only where nothing can happen twice, another is
 * tried. */
static void no_answer(struct pk_exchange *x, int error)
{
    static char why[128];
    struct pk_upstream *u = x->up;
    bool harmless = x->idempotent && x->body.taken == 0 && x->once == NULL;
    if (u->reused && (harmless || u->wire.accepted == 0) && x->client != NULL) {
        x->gate->counts.upstream_retries++;
        x->resend = x->head_sent && x->body.taken > 0;
        x->head_sent = x->all_sent = x->deaf = false;
        pk_exchange_drop_up(x, false);
        pk_exchange_forward(x, true);
        return;
    }
    (void)snprintf(why, sizeof why, "the service ended the connection: %s",
                   uv_strerror(error));
    pk_exchange_fail(x, PK_OUTCOME_UPSTREAM, why);
}

void pk_exchange_up_came(struct pk_exchange *x)
{
    if (x->stage == PK_STAGE_FLYING && !client_is_busy(x)) {
        pk_relay_down(x);
    }
}

void pk_exchange_up_ended(struct pk_exchange *x, int error)
{
    static char why[128];
    if (x->stage == PK_STAGE_CONNECTING) {
        (void)snprintf(why, sizeof why, "the service can't be reached: %s",
                       uv_strerror(error));
        pk_exchange_refuse(x, PK_OUTCOME_UPSTREAM, why);
    } else {
        pk_exchange_up_came(x); /* what has come before the end still counts */
    }
}
