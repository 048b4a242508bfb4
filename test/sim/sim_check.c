/* SPDX-License-Identifier: MIT */
/* The log that all nodes must share, and what it says about answers. */
#include "sim_check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/door.h"
#include "core/wire.h"

enum { MACHINE_EVERY = 16 }; /* of indexes: the state's digest is compared too */

void (*sim_on_violation)(const char *text);

_Noreturn void sim_violation(const char *promise, const char *format, ...)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%s: ", promise);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    sim_on_violation(text);
    abort(); /* it does not come back */
}

/* ---- names ---- */

static const char lock_names[SIM_LOCKS][8] = {"lock/0", "lock/1", "lock/2", "lock/3",
                                              "lock/4", "lock/5", "lock/6", "lock/7"};
static const char fence_names[SIM_FENCES][8] = {"fence/0", "fence/1", "fence/2",
                                                "fence/3"};

struct pk_bytes sim_lock_name(uint32_t lock)
{
    return pk_bytes(lock_names[lock], 6);
}

struct pk_bytes sim_fence_name(uint32_t fence)
{
    return pk_bytes(fence_names[fence], 7);
}

static uint32_t digit_of(struct pk_bytes name, uint32_t len, uint32_t most)
{
    uint32_t digit = name.len == len ? (uint32_t)(name.data[len - 1] - '0') : UINT32_MAX;
    return digit < most ? digit : UINT32_MAX;
}

uint32_t sim_lock_of(struct pk_bytes name)
{
    return digit_of(name, 6, SIM_LOCKS);
}

uint32_t sim_fence_of(struct pk_bytes name)
{
    return digit_of(name, 7, SIM_FENCES);
}

/* ---- tables ---- */

/* Gives `table` room for one more of `size` bytes, zeroed; returns the table. */
static void *grown(void *table, size_t count, size_t *capacity, size_t size)
{
    if (count == *capacity) {
        *capacity = *capacity == 0 ? 64 : *capacity * 2;
        table = pk_door_resize(table, *capacity * size);
    }
    memset((char *)table + count * size, 0, size);
    return table;
}

void sim_check_init(struct sim_check *k, struct sim_queue *q, struct sim_sights *sights)
{
    memset(k, 0, sizeof *k);
    k->queue = q;
    k->sights = sights;
    k->attempts = grown(NULL, 0, &k->attempts_capacity, sizeof *k->attempts);
    k->n_attempts = 1;
    k->ops = grown(NULL, 0, &k->ops_capacity, sizeof *k->ops);
    k->n_ops = 1;
}

void sim_check_free(struct sim_check *k)
{
    watch_free(&k->watch);
    pk_door_resize(k->log, 0);
    pk_door_resize(k->attempts, 0);
    pk_door_resize(k->ops, 0);
    pk_door_resize(k->leases, 0);
    for (uint32_t i = 0; i < SIM_LOCKS; i++) {
        pk_door_resize(k->holds[i], 0);
    }
    pk_door_resize(k->beliefs, 0);
    pk_door_resize(k->leaders, 0);
}

struct sim_op *sim_check_op_at(struct sim_check *k, uint64_t op)
{
    PK_ASSERT(op > 0 && op < k->n_ops);
    return &k->ops[op];
}

static struct sim_attempt *attempt_at(struct sim_check *k, uint64_t attempt)
{
    PK_ASSERT(attempt > 0 && attempt < k->n_attempts);
    return &k->attempts[attempt];
}

