/* SPDX-License-Identifier: MIT */
/* Time, events, messages, clocks and acts. */
#include "sim/world.h"

#include <string.h>

#include "core/door.h"
#include "sim/chance.h"
#include "sim/inside.h"

/* ---- names ---- */

static const struct pk_flavour_model *const models[PK_FLAVOUR_COUNT] = {
    &pk_model_picket, &pk_model_etcd, &pk_model_zookeeper, &pk_model_redlock};

const char *pk_flavour_name(enum pk_flavour f)
{
    return models[f]->name;
}

const char *pk_flavour_sentence(enum pk_flavour f)
{
    return models[f]->sentence;
}

const char *pk_protection_name(enum pk_protection f)
{
    static const char *const names[] = {"off", "check", "on"};
    return names[f];
}

const char *pk_op_name(enum pk_op op)
{
    static const char *const names[PK_OP_COUNT] = {
        "acquire",  "write", "release", "pause", "cut",      "heal",
        "cut-data", "delay", "jump",    "drift", "failover", "crash"};
    return names[op];
}

const char *pk_record_name(uint32_t kind)
{
    static const char *const names[] = {
#define X(kind, name) name,
        PK_RECORDS(X)
#undef X
    };
    return kind < PK_RECORD_KINDS ? names[kind] : "?";
}

const char *pk_word_name(uint32_t word)
{
    static const char *const names[] = {
#define X(word, name) name,
        PK_WORDS(X)
#undef X
    };
    return word < PK_WORD_COUNT ? names[word] : "?";
}

/* ---- settings ---- */

struct pk_world_config pk_world_defaults(void)
{
    return (struct pk_world_config){.seed = 1,
                                    .flavour = PK_FLAVOUR_PICKET,
                                    .fence = PK_PROTECT_CLAIM,
                                    .clients = 4,
                                    .ttl_us = 5000000,
                                    .delay_us = 20000};
}

const char *pk_world_config_wrong(const struct pk_world_config *c)
{
    if ((unsigned)c->flavour >= PK_FLAVOUR_COUNT) {
        return "there is no such flavour";
    }
    if ((unsigned)c->fence >= PK_PROTECTIONS) {
        return "the fence is off, check or on";
    }
    if (c->clients < 1 || c->clients > PK_CLIENTS_MAX) {
        return "there are 1 to 8 clients";
    }
    if (c->ttl_us < 500000 || c->ttl_us > UINT64_C(3600) * 1000000) {
        return "the TTL is 0.5 s to 1 h";
    }
    if (c->delay_us > 60000000 || c->jitter_us > 60000000) {
        return "a message takes at most a minute";
    }
    if (c->loss > 1000 || c->slow > 1000) {
        return "of 1000 messages at most 1000 are lost or slow";
    }
    if (c->mistakes >= PK_MISTAKES_END) {
        return "there is no such mistake";
    }
    return NULL;
}

static bool is_client(const struct pk_world_config *c, uint32_t who)
{
    return who < c->clients;
}

static bool is_node(const struct pk_world_config *c, uint32_t who)
{
    return c->flavour == PK_FLAVOUR_REDLOCK && who >= PK_WHO_NODE &&
           who < PK_WHO_NODE + PK_NODES_MAX;
}

const char *pk_world_act_wrong(const struct pk_world_config *c, const struct pk_act *a)
{
    bool service = a->who == PK_WHO_SERVICE && c->flavour != PK_FLAVOUR_REDLOCK;
    bool client = is_client(c, a->who);
    bool node = is_node(c, a->who);
    if (!client && !node && !service) {
        return "there is nobody of that name";
    }
    if (a->arg < 0 && a->op != PK_OP_JUMP && a->op != PK_OP_DRIFT) {
        return "time does not go back";
    }
    switch (a->op) {
    case PK_OP_PAUSE:
        return a->arg > 0 ? NULL : "a pause has a length";
    case PK_OP_JUMP:
        return node ? NULL : "only the wall clocks of Redlock's nodes matter";
    case PK_OP_DRIFT:
        return a->arg >= -500000 && a->arg <= 500000 && !node
                   ? NULL
                   : "a clock of a client or the service is wrong by at most half";
    case PK_OP_FAILOVER:
        return service ? NULL : "only a replicated service has a leader";
    case PK_OP_CRASH:
        return client || node ? NULL : "the service does not forget; use failover";
    default:
        return client ? NULL : "only clients do that";
    }
}

