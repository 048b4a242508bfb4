/* SPDX-License-Identifier: MIT */
/*
 * Serving clients on a node that does not lead: their bytes go to the leader and back.
 *
 * The whole connection is handed over, from the first request that needs the leader, so
 * that waits, pushes and order are the leader's business alone. It ends when the leader
 * changes: the client reconnects, as it would had it been connected to the leader
 * itself. Each direction has at most one piece in flight; a side that does not read stops
 * the other (P10).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/door.h"
#include "server/address.h"
#include "server/inside.h"
#include "server/log.h"

enum { PIECE = 64 * 1024, CONNECT_MS = 1000 };

struct pk_relay {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_timer_t patience;      /* for the address to be found and connected to */
    struct pk_lookup *lookup; /* of the leader's host; NULL: none under way */
    uv_write_t write;
    struct pk_conn *conn; /* NULL: the client is gone */
    struct pk_server *server;
    char *up; /* bytes for the leader */
    size_t up_len, up_capacity;
    char *flight;       /* those being written */
    uint32_t greetings; /* answers to our own words, to be swallowed */
    char *down;         /* their beginnings */
    size_t down_len;
    bool connected, writing, closing;
    int handles;
};

/* ---- the end ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct pk_relay *r = handle->data;
    if (--r->handles == 0) {
        pk_metrics_gauge(r->server->metrics, PK_GAUGE_RELAYS, -1);
        pk_door_resize(r->up, 0);
        pk_door_resize(r->flight, 0);
        pk_door_resize(r->down, 0);
        pk_door_resize(r, 0);
    }
}

void pk_relay_end(struct pk_conn *c)
{
    struct pk_relay *r = c->relay;
    if (r->closing) {
        return;
    }
    r->closing = true;
    r->conn = NULL;
    if (r->lookup != NULL) {
        pk_lookup_cancel(r->lookup);
    }
    uv_close((uv_handle_t *)&r->tcp, on_handle_closed);
    uv_close((uv_handle_t *)&r->patience, on_handle_closed);
    pk_conn_close(c);
}

static void give_up(struct pk_relay *r, const char *why)
{
    struct pk_conn *c = r->conn;
    if (c == NULL) {
        return;
    }
    pk_log(PK_LOG_INFO, "relay-ended", "client", c->name, "why", why, NULL);
    pk_conn_close(c); /* which ends the relay */
}

/* ---- to the leader ---- */

static void push_up(struct pk_relay *r);

static void on_up_written(uv_write_t *req, int status)
{
    struct pk_relay *r = req->data;
    r->writing = false;
    r->flight = pk_door_resize(r->flight, 0);
    if (r->closing) {
        return;
    }
    if (status < 0) {
        give_up(r, uv_strerror(status));
        return;
    }
    push_up(r);
    if (!r->writing && !r->conn->reading) {
        pk_conn_resume(r->conn);
    }
}

static void push_up(struct pk_relay *r)
{
    if (!r->connected || r->writing || r->up_len == 0) {
        return;
    }
    r->flight = r->up;
    uv_buf_t buf = uv_buf_init(r->up, (unsigned)r->up_len);
    r->up = NULL;
    r->up_len = r->up_capacity = 0;
    r->write.data = r;
    r->writing = true;
    int failed = uv_write(&r->write, (uv_stream_t *)&r->tcp, &buf, 1, on_up_written);
    if (failed != 0) {
        r->writing = false;
        give_up(r, uv_strerror(failed));
    }
}

static void queue_up(struct pk_relay *r, const char *data, size_t len)
{
    if (r->up_capacity < r->up_len + len) {
        r->up_capacity = r->up_len + len;
        r->up = pk_door_resize(r->up, r->up_capacity);
    }
    memcpy(r->up + r->up_len, data, len);
    r->up_len += len;
}

void pk_relay_forward(struct pk_conn *c, const char *data, size_t len)
{
    struct pk_relay *r = c->relay;
    if (r->closing) {
        return;
    }
    queue_up(r, data, len);
    push_up(r);
    if (!r->closing && (r->writing || !r->connected)) {
        pk_conn_pause(c); /* until the leader has taken this */
    }
}

/* ---- to the client ---- */

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
    (void)hint;
    struct pk_relay *r = handle->data;
    *buf = uv_buf_init(r->server->scratch, PK_SERVER_SCRATCH);
}

