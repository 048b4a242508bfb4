/* SPDX-License-Identifier: MIT */
/*
 * The differential test: random worlds in which the machine and the model must agree on
 * every effect of every command, and every invariant must hold after every step.
 *
 *     differential [--commands N] [--seed S] [--seconds T] [--worlds K] [--world W]
 *                  [--shrink T]
 *
 * Stops after N commands (2000000), T seconds or K worlds, whichever comes first. A world
 * is fixed by the seed and its number alone: `--seed S --world W` runs just that one
 * again. On a difference the world is cut down to the commands that matter before it is
 * printed, for at most as many seconds as --shrink says (5).
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "coverage.h"
#include "generate.h"
#include "pair.h"
#include "show.h"

enum {
    WORLD_STEPS = 1500,
    RESTORE_EVERY = 61,
    /* Below this many commands a rare counter may honestly be 0. */
    COVERAGE_COMMANDS = 500000,
};

struct options {
    uint64_t commands, seed, seconds, worlds, world, shrink;
    bool one_world;
};

struct run {
    struct options options;
    struct coverage coverage;
    uint64_t commands, worlds;
    struct generated *made; /* the commands of the present world */
    uint32_t n_made;
};

/* What a crash handler can say; the machine stops the process on a broken assertion. */
static char crash_note[160];
static size_t crash_note_len;

