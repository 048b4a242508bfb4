/* SPDX-License-Identifier: MIT */
/*
 * Locks that have no token, for the drill to show what that means: Redis' SET NX PX on
 * one node (redis://HOST:PORT), or on a majority of several (redlock://HOST:PORT,...).
 */
#ifndef PICKET_CLI_DRILL_RIVAL_H
#define PICKET_CLI_DRILL_RIVAL_H

#include <picket.h>
#include <stdbool.h>

struct pk_rival;

/* Whether the URL is of such a lock. */
bool pk_rival_is(const char *url);
/* Takes the lock; waits for it at most `wait_ms`. Nobody renews it. */
enum picket_status pk_rival_take(const char *url, const char *name, uint64_t ttl_ms,
                                 uint64_t wait_ms, struct pk_rival **out);
/* Deletes it where it is still ours, and frees `r`. */
void pk_rival_release(struct pk_rival *r);

#endif
