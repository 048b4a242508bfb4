/* SPDX-License-Identifier: MIT */
/*
 * Text of the scenario language: a growing buffer, durations and quoted strings, the
 * same forms for what is read and what is printed.
 */
#ifndef PICKET_TEST_SCENARIO_TEXT_H
#define PICKET_TEST_SCENARIO_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

/* Zeroed is empty; the bytes are the buffer's own until text_free. */
struct text {
    char *data;
    size_t len;
    size_t capacity;
};

void text_add(struct text *t, const void *data, size_t len);
void text_addf(struct text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void text_clear(struct text *t);
void text_free(struct text *t);
bool text_equal(const struct text *a, const struct text *b);

/* The whole number of the largest unit that is exact: 0, 500ms, 10s, 90s, 2m, 24h. */
void text_duration(struct text *t, uint64_t ms);
/* Reads what text_duration writes; NULL, or what is wrong. */
const char *duration_read(struct pk_bytes word, uint64_t *ms);
/* Reads a decimal number; NULL, or what is wrong. */
const char *number_read(struct pk_bytes word, uint64_t *number);

/* Bare when it can be, else in quotes; a long run of one character as "x"*300. */
void text_string(struct text *t, struct pk_bytes s);

#endif
