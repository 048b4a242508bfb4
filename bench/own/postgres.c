/* SPDX-License-Identifier: MIT */
/*
 * PostgreSQL's own ways, over libpq with prepared statements: an advisory lock of the
 * session, or a row that is inserted and deleted. postgres-pairs URL advisory|row SECONDS
 */
#include <libpq-fe.h>
#include <string.h>

#include "series.h"

static bool run(PGconn *c, const char *name)
{
    PGresult *r = PQexecPrepared(c, name, 0, NULL, NULL, NULL, 0);
    ExecStatusType s = PQresultStatus(r);
    bool done = s == PGRES_TUPLES_OK ||
                (s == PGRES_COMMAND_OK && strcmp(PQcmdTuples(r), "1") == 0);
    PQclear(r);
    return done;
}

static bool acquire(void *arg)
{
    return run(arg, "acquire");
}

static bool release(void *arg)
{
    return run(arg, "release");
}

static bool prepare(PGconn *c, const char *name, const char *statement)
{
    PGresult *r = PQprepare(c, name, statement, 0, NULL);
    bool done = PQresultStatus(r) == PGRES_COMMAND_OK;
    PQclear(r);
    return done;
}

int main(int argc, char **argv)
{
    PGconn *c = argc == 4 ? PQconnectdb(argv[1]) : NULL;
    bool rows = c != NULL && strcmp(argv[2], "row") == 0;
    if (rows) {
        PQclear(PQexec(c, "CREATE TABLE IF NOT EXISTS bench_lock (name text PRIMARY KEY, "
                          "owner text NOT NULL, ends timestamptz NOT NULL)"));
    }
    bool ready =
        c != NULL &&
        prepare(c, "acquire",
                rows ? "INSERT INTO bench_lock VALUES ('bench/one', 'me', "
                       "clock_timestamp() + interval '60 s') ON CONFLICT DO NOTHING"
                     : "SELECT pg_advisory_lock(hashtextextended('bench/one', 0))") &&
        prepare(c, "release",
                rows ? "DELETE FROM bench_lock WHERE name = 'bench/one' AND owner = 'me'"
                     : "SELECT pg_advisory_unlock(hashtextextended('bench/one', 0))");
    if (!ready || !series_run(strtod(argv[3], NULL), acquire, release, c)) {
        (void)fprintf(stderr, "postgres-pairs URL advisory|row SECONDS: %s\n",
                      PQerrorMessage(c));
        return 1;
    }
    PQfinish(c);
    return 0;
}
