/* SPDX-License-Identifier: MIT */
/* What redis:// and redlock:// have in common: options of their URLs, and what `picket
 * doctor` says of a server. */
#ifndef PICKET_DRIVERS_REDIS_SETTINGS_H
#define PICKET_DRIVERS_REDIS_SETTINGS_H

#include "client/findings.h"
#include "client/redis_link.h"

enum { PK_REDIS_PREFIX_MAX = 100 };

/* Reads the prefix of keys, "picket:" if none is given, and looks at the number of the
 * database. `where` is the URL for people. */
enum picket_status pk_redis_settings(const struct pk_url *u, const char *where,
                                     char prefix[PK_REDIS_PREFIX_MAX + 1]);

/* `examine` of driver.h, for one server. */
enum picket_status pk_redis_examine(struct pk_redis_link *l, struct pk_findings *out,
                                    uint64_t until_ms);

#endif
