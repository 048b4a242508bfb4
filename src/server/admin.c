/* SPDX-License-Identifier: MIT */
/*
 * CLUSTER and INFO: looking at a node, and changing who belongs to the cluster.
 *
 *   CLUSTER STATUS                      of this node, without asking anybody
 *   CLUSTER ADD name host:port [id]     a new node, as a standby: it gets the log, but
 *                                       has no vote; again is fine
 *   CLUSTER PROMOTE name                gives it a vote
 *   CLUSTER REPLACE name                admits the empty node of that name in the place
 *                                       of the lost member
 *   CLUSTER REMOVE name                 for good. The leader hands over first and
 *                                       answers NOLEADER
 *   CLUSTER TRANSFER [name]             makes another node the leader
 *   CLUSTER VERSION version [HOLD]      the cluster version: the present one, one more or
 *                                       less; HOLD: leaders don't raise it themselves
 *   CLUSTER LIMITS                      the replicated limits
 *   CLUSTER CONFIGURE limit value ...   changes them
 *   CLUSTER BACKUP ...                  the state of this node, in chunks: backup.h
 *   CLUSTER RESTORE offset piece        a piece of a backup
 *   CLUSTER ADOPT                       makes the pieces the state
 *
 * All but STATUS and BACKUP are the leader's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/door.h"
#include "host/clock.h"
#include "raft/backup.h"
#include "raft/transport.h"
#include "server/address.h"
#include "server/health.h"
#include "server/inside.h"
#include "server/log.h"
#include "server/members.h"
#include "server/upgrade.h"

enum {
    WAITING_MS = 5000, /* an empty node that has not asked for so long is gone */
};

/* ---- names and addresses ---- */

const char *pk_admin_leader_address(struct pk_server *s)
{
    if (s->leader_id == 0 || s->leader_id == s->self.id) {
        return NULL;
    }
    const struct pk_peer *p = pk_peers_find(&s->peers, s->leader_id);
    return p != NULL && p->client[0] != '\0' ? p->client : NULL;
}

/* ---- looking ---- */

static void put_text(struct pk_resp_out *o, const char *key, const char *value)
{
    pk_resp_text(o, key);
    pk_resp_text(o, value);
}

static void put_number(struct pk_resp_out *o, const char *key, uint64_t value)
{
    pk_resp_text(o, key);
    pk_resp_int(o, value);
}

static const char *role_name(enum pk_member_role r)
{
    static const char *const names[] = {"voter", "standby", "spare"};
    return names[r];
}

static void put_member(struct pk_server *s, struct pk_resp_out *o,
                       const struct pk_member *m, uint64_t match)
{
    char name[PK_NODE_NAME_MAX];
    (void)pk_member_name(m, name, sizeof name);
    const struct pk_peer *p = pk_peers_find(&s->peers, m->id);
    bool self = m->id == s->self.id;
    uint64_t heard_ms = pk_health_heard_ms(s, m->id);
    struct pk_release release = {0};
    (void)pk_upgrade_release(s, m->id, &release);
    pk_resp_map(o, 12);
    put_text(o, "name", name);
    put_text(o, "role", role_name(m->role));
    pk_resp_text(o, "leader");
    pk_resp_int(o, m->id == s->leader_id);
    put_text(o, "raft", pk_member_host(m));
    put_text(o, "client", self ? s->client_address : p == NULL ? "" : p->client);
    put_text(o, "http", self ? s->http_address : p == NULL ? "" : p->http);
    put_number(o, "match", match);
    pk_resp_text(o, "heard_ms");
    if (heard_ms == UINT64_MAX) {
        pk_resp_null(o);
    } else {
        pk_resp_int(o, heard_ms);
    }
    put_text(o, "refused", pk_health_refusal(s, name));
    put_text(o, "release", release.name);
    put_number(o, "oldest_version", release.oldest);
    put_number(o, "newest_version", release.newest);
}

