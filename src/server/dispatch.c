/* SPDX-License-Identifier: MIT */
/*
 * What a request means, and how its answer gets back.
 *
 * Three kinds of words: commands for the machine, in the native protocol (proto.h) or in
 * Redis' idiom (redis.h), which go through a turn (turn.h): reads are answered by this
 * node, all else by the leader; and the connection's own (HELLO, PING, CLIENT ...),
 * answered here at once. Answers leave in the order of the requests: the turn keeps that
 * order by itself, and what is answered at once waits until nothing is pending.
 */
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/look.h"
#include "core/version.h"
#include "host/clock.h"
#include "server/inside.h"
#include "server/log.h"
#include "server/redis.h"

enum {
    FULL_LOAD = 2000, /* commands in a turn at which renewals are put off the most */
};

/* ---- where to serve ---- */

static bool refuse_without_leader(struct pk_conn *c, bool *taken)
{
    uint64_t now = pk_server_now(c->server);
    if (c->leaderless_ms == 0) {
        c->leaderless_ms = now;
    }
    if (!c->redirect && now - c->leaderless_ms < PK_LEADER_PATIENCE_MS) {
        pk_conn_stall(c, PK_STALL_LEADER);
        *taken = false;
        return false;
    }
    c->leaderless_ms = 0;
    pk_proto_write_error(pk_conn_out(c), PK_PROTO_ERROR_NOLEADER, NULL);
    *taken = true;
    return false;
}

bool pk_dispatch_here(struct pk_conn *c, bool *taken)
{
    struct pk_server *s = c->server;
    if (pk_turn_serving(s->turn)) {
        c->leaderless_ms = 0;
        return true;
    }
    if (c->pending > 0) {
        /* Taken in while we led: their answers, or refusals, come first. */
        pk_conn_stall(c, PK_STALL_ANSWERS);
        *taken = false;
        return false;
    }
    const char *leader = pk_admin_leader_address(s);
    if (leader == NULL) {
        return refuse_without_leader(c, taken);
    }
    if (c->redirect) {
        pk_proto_write_error(pk_conn_out(c), PK_PROTO_ERROR_NOTLEADER, leader);
        *taken = true;
    } else if (c->relayed) {
        pk_conn_close(c); /* whoever relays finds the new leader */
        *taken = true;
    } else if (pk_conn_listens(c)) {
        /* Our own events and the leader's bytes can't share it; and the leader does not
         * know what it wants to be told. It comes back and asks. */
        (void)pk_conn_out(c);
        c->last = true;
        *taken = true;
    } else {
        pk_relay_start(c, leader);
        *taken = false; /* the request goes there with the rest */
    }
    return false;
}

/* ---- through the log ---- */

/* In RESP2 an acquire that waits blocks its connection, as BLPOP does. */
static bool blocks(const struct pk_conn *c, const struct pk_command *cmd)
{
    return !c->out.resp3 && cmd->verb == PK_LOCK_ACQUIRE && cmd->wait_ms != 0;
}

/* Its answer can be large: such requests are taken in one by one. */
static bool is_large_read(const struct pk_command *cmd)
{
    return (pk_verb_fields(cmd->verb) & PK_F_COUNT) != 0;
}

/* Whether the command needs a newer cluster version than the one in force; then it is
 * answered. Nobody may propose it: members of an older release could not read it. */
static bool is_too_new(struct pk_conn *c, const struct pk_command *cmd)
{
    uint32_t needs = pk_command_needs(cmd);
    uint32_t version = pk_machine_version(pk_replica_machine(c->server->replica));
    if (needs <= version) {
        return false;
    }
    char why[160];
    (void)snprintf(why, sizeof why,
                   "%s needs cluster version %u; the cluster has version %u until every "
                   "node runs a newer picket",
                   pk_verb_name(cmd->verb), needs, version);
    pk_resp_error(pk_conn_out(c), "BADARG", why);
    return true;
}

