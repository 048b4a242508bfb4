/* SPDX-License-Identifier: MIT */
/*
 * The live part of the dashboard: server-sent events at /events.
 *
 *     retry: 1000
 *     id: 18402                the last entry of the log that was run here
 *     event: snapshot          all that is shown; then `delta`s: what has changed
 *     data: {"clock_ms":..., "cluster":{...}, "rows":[...], ...}
 *
 * A row of a delta is the row itself, or the place (from 0) that an unchanged one had
 * before. Times are durations at cluster time `clock_ms`, so nobody's wall clock matters.
 * A delta comes at most four times a second, and at least once: who hears nothing for
 * longer is cut off.
 *
 * What it costs is bounded. Without a viewer: noting what happens (past.h), and a sample
 * each second. With viewers, 16 at most: each a list of 200 rows; one walk over all locks
 * for all of them, in slices, and none while nothing changes. Who has not taken the last
 * message is sent no other; HTTP ends it if it takes nothing at all.
 */
#ifndef PICKET_SERVER_DASH_H
#define PICKET_SERVER_DASH_H

#include "server/http.h"

struct pk_server;
struct pk_dash;
struct pk_command;
struct pk_effects;

enum {
    PK_DASH_VIEWERS_MAX = 16,
    PK_DASH_EVERY_MS = 250,
    PK_DASH_BEAT_MS = 1000,
    PK_DASH_SLICE = 2048,  /* locks that are looked at before others have their turn */
    PK_DASH_PAUSE_MS = 10, /* between slices; 1 while somebody has no rows yet */
    PK_DASH_SAMPLES = 61,
};

struct pk_dash *pk_dash_new(struct pk_server *s);
/* Ends what is on the loop, after the HTTP server is closed; free it when the loop has
 * ended. */
void pk_dash_close(struct pk_dash *d);
void pk_dash_free(struct pk_dash *d);

/* All effects of one step, and that the state was replaced. */
void pk_dash_step(struct pk_dash *d, const struct pk_command *c,
                  const struct pk_effects *e);
void pk_dash_gap(struct pk_dash *d);
/* To be called several times a second. */
void pk_dash_sample(struct pk_dash *d);

/* Answers GET /events. */
void pk_dash_open(struct pk_dash *d, struct pk_bytes query, struct pk_http_answer *out);

#endif
