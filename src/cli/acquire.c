/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/grant.h"
#include "cli/output.h"
#include "cli/signals.h"

enum { TTL_MS = 60000 };

struct settings {
    struct pk_common common;
    struct pk_grant grant;
};

static const struct pk_option lease_rows[] = {
    PK_GRANT_TTL("how long the lock stays yours (default: 60s)"),
    {PK_OPTION_SPAN, 0, "lock-delay", "TIME",
     "after an unclean end the lock stays closed so long\n(default: 0s)",
     offsetof(struct pk_grant, lock_delay_ms), 0, PK_DELAY_MAX_MS},
    {0},
};

static const struct pk_option_group groups[] = {
    {pk_grant_kinds, offsetof(struct settings, grant)},
    {pk_grant_options, offsetof(struct settings, grant)},
    {lease_rows, offsetof(struct settings, grant)},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

/* The URL is whole, with its password: what comes after must reach the same store. */
static void print_text(const struct settings *s, uint64_t token, uint64_t lease)
{
    char *url = pk_cli_url(&s->common);
    pk_output_shell("PICKET_LOCK", s->grant.name);
    (void)printf("PICKET_TOKEN=%" PRIu64 "\nPICKET_LEASE=%" PRIu64 "\n", token, lease);
    pk_output_shell("PICKET_URL", url);
    (void)puts("export PICKET_LOCK PICKET_TOKEN PICKET_LEASE PICKET_URL");
    free(url);
}

static void print_json(const struct settings *s, uint64_t token, uint64_t lease)
{
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "lock", s->grant.name);
    if (s->grant.also.count > 0) {
        pk_json_array(&j, "also");
        for (size_t i = 0; i < s->grant.also.count; i++) {
            pk_json_text(&j, NULL, s->grant.also.at[i]);
        }
        pk_json_end_array(&j);
    }
    pk_json_number(&j, "token", token);
    pk_json_id(&j, "lease", lease);
    pk_json_number(&j, "ttl_ms", s->grant.ttl_ms);
    pk_json_text(&j, "url", s->grant.store);
    pk_json_end_object(&j);
}

/* The lock is ours: hands it over to whoever reads our output. */
static int hand_over(const struct settings *s, struct picket *p, struct picket_lock *l)
{
    uint64_t token = picket_token(l);
    uint64_t lease = picket_lease(p);
    /* The wait may have used up some of the lease; nobody renews it from here on. A store
     * that can't be written to any more does not take back what it has granted. */
    enum picket_status status = picket_extend(p, 0);
    if (status != PICKET_OK && picket_checkpoint(l, 0) != PICKET_OK) {
        return pk_errors_status(status);
    }
    if (s->common.json) {
        print_json(s, token, lease);
    } else {
        print_text(s, token, lease);
    }
    if (fflush(stdout) != 0) {
        return PK_EXIT_ERROR; /* nobody learns that it is held; main() says why */
    }
    picket_detach(p);
    return 0;
}

static int run(int argc, char **argv)
{
    struct picket *p;
    struct picket_lock *l;
    struct pk_words words;
    struct settings s = {.grant = PK_GRANT_DEFAULTS};
    s.grant.ttl_ms = TTL_MS;
    int code = pk_options_parse(&pk_cli_acquire, argc, argv, &s, &words);
    if (code < 0) {
        code = pk_grant_check(&s.grant);
    }
    if (code >= 0) {
        return code;
    }
    struct pk_grant_wait wait = {.signal_fd = pk_signals_catch(), .gone_fd = -1};
    s.grant.name = words.at[0];
    code = wait.signal_fd < 0 ? PK_EXIT_ERROR : pk_grant_open(&s.common, &s.grant, &p);
    if (code != 0) {
        return code;
    }
    if (picket_guarantees(p)->by_id == 0) {
        code =
            pk_errors_fail("with %s a lock ends with its process, so it can't be handed "
                           "over; use 'picket run'",
                           picket_guarantees(p)->driver);
        picket_close(p);
        return code;
    }
    code = pk_grant_take(p, &s.grant, &wait, &l);
    if (code == 0) {
        code = hand_over(&s, p, l);
    }
    picket_close(p);
    return code;
}

const struct pk_cli_verb pk_cli_acquire = {
    .name = "acquire",
    .brief = "take a lock for a while and print its token",
    .usage = "[OPTIONS] LOCK",
    .about = "Takes LOCK and exits; the lock stays taken until 'picket release', or "
             "until its TTL\n"
             "is over since the last 'picket extend'. Nobody watches over the work "
             "meanwhile: use\n"
             "'picket run' where you can, and give the token to what you protect.\n"
             "\n"
             "Prints lines that a shell can evaluate, which set and export PICKET_LOCK,\n"
             "PICKET_TOKEN, PICKET_LEASE and PICKET_URL (the store, with its password if "
             "it has one);\n"
             "'picket extend', 'picket release' and 'picket fence' look there.",
    .exits = "  0    the lock is yours\n" PK_GRANT_EXITS,
    .examples = "  vars=$(picket acquire --ttl 5m deploy) || exit\n"
                "  eval \"$vars\"\n"
                "  ./deploy --token \"$PICKET_TOKEN\"\n"
                "  picket release",
    .words = "LOCK",
    .words_min = 1,
    .words_max = 1,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
