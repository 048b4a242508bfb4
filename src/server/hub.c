/* SPDX-License-Identifier: MIT */
#include "server/hub.h"

#include <string.h>

#include "core/door.h"
#include "proto/proto.h"
#include "server/inside.h"
#include "server/log.h"

struct owner_key {
    uint64_t lease, who;
};

static int order_owner(const void *key, const struct pk_node *node)
{
    const struct owner_key *k = key;
    const struct pk_owned *o = PK_OWNER(node, struct pk_owned, node);
    uint64_t who = pk_conn_who(o->conn);
    if (k->lease != o->lease) {
        return k->lease < o->lease ? -1 : 1;
    }
    return (k->who > who) - (k->who < who);
}

/* The lease's owners, oldest connection first; returns how many. */
static size_t owners_of(const struct pk_hub *h, uint64_t lease,
                        struct pk_owned *out[PK_OWNERS_MAX])
{
    struct owner_key key = {lease, 0};
    struct pk_node *node = pk_tree_seek(&h->owners, &key, order_owner);
    size_t n = 0;
    while (node != NULL && n < PK_OWNERS_MAX) {
        struct pk_owned *o = PK_OWNER(node, struct pk_owned, node);
        if (o->lease != lease) {
            break;
        }
        out[n++] = o;
        node = pk_tree_next(node);
    }
    return n;
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
    pk_tree_erase(&h->owners, &o->node);
    h->owned--;
    pk_door_resize(o, 0);
}

/* Where a push to an owner goes; NULL: the connection is closed, because it does not read
 * what it has to know. */
static struct pk_resp_out *room_for_push(struct pk_conn *c)
{
    if (pk_conn_unsent(c) <= PK_CONN_UNSENT_PUSH) {
        return pk_conn_out(c);
    }
    pk_log(PK_LOG_WARN, "slow-client", "name", c->name, "what",
           "closed: it does not read what it has to know", NULL);
    pk_metrics_count(c->server->metrics, PK_COUNT_SLOW_CLOSED, 1);
    pk_conn_close(c);
    return NULL;
}

/* Makes room for one more owner: the one that acted longest ago goes, and hears of it. */
static void evict(struct pk_hub *h, struct pk_owned *const owners[PK_OWNERS_MAX])
{
    struct pk_owned *idlest = owners[0];
    for (size_t i = 1; i < PK_OWNERS_MAX; i++) {
        idlest = owners[i]->acted < idlest->acted ? owners[i] : idlest;
    }
    uint64_t lease = idlest->lease;
    struct pk_conn *c = idlest->conn;
    disown(h, idlest);
    struct pk_resp_out *o = c->out.resp3 && !c->closing ? room_for_push(c) : NULL;
    if (o != NULL) {
        pk_proto_write_gap(o, lease);
    }
}

void pk_hub_own(struct pk_hub *h, uint64_t lease, struct pk_conn *c)
{
    struct owner_key key = {lease, pk_conn_who(c)};
    struct pk_node *known = pk_tree_find(&h->owners, &key, order_owner);
    if (known != NULL) {
        PK_OWNER(known, struct pk_owned, node)->acted = ++h->acts;
        return;
    }
    struct pk_owned *others[PK_OWNERS_MAX];
    if (owners_of(h, lease, others) == PK_OWNERS_MAX) {
        evict(h, others);
    }
    struct pk_owned *o = pk_door_resize(NULL, sizeof *o);
    o->lease = lease;
    o->acted = ++h->acts;
    link_to_conn(o, c);
    pk_tree_insert(&h->owners, &o->node, &key, order_owner);
    h->owned++;
}

/* ---- waits on RESP2 connections ---- */

/* The claim is known by its seq: several of one lease may have no request id. */
struct wait_key {
    uint64_t lease, seq, who;
};

static int order_wait(const void *key, const struct pk_node *node)
{
    const struct wait_key *k = key;
    const struct pk_conn *c = PK_OWNER(node, struct pk_conn, wait);
    uint64_t who = pk_conn_who(c);
    if (k->lease != c->wait_lease) {
        return k->lease < c->wait_lease ? -1 : 1;
    }
    if (k->seq != c->wait_seq) {
        return k->seq < c->wait_seq ? -1 : 1;
    }
    return (k->who > who) - (k->who < who);
}

