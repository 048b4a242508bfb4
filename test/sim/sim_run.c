/* SPDX-License-Identifier: MIT */
/*
 * The simulator's program: worlds by number, TAP on stdout.
 *
 *     sim --seeds A-B [--blocks N] [OPTIONS]
 *     sim --once SEED [OPTIONS] [--verbose]
 *
 *     --nodes N         not 3 or 5 as drawn
 *     --seconds S       of faults
 *     --snapshots N     one every N entries
 *     --only FAULT      in all worlds, and no other; can be given several times
 *     --without FAULT   in no world; can be given several times
 *     --old-identity    a wiped node comes back under its old id: promises must break
 *
 * One line for each block of seeds, then one for each kind of thing that must have
 * happened. The first world of every block runs twice and must be the same both times.
 * At the first broken promise the run ends, with the command that shows it again.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim_world.h"

enum {
    COUNTED_WORLDS = 2000, /* fewer say nothing about what should have happened */
    BLOCKS = 20,
    PROGRESS_EVERY = 50,
};

struct run {
    struct sim_options options;
    uint64_t first, last;
    uint64_t blocks;
    bool once;
    const char *program;
    struct sim_totals totals;
    uint64_t hash; /* of all worlds: two runs of the same seeds have the same */
    unsigned printed;
};

static struct run run = {
    .options = {.seconds = 10}, .blocks = BLOCKS, .first = 1, .last = 100};

static const char *const fault_names[SIM_FAULT_COUNT] = {
#define X(name, share, text) #name,
    SIM_FAULTS(X)
#undef X
};

static void print_replay(void)
{
    printf("# again: %s --once %" PRIu64 " --seconds %" PRIu32, run.program,
           run.options.seed, run.options.seconds);
    if (run.options.nodes != 0) {
        printf(" --nodes %" PRIu32, run.options.nodes);
    }
    if (run.options.snapshots != 0) {
        printf(" --snapshots %" PRIu32, run.options.snapshots);
    }
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++) {
        if (run.options.faults[i] != SIM_DRAWN) {
            printf(" --%s %s", run.options.faults[i] == SIM_ALWAYS ? "only" : "without",
                   fault_names[i]);
        }
    }
    printf("%s --verbose\n", run.options.old_identity ? " --old-identity" : "");
}

static void on_violation(const char *text)
{
    const struct sim_world *w = sim_world_now();
    printf("not ok %u - seed %" PRIu64 " at %.6f s: %s\n", ++run.printed,
           run.options.seed, w == NULL ? 0.0 : (double)w->queue.now_us / SIM_SECOND,
           text);
    print_replay();
    printf("1..%u\n", run.printed);
    fflush(stdout);
    _exit(1);
}

/* The product stopped itself, or crashed: that is a finding too. */
static void on_crash(int sig)
{
    char line[160];
    int n = snprintf(line, sizeof line,
                     "not ok - seed %" PRIu64 ": died of signal %d\n"
                     "# again: %s --once %" PRIu64 " --seconds %" PRIu32 "\n",
                     run.options.seed, sig, run.program, run.options.seed,
                     run.options.seconds);
    ssize_t put = write(STDOUT_FILENO, line, (size_t)n);
    (void)put;
    signal(sig, SIG_DFL);
    raise(sig);
}

/* ---- one block ---- */

static void show_progress(uint64_t seed)
{
    if (isatty(STDERR_FILENO) != 0 && (seed % PROGRESS_EVERY == 0 || seed == run.last)) {
        fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " worlds%s", seed - run.first + 1,
                run.last - run.first + 1, seed == run.last ? "\n" : "");
    }
}

static void run_block(uint64_t from, uint64_t to)
{
    run.options.seed = from;
    struct sim_totals unused = {0};
    uint64_t before = sim_world_run(&run.options, &unused);
    for (uint64_t seed = from; seed <= to; seed++) {
        run.options.seed = seed;
        uint64_t hash = sim_world_run(&run.options, &run.totals);
        if (seed == from && hash != before) {
            on_violation("determinism: the same seed took another way");
        }
        run.hash = (run.hash ^ hash) * UINT64_C(0x9e3779b97f4a7c15);
        show_progress(seed);
    }
    printf("ok %u - seeds %" PRIu64 "-%" PRIu64 ", no promise broken\n", ++run.printed,
           from, to);
    fflush(stdout);
}

/* ---- what happened ---- */

static unsigned tell(uint64_t count, const char *text)
{
    printf("# %12" PRIu64 "  %s%s\n", count, text, count == 0 ? "  <-- never" : "");
    return count == 0;
}

