/* SPDX-License-Identifier: MIT */
/*
 * The disk alone: durable overwrites of 4 KiB in a file of 16 MiB, for each backend of
 * file_disk.h.
 *
 *     bench_disk DIR [SECONDS]
 *
 * A stream is a process with a folder, a file and a loop of its own, as a node is; depth
 * is how many overwrites it keeps under way. DIR should be on a real disk. CPU is what
 * the process used, without the kernel's own threads that complete asynchronous writes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "raft/file_disk.h"

enum { STREAMS_MAX = 3, DEPTH_MAX = 4, SIZE = 16 << 20, SAMPLES_MAX = 1 << 20 };

struct result {
    uint64_t writes, p50_us, p99_us, cpu_us;
};

/* Between the processes. */
static struct {
    pthread_barrier_t ready;
    struct result results[STREAMS_MAX];
} * shared;

static struct pk_disk *disk;
static uint64_t samples[SAMPLES_MAX], n_samples, next_offset, end_ns;
static _Alignas(PK_DISK_BLOCK) unsigned char block[DEPTH_MAX][PK_DISK_BLOCK];

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "bench_disk: %s\n", what);
        exit(1);
    }
}

static void on_wrote(void *ctx, uint64_t us)
{
    (void)ctx;
    if (n_samples < SAMPLES_MAX) {
        samples[n_samples++] = us;
    }
}

static void write_next(struct pk_disk_op *op, int error)
{
    must(error == 0, strerror(error));
    if (uv_hrtime() < end_ns) {
        op->offset = next_offset;
        next_offset = (next_offset + PK_DISK_BLOCK) % SIZE;
        disk->submit(disk->ctx, op);
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void run_stream(const char *dir, unsigned stream, unsigned depth, unsigned seconds,
                       enum pk_file_disk_backend backend)
{
    char folder[4096], why[512];
    struct pk_disk_op ops[DEPTH_MAX], make = {.kind = PK_DISK_STORE, .name = "log-00"};
    uv_loop_t loop;
    (void)snprintf(folder, sizeof folder, "%s/stream-%u", dir, stream);
    (void)mkdir(folder, 0700);
    struct pk_file_disk_options o = {
        .loop = &loop, .dir = folder, .backend = backend, .wrote = on_wrote};
    must(uv_loop_init(&loop) == 0, "no loop");
    struct pk_file_disk *d = pk_file_disk_new(&o, why, sizeof why);
    must(d != NULL, why);
    disk = pk_file_disk(d);
    make.size = SIZE;
    must(disk->now(disk->ctx, &make) == 0, "can't make the file");
    (void)pthread_barrier_wait(&shared->ready);
    uint64_t began_ns = uv_hrtime();
    end_ns = began_ns + seconds * UINT64_C(1000000000);
    for (unsigned i = 0; i < depth; i++) {
        ops[i] = make;
        ops[i].kind = PK_DISK_OVERWRITE;
        ops[i].parts[0] = (struct pk_disk_part){block[i], PK_DISK_BLOCK};
        ops[i].n_parts = 1;
        ops[i].done = write_next;
        write_next(&ops[i], 0);
    }
    while (uv_hrtime() < end_ns) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    pk_file_disk_close(d, NULL, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    uv_rusage_t used;
    (void)uv_getrusage(&used);
    qsort(samples, n_samples, sizeof *samples, by_size);
    shared->results[stream] = (struct result){
        .writes = n_samples,
        .p50_us = samples[n_samples / 2],
        .p99_us = samples[n_samples * 99 / 100],
        .cpu_us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
                  (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec),
    };
}

static void measure(const char *dir, unsigned streams, unsigned depth, unsigned seconds,
                    enum pk_file_disk_backend backend)
{
    pthread_barrierattr_t between;
    (void)pthread_barrierattr_init(&between);
    (void)pthread_barrierattr_setpshared(&between, PTHREAD_PROCESS_SHARED);
    must(pthread_barrier_init(&shared->ready, &between, streams) == 0, "no barrier");
    (void)fflush(stdout);
    for (unsigned i = 0; i < streams; i++) {
        pid_t child = fork();
        must(child >= 0, "can't fork");
        if (child == 0) {
            run_stream(dir, i, depth, seconds, backend);
            _exit(0);
        }
    }
    struct result all = {0};
    for (unsigned i = 0; i < streams; i++) {
        int status = 0;
        must(wait(&status) > 0 && status == 0, "a stream has failed");
    }
    for (unsigned i = 0; i < streams; i++) {
        all.writes += shared->results[i].writes / streams;
        all.p50_us += shared->results[i].p50_us / streams;
        all.p99_us += shared->results[i].p99_us / streams;
        all.cpu_us += shared->results[i].cpu_us / streams;
    }
    printf("| %u | %u | %s | %llu | %llu | %llu | %.1f |\n", streams, depth,
           backend == PK_FILE_DISK_THREADS ? "threads" : "aio",
           (unsigned long long)all.writes / seconds, (unsigned long long)all.p50_us,
           (unsigned long long)all.p99_us, (double)all.cpu_us / (double)all.writes);
}

static int has_aio(const char *dir)
{
    char why[512];
    uv_loop_t loop;
    struct pk_file_disk_options o = {
        .loop = &loop, .dir = dir, .backend = PK_FILE_DISK_AIO};
    must(uv_loop_init(&loop) == 0, "no loop");
    struct pk_file_disk *d = pk_file_disk_new(&o, why, sizeof why);
    if (d == NULL) {
        fprintf(stderr, "bench_disk: %s\n", why);
    } else {
        pk_file_disk_close(d, NULL, NULL);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    return d != NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_disk DIR [SECONDS]\n");
        return 2;
    }
    long seconds = argc > 2 ? strtol(argv[2], NULL, 10) : 3;
    must(seconds > 0 && seconds < 3600, "wrong number of seconds");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(shared != MAP_FAILED, "no memory");
    int aio = has_aio(argv[1]);
    printf(
        "| streams | depth | backend | writes/s each | p50 us | p99 us | CPU us each |\n"
        "|---|---|---|---|---|---|---|\n");
    for (unsigned streams = 1; streams <= STREAMS_MAX; streams += 2) {
        for (unsigned depth = 1; depth <= DEPTH_MAX; depth *= 2) {
            measure(argv[1], streams, depth, (unsigned)seconds, PK_FILE_DISK_THREADS);
            if (aio) {
                measure(argv[1], streams, depth, (unsigned)seconds, PK_FILE_DISK_AUTO);
            }
        }
    }
    return 0;
}
