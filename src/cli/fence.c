/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/fence.h"
#include "cli/output.h"
#include "cli/values.h"
#include "core/door.h"
#include "core/limits.h"
#include "host/memory.h"

/* What went in or came out, and what the fence said. */
struct answer {
    enum picket_status status;
    uint64_t fence;
    char *value; /* malloc'ed */
    size_t len;
    struct picket_fence_state state; /* of show */
};

struct action {
    const char *name;
    enum { NO_TOKEN, MAY_TOKEN, WANTS_TOKEN } token;
    bool takes_value;
    void (*act)(struct picket_resource *r, const struct pk_fence_words *s,
                struct answer *a);
    /* For those that are no question to one fence; returns the exit code. */
    int (*run)(const struct pk_fence_words *s);
};

#define AT(field) offsetof(struct pk_fence_words, field)

static const struct pk_option own[] = {
    {PK_OPTION_NUMBER, 0, "token", "N", "the fencing token (default: $PICKET_TOKEN)",
     AT(token), 1, PK_TOKEN_MAX},
    {PK_OPTION_TEXT, 0, "resource", "URL",
     "what keeps the fence (default: the lock store):\nfile:DIR, sqlite:FILE, "
     "postgres://..., mysql://...,\nredis://..., local:DIR, picket://...",
     AT(url), 0, 0},
    {PK_OPTION_TEXT, 0, "file", "FILE",
     "put: read the value from FILE (-: standard input)", AT(file), 0, 0},
    {PK_OPTION_FLAG, 0, "print", NULL, "install: print the statements, run nothing",
     AT(print), 0, 0},
    {PK_OPTION_TEXT, 0, "table", "TABLE",
     "install: guard this table by a trigger as well", AT(table.table), 0, 0},
    {PK_OPTION_TEXT, 0, "column", "COLUMN",
     "install: the table's column with the writer's token\n(default: token)",
     AT(table.column), 0, 0},
    {PK_OPTION_TEXT, 0, "guard", "NAME",
     "install: the fence that guards the table (default:\nthe table's name)",
     AT(table.resource), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, AT(common)},
    {pk_options_common, AT(common)},
    {0},
};

/* ---- questions to one fence ---- */

static void claim(struct picket_resource *r, const struct pk_fence_words *s,
                  struct answer *a)
{
    a->status = picket_resource_claim(r, s->name, s->token, &a->fence);
}

static void check(struct picket_resource *r, const struct pk_fence_words *s,
                  struct answer *a)
{
    a->status = picket_resource_check(r, s->name, s->token, &a->fence);
}

static void put(struct picket_resource *r, const struct pk_fence_words *s,
                struct answer *a)
{
    a->status = picket_resource_set(r, s->name, s->token, a->value, a->len, &a->fence);
}

static void get(struct picket_resource *r, const struct pk_fence_words *s,
                struct answer *a)
{
    a->status = picket_resource_get(r, s->name, s->token, &a->value, &a->len, &a->fence);
}

static void show(struct picket_resource *r, const struct pk_fence_words *s,
                 struct answer *a)
{
    a->status = picket_resource_show(r, s->name, &a->state);
    a->fence = a->state.token;
}

/* The same for Prometheus. */
static void metrics(struct picket_resource *r, const struct pk_fence_words *s,
                    struct answer *a)
{
    show(r, s, a);
}

static void shadow(struct picket_resource *r, const struct pk_fence_words *s,
                   struct answer *a)
{
    a->status = picket_resource_mode(r, s->name, 1);
    if (a->status == PICKET_OK) {
        show(r, s, a);
    }
}

static void enforce(struct picket_resource *r, const struct pk_fence_words *s,
                    struct answer *a)
{
    a->status = picket_resource_mode(r, s->name, 0);
    if (a->status == PICKET_OK) {
        show(r, s, a);
    }
}

