/* SPDX-License-Identifier: MIT */
/*
 * One request from its head to its end: judged, let through, answered. relay.c moves its
 * bytes, keyed.c sees to its idempotency key.
 */
#include <http_parser.h>
#include <stdio.h>

#include "core/door.h"
#include "core/tree.h"
#include "gate/inside.h"

enum { SPARE_MAX = 256 };

/* ---- life ---- */

static struct pk_exchange *new_exchange(struct pk_gate *g)
{
    struct pk_list_link *link = pk_list_first(&g->spare);
    struct pk_exchange *x;
    struct pk_resp_out head = {0};
    if (link != NULL) {
        x = PK_OWNER(link, struct pk_exchange, link);
        pk_list_remove(link);
        g->n_spare--;
        head = x->head;
        head.len = 0;
    } else {
        x = pk_door_resize(NULL, sizeof *x);
    }
    memset(x, 0, sizeof *x);
    x->head = head;
    x->gate = g;
    x->began_ms = pk_gate_now(g);
    pk_list_push(&g->exchanges, &x->link);
    g->n_exchanges++;
    return x;
}

void pk_exchange_count(struct pk_exchange *x, enum pk_outcome o)
{
    if (!x->counted) {
        x->counted = true;
        x->gate->counts.outcomes[o]++;
    }
}

void pk_exchange_leave(struct pk_exchange *x)
{
    if (x->fenced) {
        x->fenced = false;
        pk_admit_leave(x->gate->admit, &x->ticket);
        pk_gate_turn(x->gate);
    }
}

void pk_exchange_drop_up(struct pk_exchange *x, bool keep)
{
    struct pk_upstream *u = x->up;
    if (u != NULL) {
        x->up = NULL;
        pk_upstream_put(u, keep);
    }
}

/* It is only used again in a later turn of the loop: who called us may look at it. */
void pk_exchange_over(struct pk_exchange *x)
{
    struct pk_gate *g = x->gate;
    PK_ASSERT(x->client == NULL && x->stage != PK_STAGE_OVER);
    pk_exchange_count(x, PK_OUTCOME_ABANDONED);
    x->stage = PK_STAGE_OVER;
    pk_exchange_drop_up(x, false);
    pk_once_free(x->once);
    x->once = NULL;
    pk_door_resize(x->block, 0);
    x->block = NULL;
    pk_list_remove(&x->link);
    pk_list_push(&g->ended, &x->link);
    g->n_exchanges--;
    pk_exchange_leave(x);
}

void pk_exchange_reuse_ended(struct pk_gate *g)
{
    struct pk_list_link *link;
    while ((link = pk_list_first(&g->ended)) != NULL) {
        struct pk_exchange *x = PK_OWNER(link, struct pk_exchange, link);
        pk_list_remove(link);
        if (g->n_spare < SPARE_MAX && !g->closing) {
            pk_list_push(&g->spare, link);
            g->n_spare++;
        } else {
            pk_resp_free(&x->head);
            pk_door_resize(x, 0);
        }
    }
}

/* Client and exchange go separate ways. What is still being sent of the client's block
 * stays with the exchange. */
struct pk_client *pk_exchange_detach(struct pk_exchange *x)
{
    struct pk_client *c = x->client;
    if (c == NULL) {
        return NULL;
    }
    x->client = NULL;
    x->head_due = false;
    c->exchange = NULL;
    if (x->up != NULL && x->up->wire.writing) {
        x->block = c->wire.in;
        c->wire.in = pk_door_resize(NULL, PK_WIRE_BYTES);
        c->wire.at = c->wire.len = 0;
        c->last = true;
    }
    return c;
}

/* Its answer has been taken by whoever wants it. */
void pk_exchange_finish(struct pk_exchange *x)
{
    struct pk_upstream *u = x->up;
    bool keep =
        u != NULL && x->reusable && x->all_sent && !x->deaf && u->wire.at == u->wire.len;
    pk_exchange_leave(x);
    pk_exchange_drop_up(x, keep);
    if (x->client != NULL) {
        pk_exchange_count(x, x->replayed ? PK_OUTCOME_REPLAYED : PK_OUTCOME_FORWARDED);
    }
    bool close = x->close || !x->body.whole;
    struct pk_client *c = pk_exchange_detach(x);
    pk_exchange_over(x);
    if (c != NULL) {
        pk_client_next(c, close);
    }
}

/* ---- refusing ---- */

void pk_exchange_tell(struct pk_exchange *x, enum pk_outcome o, const char *why)
{
    pk_exchange_leave(x);
    pk_exchange_count(x, o);
    struct pk_client *c = pk_exchange_detach(x);
    if (c != NULL) {
        pk_client_refuse(c, x, o, why);
    }
    pk_exchange_over(x);
}

