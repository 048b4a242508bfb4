/* SPDX-License-Identifier: MIT */
/* MariaDB: mysql://USER:PASSWORD@HOST:PORT/DATABASE, or mariadb://; a local server's
 * socket as ?socket=FILE. MySQL itself has not what sql/mariadb.sql needs. */
#include <errmsg.h>
#include <fcntl.h>
#include <mysql.h>
#include <mysqld_error.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "client/error.h"
#include "client/url.h"
#include "core/door.h"
#include "fence/sql.h"
#include "fence/sqltext.h"
#include "host/memory.h"

#define FORM "mysql://USER:PASSWORD@HOST/DATABASE"
#define OPTIONS "socket"
#define DELIMITER "\n//\n" /* between the statements of a script */

static const struct pk_sqltext dialect = {
    .quote = '`',
    .backslash = PK_BACKSLASH_ESCAPES,
    .begin = "DELIMITER //\n"
             "SET @picket_mode = @@sql_mode, sql_mode = 'STRICT_ALL_TABLES'" DELIMITER,
    .end = "\nSET sql_mode = @picket_mode" DELIMITER "DELIMITER ;\n",
    .base = pk_sqltext_mariadb,
    .guard = pk_sqltext_mariadb_guard,
};

/* ---- how something ended ---- */

static enum pk_sql_end end_of(unsigned code)
{
    switch (code) {
    case 30001: /* sql/mariadb.sql */
        return PK_SQL_STALE;
    case 30002:
        return PK_SQL_UNCLAIMED;
    case ER_NO_SUCH_TABLE:
    case ER_SP_DOES_NOT_EXIST:
        return PK_SQL_ABSENT;
    case ER_LOCK_DEADLOCK:
    case ER_CHECKREAD:
        return PK_SQL_AGAIN;
    case ER_LOCK_WAIT_TIMEOUT:
        return PK_SQL_BLOCKED;
    case ER_ACCESS_DENIED_ERROR:
    case ER_ACCESS_DENIED_NO_PASSWORD_ERROR:
    case ER_DBACCESS_DENIED_ERROR:
    case ER_TABLEACCESS_DENIED_ERROR:
    case ER_COLUMNACCESS_DENIED_ERROR:
    case ER_PROCACCESS_DENIED_ERROR:
    case ER_SPECIFIC_ACCESS_DENIED_ERROR:
    case ER_OPTION_PREVENTS_STATEMENT: /* read_only: a replica */
    case ER_BINLOG_CREATE_ROUTINE_NEED_SUPER:
        return PK_SQL_DENIED;
    case ER_CON_COUNT_ERROR:
    case ER_SERVER_SHUTDOWN:
    case ER_CONNECTION_KILLED:
        return PK_SQL_AWAY;
    default:
        return code >= CR_MIN_ERROR && code <= CR_MAX_ERROR ? PK_SQL_AWAY : PK_SQL_FAILED;
    }
}

static enum pk_sql_end fail(struct pk_resource *r)
{
    return pk_sql_why(r, end_of(mysql_errno(r->db)), mysql_error(r->db));
}

static enum pk_sql_end fail_statement(struct pk_resource *r, MYSQL_STMT *statement)
{
    return pk_sql_why(r, end_of(mysql_stmt_errno(statement)),
                      mysql_stmt_error(statement));
}

/* ---- connections ---- */

static void close_database(struct pk_resource *r)
{
    mysql_close(r->db);
}

/* mysql_init() would do it by itself, but not for several threads at once. */
static void begin_library(void)
{
    int failed = mysql_library_init(0, NULL, NULL);
    PK_ASSERT(failed == 0);
}