/* NULL: there never was such a lease. Ids only grow, so the table is sorted by them. */
static struct sim_lease *lease_at(const struct sim_check *k, uint64_t id)
{
    size_t low = 0, high = k->n_leases;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (k->leases[middle].id < id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < k->n_leases && k->leases[low].id == id ? &k->leases[low] : NULL;
}

static bool has_ended(const struct sim_check *k, uint64_t lease)
{
    const struct sim_lease *l = lease_at(k, lease);
    return l == NULL || l->ended;
}

/* ---- telling ---- */

static void say_step(const struct sim_check *k, const struct pk_step *s)
{
    const struct pk_command *c = s->command;
    printf("# %10.6f %6" PRIu64 " %s lease %" PRIu64 " request %" PRIu64 " by %.*s\n",
           (double)k->queue->now_us / SIM_SECOND, s->entry->index, pk_verb_name(c->verb),
           c->lease, c->request, (int)c->principal.len, c->principal.data);
    for (uint32_t i = 0; i < s->effects->count; i++) {
        const struct pk_effect *e = &s->effects->list[i];
        printf("#                     %s %s %.*s lease %" PRIu64 " request %" PRIu64
               " token %" PRIu64 " %s\n",
               pk_effect_name(e->kind),
               e->kind == PK_REPLY ? pk_status_name(e->status) : "", (int)e->name.len,
               e->name.data, e->lease, e->request, e->token, pk_end_name(e->end));
    }
}

/* ---- operations ---- */

uint64_t sim_check_op(struct sim_check *k, uint32_t client, const struct pk_command *c)
{
    k->ops = grown(k->ops, k->n_ops, &k->ops_capacity, sizeof *k->ops);
    struct sim_op *op = &k->ops[k->n_ops];
    op->verb = c->verb;
    op->client = client;
    op->lease = c->lease;
    op->n_parts = c->n_parts;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        op->parts[i].lock = sim_lock_of(c->parts[i].name);
        op->parts[i].mode = c->parts[i].mode;
        op->parts[i].slots = c->parts[i].slots;
    }
    return k->n_ops++;
}

uint64_t sim_check_attempt(struct sim_check *k, uint64_t op, enum pk_verb verb)
{
    k->attempts =
        grown(k->attempts, k->n_attempts, &k->attempts_capacity, sizeof *k->attempts);
    struct sim_attempt *a = &k->attempts[k->n_attempts];
    a->op = op;
    a->verb = verb;
    a->sent_us = k->queue->now_us;
    a->acked_before = k->acked;
    sim_queue_note(k->queue, k->n_attempts);
    return k->n_attempts++;
}

/* ---- answers ---- */

static const struct pk_effect *reply_in(const struct pk_effects *effects)
{
    for (uint32_t i = 0; i < effects->count; i++) {
        if (effects->list[i].kind == PK_REPLY) {
            return &effects->list[i];
        }
    }
    return NULL;
}

void sim_check_acked(struct sim_check *k, uint64_t attempt)
{
    const struct sim_attempt *a = attempt_at(k, attempt);
    struct sim_op *op = sim_check_op_at(k, a->op);
    k->acked = a->index > k->acked ? a->index : k->acked;
    if (a->verb == PK_LOCK_ACQUIRE && a->status == PK_OK && op->told_us == 0) {
        op->told_us = k->queue->now_us;
    }
}

/* A read is in no log. Everything that was acknowledged to somebody before it was sent
 * must have been applied where it is answered; and once it is answered, no later read may
 * be answered from an earlier state. */
static void judge_read(struct sim_attempt *a, uint64_t attempt, uint64_t applied)
{
    if (applied < a->acked_before) {
        sim_violation("reads",
                      "read %" PRIu64 " is answered from the state of entry %" PRIu64
                      ", and entry %" PRIu64 " was acknowledged before it was sent",
                      attempt, applied, a->acked_before);
    }
    a->index = applied;
}

