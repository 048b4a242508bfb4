/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/errors.h"
#include "cli/sim.h"
#include "cli/values.h"
#include "sim/replay.h"

enum { PICTURE_WIDTH = 960 };

static void print_counts(const struct pk_replay *r)
{
    char room[PK_SPAN_ROOM];
    (void)printf("%" PRIu32 " %s, %" PRIu32 " leases, %s of cluster time: %" PRIu64
                 " grants, %" PRIu64 " renewals, %" PRIu64 " refused tokens, %" PRIu64
                 " leaders\n",
                 r->n_locks, r->n_locks == 1 ? "lock" : "locks", r->n_leases,
                 pk_values_span(r->last_ms - r->first_ms, room), r->grants, r->renewals,
                 r->refused, r->leaders);
    if (r->gaps > 0) {
        (void)printf("%" PRIu64 " times a part is missing: holds and queues from before "
                     "are not known\n",
                     r->gaps);
    }
    if (r->cut) {
        (void)printf("The last line is unfinished and was left out.\n");
    }
}

static void print_lock(const struct pk_replay *r, const struct pk_replay_lock *l)
{
    const struct pk_checker *c = &l->checker;
    for (uint32_t i = 0; i < c->n_hits; i++) {
        struct pk_prose why = {0};
        pk_replay_explain(r, &c->hits[i], &why);
        (void)printf("%s: %s: %s\n", l->name, pk_check_name(c->hits[i].check), why.data);
        pk_prose_free(&why);
    }
    if (c->queue_full) {
        (void)printf("%s: more than %d waited at once; from then on their order was not "
                     "checked\n",
                     l->name, PK_QUEUE_MAX);
    }
}

/* Returns whether anything broke. */
static bool print_all(const struct pk_replay *r)
{
    static const enum pk_check judged[] = {PK_CHECK_TWO_HOLDERS, PK_CHECK_TOKEN_ORDER,
                                           PK_CHECK_QUEUE_ORDER, PK_CHECK_FENCE_BACK};
    bool broken = false;
    print_counts(r);
    for (size_t i = 0; i < sizeof judged / sizeof judged[0]; i++) {
        uint64_t hits = pk_replay_hits(r, judged[i]);
        broken = broken || hits > 0;
        (void)printf("  %-12s %8" PRIu64 "  %s\n", pk_check_name(judged[i]), hits,
                     pk_check_text(judged[i]));
    }
    const struct pk_replay_lock *l = pk_replay_first(r);
    for (; l != NULL; l = pk_replay_next(l)) {
        print_lock(r, l);
    }
    (void)printf("%s\n"
                 "Not judged, because a service can't see it: two-valid (clients know), "
                 "lost-update\nand stale-write (the resource knows).\n",
                 broken ? "BROKEN." : "Nothing broke.");
    return broken;
}

static int save_files(const struct pk_sim_words *s, const struct pk_replay *r)
{
    struct pk_prose out = {0};
    int code = 0;
    if (s->json != NULL) {
        pk_replay_json(r, &out);
        code = pk_sim_save(s->json, &out);
        pk_prose_free(&out);
    }
    if (code == 0 && s->svg != NULL) {
        pk_replay_picture(r, pk_replay_first(r), (struct pk_replay_part){0},
                          PICTURE_WIDTH, true, &out);
        code = pk_sim_save(s->svg, &out);
        pk_prose_free(&out);
    }
    return code;
}

static int judge(const struct pk_sim_words *s, const struct pk_replay *r)
{
    if (s->lock != NULL && r->n_locks == 0) {
        return pk_errors_fail("sim: %s has nothing about %s", s->file, s->lock);
    }
    if (s->svg != NULL && r->n_locks != 1) {
        return pk_errors_fail("sim: a picture is of one lock, and %s has %" PRIu32
                              "; say --lock NAME",
                              s->file, r->n_locks);
    }
    int code = save_files(s, r);
    bool to_stdout = (s->json != NULL && strcmp(s->json, "-") == 0) ||
                     (s->svg != NULL && strcmp(s->svg, "-") == 0);
    bool broken = false;
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        broken = broken || pk_replay_hits(r, (enum pk_check)i) > 0;
    }
    if (code == 0 && !to_stdout && !pk_errors_quiet()) {
        broken = print_all(r) || broken;
    }
    return code != 0 ? code : broken ? PK_EXIT_NO : 0;
}

int pk_sim_replay(const struct pk_sim_words *s)
{
    size_t len;
    uint32_t line;
    char *text = pk_sim_load(s->file, &len);
    if (text == NULL) {
        return PK_EXIT_ERROR;
    }
    struct pk_replay *r = pk_replay_new(pk_text(s->lock));
    const char *wrong = pk_replay_read(r, text, len, &line);
    const char *name = strcmp(s->file, "-") == 0 ? "standard input" : s->file;
    int code = wrong == NULL ? judge(s, r)
                             : pk_errors_fail("%s:%" PRIu32 ": %s", name, line, wrong);
    pk_replay_free(r);
    free(text);
    return code;
}
