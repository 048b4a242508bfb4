/* SPDX-License-Identifier: MIT */
/* Each case runs twice: with overwrites by threads, and by the kernel. */
#include "raft/file_disk.h"

#include <sys/mount.h>

#include "core/door.h"
#include "disk_jobs.h"

/* ---- store ---- */

CASE(store_makes_a_file_and_its_name_durable)
{
    struct stat st;
    CHECK_U64(run_one(store_of("new", "hello", 8192)), 0);
    CHECK_STR(calls_made(), "ooawwwfF");
    CHECK(stat(in_state("new"), &st) == 0);
    CHECK_U64(st.st_mode & 0777, 0600);
    CHECK_U64(st.st_size, 8192);
    struct file f = file_read(in_state("new"));
    CHECK(memcmp(f.bytes, "hello\0", 6) == 0 && f.bytes[8191] == 0);
    file_drop(&f);
}

CASE(store_again_keeps_what_is_behind_its_parts)
{
    CHECK_U64(run_one(store_of("new", "hello", 0)), 0);
    CHECK_STR(calls_made(), "ooawwfF");
    CHECK_U64(run_one(store_of("new", "JE", 3)), 0);
    CHECK_STR(calls_made(), "owwd");
    CHECK(file_is(in_state("new"), "JEllo", 5));
}

CASE(store_that_grows_is_like_a_new_file)
{
    CHECK_U64(run_one(store_of("new", "hello", 0)), 0);
    (void)calls_made();
    CHECK_U64(run_one(store_of("new", "JE", 7)), 0);
    CHECK_STR(calls_made(), "oawwwfF");
    CHECK(file_is(in_state("new"), "JEllo\0\0", 7));
    CHECK_U64(run_one(store_of("new", "longer than it", 7)), 0);
    CHECK_STR(calls_made(), "oawwfF");
    CHECK(file_is(in_state("new"), "longer than it", 14));
}

/* Zeros are written in pieces: none may be left out between them. */
CASE(store_fills_a_large_file)
{
    enum { SIZE = (3 << 20) + 5 };
    file_write(in_state("large"), "12345678", 8);
    CHECK_U64(run_one(store_of("large", "ab", SIZE)), 0);
    CHECK_STR(calls_made(), "oawwwwwfF"); /* two parts, three pieces */
    struct file f = file_read(in_state("large"));
    CHECK_U64(f.len, SIZE);
    CHECK(memcmp(f.bytes, "ab345678", 8) == 0 && f.bytes[8] == 0);
    CHECK(memcmp(f.bytes + 8, f.bytes + 9, SIZE - 9) == 0);
    file_drop(&f);
}

CASE(store_reports_each_error_once)
{
    const struct {
        char call;
        const char *made;
    } at[] = {{'o', "o"}, {'a', "oa"}, {'w', "oaw"}, {'f', "oawwwf"}, {'F', "oawwwfF"}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        file_write(in_state("f"), "", 0);
        calls_fail(at[i].call, EIO);
        CHECK_U64(run_one(store_of("f", "text", 64)), EIO);
        CHECK_STR(calls_made(), at[i].made);
    }
    calls_fail('d', EIO);
    CHECK_U64(run_one(store_of("f", "text", 0)), EIO);
    CHECK_STR(calls_made(), "owwd");
    calls_reset();
    CHECK_U64(run_one(store_of("f", "text", 64)), 0);
}

CASE(store_goes_on_after_signals)
{
    const char each[] = "oawdfF";
    for (size_t i = 0; i < sizeof each - 1; i++) {
        CHECK_U64(run_one(store_of("f", "old", 0)), 0);
        calls_fail(each[i], EINTR);
        CHECK_U64(run_one(store_of("f", "text", each[i] == 'd' ? 0 : 99 + i)), 0);
        CHECK(calls.fail == '\0'); /* both interruptions have happened */
    }
    struct file f = file_read(in_state("f"));
    CHECK(memcmp(f.bytes, "text", 4) == 0);
    file_drop(&f);
}

CASE(long_operations_end_in_their_order)
{
    struct job jobs[5];
    for (int i = 0; i < 5; i++) {
        jobs[i] = store_of("f", i == 4 ? "last" : "other", 0);
        begin(&jobs[i]);
    }
    while (jobs[4].done == 0) {
        CHECK(uv_run(loop, UV_RUN_ONCE) != 0);
    }
    for (int i = 0; i < 5; i++) {
        CHECK_U64(jobs[i].done, 1);
        CHECK(i == 0 || jobs[i].turn == jobs[i - 1].turn + 1);
    }
    CHECK(file_is(in_state("f"), "lastr", 5));
}

