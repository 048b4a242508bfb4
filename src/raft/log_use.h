/* SPDX-License-Identifier: MIT */
/* How large the log of a node is, for whoever decides when to take a snapshot. */
#ifndef PICKET_RAFT_LOG_USE_H
#define PICKET_RAFT_LOG_USE_H

#include <stdbool.h>
#include <stdint.h>

struct pk_log_use {
    uint64_t bytes; /* of all segments that hold batches */
    uint64_t since; /* bytes written since the last snapshot began */
    bool wants;     /* a snapshot should be taken now */
    bool waits; /* there is little room, and more is being made: offer entries later */
    uint64_t snapshot;  /* index of the newest one that is durable; 0: none */
    uint64_t keep_from; /* if so, the first entry to keep behind it; else 0 */
};

#endif
