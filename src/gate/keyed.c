/* SPDX-License-Identifier: MIT */
/*
 * Exchanges with an idempotency key: marked before they are forwarded, their answers kept
 * before the client has all of them, and repeats answered from what was kept.
 */
#include <stdio.h>

#include "core/door.h"
#include "core/tree.h"
#include "gate/inside.h"

/* Whether an answer is the end of the matter, for a call with a key. */
bool pk_keyed_is_final(int status)
{
    return status < 500 && status != 408 && status != 425 && status != 429;
}

/* Sends a whole answer from memory: one that was kept. */
static void send_kept(struct pk_exchange *x, const struct pk_record *r)
{
    struct pk_client *c = x->client;
    char length[32];
    x->close = x->close || !x->body.whole;
    struct pk_rewrite_answer a = {.framing = PK_FRAMING_LENGTH,
                                  .close = x->close,
                                  .old = x->old,
                                  .would_refuse = x->would_refuse};
    c->out.len = 0;
    pk_rewrite_status(&c->out, r->status, pk_bytes("", 0));
    pk_resp_raw(&c->out, r->fields.data, r->fields.len);
    if (x->replayed) {
        pk_rewrite_field(&c->out, "Picket-Replayed", "true");
    }
    if (r->status != 204 && r->status != 304) {
        (void)snprintf(length, sizeof length, "%u", r->answer.len);
        pk_rewrite_field(&c->out, "Content-Length", length);
    }
    pk_rewrite_end(&c->out, &a);
    x->stage = PK_STAGE_REPLAYING;
    c->wire.late_ms = pk_gate_now(x->gate) + x->gate->options.body_ms;
    enum pk_wire_sent sent = pk_client_send(c, r->answer);
    if (sent == PK_WIRE_DONE) {
        pk_exchange_finish(x);
    } else if (sent == PK_WIRE_FAILED) {
        (void)pk_exchange_detach(x);
        pk_client_close(c);
        pk_exchange_over(x);
    }
}

/* A repeat: the same body gets the same answer. */
void pk_keyed_compare(struct pk_exchange *x)
{
    struct pk_client *c = x->client;
    const struct pk_record *r = pk_once_record(x->once);
    if (!x->body.whole) {
        (void)pk_relay_piece(x);
        pk_wire_pack(&c->wire);
    }
    if (x->body.bad) {
        pk_exchange_refuse(x, PK_OUTCOME_MALFORMED, "the body is not what it should be");
    } else if (!x->body.whole && c->wire.ended) {
        pk_exchange_client_gone(x);
        pk_client_close(c);
    } else if (!x->body.whole) {
        c->wire.late_ms = pk_gate_now(x->gate) + x->gate->options.body_ms;
        pk_wire_read(&c->wire);
    } else if (!pk_once_same(x->once)) {
        pk_exchange_refuse(x, PK_OUTCOME_MISMATCH,
                           "this Idempotency-Key was used with another body");
    } else if (r->kind == PK_RECORD_NOT_KEPT) {
        x->status = r->status;
        pk_exchange_refuse(x, PK_OUTCOME_NOT_KEPT,
                           "the call was made, but its answer could not be kept");
    } else {
        x->replayed = true;
        send_kept(x, r);
    }
}

/* The client may wait for our word before it sends the body. */
static void begin_compare(struct pk_exchange *x)
{
    struct pk_client *c = x->client;
    pk_exchange_leave(x);
    x->stage = PK_STAGE_COMPARING;
    if (x->body.whole) {
        pk_once_hashed(x->once);
    } else if (x->expects) {
        c->out.len = 0;
        pk_rewrite_status(&c->out, 100, pk_bytes("", 0));
        pk_resp_raw(&c->out, "\r\n", 2);
        if (pk_client_send(c, pk_bytes("", 0)) != PK_WIRE_DONE) {
            pk_exchange_client_gone(x);
            pk_client_close(c);
            return;
        }
    }
    pk_keyed_compare(x);
}

static void run_mark(struct pk_chore *j)
{
    pk_once_begin(PK_OWNER(j, struct pk_exchange, chore)->once);
}

