/* SPDX-License-Identifier: MIT */
/* The connection to PostgreSQL: opening it, asking with a deadline, and what the server
 * says by itself. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/error.h"
#include "client/libpq.h"
#include "core/door.h"
#include "drivers/postgres.h"
#include "host/clock.h"
#include "host/memory.h"

enum {
    BYTEA = 17, /* its OID, from pg_type */
    CONNECT_MS = 5000,
    LET_GO_MS = 2000,
};

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- arguments and rows ---- */

static void add(struct pk_pg_args *a, const char *value)
{
    PK_ASSERT(a->n < PK_PG_ARGS_MAX);
    a->values[a->n++] = value;
}

void pk_pg_number(struct pk_pg_args *a, uint64_t number)
{
    PK_ASSERT(a->n < PK_PG_ARGS_MAX);
    char *text = a->numbers[a->n];
    (void)snprintf(text, sizeof a->numbers[0], "%lld", (long long)number);
    add(a, text);
}

void pk_pg_text(struct pk_pg_args *a, const char *text)
{
    add(a, text);
}

void pk_pg_bool(struct pk_pg_args *a, bool value)
{
    add(a, value ? "t" : "f");
}

void pk_pg_bytes(struct pk_pg_args *a, struct pk_bytes bytes)
{
    PK_ASSERT(a->n < PK_PG_ARGS_MAX);
    a->types[a->n] = BYTEA;
    a->lengths[a->n] = (int)bytes.len;
    a->formats[a->n] = 1;
    add(a, bytes.len > 0 ? bytes.data : "");
}

uint64_t pk_pg_number_at(const PGresult *rows, int row, int column)
{
    if (row >= PQntuples(rows)) {
        return 0;
    }
    return (uint64_t)strtoll(PQgetvalue(rows, row, column), NULL, 10);
}

bool pk_pg_says(const PGresult *rows, const char *word)
{
    return PQntuples(rows) > 0 && strcmp(PQgetvalue(rows, 0, 0), word) == 0;
}

struct pk_bytes pk_pg_bytes_at(const PGresult *rows, int row, int column,
                               unsigned char **copy)
{
    size_t len = 0;
    const char *text = PQgetvalue(rows, row, column);
    *copy = PQunescapeBytea((const unsigned char *)text, &len);
    pk_memory_need(*copy);
    return pk_bytes(*copy, len);
}

/* ---- how something ended ---- */

/* What an SQLSTATE means when a transaction has failed: it has changed nothing. */
static enum picket_status status_of(const char *state)
{
    static const struct {
        const char *state; /* as long as it is: a class of states, or one of them */
        enum picket_status status;
    } table[] = {
        {"42501", PICKET_DENIED},      /* insufficient_privilege */
        {"28", PICKET_DENIED},         /* invalid_authorization_specification */
        {"08P01", PICKET_STORE},       /* protocol_violation: a pooler refuses */
        {"40", PICKET_UNREACHABLE},    /* transaction_rollback: serialization, deadlock */
        {"55P03", PICKET_UNREACHABLE}, /* lock_not_available */
        {"57014", PICKET_UNREACHABLE}, /* query_canceled: it took too long */
        {"57P", PICKET_UNREACHABLE},   /* shut down, starting up, ended by an operator */
        {"53300", PICKET_UNREACHABLE}, /* too_many_connections */
        {"08", PICKET_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strncmp(state, table[i].state, strlen(table[i].state)) == 0) {
            return table[i].status;
        }
    }
    return PICKET_STORE;
}

/* The first line, without the state that may stand before it. */
static int line_of(const char *words)
{
    return (int)strcspn(words, "\n");
}

