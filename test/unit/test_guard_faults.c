/* SPDX-License-Identifier: MIT */
/* cli/guard.h when things go wrong: frozen trees, and keepers and guardians that die or
 * stop. */
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

/* ---- Grace ---- */

static void skip_to_frozen(struct run *run)
{
    deadline_passes(run);
    CHECK_U64(next(run).event, PK_GUARD_FROZEN);
}

/* The byte that comes after all that was written before. */
static int fresh_byte(struct run *run)
{
    while (line_next_within(&run->l, 0) > 0) {
        continue;
    }
    return line_next(&run->l);
}

TEST(guard__grace_freezes_and_thaws)
{
    struct run run =
        start("tick", (struct pk_guard_options){.kill_after_ms = 50, .grace_ms = FAR_MS});
    struct pk_guard_report r = started(&run);
    for (int round = 0; round < 3; round++) {
        CHECK_U64(fresh_byte(&run), 't');
        skip_to_frozen(&run);
        CHECK(state_of(r.pid) == 'T');
        CHECK_U64(pk_guard_signal(&run.g, SIGCONT), 0); /* must not wake it */
        while (line_next_within(&run.l, 0) > 0) {
            continue;
        }
        CHECK_U64((uint64_t)(line_next_within(&run.l, 20) + 1), 0);
        pk_guard_safe_until(&run.g, pk_clock_ms() + FAR_MS);
        CHECK_U64(next(&run).event, PK_GUARD_THAWED);
        CHECK(becomes_stopped(r.pid, false));
    }
    CHECK_U64(fresh_byte(&run), 't');
    CHECK_U64(pk_guard_lost(&run.g), 0);
    CHECK_U64(next(&run).event, PK_GUARD_LOST);
    finish(&run);
}

/* The whole tree is frozen, the escaped ones too. */
TEST(guard__grace_freezes_everybody)
{
    struct pk_proclist tree = {0};
    struct run run = start(
        "stubborn", (struct pk_guard_options){.kill_after_ms = 50, .grace_ms = FAR_MS});
    (void)started(&run);
    CHECK(line_brings(&run.l, 3));
    skip_to_frozen(&run);
    pk_procscan_descendants(run.g.pid, &tree, NULL, NULL);
    CHECK(tree.count >= 3);
    for (size_t i = 0; i < tree.count; i++) {
        CHECK(tree.at[i].state == 'T' || tree.at[i].dead);
    }
    pk_procscan_free(&tree);
    CHECK_U64(pk_guard_lost(&run.g), 0);
    CHECK_U64(next(&run).event, PK_GUARD_LOST);
    CHECK(line_ends_within(&run.l, 0));
    finish(&run);
}

/* After the grace it is killed without having run again. */
TEST(guard__grace_expired_kills_the_frozen)
{
    struct run run = start(
        "obedient", (struct pk_guard_options){.kill_after_ms = 50, .grace_ms = 100});
    (void)started(&run);
    CHECK_U64(line_next(&run.l), 'u');
    skip_to_frozen(&run);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_LOST);
    CHECK(WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGKILL);
    CHECK_U64(line_next(&run.l), 0);
    finish(&run);
}

/* With a grace the lease's margin has no room for the time to obey. */
TEST(guard__grace_leaves_no_time_beyond_the_deadline)
{
    struct run run = start(
        "stubborn", (struct pk_guard_options){.kill_after_ms = FAR_MS, .grace_ms = 100});
    (void)started(&run);
    CHECK(line_brings(&run.l, 3));
    CHECK_U64(pk_guard_lost(&run.g), 0);
    deadline_passes(&run);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_LOST);
    CHECK(WIFSIGNALED(r.status) && WTERMSIG(r.status) == SIGKILL);
    finish(&run);
}

/* A SIGCONT from outside, as a shell's `fg` sends it, does not undo it. */
TEST(guard__grace_refreezes_who_was_woken)
{
    struct run run =
        start("tick", (struct pk_guard_options){.kill_after_ms = 50, .grace_ms = FAR_MS});
    struct pk_guard_report r = started(&run);
    CHECK_U64(line_next(&run.l), 't');
    skip_to_frozen(&run);
    for (int i = 0; i < 5; i++) {
        CHECK(kill(r.pid, SIGCONT) == 0);
        CHECK(becomes_stopped(r.pid, true));
    }
    pk_guard_safe_until(&run.g, pk_clock_ms() + FAR_MS);
    CHECK_U64(next(&run).event, PK_GUARD_THAWED);
    CHECK_U64(fresh_byte(&run), 't');
    CHECK_U64(pk_guard_lost(&run.g), 0);
    CHECK_U64(next(&run).event, PK_GUARD_LOST);
    finish(&run);
}

