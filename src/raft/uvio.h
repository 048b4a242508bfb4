/* SPDX-License-Identifier: MIT */
/*
 * The raft_io of a real node: libraft's files in DIR/raft, and our own connections
 * between nodes (transport.h), on a libuv loop.
 *
 * Auto-recovery of the library is off: it would start "fine" after dropping a damaged
 * segment, with acknowledged entries gone. With it off, start fails and says so (P3).
 * DIR/began remembers that there was a log, so that a node without one is not taken for
 * a new one.
 */
#ifndef PICKET_RAFT_UVIO_H
#define PICKET_RAFT_UVIO_H

#include <stddef.h>
#include <stdint.h>

#include "raft/identity.h"

struct uv_loop_s;
struct raft_io;
struct pk_member;
struct pk_transport;
struct pk_uvio;

/* What pointers point to must stay good until the end. */
struct pk_uvio_options {
    struct uv_loop_s *loop;
    const char *dir;                /* the node's data directory */
    const char *listen;             /* HOST:PORT for other nodes; port 0: any */
    const struct pk_identity *self; /* its cluster may become known later */
    const char *client, *http;      /* what others are told; "" or NULL: nothing */
    struct pk_peers *peers;
    uint32_t election_ms; /* connect timeout and retries are derived from it */
    /* Told when a peer is refused or refuses us, once per reason and peer. May be NULL.
     */
    void (*refused)(void *ctx, const char *peer, const char *why);
    /* The members of the configuration in force, at most PK_MEMBERS_MAX of them; returns
     * how many. NULL: nobody is known to be one. */
    size_t (*members)(void *ctx, struct pk_member *out);
    /* A write to the log took so long to be on disk. May be NULL. */
    void (*wrote)(void *ctx, uint64_t us);
    void *ctx;
};

/* Since the beginning, for metrics. */
struct pk_uvio_counts {
    uint64_t handshakes;     /* that ended well, dialled and answered */
    uint64_t refused;        /* by us or by the other side */
    uint64_t frames_refused; /* links ended because of a message on them */
};

/* NULL with a sentence in `why`. SIGPIPE must be ignored, since libuv does not. Handles
 * on the loop that must run after the library's own (prepare, check) are to be started
 * before the replica is. */
struct pk_uvio *pk_uvio_new(const struct pk_uvio_options *o, char *why, size_t size);
struct raft_io *pk_uvio_io(struct pk_uvio *u);
struct pk_transport *pk_uvio_transport(struct pk_uvio *u);
/* After pk_replica_new on it and before pk_replica_start: settings that the library
 * would overwrite earlier. */
void pk_uvio_tune(struct pk_uvio *u);
/* The port it listens on. */
uint16_t pk_uvio_port(const struct pk_uvio *u);
struct pk_uvio_counts pk_uvio_counts(const struct pk_uvio *u);
/* How long nothing has come from that node; UINT64_MAX: there is no connection from it.
 * A leader hears from those who follow it, and they from it, several times in each
 * election timeout; others need not hear from each other at all. */
uint64_t pk_uvio_silence_ms(const struct pk_uvio *u, uint64_t peer);
/* After pk_replica_close has called back, or when there never was a replica on it; then
 * the loop must run on for a turn. */
void pk_uvio_free(struct pk_uvio *u);

#endif
