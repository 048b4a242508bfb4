/* SPDX-License-Identifier: MIT */
/*
 * A command that is done once for all: under the lock once/KEY, with its outcome in the
 * store's register of the same name, which is fenced by the lock's token. So the outcome
 * of an attempt that was overtaken is refused, and the next one is told of it.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/once_record.h"
#include "cli/output.h"
#include "cli/supervise.h"
#include "cli/tee.h"
#include "core/door.h"

#define PREFIX "once/"

enum { KEEP_BYTES = 48 * 1024 }; /* of the output; a value has 64 KiB unless configured */

struct settings {
    struct pk_common common;
    struct pk_grant grant;
    struct pk_supervise supervise;
    uint64_t keep_ms; /* 0: for good */
    bool show, forget, no_retry, retry_failed;
};

#define AT(field) offsetof(struct settings, field)

static const struct pk_option own[] = {
    {PK_OPTION_FLAG, 0, "no-retry", NULL,
     "when an attempt has begun and left no outcome, don't\nrun again: fail",
     AT(no_retry), 0, 0},
    {PK_OPTION_FLAG, 0, "retry-failed", NULL,
     "a command that exits with other than 0 leaves no\noutcome: the next call runs it "
     "again",
     AT(retry_failed), 0, 0},
    {PK_OPTION_SPAN, 0, "keep", "TIME",
     "the store keeps the outcome that long, then the next\ncall runs it again (default: "
     "for good, and a store is\nfull after a million keys)",
     AT(keep_ms), PK_TTL_MIN_MS, PK_KEEP_MAX_MS},
    {PK_OPTION_FLAG, 0, "show", NULL, "print the outcome of KEY; run nothing", AT(show),
     0, 0},
    {PK_OPTION_FLAG, 0, "forget", NULL, "forget the outcome of KEY; run nothing",
     AT(forget), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_grant_options, AT(grant)},
    {pk_supervise_lease_options, AT(grant)},
    {pk_supervise_options, AT(supervise)},
    {pk_options_output, AT(common)},
    {pk_options_common, AT(common)},
    {0},
};

/* One call. */
struct attempt {
    const struct settings *s;
    const char *key;
    char name[512]; /* of lock and register */
    char env[64];
    struct pk_tee tee;
    struct pk_once_record record; /* as we wrote it last */
};

/* ---- the register ---- */

/* Reads the record with `token` (0: as anybody); *value is to be freed. */
static int read_record(const struct attempt *a, struct picket *p, uint64_t token,
                       char **value, struct pk_once_record *out)
{
    size_t len = 0;
    *value = NULL;
    enum picket_status s = picket_fence_get(p, a->name, token, value, &len, NULL);
    if (s != PICKET_OK && s != PICKET_NOTFOUND) {
        return pk_errors_status(s);
    }
    if (!pk_once_record_read(*value == NULL ? "" : *value, len, out)) {
        free(*value);
        *value = NULL;
        return pk_errors_fail("%s holds something else than an outcome; see 'picket "
                              "fence get %s'",
                              a->name, a->name);
    }
    return 0;
}

static enum picket_status write_record(const struct attempt *a, struct picket *p,
                                       const struct pk_once_record *r)
{
    size_t len;
    char *value = pk_once_record_write(r, &len);
    enum picket_status s =
        picket_fence_keep(p, a->name, r->token, value, len, a->s->keep_ms);
    free(value);
    return s;
}

/* ---- before and after the command ---- */

/* Prints what was printed then, and returns the code of then. */
static int replay(const struct attempt *a, const struct pk_once_record *r)
{
    pk_errors_detail("%s was done before, with token %" PRIu64, a->key, r->token);
    (void)fwrite(r->output, 1, r->len, stdout);
    if (r->cut) {
        pk_errors_remark("%s printed more than this when it was done", a->key);
    }
    return r->exit;
}