void sim_check_answered(struct sim_check *k, uint64_t attempt, const struct pk_command *c,
                        const struct pk_effects *effects, uint64_t applied)
{
    struct sim_attempt *a = attempt_at(k, attempt);
    const struct pk_effect *reply = reply_in(effects);
    if (reply == NULL) {
        sim_violation("P3", "attempt %" PRIu64 " got no reply", attempt);
    }
    if (a->fate != SIM_UNDER_WAY) {
        sim_violation("P3", "attempt %" PRIu64 " was answered twice", attempt);
    }
    a->fate = SIM_ANSWERED;
    k->sights->answers++;
    sim_queue_note(k->queue, attempt ^ reply->token);
    if (pk_command_is_read(c)) {
        judge_read(a, attempt, applied);
        return; /* what it says is judged when it arrives */
    }
    if (a->index == 0) {
        sim_violation("P3", "%s was acknowledged and is not in the log",
                      pk_verb_name(a->verb));
    }
    if (a->status != reply->status || a->token != reply->token ||
        a->lease != reply->lease) {
        sim_violation("P3",
                      "%s was acknowledged as %s %" PRIu64 ", the log says %s %" PRIu64,
                      pk_verb_name(a->verb), pk_status_name(reply->status), reply->token,
                      pk_status_name(a->status), a->token);
    }
}

void sim_check_refused(struct sim_check *k, uint64_t attempt, bool unknown, bool no_space)
{
    struct sim_attempt *a = attempt_at(k, attempt);
    if (a->fate != SIM_UNDER_WAY) {
        sim_violation("P3", "attempt %" PRIu64 " was answered twice", attempt);
    }
    if (!unknown && a->index != 0) {
        sim_violation("P3", "%s was refused and is in the log", pk_verb_name(a->verb));
    }
    a->fate = unknown ? SIM_UNKNOWN : SIM_REFUSED;
    k->sights->unknown += unknown;
    k->sights->unknown_done += unknown && a->index != 0;
    k->sights->no_space += no_space;
    k->sights->not_leader += !unknown && !no_space;
    sim_queue_note(k->queue, attempt);
}

/* P8: every later answer to an operation is the first one, as long as its lease lives
 * and the answer is remembered. */
static void compare_answers(struct sim_check *k, struct sim_op *op,
                            const struct pk_effect *r)
{
    if (r->status == PK_LOST || r->status == PK_NOTFOUND) {
        uint64_t lease = op->verb == PK_LEASE_OPEN ? r->lease : op->lease;
        if (!has_ended(k, lease)) {
            sim_violation("P4", "lease %" PRIu64 " was called ended and lives", lease);
        }
        k->sights->lost_answers++;
        return;
    }
    if (r->status == PK_TOOOLD) {
        k->sights->too_old++;
        return;
    }
    if (!op->settled) {
        op->settled = r->status != PK_QUEUED;
        op->status = r->status;
        op->answer_token = r->token;
        op->answer_lease = r->lease;
        return;
    }
    k->sights->repeats++;
    if (op->status != r->status || op->answer_token != r->token ||
        op->answer_lease != r->lease) {
        sim_violation("P8", "a repeat of %s got %s %" PRIu64 " after %s %" PRIu64,
                      pk_verb_name(op->verb), pk_status_name(r->status), r->token,
                      pk_status_name(op->status), op->answer_token);
    }
}

static bool is_remembered(enum pk_verb v)
{
    return v == PK_LEASE_OPEN || v == PK_LOCK_ACQUIRE || v == PK_LOCK_RELEASE ||
           v == PK_LOCK_CANCEL || v == PK_LOCK_VALUE;
}

/* ---- what a step of the log says ---- */

/* The step that is being looked at, and the attempt that it came from (NULL: a node's own
 * idea). */
struct sight {
    const struct pk_command *c;
    struct sim_attempt *attempt;
    uint64_t index;
};

static void see_granted(struct sim_check *k, const struct sight *s,
                        const struct pk_effect *e)
{
    struct sim_op *op = sim_check_op_at(k, e->request);
    uint32_t lock = sim_lock_of(e->name);
    k->holds[lock] = grown(k->holds[lock], k->n_holds[lock], &k->holds_capacity[lock],
                           sizeof *k->holds[lock]);
    k->holds[lock][k->n_holds[lock]++] = e->request;
    if (e->part != 0) {
        return;
    }
    if (++op->grants > 1) {
        sim_violation("P8", "operation %" PRIu64 " was granted twice", e->request);
    }
    op->token = e->token;
    bool waited = s->c->verb != PK_LOCK_ACQUIRE || s->c->request != e->request;
    k->sights->granted_later += waited;
    k->sights->granted_at_once += !waited;
    k->sights->granted_over_failover += waited && op->queued_us < k->leader_since_us;
    k->sights->sets_granted += e->parts > 1;
    k->sights->shared_granted += e->mode == PK_SHARED;
    k->sights->slots_granted += e->mode == PK_SLOT;
}

