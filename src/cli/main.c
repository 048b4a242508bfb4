/* SPDX-License-Identifier: MIT */
/* The program: finds the verb and lets it run. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/argv.h"
#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/fds.h"
#include "host/memory.h"

static const struct pk_cli_verb *const verbs[] = {
    &pk_cli_run,   &pk_cli_once,    &pk_cli_acquire, &pk_cli_extend, &pk_cli_release,
    &pk_cli_elect, &pk_cli_ls,      &pk_cli_show,    &pk_cli_watch,  &pk_cli_break,
    &pk_cli_fence, &pk_cli_gate,    &pk_cli_drill,   &pk_cli_sim,    &pk_cli_serve,
    &pk_cli_dev,   &pk_cli_cluster, &pk_cli_doctor,  &pk_cli_bench,  &pk_cli_version,
};

enum { VERBS = sizeof verbs / sizeof verbs[0] };

static const struct pk_cli_verb *find_verb(const char *name)
{
    for (size_t i = 0; i < VERBS; i++) {
        if (strcmp(name, verbs[i]->name) == 0 ||
            (verbs[i]->alias != NULL && strcmp(name, verbs[i]->alias) == 0)) {
            return verbs[i];
        }
    }
    return NULL;
}

static int complain_of_verb(const char *name)
{
    return pk_errors_fail("there is no verb \"%s\"; 'picket --help' lists them", name);
}

static void print_help(void)
{
    (void)puts(
        "Usage: picket VERB [OPTIONS] [WORDS]\n"
        "       picket help VERB\n"
        "\n"
        "Locks across processes and machines. Every grant has a token that only "
        "grows, so\nthat what you protect can refuse a late holder; a command under a "
        "lock is dead\nbefore the lock moves on.\n"
        "\n"
        "Verbs:");
    for (size_t i = 0; i < VERBS; i++) {
        (void)printf("  %-10s%s\n", verbs[i]->name, verbs[i]->brief);
    }
    (void)puts(
        "\n"
        "The store is --on URL, else $PICKET_URL, else local: (no server): the store "
        "of this\nmachine in /var/lib/picket, if an admin has made one for a group that "
        "you are in,\nelse one of your own, which no other user sees; 'picket doctor' "
        "tells which. A password\nis safer in $PICKET_URL than in --on.\n"
        "'picket help VERB' explains a verb; 'man picket' has everything.\n"
        "\n"
        "Examples:\n"
        "  picket run backup -- ./backup.sh      one backup at a time\n"
        "  picket run -n backup -- ./backup.sh   ... or not at all: exit code 124\n"
        "  picket show backup                    who has it, and who waits");
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        print_help();
        return 0;
    }
    const struct pk_cli_verb *v = find_verb(argv[1]);
    if (v == NULL) {
        return complain_of_verb(argv[1]);
    }
    pk_options_help(v);
    return 0;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        return pk_errors_fail("what to do? 'picket --help' lists the verbs");
    }
    const char *name = argv[1];
    const struct pk_cli_verb *v = find_verb(name);
    if (v != NULL) {
        return v->run(argc - 1, argv + 1);
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 ||
        strcmp(name, "-h") == 0) {
        return help(argc - 1, argv + 1);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        (void)printf("picket %s\n", picket_version());
        return 0;
    }
    if (name[0] == '-') {
        return pk_errors_fail(
            "options come after the verb, as in 'picket run %s ...'; see "
            "'picket --help'",
            name);
    }
    return complain_of_verb(name);
}

int main(int argc, char **argv)
{
    if (!pk_fds_fill_standard()) {
        return PK_EXIT_ERROR;
    }
    pk_memory_exit_code(PK_EXIT_ERROR);
    int code = dispatch(argc, pk_argv_take(argc, argv));
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        return pk_errors_fail("can't write the output: %s", strerror(errno));
    }
    return code;
}