static enum picket_status fail_connect(const struct pk_pg *pg, PGconn *conn)
{
    const char *words = PQerrorMessage(conn);
    const char *state = pk_libpq_state(words);
    if (state != NULL) {
        enum picket_status s = status_of(state);
        const char *said = state + strlen("28P01: ");
        return s == PICKET_DENIED
                   ? pk_fail(s, "%s does not let us in: %.*s", pg->where, line_of(said),
                             said)
                   : pk_fail(s, "%s refuses: %.*s", pg->where, line_of(said), said);
    }
    /* No PostgreSQL would answer so. */
    if (strstr(words, "expected authentication request") != NULL ||
        strstr(words, "invalid response to SSL negotiation") != NULL) {
        return pk_fail(PICKET_STORE,
                       "%s is not a PostgreSQL server; give the port where one listens",
                       pg->where);
    }
    /* libpq would go on: then it was us who gave up. */
    const char *said =
        PQstatus(conn) != CONNECTION_BAD ? "no answer in time" : pk_libpq_said(words);
    return pk_fail(PICKET_UNREACHABLE, "can't connect to %s: %.*s", pg->where,
                   line_of(said), said);
}

static enum picket_status fail_result(const struct pk_pg *pg, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state == NULL || strncmp(state, "57P", 3) == 0) {
        /* libpq's own words: the connection broke. Or the server ended it, perhaps just
         * after it has committed. */
        return pk_fail(PICKET_UNKNOWN, "%s has broken the connection", pg->where);
    }
    enum picket_status s = status_of(state);
    return s == PICKET_DENIED
               ? pk_fail(
                     s,
                     "%s: %s; as the owner of schema picket, GRANT this role USAGE on "
                     "it and ALL on its tables and sequences",
                     pg->where, text)
               : pk_fail(s, "%s: %s", pg->where, text != NULL ? text : state);
}

/* ---- exchanging, with the mutex ---- */

void pk_pg_drop(struct pk_pg *pg)
{
    if (pg->conn != NULL) {
        PQfinish(pg->conn);
        pg->conn = NULL;
        pg->unanswered = false;
    }
    if (pg->session && pg->lease != 0) {
        /* The server may not know yet, but for us it is over: nothing can renew it. */
        pg->lost = pg->lease;
        pg->lost_waits = pg->lost_failures = 0;
        pg->lost_at_ms = 0;
        pg->lease = 0;
        pk_bridge_lease_ended(pg->bridge, pg->lost, PK_END_EXPIRED);
    }
}

/* No answer came. A session that is a lease is not given up for that: its answer may come
 * later, and until then the lease lives by what was renewed before. */
static enum picket_status fail_silent(struct pk_pg *pg)
{
    bool late = PQtransactionStatus(pg->conn) == PQTRANS_ACTIVE;
    const char *said =
        late ? "no answer in time" : pk_libpq_said(PQerrorMessage(pg->conn));
    enum picket_status s =
        pk_fail(PICKET_UNKNOWN, "%s: %.*s", pg->where, line_of(said), said);
    pg->unanswered = late && pg->session && pg->lease != 0;
    if (!pg->unanswered) {
        pk_pg_drop(pg);
    }
    return s;
}

/* Waits for that answer, which nobody wants to know any more. False: it did not come, or
 * something failed, so that nobody knows what the session holds. */
static bool caught_up(struct pk_pg *pg, uint64_t until_ms)
{
    PGresult *old = pk_libpq_receive(pg->conn, until_ms);
    bool failed = old != NULL && PQresultStatus(old) == PGRES_FATAL_ERROR;
    PQclear(old);
    pg->unanswered = PQtransactionStatus(pg->conn) != PQTRANS_IDLE;
    return !failed && !pg->unanswered;
}

PGresult *pk_pg_exchange(struct pk_pg *pg, const char *statement,
                         const struct pk_pg_args *args, uint64_t until_ms,
                         enum picket_status *s)
{
    if (pg->unanswered && !caught_up(pg, until_ms)) {
        *s = fail_silent(pg);
        return NULL;
    }
    int sent = args == NULL
                   ? PQsendQuery(pg->conn, statement)
                   : PQsendQueryParams(pg->conn, statement, args->n, args->types,
                                       args->values, args->lengths, args->formats, 0);
    PGresult *result = sent != 0 ? pk_libpq_receive(pg->conn, until_ms) : NULL;
    if (result == NULL) {
        *s = fail_silent(pg);
        return NULL;
    }
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) {
        *s = PICKET_OK;
        return result;
    }
    *s = fail_result(pg, result);
    PQclear(result);
    if (*s == PICKET_UNKNOWN || PQtransactionStatus(pg->conn) != PQTRANS_IDLE) {
        pk_pg_drop(pg);
    }
    return NULL;
}

