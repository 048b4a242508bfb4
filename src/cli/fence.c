/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "core/door.h"
#include "core/limits.h"

struct settings {
    struct pk_common common;
    uint64_t token;
    const char *file;
    const char *resource;
    const char *word; /* VALUE, if given */
};

/* What went in or came out, and what the fence said. */
struct answer {
    enum picket_status status;
    uint64_t fence;
    char *value; /* malloc'ed */
    size_t len;
};

struct action {
    const char *name;
    bool takes_value;
    bool wants_token;
    void (*act)(struct picket *p, const struct settings *s, struct answer *a);
};

static const struct pk_option own[] = {
    {PK_OPTION_NUMBER, 0, "token", "N", "the fencing token (default: $PICKET_TOKEN)",
     offsetof(struct settings, token), 1, PK_TOKEN_MAX},
    {PK_OPTION_TEXT, 0, "file", "FILE",
     "put: read the value from FILE (-: standard input)", offsetof(struct settings, file),
     0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

static void claim(struct picket *p, const struct settings *s, struct answer *a)
{
    a->status = picket_fence_claim(p, s->resource, s->token, &a->fence);
}

static void check(struct picket *p, const struct settings *s, struct answer *a)
{
    a->status = picket_fence_check(p, s->resource, s->token, &a->fence);
}

static void put(struct picket *p, const struct settings *s, struct answer *a)
{
    a->status = picket_fence_set(p, s->resource, s->token, a->value, a->len, &a->fence);
}

static void get(struct picket *p, const struct settings *s, struct answer *a)
{
    a->status = picket_fence_get(p, s->resource, s->token, &a->value, &a->len, &a->fence);
}

static const struct action actions[] = {
    {"claim", false, true, claim},
    {"check", false, true, check},
    {"put", true, true, put},
    {"get", false, false, get},
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
static int load_value(const struct settings *s, struct answer *a)
{
    const char *file = s->file;
    if (s->word != NULL && strcmp(s->word, "-") == 0) {
        file = s->word;
    } else if (s->word != NULL) {
        a->len = strlen(s->word);
        a->value = strdup(s->word);
        PK_ASSERT(a->value != NULL);
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

static void print_json(const struct settings *s, const struct action *action,
                       const struct answer *a)
{
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "resource", s->resource);
    pk_json_text(&j, "status", picket_status_name(a->status));
    pk_json_bool(&j, "accepted", a->status == PICKET_OK);
    if (s->token != 0) {
        pk_json_number(&j, "token", s->token);
    }
    pk_json_number(&j, "fence", a->fence);
    if (action->act == get && a->status == PICKET_OK) {
        pk_json_bytes(&j, "value", a->value, a->len);
    }
    pk_json_end_object(&j);
}

/* Prints the answer; returns the exit code. */
static int tell(const struct settings *s, const struct action *action,
                const struct answer *a)
{
    bool no = a->status == PICKET_STALE || a->status == PICKET_UNCLAIMED ||
              a->status == PICKET_NOTFOUND;
    if (a->status != PICKET_OK && !no) {
        return pk_errors_status(a->status);
    }
    if (a->status == PICKET_NOTFOUND) {
        pk_errors_remark("nobody has claimed %s or put anything there", s->resource);
    } else if (no) {
        pk_errors_remark("%s: %s", s->resource, picket_last_error());
    }
    if (s->common.json) {
        print_json(s, action, a);
    } else if (action->act == get && !no) {
        (void)fwrite(a->value, 1, a->len, stdout);
    }
    return no ? PK_EXIT_NO : 0;
}

/* What the words and options are wrong about together; 0: nothing. */
static int check_words(const struct settings *s, const struct action *a, const char *name)
{
    if (a == NULL) {
        return pk_errors_fail("fence: \"%s\" is none of claim, check, put and get", name);
    }
    if (!a->takes_value && (s->word != NULL || s->file != NULL)) {
        return pk_errors_fail("fence: %s takes no value; see 'picket fence --help'",
                              name);
    }
    if (a->takes_value && (s->word == NULL) == (s->file == NULL)) {
        return pk_errors_fail("fence: put wants one value: VALUE, --file FILE, or - for "
                              "standard input");
    }
    return 0;
}

static int run(int argc, char **argv)
{
    struct picket *p;
    struct pk_words words;
    struct settings s = {0};
    struct answer a = {0};
    int code = pk_options_parse(&pk_cli_fence, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    const struct action *action = find_action(words.at[0]);
    s.resource = words.at[1];
    s.word = words.at[2];
    code = check_words(&s, action, words.at[0]);
    if (code == 0) {
        code = pk_options_or_env(&s.token, "PICKET_TOKEN", PK_TOKEN_MAX);
    }
    if (code == 0 && action->wants_token && s.token == 0) {
        code =
            pk_errors_fail("fence: with which token? Say --token N or set PICKET_TOKEN");
    }
    if (code == 0 && action->takes_value) {
        code = load_value(&s, &a);
    }
    if (code == 0) {
        code = pk_cli_open(&s.common, NULL, &p);
    }
    if (code == 0) {
        action->act(p, &s, &a);
        code = tell(&s, action, &a);
        picket_close(p);
    }
    free(a.value);
    return code;
}

const struct pk_cli_verb pk_cli_fence = {
    .name = "fence",
    .brief = "check tokens on the resource's side",
    .usage = "claim RESOURCE [--token N]\n"
             "check RESOURCE [--token N]\n"
             "put RESOURCE [--token N] VALUE|-|--file FILE\n"
             "get RESOURCE [--token N]",
    .about =
        "A fence remembers the highest token it has seen and refuses lower ones, so that "
        "a\n"
        "holder that lost its lock without noticing can't do harm. The store has fences "
        "for\n"
        "any name, each with a small value.\n"
        "\n"
        "  claim  raises the fence to the token; do it first, before you read\n"
        "  check  says whether the token is the one that claimed last; changes nothing\n"
        "  put    raises the fence if need be and replaces the value\n"
        "  get    prints the value as it is; with a token, it raises the fence too. "
        "Without\n"
        "         one (none given, PICKET_TOKEN not set) anybody may read",
    .exits =
        "  0    accepted\n"
        "  1    refused: a higher token was here, or this one has not claimed; or there\n"
        "       is nothing to get\n"
        "  122  not allowed\n"
        "  125  our own error: a wrong call, the store out of reach",
    .examples = "  picket run ledger -- sh -c 'picket fence claim ledger && ./post'\n"
                "  picket fence put config/db --token 42 --file db.conf\n"
                "  picket fence get config/db",
    .words = "an action (claim, check, put or get) or RESOURCE",
    .words_min = 2,
    .words_max = 3,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
