/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "cli/rows.h"
#include "cli/values.h"

struct settings {
    struct pk_common common;
};

static const struct pk_option_group groups[] = {
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

static const char *state_of(const struct picket_view *v)
{
    if (v->holders > 0) {
        return "held";
    }
    return v->closed_ms > 0 ? "closed" : "free";
}

static void print_head(const struct picket_view *v)
{
    char span[PK_SPAN_ROOM];
    const struct picket_row *holder = pk_rows_holder(v);
    (void)printf("%s: %s", v->name, state_of(v));
    if (holder != NULL && v->slots > 0) {
        (void)printf(", %" PRIu32 " of %" PRIu32 " slots", v->holders, v->slots);
    } else if (holder != NULL) {
        (void)printf(", %s", pk_rows_mode(holder->mode));
    }
    if (v->closed_ms > 0) {
        (void)printf(", for another %s after a holder was lost",
                     pk_values_span(v->closed_ms, span));
    }
    if (v->waiters > 0) {
        (void)printf("; %" PRIu32 " waiting", v->waiters);
    }
    (void)putchar('\n');
}

static void print_row(const struct picket_row *r)
{
    char owner[PK_OWNER_ROOM];
    char since[PK_SPAN_ROOM];
    char left[PK_SPAN_ROOM];
    (void)pk_rows_owner(r, owner);
    (void)pk_values_span(r->for_ms, since);
    (void)pk_values_span(r->left_ms, left);
    if (r->place == 0) {
        char token[32] = "no token";
        if (r->token != 0) {
            (void)snprintf(token, sizeof token, "token %" PRIu64, r->token);
        }
        (void)printf("  held by %s for %s, %s\n", owner, since, token);
    } else {
        (void)printf("  %" PRIu32 ". %s waits for %s, %s\n", r->place, owner, since,
                     pk_rows_mode(r->mode));
    }
    (void)printf("      lease %" PRIu64 ", %s left\n", r->lease, left);
    if (r->note[0] != '\0') {
        (void)printf("      note: %s\n", r->note);
    }
    if (r->value_len > 0) {
        (void)fputs("      value: ", stdout);
        pk_output_bytes(r->value, r->value_len);
        (void)putchar('\n');
    }
}

static void print_text(const struct picket_view *v)
{
    print_head(v);
    for (size_t i = 0; i < v->n_rows; i++) {
        print_row(&v->rows[i]);
    }
    size_t all = (size_t)v->holders + v->waiters;
    if (v->n_rows < all) {
        (void)printf("  and %zu more\n", all - v->n_rows);
    }
}

/* The holds, or the waits, of a view as an array. */
static void print_rows(struct pk_json *j, const char *key, const struct picket_view *v,
                       bool waits)
{
    pk_json_array(j, key);
    for (size_t i = 0; i < v->n_rows; i++) {
        if ((v->rows[i].place > 0) == waits) {
            pk_json_object(j, NULL);
            pk_rows_json(j, &v->rows[i]);
            pk_json_end_object(j);
        }
    }
    pk_json_end_array(j);
}

static void print_json(const struct picket_view *v)
{
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "lock", v->name);
    pk_json_text(&j, "state", state_of(v));
    pk_json_number(&j, "slots", v->slots);
    pk_json_number(&j, "holders", v->holders);
    pk_json_number(&j, "waiters", v->waiters);
    pk_json_number(&j, "closed_ms", v->closed_ms);
    print_rows(&j, "holds", v, false);
    print_rows(&j, "queue", v, true);
    pk_json_end_object(&j);
}

static int run(int argc, char **argv)
{
    struct picket *p;
    struct picket_view *v;
    struct pk_words words;
    struct settings s = {0};
    int code = pk_options_parse(&pk_cli_show, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    code = pk_cli_open(&s.common, NULL, &p);
    if (code != 0) {
        return code;
    }
    enum picket_status status = picket_show(p, words.at[0], &v);
    if (status != PICKET_OK) {
        return pk_cli_give_up(p, status);
    }
    if (s.common.quiet) {
        code = v->holders > 0 ? 0 : PK_EXIT_NO;
    } else if (s.common.json) {
        print_json(v);
    } else {
        print_text(v);
    }
    picket_view_free(v);
    picket_close(p);
    return code;
}

const struct pk_cli_verb pk_cli_show = {
    .name = "show",
    .alias = "why",
    .brief = "tell who holds a lock and who waits (also: why)",
    .usage = "[OPTIONS] LOCK",
    .about = "Tells who holds LOCK, for how long and with which token, and who waits for "
             "it, in the\n"
             "order in which they will get it. A lock that lost its holder may be closed "
             "for a\n"
             "while: that is its lock-delay. With -q nothing is printed and the exit "
             "code answers.",
    .exits = "  0    shown; with -q: somebody holds it\n"
             "  1    with -q: nobody holds it\n"
             "  122  not allowed\n"
             "  125  our own error: a wrong call, the store out of reach",
    .examples = "  picket show backup\n"
                "  picket show -q backup && echo 'the backup is running'\n"
                "  picket show -o json backup | jq '.holds[0].token'",
    .words = "LOCK",
    .words_min = 1,
    .words_max = 1,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
