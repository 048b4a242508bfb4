/* SPDX-License-Identifier: MIT */
/*
 * Advisory mode: a lease is one session of the database, its holds are session-level
 * advisory locks on picket.key(name). They end with the session: when the connection
 * ends, and (from PostgreSQL 14 on) when the session was idle for the TTL. That is
 * counted from the end of a renewal, so never too early for the client, which counts from
 * its sending (P4, P5). A connection that breaks is a lease that is over; nothing is ever
 * resumed.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "client/error.h"
#include "client/keeper.h"
#include "drivers/postgres.h"
#include "host/clock.h"

enum {
    POLITE_MS = 500, /* that a holder has to give a broken lock back by itself */
    GONE_MS = 2000,  /* until a session that was ended is gone */
    NAP_MS = 10,
    MOURN_MS = 2000,
    GOODBYE_MS = 1000,
};

/* ---- leases ---- */

/* Tells the database that we know of it, so that others need not wait until we would have
 * known anyway. */
static enum picket_status mourn(struct pk_pg *pg, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    pthread_mutex_lock(&pg->mutex);
    uint64_t lost = pg->lost;
    pthread_mutex_unlock(&pg->mutex);
    pk_pg_number(&a, lost);
    enum picket_status s =
        lost != 0 ? pk_pg_do(pg, "SELECT picket.session_mourn($1)", &a, until_ms)
                  : PICKET_OK;
    pthread_mutex_lock(&pg->mutex);
    pg->lost = s == PICKET_OK && pg->lost == lost ? 0 : pg->lost;
    pg->lost_failures += s != PICKET_OK && pg->lost_failures < 16;
    pg->lost_at_ms =
        pk_clock_ms() + pk_backoff_ms(pg->lost_failures, 50, 2000, pk_random());
    pthread_mutex_unlock(&pg->mutex);
    return s;
}

/* The session is that lease for the TTL. With the mutex. */
static enum picket_status renew_session(struct pk_pg *pg, uint64_t lease, uint64_t ttl_ms,
                                        uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    enum picket_status s = PICKET_OK;
    pk_pg_number(&a, lease);
    pk_pg_number(&a, ttl_ms);
    PGresult *rows =
        pk_pg_exchange(pg, "SELECT picket.session_renew($1, $2)", &a, until_ms, &s);
    if (rows == NULL) {
        return s;
    }
    bool moved = (int)pk_pg_number_at(rows, 0, 0) != pg->pid;
    PQclear(rows);
    /* Our own side, too, finds out about a network that is gone; not before the lease is
     * over by our clock, since this ends it. */
    int ms = (int)ttl_ms;
    (void)setsockopt(PQsocket(pg->conn), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    return moved ? pk_pg_pooled(pg) : PICKET_OK;
}

static enum picket_status begin_lease(struct pk_pg *pg, const struct pk_tenancy *t,
                                      uint64_t until_ms)
{
    if (pg->conn == NULL) {
        return pk_fail(PICKET_UNREACHABLE, "%s has broken the connection", pg->where);
    }
    enum picket_status s = renew_session(pg, t->id, t->ttl_ms, until_ms);
    if (s == PICKET_OK) {
        pg->lease = t->id;
        s = pk_pg_listen(pg, until_ms);
    }
    if (s == PICKET_OK) {
        pg->ttl_ms = t->ttl_ms;
        return s;
    }
    pg->lease = 0; /* nobody has heard of it */
    pk_pg_drop(pg);
    return s;
}

static enum picket_status lease_open(void *own, struct pk_tenancy *t, uint64_t until_ms)
{
    struct pk_pg *pg = own;
    pthread_mutex_lock(&pg->mutex);
    if (pg->lease != 0) { /* one that could not be closed, or whose answer got lost */
        pk_pg_drop(pg);
    }
    pthread_mutex_unlock(&pg->mutex);
    enum picket_status s = mourn(pg, until_ms); /* who opens one has lost the last */
    if (s == PICKET_OK) {
        s = pk_pg_do(pg, "SELECT picket.session_sweep()", &(struct pk_pg_args){0},
                     until_ms);
    }
    if (s == PICKET_OK) {
        pthread_mutex_lock(&pg->mutex);
        s = begin_lease(pg, t, until_ms);
        pthread_mutex_unlock(&pg->mutex);
    }
    return s;
}

static enum picket_status fail_over(const struct pk_pg *pg)
{
    return pk_fail(PICKET_LOST, "the session at %s has ended, and its locks with it",
                   pg->where);
}

static enum picket_status lease_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                      uint64_t until_ms)
{
    struct pk_pg *pg = own;
    pthread_mutex_lock(&pg->mutex);
    enum picket_status s = PICKET_OK;
    if (pg->conn == NULL || pg->lease != lease) {
        s = fail_over(pg);
    } else {
        *ttl_ms = *ttl_ms != 0 ? *ttl_ms : pg->ttl_ms;
        s = renew_session(pg, lease, *ttl_ms, until_ms);
        pg->ttl_ms = *ttl_ms;
    }
    if (s != PICKET_OK && !pg->unanswered) {
        char why[PK_SENTENCE_MAX];
        pk_sentence_save(why);
        pk_pg_drop(pg); /* whatever it was: the next renewal can't be better */
        pk_sentence_restore(why);
        s = PICKET_LOST;
    }
    pthread_mutex_unlock(&pg->mutex);
    return s;
}

