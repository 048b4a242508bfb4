/* SPDX-License-Identifier: MIT */
#include "cli/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 2048 };

static bool quiet;
static bool verbose;

void pk_errors_loudness(bool be_quiet, bool be_verbose)
{
    quiet = be_quiet;
    verbose = be_verbose;
}

bool pk_errors_quiet(void)
{
    return quiet;
}

bool pk_errors_verbose(void)
{
    return verbose && !quiet;
}

/* One line, in one write as far as stdio can, so that lines of several processes that
 * share a terminal don't mix. */
__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list args)
{
    char text[LINE_MAX_BYTES];
    char line[sizeof "picket: " + 4 * sizeof text];
    (void)vsnprintf(text, sizeof text, format, args);
    size_t used = (size_t)snprintf(line, sizeof line, "picket: ");
    for (const char *at = text; *at != '\0'; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte < 0x20 || byte == 0x7f) {
            used += (size_t)snprintf(line + used, sizeof line - used, "\\x%02x", byte);
        } else {
            line[used++] = *at;
        }
    }
    line[used++] = '\n';
    (void)fflush(
        stdout); /* what was said before comes first where both go the same way */
    (void)fwrite(line, 1, used, stderr);
}

int pk_errors_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return PK_EXIT_ERROR;
}

void pk_errors_remark(const char *format, ...)
{
    va_list args;
    if (quiet) {
        return;
    }
    va_start(args, format);
    say(format, args);
    va_end(args);
}

void pk_errors_detail(const char *format, ...)
{
    va_list args;
    if (!pk_errors_verbose()) {
        return;
    }
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int pk_errors_code(enum picket_status s)
{
    switch (s) {
    case PICKET_OK:
        return 0;
    case PICKET_BUSY:
    case PICKET_TIMEOUT:
        return PK_EXIT_BUSY;
    case PICKET_LOST:
    case PICKET_NOTHELD:
        return PK_EXIT_LOST;
    case PICKET_DENIED:
        return PK_EXIT_DENIED;
    default:
        return PK_EXIT_ERROR;
    }
}

int pk_errors_status(enum picket_status s)
{
    const char *sentence = picket_last_error();
    if (sentence == NULL || sentence[0] == '\0') {
        sentence = picket_status_text(s);
    }
    if (s == PICKET_BUSY || s == PICKET_TIMEOUT) {
        pk_errors_remark("%s", sentence);
    } else {
        (void)pk_errors_fail("%s", sentence);
    }
    return pk_errors_code(s);
}
