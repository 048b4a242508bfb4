/* SPDX-License-Identifier: MIT */
/*
 * Workers that share a list of jobs, at most two of them at a time.
 *
 *     workers [JOBS [JOB_MS]]       (6 jobs of 500 ms)
 *
 * A slot of a semaphore limits how many work (a licence for two, say), a lock for each
 * job keeps two from doing the same one, and a register for each job, fenced by that
 * lock's token, remembers that it is done. The semaphore's own tokens would be no use as
 * a fence: two of them are right at the same time.
 *
 * In three terminals:
 *     $ workers                     job 1 ..., job 3 ...
 *     $ workers                     job 2 ..., job 4 ...
 *     $ workers                     waits for a slot
 *
 * SIGSTOP one for more than 2 s: its slot and its job go to the third. Woken up, it finds
 * both lost, records nothing and exits with 123. kill -9 is the same without the exit.
 *
 * Exit codes: 0 all jobs are done; 1 refused by the fence; 123 the lock was lost; 125 an
 * error.
 */
#include <inttypes.h>
#include <picket.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { TTL_MS = 5000, SLOTS = 2 };

static int job_ms = 500; /* what a job takes */

static int explain(enum picket_status s)
{
    (void)fprintf(stderr, "workers: %s\n", picket_last_error());
    if (s == PICKET_STALE) {
        return 1;
    }
    return s == PICKET_LOST || s == PICKET_AT_RISK ? 123 : 125;
}

/* Both are on one lease and are lost together, unless somebody breaks one of them. */
static enum picket_status both_held(struct picket_lock *slot, struct picket_lock *lock,
                                    uint64_t need_ms)
{
    enum picket_status s = picket_checkpoint(slot, need_ms);
    return s == PICKET_OK ? picket_checkpoint(lock, need_ms) : s;
}

static enum picket_status is_done(struct picket *p, const char *job, uint64_t token,
                                  int *done)
{
    char *result = NULL;
    size_t len = 0;
    enum picket_status s = picket_fence_get(p, job, token, &result, &len, NULL);
    *done = s == PICKET_OK && len > 0;
    free(result);
    return s == PICKET_NOTFOUND ? PICKET_OK : s;
}

static enum picket_status work(struct picket *p, struct picket_lock *slot,
                               struct picket_lock *lock, const char *job)
{
    int done = 0;
    uint64_t token = picket_token(lock);
    struct pollfd lost[] = {{.fd = picket_loss_fd(slot), .events = POLLIN},
                            {.fd = picket_loss_fd(lock), .events = POLLIN}};
    enum picket_status s = is_done(p, job, token, &done); /* claims before it reads */
    if (s != PICKET_OK || done) {
        return s;
    }
    s = both_held(slot, lock, (uint64_t)job_ms);
    if (s != PICKET_OK) {
        return s;
    }
    (void)printf("%s, token %" PRIu64 "\n", job, token);
    (void)poll(lost, 2, job_ms); /* stands for work; a loss ends it early */
    s = both_held(slot, lock, 0);
    return s == PICKET_OK ? picket_fence_set(p, job, token, "done", 4, NULL) : s;
}

/* Without patience a job that somebody else has at the moment is left to them. */
static enum picket_status take_job(struct picket *p, struct picket_lock *slot,
                                   long number, int patient)
{
    char job[40];
    struct picket_lock *lock;
    const struct picket_acquire_options how = {.wait_ms = patient ? PICKET_FOREVER : 0};
    (void)snprintf(job, sizeof job, "examples/job %ld", number);
    enum picket_status s = picket_acquire(p, job, &how, &lock);
    if (s != PICKET_OK) {
        return s == PICKET_BUSY && !patient ? PICKET_OK : s;
    }
    s = work(p, slot, lock, job);
    if (s == PICKET_OK) { /* else main explains it first, and closes everything */
        picket_lock_close(lock);
    }
    return s;
}

/* Once over what is free; then over the list again, waiting, for what others have begun
 * and perhaps not ended. */
static enum picket_status take_all(struct picket *p, struct picket_lock *slot, long jobs)
{
    enum picket_status s = PICKET_OK;
    for (int patient = 0; patient <= 1; patient++) {
        for (long i = 1; s == PICKET_OK && i <= jobs; i++) {
            s = take_job(p, slot, i, patient);
        }
    }
    return s;
}

int main(int argc, char **argv)
{
    struct picket *p;
    struct picket_lock *slot;
    const struct picket_options options = {.ttl_ms = TTL_MS};
    const struct picket_acquire_options how = {
        .mode = PICKET_SLOT, .slots = SLOTS, .wait_ms = PICKET_FOREVER};
    long jobs = argc > 1 ? strtol(argv[1], NULL, 10) : 6;
    job_ms = argc > 2 ? (int)strtol(argv[2], NULL, 10) : job_ms;
    if (jobs < 1 || job_ms < 0 || job_ms > TTL_MS / 2) {
        (void)fprintf(stderr, "usage: workers [JOBS [JOB_MS, to 1000]]\n");
        return 125;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* each line at once, also into a pipe */
    enum picket_status s = picket_open(NULL, &options, &p);
    if (s != PICKET_OK) {
        return explain(s);
    }
    s = picket_acquire(p, "examples/workers", &how, &slot);
    if (s == PICKET_OK) {
        s = take_all(p, slot, jobs);
    }
    int code = s == PICKET_OK ? 0 : explain(s);
    picket_close(p);
    return code;
}
