/* SPDX-License-Identifier: MIT */
/* The sentence behind picket_last_error(): one buffer per thread, set where a failure is
 * found. */
#ifndef PICKET_CLIENT_ERROR_H
#define PICKET_CLIENT_ERROR_H

#include <picket.h>

/* Keeps the sentence and returns `s`, so that failing is one statement. */
__attribute__((format(printf, 2, 3))) enum picket_status pk_fail(enum picket_status s,
                                                                 const char *format, ...);
/* The same with the status' own text as the sentence. */
enum picket_status pk_fail_plain(enum picket_status s);

enum { PK_SENTENCE_MAX = 1024 };

/* The sentence as it is, and again: closing things must not hide why they are closed. */
void pk_sentence_save(char out[PK_SENTENCE_MAX]);
void pk_sentence_restore(const char saved[PK_SENTENCE_MAX]);

#endif
