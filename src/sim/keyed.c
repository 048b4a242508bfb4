/* SPDX-License-Identifier: MIT */
/*
 * Models of etcd and ZooKeeper, which are alike from here: a client has a session (etcd:
 * a lease), its claim is a key that ends with the session, and the oldest key holds. A
 * key's token is the revision (zxid) of its creation. They differ in when a session's end
 * is noticed: etcd looks twice a second, ZooKeeper rounds up to its tick; under a new
 * leader both count every session anew.
 */
#include <string.h>

#include "core/door.h"
#include "core/status.h"
#include "sim/inside.h"

enum {
    ETCD_LOOKS_US = 500000,
    ZOOKEEPER_TICK_US = 2000000,
};

struct session {
    uint64_t id; /* of the opening: the same request is the same session */
    uint32_t client;
    uint64_t ends_us; /* by the service's clock */
    bool alive;
};

struct key {
    uint64_t session, request, revision;
    uint32_t client, section;
};

struct service {
    struct session *sessions; /* all there ever were */
    uint32_t n_sessions, sessions_capacity;
    struct key *keys; /* oldest first */
    uint32_t n_keys, keys_capacity;
    uint64_t revision;
    uint32_t held; /* how many keys have been granted; more than one only by mistake */
    bool new_leader;
};

static uint64_t tick_us(const struct pk_world *w)
{
    return w->config.flavour == PK_FLAVOUR_ETCD ? ETCD_LOOKS_US : ZOOKEEPER_TICK_US;
}

static struct session *session_of(struct service *s, uint64_t id)
{
    for (uint32_t i = 0; i < s->n_sessions; i++) {
        if (s->sessions[i].id == id) {
            return &s->sessions[i];
        }
    }
    return NULL;
}

static void tell(struct pk_world *w, uint32_t client, struct pk_message m)
{
    m.from = PK_WHO_SERVICE;
    m.to = (uint8_t)client;
    pk_send(w, m);
}

static uint64_t true_of(const struct pk_world *w, uint64_t local_us)
{
    return pk_pendulum_when(&w->actors[PK_WHO_SERVICE].clock, local_us);
}

/* A list of `count` that has room for one more. */
static void *room_for(void *list, size_t size, uint32_t count, uint32_t *capacity)
{
    if (count < *capacity) {
        return list;
    }
    *capacity = *capacity == 0 ? 16 : 2 * *capacity;
    return pk_door_resize(list, *capacity * size);
}

/* ---- sessions ---- */

/* ZooKeeper's sessions end at a tick; etcd's are found dead at the next look. */
static void keep(struct pk_world *w, struct session *x)
{
    uint64_t ttl =
        w->config.mistakes & PK_MISTAKE_EARLY ? w->config.ttl_us / 2 : w->config.ttl_us;
    uint64_t tick = tick_us(w);
    uint64_t ends = pk_local_us(w, PK_WHO_SERVICE) + ttl;
    x->ends_us = (ends + tick - 1) / tick * tick;
    pk_note(w, PK_REC_RENEWED, x->client, 0, true_of(w, x->ends_us));
}

static void open_session(struct pk_world *w, const struct pk_message *m)
{
    struct service *s = w->service;
    struct session *x = session_of(s, m->request);
    if (x == NULL) {
        s->sessions =
            room_for(s->sessions, sizeof *x, s->n_sessions, &s->sessions_capacity);
        x = &s->sessions[s->n_sessions++];
        *x = (struct session){.id = m->request, .client = m->from, .alive = true};
    }
    if (x->alive) {
        keep(w, x);
    }
    tell(w, m->from,
         (struct pk_message){.word = x->alive ? PK_WORD_OPENED : PK_WORD_GONE,
                             .lease = x->id,
                             .request = m->request,
                             .echo_ms = m->echo_ms});
}

/* ---- keys ---- */

/* A number for the claim, to tell apart two of one client. */
static uint8_t claim_of(const struct key *k)
{
    return (uint8_t)k->revision;
}

