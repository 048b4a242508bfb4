/* SPDX-License-Identifier: MIT */
/*
 * Random commands over a small world, from a seed.
 *
 * The world is kept small on purpose (a few names, leases and requests) so that
 * contention, expiry, sets, delays and repeats happen all the time. What earlier effects
 * told (lease ids, tokens, waits) flows back through generator_observe. All strings come
 * from static pools: a generated command can be kept and stepped again at any time.
 */
#ifndef PICKET_TEST_GENERATE_H
#define PICKET_TEST_GENERATE_H

#include <stdint.h>

#include "core/command.h"
#include "core/effect.h"

enum { GENERATED_LEASES = 8 };

/* A command together with the arrays it would otherwise borrow. */
struct generated {
    struct pk_command command;
    unsigned char leases[8 * GENERATED_LEASES];
    unsigned char heard[4 * GENERATED_LEASES];
};

void generated_copy(struct generated *to, const struct generated *from);

struct generator;

struct generator *generator_new(uint64_t seed);
void generator_free(struct generator *g);

/* The next command, for a machine whose clock and next deadline are these. */
void generator_next(struct generator *g, uint64_t clock, uint64_t deadline,
                    struct generated *out);
/* What the command led to. */
void generator_observe(struct generator *g, const struct generated *command,
                       const struct pk_effects *effects);

/* splitmix64: one more number from the state. */
uint64_t random_next(uint64_t *state);

#endif
