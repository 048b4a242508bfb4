/* SPDX-License-Identifier: MIT */
/*
 * The flavour that is no model: the lock machine of src/core, as every node of a cluster
 * runs it, here with a leader and one follower that applies the same commands. Cluster
 * time stands still while there is no leader, as it does in the server (P4).
 */
#include <string.h>

#include "core/door.h"
#include "core/machine.h"
#include "sim/inside.h"

struct grant {
    uint64_t token;
    uint32_t section;
};

struct lease {
    uint64_t id;
    uint32_t client;
};

struct service {
    struct pk_machine *leader, *follower;
    struct pk_effects effects, unheard;
    uint64_t stretched_ms; /* that cluster time lost while nobody led */
    bool leaderless;
    uint64_t stood_ms; /* cluster time when the last leader was gone */
    struct lease *leases;
    uint32_t n_leases, leases_capacity;
    struct grant last[PK_CLIENTS_MAX];
    uint32_t last_holder;
    uint64_t last_token;
    int holder;
    uint64_t held_lease;
    uint32_t waiting;
    uint64_t ends_us[PK_CLIENTS_MAX]; /* of each one's lease, in true time */
    uint64_t renewals;
};

static uint64_t cluster_ms(const struct pk_world *w)
{
    const struct service *s = w->service;
    return pk_local_ms(w, PK_WHO_SERVICE) - s->stretched_ms;
}

static uint64_t true_of(const struct pk_world *w, uint64_t tau_ms)
{
    const struct service *s = w->service;
    return pk_true_us(w, PK_WHO_SERVICE, tau_ms + s->stretched_ms);
}

static uint64_t lease_ttl_ms(const struct pk_world *w)
{
    uint64_t ttl = w->config.ttl_us / 1000;
    return w->config.mistakes & PK_MISTAKE_EARLY ? ttl / 2 : ttl;
}

static void remember_lease(struct service *s, uint64_t id, uint32_t client)
{
    for (uint32_t i = 0; i < s->n_leases; i++) {
        if (s->leases[i].id == id) {
            return;
        }
    }
    if (s->n_leases == s->leases_capacity) {
        s->leases_capacity = s->leases_capacity == 0 ? 8 : 2 * s->leases_capacity;
        s->leases = pk_door_resize(s->leases, s->leases_capacity * sizeof s->leases[0]);
    }
    s->leases[s->n_leases++] = (struct lease){id, client};
}

static uint32_t client_of(const struct service *s, uint64_t lease)
{
    uint32_t i = s->n_leases;
    while (i > 0 && s->leases[i - 1].id != lease) {
        i--;
    }
    PK_ASSERT(i > 0);
    return s->leases[i - 1].client;
}

/* ---- what the machine says ---- */

static void tell(struct pk_world *w, uint32_t client, struct pk_message m)
{
    m.from = PK_WHO_SERVICE;
    m.to = (uint8_t)client;
    pk_send(w, m);
}

static void tell_granted(struct pk_world *w, uint32_t client, const struct pk_effect *e,
                         uint64_t echo_ms)
{
    const struct service *s = w->service;
    tell(w, client,
         (struct pk_message){.word = PK_WORD_GRANTED,
                             .lease = e->lease,
                             .request = e->request,
                             .token = s->last[client].token,
                             .section = s->last[client].section,
                             .echo_ms = echo_ms});
}

/* A number for the claim, to tell apart two of one client. */
static uint8_t claim_of(const struct pk_effect *e)
{
    return (uint8_t)(e->lease * 31 + e->request);
}

static void granted(struct pk_world *w, const struct pk_effect *e)
{
    struct service *s = w->service;
    uint32_t client = client_of(s, e->lease);
    bool again = s->last_token != 0 && s->last_holder == client;
    bool old = (w->config.mistakes & PK_MISTAKE_OLD_TOKEN) != 0 && again;
    uint64_t token = old ? s->last_token : e->token;
    s->last[client] = (struct grant){token, ++w->sections};
    s->last_holder = client;
    s->last_token = token;
    s->holder = (int)client;
    s->held_lease = e->lease;
    pk_emit(w, (struct pk_record){.kind = PK_REC_GRANTED,
                                  .who = (uint8_t)client,
                                  .peer = claim_of(e),
                                  .section = w->sections,
                                  .token = token,
                                  .arg = s->ends_us[client]});
}

