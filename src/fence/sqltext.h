/* SPDX-License-Identifier: MIT */
/*
 * The statements that put the fence into a database: the texts of sql/, with the names of
 * a table to be guarded filled in. Whatever stands in those names, it comes out as a name
 * and nothing else.
 */
#ifndef PICKET_FENCE_SQLTEXT_H
#define PICKET_FENCE_SQLTEXT_H

#include <picket_fence.h>
#include <stdbool.h>

/* What a backslash in a string literal is. */
enum pk_sqltext_backslash {
    PK_BACKSLASH_PLAIN,   /* a character like others */
    PK_BACKSLASH_PREFIX,  /* an escape in literals that begin with E */
    PK_BACKSLASH_ESCAPES, /* an escape everywhere */
};

struct pk_sqltext {
    char quote; /* around identifiers */
    enum pk_sqltext_backslash backslash;
    bool schemas;             /* a table can be "schema.table" */
    const char *begin, *end;  /* around everything */
    const char *base, *guard; /* of sql/; the guard with @table@, @column@... in it */
};

/* Makes the text, malloc'ed. A table is NAME or SCHEMA.NAME; a name with a dot in it is
 * put in double quotes, as in SQL. BADARG: `t` makes no sense. */
enum picket_status pk_sqltext_make(const struct pk_sqltext *d,
                                   const struct picket_fence_table *t, char **out);

extern const char pk_sqltext_sqlite[], pk_sqltext_sqlite_guard[], pk_sqltext_postgres[],
    pk_sqltext_postgres_guard[], pk_sqltext_mariadb[], pk_sqltext_mariadb_guard[];

#endif