/* A read that this node answers, leader or not. Who wants to be sent to the leader is. */
static bool is_read_here(const struct pk_conn *c, const struct pk_command *cmd)
{
    const struct pk_turn *t = c->server->turn;
    return pk_command_is_read(cmd) && pk_turn_reads(t) &&
           (pk_turn_serving(t) || !c->redirect);
}

static bool submit(struct pk_conn *c, const struct pk_command *cmd, uint64_t form)
{
    bool taken = true;
    if (is_large_read(cmd) && c->pending > 0) {
        pk_conn_stall(c, PK_STALL_ANSWERS);
        return false;
    }
    if (!is_read_here(c, cmd) && !pk_dispatch_here(c, &taken)) {
        return taken;
    }
    if (pk_command_needs(cmd) > PK_VERSION_OLDEST && c->pending > 0) {
        pk_conn_stall(c, PK_STALL_ANSWERS); /* it may be answered at once */
        return false;
    }
    if (is_too_new(c, cmd)) {
        return true;
    }
    if (pk_renewal_is_large(cmd)) {
        pk_renewal_begin(c, cmd);
        return true;
    }
    struct pk_ticket t = {.who = pk_conn_who(c), .what = form};
    if (!pk_turn_add(c->server->turn, cmd, t)) {
        pk_conn_stall(c, PK_STALL_TURN);
        return false;
    }
    c->pending++;
    if (blocks(c, cmd)) {
        pk_conn_stall(c, PK_STALL_WAIT);
    }
    return true;
}

/* ---- answers ---- */

static void answered(struct pk_conn *c)
{
    PK_ASSERT(c->pending > 0);
    c->pending--;
    /* The request that a connection waits for is the last one that was taken in. */
    bool over = c->stall == PK_STALL_ANSWERS || c->stall == PK_STALL_WAIT;
    if (over && c->pending == 0 && c->wait_lease == 0) {
        pk_conn_wake(c);
    }
}

/* When the holder should renew: a third of what it has, less a little by chance so that
 * renewals spread out, and later the busier we are, up to a half. */
static uint64_t renew_after(const struct pk_server *s, uint64_t left_ms)
{
    uint64_t load = s->load < FULL_LOAD ? s->load : FULL_LOAD;
    uint64_t after = left_ms / 3 + (left_ms / 6) * load / FULL_LOAD;
    uint64_t jitter = after / 10;
    return after - (jitter == 0 ? 0 : pk_random() % jitter);
}

static bool renews(enum pk_verb v)
{
    return v == PK_LEASE_OPEN || v == PK_LEASE_RENEW;
}

/* The answer with what the machine does not say: our wish for the next renewal, and the
 * cluster time, so that ages can be told. */
static const struct pk_effects *
annotate(struct pk_server *s, const struct pk_command *cmd, const struct pk_effects *e)
{
    uint64_t clock_ms = pk_machine_clock(pk_replica_machine(s->replica));
    pk_effects_reset(&s->annotated);
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->list[i].kind >= PK_EV_LEASE_OPENED) {
            continue;
        }
        struct pk_effect *copy = pk_effects_add(&s->annotated, &e->list[i]);
        if (copy->kind != PK_REPLY || copy->status != PK_OK) {
            continue;
        }
        copy->since_ms = cmd->stamp_ms > clock_ms ? cmd->stamp_ms : clock_ms;
        if (renews(copy->verb) && copy->left_ms > 0) {
            copy->renew_after_ms = renew_after(s, copy->left_ms);
        }
    }
    return &s->annotated;
}

/* Whoever acts for a lease, as its owner does, gets its events from now on. To look at it
 * or to release for it is no such act: it would push out one that relies on them. */
static void own_leases(struct pk_conn *c, const struct pk_effects *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const struct pk_effect *r = &e->list[i];
        bool alive = r->status == PK_OK || r->status == PK_QUEUED;
        bool acts = renews(r->verb) || r->verb == PK_LOCK_ACQUIRE;
        if (r->kind == PK_REPLY && r->lease != 0 && alive && acts) {
            pk_hub_own(&c->server->hub, r->lease, c);
        }
    }
}

