/* SPDX-License-Identifier: MIT */
/*
 * The model of Redlock: five nodes that know nothing of each other, each with a key that
 * ends by the node's own wall clock; whoever has set three of them in time holds. There
 * is no token: a random value can be compared, but not ordered.
 */
#include <string.h>

#include "core/door.h"
#include "core/status.h"
#include "sim/inside.h"

enum { MAJORITY = PK_NODES_MAX / 2 + 1 };

struct node {
    uint64_t value;  /* of the key: who, and which attempt; 0: there is none */
    int64_t ends_us; /* by its wall clock */
    int64_t jumped_us;
};

struct service {
    struct node nodes[PK_NODES_MAX];
    int holder; /* who has a majority of keys, if anybody; -1 */
    uint32_t section;
};

static uint64_t value_of(const struct pk_world *w, uint32_t client)
{
    return (uint64_t)(client + 1) << 32 | w->clients[client].attempt;
}

static int64_t wall_us(const struct pk_world *w, uint32_t node)
{
    const struct service *s = w->service;
    return (int64_t)pk_local_us(w, PK_WHO_NODE + node) + s->nodes[node].jumped_us;
}

static void expire(struct pk_world *w, uint32_t node)
{
    struct node *n = &((struct service *)w->service)->nodes[node];
    if (n->value != 0 && n->ends_us <= wall_us(w, node)) {
        n->value = 0;
    }
}

static uint32_t keys_of(const struct pk_world *w, uint32_t client)
{
    const struct service *s = w->service;
    uint32_t keys = 0;
    for (uint32_t i = 0; i < PK_NODES_MAX; i++) {
        keys += s->nodes[i].value >> 32 == client + 1;
    }
    return keys;
}

static void end_hold(struct pk_world *w, enum pk_end end)
{
    struct service *s = w->service;
    pk_emit(w, (struct pk_record){.kind = PK_REC_ENDED,
                                  .who = (uint8_t)s->holder,
                                  .code = (uint8_t)end,
                                  .section = s->section});
    s->holder = -1;
}

/* Whether whoever had a majority still has it. */
static void recount(struct pk_world *w, enum pk_end end)
{
    const struct service *s = w->service;
    if (s->holder >= 0 && keys_of(w, (uint32_t)s->holder) < MAJORITY) {
        end_hold(w, end);
    }
}

/* ---- nodes ---- */

static void arm(struct pk_world *w, uint32_t node)
{
    const struct node *n = &((const struct service *)w->service)->nodes[node];
    if (n->value != 0) {
        int64_t local = n->ends_us - n->jumped_us;
        uint64_t at = local > 0 ? (uint64_t)local : 0;
        pk_timer(w, PK_WHO_NODE + node, PK_TIMER_TICK,
                 pk_pendulum_when(&w->actors[PK_WHO_NODE + node].clock, at));
    }
}

static void redlock_tick(struct pk_world *w, uint32_t who)
{
    expire(w, who - PK_WHO_NODE);
    recount(w, PK_END_EXPIRED);
    arm(w, who - PK_WHO_NODE);
}

static void node_hear(struct pk_world *w, uint32_t who, const struct pk_message *m)
{
    uint32_t node = who - PK_WHO_NODE;
    struct node *n = &((struct service *)w->service)->nodes[node];
    expire(w, node);
    bool ours = n->value == m->value;
    bool yes = ours || (m->word == PK_WORD_SET && n->value == 0);
    if (m->word == PK_WORD_DELETE) {
        n->value = ours ? 0 : n->value;
    } else if (yes) {
        n->value = m->value;
        n->ends_us = wall_us(w, node) + (int64_t)w->config.ttl_us;
    }
    recount(w, m->word == PK_WORD_DELETE ? PK_END_RELEASED : PK_END_EXPIRED);
    arm(w, node);
    if (m->word != PK_WORD_DELETE) {
        pk_send(w, (struct pk_message){.word = yes ? PK_WORD_SET_YES : PK_WORD_SET_NO,
                                       .from = (uint8_t)who,
                                       .to = m->from,
                                       .request = m->request,
                                       .value = m->value,
                                       .echo_ms = m->echo_ms});
    }
}

static void redlock_jump(struct pk_world *w, uint32_t who, int64_t by_us)
{
    struct service *s = w->service;
    s->nodes[who - PK_WHO_NODE].jumped_us += by_us;
    redlock_tick(w, who);
}

static void redlock_crash(struct pk_world *w, uint32_t who)
{
    struct service *s = w->service;
    s->nodes[who - PK_WHO_NODE].value = 0; /* it had nothing on disk */
    recount(w, PK_END_FORGOTTEN);
}

/* ---- the client's part ---- */

static void ask_all(struct pk_world *w, uint32_t who, enum pk_word word)
{
    const struct pk_sim_client *c = &w->clients[who];
    for (uint32_t i = 0; i < PK_NODES_MAX; i++) {
        pk_send(w, (struct pk_message){.word = (uint8_t)word,
                                       .from = (uint8_t)who,
                                       .to = (uint8_t)(PK_WHO_NODE + i),
                                       .request = c->attempt_ms,
                                       .value = value_of(w, who),
                                       .echo_ms = pk_local_ms(w, who)});
    }
}

