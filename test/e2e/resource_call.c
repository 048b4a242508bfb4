/* SPDX-License-Identifier: MIT */
/*
 * include/picket_fence.h from a shell, for tests of it with other programs around:
 *
 *     resource_call URL install|sql [TABLE COLUMN [RESOURCE]]
 *     resource_call URL claim|check|get|set|mode|show NAME [NUMBER]
 *     resource_call URL overwrite NAME
 *     resource_call URL loop NAME NUMBER [LENGTH]
 *
 * `set` and `overwrite` read their value from stdin. Prints "STATUS FENCE" and, in a line
 * of its own, the value or the sentence about what is wrong. `loop` claims, or sets a
 * value of that length, prints, and waits for a line on stdin before it does so again
 * with the same connection. Always exits 0, unless it is called wrongly.
 */
#include <inttypes.h>
#include <picket_fence.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/resource.h"

static char input[2 << 20];

static void print(enum picket_status s, uint64_t fence)
{
    printf("%s %" PRIu64 "\n", picket_status_name(s), fence);
    if (s != PICKET_OK) {
        printf("%s\n", picket_last_error());
    }
    (void)fflush(stdout);
}

static void install(int argc, char **argv)
{
    char *text = NULL;
    struct picket_fence_table t = {argc > 3 ? argv[3] : NULL, argc > 4 ? argv[4] : NULL,
                                   argc > 5 ? argv[5] : NULL};
    if (strcmp(argv[2], "sql") == 0) {
        enum picket_status s = picket_fence_sql(argv[1], &t, &text);
        print(s, 0);
        printf("%s", s == PICKET_OK ? text : "");
        free(text);
        return;
    }
    print(picket_fence_install(argv[1], &t), 0);
}

static void loop(struct picket_resource *r, const char *name, uint64_t number,
                 const char *length)
{
    static const char zeroes[1 << 20];
    char line[8];
    do {
        uint64_t fence = 0;
        size_t len = length == NULL ? 0 : (size_t)strtoull(length, NULL, 10);
        enum picket_status s =
            length == NULL ? picket_resource_claim(r, name, number, &fence)
                           : picket_resource_set(r, name, number, zeroes, len, &fence);
        print(s, fence);
    } while (fgets(line, sizeof line, stdin) != NULL);
}

static void call(struct picket_resource *r, const char *verb, const char *name,
                 uint64_t number)
{
    char *value = NULL;
    size_t len = 0;
    uint64_t fence = 0;
    enum picket_status s = PICKET_BADARG;
    struct picket_fence_state state = {0};
    if (strcmp(verb, "set") == 0 || strcmp(verb, "overwrite") == 0) {
        len = fread(input, 1, sizeof input, stdin);
    }
    if (strcmp(verb, "claim") == 0) {
        s = picket_resource_claim(r, name, number, &fence);
    } else if (strcmp(verb, "check") == 0) {
        s = picket_resource_check(r, name, number, &fence);
    } else if (strcmp(verb, "set") == 0) {
        s = picket_resource_set(r, name, number, input, len, &fence);
    } else if (strcmp(verb, "overwrite") == 0) {
        s = pk_resource_overwrite(r, name, pk_bytes(input, len));
    } else if (strcmp(verb, "mode") == 0) {
        s = picket_resource_mode(r, name, number != 0);
    } else if (strcmp(verb, "show") == 0) {
        s = picket_resource_show(r, name, &state);
        fence = state.token;
    } else if (strcmp(verb, "get") == 0) {
        s = picket_resource_get(r, name, number, &value, &len, &fence);
    }
    print(s, fence);
    if (strcmp(verb, "show") == 0) {
        printf("%d %" PRIu64 "\n", state.shadow, state.shadowed);
    }
    if (value != NULL) {
        (void)fwrite(value, 1, len, stdout);
    }
    (void)fflush(stdout);
    free(value);
}

int main(int argc, char **argv)
{
    struct picket_resource *r;
    if (argc > 2 && (strcmp(argv[2], "install") == 0 || strcmp(argv[2], "sql") == 0)) {
        install(argc, argv);
        return 0;
    }
    if (argc < 4) {
        (void)fprintf(stderr, "usage: resource_call URL VERB NAME [NUMBER]\n");
        return 2;
    }
    enum picket_status s = picket_resource_open(argv[1], &r);
    if (s != PICKET_OK) {
        print(s, 0);
        return 0;
    }
    uint64_t number = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    if (strcmp(argv[2], "loop") == 0) {
        loop(r, argv[3], number, argc > 5 ? argv[5] : NULL);
    } else {
        call(r, argv[2], argv[3], number);
    }
    picket_resource_close(r);
    return 0;
}
