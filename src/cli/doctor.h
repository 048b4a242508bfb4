/* SPDX-License-Identifier: MIT */
/* The parts of `picket doctor`: what it measures, and what it asks a cluster. */
#ifndef PICKET_CLI_DOCTOR_H
#define PICKET_CLI_DOCTOR_H

#include <picket.h>
#include <stdbool.h>

#include "cli/cluster.h"
#include "client/findings.h"

/* ---- doctor_times.c ---- */

enum { PK_DOCTOR_CALLS = 50 };

struct pk_doctor_times {
    uint32_t calls; /* that were answered; 0: none */
    uint64_t p50_us, max_us;
    uint64_t pause_us; /* the longest time that this process was not let run */
};

/* Asks the store for a lock that nobody has, again and again, and sleeps for a second in
 * short naps. The first answer must come by `until_ms`. Other than OK: the store could
 * not be asked. */
enum picket_status pk_doctor_measure(struct picket *p, uint64_t until_ms, bool progress,
                                     struct pk_doctor_times *out);
/* Whether a lease of that TTL outlives what was measured. */
void pk_doctor_judge(const struct pk_doctor_times *t, uint64_t ttl_ms,
                     struct pk_findings *out);

/* ---- doctor_cluster.c ---- */

/* Asks each node of the cluster at `rest` of a picket: URL. `*h` is left alone unless a
 * node answers. */
enum picket_status pk_doctor_cluster(const char *rest, struct pk_findings *out,
                                     struct pk_cluster_health *h);

#endif
