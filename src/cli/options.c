/* SPDX-License-Identifier: MIT */
#include "cli/options.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/argv.h"
#include "cli/errors.h"
#include "cli/values.h"
#include "core/door.h"

enum { ROWS_MAX = 40, LONG_BASE = 256 };

const struct pk_option pk_options_common[] = {
    {PK_OPTION_TEXT, 0, "on", "URL",
     "the store: local:DIR, picket://, redis://, redlock://,\netcd://, zk://, "
     "consul://, postgres:// (default:\n$PICKET_URL, else local:)",
     offsetof(struct pk_common, url), 0, 0},
    {PK_OPTION_FLAG, 'q', "quiet", NULL, "say nothing but errors",
     offsetof(struct pk_common, quiet), 0, 0},
    {PK_OPTION_FLAG, 'v', "verbose", NULL, "say what is being done",
     offsetof(struct pk_common, verbose), 0, 0},
    {PK_OPTION_FLAG, 'h', "help", NULL, "print this and exit",
     offsetof(struct pk_common, help), 0, 0},
    {0},
};

const struct pk_option pk_options_output[] = {
    {PK_OPTION_FORMAT, 'o', "output", "FORMAT", "text (the default) or json",
     offsetof(struct pk_common, json), 0, 0},
    {0},
};

/* The rows of all groups in one list, and what getopt_long wants to be told of them. */
struct parser {
    const struct pk_cli_verb *verb;
    char *settings;
    const struct pk_option *rows[ROWS_MAX];
    size_t bases[ROWS_MAX];
    size_t count;
    struct option longs[ROWS_MAX + 1];
    char letters[2 * ROWS_MAX + 3];
};

static bool takes_value(const struct pk_option *o)
{
    return o->kind != PK_OPTION_FLAG && o->kind != PK_OPTION_FIXED;
}

static void add_row(struct parser *p, const struct pk_option *o, size_t base)
{
    size_t letters = strlen(p->letters);
    PK_ASSERT(p->count < ROWS_MAX);
    p->rows[p->count] = o;
    p->bases[p->count] = base;
    if (o->letter != 0) {
        p->letters[letters++] = o->letter;
        p->letters[letters] = takes_value(o) ? ':' : '\0';
    }
    /* A row without a long name keeps its place under one that nobody can type. */
    p->longs[p->count].name = o->name != NULL ? o->name : "\n";
    p->longs[p->count].has_arg = takes_value(o) ? required_argument : no_argument;
    p->longs[p->count].val = LONG_BASE + (int)p->count;
    p->count++;
}

static void collect_rows(struct parser *p)
{
    p->letters[0] = '+';
    p->letters[1] = ':';
    for (const struct pk_option_group *g = p->verb->groups; g->options != NULL; g++) {
        for (const struct pk_option *o = g->options; o->kind != PK_OPTION_END; o++) {
            add_row(p, o, g->base);
        }
    }
}

static size_t find_row(const struct parser *p, int c)
{
    size_t i = 0;
    if (c >= LONG_BASE) {
        return (size_t)(c - LONG_BASE);
    }
    while (i < p->count && p->rows[i]->letter != c) {
        i++;
    }
    return i;
}

/* What a row is called where it went wrong. */
static const char *row_name(const struct pk_option *o, char *buf, size_t room)
{
    if (o->name != NULL) {
        (void)snprintf(buf, room, "--%s", o->name);
    } else {
        (void)snprintf(buf, room, "-%c", o->letter);
    }
    return buf;
}

static const char *check_span(const struct pk_option *o, uint64_t ms)
{
    static char text[80];
    char least[PK_SPAN_ROOM];
    char most[PK_SPAN_ROOM];
    if (ms >= o->min && ms <= o->max) {
        return NULL;
    }
    (void)snprintf(text, sizeof text, "is not between %s and %s",
                   pk_values_span(o->min, least), pk_values_span(o->max, most));
    return text;
}

static const char *add_to_list(struct pk_option_list *l, const char *text)
{
    static char too_many[40];
    if (l->count == PK_OPTION_LIST_MAX) {
        (void)snprintf(too_many, sizeof too_many, "is one too many; %d is the limit",
                       PK_OPTION_LIST_MAX);
        return too_many;
    }
    l->at[l->count++] = text;
    return NULL;
}

/* Puts a value where its row says; returns what is wrong with it, or NULL. */
static const char *store(const struct pk_option *o, char *at, const char *text)
{
    const char *wrong = NULL;
    uint64_t number = 0;
    switch (o->kind) {
    case PK_OPTION_FLAG:
        *(bool *)at = true;
        break;
    case PK_OPTION_FIXED:
        *(int64_t *)(void *)at = (int64_t)o->min;
        break;
    case PK_OPTION_TEXT:
        *(const char **)(void *)at = text;
        break;
    case PK_OPTION_LIST:
        return add_to_list((struct pk_option_list *)(void *)at, text);
    case PK_OPTION_NUMBER:
        return pk_values_read_number(text, o->min, o->max, (uint64_t *)(void *)at);
    case PK_OPTION_SPAN:
    case PK_OPTION_WAIT:
        wrong = pk_values_read_span(text, o->kind == PK_OPTION_WAIT, &number);
        if (wrong == NULL) {
            wrong = check_span(o, number);
        }
        if (wrong == NULL) {
            *(uint64_t *)(void *)at = number;
        }
        return wrong;
    case PK_OPTION_FORMAT:
        *(bool *)at = strcmp(text, "json") == 0;
        return *(bool *)at || strcmp(text, "text") == 0 ? NULL
                                                        : "is neither text nor json";
    case PK_OPTION_END:
        break;
    }
    return NULL;
}

