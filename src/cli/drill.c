/* SPDX-License-Identifier: MIT */
#include "cli/drill.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "core/door.h"
#include "core/limits.h"
#include "host/clock.h"
#include "host/filelock.h"

enum {
    TTL_MS = 2000,
    BEYOND_MS = 1000,   /* that a pause lasts beyond the TTL */
    PATIENCE_MS = 30000 /* for the second holder to get the lock, beyond TTL and pause */
};

struct settings {
    struct pk_common common;
    const char *resource;
    uint64_t ttl_ms, pause_ms, rounds;
    bool no_fence;
};

#define AT(field) offsetof(struct settings, field)

static const struct pk_option own[] = {
    {PK_OPTION_TEXT, 0, "resource", "URL",
     "what is written to (default: the lock store's own\nregisters): file:DIR, "
     "sqlite:FILE, postgres://...,\nmysql://..., redis://..., local:DIR, picket://...",
     AT(resource), 0, 0},
    {PK_OPTION_SPAN, 0, "ttl", "TIME", "of the lease (default: 2s)", AT(ttl_ms),
     PK_TTL_MIN_MS, PK_TTL_MAX_MS},
    {PK_OPTION_SPAN, 0, "pause", "TIME",
     "how long the first holder is stopped; at least until\nthe second has written "
     "(default: --ttl + 1s)",
     AT(pause_ms), 1, PK_TTL_MAX_MS},
    {PK_OPTION_NUMBER, 0, "rounds", "N", "again and again (default: 1)", AT(rounds), 1,
     1000000},
    {PK_OPTION_FLAG, 0, "no-fence", NULL,
     "leave the tokens out, to see what happens without", AT(no_fence), 0, 0},
    {0},
};

static const struct pk_option_group groups[] = {
    {own, 0},
    {pk_options_output, AT(common)},
    {pk_options_common, AT(common)},
    {0},
};

/* ---- what is told, as it happens ---- */

struct stage {
    const struct settings *s;
    struct pk_drill_plan plan;
    struct pk_json json;
    uint64_t began_ms;
};

static void print_event(struct stage *g, const char *who, const char *text)
{
    uint64_t at = pk_clock_ms() - g->began_ms;
    if (g->s->common.json) {
        pk_json_object(&g->json, NULL);
        pk_json_number(&g->json, "at_ms", at);
        pk_json_text(&g->json, "who", who);
        pk_json_text(&g->json, "what", text);
        pk_json_end_object(&g->json);
    } else {
        (void)printf("%4" PRIu64 ".%03" PRIu64 "s  %-2s %s\n", at / 1000, at % 1000, who,
                     text);
        (void)fflush(stdout);
    }
}

__attribute__((format(printf, 3, 4))) static void tell(struct stage *g, const char *who,
                                                       const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it was started just now */
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    PK_ASSERT(n >= 0);
    print_event(g, who, text);
}

/* ---- one round ---- */

/* How it went: what each of them did, and what the resource says in the end. */
struct round {
    struct pk_drill_holder a, b;
    struct pk_drill_report held_a, read_a, held_b, wrote_b, wrote_a;
    uint64_t in_the_end;
};

static void sleep_until(uint64_t at_ms)
{
    uint64_t now = pk_clock_ms();
    uint64_t left = at_ms > now ? at_ms - now : 0;
    nanosleep(&(struct timespec){.tv_sec = (time_t)(left / 1000),
                                 .tv_nsec = (long)(left % 1000) * 1000000},
              NULL);
}

/* The next report, which is to be `word`; else says why the drill can't go on. */
static int expect(struct pk_drill_holder *h, enum pk_drill_word word, const char *who,
                  struct pk_drill_report *out)
{
    pk_drill_hear(h, out);
    if (out->word == PK_DRILL_FAILED) {
        (void)pk_errors_fail("the drill can't go on, %s: %s", who, out->why);
        return pk_errors_code(out->status);
    }
    PK_ASSERT(out->word == word);
    return 0;
}