/* ---- read ---- */

CASE(reads_a_whole_file)
{
    enum { SIZE = (1 << 20) + 3 };
    unsigned char *bytes = malloc(SIZE);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < SIZE; i++) {
        bytes[i] = (unsigned char)(i * 7 >> 3);
    }
    file_write(in_state("f"), bytes, SIZE);
    struct job j = job_of(PK_DISK_READ, "f");
    CHECK_U64(run(&j), 0);
    CHECK_U64(j.op.len, SIZE);
    CHECK(memcmp(j.op.bytes, bytes, SIZE) == 0);
    (void)pk_door_resize(j.op.bytes, 0);
    free(bytes);
}

CASE(reads_an_empty_file_and_no_file)
{
    file_write(in_state("empty"), "", 0);
    struct job j = job_of(PK_DISK_READ, "empty");
    j.op.len = 77;
    CHECK_U64(run(&j), 0);
    CHECK_U64(j.op.len, 0);
    (void)pk_door_resize(j.op.bytes, 0);
    j = job_of(PK_DISK_READ, "none");
    j.op.bytes = blocks[0];
    CHECK_U64(run(&j), ENOENT);
    CHECK(j.op.bytes == NULL && j.op.len == 0);
    CHECK(mkdir(in_state("folder"), 0700) == 0);
    j = job_of(PK_DISK_READ, "folder");
    CHECK_U64(run(&j), EISDIR);
    CHECK(j.op.bytes == NULL && j.op.len == 0);
}

/* ---- overwrite ---- */

CASE(overwrites_its_blocks_and_no_others)
{
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 3, 0, 2)), 0);
    CHECK_U64(run_one(overwrite_of("log-00", 15, 4, 1)), 0);
    CHECK_U64(run_one(overwrite_of("log-00", 4, 2, 1)), 0);
    CHECK_STR(letters_of("log-00"), "000ac0000000000e");
    CHECK_U64(writes_measured, 3);
    CHECK(last_us > 0 && last_us < 600000000);
}

/* The descriptor makes each write durable, so no flush follows. */
CASE(overwrites_are_durable_and_open_once)
{
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 0, 0, 1)), 0);
    CHECK(calls.tried_direct);
    CHECK((calls.open_flags & O_DSYNC) == O_DSYNC);
    (void)calls_made();
    for (unsigned i = 1; i < 5; i++) {
        CHECK_U64(run_one(overwrite_of("log-00", i, i, 1)), 0);
        CHECK(went_its_way());
    }
    CHECK_STR(letters_of("log-00"), "abcde00000000000");
}

CASE(works_without_direct_writes)
{
    make_segment("log-00");
    make_segment("log-01");
    calls.no_direct = true;
    CHECK_U64(run_one(overwrite_of("log-00", 0, 1, 2)), 0);
    CHECK((calls.open_flags & O_DIRECT) == 0);
    CHECK((calls.open_flags & O_DSYNC) == O_DSYNC);
    calls.no_direct = false;
    calls.no_direct_io = true;
    CHECK_U64(run_one(overwrite_of("log-01", 0, 2, 2)), 0);
    CHECK((calls.open_flags & O_DIRECT) == 0);
    CHECK((calls.open_flags & O_DSYNC) == O_DSYNC);
    CHECK_STR(letters_of("log-00"), "bc00000000000000");
    CHECK_STR(letters_of("log-01"), "cd00000000000000");
    (void)calls_made();
    CHECK_U64(run_one(overwrite_of("log-01", 0, 3, 1)), 0);
    CHECK_STR(calls_made(), "w"); /* the kernel would do it at once, on the loop */
}

