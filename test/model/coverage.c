/* SPDX-License-Identifier: MIT */
#include "coverage.h"

#include <inttypes.h>
#include <stdio.h>

static bool has_event(const struct pk_effects *out, enum pk_effect_kind kind)
{
    for (uint32_t i = 0; i < out->count; i++) {
        if (out->list[i].kind == kind) {
            return true;
        }
    }
    return false;
}

/* True when the list grants this very request. */
static bool grants(const struct pk_effects *out, const struct pk_command *c)
{
    for (uint32_t i = 0; i < out->count; i++) {
        const struct pk_effect *e = &out->list[i];
        if (e->kind == PK_EV_GRANTED && e->lease == c->lease &&
            e->request == c->request) {
            return true;
        }
    }
    return false;
}

static void count_grant(struct coverage *k, const struct pk_effects *out, uint32_t at,
                        const struct pk_command *c)
{
    const struct pk_effect *e = &out->list[at];
    bool at_once =
        c->verb == PK_KEY_TAKE ||
        (c->verb == PK_LOCK_ACQUIRE && e->lease == c->lease && e->request == c->request);
    if (e->part == 0) {
        k->grants++;
        k->grants_at_once += at_once;
        k->grants_by_wakeup += !at_once;
        k->grants_of_sets_at_once += at_once && e->parts > 1;
        k->grants_of_sets_by_wakeup += !at_once && e->parts > 1;
    }
    k->grants_of_slots += e->mode == PK_SLOT;
    for (uint32_t i = 0; i < at; i++) {
        const struct pk_effect *before = &out->list[i];
        if (before->kind == PK_EV_GRANTED && before->mode == PK_SHARED &&
            e->mode == PK_SHARED && pk_bytes_equal(before->name, e->name)) {
            k->shared_runs++;
            break;
        }
    }
}

static void count_end(struct coverage *k, const struct pk_effect *e)
{
    bool lease = e->kind == PK_EV_LEASE_ENDED;
    if (e->kind == PK_EV_LEFT) {
        k->left_timed_out += e->end == PK_END_TIMED_OUT;
        k->left_withdrawn += e->end == PK_END_WITHDRAWN;
        k->left_with_lease += e->end == PK_END_EXPIRED || e->end == PK_END_CLOSED;
        return;
    }
    *(lease ? &k->key_released : &k->ended_released) += e->end == PK_END_RELEASED;
    *(lease ? &k->key_broken : &k->ended_broken) += e->end == PK_END_BROKEN;
    k->ended_overheld += e->end == PK_END_OVERHELD;
    *(lease ? &k->lease_closed : &k->ended_closed) += e->end == PK_END_CLOSED;
    *(lease ? &k->lease_expired : &k->ended_expired) += e->end == PK_END_EXPIRED;
    *(lease ? &k->lease_restored : &k->ended_restored) += e->end == PK_END_RESTORED;
}

static void count_event(struct coverage *k, const struct pk_effects *out, uint32_t at,
                        const struct pk_command *c)
{
    const struct pk_effect *e = &out->list[at];
    switch (e->kind) {
    case PK_EV_GRANTED:
        count_grant(k, out, at, c);
        break;
    case PK_EV_LEASE_ENDED:
    case PK_EV_LEFT:
    case PK_EV_ENDED:
        count_end(k, e);
        break;
    case PK_EV_QUEUED:
        k->queued += e->part == 0;
        k->queued_sets += e->part == 0 && e->parts > 1;
        k->queued_fourth_or_later += e->place >= 4;
        break;
    default:
        k->lock_closed += e->kind == PK_EV_CLOSED;
        k->lock_opened += e->kind == PK_EV_OPENED;
        k->values += e->kind == PK_EV_VALUE;
        k->leaps += e->kind == PK_EV_LEAPT;
        k->fence_raised += e->kind == PK_EV_FENCE_RAISED;
        k->fence_set += e->kind == PK_EV_FENCE_SET;
        k->fence_kept += e->kind == PK_EV_FENCE_SET && c->ttl_ms != 0;
        k->fence_ended += e->kind == PK_EV_FENCE_ENDED;
        k->fence_mode += e->kind == PK_EV_FENCE_MODE;
        k->rows_of_locks += e->kind == PK_ROW_LOCK;
        k->rows_of_holds += e->kind == PK_ROW_HOLD;
        k->rows_of_waits += e->kind == PK_ROW_WAIT;
        break;
    }
}

