/* SPDX-License-Identifier: MIT */
/* Commands, by the functions of a store that knows none. */
#include <stdlib.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/bridge_inside.h"
#include "drivers/card.h"
#include "host/clock.h"

enum { ANSWER_LEAST_MS = 250, ANSWER_MOST_MS = 3000 };

/* ---- answers ---- */

/* Appends the reply, if what the store said is a word of the machine; all else is a
 * failure of the call. */
static enum picket_status answer(const struct pk_command *c, enum picket_status s,
                                 struct pk_effect reply, struct pk_effects *out)
{
    static const struct {
        enum picket_status said;
        enum pk_status status;
    } words[] = {
        {PICKET_OK, PK_OK},
        {PICKET_LOST, PK_LOST},
        {PICKET_NOTHELD, PK_NOTHELD},
        {PICKET_NOTFOUND, PK_NOTFOUND},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (words[i].said == s) {
            reply.kind = PK_REPLY;
            reply.verb = c->verb;
            reply.status = s == PICKET_OK ? reply.status : words[i].status;
            reply.end = s == PICKET_LOST ? PK_END_EXPIRED : PK_END_NONE;
            reply.lease = reply.lease != 0 ? reply.lease : c->lease;
            reply.request = c->request;
            pk_effects_add(out, &reply);
            return PICKET_OK;
        }
    }
    return s;
}

/* ---- what is not supported ---- */

static enum picket_status refuse(const struct pk_store *b, const char *what)
{
    return pk_fail(PICKET_UNSUPPORTED, "%s has no %s; see picket doctor", b->g->driver,
                   what);
}

static enum picket_status check_acquire(const struct pk_store *b,
                                        const struct pk_command *c)
{
    const struct pk_part *part = &c->parts[0];
    return c->n_parts > 1                               ? refuse(b, "lock sets")
           : part->mode == PK_SLOT                      ? refuse(b, "semaphores")
           : part->mode == PK_SHARED && !b->g->shared   ? refuse(b, "shared locks")
           : c->lock_delay_ms != 0 && !b->g->lock_delay ? refuse(b, "lock-delay")
           : c->value.len > 0 && !b->g->election        ? refuse(b, "elections")
                                                        : PICKET_OK;
}

static enum picket_status check_lease(const struct pk_store *b, uint64_t lease)
{
    return lease == b->opened || b->g->by_id
               ? PICKET_OK
               : refuse(b, "leases that another process can use");
}

static enum picket_status check(const struct pk_store *b, const struct pk_command *c)
{
    switch (c->verb) {
    case PK_LOCK_ACQUIRE:
        return check_acquire(b, c);
    case PK_LEASE_RENEW:
        return check_lease(b, pk_command_lease_at(c, 0));
    case PK_LEASE_CLOSE:
    case PK_LEASE_SHOW:
    case PK_LOCK_RELEASE:
        return check_lease(b, c->lease);
    case PK_LOCK_BREAK:
        return b->g->tokens != 0 ? PICKET_OK
                                 : refuse(b, "tokens, so nobody can say which hold");
    case PK_LEASE_OPEN:
    case PK_LOCK_CANCEL:
    case PK_LOCK_VALUE:
    case PK_LOCK_SHOW:
    case PK_LOCK_LIST:
        return PICKET_OK;
    default:
        return pk_fail(PICKET_UNSUPPORTED,
                       "%s keeps no fences; keep them in what you protect, with picket "
                       "fence --resource",
                       b->g->driver);
    }
}

/* ---- leases ---- */

static enum picket_status open_lease(struct pk_store *b, const struct pk_command *c,
                                     uint64_t until_ms, struct pk_effects *out)
{
    struct pk_tenancy t = {
        .id = c->request & INT64_MAX, .ttl_ms = c->ttl_ms, .label = c->label};
    t.id += t.id == 0;
    enum picket_status s = b->ops->lease_open(b->own, &t, until_ms);
    if (s == PICKET_OK) {
        pk_stakes_drop(b, b->opened); /* on a lease that is over */
        (void)pk_door_resize(b->label, 0);
        b->label = pk_bridge_text(c->label);
        b->opened = t.id;
        b->ttl_ms = t.ttl_ms;
    }
    return answer(c, s, (struct pk_effect){.lease = t.id, .left_ms = t.ttl_ms}, out);
}

