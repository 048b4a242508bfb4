/* SPDX-License-Identifier: MIT */
#include "server/forming.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/door.h"
#include "host/clock.h"
#include "raft/transport.h"
#include "server/inside.h"
#include "server/log.h"
#include "server/members.h"

enum {
    ASK_MS = 50,        /* how often others are asked, at first */
    ASK_LATER_MS = 500, /* after EAGER_ROUNDS */
    EAGER_ROUNDS = 200,
    FRESH_MS = 2000, /* an answer counts for so long; */
    TELL_MS = 3000,  /* and whoever waits for longer tells people */
    EXIT_ERROR = 125,
};

/* ---- words ---- */

const char *pk_forming_text(const struct pk_server *s)
{
    return s->forming.text;
}

const char *pk_forming_state_name(const struct pk_server *s)
{
    static const char *const names[] = {[PK_STARTING] = "starting",
                                        [PK_FORMED] = "member",
                                        [PK_MEETING] = "forming",
                                        [PK_WAITING] = "waiting",
                                        [PK_FOUNDING] = "forming"};
    return names[s->forming.state];
}

/* Tells people what this node waits for, once for each text. */
static void tell(struct pk_server *s, const char *text)
{
    struct pk_forming *f = &s->forming;
    if (strcmp(f->text, text) != 0) {
        (void)snprintf(f->text, sizeof f->text, "%s", text);
        if (text[0] != '\0') {
            pk_log(PK_LOG_INFO, pk_forming_state_name(s), "node", s->self.name, "for",
                   text, NULL);
        }
    }
}

/* On the loop there is nobody to return an error to. */
static void end(struct pk_server *s, const char *why)
{
    pk_log(PK_LOG_ERROR, "stopped", "node", s->self.name, "why", why, NULL);
    exit(EXIT_ERROR);
}

/* ---- taking part ---- */

static const char *start_replica(struct pk_server *s)
{
    s->replay_until = UINT64_MAX; /* until we know how much there is */
    const char *wrong = pk_replica_start(s->replica);
    s->replay_until = pk_replica_standing(s->replica).last_index;
    return wrong;
}

static const char *open_log(struct pk_server *s, bool fresh)
{
    static char why[512];
    return pk_uvio_open(s->uvio, fresh, why, sizeof why) ? NULL : why;
}

/* Makes a new log and starts, as a node that was in no cluster. */
static const char *take_part(struct pk_server *s, bool founds)
{
    const char *wrong = open_log(s, true);
    if (wrong == NULL && founds) {
        struct pk_member self = {.id = s->self.id, .role = PK_MEMBER_VOTER};
        wrong = pk_members_address(s->self.name, s->bootstrap.address, self.address);
        wrong = wrong == NULL ? pk_replica_bootstrap(s->replica, &self, 1) : wrong;
    }
    /* Only now the directory says that there is a log which must be found again. */
    if (wrong == NULL) {
        wrong = pk_identity_create(s->options.data, &s->self);
    }
    return wrong == NULL ? start_replica(s) : wrong;
}

static uint64_t new_cluster(void)
{
    uint64_t cluster = 0;
    while (cluster == 0) {
        cluster = pk_random();
    }
    return cluster;
}

/* ---- admitting the others ---- */

static const struct pk_member *find(const struct pk_member *members, size_t n,
                                    const struct pk_member *wanted)
{
    char name[PK_NODE_NAME_MAX];
    (void)pk_member_name(wanted, name, sizeof name);
    return pk_member_named(members, n, name);
}

static void on_changed(void *ctx, const char *wrong)
{
    struct pk_server *s = ctx;
    s->forming.is_changing = false;
    if (wrong != NULL) {
        pk_log(PK_LOG_WARN, "forming", "node", s->self.name, "why", wrong, NULL);
    }
}

/* The next change that makes this node a voter; false: it is one. */
static bool next_change(const struct pk_member *have, const struct pk_first_node *node,
                        enum pk_change *what)
{
    if (have == NULL) {
        *what = PK_CHANGE_ADD;
    } else if (have->id != node->member.id) {
        *what = PK_CHANGE_REMOVE; /* it was wiped meanwhile */
    } else if (have->role == PK_MEMBER_SPARE) {
        *what = PK_CHANGE_STANDBY;
    } else {
        *what = PK_CHANGE_VOTER;
    }
    return have == NULL || have->role != PK_MEMBER_VOTER || have->id != node->member.id;
}

static void change(struct pk_server *s, enum pk_change what, const struct pk_member *m)
{
    s->forming.is_changing = true;
    if (pk_replica_change(s->replica, what, m->id, m->address, on_changed, s) != NULL) {
        s->forming.is_changing = false; /* not now; the timer comes again */
    }
}

