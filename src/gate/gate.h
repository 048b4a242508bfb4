/* SPDX-License-Identifier: MIT */
/*
 * The gate: an HTTP/1.1 reverse proxy that puts a fence in front of a service which knows
 * nothing of tokens. One process, one loop; calls of the store run on libuv's thread
 * pool. `picket gate` is a thin shell around it, docs/gate.md says what it promises.
 */
#ifndef PICKET_GATE_GATE_H
#define PICKET_GATE_GATE_H

#include <picket.h>
#include <stdbool.h>
#include <stdint.h>

enum { PK_GATE_NAME_MAX = 64 }; /* bytes of `name` */

enum pk_gate_missing {
    PK_MISSING_REFUSE,
    PK_MISSING_PASS,
    PK_MISSING_SHADOW, /* pass and count */
};

struct pk_gate_options {
    const char *listen;   /* HOST:PORT */
    const char *upstream; /* http://HOST[:PORT][/base] */
    const char *admin;    /* HOST:PORT, or NULL */
    const char *name;     /* of the lock, and the beginning of its fences' names */
    const char *url;      /* of the store, for the log */
    struct picket *store; /* open; the gate closes it */
    bool from_field;      /* the resource stands in X-Picket-Resource */
    uint32_t depth;       /* else in the first segments of the path, so many */
    enum pk_gate_missing missing;
    bool shadow, shared, standby, retry_unknown;
    uint64_t drain_ms, cut_off_ms; /* cut_off_ms 0: never */
    uint64_t upstream_ms;          /* of silence */
    uint64_t header_ms, body_ms, idle_ms;
    uint64_t keep_keys_ms; /* records of idempotency keys */
    uint32_t connections;
};

enum pk_gate_end {
    PK_GATE_STOPPED, /* as asked, by SIGTERM or SIGINT */
    PK_GATE_BUSY,    /* another one stands; `why` names it */
    PK_GATE_FAILED,
};

/* Runs until it is told to stop. `why` gets a sentence unless STOPPED. */
enum pk_gate_end pk_gate_run(const struct pk_gate_options *o, char *why, size_t size);

#endif
