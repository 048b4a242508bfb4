/* SPDX-License-Identifier: MIT */
/*
 * Numbers and time spans as people write and read them.
 *
 * Reading is strict: decimal digits and a unit, nothing else, so that a slip is refused
 * instead of guessed at. What is read as a span is exact, or rounded up to a whole
 * millisecond; what is written for people is rounded to what they care about.
 */
#ifndef PICKET_CLI_VALUES_H
#define PICKET_CLI_VALUES_H

#include <stdbool.h>
#include <stdint.h>

enum { PK_SPAN_ROOM = 24 };

/* Reads one value into `out`. NULL, or what is wrong with it, to stand behind it in a
 * sentence: "is not ..."; valid until the next call. */
const char *pk_values_read_number(const char *text, uint64_t min, uint64_t max,
                                  uint64_t *out);
/* 500ms, 2s, 1.5s, 2m, 1h, 1d. A bare number means seconds, or is refused. */
const char *pk_values_read_span(const char *text, bool bare_seconds, uint64_t *ms);

/* "350ms", "1.5s", "12s", "2m05s", "3h12m", "4d6h". Returns buf. */
const char *pk_values_span(uint64_t ms, char buf[PK_SPAN_ROOM]);

#endif
