/* SPDX-License-Identifier: MIT */
#include "server/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/door.h"
#include "server/inside.h"
#include "server/log.h"

enum {
    KEEPALIVE_S = 15,
    DEAF_MS = 30000, /* TCP_USER_TIMEOUT: a peer that acknowledges nothing is gone */
    KEEP_BUFFER = 16 * 1024, /* larger ones are given back when they have been used */
    INPUT_STEP = 2048,       /* room for more of a request whose length is not known */
};

/* ---- slots ---- */

uint64_t pk_conn_who(const struct pk_conn *c)
{
    return (uint64_t)c->generation << 32 | c->slot;
}

struct pk_conn *pk_conn_at(struct pk_server *s, uint64_t who)
{
    uint32_t slot = (uint32_t)who;
    struct pk_conn *c = slot < s->conn_slots ? s->conns[slot] : NULL;
    return c != NULL && c->generation == who >> 32 && !c->closing ? c : NULL;
}

static uint32_t free_slot(struct pk_server *s)
{
    for (uint32_t i = s->full_slots; i < s->conn_slots; i++) {
        if (s->conns[i] == NULL) {
            s->full_slots = i + 1;
            return i;
        }
    }
    uint32_t more = s->conn_slots == 0 ? 64 : s->conn_slots * 2;
    s->conns = pk_door_resize(s->conns, more * sizeof(struct pk_conn *));
    memset(s->conns + s->conn_slots, 0,
           (more - s->conn_slots) * sizeof(struct pk_conn *));
    uint32_t slot = s->conn_slots;
    s->conn_slots = more;
    s->full_slots = slot + 1;
    return slot;
}

/* ---- output ---- */

struct pk_resp_out *pk_conn_out(struct pk_conn *c)
{
    if (!c->dirty) {
        c->dirty = true;
        c->next_dirty = c->server->dirty;
        c->server->dirty = c;
    }
    return &c->out;
}

size_t pk_conn_unsent(const struct pk_conn *c)
{
    return c->out.len + (c->writing ? c->flight.len - c->flight_sent : 0) +
           pk_renewal_unsent(c);
}

static void give_back_large(struct pk_resp_out *o)
{
    o->len = 0;
    if (o->capacity > KEEP_BUFFER) {
        bool resp3 = o->resp3;
        pk_resp_free(o);
        o->resp3 = resp3;
    }
}

static void flush(struct pk_conn *c);

/* The peer has taken something: whoever waited for that goes on. */
static void go_on_after_output(struct pk_conn *c)
{
    if (c->stall == PK_STALL_OUTPUT && pk_conn_unsent(c) <= PK_CONN_UNSENT_SOFT) {
        pk_conn_wake(c);
    }
    if (c->relay != NULL && !c->writing) {
        pk_relay_drained(c);
    }
}

/* Brings the server's total up to date. */
static void count_unsent(struct pk_conn *c)
{
    struct pk_server *s = c->server;
    size_t now = c->closing ? 0 : pk_conn_unsent(c);
    s->unsent_total = s->unsent_total - c->unsent + now;
    c->unsent = now;
    pk_metrics_set(s->metrics, PK_GAUGE_UNSENT, (int64_t)s->unsent_total);
}

void pk_conn_check_unsent(struct pk_conn *c)
{
    count_unsent(c);
    bool crowded = c->server->unsent_total > PK_CONN_UNSENT_TOTAL;
    if (c->unsent > PK_CONN_UNSENT_HARD || (crowded && c->unsent > PK_SERVER_SCRATCH)) {
        pk_log(PK_LOG_WARN, "slow-client", "name", c->name, "what",
               "closed: it leaves too many answers unread", NULL);
        pk_metrics_count(c->server->metrics, PK_COUNT_SLOW_CLOSED, 1);
        pk_conn_close(c);
    }
}

/* P10: closes those that leave at least the average unread, who have more than half of
 * it all. */
static void close_greediest(struct pk_server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->conn_slots; i++) {
        n += s->conns[i] != NULL && s->conns[i]->unsent > 0;
    }
    size_t average = s->unsent_total / (n > 0 ? n : 1);
    pk_log(PK_LOG_WARN, "slow-clients", "bytes", pk_log_u64(s->unsent_total), "what",
           "closed: they leave too many answers unread", NULL);
    for (uint32_t i = 0; i < s->conn_slots; i++) {
        struct pk_conn *c = s->conns[i];
        if (c != NULL && !c->closing && c->unsent > 0 && c->unsent >= average) {
            pk_metrics_count(s->metrics, PK_COUNT_SLOW_CLOSED, 1);
            pk_conn_close(c);
        }
    }
}

