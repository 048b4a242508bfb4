/* SPDX-License-Identifier: MIT */
/* Commands and effects as one readable line each, and what differs between two of
 * them. */
#ifndef PICKET_TEST_SHOW_H
#define PICKET_TEST_SHOW_H

#include <stdio.h>

#include "core/command.h"
#include "core/effect.h"

void show_command(FILE *to, const struct pk_command *c);
void show_effect(FILE *to, const struct pk_effect *e);
/* One effect per line, each line after `indent`. */
void show_effects(FILE *to, const struct pk_effects *e, const char *indent);

/* The name of the first field in which the two differ, or NULL. */
const char *command_difference(const struct pk_command *a, const struct pk_command *b);
const char *effect_difference(const struct pk_effect *a, const struct pk_effect *b);

#endif