/* ---- Death and stillness of the two processes ---- */

/* The guardian is killed: the keeper sees it and ends the tree itself. */
TEST(guard__guardian_killed_keeper_ends_the_tree)
{
    struct run run = start("stubborn", (struct pk_guard_options){.kill_after_ms = 50});
    (void)started(&run);
    CHECK(line_brings(&run.l, 3));
    CHECK(kill(run.g.pid, SIGKILL) == 0);
    struct pk_guard_report r = next(&run);
    CHECK_U64(r.event, PK_GUARD_GONE);
    CHECK_U64(pk_guard_exit_code(&r), PK_EXIT_ERROR);
    CHECK_U64(pk_guard_kill_all(&run.g), 0);
    CHECK(line_ends_within(&run.l, 0));
    finish(&run);
}

/* The guardian is stopped: a keeper that finds it overdue ends it and the tree. */
TEST(guard__guardian_stopped_keeper_ends_the_tree)
{
    struct run run = start("stubborn", (struct pk_guard_options){.kill_after_ms = 50});
    (void)started(&run);
    CHECK(line_brings(&run.l, 3));
    CHECK(kill(run.g.pid, SIGSTOP) == 0);
    CHECK(becomes_stopped(run.g.pid, true));
    uint64_t now = pk_clock_ms();
    pk_guard_safe_until(&run.g, now);
    CHECK(pk_guard_overdue_ms(&run.g) > now + 50);
    CHECK_U64(pk_guard_kill_all(&run.g), 0);
    CHECK(line_ends_within(&run.l, 0));
    finish(&run);
}

/* Signals that would end or stop anybody else leave the guardian alone. */
TEST(guard__guardian_ignores_signals)
{
    static const int signals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGTSTP,
                                  SIGTTIN, SIGTTOU, SIGPIPE, SIGUSR1, SIGALRM};
    struct run run = start("signalled", (struct pk_guard_options){.kill_after_ms = 50});
    (void)started(&run);
    CHECK_U64(line_next(&run.l), 'u');
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        CHECK(kill(run.g.pid, signals[i]) == 0);
    }
    CHECK_U64(pk_guard_signal(&run.g, SIGUSR1), 0);
    CHECK_U64(line_next(&run.l), 'S');
    CHECK(getsid(run.g.pid) == run.g.pid);
    finish(&run); /* ends the tree as well */
}

/* What a keeper in a process of its own shares with the test. */
struct scene {
    _Atomic pid_t guardian;
    _Atomic int orphaned;       /* times the callback ran */
    _Atomic uint32_t tree_then; /* processes alive at that time */
    _Atomic int last_event;
};

static void note_orphaned(void *ctx)
{
    struct scene *scene = ctx;
    atomic_store(&scene->tree_then, pk_proctree_count(0, false, NULL));
    atomic_fetch_add(&scene->orphaned, 1);
}

/* The keeper's life: start, go, and at a byte on `cue` let the deadline come soon and
 * stop; when it is continued, read reports. */
static _Noreturn void be_keeper(struct scene *scene, struct line *l, const char *job,
                                int cue)
{
    struct pk_guard_options o = {
        .argv = self, .kill_after_ms = 50, .orphaned_cb = note_orphaned, .ctx = scene};
    char name[64];
    char fd[32];
    char byte;
    const char *const env[] = {name, fd, NULL};
    struct pk_guard g;
    struct pk_guard_report r = {.event = PK_GUARD_STARTED};
    (void)snprintf(name, sizeof name, "TEST_JOB=%s", job);
    (void)snprintf(fd, sizeof fd, "TEST_FD=%d", l->out);
    /* No shell keeps an eye on this group: the kernel hangs it up at the first
     * pretext. */
    MUST(setsid() > 0);
    MUST(pk_guard_start(&g, &o) == 0);
    atomic_store(&scene->guardian, g.pid);
    pk_guard_safe_until(&g, pk_clock_ms() + FAR_MS);
    MUST(job == NULL || pk_guard_go(&g, env) == 0);
    MUST(close(l->out) == 0);
    MUST(read(cue, &byte, 1) == 1);
    pk_guard_safe_until(&g, pk_clock_ms() + 300);
    MUST(raise(SIGSTOP) == 0);
    while (r.event == PK_GUARD_STARTED) {
        struct pollfd p = {.fd = pk_guard_fd(&g), .events = POLLIN};
        MUST(poll(&p, 1, PATIENCE_MS) == 1);
        MUST(pk_guard_report(&g, &r) == 1);
    }
    atomic_store(&scene->last_event, (int)r.event);
    pk_guard_close(&g);
    _exit(0);
}

