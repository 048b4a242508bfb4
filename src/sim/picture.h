/* SPDX-License-Identifier: MIT */
/*
 * A trace as a picture (SVG): a lane for each client, for the service and for the
 * resource. The service's view is solid, a client's belief dashed, a pause hatched, the
 * fence a line that rises; writes are arrows to the resource. The gap between solid and
 * dashed is the lesson.
 *
 * Marks that stand for a record carry its number as data-record.
 */
#ifndef PICKET_SIM_PICTURE_H
#define PICKET_SIM_PICTURE_H

#include "sim/check.h"

struct pk_picture {
    const struct pk_record *trace;
    uint32_t count;
    uint32_t clients;
    uint32_t nodes;           /* that get a lane each: Redlock's; 0: none */
    const char *const *names; /* of the clients; NULL: A, B, C... */
    uint64_t from_us, to_us;
    uint64_t seen_us; /* nothing is known of what comes after it; 0: all is */
    uint32_t width;
    const struct pk_hit *hits; /* to be marked */
    uint32_t n_hits;
    const char *title; /* for who can't see it */
    bool styled;       /* brings its own colours; in the page they are the page's */
};

void pk_picture_draw(const struct pk_picture *p, struct pk_prose *out);
/* How high it is. */
uint32_t pk_picture_height(const struct pk_picture *p);

#endif
