/* SPDX-License-Identifier: MIT */
/*
 * Connections between nodes: the network half of a raft_io.
 *
 * The dialler says who it is and whom it wants (handshake.h); the other side answers
 * with its own identity or with a refusal in words. Strangers, other clusters, wrong
 * nodes, replaced nodes and other versions are refused before a message is read.
 * Connects are bounded in time, dead connections are noticed within a second or two
 * (TCP_USER_TIMEOUT), small messages go out at once (TCP_NODELAY).
 *
 * Each node writes to the connections that it dialled (sender.c) and reads from those
 * that it answered (link.c), at most one of each per node and purpose: the states of
 * snapshots go on a connection of their own, so that no message waits behind them. What
 * is said in answer to chunks goes the other way, among the messages. Messages
 * (message.h) are bounded before memory is taken for them, and must be of the node that
 * said hello.
 *
 * Nodes that belong to no cluster yet ask who is there and are told (asking.c); they are
 * remembered for the operator who may admit them.
 *
 * The address of a node, in libraft's configuration too, is "name@host:port"; the host
 * is a name, an IPv4 address, or an IPv6 address in brackets.
 */
#ifndef PICKET_RAFT_TRANSPORT_H
#define PICKET_RAFT_TRANSPORT_H

#include "raft/handshake.h"
#include "raft/replica.h"
#include "raft/uvio.h"

struct pk_snapshot_chunk;
struct raft_io_send;
struct raft_message;
struct pk_transport;

enum {
    PK_HANDSHAKE_MS = 1000,    /* from connect or accept to the end of the handshake */
    PK_PEER_SILENCE_MS = 1000, /* TCP_USER_TIMEOUT, at least */
    PK_STRANGERS_MAX = 64,     /* connections that have not said who they are yet */
    PK_LINKS_MAX = 64,         /* connections of other nodes to us, or of us to them */
    PK_WAITING_MAX = 3,        /* messages that wait for a connection to one node */
    PK_WAITING_NODES_MAX = 16, /* nodes without membership that are remembered */
    PK_UNSENT_MAX = 1024,      /* messages to one node that are not written yet */
    PK_UNSENT_BYTES_MAX = 8 * 1024 * 1024, /* entries to one node, likewise */
};

/* Takes the message and its memory (pk_message_take). */
typedef void (*pk_transport_receive_cb)(void *ctx, struct raft_message *m);
/* A note came; the bytes are good during the call. */
typedef void (*pk_transport_note_cb)(void *ctx, uint64_t from, const unsigned char *bytes,
                                     size_t len);

/* A chunk of a snapshot came; its bytes are good during the call. */
typedef void (*pk_transport_chunk_cb)(void *ctx, uint64_t from,
                                      const struct pk_snapshot_chunk *c);

/* All pointers in the options must stay good until it is freed. */
struct pk_transport *pk_transport_new(const struct pk_uvio_options *o);
/* Listens at once, so that a taken port is an error at start. NULL, or a sentence. */
const char *pk_transport_bind(struct pk_transport *t);
uint16_t pk_transport_port(const struct pk_transport *t);
/* Where other nodes find this one, "name@host:port"; before start. False: too long. */
bool pk_transport_set_address(struct pk_transport *t, const char *address);
/* Welcomes other nodes from now on. `note` and `chunk` may be NULL. */
void pk_transport_start(struct pk_transport *t, pk_transport_receive_cb receive,
                        pk_transport_note_cb note, pk_transport_chunk_cb chunk,
                        void *ctx);
/* As raft_io.send: calls back once, from the loop and never from in here. The status is 0
 * when the message has been written, RAFT_NOCONNECTION when it was dropped because there
 * is no connection or too much waits already, RAFT_CANCELED when the transport closed.
 * Returns 0; only after pk_transport_close RAFT_CANCELED, and then does not call back. */
int pk_transport_send(struct pk_transport *t, struct raft_io_send *req,
                      const struct raft_message *m,
                      void (*cb)(struct raft_io_send *req, int status));
/* Sends at most PK_NOTE_MAX bytes of our own to a node; silently dropped when there is
 * no connection to it. */
void pk_transport_note(struct pk_transport *t, uint64_t peer, const void *bytes,
                       size_t len);

/* Sends a chunk to a node that messages are sent to, on a connection of its own; silently
 * dropped when there is none. The bytes are copied. */
void pk_transport_chunk(struct pk_transport *t, uint64_t peer,
                        const struct pk_snapshot_chunk *c);

/* What a node tells about itself. */
struct pk_tell {
    uint64_t cluster; /* 0: it belongs to none */
    uint64_t id;
    char name[PK_NODE_NAME_MAX];
    struct pk_member members[PK_MEMBERS_MAX]; /* of the configuration in force there */
    size_t n_members;
};

/* `tell` is NULL when there was no answer, and `why` says what happened. */
typedef void (*pk_transport_tell_cb)(void *ctx, const struct pk_tell *tell,
                                     const char *why);

/* Asks whoever is at "host:port". Calls back once, from the loop, within
 * PK_HANDSHAKE_MS or when the transport closes. The address must have been set; neither
 * start nor a cluster is needed, to ask and to be asked. */
void pk_transport_ask(struct pk_transport *t, const char *where, pk_transport_tell_cb cb,
                      void *ctx);

/* A node without membership that has asked here. */
struct pk_waiting {
    uint64_t id;
    char name[PK_NODE_NAME_MAX];
    char host[PK_HOST_MAX]; /* "host:port" where it listens for other nodes */
    struct pk_release release;
    uint64_t silent_ms; /* since it asked last */
};

/* At most `max` of them; returns how many. */
size_t pk_transport_waiting(const struct pk_transport *t, struct pk_waiting *out,
                            size_t max);

struct pk_uvio_counts pk_transport_counts(const struct pk_transport *t);
/* What that node runs, as it said when it connected; false: it is not connected. */
bool pk_transport_release(const struct pk_transport *t, uint64_t peer,
                          struct pk_release *out);
/* See pk_uvio_silence_ms. */
uint64_t pk_transport_silence_ms(const struct pk_transport *t, uint64_t peer);
/* Ends all connections and calls back for all messages that are not written, and then
 * `closed`; from the loop. */
void pk_transport_close(struct pk_transport *t, void (*closed)(void *ctx), void *ctx);
/* After `closed`; or instead of closing it, and then the loop must run on for a turn. */
void pk_transport_free(struct pk_transport *t);

#endif