static int start(struct stage *g, bool waits, struct pk_drill_holder *h)
{
    return pk_drill_start(&g->plan, waits, h)
               ? 0
               : pk_errors_fail("can't start a process: %s", strerror(errno));
}

static void tell_held(struct stage *g, const char *who, const struct pk_drill_report *r)
{
    if (r->token == 0) {
        tell(g, who, "holds the lock; it has no token to give");
    } else {
        tell(g, who, "holds the lock with token %" PRIu64, r->token);
    }
}

/* The first holder gets as far as its write, and is stopped there. */
static int first_act(struct stage *g, struct round *r)
{
    int code = start(g, true, &r->a);
    if (code == 0) {
        code = expect(&r->a, PK_DRILL_HELD, "A", &r->held_a);
    }
    if (code == 0) {
        tell_held(g, "A", &r->held_a);
        code = expect(&r->a, PK_DRILL_READ, "A", &r->read_a);
    }
    if (code != 0) {
        return code;
    }
    bool claims = g->plan.fence && r->held_a.token != 0;
    tell(g, "A", "%s %" PRIu64 ", and begins to write %" PRIu64,
         claims ? "claims the resource, reads" : "reads", r->read_a.number,
         r->read_a.number + 1);
    /* A turn at an embedded store or a file's fence is another story. */
    if (!pk_filelock_stop(r->a.pid)) {
        return pk_errors_fail("can't stop process %d: %s", (int)r->a.pid,
                              strerror(errno));
    }
    tell(g, "A", "is paused in the middle of it (SIGSTOP); its lease is not renewed");
    return 0;
}

/* The second holder comes in when the first one's lease has run out. */
static int second_act(struct stage *g, struct round *r)
{
    struct pk_drill_report read;
    int code = start(g, false, &r->b);
    if (code == 0) {
        code = expect(&r->b, PK_DRILL_HELD, "B", &r->held_b);
    }
    if (code == 0) {
        tell_held(g, "B", &r->held_b);
        code = expect(&r->b, PK_DRILL_READ, "B", &read);
    }
    if (code == 0) {
        code = expect(&r->b, PK_DRILL_WROTE, "B", &r->wrote_b);
    }
    if (code == 0 && r->wrote_b.status != PICKET_OK) {
        (void)pk_errors_fail("the drill can't go on, B: %s", r->wrote_b.why);
        return pk_errors_code(r->wrote_b.status);
    }
    if (code == 0) {
        bool claims = g->plan.fence && r->held_b.token != 0;
        tell(g, "B", "%s %" PRIu64 ", writes %" PRIu64,
             claims ? "claims the resource, reads" : "reads", read.number,
             r->wrote_b.number);
    }
    return code;
}

/* The first one wakes up, and knows nothing of all that. */
static int third_act(struct stage *g, struct round *r)
{
    (void)kill(r->a.pid, SIGCONT);
    tell(g, "A", "wakes up and goes on writing %" PRIu64, r->read_a.number + 1);
    if (write(r->a.say_fd, "w", 1) != 1) {
        return pk_errors_fail("can't tell process %d to go on: %s", (int)r->a.pid,
                              strerror(errno));
    }
    int code = expect(&r->a, PK_DRILL_WROTE, "A", &r->wrote_a);
    if (code != 0) {
        return code;
    }
    const struct pk_drill_report *w = &r->wrote_a;
    if (w->status == PICKET_STALE) {
        tell(g, "->", "refused: token %" PRIu64 " is lower than %" PRIu64, w->token,
             w->fence);
    } else if (w->status == PICKET_OK && w->token != 0 && w->fence > w->token) {
        tell(g, "->", "accepted: the fence (%" PRIu64 ") is in shadow mode", w->fence);
    } else if (w->status == PICKET_OK) {
        tell(g, "->", "accepted");
    } else {
        (void)pk_errors_fail("the drill can't go on, A: %s", w->why);
        return pk_errors_code(w->status);
    }
    if (w->guard == PICKET_LOST) {
        tell(g, "A", "asks its lease guard now, and learns that the lock is lost");
    }
    return 0;
}