/* One that gives nothing. */
static enum picket_status tell_server(struct pk_pg *pg, const char *statement,
                                      uint64_t until_ms)
{
    enum picket_status s;
    PQclear(pk_pg_exchange(pg, statement, NULL, until_ms, &s));
    return s;
}

/* ---- connecting, with the mutex ---- */

static void ignore_notice(void *arg, const PGresult *result)
{
    (void)arg, (void)result;
}

PGconn *pk_pg_dial(struct pk_pg *pg, uint64_t until_ms, enum picket_status *s)
{
    /* What stands behind the URL wins over it, what stands before gives way to it. The
     * timeout is also that of a connect: libpq takes the next host after it. */
    const char *const keys[] = {"fallback_application_name", "tcp_user_timeout", "dbname",
                                "client_encoding", NULL};
    const char *const values[] = {"picket", "3000", pg->url, "UTF8", NULL};
    PGconn *conn = PQconnectStartParams(keys, values, 1);
    pk_memory_need(conn);
    (void)PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    (void)PQsetNoticeReceiver(conn, ignore_notice, NULL);
    bool connected =
        PQstatus(conn) != CONNECTION_BAD &&
        pk_libpq_connect(conn, earlier(until_ms, pk_clock_ms() + CONNECT_MS));
    *s = connected ? PICKET_OK : fail_connect(pg, conn);
    if (!connected) {
        PQfinish(conn);
        return NULL;
    }
    (void)PQsetnonblocking(conn, 1);
    return conn;
}

/* The server is one that can keep locks, and how its settings must be for us. A role's or
 * a database's own settings must neither weaken a commit nor end our statements. */
static enum picket_status settle_in(struct pk_pg *pg, uint64_t until_ms)
{
    int version = PQserverVersion(pg->conn);
    if (version < PK_PG_SERVER_LEAST) {
        return pk_fail(PICKET_STORE, "%s is PostgreSQL %d; 12 or newer is needed",
                       pg->where, version / 10000);
    }
    enum picket_status s;
    PGresult *rows = pk_pg_exchange(
        pg, "SELECT pg_backend_pid(), pg_is_in_recovery()::int", NULL, until_ms, &s);
    if (rows == NULL) {
        return s;
    }
    pg->pid = (int)pk_pg_number_at(rows, 0, 0);
    bool standby = pk_pg_number_at(rows, 0, 1) != 0;
    PQclear(rows);
    if (standby) {
        return pk_fail(PICKET_STORE,
                       "%s is a standby, which can't be written to; give the primary, or "
                       "all hosts and ?target_session_attrs=read-write",
                       pg->where);
    }
    s = pk_pg_private(pg, until_ms);
    char settings[1024];
    (void)snprintf(settings, sizeof settings,
                   "SET search_path = pg_catalog; SET lock_timeout = '10s'; "
                   "SET statement_timeout = '30s'; "
                   "SET idle_in_transaction_session_timeout = '30s'; "
                   "SET default_transaction_isolation = 'read committed'; "
                   "SET default_transaction_read_only = off; %s%s"
                   "SELECT set_config('synchronous_commit', 'on', false) "
                   "WHERE current_setting('synchronous_commit') <> 'remote_apply'",
                   version >= PK_PG_SERVER_IDLE ? "SET idle_session_timeout = 0; " : "",
                   version >= PK_PG_SERVER_LIMITS ? "SET transaction_timeout = 0; " : "");
    return s == PICKET_OK ? tell_server(pg, settings, until_ms) : s;
}

/* Whether the statement failed because there is no such table or schema. */
static bool is_absent(const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return state != NULL && (strcmp(state, "42P01") == 0 || strcmp(state, "3F000") == 0);
}

static enum picket_status install(struct pk_pg *pg, uint64_t until_ms)
{
    enum picket_status s = tell_server(pg, pk_postgres_locks, until_ms);
    return s == PICKET_DENIED
               ? pk_fail(s,
                         "%s: this role may not create schema picket; GRANT CREATE ON "
                         "DATABASE to it once, or let another role come first",
                         pg->where)
               : s;
}