static void see_ended(struct sim_check *k, const struct pk_effect *e)
{
    if (e->part != 0) {
        return;
    }
    sim_check_op_at(k, e->request)->ended_us = k->queue->now_us;
    k->sights->releases += e->end == PK_END_RELEASED;
    k->sights->overheld += e->end == PK_END_OVERHELD;
    k->sights->broken += e->end == PK_END_BROKEN;
    k->sights->expiries_of_holders += e->end == PK_END_EXPIRED;
    if (e->end == PK_END_BROKEN) {
        sim_check_voided(k, e->request);
    }
}

static void see_opened(struct sim_check *k, const struct sight *s,
                       const struct pk_effect *e)
{
    if (k->n_leases > 0 && e->lease <= k->leases[k->n_leases - 1].id) {
        sim_violation("P5", "lease id %" PRIu64 " may have been given out before",
                      e->lease);
    }
    PK_ASSERT(s->attempt != NULL);
    k->leases = grown(k->leases, k->n_leases, &k->leases_capacity, sizeof *k->leases);
    k->leases[k->n_leases++] = (struct sim_lease){
        .id = e->lease, .ttl_ms = s->c->ttl_ms, .sent_us = s->attempt->sent_us};
}

static void see_lease_ended(struct sim_check *k, const struct pk_effect *e)
{
    struct sim_lease *l = lease_at(k, e->lease);
    PK_ASSERT(l != NULL); /* or watch.c had said so */
    if (e->end == PK_END_EXPIRED) {
        k->sights->expiries++;
        sim_check_expired(k, l);
    }
    l->ended = true;
}

/* P6 */
static void see_fence(struct sim_check *k, const struct sight *s,
                      const struct pk_effect *e)
{
    uint64_t *token = &k->fences[sim_fence_of(e->name)].token;
    if (e->kind == PK_EV_FENCE_RAISED ? e->token <= *token : e->token != *token) {
        sim_violation("P6", "a fence at %" PRIu64 " went to %" PRIu64, *token, e->token);
    }
    *token = e->token;
    if (e->kind == PK_EV_FENCE_SET && ++sim_check_op_at(k, s->c->request)->writes > 1) {
        sim_violation("P8", "a fenced write was done twice");
    }
}

static void see_event(struct sim_check *k, const struct sight *s,
                      const struct pk_effect *e)
{
    switch (e->kind) {
    case PK_EV_LEASE_OPENED:
        see_opened(k, s, e);
        break;
    case PK_EV_LEASE_ENDED:
        see_lease_ended(k, e);
        break;
    case PK_EV_QUEUED:
        sim_check_op_at(k, e->request)->queued_us = k->queue->now_us;
        break;
    case PK_EV_LEFT:
        k->sights->timeouts += e->end == PK_END_TIMED_OUT;
        k->sights->cancelled += e->end == PK_END_WITHDRAWN;
        break;
    case PK_EV_GRANTED:
        see_granted(k, s, e);
        break;
    case PK_EV_ENDED:
        see_ended(k, e);
        break;
    case PK_EV_CLOSED:
        k->sights->closings++;
        break;
    case PK_EV_FENCE_RAISED:
    case PK_EV_FENCE_SET:
        see_fence(k, s, e);
        break;
    default:
        break;
    }
}

