/* SPDX-License-Identifier: MIT */
/*
 * Connections between nodes, for libraft's libuv backend: a raft_uv_transport of our
 * own.
 *
 * The dialler says who it is and whom it wants (handshake.h); the other side answers
 * with its own identity or with a refusal in words. Strangers, other clusters, wrong
 * nodes, wiped nodes and other versions are refused before a byte of theirs reaches
 * libraft. Connects are bounded in time, dead links are noticed within a second or two
 * (TCP_USER_TIMEOUT), small messages go out at once (TCP_NODELAY), and each node has at
 * most one link to us. Messages that claim to be larger than any node would send end
 * the link before memory is taken for them (frame.h).
 *
 * The address of a node, in libraft's configuration too, is "name@host:port"; the host
 * is a name, an IPv4 address, or an IPv6 address in brackets.
 */
#ifndef PICKET_RAFT_TRANSPORT_H
#define PICKET_RAFT_TRANSPORT_H

#include "raft/uvio.h"

struct raft_uv_transport;
struct pk_transport;

enum {
    PK_HANDSHAKE_MS = 1000,    /* from connect or accept to the end of the handshake */
    PK_PEER_SILENCE_MS = 1000, /* TCP_USER_TIMEOUT, at least */
    PK_STRANGERS_MAX = 64,     /* connections that have not said who they are yet */
};

/* All pointers in the options must stay good until it is freed. */
struct pk_transport *pk_transport_new(const struct pk_uvio_options *o);
struct raft_uv_transport *pk_transport_raft(struct pk_transport *t);
/* Listens at once, so that a taken port is an error at start. NULL, or a sentence. */
const char *pk_transport_bind(struct pk_transport *t);
uint16_t pk_transport_port(const struct pk_transport *t);
struct pk_uvio_counts pk_transport_counts(const struct pk_transport *t);
/* See pk_uvio_silence_ms. */
uint64_t pk_transport_silence_ms(const struct pk_transport *t, uint64_t peer);
/* After libraft has closed it; or without libraft ever having had it, and then the loop
 * must run on for a turn. */
void pk_transport_free(struct pk_transport *t);

#endif
