/* SPDX-License-Identifier: MIT */
/* PostgreSQL: postgres://..., whatever libpq understands, and ?lock=lease|advisory. */
#include "drivers/postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/error.h"
#include "client/libpq.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/memory.h"

#define FORM "postgres://USER@HOST:PORT/DATABASE"

enum { LOOK_MS = 1000 }; /* of a session that waits; see its guarantees */

static const struct picket_guarantees session_guarantees = {
    .driver = "postgres",
    .promise = "correctness",
    .scope = "one database server",
    .token = "one sequence, in a transaction committed after the lock was got",
    .fairness = "fifo",
    .waiting = "push, and a look at least every 1 s",
    .clock = "the server's timer for idle sessions; its wall clock after an unclean end",
    .failover = "all locks end with the server; tokens are safe with synchronous "
                "replication only",
    .shared = 1,
    .election = 1,
    .lock_delay = 1,
    .extend = 1,
    .reasons = 1,
    .tokens = 2,
};

/* ---- the URL ---- */

/* Finds our own option: where its NAME=VALUE begins, and how long it is; NULL: it is not
 * there. */
static const char *find_option(const char *url, size_t *len)
{
    const char *at = strchr(url, '?');
    while (at != NULL && strncmp(at + 1, "lock=", 5) != 0) {
        at = strchr(at + 1, '&');
    }
    *len = at != NULL ? strcspn(at + 1, "&") : 0;
    return at != NULL ? at + 1 : NULL;
}

/* False: there is no such mode. */
static bool read_mode(const char *url, bool *session)
{
    size_t len;
    const char *option = find_option(url, &len);
    const char *value = option != NULL ? option + 5 : "lease";
    size_t value_len = option != NULL ? len - 5 : 5;
    *session = value_len == 8 && strncmp(value, "advisory", 8) == 0;
    return *session || (value_len == 5 && strncmp(value, "lease", 5) == 0);
}

/* A copy for libpq, which would refuse our option. */
static char *without_option(const char *url)
{
    size_t len;
    const char *option = find_option(url, &len);
    char *copy = pk_memory_copy(url);
    if (option != NULL) {
        char *at = copy + (option - url);
        const char *rest = at + len;
        /* "?lock=x&a=b" leaves "?a=b", "&lock=x" and "?lock=x" leave nothing. */
        at -= *rest == '\0' || at[-1] == '&' ? 1 : 0;
        rest += *rest == '&' && *at != '&' ? 1 : 0;
        memmove(at, rest, strlen(rest) + 1);
    }
    return copy;
}

static const struct picket_guarantees *declares(const char *rest)
{
    bool session = false;
    (void)read_mode(rest, &session);
    return session ? &session_guarantees : &pk_postgres_driver.guarantees;
}

/* ---- for both modes ---- */

const char *pk_pg_copy(struct pk_bytes text, char *out, size_t size)
{
    (void)snprintf(out, size, "%.*s", (int)text.len, text.len > 0 ? text.data : "");
    return out;
}

static enum picket_status read_standing(const PGresult *rows, struct pk_stake *k)
{
    k->again_ms = UINT64_MAX;
    if (pk_pg_says(rows, "held")) {
        k->state = PK_CLAIM_HELD;
        k->token = pk_pg_number_at(rows, 0, 1);
    } else if (pk_pg_says(rows, "waiting")) {
        uint64_t again = pk_pg_number_at(rows, 0, 2);
        k->state = PK_CLAIM_WAITING;
        k->again_ms =
            pk_clock_ms() + (again != 0 ? again : LOOK_MS / 2 + pk_random() % 400);
    } else if (pk_pg_says(rows, "none")) {
        k->state = PK_CLAIM_NONE;
    } else if (pk_pg_says(rows, "over")) {
        return pk_fail_plain(PICKET_LOST);
    } else {
        return pk_fail_plain(PICKET_UNREACHABLE);
    }
    return PICKET_OK;
}

enum picket_status pk_pg_standing(enum picket_status s, PGresult *rows,
                                  struct pk_stake *k)
{
    s = s == PICKET_OK ? read_standing(rows, k) : s;
    PQclear(rows);
    return s;
}