void pk_hub_wait(struct pk_hub *h, struct pk_conn *c, const struct pk_effect *queued)
{
    struct wait_key key = {queued->lease, queued->seq, pk_conn_who(c)};
    c->wait_lease = queued->lease;
    c->wait_request = queued->request;
    c->wait_seq = queued->seq;
    pk_tree_insert(&h->waits, &c->wait, &key, order_wait);
    h->waiting++;
}

static void stop_waiting(struct pk_hub *h, struct pk_conn *c)
{
    pk_tree_erase(&h->waits, &c->wait);
    c->wait_lease = 0;
    h->waiting--;
}

void pk_hub_forget(struct pk_hub *h, struct pk_conn *c)
{
    while (c->owned != NULL) {
        disown(h, c->owned);
    }
    if (c->wait_lease != 0) {
        stop_waiting(h, c);
    }
    pk_hub_unwatch(h, c);
}

struct watch_key {
    struct pk_bytes prefix;
    uint64_t who;
};

static struct pk_bytes prefix_of(const struct pk_conn *c)
{
    return pk_bytes(c->prefix, c->prefix_len);
}

static int order_watch(const void *key, const struct pk_node *node)
{
    const struct watch_key *k = key;
    const struct pk_conn *c = PK_OWNER(node, struct pk_conn, watch);
    uint64_t who = pk_conn_who(c);
    int order = pk_bytes_compare(k->prefix, prefix_of(c));
    return order != 0 ? order : (k->who > who) - (k->who < who);
}

void pk_hub_watch(struct pk_hub *h, struct pk_conn *c, struct pk_bytes prefix)
{
    pk_hub_unwatch(h, c);
    c->prefix_len = prefix.len;
    memcpy(c->prefix, prefix.data, prefix.len);
    c->watching = true;
    struct watch_key key = {prefix_of(c), pk_conn_who(c)};
    pk_tree_insert(&h->watchers, &c->watch, &key, order_watch);
    h->watching++;
    h->watched[c->prefix_len]++;
    pk_metrics_gauge(c->server->metrics, PK_GAUGE_WATCHERS, 1);
}

void pk_hub_unwatch(struct pk_hub *h, struct pk_conn *c)
{
    if (!c->watching) {
        return;
    }
    c->watching = false;
    pk_tree_erase(&h->watchers, &c->watch);
    h->watching--;
    h->watched[c->prefix_len]--;
    pk_metrics_gauge(c->server->metrics, PK_GAUGE_WATCHERS, -1);
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
    pk_conn_wake(c);
}

/* The event may be what connections wait for: all that wait on a lease that has ended,
 * or for the acquire that was granted or left the queue. */
static void end_waits(struct pk_hub *h, const struct pk_effect *e)
{
    bool lease_ended = e->kind == PK_EV_LEASE_ENDED;
    if (!lease_ended && e->kind != PK_EV_GRANTED && e->kind != PK_EV_LEFT) {
        return;
    }
    struct wait_key key = {e->lease, lease_ended ? 0 : e->seq, 0};
    for (;;) {
        struct pk_node *node = pk_tree_seek(&h->waits, &key, order_wait);
        struct pk_conn *c = node == NULL ? NULL : PK_OWNER(node, struct pk_conn, wait);
        if (c == NULL || c->wait_lease != e->lease ||
            (!lease_ended && c->wait_seq != e->seq)) {
            return;
        }
        end_wait(c, e);
        stop_waiting(h, c);
    }
}

static void tell_owner(struct pk_conn *c, const struct pk_effect *e)
{
    struct pk_resp_out *o = room_for_push(c);
    if (o != NULL) {
        pk_proto_write_event(o, e);
    }
}

static bool wants(const struct pk_conn *c, const struct pk_effect *e)
{
    return e->name.len >= c->prefix_len &&
           memcmp(e->name.data == NULL ? "" : e->name.data, c->prefix, c->prefix_len) ==
               0;
}