static void leader_name(struct pk_server *s, const struct pk_member *members, size_t n,
                        char *out, size_t size)
{
    out[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        if (members[i].id == s->leader_id) {
            (void)pk_member_name(&members[i], out, size);
        }
    }
}

static void do_status(struct pk_conn *c)
{
    struct pk_server *s = c->server;
    struct pk_resp_out *o = pk_conn_out(c);
    struct pk_member members[PK_MEMBERS_MAX];
    uint64_t match[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, match);
    struct pk_standing st = pk_replica_standing(s->replica);
    char leader[PK_NODE_NAME_MAX];
    char cluster[20];
    leader_name(s, members, n, leader, sizeof leader);
    (void)snprintf(cluster, sizeof cluster, "%016llx",
                   (unsigned long long)s->self.cluster);
    const struct pk_machine *machine = pk_replica_machine(s->replica);
    pk_resp_map(o, 18);
    put_text(o, "cluster", cluster);
    put_text(o, "node", s->self.name);
    put_text(o, "state", pk_forming_state_name(s));
    put_text(o, "waits_for", pk_forming_text(s));
    put_text(o, "version", PICKET_VERSION);
    put_text(o, "standing",
             st.leader      ? "leader"
             : st.candidate ? "candidate"
                            : "follower");
    pk_resp_text(o, "serving");
    pk_resp_int(o, pk_turn_serving(s->turn));
    put_text(o, "leader", leader);
    put_number(o, "term", st.term);
    put_number(o, "last_index", st.last_index);
    put_number(o, "commit_index", st.commit_index);
    put_number(o, "applied_index", st.applied_index);
    put_number(o, "clock_ms", pk_machine_clock(machine));
    put_number(o, "cluster_version", pk_machine_version(machine));
    put_number(o, "version_held", pk_machine_version_is_held(machine));
    put_number(o, "data_version", pk_replica_data_version(s->replica));
    put_number(o, "silent_after_ms", pk_health_silent_after_ms(s));
    pk_resp_text(o, "members");
    pk_resp_array(o, n);
    for (size_t i = 0; i < n; i++) {
        put_member(s, o, &members[i], match[i]);
    }
}

/* In the form that Redis clients look at. */
void pk_admin_info(struct pk_conn *c)
{
    struct pk_server *s = c->server;
    struct pk_machine *m = pk_replica_machine(s->replica);
    struct pk_standing st = pk_replica_standing(s->replica);
    struct pk_stats stats = pk_machine_stats(m);
    char text[1024];
    int n = snprintf(
        text, sizeof text,
        "# Server\r\npicket_version:%s\r\nnode:%s\r\nloading:%d\r\n"
        "# Clients\r\nconnected_clients:%u\r\n"
        "# Replication\r\nrole:master\r\nserving:%d\r\nterm:%llu\r\ncommit_index:%llu\r\n"
        "# Locks\r\nleases:%llu\r\nlocks:%llu\r\nholds:%llu\r\nwaits:%llu\r\n"
        "fences:%llu\r\nlast_token:%llu\r\n",
        PICKET_VERSION, s->self.name, s->forming.state == PK_STARTING, s->conn_count,
        pk_turn_serving(s->turn), (unsigned long long)st.term,
        (unsigned long long)st.commit_index, (unsigned long long)stats.leases,
        (unsigned long long)stats.locks, (unsigned long long)stats.holds,
        (unsigned long long)stats.waits, (unsigned long long)stats.fences,
        (unsigned long long)pk_machine_last_token(m));
    PK_ASSERT(n > 0 && (size_t)n < sizeof text);
    pk_resp_bulk(pk_conn_out(c), pk_bytes(text, (size_t)n));
}

/* ---- membership ---- */

