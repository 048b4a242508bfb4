/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a snapshot. The first byte chooses: even, the rest is taken as it is; odd,
 * an end with the right digest is put behind it, so that the reader's own checks are what
 * is tried. Whatever restores must be sound, must give the same digest again, and must go
 * on working.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "core/machine.h"
#include "core/wire.h"

enum { END_BYTES = 10 };

static void demand(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void step(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_effects effects = {0};
    pk_machine_step(m, c, &effects);
    const char *broken = pk_machine_check(m);
    demand(broken == NULL, broken);
    pk_effects_free(&effects);
}

/* Counters close to their ends can't count on; no real machine gets there. */
static bool counters_are_low(const unsigned char *bytes, size_t len)
{
    enum { HEAD = 5, COUNTERS = 5 };
    struct pk_reader r = {.at = bytes + HEAD, .end = bytes + len};
    pk_read_uint(&r); /* the length of the first item, */
    pk_read_byte(&r); /* and its kind */
    bool low = true;
    for (int i = 0; i < COUNTERS; i++) {
        low = low && pk_read_uint(&r) < UINT64_C(1) << 50;
    }
    return low;
}

/* Ends everything that has a deadline, with somebody new asking in between. */
static void live_on(struct pk_machine *m)
{
    struct pk_command open = {.verb = PK_LEASE_OPEN, .ttl_ms = 1000};
    struct pk_command drop = {.verb = PK_KEY_DROP, .flags = PK_KEY_ANY, .n_parts = 1};
    drop.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_EXCLUSIVE};
    struct pk_command set = {
        .verb = PK_FENCE_SET, .name = pk_text("a"), .token = 1, .value = pk_text("v")};
    struct pk_command list = {.verb = PK_LOCK_LIST, .count = PK_PAGE_MAX};
    struct pk_command leap = {.verb = PK_LEAP};
    step(m, &open);
    step(m, &list);
    step(m, &drop);
    step(m, &set);
    for (int i = 0; i < 20 && pk_machine_next_deadline(m) <= PK_TIME_MAX; i++) {
        struct pk_command tick = {.verb = PK_TICK,
                                  .stamp_ms = pk_machine_next_deadline(m)};
        step(m, &tick);
    }
    step(m, &leap);
}

static void try_restore(const unsigned char *bytes, size_t len)
{
    struct pk_machine *m = pk_machine_restore(bytes, len);
    if (m == NULL) {
        return;
    }
    unsigned char *again = NULL;
    const char *broken = pk_machine_check(m);
    demand(broken == NULL, broken);
    size_t n = pk_machine_snapshot(m, &again);
    demand(n == len && pk_get_u64(again + n - 8) == pk_get_u64(bytes + len - 8),
           "restored, but another state");
    demand(pk_machine_digest(m) == pk_get_u64(bytes + len - 8), "another digest");
    pk_door_resize(again, 0);
    if (counters_are_low(bytes, len)) {
        live_on(m);
    }
    pk_machine_free(m);
}

/* The end item of whatever the bytes before it are. */
static void put_end(unsigned char *bytes, size_t len)
{
    enum { LENGTH = 9, KIND = 7 };
    struct pk_restore *s = pk_restore_begin();
    (void)pk_restore_feed(s, bytes, len);
    bytes[len] = LENGTH;
    bytes[len + 1] = KIND;
    pk_put_u64(bytes + len + 2, pk_restore_digest(s));
    pk_machine_free(pk_restore_end(s));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    bool mend = data[0] % 2 == 1;
    size_t len = size - 1;
    unsigned char *bytes = malloc(len + END_BYTES);
    if (bytes == NULL) {
        abort();
    }
    memcpy(bytes, data + 1, len);
    if (mend) {
        put_end(bytes, len);
    }
    try_restore(bytes, mend ? len + END_BYTES : len);
    free(bytes);
    return 0;
}
