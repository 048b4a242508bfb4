/* SPDX-License-Identifier: MIT */
/* A replayed trace as a picture and as JSON. */
#include <string.h>

#include "core/door.h"
#include "sim/export.h"
#include "sim/picture.h"
#include "sim/replay.h"

enum { DRAWN_MAX = 2000 };

/* ---- the picture ---- */

struct lanes {
    uint32_t whos[PK_CLIENTS_MAX];
    struct pk_prose names[PK_CLIENTS_MAX];
    uint32_t count;
};

static uint32_t lane_of(const struct lanes *x, uint32_t who)
{
    uint32_t i = 0;
    while (i < x->count && x->whos[i] != who) {
        i++;
    }
    return i;
}

/* More than that nobody can look at. */
static uint32_t first_drawn(const struct pk_replay_lock *l)
{
    return l->n_records > DRAWN_MAX ? l->n_records - DRAWN_MAX : 0;
}

/* The last ones there were, in the order in which they came. */
static void choose_lanes(const struct pk_replay *r, const struct pk_replay_lock *l,
                         struct lanes *out)
{
    for (uint32_t i = l->n_records;
         i-- > first_drawn(l) && out->count < PK_CLIENTS_MAX;) {
        if (l->whos[i] != 0 && lane_of(out, l->whos[i]) == out->count) {
            memmove(&out->whos[1], &out->whos[0], out->count * sizeof out->whos[0]);
            out->whos[0] = l->whos[i];
            out->count++;
        }
    }
    for (uint32_t i = 0; i < out->count; i++) {
        pk_replay_name(r, out->whos[i], &out->names[i]);
    }
}

/* The records of those who have a lane; returns how many. */
static uint32_t laned(const struct pk_replay_lock *l, const struct lanes *x,
                      struct pk_record *out)
{
    uint32_t n = 0;
    for (uint32_t i = first_drawn(l); i < l->n_records; i++) {
        bool raised = l->records[i].kind == PK_REC_RAISED;
        uint32_t lane = lane_of(x, l->whos[i]);
        if (raised || lane < x->count) {
            out[n] = l->records[i];
            out[n++].who = raised ? PK_WHO_RESOURCE : (uint8_t)lane;
        }
    }
    return n;
}

void pk_replay_picture(const struct pk_replay *r, const struct pk_replay_lock *l,
                       uint32_t width, bool styled, struct pk_prose *out)
{
    struct lanes lanes = {0};
    const char *names[PK_CLIENTS_MAX];
    choose_lanes(r, l, &lanes);
    struct pk_record *records =
        pk_door_resize(NULL, (l->n_records + 1) * sizeof records[0]);
    struct pk_picture p = {.trace = records,
                           .clients = lanes.count,
                           .names = names,
                           .to_us = r->last_ms * 1000,
                           .width = width,
                           .title = l->name,
                           .styled = styled};
    p.count = laned(l, &lanes, records);
    p.from_us = p.count > 0 ? records[0].at_us : 0;
    for (uint32_t i = 0; i < lanes.count; i++) {
        names[i] = lanes.names[i].data;
    }
    pk_picture_draw(&p, out);
    for (uint32_t i = 0; i < lanes.count; i++) {
        pk_prose_free(&lanes.names[i]);
    }
    (void)pk_door_resize(records, 0);
}

/* ---- JSON ---- */

static void number(struct pk_prose *out, const char *key, uint64_t n)
{
    pk_prose_key(out, key);
    pk_prose_number(out, n);
}

static void add_records(const struct pk_replay *r, const struct pk_replay_lock *l,
                        uint32_t most, struct pk_prose *out)
{
    uint32_t first = l->n_records > most ? l->n_records - most : 0;
    for (uint32_t i = first; i < l->n_records; i++) {
        const struct pk_record *x = &l->records[i];
        struct pk_prose who = {0};
        pk_replay_name(r, l->whos[i], &who);
        pk_prose_add(out, i > first ? ",\n{" : "{");
        number(out, "at_us", x->at_us);
        pk_prose_key(out, "kind");
        pk_prose_quoted(out, pk_record_name(x->kind));
        pk_prose_key(out, "who");
        pk_prose_quoted(out, who.data);
        number(out, "token", x->token);
        number(out, "code", x->code);
        pk_prose_add(out, "}");
        pk_prose_free(&who);
    }
}

void pk_replay_lock_json(const struct pk_replay *r, const struct pk_replay_lock *l,
                         uint32_t most, struct pk_prose *out)
{
    pk_prose_add(out, "{");
    pk_prose_key(out, "name");
    pk_prose_quoted(out, l->name);
    pk_prose_key(out, "counts");
    pk_export_counts(&l->checker, out);
    pk_prose_key(out, "hits");
    pk_prose_add(out, "[");
    for (uint32_t i = 0; i < l->checker.n_hits; i++) {
        struct pk_prose why = {0};
        pk_replay_explain(r, &l->checker.hits[i], &why);
        pk_export_hit(&l->checker.hits[i], why.data, out);
        pk_prose_free(&why);
    }
    pk_prose_add(out, "]");
    pk_prose_key(out, "trace");
    pk_prose_add(out, "[");
    add_records(r, l, most, out);
    pk_prose_add(out, "]}");
}

void pk_replay_json(const struct pk_replay *r, struct pk_prose *out)
{
    pk_prose_add(out, "{");
    number(out, "version", 1);
    number(out, "lines", r->lines);
    number(out, "grants", r->grants);
    number(out, "renewals", r->renewals);
    number(out, "refused", r->refused);
    number(out, "leaders", r->leaders);
    number(out, "gaps", r->gaps);
    number(out, "first_ms", r->first_ms);
    number(out, "last_ms", r->last_ms);
    pk_prose_key(out, "locks");
    pk_prose_add(out, "[");
    const struct pk_replay_lock *first = pk_replay_first(r);
    for (const struct pk_replay_lock *l = first; l != NULL; l = pk_replay_next(l)) {
        pk_prose_add(out, l == first ? "" : ",\n");
        pk_replay_lock_json(r, l, UINT32_MAX, out);
    }
    pk_prose_add(out, "]}\n");
}
