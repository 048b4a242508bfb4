/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/observe.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/supervise.h"
#include "core/door.h"

struct settings {
    struct pk_common common;
    struct pk_grant grant;
    struct pk_supervise supervise;
    bool observe;
    bool once;
};

static const struct pk_option own[] = {
    {PK_OPTION_FLAG, 0, "observe", NULL,
     "don't stand; print the leader, now and whenever\nit changes",
     offsetof(struct settings, observe), 0, 0},
    {PK_OPTION_FLAG, 0, "once", NULL, "with --observe: print the leader and exit",
     offsetof(struct settings, once), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_grant_options, offsetof(struct settings, grant)},
    {pk_supervise_lease_options, offsetof(struct settings, grant)},
    {pk_supervise_options, offsetof(struct settings, supervise)},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

static void announce(const struct settings *s, struct picket *p, struct picket_lock *l)
{
    if (s->common.json) {
        struct pk_json j = {0};
        pk_json_object(&j, NULL);
        pk_json_text(&j, "lock", s->grant.name);
        pk_json_number(&j, "token", picket_token(l));
        pk_json_id(&j, "lease", picket_lease(p));
        pk_json_text(&j, "value", s->grant.value);
        pk_json_end_object(&j);
    } else {
        (void)printf("leader %s token=%" PRIu64 "\n", s->grant.name, picket_token(l));
    }
    (void)fflush(stdout);
}

/* Leads until a signal asks us to stop, or leadership is lost. */
static int lead(const struct settings *s, struct picket_lock *l, int signal_fd)
{
    struct signalfd_siginfo info;
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
                           {.fd = picket_loss_fd(l), .events = POLLIN}};
    for (;;) {
        PK_ASSERT(poll(fds, 2, -1) >= 0 || errno == EINTR);
        if (fds[1].revents != 0) {
            (void)pk_errors_fail("%s lost: %s", s->grant.name, pk_supervise_reason(l));
            return PK_EXIT_LOST;
        }
        while (pk_signals_next(signal_fd, &info)) {
            if (pk_signals_ends(&info)) {
                pk_supervise_release(&s->supervise, l);
                return PK_EXIT_SIGNAL + (int)info.ssi_signo;
            }
        }
    }
}

static int stand(struct settings *s)
{
    struct picket *p;
    struct picket_lock *l;
    int code = pk_supervise_check(&s->supervise);
    if (code >= 0) {
        return code;
    }
    struct pk_grant_wait wait = {.signal_fd = pk_signals_catch(), .gone_fd = -1};
    code = wait.signal_fd < 0 ? PK_EXIT_ERROR : pk_grant_open(&s->common, &s->grant, &p);
    if (code != 0) {
        return code;
    }
    code = pk_grant_take(p, &s->grant, &wait, &l);
    if (code == 0) {
        announce(s, p, l);
        code = ferror(stdout) != 0 ? PK_EXIT_ERROR : lead(s, l, wait.signal_fd);
    }
    picket_close(p);
    return code;
}

/* What the words and options of an election are wrong about together; 0: nothing. */
static int check(const struct settings *s, const struct pk_words *w)
{
    bool command = w->command != NULL && w->command[0] != NULL;
    if (s->once && !s->observe) {
        return pk_errors_fail("elect: --once goes with --observe");
    }
    if (s->observe && (w->count > 1 || command)) {
        return pk_errors_fail("elect: --observe takes a NAME and nothing else");
    }
    if (!s->observe && w->count < 2) {
        return pk_errors_fail("elect: VALUE is missing; see 'picket elect --help'");
    }
    if (w->command != NULL && !(w->dashes && command)) {
        return pk_errors_fail(
            "elect: the command goes behind --, as in 'picket elect %s %s "
            "-- COMMAND'",
            w->at[0], w->at[1]);
    }
    if (command && s->common.json) {
        return pk_errors_fail(
            "elect: standard output is the command's; leave out -o json");
    }
    return 0;
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct settings s = {.grant = PK_GRANT_DEFAULTS};
    pk_supervise_defaults(&s.supervise, &s.grant, &s.common);
    int code = pk_options_parse(&pk_cli_elect, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    code = check(&s, &words);
    if (code != 0) {
        return code;
    }
    if (s.observe) {
        return pk_observe(&s.common, words.at[0], s.once);
    }
    s.grant.name = words.at[0];
    s.grant.value = words.at[1];
    s.supervise.argv = words.command;
    return words.command != NULL ? pk_supervise(&s.supervise) : stand(&s);
}

const struct pk_cli_verb pk_cli_elect = {
    .name = "elect",
    .brief = "lead, or see who leads",
    .usage = "[OPTIONS] NAME VALUE [-- COMMAND [ARG...]]\n"
             "--observe [--once] NAME",
    .about = "Stands for the election NAME; VALUE (an address, say) is what observers "
             "read. Once\n"
             "elected, runs COMMAND as 'picket run' does, for as long as we lead; "
             "without one,\n"
             "prints 'leader NAME token=N' and leads until a signal or until leadership "
             "is lost.\n"
             "\n"
             "With --observe prints 'leader NAME token=N value=VALUE' or 'none NAME', "
             "now and\n"
             "after every change.",
    .exits = PK_SUPERVISE_EXITS
    "\n  128+N also when signal N ended leading without a command\n"
    "  1    with --observe --once: nobody leads",
    .examples = "  picket elect scheduler \"$(hostname):8080\" -- ./scheduler\n"
                "  picket elect --observe scheduler\n"
                "  picket elect --observe --once -o json scheduler",
    .words = "NAME",
    .words_min = 1,
    .words_max = 2,
    .command = true,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
