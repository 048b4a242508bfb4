/* SPDX-License-Identifier: MIT */
/* What random worlds come to natively, a line each; parity.mjs prints the same lines from
 * the page's module.
 *
 *     parity SEEDS
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/parity.h"

int main(int argc, char **argv)
{
    unsigned long seeds = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    for (unsigned flavour = 0; flavour < PK_FLAVOUR_COUNT; flavour++) {
        for (unsigned long seed = 1; seed <= seeds; seed++) {
            struct pk_world_config c = pk_world_defaults();
            c.flavour = (enum pk_flavour)flavour;
            c.fence = (enum pk_protection)(seed % PK_PROTECTIONS);
            c.seed = seed;
            printf("%u %u %lu %016" PRIx64 "\n", flavour, (unsigned)c.fence, seed,
                   pk_parity(&c));
        }
    }
    return 0;
}
