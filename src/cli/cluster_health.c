/* SPDX-License-Identifier: MIT */
/*
 * Judging a cluster: in which state each member is, and how many more failures the
 * cluster bears now. The leader's word counts: a voter that it does not hear, or whose
 * log is behind, adds nothing to the majority, whatever the voter says of itself.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cluster.h"

const char *pk_cluster_state_name(enum pk_member_state s)
{
    static const char *const names[] = {"leader",  "follower", "lagging", "candidate",
                                        "deposed", "refused",  "silent",  "unreachable"};
    return names[s];
}

/* What a node says of itself. */
static enum pk_member_state own_state(const struct pk_cluster_view *v,
                                      const struct pk_cluster_node *n)
{
    if (!n->answered) {
        return PK_STATE_UNREACHABLE;
    }
    if (strcmp(n->standing, "leader") == 0) {
        /* A leader that was cut off does not know yet that it has been replaced. */
        return v->leader[0] != '\0' ? PK_STATE_DEPOSED : PK_STATE_LEADER;
    }
    return strcmp(n->standing, "candidate") == 0 ? PK_STATE_CANDIDATE : PK_STATE_FOLLOWER;
}

static bool takes_part(const struct pk_cluster_node *n)
{
    return strcmp(n->role, "voter") == 0 || strcmp(n->role, "standby") == 0;
}

enum pk_member_state pk_cluster_state(const struct pk_cluster_view *v,
                                      const struct pk_cluster_node *n)
{
    enum pk_member_state own = own_state(v, n);
    if (v->leader[0] != '\0' && strcmp(n->name, v->leader) == 0) {
        return PK_STATE_LEADER;
    }
    if (v->leader[0] == '\0' || !takes_part(n)) {
        return own; /* no leader's word about it */
    }
    if (n->heard_ms > v->silent_after_ms) {
        return n->refused[0] != '\0'      ? PK_STATE_REFUSED
               : own == PK_STATE_FOLLOWER ? PK_STATE_SILENT
                                          : own;
    }
    if (own == PK_STATE_CANDIDATE || own == PK_STATE_DEPOSED) {
        return own;
    }
    return n->match < v->commit_index ? PK_STATE_LAGGING : PK_STATE_FOLLOWER;
}

struct pk_cluster_health pk_cluster_health(const struct pk_cluster_view *v)
{
    struct pk_cluster_health h = {.all_healthy = v->leader[0] != '\0'};
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        enum pk_member_state s = pk_cluster_state(v, n);
        bool healthy = s == PK_STATE_LEADER || s == PK_STATE_FOLLOWER;
        bool voter = strcmp(n->role, "voter") == 0;
        h.voters += voter;
        h.healthy += voter && healthy;
        h.answering += voter && n->answered;
        h.all_healthy = h.all_healthy && (healthy || !takes_part(n));
    }
    size_t majority = h.voters / 2 + 1;
    h.failures_tolerated =
        v->leader[0] != '\0' && h.healthy > majority ? h.healthy - majority : 0;
    return h;
}

void pk_cluster_summary(const struct pk_cluster_view *v, char *out, size_t size)
{
    struct pk_cluster_health h = pk_cluster_health(v);
    if (v->leader[0] == '\0') {
        (void)snprintf(out, size,
                       "nobody leads this cluster: %zu of %zu voters answer, and it "
                       "takes %zu",
                       h.answering, h.voters, h.voters / 2 + 1);
    } else {
        (void)snprintf(out, size,
                       "this cluster has %zu voter%s, %zu of them healthy: it bears %zu "
                       "more failure%s",
                       h.voters, h.voters == 1 ? "" : "s", h.healthy,
                       h.failures_tolerated, h.failures_tolerated == 1 ? "" : "s");
    }
}