/* What the resource holds. */
static int look(struct stage *g, uint64_t *number)
{
    struct picket_resource *resource;
    enum picket_status s = picket_resource_open(g->plan.resource_url, &resource);
    if (s == PICKET_OK) {
        s = pk_drill_read(resource, 0, number);
        picket_resource_close(resource);
    }
    return s == PICKET_OK ? 0 : pk_errors_status(s);
}

static int play(struct stage *g, struct round *r)
{
    int code = first_act(g, r);
    uint64_t paused_ms = pk_clock_ms();
    if (code == 0) {
        code = second_act(g, r);
    }
    if (code == 0) {
        sleep_until(paused_ms + g->s->pause_ms);
        code = third_act(g, r);
    }
    if (code == 0) {
        code = look(g, &r->in_the_end);
    }
    pk_drill_end(&r->a);
    pk_drill_end(&r->b);
    return code;
}

/* ---- verdicts ---- */

/* Two holders added one each; both can't have been told that they did. */
static bool lost_update(const struct round *r)
{
    return r->wrote_a.status == PICKET_OK && r->in_the_end != r->read_a.number + 2;
}

static void tell_verdict(struct stage *g, const struct round *r)
{
    const char *why = "";
    if (g->s->no_fence) {
        why = ". That is what --no-fence is for: without a fence a lock alone can't stop "
              "it";
    } else if (r->held_a.token == 0) {
        why = ". This lock gives no token, so that there is nothing to refuse it by";
    }
    if (r->wrote_a.status == PICKET_STALE) {
        tell(g, "=",
             "SAFE: the zombie's write was refused; the resource holds %" PRIu64
             ", as B left it",
             r->in_the_end);
    } else if (lost_update(r)) {
        tell(g, "=",
             "CORRUPTED: both were told that they had added one to %" PRIu64
             ", and the resource holds %" PRIu64 "%s",
             r->read_a.number, r->in_the_end, why);
    } else {
        tell(g, "=", "UNSAFE: the zombie's write got through%s", why);
    }
}

static int run_round(struct stage *g, bool *safe)
{
    struct round r = {.a.pid = 0, .b.pid = 0};
    bool json = g->s->common.json;
    g->began_ms = pk_clock_ms();
    if (json) {
        pk_json_object(&g->json, NULL);
        pk_json_array(&g->json, "events");
    }
    int code = play(g, &r);
    if (code == 0) {
        tell_verdict(g, &r);
    }
    *safe =
        code == 0 && r.wrote_a.status == PICKET_STALE && r.in_the_end == r.wrote_b.number;
    if (json) {
        pk_json_end_array(&g->json);
        pk_json_number(&g->json, "first_token", r.held_a.token);
        pk_json_number(&g->json, "second_token", r.held_b.token);
        pk_json_bool(&g->json, "stale_write_refused", r.wrote_a.status == PICKET_STALE);
        pk_json_bool(&g->json, "lost_update", code == 0 && lost_update(&r));
        pk_json_bool(&g->json, "safe", *safe);
        pk_json_end_object(&g->json);
    }
    return code;
}

static int run_rounds(struct stage *g)
{
    uint64_t safe = 0;
    uint64_t done = 0;
    uint64_t unused;
    bool json = g->s->common.json;
    int code = look(g, &unused); /* before anybody takes a lock for nothing */
    if (code != 0) {
        return code;
    }
    if (json) {
        pk_json_object(&g->json, NULL);
        pk_json_bool(&g->json, "fenced", g->plan.fence);
        pk_json_number(&g->json, "ttl_ms", g->plan.ttl_ms);
        pk_json_array(&g->json, "rounds");
    }
    for (; code == 0 && done < g->s->rounds; done++) {
        bool one = false;
        if (g->s->rounds > 1 && !json) {
            (void)printf("round %" PRIu64 " of %" PRIu64 "\n", done + 1, g->s->rounds);
        }
        code = run_round(g, &one);
        safe += one;
    }
    if (json) {
        pk_json_end_array(&g->json);
        pk_json_bool(&g->json, "safe", code == 0 && safe == done);
        pk_json_end_object(&g->json);
    } else if (code == 0 && g->s->rounds > 1) {
        (void)printf("%" PRIu64 " of %" PRIu64 " rounds safe\n", safe, done);
    }
    return code != 0 ? code : safe == done ? 0 : PK_EXIT_NO;
}