static int begin(struct attempt *a, struct picket *p, const struct pk_once_record *found,
                 uint64_t token)
{
    bool again = found->state == PK_ONCE_BEGUN;
    if (again && a->s->no_retry) {
        return pk_errors_fail("%s was begun with token %" PRIu64
                              " and left no outcome: not run again (--no-retry)",
                              a->key, found->token);
    }
    if (again) {
        pk_errors_remark("%s was begun before, with token %" PRIu64
                         ", and left no outcome: attempt %" PRIu64,
                         a->key, found->token, found->attempt + 1);
    }
    a->record = (struct pk_once_record){.state = PK_ONCE_BEGUN,
                                        .token = token,
                                        .attempt = again ? found->attempt + 1 : 1};
    (void)snprintf(a->env, sizeof a->env, "PICKET_ATTEMPT=%" PRIu64, a->record.attempt);
    enum picket_status s = write_record(a, p, &a->record);
    return s == PICKET_OK ? -1 : pk_errors_status(s);
}

static int granted(void *ctx, struct picket *p, struct picket_lock *l)
{
    struct attempt *a = ctx;
    struct pk_once_record found = {.state = PK_ONCE_NONE};
    char *value = NULL;
    uint64_t token = picket_token(l);
    pk_tee_restore(&a->tee);
    /* With the token: the fence is up before we read (P6). */
    int code = read_record(a, p, token, &value, &found);
    if (code != 0) {
        return code;
    }
    code = found.state == PK_ONCE_DONE ? replay(a, &found) : begin(a, p, &found, token);
    free(value);
    return code;
}

static int ended(void *ctx, struct picket *p, struct picket_lock *l, int code)
{
    struct attempt *a = ctx;
    size_t len;
    bool cut;
    (void)l;
    char *output = pk_tee_end(&a->tee, &len, &cut);
    bool outcome = code < 126 && !(code != 0 && a->s->retry_failed);
    enum picket_status s = PICKET_OK;
    if (outcome) {
        a->record.state = PK_ONCE_DONE;
        a->record.exit = code;
        a->record.output = output;
        a->record.len = len;
        a->record.cut = cut;
        s = write_record(a, p, &a->record);
    } else {
        pk_errors_remark("%s left no outcome (%d); the next call runs it again", a->key,
                         code);
    }
    free(output);
    if (s == PICKET_STALE) {
        (void)pk_errors_fail("%s was taken over by somebody with a higher token; this "
                             "outcome does not count",
                             a->key);
        return PK_EXIT_LOST;
    }
    return s == PICKET_OK ? code : pk_errors_status(s);
}

/* ---- the words ---- */

static void print_record(const struct attempt *a, const struct pk_once_record *r)
{
    struct pk_json j = {0};
    if (!a->s->common.json) {
        (void)fwrite(r->output, 1, r->len, stdout);
        return;
    }
    pk_json_object(&j, NULL);
    pk_json_text(&j, "key", a->key);
    pk_json_text(&j, "state", r->state == PK_ONCE_DONE ? "done" : "begun");
    pk_json_number(&j, "token", r->token);
    pk_json_number(&j, "attempt", r->attempt);
    if (r->state == PK_ONCE_DONE) {
        pk_json_number(&j, "exit", (uint64_t)r->exit);
        pk_json_bytes(&j, "output", r->output, r->len);
        pk_json_bool(&j, "cut", r->cut);
    }
    pk_json_end_object(&j);
}

static int show(const struct attempt *a)
{
    struct picket *p;
    struct pk_once_record found = {.state = PK_ONCE_NONE};
    char *value = NULL;
    int code = pk_cli_open(&a->s->common, NULL, &p);
    if (code != 0) {
        return code;
    }
    code = read_record(a, p, 0, &value, &found);
    if (code == 0 && found.state == PK_ONCE_NONE) {
        pk_errors_remark("nobody has run %s", a->key);
        code = PK_EXIT_NO;
    } else if (code == 0) {
        print_record(a, &found);
        if (found.state == PK_ONCE_BEGUN) {
            pk_errors_remark("%s was begun with token %" PRIu64
                             " and has left no outcome so far",
                             a->key, found.token);
            code = PK_EXIT_NO;
        }
    }
    free(value);
    picket_close(p);
    return code;
}

/* Under the lock, so that nobody is in the middle of it. */
static int forget(struct attempt *a, struct pk_grant *g)
{
    struct picket *p;
    struct picket_lock *l;
    struct pk_grant_wait wait = {.signal_fd = -1, .gone_fd = -1};
    int code = pk_grant_open(&a->s->common, g, &p);
    if (code != 0) {
        return code;
    }
    code = pk_grant_take(p, g, &wait, &l);
    if (code == 0) {
        /* With --keep it is gone altogether after a while. */
        enum picket_status s =
            picket_fence_keep(p, a->name, picket_token(l), "", 0, a->s->keep_ms);
        code = s == PICKET_OK ? 0 : pk_errors_status(s);
    }
    picket_close(p);
    return code;
}