/* P6 again, from what the caller is told: accepted exactly when nothing higher was. */
static void see_fence_reply(struct sim_check *k, const struct sight *s,
                            const struct pk_effect *r)
{
    uint64_t fence = k->fences[sim_fence_of(s->c->name)].token;
    bool accepted = r->status == PK_OK;
    if (s->c->token == 0 || (!accepted && r->status != PK_STALE)) {
        return;
    }
    bool right =
        s->c->verb == PK_FENCE_CHECK ? s->c->token == fence : s->c->token >= fence;
    if (accepted != right) {
        sim_violation("P6", "%s with token %" PRIu64 " got %s from a fence at %" PRIu64,
                      pk_verb_name(s->c->verb), s->c->token, pk_status_name(r->status),
                      fence);
    }
    k->sights->fence_accepted += accepted;
    k->sights->fence_stale += !accepted;
}

/* A release ends the hold with its token and no other; called after the step's events. */
static void see_release(struct sim_check *k, const struct pk_command *c,
                        const struct pk_effect *r)
{
    const struct sim_op *op = sim_check_holder(k, sim_lock_of(c->name), c->token);
    bool held = op != NULL && op->ended_us == 0;
    if (held && (r->status == PK_OK || r->status == PK_NOTHELD)) {
        sim_violation("E2", "a release of token %" PRIu64 " got %s, and it is held",
                      c->token, pk_status_name(r->status));
    }
}

static void see_reply(struct sim_check *k, const struct sight *s,
                      const struct pk_effect *r)
{
    struct sim_attempt *a = s->attempt;
    if (r->status == PK_BADARG) {
        sim_violation("sim", "%s is badly made: %.*s", pk_verb_name(s->c->verb),
                      (int)r->why.len, r->why.data);
    }
    k->sights->busy += r->status == PK_BUSY;
    k->sights->mismatches += r->status == PK_MISMATCH;
    if (s->c->verb >= PK_FENCE_CLAIM && s->c->verb <= PK_FENCE_GET) {
        see_fence_reply(k, s, r);
    }
    if (a == NULL) {
        return;
    }
    a->status = r->status;
    a->token = r->token;
    a->lease = r->lease;
    if (s->c->verb == PK_LEASE_RENEW && r->status == PK_OK) {
        struct sim_lease *l = lease_at(k, r->lease);
        if (l == NULL || l->ended) {
            sim_violation("P4", "lease %" PRIu64 " was renewed after its end", r->lease);
        }
        l->sent_us = a->sent_us > l->sent_us ? a->sent_us : l->sent_us;
        l->ttl_ms = r->left_ms;
    }
    if (is_remembered(s->c->verb)) {
        compare_answers(k, sim_check_op_at(k, a->op), r);
    }
}

/* The attempt has its place in the log: once, not if it was refused, and behind all that
 * had been acknowledged when it was sent. */
static void place(struct sim_check *k, struct sim_attempt *a, uint64_t index)
{
    const char *what = pk_verb_name(a->verb);
    if (a->index != 0) {
        sim_violation("P8", "one sending of %s is in the log at %" PRIu64 " and %" PRIu64,
                      what, a->index, index);
    }
    if (a->fate == SIM_REFUSED) {
        sim_violation("P3", "%s was refused and came into the log later", what);
    }
    if (index <= a->acked_before) {
        sim_violation("linearizability",
                      "%s went in at %" PRIu64 ", after %" PRIu64 " was acknowledged",
                      what, index, a->acked_before);
    }
    a->index = index;
    k->sights->unknown_done += a->fate == SIM_UNKNOWN;
}

static struct sim_attempt *attempt_of(struct sim_check *k, struct pk_bytes principal)
{
    uint64_t number = 0;
    for (uint32_t i = 0; i < principal.len; i++) {
        number = number * 10 + (uint64_t)(principal.data[i] - '0');
    }
    return principal.len == 0 ? NULL : attempt_at(k, number);
}

/* A backup has taken the place of the state: all that was is over, but no token may come
 * again (P2). */
