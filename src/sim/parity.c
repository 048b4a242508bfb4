/* SPDX-License-Identifier: MIT */
#include "sim/parity.h"

#include "sim/chance.h"
#include "sim/tell.h"

static uint64_t add(uint64_t sum, const struct pk_prose *p)
{
    for (size_t i = 0; i < p->len; i++) {
        sum = (sum ^ (unsigned char)p->data[i]) * UINT64_C(0x100000001b3);
    }
    return pk_mix(sum);
}

uint64_t pk_parity(const struct pk_world_config *c)
{
    struct pk_script script;
    struct pk_checker checker;
    struct pk_prose text = {0};
    pk_script_random(&script, c, 2, true);
    struct pk_world *w = pk_script_run(&script, &checker);
    struct pk_picture p = {.clients = c->clients,
                           .to_us = script.until_us,
                           .width = 1000,
                           .hits = checker.hits,
                           .n_hits = checker.n_hits,
                           .title = ""};
    p.trace = pk_world_trace(w, &p.count);
    pk_script_link(&script, &text);
    if (c->seed % 8 == 0) {
        pk_picture_draw(&p, &text);
        for (uint32_t i = 0; i < p.count; i++) {
            pk_record_tell(&p.trace[i], &text);
        }
    }
    for (uint32_t i = 0; i < checker.n_hits; i++) {
        pk_hit_explain(&checker.hits[i], &text);
    }
    uint64_t sum = add(pk_world_digest(w), &text);
    pk_prose_free(&text);
    pk_world_free(w);
    pk_script_free(&script);
    return sum;
}
