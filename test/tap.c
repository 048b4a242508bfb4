/* SPDX-License-Identifier: MIT */
#include "tap.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>

static struct tap_test *first;
static struct tap_test **last = &first;
static jmp_buf after_failure;
static const char *skipped; /* why the running test was left, or NULL */

void tap_add(struct tap_test *test)
{
    *last = test;
    last = &test->next;
}

static void fail(const char *file, int line, const char *what)
{
    printf("# %s:%d: not true: %s\n", file, line, what);
}

void tap_check(bool ok, const char *file, int line, const char *what)
{
    if (!ok) {
        fail(file, line, what);
        longjmp(after_failure, 1);
    }
}

void tap_check_u64(uint64_t a, uint64_t b, const char *file, int line, const char *what)
{
    if (a != b) {
        fail(file, line, what);
        printf("#   left:  %" PRIu64 " (0x%" PRIx64 ")\n", a, a);
        printf("#   right: %" PRIu64 " (0x%" PRIx64 ")\n", b, b);
        longjmp(after_failure, 1);
    }
}

/* One line of TAP comment, whatever the string holds. */
static void print_str(const char *side, const char *s)
{
    printf("#   %s ", side);
    if (s == NULL) {
        printf("NULL\n");
        return;
    }
    putchar('"');
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < ' ' || c == 127) {
            printf("\\x%02x", (unsigned)c);
        } else {
            putchar(c);
        }
    }
    printf("\"\n");
}

void tap_check_str(const char *a, const char *b, const char *file, int line,
                   const char *what)
{
    bool same = a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
    if (!same) {
        fail(file, line, what);
        print_str("left: ", a);
        print_str("right:", b);
        longjmp(after_failure, 1);
    }
}

void tap_skip(const char *why)
{
    skipped = why;
    longjmp(after_failure, 1);
}

static bool passes(const struct tap_test *test)
{
    skipped = NULL;
    if (setjmp(after_failure) != 0) {
        return skipped != NULL;
    }
    test->run();
    return true;
}

static bool chosen(const char *name, const char *filter)
{
    return filter[0] == '=' ? strcmp(name, filter + 1) == 0
                            : strstr(name, filter) != NULL;
}

int main(int argc, char **argv)
{
    bool list = argc == 2 && strcmp(argv[1], "--list") == 0;
    const char *filter = argc == 2 && !list ? argv[1] : "";
    int count = 0;
    int failed = 0;
    if (argc > 2) {
        fprintf(stderr, "usage: %s [--list | TEXT]\n", argv[0]);
        return 2;
    }
    /* A crash must not take the lines before it along. */
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (struct tap_test *t = first; t != NULL; t = t->next) {
        if (list) {
            printf("%s\n", t->name);
        } else if (chosen(t->name, filter)) {
            bool ok = passes(t);
            count++;
            failed += !ok;
            printf("%s %d - %s%s%s\n", ok ? "ok" : "not ok", count, t->name,
                   skipped != NULL ? " # SKIP " : "", skipped != NULL ? skipped : "");
        }
    }
    if (!list) {
        /* The plan comes last: without it the run died half-way and counts as failed. */
        printf("1..%d\n", count);
    }
    return failed != 0 || (count == 0 && !list);
}
