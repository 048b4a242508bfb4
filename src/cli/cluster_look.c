/* SPDX-License-Identifier: MIT */
/*
 * Looking at a cluster. Each node is asked for itself, all at once and each by a thread
 * of its own, so that one that hangs, or whose name is not resolved, holds up nobody. Who
 * belongs to the cluster is what the leader says, else whoever has the most of the log.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cli/cluster.h"
#include "core/door.h"
#include "host/clock.h"

enum {
    ASKED_MAX = PK_PLACES_MAX + PK_CLUSTER_NODES_MAX,
    SETTLE_TRIES = 10, /* PK_CLUSTER_PAUSE_MS apart */
};

/* ---- putting it together ---- */

struct pk_cluster_node *pk_cluster_node(struct pk_cluster_view *v, const char *name)
{
    for (size_t i = 0; i < v->count; i++) {
        if (strcmp(v->nodes[i].name, name) == 0) {
            return &v->nodes[i];
        }
    }
    return NULL;
}

static struct pk_cluster_node *add_node(struct pk_cluster_view *v,
                                        const struct pk_cluster_node *m)
{
    struct pk_cluster_node *known = pk_cluster_node(v, m->name);
    if (known == NULL && v->count < PK_CLUSTER_NODES_MAX) {
        v->nodes[v->count] = *m;
        known = &v->nodes[v->count++];
    }
    return known;
}

/* A node that serves knows who belongs to the cluster and how far each one is; otherwise
 * the one with the latest term and the longest log does. */
static bool knows_more(const struct pk_cluster_view *v, const struct pk_cluster_report *r)
{
    if (!v->answered || r->term != v->term) {
        return !v->answered || r->term > v->term;
    }
    return r->serving != 0 || (v->leader[0] == '\0' && r->last_index > v->last_index);
}

/* The members, as the one says who knows most; what nodes said of themselves stays. */
static void adopt_members(struct pk_cluster_view *v, const struct pk_cluster_report *r)
{
    for (size_t i = 0; i < v->count; i++) {
        v->nodes[i].role[0] = '\0'; /* not a member, unless it says so */
    }
    for (size_t i = 0; i < r->count; i++) {
        const struct pk_cluster_node *m = &r->members[i];
        struct pk_cluster_node *n = add_node(v, m);
        if (n != NULL) {
            memcpy(n->role, m->role, sizeof n->role);
            memcpy(n->raft, m->raft, sizeof n->raft);
            n->match = m->match;
            n->heard_ms = m->heard_ms;
            memcpy(n->refused, m->refused, sizeof n->refused);
            n->oldest = m->oldest;
            n->newest = m->newest;
            if (n->version[0] == '\0') {
                memcpy(n->version, m->version, sizeof n->version);
            }
            if (n->client[0] == '\0') {
                memcpy(n->client, m->client, sizeof n->client);
                memcpy(n->http, m->http, sizeof n->http);
            }
        }
    }
    v->term = r->term;
    v->last_index = r->last_index;
    v->commit_index = r->commit_index;
    v->silent_after_ms = r->silent_after_ms;
    v->version = r->cluster_version;
    v->held = r->version_held != 0;
    (void)snprintf(v->cluster, sizeof v->cluster, "%s", r->cluster);
    (void)snprintf(v->leader, sizeof v->leader, "%s", r->serving != 0 ? r->node : "");
}

static void add_report(struct pk_cluster_view *v, const struct pk_cluster_report *r,
                       const char *address)
{
    struct pk_cluster_node self = {0};
    for (size_t i = 0; i < r->count; i++) {
        if (strcmp(r->members[i].name, r->node) == 0) {
            self = r->members[i];
        }
    }
    (void)snprintf(self.name, sizeof self.name, "%s", r->node);
    self.role[0] = '\0'; /* one that was removed does not know it */
    struct pk_cluster_node *n = add_node(v, &self);
    if (n == NULL) {
        return;
    }
    n->answered = true;
    n->serving = r->serving != 0;
    n->term = r->term;
    n->last_index = r->last_index;
    n->data_version = r->data_version;
    (void)snprintf(n->at, sizeof n->at, "%s", address);
    (void)snprintf(n->follows, sizeof n->follows, "%s", r->leader);
    memcpy(n->standing, r->standing, sizeof n->standing);
    memcpy(n->version, r->version, sizeof n->version);
    if (knows_more(v, r)) {
        adopt_members(v, r);
    }
    v->answered = true;
}

/* ---- asking all of them ---- */

struct answer {
    struct answer *next;
    bool came;
    char address[PK_HOST_MAX + 9], why[480];
    struct pk_cluster_report report;
};

/* Shared with the threads that ask; the last one to leave frees it. */
struct survey {
    pthread_mutex_t mutex;
    pthread_cond_t told;
    struct answer *answers; /* that were not taken yet */
    unsigned asking;        /* threads whose answer was not taken yet */
    unsigned users;         /* threads that run, and the one who looks */
    /* Of the one who looks alone. */
    char asked[ASKED_MAX][PK_HOST_MAX + 9];
    size_t n_asked;
    uint64_t until_ms;
};

struct question {
    struct survey *survey;
    struct answer *answer;
};

static void leave(struct survey *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    bool last = --s->users == 0;
    (void)pthread_mutex_unlock(&s->mutex);
    if (!last) {
        return;
    }
    while (s->answers != NULL) {
        struct answer *a = s->answers;
        s->answers = a->next;
        pk_door_resize(a, 0);
    }
    (void)pthread_cond_destroy(&s->told);
    (void)pthread_mutex_destroy(&s->mutex);
    pk_door_resize(s, 0);
}

