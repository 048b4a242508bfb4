/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "cli/argv.h"
#include "cli/cli.h"
#include "cli/supervise.h"

struct settings {
    struct pk_common common;
    struct pk_grant grant;
    struct pk_supervise supervise;
    const char *shell_command;
};

static const struct pk_option own[] = {
    {PK_OPTION_TEXT, 'c', "command", "TEXT", "run TEXT by $SHELL -c (/bin/sh if unset)",
     offsetof(struct settings, shell_command), 0, 0},
    {PK_OPTION_TEXT, 0, "value", "TEXT", "what others read of the hold, as in elect",
     offsetof(struct settings, grant.value), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {pk_grant_kinds, offsetof(struct settings, grant)},
    {pk_grant_options, offsetof(struct settings, grant)},
    {pk_supervise_lease_options, offsetof(struct settings, grant)},
    {pk_supervise_options, offsetof(struct settings, supervise)},
    {own, 0},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

/* The words of `-c`, as flock has them: the user's shell, else the system's. */
static char *const *shell_words(const char *text)
{
    static const char *words[4];
    const char *shell = getenv("SHELL");
    words[0] = shell != NULL && shell[0] != '\0' ? shell : "/bin/sh";
    words[1] = "-c";
    words[2] = text;
    words[3] = NULL;
    return (char *const *)(uintptr_t)words;
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct settings s = {.grant = PK_GRANT_DEFAULTS};
    pk_supervise_defaults(&s.supervise, &s.grant, &s.common);
    int code = pk_options_parse(&pk_cli_run, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    bool command = words.command != NULL && words.command[0] != NULL;
    if (!command && s.shell_command == NULL) {
        return pk_errors_fail("run: what to run? Say 'picket run %s -- COMMAND'",
                              words.at[0]);
    }
    if (command && s.shell_command != NULL) {
        return pk_errors_fail(
            "run: a command and -c exclude each other; give one of them");
    }
    if (s.shell_command != NULL) {
        pk_argv_hide(s.shell_command);
    }
    s.grant.name = words.at[0];
    s.supervise.argv = command ? words.command : shell_words(s.shell_command);
    return pk_supervise(&s.supervise);
}

const struct pk_cli_verb pk_cli_run = {
    .name = "run",
    .brief = "run a command while holding a lock",
    .usage = "[OPTIONS] LOCK [--] COMMAND [ARG...]\n"
             "[OPTIONS] LOCK -c 'SHELL COMMAND'",
    .about = "Waits for LOCK, runs COMMAND, and releases the lock when COMMAND has "
             "ended. Processes\n"
             "that COMMAND started and that still run then are ended first (SIGTERM, "
             "then SIGKILL\n"
             "after --kill-after), also those in the background; --wait-children waits "
             "for them\n"
             "instead, --leave-children lets them run on without the lock.\n"
             "\n"
             "When the lock is lost, COMMAND and everything it started are ended before "
             "anybody else\n"
             "can get it, by a guardian that does so even if picket itself is stopped or "
             "killed.\n"
             "Signals are passed on to COMMAND.\n"
             "\n"
             "COMMAND finds in its environment PICKET_LOCK, PICKET_TOKEN (the fencing "
             "token),\n"
             "PICKET_LEASE, PICKET_TTL_MS, PICKET_URL and PICKET_LOSS_FD, a descriptor "
             "that reads\n"
             "end-of-file when the lock is lost.",
    .exits = PK_SUPERVISE_EXITS,
    .examples = "  picket run backup -- ./backup.sh --full\n"
                "  picket run -w 2m -E 75 deploy -c 'make deploy && make smoke'\n"
                "  picket run --slots 3 encoder -- ffmpeg -i in.mov out.mp4\n"
                "  picket run accounts/alice --also accounts/bob -- ./transfer",
    .words = "LOCK",
    .words_min = 1,
    .words_max = 1,
    .command = true,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
