/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a stream of encoded commands. What decodes must encode to the very same
 * bytes (a command has one form), validation must not stumble over it, and a machine that
 * is in use must take it and keep its invariants.
 */
#include <stdlib.h>

#include "core/machine.h"
#include "model/show.h"

enum { COMMANDS_MOST = 64 };

static void demand(bool ok, const char *what, const struct pk_command *c)
{
    if (!ok) {
        fprintf(stderr, "%s: ", what);
        show_command(stderr, c);
        abort();
    }
}

static void same_bytes(const struct pk_command *c, const uint8_t *from, size_t len)
{
    struct pk_command again;
    unsigned char *bytes = malloc(len);
    if (bytes == NULL) {
        abort();
    }
    demand(pk_command_size(c) == len, "encodes to another length", c);
    demand(pk_command_encode(c, bytes) == len, "encodes to another length", c);
    demand(memcmp(bytes, from, len) == 0, "encodes to other bytes", c);
    demand(pk_command_decode(bytes, len, &again) == len, "does not decode again", c);
    demand(command_difference(c, &again) == NULL, "decodes differently", c);
    free(bytes);
}

static void step(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_effects effects = {0};
    pk_machine_step(m, c, &effects);
    const char *broken = pk_machine_check(m);
    demand(broken == NULL, broken == NULL ? "" : broken, c);
    demand(effects.count > 0, "no reply", c);
    pk_effects_free(&effects);
}

/* Two leases, a hold, a wait, a shared set, two keys and a fence: something for commands
 * to meet. */
static struct pk_machine *machine_in_use(void)
{
    struct pk_machine *m = pk_machine_new();
    struct pk_command open = {.verb = PK_LEASE_OPEN, .request = 1, .ttl_ms = 1000};
    step(m, &open);
    open.request = 2;
    step(m, &open);
    struct pk_command acquire = {.verb = PK_LOCK_ACQUIRE,
                                 .lease = 1,
                                 .request = 1,
                                 .wait_ms = PK_WAIT_FOREVER,
                                 .lock_delay_ms = 10,
                                 .n_parts = 1};
    acquire.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_EXCLUSIVE};
    step(m, &acquire);
    acquire.lease = 2;
    step(m, &acquire);
    acquire.request = 2;
    acquire.n_parts = 2;
    acquire.parts[0] = (struct pk_part){.name = pk_text("b"), .mode = PK_SHARED};
    acquire.parts[1] =
        (struct pk_part){.name = pk_text("c"), .mode = PK_SLOT, .slots = 2};
    step(m, &acquire);
    struct pk_command take = {
        .verb = PK_KEY_TAKE, .ttl_ms = 500, .value = pk_text("v"), .n_parts = 2};
    take.parts[0] = (struct pk_part){.name = pk_text("d"), .mode = PK_EXCLUSIVE};
    take.parts[1] = (struct pk_part){.name = pk_text("e"), .mode = PK_EXCLUSIVE};
    step(m, &take);
    struct pk_command set = {.verb = PK_FENCE_SET,
                             .request = 1,
                             .name = pk_text("a"),
                             .token = 1,
                             .value = pk_text("v")};
    step(m, &set);
    return m;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pk_command c;
    size_t used = size == 0 ? 0 : pk_command_decode(data, size, &c);
    if (used == 0) {
        return 0;
    }
    struct pk_machine *m = machine_in_use();
    for (int i = 0; used > 0 && i < COMMANDS_MOST; i++) {
        same_bytes(&c, data, used);
        (void)pk_command_wrong(&c);
        step(m, &c);
        data += used;
        size -= used;
        used = size == 0 ? 0 : pk_command_decode(data, size, &c);
    }
    pk_machine_free(m);
    return 0;
}
