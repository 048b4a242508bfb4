/* SPDX-License-Identifier: MIT */
#include "sim/check.h"

#include <string.h>

/* ---- names ---- */

static const char *const names[] = {
#define X(check, name, text) name,
    PK_CHECKS(X)
#undef X
};

const char *pk_check_name(enum pk_check c)
{
    return names[c];
}

const char *pk_check_text(enum pk_check c)
{
    static const char *const texts[] = {
#define X(check, name, text) text,
        PK_CHECKS(X)
#undef X
    };
    return texts[c];
}

enum pk_check pk_check_named(const char *name, size_t len)
{
    uint32_t i = 0;
    while (i < PK_CHECK_COUNT &&
           (strlen(names[i]) != len || memcmp(names[i], name, len) != 0)) {
        i++;
    }
    return (enum pk_check)i;
}

/* ---- hits ---- */

static void hit(struct pk_checker *c, enum pk_check check, const struct pk_record *r,
                uint32_t other, uint64_t other_token)
{
    c->counts[check]++;
    if (c->n_hits < PK_HITS_MAX) {
        c->hits[c->n_hits++] = (struct pk_hit){.check = check,
                                               .record = c->records,
                                               .at_us = r->at_us,
                                               .who = c->who,
                                               .other = other,
                                               .token = r->token,
                                               .other_token = other_token};
    }
}

/* ---- the service ---- */

static void leave_queue(struct pk_checker *c, uint32_t at)
{
    c->n_queue--;
    memmove(&c->queue[at], &c->queue[at + 1], (c->n_queue - at) * sizeof c->queue[0]);
}

static uint32_t place_in_queue(const struct pk_checker *c)
{
    uint32_t i = 0;
    while (i < c->n_queue && c->queue[i].claim != c->claim) {
        i++;
    }
    return i;
}

static void see_queue(struct pk_checker *c, const struct pk_record *r)
{
    uint32_t at = place_in_queue(c);
    if (r->kind == PK_REC_QUEUED && c->n_queue < PK_QUEUE_MAX) {
        c->queue[c->n_queue++] = (struct pk_queued){c->claim, c->who};
    } else if (r->kind == PK_REC_QUEUED) {
        c->queue_full = true;
    } else if (r->kind == PK_REC_LEFT && at < c->n_queue) {
        leave_queue(c, at);
    } else if (r->kind == PK_REC_GRANTED && c->n_queue > 0 && c->claim != 0) {
        if (at > 0 && !c->queue_full) { /* not the first, or not even in the queue */
            hit(c, PK_CHECK_QUEUE_ORDER, r, c->queue[0].who, 0);
        }
        if (at < c->n_queue) {
            leave_queue(c, at);
        }
    }
}

static void see_grant(struct pk_checker *c, const struct pk_record *r)
{
    if (c->held) {
        hit(c, PK_CHECK_TWO_HOLDERS, r, c->holder, c->holder_token);
    }
    if (r->token != 0 && r->token <= c->newest_token) {
        hit(c, PK_CHECK_TOKEN_ORDER, r, c->newest_holder, c->newest_token);
    }
    c->held = true;
    c->holder = c->newest_holder = c->who;
    c->holder_token = r->token;
    c->newest_token = r->token > c->newest_token ? r->token : c->newest_token;
}

static void see_end(struct pk_checker *c, const struct pk_record *r)
{
    if (c->held && c->holder == c->who && c->holder_token == r->token) {
        c->held = false;
    }
}

/* ---- clients ---- */

/* Two windows begin to overlap only when one of them begins, or its owner wakes up. */
static void see_trust(struct pk_checker *c, const struct pk_record *r)
{
    for (uint32_t i = 0; i < PK_CLIENTS_MAX; i++) {
        bool running = !c->paused[i] && !c->paused[r->who];
        if (i != r->who && running && c->trusts_until_us[i] > r->at_us &&
            c->trusts_until_us[r->who] > r->at_us) {
            hit(c, PK_CHECK_TWO_VALID, r, i, c->trusts_token[i]);
        }
    }
}

static void see_client(struct pk_checker *c, const struct pk_record *r)
{
    if (r->who >= PK_CLIENTS_MAX) {
        return;
    }
    bool began = false;
    switch (r->kind) {
    case PK_REC_TRUSTED:
        began = c->trusts_until_us[r->who] <= r->at_us;
        c->trusts_until_us[r->who] = r->arg;
        c->trusts_token[r->who] = r->token;
        break;
    case PK_REC_LOST:
    case PK_REC_DOUBTED:
        c->trusts_until_us[r->who] = 0;
        break;
    case PK_REC_PAUSED:
        c->paused[r->who] = true;
        break;
    default:
        c->paused[r->who] = false;
        began = true;
        break;
    }
    if (began) {
        see_trust(c, r);
    }
}

/* ---- the resource ---- */

/* The fence's own word about where it stands. */
static void see_fence(struct pk_checker *c, const struct pk_record *r)
{
    if (r->token < c->raised) {
        hit(c, PK_CHECK_FENCE_BACK, r, c->raised_by, c->raised);
    }
    c->raised = r->token;
    c->raised_by = c->who;
}