static unsigned tell_all(const struct sim_totals *t)
{
    unsigned never = 0;
#define X(name, share, text) never += tell(t->faults[SIM_FAULT_##name], text);
    SIM_FAULTS(X)
#undef X
    never += tell(t->joined, "nodes joined as voters");
    never += tell(t->left, "nodes left for good");
    never += tell(t->refused, "starts refused because of damage");
    never += tell(t->survived, "starts that found everything in spite of damage");
    never += tell(t->strangers, "wiped nodes that came back as strangers");
    never += tell(t->replaced, "lost nodes replaced");
    never += tell(t->left_lost, "lost nodes left to the end while a majority went on");
    never += tell(t->disk_errors[PK_DISK_OVERWRITE], "overwrites that failed");
    never += tell(t->disk_errors[PK_DISK_STORE], "stores of whole files that failed");
    never += tell(t->disk_errors[PK_DISK_WRITE], "writes of slices that failed");
    never += tell(t->disk_errors[PK_DISK_READ], "reads that failed");
    never += tell(t->disk_errors[PK_DISK_SYNC], "syncs that failed");
    never += tell(t->no_space_segments, "segments without space on the disk");
    never += tell(t->no_space_snapshots, "snapshots without space on the disk");
    never += tell(t->messages_lost, "messages lost");
    never += tell(t->messages_stalled, "messages stalled");
    never += tell(t->io.writes_lost, "writes lost by a crash");
    never += tell(t->io.torn, "crashes that cut a row of writes");
    never += tell(t->io.snapshots_taken, "snapshots taken");
    never += tell(t->io.snapshots_sent, "snapshots sent");
    never += tell(t->io.chunks_sent, "chunks of snapshots sent");
    never += tell(t->io.snapshots_installed, "snapshots installed");
    never += tell(t->io.snapshots_withheld, "sick nodes ended for a snapshot to send");
    never += tell(t->guards.g1, "guard G1 stepped in");
    never += tell(t->guards.g2, "guard G2 stepped in");
    never += tell(t->guards.g4, "guard G4 stepped in");
    never += tell(t->guards.g5, "guard G5 stepped in");
    never += tell(t->guards.g6, "guard G6 stepped in");
    never += tell(t->guards.g7, "guard G7 stepped in");
#define X(name, text) never += tell(t->sights.name, text);
    SIM_SIGHTS(X)
#undef X
    return never;
}

static bool tell_totals(void)
{
    const struct sim_totals *t = &run.totals;
    bool enough = t->worlds >= COUNTED_WORLDS;
    unsigned never = tell_all(t);
    printf("# %" PRIu64 " worlds, %" PRIu64 " events, %.2f hours of cluster life\n",
           t->worlds, t->events, (double)t->virtual_us / SIM_SECOND / 3600);
    printf("# hash %016" PRIx64 "\n", run.hash);
    bool good = never == 0 || !enough;
    printf("%s %u - every fault and every outcome happened%s\n", good ? "ok" : "not ok",
           ++run.printed, enough ? "" : " # SKIP too few worlds to tell");
    return good;
}

/* ---- options ---- */

static bool read_number(const char *text, uint64_t *out, const char **rest)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    *rest = end;
    return end != text && errno == 0;
}

static bool read_fault(const char *name, const char *text)
{
    bool only = strcmp(name, "--only") == 0;
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++) {
        if (strcmp(text, fault_names[i]) == 0) {
            run.options.faults[i] = only ? SIM_ALWAYS : SIM_NEVER;
            run.options.only = run.options.only || only;
            return true;
        }
    }
    return false;
}

static bool read_option(const char *name, const char *text)
{
    uint64_t v;
    const char *rest;
    if (strcmp(name, "--only") == 0 || strcmp(name, "--without") == 0) {
        return read_fault(name, text);
    }
    if (!read_number(text, &v, &rest)) {
        return false;
    }
    if (strcmp(name, "--seeds") == 0) {
        run.first = v;
        return *rest == '-' && read_number(rest + 1, &run.last, &rest) && *rest == '\0' &&
               run.first <= run.last;
    }
    if (*rest != '\0') {
        return false;
    }
    if (strcmp(name, "--once") == 0) {
        run.options.seed = v;
        run.once = true;
    } else if (strcmp(name, "--nodes") == 0) {
        run.options.nodes = (uint32_t)v;
        return v >= 1 && v <= 5;
    } else if (strcmp(name, "--seconds") == 0) {
        run.options.seconds = (uint32_t)v;
        return v <= 3600;
    } else if (strcmp(name, "--snapshots") == 0) {
        run.options.snapshots = (uint32_t)v;
        return v >= 4 && v <= 100000;
    } else if (strcmp(name, "--blocks") == 0) {
        run.blocks = v;
        return v > 0;
    } else {
        return false;
    }
    return true;
}

static bool read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0) {
            run.options.verbose = true;
        } else if (strcmp(argv[i], "--old-identity") == 0) {
            run.options.old_identity = true;
        } else if (i + 1 == argc || !read_option(argv[i], argv[i + 1])) {
            return false;
        } else {
            i++;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    run.program = argv[0];
    if (!read_options(argc, argv)) {
        fprintf(stderr,
                "usage: %s [--seeds A-B] [--blocks N] [--once SEED] [--nodes N] "
                "[--seconds S] [--snapshots N] [--only FAULT]... [--without FAULT]... "
                "[--old-identity] [--verbose]\n",
                argv[0]);
        return 2;
    }
    sim_on_violation = on_violation;
    signal(SIGABRT, on_crash);
    signal(SIGSEGV, on_crash);
    if (run.once) {
        uint64_t hash = sim_world_run(&run.options, &run.totals);
        printf("# hash %016" PRIx64 "\n", hash);
        tell_all(&run.totals);
        printf("ok 1 - seed %" PRIu64 ", no promise broken\n1..1\n", run.options.seed);
        return 0;
    }
    uint64_t count = run.last - run.first + 1;
    uint64_t block = (count + run.blocks - 1) / run.blocks;
    for (uint64_t from = run.first; from <= run.last; from += block) {
        uint64_t to = from + block - 1;
        run_block(from, to < run.last ? to : run.last);
    }
    bool good = tell_totals();
    printf("1..%u\n", run.printed);
    return good ? 0 : 1;
}
