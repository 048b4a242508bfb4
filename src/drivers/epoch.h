/* SPDX-License-Identifier: MIT */
/*
 * How cluster time follows the clock of one machine: it was `tau_ms` when the machine's
 * boot clock was `at_ms`, on the clock with this identity.
 *
 * The boot clock is CLOCK_BOOTTIME of the initial time namespace. A process in another
 * time namespace sees it shifted by a fixed offset, which the kernel tells, so that all
 * processes of one boot share one clock. The namespace is no part of the identity: the
 * kernel gives the number of a namespace that is gone to the next one, whose offset may
 * be another, and leases would end early.
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

/* The boot clock as this process sees it. */
struct pk_boot_clock {
    char id[PK_CLOCK_ID_MAX];
    int64_t ahead_ms; /* of the initial time namespace */
};

/* What the clock of the calling process is. Where that can't be found out, it is one that
 * no other process shares. */
struct pk_boot_clock pk_boot_clock_find(void);

/* An epoch of that clock, from now on. */
struct pk_epoch pk_epoch_begin(const struct pk_boot_clock *clock, uint64_t tau_ms);
/* True when the epoch is of that clock. */
bool pk_epoch_fits(const struct pk_epoch *e, const struct pk_boot_clock *clock);

/* Cluster time now; what pk_clock_ms() is at cluster time `tau_ms`. The epoch fits. */
uint64_t pk_epoch_now(const struct pk_epoch *e, const struct pk_boot_clock *clock);
uint64_t pk_epoch_to_clock(const struct pk_epoch *e, const struct pk_boot_clock *clock,
                           uint64_t tau_ms);

/* At most PK_EPOCH_BYTES_MAX bytes; returns their number. */
size_t pk_epoch_encode(const struct pk_epoch *e, unsigned char *out);
bool pk_epoch_decode(struct pk_bytes in, struct pk_epoch *out);

#endif
