/* SPDX-License-Identifier: MIT */
/*
 * A nightly job that is done once, however many machines have it in their crontab:
 *
 *     0 3 * * *   cron_once "$(date +\%F)"
 *
 * A lock alone does not do that. When the second machine's clock is a minute late, the
 * lock is free again and the job is done twice. So the day is recorded when it is done,
 * in a register of the store, fenced by the token; and whoever gets the lock looks first.
 *
 * In two terminals:
 *     $ cron_once 2026-11-16        part 1 of 5 ... part 5 of 5
 *     $ cron_once 2026-11-16        meanwhile: busy, 124; afterwards: already done, 0
 *
 * SIGSTOP it for more than 2 s and start another: that one does the whole job. Woken up,
 * the first finds its time over, does no further part, records nothing: 123. After
 * kill -9 there is no record either. So a part can be done by two attempts in turn: give
 * it the token, or make it harmless to repeat (docs/without-locks.md).
 *
 * Exit codes: 0 done, now or earlier; 1 refused by the fence; 123 the lock was lost;
 * 124 somebody else is at it; 125 an error.
 */
#include <inttypes.h>
#include <picket.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TTL_MS = 5000, PART_MS = 150, PARTS = 5 };

static const char record[] = "examples/nightly";

static int explain(enum picket_status s)
{
    (void)fprintf(stderr, "cron_once: %s\n", picket_last_error());
    switch (s) {
    case PICKET_STALE:
        return 1;
    case PICKET_LOST:
    case PICKET_AT_RISK:
        return 123;
    case PICKET_BUSY:
        return 124;
    default:
        return 125;
    }
}

/* Raises the fence and reads in one step: from now on nobody before us can record. */
static enum picket_status is_done(struct picket *p, uint64_t token, const char *day,
                                  int *done)
{
    char *last = NULL;
    size_t len = 0;
    enum picket_status s = picket_fence_get(p, record, token, &last, &len, NULL);
    *done = s == PICKET_OK && strcmp(last, day) == 0;
    free(last);
    return s == PICKET_NOTFOUND ? PICKET_OK : s;
}

/* Stands for what takes time; a loss ends it early. */
static void take_time(struct picket_lock *lock)
{
    struct pollfd lost = {.fd = picket_loss_fd(lock), .events = POLLIN};
    (void)poll(&lost, 1, PART_MS);
}

static enum picket_status do_parts(struct picket_lock *lock)
{
    for (int i = 1; i <= PARTS; i++) {
        enum picket_status s = picket_checkpoint(lock, PART_MS);
        if (s != PICKET_OK) {
            return s;
        }
        (void)printf("part %d of %d, token %" PRIu64 "\n", i, PARTS, picket_token(lock));
        take_time(lock);
    }
    return picket_checkpoint(lock, 0);
}

static enum picket_status run(struct picket *p, const char *day)
{
    struct picket_lock *lock;
    int done = 0;
    enum picket_status s = picket_try(p, record, NULL, &lock);
    if (s != PICKET_OK) {
        return s;
    }
    s = is_done(p, picket_token(lock), day, &done);
    if (s == PICKET_OK && done) {
        (void)printf("already done: %s\n", day);
        return PICKET_OK;
    }
    if (s == PICKET_OK) {
        s = do_parts(lock);
    }
    if (s == PICKET_OK) {
        s = picket_fence_set(p, record, picket_token(lock), day, strlen(day), NULL);
    }
    if (s == PICKET_OK) {
        (void)printf("done: %s\n", day);
    }
    return s;
}

int main(int argc, char **argv)
{
    struct picket *p;
    const struct picket_options options = {.ttl_ms = TTL_MS, .note = "nightly job"};
    if (argc != 2) {
        (void)fprintf(stderr, "usage: cron_once DAY\n");
        return 125;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* each line at once, also into a pipe */
    enum picket_status s = picket_open(NULL, &options, &p);
    if (s != PICKET_OK) {
        return explain(s);
    }
    s = run(p, argv[1]);
    int code = s == PICKET_OK ? 0 : explain(s);
    picket_close(p); /* releases, if there is anything left to release */
    return code;
}
