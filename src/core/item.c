/* SPDX-License-Identifier: MIT */
#include "core/item.h"

#include "core/door.h"
#include "core/state.h"
#include "core/wire.h"

/* ---- the fields ---- */

static void write_replies(struct pk_writer *w, const struct pk_replies *r)
{
    uint32_t count = pk_replies_count(r);
    pk_write_uint(w, count);
    if (w->hashing && count > 0) {
        pk_write_uint(w, w->kept ? r->hash : pk_replies_hash(r));
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct pk_answer *a = pk_replies_at(r, i);
        pk_write_uint(w, a->request);
        pk_write_uint(w, a->token);
        pk_write_byte(w, a->verb);
        pk_write_byte(w, a->status);
        pk_write_byte(w, a->end);
    }
}

static void write_machine(struct pk_writer *w, const struct pk_machine *m)
{
    pk_write_uint(w, m->version);
    pk_write_byte(w, m->held);
    pk_write_uint(w, m->clock);
    pk_write_uint(w, m->last_token);
    pk_write_uint(w, m->next_lease);
    pk_write_uint(w, m->next_seq);
    pk_write_uint(w, m->next_ended);
    pk_write_uint(w, m->work);
    pk_write_uint(w, m->restored_below);
    pk_write_uint(w, m->sweep == NULL ? 0 : 1 + m->sweep->at);
    pk_limits_write(w, &m->limits);
    write_replies(w, m->replies);
}

static void write_lease(struct pk_writer *w, const struct pk_lease *l)
{
    pk_write_uint(w, l->id);
    pk_write_uint(w, l->ttl_ms);
    pk_write_uint(w, l->deadline_ms);
    pk_write_uint(w, l->opened_by);
    pk_write_uint(w, pk_replies_forgotten(l->replies));
    pk_write_uint(w, pk_replies_events(l->replies));
    pk_write_byte(w, l->end);
    pk_write_byte(w, l->keyed);
    pk_write_bytes(w, pk_blob_bytes(l->label));
    write_replies(w, l->replies);
}

static void write_claim(struct pk_writer *w, const struct pk_claim *c)
{
    const struct pk_terms *t = pk_claim_terms(c);
    pk_write_uint(w, c->lease->id);
    pk_write_uint(w, c->request);
    pk_write_uint(w, c->seq);
    pk_write_uint(w, c->token);
    pk_write_uint(w, c->since_ms);
    pk_write_uint(w, t->max_hold_ms);
    pk_write_uint(w, t->lock_delay_ms);
    pk_write_uint(w, c->place);
    pk_write_uint(w, t->timer == NULL ? 0 : t->timer->at);
    pk_write_bytes(w, pk_blob_bytes(t->value));
    pk_write_uint(w, c->n_parts);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        pk_write_bytes(w, pk_lock_name(c->parts[i].lock));
        pk_write_byte(w, c->parts[i].mode);
        pk_write_uint(w, c->parts[i].lock->slots);
    }
}

static void write_ended(struct pk_writer *w, const struct pk_lease *l)
{
    pk_write_uint(w, l->ended_nth);
    pk_write_uint(w, l->id);
    pk_write_byte(w, l->end);
    pk_write_uint(w, l->opened_by);
}

static void write_lock(struct pk_writer *w, const struct pk_lock *l)
{
    pk_write_bytes(w, pk_lock_name(l));
    pk_write_byte(w, l->timer->kind);
    pk_write_uint(w, l->timer->at);
    pk_write_uint(w, l->timer->id);
}

static void write_fence(struct pk_writer *w, const struct pk_fence *f)
{
    pk_write_bytes(w, pk_fence_name(f));
    pk_write_uint(w, f->token);
    pk_write_uint(w, f->request);
    pk_write_byte(w, f->shadow);
    pk_write_uint(w, f->epoch);
    pk_write_uint(w, f->shadowed);
    pk_write_bytes(w, pk_blob_bytes(f->value));
    pk_write_uint(w, f->ends == NULL ? 0 : f->ends->at);
    if (f->ends != NULL) {
        pk_write_uint(w, f->ends->id);
    }
}

void pk_item_write(struct pk_writer *w, enum pk_item kind, const void *thing)
{
    pk_write_byte(w, kind);
    switch (kind) {
    case PK_ITEM_MACHINE:
        write_machine(w, thing);
        break;
    case PK_ITEM_LEASE:
        write_lease(w, thing);
        break;
    case PK_ITEM_CLAIM:
        write_claim(w, thing);
        break;
    case PK_ITEM_ENDED:
        write_ended(w, thing);
        break;
    case PK_ITEM_LOCK:
        write_lock(w, thing);
        break;
    case PK_ITEM_FENCE:
        write_fence(w, thing);
        break;
    case PK_ITEM_END:
        break;
    }
}

uint64_t pk_item_hash(enum pk_item kind, const void *thing)
{
    struct pk_writer w = {.hashing = true};
    pk_item_write(&w, kind, thing);
    return pk_hash_end(w.digest);
}

/* The same from the hashes that are kept inside the thing: what a change costs. */
static uint64_t kept_hash(enum pk_item kind, const void *thing)
{
    struct pk_writer w = {.hashing = true, .kept = true};
    pk_item_write(&w, kind, thing);
    return pk_hash_end(w.digest);
}

/* ---- keeping the digest ---- */

uint16_t *pk_item_view(enum pk_item kind, void *thing)
{
    switch (kind) {
    case PK_ITEM_LEASE:
    case PK_ITEM_ENDED:
        return &((struct pk_lease *)thing)->view;
    case PK_ITEM_CLAIM:
        return &((struct pk_claim *)thing)->view;
    case PK_ITEM_LOCK:
        return &((struct pk_lock *)thing)->view;
    default:
        return &((struct pk_fence *)thing)->view;
    }
}

void pk_item_out(struct pk_machine *m, enum pk_item kind, void *thing)
{
    if (m->view != NULL && *pk_item_view(kind, thing) != m->views) {
        pk_view_add(m, kind, thing);
    }
    m->items -= kept_hash(kind, thing);
}

void pk_item_in(struct pk_machine *m, enum pk_item kind, void *thing)
{
    *pk_item_view(kind, thing) = m->views; /* the view has it, or must not get it */
    m->items += kept_hash(kind, thing);
}

uint64_t pk_machine_digest(const struct pk_machine *m)
{
    return m->items + pk_item_hash(PK_ITEM_MACHINE, m);
}
