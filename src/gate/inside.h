/* SPDX-License-Identifier: MIT */
/*
 * The insides of a gate, shared by the files of this folder.
 *
 *   client.c    connections of clients: heads in, the gate's own answers out
 *   exchange.c  one request from its head to its end
 *   relay.c     its bytes, in both directions
 *   keyed.c     its idempotency key, with once.c
 *   upstream.c  connections to the service, and those that are kept for the next one
 *   claim.c     claims at the store; flight.c what is in flight at other gates
 *   stand.c     the lock that says who the gate is
 *   gate.c      the loop: listening, claims, time, the end
 *   pages.c     what operators look at
 *
 * An exchange may outlive its client: a request that went upstream is in flight until
 * the service has answered or closed (A4), whoever still wants to know.
 */
#ifndef PICKET_GATE_INSIDE_H
#define PICKET_GATE_INSIDE_H

#include <uv.h>

#include "gate/admit.h"
#include "gate/body.h"
#include "gate/flight.h"
#include "gate/gate.h"
#include "gate/once.h"
#include "gate/rewrite.h"
#include "gate/stand.h"
#include "gate/wire.h"
#include "gate/wish.h"
#include "server/http.h"

/* X(outcome, its name, status): how requests end */
#define PK_OUTCOMES(X)                                                                   \
    X(FORWARDED, "forwarded", 0)                                                         \
    X(REPLAYED, "replayed", 0)                                                           \
    X(ABANDONED, "abandoned", 0) /* its client went away */                              \
    X(MALFORMED, "malformed", 400)                                                       \
    X(BAD_TOKEN, "bad-token", 400)                                                       \
    X(BAD_RESOURCE, "bad-resource", 400)                                                 \
    X(BAD_PATH, "bad-path", 400)                                                         \
    X(BAD_KEY, "bad-key", 400)                                                           \
    X(SLOW, "too-slow", 408)                                                             \
    X(STALE, "stale", 409)                                                               \
    X(CUT_OFF, "cut-off", 409)                                                           \
    X(IN_PROGRESS, "in-progress", 409)                                                   \
    X(UNKNOWN, "outcome-unknown", 409)                                                   \
    X(NOT_KEPT, "answer-not-kept", 409)                                                  \
    X(MISMATCH, "key-reused", 422)                                                       \
    X(MISSING, "token-missing", 428)                                                     \
    X(UPSTREAM, "upstream", 502)                                                         \
    X(DRAINING, "older-in-flight", 503)                                                  \
    X(STORE, "store", 503)                                                               \
    X(STANDBY, "not-standing", 503)                                                      \
    X(FULL, "too-many", 503)                                                             \
    X(SILENT, "upstream-silent", 504)

enum pk_outcome {
#define X(outcome, name, status) PK_OUTCOME_##outcome,
    PK_OUTCOMES(X)
#undef X
        PK_OUTCOME_COUNT
};

/* X(what would have happened but for shadow mode, its name) */
#define PK_SHADOWS(X)                                                                    \
    X(STALE, "stale")                                                                    \
    X(MISSING, "missing")                                                                \
    X(BAD_TOKEN, "bad-token")                                                            \
    X(DELAYED, "delayed")                                                                \
    X(STORE, "store")

enum pk_shadow {
#define X(shadow, name) PK_SHADOW_##shadow,
    PK_SHADOWS(X)
#undef X
        PK_SHADOW_COUNT
};

struct pk_counts {
    uint64_t outcomes[PK_OUTCOME_COUNT];
    uint64_t shadows[PK_SHADOW_COUNT];
    uint64_t connections, refused_connections;
    uint64_t claims, claims_failed;
    uint64_t upstream_errors, upstream_connects, upstream_retries;
    uint64_t cut_offs, unkept;
};

struct pk_upstream {
    struct pk_gate *gate;
    struct pk_list_link link; /* among the idle ones, the last used last */
    struct pk_wire wire;
    uv_connect_t connect;
    struct pk_exchange *exchange; /* NULL: idle, or closing */
    bool reused;                  /* it has carried a request before this one */
};

/* Runs `run` on the thread pool, then `done` on the loop. */
struct pk_chore {
    uv_work_t work;
    struct pk_gate *gate;
    void (*run)(struct pk_chore *j);
    void (*done)(struct pk_chore *j);
};

enum pk_stage {
    PK_STAGE_OVER,
    PK_STAGE_ASKING,     /* for admission */
    PK_STAGE_MARKING,    /* the store is asked about its key */
    PK_STAGE_COMPARING,  /* a repeat's body is read, and compared */
    PK_STAGE_REPLAYING,  /* an answer is sent from memory */
    PK_STAGE_CONNECTING, /* to the service */
    PK_STAGE_FLYING,     /* and forwarded to it */
    PK_STAGE_KEEPING,    /* the store is told how it ended */
};