static void tell_of_gap(struct pk_conn *c)
{
    c->gap = false;
    pk_metrics_count(c->server->metrics, PK_COUNT_GAPS, 1);
    pk_proto_write_gap(pk_conn_out(c), 0);
}

static void tell_watcher(struct pk_hub *h, struct pk_conn *c, const struct pk_effect *e)
{
    size_t unsent = pk_conn_unsent(c);
    bool crowded = c->server->unsent_total > PK_CONN_UNSENT_CROWD;
    if (unsent > PK_CONN_UNSENT_PUSH || (crowded && unsent > 0)) {
        c->gap = true;
        return;
    }
    if (c->gap) {
        tell_of_gap(c);
    }
    if (h->event.len == 0) {
        h->event.resp3 = true; /* as all watchers are */
        pk_proto_write_event(&h->event, e);
    }
    pk_resp_raw(pk_conn_out(c), h->event.data, h->event.len);
}

/* Those who watch this very prefix. */
static void tell_watchers_of(struct pk_hub *h, struct pk_bytes prefix,
                             const struct pk_effect *e)
{
    struct watch_key key = {prefix, 0};
    struct pk_node *n = pk_tree_seek(&h->watchers, &key, order_watch);
    for (; n != NULL; n = pk_tree_next(n)) {
        struct pk_conn *c = PK_OWNER(n, struct pk_conn, watch);
        if (!pk_bytes_equal(prefix_of(c), prefix)) {
            return;
        }
        tell_watcher(h, c, e);
    }
}

static void tell_watchers(struct pk_hub *h, const struct pk_effect *e)
{
    h->event.len = 0;
    for (uint32_t len = 0; len <= e->name.len && len < PK_CONN_PREFIX_MAX; len++) {
        if (h->watched[len] > 0) {
            tell_watchers_of(h, pk_bytes(e->name.data, len), e);
        }
    }
}

static void tell_owners(struct pk_hub *h, const struct pk_effect *reply,
                        const struct pk_effect *e)
{
    struct pk_owned *owners[PK_OWNERS_MAX];
    struct pk_conn *conns[PK_OWNERS_MAX];
    size_t n = owners_of(h, e->lease, owners);
    for (size_t i = 0; i < n; i++) {
        conns[i] = owners[i]->conn;
        if (e->kind == PK_EV_LEASE_ENDED) {
            disown(h, owners[i]);
        }
    }
    for (size_t i = 0; i < n; i++) { /* closing one forgets all that it owns */
        struct pk_conn *c = conns[i];
        bool told =
            (c == h->asker && told_by_reply(reply, e)) || (c->watching && wants(c, e));
        if (!told && c->out.resp3 && !c->closing) {
            tell_owner(c, e);
        }
    }
}

/* `e` has its cluster time. */
static void tell(struct pk_hub *h, const struct pk_effect *reply,
                 const struct pk_effect *e)
{
    if (h->watching > 0) {
        tell_watchers(h, e);
    }
    if (h->waiting > 0) {
        end_waits(h, e);
    }
    if (h->owned > 0 && concerns_owner(e->kind)) {
        tell_owners(h, reply, e);
    }
}

void pk_hub_step(struct pk_hub *h, const struct pk_effects *e, uint64_t clock_ms)
{
    if (h->owned == 0 && h->waiting == 0 && h->watching == 0) {
        h->asker = NULL;
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
    h->asker = NULL;
}

void pk_hub_gap(struct pk_hub *h)
{
    struct pk_node *n = pk_tree_first(&h->watchers);
    for (; n != NULL; n = pk_tree_next(n)) {
        tell_of_gap(PK_OWNER(n, struct pk_conn, watch));
    }
    while ((n = pk_tree_first(&h->owners)) != NULL) {
        pk_conn_close(PK_OWNER(n, struct pk_owned, node)->conn); /* which forgets them */
    }
    while ((n = pk_tree_first(&h->waits)) != NULL) {
        pk_conn_close(PK_OWNER(n, struct pk_conn, wait));
    }
}

void pk_hub_free(struct pk_hub *h)
{
    pk_resp_free(&h->event);
}
