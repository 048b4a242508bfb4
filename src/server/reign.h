/* SPDX-License-Identifier: MIT */
/*
 * Cluster time, as the leader tells it: pure arithmetic.
 *
 *     stamp = machine's clock when the reign began + own time elapsed since
 *
 * A reign begins when a leader has applied everything that was before it, not earlier:
 * otherwise it could stamp with less than others have seen, or with a base that an
 * older leader's entries still move. Only differences of the node's own clock count, so
 * it does not matter what any clock shows (P4). When the loop stood still for longer
 * than `pause_ms` (one election timeout), that time is left out: nobody could renew
 * then, and another leader may have been at work. Leaving time out stretches leases; it
 * never shortens them.
 */
#ifndef PICKET_SERVER_REIGN_H
#define PICKET_SERVER_REIGN_H

#include <stdbool.h>
#include <stdint.h>

struct pk_reign {
    bool began;
    uint64_t tau_ms;      /* cluster time at `now_ms` */
    uint64_t now_ms;      /* own clock when last looked */
    uint64_t pause_ms;    /* the longest step of the own clock that counts */
    uint64_t left_out_ms; /* sum of what was not added: for metrics */
};

void pk_reign_begin(struct pk_reign *r, uint64_t machine_clock_ms, uint64_t now_ms);
void pk_reign_end(struct pk_reign *r);
/* Cluster time now. Call at least once per loop turn. */
uint64_t pk_reign_stamp(struct pk_reign *r, uint64_t now_ms);

#endif