static enum picket_status lease_close(void *own, uint64_t lease, uint64_t until_ms)
{
    struct pk_pg *pg = own;
    struct pk_pg_args a = {0};
    enum picket_status s;
    bool more;
    pk_pg_number(&a, lease);
    do {
        PGresult *rows;
        s = pk_pg_ask_session(pg, lease, "SELECT picket.session_close($1)", &a, until_ms,
                              &rows);
        more = s == PICKET_OK && pk_pg_says(rows, "t");
        PQclear(rows);
    } while (more);
    pthread_mutex_lock(&pg->mutex);
    if (s != PICKET_OK && pg->lease == lease) {
        pk_pg_drop(pg); /* that closes it, too */
    } else if (pg->lease == lease) {
        pg->lease = 0;
    }
    pthread_mutex_unlock(&pg->mutex);
    return PICKET_OK;
}

/* ---- after a loss ---- */

/* The keeper takes in that the lease is over between two of its waits. So in the one
 * after the next it certainly has. */
static bool await(void *own, uint64_t until_ms)
{
    struct pk_pg *pg = own;
    pthread_mutex_lock(&pg->mutex);
    bool lost = pg->lost != 0;
    bool known = lost && pg->lost_waits++ > 0;
    uint64_t at = !lost ? UINT64_MAX : known ? pg->lost_at_ms : 0;
    pthread_mutex_unlock(&pg->mutex);
    if (known && at <= pk_clock_ms() && until_ms > pk_clock_ms()) {
        uint64_t limit = pk_clock_ms() + MOURN_MS;
        enum picket_status unimportant = mourn(pg, until_ms < limit ? until_ms : limit);
        (void)unimportant; /* if it failed, we'll try again */
        return false;
    }
    return pk_pg_await(own, until_ms < at ? until_ms : at);
}

static void close_sessions(void *own)
{
    struct pk_pg *pg = own;
    enum picket_status unimportant = mourn(pg, pk_clock_ms() + GOODBYE_MS);
    (void)unimportant; /* others will find out after the TTL */
    pk_pg_close(pg);
}

/* ---- claims ---- */

static enum picket_status stand(void *own, struct pk_stake *k, bool wait,
                                uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_number(&a, k->lease);
    pk_pg_number(&a, k->request);
    pk_pg_text(&a, k->name);
    pk_pg_bool(&a, k->mode == PK_SHARED);
    pk_pg_number(&a, k->lock_delay_ms);
    pk_pg_bytes(&a, k->card);
    pk_pg_bool(&a, wait);
    enum picket_status s = pk_pg_ask_session(
        own, k->lease,
        "SELECT (s).* FROM picket.session_stand($1, $2, $3, $4, $5, $6, $7) s", &a,
        until_ms, &rows);
    return pk_pg_standing(s, rows, k);
}

static enum picket_status leave(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_number(&a, k->lease);
    pk_pg_number(&a, k->request);
    enum picket_status s = pk_pg_ask_session(
        own, k->lease, "SELECT picket.session_leave($1, $2)", &a, until_ms, &rows);
    return pk_pg_verdict(s, rows);
}

static enum picket_status rewrite(void *own, struct pk_stake *k, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_number(&a, k->lease);
    pk_pg_number(&a, k->request);
    pk_pg_bytes(&a, k->card);
    enum picket_status s =
        pk_pg_ask_session(own, k->lease,
                          "UPDATE picket.session_claim SET card = $3 WHERE lease = $1 "
                          "AND request = $2 AND token IS NOT NULL RETURNING 'done'",
                          &a, until_ms, &rows);
    return pk_pg_verdict(s, rows);
}

/* Waits until the question has no rows any more, at most that long. */
static enum picket_status await_none(struct pk_pg *pg, const char *question,
                                     const struct pk_pg_args *args, uint64_t limit_ms,
                                     bool *none)
{
    uint64_t until_ms = pk_clock_ms() + limit_ms;
    for (;;) {
        PGresult *rows;
        enum picket_status s = pk_pg_ask(pg, question, args, until_ms + limit_ms, &rows);
        *none = s == PICKET_OK && PQntuples(rows) == 0;
        PQclear(rows);
        if (s != PICKET_OK || *none || pk_clock_ms() >= until_ms) {
            return s;
        }
        nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000L}, NULL);
    }
}

