/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "core/limits.h"

struct settings {
    struct pk_common common;
    const char *name;
    uint64_t token;
    uint64_t lease;
};

static const struct pk_option own[] = {
    {PK_OPTION_NUMBER, 0, "token", "N", "the hold's token (default: $PICKET_TOKEN)",
     offsetof(struct settings, token), 1, PK_TOKEN_MAX},
    {PK_OPTION_NUMBER, 0, "lease", "N", "the lease it is on (default: $PICKET_LEASE)",
     offsetof(struct settings, lease), 1, UINT64_MAX},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

/* Fills in what the environment knows. 0, or an exit code. */
static int complete(struct settings *s)
{
    int code = pk_options_or_env(&s->token, "PICKET_TOKEN", PK_TOKEN_MAX);
    if (code == 0) {
        code = pk_options_or_env(&s->lease, "PICKET_LEASE", UINT64_MAX);
    }
    if (code != 0) {
        return code;
    }
    if (s->name == NULL) {
        s->name = getenv("PICKET_LOCK");
    }
    if (s->name == NULL) {
        return pk_errors_fail("release: which lock? Name it or set PICKET_LOCK");
    }
    if (s->token == 0) {
        return pk_errors_fail("release: which hold? Say --token N or set PICKET_TOKEN");
    }
    if (s->lease == 0) {
        return pk_errors_fail("release: which lease? Say --lease N or set PICKET_LEASE");
    }
    return 0;
}

/* Closes the lease if nothing is left on it. That it stays open does no harm: it ends
 * with its TTL. */
static bool close_if_empty(struct picket *p, uint64_t lease)
{
    struct picket_view *v;
    if (picket_lease_show(p, lease, &v) != PICKET_OK) {
        return false;
    }
    bool empty = v->n_rows == 0;
    picket_view_free(v);
    return empty && picket_lease_close(p, lease) == PICKET_OK;
}

static void tell(const struct settings *s, bool closed)
{
    if (s->common.json) {
        struct pk_json j = {0};
        pk_json_object(&j, NULL);
        pk_json_text(&j, "lock", s->name);
        pk_json_number(&j, "token", s->token);
        pk_json_id(&j, "lease", s->lease);
        pk_json_bool(&j, "lease_closed", closed);
        pk_json_end_object(&j);
    }
    pk_errors_detail("%s released%s", s->name, closed ? ", its lease closed" : "");
}

static int run(int argc, char **argv)
{
    struct picket *p;
    struct pk_words words;
    struct settings s = {0};
    int code = pk_options_parse(&pk_cli_release, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    s.name = words.at[0];
    code = complete(&s);
    if (code == 0) {
        code = pk_cli_open(&s.common, NULL, &p);
    }
    if (code != 0) {
        return code;
    }
    enum picket_status status = picket_lease_release(p, s.lease, s.name, s.token);
    if (status != PICKET_OK) {
        return pk_cli_give_up(p, status);
    }
    tell(&s, close_if_empty(p, s.lease));
    picket_close(p);
    return 0;
}

const struct pk_cli_verb pk_cli_release = {
    .name = "release",
    .brief = "give back a lock taken by acquire",
    .usage = "[LOCK] [--token N] [--lease N]",
    .about = "Gives back the hold of LOCK (default: $PICKET_LOCK) that acquire made, "
             "with the\n"
             "other locks of its set; its lease is closed if nothing else is on it.",
    .exits = "  0    released\n"
             "  122  not allowed\n"
             "  123  it was lost before: not held with that token any more\n"
             "  125  our own error: a wrong call, the store out of reach",
    .examples = "  picket release\n"
                "  picket release deploy --token 42 --lease 17",
    .words = "LOCK",
    .words_max = 1,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
