/* SPDX-License-Identifier: MIT */
#include "procs.h"

#include <pthread.h>
#include <stdatomic.h>

#include "cli/errors.h"
#include "cli/nofork.h"

#define FAR_MS 3600000u

__attribute__((destructor)) static void at_the_end(void)
{
    clean_up();
}

/* No child of ours but those we make, and the descriptor and the string we were
 * promised. */
static _Noreturn void job_look_around(int out)
{
    const char *greeting = getenv("GREETING");
    int loss_fd = env_number("PICKET_LOSS_FD");
    bool fine = waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD;
    fine = fine && greeting != NULL && strcmp(greeting, "hello") == 0;
    fine = fine && loss_fd > 2 && loss_fd < 10 && fcntl(loss_fd, F_GETFD) == 0;
    fine = fine && getpid() == env_number("TEST_PID");
    write_byte(out, fine ? 'y' : 'n');
    _exit(7);
}

static _Noreturn void job_await_loss(int out)
{
    char byte;
    (void)signal(SIGTERM, SIG_IGN);
    write_byte(out, 'u');
    write_byte(out, read(env_number("PICKET_LOSS_FD"), &byte, 1) == 0 ? 'e' : 'x');
    _exit(4);
}

/* Ends at SIGTERM itself, and has a tree below it that doesn't. */
static _Noreturn void job_head(int out)
{
    if (fork() == 0) {
        be_stubborn(out);
    }
    be_obedient(out);
}

_Noreturn void run_job(const char *name, int out)
{
    if (strcmp(name, "around") == 0) {
        job_look_around(out);
    } else if (strcmp(name, "loss") == 0) {
        job_await_loss(out);
    } else if (strcmp(name, "head") == 0) {
        job_head(out);
    } else if (strcmp(name, "stubborn") == 0) {
        be_stubborn(out);
    } else if (strcmp(name, "wait") == 0) {
        write_byte(out, 'u');
        linger();
    }
    _exit(96);
}

RUN_AS_JOB_IF_ASKED()

/* What the helper shares with the test. */
enum cue { CUE_NONE, CUE_DEADLINE, CUE_LOST };

struct scene {
    _Atomic pid_t helper;
    _Atomic int cue;
    _Atomic int end; /* 1 + enum pk_nofork_end */
    _Atomic uint32_t left;
};

struct plan {
    const char *job; /* NULL: told to exit with 42 */
    const char *command;
    uint32_t kill_after_ms;
};

struct run {
    struct scene *scene;
    struct line l;
    pid_t pid;
};

struct renewals {
    struct pk_nofork *n;
    struct scene *scene;
};

/* In the helper, where a client would renew: waits for the test's word. */
static void *renew(void *ctx)
{
    const struct renewals *r = ctx;
    while (atomic_load(&r->scene->cue) == CUE_NONE) {
        sleep_ms(2);
    }
    if (atomic_load(&r->scene->cue) == CUE_LOST) {
        pk_nofork_lost(r->n);
    } else {
        pk_nofork_safe_until(r->n, pk_clock_ms());
    }
    return NULL;
}

static _Noreturn void be_helper(struct pk_nofork *n, struct scene *scene,
                                const struct plan *plan, int out)
{
    struct renewals renewals = {n, scene};
    char name[64];
    char fd[32];
    char pid[32];
    uint32_t left;
    pthread_t thread;
    const char *const env[] = {name, fd, pid, "GREETING=hello", NULL};
    atomic_store(&scene->helper, getpid());
    MUST(pthread_create(&thread, NULL, renew, &renewals) == 0);
    if (plan->job == NULL) {
        MUST(pk_nofork_exit(n, 42) == 0);
    } else {
        (void)snprintf(name, sizeof name, "TEST_JOB=%s", plan->job);
        (void)snprintf(fd, sizeof fd, "TEST_FD=%d", out);
        (void)snprintf(pid, sizeof pid, "TEST_PID=%d", (int)n->job);
        MUST(pk_nofork_go(n, env) == -EINVAL); /* no deadline yet */
        pk_nofork_safe_until(n, pk_clock_ms() + FAR_MS);
        MUST(pk_nofork_go(n, env) == 0);
    }
    enum pk_nofork_end end = pk_nofork_watch(n, &left);
    atomic_store(&scene->left, left);
    atomic_store(&scene->end, 1 + (int)end);
    _exit(0);
}

