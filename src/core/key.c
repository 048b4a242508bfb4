/* SPDX-License-Identifier: MIT */
/* Keys: an exclusive hold and a lease of its own as one thing, for dialects whose clients
 * have no lease. Rules K. */
#include "core/door.h"
#include "core/state.h"

void pk_key_take(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_attempt a = pk_attempt_begin(m, c, NULL);
    if (pk_attempt_refused(m, &a)) {
        return;
    }
    struct pk_effect *e = pk_reply(m, c, PK_OK);
    e->lease = m->next_lease;
    e->token = pk_next_token(m);
    e->holders = c->n_parts;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        a.lease = pk_lease_begin(m, c, true);
        pk_claim_grant(m, pk_attempt_claim(m, &a, i, 1));
    }
}

/* K3: the lease of the key that part `i` of `c` matches, or NULL. A key is alone on its
 * lock, so looking at one hold tells. */
static struct pk_lease *matched(const struct pk_machine *m, const struct pk_command *c,
                                uint32_t i)
{
    const struct pk_lock *l = pk_lock_find(m, c->parts[i].name);
    const struct pk_claim_part *hold = l == NULL ? NULL : pk_lock_oldest_hold(l);
    const struct pk_claim *key = hold == NULL ? NULL : pk_claim_of(hold);
    if (key == NULL || !key->lease->keyed ||
        pk_lease_over(m, key->lease) != PK_END_NONE) {
        return NULL;
    }
    bool any = c->flags & PK_KEY_ANY;
    struct pk_bytes value = pk_blob_bytes(pk_claim_terms(key)->value);
    return any || pk_bytes_equal(value, c->value) ? key->lease : NULL;
}

static uint64_t new_ttl(const struct pk_machine *m, const struct pk_command *c,
                        const struct pk_lease *l)
{
    return (c->flags & PK_KEY_ADD) ? pk_lease_left(m, l) + c->ttl_ms : c->ttl_ms;
}

/* A refusal that names part `i`. */
static void reply_about(struct pk_machine *m, const struct pk_command *c,
                        enum pk_status s, uint32_t i, const char *why)
{
    struct pk_effect e = {.kind = PK_REPLY,
                          .verb = c->verb,
                          .status = s,
                          .name = c->parts[i].name,
                          .why = pk_text(why)};
    pk_effects_add(m->out, &e);
}

void pk_key_keep(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_lease *leases[PK_SET_MAX];
    PK_ASSERT(c->n_parts > 0);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        leases[i] = matched(m, c, i);
        if (leases[i] == NULL) {
            reply_about(m, c, PK_NOTHELD, i, NULL);
            return;
        }
    }
    for (uint32_t i = 0; i < c->n_parts; i++) {
        uint64_t ttl = new_ttl(m, c, leases[i]);
        if (ttl < PK_TTL_MIN_MS || ttl > PK_TTL_MAX_MS) {
            reply_about(m, c, PK_BADARG, i,
                        "the TTL would not be between 50 ms and 24 h");
            return;
        }
    }
    pk_reply(m, c, PK_OK)->left_ms = new_ttl(m, c, leases[0]);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        pk_lease_extend(m, leases[i], new_ttl(m, c, leases[i]));
    }
}

void pk_key_drop(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_lease *leases[PK_SET_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        leases[n] = matched(m, c, i);
        n += leases[n] != NULL;
    }
    pk_reply(m, c, PK_OK)->holders = n;
    for (uint32_t i = 0; i < n; i++) {
        pk_lease_end(m, leases[i], &(struct pk_ending){.why = PK_END_CLOSED});
    }
}
