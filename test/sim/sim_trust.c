/* SPDX-License-Identifier: MIT */
/* What clients may rely on: their leases (P4), their locks (P5), what they read. */
#include <inttypes.h>
#include <string.h>

#include "core/door.h"
#include "sim_check.h"

enum {
    ROUNDING_US = 2 * SIM_MS, /* clocks show whole milliseconds */
    LOOKED_BACK = 64,         /* holds that a read is compared with */
};

/* ---- P4 ---- */

void sim_check_expired(struct sim_check *k, const struct sim_lease *l)
{
    /* The fastest clock allowed shows the TTL after that much of real time. */
    uint64_t least_us = l->ttl_ms * SIM_MS * 100 / (100 + SIM_RATE_PPM / 10000);
    uint64_t lived_us = k->queue->now_us - l->sent_us;
    if (lived_us + ROUNDING_US < least_us) {
        sim_violation("P4",
                      "lease %" PRIu64 " expired %" PRIu64
                      " us after a renewal was sent, with a TTL of %" PRIu64 " ms",
                      l->id, lived_us, l->ttl_ms);
    }
}

/* ---- P5 ---- */

static bool excludes(const struct sim_belief *a, const struct sim_belief *b)
{
    return a->mode == PK_EXCLUSIVE || b->mode == PK_EXCLUSIVE;
}

/* `b` begins now: does anybody else trust in the same at this moment? */
static void look_for_rivals(const struct sim_check *k, const struct sim_belief *b)
{
    uint32_t slots = 1;
    for (size_t i = 0; i < k->n_beliefs; i++) {
        const struct sim_belief *x = &k->beliefs[i];
        if (x->op == b->op || x->lock != b->lock || x->until_us <= k->queue->now_us) {
            continue;
        }
        slots += x->mode == PK_SLOT;
        if (excludes(x, b) || (b->mode == PK_SLOT && slots > b->slots)) {
            sim_violation("P5",
                          "clients %" PRIu32 " (request %" PRIu64 ") and %" PRIu32
                          " (request %" PRIu64 ") trust in lock/%" PRIu32
                          " at once, the first for %" PRIu64 " us more",
                          x->client, x->op, b->client, b->op, b->lock,
                          x->until_us - k->queue->now_us);
        }
    }
}

static void add_belief(struct sim_check *k, const struct sim_belief *b)
{
    if (k->n_beliefs == k->beliefs_capacity) {
        k->beliefs_capacity = k->beliefs_capacity == 0 ? 32 : k->beliefs_capacity * 2;
        k->beliefs = pk_door_resize(k->beliefs, k->beliefs_capacity * sizeof *k->beliefs);
    }
    k->beliefs[k->n_beliefs++] = *b;
}

void sim_check_believed(struct sim_check *k, uint64_t number, uint64_t token,
                        uint64_t until_us)
{
    struct sim_op *op = sim_check_op_at(k, number);
    if (op->token != token || token == 0) {
        sim_violation("P3", "a grant of token %" PRIu64 " is not in the log", token);
    }
    if (op->told_us == 0) {
        op->told_us = k->queue->now_us;
    }
    if (until_us <= k->queue->now_us || op->voided) {
        return; /* the news came too late to be of use */
    }
    k->sights->beliefs++;
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct sim_belief b = {.client = op->client,
                               .lock = op->parts[i].lock,
                               .slots = op->parts[i].slots,
                               .mode = op->parts[i].mode,
                               .op = number,
                               .until_us = until_us};
        look_for_rivals(k, &b);
        add_belief(k, &b);
    }
}

void sim_check_renewed(struct sim_check *k, uint64_t op, uint64_t until_us)
{
    for (size_t i = 0; i < k->n_beliefs; i++) {
        struct sim_belief *b = &k->beliefs[i];
        if (b->op != op || until_us <= k->queue->now_us) {
            continue; /* the latter: it ended by its max-hold */
        }
        if (b->until_us <= k->queue->now_us) {
            look_for_rivals(k, b); /* it was suspended, within its grace */
        }
        b->until_us = until_us;
        k->sights->beliefs_renewed++;
    }
}

static void forget(struct sim_check *k, uint64_t op)
{
    size_t kept = 0;
    for (size_t i = 0; i < k->n_beliefs; i++) {
        if (k->beliefs[i].op != op) {
            k->beliefs[kept++] = k->beliefs[i];
        } else if (k->beliefs[i].until_us <= k->queue->now_us) {
            k->sights->beliefs_lapsed++;
        }
    }
    k->n_beliefs = kept;
}

void sim_check_let_go(struct sim_check *k, uint64_t op)
{
    forget(k, op);
}

void sim_check_voided(struct sim_check *k, uint64_t op)
{
    sim_check_op_at(k, op)->voided = true;
    forget(k, op);
}

void sim_check_released(struct sim_check *k, uint64_t number)
{
    sim_check_op_at(k, number)->released_us = k->queue->now_us;
}

/* ---- reads ---- */

const struct sim_op *sim_check_holder(struct sim_check *k, uint32_t lock, uint64_t token)
{
    size_t low = 0, high = k->n_holds[lock];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sim_check_op_at(k, k->holds[lock][middle])->token < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct sim_op *op =
        low < k->n_holds[lock] ? sim_check_op_at(k, k->holds[lock][low]) : NULL;
    return op != NULL && op->token == token ? op : NULL;
}

static bool is_among(uint64_t token, const uint64_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (tokens[i] == token) {
            return true;
        }
    }
    return false;
}

void sim_check_shown(struct sim_check *k, uint64_t attempt, uint32_t lock,
                     const uint64_t *tokens, uint32_t n, uint64_t made_us)
{
    uint64_t sent_us = k->attempts[attempt].sent_us;
    k->sights->reads++;
    for (uint32_t i = 0; i < n; i++) {
        const struct sim_op *op = sim_check_holder(k, lock, tokens[i]);
        if (op == NULL) {
            sim_violation("reads", "token %" PRIu64 " is shown and was never granted",
                          tokens[i]);
        }
        if (op->released_us != 0 && op->released_us < sent_us) {
            sim_violation("reads",
                          "token %" PRIu64 " is shown, %" PRIu64
                          " us after its release was acknowledged",
                          tokens[i], sent_us - op->released_us);
        }
    }
    size_t from = k->n_holds[lock] > LOOKED_BACK ? k->n_holds[lock] - LOOKED_BACK : 0;
    for (size_t i = from; i < k->n_holds[lock] && n < SIM_SHOWN_MAX; i++) {
        const struct sim_op *op = sim_check_op_at(k, k->holds[lock][i]);
        bool told = op->told_us != 0 && op->told_us < sent_us;
        bool ended = op->ended_us != 0 && op->ended_us <= made_us;
        if (told && !ended && !is_among(op->token, tokens, n)) {
            sim_violation("reads", "the hold with token %" PRIu64 " is not shown",
                          op->token);
        }
    }
}

void sim_check_fence_acked(struct sim_check *k, uint64_t attempt, uint32_t fence,
                           uint64_t token)
{
    uint64_t *acked = &k->fences[fence].acked;
    if (k->attempts[attempt].index > k->restored_index && token > *acked) {
        *acked = token;
    }
}

void sim_check_fence_seen(struct sim_check *k, uint64_t attempt, uint64_t token,
                          uint64_t acked_when_sent)
{
    bool restored = k->attempts[attempt].sent_us < k->restored_us;
    if (token < acked_when_sent && !restored) {
        sim_violation("reads",
                      "a fence is shown at %" PRIu64 ", %" PRIu64 " was accepted", token,
                      acked_when_sent);
    }
    k->sights->reads++;
}
