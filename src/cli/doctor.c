/* SPDX-License-Identifier: MIT */
/*
 * Finds out whether locks in a store are safe: what its driver declares, how the store is
 * set up, and whether a lease outlives the pauses and round trips measured here.
 *
 * What is declared is known without the store, so it is told even when nobody answers.
 */
#include "cli/doctor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/declared.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "cli/values.h"
#include "client/client.h"
#include "client/error.h"
#include "client/url.h"
#include "host/clock.h"
#include "host/memory.h"

enum { REACH_MS = 5000, TTL_MS = 10000, CODE_COLUMNS = 18 };

struct settings {
    struct pk_common common;
    uint64_t ttl_ms;
    uint64_t reach_ms;
    const char *require;
};

#define AT(field) offsetof(struct settings, field)

static const struct pk_option own[] = {
    {PK_OPTION_SPAN, 0, "ttl", "TIME", "the TTL that your leases have (default: 10s)",
     AT(ttl_ms), PK_TTL_MIN_MS, PK_TTL_MAX_MS},
    {PK_OPTION_TEXT, 0, "require", "CLASS",
     "correctness or efficiency: a store that promises\nless is unsafe", AT(require), 0,
     0},
    {PK_OPTION_WAIT, 'w', "wait", "TIME",
     "try to reach the store for that long (default: 5s)", AT(reach_ms), 0,
     PK_WAIT_MAX_MS},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, offsetof(struct settings, common)},
    {pk_options_common, offsetof(struct settings, common)},
    {0},
};

/* All that there is to tell. */
struct report {
    char *url; /* without its password */
    const struct picket_guarantees *guarantees;
    uint64_t ttl_ms;
    bool reached;
    enum picket_status status; /* of the first thing that failed, and its sentence */
    char error[PK_SENTENCE_MAX];
    struct pk_findings findings;
    struct pk_doctor_times times;
    struct pk_cluster_health health; /* no voters: the store is no cluster */
};

/* ---- looking ---- */

static void note_failure(struct report *r, enum picket_status s)
{
    if (s != PICKET_OK && r->status == PICKET_OK) {
        r->status = s;
        pk_sentence_save(r->error);
    }
}

static bool is_cluster(const struct pk_driver *d)
{
    return d == &pk_remote_driver;
}

/* Asks the store about its settings. */
static enum picket_status examine(struct picket *p, const char *rest, uint64_t until_ms,
                                  struct report *r)
{
    if (is_cluster(p->driver)) {
        return pk_doctor_cluster(rest, &r->findings, &r->health);
    }
    return p->driver->examine != NULL
               ? p->driver->examine(p->store, &r->findings, until_ms)
               : PICKET_OK;
}

static void judge_promise(struct report *r, const char *require)
{
    if (require == NULL || strcmp(require, "efficiency") == 0) {
        return;
    }
    const struct picket_guarantees *g = r->guarantees;
    bool kept = strcmp(g->promise, "correctness") == 0;
    pk_findings_add(&r->findings, kept ? PK_FINE : PK_UNSAFE,
                    kept ? "promise" : "only-efficiency",
                    kept ? "%s stores promise correctness%s"
                         : "correctness is required, and %s stores promise only "
                           "efficiency: %s",
                    g->driver, kept ? "" : g->failover);
}

static void look(const struct settings *s, const char *rest, struct picket *p,
                 struct report *r)
{
    bool progress =
        !pk_errors_quiet() && !pk_errors_verbose() && isatty(STDERR_FILENO) == 1;
    uint64_t until = pk_clock_ms() + s->reach_ms;
    pk_errors_detail("looking at the settings of %s", r->url);
    note_failure(r, examine(p, rest, until, r));
    if (r->status == PICKET_OK) {
        note_failure(r, pk_doctor_measure(p, until, progress, &r->times));
    }
    r->reached = r->status == PICKET_OK;
    if (r->times.calls > 0) {
        pk_doctor_judge(&r->times, r->ttl_ms, &r->findings);
    }
}

