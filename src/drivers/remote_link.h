/* SPDX-License-Identifier: MIT */
/*
 * One TCP connection to a node, that never blocks but for looking up a name: what is to
 * be sent waits in a buffer, what has come is cut into whole RESP values. Knows nothing
 * of what they mean, of time limits or of threads.
 */
#ifndef PICKET_DRIVERS_REMOTE_LINK_H
#define PICKET_DRIVERS_REMOTE_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "drivers/remote_url.h"
#include "proto/resp.h"

struct addrinfo;

struct pk_link {
    int fd;                        /* -1: none */
    struct addrinfo *found, *next; /* a name's addresses, and the next one to try */
    struct pk_resp_out out;        /* from `sent` on still to be sent */
    size_t sent;
    char *in; /* from `used` on not handed out yet */
    size_t in_len, in_capacity, used;
    size_t needed;     /* how many bytes from `used` on make another look worth while */
    char trouble[160]; /* what went wrong last */
};

void pk_link_init(struct pk_link *l);
void pk_link_free(struct pk_link *l);

/* Looks the host up, which can take as long as the resolver likes. False: `trouble`. */
bool pk_link_find(struct pk_link *l, const struct pk_place *place);
/* Begins to connect to the next address found. False: none is left. */
bool pk_link_dial(struct pk_link *l);
/* Once the descriptor is writable: whether it is connected now. */
bool pk_link_connected(struct pk_link *l);
/* Closes the connection and forgets all that was under way. */
void pk_link_hang_up(struct pk_link *l);

/* Sends what can be sent now. False: the connection is dead. */
bool pk_link_flush(struct pk_link *l);
bool pk_link_unsent(const struct pk_link *l);
/* Takes in what has come. False: the connection is dead. */
bool pk_link_fill(struct pk_link *l);
/* The next whole value, good until the next fill. BAD: this is no RESP. */
enum pk_resp_got pk_link_next(struct pk_link *l, struct pk_bytes *out);

#endif
