/* SPDX-License-Identifier: MIT */
#include "cli/errors.h"
#include "cli/sim.h"

int pk_sim_replay(const struct pk_sim_words *s)
{
    return pk_errors_fail("sim: can't replay %s yet", s->file);
}
