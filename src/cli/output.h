/* SPDX-License-Identifier: MIT */
/*
 * Standard output: JSON for programs, tables and quoted words for people and shells.
 *
 * JSON is always well-formed UTF-8, whatever the strings hold: bytes that are not become
 * U+FFFD, and values that may be anything at all go out as base64 when they are not text.
 * Output errors are not looked at here: main() asks the stream once, at the end.
 */
#ifndef PICKET_CLI_OUTPUT_H
#define PICKET_CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- JSON: objects and arrays, as they come; commas see to themselves ---- */

enum { PK_JSON_DEPTH_MAX = 8 };

struct pk_json {
    int depth;
    bool filled[PK_JSON_DEPTH_MAX]; /* something stands in that object or array already */
};

/* `key` is NULL inside arrays and at the top. The outermost end writes a newline. */
void pk_json_object(struct pk_json *j, const char *key);
void pk_json_end_object(struct pk_json *j);
void pk_json_array(struct pk_json *j, const char *key);
void pk_json_end_array(struct pk_json *j);
void pk_json_text(struct pk_json *j, const char *key, const char *text);
void pk_json_number(struct pk_json *j, const char *key, uint64_t n);
/* An id: a string of digits, since readers that take numbers for doubles round what is
 * above 2^53. */
void pk_json_id(struct pk_json *j, const char *key, uint64_t id);
void pk_json_bool(struct pk_json *j, const char *key, bool b);
void pk_json_null(struct pk_json *j, const char *key);
/* "KEY": text, or "KEY_base64" when the bytes are not UTF-8. */
void pk_json_bytes(struct pk_json *j, const char *key, const void *bytes, size_t len);

/* ---- text ---- */

/* Prints bytes on one line: control characters and what is not UTF-8 as \xNN. */
void pk_output_bytes(const void *bytes, size_t len);
/* Prints NAME=VALUE for a shell to evaluate, quoted if need be. */
void pk_output_shell(const char *name, const char *value);

/* A table is filled row by row and printed with columns as wide as the widest cell so
 * far, so that a long one can be printed in pieces. */
enum { PK_TABLE_COLUMNS_MAX = 10 };

struct pk_table {
    size_t columns;
    size_t widths[PK_TABLE_COLUMNS_MAX];
    char **cells;
    size_t count;
    size_t capacity;
};

/* Adds one cell; a row is full after `columns` of them. */
__attribute__((format(printf, 2, 3))) void pk_table_add(struct pk_table *t,
                                                        const char *format, ...);
/* Prints and forgets the rows there are; the widths stay. */
void pk_table_print(struct pk_table *t);

#endif
