/* SPDX-License-Identifier: MIT */
/*
 * A board in memory that a bridge can be led to, and whose answers can be lost: first
 * come first served, exclusive. It shows what the bridge makes of failures; real stores
 * are for the conformance suite.
 */
#ifndef PICKET_TEST_BOARD_H
#define PICKET_TEST_BOARD_H

#include <stdio.h>
#include <stdlib.h>

#include "client/error.h"
#include "core/door.h"
#include "drivers/bridge.h"
#include "drivers/card.h"
#include "host/clock.h"
#include "tap.h"

enum { PLACES = 64 };

struct place {
    uint64_t lease, request, order;
    char name[64];
    char card[512];
};

struct board {
    struct place places[PLACES];
    size_t count;
    uint64_t orders;
    uint64_t ended;       /* a lease that is over */
    uint64_t ended_claim; /* a request that somebody has ended */
};

/* What becomes of the next questions. */
enum fate { ANSWERED, NOT_ASKED, ANSWER_LOST };

struct visit {
    struct board *board;
    struct pk_store *bridge;
    enum fate fate;
    bool stir;              /* while it is asked where it stands */
    bool end;               /* while it is asked: somebody ends it */
    bool missed;            /* the next await does not know what was said before */
    uint64_t broken;        /* a request whose hold a renewal says was broken */
    uint64_t slow_ms;       /* how long it takes to say where a stake stands */
    uint64_t asked_ms;      /* when that was asked last */
    uint64_t hold_until_ms; /* of the stake that left last */
    unsigned stands, leaves, awaits, forgotten, renewals;
    bool closed;
};

static inline enum picket_status asked(const struct visit *v, enum picket_status s)
{
    return v->fate == ANSWER_LOST ? pk_fail(PICKET_UNKNOWN, "the answer was lost") : s;
}

static inline enum picket_status away(const struct visit *v)
{
    return v->fate == NOT_ASKED ? pk_fail(PICKET_UNREACHABLE, "the board is away")
                                : PICKET_OK;
}

static inline struct place *place_of(struct board *d, uint64_t lease, uint64_t request)
{
    for (size_t i = 0; i < d->count; i++) {
        if (d->places[i].lease == lease && d->places[i].request == request) {
            return &d->places[i];
        }
    }
    return NULL;
}

static inline bool first_of(const struct board *d, const struct place *p)
{
    for (size_t i = 0; i < d->count; i++) {
        if (strcmp(d->places[i].name, p->name) == 0 && d->places[i].order < p->order) {
            return false;
        }
    }
    return true;
}

static inline void take_off(struct board *d, struct place *p)
{
    *p = d->places[--d->count];
}

static inline struct place *put_on(struct board *d, const struct pk_stake *k)
{
    CHECK(d->count < PLACES && k->card.len < sizeof d->places[0].card);
    struct place *p = &d->places[d->count++];
    *p = (struct place){.lease = k->lease, .request = k->request, .order = ++d->orders};
    (void)snprintf(p->name, sizeof p->name, "%s", k->name);
    memcpy(p->card, k->card.data, k->card.len);
    return p;
}

static inline void board_meet(void *own, struct pk_store *b)
{
    ((struct visit *)own)->bridge = b;
}

static inline enum picket_status board_open(void *own, struct pk_tenancy *t, uint64_t u)
{
    (void)t;
    (void)u;
    return away(own);
}

static inline enum picket_status board_renew(void *own, uint64_t lease, uint64_t *ttl_ms,
                                             uint64_t until_ms)
{
    struct visit *v = own;
    (void)until_ms;
    v->renewals++;
    if (v->broken != 0) {
        pk_bridge_ended(v->bridge, lease, v->broken, PK_END_BROKEN, "eve", "it hangs");
        v->broken = 0;
    }
    *ttl_ms = *ttl_ms != 0 ? *ttl_ms : 10000;
    return v->board->ended == lease ? PICKET_LOST : away(v);
}

static inline enum picket_status board_close(void *own, uint64_t lease, uint64_t until_ms)
{
    struct board *d = ((struct visit *)own)->board;
    (void)until_ms;
    for (size_t i = d->count; i-- > 0;) {
        if (d->places[i].lease == lease) {
            take_off(d, &d->places[i]);
        }
    }
    return PICKET_OK;
}

