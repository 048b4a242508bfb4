/* SPDX-License-Identifier: MIT */
#include "cli/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/values.h"
#include "core/door.h"

enum { JOBS_MAX = 64, ROUGH_MAX = 3, FILE_BYTES_MAX = 1 << 28 };

#define AT(field) offsetof(struct pk_sim_words, field)

static const struct pk_option own[] = {
    {PK_OPTION_TEXT, 0, "flavour", "NAME",
     "picket, etcd, zookeeper or redlock (run: in place of\nthe script's)",
     AT(flavour_word), 0, 0},
    {PK_OPTION_TEXT, 0, "fence", "MODE",
     "off, check (writes only) or on (claim before you read)\n(run: in place of the "
     "script's; fuzz: on)",
     AT(fence_word), 0, 0},
    {PK_OPTION_TEXT, 0, "svg", "FILE", "run, replay: the picture", AT(svg), 0, 0},
    {PK_OPTION_TEXT, 0, "json", "FILE", "run, replay: everything (-: standard output)",
     AT(json), 0, 0},
    {PK_OPTION_FLAG, 0, "link", NULL, "run: print a link that opens it in the page",
     AT(link), 0, 0},
    {PK_OPTION_TEXT, 0, "seeds", "A-B", "fuzz: which worlds (default: 1-1000)",
     AT(seeds_word), 0, 0},
    {PK_OPTION_NUMBER, 0, "rough", "N", "fuzz: from 0, calm, to 3, hell (default: 2)",
     AT(rough), 0, ROUGH_MAX},
    {PK_OPTION_FLAG, 0, "jumps", NULL,
     "fuzz: clocks of Redlock's nodes jump, and nodes restart\nempty", AT(jumps), 0, 0},
    {PK_OPTION_NUMBER, 0, "jobs", "N", "fuzz: processes (default: one for each core)",
     AT(jobs), 1, JOBS_MAX},
    {PK_OPTION_FLAG, 0, "shrink", NULL,
     "fuzz: make the first world of each finding as small as\nit gets", AT(shrink), 0, 0},
    {PK_OPTION_TEXT, 0, "out", "DIR",
     "fuzz: write the first world of each finding there, as a\nscript", AT(out), 0, 0},
    {PK_OPTION_TEXT, 0, "lock", "NAME", "replay: of this lock alone", AT(lock), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_common, AT(common)},
    {0},
};

/* ---- files ---- */

static char *load(FILE *f, const char *file, size_t *len)
{
    size_t room = 1 << 16;
    char *text = pk_door_resize(NULL, room);
    size_t n = 1;
    *len = 0;
    while (n > 0) {
        if (*len == room) {
            room *= 2;
            text = pk_door_resize(text, room);
        }
        n = fread(text + *len, 1, room - *len, f);
        *len += n;
        if (*len > FILE_BYTES_MAX) {
            free(text);
            (void)pk_errors_fail("sim: %s is larger than %d MiB", file,
                                 FILE_BYTES_MAX >> 20);
            return NULL;
        }
    }
    if (ferror(f) != 0) {
        free(text);
        (void)pk_errors_fail("sim: can't read %s: %s", file, strerror(errno));
        return NULL;
    }
    return text;
}

char *pk_sim_load(const char *file, size_t *len)
{
    if (strcmp(file, "-") == 0) {
        return load(stdin, "standard input", len);
    }
    FILE *f = fopen(file, "re");
    if (f == NULL) {
        (void)pk_errors_fail("sim: can't open %s: %s", file, strerror(errno));
        return NULL;
    }
    char *text = load(f, file, len);
    (void)fclose(f);
    return text;
}

int pk_sim_save(const char *file, const struct pk_prose *text)
{
    if (strcmp(file, "-") == 0) {
        (void)fwrite(text->data, 1, text->len, stdout);
        return 0;
    }
    FILE *f = fopen(file, "we");
    bool fine = f != NULL && fwrite(text->data, 1, text->len, f) == text->len;
    fine = f != NULL && fclose(f) == 0 && fine;
    return fine ? 0 : pk_errors_fail("sim: can't write %s: %s", file, strerror(errno));
}

/* ---- the words ---- */

struct action {
    const char *name;
    int words;
    const char *wants; /* its words, for complaints */
    uint32_t options;  /* mask of those below */
    int (*act)(const struct pk_sim_words *s);
};

/* Options that not everybody takes. */
enum {
    OF_WORLD = 1,
    OF_FILES = 2,
    OF_LINK = 4,
    OF_FUZZ = 8,
    OF_LOCK = 16,
};

