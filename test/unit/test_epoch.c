/* SPDX-License-Identifier: MIT */
/* Epochs of the embedded store: which clock they are of, and what time it is by them. */
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "drivers/epoch.h"
#include "host/clock.h"
#include "tap.h"

enum { DAY_MS = 24 * 3600 * 1000 };
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

TEST(epoch__is_what_was_written)
{
    struct pk_boot_clock clock = pk_boot_clock_find();
    struct pk_epoch e = pk_epoch_begin(&clock, 12345), back;
    unsigned char bytes[PK_EPOCH_BYTES_MAX];
    size_t len = pk_epoch_encode(&e, bytes);
    CHECK(pk_epoch_decode(pk_bytes(bytes, len), &back));
    CHECK_U64(back.tau_ms, 12345);
    CHECK_U64(back.at_ms, e.at_ms);
    CHECK_STR(back.clock_id, clock.id);
    for (size_t cut = 0; cut < len; cut++) {
        CHECK(!pk_epoch_decode(pk_bytes(bytes, cut), &back));
    }
}

TEST(epoch__fits_the_boot_that_it_is_of)
{
    struct pk_boot_clock clock = pk_boot_clock_find(), again = pk_boot_clock_find();
    struct pk_boot_clock other = clock;
    struct pk_epoch e = pk_epoch_begin(&clock, 0);
    CHECK(pk_epoch_fits(&e, &clock) && pk_epoch_fits(&e, &again));
    other.id[0] = other.id[0] == '0' ? '1' : '0';
    CHECK(!pk_epoch_fits(&e, &other));
    e.at_ms += DAY_MS; /* from a boot with the same id: nobody can tell more */
    CHECK(!pk_epoch_fits(&e, &clock));
}

/* A process in a time namespace sees another CLOCK_BOOTTIME. Whatever it writes is in the
 * machine's own, and what it reads is in its own. */
TEST(epoch__is_the_same_for_all_time_namespaces)
{
    struct pk_boot_clock clock = pk_boot_clock_find(), shifted = clock;
    shifted.ahead_ms += 1000;
    struct pk_epoch e = pk_epoch_begin(&shifted, 500);
    CHECK(e.at_ms + 1000 + (uint64_t)clock.ahead_ms <= pk_clock_ms());
    CHECK_U64(pk_epoch_to_clock(&e, &shifted, 700),
              pk_epoch_to_clock(&e, &clock, 700) + 1000);
    CHECK_U64(pk_epoch_to_clock(&e, &clock, 700),
              e.at_ms + 200 + (uint64_t)clock.ahead_ms);
    uint64_t earlier = pk_epoch_now(&e, &shifted);
    CHECK(pk_epoch_now(&e, &clock) >= earlier + 1000);
}

/* In a child, which makes a time namespace for its own children: the id of its clock. */
static void find_between_namespaces(int out)
{
    int fd = unshare(CLONE_NEWTIME) == 0
                 ? open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC)
                 : -1;
    static const char offset[] = "boottime 86400 0";
    if (fd < 0 || write(fd, offset, strlen(offset)) != (ssize_t)strlen(offset)) {
        _exit(77); /* only root may */
    }
    struct pk_boot_clock clock = pk_boot_clock_find();
    _exit(write(out, clock.id, sizeof clock.id) == (ssize_t)sizeof clock.id &&
                  clock.ahead_ms == 0
              ? 0
              : 1);
}

/* /proc tells the offset of the clock that its children get, not of its own. */
TEST(epoch__of_a_clock_that_is_not_known_fits_nobody_else)
{
    struct pk_boot_clock clock = pk_boot_clock_find(), other = {0};
    int fds[2], status = -1;
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        find_between_namespaces(fds[1]);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        SKIP("may not make a time namespace");
    }
    CHECK_U64(WEXITSTATUS(status), 0);
    CHECK(read(fds[0], other.id, sizeof other.id) == (ssize_t)sizeof other.id);
    struct pk_epoch e = pk_epoch_begin(&other, 0);
    CHECK(!pk_epoch_fits(&e, &clock));
    CHECK(pk_epoch_fits(&e, &other));
    (void)close(fds[0]);
    (void)close(fds[1]);
}