/* Says why getopt_long refused `given`. */
static int complain(const struct parser *p, const char *given, bool no_value)
{
    char name[40];
    const char *verb = p->verb->name;
    size_t row = find_row(p, optopt);
    if (no_value && row < p->count) {
        return pk_errors_fail("%s: %s wants a value; see 'picket %s --help'", verb,
                              row_name(p->rows[row], name, sizeof name), verb);
    }
    if (given[1] != '-') {
        return pk_errors_fail("%s: there is no option -%c; see 'picket %s --help'", verb,
                              optopt, verb);
    }
    if (optopt != 0 && row < p->count) {
        return pk_errors_fail("%s: %s takes no value; see 'picket %s --help'", verb,
                              row_name(p->rows[row], name, sizeof name), verb);
    }
    return pk_errors_fail("%s: there is no option %s; see 'picket %s --help'", verb,
                          given, verb);
}

/* Takes one option, which stands at argv[optind]. 0, or an exit code. */
static int take_option(struct parser *p, int argc, char **argv)
{
    char name[40];
    const char *given = argv[optind];
    int c = getopt_long(argc, argv, p->letters, p->longs, NULL);
    if (c == '?' || c == ':') {
        return complain(p, given, c == ':');
    }
    size_t row = find_row(p, c);
    PK_ASSERT(row < p->count);
    char *at = p->settings + p->bases[row] + p->rows[row]->offset;
    const char *wrong = store(p->rows[row], at, optarg);
    if (wrong != NULL) {
        return pk_errors_fail("%s: %s \"%s\" %s", p->verb->name,
                              row_name(p->rows[row], name, sizeof name), optarg, wrong);
    }
    return 0;
}

/* Options, words and the command, in the order in which they come. */
static int take_all(struct parser *p, int argc, char **argv, struct pk_words *w)
{
    const struct pk_cli_verb *v = p->verb;
    bool options_over = false;
    optind = 1;
    opterr = 0;
    while (optind < argc) {
        const char *arg = argv[optind];
        bool dashes = strcmp(arg, "--") == 0;
        if (dashes && v->command && w->count > 0) {
            w->command = argv + optind + 1;
            w->dashes = true;
            return 0;
        }
        if (!options_over && arg[0] == '-' && arg[1] != '\0' && !dashes) {
            int code = take_option(p, argc, argv);
            if (code != 0) {
                return code;
            }
            continue;
        }
        if (dashes && !options_over) {
            options_over = true;
        } else if (w->count < v->words_max) {
            w->at[w->count++] = arg;
        } else if (v->command) {
            w->command = argv + optind;
            return 0;
        } else {
            return pk_errors_fail(
                "%s: \"%s\" is one word too many; see 'picket %s --help'", v->name, arg,
                v->name);
        }
        optind++;
    }
    return 0;
}

int pk_options_parse(const struct pk_cli_verb *v, int argc, char **argv, void *settings,
                     struct pk_words *w)
{
    struct parser p = {.verb = v, .settings = settings};
    const struct pk_common *common = (void *)((char *)settings + v->common);
    *w = (struct pk_words){0};
    collect_rows(&p);
    int code = take_all(&p, argc, argv, w);
    if (common->help) {
        pk_options_help(v);
        return 0;
    }
    if (w->command != NULL && w->command[0] != NULL) {
        pk_argv_hide_from(w->command + 1);
    }
    if (code != 0) {
        return code;
    }
    if (common->url != NULL && common->url[0] == '\0') {
        return pk_errors_fail("%s: --on \"\" is not a URL; say local: or local:DIR",
                              v->name);
    }
    pk_errors_loudness(common->quiet, common->verbose);
    if (w->count < v->words_min) {
        return pk_errors_fail("%s: %s is missing; see 'picket %s --help'", v->name,
                              v->words, v->name);
    }
    return -1;
}

/* One row of help; further lines of its text stand under the first. */
static void print_row(const struct pk_option *o)
{
    char left[64];
    char letter[] = {'-', o->letter, o->name != NULL ? ',' : '\0', '\0'};
    int used = snprintf(left, sizeof left, "  %3s %s%s%s%s", o->letter != 0 ? letter : "",
                        o->name != NULL ? "--" : "", o->name != NULL ? o->name : "",
                        o->arg != NULL ? " " : "", o->arg != NULL ? o->arg : "");
    (void)printf("%-28s%s", left, used >= 28 ? "\n                            " : "");
    for (const char *at = o->help; *at != '\0'; at++) {
        (void)putchar(*at);
        if (*at == '\n') {
            (void)printf("%28s", "");
        }
    }
    (void)putchar('\n');
}

void pk_options_help(const struct pk_cli_verb *v)
{
    const char *line = v->usage;
    const char *lead = "Usage:";
    while (*line != '\0') {
        size_t len = strcspn(line, "\n");
        (void)printf("%-6s picket %s %.*s\n", lead, v->name, (int)len, line);
        lead = "";
        line += len + (line[len] == '\n');
    }
    (void)printf("\n%s\n\nOptions:\n", v->about);
    for (const struct pk_option_group *g = v->groups; g->options != NULL; g++) {
        for (const struct pk_option *o = g->options; o->kind != PK_OPTION_END; o++) {
            print_row(o);
        }
    }
    (void)printf("\nExit codes:\n%s\n\nExamples:\n%s\n", v->exits, v->examples);
}

int pk_options_or_env(uint64_t *value, const char *name, uint64_t max)
{
    const char *text = getenv(name);
    if (*value != 0 || text == NULL || text[0] == '\0') {
        return 0;
    }
    const char *wrong = pk_values_read_number(text, 1, max, value);
    return wrong == NULL ? 0 : pk_errors_fail("$%s \"%s\" %s", name, text, wrong);
}
