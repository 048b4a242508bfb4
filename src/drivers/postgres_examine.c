/* SPDX-License-Identifier: MIT */
/* What `picket doctor` finds in a PostgreSQL server. That it is no standby, and that no
 * pooler gives our backend to others, was found out when we connected. */
#include <stdlib.h>
#include <string.h>

#include "drivers/postgres.h"

enum column {
    FSYNC,
    FULL_PAGES,
    COMMIT,     /* as the role's sessions have it */
    OUR_COMMIT, /* as ours has it */
    STANDBYS,   /* that commits wait for */
    REPLICAS,   /* attached */
    IDLE_LIMIT,
    FREE, /* connections */
    VERSION,
};

static const char question[] =
    "SELECT current_setting('fsync'), current_setting('full_page_writes'), "
    "(SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), "
    "current_setting('synchronous_commit'), "
    "current_setting('synchronous_standby_names'), "
    "(SELECT count(*) FROM pg_stat_replication), "
    "coalesce((SELECT reset_val FROM pg_settings WHERE name = 'idle_session_timeout'), "
    "''), "
    "current_setting('max_connections')::int - (SELECT count(*) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend'), current_setting('server_version')";

static const char *at(const PGresult *rows, enum column c)
{
    return PQgetvalue(rows, 0, (int)c);
}

static bool is(const PGresult *rows, enum column c, const char *word)
{
    return strcmp(at(rows, c), word) == 0;
}

/* What a crash or a power cut leaves. */
static void judge_disk(const PGresult *rows, struct pk_findings *out)
{
    if (is(rows, FSYNC, "on")) {
        pk_findings_add(out, PK_FINE, "fsync", "commits are on disk (fsync is on)");
    } else {
        pk_findings_add(out, PK_UNSAFE, "no-fsync",
                        "fsync is off: a power cut can take back grants and tokens that "
                        "were given out; set fsync = on");
    }
    if (!is(rows, FULL_PAGES, "on")) {
        pk_findings_add(out, PK_UNSAFE, "no-full-page-writes",
                        "full_page_writes is off: a power cut can damage pages, those of "
                        "locks too; set full_page_writes = on");
    }
    bool weak = is(rows, COMMIT, "off") || is(rows, COMMIT, "local") ||
                is(rows, COMMIT, "remote_write");
    if (weak) {
        pk_findings_add(out, PK_NOTE, "sync-commit",
                        "this role's synchronous_commit is %s; our own sessions use %s",
                        at(rows, COMMIT), at(rows, OUR_COMMIT));
    } else {
        pk_findings_add(out, PK_FINE, "sync-commit", "synchronous_commit is %s",
                        at(rows, OUR_COMMIT));
    }
}

/* What a failover leaves. */
static void judge_replicas(const PGresult *rows, struct pk_findings *out)
{
    bool waits = at(rows, STANDBYS)[0] != '\0';
    uint64_t replicas = pk_pg_number_at(rows, 0, REPLICAS);
    if (!waits && replicas > 0) {
        pk_findings_add(out, PK_UNSAFE, "async-replicas",
                        "%llu standbys are attached and commits wait for none: after a "
                        "failover the last grants are forgotten and their tokens given "
                        "out again; set synchronous_standby_names",
                        (unsigned long long)replicas);
    } else if (!waits) {
        pk_findings_add(out, PK_NOTE, "single-server",
                        "no standby is attached: while this server is away, nobody gets "
                        "a lock");
    } else if (replicas == 0) {
        pk_findings_add(out, PK_NOTE, "no-standby",
                        "commits wait for standbys (%s), and none is attached: nothing "
                        "will be granted",
                        at(rows, STANDBYS));
    } else {
        pk_findings_add(out, PK_FINE, "sync-replicas",
                        "commits wait for standbys: %s; let failover choose only among "
                        "these",
                        at(rows, STANDBYS));
    }
}

/* What ends a lease. */
static void judge_time(const struct pk_pg *pg, const PGresult *rows,
                       struct pk_findings *out)
{
    bool limited = at(rows, IDLE_LIMIT)[0] != '\0';
    if (!pg->session) {
        pk_findings_add(out, PK_NOTE, "wall-clock",
                        "leases end by the wall clock of the database server: a clock "
                        "that is set forward ends them early; let NTP slew it, not step");
    } else if (limited) {
        pk_findings_add(out, PK_FINE, "idle-limit",
                        "the server ends sessions that are idle for their TTL");
    } else {
        pk_findings_add(out, PK_NOTE, "no-idle-limit",
                        "before PostgreSQL 14 a holder that is stopped keeps its lock "
                        "until its connection ends; use ?lock=lease or a newer server");
    }
    if (limited && !is(rows, IDLE_LIMIT, "0")) {
        pk_findings_add(out, PK_NOTE, "idle-session-timeout",
                        "this role's idle_session_timeout is %s ms; our own sessions "
                        "don't use it",
                        at(rows, IDLE_LIMIT));
    }
}

enum picket_status pk_pg_examine(void *own, struct pk_findings *out, uint64_t until_ms)
{
    enum { FREE_LEAST = 10 };
    struct pk_pg *pg = own;
    PGresult *rows;
    enum picket_status s =
        pk_pg_ask(pg, question, &(struct pk_pg_args){0}, until_ms, &rows);
    if (s != PICKET_OK) {
        return s;
    }
    pk_findings_add(out, PK_FINE, "version", "PostgreSQL %s, a primary",
                    at(rows, VERSION));
    pthread_mutex_lock(&pg->mutex);
    bool pooler = pg->conn != NULL && PQbackendPID(pg->conn) != pg->pid;
    pthread_mutex_unlock(&pg->mutex);
    if (pooler) {
        pk_findings_add(
            out, PK_NOTE, "pooler",
            "there is a pooler in between, in session mode; each client keeps "
            "one of its backends");
    } else {
        pk_findings_add(out, PK_FINE, "private-backend", "the backend is ours alone");
    }
    judge_disk(rows, out);
    judge_replicas(rows, out);
    judge_time(pg, rows, out);
    if (strtoll(at(rows, FREE), NULL, 10) < FREE_LEAST) {
        pk_findings_add(out, PK_NOTE, "connections",
                        "only %s connections are left of max_connections; each client "
                        "needs one",
                        at(rows, FREE));
    }
    PQclear(rows);
    return PICKET_OK;
}
