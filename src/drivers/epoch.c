/* SPDX-License-Identifier: MIT */
#include "drivers/epoch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/wire.h"
#include "host/clock.h"
#include "host/fd.h"

/* Reads a small file of /proc. False when there is none. */
static bool read_text(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : pk_fd_read_at(fd, out, size - 1, 0);
    pk_fd_close(&fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* The offset of our time namespace, from lines such as "boottime   86400   0": seconds
 * and nanoseconds. False when it is not known. */
static bool read_offset(int64_t *ahead_ms)
{
    char text[256];
    struct stat ours, of_children;
    *ahead_ms = 0;
    if (stat("/proc/self/ns/time", &ours) != 0) {
        /* A kernel without time namespaces has one clock for all. */
        return stat("/proc/self", &ours) == 0;
    }
    /* The offsets are those of the namespace that children get. */
    if (stat("/proc/self/ns/time_for_children", &of_children) != 0 ||
        ours.st_ino != of_children.st_ino ||
        !read_text("/proc/self/timens_offsets", text, sizeof text)) {
        return false;
    }
    const char *line = strstr(text, "boottime");
    if (line == NULL) {
        return false;
    }
    char *end;
    int64_t seconds = strtoll(line + strlen("boottime"), &end, 10);
    *ahead_ms = seconds * 1000 + strtoll(end, NULL, 10) / 1000000;
    return true;
}

struct pk_boot_clock pk_boot_clock_find(void)
{
    struct pk_boot_clock c = {0};
    char boot[64];
    if (read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot) &&
        read_offset(&c.ahead_ms)) {
        boot[strcspn(boot, "\n")] = '\0';
        snprintf(c.id, sizeof c.id, "%s", boot);
    } else {
        c.ahead_ms = 0;
        snprintf(c.id, sizeof c.id, "?/%llu", (unsigned long long)pk_random());
    }
    return c;
}

static uint64_t boot_ms(const struct pk_boot_clock *clock)
{
    return pk_clock_ms() - (uint64_t)clock->ahead_ms; /* which may be negative */
}

struct pk_epoch pk_epoch_begin(const struct pk_boot_clock *clock, uint64_t tau_ms)
{
    struct pk_epoch e = {.tau_ms = tau_ms, .at_ms = boot_ms(clock)};
    memcpy(e.clock_id, clock->id, sizeof e.clock_id);
    return e;
}

bool pk_epoch_fits(const struct pk_epoch *e, const struct pk_boot_clock *clock)
{
    /* An epoch that begins in the future is of a clock that we can't tell by its id. */
    return strcmp(e->clock_id, clock->id) == 0 && e->at_ms <= boot_ms(clock);
}

uint64_t pk_epoch_now(const struct pk_epoch *e, const struct pk_boot_clock *clock)
{
    uint64_t now = boot_ms(clock);
    return e->tau_ms + (now > e->at_ms ? now - e->at_ms : 0);
}

uint64_t pk_epoch_to_clock(const struct pk_epoch *e, const struct pk_boot_clock *clock,
                           uint64_t tau_ms)
{
    uint64_t at_ms = e->at_ms + (tau_ms > e->tau_ms ? tau_ms - e->tau_ms : 0);
    return at_ms + (uint64_t)clock->ahead_ms;
}

size_t pk_epoch_encode(const struct pk_epoch *e, unsigned char *out)
{
    struct pk_writer w = {.out = out};
    pk_write_uint(&w, e->tau_ms);
    pk_write_uint(&w, e->at_ms);
    pk_write_bytes(&w, pk_text(e->clock_id));
    return w.len;
}

bool pk_epoch_decode(struct pk_bytes in, struct pk_epoch *out)
{
    const unsigned char *at = (const unsigned char *)in.data;
    struct pk_reader r = {.at = at, .end = at + in.len};
    memset(out, 0, sizeof *out);
    out->tau_ms = pk_read_uint(&r);
    out->at_ms = pk_read_uint(&r);
    struct pk_bytes id = pk_read_bytes(&r, PK_CLOCK_ID_MAX - 1);
    if (!r.bad && id.len > 0) {
        memcpy(out->clock_id, id.data, id.len);
    }
    return !r.bad;
}
