/* SPDX-License-Identifier: MIT */
/*
 * Who a node is and how it begins: found out at each start, before anything runs. From
 * its directory if it has been in a cluster before; else as one of the first nodes
 * (forming.h), alone, or by joining.
 */
#ifndef PICKET_SERVER_BOOTSTRAP_H
#define PICKET_SERVER_BOOTSTRAP_H

#include "raft/identity.h"
#include "raft/replica.h"
#include "server/server.h"

enum pk_begin {
    PK_BEGIN_MEMBER, /* the directory says to which cluster the node belongs */
    PK_BEGIN_ALONE,  /* a new cluster, of this node */
    PK_BEGIN_FORM,   /* a new cluster with the others of --cluster, or being admitted */
    PK_BEGIN_JOIN,   /* the cluster of --join has admitted it */
};

struct pk_bootstrap {
    int lock_fd; /* of the directory, for life */
    struct pk_identity self;
    enum pk_begin begin;
    struct pk_member members[PK_MEMBERS_MAX]; /* of --cluster, without their ids */
    size_t n_members;
    char listen[PK_HOST_MAX];  /* where to wait for other nodes */
    char address[PK_HOST_MAX]; /* where they find us */
};

/* False: it has been said on standard error what is wrong. */
bool pk_bootstrap(const struct pk_server_options *o, struct pk_bootstrap *b);
/* Says on standard error what is wrong. */
void pk_bootstrap_fail(const char *what, const char *why);

#endif
