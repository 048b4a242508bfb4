/* SPDX-License-Identifier: MIT */
/*
 * Effects as lines of text. Every field that is not zero is printed, except what the
 * reader knows from the command itself, so that a golden file hides nothing.
 */
#ifndef PICKET_TEST_SCENARIO_PRINT_H
#define PICKET_TEST_SCENARIO_PRINT_H

#include "core/effect.h"
#include "text.h"

enum { LEASE_NAMES_MAX = 256 };

/* Whose lease is it? The last entry of a client is the lease it has now. */
struct lease_names {
    struct {
        uint64_t lease;
        struct pk_bytes client;
    } list[LEASE_NAMES_MAX];
    uint32_t count;
};

/* A: the client by its present lease; A@3: by an earlier one; lease=3: nobody's we
 * know. */
void print_lease(struct text *t, const struct lease_names *names, uint64_t lease);

/* One line, newline included. `c` is the command that made the effect and `client` who
 * sent it (empty: nobody). */
void print_effect(struct text *t, const struct pk_effect *e, const struct pk_command *c,
                  struct pk_bytes client, const struct lease_names *names);

#endif
