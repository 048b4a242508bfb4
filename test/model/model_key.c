/* SPDX-License-Identifier: MIT */
/* The model's keys (K1 to K5). */
#include "model_state.h"

/* K1: what comes before anybody looks at the locks. */
static const char *too_long(const struct model *m, const struct pk_command *c)
{
    return c->label.len > m->limits.label_bytes   ? "label_bytes"
           : c->value.len > m->limits.value_bytes ? "value_bytes"
                                                  : NULL;
}

/* K1: the first limit that all the keys together would pass, or NULL. */
static const char *take_limit(const struct model *m, const struct pk_command *c)
{
    uint64_t keys = c->n_parts;
    uint64_t waiting = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->n_claims; i++) {
        waiting += !m->claims[i].held;
    }
    for (uint32_t i = 0; i < c->n_parts; i++) { /* ready, so none of them is there yet */
        bytes += c->parts[i].name.len + c->label.len + c->value.len;
    }
    if (m->n_leases + keys > m->limits.leases) {
        return "leases";
    }
    if (m->last_token + waiting + keys > PK_TOKEN_MAX) {
        return "tokens";
    }
    if (m->n_claims + keys > m->limits.claims) {
        return "claims";
    }
    if (count_locks(m) + keys > m->limits.locks) {
        return "locks";
    }
    return grows_past_store(m, bytes, 0) ? "stored_bytes" : NULL;
}

/* K1: true when the reply says why not. */
static bool refused(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    const struct pk_part *other = mismatch(m, c);
    if (too_long(m, c) != NULL) {
        refuse_limit(reply, too_long(m, c));
        return true;
    }
    if (other != NULL) {
        reply->status = PK_MISMATCH;
        reply->name = other->name;
        reply->slots = lock_slots(m, other->name);
        return true;
    }
    struct model_claim all = claim_from(m, c);
    uint32_t blocked = first_blocked(m, &all);
    if (blocked < c->n_parts) {
        reply->status = PK_BUSY;
        tell_blocker(m, &all, reply);
        reply->name = c->parts[blocked].name; /* outlives the claim */
    } else if (take_limit(m, c) != NULL) {
        refuse_limit(reply, take_limit(m, c));
    }
    free_claim(&all);
    return reply->status != PK_OK;
}

/* K2 */
static void take(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    if (refused(m, c, reply)) {
        return;
    }
    reply->lease = m->next_lease;
    reply->token = m->last_token + 1;
    reply->holders = c->n_parts;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct pk_command one = *c;
        struct pk_effect unused = {.kind = PK_REPLY};
        one.n_parts = 1;
        one.parts[0] = c->parts[i];
        one.lease = open_lease(m, c, true);
        struct model_claim claim = claim_from(m, &one);
        take_up(m, &claim, false, &unused);
    }
}

/* K3: the lease of the key that the part matches, or NULL. */
static struct model_lease *matching(const struct model *m, const struct pk_command *c,
                                    const struct pk_part *part)
{
    for (size_t i = 0; i < m->n_claims; i++) {
        struct model_claim *claim = &m->claims[i];
        struct model_lease *lease = live_lease(m, claim->lease);
        bool ours = (c->flags & PK_KEY_ANY) != 0 || text_is(claim->value, c->value);
        if (claim->held && part_named(claim, part->name) && lease != NULL &&
            lease->keyed && ours) {
            return lease;
        }
    }
    return NULL;
}

/* K4 */
static void keep(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    uint64_t ttl[PK_SET_MAX];
    for (uint32_t i = 0; i < c->n_parts; i++) {
        const struct model_lease *lease = matching(m, c, &c->parts[i]);
        if (lease == NULL) {
            reply->status = PK_NOTHELD;
            reply->name = c->parts[i].name;
            return;
        }
        ttl[i] = c->ttl_ms;
        if (c->flags & PK_KEY_ADD) {
            ttl[i] += lease->deadline - m->clock;
        }
    }
    for (uint32_t i = 0; i < c->n_parts; i++) {
        if (ttl[i] < PK_TTL_MIN_MS || ttl[i] > PK_TTL_MAX_MS) {
            reply->status = PK_BADARG;
            reply->name = c->parts[i].name;
            reply->why = pk_text("the TTL would not be between 50 ms and 24 h");
            return;
        }
    }
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct model_lease *lease = matching(m, c, &c->parts[i]);
        lease->ttl = ttl[i];
        lease->deadline = m->clock + ttl[i];
    }
    reply->left_ms = ttl[0];
}

/* K5 */
static void drop(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct model_lease *lease = matching(m, c, &c->parts[i]);
        if (lease != NULL) {
            end_lease_plainly(m, lease, PK_END_CLOSED);
            reply->holders++;
        }
    }
}

void model_key(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    switch (c->verb) {
    case PK_KEY_TAKE:
        take(m, c, reply);
        break;
    case PK_KEY_KEEP:
        keep(m, c, reply);
        break;
    default:
        drop(m, c, reply);
        break;
    }
}
