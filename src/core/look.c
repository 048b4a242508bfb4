/* SPDX-License-Identifier: MIT */
#include "core/look.h"

#include "core/state.h"

static int by_name(const void *key, const struct pk_node *node)
{
    return pk_bytes_compare(*(const struct pk_bytes *)key,
                            pk_lock_name(PK_OWNER(node, struct pk_lock, node)));
}

static struct pk_look_claim look_at(const struct pk_claim_part *p, uint32_t place)
{
    const struct pk_claim *c = pk_claim_of(p);
    return (struct pk_look_claim){
        .lease = c->lease->id,
        .token = c->token,
        .since_ms = c->since_ms,
        .ends_ms = c->lease->deadline_ms,
        .ttl_ms = c->lease->ttl_ms,
        .place = place,
        .parts = c->n_parts,
        .mode = (enum pk_mode)p->mode,
        .keyed = c->lease->keyed,
        .label = pk_blob_bytes(c->lease->label),
        .value = pk_blob_bytes(pk_claim_terms(c)->value),
    };
}

static struct pk_look_lock look_over(const struct pk_lock *l)
{
    struct pk_look_lock out = {
        .name = pk_lock_name(l),
        .holders = l->n_holds,
        .waiters = l->n_waits,
        .slots = l->slots,
        .closed_until_ms = pk_lock_is_closed(l) ? l->timer->at : 0,
    };
    const struct pk_claim_part *oldest = pk_lock_oldest_hold(l);
    if (oldest != NULL) {
        struct pk_look_claim c = look_at(oldest, 0);
        out.mode = c.mode;
        out.keyed = c.keyed;
        out.token = c.token;
        out.since_ms = c.since_ms;
        out.ends_ms = c.ends_ms;
        out.ttl_ms = c.ttl_ms;
        out.label = c.label;
        out.value = c.value;
    }
    return out;
}

void pk_look_locks(const struct pk_machine *m, struct pk_bytes after,
                   bool (*see)(void *ctx, const struct pk_look_lock *l), void *ctx)
{
    struct pk_node *n = pk_tree_seek(&m->locks, &after, by_name);
    if (n != NULL && by_name(&after, n) == 0) {
        n = pk_tree_next(n);
    }
    for (bool more = true; more && n != NULL; n = pk_tree_next(n)) {
        struct pk_look_lock l = look_over(PK_OWNER(n, struct pk_lock, node));
        more = see(ctx, &l);
    }
}

bool pk_look_lock(const struct pk_machine *m, struct pk_bytes name,
                  struct pk_look_lock *out)
{
    const struct pk_lock *l = pk_lock_find(m, name);
    if (l == NULL) {
        return false;
    }
    *out = look_over(l);
    return true;
}

void pk_look_holds(const struct pk_machine *m, struct pk_bytes name,
                   bool (*see)(void *ctx, const struct pk_look_claim *c), void *ctx)
{
    const struct pk_lock *l = pk_lock_find(m, name);
    struct pk_node *n = l == NULL ? NULL : pk_tree_first(&l->holds);
    for (bool more = true; more && n != NULL; n = pk_tree_next(n)) {
        struct pk_look_claim c = look_at(PK_OWNER(n, struct pk_claim_part, node), 0);
        more = see(ctx, &c);
    }
}

void pk_look_waits(const struct pk_machine *m, struct pk_bytes name,
                   bool (*see)(void *ctx, const struct pk_look_claim *c), void *ctx)
{
    const struct pk_lock *l = pk_lock_find(m, name);
    struct pk_node *n = l == NULL ? NULL : pk_tree_first(&l->queue);
    uint32_t place = 0;
    for (bool more = true; more && n != NULL; n = pk_tree_next(n)) {
        struct pk_look_claim c =
            look_at(PK_OWNER(n, struct pk_claim_part, node), ++place);
        more = see(ctx, &c);
    }
}

uint32_t pk_look_fence_bytes(const struct pk_machine *m, struct pk_bytes name)
{
    const struct pk_fence *f = pk_fence_find(m, name);
    return f == NULL ? 0 : pk_blob_len(f->value);
}

struct pk_bytes pk_look_label(const struct pk_machine *m, uint64_t lease)
{
    const struct pk_lease *l = pk_lease_find(m, lease);
    return l == NULL ? pk_bytes("", 0) : pk_blob_bytes(l->label);
}
