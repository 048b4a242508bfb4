/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/declared.h"
#include "cli/output.h"
#include "client/driver.h"

struct settings {
    struct pk_common common;
};

static const struct pk_option_group groups[] = {
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

static void print_json(void)
{
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "version", picket_version());
    pk_json_array(&j, "drivers");
    for (size_t i = 0; pk_driver_at(i) != NULL; i++) {
        pk_json_object(&j, NULL);
        pk_declared_json(&j, &pk_driver_at(i)->guarantees);
        pk_json_end_object(&j);
    }
    pk_json_end_array(&j);
    pk_json_end_object(&j);
}

static void print_text(void)
{
    (void)printf("picket %s\n", picket_version());
    for (size_t i = 0; pk_driver_at(i) != NULL; i++) {
        const struct picket_guarantees *g = &pk_driver_at(i)->guarantees;
        (void)printf("  %s: %s, %s\n", g->driver, g->promise, g->scope);
    }
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct settings s = {0};
    int code = pk_options_parse(&pk_cli_version, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    if (s.common.json) {
        print_json();
    } else {
        print_text();
    }
    return 0;
}

const struct pk_cli_verb pk_cli_version = {
    .name = "version",
    .brief = "print the version and the stores that are built in",
    .usage = "[OPTIONS]",
    .about = "Prints the version, and each kind of store that this program can use with "
             "what it\n"
             "promises.",
    .exits = "  0    printed\n"
             "  125  our own error: a wrong call",
    .examples = "  picket version -o json",
    .words = "",
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
