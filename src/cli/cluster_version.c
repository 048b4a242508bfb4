/* SPDX-License-Identifier: MIT */
/* Raising, holding and lowering the cluster version: CLUSTER VERSION. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cluster.h"
#include "cli/errors.h"
#include "core/door.h"
#include "host/clock.h"

enum { FILES_MS = 60000 }; /* for every node to take a snapshot */

/* The cluster version, as the leader has it. False after having said why. */
static bool look(struct pk_cluster *c, const char *word, struct pk_cluster_view *v)
{
    uint64_t began = pk_clock_ms();
    pk_cluster_look(c, v);
    while (v->leader[0] == '\0' && pk_clock_ms() - began < PK_CLUSTER_ANSWER_MS) {
        pk_cluster_pause();
        pk_cluster_look(c, v);
    }
    if (v->leader[0] == '\0') {
        (void)pk_errors_fail("cluster: %s: nobody leads %s at the moment%s%s", word,
                             c->url, v->answered ? "" : ": ", v->answered ? "" : v->why);
        return false;
    }
    if (v->version == 0) {
        (void)pk_errors_fail(
            "cluster: %s: the nodes have a release that knows no cluster "
            "version",
            word);
        return false;
    }
    return true;
}

/* A second time sets the same version. */
static int set(struct pk_cluster *c, const char *word, uint64_t version, bool hold)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, version);
    const char *const words[] = {"CLUSTER", "VERSION", text, "HOLD"};
    struct pk_cluster_answer a;
    enum pk_cluster_got got =
        pk_cluster_ask_words(c, words, hold ? 4 : 3, PK_CLUSTER_ANSWER_MS, &a);
    return got == PK_CLUSTER_OK ? 0 : pk_cluster_fail(c, word, got, &a);
}

static int hold(struct pk_cluster *c, struct pk_cluster_view *v)
{
    if (!look(c, "hold", v)) {
        return PK_EXIT_ERROR;
    }
    int code = set(c, "hold", v->version, true);
    if (code == 0) {
        pk_errors_remark("the cluster keeps version %" PRIu64
                         ", whatever its nodes can run, until 'picket cluster upgrade'",
                         v->version);
    }
    return code;
}

/* Says which nodes are in the way of the next version. */
static void tell_next(const struct pk_cluster_view *v)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        if (n->role[0] != '\0' && n->newest <= v->version) {
            pk_errors_remark(
                "node %s has picket %s, which runs no version above %" PRIu64, n->name,
                n->version[0] != '\0' ? n->version : "(not known)", v->version);
        }
    }
}

static int upgrade(struct pk_cluster *c, struct pk_cluster_view *v)
{
    if (!look(c, "upgrade", v)) {
        return PK_EXIT_ERROR;
    }
    int code = set(c, "upgrade", v->version, false);
    if (code == 0) {
        pk_errors_remark("the cluster has version %" PRIu64
                         ", and its leader raises it when every node runs the next one",
                         v->version);
        tell_next(v);
    }
    return code;
}

/* Whether the files of every member can be opened by a release of that version. */
static bool files_follow(const struct pk_cluster_view *v, uint64_t version)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        if (n->role[0] != '\0' && (!n->answered || n->data_version > version)) {
            return false;
        }
    }
    return v->version <= version;
}

static int downgrade(struct pk_cluster *c, struct pk_cluster_view *v)
{
    if (!look(c, "downgrade", v)) {
        return PK_EXIT_ERROR;
    }
    if (v->version == 1) {
        return pk_errors_fail("cluster: downgrade: the cluster has version 1, the first");
    }
    uint64_t to = v->version - 1;
    int code = set(c, "downgrade", to, true);
    if (code != 0) {
        return code;
    }
    uint64_t began = pk_clock_ms();
    do {
        pk_cluster_pause();
        pk_cluster_look(c, v);
    } while (!files_follow(v, to) && pk_clock_ms() - began < FILES_MS);
    if (!files_follow(v, to)) {
        return pk_errors_fail(
            "cluster: downgrade: the cluster has version %" PRIu64
            " and is held there, but not every node has files that an "
            "older picket can open; see data_version in 'picket cluster "
            "status -o json'",
            to);
    }
    pk_errors_remark("the cluster has version %" PRIu64
                     " and is held there: its nodes can be replaced by an older picket, "
                     "one by one",
                     to);
    return 0;
}

static int with_view(struct pk_cluster *c,
                     int (*act)(struct pk_cluster *, struct pk_cluster_view *))
{
    struct pk_cluster_view *v = pk_door_resize(NULL, sizeof *v);
    int code = act(c, v);
    pk_door_resize(v, 0);
    return code;
}

int pk_cluster_hold(struct pk_cluster *c)
{
    return with_view(c, hold);
}

int pk_cluster_upgrade(struct pk_cluster *c)
{
    return with_view(c, upgrade);
}

int pk_cluster_downgrade(struct pk_cluster *c)
{
    return with_view(c, downgrade);
}
