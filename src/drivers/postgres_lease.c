/* SPDX-License-Identifier: MIT */
/* Lease mode: a lease is a row that the database's clock ends, and a claim is a row that
 * ends with it. Connections come and go. */
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "drivers/postgres.h"
#include "host/clock.h"

/* ---- leases ---- */

static enum picket_status lease_open(void *own, struct pk_tenancy *t, uint64_t until_ms)
{
    struct pk_pg *pg = own;
    struct pk_pg_args a = {0};
    PGresult *rows;
    pthread_mutex_lock(&pg->mutex);
    pg->lease = 0;
    pthread_mutex_unlock(&pg->mutex);
    pk_pg_number(&a, t->id);
    pk_pg_number(&a, t->ttl_ms);
    pk_pg_bytes(&a, t->label);
    enum picket_status s =
        pk_pg_ask(pg, "SELECT picket.lease_open($1, $2, $3)", &a, until_ms, &rows);
    if (s != PICKET_OK) {
        return s;
    }
    pthread_mutex_lock(&pg->mutex);
    pg->lease = t->id;
    pg->ttl_ms = t->ttl_ms;
    pg->era = (int64_t)pk_pg_number_at(rows, 0, 0);
    /* Should this break the connection, the next one listens. */
    enum picket_status unimportant =
        pg->conn != NULL ? pk_pg_listen(pg, until_ms) : PICKET_OK;
    (void)unimportant;
    pthread_mutex_unlock(&pg->mutex);
    PQclear(rows);
    return PICKET_OK;
}

/* Reports what others have ended on the lease: notifications may get lost. */
static void report_ended(struct pk_pg *pg, uint64_t lease, const PGresult *rows)
{
    for (int i = 0; i < PQntuples(rows); i++) {
        if (PQgetisnull(rows, i, 2) != 0) {
            continue;
        }
        uint64_t request = pk_pg_number_at(rows, i, 2);
        bool broken = strcmp(PQgetvalue(rows, i, 3), "broken") == 0;
        pk_bridge_ended(pg->bridge, lease, request,
                        broken ? PK_END_BROKEN : PK_END_RELEASED,
                        broken ? PQgetvalue(rows, i, 4) : NULL,
                        broken ? PQgetvalue(rows, i, 5) : NULL);
    }
}

static enum picket_status lease_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                      uint64_t until_ms)
{
    struct pk_pg *pg = own;
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_number(&a, lease);
    pk_pg_number(&a, *ttl_ms);
    enum picket_status s = pk_pg_ask(
        pg,
        "SELECT ttl, pg_backend_pid(), request, how, who, why "
        "FROM picket.lease_renew($1, $2) ttl LEFT JOIN picket.ended ON lease = $1",
        &a, until_ms, &rows);
    if (s != PICKET_OK) {
        return s;
    }
    *ttl_ms = pk_pg_number_at(rows, 0, 0);
    bool moved = (int)pk_pg_number_at(rows, 0, 1) != pg->pid;
    report_ended(pg, lease, rows);
    PQclear(rows);
    return *ttl_ms == 0 ? pk_fail_plain(PICKET_LOST)
           : moved      ? pk_pg_pooled(pg)
                        : PICKET_OK;
}

static enum picket_status lease_close(void *own, uint64_t lease, uint64_t until_ms)
{
    struct pk_pg *pg = own;
    struct pk_pg_args a = {0};
    enum picket_status s;
    bool more;
    pthread_mutex_lock(&pg->mutex);
    pg->lease = pg->lease == lease ? 0 : pg->lease;
    pthread_mutex_unlock(&pg->mutex);
    pk_pg_number(&a, lease);
    do {
        PGresult *rows;
        s = pk_pg_ask(pg, "SELECT picket.lease_close($1)", &a, until_ms, &rows);
        more = s == PICKET_OK && pk_pg_says(rows, "t");
        if (s == PICKET_OK && PQgetisnull(rows, 0, 0) != 0) {
            s = pk_fail_plain(PICKET_LOST);
        }
        PQclear(rows);
    } while (more);
    return s;
}

static enum picket_status lease_look(void *own, uint64_t lease, uint64_t *left_ms,
                                     uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_number(&a, lease);
    enum picket_status s = pk_pg_ask(own,
                                     "SELECT picket.ms_until(expires_at) "
                                     "FROM picket.lease WHERE id = $1",
                                     &a, until_ms, &rows);
    if (s == PICKET_OK) {
        *left_ms = pk_pg_number_at(rows, 0, 0);
        s = *left_ms > 0 ? PICKET_OK : pk_fail_plain(PICKET_LOST);
        PQclear(rows);
    }
    return s;
}

/* ---- claims ---- */