static void finish(struct pk_server *s, const char *wrong)
{
    struct pk_conn *c = pk_conn_at(s, s->plan.who);
    pk_log(wrong == NULL ? PK_LOG_INFO : PK_LOG_WARN, "membership", "node", s->plan.name,
           "result", wrong == NULL ? "done" : wrong, NULL);
    s->plan = (struct pk_admin_plan){0};
    if (c == NULL) {
        return;
    }
    if (wrong == NULL) {
        pk_resp_simple(pk_conn_out(c), "OK");
    } else if (!pk_replica_standing(s->replica).leader) {
        pk_proto_write_error(pk_conn_out(c), PK_PROTO_ERROR_UNKNOWN, wrong);
    } else {
        pk_resp_error(pk_conn_out(c), "ERR", wrong);
    }
    c->stall = PK_STALL_NONE;
    pk_conn_wake(c);
}

/* The next step begins after this turn: not from inside the library's callback. */
static void changed(void *ctx, const char *wrong)
{
    struct pk_server *s = ctx;
    s->plan.at++;
    s->plan.due = wrong == NULL && s->plan.at < s->plan.n;
    if (!s->plan.due) {
        finish(s, wrong);
    }
}

static void begin_step(struct pk_server *s)
{
    struct pk_admin_plan *p = &s->plan;
    const struct pk_member *m = &p->steps[p->at].member;
    p->due = false;
    const char *wrong = pk_replica_change(s->replica, p->steps[p->at].what, m->id,
                                          m->address, changed, s);
    if (wrong != NULL) {
        finish(s, wrong);
    }
}

void pk_admin_turn(struct pk_server *s)
{
    if (s->plan.due) {
        begin_step(s);
    }
}

static void add_step(struct pk_admin_plan *p, enum pk_change what,
                     const struct pk_member *m)
{
    PK_ASSERT(p->n < PK_ADMIN_STEPS_MAX);
    p->steps[p->n].what = what;
    p->steps[p->n++].member = *m;
}

static void begin_plan(struct pk_conn *c, const struct pk_admin_plan *p)
{
    struct pk_server *s = c->server;
    if (s->plan.who != 0) {
        pk_resp_error(pk_conn_out(c), "ERR", "another membership change is under way");
        return;
    }
    s->plan = *p;
    s->plan.who = pk_conn_who(c);
    (void)pk_member_name(&p->steps[0].member, s->plan.name, sizeof s->plan.name);
    pk_conn_stall(c, PK_STALL_WAIT);
    begin_step(s);
}

/* `m` is what the node is or, for ADD, will be. ADD is two changes: first the node is
 * listed, then it is a standby and gets the log. */
static void begin_change(struct pk_conn *c, enum pk_change what,
                         const struct pk_member *m)
{
    struct pk_admin_plan p = {0};
    add_step(&p, what, m);
    if (what == PK_CHANGE_ADD) {
        add_step(&p, PK_CHANGE_STANDBY, m);
    }
    begin_plan(c, &p);
}

static bool copy_word(struct pk_bytes word, char *out, size_t size)
{
    if (word.len >= size || memchr(word.data, '\0', word.len) != NULL) {
        return false;
    }
    memcpy(out, word.data, word.len);
    out[word.len] = '\0';
    return true;
}

/* The node of that name that waits to be admitted; false: none has asked lately. */
static bool find_waiting(struct pk_server *s, const char *name, struct pk_member *out)
{
    struct pk_waiting waiting[PK_WAITING_NODES_MAX];
    size_t n =
        pk_transport_waiting(pk_uvio_transport(s->uvio), waiting, PK_WAITING_NODES_MAX);
    const struct pk_waiting *found = NULL;
    for (size_t i = 0; i < n; i++) {
        bool newer = found == NULL || waiting[i].silent_ms < found->silent_ms;
        if (strcmp(waiting[i].name, name) == 0 && newer) {
            found = &waiting[i];
        }
    }
    if (found == NULL || found->silent_ms > WAITING_MS) {
        return false;
    }
    *out = (struct pk_member){.id = found->id, .role = PK_MEMBER_VOTER};
    return pk_members_address(name, found->host, out->address) == NULL;
}

