/* SPDX-License-Identifier: MIT */
/*
 * Random worlds, many: each process takes every n-th seed and counts in memory that all
 * of them share.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/errors.h"
#include "cli/sim.h"
#include "core/door.h"
#include "host/clock.h"
#include "sim/survey.h"

enum { LOOK_MS = 200, SHRINK_RUNS = 2000, JOBS_DEFAULT_MAX = 16, PATH_BYTES = 4096 };

struct job {
    pid_t pid;
    bool over;
    struct pk_survey survey; /* its own until the process is over, but for a glance */
};

static struct pk_survey setting(const struct pk_sim_words *s)
{
    struct pk_survey survey = {
        .config = pk_world_defaults(), .rough = (uint32_t)s->rough, .jumps = s->jumps};
    survey.config.flavour = s->flavour;
    survey.config.fence = s->fence;
    return survey;
}

static uint64_t jobs_of(const struct pk_sim_words *s)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t most = cores < 1                  ? 1
                    : cores > JOBS_DEFAULT_MAX ? JOBS_DEFAULT_MAX
                                               : (uint64_t)cores;
    uint64_t jobs = s->jobs != 0 ? s->jobs : most;
    uint64_t worlds = s->last_seed - s->first_seed + 1;
    return jobs < worlds ? jobs : worlds;
}

/* ---- processes ---- */

static _Noreturn void work(const struct pk_sim_words *s, struct job *job, uint64_t nth,
                           uint64_t jobs)
{
    for (uint64_t seed = s->first_seed + nth; seed <= s->last_seed; seed += jobs) {
        (void)pk_survey_run(&job->survey, seed);
        if (s->last_seed - seed < jobs) {
            break;
        }
    }
    _exit(0);
}

/* Notes who is over. False: somebody died of something else. */
static bool collect(struct job *list, uint64_t jobs, uint64_t *left)
{
    bool fine = true;
    for (uint64_t i = 0; i < jobs; i++) {
        int status;
        if (!list[i].over && waitpid(list[i].pid, &status, WNOHANG) == list[i].pid) {
            list[i].over = true;
            (*left)--;
            fine = fine && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
    }
    return fine;
}

static void show_progress(const struct pk_sim_words *s, const struct job *list,
                          uint64_t jobs, uint64_t began_ms)
{
    uint64_t done = 0;
    for (uint64_t i = 0; i < jobs; i++) {
        done += list[i].survey.worlds;
    }
    uint64_t passed = pk_clock_ms() - began_ms + 1;
    uint64_t all = s->last_seed - s->first_seed + 1;
    (void)fprintf(stderr, "\r%" PRIu64 " of %" PRIu64 " worlds, %" PRIu64 "/s ", done,
                  all, done * 1000 / passed);
}

/* Waits for all of them. 0, or an exit code. */
static int wait_for(const struct pk_sim_words *s, struct job *list, uint64_t jobs,
                    uint64_t began_ms)
{
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};
    bool terminal = isatty(STDERR_FILENO) != 0 && !pk_errors_quiet();
    bool fine = true;
    uint64_t left = jobs;
    for (;;) {
        fine = collect(list, jobs, &left) && fine;
        if (left == 0) {
            break;
        }
        if (terminal) {
            show_progress(s, list, jobs, began_ms);
        }
        (void)nanosleep(&nap, NULL);
    }
    if (terminal) {
        (void)fprintf(stderr, "\r%*s\r", 60, "");
    }
    return fine ? 0 : pk_errors_fail("sim: a process that simulated worlds has died");
}

static int survey_all(const struct pk_sim_words *s, struct pk_survey *out,
                      uint64_t *took_ms)
{
    uint64_t jobs = jobs_of(s);
    size_t size = jobs * sizeof(struct job);
    struct job *list =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED) {
        return pk_errors_fail("sim: no memory for %" PRIu64 " processes", jobs);
    }
    uint64_t began_ms = pk_clock_ms();
    uint64_t started = 0;
    (void)fflush(NULL);
    while (started < jobs) {
        list[started].survey = setting(s);
        pid_t pid = fork();
        if (pid < 0) {
            break;
        }
        if (pid == 0) {
            work(s, &list[started], started, jobs);
        }
        list[started++].pid = pid;
    }
    int code = wait_for(s, list, started, began_ms);
    if (code == 0 && started < jobs) {
        code = pk_errors_fail("sim: can't start a process: %s", strerror(errno));
    }
    *out = setting(s);
    for (uint64_t i = 0; i < started; i++) {
        pk_survey_add(out, &list[i].survey);
    }
    *took_ms = pk_clock_ms() - began_ms;
    (void)munmap(list, size);
    return code;
}