static const struct action actions[] = {
    {"run", 1, "FILE.sim (- is standard input)", OF_WORLD | OF_FILES | OF_LINK,
     pk_sim_run},
    {"fuzz", 0, "options, but no words", OF_WORLD | OF_FUZZ, pk_sim_fuzz},
    {"replay", 1, "a trace (- is standard input)", OF_FILES | OF_LOCK, pk_sim_replay},
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

static uint32_t given(const struct pk_sim_words *s)
{
    bool fuzz = s->seeds_word != NULL || s->out != NULL || s->jumps || s->shrink ||
                s->jobs != 0 || s->rough != UINT64_MAX;
    bool world = s->flavour_word != NULL || s->fence_word != NULL;
    bool files = s->svg != NULL || s->json != NULL;
    return (world ? OF_WORLD : 0U) | (files ? OF_FILES : 0U) | (s->link ? OF_LINK : 0U) |
           (fuzz ? OF_FUZZ : 0U) | (s->lock != NULL ? OF_LOCK : 0U);
}

static int check_words(const struct pk_sim_words *s, const struct action *a,
                       const struct pk_words *words)
{
    if (a == NULL) {
        return pk_errors_fail("sim: \"%s\" is none of run, fuzz and replay",
                              words->at[0]);
    }
    if (words->count - 1 != a->words) {
        return pk_errors_fail("sim: %s takes %s", a->name, a->wants);
    }
    if ((given(s) & ~a->options) != 0) {
        return pk_errors_fail("sim: that option is not for %s; see 'picket sim --help'",
                              a->name);
    }
    return 0;
}

static int read_flavour(struct pk_sim_words *s)
{
    uint32_t i = 0;
    while (s->flavour_word != NULL && i < PK_FLAVOUR_COUNT &&
           strcmp(s->flavour_word, pk_flavour_name((enum pk_flavour)i)) != 0) {
        i++;
    }
    s->flavour = (enum pk_flavour)i;
    return i < PK_FLAVOUR_COUNT
               ? 0
               : pk_errors_fail("sim: --flavour is picket, etcd, zookeeper or redlock, "
                                "not %s",
                                s->flavour_word);
}

static int read_fence(struct pk_sim_words *s)
{
    const char *word = s->fence_word != NULL ? s->fence_word : "on";
    uint32_t i = 0;
    while (i < PK_PROTECTIONS &&
           strcmp(word, pk_protection_name((enum pk_protection)i)) != 0) {
        i++;
    }
    s->fence = (enum pk_protection)i;
    return i < PK_PROTECTIONS
               ? 0
               : pk_errors_fail("sim: --fence is off, check or on, not %s", word);
}

/* "1-1000", or one number. */
static int read_seeds(struct pk_sim_words *s)
{
    char text[48];
    const char *word = s->seeds_word != NULL ? s->seeds_word : "1-1000";
    (void)snprintf(text, sizeof text, "%s", word);
    char *dash = strchr(text, '-');
    const char *last = dash != NULL ? dash + 1 : text;
    if (dash != NULL) {
        *dash = '\0';
    }
    if (strlen(word) >= sizeof text ||
        pk_values_read_number(text, 0, UINT64_MAX - 1, &s->first_seed) != NULL ||
        pk_values_read_number(last, s->first_seed, UINT64_MAX - 1, &s->last_seed) !=
            NULL) {
        return pk_errors_fail("sim: --seeds is A-B with A not above B, as in 1-1000, "
                              "not %s",
                              word);
    }
    return 0;
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct pk_sim_words s = {.rough = UINT64_MAX};
    int code = pk_options_parse(&pk_cli_sim, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    const struct action *action = find_action(words.at[0]);
    s.file = words.at[1];
    code = check_words(&s, action, &words);
    if (code == 0) {
        code = read_flavour(&s);
    }
    if (code == 0) {
        code = read_fence(&s);
    }
    if (code == 0) {
        code = read_seeds(&s);
    }
    s.rough = s.rough == UINT64_MAX ? 2 : s.rough;
    return code == 0 ? action->act(&s) : code;
}

const struct pk_cli_verb pk_cli_sim = {
    .name = "sim",
    .brief = "simulate locks that fail, and check traces of real clusters",
    .usage = "run FILE.sim|- [--fence MODE] [--flavour NAME] [--svg FILE] [--json FILE] "
             "[--link]\n"
             "fuzz [--flavour NAME] [--fence MODE] [--seeds A-B] [--rough N] [--jumps]\n"
             "     [--shrink] [--out DIR] [--jobs N]\n"
             "replay TRACE|- [--lock NAME] [--svg FILE] [--json FILE]",
    .about =
        "A world of clients, a lock service and one resource, in which clients stand "
        "still,\n"
        "links break and clocks drift. The service of flavour picket is the server's own "
        "lock\n"
        "machine; etcd, zookeeper and redlock are models. Checkers look at what happened "
        "and say\n"
        "what broke: two-holders, token-order, two-valid, fence-back, lost-update, "
        "stale-write,\n"
        "queue-order, digests. The same seed gives the same world everywhere.\n"
        "\n"
        "  run      plays a script and compares with what it expects: its 'expect' "
        "line, or\n"
        "           'expect-fenced' when --fence on turns the fence on. Where it says "
        "nothing,\n"
        "           and with another fence or flavour than its own, nothing may break\n"
        "  fuzz     plays random worlds and counts in how many of them what broke\n"
        "  replay   checks a trace that 'picket serve --trace' has recorded, lock by "
        "lock\n"
        "\n"
        "Scripts are in scenarios/ and explained in docs/simulator.md.",
    .exits = "  0    as expected; fuzz and replay: nothing broke\n"
             "  1    another verdict; fuzz and replay: something broke\n"
             "  125  our own error: a wrong call, a script or trace that can't be read",
    .examples = "  picket sim run scenarios/gc-pause.sim\n"
                "  picket sim run scenarios/gc-pause.sim --fence on --svg fenced.svg\n"
                "  picket sim fuzz --flavour redlock --jumps --shrink --out found\n"
                "  picket sim replay n1.trace --lock orders",
    .words = "what to do (run, fuzz or replay)",
    .words_min = 1,
    .words_max = 3,
    .groups = groups,
    .common = AT(common),
    .run = run,
};
