/* SPDX-License-Identifier: MIT */
/*
 * The insides of a world, shared by the files of this folder.
 *
 *     world.c     time, events, messages, clocks, acts
 *     client.c    the program and its library: lease, keeper, writes
 *     resource.c  what the lock protects
 *     picket.c    the service that is the real machine
 *     keyed.c     the models of etcd and ZooKeeper: keys in a queue that end with a
 *                 session
 *     redlock.c   the model of Redlock: five nodes, and the client's part of it
 */
#ifndef PICKET_SIM_INSIDE_H
#define PICKET_SIM_INSIDE_H

#include "client/keeper.h"
#include "sim/world.h"

/* A clock that runs at its own rate. */
struct pk_pendulum {
    uint64_t base_us; /* true time at which it showed */
    uint64_t shown_us;
    int64_t drift; /* millionths that it is fast */
};

uint64_t pk_pendulum_at(const struct pk_pendulum *p, uint64_t true_us);
/* The first true time at which it shows that. */
uint64_t pk_pendulum_when(const struct pk_pendulum *p, uint64_t shown_us);
void pk_pendulum_drift(struct pk_pendulum *p, uint64_t now_us, int64_t drift);

struct pk_message {
    uint8_t word, from, to;
    uint32_t section;
    uint64_t lease, request, token, value;
    uint64_t echo_ms; /* the client's own clock when it asked; comes back in the answer */
};

/* What each kind of timer is for; a newer one of the same kind replaces it. */
enum pk_timer_kind {
    PK_TIMER_RENEW, /* of a client */
    PK_TIMER_LOST,
    PK_TIMER_ASK,
    PK_TIMER_RELEASE,
    PK_TIMER_DATA,
    PK_TIMER_ATTEMPT,
    PK_TIMER_TICK, /* of a service or node */
    PK_TIMER_KINDS
};

enum pk_event_kind {
    PK_HAPPENS_ACT,
    PK_HAPPENS_MESSAGE,
    PK_HAPPENS_TIMER,
    PK_HAPPENS_RESUME
};

struct pk_event {
    enum pk_event_kind kind;
    uint32_t who;
    uint32_t timer, generation;
    struct pk_act act;
    struct pk_message message;
};

/* When which event happens; what is moved about is small. */
struct pk_due {
    uint64_t at_us, order;
    uint32_t slot; /* in the list of events */
};

struct pk_actor {
    struct pk_pendulum clock;
    uint64_t paused_until_us;             /* 0: runs */
    uint32_t generations[PK_TIMER_KINDS]; /* of its timers */
};

enum { PK_LINK_SERVICE, PK_LINK_DATA, PK_LINKS };

struct pk_sim_client {
    enum pk_sim_phase phase;
    bool believes, ready, writing, reading;
    uint32_t writes; /* wanted, and not sent yet */
    uint64_t token, value, writing_value;
    uint32_t section;
    uint64_t last_write; /* number of the write that is under way */
    uint64_t lease, request, openings;
    uint64_t opening_ms; /* when it first asked for its lease; 0: not yet */
    struct pk_keeper keeper;
    bool renewing;
    uint64_t releasing_token, releasing_lease, releasing_request;
    uint64_t cut_until_us[PK_LINKS]; /* 0: whole; UINT64_MAX: for good */
    uint64_t delay_us;               /* of its next message to the resource */
    /* Redlock's. */
    uint64_t attempt, attempt_ms;
    uint32_t yes, answers;
    bool extending;
};

struct pk_flavour_model {
    const char *name, *sentence;
    void (*begin)(struct pk_world *w);
    void (*end)(struct pk_world *w);
    /* A message or a timer of the service, or of a node. */
    void (*hear)(struct pk_world *w, uint32_t who, const struct pk_message *m);
    void (*tick)(struct pk_world *w, uint32_t who);
    void (*failover)(struct pk_world *w);
    void (*jump)(struct pk_world *w, uint32_t node, int64_t by_us);
    void (*crash)(struct pk_world *w, uint32_t node);
    void (*settle)(struct pk_world *w);
    void (*view)(const struct pk_world *w, struct pk_world_view *out);
};

extern const struct pk_flavour_model pk_model_picket, pk_model_etcd, pk_model_zookeeper,
    pk_model_redlock;

enum { PK_ACTORS = PK_WHO_RESOURCE + 1 };

struct pk_world {
    struct pk_world_config config;
    const struct pk_flavour_model *model;
    uint64_t now_us, orders, sent;
    struct pk_due *heap; /* as many as there are events to come, */
    uint32_t n_events, events_capacity;
    struct pk_event *events; /* which are here, */
    uint32_t *free_slots;    /* in all places but these */
    struct pk_record *trace;
    uint32_t n_trace, trace_capacity;
    uint64_t digest;
    struct pk_actor actors[PK_ACTORS];
    struct pk_sim_client clients[PK_CLIENTS_MAX];
    uint32_t sections;
    bool leaderless; /* what is said to the service gets lost */
    void *service;   /* the model's own */
    /* The resource. */
    uint64_t counter, fence, accepted, rejected;
    uint64_t last_write[PK_CLIENTS_MAX];
};

/* ---- world.c ---- */

uint64_t pk_local_us(const struct pk_world *w, uint32_t who);
uint64_t pk_local_ms(const struct pk_world *w, uint32_t who);
/* The true time at which their clock shows that many ms. */
uint64_t pk_true_us(const struct pk_world *w, uint32_t who, uint64_t local_ms);
void pk_emit(struct pk_world *w, struct pk_record r);
/* A record about `who` at the present. */
void pk_note(struct pk_world *w, enum pk_record_kind kind, uint32_t who, uint64_t token,
             uint64_t arg);
void pk_timer(struct pk_world *w, uint32_t who, enum pk_timer_kind kind, uint64_t at_us);
void pk_timer_stop(struct pk_world *w, uint32_t who, enum pk_timer_kind kind);
void pk_send(struct pk_world *w, struct pk_message m);
uint64_t pk_draw(struct pk_world *w, uint64_t stream);

/* ---- client.c ---- */

void pk_sim_client_act(struct pk_world *w, uint32_t who, enum pk_op op);
void pk_sim_client_hear(struct pk_world *w, uint32_t who, const struct pk_message *m);
void pk_sim_client_timer(struct pk_world *w, uint32_t who, enum pk_timer_kind kind);
void pk_sim_client_crash(struct pk_world *w, uint32_t who);
/* For redlock.c: the library has, has more of, or has lost the lock. */
void pk_sim_client_hold(struct pk_world *w, uint32_t who, uint64_t token,
                        uint32_t section);
void pk_sim_client_kept(struct pk_world *w, uint32_t who, uint64_t sent_ms);
void pk_sim_client_lose(struct pk_world *w, uint32_t who);

/* ---- redlock.c, the client's part ---- */

void pk_redlock_acquire(struct pk_world *w, uint32_t who);
void pk_redlock_extend(struct pk_world *w, uint32_t who);
void pk_redlock_release(struct pk_world *w, uint32_t who);
void pk_redlock_hear(struct pk_world *w, uint32_t who, const struct pk_message *m);
void pk_redlock_late(struct pk_world *w, uint32_t who);

/* ---- resource.c ---- */

void pk_resource_hear(struct pk_world *w, const struct pk_message *m);

#endif