static bool dial(MYSQL *db, const struct pk_url *u, const struct pk_place *at)
{
    const unsigned connect_s = PK_SQL_CONNECT_MS / 1000;
    const unsigned answer_s = PK_SQL_ANSWER_MS / 1000;
    mysql_options(db, MYSQL_OPT_CONNECT_TIMEOUT, &connect_s);
    mysql_options(db, MYSQL_OPT_READ_TIMEOUT, &answer_s);
    mysql_options(db, MYSQL_OPT_WRITE_TIMEOUT, &answer_s);
    mysql_options(db, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    const unsigned tcp = MYSQL_PROTOCOL_TCP;
    if (at->port !=
        0) { /* else "localhost" means the default socket, whatever the port */
        mysql_options(db, MYSQL_OPT_PROTOCOL, &tcp);
    }
    const char *host = at->host[0] != '\0' ? at->host : NULL;
    const char *socket = pk_url_option(u, "socket");
    return mysql_real_connect(db, host, u->user, u->password, u->path, at->port,
                              socket[0] != '\0' ? socket : NULL, 0) != NULL;
}

static enum pk_sql_end settle_in(struct pk_resource *r)
{
    char settings[160];
    (void)fcntl(mysql_get_socket(r->db), F_SETFD, FD_CLOEXEC);
    if (strstr(mysql_get_server_info(r->db), "MariaDB") == NULL) {
        return pk_sql_why(r, PK_SQL_FAILED,
                          "the fence is for MariaDB 10.6 or newer, and this is MySQL");
    }
    (void)snprintf(settings, sizeof settings,
                   "SET SESSION innodb_lock_wait_timeout = %d, autocommit = 1, "
                   "tx_isolation = 'REPEATABLE-READ', sql_mode = 'STRICT_ALL_TABLES'",
                   PK_SQL_LOCK_MS / 1000);
    return mysql_query(r->db, settings) == 0 ? PK_SQL_DONE : fail(r);
}

static enum pk_sql_end open_database(struct pk_resource *r)
{
    static pthread_once_t begun = PTHREAD_ONCE_INIT;
    struct pk_url u;
    struct pk_place at;
    enum picket_status s = pk_url_read(r->url, OPTIONS, FORM, &u);
    PK_ASSERT(s == PICKET_OK && pk_url_place(&u, FORM, &at) == PICKET_OK); /* as before */
    pthread_once(&begun, begin_library);
    MYSQL *db = mysql_init(NULL);
    pk_memory_need(db);
    r->db = db;
    enum pk_sql_end end = dial(db, &u, &at) ? settle_in(r) : fail(r);
    if (end != PK_SQL_DONE) {
        close_database(r);
        r->db = NULL;
    }
    pk_url_free(&u);
    return end;
}

/* ---- statements ---- */

static enum pk_sql_end ask_plainly(struct pk_resource *r, const char *text, size_t len)
{
    if (mysql_real_query(r->db, text, len) != 0) {
        return fail(r);
    }
    mysql_free_result(mysql_store_result(r->db)); /* NULL is fine */
    return PK_SQL_DONE;
}

static void bind_bytes(MYSQL_BIND *out, enum enum_field_types type, struct pk_bytes bytes)
{
    out->buffer_type = type;
    out->buffer = (char *)(uintptr_t)bytes.data;
    out->buffer_length = bytes.len;
}

/* Runs the statement with what it is given. Its marks have no numbers, so that an UPDATE
 * takes the value before the name. */
static bool execute(MYSQL_STMT *statement, const char *text,
                    const struct pk_sql_args *args)
{
    enum { ARGS_MAX = 2 };
    MYSQL_BIND in[ARGS_MAX];
    unsigned long long number = args->number != NULL ? *args->number : 0;
    bool updates = strncmp(text, "UPDATE", 6) == 0;
    MYSQL_BIND *name = &in[updates ? 1 : 0];
    MYSQL_BIND *other = &in[updates ? 0 : 1];
    memset(in, 0, sizeof in);
    if (args->name != NULL) {
        bind_bytes(name, MYSQL_TYPE_STRING, pk_text(args->name));
    }
    if (args->number != NULL) {
        other->buffer_type = MYSQL_TYPE_LONGLONG;
        other->buffer = &number;
    } else if (args->value != NULL) {
        bind_bytes(other, MYSQL_TYPE_BLOB, *args->value);
    }
    return mysql_stmt_prepare(statement, text, strlen(text)) == 0 &&
           mysql_stmt_bind_param(statement, in) == 0 &&
           mysql_stmt_execute(statement) == 0;
}

/* Reads the first row, if there is one. */
static bool read_row(MYSQL_STMT *statement, struct pk_sql_row *out)
{
    enum { COLUMNS = 4 };
    MYSQL_BIND row[COLUMNS];
    unsigned long long numbers[3] = {0};
    unsigned long len = 0;
    my_bool none = 0;
    unsigned columns = mysql_stmt_field_count(statement);
    memset(row, 0, sizeof row);
    for (unsigned i = 0; i < 3; i++) {
        row[i].buffer_type = MYSQL_TYPE_LONGLONG;
        row[i].buffer = &numbers[i];
    }
    row[3].buffer_type = MYSQL_TYPE_BLOB;
    row[3].length = &len;
    row[3].is_null = &none;
    if (columns == 0) {
        return true;
    }
    if (mysql_stmt_bind_result(statement, row) != 0 ||
        mysql_stmt_store_result(statement) != 0) {
        return false;
    }
    int fetched = mysql_stmt_fetch(statement); /* truncated: the value, which comes now */
    out->found = fetched == 0 || fetched == MYSQL_DATA_TRUNCATED;
    for (unsigned i = 0; i < 3; i++) {
        out->numbers[i] = (uint64_t)numbers[i];
    }
    if (out->found && columns == COLUMNS && !none) {
        out->len = len;
        out->value = pk_door_resize(NULL, len + 1);
        row[3].buffer = out->value;
        row[3].buffer_length = len;
        return len == 0 || mysql_stmt_fetch_column(statement, &row[3], 3, 0) == 0;
    }
    return fetched != 1;
}

static enum pk_sql_end ask(struct pk_resource *r, const char *text,
                           const struct pk_sql_args *args, struct pk_sql_row *out)
{
    bool row_wanted = strncmp(text, "SELECT", 6) == 0;
    if (args->name == NULL && !row_wanted) {
        return ask_plainly(r, text, strlen(text));
    }
    MYSQL_STMT *statement = mysql_stmt_init(r->db);
    pk_memory_need(statement);
    bool fine =
        execute(statement, text, args) && (!row_wanted || read_row(statement, out));
    enum pk_sql_end end = fine ? PK_SQL_DONE : fail_statement(r, statement);
    mysql_stmt_close(statement);
    return end;
}

/* MariaDB ends a transaction with every definition, so there is none around these. The
 * version is the last to be defined: without it nothing counts as installed, and what is
 * there already is left as it is. */
static enum pk_sql_end script(struct pk_resource *r, const char *sql)
{
    enum pk_sql_end end = PK_SQL_DONE;
    const char *at = strchr(sql, '\n') + 1; /* DELIMITER is for the command line */
    const char *next = strstr(at, DELIMITER);
    for (; end == PK_SQL_DONE && next != NULL; next = strstr(at, DELIMITER)) {
        end = ask_plainly(r, at, (size_t)(next - at));
        at = next + strlen(DELIMITER);
    }
    return end;
}

static const struct pk_sql_base base = {
    .words = {.begin = "START TRANSACTION",
              .claim = "CALL picket_claim(?, ?)",
              .check = "CALL picket_check(?, ?)",
              .look = "SELECT token, shadow, shadowed FROM picket_fence "
                      "WHERE resource = ?",
              .read = "SELECT token, shadow, shadowed, value FROM picket_fence "
                      "WHERE resource = ?",
              .write = "UPDATE picket_fence SET value = ? WHERE resource = ?",
              .mode = "INSERT INTO picket_fence (resource, shadow) VALUES (?, ?) "
                      "ON DUPLICATE KEY UPDATE shadow = VALUES(shadow)",
              .overwrite = "INSERT INTO picket_fence (resource, value) VALUES (?, ?) "
                           "ON DUPLICATE KEY UPDATE value = VALUES(value)"},
    .connect = open_database,
    .disconnect = close_database,
    .ask = ask,
    .script = script,
};

static enum picket_status open_mysql(const char *url, struct pk_resource **out)
{
    struct pk_url u;
    char where[PK_SQL_TEXT_MAX];
    struct pk_place at;
    enum picket_status s = pk_url_read(url, OPTIONS, FORM, &u);
    if (s == PICKET_OK) {
        s = pk_url_place(&u, FORM, &at);
    }
    if (s != PICKET_OK) {
        pk_url_free(&u);
        return s;
    }
    pk_url_show(&u, where, sizeof where);
    s = u.path[0] == '\0'
            ? pk_fail(PICKET_BADARG, "%s names no database; it is " FORM, where)
            : pk_sql_open(&base, url, where, out);
    pk_url_free(&u);
    return s;
}

static enum picket_status sql(const struct picket_fence_table *t, char **out)
{
    return pk_sqltext_make(&dialect, t, out);
}

const struct pk_resource_kind pk_resource_mysql = {.scheme = "mysql",
                                                   .alias = "mariadb",
                                                   .form = FORM,
                                                   .open = open_mysql,
                                                   .sql = sql,
                                                   PK_SQL_VERBS};