static void on_written(uv_write_t *req, int status)
{
    struct pk_conn *c = req->data;
    c->writing = false;
    give_back_large(&c->flight);
    count_unsent(c);
    if (status < 0) {
        pk_conn_close(c);
    }
    if (c->closing) {
        return;
    }
    if (c->out.len > 0 || c->last) {
        flush(c);
    }
    if (!c->closing) {
        go_on_after_output(c);
    }
}

/* Gives the output to the socket; what it does not take at once goes out later. */
static void flush(struct pk_conn *c)
{
    if (c->closing || c->writing) {
        return;
    }
    if (c->out.len > 0) {
        uv_buf_t buf = uv_buf_init(c->out.data, (unsigned)c->out.len);
        int n = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
        if (n < 0 && n != UV_EAGAIN) {
            pk_conn_close(c);
            return;
        }
        size_t sent = n < 0 ? 0 : (size_t)n;
        if (sent < c->out.len) {
            struct pk_resp_out spare = c->flight;
            c->flight = c->out;
            c->flight_sent = sent;
            c->out = spare;
            c->out.len = 0;
            c->out.resp3 = c->flight.resp3;
            buf = uv_buf_init(c->flight.data + sent, (unsigned)(c->flight.len - sent));
            c->write.data = c;
            c->writing =
                uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written) == 0;
            if (!c->writing) {
                pk_conn_close(c);
            }
            return;
        }
        give_back_large(&c->out);
    }
    if (c->last) {
        pk_conn_close(c);
    } else {
        go_on_after_output(c);
    }
}

void pk_conns_flush(struct pk_server *s)
{
    while (s->dirty != NULL) {
        struct pk_conn *c = s->dirty;
        s->dirty = c->next_dirty;
        c->dirty = false;
        flush(c);
        count_unsent(c);
    }
    if (s->unsent_total > PK_CONN_UNSENT_TOTAL) {
        close_greediest(s);
    }
}

/* ---- stalling ---- */

static void stop_reading(struct pk_conn *c)
{
    if (c->reading) {
        c->reading = false;
        uv_read_stop((uv_stream_t *)&c->tcp);
    }
}

void pk_conn_stall(struct pk_conn *c, enum pk_stall why)
{
    struct pk_fair *f = &c->server->fair;
    c->stall = why;
    if (why == PK_STALL_TURN) {
        pk_fair_close(f);
        pk_fair_wait_first(f, &c->flow);
    } else if (why == PK_STALL_SHARE) {
        pk_metrics_count(c->server->metrics, PK_COUNT_SHARE_WAITS, 1);
        pk_fair_wait(f, &c->flow);
    }
}

void pk_conn_wake(struct pk_conn *c)
{
    if (!c->closing) {
        pk_fair_wake(&c->server->fair, &c->flow);
    }
}

/* ---- input ---- */

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf);
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);

/* Takes in as many whole requests as can be dealt with now; returns the bytes used. */
static size_t take(struct pk_conn *c, const char *data, size_t len)
{
    struct pk_server *s = c->server;
    size_t used = 0;
    c->in_want = 0;
    while (used < len && c->stall == PK_STALL_NONE && !c->closing && !c->last &&
           c->relay == NULL) {
        uint32_t n;
        size_t one;
        const char *why;
        enum pk_resp_got got =
            pk_resp_request(pk_bytes(data + used, len - used), s->args, &n, &one, &why);
        if (got == PK_RESP_MORE) {
            c->in_want = one;
            break;
        }
        if (got == PK_RESP_BAD && c->pending > 0) {
            pk_conn_stall(c, PK_STALL_ANSWERS); /* what was good is answered first */
            break;
        }
        if (got == PK_RESP_BAD) {
            pk_metrics_count(s->metrics, PK_COUNT_BAD_REQUESTS, 1);
            pk_resp_error(pk_conn_out(c), "ERR", why);
            c->last = true;
            break;
        }
        if (n > 0 && !pk_dispatch(c, n)) {
            break;
        }
        used += one;
        if (c->stall != PK_STALL_NONE) {
            break; /* a wait ends with its own answer, not with those before it */
        }
        if (pk_conn_unsent(c) > PK_CONN_UNSENT_SOFT) {
            pk_conn_stall(c, PK_STALL_OUTPUT);
        } else if (c->pending >= PK_CONN_PENDING_MAX) {
            pk_conn_stall(c, PK_STALL_ANSWERS);
        }
    }
    return used;
}

/* Sets the size of the input buffer; 0 gives it back. */
static void resize_input(struct pk_conn *c, size_t capacity)
{
    c->server->input_total += capacity - c->in_capacity;
    c->in = pk_door_resize(c->in, capacity);
    c->in_capacity = capacity;
}

