/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "cli/rows.h"
#include "core/limits.h"

struct settings {
    struct pk_common common;
    uint64_t token;
    const char *reason;
};

static const struct pk_option own[] = {
    {PK_OPTION_NUMBER, 0, "token", "N",
     "which hold (default: the only one; with several,\nthey are listed)",
     offsetof(struct settings, token), 1, PK_TOKEN_MAX},
    {PK_OPTION_TEXT, 0, "reason", "TEXT",
     "why; recorded, and told to the holder (required)",
     offsetof(struct settings, reason), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

/* Refuses to choose among several holders, and lists them. */
static int list_holders(const struct picket_view *v)
{
    char list[1024] = "";
    char owner[PK_OWNER_ROOM];
    size_t used = 0;
    for (size_t i = 0; i < v->n_rows && v->rows[i].place == 0; i++) {
        int n = snprintf(list + used, sizeof list - used, "%s%" PRIu64 " is %s",
                         i == 0 ? "" : ", ", v->rows[i].token,
                         pk_rows_owner(&v->rows[i], owner));
        if (n < 0 || (size_t)n >= sizeof list - used) {
            list[used] = '\0'; /* no room for this one; 'picket show' has them all */
            break;
        }
        used += (size_t)n;
    }
    return pk_errors_fail("break: %s has %" PRIu32
                          " holders; say which one by --token: %s",
                          v->name, v->holders, list);
}

/* Finds the only holder of the lock. 0 with its token, or an exit code. */
static int find_holder(struct picket *p, const char *name, uint64_t *token)
{
    struct picket_view *v;
    int code = 0;
    enum picket_status status = picket_show(p, name, &v);
    if (status != PICKET_OK) {
        return pk_errors_status(status);
    }
    const struct picket_row *holder = pk_rows_holder(v);
    if (holder == NULL) {
        pk_errors_remark("nobody holds %s; there is nothing to break", name);
        code = PK_EXIT_NO;
    } else if (v->holders > 1) {
        code = list_holders(v);
    } else if (holder->token == 0 && picket_guarantees(p)->tokens != 0) {
        code =
            pk_errors_fail("%s is held by another kind of client, without a token; end "
                           "it there",
                           name);
    } else {
        *token = holder->token;
    }
    picket_view_free(v);
    return code;
}

static int break_hold(struct picket *p, const char *name, const struct settings *s)
{
    uint64_t token = s->token;
    int code = token != 0 ? 0 : find_holder(p, name, &token);
    if (code != 0) {
        return code;
    }
    enum picket_status status = picket_break(p, name, token, s->reason);
    if (status == PICKET_NOTHELD) {
        pk_errors_remark("%s is not held with token %" PRIu64 "; nothing was broken",
                         name, token);
        return PK_EXIT_NO;
    }
    if (status != PICKET_OK) {
        return pk_errors_status(status);
    }
    if (s->common.json) {
        struct pk_json j = {0};
        pk_json_object(&j, NULL);
        pk_json_text(&j, "lock", name);
        pk_json_number(&j, "token", token);
        pk_json_text(&j, "reason", s->reason);
        pk_json_end_object(&j);
    }
    pk_errors_detail("the hold of %s with token %" PRIu64 " is broken", name, token);
    return 0;
}

static int run(int argc, char **argv)
{
    struct picket *p;
    struct pk_words words;
    struct settings s = {0};
    int code = pk_options_parse(&pk_cli_break, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    if (s.reason == NULL || s.reason[0] == '\0') {
        return pk_errors_fail(
            "break: why? Say --reason TEXT; it is recorded and told to the "
            "holder");
    }
    code = pk_cli_open(&s.common, NULL, &p);
    if (code == 0) {
        code = break_hold(p, words.at[0], &s);
        picket_close(p);
    }
    return code;
}

const struct pk_cli_verb pk_cli_break = {
    .name = "break",
    .brief = "end somebody's hold, for operators",
    .usage = "LOCK [--token N] --reason TEXT",
    .about = "Ends a hold of LOCK, whoever has it. The holder is told that it lost the "
             "lock, a\n"
             "command under 'picket run' is ended, and the lock stays closed for the "
             "holder's\n"
             "lock-delay. Without --token the only holder's; with it nobody else's by "
             "mistake.\n"
             "\n"
             "A holder that can't be told, because it is stopped, runs on until its own "
             "lease's\n"
             "safe time is over. Only a fence keeps its writes out meanwhile.",
    .exits =
        "  0    broken\n"
        "  1    nothing to break: not held, or not with that token\n"
        "  122  not allowed\n"
        "  125  our own error: a wrong call, several holders, the store out of reach",
    .examples = "  picket break backup --reason 'host web3 is being taken down'\n"
                "  picket break encoder --token 42 --reason 'stuck since noon'",
    .words = "LOCK",
    .words_min = 1,
    .words_max = 1,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
