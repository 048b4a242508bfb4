/* SPDX-License-Identifier: MIT */
/* What `picket doctor` asks a cluster: who belongs to it, who answers, who leads. */
#include <string.h>

#include "cli/cluster.h"
#include "cli/doctor.h"
#include "client/error.h"
#include "core/door.h"

struct count {
    size_t voters, there;
    bool versions; /* more than one */
    const char *away;
};

static struct count count_nodes(const struct pk_cluster_view *v)
{
    struct count c = {0};
    const char *version = NULL;
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        bool voter = strcmp(n->role, "voter") == 0;
        c.voters += voter;
        c.there += voter && n->answered;
        c.away = voter && !n->answered ? n->name : c.away;
        if (n->answered) {
            c.versions = c.versions || (version && strcmp(version, n->version) != 0);
            version = n->version;
        }
    }
    return c;
}

static void judge_size(const struct count *c, struct pk_findings *out)
{
    if (c->voters == 1) {
        pk_findings_add(out, PK_NOTE, "single-node",
                        "one node: while it is down nobody gets a lock, and its disk is "
                        "the only copy; 'picket cluster add' makes it three");
    } else if (c->voters % 2 == 0) {
        pk_findings_add(out, PK_NOTE, "even-nodes",
                        "%zu voters survive no more losses than %zu would; add one, or "
                        "remove one",
                        c->voters, c->voters - 1);
    } else {
        pk_findings_add(out, PK_FINE, "nodes",
                        "%zu voters: any %zu of them may die without a loss", c->voters,
                        (c->voters - 1) / 2);
    }
}

static void judge_nodes(const struct pk_cluster_view *v, const struct count *c,
                        struct pk_findings *out)
{
    if (c->there < c->voters) {
        size_t spare = c->there > c->voters / 2 ? c->there - c->voters / 2 - 1 : 0;
        pk_findings_add(out, PK_NOTE, "nodes-away",
                        "%zu of %zu voters answer (%s does not); %zu more may go before "
                        "the cluster stops; start or replace what is missing",
                        c->there, c->voters, c->away, spare);
    }
    if (v->leader[0] == '\0') {
        pk_findings_add(out, PK_NOTE, "no-leader",
                        "nobody leads: no lock is granted and no lease renewed until %zu "
                        "of %zu voters see each other; see 'picket cluster status'",
                        c->voters / 2 + 1, c->voters);
    } else {
        pk_findings_add(out, PK_FINE, "leader", "%s leads, in term %llu", v->leader,
                        (unsigned long long)v->term);
    }
    if (c->versions) {
        pk_findings_add(out, PK_NOTE, "versions",
                        "the nodes are of different versions; end the upgrade");
    }
}

enum picket_status pk_doctor_cluster(const char *rest, struct pk_findings *out)
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
        struct count n = count_nodes(v);
        judge_size(&n, out);
        judge_nodes(v, &n, out);
        if (c.places.count == 1 && n.voters > 1) {
            pk_findings_add(out, PK_NOTE, "one-address",
                            "the URL names one of %zu nodes: while that one is down a "
                            "new client finds none of the others; name them all",
                            n.voters);
        }
    }
    pk_door_resize(v, 0);
    return s;
}