static void finish_founding(struct pk_server *s)
{
    s->self.founding = false;
    const char *wrong = pk_identity_create(s->options.data, &s->self);
    if (wrong != NULL) {
        end(s, wrong);
        return;
    }
    s->forming.state = PK_FORMED;
    tell(s, "");
    pk_turn_resume(s->turn);
    pk_log(PK_LOG_INFO, "formed", "node", s->self.name, "cluster",
           pk_log_u64(s->self.cluster), NULL);
    (void)uv_timer_stop(&s->forming.timer);
}

/* One change at a time, each by consensus. All get the log before the first one gets a
 * vote, so that votes follow one another quickly. */
static void admit(struct pk_server *s)
{
    struct pk_forming *f = &s->forming;
    struct pk_member members[PK_MEMBERS_MAX];
    size_t n = pk_replica_members(s->replica, members, NULL);
    if (f->is_changing || !pk_replica_standing(s->replica).leader) {
        return;
    }
    const struct pk_first_node *voter = NULL;
    for (size_t i = 0; i < f->n_nodes; i++) {
        const struct pk_first_node *node = &f->nodes[i];
        const struct pk_member *have = find(members, n, &node->member);
        enum pk_change what;
        if (node->cluster != 0 && node->cluster != s->self.cluster) {
            tell(s, "a node of --cluster to leave the other cluster that it belongs to");
            return;
        }
        if (node->member.id == 0 || !next_change(have, node, &what)) {
            if (node->member.id == 0 && (have == NULL || have->role != PK_MEMBER_VOTER)) {
                return; /* it has not said who it is */
            }
            continue;
        }
        if (what == PK_CHANGE_VOTER) {
            voter = voter == NULL ? node : voter;
            continue;
        }
        if (what == PK_CHANGE_REMOVE && have->role == PK_MEMBER_VOTER) {
            /* It may take its vote to go on, and that vote is gone. */
            tell(s, "somebody to start over: a node lost its directory while it was "
                    "being admitted; stop all nodes and empty all their directories");
        }
        change(s, what, what == PK_CHANGE_REMOVE ? have : &node->member);
        return;
    }
    if (voter != NULL) {
        change(s, PK_CHANGE_VOTER, &voter->member);
    } else {
        finish_founding(s);
    }
}

/* ---- meeting ---- */

static void describe_absent(struct pk_server *s)
{
    struct pk_forming *f = &s->forming;
    char text[sizeof f->text] = "";
    size_t len = 0;
    for (size_t i = 0; i < f->n_nodes && len < sizeof text; i++) {
        const struct pk_first_node *node = &f->nodes[i];
        uint64_t now = pk_server_now(s);
        if (node->heard_ms == 0 || now - node->heard_ms > FRESH_MS) {
            int more = snprintf(text + len, sizeof text - len, "%s%s",
                                len == 0 ? "nodes that don't answer: " : ", ",
                                node->member.address);
            len += more > 0 ? (size_t)more : 0;
        }
    }
    tell(s, len > 0 ? text : "the first node by name to found the cluster");
}

static void found(struct pk_server *s)
{
    s->self.cluster = new_cluster();
    s->self.founding = true;
    s->forming.state = PK_FOUNDING;
    pk_turn_drain(s->turn);
    tell(s, "the votes of all first nodes");
    const char *wrong = take_part(s, true);
    if (wrong != NULL) {
        end(s, wrong);
    }
}

/* All others have answered, just now, that they belong to no cluster. */
static bool all_are_empty(struct pk_server *s)
{
    struct pk_forming *f = &s->forming;
    uint64_t now = pk_server_now(s);
    for (size_t i = 0; i < f->n_nodes; i++) {
        const struct pk_first_node *node = &f->nodes[i];
        bool answered = node->heard_ms != 0 && now - node->heard_ms <= FRESH_MS;
        if (node->cluster != 0 || !answered) {
            return false;
        }
    }
    return true;
}

/* A cluster names this node as a member. */
static void adopt(struct pk_server *s, uint64_t cluster)
{
    s->self.cluster = cluster;
    s->forming.state = PK_FORMED;
    tell(s, "");
    (void)uv_timer_stop(&s->forming.timer);
    pk_log(PK_LOG_INFO, "admitted", "node", s->self.name, NULL);
    const char *wrong = take_part(s, false);
    if (wrong != NULL) {
        end(s, wrong);
    }
}

/* A founder admits this node by itself, within moments. */
static void wait_for_admission(struct pk_server *s, const struct pk_tell *t)
{
    struct pk_forming *f = &s->forming;
    char text[sizeof f->text];
    bool known = pk_member_named(t->members, t->n_members, s->self.name) != NULL;
    if (f->state != PK_WAITING) {
        f->state = PK_WAITING;
        f->waiting_since_ms = pk_server_now(s);
    }
    if (pk_server_now(s) - f->waiting_since_ms < TELL_MS) {
        return;
    }
    (void)snprintf(text, sizeof text,
                   "being admitted, because there is a cluster and this directory is "
                   "new: 'picket cluster %s %s%s%s'",
                   known ? "replace" : "add", s->self.name, known ? "" : "=",
                   known ? "" : s->bootstrap.address);
    tell(s, text);
}