/* Finds our functions in the database, or puts them there. */
static enum picket_status move_in(struct pk_pg *pg, uint64_t until_ms)
{
    static const char question[] = "SELECT version FROM picket.about";
    PGresult *rows = PQsendQuery(pg->conn, question) != 0
                         ? pk_libpq_receive(pg->conn, until_ms)
                         : NULL;
    bool absent = rows != NULL && is_absent(rows);
    PQclear(rows);
    enum picket_status s = absent ? install(pg, until_ms) : PICKET_OK;
    if (s != PICKET_OK) {
        return s;
    }
    rows = pk_pg_exchange(pg, question, NULL, until_ms, &s);
    if (rows == NULL) {
        return s;
    }
    uint64_t version = pk_pg_number_at(rows, 0, 0);
    PQclear(rows);
    return version == PK_PG_SQL_VERSION
               ? PICKET_OK
               : pk_fail(PICKET_STORE,
                         "%s has locks of version %llu, this is version %d; use the "
                         "picket that installed them, or drop schema picket there",
                         pg->where, (unsigned long long)version, PK_PG_SQL_VERSION);
}

enum picket_status pk_pg_listen(struct pk_pg *pg, uint64_t until_ms)
{
    char statement[80];
    (void)snprintf(statement, sizeof statement, "UNLISTEN *; LISTEN picket_%llu",
                   (unsigned long long)pg->lease);
    return tell_server(pg, statement, until_ms);
}

/* The lease goes on over the new connection. What was told meanwhile is missed. */
static enum picket_status resume(struct pk_pg *pg, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    enum picket_status s = pk_pg_listen(pg, until_ms);
    if (s != PICKET_OK) {
        return s;
    }
    pk_pg_number(&a, pg->lease);
    PGresult *rows =
        pk_pg_exchange(pg, "SELECT picket.lease_resume($1)", &a, until_ms, &s);
    if (rows != NULL) {
        pg->era =
            (int64_t)pk_pg_number_at(rows, 0, 0); /* 0: it is over, as they'll say */
        PQclear(rows);
        pk_bridge_stir(pg->bridge, pg->lease, 0);
    }
    return s;
}

static enum picket_status connect_now(struct pk_pg *pg, uint64_t until_ms)
{
    enum picket_status s;
    pg->conn = pk_pg_dial(pg, until_ms, &s);
    if (pg->conn == NULL) {
        return s;
    }
    s = settle_in(pg, until_ms);
    if (s == PICKET_OK) {
        s = move_in(pg, until_ms);
    }
    if (s == PICKET_OK && pg->lease != 0) {
        s = resume(pg, until_ms);
    }
    if (s != PICKET_OK) {
        char why[PK_SENTENCE_MAX];
        pk_sentence_save(why);
        pk_pg_drop(pg);
        pk_sentence_restore(why);
    }
    /* The statement itself was not even sent. */
    return s == PICKET_UNKNOWN ? PICKET_UNREACHABLE : s;
}

/* ---- what the server says by itself, with the mutex ---- */

/* A session's lock can be given back by itself alone. If it can't, the session ends. */
static void let_go(struct pk_pg *pg, uint64_t request)
{
    struct pk_pg_args a = {0};
    enum picket_status s;
    pk_pg_number(&a, pg->lease);
    pk_pg_number(&a, request);
    PGresult *rows = pk_pg_exchange(pg, "SELECT picket.session_leave($1, $2)", &a,
                                    pk_clock_ms() + LET_GO_MS, &s);
    if (rows == NULL) {
        pk_pg_drop(pg);
    }
    PQclear(rows);
}

/* One line after the other: the word, the request, who and why. */
static void hear(struct pk_pg *pg, char *words)
{
    const char *lines[4];
    char *rest = words;
    for (int i = 0; i < 4; i++) {
        lines[i] = strsep(&rest, "\n"); /* NULL after the last */
    }
    uint64_t request = lines[1] != NULL ? (uint64_t)strtoll(lines[1], NULL, 10) : 0;
    if (strcmp(words, "granted") == 0) {
        pk_bridge_stir(pg->bridge, pg->lease, request);
    } else if (strcmp(words, "over") == 0) {
        pk_bridge_lease_ended(pg->bridge, pg->lease, PK_END_EXPIRED);
    } else if (strcmp(words, "released") == 0) {
        pk_bridge_ended(pg->bridge, pg->lease, request, PK_END_RELEASED, NULL, NULL);
    } else if (strcmp(words, "broken") == 0) {
        if (pg->session) {
            let_go(pg, request);
        }
        pk_bridge_ended(pg->bridge, pg->lease, request, PK_END_BROKEN, lines[2],
                        lines[3]);
    }
}

