/* SPDX-License-Identifier: MIT */
/* PostgreSQL: postgres://..., whatever libpq understands. We wait for the socket
 * ourselves, since libpq alone would wait for a silent server for ever. */
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"
#include "fence/sql.h"
#include "fence/sqltext.h"
#include "host/clock.h"

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

/* The state in the words of a connection that failed: "FATAL:  28P01: ...", as libpq
 * tells it in no other way. Empty: the server has said nothing. */
static enum pk_sql_end end_of_words(const char *words)
{
    const char *fatal = strstr(words, ":  ");
    bool coded = fatal != NULL && strlen(fatal) > 9 && strncmp(fatal + 8, ": ", 2) == 0;
    return coded ? end_of(fatal + 3) : PK_SQL_AWAY;
}

static enum pk_sql_end fail_connection(struct pk_resource *r, PGconn *conn,
                                       enum pk_sql_end end)
{
    const char *words = PQerrorMessage(conn);
    const char *said = strstr(words, ":  ");
    return pk_sql_why(r, end,
                      said != NULL       ? said + 3
                      : words[0] != '\0' ? words
                                         : "no answer in time");
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

/* ---- waiting, never longer than until `end_ms` ---- */

static bool wait_for(PGconn *conn, short events, uint64_t end_ms)
{
    uint64_t now = pk_clock_ms();
    struct pollfd p = {.fd = PQsocket(conn), .events = events};
    return p.fd >= 0 && now < end_ms && poll(&p, 1, (int)(end_ms - now)) > 0;
}

static bool connected(PGconn *conn)
{
    uint64_t end_ms = pk_clock_ms() + PK_SQL_CONNECT_MS;
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    while (next == PGRES_POLLING_WRITING || next == PGRES_POLLING_READING) {
        if (!wait_for(conn, next == PGRES_POLLING_READING ? POLLIN : POLLOUT, end_ms)) {
            return false;
        }
        next = PQconnectPoll(conn);
    }
    return next == PGRES_POLLING_OK;
}

/* The last result of what was sent; NULL: none came. */
static PGresult *receive(PGconn *conn)
{
    uint64_t end_ms = pk_clock_ms() + PK_SQL_ANSWER_MS;
    PGresult *last = NULL;
    for (;;) {
        while (PQisBusy(conn) != 0) {
            if (!wait_for(conn, POLLIN, end_ms) || PQconsumeInput(conn) == 0) {
                PQclear(last);
                return NULL;
            }
        }
        PGresult *next = PQgetResult(conn);
        if (next == NULL) {
            return last;
        }
        bool failed = last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR;
        PQclear(failed ? next : last);
        last = failed ? last : next;
    }
}

/* Ends what was sent: DONE with its result, to be cleared by the caller; else NULL. */
static enum pk_sql_end finish(struct pk_resource *r, int sent, PGresult **out)
{
    PGresult *result = sent != 0 ? receive(r->db) : NULL;
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
    PK_ASSERT(conn != NULL);
    (void)PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    if (PQstatus(conn) == CONNECTION_BAD || !connected(conn)) {
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
        PK_ASSERT(data != NULL);
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

/* ---- the URL, for people ---- */

static const char *option(const PQconninfoOption *options, const char *key)
{
    for (; options->keyword != NULL; options++) {
        if (strcmp(options->keyword, key) == 0) {
            return options->val != NULL ? options->val : "";
        }
    }
    return "";
}

static bool print_where(const char *url, char *out, size_t size)
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    if (options == NULL) {
        return false;
    }
    const char *user = option(options, "user");
    const char *host = option(options, "host");
    const char *port = option(options, "port");
    int n =
        snprintf(out, size, "postgres://%s%s%s%s%s/%s", user, *user != '\0' ? "@" : "",
                 host, *port != '\0' ? ":" : "", port, option(options, "dbname"));
    long number = strtol(port, NULL, 10);
    bool fine = n > 0 && (size_t)n < size &&
                (port[0] == '\0' || (number > 0 && number <= UINT16_MAX));
    PQconninfoFree(options);
    return fine;
}

static enum picket_status open_postgres(const char *url, struct pk_resource **out)
{
    char where[PK_SQL_TEXT_MAX];
    if (!print_where(url, where, sizeof where)) {
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