struct keeper {
    struct scene *scene;
    struct line l;
    int cue;
    pid_t pid;
};

static struct keeper start_keeper(const char *job)
{
    struct keeper k;
    int cue[2];
    set_up();
    k.scene = shared_memory(sizeof *k.scene);
    k.l = line_open();
    CHECK(pipe2(cue, O_CLOEXEC) == 0);
    k.cue = cue[1];
    k.pid = fork();
    if (k.pid == 0) {
        (void)close(cue[1]); /* or it would wait for itself */
        be_keeper(k.scene, &k.l, job, cue[0]);
    }
    CHECK(k.pid > 0);
    CHECK(close(cue[0]) == 0 && close(k.l.out) == 0);
    return k;
}

static void end_keeper(struct keeper *k)
{
    CHECK(line_ends(&k->l));
    CHECK(close(k->l.in) == 0 && close(k->cue) == 0);
    CHECK_U64(pk_proctree_reap(1000, NULL), PK_CHILDREN_NONE);
    CHECK(munmap(k->scene, sizeof *k->scene) == 0);
}

/* kill -9 of picket: the tree ends, and then the callback runs, once. */
TEST(guard__keeper_killed_ends_the_tree_then_calls_back)
{
    struct keeper k = start_keeper("stubborn");
    CHECK(line_brings(&k.l, 3));
    CHECK(kill(k.pid, SIGKILL) == 0);
    CHECK_U64(end_of(k.pid), SIGKILL);
    CHECK(line_ends(&k.l));
    CHECK_U64(end_of(atomic_load(&k.scene->guardian)), 0);
    CHECK_U64(atomic_load(&k.scene->orphaned), 1);
    CHECK_U64(atomic_load(&k.scene->tree_then), 0);
    end_keeper(&k);
}

/* It need not have come to the job: a lease may be open already. */
TEST(guard__keeper_killed_before_go_calls_back)
{
    struct keeper k = start_keeper(NULL);
    uint64_t until = pk_clock_ms() + PATIENCE_MS;
    while (atomic_load(&k.scene->guardian) == 0 && pk_clock_ms() < until) {
        sleep_ms(1);
    }
    CHECK(kill(k.pid, SIGKILL) == 0);
    CHECK_U64(end_of(k.pid), SIGKILL);
    CHECK_U64(end_of(atomic_load(&k.scene->guardian)), 0);
    CHECK_U64(atomic_load(&k.scene->orphaned), 1);
    end_keeper(&k);
}

/* picket is stopped and its deadline passes: the tree is gone while it is still
 * stopped. */
TEST(guard__keeper_stopped_past_the_deadline_ends_the_tree)
{
    struct keeper k = start_keeper("stubborn");
    CHECK(line_brings(&k.l, 3));
    CHECK(write(k.cue, "x", 1) == 1);
    CHECK(becomes_stopped(k.pid, true));
    CHECK(line_ends(&k.l));
    CHECK(state_of(k.pid) == 'T');
    CHECK_U64(atomic_load(&k.scene->last_event), 0);
    CHECK(kill(k.pid, SIGCONT) == 0);
    CHECK_U64(end_of(k.pid), 0);
    CHECK_U64(atomic_load(&k.scene->last_event), PK_GUARD_LOST);
    CHECK_U64(atomic_load(&k.scene->orphaned), 0);
    end_keeper(&k);
}

/* A keeper that closes is not one that died. */
TEST(guard__close_ends_the_tree_without_callback)
{
    struct scene *scene = shared_memory(sizeof *scene);
    struct run run = start(
        "stubborn", (struct pk_guard_options){
                        .kill_after_ms = 50, .orphaned_cb = note_orphaned, .ctx = scene});
    (void)started(&run);
    CHECK(line_brings(&run.l, 3));
    finish(&run);
    CHECK_U64(atomic_load(&scene->orphaned), 0);
    CHECK(munmap(scene, sizeof *scene) == 0);
}
