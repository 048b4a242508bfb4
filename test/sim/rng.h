/* SPDX-License-Identifier: MIT */
/*
 * Randomness of the simulator: small, the same everywhere, and in streams of its own for
 * everybody who draws, so that one more draw here does not change what happens there.
 */
#ifndef PICKET_SIM_RNG_H
#define PICKET_SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The stream `stream` of the seed. */
static inline struct rng rng_of(uint64_t seed, uint64_t stream)
{
    struct rng r = {seed};
    r.state = rng_next(&r) ^ (stream * UINT64_C(0xd1342543de82ef95));
    r.state = rng_next(&r);
    return r;
}

/* 0..n-1. The bias of the remainder is far below what a simulation could notice. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
    return rng_next(r) % n;
}

static inline uint64_t rng_between(struct rng *r, uint64_t least, uint64_t most)
{
    return least + rng_below(r, most - least + 1);
}

static inline bool rng_chance(struct rng *r, uint64_t per_mille)
{
    return rng_below(r, 1000) < per_mille;
}

#endif