static int check(const struct settings *s, const struct pk_words *w)
{
    bool command = w->command != NULL && w->command[0] != NULL;
    if (w->at[0][0] == '\0') {
        /* A variable that is not set: all such calls would share one outcome. */
        return pk_errors_fail("once: KEY is empty; name what is to be run once");
    }
    if (s->show && s->forget) {
        return pk_errors_fail("once: --show and --forget exclude each other");
    }
    if (command == (s->show || s->forget)) {
        return command ? pk_errors_fail("once: --show and --forget run no command")
                       : pk_errors_fail("once: what to run? Say 'picket once %s -- "
                                        "COMMAND'",
                                        w->at[0]);
    }
    if (s->supervise.no_fork) {
        return pk_errors_fail("once: -F is not for once, which waits for the outcome");
    }
    if (s->supervise.leave_children) {
        return pk_errors_fail("once: --leave-children is not for once, which keeps all "
                              "that is printed");
    }
    if (s->common.json && !s->show) {
        return pk_errors_fail("once: -o json goes with --show");
    }
    return 0;
}

static int run_command(struct settings *s, struct attempt *a)
{
    s->supervise.ctx = a;
    s->supervise.granted = granted;
    s->supervise.ended = ended;
    s->supervise.env = a->env;
    (void)signal(SIGPIPE, SIG_IGN);
    int error = pk_tee_start(&a->tee, KEEP_BYTES);
    if (error < 0) {
        return pk_errors_fail("can't keep the output: %s", strerror(-error));
    }
    return pk_supervise(&s->supervise);
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct settings s = {.grant = PK_GRANT_DEFAULTS};
    struct attempt a = {.s = &s};
    pk_supervise_defaults(&s.supervise, &s.grant, &s.common);
    int code = pk_options_parse(&pk_cli_once, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    code = check(&s, &words);
    if (code != 0) {
        return code;
    }
    a.key = words.at[0];
    (void)snprintf(a.name, sizeof a.name, PREFIX "%s", a.key);
    s.grant.name = a.name;
    s.supervise.argv = words.command;
    if (s.show) {
        return show(&a);
    }
    if (s.forget) {
        s.grant.lock_delay_ms = 0;
        return forget(&a, &s.grant);
    }
    return run_command(&s, &a);
}

const struct pk_cli_verb pk_cli_once = {
    .name = "once",
    .brief = "run a command once for all, and repeat its outcome",
    .usage = "[OPTIONS] KEY -- COMMAND [ARG...]\n"
             "--show|--forget KEY",
    .about =
        "Runs COMMAND unless KEY has an outcome already; then prints what it printed "
        "that time\n"
        "and exits as it did. Callers at the same time wait for the first. The outcome "
        "is its\n"
        "exit code and up to 48 KiB of standard output, kept by the store for good or "
        "for --keep.\n"
        "\n"
        "An attempt that crashed, lost its lock or was ended by a signal leaves no "
        "outcome:\n"
        "the next caller runs COMMAND again, with a higher token and PICKET_ATTEMPT "
        "counted up.\n"
        "So COMMAND is run once when all goes well, and its outcome is recorded at most "
        "once;\n"
        "what it does in the world should carry KEY or PICKET_TOKEN to be safe in the "
        "rest.\n"
        "COMMAND runs under the lock " PREFIX
        "KEY and finds in its environment what 'picket run' gives.",
    .exits = PK_SUPERVISE_EXITS "\n"
                                "  --show: 1 when there is no outcome",
    .examples = "  picket once migrate-2026-11 -- ./migrate.sh\n"
                "  picket once invoice/4711 --retry-failed -- ./charge 4711\n"
                "  picket once --keep 30d webhook/9f3c -- ./handle 9f3c\n"
                "  picket once --show -o json invoice/4711",
    .words = "KEY",
    .words_min = 1,
    .words_max = 1,
    .command = true,
    .groups = groups,
    .common = AT(common),
    .run = run,
};