CASE(many_overwrites_end_once_each)
{
    static struct job jobs[MANY];
    char text[BLOCKS + 1] = "0000000000000000";
    make_segment("log-00");
    make_segment("log-01");
    for (unsigned i = 0; i < MANY; i++) {
        /* No two at one place: they may end in any order. */
        unsigned at = i % BLOCKS;
        jobs[i] = overwrite_of(i < BLOCKS ? "log-00" : "log-01", at, at, 1);
        text[at] = (char)('a' + at);
        begin(&jobs[i]);
    }
    close_disk(); /* waits for all of them */
    for (unsigned i = 0; i < MANY; i++) {
        CHECK_U64(jobs[i].done, 1);
        CHECK_U64(jobs[i].error, 0);
    }
    CHECK_U64(writes_measured, MANY);
    CHECK_STR(letters_of("log-00"), text);
    CHECK_STR(letters_of("log-01"), text);
}

static unsigned links;

static void on_link(struct pk_disk_op *op, int error)
{
    CHECK(!submitting && error == 0);
    if (++links < 200) {
        op->offset = links % BLOCKS * BLOCK;
        submit(op);
    }
}

/* As the store does: the next one begins where one has ended, with the same memory. */
CASE(overwrites_can_begin_in_done)
{
    struct job jobs[4];
    make_segment("log-00");
    links = 0;
    for (unsigned i = 0; i < 4; i++) {
        jobs[i] = overwrite_of("log-00", i, i, 1);
        jobs[i].op.done = on_link;
        submit(&jobs[i].op);
    }
    while (links < 203) {
        CHECK(uv_run(loop, UV_RUN_ONCE) != 0);
    }
    CHECK_U64(writes_measured, 203);
}

CASE(overwrites_go_on_after_parts_and_signals)
{
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 0, 15, 1)), 0);
    (void)calls_made();
    calls.in_parts = true;
    calls_fail(*way(), EINTR);
    CHECK_U64(run_one(overwrite_of("log-00", 1, 0, 4)), 0);
    /* Two interruptions and four parts; what the kernel left undone is done anew. */
    CHECK_STR(calls_made(), backend == PK_FILE_DISK_AIO ? "uwwww" : "wwwwww");
    CHECK_STR(letters_of("log-00"), "pabcd00000000000");
    CHECK_U64(writes_measured, 2);
}

/* The kernel did the first part of it. */
TEST(file_disk_aio__a_part_is_not_the_whole)
{
    use(PK_FILE_DISK_AIO);
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 0, 15, 1)), 0);
    (void)calls_made();
    calls.in_parts = true;
    CHECK_U64(run_one(overwrite_of("log-00", 1, 0, 4)), 0);
    CHECK_STR(calls_made(), "uwwww");
    CHECK_STR(letters_of("log-00"), "pabcd00000000000");
    CHECK_U64(writes_measured, 2);
    end();
}

/* Nothing was begun, so a thread does it; it may wait, and has the last word. */
TEST(file_disk_aio__threads_do_what_the_kernel_refuses)
{
    use(PK_FILE_DISK_AIO);
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 0, 0, 1)), 0);
    (void)calls_made();
    calls_fail('u', EAGAIN);
    CHECK_U64(run_one(overwrite_of("log-00", 1, 1, 1)), 0);
    CHECK_STR(calls_made(), "uw");
    calls_reset();
    calls.no_submit = true;
    CHECK_U64(run_one(overwrite_of("log-00", 2, 2, 1)), 0);
    CHECK_STR(calls_made(), "uw");
    calls_fail('w', EIO);
    CHECK_U64(run_one(overwrite_of("log-00", 3, 3, 1)), EIO);
    CHECK_STR(calls_made(), "uw");
    CHECK_STR(letters_of("log-00"), "abc0000000000000");
    CHECK_U64(writes_measured, 3);
    end();
}

/* The processor of the kernel's thread is busy; ours can run on another one. */
TEST(file_disk__threads_go_on_after_late_ones)
{
    (void)unsetenv("PICKET_DISK");
    use(PK_FILE_DISK_AIO);
    close_disk();
    file_disk = opened(loop, PK_FILE_DISK_AUTO);
    disk = pk_file_disk(file_disk);
    make_segment("log-00");
    calls.delay_us = 1500;
    unsigned late = 0;
    for (unsigned i = 0; i < 300 && late < 2; i++) {
        CHECK_U64(run_one(overwrite_of("log-00", 0, 0, 1)), 0);
        late += strcmp(calls_made(), "u") == 0;
    }
    calls.delay_us = 0;
    if (late < 2) {
        end();
        SKIP("this file system has no asynchronous writes"); /* tmpfs */
    }
    for (unsigned i = 0; i < 64; i++) {
        CHECK_U64(run_one(overwrite_of("log-00", 1, 1, 1)), 0);
        CHECK_STR(calls_made(), "w");
    }
    CHECK_U64(run_one(overwrite_of("log-00", 2, 2, 1)), 0);
    CHECK(*calls_made() == 'u');
    end();
}

