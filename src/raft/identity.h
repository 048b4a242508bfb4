/* SPDX-License-Identifier: MIT */
/*
 * Who a node is, kept in its data directory, and whom it has met.
 *
 *     DIR/identity   cluster, node id, incarnation, name; written once, before anything
 *     DIR/peers      for each node ever met: id, incarnation, name, client and HTTP
 *                    address
 *     DIR/lock       held by the running process, whose number is in it
 *
 * DIR/raft and DIR/began are those of uvio.h.
 *
 * The node id is derived from the name, so that all first nodes of a cluster know each
 * other's without talking. The incarnation is random, made with the directory: a node
 * that was wiped has lost votes and acknowledgements that others count on, and it shows
 * by coming back with the old id and a new incarnation. Nobody talks to it then; it has
 * to be removed and come back under a new name.
 */
#ifndef PICKET_RAFT_IDENTITY_H
#define PICKET_RAFT_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PK_NODE_NAME_MAX = 64, /* with its NUL: letters, digits, '-', '_', '.' */
    PK_HOST_MAX = 128,     /* "host:port" with its NUL */
    PK_PEERS_MAX = 64,     /* ever met */
    /* "name@host:port" with its NUL: where other nodes find this one. */
    PK_NODE_ADDRESS_MAX = PK_NODE_NAME_MAX + PK_HOST_MAX,
};

struct pk_identity {
    uint64_t cluster;
    uint64_t id;
    uint64_t incarnation;
    char name[PK_NODE_NAME_MAX];
};

/* What peers tell each other at the beginning of each connection. */
struct pk_peer {
    uint64_t id;
    uint64_t incarnation;
    char name[PK_NODE_NAME_MAX];
    char client[PK_HOST_MAX]; /* where it serves clients; "": it does not say */
    char http[PK_HOST_MAX];
};

struct pk_peers {
    char dir[4096]; /* the data directory */
    struct pk_peer list[PK_PEERS_MAX];
    size_t count;
};

/* Sentences that functions here return are good until the thread's next call of one. */

/* NULL when it can be a node's name, else a sentence. */
const char *pk_node_name_wrong(const char *name);
/* Never 0; the same for the same name. */
uint64_t pk_node_id(const char *name);

/* Makes the directory if need be (0700), takes its lock, reads the identity. *fresh:
 * there is none yet; then call pk_identity_create. Returns the lock's descriptor (hold it
 * for life), or -1 with a sentence in `why`. */
int pk_identity_open(const char *dir, struct pk_identity *out, bool *fresh, char *why,
                     size_t size);
/* Writes a new identity, durably; the incarnation is filled in. NULL, or a sentence. */
const char *pk_identity_create(const char *dir, struct pk_identity *id);

/* Loads DIR/peers. NULL, or a sentence. */
const char *pk_peers_load(struct pk_peers *p, const char *dir);
/* Takes in what a peer says of itself and stores it durably if it is new. NULL, or why
 * this peer must be refused: its id is known with another incarnation, or there is no
 * way to remember it. */
const char *pk_peers_meet(struct pk_peers *p, const struct pk_peer *who);
/* NULL: never met. */
const struct pk_peer *pk_peers_find(const struct pk_peers *p, uint64_t id);

#endif
