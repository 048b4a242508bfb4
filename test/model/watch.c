/* SPDX-License-Identifier: MIT */
#include "watch.h"

#include <stdlib.h>

static struct pk_bytes name_of(const struct watched *x)
{
    return pk_bytes(x->name, x->name_len);
}

static bool same_name(const struct watched *a, const struct watched *b)
{
    return pk_bytes_equal(name_of(a), name_of(b));
}

static bool same_claim(const struct watched *a, const struct watched *b)
{
    return a->lease == b->lease && a->request == b->request;
}

static struct watched from_effect(const struct pk_effect *e)
{
    struct watched x = {.lease = e->lease,
                        .request = e->request,
                        .token = e->token,
                        .mode = e->mode,
                        .slots = e->slots,
                        .name_len = e->name.len};
    if (e->name.len > 0) {
        memcpy(x.name, e->name.data, e->name.len);
    }
    return x;
}

static void add(struct watched_list *l, const struct watched *x)
{
    if (l->count == l->capacity) {
        l->capacity = l->capacity == 0 ? 16 : l->capacity * 2;
        l->list = realloc(l->list, l->capacity * sizeof *l->list);
        if (l->list == NULL) {
            abort();
        }
    }
    l->list[l->count++] = *x;
}

static void take_out(struct watched_list *l, size_t at)
{
    l->count--;
    memmove(l->list + at, l->list + at + 1, (l->count - at) * sizeof *l->list);
}

/* The first with this lock, lease, request and token; count when there is none. */
static size_t find(const struct watched_list *l, const struct watched *x)
{
    size_t i = 0;
    while (i < l->count && !(same_claim(&l->list[i], x) && l->list[i].token == x->token &&
                             same_name(&l->list[i], x))) {
        i++;
    }
    return i;
}

static bool has_lease(const struct watched_list *l, uint64_t lease)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->list[i].lease == lease) {
            return true;
        }
    }
    return false;
}

static bool is_closed(const struct watch *w, const struct watched *x)
{
    for (size_t i = 0; i < w->closed.count; i++) {
        if (same_name(&w->closed.list[i], x)) {
            return true;
        }
    }
    return false;
}

/* Whether the lock could be given to `x` beside those who hold it. */
static bool fits(const struct watch *w, const struct watched *x)
{
    uint32_t beside = 0;
    for (size_t i = 0; i < w->holds.count; i++) {
        const struct watched *h = &w->holds.list[i];
        if (!same_name(h, x)) {
            continue;
        }
        beside++;
        if (x->mode == PK_EXCLUSIVE || h->mode == PK_EXCLUSIVE || h->slots != x->slots) {
            return false;
        }
    }
    return !is_closed(w, x) && (x->mode != PK_SLOT || beside < x->slots);
}

/* P7: nobody who came earlier to this lock may still be waiting for it. */
static const char *take_from_queue(struct watch *w, const struct pk_command *c,
                                   const struct watched *x)
{
    struct watched key = *x;
    key.token = 0;
    size_t at = find(&w->waits, &key);
    bool own = c->verb == PK_KEY_TAKE
                   ? has_lease(&w->keys, x->lease)
                   : c->verb == PK_LOCK_ACQUIRE && c->lease == x->lease &&
                         c->request == x->request;
    for (size_t i = 0; i < at && i < w->waits.count; i++) {
        if (same_name(&w->waits.list[i], x)) {
            return "P7: granted past somebody who came earlier";
        }
    }
    if (at < w->waits.count) {
        take_out(&w->waits, at);
        return NULL;
    }
    return own ? NULL : "P7: granted to somebody who did not wait";
}

static const char *granted(struct watch *w, const struct pk_command *c,
                           const struct pk_effect *e)
{
    struct watched x = from_effect(e);
    if (!fits(w, &x)) {
        return "P1: granted beside a hold that does not allow it, or while closed";
    }
    if (e->part == 0 ? e->token <= w->last_token : e->token != w->last_token) {
        return "P2: a token that does not grow";
    }
    if (!has_lease(&w->leases, e->lease)) {
        return "P9: granted to a lease that is not alive";
    }
    w->last_token = e->token;
    add(&w->holds, &x);
    return w->blind_to_queues ? NULL : take_from_queue(w, c, &x);
}

static const char *gone(struct watched_list *from, const struct pk_effect *e)
{
    struct watched x = from_effect(e);
    size_t at = find(from, &x);
    if (at == from->count) {
        return "an end of something that never began";
    }
    take_out(from, at);
    return NULL;
}

static void open_lock(struct watch *w, const struct pk_effect *e)
{
    struct watched x = from_effect(e);
    for (size_t i = 0; i < w->closed.count; i++) {
        if (same_name(&w->closed.list[i], &x)) {
            take_out(&w->closed, i--);
        }
    }
}

static bool take_out_lease(struct watched_list *l, uint64_t lease)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->list[i].lease == lease) {
            take_out(l, i);
            return true;
        }
    }
    return false;
}

