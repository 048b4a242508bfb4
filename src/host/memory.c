/* SPDX-License-Identifier: MIT */
#include "host/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int exit_code; /* 0: abort */

void pk_memory_exit_code(int code)
{
    exit_code = code;
}

_Noreturn void pk_memory_out(void)
{
    static const char line[] = "picket: stopping: out of memory\n";
    ssize_t n = write(STDERR_FILENO, line, sizeof line - 1); /* stdio may allocate */
    (void)n;
    if (exit_code != 0) {
        _exit(exit_code);
    }
    abort();
}

void pk_memory_need(const void *p)
{
    if (p == NULL) {
        pk_memory_out();
    }
}

char *pk_memory_copy(const char *text)
{
    char *copy = strdup(text);
    pk_memory_need(copy);
    return copy;
}

char *pk_memory_copy_n(const char *data, size_t len)
{
    char *copy = malloc(len + 1);
    if (copy == NULL) {
        pk_memory_out();
    }
    if (len > 0) {
        memcpy(copy, data, len);
    }
    copy[len] = '\0';
    return copy;
}

char *pk_memory_print(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        pk_memory_out();
    }
    return text;
}
