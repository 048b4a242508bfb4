/* SPDX-License-Identifier: MIT */
/*
 * include/picket.h from a pipe, for faults.py: each line is one call, each answer one
 * line.
 *
 *     faults_call URL TTL_MS
 *
 *     open                  STATUS
 *     take NAME WAIT_MS     OK TOKEN; else STATUS and the sentence about it
 *     check NAME            STATUS of a checkpoint
 *     state NAME            the state's name
 *     drop NAME             STATUS of a release; closes the handle
 *     show NAME             OK, waiters, and the tokens of the holders
 *     list                  OK and the number of locks
 *     close                 OK and the descriptors open at the start and now
 */
#include <fcntl.h>
#include <inttypes.h>
#include <picket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCKS_MAX = 8 };

static struct {
    char name[256];
    struct picket_lock *lock;
} locks[LOCKS_MAX];
static struct picket *client;

/* The place of that name; a free one if it has none. */
static size_t find(const char *name)
{
    size_t i = 0;
    while (i < LOCKS_MAX - 1 && locks[i].lock != NULL &&
           strcmp(locks[i].name, name) != 0) {
        i++;
    }
    return i;
}

static void answer(enum picket_status s)
{
    printf("%s %s\n", picket_status_name(s), s == PICKET_OK ? "" : picket_last_error());
}

static void take(const char *name, long wait_ms)
{
    size_t i = find(name);
    struct picket_acquire_options o = {.wait_ms = wait_ms};
    enum picket_status s = picket_acquire(client, name, &o, &locks[i].lock);
    (void)snprintf(locks[i].name, sizeof locks[i].name, "%s", name);
    if (s == PICKET_OK) {
        printf("OK %" PRIu64 "\n", picket_token(locks[i].lock));
    } else {
        answer(s);
    }
}

static void drop(size_t i)
{
    answer(picket_release(locks[i].lock));
    picket_lock_close(locks[i].lock);
    locks[i].lock = NULL;
}

static void show(const char *name)
{
    struct picket_view *v = NULL;
    enum picket_status s = picket_show(client, name, &v);
    if (s != PICKET_OK) {
        answer(s);
        return;
    }
    printf("OK %" PRIu32, v->waiters);
    for (size_t i = 0; i < v->n_rows; i++) {
        if (v->rows[i].place == 0) {
            printf(" %" PRIu64, v->rows[i].token);
        }
    }
    printf("\n");
    picket_view_free(v);
}

static void list(void)
{
    struct picket_view *v = NULL;
    enum picket_status s = picket_list(client, "", NULL, 1000, &v);
    if (s == PICKET_OK) {
        printf("OK %zu\n", v->n_rows);
        picket_view_free(v);
    } else {
        answer(s);
    }
}

/* How many are open, asked without making one. */
static size_t descriptors(void)
{
    size_t n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static void on_lock(const char *verb, const char *name, const char *number)
{
    size_t i = find(name);
    if (strcmp(verb, "take") == 0) {
        take(name, strtol(number, NULL, 10));
    } else if (strcmp(verb, "show") == 0) {
        show(name);
    } else if (locks[i].lock == NULL) {
        printf("NOTHELD\n");
    } else if (strcmp(verb, "check") == 0) {
        answer(picket_checkpoint(locks[i].lock, 1));
    } else if (strcmp(verb, "state") == 0) {
        printf("%s\n", picket_state_name(picket_state(locks[i].lock)));
    } else {
        drop(i);
    }
}

int main(int argc, char **argv)
{
    static char line[1024];
    if (argc != 3) {
        return 2;
    }
    size_t before = descriptors();
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *save = NULL;
        const char *verb = strtok_r(line, " \n", &save);
        const char *name = strtok_r(NULL, " \n", &save);
        const char *number = strtok_r(NULL, " \n", &save);
        if (verb == NULL) {
            continue;
        }
        if (strcmp(verb, "open") == 0) {
            struct picket_options o = {.ttl_ms = (uint32_t)strtoul(argv[2], NULL, 10)};
            answer(picket_open(argv[1], &o, &client));
        } else if (client == NULL) {
            printf("NOTOPEN\n");
        } else if (strcmp(verb, "list") == 0) {
            list();
        } else if (strcmp(verb, "close") == 0) {
            picket_close(client);
            client = NULL;
            printf("OK %zu %zu\n", before, descriptors());
        } else if (name != NULL) {
            on_lock(verb, name, number == NULL ? "0" : number);
        }
    }
    picket_close(client);
    return 0;
}