CASE(overwrites_report_an_error_once)
{
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 0, 0, 1)), 0);
    (void)calls_made();
    calls_fail(*way(), EIO);
    CHECK_U64(run_one(overwrite_of("log-00", 1, 0, 4)), EIO);
    CHECK_STR(calls_made(), way());
    CHECK_U64(writes_measured, 1);
    calls_reset();
    CHECK_U64(run_one(overwrite_of("log-00", 6, 1, 1)), 0);
    close_disk();
    CHECK_U64(writes_measured, 2);
    CHECK_STR(letters_of("log-00"), "a00000b000000000");
}

CASE(overwrites_never_change_a_size)
{
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 15, 0, 2)), EINVAL);
    CHECK_U64(run_one(overwrite_of("log-00", 99, 0, 1)), EINVAL);
    CHECK_U64(file_size(in_state("log-00")), BLOCKS * BLOCK);
    CHECK_STR(letters_of("log-00"), "0000000000000000");
}

CASE(a_file_that_is_gone_is_reported)
{
    CHECK_U64(run_one(overwrite_of("log-00", 0, 0, 1)), ENOENT);
    CHECK_U64(run_one(job_of(PK_DISK_SYNC, "durable")), ENOENT);
    CHECK_U64(disk->note(disk->ctx, "durable", 0, "x", 1), ENOENT);
    make_segment("log-00");
    make_segment("durable");
    CHECK_U64(run_one(overwrite_of("log-00", 0, 0, 1)), 0);
    CHECK_U64(disk->note(disk->ctx, "durable", 0, "x", 1), 0);
    CHECK(unlink(in_state("log-00")) == 0 && unlink(in_state("durable")) == 0);
    CHECK_U64(run_one(overwrite_of("log-00", 0, 0, 1)), ENOENT);
    CHECK_U64(run_one(job_of(PK_DISK_SYNC, "durable")), ENOENT);
    CHECK_U64(disk->note(disk->ctx, "durable", 0, "x", 1), ENOENT);
    CHECK(!file_exists(in_state("log-00")) && !file_exists(in_state("durable")));
}

/* ---- who waits for whom ---- */

static void wait_held(unsigned n)
{
    (void)pthread_mutex_lock(&calls_lock);
    while (calls.held < n) {
        (void)pthread_cond_wait(&calls_moved, &calls_lock);
    }
    (void)pthread_mutex_unlock(&calls_lock);
}

CASE(a_long_operation_delays_no_overwrite)
{
    make_segment("log-00");
    make_segment("durable");
    struct job sync = job_of(PK_DISK_SYNC, "durable"), store = store_of("f", "x", 0);
    calls_hold('d', 0);
    begin(&sync);
    begin(&store);
    wait_held(1);
    for (unsigned i = 0; i < 8; i++) {
        CHECK_U64(run_one(overwrite_of("log-00", i, i, 1)), 0);
    }
    CHECK(sync.done == 0 && store.done == 0 && !calls.late);
    calls_hold('\0', 0);
    while (store.done == 0) {
        CHECK(uv_run(loop, UV_RUN_ONCE) != 0);
    }
    CHECK_U64(sync.done, 1);
}

TEST(file_disk_threads__four_overwrites_at_a_time)
{
    struct job jobs[4];
    use(PK_FILE_DISK_THREADS);
    make_segment("log-00");
    calls_hold('w', 4);
    for (unsigned i = 0; i < 4; i++) {
        jobs[i] = overwrite_of("log-00", i, i, 1);
        begin(&jobs[i]);
    }
    wait_held(4);
    CHECK(!calls.late);
    calls_hold('\0', 0);
    end();
    CHECK_STR(letters_of("log-00"), "abcd000000000000");
}

static uv_sem_t resolved;

static void resolve(uv_work_t *work)
{
    (void)work;
    uv_sem_wait(&resolved);
}

static void on_resolved(uv_work_t *work, int status)
{
    unsigned *left = work->data;
    CHECK_U64(status, 0);
    --*left;
}

