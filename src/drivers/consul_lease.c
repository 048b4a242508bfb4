/* SPDX-License-Identifier: MIT */
/* Leases in Consul: sessions, and the tickets by which they are found. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/consul.h"

enum {
    SESSION_MIN_MS = 10000, /* Consul has no shorter ones */
    CHECKS_MAX = 64,        /* operations of a transaction */
    PATIENCE_MIN_MS = 250,
};

/* ---- which there are ---- */

struct pk_consul_lease *pk_consul_lease_find(struct pk_consul *c, uint64_t id)
{
    struct pk_consul_lease *l = c->leases;
    while (l != NULL && l->id != id) {
        l = l->next;
    }
    return l;
}

void pk_consul_lease_forget(struct pk_consul *c, uint64_t id)
{
    for (struct pk_consul_lease **at = &c->leases; *at != NULL; at = &(*at)->next) {
        if ((*at)->id == id) {
            struct pk_consul_lease *l = *at;
            *at = l->next;
            if (l->watch != NULL) {
                pk_consul_watch_drop(c, l->watch);
            }
            (void)pk_door_resize(l, 0);
            return;
        }
    }
}

static struct pk_consul_lease *note_lease(struct pk_consul *c, uint64_t id,
                                          const char *session, uint64_t ttl_ms)
{
    struct pk_consul_lease *l = pk_door_resize(NULL, sizeof *l);
    *l = (struct pk_consul_lease){.next = c->leases, .id = id, .ttl_ms = ttl_ms};
    (void)snprintf(l->session, sizeof l->session, "%s", session);
    c->leases = l;
    return l;
}

void pk_consul_ticket_key(const struct pk_consul *c, uint64_t id,
                          char out[PK_CONSUL_KEY_ROOM])
{
    (void)snprintf(out, PK_CONSUL_KEY_ROOM, "%s/.leases/%" PRIu64, c->prefix, id);
}

/* The TTL that is written on a ticket. */
static uint64_t ttl_on(const struct pk_consul_key *ticket)
{
    struct pk_card card;
    char *room = pk_door_resize(NULL, ticket->len + 1);
    bool read = pk_card_read(pk_bytes(ticket->value, ticket->len), room, &card);
    (void)pk_door_resize(room, 0);
    return read ? card.ttl_ms : SESSION_MIN_MS;
}

/* Finds a lease that may be another process', by its ticket. LOST: there is none. */
enum picket_status pk_consul_lease_know(struct pk_consul *c, uint64_t id,
                                        uint64_t until_ms, struct pk_consul_lease **out)
{
    char key[PK_CONSUL_KEY_ROOM];
    struct pk_consul_key ticket = {0};
    *out = pk_consul_lease_find(c, id);
    if (*out != NULL) {
        return PICKET_OK;
    }
    pk_consul_ticket_key(c, id, key);
    enum picket_status s = pk_consul_get(c, &c->call, key, &ticket, until_ms);
    if (s == PICKET_OK && ticket.session[0] == '\0') {
        s = pk_fail_plain(PICKET_LOST);
    } else if (s == PICKET_OK) {
        *out = note_lease(c, id, ticket.session, ttl_on(&ticket));
        (*out)->ticket = ticket.index;
    }
    pk_consul_key_free(&ticket);
    return s;
}

/* Writes the ticket, or writes it anew: what was asked for with the old one can't be done
 * any more. */
enum picket_status pk_consul_ticket_write(struct pk_consul *c, struct pk_consul_lease *l,
                                          struct pk_bytes card, uint64_t until_ms)
{
    char key[PK_CONSUL_KEY_ROOM];
    size_t refused = 0;
    uint64_t index = 0;
    json_t *txn = json_array();
    pk_consul_ticket_key(c, l->id, key);
    pk_consul_op_add(txn, &(struct pk_consul_op){.verb = "lock",
                                                 .key = key,
                                                 .session = l->session,
                                                 .value = card,
                                                 .has_value = true});
    enum picket_status s = pk_consul_run(c, &c->call, txn, &index, &refused, until_ms);
    if (s == PICKET_OK) {
        l->ticket = index;
    }
    if (s == PICKET_OK && l->watch != NULL) {
        pk_consul_watch_hold(c, l->watch, index, 0);
    }
    return s == PICKET_NOTHELD ? pk_fail_plain(PICKET_LOST) : s;
}