/* ---- clocks ---- */

uint64_t pk_pendulum_at(const struct pk_pendulum *p, uint64_t true_us)
{
    uint64_t passed = true_us - p->base_us;
    return p->shown_us + passed + (uint64_t)((int64_t)passed * p->drift / 1000000);
}

uint64_t pk_pendulum_when(const struct pk_pendulum *p, uint64_t shown_us)
{
    if (shown_us <= p->shown_us) {
        return p->base_us;
    }
    uint64_t passed = shown_us - p->shown_us;
    uint64_t at = p->base_us + passed * 1000000 / (uint64_t)(1000000 + p->drift);
    while (pk_pendulum_at(p, at) < shown_us) {
        at++;
    }
    return at;
}

void pk_pendulum_drift(struct pk_pendulum *p, uint64_t now_us, int64_t drift)
{
    p->shown_us = pk_pendulum_at(p, now_us);
    p->base_us = now_us;
    p->drift = drift;
}

uint64_t pk_local_us(const struct pk_world *w, uint32_t who)
{
    return pk_pendulum_at(&w->actors[who].clock, w->now_us);
}

uint64_t pk_local_ms(const struct pk_world *w, uint32_t who)
{
    return pk_local_us(w, who) / 1000;
}

uint64_t pk_true_us(const struct pk_world *w, uint32_t who, uint64_t local_ms)
{
    return pk_pendulum_when(&w->actors[who].clock, local_ms * 1000);
}

/* ---- the trace ---- */

void pk_emit(struct pk_world *w, struct pk_record r)
{
    if (w->n_trace == w->trace_capacity) {
        w->trace_capacity = w->trace_capacity == 0 ? 256 : 2 * w->trace_capacity;
        w->trace = pk_door_resize(w->trace, w->trace_capacity * sizeof w->trace[0]);
    }
    r.at_us = w->now_us;
    w->trace[w->n_trace++] = r;
    uint64_t small =
        (uint64_t)r.kind << 24 | (uint64_t)r.who << 16 | (uint64_t)r.peer << 8 | r.code;
    w->digest = pk_mix(w->digest ^ r.at_us);
    w->digest = pk_mix(w->digest ^ (small << 32 | r.section));
    w->digest = pk_mix(w->digest ^ r.token);
    w->digest = pk_mix(w->digest ^ r.arg);
}

void pk_note(struct pk_world *w, enum pk_record_kind kind, uint32_t who, uint64_t token,
             uint64_t arg)
{
    pk_emit(w,
            (struct pk_record){
                .kind = (uint8_t)kind, .who = (uint8_t)who, .token = token, .arg = arg});
}

const struct pk_record *pk_world_trace(const struct pk_world *w, uint32_t *count)
{
    *count = w->n_trace;
    return w->trace;
}

uint64_t pk_world_digest(const struct pk_world *w)
{
    return w->digest;
}

/* ---- events ---- */

static bool before(const struct pk_due *a, const struct pk_due *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void make_room(struct pk_world *w)
{
    uint32_t n = w->events_capacity == 0 ? 64 : 2 * w->events_capacity;
    w->heap = pk_door_resize(w->heap, n * sizeof w->heap[0]);
    w->events = pk_door_resize(w->events, n * sizeof w->events[0]);
    w->free_slots = pk_door_resize(w->free_slots, n * sizeof w->free_slots[0]);
    for (uint32_t slot = w->events_capacity; slot < n; slot++) {
        w->free_slots[slot - w->n_events] = slot;
    }
    w->events_capacity = n;
}

static void push(struct pk_world *w, uint64_t at_us, struct pk_event e)
{
    if (w->n_events == w->events_capacity) {
        make_room(w);
    }
    uint32_t at = w->n_events++;
    uint32_t slot = w->free_slots[w->events_capacity - w->n_events];
    struct pk_due due = {at_us, ++w->orders, slot};
    w->events[slot] = e;
    while (at > 0 && before(&due, &w->heap[(at - 1) / 2])) {
        w->heap[at] = w->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    w->heap[at] = due;
}

static struct pk_event pop(struct pk_world *w, uint64_t *at_us)
{
    struct pk_due first = w->heap[0];
    w->free_slots[w->events_capacity - w->n_events] = first.slot;
    struct pk_due last = w->heap[--w->n_events];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= w->n_events) {
            break;
        }
        if (child + 1 < w->n_events && before(&w->heap[child + 1], &w->heap[child])) {
            child++;
        }
        if (!before(&w->heap[child], &last)) {
            break;
        }
        w->heap[at] = w->heap[child];
        at = child;
    }
    if (w->n_events > 0) {
        w->heap[at] = last;
    }
    *at_us = first.at_us;
    return w->events[first.slot];
}