static void on_marked(struct pk_chore *j)
{
    struct pk_exchange *x = PK_OWNER(j, struct pk_exchange, chore);
    enum pk_once_found found = pk_once_found(x->once);
    if (x->body.whole) {
        pk_once_hashed(x->once);
    }
    if (x->client == NULL) { /* gone, or cut off: nothing was sent */
        x->stage = PK_STAGE_KEEPING;
        x->refusal = PK_OUTCOME_ABANDONED;
        found == PK_ONCE_FRESH ? pk_keyed_settle(x, PK_ONCE_CLEAR) : pk_exchange_over(x);
        return;
    }
    switch (found) {
    case PK_ONCE_FRESH:
        if (!pk_stand_held(&x->gate->stand)) {
            x->stage = PK_STAGE_KEEPING;
            pk_exchange_refuse(x, PK_OUTCOME_STANDBY,
                               "this gate stands no more; try again");
        } else {
            pk_exchange_forward(x, false);
        }
        break;
    case PK_ONCE_REPEAT:
        begin_compare(x);
        break;
    case PK_ONCE_IN_PROGRESS:
        pk_exchange_refuse(x, PK_OUTCOME_IN_PROGRESS,
                           "a call with this Idempotency-Key is under way");
        break;
    case PK_ONCE_UNKNOWN:
        pk_exchange_refuse(
            x, PK_OUTCOME_UNKNOWN,
            "a call with this Idempotency-Key was begun, and how it ended is not known");
        break;
    case PK_ONCE_MISMATCH:
        pk_exchange_refuse(x, PK_OUTCOME_MISMATCH,
                           "this Idempotency-Key was used for another call");
        break;
    case PK_ONCE_FAILED:
        pk_exchange_refuse(x, PK_OUTCOME_STORE,
                           "the store of the keys does not answer; try again");
        break;
    }
}

void pk_keyed_mark(struct pk_exchange *x)
{
    x->stage = PK_STAGE_MARKING;
    x->chore.run = run_mark;
    x->chore.done = on_marked;
    pk_gate_chore(x->gate, &x->chore);
}

static void run_end(struct pk_chore *j)
{
    pk_once_end(PK_OWNER(j, struct pk_exchange, chore)->once);
}

static void on_settled(struct pk_chore *j)
{
    struct pk_exchange *x = PK_OWNER(j, struct pk_exchange, chore);
    x->settled = true;
    x->gate->counts.unkept += !pk_once_recorded(x->once);
    if (x->refusal != PK_OUTCOME_FORWARDED) {
        pk_exchange_tell(x, x->refusal, x->refusal_why);
        return;
    }
    if (x->client == NULL) {
        pk_exchange_finish(x);
        return;
    }
    if (x->keeping) {
        struct pk_record r = {.status = x->status,
                              .fields = pk_once_fields(x->once),
                              .answer = pk_once_gathered(x->once)};
        pk_exchange_drop_up(x, x->reusable && x->all_sent &&
                                   x->up->wire.at == x->up->wire.len);
        send_kept(x, &r);
        return;
    }
    x->stage = PK_STAGE_FLYING;
    (void)pk_relay_send_down(x, pk_bytes("", 0), x->held, true);
    pk_relay_down(x);
}

void pk_keyed_settle(struct pk_exchange *x, enum pk_once_how how)
{
    x->stage = PK_STAGE_KEEPING;
    if (x->up != NULL) {
        x->up->wire.late_ms = 0;
    }
    if (x->client != NULL) {
        x->client->wire.late_ms = 0;
    }
    pk_once_settle(x->once, how, x->status);
    x->chore.run = run_end;
    x->chore.done = on_settled;
    pk_gate_chore(x->gate, &x->chore);
}

/* How an answer leaves the mark. One to a request that broke off in the middle can only
 * say that something was done; otherwise the client may try again. */
static enum pk_once_how how_it_ended(const struct pk_exchange *x)
{
    if (!pk_keyed_is_final(x->status) || (x->truncated && x->status >= 400)) {
        return PK_ONCE_CLEAR;
    }
    return x->keeping && x->body.whole ? PK_ONCE_KEEP : PK_ONCE_NOT_KEPT;
}

void pk_keyed_hold(struct pk_exchange *x, struct pk_bytes piece)
{
    x->held = piece;
    pk_keyed_settle(x, how_it_ended(x));
}