static const struct pk_effect *reply_of(const struct pk_effects *e)
{
    uint32_t i = 0;
    while (i < e->count && e->list[i].kind != PK_REPLY) {
        i++;
    }
    PK_ASSERT(i < e->count);
    return &e->list[i];
}

static void answer_native(struct pk_conn *c, const struct pk_command *cmd,
                          const struct pk_effects *e)
{
    const struct pk_effect *reply = reply_of(e);
    if (c->out.resp3) {
        own_leases(c, e);
    } else if (blocks(c, cmd) && reply->status == PK_QUEUED) {
        pk_hub_wait(&c->server->hub, c, reply);
        return; /* the answer comes with the grant */
    }
    bool more = renews(cmd->verb) || (pk_verb_fields(cmd->verb) & PK_F_READ);
    pk_proto_write_reply(pk_conn_out(c), more ? annotate(c->server, cmd, e) : e);
}

static void answer_renewal(struct pk_conn *c, const struct pk_command *cmd,
                           const struct pk_effects *e)
{
    if (c->out.resp3) {
        own_leases(c, e);
    }
    pk_renewal_answer(c, cmd, annotate(c->server, cmd, e));
}

/* Says once that the disk is full, and once that it is not any more. */
static void note_disk(struct pk_server *s, bool full)
{
    if (full != s->full) {
        s->full = full;
        pk_log(full ? PK_LOG_ERROR : PK_LOG_INFO, full ? "disk-full" : "disk-ok", "node",
               s->self.name, "data", s->options.data, NULL);
    }
}

void pk_dispatch_answer(void *ctx, struct pk_ticket t, const struct pk_command *cmd,
                        const struct pk_effects *e)
{
    struct pk_server *s = ctx;
    struct pk_conn *c = pk_conn_at(s, t.who);
    if (cmd == NULL || !pk_command_is_read(cmd)) {
        note_disk(s, false); /* an entry went to the log */
    }
    if (c == NULL) {
        return;
    }
    s->hub.asker = c; /* the events of this step come next */
    size_t before = c->out.len;
    if (t.what == PK_FORM_NATIVE) {
        answer_native(c, cmd, e);
    } else if (t.what == PK_FORM_RENEWAL) {
        answer_renewal(c, cmd, e);
    } else if (t.what == PK_FORM_ADMIN) {
        pk_proto_write_reply(pk_conn_out(c), e);
    } else {
        pk_redis_answer(t.what, cmd, e, pk_conn_out(c));
    }
    pk_fair_charge(&c->flow, pk_fair_bytes(c->out.len - before));
    pk_conn_check_unsent(c);
    answered(c);
}

void pk_dispatch_say_refused(struct pk_conn *c, enum pk_refusal why)
{
    static const unsigned char codes[] = {
        [PK_REFUSED_NOT_LEADER] = PK_PROTO_ERROR_NOLEADER,
        [PK_REFUSED_NO_SPACE] = PK_PROTO_ERROR_NOSPACE,
        [PK_REFUSED_UNKNOWN] = PK_PROTO_ERROR_UNKNOWN,
    };
    pk_proto_write_error(pk_conn_out(c), (enum pk_proto_error)codes[why], NULL);
}

void pk_dispatch_refuse(void *ctx, struct pk_ticket t, enum pk_refusal why)
{
    struct pk_server *s = ctx;
    struct pk_conn *c = pk_conn_at(s, t.who);
    if (why == PK_REFUSED_UNKNOWN) {
        pk_metrics_count(s->metrics, PK_COUNT_UNKNOWN_OUTCOMES, 1);
    } else if (why == PK_REFUSED_NO_SPACE) {
        pk_metrics_count(s->metrics, PK_COUNT_NOSPACE, 1);
        note_disk(s, true);
    }
    if (c == NULL) {
        return;
    }
    if (t.what == PK_FORM_RENEWAL) {
        pk_renewal_refuse(c, why);
    } else {
        pk_dispatch_say_refused(c, why);
    }
    answered(c);
}

/* ---- the connection's own words ---- */