void pk_timer(struct pk_world *w, uint32_t who, enum pk_timer_kind kind, uint64_t at_us)
{
    uint32_t generation = ++w->actors[who].generations[kind];
    push(w, at_us > w->now_us ? at_us : w->now_us,
         (struct pk_event){.kind = PK_HAPPENS_TIMER,
                           .who = who,
                           .timer = kind,
                           .generation = generation});
}

void pk_timer_stop(struct pk_world *w, uint32_t who, enum pk_timer_kind kind)
{
    w->actors[who].generations[kind]++;
}

/* ---- messages ---- */

uint64_t pk_draw(struct pk_world *w, uint64_t stream)
{
    return pk_chance(w->config.seed, stream, w->now_us);
}

static bool cut(const struct pk_world *w, const struct pk_message *m)
{
    uint32_t client = m->from < PK_CLIENTS_MAX ? m->from : m->to;
    bool data = m->from == PK_WHO_RESOURCE || m->to == PK_WHO_RESOURCE;
    uint64_t until =
        w->clients[client].cut_until_us[data ? PK_LINK_DATA : PK_LINK_SERVICE];
    return until > w->now_us;
}

static uint64_t delay_of(struct pk_world *w, const struct pk_message *m)
{
    const struct pk_world_config *c = &w->config;
    uint64_t stream = (uint64_t)m->from << 16 | (uint64_t)m->to << 8 | m->word;
    uint64_t draw = pk_draw(w, stream);
    uint64_t delay = c->delay_us + (c->jitter_us != 0 ? draw % (c->jitter_us + 1) : 0);
    if (pk_draw(w, stream | UINT64_C(1) << 32) % 1000 < c->slow) {
        delay += pk_draw(w, stream | UINT64_C(1) << 33) % (2 * c->ttl_us);
    }
    if (m->to == PK_WHO_RESOURCE) {
        struct pk_sim_client *from = &w->clients[m->from];
        delay += from->delay_us;
        from->delay_us = 0;
    }
    return delay;
}

void pk_send(struct pk_world *w, struct pk_message m)
{
    uint64_t stream = UINT64_C(1) << 34 | (uint64_t)m.from << 16 | (uint64_t)m.to << 8;
    bool lost = cut(w, &m) || pk_draw(w, stream | m.word) % 1000 < w->config.loss;
    uint64_t at = w->now_us + delay_of(w, &m);
    pk_emit(w, (struct pk_record){.kind = PK_REC_SENT,
                                  .who = m.from,
                                  .peer = m.to,
                                  .code = m.word,
                                  .token = m.token,
                                  .arg = lost ? 0 : at});
    if (!lost) {
        push(w, at,
             (struct pk_event){.kind = PK_HAPPENS_MESSAGE, .who = m.to, .message = m});
    }
}

/* ---- acts ---- */

static void do_pause(struct pk_world *w, uint32_t who, uint64_t for_us)
{
    struct pk_actor *a = &w->actors[who];
    uint64_t until = w->now_us + for_us;
    if (a->paused_until_us != 0) {
        return; /* stopped is stopped */
    }
    a->paused_until_us = until;
    pk_note(w, PK_REC_PAUSED, who, 0, until);
    push(w, until, (struct pk_event){.kind = PK_HAPPENS_RESUME, .who = who});
}