static void event(struct pk_world *w, const struct pk_effect *e)
{
    struct service *s = w->service;
    switch (e->kind) {
    case PK_EV_QUEUED:
        s->waiting++;
        pk_emit(w, (struct pk_record){.kind = PK_REC_QUEUED,
                                      .who = (uint8_t)client_of(s, e->lease),
                                      .peer = claim_of(e),
                                      .arg = e->place});
        break;
    case PK_EV_GRANTED:
        granted(w, e);
        break;
    case PK_EV_LEFT:
        s->waiting--;
        pk_emit(w, (struct pk_record){.kind = PK_REC_LEFT,
                                      .who = (uint8_t)client_of(s, e->lease),
                                      .peer = claim_of(e),
                                      .code = (uint8_t)e->end});
        break;
    case PK_EV_ENDED:
        s->holder = -1;
        pk_emit(w, (struct pk_record){.kind = PK_REC_ENDED,
                                      .who = (uint8_t)client_of(s, e->lease),
                                      .code = (uint8_t)e->end,
                                      .token = s->last[client_of(s, e->lease)].token});
        break;
    case PK_EV_LEASE_ENDED:
        tell(w, client_of(s, e->lease),
             (struct pk_message){.word = PK_WORD_GONE, .lease = e->lease});
        break;
    default:
        break;
    }
}

/* Grants that nobody asked for just now: whoever waited gets them pushed. */
static void push_grants(struct pk_world *w, uint32_t asker, uint64_t request)
{
    struct service *s = w->service;
    for (uint32_t i = 0; i < s->effects.count; i++) {
        const struct pk_effect *e = &s->effects.list[i];
        if (e->kind == PK_EV_GRANTED) {
            uint32_t client = client_of(s, e->lease);
            s->waiting -= client != asker || e->request != request;
            if (client != asker || e->request != request) {
                tell_granted(w, client, e, 0);
            }
        }
    }
}

static void arm(struct pk_world *w)
{
    struct service *s = w->service;
    uint64_t at = pk_machine_next_deadline(s->leader);
    if (at != UINT64_MAX) {
        pk_timer(w, PK_WHO_SERVICE, PK_TIMER_TICK, true_of(w, at));
    }
}

/* Runs the command on both; what the leader says counts. */
static const struct pk_effect *run(struct pk_world *w, struct pk_command *c)
{
    struct service *s = w->service;
    c->stamp_ms = cluster_ms(w);
    pk_effects_reset(&s->effects);
    pk_effects_reset(&s->unheard);
    pk_machine_step(s->leader, c, &s->effects);
    s->renewals += c->verb == PK_LEASE_RENEW;
    bool skip = (w->config.mistakes & PK_MISTAKE_DIVERGE) != 0 &&
                c->verb == PK_LEASE_RENEW && s->renewals % 8 == 0;
    if (!skip) {
        pk_machine_step(s->follower, c, &s->unheard);
    }
    const struct pk_effect *reply = NULL;
    for (uint32_t i = 0; i < s->effects.count; i++) {
        const struct pk_effect *e = &s->effects.list[i];
        reply = e->kind == PK_REPLY ? e : reply;
        if (c->verb == PK_LEASE_OPEN && e->kind == PK_REPLY) {
            remember_lease(s, e->lease, (uint32_t)(c->request >> 32) - 1);
        }
    }
    for (uint32_t i = 0; i < s->effects.count; i++) {
        event(w, &s->effects.list[i]);
    }
    return reply;
}

/* The first thing that a new leader does: cluster time goes on from where it stood. */
static void take_over(struct pk_world *w)
{
    struct service *s = w->service;
    if (!s->leaderless) {
        return;
    }
    uint64_t lost_ms = cluster_ms(w) - s->stood_ms;
    s->leaderless = false;
    s->stretched_ms += lost_ms;
    for (uint32_t i = 0; i < w->config.clients; i++) {
        s->ends_us[i] += s->ends_us[i] != 0 ? lost_ms * 1000 : 0;
    }
    if (s->holder >= 0) {
        pk_note(w, PK_REC_RENEWED, (uint32_t)s->holder, 0, s->ends_us[s->holder]);
    }
}

/* ---- what clients say ---- */

static void kept(struct pk_world *w, uint32_t client, uint64_t left_ms)
{
    struct service *s = w->service;
    s->ends_us[client] = true_of(w, cluster_ms(w) + left_ms);
    pk_note(w, PK_REC_RENEWED, client, 0, s->ends_us[client]);
}

static void answer_lease(struct pk_world *w, const struct pk_message *m,
                         const struct pk_effect *reply)
{
    bool fine = reply->status == PK_OK;
    if (fine) {
        kept(w, m->from, reply->left_ms); /* of a repeated OPEN: what is left (L1) */
    }
    tell(w, m->from,
         (struct pk_message){.word = !fine                     ? PK_WORD_GONE
                                     : m->word == PK_WORD_OPEN ? PK_WORD_OPENED
                                                               : PK_WORD_RENEWED,
                             .lease = fine ? reply->lease : m->lease,
                             .request = m->request,
                             .echo_ms = m->echo_ms});
}