static void hello_map(struct pk_conn *c)
{
    struct pk_resp_out *o = pk_conn_out(c);
    bool serving = pk_turn_serving(c->server->turn);
    pk_resp_map(o, 7);
    pk_resp_text(o, "server");
    pk_resp_text(o, "picket");
    pk_resp_text(o, "version");
    pk_resp_text(o, PICKET_VERSION);
    pk_resp_text(o, "proto");
    pk_resp_int(o, o->resp3 ? 3 : 2);
    pk_resp_text(o, "id");
    pk_resp_int(o, pk_conn_who(c) & INT64_MAX);
    pk_resp_text(o, "mode");
    pk_resp_text(o, "standalone"); /* clients take "cluster" for Redis' own kind */
    pk_resp_text(o, "role");
    pk_resp_text(o, serving ? "master" : "replica");
    pk_resp_text(o, "modules");
    pk_resp_array(o, 0);
}

static void set_name(struct pk_conn *c, struct pk_bytes name)
{
    size_t len = name.len < sizeof c->name - 1 ? name.len : sizeof c->name - 1;
    memcpy(c->name, name.data, len);
    c->name[len] = '\0';
}

/* HELLO [2|3 [SETNAME name]] */
static void do_hello(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    struct pk_resp_out *o = pk_conn_out(c);
    if (n >= 2) {
        if (!pk_resp_is(args[1], "2") && !pk_resp_is(args[1], "3")) {
            pk_proto_write_error(o, PK_PROTO_ERROR_NOPROTO, NULL);
            return;
        }
        for (uint32_t i = 2; i + 1 < n; i++) {
            if (pk_resp_is(args[i], "AUTH")) {
                pk_resp_error(o, "ERR", "HELLO: no password is set here; leave out AUTH");
                return;
            }
            if (pk_resp_is(args[i], "SETNAME")) {
                set_name(c, args[i + 1]);
            }
        }
        o->resp3 = pk_resp_is(args[1], "3");
        if (!o->resp3) {
            pk_hub_unwatch(&c->server->hub, c); /* it would take events for answers */
        }
    }
    hello_map(c);
}

/* CLIENT SETNAME|GETNAME|SETINFO|ID|REDIRECT ON|OFF, and RELAY between nodes. */
static void do_client(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    struct pk_resp_out *o = pk_conn_out(c);
    if (n == 3 && pk_resp_is(args[1], "SETNAME")) {
        set_name(c, args[2]);
        pk_resp_simple(o, "OK");
    } else if (n == 2 && pk_resp_is(args[1], "GETNAME")) {
        pk_resp_text(o, c->name);
    } else if (n == 4 && pk_resp_is(args[1], "SETINFO")) {
        pk_resp_simple(o, "OK");
    } else if (n == 2 && pk_resp_is(args[1], "ID")) {
        pk_resp_int(o, pk_conn_who(c) & INT64_MAX);
    } else if (n == 3 && pk_resp_is(args[1], "REDIRECT") &&
               (pk_resp_is(args[2], "ON") || pk_resp_is(args[2], "OFF"))) {
        c->redirect = pk_resp_is(args[2], "ON");
        pk_resp_simple(o, "OK");
    } else if (n == 2 && pk_resp_is(args[1], "RELAY")) {
        c->relayed = true;
        pk_resp_simple(o, "OK");
    } else {
        pk_resp_error(o, "ERR",
                      "CLIENT SETNAME name | GETNAME | ID | REDIRECT ON|OFF is all there "
                      "is of CLIENT");
    }
}

static void do_ping(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    if (n == 1) {
        pk_resp_simple(pk_conn_out(c), "PONG");
    } else {
        pk_resp_bulk(pk_conn_out(c), args[1]);
    }
}

static void do_echo(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    if (n == 2) {
        pk_resp_bulk(pk_conn_out(c), args[1]);
    } else {
        pk_resp_error(pk_conn_out(c), "ERR", "ECHO wants one word");
    }
}

static void do_quit(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    (void)args, (void)n;
    pk_resp_simple(pk_conn_out(c), "OK");
    c->last = true;
}