static void do_cut(struct pk_world *w, const struct pk_act *a, uint32_t link)
{
    uint64_t until = a->arg == 0 ? UINT64_MAX : w->now_us + (uint64_t)a->arg;
    uint32_t peer = link == PK_LINK_DATA ? PK_WHO_RESOURCE : PK_WHO_SERVICE;
    w->clients[a->who].cut_until_us[link] = until;
    pk_emit(w, (struct pk_record){.kind = PK_REC_CUT,
                                  .who = (uint8_t)a->who,
                                  .peer = (uint8_t)peer,
                                  .arg = a->arg == 0 ? 0 : until});
}

static void do_heal(struct pk_world *w, uint32_t who)
{
    for (uint32_t link = 0; link < PK_LINKS; link++) {
        if (w->clients[who].cut_until_us[link] > w->now_us) {
            uint32_t peer = link == PK_LINK_DATA ? PK_WHO_RESOURCE : PK_WHO_SERVICE;
            w->clients[who].cut_until_us[link] = 0;
            pk_emit(w, (struct pk_record){.kind = PK_REC_HEALED,
                                          .who = (uint8_t)who,
                                          .peer = (uint8_t)peer});
        }
    }
}

static void do_crash(struct pk_world *w, const struct pk_act *a)
{
    uint64_t until = w->now_us + (uint64_t)a->arg;
    pk_note(w, PK_REC_CRASHED, a->who, 0, until);
    if (a->who < PK_CLIENTS_MAX) {
        pk_sim_client_crash(w, a->who);
    } else {
        w->model->crash(w, a->who);
    }
    if (a->arg > 0) {
        do_pause(w, a->who, (uint64_t)a->arg);
    }
}

/* What befalls somebody, whether they run or not. */
static bool befall(struct pk_world *w, const struct pk_act *a)
{
    switch (a->op) {
    case PK_OP_PAUSE:
        do_pause(w, a->who, (uint64_t)a->arg);
        return true;
    case PK_OP_CUT:
        do_cut(w, a, PK_LINK_SERVICE);
        return true;
    case PK_OP_CUT_DATA:
        do_cut(w, a, PK_LINK_DATA);
        return true;
    case PK_OP_HEAL:
        do_heal(w, a->who);
        return true;
    case PK_OP_DELAY:
        w->clients[a->who].delay_us = (uint64_t)a->arg;
        return true;
    case PK_OP_JUMP:
        pk_note(w, PK_REC_JUMPED, a->who, 0, (uint64_t)a->arg);
        w->model->jump(w, a->who, a->arg);
        return true;
    case PK_OP_DRIFT:
        pk_note(w, PK_REC_DRIFTS, a->who, 0, (uint64_t)a->arg);
        pk_pendulum_drift(&w->actors[a->who].clock, w->now_us, a->arg);
        return true;
    case PK_OP_FAILOVER:
        pk_note(w, PK_REC_FAILOVER, a->who, 0, w->now_us + (uint64_t)a->arg);
        w->model->failover(w);
        if (a->arg > 0) {
            w->leaderless = true;
            do_pause(w, a->who, (uint64_t)a->arg);
        }
        return true;
    case PK_OP_CRASH:
        do_crash(w, a);
        return true;
    default:
        return false;
    }
}

void pk_world_act(struct pk_world *w, const struct pk_act *a)
{
    PK_ASSERT(pk_world_act_wrong(&w->config, a) == NULL);
    push(w, a->at_us > w->now_us ? a->at_us : w->now_us,
         (struct pk_event){.kind = PK_HAPPENS_ACT, .who = a->who, .act = *a});
}

/* ---- running ---- */

static void hear(struct pk_world *w, const struct pk_message *m)
{
    if (m->to < PK_CLIENTS_MAX) {
        pk_sim_client_hear(w, m->to, m);
    } else if (m->to == PK_WHO_RESOURCE) {
        pk_resource_hear(w, m);
    } else {
        w->model->hear(w, m->to, m);
    }
}

static void fire(struct pk_world *w, const struct pk_event *e)
{
    if (w->actors[e->who].generations[e->timer] != e->generation) {
        return; /* there is a newer one, or it was stopped */
    }
    if (e->who < PK_CLIENTS_MAX) {
        pk_sim_client_timer(w, e->who, (enum pk_timer_kind)e->timer);
    } else {
        w->model->tick(w, e->who);
    }
}

bool pk_world_full(const struct pk_world *w)
{
    return w->n_trace >= PK_TRACE_MAX;
}

