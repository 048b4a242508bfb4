/* SPDX-License-Identifier: MIT */
/* What becomes of the claims without our asking: the events that the store tells of, and
 * how the claims stand when some were missed. */
#include <stdio.h>

#include "client/client.h"
#include "core/door.h"
#include "host/clock.h"

/* ---- events ---- */

static struct picket_lock *lock_of(struct picket *p, uint64_t request)
{
    struct picket_lock *l = p->locks;
    while (l != NULL && l->request != request) {
        l = l->next;
    }
    return l;
}

static enum picket_status verdict_of(enum pk_end end)
{
    return end == PK_END_TIMED_OUT   ? PICKET_TIMEOUT
           : end == PK_END_WITHDRAWN ? PICKET_CANCELLED
                                     : PICKET_LOST;
}

static void hold_ended(struct picket_lock *l, const struct pk_effect *e)
{
    char reason[PK_DESCRIPTION_MAX];
    if (e->end == PK_END_RELEASED) {
        pk_lock_released(l);
    } else if (e->end == PK_END_BROKEN && e->by.len + e->why.len == 0) {
        pk_lock_lost(l, "broken: by an operator"); /* who and why went by unheard */
    } else if (e->end == PK_END_BROKEN) {
        snprintf(reason, sizeof reason, "broken: %.*s (by %.*s)", (int)e->why.len,
                 e->why.data, (int)e->by.len, e->by.data);
        pk_lock_lost(l, reason);
    } else if (e->end == PK_END_FORGOTTEN) {
        pk_lock_lost(l, "ended while the store was out of sight");
    } else {
        pk_lock_lost(l, pk_end_name(e->end));
    }
}

static void absorb_event(struct picket *p, const struct pk_effect *e, uint64_t since_ms)
{
    if (e->lease != p->lease) {
        return;
    }
    pk_client_hear(p, e->event);
    struct picket_lock *l = lock_of(p, e->request);
    if (e->kind == PK_EV_LEASE_ENDED) {
        pk_client_lost(p, pk_end_name(e->end));
    } else if (l != NULL && e->kind == PK_EV_GRANTED && l->phase == PK_PHASE_WAITING) {
        pk_lock_granted(l, e->token, since_ms);
    } else if (l != NULL && e->kind == PK_EV_LEFT && l->phase == PK_PHASE_WAITING) {
        pk_lock_refused(l, verdict_of(e->end));
    } else if (l != NULL && e->kind == PK_EV_ENDED && l->phase == PK_PHASE_HELD) {
        hold_ended(l, e);
    } else if (l != NULL && e->kind == PK_EV_ENDED && l->phase == PK_PHASE_WAITING) {
        pk_lock_refused(l, PICKET_LOST); /* we have missed its grant */
    }
}

void pk_client_hear(struct picket *p, uint32_t event)
{
    uint32_t behind = event - p->heard.last; /* numbers go round, so do differences */
    if (event == 0 || behind == 0 || behind > 64) {
        return; /* if something is missing, the next renewal brings it */
    }
    p->heard.ahead |= UINT64_C(1) << (behind - 1);
    while (p->heard.ahead & 1) {
        p->heard.last++;
        p->heard.ahead >>= 1;
    }
}

/* The keeper asks about each claim; once more, if it is at it: so it gets through,
 * however often something is missed meanwhile. Mutex held. */
static void doubt_each(struct picket *p, uint64_t since_ms)
{
    bool earlier = p->doubt == PK_DOUBT_NONE || since_ms < p->missed_since_ms;
    p->missed_since_ms = earlier ? since_ms : p->missed_since_ms;
    p->again = p->doubt == PK_DOUBT_EACH;
    p->asked = p->again ? p->asked : 0;
    p->doubt = PK_DOUBT_EACH;
}

void pk_client_doubt(struct picket *p, uint64_t since_ms)
{
    p->rounds++;
    if (p->driver->tells_missed) {
        /* Nothing counts as heard: an acquire that was repeated may have been answered
         * with a grant whose end we have heard of before. */
        p->heard = (struct pk_heard){0};
        p->doubt = PK_DOUBT_ALL;
        pk_keeper_hurry(&p->keeper, pk_clock_ms());
    } else {
        doubt_each(p, since_ms);
    }
}

