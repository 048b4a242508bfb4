/* SPDX-License-Identifier: MIT */
/*
 * What must break and what must not, in many random worlds: matrix [--seeds N]
 *
 * A table of settings. In each, some checks must never be hit and some must be hit, since
 * a checker that never sees anything proves nothing. Then mistakes are planted, each to
 * be found by the check that is there for it; and what happened in the worlds is counted,
 * so that a green run is not an empty one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/clock.h"
#include "sim/survey.h"

#define BIT(check) (UINT32_C(1) << PK_CHECK_##check)

enum {
    HARMED = BIT(LOST_UPDATE) | BIT(STALE_WRITE),
    FELL = BIT(FENCE_BACK) | HARMED,
    SHARE_OF_MODELS = 4, /* one of so many seeds for what is not the product */
    JOBS = 2,
};

/* All checks that are not in `must` have to be 0. */
struct cell {
    enum pk_flavour flavour;
    enum pk_protection fence;
    uint32_t rough;
    bool jumps;
    uint32_t must;
};

static const struct cell cells[] = {
    /* Nothing goes wrong by itself, fence or no fence. */
    {PK_FLAVOUR_PICKET, PK_PROTECT_OFF, 0, false, 0},
    {PK_FLAVOUR_ETCD, PK_PROTECT_OFF, 0, false, 0},
    {PK_FLAVOUR_ZOOKEEPER, PK_PROTECT_OFF, 0, false, 0},
    {PK_FLAVOUR_REDLOCK, PK_PROTECT_OFF, 0, false, 0},
    /* Without a fence a good service is not enough. */
    {PK_FLAVOUR_PICKET, PK_PROTECT_OFF, 2, false, FELL},
    {PK_FLAVOUR_ETCD, PK_PROTECT_OFF, 2, false, FELL},
    {PK_FLAVOUR_ZOOKEEPER, PK_PROTECT_OFF, 2, false, FELL},
    /* A fence that learns from writes alone does not fall, but comes too late. */
    {PK_FLAVOUR_PICKET, PK_PROTECT_WRITES, 2, false, HARMED},
    {PK_FLAVOUR_ETCD, PK_PROTECT_WRITES, 2, false, HARMED},
    {PK_FLAVOUR_ZOOKEEPER, PK_PROTECT_WRITES, 2, false, HARMED},
    /* Claim first, and nothing breaks. */
    {PK_FLAVOUR_PICKET, PK_PROTECT_CLAIM, 1, false, 0},
    {PK_FLAVOUR_PICKET, PK_PROTECT_CLAIM, 2, false, 0},
    {PK_FLAVOUR_PICKET, PK_PROTECT_CLAIM, 3, false, 0},
    {PK_FLAVOUR_ETCD, PK_PROTECT_CLAIM, 3, false, 0},
    {PK_FLAVOUR_ZOOKEEPER, PK_PROTECT_CLAIM, 3, false, 0},
    /* Redlock has no token: a fence changes nothing, and its promise ends with a jump. */
    {PK_FLAVOUR_REDLOCK, PK_PROTECT_OFF, 2, false, HARMED},
    {PK_FLAVOUR_REDLOCK, PK_PROTECT_CLAIM, 2, false, HARMED},
    {PK_FLAVOUR_REDLOCK, PK_PROTECT_CLAIM, 2, true, HARMED | BIT(TWO_VALID)},
};

/* A mistake, and the check that must see it. Other checks may. */
static const struct mistake {
    const char *name;
    enum pk_mistake what;
    enum pk_flavour flavour;
    uint32_t must;
} mistakes[] = {
    {"validity counts from arrival", PK_MISTAKE_FROM_ARRIVAL, PK_FLAVOUR_PICKET,
     BIT(TWO_VALID)},
    {"an old token is given again", PK_MISTAKE_OLD_TOKEN, PK_FLAVOUR_PICKET,
     BIT(TOKEN_ORDER)},
    {"leases end early", PK_MISTAKE_EARLY, PK_FLAVOUR_PICKET, BIT(TWO_VALID)},
    {"the fence takes any token", PK_MISTAKE_FENCE_LAST, PK_FLAVOUR_PICKET, FELL},
    {"a replica skips a command", PK_MISTAKE_DIVERGE, PK_FLAVOUR_PICKET, BIT(DIGESTS)},
    {"the last comes first", PK_MISTAKE_LIFO, PK_FLAVOUR_ETCD, BIT(QUEUE_ORDER)},
    {"the lock is shared", PK_MISTAKE_SHARE, PK_FLAVOUR_ZOOKEEPER,
     BIT(TWO_HOLDERS) | BIT(TWO_VALID)},
};

/* What must have happened, by kind of service. */
#define SEEN(event) (UINT32_C(1) << PK_COVERED_##event)

enum {
    SEEN_ALWAYS = SEEN(EXPIRED) | SEEN(EXPIRED_PAUSED) | SEEN(EXPIRED_CUT) |
                  SEEN(ZOMBIE) | SEEN(RELEASE_LOST) | SEEN(RENEWAL_LOST) |
                  SEEN(LATE_WRITE) | SEEN(HOLDER_CRASHED),
    SEEN_QUEUE = SEEN(WAITED) | SEEN(LEFT) | SEEN(LATE_GRANT) | SEEN(UNKNOWN_HOLD) |
                 SEEN(FAILOVER_HELD),
    SEEN_FENCE = SEEN(WRITE_REFUSED) | SEEN(CLAIM_REFUSED),
    SEEN_JUMPS = SEEN(CLOCK_JUMPED) | SEEN(NODE_EMPTIED),
};

static uint64_t tests, failures;
static uint64_t worlds, spent_ms;

