/* SPDX-License-Identifier: MIT */
#include "drivers/epoch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/wire.h"
#include "host/clock.h"
#include "host/fd.h"

static void read_clock_id(char out[PK_CLOCK_ID_MAX])
{
    char boot[64] = "?";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = pk_fd_read_at(fd, boot, sizeof boot - 1, 0);
        boot[n > 0 ? n : 0] = '\0';
        boot[strcspn(boot, "\n")] = '\0';
        close(fd);
    }
    struct stat st = {0};
    int none = stat("/proc/self/ns/time", &st);
    (void)none; /* kernels without time namespaces have one clock for all */
    snprintf(out, PK_CLOCK_ID_MAX, "%s/%llu", boot, (unsigned long long)st.st_ino);
}

struct pk_epoch pk_epoch_begin(uint64_t tau_ms)
{
    struct pk_epoch e = {.tau_ms = tau_ms, .at_ms = pk_clock_ms()};
    read_clock_id(e.clock_id);
    return e;
}

bool pk_epoch_fits(const struct pk_epoch *e, const struct pk_epoch *ours)
{
    /* An epoch that begins in the future is of a clock that we can't tell by its id. */
    return strcmp(e->clock_id, ours->clock_id) == 0 && e->at_ms <= pk_clock_ms();
}

uint64_t pk_epoch_now(const struct pk_epoch *e)
{
    uint64_t now = pk_clock_ms();
    return e->tau_ms + (now > e->at_ms ? now - e->at_ms : 0);
}

uint64_t pk_epoch_to_clock(const struct pk_epoch *e, uint64_t tau_ms)
{
    return e->at_ms + (tau_ms > e->tau_ms ? tau_ms - e->tau_ms : 0);
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
