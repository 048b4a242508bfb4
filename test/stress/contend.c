/* SPDX-License-Identifier: MIT */
/*
 * Many processes, one lock: contend [PROCESSES [TIMES [URL]]]
 *
 * Without a URL the store is an embedded one in a temporary directory.
 * Each process opens the store by itself and takes the lock TIMES / PROCESSES times. In
 * shared memory, which the lock is meant to protect, it looks whether anybody else is
 * inside (P1), adds to a counter without any atomicity, so that a lost update would show,
 * and compares its token with the one before (P2). Prints what it found, as TAP.
 */
#include <picket.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct shared {
    atomic_int inside;
    atomic_uint double_holds;
    atomic_uint out_of_order;
    atomic_uint failures;
    volatile uint64_t counter; /* on purpose not atomic */
    volatile uint64_t last_token;
};

static void hold(struct shared *s, const struct picket_lock *l)
{
    if (atomic_fetch_add(&s->inside, 1) != 0) {
        atomic_fetch_add(&s->double_holds, 1);
    }
    if (picket_token(l) <= s->last_token) {
        atomic_fetch_add(&s->out_of_order, 1);
    }
    s->last_token = picket_token(l);
    uint64_t seen = s->counter;
    sched_yield(); /* invites whoever should not be here */
    s->counter = seen + 1;
    atomic_fetch_sub(&s->inside, 1);
}

static void contend(const char *url, struct shared *s, unsigned times)
{
    struct picket *p;
    if (picket_open(url, NULL, &p) != PICKET_OK) {
        fprintf(stderr, "contend: %s\n", picket_last_error());
        atomic_fetch_add(&s->failures, 1);
        return;
    }
    for (unsigned i = 0; i < times; i++) {
        struct picket_lock *l;
        if (picket_acquire(p, "contended", NULL, &l) != PICKET_OK) {
            fprintf(stderr, "contend: %s\n", picket_last_error());
            atomic_fetch_add(&s->failures, 1);
            break;
        }
        hold(s, l);
        picket_lock_close(l);
    }
    picket_close(p);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Runs the processes to their end and returns how long that took. */
static double run(const char *url, struct shared *s, unsigned processes, unsigned times)
{
    double began = seconds();
    for (unsigned i = 0; i < processes; i++) {
        if (fork() == 0) {
            contend(url, s, times / processes);
            _exit(0);
        }
    }
    while (wait(NULL) > 0) {
    }
    return seconds() - began;
}

static int report(const struct shared *s, unsigned processes, unsigned times, double took)
{
    unsigned grants = times / processes * processes;
    printf("# %u processes, %u grants in %.1f s (%.0f/s), last token %llu\n", processes,
           grants, took, grants / took, (unsigned long long)s->last_token);
    printf("1..4\n");
    printf("%s 1 - %u double holds\n", s->double_holds == 0 ? "ok" : "not ok",
           s->double_holds);
    printf("%s 2 - %u tokens out of order\n", s->out_of_order == 0 ? "ok" : "not ok",
           s->out_of_order);
    printf("%s 3 - %llu of %u updates kept\n", s->counter == grants ? "ok" : "not ok",
           (unsigned long long)s->counter, grants);
    printf("%s 4 - %u calls failed\n", s->failures == 0 ? "ok" : "not ok", s->failures);
    return s->double_holds + s->out_of_order + s->failures != 0 || s->counter != grants;
}

int main(int argc, char **argv)
{
    unsigned processes = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 8;
    unsigned times = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 10000;
    if (processes == 0 || processes > 256 || times < processes) {
        fprintf(stderr, "usage: contend [PROCESSES [TIMES [URL]]]\n");
        return 2;
    }
    struct shared *s =
        mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char url[4096] = "", remove[4200];
    const char *tmp = getenv("TMPDIR");
    snprintf(url, sizeof url, "local:%s/picket-contend-XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    if (s == MAP_FAILED || (argc <= 3 && mkdtemp(url + 6) == NULL)) {
        perror("contend");
        return 2;
    }
    int failed =
        report(s, processes, times, run(argc > 3 ? argv[3] : url, s, processes, times));
    if (argc <= 3) {
        snprintf(remove, sizeof remove, "rm -rf '%s'", url + 6);
        failed |= system(remove);
    }
    return failed;
}