uint64_t pk_world_next(const struct pk_world *w)
{
    return w->n_events > 0 && !pk_world_full(w) ? w->heap[0].at_us : UINT64_MAX;
}

bool pk_world_step(struct pk_world *w)
{
    if (w->n_events == 0 || pk_world_full(w)) {
        return false;
    }
    struct pk_event e = pop(w, &w->now_us);
    struct pk_actor *a = &w->actors[e.who];
    if (e.kind == PK_HAPPENS_RESUME) {
        a->paused_until_us = 0;
        w->leaderless = w->leaderless && e.who != PK_WHO_SERVICE;
        pk_note(w, PK_REC_RESUMED, e.who, 0, 0);
    } else if (e.kind == PK_HAPPENS_ACT && befall(w, &e.act)) {
        return true;
    } else if (a->paused_until_us != 0 && e.kind == PK_HAPPENS_MESSAGE &&
               e.who == PK_WHO_SERVICE && w->leaderless) {
        return true; /* nobody is there to hear it, now or later */
    } else if (a->paused_until_us != 0) {
        push(w, a->paused_until_us, e); /* who stands still hears it later */
    } else if (e.kind == PK_HAPPENS_ACT) {
        pk_sim_client_act(w, e.who, e.act.op);
    } else if (e.kind == PK_HAPPENS_MESSAGE) {
        hear(w, &e.message);
    } else {
        fire(w, &e);
    }
    return true;
}

void pk_world_run(struct pk_world *w, uint64_t until_us)
{
    while (pk_world_next(w) <= until_us) {
        (void)pk_world_step(w);
    }
    w->now_us = until_us > w->now_us ? until_us : w->now_us;
}

void pk_world_settle(struct pk_world *w)
{
    w->model->settle(w);
}

/* ---- seeing ---- */

static void view_client(const struct pk_world *w, uint32_t who,
                        struct pk_sim_client_view *v)
{
    const struct pk_sim_client *c = &w->clients[who];
    *v = (struct pk_sim_client_view){
        .phase = c->phase,
        .believes = c->believes,
        .paused = w->actors[who].paused_until_us != 0,
        .cut = c->cut_until_us[PK_LINK_SERVICE] > w->now_us,
        .cut_data = c->cut_until_us[PK_LINK_DATA] > w->now_us,
        .token = c->believes ? c->token : 0,
        .ready = c->ready,
        .value = c->value,
    };
    if (c->keeper.ttl_ms != 0) {
        v->left_us = (int64_t)(pk_keeper_safe_until(&c->keeper) * 1000) -
                     (int64_t)pk_local_us(w, who);
    }
}

void pk_world_view(const struct pk_world *w, struct pk_world_view *out)
{
    *out = (struct pk_world_view){.now_us = w->now_us,
                                  .holder = -1,
                                  .counter = w->counter,
                                  .fence = w->fence,
                                  .accepted = w->accepted,
                                  .rejected = w->rejected};
    out->service_paused = w->actors[PK_WHO_SERVICE].paused_until_us != 0;
    w->model->view(w, out);
    for (uint32_t i = 0; i < w->config.clients; i++) {
        view_client(w, i, &out->clients[i]);
    }
}

/* ---- beginning and end ---- */

struct pk_world *pk_world_new(const struct pk_world_config *c)
{
    PK_ASSERT(pk_world_config_wrong(c) == NULL);
    struct pk_world *w = pk_door_resize(NULL, sizeof *w);
    memset(w, 0, sizeof *w);
    w->config = *c;
    w->model = models[c->flavour];
    w->digest = pk_mix(c->seed);
    for (uint32_t i = 0; i < PK_ACTORS; i++) {
        /* Nobody's clock shows the true time. */
        w->actors[i].clock.shown_us = 1000000 + pk_chance(c->seed, 1000 + i, 0) % 1000000;
    }
    w->model->begin(w);
    return w;
}

void pk_world_free(struct pk_world *w)
{
    if (w != NULL) {
        w->model->end(w);
        (void)pk_door_resize(w->heap, 0);
        (void)pk_door_resize(w->events, 0);
        (void)pk_door_resize(w->free_slots, 0);
        (void)pk_door_resize(w->trace, 0);
        (void)pk_door_resize(w, 0);
    }
}
