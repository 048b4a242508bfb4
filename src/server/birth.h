/* SPDX-License-Identifier: MIT */
/*
 * Who a node is: found out at each start, before anything runs. From its directory if it
 * has been there before; else as one of the first nodes, alone, or by joining.
 */
#ifndef PICKET_SERVER_BIRTH_H
#define PICKET_SERVER_BIRTH_H

#include "raft/identity.h"
#include "raft/replica.h"
#include "server/server.h"

struct pk_birth {
    int lock_fd; /* of the directory, for life */
    bool fresh;  /* the directory is a new one */
    struct pk_identity self;
    struct pk_member
        members[PK_MEMBERS_MAX]; /* the first configuration, if we are of it */
    size_t n_members;
    char listen[PK_HOST_MAX];  /* where to wait for other nodes */
    char address[PK_HOST_MAX]; /* where they find us */
};

/* False: it has been said on standard error what is wrong. */
bool pk_birth(const struct pk_server_options *o, struct pk_birth *b);
/* Says on standard error what is wrong. */
void pk_birth_fail(const char *what, const char *why);

#endif
