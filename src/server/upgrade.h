/* SPDX-License-Identifier: MIT */
/*
 * The cluster version, as its leader sees to it: raised by one when every member runs a
 * release that can run the next one, unless an operator holds it; held, let go and
 * lowered by an operator's word. docs/upgrades.md has the policy.
 */
#ifndef PICKET_SERVER_UPGRADE_H
#define PICKET_SERVER_UPGRADE_H

#include <stdbool.h>
#include <stdint.h>

#include "raft/handshake.h"

struct pk_conn;
struct pk_server;

/* Raises the version if that is due. Call it several times a second. */
void pk_upgrade_sweep(struct pk_server *s);

/* CLUSTER VERSION on a leader: gives the cluster that version, if every member runs it,
 * and holds it there or not. A repeat changes nothing. False: not now, ask again. */
bool pk_upgrade_command(struct pk_conn *c, uint64_t version, bool hold);

/* NULL, or why the node of that id, which asks to be admitted, can't be a member. */
const char *pk_upgrade_node_wrong(struct pk_server *s, uint64_t id);
/* What that member runs; false: not known, because it is not connected. */
bool pk_upgrade_release(struct pk_server *s, uint64_t id, struct pk_release *out);

#endif
