/* SPDX-License-Identifier: MIT */
/* The first configuration of a cluster, from the words of a command line. */
#ifndef PICKET_SERVER_MEMBERS_H
#define PICKET_SERVER_MEMBERS_H

#include "raft/replica.h"

/* Reads "n1=HOST:PORT,n2=HOST:PORT" into members ("name@host:port", voter, id 0), sorted
 * by name so that every node has the same list. NULL, or a sentence. */
const char *pk_members_read(const char *text, struct pk_member *out, size_t *n);
/* "name@host:port" into `out` of PK_ADDRESS_MAX bytes. NULL, or a sentence. */
const char *pk_members_address(const char *name, const char *host, char *out);

#endif
