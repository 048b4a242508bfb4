/* SPDX-License-Identifier: MIT */
/* SQLite: sqlite:FILE. A database is never made by opening it: a slip in the file's name
 * must not end in an empty one. */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "fence/sql.h"
#include "fence/sqltext.h"
#include "host/memory.h"

static const struct pk_sqltext dialect = {
    .quote = '"',
    .backslash = PK_BACKSLASH_PLAIN,
    .begin = "BEGIN IMMEDIATE;\n",
    .end = "COMMIT;\n",
    .base = pk_sqltext_sqlite,
    .guard = pk_sqltext_sqlite_guard,
};

static bool says(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Keeps the reason of the last failure and says what it amounts to. */
static enum pk_sql_end fail(struct pk_resource *r)
{
    const char *text = sqlite3_errmsg(r->db);
    enum pk_sql_end end = PK_SQL_FAILED;
    switch (sqlite3_errcode(r->db)) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        end = PK_SQL_BLOCKED;
        break;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        end = PK_SQL_DENIED;
        break;
    case SQLITE_CANTOPEN:
        end = PK_SQL_AWAY;
        break;
    case SQLITE_CONSTRAINT:
        end = says(text, "picket: stale")       ? PK_SQL_STALE
              : says(text, "picket: unclaimed") ? PK_SQL_UNCLAIMED
                                                : PK_SQL_FAILED;
        break;
    case SQLITE_ERROR:
        end = says(text, "no such table: picket_") ? PK_SQL_ABSENT : PK_SQL_FAILED;
        break;
    default:
        break;
    }
    return pk_sql_why(r, end, text);
}

static void close_database(struct pk_resource *r)
{
    (void)sqlite3_close(r->db);
}

static enum pk_sql_end open_database(struct pk_resource *r)
{
    const char *path = strchr(r->url, ':') + 1;
    sqlite3 *db = NULL;
    int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL);
    pk_memory_need(db);
    r->db = db;
    if (code == SQLITE_OK) {
        code = sqlite3_busy_timeout(db, PK_SQL_LOCK_MS);
    }
    if (code == SQLITE_OK) {
        code = sqlite3_exec(db, "PRAGMA synchronous = FULL", NULL, NULL, NULL);
    }
    if (code == SQLITE_OK) {
        return PK_SQL_DONE;
    }
    enum pk_sql_end end = fail(r);
    close_database(r);
    r->db = NULL;
    return end;
}

static void bind_args(sqlite3_stmt *statement, const struct pk_sql_args *args)
{
    int at = 1;
    if (args->name != NULL) {
        sqlite3_bind_text(statement, at++, args->name, -1, SQLITE_STATIC);
    }
    if (args->number != NULL) {
        sqlite3_bind_int64(statement, at++, (sqlite3_int64)*args->number);
    }
    if (args->value != NULL) {
        sqlite3_bind_blob64(statement, at, args->value->data, args->value->len,
                            SQLITE_STATIC);
    }
}

static void read_row(sqlite3_stmt *statement, struct pk_sql_row *out)
{
    int columns = sqlite3_column_count(statement);
    out->found = true;
    for (int i = 0; i < columns && i < 3; i++) {
        out->numbers[i] = (uint64_t)sqlite3_column_int64(statement, i);
    }
    if (columns > 3 && sqlite3_column_type(statement, 3) != SQLITE_NULL) {
        const void *data = sqlite3_column_blob(statement, 3);
        out->len = (size_t)sqlite3_column_bytes(statement, 3);
        out->value = pk_door_resize(NULL, out->len + 1);
        if (out->len > 0) {
            memcpy(out->value, data, out->len);
        }
    }
}

static enum pk_sql_end ask(struct pk_resource *r, const char *text,
                           const struct pk_sql_args *args, struct pk_sql_row *out)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(r->db, text, -1, &statement, NULL) != SQLITE_OK) {
        return fail(r);
    }
    bind_args(statement, args);
    int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        read_row(statement, out);
        code = sqlite3_step(statement);
    }
    enum pk_sql_end end = code == SQLITE_DONE ? PK_SQL_DONE : fail(r);
    sqlite3_finalize(statement);
    return end;
}

static enum pk_sql_end script(struct pk_resource *r, const char *sql)
{
    if (sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK) {
        return PK_SQL_DONE;
    }
    enum pk_sql_end end = fail(r);
    (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return end;
}

static const struct pk_sql_base base = {
    .words = {.begin = "BEGIN IMMEDIATE",
              .claim = "INSERT INTO picket_claim (resource, token) VALUES (?, ?)",
              .check = "INSERT INTO picket_check (resource, token) VALUES (?, ?)",
              .look = "SELECT token, shadow, shadowed FROM picket_fence "
                      "WHERE resource = ?",
              .read = "SELECT token, shadow, shadowed, value FROM picket_fence "
                      "WHERE resource = ?",
              .write = "UPDATE picket_fence SET value = ?2 WHERE resource = ?1",
              .mode = "INSERT INTO picket_fence (resource, shadow) VALUES (?, ?) "
                      "ON CONFLICT (resource) DO UPDATE SET shadow = excluded.shadow",
              .overwrite = "INSERT INTO picket_fence (resource, value) VALUES (?, ?) "
                           "ON CONFLICT (resource) DO UPDATE SET value = excluded.value"},
    .connect = open_database,
    .disconnect = close_database,
    .ask = ask,
    .script = script,
};

static enum picket_status open_sqlite(const char *url, struct pk_resource **out)
{
    const char *path = strchr(url, ':') + 1;
    if (path[0] == '\0' || strcmp(path, ":memory:") == 0) {
        return pk_fail(PICKET_BADARG, "sqlite:FILE needs a file: a fence in memory is "
                                      "gone with its process");
    }
    return pk_sql_open(&base, url, url, out);
}

static enum picket_status sql(const struct picket_fence_table *t, char **out)
{
    return pk_sqltext_make(&dialect, t, out);
}

const struct pk_resource_kind pk_resource_sqlite = {.scheme = "sqlite",
                                                    .form = "sqlite:FILE",
                                                    .open = open_sqlite,
                                                    .sql = sql,
                                                    PK_SQL_VERBS};
