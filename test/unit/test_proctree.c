/* SPDX-License-Identifier: MIT */
#include "procs.h"

#include <pthread.h>

__attribute__((destructor)) static void at_the_end(void)
{
    clean_up();
}

/* Forks a tree whose root runs `be`; the line's writing end stays with the tree. */
static pid_t grow(struct line *l, void (*be)(int out))
{
    *l = line_open();
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(l->in);
        be(l->out);
        _exit(0);
    }
    CHECK(pid > 0);
    CHECK(close(l->out) == 0);
    return pid;
}

static void quiet_family(int out)
{
    /* Three children, the first with two of its own: five below the root. */
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            for (int k = 0; i == 0 && k < 2; k++) {
                if (fork() == 0) {
                    write_byte(out, 'u');
                    linger();
                }
            }
            write_byte(out, 'u');
            linger();
        }
    }
    write_byte(out, 'u');
    linger();
}

static int by_pid(const void *a, const void *b)
{
    const struct pk_proc *x = a;
    const struct pk_proc *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Both ways of finding descendants give the same ones, parents before children. */
TEST(proctree__walk_and_sweep_agree)
{
    struct line l;
    struct pk_proclist walked = {0};
    struct pk_proclist swept = {0};
    set_up();
    pid_t root = grow(&l, quiet_family);
    CHECK(line_brings(&l, 6));
    pk_procscan_sweep(root, &swept, NULL, NULL);
    CHECK_U64(swept.count, 5);
    CHECK_U64(swept.at[0].parent, root);
    if (pk_procscan_can_walk()) {
        pk_procscan_walk(root, &walked, NULL, NULL);
        CHECK_U64(walked.count, 5);
        CHECK_U64(walked.at[0].parent, root);
        CHECK(walked.at[4].parent != root);
        qsort(walked.at, walked.count, sizeof walked.at[0], by_pid);
        qsort(swept.at, swept.count, sizeof swept.at[0], by_pid);
        for (size_t i = 0; i < 5; i++) {
            CHECK_U64(walked.at[i].pid, swept.at[i].pid);
            CHECK_U64(walked.at[i].start, swept.at[i].start);
        }
    }
    CHECK_U64(pk_proctree_count(root, false, NULL), 5);
    CHECK_U64(pk_proctree_count(root, true, NULL), 6);
    CHECK_U64(pk_proctree_count(0, false, NULL), 6);
    pk_procscan_free(&walked);
    pk_procscan_free(&swept);
    CHECK_U64(pk_proctree_kill(0, false, PATIENCE_MS), 0);
    CHECK(line_ends_within(&l, 0));
    CHECK(close(l.in) == 0);
}

/* A signal reaches those in other sessions and those orphaned, and nobody else. */
TEST(proctree__signal_reaches_every_generation)
{
    struct line l;
    set_up();
    (void)grow(&l, be_stubborn);
    CHECK(line_brings(&l, 3));
    CHECK_U64(pk_proctree_signal(0, false, SIGTERM, NULL), 3);
    CHECK_U64(pk_proctree_count(0, false, NULL), 3); /* they ignore it */
    CHECK_U64(pk_proctree_signal(0, false, SIGKILL, NULL), 3);
    CHECK(line_ends(&l));
    CHECK(close(l.in) == 0);
}

/* Frozen means that every member is stopped, and thawed that every member runs. */
TEST(proctree__freeze_stops_all_and_thaw_resumes_them)
{
    struct line l;
    struct pk_proclist tree = {0};
    set_up();
    pid_t root = grow(&l, be_stubborn);
    CHECK(line_brings(&l, 3));
    CHECK_U64(pk_proctree_freeze(0, false, PATIENCE_MS, NULL), 0);
    pk_procscan_descendants(getpid(), &tree, NULL, NULL);
    for (size_t i = 0; i < tree.count; i++) {
        CHECK(tree.at[i].dead || tree.at[i].state == 'T');
    }
    CHECK(state_of(root) == 'T');
    pk_proctree_thaw(0, false);
    for (size_t i = 0; i < tree.count; i++) {
        CHECK(tree.at[i].dead || becomes_stopped(tree.at[i].pid, false));
    }
    pk_procscan_free(&tree);
    CHECK_U64(pk_proctree_kill(0, false, PATIENCE_MS), 0);
    CHECK(close(l.in) == 0);
}

/* What ignores SIGTERM, forks twice and leaves the session dies all the same, and is
 * reaped. */
TEST(proctree__kill_leaves_nothing_of_a_stubborn_tree)
{
    struct line l;
    int status = 0;
    set_up();
    pid_t root = grow(&l, be_stubborn);
    CHECK(line_brings(&l, 3));
    CHECK(pk_proctree_kill_child(root, PATIENCE_MS, &status));
    CHECK_U64(status, SIGKILL);
    CHECK_U64(pk_proctree_count(0, false, NULL), 2);
    CHECK_U64(pk_proctree_kill(0, false, PATIENCE_MS), 0);
    CHECK(line_ends_within(&l, 0));
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    CHECK(close(l.in) == 0);
}

/* A stopped process is killed without having run again. */
TEST(proctree__kill_works_on_a_frozen_tree)
{
    struct line l;
    set_up();
    (void)grow(&l, be_obedient);
    CHECK(line_brings(&l, 1));
    CHECK_U64(pk_proctree_freeze(0, false, PATIENCE_MS, NULL), 0);
    CHECK_U64(pk_proctree_kill(0, false, PATIENCE_MS), 0);
    CHECK_U64(line_next_within(&l, 0), 0); /* the end, and no 'T' before it */
    CHECK(close(l.in) == 0);
}

/* Chains that fork and die faster than anybody can list them end too. */
TEST(proctree__kill_ends_a_fork_storm)
{
    struct line l;
    set_up();
    (void)grow(&l, be_storm);
    CHECK(line_brings(&l, STORM_CHAINS));
    CHECK_U64(pk_proctree_kill(0, false, PATIENCE_MS), 0);
    CHECK(line_ends_within(&l, 0));
    CHECK(close(l.in) == 0);
}

/* A tree that obeys SIGTERM is not killed; one that was stopped is woken to obey. */
TEST(proctree__end_gives_time_to_obey)
{
    struct line l;
    set_up();
    pid_t root = grow(&l, be_obedient);
    CHECK(line_brings(&l, 1));
    CHECK(kill(root, SIGSTOP) == 0);
    CHECK(becomes_stopped(root, true));
    CHECK_U64(pk_proctree_end(0, false, PATIENCE_MS, 0), 0);
    CHECK_U64(line_next(&l), 'T');
    CHECK_U64(line_next(&l), 0);
    CHECK(close(l.in) == 0);
}

TEST(proctree__end_kills_who_does_not_obey)
{
    struct line l;
    set_up();
    (void)grow(&l, be_stubborn);
    CHECK(line_brings(&l, 3));
    CHECK_U64(pk_proctree_end(0, false, 50, PATIENCE_MS), 0);
    CHECK(line_ends_within(&l, 0));
    CHECK(close(l.in) == 0);
}

static void obedient_root_of_stubborn_tree(int out)
{
    if (fork() == 0) {
        be_stubborn(out);
    }
    be_obedient(out);
}

/* Ends the tree of another process, which gets `obey_ms` to obey. True when that process
 * had the time to obey, so that the rest of the tree was without a root for a while. */
static bool end_of_another_root(uint32_t obey_ms)
{
    struct line l;
    set_up();
    pid_t root = grow(&l, obedient_root_of_stubborn_tree);
    /* The third generation is ours by now (we are the subreaper), not the root's. */
    CHECK(line_brings(&l, 4));
    CHECK_U64(pk_proctree_count(root, true, NULL), 3);
    CHECK_U64(pk_proctree_end(root, true, obey_ms, PATIENCE_MS), 0);
    int status = end_of(root);
    CHECK(status == 5 << 8 || status == SIGKILL);
    CHECK_U64(pk_proctree_count(0, false, NULL), 1);
    CHECK_U64(pk_proctree_kill(0, false, PATIENCE_MS), 0);
    CHECK(line_ends_within(&l, 0));
    CHECK(close(l.in) == 0);
    return status == 5 << 8;
}

/* The early death of the root loses none of the rest. A busy machine needs more time
 * until the root obeys. */
TEST(proctree__end_of_another_root_loses_nobody)
{
    uint32_t obey_ms = 50;
    while (!end_of_another_root(obey_ms)) {
        CHECK(obey_ms < PATIENCE_MS);
        obey_ms *= 4;
    }
}

static void kill_the_others(int out)
{
    for (int i = 0; i < 2; i++) {
        if (fork() == 0) {
            (void)signal(SIGTERM, SIG_IGN);
            write_byte(out, 'u');
            linger();
        }
    }
    sleep_ms(1);
    if (fork() == 0) {
        uint32_t left = pk_proctree_end(getppid(), false, 20, PATIENCE_MS);
        write_byte(out, left == 0 ? 'K' : 'L');
        _exit(0);
    }
    linger();
}

/* Who ends the tree that it belongs to survives it. */
TEST(proctree__caller_inside_the_tree_is_spared)
{
    struct line l;
    set_up();
    pid_t root = grow(&l, kill_the_others);
    int byte;
    do {
        byte = line_next(&l);
    } while (byte == 'u');
    CHECK_U64(byte, 'K');
    CHECK(state_of(root) != '-' && state_of(root) != 'Z');
    CHECK_U64(pk_proctree_kill(root, true, PATIENCE_MS), 0);
    CHECK_U64(end_of(root), SIGKILL);
    CHECK(line_ends(&l));
    CHECK(close(l.in) == 0);
}

static void *fork_and_linger(void *ctx)
{
    const int *out = ctx;
    while (state_of(getpid()) != 'Z') {
        sleep_ms(1);
    }
    if (fork() == 0) {
        write_byte(*out, 'u');
        linger();
    }
    write_byte(*out, 'u');
    linger();
}

static void headless(int out)
{
    static int kept;
    pthread_t thread;
    kept = out;
    MUST(pthread_create(&thread, NULL, fork_and_linger, &kept) == 0);
    pthread_exit(NULL);
}

/* A process whose first thread has left looks like a zombie and is none. */
TEST(proctree__process_without_first_thread_is_alive)
{
    struct line l;
    struct pk_proc p;
    set_up();
    pid_t root = grow(&l, headless);
    CHECK(line_brings(&l, 2));
    CHECK(pk_procscan_read(root, &p));
    CHECK(p.state == 'Z' && !p.dead);
    CHECK_U64(pk_proctree_count(0, false, NULL), 2);
    CHECK_U64(pk_proctree_freeze(0, false, PATIENCE_MS, NULL), 0);
    CHECK(pk_procscan_stopped(root));
    CHECK_U64(pk_proctree_kill(0, false, PATIENCE_MS), 0);
    CHECK(line_ends_within(&l, 0));
    CHECK(close(l.in) == 0);
}

static void be_misnamed(int out)
{
    MUST(prctl(PR_SET_NAME, "x) Z 1 (") == 0);
    write_byte(out, 'u');
    linger();
}

/* The name of a process is its own choice, and hides nothing. */
TEST(proctree__name_of_a_process_hides_nothing)
{
    struct line l;
    struct pk_proc p;
    set_up();
    pid_t root = grow(&l, be_misnamed);
    CHECK(line_brings(&l, 1));
    CHECK(pk_procscan_read(root, &p));
    CHECK(!p.dead && p.parent == getpid());
    CHECK_U64(pk_proctree_count(0, false, NULL), 1);
    CHECK_U64(pk_proctree_kill(0, false, PATIENCE_MS), 0);
    CHECK(line_ends_within(&l, 0));
    CHECK(close(l.in) == 0);
}

/* A pid that is nobody's is the root of nothing. */
TEST(proctree__dead_root_has_no_tree)
{
    struct line l;
    set_up();
    pid_t root = grow(&l, be_obedient);
    CHECK(line_brings(&l, 1));
    CHECK_U64(pk_proctree_kill(root, true, PATIENCE_MS), 0);
    CHECK_U64(end_of(root), SIGKILL);
    CHECK_U64(pk_proctree_count(root, true, NULL), 0);
    CHECK_U64(pk_proctree_end(root, true, 0, 0), 0);
    CHECK(close(l.in) == 0);
}
