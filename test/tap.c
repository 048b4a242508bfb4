/* SPDX-License-Identifier: MIT */
#include "tap.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

/* ---- tests that hang ---- */

enum { LIMIT_S = 600 }; /* for one test: only a hang reaches it */

static const char *running; /* the test's name */

/* PICKET_TEST_HASTE divides the limit, for callers that expect a hang. */
static unsigned limit_s(void)
{
    const char *haste = getenv("PICKET_TEST_HASTE");
    long divisor = haste != NULL ? strtol(haste, NULL, 10) : 1;
    return divisor > 1 && divisor < LIMIT_S ? LIMIT_S / (unsigned)divisor : LIMIT_S;
}

static void write_str(const char *s)
{
    ssize_t n = write(STDOUT_FILENO, s, strlen(s));
    (void)n;
}

/* Says which test hangs, shows the stacks of all its threads, and ends the program. */
static void on_alarm(int signal_number)
{
    char pid[24] = "";
    (void)signal_number;
    write_str("# took too long: ");
    write_str(running);
    write_str("\n");
    char *digit = pid + sizeof pid - 1;
    for (pid_t rest = getpid(); rest != 0; rest /= 10) {
        *--digit = (char)('0' + rest % 10);
    }
    pid_t child = fork();
    if (child == 0) {
        (void)execlp("eu-stack", "eu-stack", "-p", digit, (char *)NULL);
        _exit(127);
    }
    if (child > 0) {
        (void)waitpid(child, NULL, 0);
    }
    write_str("not ok - ");
    write_str(running);
    write_str(" hung\n");
    _exit(1);
}

static double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Tells `make flake-hunt` which tests come near their limit. */
static void tell_if_slow(const struct tap_test *test, double began)
{
    double took = seconds_now() - began;
    if (took > limit_s() / 10.0) {
        printf("# slow: %.1f s of %u s: %s\n", took, limit_s(), test->name);
    }
}

static bool passes(const struct tap_test *test)
{
    skipped = NULL;
    running = test->name;
    (void)alarm(limit_s());
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
    (void)signal(SIGALRM, on_alarm);
    for (struct tap_test *t = first; t != NULL; t = t->next) {
        if (list) {
            printf("%s\n", t->name);
        } else if (chosen(t->name, filter)) {
            double began = seconds_now();
            bool ok = passes(t);
            (void)alarm(0);
            tell_if_slow(t, began);
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