static enum picket_status create_session(struct pk_consul *c, const struct pk_tenancy *t,
                                         uint64_t until_ms)
{
    uint64_t ttl_ms = t->ttl_ms < SESSION_MIN_MS ? SESSION_MIN_MS : t->ttl_ms;
    char body[240];
    /* No checks: only the TTL decides, not what nodes believe of each other. */
    (void)snprintf(body, sizeof body,
                   "{\"Name\":\"picket-%" PRIu64 "\",\"TTL\":\"%" PRIu64
                   "ms\",\"LockDelay\":\"0s\",\"Behavior\":\"delete\","
                   "\"NodeChecks\":[],\"Checks\":[]}",
                   t->id, ttl_ms);
    const struct pk_consul_ask a = {
        .method = "PUT", .path = "/session/create", .body = body, .changes = true};
    enum picket_status s = pk_consul_ask(c, &c->call, &a, until_ms);
    json_t *j = s == PICKET_OK ? pk_consul_json(c, &c->call, &s) : NULL;
    if (j == NULL) {
        return s;
    }
    const char *id = json_string_value(json_object_get(j, "ID"));
    if (id == NULL) {
        s = pk_fail(PICKET_STORE, "%s makes no sessions", c->show);
    } else {
        (void)note_lease(c, t->id, id, t->ttl_ms);
    }
    json_decref(j);
    return s;
}

/* From now on it is the one of this process: its end will be told. */
static void keep_lease(struct pk_consul *c, struct pk_consul_lease *l)
{
    char key[PK_CONSUL_KEY_ROOM];
    if (c->mine != 0 && c->mine != l->id) {
        pk_consul_lease_forget(c, c->mine);
    }
    c->mine = l->id;
    c->patience_ms = l->ttl_ms / 3;
    c->patience_ms = c->patience_ms > PK_CONSUL_PATIENCE_MS ? PK_CONSUL_PATIENCE_MS
                     : c->patience_ms < PATIENCE_MIN_MS     ? PATIENCE_MIN_MS
                                                            : c->patience_ms;
    if (l->watch == NULL) {
        pk_consul_ticket_key(c, l->id, key);
        l->watch = pk_consul_watch_new(c, l->id, 0, key, l->session);
        pk_consul_watch_hold(c, l->watch, l->ticket, 0);
    }
}

/* A session without a ticket that an unknown outcome leaves behind ends by itself, and
 * holds nothing. */
enum picket_status pk_consul_lease_open(void *own, struct pk_tenancy *t,
                                        uint64_t until_ms)
{
    struct pk_consul *c = own;
    struct pk_consul_lease *l = NULL;
    enum picket_status s = PICKET_LOST;
    if (c->opening == t->id) {
        s = pk_consul_lease_know(c, t->id, until_ms, &l);
    }
    c->opening = t->id;
    if (s == PICKET_LOST) {
        s = create_session(c, t, until_ms);
        l = pk_consul_lease_find(c, t->id);
    }
    if (s == PICKET_OK && l->ticket != 0) {
        keep_lease(c, l);
    }
    if (s != PICKET_OK || l->ticket != 0) {
        return s;
    }
    size_t len;
    char *card = pk_card_write(&(struct pk_card){.lease = t->id,
                                                 .mode = PK_EXCLUSIVE,
                                                 .since_ms = pk_card_now(),
                                                 .ttl_ms = t->ttl_ms,
                                                 .label = t->label},
                               &len);
    s = pk_consul_ticket_write(c, l, pk_bytes(card, len), until_ms);
    free(card);
    if (s == PICKET_OK) {
        keep_lease(c, l);
    }
    return s;
}

/* Gathers up to CHECKS_MAX holds of the lease after the first `skip`, and the question
 * about them. */
static size_t gather_holds(struct pk_consul *c, uint64_t lease, size_t skip,
                           struct pk_consul_watch *held[CHECKS_MAX], json_t *txn)
{
    size_t n = 0;
    pthread_mutex_lock(&c->mutex);
    for (struct pk_consul_watch *w = c->watches; w != NULL && n < CHECKS_MAX;
         w = w->next) {
        bool holds = w->lease == lease && w->request != 0 && w->hold && !w->dropped;
        if (holds && skip > 0) {
            skip--;
        } else if (holds) {
            pk_consul_op_add(txn, &(struct pk_consul_op){.verb = "check-session",
                                                         .key = w->key,
                                                         .session = w->session});
            held[n++] = w;
        }
    }
    pthread_mutex_unlock(&c->mutex);
    return n;
}

