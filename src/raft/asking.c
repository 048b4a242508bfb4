/* SPDX-License-Identifier: MIT */
/*
 * ASK and TELL: how nodes that don't belong to the same cluster, or to none yet, find out
 * about each other. Whoever dials may ask; it is told who is here, of which cluster, and
 * who the members are. An asker that could become a member is remembered, so that an
 * operator can see and admit it; the table is small, and whoever has been silent for the
 * longest time leaves it first (P10).
 */
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "raft/transport_inside.h"

/* ---- being asked ---- */

static bool is_member(const struct pk_transport *t, uint64_t id)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_transport_members(t, members);
    for (size_t i = 0; i < n; i++) {
        if (members[i].id == id) {
            return true;
        }
    }
    return false;
}

/* The place of that node, or the one that has been silent for the longest time. */
static struct pk_asker *place_of(struct pk_transport *t, uint64_t id)
{
    struct pk_asker *oldest = &t->askers[0];
    for (size_t i = 0; i < PK_WAITING_NODES_MAX; i++) {
        struct pk_asker *a = &t->askers[i];
        if (a->heard_ms != 0 && a->who.id == id) {
            return a;
        }
        oldest = a->heard_ms < oldest->heard_ms ? a : oldest;
    }
    return oldest;
}

static void remember(struct pk_transport *t, const struct pk_greeting *g)
{
    const struct pk_identity *self = t->o.self;
    bool could_join = g->cluster == 0 || g->cluster == self->cluster;
    const char *host = strchr(g->address, '@') + 1;
    struct pk_endpoint at;
    if (!could_join || g->from.id == self->id || is_member(t, g->from.id) ||
        strlen(host) >= PK_HOST_MAX || !pk_endpoint_split(host, &at)) {
        return;
    }
    struct pk_asker *a = place_of(t, g->from.id);
    *a = (struct pk_asker){
        .who.id = g->from.id, .who.release = g->release, .heard_ms = uv_now(t->o.loop)};
    (void)snprintf(a->who.name, sizeof a->who.name, "%s", g->from.name);
    (void)snprintf(a->who.host, sizeof a->who.host, "%s", host);
}

void pk_asking_answer(struct pk_handshake *h, const struct pk_greeting *g)
{
    struct pk_transport *t = h->t;
    struct pk_greeting answer = pk_transport_greeting(t, PK_TELL);
    answer.n_members = pk_transport_members(t, answer.members);
    remember(t, g);
    (void)pk_handshake_say(h, &answer);
    pk_handshake_end(h);
}

size_t pk_transport_waiting(const struct pk_transport *t, struct pk_waiting *out,
                            size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < PK_WAITING_NODES_MAX && n < max; i++) {
        const struct pk_asker *a = &t->askers[i];
        if (a->heard_ms != 0 && !is_member(t, a->who.id)) {
            out[n] = a->who;
            out[n++].silent_ms = uv_now(t->o.loop) - a->heard_ms;
        }
    }
    return n;
}

/* ---- asking ---- */

struct asking {
    pk_transport_tell_cb cb;
    void *ctx;
    bool answered;
    struct pk_tell tell;
    char why[PK_REFUSAL_MAX];
};

static bool say_ask(struct pk_handshake *h)
{
    struct pk_greeting g = pk_transport_greeting(h->t, PK_ASK);
    pk_transport_tune(h->t, h->tcp);
    return pk_handshake_say(h, &g);
}

/* The callback comes when the connection is closed. */
static void hear_tell(struct pk_handshake *h, const struct pk_greeting *g)
{
    struct asking *a = h->ctx;
    if (g->kind == PK_TELL) {
        a->answered = true;
        a->tell = (struct pk_tell){
            .cluster = g->cluster, .id = g->from.id, .n_members = g->n_members};
        (void)snprintf(a->tell.name, sizeof a->tell.name, "%s", g->from.name);
        memcpy(a->tell.members, g->members, sizeof a->tell.members);
    } else if (g->kind == PK_REFUSAL) {
        (void)snprintf(a->why, sizeof a->why, "%s", g->why);
    } else {
        (void)snprintf(a->why, sizeof a->why, "a tell was expected");
    }
    pk_handshake_end(h);
}

static void finish(void *ctx, const char *why)
{
    struct asking *a = ctx;
    a->cb(a->ctx, a->answered ? &a->tell : NULL,
          a->answered         ? NULL
          : a->why[0] != '\0' ? a->why
                              : why);
    pk_door_resize(a, 0);
}

static const struct pk_handshake_kind asks = {
    .greet = say_ask, .hear = hear_tell, .failed = finish};

void pk_transport_ask(struct pk_transport *t, const char *where, pk_transport_tell_cb cb,
                      void *ctx)
{
    PK_ASSERT(!t->closing);
    struct asking *a = pk_door_resize(NULL, sizeof *a);
    memset(a, 0, sizeof *a);
    a->cb = cb;
    a->ctx = ctx;
    struct pk_handshake *h = pk_handshake_new(t, &asks, a);
    (void)snprintf(h->peer, sizeof h->peer, "%s", where);
    pk_handshake_dial(h, where);
}
