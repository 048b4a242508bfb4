/* SPDX-License-Identifier: MIT */
#include "server/bootstrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/version.h"
#include "host/clock.h"
#include "host/version.h"
#include "server/address.h"
#include "server/ask.h"
#include "server/log.h"
#include "server/members.h"

enum { JOIN_MS = 10000 };

static const char default_raft[] = "127.0.0.1:7422";

void pk_bootstrap_fail(const char *what, const char *why)
{
    (void)fprintf(stderr, "picket serve: %s: %s\n", what, why);
}

static bool fail(const char *what, const char *why)
{
    pk_bootstrap_fail(what, why);
    return false;
}

/* ---- name and place ---- */

static bool settle_name(const struct pk_server_options *o, struct pk_bootstrap *b,
                        bool fresh)
{
    char why[256];
    if (fresh) {
        (void)snprintf(b->self.name, sizeof b->self.name, "%s",
                       o->name != NULL ? o->name : "n1");
        b->self.id = pk_node_id_new();
    } else if (o->name != NULL && strcmp(o->name, b->self.name) != 0) {
        (void)snprintf(why, sizeof why, "it belongs to node %s, not %s", b->self.name,
                       o->name);
        return fail(o->data, why);
    }
    return true;
}

/* The address of a first node is the one that all of them were given. */
static bool find_place(const struct pk_server_options *o, struct pk_bootstrap *b)
{
    const char *wrong = pk_members_read(o->cluster, b->members, &b->n_members);
    if (wrong != NULL) {
        return fail("--cluster", wrong);
    }
    const struct pk_member *found =
        pk_member_named(b->members, b->n_members, b->self.name);
    if (found == NULL) {
        char why[256];
        (void)snprintf(why, sizeof why, "there is no node %s in it; see --name",
                       b->self.name);
        return fail("--cluster", why);
    }
    b->members[found - b->members].id = b->self.id;
    const char *address = pk_member_host(found);
    (void)snprintf(b->address, sizeof b->address, "%s", address);
    (void)snprintf(b->listen, sizeof b->listen, "%s",
                   o->raft != NULL ? o->raft : address);
    return true;
}

/* Others can't use a wildcard: they need the host that --advertise names. */
static bool make_address(const struct pk_server_options *o, struct pk_bootstrap *b)
{
    char host[PK_HOST_MAX];
    uint16_t port;
    (void)snprintf(b->listen, sizeof b->listen, "%s",
                   o->raft != NULL ? o->raft : default_raft);
    const char *wrong = pk_address_split(b->listen, host, sizeof host, &port);
    if (wrong != NULL) {
        return fail("--raft", wrong);
    }
    bool wildcard = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    if (wildcard && o->advertise == NULL) {
        return fail("--raft", "other nodes can't find this one at a wildcard; say which "
                              "host they should use: --advertise HOST");
    }
    const char *shown = o->advertise != NULL ? o->advertise : host;
    bool six = strchr(shown, ':') != NULL;
    (void)snprintf(b->address, sizeof b->address, six ? "[%s]:%u" : "%s:%u", shown, port);
    return true;
}

/* ---- the beginning ---- */

/* What this node must know of an answer to CLUSTER STATUS. A node of another release may
 * say more, and in another order. */
struct joined {
    uint64_t cluster; /* 0: none */
    int64_t version;  /* of the cluster; 0: it does not say */
};

static struct joined read_status(struct pk_bytes answer)
{
    struct joined j = {0};
    struct pk_resp_cursor c = {.rest = answer};
    struct pk_resp_value map = pk_resp_next(&c);
    uint32_t pairs = map.type == PK_RESP_MAP ? map.n : map.n / 2; /* RESP2: an array */
    for (; pairs > 0 && !c.bad; pairs--) {
        struct pk_bytes key = pk_resp_next(&c).bytes;
        struct pk_resp_value v = pk_resp_next(&c);
        char text[32] = "";
        if (pk_resp_is(key, "cluster") && v.bytes.len > 0 && v.bytes.len < sizeof text) {
            memcpy(text, v.bytes.data, v.bytes.len);
            j.cluster = strtoull(text, NULL, 16);
        } else if (pk_resp_is(key, "cluster_version")) {
            j.version = v.number;
        }
        pk_resp_skip(&c, &v);
    }
    return j;
}