/* Ends it with an answer of our own; a mark in the store is seen to first. */
void pk_exchange_refuse(struct pk_exchange *x, enum pk_outcome o, const char *why)
{
    bool marked = x->once != NULL && !x->settled &&
                  pk_once_found(x->once) == PK_ONCE_FRESH && x->stage > PK_STAGE_MARKING;
    if (!marked) {
        pk_exchange_tell(x, o, why);
        return;
    }
    bool untouched = x->up == NULL || x->up->wire.accepted == 0;
    pk_exchange_leave(x);
    pk_exchange_drop_up(x, false);
    x->refusal = o;
    (void)snprintf(x->refusal_why, sizeof x->refusal_why, "%s", why);
    pk_keyed_settle(x, untouched || x->status >= 500 ? PK_ONCE_CLEAR
                       : x->answering                ? PK_ONCE_NOT_KEPT
                                                     : PK_ONCE_LEAVE);
}

/* The answer breaks off: its client sees that as well. */
static void break_off(struct pk_exchange *x)
{
    struct pk_client *c = pk_exchange_detach(x);
    if (c != NULL) {
        pk_wire_reset(&c->wire);
    }
}

bool pk_exchange_begun(const struct pk_exchange *x)
{
    return x->answering && !x->head_due && !x->keeping;
}

/* The service has failed us. */
void pk_exchange_fail(struct pk_exchange *x, enum pk_outcome o, const char *why)
{
    x->gate->counts.upstream_errors++;
    if (pk_exchange_begun(x)) {
        pk_exchange_count(x, o);
        break_off(x);
    }
    pk_exchange_refuse(x, o, why);
}

/* ---- beginning ---- */

static bool is_idempotent(unsigned method)
{
    return method == HTTP_GET || method == HTTP_HEAD || method == HTTP_OPTIONS ||
           method == HTTP_TRACE || method == HTTP_PUT || method == HTTP_DELETE;
}

static void take_head(struct pk_exchange *x, const struct pk_head *h)
{
    struct pk_gate *g = x->gate;
    x->to_head = h->method == HTTP_HEAD;
    x->idempotent = is_idempotent(h->method);
    x->old = h->minor == 0;
    x->expects = h->expects;
    x->chunked = h->framing == PK_FRAMING_CHUNKED;
    x->close = !h->keep_alive;
    pk_body_init(&x->body, h);
    struct pk_rewrite_request r = {
        .base = g->base, .host = g->upstream_host, .client = x->client->address};
    pk_rewrite_request(&x->head, h, &r);
    if (x->ask.flaw == PK_WISH_FINE && x->ask.has_key) {
        struct pk_once_options o = {.store = g->options.store,
                                    .name = g->options.name,
                                    .resource =
                                        pk_bytes(x->ask.resource, x->ask.resource_len),
                                    .key = x->ask.key,
                                    .keep_ms = g->options.keep_keys_ms,
                                    .retry_unknown = g->options.retry_unknown};
        x->once = pk_once_new(&o, h);
    }
}

void pk_exchange_forward(struct pk_exchange *x, bool fresh)
{
    x->stage = PK_STAGE_CONNECTING;
    pk_upstream_get(x, fresh);
}

/* It may pass. */
static void proceed(struct pk_exchange *x)
{
    if (!pk_claim_stands(x)) {
        pk_exchange_refuse(x, PK_OUTCOME_STANDBY,
                           "this gate does not stand now; try again");
    } else if (x->once != NULL) {
        pk_keyed_mark(x);
    } else {
        pk_exchange_forward(x, false);
    }
}

static void shadow(struct pk_exchange *x, enum pk_shadow s)
{
    x->gate->counts.shadows[s]++;
    if (s != PK_SHADOW_DELAYED && s != PK_SHADOW_STORE) {
        x->would_refuse = pk_shadow_name(s);
    }
    pk_gate_remark(x->gate, "would-refuse", pk_shadow_name(s), x);
}

/* Without a token that could be used. */
static void judge_missing(struct pk_exchange *x)
{
    const struct pk_gate_options *o = &x->gate->options;
    if (o->missing == PK_MISSING_REFUSE && !o->shadow) {
        pk_exchange_refuse(
            x, PK_OUTCOME_MISSING,
            "this resource is fenced: take its lock and send X-Picket-Token");
        return;
    }
    if (o->missing == PK_MISSING_SHADOW || o->shadow) {
        shadow(x, PK_SHADOW_MISSING);
    }
    proceed(x);
}