/* Whoever has been at the resource last, of all holders so far. */
static void see_visit(struct pk_checker *c, const struct pk_record *r)
{
    if (r->code == 0 && r->section > c->reader_section) {
        c->reader_section = r->section;
        c->reader = r->who;
        c->reader_token = r->token;
    }
}

static void see_write(struct pk_checker *c, const struct pk_record *r)
{
    if (r->code != 0) {
        return; /* refused: nothing happened */
    }
    if (r->token != 0 && r->token < c->highest) {
        hit(c, PK_CHECK_FENCE_BACK, r, c->highest_by, c->highest);
    }
    if (r->section != 0 && r->section < c->reader_section) {
        hit(c, PK_CHECK_STALE_WRITE, r, c->reader, c->reader_token);
    }
    if (r->arg != c->value + 1) {
        hit(c, PK_CHECK_LOST_UPDATE, r, c->value_by, 0);
    }
    if (r->token > c->highest) {
        c->highest = r->token;
        c->highest_by = r->who;
    }
    c->value = r->arg;
    c->value_by = r->who;
}

static void see_digest(struct pk_checker *c, const struct pk_record *r)
{
    if (c->digested && c->digest != r->arg) {
        hit(c, PK_CHECK_DIGESTS, r, 0, 0);
    }
    c->digested = true;
    c->digest = r->arg;
}

void pk_checker_feed(struct pk_checker *c, const struct pk_record *r)
{
    /* One client may wait twice, with a lease that it has given up and with a new one. */
    pk_checker_feed_as(c, r, r->who, UINT64_C(1) << 32 | (uint64_t)r->peer << 8 | r->who);
}

void pk_checker_feed_as(struct pk_checker *c, const struct pk_record *r, uint32_t who,
                        uint64_t claim)
{
    c->who = who;
    c->claim = claim;
    switch (r->kind) {
    case PK_REC_GRANTED:
        see_queue(c, r);
        see_grant(c, r);
        break;
    case PK_REC_QUEUED:
    case PK_REC_LEFT:
        see_queue(c, r);
        break;
    case PK_REC_ENDED:
        see_end(c, r);
        break;
    case PK_REC_TRUSTED:
    case PK_REC_LOST:
    case PK_REC_DOUBTED:
    case PK_REC_PAUSED:
    case PK_REC_RESUMED:
        see_client(c, r);
        break;
    case PK_REC_RAISED:
        see_fence(c, r);
        break;
    case PK_REC_READ:
        see_visit(c, r);
        break;
    case PK_REC_WROTE:
        see_write(c, r);
        see_visit(c, r);
        break;
    case PK_REC_DIGEST:
        see_digest(c, r);
        break;
    default:
        break;
    }
    c->records++;
}

void pk_checker_catch_up(struct pk_checker *c, const struct pk_world *w)
{
    uint32_t count;
    const struct pk_record *trace = pk_world_trace(w, &count);
    while (c->records < count) {
        pk_checker_feed(c, &trace[c->records]);
    }
}

uint32_t pk_checker_mask(const struct pk_checker *c)
{
    uint32_t mask = 0;
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        mask |= c->counts[i] > 0 ? UINT32_C(1) << i : 0;
    }
    return mask;
}

/* ---- in words ---- */

static void add_token(struct pk_prose *out, uint64_t token)
{
    if (token != 0) {
        pk_prose_add(out, " with token ");
        pk_prose_number(out, token);
    }
}

void pk_hit_explain(const struct pk_hit *h, struct pk_prose *out)
{
    struct pk_prose who = {0};
    struct pk_prose other = {0};
    pk_prose_who(&who, h->who);
    pk_prose_who(&other, h->other);
    pk_hit_explain_as(h, who.data, other.data, out);
    pk_prose_free(&who);
    pk_prose_free(&other);
}

void pk_hit_explain_as(const struct pk_hit *h, const char *who, const char *other,
                       struct pk_prose *out)
{
    static const struct {
        const char *between, *after;
    } words[PK_CHECK_COUNT] = {
        {" was given the lock while ", " still had it by the service's own account."},
        {" was given the lock after ",
         ": tokens must grow, or no resource can tell who is newer."},
        {" trusts its lease, and so does ", ": both are running, and both would write."},
        {" wrote after ", ", and the resource took the lower token: its fence fell."},
        {" wrote over what ",
         " had written, because it had read before that: the update is lost."},
        {" wrote although the lock had been given to ",
         " meanwhile: it did not know, and nothing stopped it."},
        {" got the lock before ", ", who had been waiting for longer."},
        {"two replicas that had run the same commands were in different states.", ""},
    };
    pk_prose_add(out, "At ");
    pk_prose_clock(out, h->at_us);
    pk_prose_add(out, " s ");
    if (h->check == PK_CHECK_DIGESTS) {
        pk_prose_add(out, words[h->check].between);
        return;
    }
    pk_prose_add(out, who);
    add_token(out, h->token);
    pk_prose_add(out, words[h->check].between);
    pk_prose_add(out, other);
    add_token(out, h->other_token);
    pk_prose_add(out, words[h->check].after);
}