/* ---- what was found ---- */

static void print_result(const struct pk_sim_words *s, const struct pk_survey *v,
                         uint64_t took_ms)
{
    (void)printf("%s, fence %s, rough %" PRIu64 "%s: %" PRIu64 " worlds, %" PRIu64
                 " records, %" PRIu64 " worlds/s\n",
                 pk_flavour_name(s->flavour), pk_protection_name(s->fence), s->rough,
                 s->jumps ? ", clock jumps" : "", v->worlds, v->records,
                 v->worlds * 1000 / (took_ms + 1));
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        (void)printf("  %-12s %8" PRIu64, pk_check_name((enum pk_check)i), v->hit[i]);
        if (v->hit[i] > 0) {
            (void)printf("  first in seed %" PRIu64, v->first[i]);
        }
        (void)printf("\n");
    }
    if (!pk_errors_verbose()) {
        return;
    }
    (void)printf("worlds in which\n");
    for (uint32_t i = 0; i < PK_COVERED_COUNT; i++) {
        (void)printf("  %8" PRIu64 "  %s\n", v->covered[i],
                     pk_covered_name((enum pk_covered)i));
    }
}

/* What the script shows is what it expects from now on. */
static uint32_t expect_what_is_hit(struct pk_script *script)
{
    struct pk_checker checker;
    pk_world_free(pk_script_run(script, &checker));
    script->expects = true;
    script->expect = pk_checker_mask(&checker);
    return script->expect;
}

/* The first world in which that check was hit, as a script. */
static int keep(const struct pk_sim_words *s, const struct pk_survey *v,
                enum pk_check check)
{
    struct pk_script script;
    struct pk_world_config config = v->config;
    struct pk_prose text = {0};
    config.seed = v->first[check];
    pk_script_random(&script, &config, v->rough, v->jumps);
    (void)snprintf(script.title, sizeof script.title, "%s, seed %" PRIu64 ": %s",
                   pk_flavour_name(config.flavour), config.seed, pk_check_name(check));
    if (s->shrink) {
        (void)pk_script_shrink(&script, UINT32_C(1) << check, SHRINK_RUNS);
    }
    PK_ASSERT(expect_what_is_hit(&script) & UINT32_C(1) << check);
    pk_script_write(&script, &text);
    int code = 0;
    if (s->out != NULL) {
        char path[PATH_BYTES];
        (void)snprintf(path, sizeof path, "%s/%s-%s.sim", s->out,
                       pk_flavour_name(config.flavour), pk_check_name(check));
        code = pk_sim_save(path, &text);
        if (code == 0) {
            (void)printf("%s: %" PRIu32 " acts\n", path, script.n_acts);
        }
    } else {
        (void)printf("\n%s", text.data);
    }
    pk_prose_free(&text);
    pk_script_free(&script);
    return code;
}

int pk_sim_fuzz(const struct pk_sim_words *s)
{
    struct pk_survey v;
    uint64_t took_ms = 0;
    bool broken = false;
    if (s->jumps && s->flavour != PK_FLAVOUR_REDLOCK) {
        return pk_errors_fail("sim: --jumps is for redlock; no other flavour looks at a "
                              "wall clock");
    }
    if (s->out != NULL && mkdir(s->out, 0777) != 0 && errno != EEXIST) {
        return pk_errors_fail("sim: can't make %s: %s", s->out, strerror(errno));
    }
    int code = survey_all(s, &v, &took_ms);
    if (code != 0) {
        return code;
    }
    print_result(s, &v, took_ms);
    for (uint32_t i = 0; code == 0 && i < PK_CHECK_COUNT; i++) {
        broken = broken || v.hit[i] > 0;
        if (v.hit[i] > 0 && (s->shrink || s->out != NULL)) {
            code = keep(s, &v, (enum pk_check)i);
        }
    }
    return code != 0 ? code : broken ? PK_EXIT_NO : 0;
}
