/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "cli/rows.h"
#include "cli/values.h"

struct settings {
    struct pk_common common;
    uint64_t count;
};

static const struct pk_option own[] = {
    {PK_OPTION_NUMBER, 0, "count", "N", "exit after N events (default: never)",
     offsetof(struct settings, count), 1, UINT64_MAX},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

/* The mode of the claim or of the fence that the event is about; NULL: it has none. */
static const char *mode_of(const struct picket_event *e)
{
    if (strcmp(e->what, "fence-mode") == 0) {
        return e->shadow ? "shadow" : "enforce";
    }
    bool claim = strcmp(e->what, "granted") == 0 || strcmp(e->what, "queued") == 0;
    return claim ? pk_rows_mode(e->mode) : NULL;
}

static void print_json(const struct picket_event *e)
{
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "event", e->what);
    pk_json_number(&j, "time_ms", e->time_ms);
    if (e->name[0] != '\0') {
        bool fence = strncmp(e->what, "fence-", 6) == 0;
        pk_json_text(&j, fence ? "resource" : "lock", e->name);
    }
    if (e->lease != 0) {
        pk_json_id(&j, "lease", e->lease);
    }
    if (mode_of(e) != NULL) {
        pk_json_text(&j, "mode", mode_of(e));
    }
    const struct {
        const char *key;
        uint64_t n;
    } numbers[] = {{"token", e->token}, {"place", e->place}, {"closed_ms", e->closed_ms}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].n != 0) {
            pk_json_number(&j, numbers[i].key, numbers[i].n);
        }
    }
    const char *const texts[][2] = {
        {"why", e->why}, {"by", e->by}, {"reason", e->reason}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i][1][0] != '\0') {
            pk_json_text(&j, texts[i][0], texts[i][1]);
        }
    }
    if (e->value_len > 0) {
        pk_json_bytes(&j, "value", e->value, e->value_len);
    }
    pk_json_end_object(&j);
}

static void print_text(const struct picket_event *e)
{
    char span[PK_SPAN_ROOM];
    (void)printf("%s%s%s", e->what, e->name[0] != '\0' ? " " : "", e->name);
    if (mode_of(e) != NULL) {
        (void)printf(" %s", mode_of(e));
    }
    if (e->why[0] != '\0') {
        (void)printf(" %s", e->why);
    }
    if (e->token != 0) {
        (void)printf(" token=%" PRIu64, e->token);
    }
    if (e->lease != 0) {
        (void)printf(" lease=%" PRIu64, e->lease);
    }
    if (e->place != 0) {
        (void)printf(" place=%" PRIu32, e->place);
    }
    if (e->closed_ms != 0) {
        (void)printf(" for=%s", pk_values_span(e->closed_ms, span));
    }
    if (e->by[0] != '\0') {
        (void)printf(" by=%s", e->by);
    }
    if (e->reason[0] != '\0') {
        (void)printf(" reason=%s", e->reason);
    }
    if (e->value_len > 0) {
        (void)fputs(" value=", stdout);
        pk_output_bytes(e->value, e->value_len);
    }
    (void)putchar('\n');
}

static enum picket_status watch(struct picket_watch *w, const struct settings *s)
{
    struct picket_event e;
    enum picket_status status = PICKET_OK;
    for (uint64_t n = 0; status == PICKET_OK && (s->count == 0 || n < s->count); n++) {
        status = picket_watch_next(w, -1, &e);
        if (status == PICKET_OK && s->common.json) {
            print_json(&e);
        } else if (status == PICKET_OK) {
            print_text(&e);
        }
        if (fflush(stdout) != 0) {
            break; /* main() says so */
        }
    }
    return status;
}

static int run(int argc, char **argv)
{
    struct picket *p;
    struct picket_watch *w;
    struct pk_words words;
    struct settings s = {0};
    int code = pk_options_parse(&pk_cli_watch, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    code = pk_cli_open(&s.common, NULL, &p);
    if (code != 0) {
        return code;
    }
    const char *prefix = words.at[0] != NULL ? words.at[0] : "";
    enum picket_status status = picket_watch_open(p, prefix, &w);
    if (status == PICKET_OK) {
        pk_errors_detail("watching %s", prefix[0] != '\0' ? prefix : "everything");
        status = watch(w, &s);
        picket_watch_close(w);
    }
    if (status != PICKET_OK) {
        return pk_cli_give_up(p, status);
    }
    picket_close(p);
    return 0;
}

const struct pk_cli_verb pk_cli_watch = {
    .name = "watch",
    .brief = "print what happens to locks and fences, as it happens",
    .usage = "[OPTIONS] [PREFIX]",
    .about = "Prints one line for each event of the locks and fences whose names begin "
             "with PREFIX:\n"
             "granted, queued, left, ended, value, closed, opened, fence-raised, "
             "fence-set, fence-mode,\n"
             "fence-shadowed, fence-ended; without PREFIX also lease-opened, lease-ended "
             "and leapt.\n"
             "'gap' means that some were missed: look again. With -v says on standard "
             "error when it\n"
             "has begun to watch.",
    .exits = "  0    after --count events\n"
             "  122  not allowed\n"
             "  125  our own error: a wrong call, the store out of reach",
    .examples = "  picket watch reports/\n"
                "  picket watch -o json --count 1 backup | jq -r .event",
    .words = "PREFIX",
    .words_max = 1,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
