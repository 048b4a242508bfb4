/* SPDX-License-Identifier: MIT */
/* Random scripts, and scripts made smaller. */
#include <string.h>

#include "core/door.h"
#include "sim/chance.h"
#include "sim/script.h"

enum { RUN_US = 120000000, HEALED_US = 100000000 };

/* A stream of draws of its own. */
struct dice {
    uint64_t seed, stream, count;
};

static uint64_t roll(struct dice *d)
{
    return pk_chance(d->seed, d->stream, d->count++);
}

static uint64_t between(struct dice *d, uint64_t least, uint64_t most)
{
    return least + roll(d) % (most - least + 1);
}

static bool happens(struct dice *d, uint32_t per_mille)
{
    return roll(d) % 1000 < per_mille;
}

static void add(struct pk_script *s, uint64_t at_us, uint32_t who, enum pk_op op,
                uint64_t arg)
{
    struct pk_act a = {.at_us = at_us, .who = who, .op = op, .arg = (int64_t)arg};
    if (s->n_acts < PK_ACTS_MAX) {
        pk_script_add(s, &a);
    }
}

/* What may befall a client while it works. */
static void trouble(struct pk_script *s, struct dice *d, uint32_t who, uint64_t at_us,
                    uint32_t rough)
{
    uint64_t ttl = s->config.ttl_us;
    if (happens(d, 60 * rough)) {
        add(s, at_us, who, PK_OP_PAUSE, between(d, ttl / 10, 3 * ttl));
    }
    if (happens(d, 40 * rough)) {
        add(s, at_us, who, PK_OP_CUT, between(d, ttl / 10, 3 * ttl));
    }
    if (happens(d, 20 * rough)) {
        add(s, at_us, who, PK_OP_CUT_DATA, between(d, ttl / 10, 2 * ttl));
    }
    if (happens(d, 40 * rough)) {
        add(s, at_us, who, PK_OP_DELAY, between(d, ttl / 10, 2 * ttl));
    }
    if (happens(d, 15 * rough)) {
        add(s, at_us, who, PK_OP_CRASH, between(d, 0, 2 * ttl));
    }
}

/* A client takes the lock again and again, writes a few times, and gives it back. */
static void work(struct pk_script *s, uint32_t who, uint32_t rough)
{
    struct dice d = {s->config.seed, 100 + who, 0};
    uint64_t ttl = s->config.ttl_us;
    uint64_t at = between(&d, 0, 2 * ttl);
    if (rough > 0) {
        add(s, 0, who, PK_OP_DRIFT, between(&d, 0, 5000));
    }
    while (at < HEALED_US) {
        add(s, at, who, PK_OP_ACQUIRE, 0);
        uint64_t writes = between(&d, 1, 4);
        for (uint64_t i = 0; i < writes; i++) {
            at += between(&d, ttl / 20, ttl);
            trouble(s, &d, who, at, rough);
            at += between(&d, 1, ttl / 4);
            add(s, at, who, PK_OP_WRITE, 0);
        }
        at += between(&d, ttl / 20, ttl);
        if (!happens(&d, 100)) {
            add(s, at, who, PK_OP_RELEASE, 0);
        }
        at += between(&d, ttl / 10, 3 * ttl);
    }
    add(s, HEALED_US, who, PK_OP_HEAL, 0);
}

static void disturb_service(struct pk_script *s, uint32_t rough)
{
    struct dice d = {s->config.seed, 200, 0};
    uint64_t ttl = s->config.ttl_us;
    for (uint64_t at = between(&d, 0, 8 * ttl); at < HEALED_US;
         at += between(&d, ttl, 10 * ttl)) {
        if (happens(&d, 100 * rough)) {
            add(s, at, PK_WHO_SERVICE, PK_OP_FAILOVER, between(&d, 0, 2 * ttl));
        }
        if (happens(&d, 50 * rough)) {
            add(s, at, PK_WHO_SERVICE, PK_OP_PAUSE, between(&d, ttl / 10, 2 * ttl));
        }
    }
}

