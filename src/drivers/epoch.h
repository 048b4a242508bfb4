/* SPDX-License-Identifier: MIT */
/*
 * How cluster time follows the clock of one machine: it was `tau_ms` when CLOCK_BOOTTIME
 * was `at_ms`, on the clock with this identity. Readings are comparable within one boot
 * and one time namespace; that pair is the identity.
 *
 * Whoever meets an epoch of another clock begins a new one, which goes on from where the
 * machine stands: leases are stretched by what lies between, never shortened (P4).
 */
#ifndef PICKET_DRIVERS_EPOCH_H
#define PICKET_DRIVERS_EPOCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

enum { PK_CLOCK_ID_MAX = 96, PK_EPOCH_BYTES_MAX = PK_CLOCK_ID_MAX + 32 };

struct pk_epoch {
    uint64_t tau_ms;
    uint64_t at_ms;
    char clock_id[PK_CLOCK_ID_MAX];
};

/* An epoch of our own clock, from now on. */
struct pk_epoch pk_epoch_begin(uint64_t tau_ms);
/* True when the epoch can be used with the clock that `ours` is of. */
bool pk_epoch_fits(const struct pk_epoch *e, const struct pk_epoch *ours);

/* Cluster time now, and between the two times; for an epoch that fits. */
uint64_t pk_epoch_now(const struct pk_epoch *e);
uint64_t pk_epoch_to_clock(const struct pk_epoch *e, uint64_t tau_ms);

/* At most PK_EPOCH_BYTES_MAX bytes; returns their number. */
size_t pk_epoch_encode(const struct pk_epoch *e, unsigned char *out);
bool pk_epoch_decode(struct pk_bytes in, struct pk_epoch *out);

#endif