/* Asks about so many; those that are gone are reported. */
static enum picket_status check_some(struct pk_consul *c, json_t *txn,
                                     struct pk_consul_watch *const *held, size_t n,
                                     uint64_t until_ms)
{
    uint64_t index = 0;
    size_t refused = 0;
    enum picket_status s = pk_consul_run(c, &c->call, txn, &index, &refused, until_ms);
    if (s != PICKET_NOTHELD) {
        return s;
    }
    json_t *answer = pk_consul_json(c, &c->call, &s);
    const json_t *errors = json_object_get(answer, "Errors");
    for (size_t i = 0; i < json_array_size(errors); i++) {
        const json_t *which = json_object_get(json_array_get(errors, i), "OpIndex");
        size_t op = (size_t)json_integer_value(which);
        if (op < n) {
            pk_consul_ended(c, &c->call, held[op], until_ms);
        }
    }
    json_decref(answer);
    return PICKET_OK;
}

/* Reports the holds of the lease that are gone although it lives. Watches tell that too,
 * but there is not one for each, and their lines may be dead. */
static void check_holds(struct pk_consul *c, uint64_t lease, uint64_t until_ms)
{
    struct pk_consul_watch *held[CHECKS_MAX];
    enum picket_status s = PICKET_OK;
    size_t n = CHECKS_MAX;
    for (size_t skip = 0; s == PICKET_OK && n == CHECKS_MAX; skip += n) {
        json_t *txn = json_array();
        n = gather_holds(c, lease, skip, held, txn);
        if (n == 0) {
            json_decref(txn);
            return;
        }
        s = check_some(c, txn, held, n, until_ms);
    }
}

/* "renew" or "destroy". */
static enum picket_status put_session(struct pk_consul *c, const char *verb,
                                      const struct pk_consul_lease *l, uint64_t until_ms)
{
    char path[80];
    (void)snprintf(path, sizeof path, "/session/%s/%s", verb, l->session);
    const struct pk_consul_ask a = {
        .method = "PUT", .path = path, .body = "", .changes = true};
    return pk_consul_ask(c, &c->call, &a, until_ms);
}

enum picket_status pk_consul_lease_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                         uint64_t until_ms)
{
    struct pk_consul *c = own;
    struct pk_consul_lease *l = NULL;
    enum picket_status s = pk_consul_lease_know(c, lease, until_ms, &l);
    if (s != PICKET_OK) {
        return s;
    }
    if (*ttl_ms != 0 && *ttl_ms != l->ttl_ms) {
        return pk_fail(PICKET_UNSUPPORTED,
                       "consul has no other TTL for a lease than the one it was opened "
                       "with; open another lease");
    }
    s = put_session(c, "renew", l, until_ms);
    if (s == PICKET_OK && c->call.status == 404) {
        pk_consul_lease_forget(c, lease);
        return pk_fail_plain(PICKET_LOST);
    }
    if (s == PICKET_OK) {
        *ttl_ms = l->ttl_ms;
        check_holds(c, lease, until_ms);
    }
    return s;
}

enum picket_status pk_consul_lease_close(void *own, uint64_t lease, uint64_t until_ms)
{
    struct pk_consul *c = own;
    struct pk_consul_lease *l = NULL;
    enum picket_status s = pk_consul_lease_know(c, lease, until_ms, &l);
    if (s != PICKET_OK) {
        return s;
    }
    s = put_session(c, "destroy", l, until_ms);
    if (s == PICKET_OK) {
        pk_consul_lease_forget(c, lease);
    }
    return s;
}

/* Consul does not tell how much is left: its TTL, if it is there at all. */
enum picket_status pk_consul_lease_look(void *own, uint64_t lease, uint64_t *left_ms,
                                        uint64_t until_ms)
{
    struct pk_consul *c = own;
    char key[PK_CONSUL_KEY_ROOM];
    struct pk_consul_key ticket = {0};
    pk_consul_ticket_key(c, lease, key);
    enum picket_status s = pk_consul_get(c, &c->call, key, &ticket, until_ms);
    if (s == PICKET_OK && ticket.session[0] == '\0') {
        s = pk_fail_plain(PICKET_LOST);
    } else if (s == PICKET_OK) {
        *left_ms = ttl_on(&ticket);
    }
    pk_consul_key_free(&ticket);
    return s;
}

/* The ticket was written anew, perhaps by a request of ours without an answer. */
enum picket_status pk_consul_ticket_read(struct pk_consul *c, struct pk_consul_lease *l,
                                         uint64_t until_ms)
{
    char key[PK_CONSUL_KEY_ROOM];
    struct pk_consul_key ticket = {0};
    pk_consul_ticket_key(c, l->id, key);
    enum picket_status s = pk_consul_get(c, &c->call, key, &ticket, until_ms);
    if (s == PICKET_OK && strcmp(ticket.session, l->session) != 0) {
        s = pk_fail_plain(PICKET_LOST);
    }
    l->ticket = ticket.index;
    pk_consul_key_free(&ticket);
    return s;
}
