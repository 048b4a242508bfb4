/* SPDX-License-Identifier: MIT */
/*
 * Measuring for `picket doctor`: how far the store is, and how long this machine stops a
 * process now and then.
 *
 * A lease is renewed at a third of its TTL, and is trusted until a margin before its end
 * (client/keeper.h). What lies between has to outlast a pause of the machine and the
 * slowest answer of the store; otherwise healthy holders lose their locks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cli/doctor.h"
#include "cli/errors.h"
#include "cli/values.h"
#include "client/client.h"
#include "host/clock.h"

enum {
    CALLS_MS = 3000, /* for all calls together */
    NAPS_MS = 1000,
    NAP_US = 1000,
    ROUND_TRIPS_MIN = 10, /* in a TTL */
    TIGHT = 4, /* a pause of more than one part in so many of what a lease outlives */
};

static uint64_t now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void show_progress(bool progress, const char *what, uint64_t done, uint64_t all)
{
    if (progress) {
        (void)fprintf(stderr, "\r\033[Kmeasuring %s: %" PRIu64 " %%", what,
                      done * 100 / all);
    }
}

static void end_progress(bool progress)
{
    if (progress) {
        (void)fputs("\r\033[K", stderr);
    }
}

/* ---- the way to the store ---- */

static enum picket_status call_once(struct picket *p, uint64_t until_ms,
                                    uint64_t *took_us)
{
    char name[48];
    (void)snprintf(name, sizeof name, "picket-doctor/%016" PRIx64, pk_random());
    struct pk_command c = {.verb = PK_LOCK_SHOW, .name = pk_text(name), .count = 1};
    struct pk_effects answer = {0};
    uint64_t began = now_us();
    enum picket_status s = pk_client_call(p, &c, until_ms, &answer);
    *took_us = now_us() - began;
    if (s == PICKET_OK) {
        s = pk_client_verdict(&answer);
    }
    pk_effects_free(&answer);
    return s;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum picket_status measure_calls(struct picket *p, uint64_t until_ms,
                                        bool progress, struct pk_doctor_times *out)
{
    uint64_t took[PK_DOCTOR_CALLS];
    uint64_t first = 0;
    /* The first one connects, which renewals don't. */
    enum picket_status s = call_once(p, until_ms, &first);
    uint64_t end = pk_clock_ms() + CALLS_MS;
    while (s == PICKET_OK && out->calls < PK_DOCTOR_CALLS && pk_clock_ms() < end) {
        show_progress(progress, "the way to the store", out->calls, PK_DOCTOR_CALLS);
        s = call_once(p, end, &took[out->calls]);
        out->calls += s == PICKET_OK;
    }
    end_progress(progress);
    if (s != PICKET_OK && out->calls == 0) {
        return s;
    }
    if (out->calls == 0) { /* it took all the time there was */
        took[out->calls++] = first;
    }
    qsort(took, out->calls, sizeof took[0], by_size);
    out->p50_us = took[out->calls / 2];
    out->max_us = took[out->calls - 1];
    return PICKET_OK;
}

/* ---- this machine ---- */

static uint64_t measure_pause(bool progress)
{
    const struct timespec nap = {.tv_nsec = NAP_US * 1000L};
    uint64_t began = now_us();
    uint64_t longest = 0;
    pk_errors_detail("measuring the pauses of this machine, for a second");
    for (uint64_t at = began; at < began + NAPS_MS * UINT64_C(1000);) {
        show_progress(progress, "the pauses of this machine", at - began,
                      NAPS_MS * UINT64_C(1000));
        (void)nanosleep(&nap, NULL);
        uint64_t then = now_us();
        uint64_t late = then - at > NAP_US ? then - at - NAP_US : 0;
        longest = late > longest ? late : longest;
        at = then;
    }
    end_progress(progress);
    return longest;
}

enum picket_status pk_doctor_measure(struct picket *p, uint64_t until_ms, bool progress,
                                     struct pk_doctor_times *out)
{
    *out = (struct pk_doctor_times){0};
    pk_errors_detail("asking the store %d times for a lock that nobody has",
                     PK_DOCTOR_CALLS);
    enum picket_status s = measure_calls(p, until_ms, progress, out);
    if (s == PICKET_OK) {
        out->pause_us = measure_pause(progress);
    }
    return s;
}

/* ---- what it means ---- */

/* A TTL that would do, with room to spare: a round number. */
static uint64_t enough_ms(const struct pk_doctor_times *t)
{
    uint64_t by_pause = UINT64_C(2) * TIGHT * (t->pause_us + t->max_us);
    uint64_t by_way = UINT64_C(2) * ROUND_TRIPS_MIN * t->p50_us;
    uint64_t ms = (by_pause > by_way ? by_pause : by_way) / 1000 + 1;
    uint64_t step = ms > 10000 ? 10000 : ms > 1000 ? 1000 : 100;
    return (ms + step - 1) / step * step;
}

void pk_doctor_judge(const struct pk_doctor_times *t, uint64_t ttl_ms,
                     struct pk_findings *out)
{
    char ttl[PK_SPAN_ROOM];
    char enough[PK_SPAN_ROOM];
    char outlives[PK_SPAN_ROOM];
    uint64_t least_ms = ttl_ms - ttl_ms / 3 - pk_keeper_margin(ttl_ms, 0);
    uint64_t stop_us = t->pause_us + t->max_us;
    (void)pk_values_span(ttl_ms, ttl);
    (void)pk_values_span(enough_ms(t), enough);
    (void)pk_values_span(least_ms, outlives);
    if (stop_us >= least_ms * 1000) {
        pk_findings_add(out, PK_UNSAFE, "ttl-too-short",
                        "a lease of %s outlives %s without a renewal, but this machine "
                        "pauses for up to %" PRIu64
                        " ms and the store takes up to %" PRIu64
                        " ms: healthy holders lose their locks; use --ttl %s or more",
                        ttl, outlives, t->pause_us / 1000, t->max_us / 1000, enough);
    } else if (ROUND_TRIPS_MIN * t->p50_us > ttl_ms * 1000) {
        pk_findings_add(out, PK_UNSAFE, "ttl-too-short",
                        "a lease of %s is shorter than %d round trips to the store (%.1f "
                        "ms each): a few slow ones lose the lock; use --ttl %s or more",
                        ttl, ROUND_TRIPS_MIN, (double)t->p50_us / 1000, enough);
    } else if (TIGHT * stop_us > least_ms * 1000) {
        pk_findings_add(
            out, PK_NOTE, "ttl-tight",
            "a lease of %s outlives %s without a renewal, and a pause of %" PRIu64
            " ms has been seen within a second; --ttl %s would be at ease",
            ttl, outlives, stop_us / 1000, enough);
    } else {
        pk_findings_add(out, PK_FINE, "ttl",
                        "a lease of %s outlives the pauses and round trips measured here",
                        ttl);
    }
}