static const struct action actions[] = {
    {"claim", WANTS_TOKEN, false, claim, NULL},
    {"check", WANTS_TOKEN, false, check, NULL},
    {"put", WANTS_TOKEN, true, put, NULL},
    {"get", MAY_TOKEN, false, get, NULL},
    {"show", NO_TOKEN, false, show, NULL},
    {"metrics", NO_TOKEN, false, metrics, NULL},
    {"shadow", NO_TOKEN, false, shadow, NULL},
    {"enforce", NO_TOKEN, false, enforce, NULL},
    {"file", WANTS_TOKEN, false, NULL, pk_fence_file},
    {"install", NO_TOKEN, false, NULL, pk_fence_install},
};

static const struct action *find_action(const char *name)
{
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (strcmp(actions[i].name, name) == 0) {
            return &actions[i];
        }
    }
    return NULL;
}

/* Reads all of `fd` into the answer's value. 0, or an exit code. */
static int read_all(int fd, const char *name, struct answer *a)
{
    size_t room = PK_VALUE_CEILING + 1;
    ssize_t n = 1;
    a->value = pk_door_resize(NULL, room);
    while (n != 0 && a->len < room) {
        n = read(fd, a->value + a->len, room - a->len);
        if (n < 0 && errno != EINTR) {
            return pk_errors_fail("fence: can't read %s: %s", name, strerror(errno));
        }
        a->len += n > 0 ? (size_t)n : 0;
    }
    return a->len < room
               ? 0
               : pk_errors_fail("fence: %s has more than the %d bytes of a value", name,
                                PK_VALUE_CEILING);
}

/* The value to put: a word, a file, or standard input. 0, or an exit code. */
static int load_value(const struct pk_fence_words *s, struct answer *a)
{
    const char *file = s->file;
    if (s->word != NULL && strcmp(s->word, "-") == 0) {
        file = s->word;
    } else if (s->word != NULL) {
        a->len = strlen(s->word);
        a->value = pk_memory_copy(s->word);
        return 0;
    }
    if (strcmp(file, "-") == 0) {
        return read_all(STDIN_FILENO, "standard input", a);
    }
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return pk_errors_fail("fence: can't open %s: %s", file, strerror(errno));
    }
    int code = read_all(fd, file, a);
    (void)close(fd);
    return code;
}

/* ---- the answer ---- */

static bool tells_state(const struct action *action)
{
    return action->act == show || action->act == shadow || action->act == enforce;
}

static void print_json(const struct pk_fence_words *s, const struct action *action,
                       const struct answer *a)
{
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "resource", s->name);
    pk_json_text(&j, "status", picket_status_name(a->status));
    pk_json_bool(&j, "accepted", a->status == PICKET_OK);
    if (s->token != 0) {
        pk_json_number(&j, "token", s->token);
    }
    pk_json_number(&j, "fence", a->fence);
    if (a->status == PICKET_OK && s->token != 0) {
        pk_json_bool(&j, "would_refuse", a->fence > s->token);
    }
    if (a->status == PICKET_OK && action->act == get) {
        pk_json_bytes(&j, "value", a->value, a->len);
    }
    if (a->status == PICKET_OK && tells_state(action)) {
        pk_json_text(&j, "mode", a->state.shadow != 0 ? "shadow" : "enforce");
        pk_json_number(&j, "shadowed", a->state.shadowed);
        if (a->state.left_ms != 0) {
            pk_json_number(&j, "left_ms", a->state.left_ms);
        }
    }
    pk_json_end_object(&j);
}

static void print_state(const struct pk_fence_words *s, const struct answer *a)
{
    (void)printf("resource %s\ntoken    %" PRIu64 "\nmode     %s\nshadowed %" PRIu64 "\n",
                 s->name, a->state.token, a->state.shadow != 0 ? "shadow" : "enforce",
                 a->state.shadowed);
    if (a->state.left_ms != 0) {
        char room[PK_SPAN_ROOM];
        (void)printf("left     %s\n", pk_values_span(a->state.left_ms, room));
    }
}

/* A label's value: backslash and quote are escaped; a name has no control characters. */
static void print_label(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            (void)putchar('\\');
        }
        (void)putchar(*text);
    }
}

