/* SPDX-License-Identifier: MIT */
/* What this node knows of the health of the cluster's members, and of its own. */
#ifndef PICKET_SERVER_HEALTH_H
#define PICKET_SERVER_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pk_server;

/* The transport refused a member, or was refused by it. `peer` is its name, with or
 * without "@host:port". */
void pk_health_refused(struct pk_server *s, const char *peer, const char *why);
/* Forgets refusals of members that are heard again. Call it several times a second. */
void pk_health_sweep(struct pk_server *s);
/* Why that member's last connection was refused; "": it was not. */
const char *pk_health_refusal(const struct pk_server *s, const char *name);

/* A member that was not heard for longer than this counts as silent. */
uint64_t pk_health_silent_after_ms(const struct pk_server *s);
/* How long ago that member was heard; 0 for this node itself. UINT64_MAX: there is no
 * connection from it, or this node need not hear from it (two followers). */
uint64_t pk_health_heard_ms(const struct pk_server *s, uint64_t id);

/* Whether this node takes part in the cluster now; `text` says it in one line. */
bool pk_health_ready(struct pk_server *s, char *text, size_t size);

#endif