static void on_crash(int sig)
{
    ssize_t ignored = write(STDOUT_FILENO, crash_note, crash_note_len);
    (void)ignored;
    signal(sig, SIG_DFL);
    raise(sig);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static bool restores_at(uint32_t step)
{
    return step % RESTORE_EVERY == RESTORE_EVERY - 1;
}

/* Runs the commands in a fresh pair; the number of those that ran before the
 * difference, or n when there is none. *p is left as it stood there, for the caller to
 * print and end. */
static uint32_t replay(struct pair *p, const struct generated *list, uint32_t n)
{
    pair_start(p);
    for (uint32_t i = 0; i < n; i++) {
        if (!pair_step(p, &list[i].command) || (restores_at(i) && !pair_restore(p))) {
            return i;
        }
    }
    return n;
}

static bool still_differs(const struct generated *list, uint32_t n)
{
    struct pair p;
    bool differs = replay(&p, list, n) < n;
    pair_end(&p);
    return differs;
}

/* What a step gave out that later commands may name. */
struct given {
    uint64_t lease, leases; /* the highest, and how many */
    uint64_t token, tokens; /* the highest, and how many */
};

static struct given given_by(const struct generated *list, uint32_t at)
{
    struct pair p;
    struct given given = {0};
    replay(&p, list, at + 1);
    for (uint32_t i = 0; i < p.from_model.count; i++) {
        const struct pk_effect *e = &p.from_model.list[i];
        if (e->kind == PK_EV_LEASE_OPENED) {
            given.lease = e->lease;
            given.leases++;
        } else if (e->kind == PK_EV_GRANTED && e->part == 0) {
            given.token = e->token;
            given.tokens++;
        }
    }
    pair_end(&p);
    return given;
}

/* The number that `id` would have been had those up to `last` not been given out. */
static uint64_t moved_down(uint64_t id, uint64_t last, uint64_t count)
{
    return last != 0 && id > last ? id - count : id;
}

/* Copies all but `piece` commands at `at`. When that leaves out just one, later
 * commands name the leases and tokens as they would have been without it. */
static uint32_t leave_out(struct generated *to, const struct generated *from, uint32_t n,
                          uint32_t at, uint32_t piece)
{
    struct given given = {0};
    uint32_t kept = 0;
    if (piece == 1) {
        given = given_by(from, at);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (i >= at && i < at + piece) {
            continue;
        }
        struct generated *t = &to[kept++];
        struct pk_command *c = &t->command;
        generated_copy(t, &from[i]);
        c->lease = moved_down(c->lease, given.lease, given.leases);
        c->token = moved_down(c->token, given.token, given.tokens);
        for (uint32_t k = 0; k < c->n_leases; k++) {
            uint64_t id = pk_command_lease_at(c, k);
            pk_command_put_lease(t->leases, k, moved_down(id, given.lease, given.leases));
        }
    }
    return kept;
}

/* One round: drops runs of `piece` commands as long as the rest still differs. */
static uint32_t shrink_by(struct generated *list, uint32_t n, uint32_t piece,
                          struct generated *less, uint64_t stop)
{
    for (uint32_t at = 0; at + piece <= n && now_ms() < stop;) {
        uint32_t kept = leave_out(less, list, n, at, piece);
        if (!still_differs(less, kept)) {
            at += piece;
            continue;
        }
        n = kept;
        for (uint32_t i = 0; i < n; i++) {
            generated_copy(&list[i], &less[i]);
        }
    }
    return n;
}

static uint32_t shrink(struct generated *list, uint32_t n, uint64_t seconds)
{
    uint64_t stop = now_ms() + seconds * 1000;
    struct generated *less = calloc(n, sizeof *less);
    uint32_t before = 0;
    if (less == NULL) {
        abort();
    }
    for (uint32_t piece = n / 2; piece > 1; piece /= 2) {
        n = shrink_by(list, n, piece, less, stop);
    }
    while (n != before && now_ms() < stop) {
        before = n;
        n = shrink_by(list, n, 1, less, stop);
    }
    free(less);
    return n;
}

static void report(struct run *r, uint64_t world)
{
    struct pair p;
    uint32_t at = replay(&p, r->made, r->n_made);
    printf("# seed %" PRIu64 ", world %" PRIu64 ", step %" PRIu32 ": %s\n",
           r->options.seed, world, at, p.wrong);
    printf("# again: differential --seed %" PRIu64 " --world %" PRIu64 "\n",
           r->options.seed, world);
    pair_end(&p);
    r->n_made = shrink(r->made, at < r->n_made ? at + 1 : at, r->options.shrink);
    replay(&p, r->made, r->n_made);
    printf("# cut down to %" PRIu32 " commands; the last one differs: %s\n", r->n_made,
           p.wrong);
    for (uint32_t i = 0; i < r->n_made; i++) {
        printf("#   %3" PRIu32 "  ", i);
        show_command(stdout, &r->made[i].command);
    }
    printf("# machine:\n");
    show_effects(stdout, &p.from_machine, "#     ");
    printf("# model:\n");
    show_effects(stdout, &p.from_model, "#     ");
    pair_end(&p);
}

static bool run_world(struct run *r, uint64_t world)
{
    struct pair p;
    uint64_t mix = r->options.seed ^ world * UINT64_C(0xd1342543de82ef95);
    struct generator *g = generator_new(random_next(&mix));
    bool good = true;
    pair_start(&p);
    r->n_made = 0;
    int len = snprintf(crash_note, sizeof crash_note,
                       "# died in: differential --seed %" PRIu64 " --world %" PRIu64 "\n",
                       r->options.seed, world);
    crash_note_len = (size_t)len;
    while (good && r->n_made < WORLD_STEPS) {
        struct generated *next = &r->made[r->n_made];
        generator_next(g, model_clock(p.model), model_next_deadline(p.model), next);
        good = pair_step(&p, &next->command);
        coverage_count(&r->coverage, &p, &next->command);
        generator_observe(g, next, &p.from_model);
        if (good && restores_at(r->n_made)) {
            good = pair_restore(&p);
            r->coverage.restores++;
        }
        r->n_made++;
    }
    pair_end(&p);
    generator_free(g);
    r->commands += r->n_made;
    r->worlds++;
    if (!good) {
        report(r, world);
    }
    return good;
}

static bool read_option(struct options *o, const char *name, const char *text)
{
    char *end;
    uint64_t v = strtoull(text, &end, 10);
    if (*text == '\0' || *end != '\0') {
        return false;
    }
    if (strcmp(name, "--commands") == 0) {
        o->commands = v;
    } else if (strcmp(name, "--seed") == 0) {
        o->seed = v;
    } else if (strcmp(name, "--seconds") == 0) {
        o->seconds = v;
    } else if (strcmp(name, "--worlds") == 0) {
        o->worlds = v;
    } else if (strcmp(name, "--shrink") == 0) {
        o->shrink = v;
    } else if (strcmp(name, "--world") == 0) {
        o->world = v;
        o->one_world = true;
    } else {
        return false;
    }
    return true;
}

static bool goes_on(const struct run *r, uint64_t started)
{
    const struct options *o = &r->options;
    return r->commands < o->commands && (o->worlds == 0 || r->worlds < o->worlds) &&
           (o->seconds == 0 || now_ms() - started < o->seconds * 1000);
}

int main(int argc, char **argv)
{
    struct run r = {.options = {.commands = 2000000, .seed = 1, .shrink = 5}};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc || !read_option(&r.options, argv[i], argv[i + 1])) {
            fprintf(stderr,
                    "usage: %s [--commands N] [--seed S] [--seconds T] [--worlds K] "
                    "[--world W] [--shrink T]\n",
                    argv[0]);
            return 2;
        }
    }
    r.made = calloc(WORLD_STEPS, sizeof *r.made);
    if (r.made == NULL) {
        abort();
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    uint64_t started = now_ms();
    bool good = true;
    if (r.options.one_world) {
        good = run_world(&r, r.options.world);
    }
    while (!r.options.one_world && good && goes_on(&r, started)) {
        good = run_world(&r, r.worlds);
    }
    uint64_t took = now_ms() - started;
    bool counts = r.commands >= COVERAGE_COMMANDS;
    unsigned missing = good ? coverage_print(&r.coverage) : 0;
    printf("# %" PRIu64 " commands per second\n", r.commands * 1000 / (took + 1));
    printf("%s 1 - %" PRIu64 " random commands in %" PRIu64 " worlds, %s\n",
           good ? "ok" : "not ok", r.commands, r.worlds,
           good ? "0 differences" : "a difference");
    printf("%s 2 - every kind of event, answer and repeat happened%s\n",
           counts && missing > 0 ? "not ok" : "ok",
           counts ? "" : " # SKIP too few commands to tell");
    printf("1..2\n");
    free(r.made);
    return !good || (counts && missing > 0);
}
