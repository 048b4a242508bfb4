/* SPDX-License-Identifier: MIT */
/*
 * What the program says about itself, and the codes that it exits with.
 *
 * Our words go to standard error, one line each, after "picket: "; standard output
 * belongs to what was asked for. Whatever is put into such a line, control characters
 * come out escaped: an error is one line, and no name can paint the terminal.
 */
#ifndef PICKET_CLI_ERRORS_H
#define PICKET_CLI_ERRORS_H

#include <picket.h>
#include <stdbool.h>

/* Besides these: a command's own code, 126 and 127 when it can't be executed. */
enum {
    PK_EXIT_NO = 1,       /* the verb's own "no": free, stale, not held */
    PK_EXIT_DEGRADED = 2, /* the cluster serves, but not all its members are healthy */
    PK_EXIT_DENIED = 122, /* not allowed */
    PK_EXIT_LOST = 123,   /* the lock was lost; a command under it was ended */
    PK_EXIT_BUSY = 124,   /* held by somebody else, or not granted in time */
    PK_EXIT_ERROR = 125,  /* a wrong call, a store out of reach */
    PK_EXIT_SIGNAL = 128, /* plus the signal's number */
};

/* How much is said: errors always, remarks unless quiet, details when verbose. */
void pk_errors_loudness(bool quiet, bool verbose);
bool pk_errors_quiet(void);
bool pk_errors_verbose(void);

/* Says what is wrong and what to do about it. Returns PK_EXIT_ERROR, so that failing is
 * one statement. */
__attribute__((format(printf, 1, 2))) int pk_errors_fail(const char *format, ...);
/* Something the user should know although nothing failed. */
__attribute__((format(printf, 1, 2))) void pk_errors_remark(const char *format, ...);
/* Something for who asked with -v. */
__attribute__((format(printf, 1, 2))) void pk_errors_detail(const char *format, ...);

/* Says the sentence of the library call that just failed with `s`, and returns the exit
 * code for it. BUSY and TIMEOUT are answers rather than errors: nothing is said when
 * quiet. */
int pk_errors_status(enum picket_status s);
/* The exit code alone. */
int pk_errors_code(enum picket_status s);

#endif
