/* SPDX-License-Identifier: MIT */
/*
 * A load on a lock service: many clients in one thread, one request of each in flight;
 * every answer is timed. Each has a connection of its own, or several share one, as the
 * threads of a process do; then their requests are pipelined. Speaks the native
 * protocol, or Redis' lock idiom, so that the same load can be put on a Redis.
 */
#ifndef PICKET_CLI_LOAD_H
#define PICKET_CLI_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pk_load_kind {
    PK_LOAD_PAIRS,   /* each client takes and releases a lock of its own */
    PK_LOAD_HANDOFF, /* all of them want the same lock */
    PK_LOAD_RENEW,   /* each renews its lease */
    PK_LOAD_HOLD,    /* each takes locks and keeps them: for memory figures */
};

struct pk_load_options {
    enum pk_load_kind kind;
    const char *address; /* HOST:PORT of the leader */
    uint32_t clients;
    uint32_t connections; /* 0: one for each client */
    uint64_t ms;          /* for that long; HOLD: until all are held */
    uint64_t holds;       /* HOLD: locks in all, each on a lease of its own */
    bool redis;
    bool progress; /* one line on a terminal */
};

/* Times in ns, in order of arrival. */
struct pk_load_series {
    uint32_t *at;
    size_t count, capacity;
};

struct pk_load_result {
    struct pk_load_series acquire, release, pair, handoff, renew;
    uint64_t elapsed_ns, errors;
    char first_error[128];
};

/* False: `why` says what went wrong before anything could be measured. */
bool pk_load_run(const struct pk_load_options *o, struct pk_load_result *out, char *why,
                 size_t size);
void pk_load_free(struct pk_load_result *r);

/* Sorts; after that, the value below which `permille` of them are. */
void pk_load_sort(struct pk_load_series *s);
uint32_t pk_load_at(const struct pk_load_series *s, uint32_t permille);

#endif