static void answer_acquire(struct pk_world *w, const struct pk_message *m,
                           const struct pk_effect *reply)
{
    if (reply->status == PK_OK) {
        struct pk_effect grant = {.lease = m->lease, .request = m->request};
        tell_granted(w, m->from, &grant, m->echo_ms);
        return;
    }
    bool queued = reply->status == PK_QUEUED;
    tell(w, m->from,
         (struct pk_message){.word = queued ? PK_WORD_QUEUED : PK_WORD_GONE,
                             .lease = m->lease,
                             .request = m->request,
                             .echo_ms = m->echo_ms});
}

static void picket_hear(struct pk_world *w, uint32_t who, const struct pk_message *m)
{
    struct service *s = w->service;
    unsigned char id[8];
    struct pk_command c = {.lease = m->lease, .request = m->request};
    (void)who;
    take_over(w);
    pk_command_put_lease(id, 0, m->lease);
    switch (m->word) {
    case PK_WORD_OPEN:
        c = (struct pk_command){
            .verb = PK_LEASE_OPEN, .request = m->request, .ttl_ms = lease_ttl_ms(w)};
        answer_lease(w, m, run(w, &c));
        break;
    case PK_WORD_RENEW:
        c = (struct pk_command){.verb = PK_LEASE_RENEW, .leases = id, .n_leases = 1};
        answer_lease(w, m, run(w, &c));
        break;
    case PK_WORD_ACQUIRE:
        c.verb = PK_LOCK_ACQUIRE;
        c.parts[0] = (struct pk_part){.name = pk_text("lock"), .mode = PK_EXCLUSIVE};
        c.n_parts = 1;
        c.wait_ms = PK_WAIT_FOREVER;
        answer_acquire(w, m, run(w, &c));
        break;
    default:
        c.verb = PK_LOCK_RELEASE;
        c.name = pk_text("lock");
        c.token = m->token;
        (void)run(w, &c);
        tell(w, m->from,
             (struct pk_message){
                 .word = PK_WORD_RELEASED, .lease = m->lease, .request = m->request});
        break;
    }
    push_grants(w, m->from, m->word == PK_WORD_ACQUIRE ? m->request : 0);
    pk_effects_reset(&s->effects);
    arm(w);
}

static void picket_tick(struct pk_world *w, uint32_t who)
{
    struct pk_command c = {.verb = PK_TICK};
    (void)who;
    take_over(w);
    (void)run(w, &c);
    push_grants(w, PK_CLIENTS_MAX, 0);
    arm(w);
}

/* ---- faults, and looking ---- */

/* The follower takes over; the time without a leader never was (P4). */
static void picket_failover(struct pk_world *w)
{
    struct service *s = w->service;
    struct pk_machine *before = s->leader;
    s->leader = s->follower;
    s->follower = before;
    s->stood_ms = s->leaderless ? s->stood_ms : cluster_ms(w);
    s->leaderless = true;
    pk_timer(w, PK_WHO_SERVICE, PK_TIMER_TICK, w->now_us);
}

static void picket_settle(struct pk_world *w)
{
    const struct service *s = w->service;
    pk_note(w, PK_REC_DIGEST, 0, 0, pk_machine_digest(s->leader));
    pk_note(w, PK_REC_DIGEST, 1, 0, pk_machine_digest(s->follower));
}

static void picket_view(const struct pk_world *w, struct pk_world_view *out)
{
    const struct service *s = w->service;
    out->holder = s->holder;
    out->waiting = s->waiting;
    if (s->holder >= 0) {
        uint64_t ends = s->ends_us[s->holder];
        out->holder_token = s->last[s->holder].token;
        out->left_us = ends > w->now_us ? ends - w->now_us : 0;
    }
}

static void picket_begin(struct pk_world *w)
{
    struct service *s = pk_door_resize(NULL, sizeof *s);
    memset(s, 0, sizeof *s);
    s->leader = pk_machine_new();
    s->follower = pk_machine_new();
    s->holder = -1;
    w->service = s;
}

static void picket_end(struct pk_world *w)
{
    struct service *s = w->service;
    pk_machine_free(s->leader);
    pk_machine_free(s->follower);
    pk_effects_free(&s->effects);
    pk_effects_free(&s->unheard);
    (void)pk_door_resize(s->leases, 0);
    (void)pk_door_resize(s, 0);
}

const struct pk_flavour_model pk_model_picket = {
    .name = "picket",
    .sentence =
        "The server's own lock machine, not a model: tokens are one counter in "
        "the replicated state, a lease is stretched while there is no leader, and "
        "the queue is first come, first served.",
    .begin = picket_begin,
    .end = picket_end,
    .hear = picket_hear,
    .tick = picket_tick,
    .failover = picket_failover,
    .settle = picket_settle,
    .view = picket_view,
};