/* A new node's id is what it says with ADD, or what it said when it asked here. 0: it is
 * not known. */
static uint64_t id_of_new(struct pk_server *s, const char *name, struct pk_bytes said)
{
    struct pk_member waiting;
    char text[32], *end;
    if (said.len > 0) {
        uint64_t id = copy_word(said, text, sizeof text) ? strtoull(text, &end, 16) : 0;
        return id != 0 && *end == '\0' && pk_node_id_is_valid(id) ? id : 0;
    }
    return find_waiting(s, name, &waiting) ? waiting.id : 0;
}

/* `m`: the member that has this name already, if there is one. */
static void do_add(struct pk_conn *c, const struct pk_member *m, const char *name,
                   struct pk_bytes where, struct pk_bytes id)
{
    char host[PK_HOST_MAX], only_host[PK_HOST_MAX];
    struct pk_member added = {.id = id_of_new(c->server, name, id)};
    uint16_t port;
    struct pk_resp_out *o = pk_conn_out(c);
    const char *wrong = !copy_word(where, host, sizeof host)
                            ? "the address is too long"
                            : pk_address_split(host, only_host, sizeof only_host, &port);
    if (wrong == NULL) {
        wrong = pk_members_address(name, host, added.address);
    }
    bool same = m != NULL && wrong == NULL && strcmp(m->address, added.address) == 0 &&
                (added.id == 0 || added.id == m->id);
    if (wrong != NULL) {
        pk_resp_error(o, "ERR", wrong);
    } else if (same && m->role != PK_MEMBER_SPARE) {
        pk_resp_simple(o, "OK");
    } else if (same) {
        begin_change(c, PK_CHANGE_STANDBY, m);
    } else if (m != NULL) {
        pk_resp_error(o, "ERR",
                      "a node of that name is a member already, with another address or "
                      "id; remove it first");
    } else if (added.id == 0) {
        pk_resp_error(o, "ERR",
                      "no node of that name has asked to be admitted; start it first");
    } else if (id.len == 0 && pk_upgrade_node_wrong(c->server, added.id) != NULL) {
        /* A node that says its id has looked for itself (--join). */
        pk_resp_error(o, "ERR", pk_upgrade_node_wrong(c->server, added.id));
    } else {
        begin_change(c, PK_CHANGE_ADD, &added);
    }
}

static void refuse_while_handing_over(struct pk_conn *c)
{
    pk_proto_write_error(pk_conn_out(c), PK_PROTO_ERROR_NOLEADER,
                         "leadership is being handed over; ask again");
}

/* The leader can't remove itself without a pause: another one does it. */
static void do_remove(struct pk_conn *c, const struct pk_member *m, size_t n)
{
    struct pk_server *s = c->server;
    if (m->id != s->self.id) {
        begin_change(c, PK_CHANGE_REMOVE, m);
    } else if (n == 1) {
        pk_resp_error(pk_conn_out(c), "ERR", "the last node can't be removed");
    } else {
        const char *wrong = pk_replica_transfer(s->replica, 0);
        if (wrong != NULL) {
            pk_resp_error(pk_conn_out(c), "ERR", wrong);
        } else {
            refuse_while_handing_over(c);
        }
    }
}

static void do_transfer(struct pk_conn *c, const struct pk_member *m)
{
    const char *wrong = pk_replica_transfer(c->server->replica, m == NULL ? 0 : m->id);
    if (wrong != NULL) {
        pk_resp_error(pk_conn_out(c), "ERR", wrong);
    } else {
        pk_resp_simple(pk_conn_out(c), "OK");
    }
}

/* Admits the empty node that has the name of a lost member, in its place. The lost one
 * goes first: it counts as failed anyway, so nothing is borne less well meanwhile. `m`:
 * the member of that name; NULL: it is gone already, by an attempt before this one. */
