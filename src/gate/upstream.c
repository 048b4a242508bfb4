/* SPDX-License-Identifier: MIT */
/*
 * Connections to the service. One carries one request at a time; afterwards it is kept
 * for the next, the one used last first, so that the others can grow old and go. Idle
 * ones are listened to: one that the service closes is gone before anybody uses it,
 * but for the moment in between, which pk_exchange_up_ended deals with.
 */
#include "core/door.h"
#include "core/tree.h"
#include "gate/inside.h"

enum {
    IDLE_MAX = 256,
    IDLE_MS = 20000, /* less than services usually wait for another request */
    CONNECT_MS = 10000,
    KEEPALIVE_S = 30, /* of silence after which the kernel asks for the other end */
};

static void unlink_idle(struct pk_upstream *u)
{
    if (pk_list_linked(&u->link)) {
        pk_list_remove(&u->link);
        u->gate->n_idle--;
    }
}

static void on_came(void *owner)
{
    struct pk_upstream *u = owner;
    if (u->exchange != NULL) {
        pk_exchange_up_came(u->exchange);
    } else {
        pk_upstream_put(u, false); /* nobody has asked it anything */
    }
}

static void on_ended(void *owner, int error)
{
    struct pk_upstream *u = owner;
    if (u->exchange != NULL) {
        pk_exchange_up_ended(u->exchange, error);
    } else {
        pk_upstream_put(u, false);
    }
}

static void on_sent(void *owner, int error)
{
    struct pk_upstream *u = owner;
    if (u->exchange != NULL) {
        pk_exchange_up_sent(u->exchange, error);
    }
}

static void on_closed(void *owner)
{
    struct pk_upstream *u = owner;
    u->gate->n_upstreams--;
    pk_door_resize(u->wire.in, 0);
    pk_door_resize(u, 0);
}

static const struct pk_wire_events events = {on_came, on_ended, on_sent, on_closed};

static void on_connect(uv_connect_t *req, int status)
{
    struct pk_upstream *u = req->data;
    if (u->wire.closing || u->exchange == NULL) {
        return;
    }
    if (status != 0) {
        u->gate->counts.upstream_errors++;
        pk_exchange_up_ended(u->exchange, status);
        return;
    }
    pk_exchange_connected(u->exchange);
}

static void connect_to(struct pk_upstream *u)
{
    struct pk_gate *g = u->gate;
    const struct sockaddr *address = (const struct sockaddr *)&g->upstream;
    u->connect.data = u;
    u->wire.late_ms = pk_gate_now(g) + CONNECT_MS;
    g->counts.upstream_connects++;
    int failed = uv_tcp_connect(&u->connect, &u->wire.tcp, address, on_connect);
    if (failed != 0) {
        g->counts.upstream_errors++;
        pk_exchange_up_ended(u->exchange, failed);
        return;
    }
    (void)uv_tcp_nodelay(&u->wire.tcp, 1);
    (void)uv_tcp_keepalive(&u->wire.tcp, 1, KEEPALIVE_S);
}

void pk_upstream_get(struct pk_exchange *x, bool fresh)
{
    struct pk_gate *g = x->gate;
    struct pk_list_link *link = fresh ? NULL : pk_list_last(&g->idle);
    if (link != NULL) {
        struct pk_upstream *u = PK_OWNER(link, struct pk_upstream, link);
        unlink_idle(u);
        u->exchange = x;
        u->reused = true;
        u->wire.accepted = 0;
        u->wire.late_ms = 0;
        x->up = u;
        pk_exchange_connected(x);
        return;
    }
    struct pk_upstream *u = pk_door_resize(NULL, sizeof *u);
    memset(u, 0, sizeof *u);
    u->gate = g;
    u->exchange = x;
    x->up = u;
    g->n_upstreams++;
    pk_wire_init(&u->wire, &g->loop, &events, u);
    connect_to(u);
}

void pk_upstream_put(struct pk_upstream *u, bool keep)
{
    struct pk_gate *g = u->gate;
    u->exchange = NULL;
    unlink_idle(u);
    if (!keep || u->wire.ended || u->wire.closing || g->draining ||
        g->n_idle >= IDLE_MAX) {
        pk_wire_close(&u->wire);
        return;
    }
    pk_wire_pack(&u->wire);
    u->wire.late_ms = pk_gate_now(g) + IDLE_MS;
    pk_list_push(&g->idle, &u->link);
    g->n_idle++;
    pk_wire_read(&u->wire);
}

void pk_upstream_late(struct pk_gate *g, uint64_t now)
{
    struct pk_list_link *next;
    for (struct pk_list_link *link = pk_list_first(&g->idle); link != NULL; link = next) {
        struct pk_upstream *u = PK_OWNER(link, struct pk_upstream, link);
        next = pk_list_next(&g->idle, link);
        if (now >= u->wire.late_ms) {
            pk_upstream_put(u, false);
        }
    }
}
