/* SPDX-License-Identifier: MIT */
#include "server/past.h"

#include "core/door.h"
#include "core/look.h"
#include "core/wire.h"

struct ring {
    uint32_t next;
    struct pk_past_hold holds[PK_PAST_HOLDS];
};

struct pk_past {
    struct ring *rings[PK_PAST_RINGS];
    uint64_t n_losses, n_refusals;
    struct pk_past_loss losses[PK_PAST_LOSSES];
    struct pk_past_refusal refusals[PK_PAST_REFUSALS];
};

struct pk_past *pk_past_new(void)
{
    struct pk_past *p = pk_door_resize(NULL, sizeof *p);
    memset(p, 0, sizeof *p);
    return p;
}

void pk_past_forget(struct pk_past *p)
{
    for (size_t i = 0; i < PK_PAST_RINGS; i++) {
        pk_door_resize(p->rings[i], 0);
        p->rings[i] = NULL;
    }
    p->n_losses = p->n_refusals = 0;
}

void pk_past_free(struct pk_past *p)
{
    if (p != NULL) {
        pk_past_forget(p);
        pk_door_resize(p, 0);
    }
}

/* ---- words ---- */

static void keep(struct pk_past_text *to, struct pk_bytes from)
{
    to->len = (uint8_t)(from.len < PK_PAST_TEXT ? from.len : PK_PAST_TEXT);
    if (to->len > 0) {
        memcpy(to->data, from.data, to->len);
    }
}

struct pk_bytes pk_past_text(const struct pk_past_text *t)
{
    return pk_bytes(t->data, t->len);
}

static uint8_t keep_name(char *to, struct pk_bytes from)
{
    PK_ASSERT(from.len <= PK_NAME_MAX);
    if (from.len > 0) {
        memcpy(to, from.data, from.len);
    }
    return (uint8_t)from.len;
}

/* ---- holders ---- */

static uint64_t digest_of(struct pk_bytes name)
{
    uint64_t d = pk_digest(PK_DIGEST_START, name.data, name.len);
    return d == 0 ? 1 : d;
}

static struct ring *ring_of(struct pk_past *p, uint64_t lock)
{
    struct ring **at = &p->rings[lock % PK_PAST_RINGS];
    if (*at == NULL) {
        *at = pk_door_resize(NULL, sizeof **at);
        memset(*at, 0, sizeof **at);
    }
    return *at;
}

static void note_grant(struct pk_past *p, const struct pk_machine *m,
                       const struct pk_effect *e)
{
    uint64_t lock = digest_of(e->name);
    struct ring *r = ring_of(p, lock);
    struct pk_past_hold *h = &r->holds[r->next];
    r->next = (r->next + 1) % PK_PAST_HOLDS;
    h->lock = lock;
    h->token = e->token;
    h->granted_ms = pk_machine_clock(m);
    h->waited_ms = e->lasted_ms;
    h->end = PK_END_NONE;
    h->mode = e->mode;
    keep(&h->label, pk_look_label(m, e->lease));
}

/* The hold, if it is still known. */
static struct pk_past_hold *find(struct pk_past *p, const struct pk_effect *e)
{
    uint64_t lock = digest_of(e->name);
    struct ring *r = ring_of(p, lock);
    for (uint32_t i = 0; i < PK_PAST_HOLDS; i++) {
        if (r->holds[i].lock == lock && r->holds[i].token == e->token) {
            return &r->holds[i];
        }
    }
    return NULL;
}

const struct pk_past_hold *pk_past_hold(const struct pk_past *p, struct pk_bytes name,
                                        uint32_t nth)
{
    uint64_t lock = digest_of(name);
    const struct ring *r = p->rings[lock % PK_PAST_RINGS];
    for (uint32_t i = 1; r != NULL && i <= PK_PAST_HOLDS; i++) {
        const struct pk_past_hold *h =
            &r->holds[(r->next + PK_PAST_HOLDS - i) % PK_PAST_HOLDS];
        if (h->lock == lock && nth-- == 0) {
            return h;
        }
    }
    return NULL;
}

/* ---- losses ---- */

static bool is_loss(enum pk_end end)
{
    return end == PK_END_EXPIRED || end == PK_END_OVERHELD || end == PK_END_BROKEN ||
           end == PK_END_RESTORED;
}

static void note_end(struct pk_past *p, const struct pk_machine *m,
                     const struct pk_effect *e)
{
    uint64_t now = pk_machine_clock(m);
    struct pk_past_hold *h = find(p, e);
    if (h != NULL) {
        h->end = e->end;
        h->ended_ms = now;
    }
    if (!is_loss(e->end)) {
        return;
    }
    struct pk_past_loss *l = &p->losses[p->n_losses++ % PK_PAST_LOSSES];
    l->token = e->token;
    l->at_ms = now;
    l->held_ms = e->lasted_ms;
    l->end = e->end;
    l->name_len = keep_name(l->name, e->name);
    keep(&l->label, h == NULL ? pk_bytes("", 0) : pk_past_text(&h->label));
    keep(&l->by, e->by);
    keep(&l->why, e->why);
}

uint64_t pk_past_losses(const struct pk_past *p)
{
    return p->n_losses;
}

const struct pk_past_loss *pk_past_loss(const struct pk_past *p, uint64_t nth)
{
    bool there = nth < p->n_losses && nth < PK_PAST_LOSSES;
    return there ? &p->losses[(p->n_losses - 1 - nth) % PK_PAST_LOSSES] : NULL;
}

/* ---- refusals of fences ---- */

static bool is_refusal(enum pk_status s)
{
    return s == PK_STALE || s == PK_UNCLAIMED;
}

static void note_refusal(struct pk_past *p, const struct pk_machine *m,
                         const struct pk_command *c, const struct pk_effect *e)
{
    bool shadow = e->status == PK_OK && is_refusal(e->would);
    bool fence = e->verb == PK_FENCE_CLAIM || e->verb == PK_FENCE_CHECK ||
                 e->verb == PK_FENCE_SET || e->verb == PK_FENCE_GET;
    if (!fence || c == NULL || (!shadow && !is_refusal(e->status))) {
        return;
    }
    struct pk_past_refusal *r = &p->refusals[p->n_refusals++ % PK_PAST_REFUSALS];
    r->token = c->token;
    r->highest = e->token;
    r->at_ms = pk_machine_clock(m);
    r->why = shadow ? e->would : e->status;
    r->shadow = shadow;
    r->name_len = keep_name(r->name, c->name);
    keep(&r->by, c->principal);
}

uint64_t pk_past_refusals(const struct pk_past *p)
{
    return p->n_refusals;
}

const struct pk_past_refusal *pk_past_refusal(const struct pk_past *p, uint64_t nth)
{
    bool there = nth < p->n_refusals && nth < PK_PAST_REFUSALS;
    return there ? &p->refusals[(p->n_refusals - 1 - nth) % PK_PAST_REFUSALS] : NULL;
}

/* ---- effects ---- */

void pk_past_step(struct pk_past *p, const struct pk_machine *m,
                  const struct pk_command *c, const struct pk_effects *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        const struct pk_effect *x = &e->list[i];
        if (x->kind == PK_EV_GRANTED) {
            note_grant(p, m, x);
        } else if (x->kind == PK_EV_ENDED) {
            note_end(p, m, x);
        } else if (x->kind == PK_REPLY) {
            note_refusal(p, m, c, x);
        }
    }
}
