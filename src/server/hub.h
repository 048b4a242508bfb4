/* SPDX-License-Identifier: MIT */
/*
 * Who is told what: the owners of leases, those who wait on a RESP2 connection, and the
 * watchers.
 *
 * The owners of a lease are the RESP3 connections that acted for it last (OPEN, RENEW,
 * ACQUIRE), up to four of them: a client that has reconnected while its old connection
 * seems to live, a second process that renews it. They are told (by a push) what they did
 * not ask for themselves: a grant after waiting, a hold that was ended, the end of the
 * lease. A fifth takes the place of the one that acted longest ago, which is told so by
 * the push "gap" with the lease. An owner that is gone is nobody, and the lease goes on
 * without it.
 *
 * Pushes are a convenience: a renewal brings whatever an owner has missed (rules D of
 * core/README.md).
 */
#ifndef PICKET_SERVER_HUB_H
#define PICKET_SERVER_HUB_H

#include "core/effect.h"
#include "core/tree.h"
#include "server/conn.h"

enum { PK_OWNERS_MAX = 4 };

struct pk_owned {
    struct pk_node node; /* of the hub's tree, by lease and connection */
    uint64_t lease;
    uint64_t acted; /* when it did so last, in pk_hub.acts */
    struct pk_conn *conn;
    struct pk_owned *next, **back; /* of the connection's list */
};

struct pk_hub {
    struct pk_tree owners; /* struct pk_owned */
    struct pk_tree waits;  /* connections, by lease and claim */
    uint64_t acts;         /* how often somebody acted for a lease so far */
    uint64_t owned, waiting;
    struct pk_conn *asker; /* who gets the reply of the present step; NULL: not here */
    /* Connections that watch, by prefix, so that those who want an event are found by its
     * name: whoever watches a prefix of it, of one of the lengths that are watched. */
    struct pk_tree watchers;
    uint64_t watching;
    uint32_t watched[PK_CONN_PREFIX_MAX]; /* watchers by the length of their prefix */
    struct pk_resp_out event;             /* in bytes, once for all who want it */
};

/* `c` used this lease just now. */
void pk_hub_own(struct pk_hub *h, uint64_t lease, struct pk_conn *c);
/* The connection is going: nothing is told to it any more. */
void pk_hub_forget(struct pk_hub *h, struct pk_conn *c);

/* RESP2: `c` is answered when the acquire whose reply is `queued` is granted or over. */
void pk_hub_wait(struct pk_hub *h, struct pk_conn *c, const struct pk_effect *queued);

void pk_hub_watch(struct pk_hub *h, struct pk_conn *c, struct pk_bytes prefix);
void pk_hub_unwatch(struct pk_hub *h, struct pk_conn *c);

/* Tells everybody concerned about the effects of one step, at cluster time `clock_ms`. */
void pk_hub_step(struct pk_hub *h, const struct pk_effects *e, uint64_t clock_ms);
/* Events were missed by this node: watchers are told so. Owners are disconnected, since
 * only asking again helps them. */
void pk_hub_gap(struct pk_hub *h);
void pk_hub_free(struct pk_hub *h);

#endif