/* ---- where ---- */

/* A directory for who did not say what to write to; `out` gets its URL. */
static int make_folder(char *out, size_t size)
{
    const char *temporary = getenv("TMPDIR");
    (void)snprintf(out, size, "file:%s/picket-drill-XXXXXX",
                   temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp");
    return mkdtemp(strchr(out, ':') + 1) != NULL
               ? 0
               : pk_errors_fail("can't make a directory: %s", strerror(errno));
}

static void remove_folder(const char *url)
{
    char path[512];
    const char *dir = strchr(url, ':') + 1;
    static const char *const names[] = {PK_DRILL_NAME, "." PK_DRILL_NAME ".fence"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
}

/* Whether the store keeps fences itself; else something has to be found to write to. 0,
 * or an exit code. */
static int look_for_fences(const struct pk_common *c, bool *fences)
{
    struct picket *p;
    int code = pk_cli_open(c, NULL, &p);
    if (code == 0) {
        *fences = picket_guarantees(p)->fence != 0;
        picket_close(p);
    }
    return code;
}

static int run(int argc, char **argv)
{
    bool fences = true;
    char folder[256] = "";
    struct pk_words words;
    struct settings s = {.ttl_ms = TTL_MS, .rounds = 1};
    int code = pk_options_parse(&pk_cli_drill, argc, argv, &s, &words);
    if (code >= 0) {
        return code;
    }
    s.pause_ms = s.pause_ms != 0 ? s.pause_ms : s.ttl_ms + BEYOND_MS;
    char *url = pk_cli_url(&s.common);
    const char *resource = s.resource != NULL ? s.resource : url;
    code = s.resource == NULL ? look_for_fences(&s.common, &fences) : 0;
    if (code == 0 && !fences) {
        code = make_folder(folder, sizeof folder);
        resource = folder;
    }
    (void)signal(SIGPIPE, SIG_IGN); /* a holder that died shows when it is heard */
    if (code == 0) {
        struct stage g = {.s = &s,
                          .plan = {.lock_url = url,
                                   .resource_url = resource,
                                   .ttl_ms = s.ttl_ms,
                                   .wait_ms = s.ttl_ms + s.pause_ms + PATIENCE_MS,
                                   .fence = !s.no_fence}};
        code = run_rounds(&g);
    }
    if (folder[0] != '\0') {
        remove_folder(folder);
    }
    free(url);
    return code;
}

const struct pk_cli_verb pk_cli_drill = {
    .name = "drill",
    .brief = "prove that a paused holder's late write is refused",
    .usage = "[OPTIONS]",
    .about =
        "Takes the lock \"" PK_DRILL_NAME
        "\" in a process of its own (A), lets it claim and read the\n"
        "resource \"" PK_DRILL_NAME
        "\", and stops it with SIGSTOP before it writes. When its lease has\n"
        "run out, a second holder (B) gets the lock, claims, reads and writes. Then A is "
        "woken\n"
        "and goes on writing, as any program would that was paused at the wrong moment. "
        "The\n"
        "drill tells what happened and whether the resource refused it.\n"
        "\n"
        "With --on redlock://HOST:PORT,... the lock has no token: the drill shows what "
        "that\n"
        "means. Where the store keeps no fences itself, a file in a temporary directory "
        "is\n"
        "written to unless --resource names something.",
    .exits = "  0    the late write was refused, in every round\n"
             "  1    it got through\n"
             "  122  not allowed\n"
             "  125  our own error: a wrong call, store or resource out of reach",
    .examples =
        "  picket drill\n"
        "  picket drill --no-fence\n"
        "  picket drill --resource postgres://app@db/shop --rounds 10\n"
        "  picket drill --on picket://db1,db2,db3 --resource file:/srv/site -o json\n"
        "  picket drill --on redlock://r1,r2,r3,r4,r5",
    .groups = groups,
    .common = AT(common),
    .run = run,
};
