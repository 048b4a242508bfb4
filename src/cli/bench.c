/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/load.h"
#include "cli/output.h"
#include "proto/proto.h"
#include "server/ask.h"

struct settings {
    struct pk_common common;
    uint64_t clients, connections, ms, holds;
    bool redis;
};

enum { CLIENTS_MAX = 10000, TRIES = 40, TRY_MS = 250 };

static const struct pk_option options[] = {
    {PK_OPTION_NUMBER, 'c', "clients", "N", "each with one request in flight",
     offsetof(struct settings, clients), 1, CLIENTS_MAX},
    {PK_OPTION_NUMBER, 0, "connections", "N",
     "that the clients share (default: one for each)",
     offsetof(struct settings, connections), 1, CLIENTS_MAX},
    {PK_OPTION_SPAN, 't', "time", "SPAN", "for that long (default: 5s)",
     offsetof(struct settings, ms), 100, 3600000},
    {PK_OPTION_NUMBER, 0, "holds", "N", "for hold: how many (default: 100000)",
     offsetof(struct settings, holds), 1, 10000000},
    {PK_OPTION_FLAG, 0, "redis", NULL, "use Redis' lock idiom, on a Redis or on Picket",
     offsetof(struct settings, redis), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {options, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

static const struct {
    const char *word;
    enum pk_load_kind kind;
    uint32_t clients;
} kinds[] = {
    {"latency", PK_LOAD_PAIRS, 1},    {"pairs", PK_LOAD_PAIRS, 64},
    {"handoff", PK_LOAD_HANDOFF, 51}, {"renew", PK_LOAD_RENEW, 64},
    {"hold", PK_LOAD_HOLD, 16},
};

/* ---- finding the leader ---- */

/* Asks the node; true: it leads. Otherwise `next` may get the leader's address. */
static bool leads(const char *address, char *next, size_t size)
{
    struct pk_ask a;
    struct pk_bytes answer;
    bool sent, found = false;
    const char *const redirect[] = {"CLIENT", "REDIRECT", "ON"};
    const char *const read[] = {"LOCK", "SHOW", "bench/0"};
    next[0] = '\0';
    if (pk_ask_open(&a, address, 1000) &&
        pk_ask_words(&a, redirect, 3, 1000, &answer, &sent) &&
        pk_ask_words(&a, read, 3, 1000, &answer, &sent)) {
        struct pk_bytes detail = {0};
        bool error = answer.data[0] == '-';
        found = !error;
        if (error && pk_proto_error_of(pk_bytes(answer.data + 1, answer.len - 3),
                                       &detail) == PK_PROTO_ERROR_NOTLEADER) {
            (void)snprintf(next, size, "%.*s", (int)detail.len, detail.data);
        }
    }
    pk_ask_close(&a);
    return found;
}

/* The leader among the hosts of picket://h1,h2; for Redis simply the first one. */
static bool find_leader(const char *hosts, bool redis, char *out, size_t size)
{
    char next[256];
    const char *at = hosts;
    for (int i = 0; i < TRIES; i++) {
        size_t len = strcspn(at, ",/");
        bool port = memchr(at, ':', len) != NULL;
        (void)snprintf(out, size, "%.*s%s", (int)len, at, port ? "" : ":7420");
        if (redis || leads(out, next, sizeof next)) {
            return true;
        }
        if (next[0] != '\0') {
            (void)snprintf(out, size, "%s", next);
            if (leads(out, next, sizeof next)) {
                return true;
            }
        }
        at = at[len] == ',' ? at + len + 1 : hosts;
        (void)usleep(TRY_MS * 1000 / 10);
    }
    return false;
}

/* ---- what was measured ---- */

static void print_series(const char *name, struct pk_load_series *s)
{
    if (s->count == 0) {
        return;
    }
    pk_load_sort(s);
    (void)printf("  %-8s p50 %8.1f us   p90 %8.1f us   p99 %8.1f us   p99.9 %8.1f us\n",
                 name, pk_load_at(s, 500) / 1e3, pk_load_at(s, 900) / 1e3,
                 pk_load_at(s, 990) / 1e3, pk_load_at(s, 999) / 1e3);
}

static void json_series(struct pk_json *j, const char *name, struct pk_load_series *s)
{
    if (s->count == 0) {
        return;
    }
    pk_load_sort(s);
    pk_json_object(j, name);
    pk_json_number(j, "count", s->count);
    pk_json_number(j, "p50_ns", pk_load_at(s, 500));
    pk_json_number(j, "p90_ns", pk_load_at(s, 900));
    pk_json_number(j, "p99_ns", pk_load_at(s, 990));
    pk_json_number(j, "p999_ns", pk_load_at(s, 999));
    pk_json_number(j, "max_ns", pk_load_at(s, 1000));
    pk_json_end_object(j);
}

/* What one run counts: pairs, hand-offs, renewals or holds. */
static uint64_t operations(const struct pk_load_result *r, const char **unit)
{
    const struct {
        uint64_t n;
        const char *unit;
    } all[] = {{r->handoff.count, "hand-offs"},
               {r->pair.count, "pairs"},
               {r->renew.count, "renewals"},
               {r->acquire.count, "locks"}};
    size_t i = 0;
    while (i < 3 && all[i].n == 0) {
        i++;
    }
    *unit = all[i].unit;
    return all[i].n;
}

static void report(const char *word, const struct settings *s, struct pk_load_result *r)
{
    const char *unit;
    uint64_t n = operations(r, &unit);
    uint64_t rate = r->elapsed_ns == 0 ? 0 : n * 1000000000 / r->elapsed_ns;
    if (s->common.json) {
        struct pk_json j = {0};
        pk_json_object(&j, NULL);
        pk_json_text(&j, "load", word);
        pk_json_number(&j, "clients", s->clients);
        pk_json_number(&j, "elapsed_ns", r->elapsed_ns);
        pk_json_text(&j, "unit", unit);
        pk_json_number(&j, "count", n);
        pk_json_number(&j, "per_second", rate);
        pk_json_number(&j, "errors", r->errors);
        json_series(&j, "acquire", &r->acquire);
        json_series(&j, "release", &r->release);
        json_series(&j, "pair", &r->pair);
        json_series(&j, "handoff", &r->handoff);
        json_series(&j, "renew", &r->renew);
        pk_json_end_object(&j);
        return;
    }
    (void)printf("%s, %" PRIu64 " clients: %" PRIu64 " %s in %.2f s, %" PRIu64
                 " a second, %" PRIu64 " errors\n",
                 word, s->clients, n, unit, (double)r->elapsed_ns / 1e9, rate, r->errors);
    print_series("acquire", &r->acquire);
    print_series("release", &r->release);
    print_series("pair", &r->pair);
    print_series("handoff", &r->handoff);
    print_series("renew", &r->renew);
}

/* ---- the verb ---- */

static int run(int argc, char **argv)
{
    struct settings s = {.ms = 5000, .holds = 100000};
    struct pk_words words;
    int code = pk_options_parse(&pk_cli_bench, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    size_t k = 0;
    while (k < sizeof kinds / sizeof kinds[0] &&
           strcmp(words.at[0], kinds[k].word) != 0) {
        k++;
    }
    if (k == sizeof kinds / sizeof kinds[0]) {
        return pk_errors_fail("there is no load \"%s\"; it is latency, pairs, handoff, "
                              "renew or hold",
                              words.at[0]);
    }
    if (s.connections != 0 && kinds[k].kind == PK_LOAD_HANDOFF) {
        return pk_errors_fail("who waits for a lock needs a connection of its own; leave "
                              "out --connections");
    }
    if (s.redis && kinds[k].kind != PK_LOAD_PAIRS && kinds[k].kind != PK_LOAD_HOLD) {
        return pk_errors_fail("Redis' idiom has no %s; use latency, pairs or hold",
                              words.at[0]);
    }
    char *url = pk_cli_url(&s.common);
    const char *scheme = s.redis ? "redis://" : "picket://";
    char address[256], why[256];
    if (strncmp(url, scheme, strlen(scheme)) != 0) {
        code = pk_errors_fail("bench needs a server: --on %sHOST:PORT", scheme);
    } else if (!find_leader(url + strlen(scheme), s.redis, address, sizeof address)) {
        code = pk_errors_fail("no leader found at %s", url);
    }
    free(url);
    if (code >= 0) {
        return code;
    }
    s.clients = s.clients == 0 ? kinds[k].clients : s.clients;
    if (kinds[k].kind == PK_LOAD_HOLD && s.clients > s.holds) {
        s.clients = s.holds; /* each of them takes one lock at least */
    }
    struct pk_load_options o = {.kind = kinds[k].kind,
                                .address = address,
                                .clients = (uint32_t)s.clients,
                                .connections = (uint32_t)s.connections,
                                .ms = s.ms,
                                .holds = s.holds,
                                .redis = s.redis,
                                .progress = !s.common.quiet && isatty(STDERR_FILENO)};
    struct pk_load_result r;
    if (!pk_load_run(&o, &r, why, sizeof why)) {
        return pk_errors_fail("%s", why);
    }
    report(words.at[0], &s, &r);
    if (r.errors > 0) {
        pk_errors_remark("%" PRIu64 " requests failed, the first with: %s", r.errors,
                         r.first_error);
    }
    pk_load_free(&r);
    return r.errors > 0 ? PK_EXIT_NO : 0;
}

const struct pk_cli_verb pk_cli_bench = {
    .name = "bench",
    .brief = "measure a lock service",
    .usage = "[OPTIONS] latency|pairs|handoff|renew|hold",
    .about =
        "Puts a load on a server and prints how long answers take. Each client has one "
        "request in\n"
        "flight, on a connection of its own or on one that it shares.\n"
        "\n"
        "  latency  one client takes and releases a lock\n"
        "  pairs    64 clients do so, each with a lock of its own\n"
        "  handoff  50 wait for one lock: from the release to the next one's grant\n"
        "  renew    64 clients renew their leases\n"
        "  hold     takes 100000 locks, each on a lease of its own, and leaves them "
        "held\n"
        "           for ten minutes: look at the server's memory\n"
        "\n"
        "With --redis the store is redis://HOST:PORT, a Redis or Picket itself.",
    .exits = "  0    measured\n"
             "  1    some requests failed\n"
             "  125  our own error: a wrong call, no leader",
    .examples = "  picket bench --on picket://127.0.0.1 latency\n"
                "  picket bench --on picket://127.0.0.1 pairs -c 256 -t 10s\n"
                "  picket bench --redis --on redis://127.0.0.1:6379 pairs",
    .words = "LOAD",
    .words_min = 1,
    .words_max = 1,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
