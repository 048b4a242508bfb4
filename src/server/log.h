/* SPDX-License-Identifier: MIT */
/*
 * The server's log: one line per event on standard error,
 *
 *     ts=2026-11-16T03:42:44.123Z level=info event=leader term=4 node=n1
 *
 * as key=value or, on request, as one JSON object per line. A value that is empty, or has
 * blanks, quotes, '=' or anything that is not printable, is written as a JSON string in
 * both forms; so no value, whatever its bytes, can end a line or look like another field.
 * The time is the wall clock's, for people to read: nothing else here looks at it.
 *
 * A line is one write of at most PK_LOG_LINE_MAX bytes. It never waits: when standard
 * error takes nothing (a pipe that nobody reads), lines are dropped and counted, and the
 * next one that gets through says how many in its field `dropped`. The descriptor's own
 * flags are left alone, since it may be somebody's terminal.
 */
#ifndef PICKET_SERVER_LOG_H
#define PICKET_SERVER_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PK_LOG_LINE_MAX = 4096, /* with its end; what goes into a pipe whole or not at all */
    PK_LOG_NUMBERS = 16,    /* results of pk_log_u64 that are alive at once */
    PK_LOG_TEXTS = 8,       /* of pk_log_bytes */
    PK_LOG_TEXT_MAX = 512,  /* bytes of one, with its NUL; what is longer is cut */
};

enum pk_log_level { PK_LOG_ERROR, PK_LOG_WARN, PK_LOG_INFO, PK_LOG_DEBUG };

/* The process's own log: set once at start. Until then: INFO, as key=value. */
void pk_log_open(enum pk_log_level most, bool json);
bool pk_log_wants(enum pk_log_level level);

/* Fields come as pairs of name and value and end with NULL (a value that is NULL ends
 * them too); make values with the helpers below (they live until the end of the
 * statement, a few per line). Names are ours: plain words. */
void pk_log(enum pk_log_level level, const char *event, ...) __attribute__((sentinel));
const char *pk_log_u64(uint64_t v); /* in JSON a number, as long as it is exact there */
const char *pk_log_bytes(const void *data, unsigned long len);

/* Lines that did not get through, since the start. */
uint64_t pk_log_dropped(void);

#endif
