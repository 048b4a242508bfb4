/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "cli/rows.h"
#include "cli/values.h"
#include "core/limits.h"

struct settings {
    struct pk_common common;
};

static const struct pk_option_group groups[] = {
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

/* The list as it goes out, page by page. */
struct listing {
    bool json;
    bool names;
    struct pk_json j;
    struct pk_table table;
};

static void begin(struct listing *l)
{
    static const char *const heads[] = {"LOCK", "MODE", "HOLDER", "TOKEN",
                                        "HELD", "LEFT", "QUEUE"};
    l->table.columns = sizeof heads / sizeof heads[0];
    if (l->json) {
        pk_json_array(&l->j, NULL);
    } else if (!l->names) {
        for (size_t i = 0; i < l->table.columns; i++) {
            pk_table_add(&l->table, "%s", heads[i]);
        }
    }
}

static void add_json(struct listing *l, const struct picket_row *r)
{
    pk_json_object(&l->j, NULL);
    pk_json_text(&l->j, "lock", r->name);
    pk_json_number(&l->j, "slots", r->slots);
    pk_json_number(&l->j, "holders", r->holders);
    pk_json_number(&l->j, "waiters", r->waiters);
    pk_json_number(&l->j, "closed_ms", r->closed_ms);
    if (r->holders > 0) {
        pk_json_object(&l->j, "holder");
        pk_rows_json(&l->j, r);
        pk_json_end_object(&l->j);
    } else {
        pk_json_null(&l->j, "holder");
    }
    pk_json_end_object(&l->j);
}

static void add_held(struct pk_table *t, const struct picket_row *r)
{
    char owner[PK_OWNER_ROOM];
    char held[PK_SPAN_ROOM];
    char left[PK_SPAN_ROOM];
    if (r->slots > 0) {
        pk_table_add(t, "slots %" PRIu32 "/%" PRIu32, r->holders, r->slots);
    } else {
        pk_table_add(t, "%s", pk_rows_mode(r->mode));
    }
    (void)pk_rows_who(r, owner);
    if (r->holders > 1) {
        pk_table_add(t, "%s +%" PRIu32, owner, r->holders - 1);
    } else {
        pk_table_add(t, "%s", owner);
    }
    if (r->token != 0) {
        pk_table_add(t, "%" PRIu64, r->token);
    } else {
        pk_table_add(t, "none");
    }
    pk_table_add(t, "%s", pk_values_span(r->for_ms, held));
    pk_table_add(t, "%s", pk_values_span(r->left_ms, left));
}

static void add_text(struct pk_table *t, const struct picket_row *r)
{
    char left[PK_SPAN_ROOM] = "-";
    pk_table_add(t, "%s", r->name);
    if (r->holders > 0) {
        add_held(t, r);
    } else {
        if (r->closed_ms > 0) {
            (void)pk_values_span(r->closed_ms, left);
        }
        pk_table_add(t, "%s", r->closed_ms > 0 ? "closed" : "-");
        pk_table_add(t, "-");
        pk_table_add(t, "-");
        pk_table_add(t, "-");
        pk_table_add(t, "%s", left);
    }
    pk_table_add(t, "%" PRIu32, r->waiters);
}

static void add_page(struct listing *l, const struct picket_view *v)
{
    for (size_t i = 0; i < v->n_rows; i++) {
        if (l->json) {
            add_json(l, &v->rows[i]);
        } else if (l->names) {
            (void)puts(v->rows[i].name);
        } else {
            add_text(&l->table, &v->rows[i]);
        }
    }
    if (!l->json && !l->names) {
        pk_table_print(&l->table);
    }
}

static enum picket_status list(struct picket *p, const char *prefix, struct listing *l)
{
    char after[PK_NAME_MAX + 1] = "";
    bool more = true;
    while (more) {
        struct picket_view *v;
        enum picket_status s =
            picket_list(p, prefix, after[0] != '\0' ? after : NULL, PK_PAGE_MAX, &v);
        if (s != PICKET_OK) {
            return s;
        }
        if (after[0] == '\0') {
            begin(l); /* not before the store has answered once */
        }
        add_page(l, v);
        /* A server of before `more` says nothing of it: a full page may have a next. */
        more = (v->more != 0 && v->n_rows > 0) || v->n_rows == PK_PAGE_MAX;
        if (more) {
            (void)snprintf(after, sizeof after, "%s", v->rows[v->n_rows - 1].name);
        }
        picket_view_free(v);
    }
    if (l->json) {
        pk_json_end_array(&l->j);
    }
    return PICKET_OK;
}

static int run(int argc, char **argv)
{
    struct picket *p;
    struct pk_words words;
    struct settings s = {0};
    int code = pk_options_parse(&pk_cli_ls, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    code = pk_cli_open(&s.common, NULL, &p);
    if (code != 0) {
        return code;
    }
    struct listing l = {.json = s.common.json, .names = s.common.quiet};
    const char *prefix = words.at[0] != NULL ? words.at[0] : "";
    enum picket_status status = list(p, prefix, &l);
    if (status != PICKET_OK) {
        return pk_cli_give_up(p, status);
    }
    picket_close(p);
    return 0;
}

const struct pk_cli_verb pk_cli_ls = {
    .name = "ls",
    .brief = "list the locks that are held, waited for or closed",
    .usage = "[OPTIONS] [PREFIX]",
    .about = "Lists the locks whose names begin with PREFIX, in the order of their "
             "names, each with\n"
             "its oldest holder: how long it has held, and what is left of its lease. +N "
             "stands\n"
             "for N more holders. A closed lock is one that lost its holder, until its "
             "lock-delay\n"
             "(under LEFT) is over. A free lock is not listed. With -q, names only.",
    .exits = "  0    listed\n"
             "  122  not allowed\n"
             "  125  our own error: a wrong call, the store out of reach",
    .examples = "  picket ls\n"
                "  picket ls -o json reports/ | jq -r '.[].lock'",
    .words = "PREFIX",
    .words_max = 1,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
