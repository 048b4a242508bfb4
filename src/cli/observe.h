/* SPDX-License-Identifier: MIT */
/* `picket elect --observe`: who leads, now and whenever it changes. */
#ifndef PICKET_CLI_OBSERVE_H
#define PICKET_CLI_OBSERVE_H

#include <stdbool.h>

#include "cli/options.h"

/* Returns an exit code; without `once` only after an error. */
int pk_observe(const struct pk_common *c, const char *name, bool once);

#endif
