/* SPDX-License-Identifier: MIT */
/* PostgreSQL: postgres://..., whatever libpq understands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/libpq.h"
#include "core/door.h"
#include "fence/sql.h"
#include "fence/sqltext.h"
#include "host/clock.h"
#include "host/memory.h"

enum { BYTEA = 17 }; /* its OID, from pg_type */

static const struct pk_sqltext dialect = {
    .quote = '"',
    .backslash = PK_BACKSLASH_PREFIX,
    .schemas = true,
    .begin = "BEGIN;\n",
    .end = "COMMIT;\n",
    .base = pk_sqltext_postgres,
    .guard = pk_sqltext_postgres_guard,
};

/* ---- how something ended ---- */

static enum pk_sql_end end_of(const char *state)
{
    static const struct {
        const char *state; /* as long as it is: a class of states, or one of them */
        enum pk_sql_end end;
    } ends[] = {
        {"PKT01", PK_SQL_STALE},   {"PKT02", PK_SQL_UNCLAIMED},
        {"42P01", PK_SQL_ABSENT},  /* undefined_table */
        {"42883", PK_SQL_ABSENT},  /* undefined_function */
        {"40", PK_SQL_AGAIN},      /* transaction_rollback: serialization, deadlock */
        {"55P03", PK_SQL_BLOCKED}, /* lock_not_available */
        {"42501", PK_SQL_DENIED},  /* insufficient_privilege */
        {"28", PK_SQL_DENIED},     /* invalid_authorization_specification */
        {"25006", PK_SQL_DENIED},  /* read_only_sql_transaction: a standby */
        {"08", PK_SQL_AWAY},       /* connection_exception */
        {"57P", PK_SQL_AWAY},      /* shut down, starting up, or ended by an operator */
        {"53300", PK_SQL_AWAY},    /* too_many_connections */
    };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (strncmp(state, ends[i].state, strlen(ends[i].state)) == 0) {
            return ends[i].end;
        }
    }
    return PK_SQL_FAILED;
}

static enum pk_sql_end end_of_words(const char *words)
{
    const char *state = pk_libpq_state(words);
    return state != NULL ? end_of(state) : PK_SQL_AWAY;
}

static enum pk_sql_end fail_connection(struct pk_resource *r, PGconn *conn,
                                       enum pk_sql_end end)
{
    return pk_sql_why(r, end, pk_libpq_said(PQerrorMessage(conn)));
}

static enum pk_sql_end fail_result(struct pk_resource *r, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state == NULL) { /* libpq's own: the connection broke */
        return pk_sql_why(r, PK_SQL_AWAY, PQresultErrorMessage(result));
    }
    return pk_sql_why(r, end_of(state), text != NULL ? text : state);
}

/* ---- asking ---- */

/* Ends what was sent: DONE with its result, to be cleared by the caller; else NULL. */
static enum pk_sql_end finish(struct pk_resource *r, int sent, PGresult **out)
{
    PGresult *result =
        sent != 0 ? pk_libpq_receive(r->db, pk_clock_ms() + PK_SQL_ANSWER_MS) : NULL;
    *out = NULL;
    if (result == NULL) {
        return fail_connection(r, r->db, PK_SQL_AWAY);
    }
    ExecStatusType s = PQresultStatus(result);
    if (s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK) {
        *out = result;
        return PK_SQL_DONE;
    }
    enum pk_sql_end end = fail_result(r, result);
    PQclear(result);
    return end;
}

/* ---- the base ---- */

static enum pk_sql_end script(struct pk_resource *r, const char *sql)
{
    PGresult *result;
    enum pk_sql_end end = finish(r, PQsendQuery(r->db, sql), &result);
    PQclear(result);
    if (end != PK_SQL_AWAY && PQtransactionStatus(r->db) == PQTRANS_INERROR) {
        PQclear(PQexec(r->db, "ROLLBACK"));
    }
    return end;
}

static void close_database(struct pk_resource *r)
{
    PQfinish(r->db);
}

static void ignore_notice(void *arg, const PGresult *result)
{
    (void)arg, (void)result;
}

