/* SPDX-License-Identifier: MIT */
/*
 * For tests of file_disk.h: cases that run with each backend, on a new folder each, and
 * operations as jobs that count how often they end.
 */
#ifndef PICKET_TEST_DISK_JOBS_H
#define PICKET_TEST_DISK_JOBS_H

#include <uv.h>

#include "disk_calls.h"
#include "raft/file_disk.h"
#include "statedir.h"
#include "tap.h"

#define CASE(name)                                                                       \
    static void case_##name(void);                                                       \
    TEST(file_disk_threads__##name)                                                      \
    {                                                                                    \
        use(PK_FILE_DISK_THREADS);                                                       \
        case_##name();                                                                   \
        end();                                                                           \
    }                                                                                    \
    TEST(file_disk_aio__##name)                                                          \
    {                                                                                    \
        use(PK_FILE_DISK_AIO);                                                           \
        case_##name();                                                                   \
        end();                                                                           \
    }                                                                                    \
    static void case_##name(void)

enum { BLOCK = PK_DISK_BLOCK, BLOCKS = 16, MANY = 40 };

static char why[5200];
static enum pk_file_disk_backend backend;
static uv_loop_t *loop;
static struct pk_file_disk *file_disk; /* NULL: closed */
static struct pk_disk *disk;
static unsigned writes_measured, times_closed;
static uint64_t last_us;
static bool submitting;
static unsigned descriptors; /* of the process, before the disk */

/* Aligned memory, block n filled with 'a' + n. */
static _Alignas(PK_DISK_BLOCK) unsigned char blocks[BLOCKS][PK_DISK_BLOCK];

static void on_wrote(void *ctx, uint64_t us)
{
    CHECK(ctx == blocks);
    writes_measured++;
    last_us = us;
}

static void on_closed(void *ctx)
{
    CHECK(ctx == &times_closed);
    times_closed++;
}

static struct pk_file_disk *opened(uv_loop_t *on, enum pk_file_disk_backend by)
{
    struct pk_file_disk_options o = {
        .loop = on, .dir = state, .backend = by, .wrote = on_wrote, .ctx = blocks};
    why[0] = '\0';
    return pk_file_disk_new(&o, why, sizeof why);
}

static void new_disk(void)
{
    file_disk = opened(loop, backend);
    if (file_disk == NULL && backend == PK_FILE_DISK_AIO) {
        CHECK(strstr(why, "io_setup") != NULL);
        CHECK_U64(uv_loop_close(loop), 0);
        free(loop);
        SKIP("no io_setup here");
    }
    CHECK_STR(why, "");
    CHECK(pk_file_disk_backend(file_disk) == backend);
    disk = pk_file_disk(file_disk);
    (void)calls_made();
}

/* A new folder and a disk on it. */
static void use(enum pk_file_disk_backend by)
{
    calls_reset();
    dir_fresh();
    CHECK(mkdir(state, 0700) == 0);
    backend = by;
    writes_measured = times_closed = 0;
    for (int i = 0; i < BLOCKS; i++) {
        memset(blocks[i], 'a' + i, BLOCK);
    }
    /* A test that failed has left its loop, which may be called from threads. */
    loop = malloc(sizeof *loop);
    CHECK(loop != NULL && uv_loop_init(loop) == 0);
    descriptors = entries_of("/proc/self/fd");
    new_disk();
}

static void close_disk(void)
{
    unsigned before = times_closed;
    pk_file_disk_close(file_disk, on_closed, &times_closed);
    file_disk = NULL;
    CHECK_U64(times_closed, before); /* never from within */
    CHECK_U64(uv_run(loop, UV_RUN_DEFAULT), 0);
    CHECK_U64(times_closed, before + 1);
}

static void end(void)
{
    calls_reset();
    if (file_disk != NULL) {
        close_disk();
    }
    CHECK_U64(entries_of("/proc/self/fd"), descriptors);
    CHECK_U64(uv_loop_close(loop), 0);
    free(loop);
}

/* ---- operations ---- */

struct job {
    struct pk_disk_op op;
    unsigned done;
    int error;
    unsigned turn; /* its place among all that are done */
};

static unsigned turns;

static void on_done(struct pk_disk_op *op, int error)
{
    struct job *j = op->data;
    CHECK(!submitting);
    CHECK(&j->op == op);
    j->done++;
    j->error = error;
    j->turn = ++turns;
}

static void submit(struct pk_disk_op *op)
{
    submitting = true;
    disk->submit(disk->ctx, op);
    submitting = false;
}

static struct job job_of(enum pk_disk_kind kind, const char *name)
{
    struct job j = {.op = {.kind = kind, .done = on_done}};
    (void)snprintf(j.op.name, sizeof j.op.name, "%s", name);
    return j;
}

static struct job overwrite_of(const char *name, unsigned at, unsigned first, unsigned n)
{
    struct job j = job_of(PK_DISK_OVERWRITE, name);
    j.op.offset = (uint64_t)at * BLOCK;
    j.op.parts[0] = (struct pk_disk_part){blocks[first], (size_t)n * BLOCK};
    j.op.n_parts = 1;
    return j;
}

static struct job store_of(const char *name, const char *text, uint64_t size)
{
    struct job j = job_of(PK_DISK_STORE, name);
    size_t half = strlen(text) / 2;
    const unsigned char *bytes = (const unsigned char *)text;
    j.op.parts[0] = (struct pk_disk_part){bytes, half};
    j.op.parts[1] = (struct pk_disk_part){bytes + half, strlen(text) - half};
    j.op.n_parts = 2;
    j.op.size = size;
    return j;
}

static void begin(struct job *j)
{
    j->op.data = j;
    submit(&j->op);
    CHECK_U64(j->done, 0);
}

/* Does it by way of the loop. */
static int run(struct job *j)
{
    begin(j);
    while (j->done == 0) {
        CHECK(uv_run(loop, UV_RUN_ONCE) != 0);
    }
    CHECK_U64(j->done, 1);
    return j->error;
}

static int run_one(struct job j)
{
    return run(&j);
}

/* A file of BLOCKS blocks of zeros. */
static void make_segment(const char *name)
{
    CHECK_U64(run_one(store_of(name, "", BLOCKS * BLOCK)), 0);
    (void)calls_made();
}

/* The letter of an overwrite that is already open. */
static const char *way(void)
{
    return backend == PK_FILE_DISK_AIO ? "u" : "w";
}

/* Whether one overwrite was made: where it would have had to wait, by a thread. */
static bool went_its_way(void)
{
    const char *made = calls_made();
    return strcmp(made, way()) == 0 ||
           (backend == PK_FILE_DISK_AIO && strcmp(made, "uw") == 0);
}

/* The file's blocks, by letter; '0' for zeros. */
static const char *letters_of(const char *name)
{
    static char text[BLOCKS + 1];
    struct file f = file_read(in_state(name));
    memset(text, 0, sizeof text);
    CHECK(f.len % BLOCK == 0 && f.len <= sizeof blocks);
    for (size_t i = 0; i < f.len / BLOCK; i++) {
        const unsigned char *block = f.bytes + i * BLOCK;
        text[i] = block[0] == 0 ? '0' : (char)block[0];
        CHECK(memcmp(block, block + 1, BLOCK - 1) == 0);
    }
    file_drop(&f);
    return text;
}

#endif
