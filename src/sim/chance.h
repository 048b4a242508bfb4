/* SPDX-License-Identifier: MIT */
/*
 * Randomness by key: a draw depends on the seed and on what it is for, and on no draw
 * before it. So an act that is left out changes nothing but itself, which is what makes
 * shrinking work.
 */
#ifndef PICKET_SIM_CHANCE_H
#define PICKET_SIM_CHANCE_H

#include <stdint.h>

static inline uint64_t pk_mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* The draw number `counter` of `stream`. */
static inline uint64_t pk_chance(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return pk_mix(pk_mix(pk_mix(seed) ^ stream) ^ counter);
}

#endif