static size_t count_of(const struct report *r, enum pk_grade grade)
{
    size_t n = 0;
    for (size_t i = 0; i < r->findings.count; i++) {
        n += r->findings.list[i].grade == grade;
    }
    return n;
}

/* ---- telling ---- */

static const char *grade_name(enum pk_grade g)
{
    return g == PK_FINE ? "fine" : g == PK_NOTE ? "note" : "unsafe";
}

static void print_declared(const struct report *r)
{
    (void)printf("%s (%s)\n", r->url, r->guarantees->driver);
    pk_declared_print(r->guarantees);
    (void)fflush(stdout); /* what follows can take a while */
}

/* The worst first. */
static void print_findings(const struct report *r)
{
    for (int grade = PK_UNSAFE; grade >= PK_FINE; grade--) {
        for (size_t i = 0; i < r->findings.count; i++) {
            const struct pk_finding *f = &r->findings.list[i];
            if ((int)f->grade == grade) {
                (void)printf("  %-8s%-*s",
                             grade == PK_UNSAFE ? "UNSAFE" : grade_name(f->grade),
                             CODE_COLUMNS, f->code);
                size_t used = strlen(f->code);
                used = used >= CODE_COLUMNS ? used + 1 : CODE_COLUMNS;
                (void)printf("%s", used > CODE_COLUMNS ? " " : "");
                pk_page_print(10 + used, f->text);
            }
        }
    }
}

static void print_times(const struct report *r)
{
    char ttl[PK_SPAN_ROOM];
    if (r->times.calls == 0) {
        return;
    }
    (void)printf("\nMeasured, for a TTL of %s\n", pk_values_span(r->ttl_ms, ttl));
    (void)printf("  round trip  %.2f ms, the slowest of %u %.2f ms\n",
                 (double)r->times.p50_us / 1000, r->times.calls,
                 (double)r->times.max_us / 1000);
    (void)printf("  pause       %.2f ms at most, in a second of short sleeps\n",
                 (double)r->times.pause_us / 1000);
}

static void print_rest(const struct report *r)
{
    size_t unsafe = count_of(r, PK_UNSAFE);
    if (r->findings.count > 0) {
        (void)puts("\nFound");
        print_findings(r);
    }
    print_times(r);
    if (r->status != PICKET_OK) {
        (void)printf("\nNot all could be looked at%s.\n",
                     unsafe > 0 ? "; what is UNSAFE above is so all the same" : "");
    } else if (unsafe > 0) {
        (void)printf("\n%zu unsafe. Locks here can have two holders, or get lost.\n",
                     unsafe);
    } else {
        (void)puts("\nNothing unsafe found.");
    }
}

static void print_json(const struct report *r)
{
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "url", r->url);
    pk_json_object(&j, "declared");
    pk_declared_json(&j, r->guarantees);
    pk_json_end_object(&j);
    pk_json_bool(&j, "reached", r->reached);
    if (r->status != PICKET_OK) {
        pk_json_text(&j, "error", r->error);
    } else {
        pk_json_null(&j, "error");
    }
    pk_json_array(&j, "findings");
    for (size_t i = 0; i < r->findings.count; i++) {
        const struct pk_finding *f = &r->findings.list[i];
        pk_json_object(&j, NULL);
        pk_json_text(&j, "grade", grade_name(f->grade));
        pk_json_text(&j, "code", f->code);
        pk_json_text(&j, "text", f->text);
        pk_json_end_object(&j);
    }
    pk_json_end_array(&j);
    pk_json_number(&j, "unsafe", count_of(r, PK_UNSAFE));
    if (r->health.voters > 0) {
        pk_json_number(&j, "failures_tolerated", r->health.failures_tolerated);
    } else {
        pk_json_null(&j, "failures_tolerated");
    }
    pk_json_number(&j, "ttl_ms", r->ttl_ms);
    if (r->times.calls > 0) {
        pk_json_object(&j, "measured");
        pk_json_number(&j, "calls", r->times.calls);
        pk_json_number(&j, "round_trip_p50_us", r->times.p50_us);
        pk_json_number(&j, "round_trip_max_us", r->times.max_us);
        pk_json_number(&j, "pause_us", r->times.pause_us);
        pk_json_end_object(&j);
    } else {
        pk_json_null(&j, "measured");
    }
    pk_json_end_object(&j);
}