struct pk_exchange {
    struct pk_gate *gate;
    struct pk_list_link link;
    enum pk_stage stage;
    struct pk_client *client; /* NULL: gone */
    struct pk_upstream *up;   /* NULL: none */
    struct pk_admit_ticket ticket;
    uint64_t began_ms;
    bool fenced; /* the ticket is in use */
    bool counted;

    /* The request. */
    struct pk_wish ask;
    struct pk_resp_out head; /* as it goes upstream */
    struct pk_body body;
    struct pk_bytes piece; /* of it, that was sent last */
    bool to_head, old, expects, idempotent;
    bool chunked;   /* how its body goes upstream */
    bool head_sent; /* some of it, at least */
    bool all_sent;
    bool resend;    /* the piece, since nobody got it */
    bool deaf;      /* the service takes no more of it */
    bool truncated; /* its client went away in the middle */
    char *block;    /* a client's, that is still being sent */
    char chunk_up[PK_REWRITE_CHUNK];

    /* The answer. */
    struct pk_body answer;
    int status;
    size_t scanned;
    bool answering; /* its head is there */
    bool head_due;  /* and has to be sent to the client yet */
    bool chunks;    /* how its body goes to the client */
    bool all_taken; /* all of it was handed to the client's connection */
    bool close;     /* which ends with it */
    bool reusable;  /* the service's doesn't */
    bool timed_out; /* the client was told that it does not come */
    const char *would_refuse;
    uint64_t fence; /* that it was refused for */
    char chunk_down[PK_REWRITE_CHUNK];

    /* Its idempotency key; NULL: none. */
    struct pk_once *once;
    struct pk_chore chore;
    bool keeping, replayed;  /* the answer is gathered; it was there before */
    bool settled;            /* the store knows how it ended */
    struct pk_bytes held;    /* the last piece of one that was too large */
    enum pk_outcome refusal; /* to be told after the store was; FORWARDED: none */
    char refusal_why[160];
};

struct pk_client {
    struct pk_gate *gate;
    struct pk_list_link link;
    struct pk_wire wire;
    struct pk_exchange *exchange; /* under way; NULL: a head is awaited */
    struct pk_resp_out out;       /* what is being sent: heads and own answers */
    size_t scanned;
    struct pk_body rest; /* of a refused request's body, to be thrown away */
    bool begun;          /* some of a head has come */
    bool answering;      /* with an answer of our own */
    bool last;           /* no request after this one */
    bool parting;        /* all is said; its own end is awaited */
    bool running;
    char address[64];
};

struct pk_gate {
    struct pk_gate_options options;
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_timer_t sweep;
    uv_prepare_t prepare;
    uv_signal_t term, intr;
    struct pk_http *admin;
    char admin_host[256];
    const char *admin_hosts[2]; /* the name it may be asked for by, and NULL */
    struct pk_stand stand;
    struct pk_admit *admit;
    struct pk_flights flights;
    struct pk_wish_rules rules;
    struct pk_head scratch; /* of the head that is being looked at */
    struct pk_list clients, exchanges, ended, spare, idle;
    size_t n_clients, n_exchanges, n_spare, n_idle, n_upstreams, n_jobs;
    struct pk_counts counts;
    struct sockaddr_storage upstream;
    char upstream_host[256]; /* HOST:PORT, for Host */
    char base[256];
    bool turning, draining, closing, listening;
    uint64_t drain_until_ms;
    uint64_t remarks_since_ms, remarks; /* what was said in this second */
};

/* ---- gate.c ---- */

uint64_t pk_gate_now(const struct pk_gate *g);
/* Makes the claims and hands out the verdicts that are due. */
void pk_gate_turn(struct pk_gate *g);
void pk_gate_chore(struct pk_gate *g, struct pk_chore *j);
/* Logs what is done or would be done to a request, but not more often than is good. */
void pk_gate_remark(struct pk_gate *g, const char *event, const char *why,
                    const struct pk_exchange *x);
const char *pk_outcome_name(enum pk_outcome o);
int pk_outcome_status(enum pk_outcome o);
const char *pk_shadow_name(enum pk_shadow s);

/* ---- claim.c ---- */

void pk_claim_begin(struct pk_gate *g, const struct pk_admit_claim *what);
/* Whether the request may still go out: by the clock, without network or thread (P5). */
bool pk_claim_stands(struct pk_exchange *x);
/* Lets go of what nothing flies under any more. */
void pk_claim_sweep(struct pk_gate *g);

/* ---- client.c ---- */

void pk_client_accept(struct pk_gate *g);
/* The request under way has been answered: on to the next. */
void pk_client_next(struct pk_client *c, bool close);
/* Answers by ourselves, and goes on to the next. `x` (NULL: none) is the request, which
 * is not the client's any more. */
void pk_client_refuse(struct pk_client *c, struct pk_exchange *x, enum pk_outcome o,
                      const char *why);