static void do_replace(struct pk_conn *c, const struct pk_member *m, const char *name)
{
    struct pk_server *s = c->server;
    struct pk_resp_out *o = pk_conn_out(c);
    struct pk_member added;
    struct pk_admin_plan p = {0};
    bool waits = find_waiting(s, name, &added);
    bool alive =
        m != NULL && (m->id == s->self.id ||
                      pk_uvio_silence_ms(s->uvio, m->id) <= pk_health_silent_after_ms(s));
    if (!waits && m != NULL && alive) {
        pk_resp_error(o, "ALIVE", "this node is not lost; nothing was changed");
        return;
    }
    if (!waits) {
        pk_resp_error(o, m == NULL ? "NOTFOUND" : "ERR",
                      "no empty node of that name asks to be admitted; start it with an "
                      "empty directory and the same --name and --cluster first");
        return;
    }
    if (alive) {
        pk_resp_error(o, "ERR",
                      "two nodes have that name: the member is alive, and an empty one "
                      "asks to be admitted; stop one of them");
        return;
    }
    const char *wrong = pk_upgrade_node_wrong(s, added.id);
    if (wrong != NULL) {
        pk_resp_error(o, "ERR", wrong);
        return;
    }
    if (m != NULL) {
        add_step(&p, PK_CHANGE_REMOVE, m);
    }
    add_step(&p, PK_CHANGE_ADD, &added);
    add_step(&p, PK_CHANGE_STANDBY, &added);
    if (m == NULL || m->role == PK_MEMBER_VOTER) {
        add_step(&p, PK_CHANGE_VOTER, &added);
    }
    begin_plan(c, &p);
}

/* The new node was listed by an attempt before this one. */
static void go_on_replacing(struct pk_conn *c, const struct pk_member *m)
{
    struct pk_admin_plan p = {0};
    if (m->role == PK_MEMBER_SPARE) {
        add_step(&p, PK_CHANGE_STANDBY, m);
    }
    add_step(&p, PK_CHANGE_VOTER, m);
    begin_plan(c, &p);
}

/* ADD, PROMOTE, REMOVE, REPLACE and TRANSFER: all about one node. */
static void about_node(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    struct pk_server *s = c->server;
    struct pk_resp_out *o = pk_conn_out(c);
    struct pk_member members[PK_MEMBERS_MAX];
    size_t count = pk_replica_members(s->replica, members, NULL);
    bool transfer = pk_resp_is(args[1], "TRANSFER");
    if (pk_replica_standing(s->replica).transferring) {
        refuse_while_handing_over(c);
        return;
    }
    if (transfer && n == 2) {
        do_transfer(c, NULL);
        return;
    }
    bool add = pk_resp_is(args[1], "ADD");
    char name[PK_NODE_NAME_MAX];
    bool right = n == (add ? 4 : 3) || (add && n == 5);
    const char *wrong =
        !right ? "the words are CLUSTER ADD name host:port [id], "
                 "PROMOTE name, REMOVE name, REPLACE name, TRANSFER [name]"
        : !copy_word(args[2], name, sizeof name) ? "the name is too long"
                                                 : pk_node_name_wrong(name);
    if (wrong != NULL) {
        pk_resp_error(o, "ERR", wrong);
        return;
    }
    const struct pk_member *m = pk_member_named(members, count, name);
    if (add) {
        do_add(c, m, name, args[3], n == 5 ? args[4] : pk_bytes(NULL, 0));
    } else if (pk_resp_is(args[1], "REPLACE")) {
        bool listed = m != NULL && m->role != PK_MEMBER_VOTER &&
                      pk_uvio_silence_ms(s->uvio, m->id) <= pk_health_silent_after_ms(s);
        if (listed) {
            go_on_replacing(c, m);
        } else {
            do_replace(c, m, name);
        }
    } else if (m == NULL) {
        pk_resp_error(o, "NOTFOUND", "there is no node of that name; see CLUSTER STATUS");
    } else if (transfer) {
        do_transfer(c, m);
    } else if (pk_resp_is(args[1], "REMOVE")) {
        do_remove(c, m, count);
    } else if (m->role == PK_MEMBER_VOTER) {
        pk_resp_simple(o, "OK");
    } else {
        begin_change(c, PK_CHANGE_VOTER, m);
    }
}