CASE(needs_no_thread_of_libuv)
{
    uv_work_t works[16];
    unsigned left = 16;
    CHECK(uv_sem_init(&resolved, 0) == 0);
    for (unsigned i = 0; i < 16; i++) {
        works[i].data = &left;
        CHECK(uv_queue_work(loop, &works[i], resolve, on_resolved) == 0);
    }
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 0, 0, 1)), 0);
    CHECK_U64(run_one(job_of(PK_DISK_SYNC, "log-00")), 0);
    CHECK_U64(left, 16);
    for (unsigned i = 0; i < 16; i++) {
        uv_sem_post(&resolved);
    }
    while (left > 0) {
        CHECK(uv_run(loop, UV_RUN_ONCE) != 0 || left == 0);
    }
    uv_sem_destroy(&resolved);
}

/* ---- notes, the folder, without a loop ---- */

CASE(notes_are_there_at_once_and_durable_after_a_sync)
{
    make_segment("durable");
    CHECK_U64(disk->note(disk->ctx, "durable", 0, blocks[1], BLOCK), 0);
    CHECK_U64(calls.open_flags & (O_DSYNC | O_DIRECT | O_CREAT), 0);
    (void)calls_made();
    CHECK_U64(disk->note(disk->ctx, "durable", (uint64_t)2 * BLOCK, blocks[2], BLOCK), 0);
    CHECK_STR(calls_made(), "w");
    CHECK_STR(letters_of("durable"), "b0c0000000000000");
    CHECK_U64(run_one(job_of(PK_DISK_SYNC, "durable")), 0);
    CHECK_STR(calls_made(), "d");
    calls_fail('d', EIO);
    CHECK_U64(run_one(job_of(PK_DISK_SYNC, "durable")), EIO);
    CHECK_STR(calls_made(), "d");
    calls_fail('w', ENOSPC);
    CHECK_U64(disk->note(disk->ctx, "durable", 0, "x", 1), ENOSPC);
    CHECK_U64(writes_measured, 0);
}

static void add_up(void *arg, const char *name, uint64_t size)
{
    char *text = arg;
    size_t len = strlen(text);
    (void)snprintf(text + len, 256 - len, "%s:%u ", name, (unsigned)size);
}

CASE(lists_files_and_says_how_much_room_there_is)
{
    char text[256] = "";
    CHECK_U64(disk->list(disk->ctx, add_up, text), 0);
    CHECK_STR(text, "");
    file_write(in_state("a"), "12345", 5);
    CHECK(mkdir(in_state("folder"), 0700) == 0);
    CHECK(symlink("a", in_state("link")) == 0);
    CHECK_U64(disk->list(disk->ctx, add_up, text), 0);
    CHECK_STR(text, "a:5 ");
    file_write(in_state("b"), "", 0);
    text[0] = '\0';
    CHECK_U64(disk->list(disk->ctx, add_up, text), 0);
    CHECK(strstr(text, "a:5 ") != NULL && strstr(text, "b:0 ") != NULL);
    CHECK_U64(strlen(text), 8);
    calls_fail('o', EMFILE);
    CHECK_U64(disk->list(disk->ctx, add_up, text), EMFILE);
    CHECK(disk->room(disk->ctx) > 0);
}

static int now(struct job j)
{
    j.op.data = &j;
    int error = disk->now(disk->ctx, &j.op);
    CHECK_U64(j.done, 0);
    return error;
}

static void do_all_now(void)
{
    CHECK_U64(now(overwrite_of("f", 0, 0, 1)), ENOENT);
    CHECK_U64(now(store_of("f", "", BLOCKS * BLOCK)), 0);
    CHECK_U64(now(overwrite_of("f", 1, 0, 2)), 0);
    CHECK_U64(disk->note(disk->ctx, "f", 0, blocks[3], BLOCK), 0);
    CHECK_U64(now(job_of(PK_DISK_SYNC, "f")), 0);
    CHECK_STR(calls_made(), "oooawfFowowd");
    CHECK_STR(letters_of("f"), "dab0000000000000");
    calls_fail('w', EIO);
    CHECK_U64(now(overwrite_of("f", 1, 0, 2)), EIO);
    calls_reset();
    struct job j = job_of(PK_DISK_READ, "f");
    CHECK_U64(disk->now(disk->ctx, &j.op), 0);
    CHECK_U64(j.op.len, BLOCKS * BLOCK);
    CHECK(memcmp(j.op.bytes, blocks[3], BLOCK) == 0);
    (void)pk_door_resize(j.op.bytes, 0);
    CHECK_U64(writes_measured, 1);
}

