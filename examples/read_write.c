/* SPDX-License-Identifier: MIT */
/*
 * Many readers or one writer, over a pair of values that belong together.
 *
 *     read_write read [TIMES [STEP_MS]]       shared with other readers
 *     read_write write [TIMES [STEP_MS]]      alone; once, of 100 ms
 *
 * The pair are two registers of the store, "left" and "right", each written by itself.
 * Between the two writes they differ; nobody who holds the lock ever sees that.
 *
 * In two terminals:
 *     $ read_write write 20         wrote 1, wrote 2, ...
 *     $ read_write read 20          read 1, read 2, ...; never a pair that differs
 *
 * SIGSTOP a writer in the middle, for more than 2 s: readers and the next writer go on.
 * Woken up, its second write is refused by the fence of "right": 1. SIGSTOP a reader: it
 * asks its checkpoint after it has read and before it uses what it read, and drops that:
 * 123. Readers don't claim. Their tokens differ while they all hold the lock, and a claim
 * of one would shut out the others.
 *
 * A lock does not make two writes one. After kill -9 in the middle the pair stays torn
 * until the next writer, and readers say so: 2.
 *
 * Exit codes: 0 done; 1 refused by the fence; 2 torn by a writer that died; 123 the lock
 * was lost; 125 an error.
 */
#include <picket.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TTL_MS = 5000 };

static int step_ms = 100; /* between the two halves of a pair */

static const char *const sides[] = {"examples/pair/left", "examples/pair/right"};

static int explain(enum picket_status s)
{
    (void)fprintf(stderr, "read_write: %s\n", picket_last_error());
    if (s == PICKET_STALE) {
        return 1;
    }
    return s == PICKET_LOST || s == PICKET_AT_RISK ? 123 : 125;
}

/* A token of 0 reads as anybody; another one raises the fence first. */
static enum picket_status load(struct picket *p, int side, uint64_t token, long *out)
{
    char *text = NULL;
    size_t len = 0;
    enum picket_status s = picket_fence_get(p, sides[side], token, &text, &len, NULL);
    *out = s == PICKET_OK ? strtol(text, NULL, 10) : 0;
    free(text);
    return s == PICKET_NOTFOUND ? PICKET_OK : s; /* nobody has written yet */
}

static enum picket_status store(struct picket *p, int side, uint64_t token, long value)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%ld", value);
    return picket_fence_set(p, sides[side], token, text, (size_t)len, NULL);
}

static void say(const char *what, long value)
{
    (void)printf("%s %ld\n", what, value);
}

static int write_once(struct picket *p, struct picket_lock *lock)
{
    long pair[2] = {0, 0};
    uint64_t token = picket_token(lock);
    enum picket_status s = picket_checkpoint(lock, (uint64_t)step_ms);
    for (int side = 0; side < 2 && s == PICKET_OK; side++) {
        s = load(p, side, token, &pair[side]); /* claims both before it writes */
    }
    long next = (pair[0] > pair[1] ? pair[0] : pair[1]) + 1;
    if (s == PICKET_OK) {
        s = store(p, 0, token, next);
    }
    if (s == PICKET_OK) {
        say("half of", next);
        (void)poll(NULL, 0, step_ms); /* here nobody looks at the lock */
        s = store(p, 1, token, next);
    }
    if (s != PICKET_OK) {
        return explain(s);
    }
    say("wrote", next);
    return 0;
}

static int read_once(struct picket *p, struct picket_lock *lock)
{
    long pair[2] = {0, 0};
    enum picket_status s = PICKET_OK;
    for (int side = 0; side < 2 && s == PICKET_OK; side++) {
        s = load(p, side, 0, &pair[side]);
        say("reading", pair[side]);
        (void)poll(NULL, 0, step_ms / 2);
    }
    if (s == PICKET_OK) {
        s = picket_checkpoint(lock, 0); /* held all the while: what was read is a pair */
    }
    if (s != PICKET_OK) {
        return explain(s);
    }
    if (pair[0] != pair[1]) {
        (void)fprintf(stderr, "read_write: torn: %ld and %ld; write again\n", pair[0],
                      pair[1]);
        return 2;
    }
    say("read", pair[0]);
    return 0;
}

static int take_turn(struct picket *p, int writes)
{
    struct picket_lock *lock;
    const struct picket_acquire_options how = {
        .mode = writes ? PICKET_EXCLUSIVE : PICKET_SHARED, .wait_ms = PICKET_FOREVER};
    enum picket_status s = picket_acquire(p, "examples/pair", &how, &lock);
    if (s != PICKET_OK) {
        return explain(s);
    }
    int code = writes ? write_once(p, lock) : read_once(p, lock);
    picket_lock_close(lock);
    return code;
}

int main(int argc, char **argv)
{
    struct picket *p;
    const struct picket_options options = {.ttl_ms = TTL_MS};
    int writes = argc > 1 && strcmp(argv[1], "write") == 0;
    long times = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
    step_ms = argc > 3 ? (int)strtol(argv[3], NULL, 10) : step_ms;
    if (argc < 2 || (!writes && strcmp(argv[1], "read") != 0) || times < 1 ||
        step_ms < 0 || step_ms > TTL_MS / 2) {
        (void)fprintf(stderr, "usage: read_write read|write [TIMES [STEP_MS]]\n");
        return 125;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* each line at once, also into a pipe */
    enum picket_status s = picket_open(NULL, &options, &p);
    if (s != PICKET_OK) {
        return explain(s);
    }
    int code = 0;
    for (long i = 0; code == 0 && i < times; i++) {
        code = take_turn(p, writes);
    }
    picket_close(p);
    return code;
}