/* Keeps data[used..len) for later; data may be the kept bytes themselves. */
static void keep(struct pk_conn *c, const char *data, size_t used, size_t len)
{
    size_t rest = len - used;
    bool was_empty = c->in_len == 0;
    c->in_len = rest;
    if (rest == 0) {
        resize_input(c, 0);
        return;
    }
    if (data != c->in && c->in_capacity < rest) {
        resize_input(c, rest);
    }
    memmove(c->in, data + used, rest);
    if (was_empty || used > 0) {
        c->in_since_ms = pk_server_now(c->server);
    }
}

/* P10: unfinished requests of all connections together are bounded. Closes the connection
 * if they are past the bound and its request is one of the large ones. */
static bool closed_as_too_large(struct pk_conn *c)
{
    if (c->server->input_total <= PK_CONN_INPUT_TOTAL || c->in_len <= PK_SERVER_SCRATCH) {
        return false;
    }
    pk_metrics_count(c->server->metrics, PK_COUNT_SLOW_CLOSED, 1);
    c->in_len = 0;
    resize_input(c, 0); /* now: hundreds may be closed before the loop frees the first */
    pk_conn_close(c);
    return true;
}

/* Goes on with bytes that have arrived: at `data`, or those kept. */
static void consume(struct pk_conn *c, const char *data, size_t len)
{
    size_t used = take(c, data, len);
    if (c->closing) {
        return;
    }
    keep(c, data, used, len);
    if (closed_as_too_large(c)) {
        return;
    }
    if (c->relay != NULL) {
        if (c->in_len > 0) {
            pk_relay_forward(c, c->in, c->in_len);
            keep(c, c->in, c->in_len, c->in_len);
        }
        return;
    }
    if (c->stall != PK_STALL_NONE || c->last || c->in_len >= PK_RESP_REQUEST_MAX) {
        stop_reading(c);
    } else {
        pk_conn_resume(c);
    }
}

void pk_conn_pause(struct pk_conn *c)
{
    stop_reading(c);
}

void pk_conn_resume(struct pk_conn *c)
{
    if (!c->reading && !c->closing) {
        c->reading = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) == 0;
    }
}

bool pk_conn_peer_has_gone(const struct pk_conn *c)
{
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&c->tcp, &fd) != 0) {
        return true;
    }
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1;
}

void pk_conns_run(struct pk_server *s)
{
    struct pk_flow *w;
    while ((w = pk_fair_next(&s->fair)) != NULL) {
        struct pk_conn *c = PK_OWNER(w, struct pk_conn, flow);
        if (c->closing || (c->stall == PK_STALL_WAIT && c->wait_lease != 0) ||
            (c->stall == PK_STALL_OUTPUT && pk_conn_unsent(c) > PK_CONN_UNSENT_SOFT)) {
            continue;
        }
        if (c->stall == PK_STALL_SHARE && pk_conn_peer_has_gone(c)) {
            pk_conn_close(c); /* else many that ask for much and go would pile up */
            continue;
        }
        c->stall = PK_STALL_NONE;
        c->in_since_ms = pk_server_now(s); /* we did not read on, so it could not send */
        if (c->renewal != NULL) {
            pk_renewal_go_on(c);
        }
        consume(c, c->in, c->in_len);
    }
}

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
    (void)hint;
    struct pk_conn *c = handle->data;
    if (c->in_len == 0) {
        *buf = uv_buf_init(c->server->scratch, PK_SERVER_SCRATCH);
        return;
    }
    size_t want = c->in_len + INPUT_STEP;
    want = want < c->in_want ? c->in_want : want;
    if (c->in_capacity < want) {
        resize_input(c, want);
    }
    *buf = uv_buf_init(c->in + c->in_len, (unsigned)(c->in_capacity - c->in_len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct pk_conn *c = stream->data;
    if (n < 0) {
        pk_conn_close(c);
        return;
    }
    if (n == 0) {
        return;
    }
    if (c->relay != NULL) {
        pk_relay_forward(c, buf->base, (size_t)n);
    } else if (c->in_len == 0) {
        consume(c, buf->base, (size_t)n);
    } else {
        c->in_len += (size_t)n;
        bool far = c->in_len + INPUT_STEP < c->in_want; /* from being whole */
        if (!closed_as_too_large(c) && !far) {
            consume(c, c->in, c->in_len);
        }
    }
}

/* ---- coming and going ---- */

/* A closed connection can still be waiting for the end of the turn. */
static void leave_lists(struct pk_conn *c)
{
    struct pk_server *s = c->server;
    struct pk_conn **at = &s->dirty;
    while (c->dirty && *at != c) {
        at = &(*at)->next_dirty;
    }
    if (c->dirty) {
        *at = c->next_dirty;
    }
    pk_fair_leave(&s->fair, &c->flow);
}

static void on_closed(uv_handle_t *handle)
{
    struct pk_conn *c = handle->data;
    struct pk_server *s = c->server;
    leave_lists(c);
    s->conns[c->slot] = NULL;
    s->full_slots = c->slot < s->full_slots ? c->slot : s->full_slots;
    s->conn_count--;
    pk_metrics_gauge(s->metrics, PK_GAUGE_CONNECTIONS, -1);
    pk_resp_free(&c->out);
    pk_resp_free(&c->flight);
    resize_input(c, 0);
    pk_renewal_free(c);
    pk_door_resize(c, 0);
}

void pk_conn_close(struct pk_conn *c)
{
    if (c->closing) {
        return;
    }
    c->closing = true;
    count_unsent(c);
    pk_resp_free(&c->out); /* now: hundreds may be closed before the loop frees one */
    pk_hub_forget(&c->server->hub, c);
    if (c->relay != NULL) {
        pk_relay_end(c);
    }
    uv_close((uv_handle_t *)&c->tcp, on_closed);
}

void pk_conn_tune(uv_tcp_t *tcp)
{
    uv_os_fd_t fd;
    int deaf = DEAF_MS;
    (void)uv_tcp_nodelay(tcp, 1);
    (void)uv_tcp_keepalive(tcp, 1, KEEPALIVE_S);
    if (uv_fileno((uv_handle_t *)tcp, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &deaf, sizeof deaf);
    }
}

static void name_by_address(struct pk_conn *c)
{
    struct sockaddr_storage peer;
    int size = sizeof peer;
    char host[INET6_ADDRSTRLEN] = "?";
    int port = 0;
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&peer, &size) == 0) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&peer;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&peer;
        bool six = peer.ss_family == AF_INET6;
        if (six) {
            (void)uv_ip6_name(v6, host, sizeof host);
        } else {
            (void)uv_ip4_name(v4, host, sizeof host);
        }
        port = ntohs(six ? v6->sin6_port : v4->sin_port);
    }
    (void)snprintf(c->name, sizeof c->name, "%s:%d", host, port);
}

