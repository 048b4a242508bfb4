/* SPDX-License-Identifier: MIT */
#include "sim/survey.h"

static void note_hits(struct pk_survey *s, uint32_t mask, uint64_t seed)
{
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        if (mask & UINT32_C(1) << i) {
            s->first[i] = s->hit[i] == 0 || seed < s->first[i] ? seed : s->first[i];
            s->hit[i]++;
        }
    }
}

static void note_coverage(struct pk_survey *s, const struct pk_world *w)
{
    struct pk_coverage coverage = {0};
    uint32_t count;
    const struct pk_record *trace = pk_world_trace(w, &count);
    for (uint32_t i = 0; i < count; i++) {
        pk_coverage_feed(&coverage, &trace[i]);
    }
    for (uint32_t i = 0; i < PK_COVERED_COUNT; i++) {
        s->covered[i] += coverage.counts[i] > 0;
    }
    s->records += count;
}

uint32_t pk_survey_run(struct pk_survey *s, uint64_t seed)
{
    struct pk_world_config config = s->config;
    struct pk_script script;
    struct pk_checker checker;
    config.seed = seed;
    pk_script_random(&script, &config, s->rough, s->jumps);
    struct pk_world *w = pk_script_run(&script, &checker);
    uint32_t mask = pk_checker_mask(&checker);
    note_hits(s, mask, seed);
    note_coverage(s, w);
    s->digest += pk_world_digest(w);
    s->worlds++;
    pk_world_free(w);
    pk_script_free(&script);
    return mask;
}

void pk_survey_add(struct pk_survey *s, const struct pk_survey *other)
{
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        if (other->hit[i] > 0 && (s->hit[i] == 0 || other->first[i] < s->first[i])) {
            s->first[i] = other->first[i];
        }
        s->hit[i] += other->hit[i];
    }
    for (uint32_t i = 0; i < PK_COVERED_COUNT; i++) {
        s->covered[i] += other->covered[i];
    }
    s->worlds += other->worlds;
    s->records += other->records;
    s->digest += other->digest;
}
