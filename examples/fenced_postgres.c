/* SPDX-License-Identifier: MIT */
/*
 * Writes to PostgreSQL that a late holder can't make.
 *
 *     fenced_postgres CONNINFO ACCOUNT AMOUNT [THINK_MS]        (1000 ms)
 *
 * Prepare the database once (docs/fencing.md):
 *     $ picket fence install postgres://app@localhost/shop
 *     $ psql postgres://app@localhost/shop -c \
 *         "CREATE TABLE account (name text PRIMARY KEY, balance bigint NOT NULL);
 *          INSERT INTO account VALUES ('alice', 0)"
 *
 * One transaction: SELECT picket_claim(account, token), then read, then write. The claim
 * comes first and locks the fence's row until COMMIT, so nobody gets in between.
 *
 * In two terminals:
 *     $ fenced_postgres postgres://app@localhost/shop alice 10     balance 10
 *     $ fenced_postgres postgres://app@localhost/shop alice 10     waits; balance 20
 *
 * SIGSTOP the first while it thinks, for more than 2 s: the second goes on. Woken up, the
 * first claims with its old token, and PostgreSQL says PKT01: 1. Stopped earlier it is
 * told by its checkpoint: 123. Stopped within the transaction it would block the second's
 * claim; so the server ends transactions that idle for longer than a lease lasts, and the
 * first finds its connection closed: 125, nothing written.
 *
 * Exit codes: 0 done; 1 refused by the fence; 123 the lock was lost; 125 an error.
 */
#include <inttypes.h>
#include <libpq-fe.h>
#include <picket.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TTL_MS = 5000, TRIES = 10 };

/* How a transaction ended. */
enum verdict { DONE, AGAIN, STALE, FAILED };

static int fail(int code, const char *why)
{
    (void)fprintf(stderr, "fenced_postgres: %.*s\n", (int)strcspn(why, "\n"), why);
    return code;
}

static enum verdict judge(const char *state)
{
    if (state == NULL) { /* no word from the server: the connection is gone */
        return FAILED;
    }
    if (strcmp(state, "PKT01") == 0) {
        return STALE;
    }
    return strcmp(state, "40001") == 0 ? AGAIN : FAILED; /* 40001: it was in the way */
}

/* Runs one statement; its first value, if it has one, goes to `out` (may be NULL). */
static enum verdict ask(PGconn *db, const char *statement, int n, const char *const *args,
                        long long *out)
{
    PGresult *r = PQexecParams(db, statement, n, NULL, args, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(r);
    enum verdict v = FAILED;
    if (status == PGRES_TUPLES_OK && out != NULL && PQntuples(r) == 0) {
        (void)fail(0, "there is no such account");
    } else if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
        v = DONE;
    } else {
        (void)fail(0, PQerrorMessage(db));
        v = judge(PQresultErrorField(r, PG_DIAG_SQLSTATE));
    }
    if (v == DONE && out != NULL) {
        *out = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
    }
    PQclear(r);
    return v;
}

/* Claim, read, write: all of it or nothing. */
static enum verdict deposit(PGconn *db, const char *account, uint64_t token,
                            long long amount, long long *balance)
{
    char number[24];
    const char *args[] = {account, number};
    enum verdict v = ask(db, "BEGIN", 0, NULL, NULL);
    (void)snprintf(number, sizeof number, "%" PRIu64, token);
    if (v == DONE) {
        v = ask(db, "SELECT picket_claim($1, $2)", 2, args, NULL);
    }
    if (v == DONE) {
        v = ask(db, "SELECT balance FROM account WHERE name = $1", 1, args, balance);
    }
    if (v == DONE) {
        *balance += amount;
        (void)snprintf(number, sizeof number, "%lld", *balance);
        v = ask(db, "UPDATE account SET balance = $2 WHERE name = $1", 2, args, NULL);
    }
    if (v != DONE) {
        (void)ask(db, "ROLLBACK", 0, NULL, NULL);
        return v;
    }
    v = ask(db, "COMMIT", 0, NULL, NULL);
    if (v == FAILED) {
        (void)fail(125, "COMMIT was not confirmed: look whether it was paid");
    }
    return v;
}

/* Tries again when PostgreSQL asks for that. Returns the exit code. */
static int work(PGconn *db, struct picket_lock *lock, const char *account,
                long long amount, int think_ms)
{
    long long balance = 0;
    enum verdict v = AGAIN;
    for (int i = 0; v == AGAIN && i < TRIES; i++) {
        if (picket_checkpoint(lock, (uint64_t)think_ms) != PICKET_OK) {
            return fail(123, picket_last_error());
        }
        (void)printf("thinking, token %" PRIu64 "\n", picket_token(lock));
        (void)poll(NULL, 0, think_ms); /* here nobody looks at the lock */
        v = deposit(db, account, picket_token(lock), amount, &balance);
    }
    if (v != DONE) {
        return v == STALE ? 1 : 125;
    }
    (void)printf("balance %lld\n", balance);
    return 0;
}

int main(int argc, char **argv)
{
    struct picket *p = NULL;
    struct picket_lock *lock;
    const struct picket_options options = {.ttl_ms = TTL_MS};
    const char limit[] = "SET idle_in_transaction_session_timeout = '5s'"; /* the TTL */
    long long amount = argc > 3 ? strtoll(argv[3], NULL, 10) : 0;
    long think_ms = argc > 4 ? strtol(argv[4], NULL, 10) : TTL_MS / 2;
    if (amount == 0 || think_ms < 0 || think_ms > TTL_MS / 2) {
        return fail(125, "usage: fenced_postgres CONNINFO ACCOUNT AMOUNT [THINK_MS]");
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* each line at once, also into a pipe */
    PGconn *db = PQconnectdb(argv[1]);
    int code = 125;
    if (PQstatus(db) != CONNECTION_OK) {
        (void)fail(code, PQerrorMessage(db));
    } else if (ask(db, limit, 0, NULL, NULL) != DONE) {
        (void)fail(code, "the limit for transactions that idle could not be set");
    } else if (picket_open(NULL, &options, &p) == PICKET_OK &&
               picket_acquire(p, argv[2], NULL, &lock) == PICKET_OK) {
        code = work(db, lock, argv[2], amount, (int)think_ms);
    } else {
        (void)fail(code, picket_last_error());
    }
    picket_close(p);
    PQfinish(db);
    return code;
}