static void print_metric(const char *name, const char *type, const char *help,
                         const char *resource, uint64_t value)
{
    (void)printf("# HELP %s %s\n# TYPE %s %s\n%s{resource=\"", name, help, name, type,
                 name);
    print_label(resource);
    (void)printf("\"} %" PRIu64 "\n", value);
}

static void print_metrics(const struct pk_fence_words *s, const struct answer *a)
{
    print_metric("picket_resource_fence_token", "gauge", "Highest token seen.", s->name,
                 a->state.token);
    print_metric("picket_resource_fence_shadow", "gauge", "1: nothing is refused.",
                 s->name, a->state.shadow != 0);
    print_metric("picket_resource_fence_shadowed_total", "counter",
                 "What shadow mode let through.", s->name, a->state.shadowed);
}

/* Prints the answer; returns the exit code. */
static int tell(const struct pk_fence_words *s, const struct action *action,
                const struct answer *a)
{
    bool no = a->status == PICKET_STALE || a->status == PICKET_UNCLAIMED ||
              a->status == PICKET_NOTFOUND;
    if (a->status != PICKET_OK && !no) {
        return pk_errors_status(a->status);
    }
    if (a->status == PICKET_NOTFOUND) {
        pk_errors_remark("nobody has claimed %s or put anything there", s->name);
    } else if (no) {
        pk_errors_remark("%s: token %" PRIu64 ": %s; the fence stands at %" PRIu64,
                         s->name, s->token, picket_status_text(a->status), a->fence);
    } else if (s->token != 0 && a->fence > s->token) {
        pk_errors_remark("%s is in shadow mode: token %" PRIu64
                         " passed, and would have been refused at %" PRIu64,
                         s->name, s->token, a->fence);
    }
    if (s->common.json) {
        print_json(s, action, a);
    } else if (!no && action->act == get) {
        (void)fwrite(a->value, 1, a->len, stdout);
    } else if (!no && action->act == metrics) {
        print_metrics(s, a);
    } else if (!no && tells_state(action)) {
        print_state(s, a);
    }
    return no ? PK_EXIT_NO : 0;
}

int pk_fence_open(const struct pk_fence_words *s, struct picket_resource **out)
{
    char *url = s->url != NULL ? pk_memory_copy(s->url) : pk_cli_url(&s->common);
    enum picket_status status = picket_resource_open(url, out);
    free(url);
    return status == PICKET_OK ? 0 : pk_errors_status(status);
}

static int ask(const struct pk_fence_words *s, const struct action *action)
{
    struct picket_resource *r;
    struct answer a = {0};
    int code = action->takes_value ? load_value(s, &a) : 0;
    if (code == 0) {
        code = pk_fence_open(s, &r);
    }
    if (code == 0) {
        action->act(r, s, &a);
        code = tell(s, action, &a);
        picket_resource_close(r);
    }
    free(a.value);
    return code;
}

/* ---- the words ---- */

/* What the words and options are wrong about together; 0: nothing. */
static int check_words(const struct pk_fence_words *s, const struct action *a,
                       const char *name)
{
    if (a == NULL) {
        return pk_errors_fail("fence: \"%s\" is none of claim, check, put, get, show, "
                              "metrics, shadow, enforce, file and install",
                              name);
    }
    if (!a->takes_value && (s->word != NULL || s->file != NULL)) {
        return pk_errors_fail("fence: %s takes no value; see 'picket fence --help'",
                              name);
    }
    if (a->takes_value && (s->word == NULL) == (s->file == NULL)) {
        return pk_errors_fail("fence: put wants one value: VALUE, --file FILE, or - for "
                              "standard input");
    }
    bool command = s->command != NULL && s->command[0] != NULL;
    if (command != (a->run == pk_fence_file)) {
        return pk_errors_fail(command ? "fence: %s runs no command"
                                      : "fence: what to run? Say 'picket fence %s PATH "
                                        "-- COMMAND'",
                              name);
    }
    return 0;
}