/* ---- the verb ---- */

/* Opens the store, looks, tells. `url` is whole, `r->url` for people. */
static int visit(const struct settings *s, const char *url, struct report *r)
{
    const char *rest = NULL;
    const struct picket_options o = {.ttl_ms = (uint32_t)s->ttl_ms};
    struct picket *p = NULL;
    enum picket_status status = picket_open(url, &o, &p);
    const struct pk_driver *d = pk_driver_of(url, &rest);
    if (status == PICKET_BADARG || d == NULL) {
        return pk_errors_status(status);
    }
    note_failure(r, status);
    r->guarantees = pk_driver_declares(d, rest);
    bool words = !s->common.quiet && !s->common.json;
    if (words) {
        print_declared(r);
    }
    judge_promise(r, s->require);
    if (p != NULL) {
        look(s, rest, p, r);
        picket_close(p);
    }
    if (words) {
        print_rest(r);
    } else if (!s->common.quiet) {
        print_json(r);
    }
    if (r->status != PICKET_OK) {
        (void)pk_errors_fail("%s", r->error);
        return pk_errors_code(r->status);
    }
    bool degraded = r->health.voters > 0 && !r->health.all_healthy;
    return count_of(r, PK_UNSAFE) > 0 ? PK_EXIT_NO : degraded ? PK_EXIT_DEGRADED : 0;
}

static int run(int argc, char **argv)
{
    struct pk_words words;
    struct settings s = {.ttl_ms = TTL_MS, .reach_ms = REACH_MS};
    int code = pk_options_parse(&pk_cli_doctor, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    code = pk_cli_check_class(s.require);
    if (code != 0) {
        return code;
    }
    if (words.count > 0 && s.common.url != NULL) {
        return pk_errors_fail("doctor: which store, URL or --on? say one of them");
    }
    if (words.count > 0) {
        s.common.url = words.at[0];
    }
    char *url = pk_cli_url(&s.common);
    struct report r = {.url = pk_url_redact(url), .ttl_ms = s.ttl_ms};
    code = visit(&s, url, &r);
    pk_findings_free(&r.findings);
    free(r.url);
    free(url);
    return code;
}

const struct pk_cli_verb pk_cli_doctor = {
    .name = "doctor",
    .brief = "find out whether locks in a store are safe",
    .usage = "[OPTIONS] [URL]",
    .about = "Prints what the store's driver declares: what it promises, where tokens "
             "come from, what\n"
             "it can't do. Then looks at how the store is set up, measures the way to "
             "it and the\n"
             "pauses of this machine, and says of each thing whether it is fine, worth "
             "a note, or\n"
             "unsafe: two holders, a lost lock or a token that goes back are possible. "
             "Takes no\n"
             "lock. With -q nothing is printed and the exit code answers.",
    .exits = "  0    nothing unsafe was found\n"
             "  1    something unsafe was found\n"
             "  2    nothing unsafe, but not all members of the cluster are healthy\n"
             "  122  not allowed: a wrong password, a missing right\n"
             "  125  our own error: a wrong call, the store out of reach or of the wrong "
             "kind",
    .examples = "  picket doctor\n"
                "  picket doctor --require correctness --ttl 2s redis://cache:6379\n"
                "  picket doctor -o json | jq '.findings[] | select(.grade == "
                "\"unsafe\")'",
    .words = "URL",
    .words_min = 0,
    .words_max = 1,
    .groups = groups,
    .common = offsetof(struct settings, common),
    .run = run,
};