static void count_limit(struct coverage *k, struct pk_bytes why)
{
#define LIMIT(name) k->limit_##name += pk_bytes_equal(why, pk_text(#name))
    LIMIT(tokens);
    LIMIT(leases);
    LIMIT(locks);
    LIMIT(claims);
    LIMIT(lease_claims);
    LIMIT(lock_waiters);
    LIMIT(set_locks);
    LIMIT(fences);
    LIMIT(label_bytes);
    LIMIT(value_bytes);
    LIMIT(stored_bytes);
#undef LIMIT
}

static bool is(struct pk_bytes why, const char *text)
{
    return pk_bytes_equal(why, pk_text(text));
}

static void count_key(struct coverage *k, const struct pk_command *c,
                      const struct pk_effect *r)
{
    bool good = r->status == PK_OK;
    if (c->verb == PK_KEY_TAKE) {
        k->key_taken += good;
        k->key_taken_several += good && r->holders > 1;
        k->key_busy += r->status == PK_BUSY;
        k->key_mismatch += r->status == PK_MISMATCH;
        k->key_limit += r->status == PK_LIMIT;
    } else if (c->verb == PK_KEY_KEEP) {
        k->key_kept += good;
        k->key_kept_any += good && (c->flags & PK_KEY_ANY);
        k->key_added_to += good && (c->flags & PK_KEY_ADD);
        k->key_notheld += r->status == PK_NOTHELD;
        k->key_ttl_too_long_or_short += r->status == PK_BADARG && r->name.len > 0;
    } else if (c->verb == PK_KEY_DROP && good) {
        k->key_dropped += r->holders > 0;
        k->key_dropped_some += r->holders > 0 && r->holders < c->n_parts;
        k->key_dropped_none += r->holders == 0;
    }
    k->leap_from_token += c->verb == PK_LEAP && good && c->token != 0 &&
                          r->token == c->token + PK_TOKEN_LEAP;
    k->show_one_request += c->verb == PK_LEASE_SHOW && good && c->target != 0;
    k->version_set += c->verb == PK_SET_VERSION && good;
    k->version_held += c->verb == PK_SET_VERSION && good && c->flags != 0;
    k->version_refused += c->verb == PK_SET_VERSION && r->status == PK_BADARG;
}

static void count_fence(struct coverage *k, const struct pk_command *c,
                        const struct pk_effect *r)
{
    bool good = r->status == PK_OK;
    bool stale = r->would == PK_STALE;
    k->shadowed_claim += c->verb == PK_FENCE_CLAIM && stale;
    k->shadowed_set += c->verb == PK_FENCE_SET && stale;
    k->shadowed_set_kept += c->verb == PK_FENCE_SET && stale && c->ttl_ms != 0;
    k->shadowed_get += c->verb == PK_FENCE_GET && stale;
    k->check_stale_in_shadow += c->verb == PK_FENCE_CHECK && stale;
    k->check_unclaimed_in_shadow += r->would == PK_UNCLAIMED;
    k->fence_mode_limit += c->verb == PK_FENCE_MODE && r->status == PK_LIMIT;
    k->fence_mode_too_old += c->verb == PK_FENCE_MODE && r->status == PK_TOOOLD;
    k->fence_shown += c->verb == PK_FENCE_SHOW && good;
    k->fence_shown_kept += c->verb == PK_FENCE_SHOW && r->left_ms > 0;
    k->fence_shown_shadowed += c->verb == PK_FENCE_SHOW && r->shadowed > 0;
}

static void count_status(struct coverage *k, const struct pk_command *c,
                         const struct pk_effect *r)
{
    bool leased = pk_verb_fields(c->verb) & PK_F_LEASE;
    switch (r->status) {
    case PK_BUSY: /* a remembered one tells nothing of what was in the way */
        k->busy += r->name.len > 0;
        k->busy_closed += r->closed_ms > 0;
        k->repeat_busy += r->name.len == 0;
        break;
    case PK_LOST:
        k->lost++;
        k->lost_forgotten += r->end == PK_END_FORGOTTEN;
        k->repeat_open_lost += c->verb == PK_LEASE_OPEN;
        break;
    case PK_LIMIT:
        count_limit(k, r->why);
        break;
    case PK_BADARG:
        k->badarg++;
        k->repeat_other_verb += is(r->why, "the request id belongs to another command");
        k->key_lease_acquires += is(r->why, "the lease carries a key alone");
        break;
    case PK_TOOOLD:
        k->repeat_too_old += leased;
        k->fence_too_old += c->verb == PK_FENCE_SET;
        break;
    default:
        k->mismatch += r->status == PK_MISMATCH;
        k->stale += r->status == PK_STALE;
        k->unclaimed += r->status == PK_UNCLAIMED;
        k->notheld += r->status == PK_NOTHELD;
        k->notfound += r->status == PK_NOTFOUND;
        k->repeat_timeout += r->status == PK_TIMEOUT;
        k->repeat_cancelled += r->status == PK_CANCELLED;
        k->renewals += c->verb == PK_LEASE_RENEW && r->status == PK_OK;
        break;
    }
}

