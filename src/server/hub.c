/* SPDX-License-Identifier: MIT */
#include "server/hub.h"

#include <string.h>

#include "core/door.h"
#include "proto/proto.h"
#include "server/log.h"

static int order_lease(const void *key, const struct pk_node *node)
{
    uint64_t lease = *(const uint64_t *)key;
    uint64_t other = PK_OWNER(node, struct pk_owned, node)->lease;
    return (lease > other) - (lease < other);
}

static struct pk_owned *find(const struct pk_hub *h, uint64_t lease)
{
    struct pk_node *node = pk_tree_find(&h->leases, &lease, order_lease);
    return node == NULL ? NULL : PK_OWNER(node, struct pk_owned, node);
}

static void unlink_from_conn(struct pk_owned *o)
{
    *o->back = o->next;
    if (o->next != NULL) {
        o->next->back = o->back;
    }
}

static void link_to_conn(struct pk_owned *o, struct pk_conn *c)
{
    o->conn = c;
    o->next = c->owned;
    o->back = &c->owned;
    if (o->next != NULL) {
        o->next->back = &o->next;
    }
    c->owned = o;
}

static void disown(struct pk_hub *h, struct pk_owned *o)
{
    unlink_from_conn(o);
    pk_tree_erase(&h->leases, &o->node);
    h->owned--;
    pk_door_resize(o, 0);
}

void pk_hub_own(struct pk_hub *h, uint64_t lease, struct pk_conn *c)
{
    struct pk_owned *o = find(h, lease);
    if (o == NULL) {
        o = pk_door_resize(NULL, sizeof *o);
        o->lease = lease;
        pk_tree_insert(&h->leases, &o->node, &lease, order_lease);
        h->owned++;
        link_to_conn(o, c);
    } else if (o->conn != c) {
        unlink_from_conn(o);
        link_to_conn(o, c);
    }
}

void pk_hub_forget(struct pk_hub *h, struct pk_conn *c)
{
    while (c->owned != NULL) {
        disown(h, c->owned);
    }
    pk_hub_unwatch(h, c);
}

void pk_hub_watch(struct pk_hub *h, struct pk_conn *c, struct pk_bytes prefix)
{
    c->prefix_len = prefix.len;
    memcpy(c->prefix, prefix.data, prefix.len);
    if (!c->watching) {
        c->watching = true;
        c->next_watcher = h->watchers;
        h->watchers = c;
    }
}

void pk_hub_unwatch(struct pk_hub *h, struct pk_conn *c)
{
    if (!c->watching) {
        return;
    }
    c->watching = false;
    struct pk_conn **at = &h->watchers;
    while (*at != c) {
        at = &(*at)->next_watcher;
    }
    *at = c->next_watcher;
}

/* ---- telling ---- */

/* The reply says it already, to the one who asked. */
static bool told_by_reply(const struct pk_effect *reply, const struct pk_effect *e)
{
    if (reply == NULL || reply->lease != e->lease) {
        return false;
    }
    switch (e->kind) {
    case PK_EV_GRANTED:
        return reply->verb == PK_LOCK_ACQUIRE && reply->request == e->request;
    case PK_EV_ENDED:
        return reply->verb == PK_LOCK_RELEASE || reply->verb == PK_LEASE_CLOSE ||
               reply->verb == PK_LOCK_CANCEL;
    case PK_EV_LEFT:
        return reply->verb == PK_LOCK_CANCEL || reply->verb == PK_LEASE_CLOSE;
    case PK_EV_LEASE_ENDED:
        return reply->verb == PK_LEASE_CLOSE;
    default:
        return false;
    }
}

static bool concerns_owner(enum pk_effect_kind kind)
{
    return kind == PK_EV_GRANTED || kind == PK_EV_ENDED || kind == PK_EV_LEFT ||
           kind == PK_EV_LEASE_ENDED;
}

