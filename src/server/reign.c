/* SPDX-License-Identifier: MIT */
#include "server/reign.h"

#include "core/door.h"

void pk_reign_begin(struct pk_reign *r, uint64_t machine_clock_ms, uint64_t now_ms)
{
    r->began = true;
    r->tau_ms = machine_clock_ms;
    r->now_ms = now_ms;
}

void pk_reign_end(struct pk_reign *r)
{
    r->began = false;
}

uint64_t pk_reign_stamp(struct pk_reign *r, uint64_t now_ms)
{
    PK_ASSERT(r->began);
    uint64_t step = now_ms > r->now_ms ? now_ms - r->now_ms : 0;
    if (step > r->pause_ms) {
        r->left_out_ms += step;
    } else {
        r->tau_ms += step;
    }
    r->now_ms += step;
    return r->tau_ms;
}