static void grant(struct pk_world *w, struct key *k)
{
    struct service *s = w->service;
    const struct session *x = session_of(s, k->session);
    s->held++;
    k->section = ++w->sections;
    pk_emit(w, (struct pk_record){.kind = PK_REC_GRANTED,
                                  .who = (uint8_t)k->client,
                                  .peer = claim_of(k),
                                  .section = k->section,
                                  .token = k->revision,
                                  .arg = true_of(w, x->ends_us)});
}

static void tell_granted(struct pk_world *w, const struct key *k, uint64_t echo_ms)
{
    tell(w, k->client,
         (struct pk_message){.word = PK_WORD_GRANTED,
                             .lease = k->session,
                             .request = k->request,
                             .token = k->revision,
                             .section = k->section,
                             .echo_ms = echo_ms});
}

/* The next in line is told; it alone watches the key before its own. */
static void grant_next(struct pk_world *w)
{
    struct service *s = w->service;
    if (s->held > 0 || s->n_keys == 0) {
        return;
    }
    bool last_first = (w->config.mistakes & PK_MISTAKE_LIFO) != 0;
    struct key *next = &s->keys[last_first ? s->n_keys - 1 : 0];
    grant(w, next);
    tell_granted(w, next, 0);
}

static void remove_key(struct pk_world *w, uint32_t at, enum pk_end end)
{
    struct service *s = w->service;
    const struct key *k = &s->keys[at];
    bool held = k->section != 0;
    pk_emit(w, (struct pk_record){.kind = held ? PK_REC_ENDED : PK_REC_LEFT,
                                  .who = (uint8_t)k->client,
                                  .peer = claim_of(k),
                                  .code = (uint8_t)end,
                                  .token = held ? k->revision : 0});
    s->held -= held;
    s->n_keys--;
    memmove(&s->keys[at], &s->keys[at + 1], (s->n_keys - at) * sizeof s->keys[0]);
    s->revision++;
}

static void acquire(struct pk_world *w, const struct pk_message *m)
{
    struct service *s = w->service;
    const struct session *x = session_of(s, m->lease);
    if (x == NULL || !x->alive) {
        tell(w, m->from, (struct pk_message){.word = PK_WORD_GONE, .lease = m->lease});
        return;
    }
    uint32_t i = 0;
    while (i < s->n_keys &&
           (s->keys[i].session != m->lease || s->keys[i].request != m->request)) {
        i++;
    }
    if (i == s->n_keys) {
        s->keys = room_for(s->keys, sizeof s->keys[0], s->n_keys, &s->keys_capacity);
        s->keys[s->n_keys++] = (struct key){.session = m->lease,
                                            .request = m->request,
                                            .revision = ++s->revision,
                                            .client = m->from};
        bool careless = (w->config.mistakes & PK_MISTAKE_SHARE) != 0;
        if (s->held == 0 || careless) {
            grant(w, &s->keys[i]);
        } else {
            pk_emit(w, (struct pk_record){.kind = PK_REC_QUEUED,
                                          .who = m->from,
                                          .peer = claim_of(&s->keys[i]),
                                          .arg = s->n_keys - s->held});
        }
    }
    if (s->keys[i].section != 0) {
        tell_granted(w, &s->keys[i], m->echo_ms);
    } else {
        tell(w, m->from,
             (struct pk_message){
                 .word = PK_WORD_QUEUED, .lease = m->lease, .request = m->request});
    }
}

static void release(struct pk_world *w, const struct pk_message *m)
{
    struct service *s = w->service;
    for (uint32_t i = s->n_keys; i-- > 0;) {
        if (s->keys[i].session == m->lease && s->keys[i].revision == m->token) {
            remove_key(w, i, PK_END_RELEASED);
        }
    }
    tell(w, m->from,
         (struct pk_message){
             .word = PK_WORD_RELEASED, .lease = m->lease, .request = m->request});
    grant_next(w);
}

/* A new leader knows the sessions, but not how old they are. */
static void take_over(struct pk_world *w)
{
    struct service *s = w->service;
    for (uint32_t i = 0; s->new_leader && i < s->n_sessions; i++) {
        if (s->sessions[i].alive) {
            keep(w, &s->sessions[i]);
        }
    }
    s->new_leader = false;
}