static enum pk_sql_end open_database(struct pk_resource *r)
{
    /* What stands behind the URL wins over it, what stands before gives way to it. */
    const char *const keys[] = {"fallback_application_name", "dbname", "client_encoding",
                                "tcp_user_timeout", NULL};
    const char *const values[] = {"picket", r->url, "UTF8", "20000", NULL};
    char settings[128];
    PGconn *conn = PQconnectStartParams(keys, values, 1);
    pk_memory_need(conn);
    (void)PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    if (PQstatus(conn) == CONNECTION_BAD ||
        !pk_libpq_connect(conn, pk_clock_ms() + PK_SQL_CONNECT_MS)) {
        enum pk_sql_end end = end_of_words(PQerrorMessage(conn));
        (void)fail_connection(r, conn, end);
        PQfinish(conn);
        return end;
    }
    (void)PQsetNoticeReceiver(conn, ignore_notice, NULL);
    (void)snprintf(settings, sizeof settings,
                   "SET lock_timeout = %d; SET default_transaction_isolation = "
                   "'read committed'",
                   PK_SQL_LOCK_MS);
    r->db = conn;
    enum pk_sql_end end = script(r, settings);
    if (end != PK_SQL_DONE) {
        PQfinish(conn);
        r->db = NULL;
    }
    return end;
}

static void read_row(const PGresult *result, struct pk_sql_row *out)
{
    int columns = PQnfields(result);
    out->found = PQntuples(result) > 0;
    for (int i = 0; out->found && i < columns && i < 3; i++) {
        out->numbers[i] = (uint64_t)strtoull(PQgetvalue(result, 0, i), NULL, 10);
    }
    if (out->found && columns > 3 && PQgetisnull(result, 0, 3) == 0) {
        const unsigned char *text = (const unsigned char *)PQgetvalue(result, 0, 3);
        unsigned char *data = PQunescapeBytea(text, &out->len);
        pk_memory_need(data);
        out->value = pk_door_resize(NULL, out->len + 1);
        memcpy(out->value, data, out->len);
        PQfreemem(data);
    }
}

static enum pk_sql_end ask(struct pk_resource *r, const char *text,
                           const struct pk_sql_args *args, struct pk_sql_row *out)
{
    enum { ARGS_MAX = 2 };
    Oid types[ARGS_MAX] = {0};
    const char *values[ARGS_MAX] = {args->name};
    int lengths[ARGS_MAX] = {0};
    int formats[ARGS_MAX] = {0};
    char number[24];
    PGresult *result;
    int count = args->name != NULL ? 1 : 0;
    if (args->number != NULL) {
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)*args->number);
        values[count++] = number;
    } else if (args->value != NULL) {
        types[count] = BYTEA;
        values[count] = args->value->data;
        lengths[count] = (int)args->value->len;
        formats[count++] = 1;
    }
    int sent = PQsendQueryParams(r->db, text, count, types, values, lengths, formats, 0);
    enum pk_sql_end end = finish(r, sent, &result);
    if (result != NULL) {
        read_row(result, out);
        PQclear(result);
    }
    return end;
}

static const struct pk_sql_base base = {
    .words = {.begin = "BEGIN",
              .claim = "SELECT picket_claim($1, $2)",
              .check = "SELECT picket_check($1, $2)",
              .look = "SELECT token, shadow::int, shadowed FROM picket_fence "
                      "WHERE resource = $1",
              .read = "SELECT token, shadow::int, shadowed, value FROM picket_fence "
                      "WHERE resource = $1",
              .write = "UPDATE picket_fence SET value = $2 WHERE resource = $1",
              .mode = "INSERT INTO picket_fence (resource, shadow) VALUES ($1, $2 <> 0) "
                      "ON CONFLICT (resource) DO UPDATE SET shadow = excluded.shadow",
              .overwrite = "INSERT INTO picket_fence (resource, value) VALUES ($1, $2) "
                           "ON CONFLICT (resource) DO UPDATE SET value = excluded.value"},
    .connect = open_database,
    .disconnect = close_database,
    .ask = ask,
    .script = script,
};

/* ---- opening ---- */

static enum picket_status open_postgres(const char *url, struct pk_resource **out)
{
    char where[PK_SQL_TEXT_MAX];
    if (!pk_libpq_show(url, where, sizeof where)) {
        /* libpq's own words would quote the URL, and the password in it. */
        return pk_fail(PICKET_BADARG, "that is not a URL of PostgreSQL; it is "
                                      "postgres://USER@HOST:PORT/DATABASE");
    }
    return pk_sql_open(&base, url, where, out);
}

static enum picket_status sql(const struct picket_fence_table *t, char **out)
{
    return pk_sqltext_make(&dialect, t, out);
}

const struct pk_resource_kind pk_resource_postgres = {.scheme = "postgres",
                                                      .alias = "postgresql",
                                                      .form =
                                                          "postgres://USER@HOST/DATABASE",
                                                      .open = open_postgres,
                                                      .sql = sql,
                                                      PK_SQL_VERBS};