/* The answer to a wait on a RESP2 connection. */
static void end_wait(struct pk_conn *c, const struct pk_effect *e)
{
    struct pk_effect reply = {.kind = PK_REPLY,
                              .verb = PK_LOCK_ACQUIRE,
                              .lease = c->wait_lease,
                              .request = c->wait_request,
                              .name = e->name,
                              .end = e->end};
    if (e->kind == PK_EV_GRANTED) {
        reply.status = PK_OK;
        reply.token = e->token;
        reply.end = PK_END_NONE;
    } else if (e->kind == PK_EV_LEASE_ENDED) {
        reply.status = PK_LOST;
    } else {
        reply.status = e->end == PK_END_TIMED_OUT ? PK_TIMEOUT : PK_CANCELLED;
    }
    struct pk_effects answer = {.list = &reply, .count = 1};
    pk_proto_write_reply(pk_conn_out(c), &answer);
    c->wait_lease = 0;
    pk_conn_wake(c);
}

static bool ends_wait(const struct pk_conn *c, const struct pk_effect *e)
{
    if (c->wait_lease == 0 || c->wait_lease != e->lease) {
        return false;
    }
    bool about_it = e->request == c->wait_request &&
                    (e->kind == PK_EV_GRANTED || e->kind == PK_EV_LEFT);
    return about_it || e->kind == PK_EV_LEASE_ENDED;
}

static void tell_owner(struct pk_conn *c, const struct pk_effect *e)
{
    if (ends_wait(c, e)) {
        end_wait(c, e);
    } else if (c->out.resp3 && pk_conn_unsent(c) > PK_CONN_UNSENT_PUSH) {
        pk_log(PK_LOG_WARN, "slow-client", "name", c->name, "what",
               "closed: it does not read what it has to know", NULL);
        pk_conn_close(c);
    } else if (c->out.resp3) {
        pk_proto_write_event(pk_conn_out(c), e);
    }
}

static bool wants(const struct pk_conn *c, const struct pk_effect *e)
{
    return e->name.len >= c->prefix_len &&
           memcmp(e->name.data == NULL ? "" : e->name.data, c->prefix, c->prefix_len) ==
               0;
}

static void tell_watcher(struct pk_conn *c, const struct pk_effect *e)
{
    if (pk_conn_unsent(c) > PK_CONN_UNSENT_PUSH) {
        c->gap = true;
        return;
    }
    if (c->gap) {
        c->gap = false;
        pk_proto_write_gap(pk_conn_out(c));
    }
    pk_proto_write_event(pk_conn_out(c), e);
}

/* `e` has its cluster time. */
static void tell(struct pk_hub *h, const struct pk_effect *reply,
                 const struct pk_effect *e)
{
    for (struct pk_conn *c = h->watchers; c != NULL; c = c->next_watcher) {
        if (wants(c, e)) {
            tell_watcher(c, e);
        }
    }
    if (h->owned == 0 || !concerns_owner(e->kind)) {
        return;
    }
    struct pk_owned *o = find(h, e->lease);
    if (o == NULL) {
        return;
    }
    struct pk_conn *owner = o->conn;
    if (e->kind == PK_EV_LEASE_ENDED) {
        disown(h, o);
    }
    if (!told_by_reply(reply, e) && !owner->closing &&
        !(owner->watching && wants(owner, e) && owner->wait_lease == 0)) {
        tell_owner(owner, e);
    }
}

void pk_hub_step(struct pk_hub *h, const struct pk_effects *e, uint64_t clock_ms)
{
    if (h->owned == 0 && h->watchers == NULL) {
        return;
    }
    const struct pk_effect *reply = NULL;
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->list[i].kind == PK_REPLY) {
            reply = &e->list[i];
        } else if (e->list[i].kind >= PK_EV_LEASE_OPENED) {
            struct pk_effect event = e->list[i];
            event.since_ms = clock_ms;
            tell(h, reply, &event);
        }
    }
}

void pk_hub_gap(struct pk_hub *h)
{
    for (struct pk_conn *c = h->watchers; c != NULL; c = c->next_watcher) {
        pk_proto_write_gap(pk_conn_out(c));
        c->gap = false;
    }
    for (struct pk_node *n = pk_tree_first(&h->leases); n != NULL;
         n = pk_tree_first(&h->leases)) {
        struct pk_conn *c = PK_OWNER(n, struct pk_owned, node)->conn;
        pk_conn_close(c); /* which forgets all of its leases */
    }
}