void pk_conn_accept(struct pk_server *s, uv_stream_t *listener)
{
    struct pk_conn *c = pk_door_resize(NULL, sizeof *c);
    memset(c, 0, sizeof *c);
    c->server = s;
    c->slot = free_slot(s);
    c->generation = ++s->next_generation;
    s->conns[c->slot] = c;
    s->conn_count++;
    pk_metrics_gauge(s->metrics, PK_GAUGE_CONNECTIONS, 1);
    PK_ASSERT(uv_tcp_init(&s->loop, &c->tcp) == 0);
    c->tcp.data = c;
    if (uv_accept(listener, (uv_stream_t *)&c->tcp) != 0) {
        pk_conn_close(c);
        return;
    }
    pk_conn_tune(&c->tcp);
    name_by_address(c);
    if (s->conn_count > s->options.connections || s->draining) {
        pk_metrics_count(s->metrics, PK_COUNT_CONNECTIONS_REFUSED, 1);
        pk_proto_write_error(pk_conn_out(c), PK_PROTO_ERROR_OVERLOAD,
                             s->draining ? "this node is going down"
                                         : "too many connections");
        c->last = true;
        return;
    }
    c->reading = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) == 0;
}

bool pk_conn_listens(const struct pk_conn *c)
{
    return c->wait_lease != 0 || c->owned != NULL || c->watching;
}

/* Nobody leads, as far as this node knows, and a request would be refused by now. */
static bool is_cut_off(struct pk_server *s, uint64_t now)
{
    if (s->leader_id != 0 || s->draining) {
        return false;
    }
    if (s->leaderless_ms == 0) {
        s->leaderless_ms = now;
    }
    return now - s->leaderless_ms >= PK_LEADER_PATIENCE_MS;
}

void pk_conns_sweep(struct pk_server *s)
{
    uint64_t now = pk_server_now(s);
    bool cut_off = is_cut_off(s, now);
    for (uint32_t i = 0; i < s->conn_slots; i++) {
        struct pk_conn *c = s->conns[i];
        if (c == NULL || c->closing) {
            continue;
        }
        bool slow = c->in_len > 0 && c->stall == PK_STALL_NONE && c->relay == NULL &&
                    now - c->in_since_ms > PK_CONN_REQUEST_MS;
        if (slow) {
            pk_metrics_count(s->metrics, PK_COUNT_SLOW_CLOSED, 1);
            pk_conn_close(c);
        } else if (cut_off && c->pending == 0 && pk_conn_listens(c)) {
            /* What it waits for happens elsewhere; silence would keep it here (P9). */
            pk_conn_close(c);
        } else if (c->stall == PK_STALL_LEADER) {
            pk_conn_wake(c);
        }
    }
}
