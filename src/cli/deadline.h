/* SPDX-License-Identifier: MIT */
/*
 * Deadlines on the host's clock (host/clock.h), with a value for the one that never
 * comes.
 *
 * Waits use a timer descriptor and not the timeout of poll(), which sleeps a suspended
 * machine's time again after the wake-up.
 */
#ifndef PICKET_CLI_DEADLINE_H
#define PICKET_CLI_DEADLINE_H

#include <stdint.h>

#include "host/clock.h"

#define PK_DEADLINE_NEVER UINT64_MAX

/* `ms` after `at`; never stays never. */
static inline uint64_t pk_deadline_add(uint64_t at, uint64_t ms)
{
    return at > PK_DEADLINE_NEVER - ms ? PK_DEADLINE_NEVER : at + ms;
}

static inline uint64_t pk_deadline_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What is left of it, at most `most_ms`. */
static inline uint32_t pk_deadline_left(uint64_t at, uint32_t most_ms)
{
    uint64_t now = pk_clock_ms();
    uint64_t left = at > now ? at - now : 0;
    return left < most_ms ? (uint32_t)left : most_ms;
}

/* Sets a timer descriptor; a deadline in the past goes off at once. */
static inline void pk_deadline_set(int timer_fd, uint64_t at)
{
    pk_timer_set(timer_fd, at == PK_DEADLINE_NEVER ? 0 : at + (at == 0));
}

#endif
