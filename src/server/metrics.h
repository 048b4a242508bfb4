/* SPDX-License-Identifier: MIT */
/*
 * What the server counts, and its text for Prometheus.
 *
 * Fed from two sides: events of the machine (so that every node counts the same), and
 * what only this node knows (connections, batches, fsync). Locks are labelled by the
 * longest configured name prefix, never by their name: the number of series is bounded
 * by the configuration. Counting allocates nothing and uses whole numbers only.
 */
#ifndef PICKET_SERVER_METRICS_H
#define PICKET_SERVER_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/effect.h"
#include "core/machine.h"
#include "proto/resp.h"
#include "server/turn.h"

enum { PK_METRICS_PREFIXES_MAX = 64 };

/* The Content-Type of the text. */
#define PK_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct pk_metrics;

/* `prefixes`: of lock names, e.g. "jobs/"; what fits none is labelled "". At most 64. */
struct pk_metrics *pk_metrics_new(const char *const *prefixes, size_t n);
void pk_metrics_free(struct pk_metrics *m);

/* All effects of one step. Not for what is run again at a start: that was counted
 * before. */
void pk_metrics_step(struct pk_metrics *m, const struct pk_effects *e);

enum pk_gauge {
    PK_GAUGE_CONNECTIONS,
    PK_GAUGE_WATCHERS,
    PK_GAUGE_RELAYS,
    PK_GAUGE_UNSENT,
    PK_GAUGES
};
enum pk_counter {
    PK_COUNT_REQUESTS,
    PK_COUNT_BAD_REQUESTS,
    PK_COUNT_CONNECTIONS_REFUSED,
    PK_COUNT_SLOW_CLOSED,
    PK_COUNT_UNKNOWN_OUTCOMES,
    PK_COUNT_NOSPACE,
    PK_COUNT_GAPS,
    PK_COUNT_SHARE_WAITS,
    PK_COUNTERS
};
enum pk_timing {
    PK_TIME_COMMIT,     /* from proposing an entry to having applied it */
    PK_TIME_DISK_WRITE, /* one write of the log, with its sync */
    PK_TIME_LOOP,       /* one turn of the loop, without the time that it slept */
    PK_TIMINGS
};

void pk_metrics_gauge(struct pk_metrics *m, enum pk_gauge g, int64_t by);
void pk_metrics_set(struct pk_metrics *m, enum pk_gauge g, int64_t to);
void pk_metrics_count(struct pk_metrics *m, enum pk_counter c, uint64_t by);
void pk_metrics_time(struct pk_metrics *m, enum pk_timing t, uint64_t us);
void pk_metrics_batch(struct pk_metrics *m, uint64_t commands);
/* Units of work that one turn took in, see fair.h. */
void pk_metrics_units(struct pk_metrics *m, uint64_t units);

enum { PK_METRICS_BUCKETS_MAX = 17 };
/* The same numbers for a page: of all prefixes together. */
struct pk_metrics_sums {
    uint32_t buckets; /* of both histograms; the last has no bound */
    const uint64_t *bounds_us;
    uint64_t wait[PK_METRICS_BUCKETS_MAX], hold[PK_METRICS_BUCKETS_MAX];
    uint64_t grants, ends, lost; /* lost: of the ends, those that nobody asked for */
    uint64_t rejected, shadowed; /* by fences */
};
struct pk_metrics_sums pk_metrics_sums(const struct pk_metrics *m);

/* What is asked at the moment of writing. */
struct pk_metrics_now {
    const char *node;
    struct pk_standing standing;
    bool serving;
    struct pk_turn_counts turn;
    struct pk_raft_guard_counts guards;
    struct pk_stats stats; /* of the machine */
    uint64_t clock_ms, last_token;
    uint64_t log_dropped;
};
/* Appends the text (Prometheus exposition format 0.0.4). */
void pk_metrics_write(const struct pk_metrics *m, const struct pk_metrics_now *now,
                      struct pk_resp_out *out);

#endif