static void hear_all(struct pk_pg *pg)
{
    PGnotify *n;
    char ours[40];
    while (pg->conn != NULL && (n = PQnotifies(pg->conn)) != NULL) {
        (void)snprintf(ours, sizeof ours, "picket_%llu", (unsigned long long)pg->lease);
        if (pg->lease != 0 && strcmp(n->relname, ours) == 0) {
            hear(pg, n->extra);
        }
        PQfreemem(n);
    }
}

/* Reads what is there. False: the connection is broken. */
static bool take_in(struct pk_pg *pg)
{
    if (pg->conn == NULL) {
        return true;
    }
    bool alive = PQconsumeInput(pg->conn) != 0 && PQstatus(pg->conn) == CONNECTION_OK;
    hear_all(pg);
    if (!alive) {
        pk_pg_drop(pg);
    }
    return alive;
}

bool pk_pg_await(void *own, uint64_t until_ms)
{
    struct pk_pg *pg = own;
    pthread_mutex_lock(&pg->mutex);
    int fd = pg->conn != NULL ? PQsocket(pg->conn) : -1;
    pthread_mutex_unlock(&pg->mutex);
    if (!pk_bridge_sleep(pg->bridge, fd, until_ms)) {
        return false;
    }
    pthread_mutex_lock(&pg->mutex);
    bool alive = take_in(pg);
    pthread_mutex_unlock(&pg->mutex);
    return !alive;
}

/* ---- asking ---- */

/* Another transaction got in the way: nothing was done, and the connection is fine. */
static bool conflicted(enum picket_status s, const PGconn *conn)
{
    return s == PICKET_UNREACHABLE && conn != NULL;
}

enum picket_status pk_pg_ask(struct pk_pg *pg, const char *statement,
                             const struct pk_pg_args *args, uint64_t until_ms,
                             PGresult **out)
{
    enum picket_status s = PICKET_OK;
    *out = NULL;
    pthread_mutex_lock(&pg->mutex);
    (void)take_in(pg); /* a connection that has broken since is replaced at once */
    if (pg->conn == NULL) {
        s = connect_now(pg, until_ms);
    }
    if (s == PICKET_OK) {
        *out = pk_pg_exchange(pg, statement, args, until_ms, &s);
    }
    if (conflicted(s, pg->conn)) {
        *out = pk_pg_exchange(pg, statement, args, until_ms, &s);
    }
    hear_all(pg);
    pthread_mutex_unlock(&pg->mutex);
    return s;
}

enum picket_status pk_pg_ask_session(struct pk_pg *pg, uint64_t lease,
                                     const char *statement, const struct pk_pg_args *args,
                                     uint64_t until_ms, PGresult **out)
{
    enum picket_status s = PICKET_OK;
    *out = NULL;
    pthread_mutex_lock(&pg->mutex);
    (void)take_in(pg);
    bool alive = pg->conn != NULL && pg->lease == lease;
    if (alive) {
        *out = pk_pg_exchange(pg, statement, args, until_ms, &s);
        hear_all(pg);
        alive = pg->lease == lease;
    }
    if (alive && *out == NULL && !pg->unanswered) {
        /* What the session holds after something unforeseen, nobody knows. */
        pk_pg_drop(pg);
    } else if (!alive) {
        PQclear(*out);
        *out = NULL;
        s = pk_fail(PICKET_LOST, "the session at %s has ended, and its locks with it",
                    pg->where);
    }
    pthread_mutex_unlock(&pg->mutex);
    return s;
}

enum picket_status pk_pg_do(struct pk_pg *pg, const char *statement,
                            const struct pk_pg_args *args, uint64_t until_ms)
{
    PGresult *rows;
    enum picket_status s = pk_pg_ask(pg, statement, args, until_ms, &rows);
    PQclear(rows);
    return s;
}