static enum picket_status renew(struct pk_store *b, const struct pk_command *c,
                                uint64_t until_ms, struct pk_effects *out)
{
    enum picket_status s = PICKET_OK;
    for (uint32_t i = 0; i < c->n_leases && s == PICKET_OK; i++) {
        uint64_t lease = pk_command_lease_at(c, i);
        uint64_t ttl_ms = c->ttl_ms;
        s = b->ops->lease_renew(b->own, lease, &ttl_ms, until_ms);
        if (s == PICKET_OK && lease == b->opened) {
            b->ttl_ms = ttl_ms;
        } else if (s == PICKET_LOST) {
            pk_stakes_drop(b, lease);
        }
        s = answer(c, s, (struct pk_effect){.lease = lease, .left_ms = ttl_ms}, out);
    }
    return s;
}

static enum picket_status close_lease(struct pk_store *b, const struct pk_command *c,
                                      uint64_t until_ms, struct pk_effects *out)
{
    enum picket_status s = b->ops->lease_close(b->own, c->lease, until_ms);
    if (s == PICKET_OK || s == PICKET_LOST) {
        pk_stakes_drop(b, c->lease);
        s = PICKET_OK; /* it is over, which is what was wanted */
    }
    return answer(c, s, (struct pk_effect){0}, out);
}

/* ---- locks ---- */

static enum picket_status stand(struct pk_store *b, const struct pk_command *c,
                                struct pk_stake *k, uint64_t until_ms,
                                struct pk_effects *out)
{
    enum picket_status s = pk_stake_stand(b, k, c->wait_ms != 0, until_ms);
    pthread_mutex_lock(&b->mutex);
    bool due = k->due_ms != UINT64_MAX;
    pthread_mutex_unlock(&b->mutex);
    if (due) {
        pk_bridge_wake(b); /* what is due is done by the keeper's thread */
    }
    struct pk_effect reply = {.status = PK_QUEUED, .parts = 1, .mode = k->mode};
    if (s == PICKET_OK && k->standing == PK_CLAIM_HELD) {
        reply.status = PK_OK;
        reply.token = k->token;
    } else if (s == PICKET_OK && k->standing == PK_CLAIM_NONE) {
        pk_stake_drop(b, k);
        pk_bridge_busy(b, c, until_ms, out);
        return PICKET_OK;
    } else if (s == PICKET_LOST) {
        pk_stakes_drop(b, c->lease);
    } else if (s != PICKET_OK && !k->asked) {
        pk_stake_drop(b, k); /* it was never there */
    } else if (s == PICKET_UNREACHABLE) {
        s = PICKET_UNKNOWN; /* an earlier attempt may have got through */
    }
    return answer(c, s, reply, out);
}

static enum picket_status acquire(struct pk_store *b, const struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *out)
{
    struct pk_stake *k = pk_stake_find(b, c->lease, c->request);
    bool leaving = k != NULL && (k->leaving || k->gone);
    if (leaving) {
        return pk_fail(PICKET_CANCELLED, "%s was cancelled before it was granted",
                       k->name);
    }
    if (c->lease != b->opened) {
        return answer(c, PICKET_LOST, (struct pk_effect){0}, out);
    }
    k = k != NULL ? k : pk_stake_new(b, c);
    return stand(b, c, k, until_ms, out);
}

static enum picket_status cancel(struct pk_store *b, const struct pk_command *c,
                                 uint64_t until_ms, struct pk_effects *out)
{
    struct pk_stake *k = pk_stake_find(b, c->lease, c->target);
    enum picket_status s = k == NULL ? PICKET_OK : pk_stake_leave(b, k, until_ms);
    s = s == PICKET_NOTHELD ? PICKET_OK : s; /* nothing is there: as it was wanted */
    return answer(c, s, (struct pk_effect){0}, out);
}

/* Our own hold of that name and token; NULL: we have none. */
static struct pk_stake *hold_of(struct pk_store *b, const struct pk_command *c)
{
    for (struct pk_stake *k = b->stakes; k != NULL; k = k->next) {
        bool same = k->lease == c->lease && k->token == c->token &&
                    pk_bytes_equal(pk_text(k->name), c->name);
        if (same && k->standing == PK_CLAIM_HELD && !k->gone) {
            return k;
        }
    }
    return NULL;
}

