/* SPDX-License-Identifier: MIT */
/*
 * Looking at a cluster. Each node is asked for itself, so that one that does not answer
 * shows; who belongs to the cluster is what the leader says, else whoever has the most
 * of the log.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cluster.h"
#include "cli/errors.h"
#include "cli/output.h"
#include "core/door.h"

/* What one node says: of itself, and of all members. */
struct report {
    char cluster[32], node[PK_CLUSTER_TEXT_MAX], standing[16], version[32];
    uint64_t serving, term, last_index;
    struct pk_cluster_node members[PK_CLUSTER_NODES_MAX];
    size_t count;
};

/* ---- reading ---- */

struct field {
    const char *name;
    void *at;
    size_t size; /* of a text; 0: a number */
};

static void take(const struct field *f, const struct pk_resp_value *v)
{
    if (f->size == 0) {
        *(uint64_t *)f->at = v->type == PK_RESP_INT ? (uint64_t)v->number : 0;
    } else {
        size_t len = v->bytes.len < f->size - 1 ? v->bytes.len : f->size - 1;
        memcpy(f->at, v->bytes.data == NULL ? "" : v->bytes.data, len);
        ((char *)f->at)[len] = '\0';
    }
}

/* Reads the value behind a key that one of the fields has; false: none has it. */
static bool take_known(const struct field *fields, size_t n, struct pk_bytes key,
                       struct pk_resp_cursor *cursor)
{
    for (size_t i = 0; i < n; i++) {
        if (pk_resp_is(key, fields[i].name)) {
            struct pk_resp_value v = pk_resp_next(cursor);
            take(&fields[i], &v);
            pk_resp_skip(cursor, &v);
            return true;
        }
    }
    return false;
}

static void skip_value(struct pk_resp_cursor *cursor)
{
    struct pk_resp_value v = pk_resp_next(cursor);
    pk_resp_skip(cursor, &v);
}

/* RESP2 has maps as arrays. */
static uint32_t pairs_of(const struct pk_resp_value *v)
{
    return v->type == PK_RESP_MAP ? v->n : v->type == PK_RESP_ARRAY ? v->n / 2 : 0;
}

static void read_member(struct pk_resp_cursor *cursor, struct pk_cluster_node *m)
{
    const struct field fields[] = {
        {"name", m->name, sizeof m->name},       {"role", m->role, sizeof m->role},
        {"client", m->client, sizeof m->client}, {"http", m->http, sizeof m->http},
        {"raft", m->raft, sizeof m->raft},       {"match", &m->match, 0},
    };
    struct pk_resp_value map = pk_resp_next(cursor);
    for (uint32_t i = pairs_of(&map); i > 0 && !cursor->bad; i--) {
        struct pk_bytes key = pk_resp_next(cursor).bytes;
        if (!take_known(fields, sizeof fields / sizeof fields[0], key, cursor)) {
            skip_value(cursor);
        }
    }
}

static void read_members(struct pk_resp_cursor *cursor, struct report *r)
{
    struct pk_resp_value list = pk_resp_next(cursor);
    for (uint32_t i = 0; i < list.n && !cursor->bad; i++) {
        struct pk_cluster_node beyond = {0};
        bool room = r->count < PK_CLUSTER_NODES_MAX;
        read_member(cursor, room ? &r->members[r->count] : &beyond);
        r->count += room;
    }
}

static bool read_report(struct pk_bytes whole, struct report *r)
{
    const struct field fields[] = {
        {"cluster", r->cluster, sizeof r->cluster},
        {"node", r->node, sizeof r->node},
        {"standing", r->standing, sizeof r->standing},
        {"version", r->version, sizeof r->version},
        {"serving", &r->serving, 0},
        {"term", &r->term, 0},
        {"last_index", &r->last_index, 0},
    };
    struct pk_resp_cursor cursor = {.rest = whole};
    struct pk_resp_value map = pk_resp_next(&cursor);
    for (uint32_t i = pairs_of(&map); i > 0 && !cursor.bad; i--) {
        struct pk_bytes key = pk_resp_next(&cursor).bytes;
        if (pk_resp_is(key, "members")) {
            read_members(&cursor, r);
        } else if (!take_known(fields, sizeof fields / sizeof fields[0], key, &cursor)) {
            skip_value(&cursor);
        }
    }
    return !cursor.bad && r->node[0] != '\0';
}

static bool ask_report(const char *address, struct report *r, char *why, size_t size)
{
    static const char *const words[] = {"CLUSTER", "STATUS"};
    struct pk_ask line;
    struct pk_bytes whole;
    bool sent;
    *r = (struct report){0};
    bool ok = pk_ask_open(&line, address, PK_CLUSTER_OPEN_MS) &&
              pk_ask_words(&line, words, 2, PK_CLUSTER_OPEN_MS, &whole, &sent);
    if (!ok) {
        (void)snprintf(why, size, "%s", line.why);
        return false;
    }
    ok = read_report(whole, r);
    if (!ok) {
        (void)snprintf(why, size, "%s: its answer is not that of a node: %.*s", address,
                       (int)(whole.len < 200 ? whole.len : 200), whole.data);
    }
    pk_ask_close(&line);
    return ok;
}

/* ---- putting it together ---- */

static struct pk_cluster_node *find_node(struct pk_cluster_view *v, const char *name)
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
    struct pk_cluster_node *known = find_node(v, m->name);
    if (known == NULL && v->count < PK_CLUSTER_NODES_MAX) {
        v->nodes[v->count] = *m;
        known = &v->nodes[v->count++];
    }
    return known;
}