enum picket_status pk_pg_verdict(enum picket_status s, PGresult *rows)
{
    if (s == PICKET_OK && (PQntuples(rows) == 0 || pk_pg_says(rows, "notheld"))) {
        s = pk_fail_plain(PICKET_NOTHELD);
    } else if (s == PICKET_OK && !pk_pg_says(rows, "done")) {
        s = pk_fail_plain(PICKET_LOST);
    }
    PQclear(rows);
    return s;
}

enum picket_status pk_pg_sights(enum picket_status s, PGresult *rows,
                                struct pk_scan *scan)
{
    for (int i = 0; s == PICKET_OK && i < PQntuples(rows); i++) {
        unsigned char *card;
        if (PQgetisnull(rows, i, 1) != 0) {
            pk_bridge_see_closed(scan, pk_pg_number_at(rows, i, 4));
            continue;
        }
        struct pk_sight seen = {.name = pk_text(PQgetvalue(rows, i, 0)),
                                .card = pk_pg_bytes_at(rows, i, 1, &card),
                                .held = PQgetisnull(rows, i, 2) == 0,
                                .token = pk_pg_number_at(rows, i, 2),
                                .order = pk_pg_number_at(rows, i, 3),
                                .left_ms = pk_pg_number_at(rows, i, 4)};
        pk_bridge_see(scan, &seen);
        PQfreemem(card);
    }
    PQclear(rows);
    return s;
}

void pk_pg_meet(void *own, struct pk_store *b)
{
    struct pk_pg *pg = own;
    pg->bridge = b;
}

void pk_pg_forked(void *own)
{
    struct pk_pg *pg = own;
    int fd = pg->conn != NULL ? PQsocket(pg->conn) : -1;
    if (fd >= 0) {
        (void)close(fd); /* libpq would say goodbye, in the parent's name */
    }
}

void pk_pg_close(void *own)
{
    struct pk_pg *pg = own;
    PQfinish(pg->conn);
    pthread_mutex_destroy(&pg->mutex);
    free(pg->url);
    (void)pk_door_resize(pg, 0);
}

/* ---- opening ---- */

static enum picket_status open_postgres(const char *rest, struct pk_store **out)
{
    bool session = false;
    char where[PK_PG_WHERE_MAX];
    if (!read_mode(rest, &session)) {
        return pk_fail(PICKET_BADARG, "lock= of a postgres:// URL is lease or advisory");
    }
    char *own_rest = without_option(rest);
    char *url = pk_memory_print("postgres:%s", own_rest);
    free(own_rest);
    if (!pk_libpq_show(url, where, sizeof where)) {
        free(url);
        /* libpq's own words would quote the URL, and the password in it. */
        return pk_fail(PICKET_BADARG,
                       "that is not a URL of PostgreSQL; it is " FORM
                       "?lock=lease|advisory, with libpq's options behind the ? too");
    }
    struct pk_pg *pg = pk_door_resize(NULL, sizeof *pg);
    *pg = (struct pk_pg){.url = url, .session = session};
    memcpy(pg->where, where, sizeof pg->where);
    pthread_mutex_init(&pg->mutex, NULL);
    return pk_bridge_open(session ? &pk_pg_session_mode : &pk_pg_lease_mode,
                          declares(rest), pg, out);
}

const struct pk_driver pk_postgres_driver = {
    .scheme = "postgres",
    .alias = "postgresql",
    .form = FORM,
    .guarantees = {.driver = "postgres",
                   .promise = "correctness",
                   .scope = "one database server",
                   .token = "one sequence, raised in the transaction of the grant",
                   .fairness = "fifo",
                   .waiting = "push",
                   .clock = "wall clock of the database server, which must not leap",
                   .failover = "nothing is lost with synchronous replication; else the "
                               "last grants and tokens can be",
                   .shared = 1,
                   .election = 1,
                   .lock_delay = 1,
                   .extend = 1,
                   .by_id = 1,
                   .reasons = 1,
                   .tokens = 2},
    .declares = declares,
    .open = open_postgres,
    PK_BRIDGE_DRIVER,
};