static void judge_flaw(struct pk_exchange *x)
{
    static const enum pk_outcome outcomes[] = {
        [PK_WISH_BAD_TOKEN] = PK_OUTCOME_BAD_TOKEN,
        [PK_WISH_BAD_RESOURCE] = PK_OUTCOME_BAD_RESOURCE,
        [PK_WISH_BAD_PATH] = PK_OUTCOME_BAD_PATH,
        [PK_WISH_BAD_KEY] = PK_OUTCOME_BAD_KEY,
    };
    if (x->ask.flaw == PK_WISH_BAD_TOKEN && x->gate->options.shadow) {
        shadow(x, PK_SHADOW_BAD_TOKEN);
        proceed(x);
    } else {
        pk_exchange_refuse(x, outcomes[x->ask.flaw], x->ask.why);
    }
}

void pk_exchange_begin(struct pk_client *c)
{
    struct pk_gate *g = c->gate;
    struct pk_exchange *x = new_exchange(g);
    x->client = c;
    c->exchange = x;
    x->stage = PK_STAGE_ASKING;
    (void)pk_wish_read(&x->ask, &g->scratch, &g->rules);
    take_head(x, &g->scratch);
    if (g->n_exchanges > 2 * (size_t)g->options.connections) {
        pk_exchange_refuse(x, PK_OUTCOME_FULL,
                           "too many requests are in flight; try again");
    } else if (!pk_stand_held(&g->stand)) {
        pk_exchange_refuse(x, PK_OUTCOME_STANDBY,
                           "this gate does not stand now; try again");
    } else if (x->ask.flaw != PK_WISH_FINE) {
        judge_flaw(x);
    } else if (!x->ask.has_token) {
        judge_missing(x);
    } else {
        x->fenced = true;
        pk_admit_arrive(g->admit, &x->ticket,
                        pk_bytes(x->ask.resource, x->ask.resource_len), x->ask.token,
                        pk_gate_now(g));
        pk_gate_turn(g);
    }
}

static void judge_stale(struct pk_exchange *x)
{
    x->fence = x->ticket.fence;
    if (x->gate->options.shadow) {
        x->fenced = false;
        shadow(x, PK_SHADOW_STALE);
        proceed(x);
        return;
    }
    pk_gate_remark(x->gate, "refused", "stale", x);
    pk_exchange_refuse(x, PK_OUTCOME_STALE,
                       "a higher token was here before: the lock has moved on, stop");
}

static void judge_unsure(struct pk_exchange *x)
{
    bool stands = pk_stand_held(&x->gate->stand);
    if (stands && x->gate->options.shadow) {
        pk_exchange_leave(x);
        shadow(x, PK_SHADOW_STORE);
        proceed(x);
    } else if (stands) {
        pk_exchange_refuse(x, PK_OUTCOME_STORE,
                           "the store of the fences does not answer; try again");
    } else {
        pk_exchange_refuse(x, PK_OUTCOME_STANDBY,
                           "this gate does not stand now; try again");
    }
}

void pk_exchange_verdict(struct pk_exchange *x)
{
    switch (x->ticket.verdict) {
    case PK_ADMIT_GO:
        if (x->ticket.delayed && x->gate->options.shadow) {
            shadow(x, PK_SHADOW_DELAYED);
        }
        proceed(x);
        break;
    case PK_ADMIT_STALE:
        judge_stale(x);
        break;
    case PK_ADMIT_LATE:
        x->fence = x->ticket.fence;
        pk_exchange_refuse(x, PK_OUTCOME_DRAINING,
                           "requests with lower tokens are still in flight; try again");
        break;
    case PK_ADMIT_CUT:
        x->gate->counts.cut_offs++;
        x->fence = x->ticket.fence;
        pk_exchange_cut(x, PK_OUTCOME_CUT_OFF,
                        "cut off for a higher token; what the service did is not known");
        break;
    default:
        judge_unsure(x);
        break;
    }
}

/* ---- the client's side ---- */

void pk_exchange_client_came(struct pk_exchange *x)
{
    if (x->stage == PK_STAGE_FLYING) {
        pk_relay_up(x);
    } else if (x->stage == PK_STAGE_COMPARING) {
        pk_keyed_compare(x);
    }
}

void pk_exchange_client_sent(struct pk_exchange *x)
{
    if (x->stage == PK_STAGE_REPLAYING) {
        pk_exchange_finish(x);
    } else {
        pk_relay_down(x);
    }
}