/* A question to all nodes; what comes after a tenth of the TTL does not count. */
static void begin_round(struct pk_world *w, uint32_t who, enum pk_word word)
{
    struct pk_sim_client *c = &w->clients[who];
    c->yes = c->answers = 0;
    c->attempt_ms = pk_local_ms(w, who);
    c->extending = word == PK_WORD_EXTEND;
    ask_all(w, who, word);
    pk_timer(w, who, PK_TIMER_ATTEMPT, w->now_us + w->config.ttl_us / 10);
}

void pk_redlock_acquire(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = &w->clients[who];
    c->attempt++;
    c->keeper = (struct pk_keeper){0};
    begin_round(w, who, PK_WORD_SET);
}

void pk_redlock_extend(struct pk_world *w, uint32_t who)
{
    begin_round(w, who, PK_WORD_EXTEND);
}

void pk_redlock_release(struct pk_world *w, uint32_t who)
{
    pk_timer_stop(w, who, PK_TIMER_ATTEMPT);
    ask_all(w, who, PK_WORD_DELETE);
}

/* Enough nodes have said yes: validity counts from before the asking. */
static void won(struct pk_world *w, uint32_t who)
{
    struct service *s = w->service;
    struct pk_sim_client *c = &w->clients[who];
    pk_timer_stop(w, who, PK_TIMER_ATTEMPT);
    pk_sim_client_kept(w, who, c->attempt_ms);
    if (c->extending) {
        return;
    }
    c->lease = c->attempt;
    uint32_t section = ++w->sections;
    if (keys_of(w, who) >= MAJORITY) { /* else it was told yes, and has it no more */
        if (s->holder >= 0) {
            end_hold(w, PK_END_FORGOTTEN); /* keys of an earlier attempt of its own */
        }
        s->holder = (int)who;
        s->section = section;
        pk_emit(w, (struct pk_record){.kind = PK_REC_GRANTED,
                                      .who = (uint8_t)who,
                                      .section = section,
                                      .arg = w->now_us + w->config.ttl_us});
    }
    pk_sim_client_hold(w, who, 0, section);
}

/* No majority: gives back what it has, and tries again after a random pause. */
void pk_redlock_late(struct pk_world *w, uint32_t who)
{
    struct pk_sim_client *c = &w->clients[who];
    if (c->extending || c->phase != PK_SIM_ASKING) {
        return; /* the keeper renews again, or gives up */
    }
    ask_all(w, who, PK_WORD_DELETE);
    c->attempt++; /* a yes that comes now counts no more */
    pk_timer(w, who, PK_TIMER_ASK,
             w->now_us + 100000 + pk_draw(w, 8000 + who) % (w->config.ttl_us / 5));
}

void pk_redlock_hear(struct pk_world *w, uint32_t who, const struct pk_message *m)
{
    struct pk_sim_client *c = &w->clients[who];
    bool current = m->value == value_of(w, who) && m->request == c->attempt_ms;
    bool open =
        c->yes < MAJORITY && (c->phase == PK_SIM_ASKING || c->phase == PK_SIM_HOLDING);
    if (!current || !open) {
        return;
    }
    c->answers++;
    c->yes += m->word == PK_WORD_SET_YES;
    if (c->yes == MAJORITY) {
        won(w, who);
    } else if (c->answers - c->yes >= MAJORITY) {
        pk_timer_stop(w, who, PK_TIMER_ATTEMPT);
        pk_redlock_late(w, who);
    }
}

/* ---- the rest ---- */

static void redlock_failover(struct pk_world *w)
{
    (void)w; /* there is no leader */
}

static void redlock_settle(struct pk_world *w)
{
    (void)w;
}

static void redlock_view(const struct pk_world *w, struct pk_world_view *out)
{
    const struct service *s = w->service;
    out->holder = s->holder;
    for (uint32_t i = 0; i < PK_NODES_MAX && s->holder >= 0; i++) {
        int64_t left = s->nodes[i].ends_us - wall_us(w, i);
        bool its = s->nodes[i].value >> 32 == (uint64_t)s->holder + 1;
        if (its && left > 0 && (uint64_t)left > out->left_us) {
            out->left_us = (uint64_t)left;
        }
    }
}

static void redlock_begin(struct pk_world *w)
{
    struct service *s = pk_door_resize(NULL, sizeof *s);
    memset(s, 0, sizeof *s);
    s->holder = -1;
    w->service = s;
}

static void redlock_end(struct pk_world *w)
{
    (void)pk_door_resize(w->service, 0);
}

const struct pk_flavour_model pk_model_redlock = {
    .name = "redlock",
    .sentence = "A model of five independent nodes and a majority of them. It has no "
                "token that grows, so the resource can't fence, and a node whose clock "
                "jumps or that restarts empty can give the lock away twice.",
    .begin = redlock_begin,
    .end = redlock_end,
    .hear = node_hear,
    .tick = redlock_tick,
    .failover = redlock_failover,
    .jump = redlock_jump,
    .crash = redlock_crash,
    .settle = redlock_settle,
    .view = redlock_view,
};