void pk_client_close(struct pk_client *c);
void pk_client_late(struct pk_client *c); /* it took too long for something */
/* Sends what is in c->out, and `more` after it. */
enum pk_wire_sent pk_client_send(struct pk_client *c, struct pk_bytes more);

/* ---- exchange.c ---- */

/* Begins with the request whose head is g->scratch; its body is in the client's block. */
void pk_exchange_begin(struct pk_client *c);
/* The ticket has a verdict. */
void pk_exchange_verdict(struct pk_exchange *x);
/* The client has sent more, has taken what was sent, is slow, has ended its side (true:
 * and is to be closed), or is gone. */
void pk_exchange_client_came(struct pk_exchange *x);
void pk_exchange_client_sent(struct pk_exchange *x);
void pk_exchange_client_late(struct pk_exchange *x);
bool pk_exchange_client_ended(struct pk_exchange *x, int error);
void pk_exchange_client_gone(struct pk_exchange *x);
/* Looks whether the store or the service has kept it waiting for too long. */
void pk_exchange_tick(struct pk_exchange *x, uint64_t now);
/* Breaks off what is in flight, and refuses what is not yet. */
void pk_exchange_cut(struct pk_exchange *x, enum pk_outcome o, const char *why);

/* For relay.c and keyed.c. After those that end it, only its stage may be looked at. */
void pk_exchange_count(struct pk_exchange *x, enum pk_outcome o);
void pk_exchange_leave(struct pk_exchange *x); /* it is in flight no more */
void pk_exchange_drop_up(struct pk_exchange *x, bool keep);
struct pk_client *pk_exchange_detach(struct pk_exchange *x);
void pk_exchange_forward(struct pk_exchange *x, bool fresh);
void pk_exchange_finish(struct pk_exchange *x); /* ends it: answered */
/* End it with an answer of our own: a mark in the store is seen to first; at once;
 * because the service has failed us. */
void pk_exchange_refuse(struct pk_exchange *x, enum pk_outcome o, const char *why);
void pk_exchange_tell(struct pk_exchange *x, enum pk_outcome o, const char *why);
void pk_exchange_fail(struct pk_exchange *x, enum pk_outcome o, const char *why);
void pk_exchange_over(struct pk_exchange *x);
/* Whether some of the answer may have been sent to the client. */
bool pk_exchange_begun(const struct pk_exchange *x);
/* Those that have ended may be used again. */
void pk_exchange_reuse_ended(struct pk_gate *g);

/* ---- relay.c ---- */

/* Move on what can be moved, towards the service and towards the client. */
void pk_relay_up(struct pk_exchange *x);
void pk_relay_down(struct pk_exchange *x);
/* The next piece of the request's body. */
struct pk_bytes pk_relay_piece(struct pk_exchange *x);
/* Sends a piece of the answer; the last one may be empty. False: wait until it is taken.
 */
bool pk_relay_send_down(struct pk_exchange *x, struct pk_bytes first,
                        struct pk_bytes piece, bool last);
/* No more of the body will come: the service sees an end. */
void pk_relay_truncate(struct pk_exchange *x);
/* Decides who is waited for, and how long. */
void pk_relay_patience(struct pk_exchange *x);
/* The service's connection is there, has brought or taken something, or has ended. */
void pk_exchange_connected(struct pk_exchange *x);
void pk_exchange_up_came(struct pk_exchange *x);
void pk_exchange_up_sent(struct pk_exchange *x, int error);
void pk_exchange_up_ended(struct pk_exchange *x, int error);

/* ---- keyed.c ---- */

/* Looks the key up; then it is forwarded, or answered from what was kept. */
void pk_keyed_mark(struct pk_exchange *x);
/* More of a repeat's body has come. */
void pk_keyed_compare(struct pk_exchange *x);
/* Whether an answer settles the matter, so that it is kept. */
bool pk_keyed_is_final(int status);
/* The last piece of the answer is there; it is sent when the store knows. */
void pk_keyed_hold(struct pk_exchange *x, struct pk_bytes piece);
void pk_keyed_settle(struct pk_exchange *x, enum pk_once_how how);

/* ---- upstream.c ---- */

/* Gets a connection for the exchange: an idle one unless a fresh one is asked for. It is
 * connected at once, or pk_exchange_connected or _up_ended come later. */
void pk_upstream_get(struct pk_exchange *x, bool fresh);
/* Its request is over: keeps the connection for another, or closes it. */
void pk_upstream_put(struct pk_upstream *u, bool keep);
/* Closes the idle ones whose time is over. */
void pk_upstream_late(struct pk_gate *g, uint64_t now);

/* ---- pages.c ---- */

void pk_gate_page(void *ctx, struct pk_bytes path, struct pk_bytes query,
                  struct pk_http_answer *out);

#endif