/* Asks a node of the cluster to take us in. False, with a sentence in `why`. */
static bool ask_to_join(const struct pk_server_options *o, struct pk_bootstrap *b,
                        char *why, size_t size)
{
    struct pk_ask a;
    struct pk_bytes answer;
    bool sent;
    const char *const status[] = {"CLUSTER", "STATUS"};
    char id[20];
    (void)snprintf(id, sizeof id, "%016llx", (unsigned long long)b->self.id);
    const char *const add[] = {"CLUSTER", "ADD", b->self.name, b->address, id};
    bool asked = pk_ask_open(&a, o->join, JOIN_MS) &&
                 pk_ask_words(&a, status, 2, JOIN_MS, &answer, &sent);
    struct joined to = asked ? read_status(answer) : (struct joined){0};
    uint64_t cluster = to.cluster;
    bool is_new = b->self.cluster == 0;
    bool stranger = asked && !is_new && cluster != b->self.cluster;
    bool runs = to.version == 0 || pk_version_runs((uint64_t)to.version);
    asked =
        asked && !stranger && runs && pk_ask_words(&a, add, 5, JOIN_MS, &answer, &sent);
    bool joined = asked && cluster != 0 && answer.data[0] == '+';
    if (!runs) {
        (void)snprintf(why, size, "%s",
                       pk_version_needed("the cluster", (uint32_t)to.version));
    } else if (stranger) {
        /* It would list a node that can never connect to it. */
        (void)snprintf(why, size, "this node belongs to another cluster");
    } else if (asked) {
        (void)snprintf(why, size, "%.*s", (int)answer.len, answer.data);
        why[strcspn(why, "\r\n")] = '\0';
    } else {
        (void)snprintf(why, size, "%s", a.why);
    }
    b->self.cluster = joined ? cluster : b->self.cluster;
    pk_ask_close(&a);
    return joined;
}

static bool join(const struct pk_server_options *o, struct pk_bootstrap *b)
{
    char why[512];
    if (ask_to_join(o, b, why, sizeof why)) {
        return true;
    }
    if (b->begin == PK_BEGIN_JOIN) {
        return fail("--join", why);
    }
    pk_log(PK_LOG_WARN, "join-refused", "node", b->self.name, "by", o->join, "why", why,
           NULL); /* a node that is one already can do without */
    return true;
}

static enum pk_begin how_to_begin(const struct pk_server_options *o,
                                  const struct pk_bootstrap *b)
{
    if (b->self.cluster != 0) {
        return PK_BEGIN_MEMBER;
    }
    if (o->join != NULL) {
        return PK_BEGIN_JOIN;
    }
    return b->n_members > 1 ? PK_BEGIN_FORM : PK_BEGIN_ALONE;
}

bool pk_bootstrap(const struct pk_server_options *o, struct pk_bootstrap *b)
{
    char why[512];
    bool fresh;
    memset(b, 0, sizeof *b);
    if (o->cluster != NULL && o->join != NULL) {
        return fail("--join", "a node is either of the first (--cluster) or joins later");
    }
    b->lock_fd = pk_identity_open(o->data, &b->self, &fresh, why, sizeof why);
    if (b->lock_fd < 0) {
        return fail(o->data, why);
    }
    if (!settle_name(o, b, fresh) ||
        !(o->cluster != NULL ? find_place(o, b) : make_address(o, b))) {
        return false;
    }
    /* The id comes first: whoever is told of it may find this node under it later. */
    const char *wrong = fresh ? pk_identity_create(o->data, &b->self) : NULL;
    if (wrong != NULL) {
        return fail(o->data, wrong);
    }
    b->begin = how_to_begin(o, b);
    return o->join == NULL || join(o, b);
}
