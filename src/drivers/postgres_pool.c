/* SPDX-License-Identifier: MIT */
/*
 * Is the backend behind our connection ours alone? A pooler that gives it to others
 * between two transactions (pool_mode=transaction) would take our advisory locks, our
 * settings and what we listen to along.
 *
 * A pooler speaks for the server when a client connects: the process id that it names is
 * not that of the backend. That costs nothing to see. Whether it keeps to one backend is
 * tried out with a second connection: both have a transaction, so they have two backends;
 * both end it; then both begin again. Poolers take either the backend that was given back
 * last or the one that was given back first, so that in one of the two orders they are
 * swapped. Nothing is set or locked before that is known, since it would stay with some
 * backend of others.
 */
#include "client/error.h"
#include "client/libpq.h"
#include "drivers/postgres.h"
#include "host/clock.h"

enum { TRIAL_MS = 2000 };

enum picket_status pk_pg_pooled(const struct pk_pg *pg)
{
    return pk_fail(
        PICKET_STORE,
        "%s is a pooler that gives our backend to others between transactions; "
        "connect to the server itself, or set pool_mode=session there",
        pg->where);
}

/* Runs the script; the number that it gives, 0: it failed. */
static int number_of(PGconn *conn, const char *script, uint64_t until_ms)
{
    PGresult *rows =
        PQsendQuery(conn, script) != 0 ? pk_libpq_receive(conn, until_ms) : NULL;
    int number = rows != NULL && PQresultStatus(rows) == PGRES_TUPLES_OK
                     ? (int)pk_pg_number_at(rows, 0, 0)
                     : 0;
    PQclear(rows);
    return number;
}

enum trial { SAME, SWAPPED, UNCLEAR };

/* Both have a backend, and give it back one after the other. Then one asks for one again,
 * and after it the other: `first` is who does so before the other. */
static enum trial try_out(PGconn *conns[2], int first, uint64_t until_ms)
{
    static const char begin[] = "BEGIN; SELECT pg_backend_pid()";
    int before[2] = {0, 0};
    int after[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        before[i] = number_of(conns[i], begin, until_ms);
    }
    for (int i = 0; i < 2; i++) {
        (void)number_of(conns[i], "COMMIT", until_ms);
    }
    for (int i = 0; i < 2; i++) {
        int who = i == 0 ? first : 1 - first;
        after[who] = number_of(conns[who], begin, until_ms);
    }
    for (int i = 0; i < 2; i++) {
        (void)number_of(conns[i], "COMMIT", until_ms);
    }
    bool clear = before[0] != 0 && before[1] != 0 && after[0] != 0 && after[1] != 0;
    bool same = before[0] == after[0] && before[1] == after[1];
    return !clear ? UNCLEAR : same ? SAME : SWAPPED;
}

enum picket_status pk_pg_private(struct pk_pg *pg, uint64_t until_ms)
{
    if (pg->pid == PQbackendPID(pg->conn)) {
        return PICKET_OK;
    }
    uint64_t limit = pk_clock_ms() + TRIAL_MS;
    enum picket_status s;
    limit = limit < until_ms ? limit : until_ms;
    PGconn *other = pk_pg_dial(pg, limit, &s);
    if (other == NULL) {
        return s;
    }
    PGconn *both[2] = {pg->conn, other};
    enum trial found = try_out(both, 0, limit);
    if (found == SAME) {
        found = try_out(both, 1, limit);
    }
    PQfinish(other);
    return found == SAME ? PICKET_OK
           : found == SWAPPED
               ? pk_pg_pooled(pg)
               : pk_fail(PICKET_STORE,
                         "%s is a pooler that gave us no two backends to "
                         "find out its mode; connect to the server itself, "
                         "or set pool_mode=session and a larger pool there",
                         pg->where);
}