static void do_select(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    if (n == 2 && pk_resp_is(args[1], "0")) {
        pk_resp_simple(pk_conn_out(c), "OK");
    } else {
        pk_resp_error(pk_conn_out(c), "ERR", "there is only database 0");
    }
}

static void do_auth(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    (void)args, (void)n;
    pk_resp_error(pk_conn_out(c), "ERR", "no password is set here; leave out AUTH");
}

static void do_command(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    (void)args, (void)n;
    pk_resp_array(pk_conn_out(c), 0); /* clients ask; none needs it */
}

static void do_info(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    (void)args, (void)n;
    pk_admin_info(c);
}

static const struct {
    const char *word;
    void (*run)(struct pk_conn *c, const struct pk_bytes *args, uint32_t n);
} own_words[] = {
    {"PING", do_ping}, {"HELLO", do_hello},     {"CLIENT", do_client},
    {"ECHO", do_echo}, {"QUIT", do_quit},       {"SELECT", do_select},
    {"INFO", do_info}, {"COMMAND", do_command}, {"AUTH", do_auth},
};

/* False: not one of them. */
static bool run_own(struct pk_conn *c, const struct pk_bytes *args, uint32_t n,
                    bool *taken)
{
    for (size_t i = 0; i < sizeof own_words / sizeof own_words[0]; i++) {
        if (!pk_resp_is(args[0], own_words[i].word)) {
            continue;
        }
        *taken = c->pending == 0;
        if (*taken) {
            own_words[i].run(c, args, n);
        } else {
            pk_conn_stall(c, PK_STALL_ANSWERS);
        }
        return true;
    }
    return false;
}

/* LOCK WATCH [PREFIX text], LOCK UNWATCH; served by the leader, as all else is. */
static bool watch(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    bool taken = true;
    if (!pk_dispatch_here(c, &taken)) {
        return taken;
    }
    if (c->pending > 0) {
        pk_conn_stall(c, PK_STALL_ANSWERS);
        return false;
    }
    struct pk_resp_out *o = pk_conn_out(c);
    bool with_prefix = n == 4 && pk_resp_is(args[2], "PREFIX");
    if (!o->resp3) {
        pk_resp_error(o, "ERR", "LOCK WATCH needs pushes: say HELLO 3 first");
    } else if (n != 2 && !with_prefix) {
        pk_resp_error(o, "ERR", "it is LOCK WATCH [PREFIX text]");
    } else if (with_prefix && args[3].len >= PK_CONN_PREFIX_MAX) {
        pk_resp_error(o, "BADARG", "the prefix is longer than a name can be");
    } else {
        pk_hub_watch(&c->server->hub, c, with_prefix ? args[3] : pk_text(""));
        pk_resp_simple(o, "OK");
    }
    return true;
}

static void unwatch(struct pk_conn *c)
{
    pk_hub_unwatch(&c->server->hub, c);
    pk_resp_simple(pk_conn_out(c), "OK");
}

/* Errors are answered in turn, too. */
static bool in_turn(struct pk_conn *c)
{
    if (c->pending == 0) {
        return true;
    }
    pk_conn_stall(c, PK_STALL_ANSWERS);
    return false;
}

static bool dispatch_rest(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    bool taken = true;
    if (n >= 2 && pk_resp_is(args[0], "LOCK") && pk_resp_is(args[1], "WATCH")) {
        return watch(c, args, n);
    }
    if (pk_resp_is(args[0], "CLUSTER")) {
        return in_turn(c) && pk_admin_cluster(c, n);
    }
    if (run_own(c, args, n, &taken)) {
        return taken;
    }
    if (!in_turn(c)) {
        return false;
    }
    if (n == 2 && pk_resp_is(args[0], "LOCK") && pk_resp_is(args[1], "UNWATCH")) {
        unwatch(c);
    } else {
        pk_metrics_count(c->server->metrics, PK_COUNT_BAD_REQUESTS, 1);
        pk_proto_write_unknown(pk_conn_out(c), args, n);
    }
    return true;
}

