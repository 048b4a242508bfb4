/* SPDX-License-Identifier: MIT */
/*
 * The insides of a running server, shared by the files of this folder that serve
 * clients: conn.c (bytes), dispatch.c (what a request means), hub.c (who is told),
 * relay.c (to the leader), admin.c (CLUSTER and INFO), health.c (who takes part),
 * server.c (life and death).
 */
#ifndef PICKET_SERVER_INSIDE_H
#define PICKET_SERVER_INSIDE_H

#include <uv.h>

#include "proto/proto.h"
#include "raft/identity.h"
#include "raft/replica.h"
#include "raft/uvio.h"
#include "server/backup.h"
#include "server/bootstrap.h"
#include "server/conn.h"
#include "server/dash.h"
#include "server/forming.h"
#include "server/http.h"
#include "server/hub.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/trace.h"
#include "server/turn.h"

enum {
    PK_SERVER_SCRATCH = 64 * 1024,
    PK_LEADER_PATIENCE_MS = 3000, /* how long a request waits for a leader */
    PK_ENTRIES_TIMED = 64,        /* more than a turn lets be in flight */
};

/* A member that refused this node or was refused by it. */
struct pk_refused {
    char name[PK_NODE_NAME_MAX]; /* "": none */
    char why[256];
};

enum { PK_ADMIN_STEPS_MAX = 4 };

/* Changes of members that one command asks for, one after the other. */
struct pk_admin_plan {
    uint64_t who; /* the connection that waits for the end; 0: there is no plan */
    char name[PK_NODE_NAME_MAX];
    struct {
        enum pk_change what;
        struct pk_member member;
    } steps[PK_ADMIN_STEPS_MAX];
    unsigned n, at;
    bool due; /* step `at` is to begin after this turn */
};

struct pk_server {
    struct pk_server_options options;
    struct pk_bootstrap bootstrap;
    struct pk_forming forming;
    struct pk_identity self;
    struct pk_peers peers;

    uv_loop_t loop;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_timer_t deadline; /* of the machine */
    uv_timer_t sweep;
    uv_signal_t term, intr;
    uv_tcp_t listener;

    struct pk_uvio *uvio;
    struct pk_turn *turn;
    struct pk_replica *replica;
    struct pk_metrics *metrics;
    struct pk_trace_log *trace; /* NULL: none is recorded */
    struct pk_http *http;
    struct pk_dash *dash;
    uint64_t leader_id;     /* 0: nobody known, */
    uint64_t leaderless_ms; /* since when; 0: somebody is */
    uint64_t load;          /* commands of a recent turn, smoothed */
    struct pk_turn_counts counted;
    uint64_t proposed_us[PK_ENTRIES_TIMED]; /* by number of the entry, for metrics */
    uint64_t woke_us;                       /* when the present turn of the loop began */
    uint64_t replay_until; /* entries up to this index were there before we started */
    bool draining, closing, alone; /* alone: nobody to hand over to */
    bool full;                     /* the disk, as far as we know */
    uint64_t drain_since_ms;
    struct pk_refused refused[PK_MEMBERS_MAX]; /* by name, see health.h */
    uint32_t next_refused;
    uint32_t last_handles; /* still to be closed before the loop ends */
    char client_address[PK_HOST_MAX], http_address[PK_HOST_MAX]; /* as others see them */
    char http_host[PK_HOST_MAX], raft_host[PK_HOST_MAX];
    const char *http_hosts[4]; /* names under which the pages are asked for */

    struct pk_conn **conns; /* by slot */
    uint32_t conn_slots, conn_count, next_generation;
    uint32_t full_slots; /* below this none is free */
    size_t input_total;  /* bytes kept of unfinished requests */
    size_t unsent_total; /* bytes that clients have not taken, after the last turn */
    struct pk_conn *dirty;
    struct pk_fair fair;
    struct pk_hub hub;

    /* Of one request at a time. */
    char scratch[PK_SERVER_SCRATCH];
    struct pk_bytes args[PK_RESP_ARGS_MAX];
    struct pk_proto_scratch ids;
    struct pk_effects annotated;

    uint32_t told_version; /* the cluster version that was logged last; 0: none */
    bool told_held;

    struct pk_admin_plan plan; /* the changes of members that an operator asked for */
    struct pk_backup_job backup;
};

/* ---- dispatch.c ---- */

/* Does what the request says. False: not now; it stays the connection's next one. */
bool pk_dispatch(struct pk_conn *c, uint32_t n);
/* Hooks of the turn. */
void pk_dispatch_answer(void *ctx, struct pk_ticket t, const struct pk_command *c,
                        const struct pk_effects *e);
void pk_dispatch_refuse(void *ctx, struct pk_ticket t, enum pk_refusal why);

/* Whether this request can be served here now; if not, the connection has been stalled,
 * answered or handed to a relay, and *taken says whether the request is done with. */
bool pk_dispatch_here(struct pk_conn *c, bool *taken);

/* Writes the error of a command that was not run here. */
void pk_dispatch_say_refused(struct pk_conn *c, enum pk_refusal why);

/* How answers are given, in tickets; forms between these are redis.c's. */
enum { PK_FORM_NATIVE = 0, PK_FORM_RENEWAL = 254, PK_FORM_ADMIN = 255 };

/* ---- renewal.c ---- */

/* Whether the command is a RENEW that is to be cut into pieces. */
bool pk_renewal_is_large(const struct pk_command *cmd);
/* Takes it in: the connection stalls until all pieces have been answered. */
void pk_renewal_begin(struct pk_conn *c, const struct pk_command *cmd);
/* Asks for the next pieces, as many as can be served now. */
void pk_renewal_go_on(struct pk_conn *c);
/* A piece was run, or refused. */
void pk_renewal_answer(struct pk_conn *c, const struct pk_command *cmd,
                       const struct pk_effects *e);
void pk_renewal_refuse(struct pk_conn *c, enum pk_refusal why);
/* Bytes of its answer so far. */
size_t pk_renewal_unsent(const struct pk_conn *c);
void pk_renewal_free(struct pk_conn *c);

/* ---- admin.c ---- */

bool pk_admin_cluster(struct pk_conn *c, uint32_t n);
void pk_admin_info(struct pk_conn *c);
/* The client address of the leader; NULL: not known. */
const char *pk_admin_leader_address(struct pk_server *s);
/* Begins the second half of a change, if one is due. */
void pk_admin_turn(struct pk_server *s);
/* The part of a raft address before '@', and after it. */

/* ---- relay.c ---- */

/* From now on all bytes of `c` go to the leader at `address` and back; `c->in` holds
 * what has not been dealt with. */
void pk_relay_start(struct pk_conn *c, const char *address);
/* Another leader: relays to the old one end. */
void pk_relay_end(struct pk_conn *c);
/* Bytes from the client. */
void pk_relay_forward(struct pk_conn *c, const char *data, size_t len);
/* The client has taken what it was sent. */
void pk_relay_drained(struct pk_conn *c);

/* ---- server.c ---- */

uint64_t pk_server_now(struct pk_server *s);
/* Logs that the node is up, and where. */
void pk_server_say_started(struct pk_server *s);

#endif
