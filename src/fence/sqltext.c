/* SPDX-License-Identifier: MIT */
#include "fence/sqltext.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/error.h"
#include "core/bytes.h"
#include "core/command.h"
#include "host/memory.h"

enum { IDENTIFIER_MAX = 255 };

struct identifier {
    char text[IDENTIFIER_MAX + 1];
    size_t len;
};

struct names {
    struct identifier schema; /* empty: none was given */
    struct identifier table;
    struct identifier column;
    const char *resource;
};

/* ---- reading names ---- */

static bool append(struct identifier *id, char c)
{
    if (id->len == IDENTIFIER_MAX || (unsigned char)c < ' ' || c == 0x7f) {
        return false;
    }
    id->text[id->len++] = c;
    return true;
}

/* Reads one identifier at `at`, quoted or up to a dot. What follows it, or NULL. */
static const char *read_identifier(const char *at, struct identifier *out)
{
    bool quoted = *at == '"';
    bool fine = true;
    *out = (struct identifier){.len = 0};
    for (at += quoted ? 1 : 0; fine && *at != '\0'; at++) {
        if (quoted && *at == '"' && *++at != '"') { /* a doubled one is part of it */
            return out->len > 0 ? at : NULL;
        }
        if (!quoted && *at == '.') {
            break;
        }
        fine = append(out, *at);
    }
    return fine && !quoted && out->len > 0 ? at : NULL;
}

static bool read_table(const char *text, struct names *out)
{
    const char *at = read_identifier(text, &out->table);
    out->schema = (struct identifier){.len = 0};
    if (at != NULL && *at == '.') {
        out->schema = out->table;
        at = read_identifier(at + 1, &out->table);
    }
    return at != NULL && *at == '\0';
}

/* A column is taken as it is: nothing can stand before it. */
static bool read_column(const char *text, struct identifier *out)
{
    bool fine = text[0] != '\0';
    *out = (struct identifier){.len = 0};
    for (; fine && *text != '\0'; text++) {
        fine = append(out, *text);
    }
    return fine;
}

static enum picket_status read_names(const struct pk_sqltext *d,
                                     const struct picket_fence_table *t,
                                     struct names *out)
{
    out->resource = t->resource != NULL ? t->resource : t->table;
    if (t->column == NULL || !read_column(t->column, &out->column)) {
        return pk_fail(PICKET_BADARG, "the column with the token must be named, in at "
                                      "most 255 bytes without control characters");
    }
    if (!read_table(t->table, out)) {
        return pk_fail(PICKET_BADARG,
                       "a table is NAME, SCHEMA.NAME or \"NAME\" in double quotes");
    }
    if (out->schema.len > 0 && !d->schemas) {
        return pk_fail(PICKET_BADARG, "here a table is named without what it is in; a "
                                      "name with a dot goes in double quotes");
    }
    const char *wrong = pk_name_wrong(pk_text(out->resource));
    return wrong == NULL ? PICKET_OK
                         : pk_fail(PICKET_BADARG, "the resource's name: %s", wrong);
}

/* ---- writing them ---- */

static void put_doubled(FILE *out, const char *text, const char *doubled)
{
    for (; *text != '\0'; text++) {
        if (strchr(doubled, *text) != NULL) {
            fputc(*text, out);
        }
        fputc(*text, out);
    }
}

static void put_identifier(FILE *out, const struct pk_sqltext *d, const char *text)
{
    const char doubled[] = {d->quote, '\0'};
    fputc(d->quote, out);
    put_doubled(out, text, doubled);
    fputc(d->quote, out);
}

static void put_literal(FILE *out, const struct pk_sqltext *d, const char *text)
{
    bool prefix = d->backslash == PK_BACKSLASH_PREFIX && strchr(text, '\\') != NULL;
    bool escapes = prefix || d->backslash == PK_BACKSLASH_ESCAPES;
    fputs(prefix ? "E'" : "'", out);
    put_doubled(out, text, escapes ? "'\\" : "'");
    fputc('\'', out);
}

/* Part of the names of triggers, where those have to differ from table to table. FNV-1a:
 * a name can be too long to be part of another. */
static uint64_t hash(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *text != '\0'; text++) {
        h = (h ^ (unsigned char)*text) * UINT64_C(1099511628211);
    }
    return h;
}

static bool begins(const char *at, const char *word)
{
    return strncmp(at, word, strlen(word)) == 0;
}

/* Writes what the placeholder at `at` stands for; the placeholder's length, 0 if it is
 * none. */
static size_t put_name(FILE *out, const struct pk_sqltext *d, const struct names *n,
                       const char *at)
{
    if (begins(at, "@table@")) {
        if (n->schema.len > 0) {
            put_identifier(out, d, n->schema.text);
            fputc('.', out);
        }
        put_identifier(out, d, n->table.text);
        return strlen("@table@");
    }
    if (begins(at, "@table_text@")) {
        put_literal(out, d, n->table.text);
        return strlen("@table_text@");
    }
    if (begins(at, "@column@")) {
        put_identifier(out, d, n->column.text);
        return strlen("@column@");
    }
    if (begins(at, "@column_text@")) {
        put_literal(out, d, n->column.text);
        return strlen("@column_text@");
    }
    if (begins(at, "@resource@")) {
        put_literal(out, d, n->resource);
        return strlen("@resource@");
    }
    if (begins(at, "@hash@")) {
        fprintf(out, "%016" PRIx64, hash(n->table.text));
        return strlen("@hash@");
    }
    return 0;
}

/* In one pass, so that a table called "@column@" is just that. */
static void fill(FILE *out, const struct pk_sqltext *d, const struct names *n)
{
    for (const char *at = d->guard; *at != '\0';) {
        size_t len = *at == '@' ? put_name(out, d, n, at) : 0;
        if (len == 0) {
            fputc(*at, out);
        }
        at += len == 0 ? 1 : len;
    }
}

enum picket_status pk_sqltext_make(const struct pk_sqltext *d,
                                   const struct picket_fence_table *t, char **out)
{
    size_t len;
    struct names n = {.resource = ""};
    bool guards = t != NULL && t->table != NULL;
    enum picket_status s = guards ? read_names(d, t, &n) : PICKET_OK;
    if (s != PICKET_OK) {
        return s;
    }
    FILE *text = open_memstream(out, &len);
    pk_memory_need(text);
    fprintf(text, "%s%s", d->begin, d->base);
    if (guards) {
        fill(text, d, &n);
    }
    fputs(d->end, text);
    if (fclose(text) != 0) {
        pk_memory_out();
    }
    return PICKET_OK;
}
