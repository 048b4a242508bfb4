/* SPDX-License-Identifier: MIT */
/* cli/guard.h in ordinary life: starting, ending, and the end of the lock. */
#include "guarded.h"

__attribute__((destructor)) static void at_the_end(void)
{
    clean_up();
}

_Noreturn void run_job(const char *name, int out)
{
    run_guarded_job(name, out);
}

RUN_AS_JOB_IF_ASKED()

/* ---- The job's own end ---- */

TEST(guard__exit_code_is_the_jobs)
{
    struct run run = start("exit7", (struct pk_guard_options){.kill_after_ms = 1000});
    (void)started(&run);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_EXITED);
    CHECK_U64(pk_guard_exit_code(&r), 7);
    CHECK_U64(r.left, 0);
    CHECK(!r.late);
    finish(&run);
}

TEST(guard__death_by_signal_is_128_and_more)
{
    struct run run = start("kill9", (struct pk_guard_options){.kill_after_ms = 1000});
    (void)started(&run);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_EXITED);
    CHECK(WIFSIGNALED(r.status));
    CHECK_U64(pk_guard_exit_code(&r), 128 + SIGKILL);
    finish(&run);
}

static void exec_fails(const char *command, int error, int code)
{
    char *const argv[] = {strdup(command), NULL};
    struct pk_guard_options o = {.argv = argv, .kill_after_ms = 1000};
    struct run run = prepare(&o);
    free(argv[0]);
    CHECK(close(run.l.out) == 0);
    CHECK_U64(pk_guard_go(&run.g, NULL), 0);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_EXEC_FAILED);
    CHECK_U64(r.error, error);
    CHECK_U64(pk_guard_exit_code(&r), code);
    finish(&run);
}

TEST(guard__exec_errors_are_126_and_127)
{
    CHECK(setenv("PATH", "/usr/bin:/bin", 1) == 0);
    exec_fails("/dev/null/nothing", ENOTDIR, 126);
    exec_fails("/dev/null", EACCES, 126);
    exec_fails("no-such-command-anywhere", ENOENT, 127);
}

/* What the main process leaves behind is gone before its end is reported. */
TEST(guard__daemon_left_behind_is_ended_before_the_report)
{
    int gate[2];
    char number[32];
    struct pk_guard_options o = {.kill_after_ms = 50};
    CHECK(pipe(gate) == 0);
    (void)snprintf(number, sizeof number, "%d", gate[0]);
    CHECK(setenv("TEST_WAIT", number, 1) == 0);
    struct run run = prepare(&o);
    go(&run, "daemon");
    (void)started(&run);
    CHECK_U64(line_next(&run.l), 'u');
    CHECK(write(gate[1], "x", 1) == 1);
    struct pk_guard_report r = next(&run);
    CHECK(line_ends_within(&run.l, 0));
    CHECK_U64(r.event, PK_GUARD_EXITED);
    CHECK_U64(pk_guard_exit_code(&r), 3);
    CHECK_U64(r.left, 1);
    CHECK(unsetenv("TEST_WAIT") == 0 && close(gate[0]) == 0 && close(gate[1]) == 0);
    finish(&run);
}

/* ---- What the job finds ---- */

/* Environment, process group, descriptors and signals are our caller's, but for what is
 * promised on top. */
TEST(guard__job_finds_its_callers_surroundings)
{
    struct pk_guard_options o = {.kill_after_ms = 1000, .loss_fd = true};
    char env[6][64];
    const char *const list[] = {env[0], env[1], env[2], env[3], env[4], env[5], NULL};
    sigset_t usr1;
    set_up();
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &usr1, NULL) == 0);
    (void)signal(SIGUSR2, SIG_IGN);
    (void)signal(SIGCHLD, SIG_IGN);
    struct line l = line_open();
    int inherited = open_fds(true);
    struct run run = {.l = l};
    o.argv = self;
    CHECK_U64(pk_guard_start(&run.g, &o), 0);
    CHECK(sigprocmask(SIG_UNBLOCK, &usr1, NULL) == 0);
    (void)signal(SIGUSR2, SIG_DFL);
    pk_guard_safe_until(&run.g, pk_clock_ms() + FAR_MS);
    (void)snprintf(env[0], sizeof env[0], "TEST_JOB=around");
    (void)snprintf(env[1], sizeof env[1], "TEST_FD=%d", l.out);
    (void)snprintf(env[2], sizeof env[2], "GREETING=hello = world");
    (void)snprintf(env[3], sizeof env[3], "TEST_GROUP=%d", (int)getpgrp());
    (void)snprintf(env[4], sizeof env[4], "TEST_SESSION=%d", (int)getsid(0));
    (void)snprintf(env[5], sizeof env[5], "TEST_FDS=%d", inherited + 1);
    CHECK_U64(pk_guard_go(&run.g, list), 0);
    CHECK(close(l.out) == 0);
    for (int i = 0; i < 11; i++) {
        CHECK_U64(line_next(&l) * 100 + i, 'y' * 100 + i);
    }
    (void)started(&run);
    CHECK_U64(next(&run).event, PK_GUARD_EXITED);
    finish(&run);
}

