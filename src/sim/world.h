/* SPDX-License-Identifier: MIT */
/*
 * The simulated world: clients that share one lock and one resource, a lock service, the
 * links between them, and everybody's own clock. Deterministic: the same settings and the
 * same acts give the same trace, natively and in a browser. Integers only, no clock, no
 * I/O, memory by core/door.h.
 *
 * The service of flavour *picket* is the real lock machine (src/core), and clients keep
 * their leases by the real keeper (client/keeper.h). The others are models, made to show
 * each one's own token, expiry and trap.
 *
 * One door for buttons, scripts and random runs: an *act* is something that somebody does
 * or that befalls them at some time. What happened is in the trace, as *records*
 * (record.h), and the checkers (check.h) look at nothing else.
 */
#ifndef PICKET_SIM_WORLD_H
#define PICKET_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/record.h"

enum pk_flavour {
    PK_FLAVOUR_PICKET,
    PK_FLAVOUR_ETCD,
    PK_FLAVOUR_ZOOKEEPER,
    PK_FLAVOUR_REDLOCK,
    PK_FLAVOUR_COUNT
};

const char *pk_flavour_name(enum pk_flavour f);     /* "picket" */
const char *pk_flavour_sentence(enum pk_flavour f); /* what to know about it */

/* What the resource does about tokens. */
enum pk_protection {
    PK_PROTECT_OFF,    /* nothing */
    PK_PROTECT_WRITES, /* refuses writes with a lower token than it has seen in a write */
    PK_PROTECT_CLAIM,  /* the same, and reading raises the fence: claim before you read */
    PK_PROTECTIONS
};

const char *pk_protection_name(enum pk_protection f); /* "off", "check", "on" */

/* Known mistakes that can be planted, so that the checkers can be seen to see. */
enum pk_mistake {
    PK_MISTAKE_FROM_ARRIVAL = 1, /* validity counts from the answer's arrival (P5) */
    PK_MISTAKE_OLD_TOKEN = 2,    /* a new acquire gets the last hold's token (P2, P8) */
    PK_MISTAKE_EARLY = 4,        /* the service ends leases after half their TTL (P4) */
    PK_MISTAKE_FENCE_LAST = 8,   /* the fence takes any token that it sees (P6) */
    PK_MISTAKE_LIFO = 16,        /* the last in the queue is served first (P7) */
    PK_MISTAKE_DIVERGE = 32,     /* a replica skips a command */
    PK_MISTAKE_SHARE = 64,       /* the service grants without looking (P1) */
    PK_MISTAKE_FROM_RETRY = 128, /* a lease counts from the last asking for it (P5) */
    PK_MISTAKES_END = 256,
};

enum { PK_CLIENTS_MAX = 8, PK_NODES_MAX = 5, PK_TRACE_MAX = 1 << 20 };

struct pk_world_config {
    uint64_t seed;
    enum pk_flavour flavour;
    enum pk_protection fence;
    uint32_t clients; /* 1 to PK_CLIENTS_MAX */
    uint64_t ttl_us;
    uint64_t delay_us;  /* of a message, at least */
    uint64_t jitter_us; /* and up to that much more */
    uint32_t loss;      /* of 1000 messages get lost */
    uint32_t slow;      /* of 1000 take up to twice the TTL */
    bool checkpoint;    /* clients ask their own clock before they write */
    uint32_t mistakes;  /* mask of enum pk_mistake */
};

/* Four clients, a TTL of 5 s, messages of 20 ms, nothing lost, the fence on. */
struct pk_world_config pk_world_defaults(void);
/* NULL, or what is wrong with it. */
const char *pk_world_config_wrong(const struct pk_world_config *c);

/* Who: clients are 0 and up. */
enum pk_who {
    PK_WHO_SERVICE = 16,
    PK_WHO_NODE = 17, /* and the next four: Redlock's nodes */
    PK_WHO_RESOURCE = 24,
};

enum pk_op {
    PK_OP_ACQUIRE,  /* client */
    PK_OP_WRITE,    /* client: what it read when it got the lock, plus one */
    PK_OP_RELEASE,  /* client */
    PK_OP_PAUSE,    /* client, service, node: stands still for `arg` us */
    PK_OP_CUT,      /* client: its link to the service, for `arg` us; 0: until healed */
    PK_OP_HEAL,     /* client: all its links */
    PK_OP_CUT_DATA, /* client: its link to the resource */
    PK_OP_DELAY,    /* client: its next message to the resource takes `arg` us longer */
    PK_OP_JUMP,     /* node: its wall clock is set forward by `arg` us (or back) */
    PK_OP_DRIFT,    /* client, service: its clock runs fast by `arg` millionths */
    PK_OP_FAILOVER, /* service: `arg` us without a leader, then another one */
    PK_OP_CRASH,    /* client: gone for `arg` us, without memory. Node: restarts empty */
    PK_OP_COUNT
};

const char *pk_op_name(enum pk_op op); /* "acquire" */

struct pk_act {
    uint64_t at_us;
    uint32_t who;
    enum pk_op op;
    int64_t arg;
};

struct pk_world;

struct pk_world *pk_world_new(const struct pk_world_config *c);
void pk_world_free(struct pk_world *w);

/* NULL, or why that can't be done by them. */
const char *pk_world_act_wrong(const struct pk_world_config *c, const struct pk_act *a);
/* Lets it happen at its time; what is past happens now. */
void pk_world_act(struct pk_world *w, const struct pk_act *a);
/* When the next thing happens; UINT64_MAX: nothing will. */
uint64_t pk_world_next(const struct pk_world *w);
/* So much has happened that nothing more will: a script can't eat all memory (P10). */
bool pk_world_full(const struct pk_world *w);
/* Exactly one event. False: there is none. */
bool pk_world_step(struct pk_world *w);
/* All events up to and at that time, which it then is. */
void pk_world_run(struct pk_world *w, uint64_t until_us);
/* Compares what the replicas have become; at the end of a run. */
void pk_world_settle(struct pk_world *w);

const struct pk_record *pk_world_trace(const struct pk_world *w, uint32_t *count);
/* Of the trace so far. */
uint64_t pk_world_digest(const struct pk_world *w);

/* ---- what can be seen ---- */

enum pk_sim_phase {
    PK_SIM_IDLE,
    PK_SIM_ASKING, /* for a lease, or for the lock: no answer yet */
    PK_SIM_QUEUED,
    PK_SIM_HOLDING,
};

struct pk_sim_client_view {
    enum pk_sim_phase phase; /* as its library has it */
    bool believes;           /* its program thinks that it has the lock */
    bool paused, cut, cut_data;
    uint64_t token;  /* that it believes in; 0: none */
    int64_t left_us; /* of its lease by its own clock; below 0: over for so long */
    bool ready;      /* has read, so it can write */
    uint64_t value;  /* that it knows */
};

struct pk_world_view {
    uint64_t now_us;
    int holder;            /* by the service; -1: nobody */
    uint64_t holder_token; /* 0: none, or the flavour has none */
    uint64_t left_us;      /* of the holder's lease by the service */
    uint32_t waiting;
    bool service_paused;
    uint64_t counter, fence, accepted, rejected;
    struct pk_sim_client_view clients[PK_CLIENTS_MAX];
};

void pk_world_view(const struct pk_world *w, struct pk_world_view *out);

#endif
