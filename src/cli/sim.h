/* SPDX-License-Identifier: MIT */
/* The parts of `picket sim`: sim.c has the words, the others do what they say. */
#ifndef PICKET_CLI_SIM_H
#define PICKET_CLI_SIM_H

#include "cli/options.h"
#include "sim/script.h"

struct pk_sim_words {
    struct pk_common common;
    const char *file; /* the script or trace; "-": standard input */
    /* As given; NULL: not. */
    const char *flavour_word, *fence_word, *seeds_word;
    const char *svg, *json, *out, *lock;
    bool link, jumps, shrink;
    uint64_t rough, jobs;
    /* What the words mean. */
    enum pk_flavour flavour;
    enum pk_protection fence;
    uint64_t first_seed, last_seed;
};

/* Each returns the exit code. */
int pk_sim_run(const struct pk_sim_words *s);
int pk_sim_fuzz(const struct pk_sim_words *s);
int pk_sim_replay(const struct pk_sim_words *s);

/* All of a file, or of standard input; free() it. NULL after an error said. */
char *pk_sim_load(const char *file, size_t *len);
/* 0, or the exit code after an error said. */
int pk_sim_save(const char *file, const struct pk_prose *text);

#endif