static void report(bool fine, const char *name)
{
    tests++;
    failures += !fine;
    (void)printf("%s %" PRIu64 " - %s\n", fine ? "ok" : "not ok", tests, name);
    (void)fflush(stdout);
}

/* Seeds 1 to n, by two processes. */
static struct pk_survey survey(struct pk_survey setting, uint64_t n)
{
    size_t size = JOBS * sizeof setting;
    struct pk_survey *list =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED) {
        abort();
    }
    uint64_t began_ms = pk_clock_ms();
    pid_t pids[JOBS];
    (void)fflush(stdout);
    for (uint64_t i = 0; i < JOBS; i++) {
        list[i] = setting;
        pids[i] = fork();
        if (pids[i] == 0) {
            for (uint64_t seed = 1 + i; seed <= n; seed += JOBS) {
                (void)pk_survey_run(&list[i], seed);
            }
            _exit(0);
        }
    }
    for (uint64_t i = 0; i < JOBS; i++) {
        int status;
        if (waitpid(pids[i], &status, 0) != pids[i] || status != 0) {
            (void)printf("Bail out! a process that simulated worlds has died\n");
            exit(1);
        }
        pk_survey_add(&setting, &list[i]);
    }
    (void)munmap(list, size);
    worlds += setting.worlds;
    spent_ms += pk_clock_ms() - began_ms;
    return setting;
}

static void print_numbers(const struct pk_survey *s)
{
    (void)printf("#  ");
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        (void)printf(" %s %" PRIu64, pk_check_name((enum pk_check)i), s->hit[i]);
    }
    (void)printf("  of %" PRIu64 "\n", s->worlds);
}

/* Whether what must be hit was hit, and nothing else but what may. */
static bool hit_as_expected(const struct pk_survey *s, uint32_t must, uint32_t may)
{
    bool fine = true;
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        uint32_t bit = UINT32_C(1) << i;
        if ((must & bit) != 0 && s->hit[i] == 0) {
            (void)printf("# %s was never hit\n", pk_check_name((enum pk_check)i));
            fine = false;
        } else if (((must | may) & bit) == 0 && s->hit[i] != 0) {
            (void)printf("# %s was hit, first in seed %" PRIu64 "\n",
                         pk_check_name((enum pk_check)i), s->first[i]);
            fine = false;
        }
    }
    return fine;
}

static bool covered(const struct pk_survey *s, uint32_t must)
{
    bool fine = true;
    for (uint32_t i = 0; i < PK_COVERED_COUNT; i++) {
        if ((must & UINT32_C(1) << i) != 0 && s->covered[i] == 0) {
            (void)printf("# in no world: %s\n", pk_covered_name((enum pk_covered)i));
            fine = false;
        }
    }
    return fine;
}

static void try_cell(const struct cell *c, uint64_t seeds)
{
    char name[120];
    struct pk_survey s = {
        .config = pk_world_defaults(), .rough = c->rough, .jumps = c->jumps};
    s.config.flavour = c->flavour;
    s.config.fence = c->fence;
    bool product = c->flavour == PK_FLAVOUR_PICKET && c->fence == PK_PROTECT_CLAIM;
    s = survey(s, product ? seeds : seeds / SHARE_OF_MODELS);
    bool redlock = c->flavour == PK_FLAVOUR_REDLOCK;
    uint32_t seen =
        c->rough == 0 ? 0U : (uint32_t)SEEN_ALWAYS | (redlock ? 0U : SEEN_QUEUE);
    seen |= c->fence == PK_PROTECT_CLAIM && !redlock ? (uint32_t)SEEN_FENCE : 0;
    seen |= c->jumps ? (uint32_t)SEEN_JUMPS : 0;
    (void)snprintf(name, sizeof name, "%s, fence %s, rough %" PRIu32 "%s",
                   pk_flavour_name(c->flavour), pk_protection_name(c->fence), c->rough,
                   c->jumps ? ", clock jumps" : "");
    bool fine = hit_as_expected(&s, c->must, 0);
    report(covered(&s, seen) && fine, name);
    print_numbers(&s);
}

static void try_mistake(const struct mistake *m, uint64_t seeds)
{
    char name[120];
    struct pk_survey s = {.config = pk_world_defaults(), .rough = 2};
    s.config.flavour = m->flavour;
    s.config.mistakes = m->what;
    s = survey(s, seeds / SHARE_OF_MODELS);
    (void)snprintf(name, sizeof name, "mistake caught: %s", m->name);
    report(hit_as_expected(&s, m->must, UINT32_MAX), name);
    print_numbers(&s);
}

int main(int argc, char **argv)
{
    bool given = argc == 3 && strcmp(argv[1], "--seeds") == 0;
    uint64_t seeds = given ? strtoull(argv[2], NULL, 10) : 2000;
    const uint64_t n_cells = sizeof cells / sizeof cells[0];
    const uint64_t n_mistakes = sizeof mistakes / sizeof mistakes[0];
    if (seeds < SHARE_OF_MODELS || (argc > 1 && !given)) {
        (void)fprintf(stderr, "usage: matrix [--seeds N]\n");
        return 2;
    }
    (void)printf("1..%" PRIu64 "\n", n_cells + n_mistakes);
    for (size_t i = 0; i < n_cells; i++) {
        try_cell(&cells[i], seeds);
    }
    for (size_t i = 0; i < n_mistakes; i++) {
        /* What is easily seen in few worlds needs no more of them. */
        try_mistake(&mistakes[i], seeds < 2000 ? seeds : 2000);
    }
    (void)printf("# %" PRIu64 " worlds, %" PRIu64 "/s\n", worlds,
                 worlds * 1000 / (spent_ms + 1));
    return failures == 0 ? 0 : 1;
}
