/* SPDX-License-Identifier: MIT */
/* What `picket doctor` asks a cluster: who belongs to it, who leads, and how many more
 * failures it bears now. */
#include <stdio.h>
#include <string.h>

#include "cli/cluster.h"
#include "cli/doctor.h"
#include "client/error.h"
#include "core/door.h"

static bool differ_in_version(const struct pk_cluster_view *v)
{
    const char *version = NULL;
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        if (n->answered && version != NULL && strcmp(version, n->version) != 0) {
            return true;
        }
        version = n->answered ? n->version : version;
    }
    return false;
}

/* The names of members in other states than leader and follower, with their states. */
static void list_unhealthy(const struct pk_cluster_view *v, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < v->count && used < size; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        enum pk_member_state s = pk_cluster_state(v, n);
        if (n->role[0] != '\0' && s != PK_STATE_LEADER && s != PK_STATE_FOLLOWER) {
            used += (size_t)snprintf(out + used, size - used, "%s%s is %s",
                                     used == 0 ? "" : ", ", n->name,
                                     pk_cluster_state_name(s));
        }
    }
}

static void judge_size(const struct pk_cluster_health *h, struct pk_findings *out)
{
    if (h->voters == 1) {
        pk_findings_add(out, PK_NOTE, "single-node",
                        "one node: while it is down nobody gets a lock, and its disk is "
                        "the only copy; 'picket cluster add' makes it three");
    } else if (h->voters % 2 == 0) {
        pk_findings_add(out, PK_NOTE, "even-nodes",
                        "%zu voters survive no more losses than %zu would; add one, or "
                        "remove one",
                        h->voters, h->voters - 1);
    }
}

static void judge_nodes(const struct pk_cluster_view *v,
                        const struct pk_cluster_health *h, struct pk_findings *out)
{
    char summary[256];
    char unhealthy[512];
    pk_cluster_summary(v, summary, sizeof summary);
    list_unhealthy(v, unhealthy, sizeof unhealthy);
    if (v->leader[0] == '\0') {
        pk_findings_add(
            out, PK_NOTE, "no-leader",
            "%s: no lock is granted and no lease renewed; see 'picket cluster "
            "status'",
            summary);
        return;
    }
    pk_findings_add(out, PK_FINE, "leader", "%s leads, in term %llu", v->leader,
                    (unsigned long long)v->term);
    if (h->all_healthy) {
        pk_findings_add(out, PK_FINE, "nodes", "%s", summary);
    } else {
        pk_findings_add(out, PK_NOTE, "unhealthy-nodes",
                        "%s (%s); start or replace the node, see 'picket cluster status'",
                        summary, unhealthy);
    }
}

enum picket_status pk_doctor_cluster(const char *rest, struct pk_findings *out,
                                     struct pk_cluster_health *h)
{
    struct pk_cluster c = {.line = {.fd = -1}};
    enum picket_status s = pk_remote_places(rest, &c.places);
    if (s != PICKET_OK) {
        return s;
    }
    struct pk_cluster_view *v = pk_door_resize(NULL, sizeof *v);
    pk_cluster_look(&c, v);
    if (!v->answered) {
        s = pk_fail(PICKET_UNREACHABLE, "no node of picket:%s answers: %s", rest, v->why);
    } else {
        *h = pk_cluster_health(v);
        judge_size(h, out);
        judge_nodes(v, h, out);
        if (differ_in_version(v)) {
            pk_findings_add(out, PK_NOTE, "versions",
                            "the nodes are of different versions; end the upgrade");
        }
        if (c.places.count == 1 && h->voters > 1) {
            pk_findings_add(out, PK_NOTE, "one-address",
                            "the URL names one of %zu nodes: while that one is down a "
                            "new client finds none of the others; name them all",
                            h->voters);
        }
    }
    pk_door_resize(v, 0);
    return s;
}
