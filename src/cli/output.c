/* SPDX-License-Identifier: MIT */
/* The text half of cli/output.h. */
#include "cli/output.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/text.h"
#include "core/door.h"
#include "host/memory.h"

enum { COLUMN_GAP = 2, FIRST_CAPACITY = 256 };

void pk_output_bytes(const void *bytes, size_t len)
{
    const char *text = bytes;
    size_t at = 0;
    while (at < len) {
        uint32_t code = 0;
        size_t n = pk_text_decode(text + at, len - at, &code);
        if (n == 0 || pk_text_is_control(code)) {
            n = n == 0 ? 1 : n;
            for (size_t i = 0; i < n; i++) {
                (void)printf("\\x%02x", (unsigned)(unsigned char)text[at + i]);
            }
        } else {
            (void)fwrite(text + at, 1, n, stdout);
        }
        at += n;
    }
}

void pk_output_shell(const char *name, const char *value)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789_-./:@%+,";
    (void)printf("%s=", name);
    if (value[0] != '\0' && value[strspn(value, plain)] == '\0') {
        (void)puts(value);
        return;
    }
    (void)putchar('\'');
    for (const char *at = value; *at != '\0'; at++) {
        /* A quote ends the string, comes in by itself, and opens it again. */
        (void)fputs(*at == '\'' ? "'\\''" : (const char[]){*at, '\0'}, stdout);
    }
    (void)puts("'");
}

void pk_table_add(struct pk_table *t, const char *format, ...)
{
    char *cell = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&cell, format, args);
    va_end(args);
    if (n < 0) {
        pk_memory_out();
    }
    PK_ASSERT(t->columns > 0 && t->columns <= PK_TABLE_COLUMNS_MAX);
    if (t->count == t->capacity) {
        t->capacity = t->capacity == 0 ? FIRST_CAPACITY : 2 * t->capacity;
        t->cells = pk_door_resize(t->cells, t->capacity * sizeof *t->cells);
    }
    size_t *width = &t->widths[t->count % t->columns];
    size_t needed = pk_text_count(cell);
    *width = needed > *width ? needed : *width;
    t->cells[t->count++] = cell;
}

void pk_table_print(struct pk_table *t)
{
    for (size_t i = 0; i < t->count; i++) {
        size_t column = i % t->columns;
        bool last = column == t->columns - 1;
        int gap = (int)(t->widths[column] - pk_text_count(t->cells[i])) + COLUMN_GAP;
        (void)fputs(t->cells[i], stdout);
        (void)printf("%*s", last ? 1 : gap, last ? "\n" : "");
        free(t->cells[i]);
    }
    t->count = 0;
    free(t->cells);
    t->cells = NULL;
    t->capacity = 0;
}