TEST(guard__signals_are_passed_on)
{
    struct run run = start("signalled", (struct pk_guard_options){.kill_after_ms = 50});
    (void)started(&run);
    CHECK_U64(line_next(&run.l), 'u');
    CHECK_U64(pk_guard_signal(&run.g, SIGUSR1), 0);
    CHECK_U64(line_next(&run.l), 'S');
    CHECK_U64(pk_guard_signal(&run.g, SIGTERM), 0);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_EXITED);
    CHECK_U64(pk_guard_exit_code(&r), 128 + SIGTERM);
    finish(&run);
}

/* ---- Loss ---- */

/* Who ignores SIGTERM, forks twice and leaves the session is dead before LOST is said. */
TEST(guard__deadline_ends_a_stubborn_tree)
{
    struct run run = start("stubborn", (struct pk_guard_options){.kill_after_ms = 50});
    (void)started(&run);
    CHECK(line_brings(&run.l, 3));
    deadline_passes(&run);
    struct pk_guard_report r = next(&run);
    CHECK(line_ends_within(&run.l, 0));
    CHECK_U64(r.event, PK_GUARD_LOST);
    CHECK_U64(r.left, 0);
    CHECK(WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGKILL);
    CHECK_U64(pk_guard_exit_code(&r), PK_EXIT_LOST);
    finish(&run);
}

TEST(guard__deadline_ends_a_fork_storm)
{
    struct run run = start("storm", (struct pk_guard_options){.kill_after_ms = 20});
    (void)started(&run);
    CHECK(line_brings(&run.l, STORM_CHAINS));
    deadline_passes(&run);
    struct pk_guard_report r = next(&run);
    CHECK(line_ends_within(&run.l, 0));
    CHECK_U64(r.event, PK_GUARD_LOST);
    CHECK_U64(r.left, 0);
    finish(&run);
}

/* There is time to obey, also for a job that was stopped. */
TEST(guard__deadline_lets_a_stopped_job_obey)
{
    struct run run =
        start("obedient", (struct pk_guard_options){.kill_after_ms = PATIENCE_MS});
    struct pk_guard_report r = started(&run);
    CHECK_U64(line_next(&run.l), 'u');
    CHECK(kill(r.pid, SIGSTOP) == 0);
    CHECK(becomes_stopped(r.pid, true));
    deadline_passes(&run);
    CHECK_U64(line_next(&run.l), 'T');
    r = next(&run);
    CHECK_U64(r.event, PK_GUARD_LOST);
    CHECK_U64(r.status, 5 << 8);
    finish(&run);
}

/* A deadline long gone, as after a suspend, leaves no time to obey. */
TEST(guard__deadline_long_gone_kills_at_once)
{
    struct run run = start("obedient", (struct pk_guard_options){.kill_after_ms = 200});
    (void)started(&run);
    CHECK_U64(line_next(&run.l), 'u');
    pk_guard_safe_until(&run.g, 1);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_LOST);
    CHECK(WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGKILL);
    CHECK_U64(line_next(&run.l), 0);
    finish(&run);
}

TEST(guard__lost_is_like_the_deadline)
{
    struct run run = start("stubborn", (struct pk_guard_options){.kill_after_ms = 20});
    (void)started(&run);
    CHECK(line_brings(&run.l, 3));
    CHECK_U64(pk_guard_lost(&run.g), 0);
    CHECK_U64(next(&run).event, PK_GUARD_LOST);
    finish(&run);
}

/* The loss pipe ends at the loss, before anything is killed. */
static void loss_fd_ends(bool by_deadline)
{
    struct pk_guard_options o = {.kill_after_ms = PATIENCE_MS, .loss_fd = true};
    struct run run = start("loss", o);
    (void)started(&run);
    CHECK_U64(line_next(&run.l), 'u');
    if (by_deadline) {
        deadline_passes(&run);
    } else {
        CHECK_U64(pk_guard_lost(&run.g), 0);
    }
    CHECK_U64(line_next(&run.l), 'e');
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_LOST);
    CHECK_U64(r.status, 4 << 8);
    finish(&run);
}

TEST(guard__loss_fd_reads_end_of_file)
{
    loss_fd_ends(true);
    loss_fd_ends(false);
}

/* A deadline that was moved on in time does nothing when its old place passes. A busy
 * machine needs a later deadline to move it on in time. */
