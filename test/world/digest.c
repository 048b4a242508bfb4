/* SPDX-License-Identifier: MIT */
/* Prints the digest of some worlds of each flavour: digest SEEDS. Whoever compiles it
 * must get the same. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/survey.h"

int main(int argc, char **argv)
{
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 50;
    for (uint32_t f = 0; f < PK_FLAVOUR_COUNT; f++) {
        struct pk_survey s = {.config = pk_world_defaults(), .rough = 3, .jumps = true};
        s.config.flavour = (enum pk_flavour)f;
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            (void)pk_survey_run(&s, seed);
        }
        (void)printf("%s %016" PRIx64 "\n", pk_flavour_name(s.config.flavour), s.digest);
    }
    return 0;
}