static void keyed_hear(struct pk_world *w, uint32_t who, const struct pk_message *m)
{
    struct session *x = session_of(w->service, m->lease);
    (void)who;
    take_over(w);
    switch (m->word) {
    case PK_WORD_OPEN:
        open_session(w, m);
        break;
    case PK_WORD_RENEW:
        if (x != NULL && x->alive) {
            keep(w, x);
        }
        tell(w, m->from,
             (struct pk_message){.word = x != NULL && x->alive ? PK_WORD_RENEWED
                                                               : PK_WORD_GONE,
                                 .lease = m->lease,
                                 .echo_ms = m->echo_ms});
        break;
    case PK_WORD_ACQUIRE:
        acquire(w, m);
        break;
    default:
        release(w, m);
        break;
    }
}

/* ---- time ---- */

static void keyed_tick(struct pk_world *w, uint32_t who)
{
    struct service *s = w->service;
    uint64_t now = pk_local_us(w, who);
    take_over(w);
    for (uint32_t i = 0; i < s->n_sessions; i++) {
        struct session *x = &s->sessions[i];
        if (!x->alive || x->ends_us > now) {
            continue;
        }
        x->alive = false;
        for (uint32_t k = s->n_keys; k-- > 0;) {
            if (s->keys[k].session == x->id) {
                remove_key(w, k, PK_END_EXPIRED);
            }
        }
        tell(w, x->client, (struct pk_message){.word = PK_WORD_GONE, .lease = x->id});
    }
    grant_next(w);
    uint64_t next = (now / tick_us(w) + 1) * tick_us(w);
    pk_timer(w, who, PK_TIMER_TICK, true_of(w, next));
}

static void keyed_failover(struct pk_world *w)
{
    ((struct service *)w->service)->new_leader = true;
}

static void keyed_settle(struct pk_world *w)
{
    (void)w; /* one state, nothing to compare */
}

static void keyed_view(const struct pk_world *w, struct pk_world_view *out)
{
    struct service *s = w->service;
    out->waiting = s->n_keys - s->held;
    for (uint32_t i = 0; i < s->n_keys; i++) {
        if (s->keys[i].section != 0) {
            const struct session *x = session_of(s, s->keys[i].session);
            uint64_t ends = true_of(w, x->ends_us);
            out->holder = (int)s->keys[i].client;
            out->holder_token = s->keys[i].revision;
            out->left_us = ends > w->now_us ? ends - w->now_us : 0;
        }
    }
}

static void keyed_begin(struct pk_world *w)
{
    struct service *s = pk_door_resize(NULL, sizeof *s);
    memset(s, 0, sizeof *s);
    s->revision = 1;
    w->service = s;
    pk_timer(w, PK_WHO_SERVICE, PK_TIMER_TICK, w->now_us);
}

static void keyed_end(struct pk_world *w)
{
    struct service *s = w->service;
    (void)pk_door_resize(s->sessions, 0);
    (void)pk_door_resize(s->keys, 0);
    (void)pk_door_resize(s, 0);
}

#define KEYED                                                                            \
    .begin = keyed_begin, .end = keyed_end, .hear = keyed_hear, .tick = keyed_tick,      \
    .failover = keyed_failover, .settle = keyed_settle, .view = keyed_view

const struct pk_flavour_model pk_model_etcd = {
    .name = "etcd",
    .sentence = "A model: the token is the revision at which the lock's key was created. "
                "Ended leases are found twice a second, and a new leader counts every "
                "lease anew. The trap: the lease is gone and the client does not know.",
    KEYED,
};

const struct pk_flavour_model pk_model_zookeeper = {
    .name = "zookeeper",
    .sentence = "A model: the token is the zxid of the ephemeral node. Sessions end at a "
                "tick of 2 s, and a client hears of it only when it is connected again. "
                "The trap: disconnected is not expired.",
    KEYED,
};