static bool names_us(const struct pk_server *s, const struct pk_tell *t)
{
    for (size_t i = 0; i < t->n_members; i++) {
        if (t->members[i].id == s->self.id) {
            return true;
        }
    }
    return false;
}

static void on_told(void *ctx, const struct pk_tell *t, const char *why)
{
    struct pk_first_node *node = ctx;
    struct pk_server *s = node->server;
    char name[PK_NODE_NAME_MAX];
    (void)why; /* nobody there, mostly: the text names who does not answer */
    node->is_asked = false;
    (void)pk_member_name(&node->member, name, sizeof name);
    if (t == NULL || s->closing || strcmp(t->name, name) != 0) {
        return;
    }
    node->heard_ms = pk_server_now(s);
    node->member.id = t->id;
    node->cluster = t->cluster;
    bool meets = s->forming.state == PK_MEETING || s->forming.state == PK_WAITING;
    if (meets && t->cluster != 0 && names_us(s, t)) {
        adopt(s, t->cluster);
    } else if (meets && t->cluster != 0 && t->n_members > 0) {
        wait_for_admission(s, t);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct pk_server *s = timer->data;
    struct pk_forming *f = &s->forming;
    f->rounds++;
    (void)uv_timer_start(timer, on_timer,
                         f->rounds < EAGER_ROUNDS ? ASK_MS : ASK_LATER_MS, 0);
    for (size_t i = 0; i < f->n_nodes; i++) {
        struct pk_first_node *node = &f->nodes[i];
        if (!node->is_asked) {
            node->is_asked = true;
            pk_transport_ask(pk_uvio_transport(s->uvio), pk_member_host(&node->member),
                             on_told, node);
        }
    }
    if (f->state == PK_FOUNDING) {
        admit(s);
    } else if (f->state == PK_MEETING && f->is_founder && all_are_empty(s)) {
        found(s);
    } else if (f->state == PK_MEETING) {
        describe_absent(s);
    }
}

/* ---- the beginning ---- */

static void list_others(struct pk_server *s)
{
    struct pk_forming *f = &s->forming;
    f->is_founder = true;
    for (size_t i = 0; i < s->bootstrap.n_members; i++) {
        const struct pk_member *m = &s->bootstrap.members[i];
        char name[PK_NODE_NAME_MAX];
        (void)pk_member_name(m, name, sizeof name);
        if (strcmp(name, s->self.name) != 0) {
            f->nodes[f->n_nodes++] = (struct pk_first_node){.server = s, .member = *m};
            f->is_founder = f->is_founder && strcmp(s->self.name, name) < 0;
        }
    }
}

static void meet(struct pk_server *s, enum pk_forming_state state)
{
    list_others(s);
    s->forming.state = state;
    (void)uv_timer_start(&s->forming.timer, on_timer, 0, 0);
}

static void on_loaded(void *ctx, const char *wrong)
{
    struct pk_server *s = ctx;
    if (wrong == NULL) {
        s->forming.state = PK_FORMED;
        tell(s, "");
        wrong = start_replica(s);
    }
    if (wrong != NULL) {
        pk_bootstrap_fail(s->options.data, wrong);
        exit(EXIT_ERROR);
    }
    pk_server_say_started(s);
    if (s->self.founding) {
        meet(s, PK_FOUNDING);
        tell(s, "the votes of all first nodes");
    }
}

/* Reads the log of a member on another thread. Meanwhile the node answers, but serves
 * nobody. */
static const char *load(struct pk_server *s)
{
    if (s->self.founding && s->bootstrap.n_members < 2) {
        return "this node has not admitted all first nodes yet: give it the --cluster "
               "of before";
    }
    if (s->self.founding) {
        pk_turn_drain(s->turn);
    }
    const char *wrong = open_log(s, false);
    if (wrong == NULL) {
        s->forming.state = PK_STARTING;
        tell(s, "its own log and snapshot to be read");
        pk_uvio_load(s->uvio, on_loaded, s);
    }
    return wrong;
}

const char *pk_forming_begin(struct pk_server *s)
{
    PK_ASSERT(uv_timer_init(&s->loop, &s->forming.timer) == 0);
    s->forming.timer.data = s;
    s->forming.state = PK_FORMED;
    switch (s->bootstrap.begin) {
    case PK_BEGIN_ALONE:
        s->self.cluster = new_cluster();
        return take_part(s, true);
    case PK_BEGIN_JOIN:
        return take_part(s, false);
    case PK_BEGIN_FORM:
        meet(s, PK_MEETING);
        return NULL;
    case PK_BEGIN_MEMBER:
        break;
    }
    return load(s);
}

static void on_closed(uv_handle_t *h)
{
    (void)h;
}

void pk_forming_stop(struct pk_server *s)
{
    (void)uv_timer_stop(&s->forming.timer);
}

void pk_forming_close(struct pk_server *s)
{
    uv_close((uv_handle_t *)&s->forming.timer, on_closed);
}
