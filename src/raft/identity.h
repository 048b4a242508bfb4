/* SPDX-License-Identifier: MIT */
/*
 * Who a node is, kept in its data directory, and whom it has met.
 *
 *     DIR/identity   cluster, node id, name; written before anything else
 *     DIR/peers      what other nodes said last: id, name, client and HTTP address
 *     DIR/lock       held by the running process, whose number is in it
 *
 * DIR/raft is that of the log store (README.md).
 *
 * The node id is random, made with the directory, and the consensus knows a node by
 * nothing else. A node that was wiped has lost votes and acknowledgements that others
 * count on: with its new directory it has a new id, and so it is a new member that must
 * be admitted, never a voter that has forgotten (P3). Names are for people; which member
 * has which name is in the configuration ("name@host:port").
 *
 * DIR/peers is a cache without a meaning for safety: a damaged one is ignored and
 * written anew.
 */
#ifndef PICKET_RAFT_IDENTITY_H
#define PICKET_RAFT_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PK_NODE_NAME_MAX = 64, /* with its NUL: letters, digits, '-', '_', '.' */
    PK_HOST_MAX = 128,     /* "host:port" with its NUL */
    PK_PEERS_MAX = 64,     /* remembered */
    /* "name@host:port" with its NUL: where other nodes find this one. */
    PK_NODE_ADDRESS_MAX = PK_NODE_NAME_MAX + PK_HOST_MAX,
};

struct pk_identity {
    uint64_t cluster; /* 0: it belongs to none yet */
    bool founding;    /* it founded the cluster, and has not admitted all first nodes */
    uint64_t id;      /* random, 1 to 2^63 - 1 */
    char name[PK_NODE_NAME_MAX];
};

/* What peers tell each other at the beginning of each connection. */
struct pk_peer {
    uint64_t id;
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
/* A new one, for a new directory. */
uint64_t pk_node_id_new(void);
bool pk_node_id_is_valid(uint64_t id);

/* Makes the directory if need be (0700), takes its lock, reads the identity. *fresh:
 * there is none yet; then call pk_identity_create. Returns the lock's descriptor (hold it
 * for life), or -1 with a sentence in `why`. */
int pk_identity_open(const char *dir, struct pk_identity *out, bool *fresh, char *why,
                     size_t size);
/* Writes an identity, durably: a new one, or one whose cluster has become known. NULL, or
 * a sentence. */
const char *pk_identity_create(const char *dir, struct pk_identity *id);

/* Loads DIR/peers. NULL, or a sentence to warn with: it begins empty then. */
const char *pk_peers_load(struct pk_peers *p, const char *dir);
/* Takes in what a peer says of itself, and stores it if it is new. When the table is
 * full, a node whose id is not among the `n` members goes. */
void pk_peers_meet(struct pk_peers *p, const struct pk_peer *who, const uint64_t *members,
                   size_t n);
/* NULL: not known. */
const struct pk_peer *pk_peers_find(const struct pk_peers *p, uint64_t id);

#endif
