/* SPDX-License-Identifier: MIT */
#include "host/clock.h"

#include <sys/random.h>
#include <sys/timerfd.h>

#include "core/door.h"

uint64_t pk_clock_ms(void)
{
    struct timespec t;
    PK_ASSERT(clock_gettime(CLOCK_BOOTTIME, &t) == 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

struct timespec pk_clock_monotonic(uint64_t at_ms)
{
    uint64_t now = pk_clock_ms();
    uint64_t left = at_ms > now ? at_ms - now : 0;
    struct timespec t;
    PK_ASSERT(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    left = left < UINT64_C(1) << 40 ? left : UINT64_C(1) << 40; /* "never" is no date */
    t.tv_sec += (time_t)(left / 1000);
    t.tv_nsec += (long)(left % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

uint64_t pk_random(void)
{
    uint64_t v = 0;
    while (v == 0) {
        PK_ASSERT(getrandom(&v, sizeof v, 0) == (ssize_t)sizeof v);
    }
    return v;
}

void pk_timer_set(int fd, uint64_t at_ms)
{
    struct itimerspec when = {0}; /* all zero disarms */
    when.it_value.tv_sec = (time_t)(at_ms / 1000);
    when.it_value.tv_nsec = (long)(at_ms % 1000) * 1000000;
    PK_ASSERT(timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL) == 0);
}

int pk_timer_fd(uint64_t at_ms)
{
    int fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd >= 0) {
        pk_timer_set(fd, at_ms);
    }
    return fd;
}
