/* SPDX-License-Identifier: MIT */
/* The verbs of the program, one file each, and the way to the store that they share. */
#ifndef PICKET_CLI_CLI_H
#define PICKET_CLI_CLI_H

#include <picket.h>

#include "cli/options.h"

extern const struct pk_cli_verb pk_cli_run;
extern const struct pk_cli_verb pk_cli_once;
extern const struct pk_cli_verb pk_cli_acquire;
extern const struct pk_cli_verb pk_cli_extend;
extern const struct pk_cli_verb pk_cli_release;
extern const struct pk_cli_verb pk_cli_elect;
extern const struct pk_cli_verb pk_cli_ls;
extern const struct pk_cli_verb pk_cli_show;
extern const struct pk_cli_verb pk_cli_watch;
extern const struct pk_cli_verb pk_cli_break;
extern const struct pk_cli_verb pk_cli_fence;
extern const struct pk_cli_verb pk_cli_drill;
extern const struct pk_cli_verb pk_cli_gate;
extern const struct pk_cli_verb pk_cli_sim;
extern const struct pk_cli_verb pk_cli_serve;
extern const struct pk_cli_verb pk_cli_dev;
extern const struct pk_cli_verb pk_cli_cluster;
extern const struct pk_cli_verb pk_cli_bench;
extern const struct pk_cli_verb pk_cli_doctor;
extern const struct pk_cli_verb pk_cli_version;

/* Opens the store that the options and the environment name. 0, or an exit code after
 * having said why. */
int pk_cli_open(const struct pk_common *c, const struct picket_options *o,
                struct picket **out);

/* The same for a client that others see as `program`; NULL: as us. */
int pk_cli_open_for(const struct pk_common *c, const struct picket_options *o,
                    const char *program, struct picket **out);

/* Whether --require names a class: 0, or an exit code after having said why. */
int pk_cli_check_class(const char *require);

/* The same store as a URL that means the same in every working directory; malloc'ed. */
char *pk_cli_url(const struct pk_common *c);

/* The same for people and logs: without its password. */
char *pk_cli_shown_url(const struct pk_common *c);

/* What a failed call means for a verb that only looks or acts once: says it, closes the
 * client and returns the exit code. */
int pk_cli_give_up(struct picket *p, enum picket_status s);

#endif