void pk_client_absorb(struct picket *p)
{
    struct pk_effects events = {0};
    uint64_t since_ms = 0;
    /* One at a time: a grant taken in after its own end would look like a hold. */
    pthread_mutex_lock(&p->absorbing);
    bool whole = p->driver->news(p->store, &events, &since_ms);
    pthread_mutex_lock(&p->mutex);
    for (uint32_t i = 0; i < events.count; i++) {
        absorb_event(p, &events.list[i], since_ms);
    }
    bool gap = !whole && p->lease != 0;
    if (gap) {
        p->gaps++;
        pk_client_doubt(p, since_ms);
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    pthread_mutex_unlock(&p->absorbing);
    pk_effects_free(&events);
    if (gap) {
        p->driver->wake(p->store);
    }
}

/* ---- what was missed ---- */

/* The service knows of the claim: of an acquire that is still on its way, the answer will
 * tell. */
static bool is_known(const struct picket_lock *l)
{
    return l->phase == PK_PHASE_HELD || (l->phase == PK_PHASE_WAITING && l->queued);
}

uint64_t pk_client_begin_renewal(struct picket *p, unsigned char heard[4])
{
    pthread_mutex_lock(&p->mutex);
    uint64_t round = p->rounds;
    pk_command_put_heard(heard, 0, p->heard.last);
    for (struct picket_lock *l = p->locks; l != NULL; l = l->next) {
        l->asked = is_known(l);
    }
    pthread_mutex_unlock(&p->mutex);
    return round;
}

/* The row of the answer that tells about the request, or NULL. */
static const struct pk_effect *row_of(const struct pk_effects *answer, uint64_t request)
{
    for (uint32_t i = 1; i < answer->count; i++) {
        if (answer->list[i].request == request) {
            return &answer->list[i];
        }
    }
    return NULL;
}

/* How a claim stands that the service knew of; `row` NULL: it has ended, and how is
 * forgotten. Mutex held. */
static void absorb_row(struct picket_lock *l, const struct pk_effect *row,
                       uint64_t since_ms)
{
    bool waits = l->phase == PK_PHASE_WAITING;
    bool over = row == NULL || row->kind == PK_ROW_OUTCOME;
    const struct pk_effect forgotten = {.end = PK_END_FORGOTTEN};
    if (waits && !over && row->kind == PK_ROW_HOLD) {
        pk_lock_granted(l, row->token, since_ms);
    } else if (waits && over && row == NULL) {
        pk_lock_refused(l, l->bounded ? PICKET_TIMEOUT : PICKET_LOST);
    } else if (waits && over) {
        pk_lock_refused(l, verdict_of(row->end));
    } else if (l->phase == PK_PHASE_HELD && over) {
        hold_ended(l, row == NULL ? &forgotten : row);
    }
}

/* A time of our clock before the grant that the row tells of; max-hold counts from here.
 * Cluster time says how long ago it was, since max-hold is counted in that. */
static uint64_t granted_after(const struct pk_effect *reply, const struct pk_effect *row,
                              uint64_t heard_ms, uint64_t sent)
{
    bool known = row != NULL && row->since_ms != 0 && reply->since_ms >= row->since_ms;
    uint64_t ago = known ? reply->since_ms - row->since_ms : UINT64_MAX;
    return ago <= sent && sent - ago > heard_ms ? sent - ago : heard_ms;
}

void pk_client_absorb_state(struct picket *p, const struct pk_command *c,
                            const struct pk_effects *answer, uint64_t sent)
{
    const struct pk_effect *reply = &answer->list[0];
    bool tells = pk_command_heard_at(c, 0) != reply->event;
    for (struct picket_lock *l = p->locks; l != NULL && tells; l = l->next) {
        const struct pk_effect *row = row_of(answer, l->request);
        bool ended = row == NULL && l->asked && !reply->more;
        if (!l->leaving && (row != NULL || ended)) {
            absorb_row(l, row, granted_after(reply, row, p->heard_ms, sent));
        }
    }
    if (reply->more != 0) {
        doubt_each(p, p->heard_ms);
    } else if (tells || p->doubt == PK_DOUBT_ALL) {
        p->doubt = PK_DOUBT_NONE;
    }
    if (reply->event - p->heard.last <= UINT32_MAX / 2) { /* pushes may be ahead of it */
        p->heard = (struct pk_heard){.last = reply->event};
    }
    p->heard_ms = sent;
    pthread_cond_broadcast(&p->changed);
}

/* The first request after `after` that the service knows of. 0: none. Mutex held. */
static uint64_t next_known(const struct picket *p, uint64_t after)
{
    uint64_t next = 0;
    for (const struct picket_lock *l = p->locks; l != NULL; l = l->next) {
        if (is_known(l) && l->request > after && (next == 0 || l->request < next)) {
            next = l->request;
        }
    }
    return next;
}

/* The claim was known to the service, and now it stands like this. Mutex held. */
static void absorb_claim(struct picket *p, uint64_t request, enum pk_claim_state state,
                         uint64_t token)
{
    struct picket_lock *l = lock_of(p, request);
    if (l == NULL || l->leaving) {
        return;
    }
    if (l->phase == PK_PHASE_WAITING && state == PK_CLAIM_HELD) {
        pk_lock_granted(l, token, p->missed_since_ms);
    } else if (l->phase == PK_PHASE_WAITING && state == PK_CLAIM_NONE) {
        pk_lock_refused(l, l->bounded ? PICKET_TIMEOUT : PICKET_LOST);
    } else if (l->phase == PK_PHASE_HELD && state == PK_CLAIM_NONE) {
        pk_lock_lost(l, "ended while the store was out of sight");
    }
}

void pk_client_catch_up(struct picket *p)
{
    pthread_mutex_lock(&p->mutex);
    while (p->doubt == PK_DOUBT_EACH && p->lease != 0 && !p->stopping &&
           pk_clock_ms() < p->keeper.next_ms) {
        uint64_t lease = p->lease;
        uint64_t request = next_known(p, p->asked);
        enum pk_claim_state state = PK_CLAIM_NONE;
        uint64_t token = 0;
        if (request == 0) {
            p->doubt = p->again ? PK_DOUBT_EACH : PK_DOUBT_NONE;
            p->again = false;
            p->asked = 0;
            continue;
        }
        pthread_mutex_unlock(&p->mutex);
        enum picket_status s = p->driver->claim(p->store, lease, request, &state, &token);
        pthread_mutex_lock(&p->mutex);
        if (s != PICKET_OK) {
            break; /* a new connection brings us here again, or else the next renewal */
        }
        if (p->lease == lease) {
            absorb_claim(p, request, state, token);
        }
        p->asked = request;
    }
    pthread_mutex_unlock(&p->mutex);
}