static inline enum picket_status board_stand(void *own, struct pk_stake *k, bool wait,
                                             uint64_t until_ms)
{
    struct visit *v = own;
    (void)until_ms;
    v->stands++;
    v->asked_ms = pk_clock_ms();
    while (pk_clock_ms() < v->asked_ms + v->slow_ms) {
    }
    if (v->board->ended == k->lease) {
        return PICKET_LOST;
    }
    if (away(v) != PICKET_OK) {
        return PICKET_UNREACHABLE;
    }
    struct place *p = place_of(v->board, k->lease, k->request);
    if (v->board->ended_claim == k->request) {
        k->state = PK_CLAIM_NONE;
        return PICKET_OK;
    }
    p = p != NULL ? p : put_on(v->board, k);
    bool first = first_of(v->board, p);
    k->token = first ? p->order : 0;
    k->state = first ? PK_CLAIM_HELD : wait ? PK_CLAIM_WAITING : PK_CLAIM_NONE;
    if (k->state == PK_CLAIM_NONE) {
        take_off(v->board, p);
    }
    if (v->stir) {
        v->stir = false;
        pk_bridge_stir(v->bridge, k->lease, k->request);
    }
    if (v->end) {
        v->end = false;
        take_off(v->board, p);
        v->board->ended_claim = k->request;
        pk_bridge_ended(v->bridge, k->lease, k->request, PK_END_BROKEN, "", "");
    }
    return asked(v, PICKET_OK);
}

static inline enum picket_status board_leave(void *own, struct pk_stake *k, uint64_t u)
{
    struct visit *v = own;
    (void)u;
    v->leaves++;
    v->hold_until_ms = k->hold_until_ms;
    if (away(v) != PICKET_OK) {
        return PICKET_UNREACHABLE;
    }
    struct place *p = place_of(v->board, k->lease, k->request);
    if (p != NULL) {
        take_off(v->board, p);
    }
    return asked(v, p != NULL ? PICKET_OK : PICKET_NOTHELD);
}

static inline void board_forget(void *own, struct pk_stake *k)
{
    (void)k;
    ((struct visit *)own)->forgotten++;
}

static inline enum picket_status board_rewrite(void *own, struct pk_stake *k, uint64_t u)
{
    struct visit *v = own;
    struct place *p = place_of(v->board, k->lease, k->request);
    (void)u;
    CHECK(p != NULL && k->card.len < sizeof p->card);
    memset(p->card, 0, sizeof p->card);
    memcpy(p->card, k->card.data, k->card.len);
    return away(v);
}

static inline enum picket_status board_scan(void *own, const char *name, bool whole,
                                            struct pk_scan *scan, uint64_t until_ms)
{
    const struct visit *v = own;
    (void)until_ms;
    for (size_t i = 0; i < v->board->count; i++) {
        const struct place *p = &v->board->places[i];
        bool fits = whole ? strcmp(p->name, name) == 0
                          : strncmp(p->name, name, strlen(name)) == 0;
        if (fits) {
            struct pk_sight seen = {.name = pk_text(p->name),
                                    .card = pk_text(p->card),
                                    .held = first_of(v->board, p),
                                    .token = p->order,
                                    .order = p->order};
            pk_bridge_see(scan, &seen);
        }
    }
    return away(v);
}

static inline bool board_await(void *own, uint64_t until_ms)
{
    struct visit *v = own;
    v->awaits++;
    bool missed = v->missed;
    v->missed = false;
    if (!missed) {
        (void)pk_bridge_sleep(v->bridge, -1, until_ms);
    }
    return missed;
}

static inline void board_shut(void *own)
{
    ((struct visit *)own)->closed = true;
}

static inline void board_forked(void *own)
{
    (void)own;
}

static const struct pk_bridged board_ops = {.meet = board_meet,
                                            .lease_open = board_open,
                                            .lease_renew = board_renew,
                                            .lease_close = board_close,
                                            .stand = board_stand,
                                            .leave = board_leave,
                                            .forget = board_forget,
                                            .rewrite = board_rewrite,
                                            .scan = board_scan,
                                            .await = board_await,
                                            .forked = board_forked,
                                            .close = board_shut};

#endif
