/* SPDX-License-Identifier: MIT */
/* What dash.c (who is told, and when) and dash_json.c (in which words) share. */
#ifndef PICKET_SERVER_DASH_INSIDE_H
#define PICKET_SERVER_DASH_INSIDE_H

#include "server/dash.h"
#include "server/inside.h"
#include "server/json_out.h"
#include "server/past.h"
#include "server/query.h"

/* Parts of a message that are left out when they have not changed. */
enum pk_dash_part {
    PK_DASH_CLUSTER,
    PK_DASH_TOTALS,
    PK_DASH_RATES,
    PK_DASH_TIMES,
    PK_DASH_LOSSES,
    PK_DASH_REFUSALS,
    PK_DASH_LOCK,
    PK_DASH_PARTS
};

/* A row as it was last sent: digests of the lock's name and of all that is shown. */
struct pk_dash_sent {
    uint64_t name, content;
};

/* One page that is open somewhere. */
struct pk_viewer {
    struct pk_dash *dash;
    struct pk_viewer *next, **back;
    struct pk_http_stream *stream;
    struct pk_query query;
    bool greeted;                /* it has had its snapshot */
    bool scanned;                /* takes part in the present walk */
    bool due;                    /* its rows have been found anew */
    uint64_t told_ms;            /* when it last got something */
    uint64_t was[PK_DASH_PARTS]; /* digest of each part, as last sent */
    struct pk_best best;
    uint64_t matched; /* locks that fit, when last counted */
    uint32_t n_sent;
    struct pk_dash_sent sent[PK_QUERY_ROWS];
};

/* Sums at one moment; rates are differences. */
struct pk_dash_sample {
    uint64_t at_ms, grants, ends, lost, rejected;
};

struct pk_dash {
    struct pk_server *server;
    uv_timer_t timer;
    struct pk_viewer *first;
    uint32_t viewers;
    struct pk_past *past;
    uint64_t stepped_ms; /* the loop's time of the last step */

    bool scanning;
    uint64_t scanned_index; /* the log's end when the last walk began */
    uint64_t began_ms;
    uint8_t cursor_len;
    char cursor[PK_NAME_MAX];
    uint32_t slice;    /* locks seen in this one */
    uint64_t slice_ms; /* its cluster time */

    uint64_t n_samples;
    struct pk_dash_sample samples[PK_DASH_SAMPLES];

    struct pk_resp_out part, message;
};

/* How old what this node knows can be: a leader's own word is news, and a follower knows
 * what the leader knew when it was last heard; UINT64_MAX: nobody leads. */
uint64_t pk_dash_age(struct pk_server *s);
/* Cluster time as far as this node can tell; *ticking: it goes on. */
uint64_t pk_dash_clock(const struct pk_dash *d, bool *ticking);
/* Writes what `v` has to be told into d->message. False: nothing has changed. */
bool pk_dash_write(struct pk_dash *d, struct pk_viewer *v);

#endif