static void see_restored(struct sim_check *k, const struct pk_effects *effects,
                         uint64_t index)
{
    if (reply_in(effects)->status != PK_OK) {
        return;
    }
    uint64_t last = k->watch.last_token;
    uint64_t leapt = reply_in(effects)->token;
    if (leapt <= last) {
        sim_violation("P2", "after a restore tokens go on from %" PRIu64 ", not %" PRIu64,
                      leapt, last);
    }
    watch_free(&k->watch);
    k->watch.last_token = leapt;
    for (size_t i = 1; i < k->n_ops; i++) {
        struct sim_op *op = &k->ops[i];
        op->settled = false; /* what the backup does not know may be done again */
        op->writes = 0;
        if (op->token != 0 && op->ended_us == 0) {
            op->ended_us = k->queue->now_us;
            sim_check_voided(k, i);
        }
    }
    for (size_t i = 0; i < k->n_leases; i++) {
        k->leases[i].ended = true;
    }
    k->sights->restores++;
    k->restored_index = index;
    k->restored_us = k->queue->now_us;
    k->restored = true;
}

/* The log says something for the first time. */
static void see_step(struct sim_check *k, const struct pk_step *step)
{
    if (step->command == NULL) {
        if (step->entry->kind == PK_ENTRY_ADOPT) {
            see_restored(k, step->effects, step->entry->index);
        }
        return;
    }
    if (k->verbose) {
        say_step(k, step);
    }
    const char *broken = watch_step(&k->watch, step->command, step->effects, false);
    if (broken != NULL) {
        sim_violation("log", "%s (%s at %" PRIu64 ")", broken,
                      pk_verb_name(step->command->verb), step->entry->index);
    }
    struct sight s = {.c = step->command,
                      .attempt = attempt_of(k, step->command->principal),
                      .index = step->entry->index};
    if (s.attempt != NULL) {
        place(k, s.attempt, s.index);
    }
    for (uint32_t i = 0; i < step->effects->count; i++) {
        const struct pk_effect *e = &step->effects->list[i];
        if (e->kind == PK_REPLY) {
            see_reply(k, &s, e);
        } else {
            see_event(k, &s, e);
        }
    }
    if (s.c->verb == PK_LOCK_RELEASE) {
        see_release(k, s.c, reply_in(step->effects));
    }
    k->sights->commands++;
}

/* What a restored backup brought along is known to no event: fences, ... */
static void look_at_fences(struct sim_check *k, struct pk_machine *m)
{
    for (uint32_t i = 0; i < SIM_FENCES; i++) {
        struct pk_command get = {.verb = PK_FENCE_GET, .name = sim_fence_name(i)};
        struct pk_effects reply = {0};
        pk_machine_step(m, &get, &reply);
        k->fences[i].token = reply.list[0].token;
        k->fences[i].acked = 0;
        pk_effects_free(&reply);
    }
}

/* ... and locks that are closed. */
static void look_at_closed_locks(struct sim_check *k, struct pk_machine *m)
{
    struct pk_command list = {.verb = PK_LOCK_LIST, .count = PK_PAGE_MAX};
    struct pk_effects rows = {0}, closed = {0};
    pk_machine_step(m, &list, &rows);
    for (uint32_t i = 0; i < rows.count; i++) {
        struct pk_effect e = {.kind = PK_EV_CLOSED, .name = rows.list[i].name};
        if (rows.list[i].kind == PK_ROW_LOCK && rows.list[i].closed_ms > 0) {
            pk_effects_add(&closed, &e);
        }
    }
    const char *broken = watch_step(&k->watch, &list, &closed, false);
    PK_ASSERT(broken == NULL);
    pk_effects_free(&rows);
    pk_effects_free(&closed);
}

/* ---- the log itself ---- */