CASE(does_operations_at_once)
{
    do_all_now();
}

TEST(file_disk__needs_no_loop)
{
    use(PK_FILE_DISK_THREADS);
    end();
    unsigned without = entries_of("/proc/self/fd");
    file_disk = opened(NULL, PK_FILE_DISK_AUTO);
    CHECK(file_disk != NULL);
    disk = pk_file_disk(file_disk);
    (void)calls_made();
    do_all_now();
    CHECK_U64(times_closed, 1);
    pk_file_disk_close(file_disk, on_closed, &times_closed);
    file_disk = NULL;
    CHECK_U64(times_closed, 2);
    CHECK_U64(entries_of("/proc/self/fd"), without);
}

/* ---- beginning and end ---- */

/* An earlier process may have made files and not lived to make their names durable. */
CASE(starts_with_durable_names)
{
    close_disk();
    (void)calls_made();
    file_disk = opened(loop, backend);
    CHECK(file_disk != NULL);
    CHECK_STR(calls_made(), "oF");
    close_disk();
    calls_fail('F', EIO);
    CHECK(opened(loop, backend) == NULL);
    CHECK(strstr(why, state) != NULL && strstr(why, "Input/output error") != NULL);
    calls_fail('F', EROFS);
    file_disk = opened(loop, backend);
    CHECK(file_disk != NULL);
}

TEST(file_disk__needs_its_folder)
{
    use(PK_FILE_DISK_THREADS);
    end();
    CHECK(rmdir(state) == 0);
    CHECK(opened(NULL, PK_FILE_DISK_AUTO) == NULL);
    CHECK(strstr(why, "No such file") != NULL);
    file_write(state, "", 0);
    CHECK(opened(NULL, PK_FILE_DISK_AUTO) == NULL);
    CHECK(strstr(why, "Not a directory") != NULL);
}

CASE(an_idle_disk_closes)
{
    close_disk();
    CHECK_U64(uv_loop_alive(loop), 0);
}

static void on_last(struct pk_disk_op *op, int error)
{
    static struct job more;
    on_done(op, error);
    CHECK_U64(times_closed, 0);
    if (file_disk != NULL) {
        pk_file_disk_close(file_disk, on_closed, &times_closed);
        file_disk = NULL;
        more = overwrite_of("log-00", 0, 0, 1);
        begin(&more);
        op->data = &more;
    }
}

CASE(closing_waits_for_what_is_under_way)
{
    struct job write = overwrite_of("log-00", 1, 1, 1), store = store_of("f", "x", 0);
    make_segment("log-00");
    calls_hold('f', 0);
    begin(&store);
    begin(&write);
    pk_file_disk_close(file_disk, on_closed, &times_closed);
    file_disk = NULL;
    while (write.done == 0) {
        CHECK(uv_run(loop, UV_RUN_ONCE) != 0);
    }
    wait_held(1);
    CHECK(store.done == 0 && times_closed == 0);
    calls_hold('\0', 0);
    CHECK_U64(uv_run(loop, UV_RUN_DEFAULT), 0);
    CHECK(store.done == 1 && store.error == 0 && write.error == 0);
    CHECK_U64(times_closed, 1);
}

CASE(can_be_closed_in_done)
{
    struct job write = overwrite_of("log-00", 1, 1, 1);
    make_segment("log-00");
    write.op.done = on_last;
    begin(&write);
    CHECK_U64(uv_run(loop, UV_RUN_DEFAULT), 0);
    CHECK(write.done == 1 && write.error == 0);
    const struct job *more = write.op.data;
    CHECK(more->done == 1 && more->error == ECANCELED);
    CHECK_U64(times_closed, 1);
}

