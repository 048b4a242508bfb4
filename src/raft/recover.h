/* SPDX-License-Identifier: MIT */
/*
 * What is left when a majority of the nodes is lost for good: the state in the directory
 * of one survivor, as a backup. Offline, and nothing in the directory is given up.
 */
#ifndef PICKET_RAFT_RECOVER_H
#define PICKET_RAFT_RECOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pk_recovered {
    char name[64];        /* of the node whose directory it is */
    uint64_t term, index; /* of the last entry in its log */
};

/* Runs every entry of the log, also those of which this node did not know that they were
 * committed: what was acknowledged by the lost nodes with this one's help is in there.
 * The backup goes to `write` piece by piece, which returns false to give up. False with a
 * sentence in `why`, or an empty one after `write` gave up. */
bool pk_recover(const char *dir, bool (*write)(void *ctx, const void *bytes, size_t len),
                void *ctx, struct pk_recovered *out, char *why, size_t size);

#endif