static void disturb_nodes(struct pk_script *s, uint32_t rough, bool jumps)
{
    struct dice d = {s->config.seed, 300, 0};
    uint64_t ttl = s->config.ttl_us;
    for (uint64_t at = between(&d, 0, 4 * ttl); at < HEALED_US;
         at += between(&d, ttl / 2, 4 * ttl)) {
        uint32_t node = PK_WHO_NODE + (uint32_t)(roll(&d) % PK_NODES_MAX);
        if (happens(&d, 100 * rough)) {
            add(s, at, node, PK_OP_PAUSE, between(&d, ttl / 10, 2 * ttl));
        }
        if (jumps && happens(&d, 200 * rough)) {
            add(s, at, node, PK_OP_JUMP, between(&d, ttl / 2, 2 * ttl));
        }
        if (jumps && happens(&d, 100 * rough)) {
            add(s, at, node, PK_OP_CRASH, 0);
        }
    }
}

void pk_script_random(struct pk_script *out, const struct pk_world_config *c,
                      uint32_t rough, bool jumps)
{
    *out = (struct pk_script){.config = *c, .until_us = RUN_US};
    out->config.jitter_us = c->jitter_us != 0 ? c->jitter_us : 2 * c->delay_us;
    out->config.loss = 10 * rough;
    out->config.slow = 15 * rough;
    for (uint32_t i = 0; i < c->clients; i++) {
        work(out, i, rough);
    }
    if (c->flavour == PK_FLAVOUR_REDLOCK) {
        disturb_nodes(out, rough, jumps);
    } else {
        disturb_service(out, rough);
    }
}

/* ---- smaller ---- */

static bool still_hit(const struct pk_script *s, uint32_t mask)
{
    struct pk_checker checker;
    struct pk_world *w = pk_script_run(s, &checker);
    pk_world_free(w);
    return (pk_checker_mask(&checker) & mask) != 0;
}

/* `s` without `n` acts from `at` on. */
static struct pk_script without(const struct pk_script *s, uint32_t at, uint32_t n)
{
    struct pk_script less = *s;
    less.acts = pk_door_resize(NULL, (s->n_acts + 1) * sizeof s->acts[0]);
    less.acts_capacity = s->n_acts + 1;
    less.n_acts = s->n_acts - n;
    memcpy(less.acts, s->acts, at * sizeof s->acts[0]);
    memcpy(less.acts + at, s->acts + at + n, (s->n_acts - at - n) * sizeof s->acts[0]);
    return less;
}

/* The end comes right after what is to be seen. */
static void cut_end(struct pk_script *s, uint32_t mask)
{
    struct pk_checker checker;
    struct pk_world *w = pk_script_run(s, &checker);
    pk_world_free(w);
    for (uint32_t i = 0; i < checker.n_hits; i++) {
        if (mask & UINT32_C(1) << checker.hits[i].check) {
            s->until_us = checker.hits[i].at_us + 1000000;
            while (s->n_acts > 0 && s->acts[s->n_acts - 1].at_us > s->until_us) {
                s->n_acts--;
            }
            return;
        }
    }
}

uint32_t pk_script_shrink(struct pk_script *s, uint32_t mask, uint32_t runs)
{
    uint32_t used = 1;
    cut_end(s, mask);
    for (uint32_t size = s->n_acts / 2; size > 0 && used < runs;) {
        bool smaller = false;
        for (uint32_t at = 0; at + size <= s->n_acts && used < runs;) {
            struct pk_script less = without(s, at, size);
            used++;
            if (still_hit(&less, mask)) {
                (void)pk_door_resize(s->acts, 0);
                *s = less;
                smaller = true;
            } else {
                (void)pk_door_resize(less.acts, 0);
                at += size;
            }
        }
        size = smaller && size == 1 ? 1 : size / 2;
    }
    cut_end(s, mask);
    return used;
}