static enum picket_status release(struct pk_store *b, const struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *out)
{
    struct pk_stake *k = hold_of(b, c);
    char *name = pk_bridge_text(c->name);
    enum picket_status s =
        k != NULL ? pk_stake_leave(b, k, until_ms)
        : b->ops->release == NULL
            ? PICKET_NOTHELD
            : b->ops->release(b->own, c->lease, name, c->token, until_ms);
    (void)pk_door_resize(name, 0);
    return answer(c, s, (struct pk_effect){0}, out);
}

static enum picket_status set_value(struct pk_store *b, const struct pk_command *c,
                                    uint64_t until_ms, struct pk_effects *out)
{
    struct pk_stake *k = hold_of(b, c);
    if (k == NULL) {
        return answer(c, PICKET_NOTHELD, (struct pk_effect){0}, out);
    }
    struct pk_card card;
    struct pk_bytes before = k->card;
    char *room = pk_door_resize(NULL, (size_t)before.len + 1);
    PK_ASSERT(pk_card_read(before, room, &card)); /* we wrote it */
    card.value = c->value;
    size_t len;
    const char *text = pk_card_write(&card, &len);
    k->card = pk_bytes(text, len);
    enum picket_status s = b->ops->rewrite(b->own, k, until_ms);
    struct pk_bytes unused = s == PICKET_OK ? before : k->card;
    k->card = s == PICKET_OK ? k->card : before;
    free((char *)unused.data);
    (void)pk_door_resize(room, 0);
    return answer(c, s, (struct pk_effect){.token = c->token}, out);
}

/* ---- the door ---- */

/* A store without tokens has holds without them. */
static const char *wrong_with(const struct pk_store *b, const struct pk_command *c)
{
    if (b->g->tokens == 0 && c->token == 0 &&
        (c->verb == PK_LOCK_RELEASE || c->verb == PK_LOCK_VALUE ||
         c->verb == PK_LOCK_BREAK)) {
        struct pk_command any = *c;
        any.token = 1;
        return pk_command_wrong(&any);
    }
    return pk_command_wrong(c);
}

static enum picket_status run(struct pk_store *b, const struct pk_command *c,
                              uint64_t until_ms, struct pk_effects *out)
{
    switch (c->verb) {
    case PK_LEASE_OPEN:
        return open_lease(b, c, until_ms, out);
    case PK_LEASE_RENEW:
        return renew(b, c, until_ms, out);
    case PK_LEASE_CLOSE:
        return close_lease(b, c, until_ms, out);
    case PK_LOCK_ACQUIRE:
        return acquire(b, c, until_ms, out);
    case PK_LOCK_CANCEL:
        return cancel(b, c, until_ms, out);
    case PK_LOCK_RELEASE:
        return release(b, c, until_ms, out);
    case PK_LOCK_VALUE:
        return set_value(b, c, until_ms, out);
    case PK_LOCK_BREAK:
        return answer(c, b->ops->break_hold(b->own, c, until_ms),
                      (struct pk_effect){.token = c->token}, out);
    default:
        return pk_bridge_look(b, c, until_ms, out);
    }
}

/* One question that gets no answer must not keep the lease from being renewed: whoever
 * asked asks again. */
static uint64_t answer_by(const struct pk_store *b, const struct pk_command *c,
                          uint64_t until_ms)
{
    bool at_stake = b->stakes != NULL && c->verb != PK_LEASE_RENEW;
    uint64_t part = b->ttl_ms / 3;
    part = part < ANSWER_LEAST_MS ? ANSWER_LEAST_MS : part;
    uint64_t by = pk_clock_ms() + (part < ANSWER_MOST_MS ? part : ANSWER_MOST_MS);
    return at_stake && by < until_ms ? by : until_ms;
}

enum picket_status pk_bridge_call(struct pk_store *b, struct pk_command *c,
                                  uint64_t until_ms, struct pk_effects *out)
{
    const char *wrong = wrong_with(b, c);
    if (wrong != NULL) {
        return pk_fail(PICKET_BADARG, "%s", wrong);
    }
    if (!pk_bridge_talk(b, until_ms)) {
        return pk_fail(PICKET_UNREACHABLE,
                       "%s has not answered another call of this client yet",
                       b->g->driver);
    }
    enum picket_status s = check(b, c);
    if (s == PICKET_OK) {
        s = run(b, c, answer_by(b, c, until_ms), out);
    }
    pk_bridge_hush(b);
    return s;
}
