/* SPDX-License-Identifier: MIT */
/* Many random worlds of one setting, and how often what was seen in them. */
#ifndef PICKET_SIM_SURVEY_H
#define PICKET_SIM_SURVEY_H

#include "sim/coverage.h"
#include "sim/script.h"

struct pk_survey {
    /* What is asked for. */
    struct pk_world_config config;
    uint32_t rough;
    bool jumps;
    /* What came of it. */
    uint64_t worlds, records;
    uint64_t hit[PK_CHECK_COUNT];       /* worlds in which each check was hit, */
    uint64_t first[PK_CHECK_COUNT];     /* and the first of their seeds */
    uint64_t covered[PK_COVERED_COUNT]; /* worlds in which each of these happened */
    uint64_t digest;                    /* of all their digests, in no order */
};

/* One more world; returns the mask of the checks that were hit in it. */
uint32_t pk_survey_run(struct pk_survey *s, uint64_t seed);
/* What another one has found is added to this one. */
void pk_survey_add(struct pk_survey *s, const struct pk_survey *other);

#endif
