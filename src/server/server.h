/* SPDX-License-Identifier: MIT */
/*
 * A node: one process, one thread, one loop. `picket serve` is a thin shell around it.
 */
#ifndef PICKET_SERVER_SERVER_H
#define PICKET_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raft/replica.h"

struct pk_server_options {
    const char *name;
    const char *data;
    const char *listen; /* HOST:PORT for clients */
    const char *http;   /* HOST:PORT, or "off" */
    const char *raft;   /* HOST:PORT for other nodes; NULL: our place in `cluster`, else
                           127.0.0.1:7422 */
    /* What others are told, if it is not the same: HOST or HOST:PORT. NULL: `listen`. */
    const char *advertise;
    /* "n1=HOST:PORT,n2=..." of all first nodes; NULL: this node alone. */
    const char *cluster;
    const char *join; /* HOST:PORT of any node that serves clients; NULL: none */
    uint32_t election_ms;
    uint32_t connections; /* at most */
    uint64_t log_bytes;   /* most that the log may take on disk; 0: 256 MiB */
    const char *const *prefixes;
    size_t n_prefixes;
    const char *trace;    /* the file to record a trace in; NULL: none */
    uint64_t trace_bytes; /* how large it may become */
};

/* Runs until SIGTERM or SIGINT; the exit code: 0 after draining, 125 after an error said
 * on standard error. */
int pk_server_run(const struct pk_server_options *o);

#endif
