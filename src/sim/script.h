/* SPDX-License-Identifier: MIT */
/*
 * Scripts: a world's settings and what happens in it, as text.
 *
 *     sim 1                  the first line: what this is, and its version
 *     flavour picket         picket, etcd, zookeeper, redlock
 *     clients 4              1 to 8, called A, B, C...
 *     ttl 5s
 *     fence off              off, check (writes only), on (claim before you read)
 *     checkpoint on          clients ask their own clock before they write
 *     seed 7                 of what is left to chance
 *     delay 20ms, jitter 5ms of a message
 *     loss 10, slow 5        of 1000 messages
 *     mistakes 3             planted ones, by number (world.h)
 *     at 0.2 A pause 8s      at TIME WHO WHAT [HOW LONG]
 *     until 10s              the end; 10 s after the last act if it isn't given
 *     expect stale-write     the checks that must be hit, and no others; none: nothing
 *     expect-fenced nothing  the same for when the fence is turned on
 *     # whatever follows is for people; the first such line is the title
 *
 * WHO is a client, `service`, or n1 to n5 (Redlock). Times are seconds unless they have
 * a unit: us, ms, s.
 */
#ifndef PICKET_SIM_SCRIPT_H
#define PICKET_SIM_SCRIPT_H

#include "sim/check.h"

enum { PK_ACTS_MAX = 4096, PK_TITLE_MAX = 120 };

struct pk_script {
    char title[PK_TITLE_MAX];
    struct pk_world_config config;
    struct pk_act *acts; /* in the order of time */
    uint32_t n_acts, acts_capacity;
    uint64_t until_us;
    bool expects;    /* it says what must be hit */
    uint32_t expect; /* mask of checks */
    bool expects_fenced;
    uint32_t expect_fenced;
};

struct pk_script_error {
    uint32_t line;
    char text[160];
};

/* Reads it; false: `e` says where and what is wrong, and `out` is empty. */
bool pk_script_read(const char *text, size_t len, struct pk_script *out,
                    struct pk_script_error *e);
/* Reading what was written gives the same. */
void pk_script_write(const struct pk_script *s, struct pk_prose *out);
void pk_script_free(struct pk_script *s);
void pk_script_add(struct pk_script *s, const struct pk_act *a);

/* The fragment of a link to the page: v=1&s=..., with everything in it. */
void pk_script_link(const struct pk_script *s, struct pk_prose *out);

/* Runs all of it in a new world, which is the caller's to free. */
struct pk_world *pk_script_run(const struct pk_script *s, struct pk_checker *checker);

/* A random script: clients that work, and faults. `rough` is 0 (calm) to 3 (hell); with
 * `jumps`, clocks of Redlock's nodes jump and nodes restart empty. */
void pk_script_random(struct pk_script *out, const struct pk_world_config *c,
                      uint32_t rough, bool jumps);

/* Leaves out what is not needed for any of the checks in `mask` to be hit; the settings
 * stay. Runs at most `runs` worlds; returns how many it took. */
uint32_t pk_script_shrink(struct pk_script *s, uint32_t mask, uint32_t runs);

#endif
