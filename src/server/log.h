/* SPDX-License-Identifier: MIT */
/*
 * The server's log: one line per event on standard error,
 *
 *     ts=2026-11-16T03:42:44.123Z level=info event=leader term=4 node=n1
 *
 * as key=value (values with blanks, quotes or control characters are quoted) or, on
 * request, as one JSON object per line. Never blocks the loop for long: when standard
 * error is a pipe that nobody reads, lines are dropped and counted.
 */
#ifndef PICKET_SERVER_LOG_H
#define PICKET_SERVER_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum pk_log_level { PK_LOG_ERROR, PK_LOG_WARN, PK_LOG_INFO, PK_LOG_DEBUG };

/* The process's own log: set once at start. */
void pk_log_open(enum pk_log_level most, bool json);
bool pk_log_wants(enum pk_log_level level);

/* Fields come as pairs of name and value and end with NULL; make values with the
 * helpers below (they live until the end of the statement, a few per line). */
void pk_log(enum pk_log_level level, const char *event, ...) __attribute__((sentinel));
const char *pk_log_u64(uint64_t v);
const char *pk_log_bytes(const void *data, unsigned long len);

uint64_t pk_log_dropped(void);

#endif
