/* SPDX-License-Identifier: MIT */
/* Showing a cluster: one line for each member, and one about the whole. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cluster.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "core/door.h"

/* Entries of the leader's log that it is not known to have. */
static bool behind_of(const struct pk_cluster_view *v, const struct pk_cluster_node *n,
                      uint64_t *behind)
{
    bool leads = strcmp(n->name, v->leader) == 0;
    uint64_t at = leads ? v->last_index : n->match;
    *behind = at < v->last_index ? v->last_index - at : 0;
    return v->leader[0] != '\0' && n->role[0] != '\0' && strcmp(n->role, "spare") != 0;
}

static void print_text(const struct pk_cluster_view *v)
{
    static const char *const heads[] = {"NODE",    "ROLE",    "STATE", "TERM",
                                        "BEHIND",  "CLIENTS", "HTTP",  "NODES",
                                        "RELEASE", "VERSIONS"};
    struct pk_table t = {.columns = sizeof heads / sizeof heads[0]};
    for (size_t i = 0; i < t.columns; i++) {
        pk_table_add(&t, "%s", heads[i]);
    }
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        uint64_t behind;
        pk_table_add(&t, "%s", n->name);
        pk_table_add(&t, "%s", n->role[0] != '\0' ? n->role : "none");
        pk_table_add(&t, "%s", pk_cluster_state_name(pk_cluster_state(v, n)));
        if (n->answered) {
            pk_table_add(&t, "%" PRIu64, n->term);
        } else {
            pk_table_add(&t, "-");
        }
        if (behind_of(v, n, &behind)) {
            pk_table_add(&t, "%" PRIu64, behind);
        } else {
            pk_table_add(&t, "-");
        }
        pk_table_add(&t, "%s", n->client[0] != '\0' ? n->client : "-");
        pk_table_add(&t, "%s", n->http[0] != '\0' ? n->http : "-");
        pk_table_add(&t, "%s", n->raft[0] != '\0' ? n->raft : "-");
        pk_table_add(&t, "%s", n->version[0] != '\0' ? n->version : "-");
        if (n->newest != 0) {
            pk_table_add(&t, "%" PRIu64 "-%" PRIu64, n->oldest, n->newest);
        } else {
            pk_table_add(&t, "-");
        }
    }
    char summary[256];
    pk_table_print(&t);
    pk_cluster_summary(v, summary, sizeof summary);
    if (v->version != 0) {
        (void)printf("the cluster version is %" PRIu64 "%s\n", v->version,
                     v->held ? ", held until 'picket cluster upgrade'" : "");
    }
    (void)printf("%s\n", summary);
}

static void json_text(struct pk_json *j, const char *key, const char *text)
{
    if (text[0] != '\0') {
        pk_json_text(j, key, text);
    } else {
        pk_json_null(j, key);
    }
}

static void json_number(struct pk_json *j, const char *key, uint64_t number)
{
    if (number != 0) {
        pk_json_number(j, key, number);
    } else {
        pk_json_null(j, key);
    }
}

static void print_json_node(struct pk_json *j, const struct pk_cluster_view *v,
                            const struct pk_cluster_node *n)
{
    uint64_t behind;
    pk_json_object(j, NULL);
    pk_json_text(j, "node", n->name);
    json_text(j, "role", n->role);
    pk_json_text(j, "state", pk_cluster_state_name(pk_cluster_state(v, n)));
    pk_json_bool(j, "serving", n->serving);
    if (n->answered) {
        pk_json_number(j, "term", n->term);
    } else {
        pk_json_null(j, "term");
    }
    if (behind_of(v, n, &behind)) {
        pk_json_number(j, "behind", behind);
    } else {
        pk_json_null(j, "behind");
    }
    if (v->leader[0] != '\0' && n->role[0] != '\0' && n->heard_ms != UINT64_MAX) {
        pk_json_number(j, "heard_ms", n->heard_ms);
    } else {
        pk_json_null(j, "heard_ms");
    }
    json_text(j, "refused", n->refused);
    json_text(j, "client", n->client);
    json_text(j, "http", n->http);
    json_text(j, "raft", n->raft);
    json_text(j, "version", n->version);
    json_number(j, "oldest_version", n->oldest);
    json_number(j, "newest_version", n->newest);
    json_number(j, "data_version", n->data_version);
    pk_json_end_object(j);
}

static void print_json(const struct pk_cluster_view *v)
{
    struct pk_cluster_health h = pk_cluster_health(v);
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "cluster", v->cluster);
    json_text(&j, "leader", v->leader);
    pk_json_number(&j, "term", v->term);
    pk_json_number(&j, "last_index", v->last_index);
    json_number(&j, "cluster_version", v->version);
    pk_json_bool(&j, "version_held", v->held);
    pk_json_number(&j, "voters", h.voters);
    pk_json_number(&j, "healthy_voters", h.healthy);
    pk_json_number(&j, "failures_tolerated", h.failures_tolerated);
    pk_json_array(&j, "nodes");
    for (size_t i = 0; i < v->count; i++) {
        print_json_node(&j, v, &v->nodes[i]);
    }
    pk_json_end_array(&j);
    pk_json_end_object(&j);
}

/* What to do about members that are not healthy. */
static void advise(const struct pk_cluster_view *v)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        if (pk_cluster_state(v, n) == PK_STATE_REFUSED) {
            pk_errors_remark("%s and the leader refuse each other: %s", n->name,
                             n->refused);
        }
    }
    struct pk_cluster_health h = pk_cluster_health(v);
    if (v->leader[0] == '\0' && h.answering * 2 > h.voters) {
        pk_errors_remark("an election may be under way; look again in a second");
    } else if (v->leader[0] == '\0') {
        pk_errors_remark("start the voters that don't answer");
    }
}

static int exit_code(const struct pk_cluster_view *v)
{
    struct pk_cluster_health h = pk_cluster_health(v);
    return v->leader[0] == '\0' ? PK_EXIT_NO : h.all_healthy ? 0 : PK_EXIT_DEGRADED;
}

int pk_cluster_status(struct pk_cluster *c, bool json)
{
    struct pk_cluster_view *v = pk_door_resize(NULL, sizeof *v);
    int code = 0;
    pk_cluster_look(c, v);
    if (!v->answered) {
        code = pk_errors_fail("cluster: no node of %s answers: %s", c->url, v->why);
    } else {
        (json ? print_json : print_text)(v);
        advise(v);
        code = exit_code(v);
    }
    pk_door_resize(v, 0);
    return code;
}