/* Takes the answers to our own words off the front. Returns the bytes that are left. */
static struct pk_bytes swallow(struct pk_relay *r, const char *data, size_t len)
{
    r->down = pk_door_resize(r->down, r->down_len + len);
    memcpy(r->down + r->down_len, data, len);
    r->down_len += len;
    size_t used = 0;
    while (r->greetings > 0) {
        size_t one;
        struct pk_bytes rest = pk_bytes(r->down + used, r->down_len - used);
        enum pk_resp_got got = pk_resp_whole(rest, &one);
        if (got == PK_RESP_BAD || (got == PK_RESP_MORE && rest.len > PIECE)) {
            give_up(r, "the leader's greeting is not RESP");
            return pk_text("");
        }
        if (got == PK_RESP_MORE) {
            break;
        }
        used += one;
        r->greetings--;
    }
    r->down_len -= used;
    memmove(r->down, r->down + used, r->down_len);
    return r->greetings > 0 ? pk_text("") : pk_bytes(r->down, r->down_len);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct pk_relay *r = stream->data;
    if (n == 0 || r->conn == NULL) {
        return;
    }
    if (n < 0) {
        uv_read_stop(stream);
        r->conn->last = true; /* what the leader said last still goes out */
        (void)pk_conn_out(r->conn);
        return;
    }
    struct pk_bytes bytes = pk_bytes(buf->base, (size_t)n);
    if (r->greetings > 0 || r->down_len > 0) {
        bytes = swallow(r, buf->base, (size_t)n);
        if (r->conn == NULL || bytes.len == 0) {
            return;
        }
        r->down_len = 0;
    }
    struct pk_conn *c = r->conn;
    pk_resp_raw(pk_conn_out(c), bytes.data, bytes.len);
    if (pk_conn_unsent(c) > PK_CONN_UNSENT_SOFT) {
        uv_read_stop(stream);
    }
}

void pk_relay_drained(struct pk_conn *c)
{
    struct pk_relay *r = c->relay;
    if (!r->closing && r->connected && pk_conn_unsent(c) <= PK_CONN_UNSENT_SOFT) {
        (void)uv_read_start((uv_stream_t *)&r->tcp, on_alloc, on_read);
    }
}

/* ---- the beginning ---- */

static void on_connected(uv_connect_t *req, int status)
{
    struct pk_relay *r = req->data;
    if (r->closing) {
        return;
    }
    uv_timer_stop(&r->patience);
    if (status < 0) {
        give_up(r, uv_strerror(status));
        return;
    }
    r->connected = true;
    pk_conn_tune(&r->tcp);
    (void)uv_read_start((uv_stream_t *)&r->tcp, on_alloc, on_read);
    push_up(r);
    if (!r->closing && !r->writing) {
        pk_conn_resume(r->conn);
    }
}

static void connect_to(struct pk_relay *r, const struct sockaddr *where)
{
    int failed = uv_tcp_connect(&r->connect, &r->tcp, where, on_connected);
    if (failed != 0) {
        give_up(r, uv_strerror(failed));
    }
}

static void on_looked_up(void *ctx, const struct sockaddr *where, const char *why)
{
    struct pk_relay *r = ctx;
    r->lookup = NULL;
    if (where == NULL) {
        give_up(r, why);
    } else {
        connect_to(r, where);
    }
}

static void on_patience(uv_timer_t *timer)
{
    struct pk_relay *r = timer->data;
    give_up(r, r->lookup != NULL ? "the leader's host name was not resolved in time"
                                 : "the leader does not answer");
}

/* What the leader has to know of the connection, before its own bytes. */
static void greet(struct pk_relay *r)
{
    static const char relay[] = "CLIENT RELAY\r\n";
    static const char three[] = "HELLO 3\r\n";
    queue_up(r, relay, sizeof relay - 1);
    r->greetings++;
    if (r->conn->out.resp3) {
        queue_up(r, three, sizeof three - 1);
        r->greetings++;
    }
}

void pk_relay_start(struct pk_conn *c, const char *address)
{
    struct pk_server *s = c->server;
    struct pk_relay *r = pk_door_resize(NULL, sizeof *r);
    memset(r, 0, sizeof *r);
    r->conn = c;
    r->server = s;
    PK_ASSERT(uv_tcp_init(&s->loop, &r->tcp) == 0 &&
              uv_timer_init(&s->loop, &r->patience) == 0);
    r->tcp.data = r->patience.data = r->connect.data = r;
    r->handles = 2;
    c->relay = r;
    pk_metrics_gauge(s->metrics, PK_GAUGE_RELAYS, 1);
    greet(r);
    (void)uv_timer_start(&r->patience, on_patience, CONNECT_MS, 0);
    struct sockaddr_storage where;
    const char *why;
    if (pk_address_is_number(address, &where)) {
        connect_to(r, (const struct sockaddr *)&where);
        return;
    }
    /* A resolver may take seconds, in which a node on its loop would miss elections. */
    r->lookup = pk_lookup_start(&s->loop, address, on_looked_up, r, &why);
    if (r->lookup == NULL) {
        give_up(r, why);
    }
}