static enum picket_status stand_in_era(struct pk_pg *pg, struct pk_stake *k, bool wait,
                                       uint64_t until_ms, bool *again)
{
    struct pk_pg_args a = {0};
    PGresult *rows;
    pthread_mutex_lock(&pg->mutex);
    bool ours = pg->lease == k->lease;
    int64_t era = pg->era;
    pthread_mutex_unlock(&pg->mutex);
    if (!ours) {
        return pk_fail_plain(PICKET_LOST);
    }
    pk_pg_number(&a, k->lease);
    pk_pg_number(&a, (uint64_t)era);
    pk_pg_number(&a, k->request);
    pk_pg_text(&a, k->name);
    pk_pg_bool(&a, k->mode == PK_SHARED);
    pk_pg_number(&a, k->lock_delay_ms);
    pk_pg_bytes(&a, k->card);
    pk_pg_bool(&a, wait);
    enum picket_status s =
        pk_pg_ask(pg, "SELECT (s).* FROM picket.stand($1, $2, $3, $4, $5, $6, $7, $8) s",
                  &a, until_ms, &rows);
    *again = s == PICKET_OK && pk_pg_says(rows, "void");
    return pk_pg_standing(s, rows, k);
}

static enum picket_status stand(void *own, struct pk_stake *k, bool wait,
                                uint64_t until_ms)
{
    bool again = false;
    enum picket_status s = stand_in_era(own, k, wait, until_ms, &again);
    if (again) { /* the asking itself made a new connection, and so a new era */
        s = stand_in_era(own, k, wait, until_ms, &again);
    }
    return s;
}

static enum picket_status leave(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_number(&a, k->lease);
    pk_pg_number(&a, k->request);
    pk_pg_text(&a, k->name);
    enum picket_status s =
        pk_pg_ask(own, "SELECT picket.leave($1, $2, $3)", &a, until_ms, &rows);
    return pk_pg_verdict(s, rows);
}

static enum picket_status rewrite(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_number(&a, k->lease);
    pk_pg_number(&a, k->request);
    pk_pg_bytes(&a, k->card);
    enum picket_status s = pk_pg_ask(own,
                                     "UPDATE picket.claim SET card = $3 WHERE lease = $1 "
                                     "AND request = $2 AND token IS NOT NULL "
                                     "RETURNING 'done'",
                                     &a, until_ms, &rows);
    return pk_pg_verdict(s, rows);
}

static enum picket_status end_hold(struct pk_pg *pg, struct pk_pg_args *a,
                                   uint64_t until_ms)
{
    PGresult *rows;
    enum picket_status s = pk_pg_ask(pg, "SELECT picket.hold_end($1, $2, $3, $4, $5, $6)",
                                     a, until_ms, &rows);
    return pk_pg_verdict(s, rows);
}

static enum picket_status release(void *own, uint64_t lease, const char *name,
                                  uint64_t token, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    pk_pg_number(&a, lease);
    pk_pg_text(&a, name);
    pk_pg_number(&a, token);
    pk_pg_text(&a, "released");
    pk_pg_text(&a, "");
    pk_pg_text(&a, "");
    return end_hold(own, &a, until_ms);
}

static enum picket_status break_hold(void *own, const struct pk_command *c,
                                     uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    char name[PK_NAME_MAX + 1], who[PK_PRINCIPAL_MAX + 1], why[PK_REASON_MAX + 1];
    pk_pg_text(&a, NULL);
    pk_pg_text(&a, pk_pg_copy(c->name, name, sizeof name));
    pk_pg_number(&a, c->token);
    pk_pg_text(&a, "broken");
    pk_pg_text(&a, pk_pg_copy(c->principal, who, sizeof who));
    pk_pg_text(&a, pk_pg_copy(c->reason, why, sizeof why));
    enum picket_status s = end_hold(own, &a, until_ms);
    return s == PICKET_LOST ? pk_fail_plain(PICKET_NOTHELD) : s;
}

static enum picket_status scan(void *own, const char *name, bool whole_name,
                               struct pk_scan *out, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_text(&a, name);
    pk_pg_bool(&a, whole_name);
    enum picket_status s =
        pk_pg_ask(own,
                  "SELECT name, card, token, place, picket.ms_until(expires_at) "
                  "FROM picket.claim JOIN picket.lease ON id = lease "
                  "WHERE (name = $1 OR (NOT $2 AND starts_with(name, $1))) "
                  "AND expires_at > clock_timestamp()" PK_PG_CLOSED,
                  &a, until_ms, &rows);
    return pk_pg_sights(s, rows, out);
}

const struct pk_bridged pk_pg_lease_mode = {
    .meet = pk_pg_meet,
    .lease_open = lease_open,
    .lease_renew = lease_renew,
    .lease_close = lease_close,
    .lease_look = lease_look,
    .stand = stand,
    .leave = leave,
    .rewrite = rewrite,
    .release = release,
    .break_hold = break_hold,
    .scan = scan,
    .await = pk_pg_await,
    .examine = pk_pg_examine,
    .forked = pk_pg_forked,
    .close = pk_pg_close,
};