bool pk_exchange_client_ended(struct pk_exchange *x, int error)
{
    bool whole = x->body.whole || x->stage == PK_STAGE_CONNECTING;
    if (error != UV_EOF || x->stage == PK_STAGE_ASKING || x->stage == PK_STAGE_MARKING) {
        pk_exchange_client_gone(x);
        return true;
    }
    if (!whole && x->stage == PK_STAGE_FLYING) {
        pk_relay_up(x); /* with what has come before the end */
    } else if (!whole && x->stage == PK_STAGE_COMPARING) {
        pk_keyed_compare(x);
    }
    return false;
}

void pk_exchange_client_gone(struct pk_exchange *x)
{
    (void)pk_exchange_detach(x);
    switch (x->stage) {
    case PK_STAGE_ASKING:
    case PK_STAGE_COMPARING:
    case PK_STAGE_REPLAYING:
        pk_exchange_over(x);
        break;
    case PK_STAGE_MARKING:
        pk_exchange_leave(x);
        break;
    case PK_STAGE_CONNECTING:
        pk_exchange_refuse(x, PK_OUTCOME_ABANDONED, "");
        break;
    case PK_STAGE_FLYING:
        if (!x->all_sent && !x->deaf) {
            x->truncated = true;
            pk_relay_truncate(x);
        }
        pk_relay_down(x); /* nobody takes the answer, so nothing holds it back */
        break;
    default:
        break;
    }
}

void pk_exchange_client_late(struct pk_exchange *x)
{
    struct pk_client *c = x->client;
    bool answered = pk_exchange_begun(x) || c->wire.writing;
    pk_exchange_count(x, PK_OUTCOME_SLOW);
    pk_exchange_client_gone(x);
    if (answered) {
        pk_client_close(c);
    } else {
        pk_client_refuse(c, NULL, PK_OUTCOME_SLOW,
                         "the body does not come; send it faster");
    }
}

/* ---- cutting off, and silence ---- */

void pk_exchange_cut(struct pk_exchange *x, enum pk_outcome o, const char *why)
{
    struct pk_client *c;
    switch (x->stage) {
    case PK_STAGE_ASKING:
    case PK_STAGE_COMPARING:
        pk_exchange_refuse(x, o, why);
        break;
    case PK_STAGE_REPLAYING:
        pk_exchange_count(x, o);
        break_off(x);
        pk_exchange_over(x);
        break;
    case PK_STAGE_MARKING: /* nothing has been sent; on_marked sees to the rest */
        pk_exchange_leave(x);
        pk_exchange_count(x, o);
        c = pk_exchange_detach(x);
        if (c != NULL) {
            pk_client_refuse(c, x, o, why);
        }
        break;
    case PK_STAGE_CONNECTING:
    case PK_STAGE_FLYING:
        if (pk_exchange_begun(x)) {
            pk_exchange_count(x, o);
            break_off(x);
        }
        if (x->up != NULL) {
            pk_wire_reset(&x->up->wire);
        }
        pk_exchange_refuse(x, o, why);
        break;
    default:
        break;
    }
}

static void on_silence(struct pk_exchange *x)
{
    static const char why[] = "the service does not answer; what it did is not known";
    x->up->wire.late_ms = 0;
    x->timed_out = true;
    x->gate->counts.upstream_errors++;
    if (x->stage == PK_STAGE_CONNECTING) {
        pk_exchange_refuse(x, PK_OUTCOME_UPSTREAM,
                           "the service can't be reached: no answer in time");
        return;
    }
    pk_exchange_count(x, PK_OUTCOME_SILENT);
    bool begun = pk_exchange_begun(x);
    if (begun) {
        break_off(x);
    }
    if (!x->fenced && x->once == NULL) {
        pk_wire_reset(&x->up->wire);
        pk_exchange_refuse(x, PK_OUTCOME_SILENT, why);
        return;
    }
    /* It is in flight until its connection has ended (A4), whoever waits for it. */
    struct pk_client *c = pk_exchange_detach(x);
    if (c != NULL) {
        x->truncated = !x->all_sent;
        pk_relay_truncate(x);
        pk_client_refuse(c, x, PK_OUTCOME_SILENT, why);
    }
    pk_wire_read(&x->up->wire);
}

void pk_exchange_tick(struct pk_exchange *x, uint64_t now)
{
    bool asks = x->ticket.place == PK_ADMIT_ASKING || x->ticket.place == PK_ADMIT_ASKED;
    if (x->up != NULL && x->up->wire.late_ms != 0 && now >= x->up->wire.late_ms) {
        on_silence(x);
    } else if (x->stage == PK_STAGE_ASKING && asks &&
               now - x->began_ms >= x->gate->options.drain_ms) {
        judge_unsure(x);
    }
}
