/* SPDX-License-Identifier: MIT */
/*
 * A RENEW of many leases: cut into pieces that are commands of their own, in as many
 * turns as fairness wants (fair.h), and answered as one.
 *
 * Nothing that a client can see depends on the cut: each lease is renewed at some moment
 * between request and answer, as ever. Later requests of the connection are taken in when
 * the answer is complete. If a piece is refused, the whole request is: with UNKNOWN, if
 * any lease may have been renewed, which a repeat mends.
 */
#include <string.h>

#include "core/door.h"
#include "server/inside.h"

enum { PIECE = PK_FAIR_SHARE - 1 }; /* leases; with the command itself it costs a share */

/* How the request ends. */
enum verdict {
    RENEWED, /* with an answer for each lease */
    BARRED,  /* with one for all of them: the machine does not run the command */
    REFUSED, /* by this node */
};

struct pk_renewal {
    uint32_t total, n, asked; /* leases; n: how many will be asked for */
    uint32_t pending;         /* pieces that were asked for and not answered */
    uint64_t ttl_ms;
    enum verdict verdict;
    enum pk_refusal why;
    bool done; /* some leases were renewed, or may have been */
    uint32_t principal_len;
    char principal[PK_PRINCIPAL_MAX];
    struct pk_resp_out answers;
    bool heard; /* event numbers stand behind the leases */
    unsigned char leases[];
};

bool pk_renewal_is_large(const struct pk_command *cmd)
{
    return cmd->verb == PK_LEASE_RENEW && cmd->n_leases > PIECE &&
           pk_command_wrong(cmd) == NULL;
}

void pk_renewal_free(struct pk_conn *c)
{
    if (c->renewal != NULL) {
        pk_resp_free(&c->renewal->answers);
        pk_door_resize(c->renewal, 0);
        c->renewal = NULL;
    }
}

size_t pk_renewal_unsent(const struct pk_conn *c)
{
    return c->renewal == NULL ? 0 : c->renewal->answers.len;
}

static void finish(struct pk_conn *c)
{
    struct pk_renewal *r = c->renewal;
    struct pk_resp_out *o = pk_conn_out(c);
    switch (r->verdict) {
    case RENEWED:
        pk_resp_array(o, r->n);
        pk_resp_raw(o, r->answers.data, r->answers.len);
        break;
    case BARRED:
        pk_resp_raw(o, r->answers.data, r->answers.len);
        break;
    case REFUSED:
        pk_dispatch_say_refused(c, r->done ? PK_REFUSED_UNKNOWN : r->why);
        break;
    }
    pk_renewal_free(c);
}

/* The last piece that was asked for may have been answered. */
static void finish_if_over(struct pk_conn *c)
{
    if (c->renewal->pending == 0 && c->renewal->asked == c->renewal->n) {
        finish(c);
    }
}

/* No more pieces are asked for. */
static void give_up(struct pk_renewal *r, enum verdict verdict)
{
    r->verdict = verdict;
    r->n = r->asked;
}

/* False: the connection stalls until there is room for the next piece. */
static bool ask_piece(struct pk_conn *c)
{
    struct pk_server *s = c->server;
    struct pk_renewal *r = c->renewal;
    uint32_t left = r->n - r->asked;
    struct pk_command cmd = {
        .verb = PK_LEASE_RENEW,
        .principal = pk_bytes(r->principal, r->principal_len),
        .ttl_ms = r->ttl_ms,
        .leases = r->leases + (size_t)r->asked * sizeof(uint64_t),
        .n_leases = left < PIECE ? left : PIECE,
    };
    if (r->heard) {
        cmd.heard = r->leases + (size_t)r->total * sizeof(uint64_t) +
                    (size_t)r->asked * sizeof(uint32_t);
    }
    uint32_t cost = pk_fair_cost(&cmd);
    if (!pk_fair_pay(&s->fair, &c->flow, cost)) {
        pk_conn_stall(c, PK_STALL_SHARE);
        return false;
    }
    struct pk_ticket t = {.who = pk_conn_who(c), .what = PK_FORM_RENEWAL};
    if (!pk_turn_add(s->turn, &cmd, t)) {
        pk_fair_refund(&s->fair, &c->flow, cost);
        pk_conn_stall(c, PK_STALL_TURN);
        return false;
    }
    c->pending++;
    r->pending++;
    r->asked += cmd.n_leases;
    return true;
}

void pk_renewal_go_on(struct pk_conn *c)
{
    struct pk_renewal *r = c->renewal;
    while (r->asked < r->n) {
        if (!pk_turn_serving(c->server->turn)) {
            r->why = r->verdict == REFUSED ? r->why : PK_REFUSED_NOT_LEADER;
            give_up(r, REFUSED);
        } else if (!ask_piece(c)) {
            return;
        }
    }
    finish_if_over(c);
    if (c->renewal != NULL) {
        pk_conn_stall(c, PK_STALL_ANSWERS);
    }
}

void pk_renewal_begin(struct pk_conn *c, const struct pk_command *cmd)
{
    size_t bytes = (size_t)cmd->n_leases * sizeof(uint64_t);
    size_t heard = cmd->heard == NULL ? 0 : (size_t)cmd->n_leases * sizeof(uint32_t);
    struct pk_renewal *r = pk_door_resize(NULL, sizeof *r + bytes + heard);
    PK_ASSERT(c->renewal == NULL);
    *r = (struct pk_renewal){.total = cmd->n_leases,
                             .n = cmd->n_leases,
                             .heard = cmd->heard != NULL,
                             .ttl_ms = cmd->ttl_ms,
                             .principal_len = cmd->principal.len,
                             .answers = {.resp3 = c->out.resp3}};
    if (cmd->principal.len > 0) {
        memcpy(r->principal, cmd->principal.data, cmd->principal.len);
    }
    memcpy(r->leases, cmd->leases, bytes);
    if (heard > 0) {
        memcpy(r->leases + bytes, cmd->heard, heard);
    }
    c->renewal = r;
    pk_renewal_go_on(c);
}

void pk_renewal_answer(struct pk_conn *c, const struct pk_command *cmd,
                       const struct pk_effects *e)
{
    struct pk_renewal *r = c->renewal;
    uint32_t replies = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        replies += e->list[i].kind == PK_REPLY;
    }
    r->pending--;
    if (r->verdict == RENEWED && replies != cmd->n_leases) {
        r->answers.len = 0;
        give_up(r, BARRED);
        pk_proto_write_each(&r->answers, e);
    } else if (r->verdict == RENEWED) {
        r->done = true;
        pk_proto_write_each(&r->answers, e);
    }
    finish_if_over(c);
}

void pk_renewal_refuse(struct pk_conn *c, enum pk_refusal why)
{
    struct pk_renewal *r = c->renewal;
    r->pending--;
    r->done = r->done || why == PK_REFUSED_UNKNOWN;
    r->why = why;
    give_up(r, REFUSED);
    finish_if_over(c);
}
