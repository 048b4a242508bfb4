/* SPDX-License-Identifier: MIT */
/* A run, told in full: as JSON for programs, and what the verdict says. */
#ifndef PICKET_SIM_EXPORT_H
#define PICKET_SIM_EXPORT_H

#include "sim/script.h"

/* "stale-write lost-update", or "nothing". */
void pk_export_checks(uint32_t mask, struct pk_prose *out);
/* Settings, verdict, readouts, hits in words, and the whole trace. */
void pk_export_json(const struct pk_script *s, const struct pk_world *w,
                    const struct pk_checker *c, struct pk_prose *out);
/* The picture of the whole run. */
void pk_export_picture(const struct pk_script *s, const struct pk_world *w,
                       const struct pk_checker *c, uint32_t width, struct pk_prose *out);

/* ---- parts, for others that tell the same ---- */

/* "check":...,"record":... of one hit, in an object; `why` is its explanation. */
void pk_export_hit(const struct pk_hit *h, const char *why, struct pk_prose *out);
/* {"two-holders":0,...} */
void pk_export_counts(const struct pk_checker *c, struct pk_prose *out);

#endif
