/* SPDX-License-Identifier: MIT */
/*
 * How long pairs of acquire and release take, one after the other: what the programs of
 * bench/drivers.py have in common. Each takes and releases one lock for some seconds,
 * after a tenth of that to warm up, and prints one JSON object.
 */
#ifndef PICKET_BENCH_SERIES_H
#define PICKET_BENCH_SERIES_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SERIES_MAX = 200000 };

static uint64_t series_acquire[SERIES_MAX], series_pair[SERIES_MAX];
static size_t series_count;

static inline uint64_t series_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int series_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static inline uint64_t series_at(uint64_t *s, size_t permille)
{
    qsort(s, series_count, sizeof *s, series_order);
    return s[series_count * permille / 1000];
}

/* Runs pairs for that long; false: one of them failed. */
static inline bool series_run(double seconds, bool (*acquire)(void *),
                              bool (*release)(void *), void *arg)
{
    uint64_t began = series_now();
    uint64_t warm = began + (uint64_t)(seconds * 1e8);
    uint64_t end = warm + (uint64_t)(seconds * 1e9);
    for (uint64_t now = began; now < end && series_count < SERIES_MAX;) {
        uint64_t before = now = series_now();
        if (!acquire(arg)) {
            return false;
        }
        uint64_t held = series_now();
        if (!release(arg)) {
            return false;
        }
        uint64_t done = series_now();
        if (before >= warm) {
            series_acquire[series_count] = held - before;
            series_pair[series_count++] = done - before;
        }
    }
    if (series_count == 0) {
        return false;
    }
    (void)printf("{\"count\": %zu, \"acquire_p50_ns\": %" PRIu64
                 ", \"pair_p50_ns\": %" PRIu64 ", \"pair_p99_ns\": %" PRIu64 "}\n",
                 series_count, series_at(series_acquire, 500),
                 series_at(series_pair, 500), series_at(series_pair, 990));
    return true;
}

#endif