static const char *lease_gone(struct watch *w, const struct pk_command *c,
                              const struct pk_effect *e)
{
    bool key = take_out_lease(&w->keys, e->lease);
    if (!take_out_lease(&w->leases, e->lease)) {
        return "a lease ended that was not alive";
    }
    if (c->verb == PK_KEY_DROP && e->end == PK_END_CLOSED && !key) {
        return "K3: a drop ended what is no key";
    }
    return key || (e->end != PK_END_RELEASED && e->end != PK_END_BROKEN)
               ? NULL
               : "K6: a lease went with a hold that is no key";
}

static const char *watch_effect(struct watch *w, const struct pk_command *c,
                                const struct pk_effect *e)
{
    struct watched x = from_effect(e);
    switch (e->kind) {
    case PK_EV_LEASE_OPENED:
        add(&w->leases, &x);
        if (c->verb == PK_KEY_TAKE) {
            add(&w->keys, &x);
        }
        return NULL;
    case PK_EV_LEASE_ENDED:
        return lease_gone(w, c, e);
    case PK_EV_QUEUED:
        if (!w->blind_to_queues) {
            add(&w->waits, &x);
        }
        return NULL;
    case PK_EV_LEFT:
        return w->blind_to_queues ? NULL : gone(&w->waits, e);
    case PK_EV_GRANTED:
        return granted(w, c, e);
    case PK_EV_ENDED:
        return gone(&w->holds, e);
    case PK_EV_CLOSED:
        add(&w->closed, &x);
        return NULL;
    case PK_EV_OPENED:
        open_lock(w, e);
        return NULL;
    case PK_EV_LEAPT: /* P2 across a restore: later tokens are above the leap */
        w->last_token = e->token > w->last_token ? e->token : w->last_token;
        return NULL;
    default:
        return NULL;
    }
}

/* Whether every part of the claim that `x` is one of stands first in its queue and
 * fits. */
static bool could_be_granted(const struct watch *w, const struct watched *x)
{
    for (size_t i = 0; i < w->waits.count; i++) {
        const struct watched *part = &w->waits.list[i];
        if (!same_claim(part, x)) {
            continue;
        }
        for (size_t k = 0; k < i; k++) {
            if (same_name(&w->waits.list[k], part)) {
                return false;
            }
        }
        if (!fits(w, part)) {
            return false;
        }
    }
    return true;
}

/* P9: nobody waits for something that is free, nor without a lease that lives. */
static const char *stranded(const struct watch *w)
{
    for (size_t i = 0; i < w->waits.count; i++) {
        if (!has_lease(&w->leases, w->waits.list[i].lease)) {
            return "P9: a lease ended and its wait goes on";
        }
        if (could_be_granted(w, &w->waits.list[i])) {
            return "P9: somebody waits who could be granted";
        }
    }
    for (size_t i = 0; i < w->holds.count; i++) {
        if (!has_lease(&w->leases, w->holds.list[i].lease)) {
            return "P9: a lease ended and its hold goes on";
        }
    }
    return NULL;
}

/* I10: a key and its lease are one, so each such lease has one hold and no wait. */
static const char *keyless(const struct watch *w)
{
    for (size_t i = 0; i < w->keys.count; i++) {
        uint64_t lease = w->keys.list[i].lease;
        size_t holds = 0;
        for (size_t k = 0; k < w->holds.count; k++) {
            holds += w->holds.list[k].lease == lease;
        }
        if (holds != 1 || has_lease(&w->waits, lease)) {
            return "I10: a keyed lease without its key alone";
        }
    }
    return NULL;
}

const char *watch_step(struct watch *w, const struct pk_command *c,
                       const struct pk_effects *effects, bool behind)
{
    const char *broken = NULL;
    for (uint32_t i = 0; i < effects->count && broken == NULL; i++) {
        broken = watch_effect(w, c, &effects->list[i]);
    }
    if (broken == NULL) {
        broken = keyless(w);
    }
    return broken != NULL || behind ? broken : stranded(w);
}

const char *watch_leftover(const struct watch *w)
{
    return w->holds.count > 0    ? "a hold is left"
           : w->waits.count > 0  ? "a wait is left"
           : w->closed.count > 0 ? "a lock is left closed"
           : w->leases.count > 0 ? "a lease is left"
                                 : NULL;
}

uint64_t watch_token(const struct watch *w, uint64_t lease, struct pk_bytes name)
{
    for (size_t i = 0; i < w->holds.count; i++) {
        const struct watched *h = &w->holds.list[i];
        if (h->lease == lease && pk_bytes_equal(name_of(h), name)) {
            return h->token;
        }
    }
    return 0;
}

void watch_free(struct watch *w)
{
    free(w->holds.list);
    free(w->waits.list);
    free(w->closed.list);
    free(w->leases.list);
    free(w->keys.list);
    *w = (struct watch){.blind_to_queues = false};
}
