/* SPDX-License-Identifier: MIT */
#include "server/upgrade.h"

#include <stdio.h>

#include "core/version.h"
#include "host/clock.h"
#include "raft/transport.h"
#include "server/health.h"
#include "server/inside.h"
#include "server/log.h"

static struct pk_machine *machine(struct pk_server *s)
{
    return pk_replica_machine(s->replica);
}

bool pk_upgrade_release(struct pk_server *s, uint64_t id, struct pk_release *out)
{
    if (id == s->self.id) {
        *out = pk_release_own();
        return true;
    }
    return pk_transport_release(pk_uvio_transport(s->uvio), id, out);
}

/* NULL, or why this member does not count as one that runs the version. A node that is
 * away may come back with another release, so only those that are heard count. */
static const char *member_wrong(struct pk_server *s, const struct pk_member *m,
                                uint32_t version)
{
    static char why[256];
    char name[PK_NODE_NAME_MAX];
    struct pk_release release;
    (void)pk_member_name(m, name, sizeof name);
    if (!pk_upgrade_release(s, m->id, &release) ||
        pk_health_heard_ms(s, m->id) > pk_health_silent_after_ms(s)) {
        (void)snprintf(why, sizeof why, "node %s is not heard", name);
        return why;
    }
    if (!pk_release_runs(&release, version)) {
        (void)snprintf(why, sizeof why, "node %s has picket %s", name,
                       pk_release_text(&release));
        return why;
    }
    return NULL;
}

/* NULL, or the first member that is in the way of the version. */
static const char *version_wrong(struct pk_server *s, uint32_t version)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, NULL);
    const char *wrong = NULL;
    for (size_t i = 0; i < n && wrong == NULL; i++) {
        wrong = member_wrong(s, &members[i], version);
    }
    return wrong;
}

const char *pk_upgrade_node_wrong(struct pk_server *s, uint64_t id)
{
    static char why[256];
    struct pk_waiting waiting[PK_WAITING_NODES_MAX];
    uint32_t version = pk_machine_version(machine(s));
    size_t n =
        pk_transport_waiting(pk_uvio_transport(s->uvio), waiting, PK_WAITING_NODES_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct pk_release *r = &waiting[i].release;
        if (waiting[i].id == id && !pk_release_runs(r, version)) {
            (void)snprintf(why, sizeof why,
                           "the cluster has version %u, and node %s has picket %s",
                           version, waiting[i].name, pk_release_text(r));
            return why;
        }
    }
    return NULL;
}

/* ---- raising ---- */

static void tell_version(struct pk_server *s)
{
    uint32_t version = pk_machine_version(machine(s));
    bool held = pk_machine_version_is_held(machine(s));
    if (version != s->told_version || held != s->told_held) {
        s->told_version = version;
        s->told_held = held;
        pk_log(PK_LOG_INFO, "cluster-version", "node", s->self.name, "version",
               pk_log_u64(version), "held", held ? "yes" : "no", NULL);
    }
}

void pk_upgrade_sweep(struct pk_server *s)
{
    uint32_t next = pk_machine_version(machine(s)) + 1;
    tell_version(s);
    if (!pk_turn_serving(s->turn) || pk_machine_version_is_held(machine(s)) ||
        !pk_version_runs(next) || version_wrong(s, next) != NULL) {
        return;
    }
    /* One that is under way already is raised once: the second has nothing to do. */
    struct pk_command c = {.verb = PK_SET_VERSION, .version = next};
    (void)pk_turn_add(s->turn, &c, (struct pk_ticket){.what = PK_FORM_ADMIN});
}

/* ---- by an operator's word ---- */

bool pk_upgrade_command(struct pk_conn *c, uint64_t version, bool hold)
{
    struct pk_server *s = c->server;
    struct pk_command cmd = {.verb = PK_SET_VERSION,
                             .request = pk_random(),
                             .version = version,
                             .flags = hold ? PK_VERSION_HOLD : 0};
    const char *wrong = !pk_version_runs(version)
                            ? "this node's release does not run that cluster version"
                            : version_wrong(s, (uint32_t)version);
    if (version != pk_machine_version(machine(s)) && wrong != NULL) {
        char why[320];
        (void)snprintf(why, sizeof why, "the cluster version can't be %llu: %s",
                       (unsigned long long)version, wrong);
        pk_resp_error(pk_conn_out(c), "ERR", why);
        return true;
    }
    struct pk_ticket t = {.who = pk_conn_who(c), .what = PK_FORM_ADMIN};
    if (!pk_turn_add(s->turn, &cmd, t)) {
        pk_conn_stall(c, PK_STALL_TURN);
        return false;
    }
    c->pending++;
    return true;
}