/* ---- limits and restore ---- */

static bool do_configure(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    struct pk_server *s = c->server;
    struct pk_command cmd = {.verb = PK_CONFIGURE, .request = pk_random()};
    const char *wrong = pk_proto_read_limits(args + 2, n - 2, &cmd.limits);
    if (wrong != NULL) {
        pk_resp_error(pk_conn_out(c), "BADARG", wrong);
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

static bool do_version(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    uint64_t version;
    bool hold = n == 4 && pk_resp_is(args[3], "HOLD");
    if ((n != 3 && !hold) || !pk_resp_number(args[2], &version)) {
        pk_resp_error(pk_conn_out(c), "ERR", "it is CLUSTER VERSION version [HOLD]");
        return true;
    }
    return pk_upgrade_command(c, version, hold);
}

static bool do_restore(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    struct pk_server *s = c->server;
    struct pk_ticket t = {.who = pk_conn_who(c), .what = PK_FORM_ADMIN};
    uint64_t offset;
    bool added;
    if (n == 4 && args[3].len > PK_BACKUP_CHUNK) {
        pk_resp_error(pk_conn_out(c), "BADARG", "a piece has at most 262144 bytes");
        return true;
    }
    if (pk_resp_is(args[1], "ADOPT")) {
        added = pk_turn_add_adopt(s->turn, t);
    } else if (n == 4 && pk_resp_number(args[2], &offset)) {
        added = pk_turn_add_restore(s->turn, args[3], offset, t);
    } else {
        pk_resp_error(pk_conn_out(c), "ERR", "it is CLUSTER RESTORE offset piece");
        return true;
    }
    if (!added) {
        pk_conn_stall(c, PK_STALL_TURN);
        return false;
    }
    c->pending++;
    return true;
}

/* ---- words ---- */

bool pk_admin_cluster(struct pk_conn *c, uint32_t n)
{
    struct pk_server *s = c->server;
    const struct pk_bytes *args = s->args;
    struct pk_resp_out *o = pk_conn_out(c);
    bool taken = true;
    if (n == 2 && pk_resp_is(args[1], "STATUS")) {
        do_status(c);
        return true;
    }
    if (n >= 2 && pk_resp_is(args[1], "BACKUP")) {
        return pk_backup_ask(c, args, n);
    }
    enum word {
        ADD,
        PROMOTE,
        REMOVE,
        REPLACE,
        TRANSFER,
        VERSION,
        LIMITS,
        CONFIGURE,
        RESTORE,
        ADOPT,
        WORDS
    };
    static const char *const words[WORDS] = {"ADD",      "PROMOTE", "REMOVE", "REPLACE",
                                             "TRANSFER", "VERSION", "LIMITS", "CONFIGURE",
                                             "RESTORE",  "ADOPT"};
    int which = 0;
    while (which < WORDS && (n < 2 || !pk_resp_is(args[1], words[which]))) {
        which++;
    }
    if (which == WORDS) {
        pk_resp_error(
            o, "ERR",
            "it is CLUSTER STATUS | ADD | PROMOTE | REMOVE | REPLACE | TRANSFER "
            "| VERSION | LIMITS | CONFIGURE | BACKUP | RESTORE | ADOPT");
        return true;
    }
    if (!pk_dispatch_here(c, &taken)) {
        return taken;
    }
    if (which <= TRANSFER) {
        about_node(c, args, n);
    } else if (which == VERSION) {
        return do_version(c, args, n);
    } else if (which == LIMITS) {
        struct pk_limits limits = pk_machine_limits(pk_replica_machine(s->replica));
        pk_proto_write_limits(o, &limits);
    } else if (which == CONFIGURE) {
        return do_configure(c, args, n);
    } else {
        return do_restore(c, args, n);
    }
    return true;
}