static uint64_t mix(uint64_t digest, uint64_t v)
{
    digest = (digest ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return digest ^ (digest >> 32);
}

static uint64_t mix_bytes(uint64_t digest, struct pk_bytes b)
{
    return mix(pk_digest(digest, b.data, b.len), b.len);
}

static uint64_t digest_effects(uint64_t digest, const struct pk_effects *effects)
{
    for (uint32_t i = 0; i < effects->count; i++) {
        const struct pk_effect *e = &effects->list[i];
        digest = mix(digest, ((uint64_t)e->kind << 32) ^ ((uint64_t)e->status << 16) ^
                                 ((uint64_t)e->end << 8) ^ (uint64_t)e->mode);
        digest = mix(digest, ((uint64_t)e->holders << 32) ^ e->waiters);
        digest = mix(digest, ((uint64_t)e->place << 32) ^ (e->part << 16) ^ e->slots);
        digest = mix(digest, e->lease ^ (e->request << 32));
        digest = mix(digest, e->token);
        digest = mix(digest, e->left_ms ^ (e->since_ms << 20) ^ (e->closed_ms << 40));
        digest = mix_bytes(digest, e->name);
        digest = mix_bytes(digest, e->value);
    }
    return digest;
}

uint64_t sim_check_last_index(const struct sim_check *k)
{
    return k->n_log == 0 ? 0 : k->log[k->n_log - 1].index;
}

static const struct sim_logged *logged_at(const struct sim_check *k, uint64_t index)
{
    size_t low = 0, high = k->n_log;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (k->log[middle].index < index) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < k->n_log && k->log[low].index == index ? &k->log[low] : NULL;
}

static void begin_entry(struct sim_applying *a, const struct pk_entry *e)
{
    if (a->index != e->index) {
        a->index = e->index;
        a->digest = mix_bytes(mix(PK_DIGEST_START, e->stamp_ms), e->body);
    }
}

void sim_check_stepped(struct sim_check *k, struct sim_applying *a,
                       const struct pk_step *s)
{
    begin_entry(a, s->entry);
    a->digest = digest_effects(a->digest, s->effects);
    if (s->entry->index > sim_check_last_index(k)) {
        see_step(k, s);
    }
}

void sim_check_applied(struct sim_check *k, struct sim_applying *a,
                       const struct pk_entry *e, struct pk_machine *m)
{
    begin_entry(a, e);
    k->sights->replayed += e->index <= a->highest;
    a->highest = e->index > a->highest ? e->index : a->highest;
    uint64_t machine = e->index % MACHINE_EVERY == 0 ? pk_machine_digest(m) : 0;
    if (e->index > sim_check_last_index(k)) {
        k->log = grown(k->log, k->n_log, &k->log_capacity, sizeof *k->log);
        k->log[k->n_log++] = (struct sim_logged){e->index, a->digest, machine};
        k->sights->entries++;
        sim_queue_note(k->queue, a->digest);
        if (k->restored) {
            look_at_fences(k, m);
            look_at_closed_locks(k, m);
            k->restored = false;
        }
        return;
    }
    const struct sim_logged *known = logged_at(k, e->index);
    if (known == NULL || known->digest != a->digest) {
        sim_violation("R12/P3", "the log says something else at %" PRIu64 " than it did",
                      e->index);
    }
    if (known->machine != machine) {
        sim_violation("R12", "the states after entry %" PRIu64 " differ", e->index);
    }
    k->sights->digests += machine != 0;
}

void sim_check_serving(struct sim_check *k, uint32_t node, uint64_t term)
{
    while (k->n_leaders <= term) {
        k->leaders =
            grown(k->leaders, k->n_leaders, &k->leaders_capacity, sizeof *k->leaders);
        k->n_leaders++;
    }
    if (k->leaders[term] == node + 1) {
        return;
    }
    if (k->leaders[term] != 0) {
        sim_violation("election", "nodes %" PRIu32 " and %" PRIu32 " lead term %" PRIu64,
                      k->leaders[term], node + 1, term);
    }
    k->leaders[term] = node + 1;
    k->leader_since_us = k->queue->now_us;
    k->sights->terms++;
}