/* A request that is no command of the native protocol. */
static bool dispatch_other(struct pk_conn *c, uint32_t n)
{
    struct pk_server *s = c->server;
    const struct pk_bytes *args = s->args;
    struct pk_command cmd;
    if (c->pending > 0) {
        /* Redis' words may answer at once; keep the order. Commands of theirs are not
         * pipelined by lock libraries, so this costs nothing. */
        pk_conn_stall(c, PK_STALL_ANSWERS);
        return false;
    }
    uint64_t form;
    size_t before = c->out.len;
    switch (pk_redis_read(args, n, pk_text(c->name), &cmd, &form, &c->out)) {
    case PK_REDIS_COMMAND:
        return submit(c, &cmd, form);
    case PK_REDIS_ANSWERED:
        if (!pk_turn_serving(s->turn)) {
            /* The leader says it: scripts must be loaded where they are run. */
            bool taken = true;
            c->out.len = before;
            (void)pk_dispatch_here(c, &taken);
            return taken;
        }
        (void)pk_conn_out(c);
        return true;
    case PK_REDIS_OTHER:
        break;
    }
    return dispatch_rest(c, args, n);
}

static bool refuse_wrong(struct pk_conn *c, enum pk_proto_got got, const char *why)
{
    if (!in_turn(c)) {
        return false;
    }
    pk_metrics_count(c->server->metrics, PK_COUNT_BAD_REQUESTS, 1);
    pk_proto_write_wrong(pk_conn_out(c), got, why);
    return true;
}

/* How many rows there are for a LIST or SHOW, or more: COUNT is often far above it. */
static uint64_t rows_at_most(const struct pk_machine *m, const struct pk_command *cmd)
{
    struct pk_stats stats = pk_machine_stats(m);
    struct pk_look_lock l;
    if (cmd->verb == PK_LOCK_LIST) {
        return stats.locks;
    }
    if (cmd->verb == PK_LOCK_SHOW) {
        return pk_look_lock(m, cmd->name, &l) ? (uint64_t)l.holders + l.waiters : 0;
    }
    return cmd->target != 0 ? PK_SET_MAX : UINT64_MAX - 1;
}

/* What is paid before the request is looked at any further. A RENEW that is cut pays for
 * its pieces. */
static uint32_t price_of(const struct pk_server *s, const struct pk_command *cmd)
{
    if (pk_renewal_is_large(cmd)) {
        return 1;
    }
    const struct pk_machine *m = pk_replica_machine(s->replica);
    uint32_t price = pk_fair_cost(cmd);
    if (cmd->verb == PK_FENCE_GET) {
        return price + pk_fair_bytes(pk_look_fence_bytes(m, cmd->name));
    }
    if (pk_verb_fields(cmd->verb) & PK_F_COUNT) {
        uint64_t most = 1 + rows_at_most(m, cmd);
        return most < price ? (uint32_t)most : price;
    }
    return price;
}

/* False: not taken in; the same request comes again later. */
static bool dispatch_one(struct pk_conn *c, uint32_t n)
{
    struct pk_server *s = c->server;
    struct pk_command cmd;
    const char *why;
    enum pk_proto_got got = pk_proto_read_command(s->args, n, &s->ids, &cmd, &why);
    uint32_t price = got == PK_PROTO_COMMAND ? price_of(s, &cmd) : 1;
    if (!pk_fair_pay(&s->fair, &c->flow, price)) {
        pk_conn_stall(c, PK_STALL_SHARE);
        return false;
    }
    bool taken = got == PK_PROTO_COMMAND ? submit(c, &cmd, PK_FORM_NATIVE)
                 : got == PK_PROTO_OTHER ? dispatch_other(c, n)
                                         : refuse_wrong(c, got, why);
    if (!taken) {
        pk_fair_refund(&s->fair, &c->flow, price);
    }
    return taken;
}

bool pk_dispatch(struct pk_conn *c, uint32_t n)
{
    struct pk_server *s = c->server;
    bool taken = dispatch_one(c, n);
    pk_metrics_count(s->metrics, PK_COUNT_REQUESTS, taken ? 1 : 0);
    return taken;
}
