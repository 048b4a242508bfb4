/* SPDX-License-Identifier: MIT */
/* Reading what one node says of itself and of all members: CLUSTER STATUS. */
#include <stdio.h>
#include <string.h>

#include "cli/cluster.h"

struct field {
    const char *name;
    void *at;
    size_t size; /* of a text; 0: a number */
};

static void take(const struct field *f, const struct pk_resp_value *v)
{
    if (f->size == 0) {
        if (v->type == PK_RESP_INT) {
            *(uint64_t *)f->at = (uint64_t)v->number;
        }
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
        {"name", m->name, sizeof m->name},
        {"role", m->role, sizeof m->role},
        {"client", m->client, sizeof m->client},
        {"http", m->http, sizeof m->http},
        {"raft", m->raft, sizeof m->raft},
        {"match", &m->match, 0},
        {"heard_ms", &m->heard_ms, 0},
        {"refused", m->refused, sizeof m->refused},
        {"release", m->version, sizeof m->version},
        {"oldest_version", &m->oldest, 0},
        {"newest_version", &m->newest, 0},
    };
    m->heard_ms = UINT64_MAX; /* it is null when there is no connection */
    struct pk_resp_value map = pk_resp_next(cursor);
    for (uint32_t i = pairs_of(&map); i > 0 && !cursor->bad; i--) {
        struct pk_bytes key = pk_resp_next(cursor).bytes;
        if (!take_known(fields, sizeof fields / sizeof fields[0], key, cursor)) {
            skip_value(cursor);
        }
    }
}

static void read_members(struct pk_resp_cursor *cursor, struct pk_cluster_report *r)
{
    struct pk_resp_value list = pk_resp_next(cursor);
    for (uint32_t i = 0; i < list.n && !cursor->bad; i++) {
        struct pk_cluster_node beyond = {0};
        bool room = r->count < PK_CLUSTER_NODES_MAX;
        read_member(cursor, room ? &r->members[r->count] : &beyond);
        r->count += room;
    }
}

static bool read_report(struct pk_bytes whole, struct pk_cluster_report *r)
{
    const struct field fields[] = {
        {"cluster", r->cluster, sizeof r->cluster},
        {"node", r->node, sizeof r->node},
        {"leader", r->leader, sizeof r->leader},
        {"standing", r->standing, sizeof r->standing},
        {"version", r->version, sizeof r->version},
        {"serving", &r->serving, 0},
        {"term", &r->term, 0},
        {"last_index", &r->last_index, 0},
        {"commit_index", &r->commit_index, 0},
        {"silent_after_ms", &r->silent_after_ms, 0},
        {"cluster_version", &r->cluster_version, 0},
        {"version_held", &r->version_held, 0},
        {"data_version", &r->data_version, 0},
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

bool pk_cluster_report(const char *address, struct pk_cluster_report *r, char *why,
                       size_t size)
{
    static const char *const words[] = {"CLUSTER", "STATUS"};
    struct pk_ask line;
    struct pk_bytes whole;
    bool sent;
    *r = (struct pk_cluster_report){0};
    bool ok = pk_ask_open(&line, address, PK_CLUSTER_LOOK_MS) &&
              pk_ask_words(&line, words, 2, PK_CLUSTER_LOOK_MS, &whole, &sent);
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
