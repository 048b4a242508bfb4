/* SPDX-License-Identifier: MIT */
/* A replayed trace as a picture and as JSON. */
#include <string.h>

#include "core/door.h"
#include "sim/export.h"
#include "sim/picture.h"
#include "sim/replay.h"

enum { DRAWN_MAX = 2000 }; /* more than that nobody can look at */

/* Some of a lock's records: from `first` up to, but not with, `end`. */
struct range {
    uint32_t first, end;
};

/* The last ones before the end of the part. */
static struct range last_of(const struct pk_replay_lock *l, struct pk_replay_part part,
                            uint32_t most)
{
    uint32_t end = l->n_records;
    while (part.to_us != 0 && end > 0 && l->records[end - 1].at_us > part.to_us) {
        end--;
    }
    return (struct range){.first = end > most ? end - most : 0, .end = end};
}

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

/* The last ones there were, in the order in which they came. */
static void choose_lanes(const struct pk_replay *r, const struct pk_replay_lock *l,
                         struct range drawn, struct lanes *out)
{
    for (uint32_t i = drawn.end; i-- > drawn.first && out->count < PK_CLIENTS_MAX;) {
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
static uint32_t laned(const struct pk_replay_lock *l, struct range drawn,
                      const struct lanes *x, struct pk_record *out)
{
    uint32_t n = 0;
    for (uint32_t i = drawn.first; i < drawn.end; i++) {
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
                       struct pk_replay_part part, uint32_t width, bool styled,
                       struct pk_prose *out)
{
    struct lanes lanes = {0};
    const char *names[PK_CLIENTS_MAX];
    struct pk_hit hits[PK_HITS_MAX];
    struct range drawn = last_of(l, part, DRAWN_MAX);
    choose_lanes(r, l, drawn, &lanes);
    struct pk_record *records =
        pk_door_resize(NULL, (drawn.end - drawn.first + 1) * sizeof records[0]);
    struct pk_picture p = {.trace = records,
                           .clients = lanes.count,
                           .names = names,
                           .to_us = part.to_us != 0 ? part.to_us : r->last_ms * 1000,
                           .width = width,
                           .hits = hits,
                           .n_hits = l->checker.n_hits,
                           .title = l->name,
                           .styled = styled};
    p.count = laned(l, drawn, &lanes, records);
    p.from_us = part.from_us != 0 || p.count == 0 ? part.from_us : records[0].at_us;
    for (uint32_t i = 0; i < p.n_hits; i++) { /* their moment, not their record's mark */
        hits[i] = l->checker.hits[i];
        hits[i].record = UINT32_MAX;
    }
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

static void add_records(const struct pk_replay *r, const struct pk_replay_lock *l,
                        struct range told, struct pk_prose *out)
{
    for (uint32_t i = told.first; i < told.end; i++) {
        const struct pk_record *x = &l->records[i];
        struct pk_prose who = {0};
        pk_replay_name(r, l->whos[i], &who);
        pk_prose_add(out, i > told.first ? ",\n{" : "{");
        pk_prose_key_number(out, "at_us", x->at_us);
        pk_prose_key_text(out, "kind", pk_record_name(x->kind));
        pk_prose_key_text(out, "who", who.data);
        pk_prose_key_number(out, "token", x->token);
        pk_prose_key_number(out, "code", x->code);
        pk_prose_add(out, "}");
        pk_prose_free(&who);
    }
}

void pk_replay_lock_json(const struct pk_replay *r, const struct pk_replay_lock *l,
                         struct pk_replay_part part, uint32_t most, struct pk_prose *out)
{
    struct range told = last_of(l, part, most);
    while (told.first < told.end && l->records[told.first].at_us < part.from_us) {
        told.first++;
    }
    pk_prose_add(out, "{");
    pk_prose_key_text(out, "name", l->name);
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
    add_records(r, l, told, out);
    pk_prose_add(out, "]}");
}

void pk_replay_json(const struct pk_replay *r, struct pk_prose *out)
{
    pk_prose_add(out, "{");
    pk_prose_key_number(out, "version", 1);
    pk_prose_key_number(out, "lines", r->lines);
    pk_prose_key_number(out, "grants", r->grants);
    pk_prose_key_number(out, "renewals", r->renewals);
    pk_prose_key_number(out, "refused", r->refused);
    pk_prose_key_number(out, "leaders", r->leaders);
    pk_prose_key_number(out, "gaps", r->gaps);
    pk_prose_key_number(out, "first_ms", r->first_ms);
    pk_prose_key_number(out, "last_ms", r->last_ms);
    pk_prose_key(out, "locks");
    pk_prose_add(out, "[");
    const struct pk_replay_lock *first = pk_replay_first(r);
    for (const struct pk_replay_lock *l = first; l != NULL; l = pk_replay_next(l)) {
        pk_prose_add(out, l == first ? "" : ",\n");
        pk_replay_lock_json(r, l, (struct pk_replay_part){0}, UINT32_MAX, out);
    }
    pk_prose_add(out, "]}\n");
}