TEST(file_disk__follows_the_environment)
{
    use(PK_FILE_DISK_THREADS);
    CHECK(setenv("PICKET_DISK", "threads", 1) == 0);
    close_disk();
    file_disk = opened(loop, PK_FILE_DISK_AUTO);
    CHECK(pk_file_disk_backend(file_disk) == PK_FILE_DISK_THREADS);
    CHECK(setenv("PICKET_DISK", "tape", 1) == 0);
    struct pk_file_disk *none = opened(loop, PK_FILE_DISK_AUTO);
    CHECK(none == NULL && strstr(why, "\"tape\"; use aio or threads") != NULL);
    CHECK(setenv("PICKET_DISK", "aio", 1) == 0);
    close_disk();
    calls.no_setup = true;
    CHECK(opened(loop, PK_FILE_DISK_AUTO) == NULL);
    CHECK(strstr(why, "the kernel refuses io_setup") != NULL);
    calls.no_setup = false;
    file_disk = opened(loop, PK_FILE_DISK_AUTO);
    CHECK(file_disk == NULL || pk_file_disk_backend(file_disk) == PK_FILE_DISK_AIO);
    CHECK(unsetenv("PICKET_DISK") == 0);
    end();
}

TEST(file_disk__uses_the_kernel_where_it_may)
{
    (void)unsetenv("PICKET_DISK");
    use(PK_FILE_DISK_AIO);
    close_disk();
    file_disk = opened(loop, PK_FILE_DISK_AUTO);
    CHECK(pk_file_disk_backend(file_disk) == PK_FILE_DISK_AIO);
    close_disk();
    calls.no_setup = true;
    file_disk = opened(loop, PK_FILE_DISK_AUTO);
    CHECK(pk_file_disk_backend(file_disk) == PK_FILE_DISK_THREADS);
    disk = pk_file_disk(file_disk);
    make_segment("log-00");
    CHECK_U64(run_one(overwrite_of("log-00", 1, 1, 1)), 0);
    CHECK_STR(letters_of("log-00"), "0b00000000000000");
    end();
}

/* ---- real file systems that refuse ---- */

/* Puts the disk on a small file system of its own, which goes with its descriptors. */
static void mount_small(void)
{
    close_disk();
    if (mount("tmpfs", state, "tmpfs", 0, "size=128k,mode=700") != 0) {
        end();
        SKIP("needs root");
    }
    struct pk_file_disk_options o = {
        .loop = loop, .dir = state, .backend = backend, .wrote = on_wrote, .ctx = blocks};
    file_disk = pk_file_disk_new(&o, why, sizeof why);
    disk = file_disk == NULL ? NULL : pk_file_disk(file_disk);
}

CASE(a_full_disk_is_reported)
{
    mount_small();
    CHECK(umount2(state, MNT_DETACH) == 0);
    CHECK(file_disk != NULL);
    CHECK_U64(disk->room(disk->ctx), 128 << 10);
    CHECK_U64(run_one(store_of("log-00", "", 64 << 10)), 0);
    CHECK_U64(disk->room(disk->ctx), 64 << 10);
    CHECK_U64(run_one(store_of("log-01", "", 65 << 10)), ENOSPC);
    CHECK_U64(run_one(store_of("log-00", "fits", 129 << 10)), 0); /* but grows not */
    CHECK_U64(disk->room(disk->ctx), 64 << 10);
    CHECK_U64(run_one(store_of("log-01", "", 64 << 10)), 0);
    CHECK_U64(disk->room(disk->ctx), 0);
    CHECK_U64(run_one(store_of("log-02", "x", 0)), ENOSPC);
    CHECK_U64(run_one(overwrite_of("log-00", 1, 0, 8)), 0); /* its blocks are there */
    CHECK_U64(run_one(store_of("log-01", "meta", 0)), 0);
}

CASE(a_read_only_disk_is_reported)
{
    mount_small();
    int stored = file_disk == NULL ? -1 : run_one(store_of("f", "", BLOCKS * BLOCK));
    int mounted = mount("tmpfs", state, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL);
    CHECK(umount2(state, MNT_DETACH) == 0);
    CHECK(stored == 0 && mounted == 0);
    CHECK_U64(run_one(overwrite_of("f", 1, 0, 1)), EROFS);
    CHECK_U64(run_one(store_of("f", "x", 0)), EROFS);
    CHECK_U64(run_one(store_of("g", "x", 0)), EROFS);
    CHECK_U64(disk->note(disk->ctx, "f", 0, "x", 1), EROFS);
    struct job j = job_of(PK_DISK_READ, "f");
    CHECK_U64(run(&j), 0);
    CHECK_U64(j.op.len, BLOCKS * BLOCK);
    (void)pk_door_resize(j.op.bytes, 0);
}
