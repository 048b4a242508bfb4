/* SPDX-License-Identifier: MIT */
/*
 * The only clock of the host side: CLOCK_BOOTTIME in milliseconds, which never steps and
 * goes on counting while the machine is suspended, so that a laptop wakes up without its
 * locks (P5).
 */
#ifndef PICKET_HOST_CLOCK_H
#define PICKET_HOST_CLOCK_H

#include <stdint.h>
#include <time.h>

uint64_t pk_clock_ms(void);

/* The same point of time on CLOCK_MONOTONIC, which conditions can wait for. */
struct timespec pk_clock_monotonic(uint64_t at_ms);

/* A number that can't be foreseen, for request ids and jitter. Never 0. */
uint64_t pk_random(void);

/* A timer descriptor on the same clock, readable from time `at_ms` on; 0: never.
 * Close-on-exec. Returns -1 with errno set when there are no descriptors left. */
int pk_timer_fd(uint64_t at_ms);
void pk_timer_set(int fd, uint64_t at_ms);

#endif
