/* SPDX-License-Identifier: MIT */
/*
 * include/picket.h from a pipe, for tests that have to do things to a store between two
 * calls of one client:
 *
 *     lock_call URL TTL_MS
 *
 * Reads lines: "take NAME WAIT_MS", "state NAME", "drop NAME", "extend TTL_MS". Answers
 * each with one: a status, and the token if it was taken; "state" with the state's name
 * and why it was lost; else with the status and the sentence about it. Ends with its
 * input.
 */
#include <inttypes.h>
#include <picket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCKS_MAX = 64 };

static struct {
    char name[256];
    struct picket_lock *lock;
} locks[LOCKS_MAX];

static void answer(enum picket_status s, uint64_t token)
{
    if (s == PICKET_OK) {
        printf("OK %" PRIu64 "\n", token);
    } else {
        printf("%s %s\n", picket_status_name(s), picket_last_error());
    }
}

/* The lock of that name; an empty place if there is none. */
static size_t find(const char *name)
{
    size_t i = 0;
    while (i < LOCKS_MAX - 1 && locks[i].lock != NULL &&
           strcmp(locks[i].name, name) != 0) {
        i++;
    }
    return i;
}

static void take(struct picket *p, const char *name, long wait_ms)
{
    size_t i = find(name);
    struct picket_acquire_options o = {.wait_ms = wait_ms};
    enum picket_status s = picket_acquire(p, name, &o, &locks[i].lock);
    (void)snprintf(locks[i].name, sizeof locks[i].name, "%s", name);
    answer(s, s == PICKET_OK ? picket_token(locks[i].lock) : 0);
}

static void run(struct picket *p, char *line)
{
    char *save = NULL;
    const char *verb = strtok_r(line, " \n", &save);
    const char *name = strtok_r(NULL, " \n", &save);
    const char *wait = strtok_r(NULL, " \n", &save);
    if (verb == NULL || name == NULL) {
        puts("BADARG what?");
    } else if (strcmp(verb, "take") == 0) {
        take(p, name, wait == NULL ? 0 : strtol(wait, NULL, 10));
    } else if (strcmp(verb, "extend") == 0) {
        answer(picket_extend(p, (uint32_t)strtoul(name, NULL, 10)), 0);
    } else if (locks[find(name)].lock == NULL) {
        puts("NOTHELD");
    } else if (strcmp(verb, "state") == 0) {
        const struct picket_lock *l = locks[find(name)].lock;
        printf("%s %s\n", picket_state_name(picket_state(l)), picket_loss_reason(l));
    } else {
        size_t i = find(name);
        answer(picket_release(locks[i].lock), 0);
        picket_lock_close(locks[i].lock);
        locks[i].lock = NULL;
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    static char line[1024];
    struct picket *p = NULL;
    struct picket_options o = {0};
    if (argc != 3) {
        return 2;
    }
    o.ttl_ms = (uint32_t)strtoul(argv[2], NULL, 10);
    enum picket_status s = picket_open(argv[1], &o, &p);
    if (s != PICKET_OK) {
        answer(s, 0);
        return 1;
    }
    while (fgets(line, sizeof line, stdin) != NULL) {
        run(p, line);
    }
    picket_close(p);
    return 0;
}