/* A yes that changed nothing was a repeat. */
static void count_repeat(struct coverage *k, const struct pair *p,
                         const struct pk_command *c, const struct pk_effect *r)
{
    const struct pk_effects *out = &p->from_machine;
    uint64_t token = 0;
    if (c->verb == PK_LOCK_ACQUIRE && r->status == PK_QUEUED) {
        k->repeat_waiting += !has_event(out, PK_EV_QUEUED);
    }
    if (r->status != PK_OK) {
        return;
    }
    switch (c->verb) {
    case PK_LEASE_OPEN:
        k->repeat_open += !has_event(out, PK_EV_LEASE_OPENED);
        break;
    case PK_LEASE_CLOSE:
        k->repeat_close += !has_event(out, PK_EV_LEASE_ENDED);
        break;
    case PK_LOCK_ACQUIRE:
        if (!grants(out, c)) {
            bool held =
                model_claim(p->model, c->lease, c->request, &token) == PK_CLAIM_HELD;
            k->repeat_held += held;
            k->repeat_ended += !held;
        }
        break;
    case PK_LOCK_RELEASE:
        k->repeat_release += !has_event(out, PK_EV_ENDED);
        break;
    case PK_LOCK_CANCEL:
        k->repeat_cancel += r->token != 0 && !has_event(out, PK_EV_ENDED);
        break;
    case PK_LOCK_BREAK:
        k->repeat_break += !has_event(out, PK_EV_ENDED);
        break;
    case PK_LEAP:
        k->repeat_leap += !has_event(out, PK_EV_LEAPT);
        break;
    case PK_FENCE_SET:
        k->repeat_fence_set += !has_event(out, PK_EV_FENCE_SET);
        break;
    case PK_FENCE_MODE:
        k->fence_mode_again += !has_event(out, PK_EV_FENCE_MODE);
        break;
    default:
        break;
    }
}

/* What a renewal tells an owner that has missed something (D2). */
static void count_rows(struct coverage *k, const struct pk_command *c,
                       const struct pk_effects *out)
{
    uint32_t rows = 0;
    if (c->verb != PK_LEASE_RENEW || c->heard == NULL) {
        return;
    }
    for (uint32_t i = 0; i < out->count; i++) {
        enum pk_effect_kind kind = out->list[i].kind;
        k->renewed_with_holds += kind == PK_ROW_HOLD;
        k->renewed_with_waits += kind == PK_ROW_WAIT;
        k->renewed_with_outcomes += kind == PK_ROW_OUTCOME;
        rows += kind >= PK_ROW_HOLD && kind <= PK_ROW_OUTCOME;
    }
    k->renewed_as_heard += rows == 0 && out->list[out->count - 1].event > 0;
}

void coverage_count(struct coverage *k, const struct pair *p, const struct pk_command *c)
{
    const struct pk_effects *out = &p->from_machine;
    count_rows(k, c, out);
    for (uint32_t i = 0; i < out->count; i++) {
        const struct pk_effect *e = &out->list[i];
        if (e->kind == PK_REPLY) {
            count_status(k, c, e);
            count_key(k, c, e);
            count_fence(k, c, e);
            count_repeat(k, p, c, e);
        } else {
            count_event(k, out, i, c);
        }
    }
}

unsigned coverage_print(const struct coverage *k)
{
    unsigned missing = 0;
#define X(name)                                                                          \
    printf("# %-26s %" PRIu64 "%s\n", #name, k->name, k->name == 0 ? "  <- never" : ""); \
    missing += k->name == 0;
    COVERAGE(X)
#undef X
    return missing;
}