static int read_token(struct pk_fence_words *s, const struct action *a)
{
    if (a->token == NO_TOKEN) {
        s->token = 0;
        return 0;
    }
    int code = pk_options_or_env(&s->token, "PICKET_TOKEN", PK_TOKEN_MAX);
    if (code == 0 && a->token == WANTS_TOKEN && s->token == 0) {
        code =
            pk_errors_fail("fence: with which token? Say --token N or set PICKET_TOKEN");
    }
    return code;
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct pk_fence_words s = {0};
    int code = pk_options_parse(&pk_cli_fence, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    const struct action *action = find_action(words.at[0]);
    s.name = words.at[1];
    s.word = words.at[2];
    s.command = words.command;
    code = check_words(&s, action, words.at[0]);
    if (code == 0) {
        code = read_token(&s, action);
    }
    if (code != 0) {
        return code;
    }
    return action->run != NULL ? action->run(&s) : ask(&s, action);
}

const struct pk_cli_verb pk_cli_fence = {
    .name = "fence",
    .brief = "check tokens on the resource's side",
    .usage = "claim RESOURCE [--token N] [--resource URL]\n"
             "check RESOURCE [--token N] [--resource URL]\n"
             "put RESOURCE [--token N] [--resource URL] VALUE|-|--file FILE\n"
             "get RESOURCE [--token N] [--resource URL]\n"
             "show|metrics|shadow|enforce RESOURCE [--resource URL]\n"
             "file PATH [--token N] -- COMMAND [ARG...]\n"
             "install URL [--print] [--table TABLE [--column COLUMN] [--guard NAME]]",
    .about =
        "A fence remembers the highest token it has seen and refuses lower ones, so that "
        "a\n"
        "holder that lost its lock without noticing can't do harm. Fences are kept by "
        "the\n"
        "lock store itself, each with a small value, or by what --resource names: files, "
        "a\n"
        "database, a Redis.\n"
        "\n"
        "  claim    raises the fence to the token; do it first, before you read\n"
        "  check    says whether the token is the one that claimed last; changes "
        "nothing\n"
        "  put      raises the fence if need be and replaces the value (of file:DIR: "
        "the\n"
        "           file itself, as a whole)\n"
        "  get      prints the value as it is; with a token, it raises the fence too. "
        "Without\n"
        "           one (none given, PICKET_TOKEN not set) anybody may read\n"
        "  show     prints where the fence stands, its mode, and what shadow mode "
        "counted\n"
        "  metrics  the same for Prometheus, e.g. for node_exporter's textfile "
        "collector\n"
        "  shadow   from now on lets through what would be refused, and counts it\n"
        "  enforce  from now on refuses\n"
        "  file     claims PATH, runs COMMAND, and puts what it printed in the place of\n"
        "           PATH if it ended well and the token is still the highest\n"
        "  install  puts the fence into a database: a table, the function picket_claim "
        "and,\n"
        "           with --table, a trigger that guards an existing table\n"
        "\n"
        "docs/fencing.md has the whole story, for each kind of resource.",
    .exits =
        "  0    accepted\n"
        "  1    refused: a higher token was here, or this one has not claimed; or there\n"
        "       is nothing to get\n"
        "  122  not allowed\n"
        "  125  our own error: a wrong call, the store out of reach\n"
        "  file: the command's own code if it did not end well; 126, 127 as run",
    .examples =
        "  picket run ledger -- sh -c 'picket fence claim ledger && ./post'\n"
        "  picket fence put config/db --token 42 --file db.conf\n"
        "  picket run site -- picket fence file index.html -- ./render\n"
        "  picket fence install postgres://app@db/shop --table orders\n"
        "  picket fence claim ledger --resource postgres://app@db/shop --token 42\n"
        "  picket fence show ledger --resource redis://127.0.0.1:6379",
    .words = "an action (claim, check, put, get...) or RESOURCE",
    .words_min = 2,
    .words_max = 3,
    .command = true,
    .groups = groups,
    .common = AT(common),
    .run = run,
};
