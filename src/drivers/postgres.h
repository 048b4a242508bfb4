/* SPDX-License-Identifier: MIT */
/*
 * The driver for PostgreSQL, in its files: postgres.c (URLs, guarantees, what both modes
 * share), postgres_lease.c (a lease is a row), postgres_session.c (a lease is a session,
 * its locks are advisory locks), postgres_link.c (the connection), postgres_pool.c (is
 * there a pooler in between), postgres_examine.c (for `picket doctor`). What runs in the
 * database is sql/postgres.sql, and each call is one statement of it.
 *
 * There is one connection. `mutex` lets one thread at a time use it: who asks has it
 * until the answer is there, the keeper's thread takes it when the socket has something
 * to say.
 */
#ifndef PICKET_DRIVERS_POSTGRES_H
#define PICKET_DRIVERS_POSTGRES_H

#include <libpq-fe.h>
#include <pthread.h>

#include "drivers/bridge.h"

enum {
    PK_PG_SQL_VERSION = 1,        /* of what sql/ installs: picket.about there */
    PK_PG_SERVER_LEAST = 120000,  /* as PQserverVersion writes it */
    PK_PG_SERVER_IDLE = 140000,   /* has idle_session_timeout */
    PK_PG_SERVER_LIMITS = 170000, /* has transaction_timeout */
    PK_PG_WHERE_MAX = 512,
};

struct pk_pg {
    char *url;                   /* for libpq: without our own option */
    char where[PK_PG_WHERE_MAX]; /* for people: without the password */
    bool session;                /* a lease is a session */
    struct pk_store *bridge;
    pthread_mutex_t mutex;
    PGconn *conn;    /* NULL: none */
    int pid;         /* of the backend */
    bool unanswered; /* something was sent over it whose answer may still come */
    uint64_t lease;  /* the one that we opened; 0: none, or it is over */
    uint64_t ttl_ms;
    int64_t era; /* of the lease, see sql/postgres.sql, R5 */
    /* Of a session that was lost, until the database was told that we know. */
    uint64_t lost, lost_at_ms; /* and when to tell */
    uint32_t lost_waits, lost_failures;
};

/* ---- postgres_link.c ---- */

enum { PK_PG_ARGS_MAX = 8 };

/* The arguments of a statement, in their order. */
struct pk_pg_args {
    int n;
    Oid types[PK_PG_ARGS_MAX];
    const char *values[PK_PG_ARGS_MAX];
    int lengths[PK_PG_ARGS_MAX];
    int formats[PK_PG_ARGS_MAX];
    char numbers[PK_PG_ARGS_MAX][24];
};

void pk_pg_number(struct pk_pg_args *a, uint64_t number);
void pk_pg_text(struct pk_pg_args *a, const char *text); /* NULL is NULL */
void pk_pg_bool(struct pk_pg_args *a, bool value);
void pk_pg_bytes(struct pk_pg_args *a, struct pk_bytes bytes);

/* Asks, over a new connection if there is none. OK: *out is the rows, to be cleared;
 * NULL otherwise. */
enum picket_status pk_pg_ask(struct pk_pg *pg, const char *statement,
                             const struct pk_pg_args *args, uint64_t until_ms,
                             PGresult **out);
/* The same for one that gives nothing, or one word that nobody wants to know. */
enum picket_status pk_pg_do(struct pk_pg *pg, const char *statement,
                            const struct pk_pg_args *args, uint64_t until_ms);
/* For a session that is a lease: never over another connection. LOST: it has ended. */
enum picket_status pk_pg_ask_session(struct pk_pg *pg, uint64_t lease,
                                     const char *statement, const struct pk_pg_args *args,
                                     uint64_t until_ms, PGresult **out);
/* The number in that place; 0: there is none. */
uint64_t pk_pg_number_at(const PGresult *rows, int row, int column);
/* Whether the word in the first row is that one. */
bool pk_pg_says(const PGresult *rows, const char *word);
/* The bytes in that place; *copy is for PQfreemem. */
struct pk_bytes pk_pg_bytes_at(const PGresult *rows, int row, int column,
                               unsigned char **copy);

/* With the mutex, over the connection that is there: the rows; NULL: *s says why. */
PGresult *pk_pg_exchange(struct pk_pg *pg, const char *statement,
                         const struct pk_pg_args *args, uint64_t until_ms,
                         enum picket_status *s);
/* With the mutex. Gives the connection up, and what lives by it. */
void pk_pg_drop(struct pk_pg *pg);
/* Opens one more connection, for a look at the backends. NULL: *s says why. */
PGconn *pk_pg_dial(struct pk_pg *pg, uint64_t until_ms, enum picket_status *s);
/* For every new connection with a lease: listens to what is told to that. */
enum picket_status pk_pg_listen(struct pk_pg *pg, uint64_t until_ms);
/* Waits for what the server says by itself. True: stand again with all that wait. */
bool pk_pg_await(void *own, uint64_t until_ms);

/* ---- postgres_pool.c ---- */

/* With the mutex, over a new connection: OK if its backend is ours alone. */
enum picket_status pk_pg_private(struct pk_pg *pg, uint64_t until_ms);
/* The answer when it turns out later that it isn't. */
enum picket_status pk_pg_pooled(const struct pk_pg *pg);

/* ---- the modes ---- */

extern const struct pk_bridged pk_pg_lease_mode, pk_pg_session_mode;

/* A copy with a NUL, as far as it fits. */
const char *pk_pg_copy(struct pk_bytes text, char *out, size_t size);
/* Each of these three is for the answer to a question that ended with `s`: it is read if
 * that is OK, cleared in any case, and the verdict is returned.
 * What both modes' functions say about a stake: */
enum picket_status pk_pg_standing(enum picket_status s, PGresult *rows,
                                  struct pk_stake *k);
/* Done, notheld (or no row at all), over: */
enum picket_status pk_pg_verdict(enum picket_status s, PGresult *rows);
/* Each row to the bridge: name, card, token or NULL, order, ms left. Without a card: how
 * long the lock stays closed. */
enum picket_status pk_pg_sights(enum picket_status s, PGresult *rows,
                                struct pk_scan *scan);
/* Rows for scans: how long the lock $1 stays closed, if it does. */
#define PK_PG_CLOSED                                                                     \
    " UNION ALL SELECT NULL, NULL, NULL, NULL, picket.ms_until(until_at) "               \
    "FROM picket.closed WHERE name = $1 AND until_at > clock_timestamp()"

void pk_pg_meet(void *own, struct pk_store *b);
void pk_pg_forked(void *own);
void pk_pg_close(void *own);

/* ---- postgres_examine.c ---- */

enum picket_status pk_pg_examine(void *own, struct pk_findings *out, uint64_t until_ms);

extern const char pk_postgres_locks[]; /* sql/postgres.sql */

#endif
