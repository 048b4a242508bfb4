/* SPDX-License-Identifier: MIT */
/*
 * The unit test harness: TAP on stdout, one test function per fact.
 *
 *     TEST(tree__finds_what_was_put_in)
 *     {
 *         CHECK(pk_tree_find(&tree, &key, order) == &node);
 *         CHECK_U64(count, 3);
 *     }
 *
 * Tests register themselves and run in the order of the file; tap.c has main(). The first
 * failed check ends its test and the next test runs; so does SKIP, for what can't be
 * asked here. `test_tree --list` names the tests, `test_tree TEXT` runs those whose name
 * contains TEXT, `test_tree =NAME` that one.
 */
#ifndef PICKET_TEST_TAP_H
#define PICKET_TEST_TAP_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct tap_test {
    const char *name;
    void (*run)(void);
    struct tap_test *next;
};

void tap_add(struct tap_test *test);

/* Each leaves the running test when the check fails, after saying where and why. */
void tap_check(bool ok, const char *file, int line, const char *what);
void tap_check_u64(uint64_t a, uint64_t b, const char *file, int line, const char *what);
void tap_check_str(const char *a, const char *b, const char *file, int line,
                   const char *what);
/* Leaves the running test, which then neither passes nor fails. */
void tap_skip(const char *why);

#define TEST(name)                                                                       \
    static void test_##name(void);                                                       \
    __attribute__((constructor)) static void add_##name(void)                            \
    {                                                                                    \
        static struct tap_test test = {#name, test_##name, NULL};                        \
        tap_add(&test);                                                                  \
    }                                                                                    \
    static void test_##name(void)

#define CHECK(cond) tap_check((cond), __FILE__, __LINE__, #cond)
#define CHECK_U64(a, b)                                                                  \
    tap_check_u64((uint64_t)(a), (uint64_t)(b), __FILE__, __LINE__, #a " == " #b)
#define FAIL(why) tap_check(false, __FILE__, __LINE__, why)
#define SKIP(why) tap_skip(why)
#define CHECK_STR(a, b) tap_check_str((a), (b), __FILE__, __LINE__, #a " == " #b)

/* 1: compiled with a sanitizer that has an allocator and locks of its own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TAP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TAP_SANITIZED 1
#endif
#endif
#ifndef TAP_SANITIZED
#define TAP_SANITIZED 0
#endif

#endif