TEST(guard__deadline_moved_on_is_not_a_loss)
{
    for (int attempt = 0; attempt < 10; attempt++) {
        struct pk_guard_options o = {.kill_after_ms = 20};
        struct run run = prepare(&o);
        uint64_t near = pk_clock_ms() + (UINT64_C(400) << attempt);
        pk_guard_safe_until(&run.g, near);
        go(&run, "signalled");
        (void)line_next(&run.l);
        pk_guard_safe_until(&run.g, near + FAR_MS);
        bool in_time = pk_clock_ms() < near;
        while (in_time && pk_clock_ms() < near + 100) {
            sleep_ms(20);
        }
        if (in_time) {
            struct pk_guard_report r;
            (void)started(&run);
            CHECK_U64(pk_guard_report(&run.g, &r), 0);
            CHECK_U64(pk_guard_signal(&run.g, SIGUSR1), 0);
            CHECK_U64(line_next(&run.l), 'S');
        }
        finish(&run);
        if (in_time) {
            return;
        }
    }
    FAIL("this machine was too slow ten times in a row");
}

/* ---- Before the start ---- */

static void reports_loss_without_starting(struct run *run)
{
    struct pk_guard_report r = next(run);
    CHECK_U64(r.event, PK_GUARD_LOST);
    CHECK(r.status == PK_GUARD_NO_STATUS && r.pid == 0);
}

TEST(guard__go_after_the_deadline_starts_nothing)
{
    struct pk_guard_options o = {.kill_after_ms = 50};
    struct run run = prepare(&o);
    deadline_passes(&run);
    go(&run, "stubborn");
    reports_loss_without_starting(&run);
    finish(&run);
}

TEST(guard__go_after_lost_starts_nothing)
{
    struct pk_guard_options o = {.kill_after_ms = 50};
    struct run run = prepare(&o);
    CHECK_U64(pk_guard_lost(&run.g), 0);
    go(&run, "stubborn");
    reports_loss_without_starting(&run);
    finish(&run);
}

/* The process that waits to be the job can be killed before it is one. */
TEST(guard__go_after_the_waiting_job_was_killed)
{
    struct pk_guard_options o = {.kill_after_ms = 50};
    struct pk_proclist waiting = {0};
    struct run run = prepare(&o);
    uint64_t until = pk_clock_ms() + PATIENCE_MS;
    while (waiting.count == 0 && pk_clock_ms() < until) {
        pk_procscan_descendants(run.g.pid, &waiting, NULL, NULL);
    }
    CHECK_U64(waiting.count, 1);
    CHECK(kill(waiting.at[0].pid, SIGKILL) == 0);
    pk_procscan_free(&waiting);
    go(&run, "stubborn");
    (void)started(&run);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_EXITED);
    CHECK_U64(pk_guard_exit_code(&r), 128 + SIGKILL);
    finish(&run);
}

TEST(guard__go_refuses_what_it_cannot_pass_on)
{
    static char big[PK_GUARD_ENV_MAX];
    const char *const no_value[] = {"PICKET_LOCK", NULL};
    const char *const no_name[] = {"=x", NULL};
    const char *const fits[] = {big + 1, NULL};
    const char *const too_big[] = {big, "A=1", NULL};
    struct pk_guard_options o = {.argv = self, .kill_after_ms = 50};
    struct pk_guard g;
    memset(big, 'a', sizeof big - 1);
    big[2] = '=';
    set_up();
    CHECK_U64(pk_guard_start(&g, &o), 0);
    CHECK(pk_guard_go(&g, fits) == -EINVAL); /* no deadline yet */
    pk_guard_safe_until(&g, pk_clock_ms());
    CHECK(pk_guard_go(&g, no_value) == -EINVAL);
    CHECK(pk_guard_go(&g, no_name) == -EINVAL);
    CHECK(pk_guard_go(&g, too_big) == -E2BIG);
    CHECK_U64(pk_guard_go(&g, fits), 0);
    pk_guard_close(&g);
}

/* ---- Which signals ---- */

TEST(guard__forwards_what_the_terminal_did_not_send)
{
    struct signalfd_siginfo info = {.ssi_signo = SIGINT, .ssi_code = SI_USER};
    CHECK(pk_guard_should_forward(&info));
    info.ssi_code = SI_KERNEL;
    CHECK(!pk_guard_should_forward(&info));
    info.ssi_signo = SIGWINCH;
    CHECK(!pk_guard_should_forward(&info));
    info.ssi_code = SI_QUEUE;
    CHECK(pk_guard_should_forward(&info));
    info.ssi_signo = SIGCHLD;
    CHECK(!pk_guard_should_forward(&info));
    info = (struct signalfd_siginfo){.ssi_signo = SIGHUP, .ssi_code = SI_KERNEL};
    CHECK(pk_guard_should_forward(&info) == (getsid(0) == getpid()));
}
