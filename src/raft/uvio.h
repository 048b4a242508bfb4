/* SPDX-License-Identifier: MIT */
/*
 * The raft_io of a real node, on a libuv loop: the log store (store.h) on the files of
 * DIR/raft (file_disk.h), and connections between nodes (transport.h).
 */
#ifndef PICKET_RAFT_UVIO_H
#define PICKET_RAFT_UVIO_H

#include <stddef.h>
#include <stdint.h>

#include "raft/identity.h"
#include "raft/log_use.h"

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
    /* The cluster version, if this node knows it for certain, because it leads; else 0. A
     * node that does not run that version is refused. May be NULL. */
    uint32_t (*version)(void *ctx);
    /* A write to the log took so long to be on disk. May be NULL. */
    void (*wrote)(void *ctx, uint64_t us);
    /* A write failed: the process must end at once. */
    void (*failed)(void *ctx, const char *why);
    /* Another node has told the digest of its state (replica.h). May be NULL. */
    void (*marked)(void *ctx, uint64_t from, uint64_t index, uint64_t digest);
    /* Another node has sent a note of its server's own (pk_uvio_note). May be NULL. */
    void (*noted)(void *ctx, uint64_t from, const unsigned char *bytes, size_t len);
    uint64_t log_bytes; /* most that the log may take on disk; 0: 256 MiB */
    void *ctx;
};

/* Since the beginning, for metrics. */
struct pk_uvio_counts {
    uint64_t handshakes;     /* that ended well, dialled and answered */
    uint64_t refused;        /* by us or by the other side */
    uint64_t frames_refused; /* links ended because of a message on them */
};

/* Listens for other nodes. NULL with a sentence in `why`. SIGPIPE must be ignored, since
 * libuv does not. */
struct pk_uvio *pk_uvio_new(const struct pk_uvio_options *o, char *why, size_t size);
/* Opens the log store, or makes a new one over whatever is there: `fresh` is for a node
 * that has never belonged to a cluster. False with a sentence in `why`. */
bool pk_uvio_open(struct pk_uvio *u, bool fresh, char *why, size_t size);
/* Reads the newest snapshot and the log on another thread, because that takes the longer
 * the more locks there are; then calls `loaded` on the loop, with NULL or a sentence. The
 * replica is started after that. Without this call, the start itself reads them. */
void pk_uvio_load(struct pk_uvio *u, void (*loaded)(void *ctx, const char *wrong),
                  void *ctx);
/* For a replica; after pk_uvio_open. */
struct raft_io *pk_uvio_io(struct pk_uvio *u);
/* For pk_replica_options: of a struct pk_uvio. */
struct pk_log_use pk_uvio_use(void *uvio);
uint16_t pk_uvio_reserve(void);
/* For how long the disk has been busy with the same write; 0: it is not. */
uint64_t pk_uvio_stalled_ms(const struct pk_uvio *u);
/* Tells another node the digest of our state after an entry. */
void pk_uvio_tell_mark(struct pk_uvio *u, uint64_t peer, uint64_t index, uint64_t digest);
/* Sends another node's server a note of less than PK_NOTE_MAX bytes; it may get lost. */
void pk_uvio_note(struct pk_uvio *u, uint64_t peer, const void *bytes, size_t len);
struct pk_transport *pk_uvio_transport(struct pk_uvio *u);
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
