/* SPDX-License-Identifier: MIT */
/*
 * A trace of what this node's machine does, in a file (sim/tracefile.h), for
 * `picket sim replay`. Written from the effects that every node has alike, so any node
 * will do, and the leader has no more to do than the others.
 *
 * A trace is for looking at, not a promise: it is not synced, and when it can't be
 * written that is said once and the node goes on without it. It is bounded: a full file
 * becomes FILE.old, in place of the one before.
 */
#ifndef PICKET_SERVER_TRACE_H
#define PICKET_SERVER_TRACE_H

#include <stdint.h>

#include "core/effect.h"

struct pk_trace_log;

struct pk_trace_log_options {
    const char *path, *node;
    uint64_t cluster, bytes_max;
};

/* Opens the file, at its end if there is one. NULL, or why not. */
const char *pk_trace_log_open(const struct pk_trace_log_options *o,
                              struct pk_trace_log **out);
void pk_trace_log_free(struct pk_trace_log *t);

/* All of them do nothing when `t` is NULL. */
void pk_trace_log_step(struct pk_trace_log *t, uint64_t at_ms, const struct pk_command *c,
                       const struct pk_effects *e);
void pk_trace_log_leader(struct pk_trace_log *t, uint64_t at_ms, const char *name);
void pk_trace_log_gap(struct pk_trace_log *t, uint64_t at_ms);
/* Writes what there is; once in a turn. */
void pk_trace_log_flush(struct pk_trace_log *t);

#endif