/* Ends the session that has the hold, and with it all that it holds. */
static enum picket_status evict(struct pk_pg *pg, const char *name, uint64_t token,
                                uint64_t pid, uint64_t until_ms)
{
    struct pk_pg_args a = {0};
    struct pk_pg_args lock = {0};
    bool none = false;
    pk_pg_text(&a, name);
    pk_pg_number(&a, token);
    pk_pg_number(&a, pid);
    pk_pg_text(&lock, name);
    pk_pg_number(&lock, pid);
    enum picket_status s =
        pk_pg_do(pg, "SELECT picket.session_evict($1, $2, $3)", &a, until_ms);
    if (s == PICKET_OK) {
        s = await_none(pg,
                       "SELECT FROM picket.session_lock "
                       "WHERE key = picket.key($1) AND pid = $2",
                       &lock, GONE_MS, &none);
    }
    if (s == PICKET_OK && !none) {
        return pk_fail(PICKET_UNKNOWN, "%s has not ended the holder's session yet",
                       pg->where);
    }
    return s == PICKET_OK
               ? pk_pg_do(pg, "SELECT picket.session_next(picket.key($1))",
                          &(struct pk_pg_args){.n = 1, .values = {name}}, until_ms)
               : s;
}

/* The holder is told, and gives that one lock back. One that does not is stopped or
 * hangs: then its session is ended. */
static enum picket_status break_hold(void *own, const struct pk_command *c,
                                     uint64_t until_ms)
{
    struct pk_pg *pg = own;
    struct pk_pg_args a = {0};
    struct pk_pg_args hold = {0};
    char name[PK_NAME_MAX + 1], who[PK_PRINCIPAL_MAX + 1], why[PK_REASON_MAX + 1];
    PGresult *rows;
    bool gone = false;
    pk_pg_text(&a, pk_pg_copy(c->name, name, sizeof name));
    pk_pg_number(&a, c->token);
    pk_pg_text(&a, pk_pg_copy(c->principal, who, sizeof who));
    pk_pg_text(&a, pk_pg_copy(c->reason, why, sizeof why));
    enum picket_status s =
        pk_pg_ask(pg, "SELECT picket.session_break($1, $2, $3, $4)", &a, until_ms, &rows);
    if (s != PICKET_OK) {
        return s;
    }
    uint64_t pid = pk_pg_number_at(rows, 0, 0);
    PQclear(rows);
    if (pid == 0) {
        return pk_fail_plain(PICKET_NOTHELD);
    }
    pk_pg_text(&hold, name);
    pk_pg_number(&hold, c->token);
    s = await_none(pg, "SELECT FROM picket.session_claim WHERE name = $1 AND token = $2",
                   &hold, POLITE_MS, &gone);
    return s == PICKET_OK && !gone ? evict(pg, name, c->token, pid, until_ms) : s;
}

/* Whoever has the key is in the way: other names with the same key, and sessions that
 * know nothing of us. */
static enum picket_status scan(void *own, const char *name, bool whole_name,
                               struct pk_scan *out, uint64_t until_ms)
{
    static const char one[] =
        "SELECT $1, card, token, place, 0 FROM picket.session_claim c "
        "JOIN picket.session s USING (lease) WHERE key = picket.key($1) AND "
        "CASE WHEN token IS NULL THEN picket.session_alive(s.pid, began) ELSE EXISTS "
        "(SELECT FROM picket.session_lock l WHERE l.key = c.key AND l.pid = s.pid) END "
        "UNION ALL SELECT $1, convert_to(concat_ws(E'\\n', "
        "'picket=1', 'lease=0', 'request=0', "
        "'mode=' || CASE WHEN shared THEN 'shared' ELSE 'exclusive' END, "
        "'since=' || (extract(epoch FROM coalesce(state_change, now())) * 1000)::bigint, "
        "'ttl=0', 'host=' || coalesce(host(client_addr), 'local'), 'pid=' || l.pid, "
        "'user=' || usename, 'command=' || application_name), 'UTF8'), 0, 0, 0 "
        "FROM picket.session_lock l LEFT JOIN pg_stat_activity a ON a.pid = l.pid "
        "WHERE key = picket.key($1) AND NOT EXISTS (SELECT FROM picket.session_claim c "
        "JOIN picket.session s USING (lease) WHERE c.key = l.key AND s.pid = "
        "l.pid)" PK_PG_CLOSED;
    static const char many[] =
        "SELECT name, card, token, place, 0 FROM picket.session_claim c "
        "JOIN picket.session s USING (lease) WHERE starts_with(name, $1) AND "
        "CASE WHEN token IS NULL THEN picket.session_alive(s.pid, began) ELSE EXISTS "
        "(SELECT FROM picket.session_lock l WHERE l.key = c.key AND l.pid = s.pid) END";
    struct pk_pg_args a = {0};
    PGresult *rows;
    pk_pg_text(&a, name);
    enum picket_status s = pk_pg_ask(own, whole_name ? one : many, &a, until_ms, &rows);
    return pk_pg_sights(s, rows, out);
}

const struct pk_bridged pk_pg_session_mode = {
    .meet = pk_pg_meet,
    .lease_open = lease_open,
    .lease_renew = lease_renew,
    .lease_close = lease_close,
    .stand = stand,
    .leave = leave,
    .rewrite = rewrite,
    .break_hold = break_hold,
    .scan = scan,
    .await = await,
    .examine = pk_pg_examine,
    .forked = pk_pg_forked,
    .close = close_sessions,
};
