/* SPDX-License-Identifier: MIT */
/*
 * One client's connection: requests out of bytes, answers into bytes, in order.
 *
 * Requests of one connection are taken in as fast as they can be answered and no faster.
 * A connection *stalls* (its bytes stay unread) while the turn is full or its share of it
 * is used up (fair.h), while there is no leader, while an answer must come first, or
 * while its peer does not read; so what a client can make the server keep is bounded
 * (P10):
 *
 *   PK_CONN_PENDING_MAX   requests taken in and not answered
 *   PK_CONN_UNSENT_SOFT   bytes unsent above which no more requests are taken
 *   PK_CONN_UNSENT_PUSH   bytes unsent above which no more is pushed: a watcher gets a
 *                         gap, the owner of a lease is disconnected and will ask
 *   PK_CONN_UNSENT_HARD   bytes unsent above which it is closed. Only answers that were
 *                         asked for before their size could be known come near it
 *   PK_CONN_UNSENT_CROWD  bytes unsent to all together above which watchers get a gap at
 *                         once
 *   PK_CONN_UNSENT_TOTAL  bytes unsent to all together above which those that have much
 *                         of it are closed
 *   PK_RESP_REQUEST_MAX   bytes of one request
 *   PK_CONN_INPUT_TOTAL   bytes of unfinished requests, of all connections together
 *   PK_CONN_REQUEST_MS    for one request to arrive
 *
 * Idle connections have no buffers. Nobody keeps a pointer to a connection across
 * callbacks: tickets name it by slot and generation.
 */
#ifndef PICKET_SERVER_CONN_H
#define PICKET_SERVER_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "core/tree.h"
#include "proto/resp.h"
#include "server/fair.h"

enum {
    PK_CONN_PENDING_MAX = 1024,
    PK_CONN_UNSENT_SOFT = 256 * 1024,
    PK_CONN_UNSENT_PUSH = 1024 * 1024,
    PK_CONN_UNSENT_HARD = 8 * 1024 * 1024,
    PK_CONN_UNSENT_CROWD = 128 * 1024 * 1024,
    PK_CONN_UNSENT_TOTAL = 256 * 1024 * 1024,
    PK_CONN_INPUT_TOTAL = 256 * 1024 * 1024,
    PK_CONN_REQUEST_MS = 30000,
    PK_CONN_NAME_MAX = 64,
    PK_CONN_PREFIX_MAX = 256,
};

struct pk_server;
struct pk_relay;
struct pk_renewal;
struct pk_owned;

enum pk_stall {
    PK_STALL_NONE,
    PK_STALL_TURN,    /* the turn is full: again after it */
    PK_STALL_SHARE,   /* its share of the turn is used up: again with another one */
    PK_STALL_LEADER,  /* nobody leads: again when somebody does */
    PK_STALL_ANSWERS, /* what comes next is answered at once, so the rest goes first */
    PK_STALL_WAIT,    /* RESP2: a lock is waited for, or an answer takes its time */
    PK_STALL_OUTPUT,  /* the peer does not read */
};

struct pk_conn {
    uv_tcp_t tcp;
    struct pk_server *server;
    uint32_t slot, generation;

    char *in; /* a request that is not whole, or stalled */
    size_t in_len, in_capacity;
    size_t in_want; /* bytes without which it can't be whole; 0: not known */
    uint64_t in_since_ms;
    enum pk_stall stall;
    uint64_t leaderless_ms; /* since when its next request waits for a leader; 0: no */

    struct pk_resp_out out; /* answers of this turn */
    struct pk_resp_out flight;
    size_t flight_sent;
    uv_write_t write;
    bool writing;
    size_t unsent; /* as the server's total has it */

    uint32_t pending;            /* requests taken in and not answered */
    bool reading, closing, last; /* last: close when all is sent */
    bool redirect;               /* wants to be told where the leader is */
    bool relayed;                /* another node relays it to us */
    char name[PK_CONN_NAME_MAX];

    /* RESP2: the acquire that it waits for, and its place among all waits. */
    uint64_t wait_lease, wait_request, wait_seq; /* lease 0: none */
    struct pk_node wait;

    struct pk_owned *owned; /* leases whose events it gets, see hub.h */
    bool watching, gap;
    char prefix[PK_CONN_PREFIX_MAX];
    uint32_t prefix_len;
    struct pk_node watch; /* its place among the watchers, by prefix */

    struct pk_renewal *renewal; /* a RENEW of many leases, under way; NULL: none */
    struct pk_relay *relay;     /* all its bytes go to the leader and back */

    bool dirty; /* in the list of those with output */
    struct pk_conn *next_dirty;
    struct pk_flow flow; /* its share of each turn, and its place among those to be run */
};

/* Takes the next connection from the listener. */
void pk_conn_accept(struct pk_server *s, uv_stream_t *listener);
/* NULL: gone. */
struct pk_conn *pk_conn_at(struct pk_server *s, uint64_t who);
uint64_t pk_conn_who(const struct pk_conn *c);

/* The connection's output for one more answer; it is sent at the end of the turn. */
struct pk_resp_out *pk_conn_out(struct pk_conn *c);
/* After an answer: closes the connection if its peer leaves too much unread. */
void pk_conn_check_unsent(struct pk_conn *c);
/* Whether the peer has closed. While a connection is not read from, only asking tells. */
bool pk_conn_peer_has_gone(const struct pk_conn *c);
/* Bytes that the peer has not taken yet. */
size_t pk_conn_unsent(const struct pk_conn *c);

void pk_conn_stall(struct pk_conn *c, enum pk_stall why);
/* Whatever it stalled for may be over: it is tried again in this turn or the next. */
void pk_conn_wake(struct pk_conn *c);
/* Goes on with what was woken, and with those that wait for a share of this turn. */
void pk_conns_run(struct pk_server *s);
/* Sends what the turn has produced. */
void pk_conns_flush(struct pk_server *s);
/* Closes those whose request takes too long, and wakes those that waited too long for a
 * leader. On a node that has lost the others, closes those who rely on being told. */
void pk_conns_sweep(struct pk_server *s);
/* Whether its peer waits for, owns or watches something, and may be told of it. */
bool pk_conn_listens(const struct pk_conn *c);
/* Small answers leave at once; a peer that vanished is noticed by the kernel. */
void pk_conn_tune(uv_tcp_t *tcp);

/* For a relay: take no more bytes, and take them again. */
void pk_conn_pause(struct pk_conn *c);
void pk_conn_resume(struct pk_conn *c);

void pk_conn_close(struct pk_conn *c);

#endif
