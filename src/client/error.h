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

#endif
