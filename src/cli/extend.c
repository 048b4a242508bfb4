/* SPDX-License-Identifier: MIT */
#include <inttypes.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "cli/values.h"
#include "core/limits.h"

struct settings {
    struct pk_common common;
    uint64_t lease;
    uint64_t ttl_ms;
};

static const struct pk_option own[] = {
    {PK_OPTION_NUMBER, 0, "lease", "N", "which lease (default: $PICKET_LEASE)",
     offsetof(struct settings, lease), 1, UINT64_MAX},
    {PK_OPTION_SPAN, 0, "ttl", "TIME", "its TTL from now on (default: as before)",
     offsetof(struct settings, ttl_ms), PK_TTL_MIN_MS, PK_TTL_MAX_MS},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

static void tell(const struct settings *s, uint64_t left_ms)
{
    char span[PK_SPAN_ROOM];
    if (s->common.json) {
        struct pk_json j = {0};
        pk_json_object(&j, NULL);
        pk_json_id(&j, "lease", s->lease);
        pk_json_number(&j, "left_ms", left_ms);
        pk_json_end_object(&j);
    }
    pk_errors_detail("lease %" PRIu64 " lives for another %s", s->lease,
                     pk_values_span(left_ms, span));
}

static int run(int argc, char **argv)
{
    struct picket *p;
    struct pk_words words;
    struct settings s = {0};
    uint64_t left_ms = 0;
    int code = pk_options_parse(&pk_cli_extend, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    code = pk_options_or_env(&s.lease, "PICKET_LEASE", UINT64_MAX);
    if (code == 0 && s.lease == 0) {
        code = pk_errors_fail("extend: which lease? Say --lease N or set PICKET_LEASE");
    }
    if (code == 0) {
        code = pk_cli_open(&s.common, NULL, &p);
    }
    if (code != 0) {
        return code;
    }
    enum picket_status status =
        picket_lease_renew(p, s.lease, (uint32_t)s.ttl_ms, &left_ms);
    if (status == PICKET_NOTFOUND) {
        picket_close(p);
        return pk_errors_fail("there never was a lease %" PRIu64 " in this store",
                              s.lease);
    }
    if (status != PICKET_OK) {
        return pk_cli_give_up(p, status);
    }
    tell(&s, left_ms);
    picket_close(p);
    return 0;
}

const struct pk_cli_verb pk_cli_extend = {
    .name = "extend",
    .brief = "renew a lease taken by acquire",
    .usage = "[--lease N] [--ttl TIME]",
    .about = "Renews a lease, so that what it holds stays taken for its whole TTL from "
             "now on.\n"
             "A lease that has ended can't be renewed: then everything on it is lost.",
    .exits = "  0    renewed\n"
             "  122  not allowed\n"
             "  123  the lease has ended, and everything on it\n"
             "  125  our own error: a wrong call, the store out of reach",
    .examples = "  picket extend                       the lease in $PICKET_LEASE\n"
                "  picket extend --lease 17 --ttl 5m",
    .words = "",
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