/* A node that serves knows who belongs to the cluster and how far each one is; otherwise
 * the one with the latest term and the longest log does. */
static bool knows_more(const struct pk_cluster_view *v, const struct report *r)
{
    if (!v->answered || r->term != v->term) {
        return !v->answered || r->term > v->term;
    }
    return r->serving != 0 || (v->leader[0] == '\0' && r->last_index > v->last_index);
}

/* The members, as the one says who knows most; what nodes said of themselves stays. */
static void adopt_members(struct pk_cluster_view *v, const struct report *r)
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
            if (n->client[0] == '\0') {
                memcpy(n->client, m->client, sizeof n->client);
                memcpy(n->http, m->http, sizeof n->http);
            }
        }
    }
    v->term = r->term;
    v->last_index = r->last_index;
    (void)snprintf(v->cluster, sizeof v->cluster, "%s", r->cluster);
    (void)snprintf(v->leader, sizeof v->leader, "%s", r->serving != 0 ? r->node : "");
}

static void add_report(struct pk_cluster_view *v, const struct report *r)
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
    memcpy(n->standing, r->standing, sizeof n->standing);
    memcpy(n->version, r->version, sizeof n->version);
    if (knows_more(v, r)) {
        adopt_members(v, r);
    }
    v->answered = true;
}

static bool asked_already(const struct pk_cluster *c, const char *address)
{
    for (uint32_t i = 0; i < c->places.count; i++) {
        if (strcmp(c->places.list[i].text, address) == 0) {
            return true;
        }
    }
    return false;
}

void pk_cluster_look(struct pk_cluster *c, struct pk_cluster_view *v)
{
    struct report *r = pk_door_resize(NULL, sizeof *r);
    *v = (struct pk_cluster_view){0};
    for (uint32_t i = 0; i < c->places.count; i++) {
        if (ask_report(c->places.list[i].text, r, v->why, sizeof v->why)) {
            add_report(v, r);
        }
    }
    /* Nodes that the URL does not name. Each that answers may know more of them, or where
     * one is that we know by name alone. */
    bool asked[PK_CLUSTER_NODES_MAX] = {false};
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < v->count; i++) {
            const struct pk_cluster_node *n = &v->nodes[i];
            if (asked[i] || n->answered || n->client[0] == '\0' ||
                asked_already(c, n->client)) {
                continue;
            }
            asked[i] = true;
            if (ask_report(n->client, r, v->why, sizeof v->why)) {
                add_report(v, r);
                more = true;
            }
        }
    }
    pk_door_resize(r, 0);
}

/* ---- showing ---- */

static const char *state_of(const struct pk_cluster_view *v,
                            const struct pk_cluster_node *n)
{
    if (!n->answered) {
        return "unreachable";
    }
    /* A leader that was cut off does not know yet that it has been replaced. */
    bool old = strcmp(n->standing, "leader") == 0 && strcmp(n->name, v->leader) != 0 &&
               v->leader[0] != '\0';
    return old ? "deposed" : n->standing;
}

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
    static const char *const heads[] = {"NODE",   "ROLE",    "STATE", "TERM",
                                        "BEHIND", "CLIENTS", "HTTP",  "NODES"};
    struct pk_table t = {.columns = sizeof heads / sizeof heads[0]};
    for (size_t i = 0; i < t.columns; i++) {
        pk_table_add(&t, "%s", heads[i]);
    }
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        uint64_t behind;
        pk_table_add(&t, "%s", n->name);
        pk_table_add(&t, "%s", n->role[0] != '\0' ? n->role : "none");
        pk_table_add(&t, "%s", state_of(v, n));
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
    }
    pk_table_print(&t);
}

static void json_text(struct pk_json *j, const char *key, const char *text)
{
    if (text[0] != '\0') {
        pk_json_text(j, key, text);
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
    pk_json_text(j, "state", state_of(v, n));
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
    json_text(j, "client", n->client);
    json_text(j, "http", n->http);
    json_text(j, "raft", n->raft);
    json_text(j, "version", n->version);
    pk_json_end_object(j);
}

static void print_json(const struct pk_cluster_view *v)
{
    struct pk_json j = {0};
    pk_json_object(&j, NULL);
    pk_json_text(&j, "cluster", v->cluster);
    json_text(&j, "leader", v->leader);
    pk_json_number(&j, "term", v->term);
    pk_json_number(&j, "last_index", v->last_index);
    pk_json_array(&j, "nodes");
    for (size_t i = 0; i < v->count; i++) {
        print_json_node(&j, v, &v->nodes[i]);
    }
    pk_json_end_array(&j);
    pk_json_end_object(&j);
}

static void remark(const struct pk_cluster_view *v)
{
    size_t voters = 0, there = 0;
    for (size_t i = 0; i < v->count; i++) {
        bool voter = strcmp(v->nodes[i].role, "voter") == 0;
        voters += voter;
        there += voter && v->nodes[i].answered;
    }
    if (v->leader[0] == '\0' && there * 2 > voters) {
        pk_errors_remark("nobody leads at the moment; look again in a second");
    } else if (v->leader[0] == '\0') {
        pk_errors_remark("nobody leads: %zu of %zu voters answer, and it takes %zu; "
                         "start the others",
                         there, voters, voters / 2 + 1);
    } else if (there < voters) {
        pk_errors_remark("%zu of %zu voters answer; %zu more may go before the cluster "
                         "stops",
                         there, voters, there > voters / 2 ? there - voters / 2 - 1 : 0);
    }
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
        remark(v);
        code = v->leader[0] == '\0' ? PK_EXIT_NO : 0;
    }
    pk_door_resize(v, 0);
    return code;
}
