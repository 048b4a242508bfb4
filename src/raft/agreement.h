/* SPDX-License-Identifier: MIT */
/*
 * Whether this node's state is that of the majority. Pure.
 *
 * Every voter takes the digest of its state after each marked entry and tells it to all
 * others. A node whose digest can't be a majority's any more, whatever the voters that
 * have not been heard say, is the damaged one and must stop; so a leader whose state went
 * astray stops itself, and not its followers. Two nodes that disagree both stop.
 */
#ifndef PICKET_RAFT_AGREEMENT_H
#define PICKET_RAFT_AGREEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PK_AGREEMENT_NODES = 16,
    PK_AGREEMENT_MARKS = 4, /* of each node: some are a little ahead of others */
};

struct pk_mark {
    uint64_t index; /* of the entry after which the digest was taken; 0: none */
    uint64_t digest;
};

struct pk_agreement {
    struct {
        uint64_t id; /* 0: nobody */
        struct pk_mark marks[PK_AGREEMENT_MARKS];
        unsigned next;
    } nodes[PK_AGREEMENT_NODES];
};

/* A node, this one included, has told its digest. */
void pk_agreement_hear(struct pk_agreement *a, uint64_t id, struct pk_mark mark);
/* False: this node's digest of `index` can't be a majority's. `voters` are the ids of all
 * voters; a node that is none is judged by them all the same. */
bool pk_agreement_holds(const struct pk_agreement *a, uint64_t self, uint64_t index,
                        const uint64_t *voters, size_t n);

#endif