static void *ask(void *arg)
{
    struct question *q = arg;
    struct survey *s = q->survey;
    struct answer *a = q->answer;
    pk_door_resize(q, 0);
    a->came = pk_cluster_report(a->address, &a->report, a->why, sizeof a->why);
    (void)pthread_mutex_lock(&s->mutex);
    a->next = s->answers;
    s->answers = a;
    (void)pthread_cond_signal(&s->told);
    (void)pthread_mutex_unlock(&s->mutex);
    leave(s);
    return NULL;
}

/* Begins to ask the node at that address, unless it was asked already. */
static void begin(struct survey *s, const char *address)
{
    pthread_t thread;
    for (size_t i = 0; i < s->n_asked; i++) {
        if (strcmp(s->asked[i], address) == 0) {
            return;
        }
    }
    if (s->n_asked == ASKED_MAX) {
        return;
    }
    struct question *q = pk_door_resize(NULL, sizeof *q);
    struct answer *a = pk_door_resize(NULL, sizeof *a);
    memset(a, 0, sizeof *a);
    (void)snprintf(a->address, sizeof a->address, "%s", address);
    memcpy(s->asked[s->n_asked++], a->address, sizeof a->address);
    *q = (struct question){.survey = s, .answer = a};
    (void)pthread_mutex_lock(&s->mutex);
    s->users++;
    s->asking++;
    (void)pthread_mutex_unlock(&s->mutex);
    s->until_ms = pk_clock_ms() + PK_CLUSTER_LOOK_MS;
    if (pthread_create(&thread, NULL, ask, q) == 0) {
        (void)pthread_detach(thread);
    } else {
        (void)ask(q); /* one by one, then */
    }
}

/* The next answer, to be freed by the caller. NULL: all have come, or it is too late. */
static struct answer *next_answer(struct survey *s, uint64_t until_ms)
{
    struct timespec until = pk_clock_monotonic(until_ms);
    int late = 0;
    (void)pthread_mutex_lock(&s->mutex);
    while (s->answers == NULL && s->asking > 0 && late == 0) {
        late = pthread_cond_clockwait(&s->told, &s->mutex, CLOCK_MONOTONIC, &until);
    }
    struct answer *a = s->answers;
    if (a != NULL) {
        s->answers = a->next;
        s->asking--;
    }
    (void)pthread_mutex_unlock(&s->mutex);
    return a;
}

static void take_answer(struct survey *s, struct pk_cluster_view *v, struct answer *a)
{
    if (a->came) {
        add_report(v, &a->report, a->address);
    } else {
        memcpy(v->why, a->why, sizeof v->why);
    }
    pk_door_resize(a, 0);
    /* Each that answers may know nodes that the URL does not name. */
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        if (!n->answered && n->client[0] != '\0') {
            begin(s, n->client);
        }
    }
}

/* `all`: waits for every node. Otherwise it ends when a node has said that it leads. */
static void look_around(struct pk_cluster *c, struct pk_cluster_view *v, bool all)
{
    struct survey *s = pk_door_resize(NULL, sizeof *s);
    memset(s, 0, sizeof *s);
    PK_ASSERT(pthread_mutex_init(&s->mutex, NULL) == 0 &&
              pthread_cond_init(&s->told, NULL) == 0);
    s->users = 1;
    *v = (struct pk_cluster_view){0};
    for (uint32_t i = 0; i < c->places.count; i++) {
        begin(s, c->places.list[i].text);
    }
    for (;;) {
        bool found = v->leader[0] != '\0';
        /* A busy leader gets more time than what only has to be shown as unreachable. */
        uint64_t more_ms = found ? 0 : PK_CLUSTER_LOOK_MS;
        struct answer *a = found && !all ? NULL : next_answer(s, s->until_ms + more_ms);
        if (a == NULL) {
            break;
        }
        take_answer(s, v, a);
    }
    leave(s);
}

/* ---- what is seen ---- */

bool pk_cluster_find_leader(struct pk_cluster *c, struct pk_cluster_view *v)
{
    look_around(c, v, false);
    return v->leader[0] != '\0';
}

/* Whether the leader's answer may be too old to judge a member by. */
static bool is_unsettled(const struct pk_cluster_view *v)
{
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        bool heard = n->heard_ms <= v->silent_after_ms;
        bool member = n->role[0] != '\0' && strcmp(n->role, "spare") != 0;
        if (member && heard && strcmp(n->name, v->leader) != 0 &&
            (!n->answered || n->match < v->commit_index)) {
            return true;
        }
    }
    return false;
}

/* A member keeps up when it soon has what was committed at the first look; how long it
 * was not heard is what the leader says last. */
void pk_cluster_look(struct pk_cluster *c, struct pk_cluster_view *v)
{
    struct pk_cluster_report *r = pk_door_resize(NULL, sizeof *r);
    char why[480];
    look_around(c, v, true);
    for (int i = 0; i < SETTLE_TRIES && v->leader[0] != '\0' && is_unsettled(v); i++) {
        uint64_t first_commit = v->commit_index;
        const struct pk_cluster_node *leader = pk_cluster_node(v, v->leader);
        pk_cluster_pause();
        if (leader == NULL || !pk_cluster_report(leader->at, r, why, sizeof why) ||
            r->serving == 0) {
            break;
        }
        adopt_members(v, r);
        v->commit_index = first_commit;
    }
    pk_door_resize(r, 0);
}