static struct run start(const struct plan *plan)
{
    struct run run;
    set_up();
    run.scene = shared_memory(sizeof *run.scene);
    run.l = line_open();
    run.pid = fork();
    if (run.pid == 0) {
        char command[64];
        char *const argv[] = {command, NULL};
        struct pk_nofork n;
        (void)snprintf(command, sizeof command, "%s",
                       plan->command == NULL ? "/proc/self/exe" : plan->command);
        int side = pk_nofork_split(&n, plan->kill_after_ms, true);
        MUST(side >= 0);
        if (side == PK_NOFORK_HELPER) {
            be_helper(&n, run.scene, plan, run.l.out);
        }
        _exit(pk_nofork_become(&n, argv));
    }
    CHECK(run.pid > 0);
    CHECK(close(run.l.out) == 0);
    return run;
}

/* The helper is an orphan, and so a child of the test's, which is a subreaper. */
static void finish(struct run *run, enum pk_nofork_end end)
{
    CHECK_U64(end_of(atomic_load(&run->scene->helper)), 0);
    CHECK_U64(atomic_load(&run->scene->end), 1 + (int)end);
    CHECK_U64(atomic_load(&run->scene->left), 0);
    CHECK(line_ends(&run->l));
    CHECK_U64(pk_proctree_count(0, false, NULL), 0);
    CHECK(close(run->l.in) == 0);
    CHECK(munmap(run->scene, sizeof *run->scene) == 0);
}

/* The job has our pid, no child of ours, and its exit code goes straight to our
 * caller. */
TEST(nofork__becomes_the_job)
{
    struct run run = start(&(struct plan){.job = "around"});
    CHECK_U64(line_next(&run.l), 'y');
    CHECK_U64(end_of(run.pid), 7 << 8);
    finish(&run, PK_NOFORK_EXITED);
}

TEST(nofork__exits_as_told)
{
    struct run run = start(&(struct plan){.job = NULL});
    CHECK_U64(end_of(run.pid), 42 << 8);
    finish(&run, PK_NOFORK_EXITED);
}

TEST(nofork__exec_errors_are_126_and_127)
{
    CHECK(setenv("PATH", "/usr/bin:/bin", 1) == 0);
    struct run run = start(&(struct plan){.job = "x", .command = "/dev/null"});
    CHECK_U64(end_of(run.pid), 126 << 8);
    finish(&run, PK_NOFORK_EXITED);
    run = start(&(struct plan){.job = "x", .command = "no-such-command-anywhere"});
    CHECK_U64(end_of(run.pid), 127 << 8);
    finish(&run, PK_NOFORK_EXITED);
}

/* The deadline ends the whole tree, the job itself included, whoever of it dies first. */
TEST(nofork__deadline_ends_the_tree)
{
    struct run run = start(&(struct plan){.job = "head", .kill_after_ms = 50});
    CHECK(line_brings(&run.l, 4));
    atomic_store(&run.scene->cue, CUE_DEADLINE);
    CHECK_U64(end_of(run.pid), 5 << 8);
    finish(&run, PK_NOFORK_LOST);
}

TEST(nofork__lost_ends_a_stubborn_tree)
{
    struct run run = start(&(struct plan){.job = "stubborn", .kill_after_ms = 50});
    CHECK(line_brings(&run.l, 3));
    atomic_store(&run.scene->cue, CUE_LOST);
    CHECK_U64(end_of(run.pid), SIGKILL);
    finish(&run, PK_NOFORK_LOST);
}

TEST(nofork__loss_fd_reads_end_of_file)
{
    struct run run = start(&(struct plan){.job = "loss", .kill_after_ms = PATIENCE_MS});
    CHECK_U64(line_next(&run.l), 'u');
    atomic_store(&run.scene->cue, CUE_DEADLINE);
    CHECK_U64(line_next(&run.l), 'e');
    CHECK_U64(end_of(run.pid), 4 << 8);
    finish(&run, PK_NOFORK_LOST);
}

/* The helper sees the end of a job that is killed. */
TEST(nofork__job_killed_is_an_end)
{
    struct run run = start(&(struct plan){.job = "wait"});
    CHECK_U64(line_next(&run.l), 'u');
    CHECK(kill(run.pid, SIGKILL) == 0);
    CHECK_U64(end_of(run.pid), SIGKILL);
    finish(&run, PK_NOFORK_EXITED);
}
