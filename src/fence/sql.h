/* SPDX-License-Identifier: MIT */
/*
 * The verbs of a resource over a database that has the fence installed (sql/ is what gets
 * installed, docs/fencing-sql.md how people use it). The verbs are written here once, as
 * short transactions; a database is a file beside this one that connects, asks one
 * statement at a time and says how that ended.
 *
 * A verb waits at most PK_SQL_CONNECT_MS for the server and PK_SQL_LOCK_MS for another
 * transaction, so that a paused writer can't hang the next one for ever. A connection
 * that breaks is opened again and the verb tried once more, except when a write's COMMIT
 * was under way: then the answer is UNKNOWN.
 */
#ifndef PICKET_FENCE_SQL_H
#define PICKET_FENCE_SQL_H

#include "fence/resource.h"

enum {
    PK_SQL_VERSION = 1, /* of what sql/ installs: picket_fence_version there */
    PK_SQL_CONNECT_MS = 5000,
    PK_SQL_LOCK_MS = 10000,   /* a wait for another transaction */
    PK_SQL_ANSWER_MS = 20000, /* for any answer; more than a wait takes */
};

/* How a statement ended. */
enum pk_sql_end {
    PK_SQL_DONE,
    PK_SQL_STALE,     /* refused by the fence */
    PK_SQL_UNCLAIMED, /* the same */
    PK_SQL_ABSENT,    /* no such table, function...: the fence is not installed */
    PK_SQL_AGAIN,     /* another transaction got in the way: roll back, try again */
    PK_SQL_BLOCKED,   /* another transaction did not end in time */
    PK_SQL_DENIED,
    PK_SQL_AWAY, /* no connection, or not any more: it may or may not have been done */
    PK_SQL_FAILED,
};

/* What a statement is given, in that order; and what its first row is. */
struct pk_sql_args {
    const char *name; /* NULL: nothing */
    const uint64_t *number;
    const struct pk_bytes *value;
};

struct pk_sql_row {
    bool found;
    uint64_t numbers[3];
    char *value; /* the fourth column, malloc'ed, with room for a NUL; NULL: none */
    size_t len;
};

/* The statements, each with the arguments in its comment. */
struct pk_sql_words {
    const char *begin;
    const char *claim, *check;    /* name, number */
    const char *look;             /* name; a row of token, shadow, shadowed */
    const char *read;             /* name; the same and the value */
    const char *write;            /* name, value */
    const char *mode, *overwrite; /* name and number, name and value; make the row */
};

struct pk_sql_base {
    struct pk_sql_words words;
    /* Leaves the connection in r->db; or NULL there, and why in r->why. */
    enum pk_sql_end (*connect)(struct pk_resource *r);
    void (*disconnect)(struct pk_resource *r);
    /* Asks; other than DONE: why in r->why. `out` is all zero before. */
    enum pk_sql_end (*ask)(struct pk_resource *r, const char *statement,
                           const struct pk_sql_args *args, struct pk_sql_row *out);
    /* Runs many statements up to the first that fails. */
    enum pk_sql_end (*script)(struct pk_resource *r, const char *sql);
};

enum { PK_SQL_TEXT_MAX = 512 };

struct pk_resource {
    const struct pk_sql_base *base;
    char *url;
    char where[PK_SQL_TEXT_MAX]; /* the URL without its password, for people */
    char why[PK_SQL_TEXT_MAX];   /* the last failure, in the database's words */
    void *db;                    /* the base's connection; NULL: none now */
    bool checked;                /* that the fence there is of our version */
};

/* Connects. That a fence is installed there is seen by the first verb. */
enum picket_status pk_sql_open(const struct pk_sql_base *base, const char *url,
                               const char *where, struct pk_resource **out);
void pk_sql_close(struct pk_resource *r);

/* Keeps `text` as the reason, its first line only; returns `end`. */
enum pk_sql_end pk_sql_why(struct pk_resource *r, enum pk_sql_end end, const char *text);

enum picket_status pk_sql_claim(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence);
enum picket_status pk_sql_check(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence);
enum picket_status pk_sql_set(struct pk_resource *r, const char *name, uint64_t token,
                              struct pk_bytes value, uint64_t *fence);
enum picket_status pk_sql_get(struct pk_resource *r, const char *name, uint64_t token,
                              char **value, size_t *len, uint64_t *fence);
enum picket_status pk_sql_mode(struct pk_resource *r, const char *name, bool shadow);
enum picket_status pk_sql_show(struct pk_resource *r, const char *name,
                               struct picket_fence_state *out);
enum picket_status pk_sql_overwrite(struct pk_resource *r, const char *name,
                                    struct pk_bytes value);
enum picket_status pk_sql_run(struct pk_resource *r, const char *sql);

#define PK_SQL_VERBS                                                                     \
    .close = pk_sql_close, .claim = pk_sql_claim, .check = pk_sql_check,                 \
    .set = pk_sql_set, .get = pk_sql_get, .mode = pk_sql_mode, .show = pk_sql_show,      \
    .overwrite = pk_sql_overwrite, .run = pk_sql_run

#endif
