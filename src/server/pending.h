/* SPDX-License-Identifier: MIT */
/*
 * What a node has taken in and not yet answered, in the order in which it is answered: a
 * ring of requests. A command is in a log entry, so only who asked is kept here; of a
 * read and of another node's question the bytes are, in a second queue of the same order.
 * In a steady state nothing is allocated.
 */
#ifndef PICKET_SERVER_PENDING_H
#define PICKET_SERVER_PENDING_H

#include "server/turn.h"

enum pk_pending_kind {
    PK_PENDING_COMMAND, /* in an entry: the step that runs it answers */
    PK_PENDING_READ,    /* to be answered from the state of this node */
    PK_PENDING_ASKED,   /* another node wants to know how far it must have applied */
};

struct pk_pending_one {
    enum pk_pending_kind kind;
    uint32_t bytes;          /* of a read or a question */
    struct pk_ticket ticket; /* ASKED: `who` is the node */
};

/* Zeroed: nothing is pending. */
struct pk_pending {
    struct pk_pending_one *ring; /* the capacity is a power of two */
    size_t capacity, first, count;
    unsigned char *bytes; /* from `from` to `to`: of all reads and questions */
    size_t from, to, room;
};

void pk_pending_free(struct pk_pending *p);
/* Adds at the end; `size` bytes of a read or a question are to be written to what it
 * returns, before the next call. */
unsigned char *pk_pending_add(struct pk_pending *p, enum pk_pending_kind kind,
                              struct pk_ticket ticket, uint32_t size);
/* The i-th, from 0; valid until the next call. */
const struct pk_pending_one *pk_pending_at(const struct pk_pending *p, size_t i);
/* The bytes of the first one, likewise. */
const unsigned char *pk_pending_first_bytes(const struct pk_pending *p);
void pk_pending_drop_first(struct pk_pending *p);
/* Drops the commands among the last `n`; returns how many there were. */
uint32_t pk_pending_drop_commands(struct pk_pending *p, uint32_t n);

#endif
