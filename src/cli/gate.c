/* SPDX-License-Identifier: MIT */
#include "gate/gate.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "core/limits.h"
#include "core/utf8.h"
#include "server/log.h"

enum {
    HOUR_MS = 3600 * 1000,
    DAY_MS = 24 * HOUR_MS,
    DEPTH_MAX = 16,
    CONNECTIONS_MAX = 100000
};

struct settings {
    struct pk_common common;
    struct pk_gate_options gate;
    const char *from, *missing, *log;
    uint64_t depth, connections, ttl_ms;
};

#define AT(field) offsetof(struct settings, field)

static const struct pk_option options[] = {
    {PK_OPTION_TEXT, 0, "listen", "HOST:PORT",
     "for clients; port 0 picks one and says it", AT(gate.listen), 0, 0},
    {PK_OPTION_TEXT, 0, "upstream", "URL",
     "the service behind: http://HOST[:PORT][/base]", AT(gate.upstream), 0, 0},
    {PK_OPTION_TEXT, 0, "resource-from", "WHERE",
     "path-prefix (the first segments of the path) or header\n(X-Picket-Resource)",
     AT(from), 0, 0},
    {PK_OPTION_NUMBER, 0, "depth", "N",
     "segments of the path that name the resource (default: 1)", AT(depth), 1, DEPTH_MAX},
    {PK_OPTION_TEXT, 0, "name", "NAME",
     "of the gate: its lock, and where its fences begin\n(default: gate)", AT(gate.name),
     0, 0},
    {PK_OPTION_TEXT, 0, "missing", "POLICY",
     "requests without a token: refuse (the default), pass,\nor shadow (pass and count)",
     AT(missing), 0, 0},
    {PK_OPTION_FLAG, 0, "shadow", NULL,
     "refuse nothing for its token; count and log what would be", AT(gate.shadow), 0, 0},
    {PK_OPTION_FLAG, 0, "shared", NULL,
     "several gates of this name at once; each request\nasks the store", AT(gate.shared),
     0, 0},
    {PK_OPTION_FLAG, 0, "standby", NULL,
     "wait for the gate of this name to end, then take over", AT(gate.standby), 0, 0},
    {PK_OPTION_SPAN, 0, "drain", "TIME",
     "wait for lower tokens in flight at most that long\n(default: 30s)",
     AT(gate.drain_ms), 1, HOUR_MS},
    {PK_OPTION_SPAN, 0, "cut-off", "TIME",
     "cut off lower tokens that are in the way for that long\n(default: never)",
     AT(gate.cut_off_ms), 1, HOUR_MS},
    {PK_OPTION_FLAG, 0, "retry-unknown", NULL,
     "forward a repeated Idempotency-Key whose outcome is unknown",
     AT(gate.retry_unknown), 0, 0},
    {PK_OPTION_SPAN, 0, "keep-keys", "TIME",
     "keep what is known of an Idempotency-Key that long; then\nits repeat is a new call "
     "(default: 24h)",
     AT(gate.keep_keys_ms), PK_TTL_MIN_MS, PK_KEEP_MAX_MS},
    {PK_OPTION_SPAN, 0, "upstream-timeout", "TIME",
     "of silence of the service (default: 60s)", AT(gate.upstream_ms), 1, DAY_MS},
    {PK_OPTION_SPAN, 0, "header-timeout", "TIME",
     "for a request's head to come (default: 10s)", AT(gate.header_ms), 1, HOUR_MS},
    {PK_OPTION_SPAN, 0, "body-timeout", "TIME",
     "of silence in a body, or in taking an answer (default: 60s)", AT(gate.body_ms), 1,
     HOUR_MS},
    {PK_OPTION_SPAN, 0, "idle-timeout", "TIME",
     "between two requests of a connection (default: 60s)", AT(gate.idle_ms), 1, HOUR_MS},
    {PK_OPTION_NUMBER, 0, "connections", "N", "of clients, at most (default: 1024)",
     AT(connections), 1, CONNECTIONS_MAX},
    {PK_OPTION_TEXT, 0, "admin", "HOST:PORT",
     "serve /metrics, /healthz, /readyz and /fences there", AT(gate.admin), 0, 0},
    {PK_OPTION_SPAN, 0, "ttl", "TIME", "of the gate's own lease (default: 10s)",
     AT(ttl_ms), PK_TTL_MIN_MS, PK_TTL_MAX_MS},
    {PK_OPTION_TEXT, 0, "log", "FORMAT", "text (the default) or json", AT(log), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {options, 0},
    {pk_options_common, AT(common)},
    {0},
};

/* Which of the words it is; -1: none. */
static int choose(const char *word, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static int check_choices(struct settings *s)
{
    static const char *const froms[] = {"path-prefix", "header", NULL};
    static const char *const policies[] = {"refuse", "pass", "shadow", NULL};
    static const char *const formats[] = {"text", "json", NULL};
    int from = choose(s->from, froms);
    int policy = choose(s->missing, policies);
    if (from < 0) {
        return pk_errors_fail("gate: --resource-from is path-prefix or header, not %s",
                              s->from);
    }
    if (policy < 0) {
        return pk_errors_fail("gate: --missing is refuse, pass or shadow, not %s",
                              s->missing);
    }
    if (choose(s->log, formats) < 0) {
        return pk_errors_fail("gate: --log is text or json, not %s", s->log);
    }
    s->gate.from_field = from == 1;
    s->gate.missing = (enum pk_gate_missing)policy;
    return 0;
}

static int check(struct settings *s)
{
    size_t name = strlen(s->gate.name);
    if (s->gate.upstream != NULL && strchr(s->gate.upstream, '@') != NULL) {
        return pk_errors_fail("gate: --upstream takes no user and password; requests "
                              "carry their own");
    }
    if (s->gate.listen == NULL || s->gate.upstream == NULL || s->from == NULL) {
        return pk_errors_fail("gate: say --listen, --upstream and --resource-from; see "
                              "'picket gate --help'");
    }
    if (name == 0 || name > PK_GATE_NAME_MAX ||
        !pk_utf8_printable(pk_text(s->gate.name), false)) {
        return pk_errors_fail("gate: --name has 1 to %d printable bytes",
                              PK_GATE_NAME_MAX);
    }
    if (s->gate.shared && s->gate.standby) {
        return pk_errors_fail("gate: --shared gates don't wait for each other; leave "
                              "--standby out");
    }
    if (s->gate.cut_off_ms > s->gate.drain_ms) {
        return pk_errors_fail("gate: --cut-off must not be longer than --drain, or "
                              "nothing is ever cut off");
    }
    s->gate.depth = (uint32_t)s->depth;
    s->gate.connections = (uint32_t)s->connections;
    return check_choices(s);
}

/* Opens the store, which has to be one that keeps fences. 0, or an exit code. */
static int open_store(struct settings *s)
{
    struct picket_options o = {.ttl_ms = (uint32_t)s->ttl_ms, .note = s->gate.listen};
    int code = pk_cli_open(&s->common, &o, &s->gate.store);
    if (code == 0 && picket_guarantees(s->gate.store)->fence == 0) {
        code = pk_errors_fail("gate: %s keeps no fences, and the gate needs a store that "
                              "does: local: or picket://",
                              picket_guarantees(s->gate.store)->driver);
        picket_close(s->gate.store);
    }
    return code;
}

static int run(int argc, char **argv)
{
    struct settings s = {.gate = {.name = "gate",
                                  .drain_ms = 30000,
                                  .upstream_ms = 60000,
                                  .header_ms = 10000,
                                  .body_ms = 60000,
                                  .idle_ms = 60000,
                                  .keep_keys_ms = DAY_MS},
                         .missing = "refuse",
                         .log = "text",
                         .depth = 1,
                         .connections = 1024};
    struct pk_words words;
    char why[512];
    int code = pk_options_parse(&pk_cli_gate, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    code = check(&s);
    if (code == 0) {
        code = open_store(&s);
    }
    if (code != 0) {
        return code;
    }
    pk_log_open(s.common.quiet     ? PK_LOG_ERROR
                : s.common.verbose ? PK_LOG_DEBUG
                                   : PK_LOG_INFO,
                strcmp(s.log, "json") == 0);
    char *url = pk_cli_shown_url(&s.common);
    s.gate.url = url;
    enum pk_gate_end end = pk_gate_run(&s.gate, why, sizeof why);
    free(url);
    if (end == PK_GATE_STOPPED) {
        return 0;
    }
    code = pk_errors_fail("gate: %s%s", why,
                          end == PK_GATE_BUSY ? "; --standby waits for it" : "");
    return end == PK_GATE_BUSY ? PK_EXIT_BUSY : code;
}

const struct pk_cli_verb pk_cli_gate = {
    .name = "gate",
    .brief = "put a fence in front of an HTTP service",
    .usage = "--listen HOST:PORT --upstream URL --resource-from WHERE "
             "[OPTIONS]",
    .about =
        "Runs an HTTP/1.1 reverse proxy until SIGTERM or SIGINT. Requests carry the "
        "token of\n"
        "the lock that their sender holds, in X-Picket-Token; one that is lower than "
        "the highest\n"
        "seen for its resource is refused (409), so that a holder that lost its lock "
        "without\n"
        "noticing can't do harm. A higher one is let in when no lower one is in flight "
        "any more.\n"
        "Fences live in the store, as NAME/RESOURCE, and survive the gate.\n"
        "\n"
        "POST, PUT, PATCH and DELETE with an Idempotency-Key are made once: repeats get "
        "the\n"
        "answer that was kept, for --keep-keys.\n"
        "\n"
        "One gate of a name stands at a time, unless they are --shared.",
    .exits = "  0    stopped as asked\n"
             "  122  not allowed\n"
             "  124  a gate of that name stands already\n"
             "  125  our own error: a wrong call, an address in use, the store out of "
             "reach",
    .examples =
        "  picket gate --listen 127.0.0.1:8080 --upstream http://127.0.0.1:9000 \\\n"
        "      --resource-from path-prefix\n"
        "  picket run accounts -- sh -c 'curl -X PUT --data-binary @new.json \\\n"
        "      -H \"X-Picket-Token: $PICKET_TOKEN\" http://127.0.0.1:8080/accounts/7'",
    .words = "",
    .groups = groups,
    .common = AT(common),
    .run = run,
};
