/* SPDX-License-Identifier: MIT */
/*
 * How a node without a cluster comes to one. Nodes that were started with the same
 * --cluster ask each other who they are:
 *
 * - If one of them belongs to a cluster, this node waits until it is admitted there
 *   (`picket cluster replace` or `add`), and says so.
 * - Else, when all of them have answered, the first by name founds the cluster: alone at
 *   first. It admits the others one after the other, by the ids that they told, and
 *   serves clients only when all of them have a vote.
 *
 * So one node decides, every member is admitted by consensus, and an empty directory
 * under an old name is never taken for the member that had it (P2, P3).
 */
#ifndef PICKET_SERVER_FORMING_H
#define PICKET_SERVER_FORMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "raft/replica.h"

struct pk_server;

enum pk_forming_state {
    PK_STARTING, /* the node has a log and reads it */
    PK_FORMED,   /* the node belongs to a cluster, as far as that is up to it */
    PK_MEETING,  /* others of --cluster have not answered yet */
    PK_WAITING,  /* there is a cluster, and this node is to be admitted */
    PK_FOUNDING, /* this node has founded the cluster and admits the others */
};

/* One of the nodes of --cluster. */
struct pk_first_node {
    struct pk_server *server;
    struct pk_member member; /* its id is 0 as long as it has not told it */
    uint64_t cluster;        /* to which it belongs; 0: to none */
    bool is_asked;           /* and has not answered yet */
    uint64_t heard_ms;       /* own time; 0: never */
};

struct pk_forming {
    enum pk_forming_state state;
    uv_timer_t timer;
    struct pk_first_node nodes[PK_MEMBERS_MAX]; /* without this one */
    size_t n_nodes;
    unsigned rounds; /* of asking */
    uint64_t waiting_since_ms;
    bool is_founder;  /* the first by name */
    bool is_changing; /* a change of members is under way */
    char text[512];   /* what is being waited for; "": nothing */
};

/* Begins what s->bootstrap says: opens the log and starts the replica, or goes on with
 * that on the loop. NULL, or a sentence. */
const char *pk_forming_begin(struct pk_server *s);
/* What this node waits for before it takes part, for people; "": nothing. */
const char *pk_forming_text(const struct pk_server *s);
/* A word for it: starting, member, forming, waiting. */
const char *pk_forming_state_name(const struct pk_server *s);
/* The node ends: it asks nobody any more. */
void pk_forming_stop(struct pk_server *s);
/* The loop ends. */
void pk_forming_close(struct pk_server *s);

#endif
