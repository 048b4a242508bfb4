/* SPDX-License-Identifier: MIT */
#include "server/fair.h"

#include <stddef.h>

/* ---- prices ---- */

uint32_t pk_fair_bytes(uint64_t bytes)
{
    return (uint32_t)(bytes / PK_FAIR_UNIT_BYTES);
}

uint32_t pk_fair_cost(const struct pk_command *c)
{
    uint32_t fields = pk_verb_fields(c->verb);
    uint32_t cost = 1 + pk_fair_bytes(c->value.len);
    if (fields & PK_F_LEASES) {
        cost += c->n_leases;
    }
    if (fields & PK_F_PARTS) {
        cost += c->n_parts;
    }
    if (fields & PK_F_COUNT) {
        cost += (uint32_t)(c->count < PK_PAGE_MAX ? c->count : PK_PAGE_MAX);
    }
    return cost;
}

/* ---- turns ---- */

void pk_fair_begin(struct pk_fair *f)
{
    f->turn++;
    f->spent = 0;
    f->closed = false;
}

void pk_fair_close(struct pk_fair *f)
{
    f->closed = true;
}

/* The share of this turn. What a flow that did not wait has left of an earlier turn is
 * gone; what it owes is not. */
static void give_share(const struct pk_fair *f, struct pk_flow *w)
{
    if (w->shared != f->turn + 1) {
        w->shared = f->turn + 1;
        w->credit = (w->credit < 0 ? w->credit : 0) + PK_FAIR_SHARE;
    }
}

static void spend(struct pk_flow *w, uint32_t cost)
{
    w->credit -= cost;
    w->spent += cost;
    if (w->account != NULL) {
        w->account->spent += cost;
    }
}

bool pk_fair_pay(struct pk_fair *f, struct pk_flow *w, uint32_t cost)
{
    give_share(f, w);
    if (w->credit < (int64_t)cost || f->spent >= PK_FAIR_CEILING) {
        return false;
    }
    spend(w, cost);
    f->spent += cost;
    return true;
}

void pk_fair_refund(struct pk_fair *f, struct pk_flow *w, uint32_t cost)
{
    w->credit += cost;
    w->spent -= cost;
    if (w->account != NULL) {
        w->account->spent -= cost;
    }
    f->spent -= f->spent < cost ? f->spent : cost;
}

void pk_fair_charge(struct pk_flow *w, uint32_t cost)
{
    spend(w, cost);
}

/* ---- lists ---- */

static struct pk_flows *list_of(struct pk_fair *f, const struct pk_flow *w)
{
    return w->state == PK_FLOW_WOKEN ? &f->woken : &f->waiting;
}

static void append(struct pk_flows *l, struct pk_flow *w)
{
    w->next = NULL;
    w->before = l->last;
    *(l->last == NULL ? &l->first : &l->last->next) = w;
    l->last = w;
}

void pk_fair_leave(struct pk_fair *f, struct pk_flow *w)
{
    if (w->state == PK_FLOW_IDLE) {
        return;
    }
    struct pk_flows *l = list_of(f, w);
    *(w->before == NULL ? &l->first : &w->before->next) = w->next;
    *(w->next == NULL ? &l->last : &w->next->before) = w->before;
    w->next = w->before = NULL;
    w->state = PK_FLOW_IDLE;
}

void pk_fair_wake(struct pk_fair *f, struct pk_flow *w)
{
    if (w->state == PK_FLOW_IDLE) {
        w->state = PK_FLOW_WOKEN;
        append(&f->woken, w);
    }
}

void pk_fair_wait(struct pk_fair *f, struct pk_flow *w)
{
    pk_fair_leave(f, w);
    w->state = PK_FLOW_WAITING;
    append(&f->waiting, w);
}

void pk_fair_wait_first(struct pk_fair *f, struct pk_flow *w)
{
    pk_fair_leave(f, w);
    w->state = PK_FLOW_WAITING;
    w->before = NULL;
    w->next = f->waiting.first;
    *(w->next == NULL ? &f->waiting.last : &w->next->before) = w;
    f->waiting.first = w;
}

static bool queue_is_served(const struct pk_fair *f)
{
    return f->waiting.first != NULL && !f->closed && f->spent < PK_FAIR_BUDGET;
}

struct pk_flow *pk_fair_next(struct pk_fair *f)
{
    struct pk_flow *w = f->woken.first;
    if (w == NULL && queue_is_served(f)) {
        w = f->waiting.first;
        w->shared = f->turn + 1; /* it keeps what it saves up for a dear request */
        w->credit += PK_FAIR_SHARE;
    }
    if (w != NULL) {
        pk_fair_leave(f, w);
    }
    return w;
}

bool pk_fair_has_work(const struct pk_fair *f)
{
    return f->woken.first != NULL || f->waiting.first != NULL;
}

bool pk_fair_can_go_on(const struct pk_fair *f)
{
    return f->woken.first != NULL || queue_is_served(f);
}
