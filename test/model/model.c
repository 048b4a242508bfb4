/* SPDX-License-Identifier: MIT */
/* The model's verbs and its step. */
#include "model_state.h"

#include <stdlib.h>

#include "core/version.h"

struct model *model_new(void)
{
    struct model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        abort();
    }
    m->next_lease = 1;
    m->next_seq = 1;
    m->restored_below = 1;
    m->sweep = NEVER;
    m->version = PK_VERSION_OLDEST;
#define X(name, initial, ceiling, text) m->limits.name = initial;
    PK_LIMITS(X)
#undef X
    m->work = m->limits.step_work;
    return m;
}

void model_free(struct model *m)
{
    for (size_t i = 0; i < m->n_leases; i++) {
        free(m->leases[i].label.data);
    }
    for (size_t i = 0; i < m->n_claims; i++) {
        free_claim(&m->claims[i]);
    }
    for (size_t i = 0; i < m->n_closings; i++) {
        free(m->closings[i].name.data);
    }
    for (size_t i = 0; i < m->n_settlings; i++) {
        free(m->settlings[i].name.data);
    }
    for (size_t i = 0; i < m->n_fences; i++) {
        free(m->fences[i].name.data);
        free(m->fences[i].value.data);
    }
    free(m->settlings);
    free(m->ending);
    free(m->leases);
    free(m->ended);
    free(m->claims);
    free(m->closings);
    free(m->fences);
    free(m->answers);
    free(m->touched);
    pk_effects_free(&m->rows);
    pk_effects_free(&m->events);
    free(m);
}

/* ---- verbs: each fills the reply, m->rows and m->events ---- */

void refuse_limit(struct pk_effect *reply, const char *limit)
{
    reply->status = PK_LIMIT;
    reply->why = pk_text(limit);
}

/* L4 */
static void refuse_dead(const struct model *m, uint64_t lease, struct pk_effect *reply)
{
    if (lease == 0 || lease >= m->next_lease) {
        reply->status = PK_NOTFOUND;
    } else {
        reply->status = PK_LOST;
        reply->end = model_lease_end(m, lease);
    }
}

/* E5 */
static void leap(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    uint64_t highest = m->last_token;
    if (c->token > highest) {
        highest = c->token;
    }
    uint64_t waiting = 0;
    for (size_t i = 0; i < m->n_claims; i++) {
        waiting += !m->claims[i].held;
    }
    if (highest + PK_TOKEN_LEAP + waiting > PK_TOKEN_MAX) {
        refuse_limit(reply, "tokens");
        return;
    }
    m->last_token = highest + PK_TOKEN_LEAP;
    if (m->next_lease < m->last_token) {
        m->next_lease = m->last_token;
    }
    reply->token = m->last_token;
    struct pk_effect e = {.kind = PK_EV_LEAPT, .token = m->last_token};
    pk_effects_add(&m->events, &e);
    m->restored_below = m->next_lease;
    m->sweep = m->sweep == NEVER ? m->clock : m->sweep;
    sweep(m);
}

/* L1: true when this opening was asked for before and is remembered. */
static bool repeats_open(const struct model *m, uint64_t request, struct pk_effect *reply)
{
    for (size_t i = 0; i < m->n_leases && request != 0; i++) {
        if (m->leases[i].opened_by == request) {
            reply->lease = m->leases[i].id;
            reply->end = over(m, &m->leases[i]);
            if (reply->end == PK_END_NONE) {
                reply->left_ms = m->leases[i].deadline - m->clock;
            } else {
                reply->status = PK_LOST;
            }
            return true;
        }
    }
    for (size_t i = 0; i < m->n_ending && request != 0; i++) {
        if (m->ending[i].opened_by == request) {
            reply->lease = m->ending[i].id;
            reply->status = PK_LOST;
            reply->end = m->ending[i].end;
            return true;
        }
    }
    for (size_t i = 0; i < m->n_ended && request != 0; i++) {
        if (m->ended[i].opened_by == request) {
            reply->lease = m->ended[i].id;
            reply->status = PK_LOST;
            reply->end = m->ended[i].end;
            return true;
        }
    }
    return false;
}

uint64_t open_lease(struct model *m, const struct pk_command *c, bool keyed)
{
    struct model_lease lease = {.id = m->next_lease++,
                                .ttl = c->ttl_ms,
                                .deadline = m->clock + c->ttl_ms,
                                .opened_by = c->request,
                                .keyed = keyed,
                                .label = text_from(c->label)};
    m->leases = grown(m->leases, m->n_leases, sizeof *m->leases);
    m->leases[m->n_leases++] = lease;
    struct pk_effect e = {
        .kind = PK_EV_LEASE_OPENED, .lease = lease.id, .label = c->label};
    pk_effects_add(&m->events, &e);
    return lease.id;
}

static void lease_open(struct model *m, const struct pk_command *c,
                       struct pk_effect *reply)
{
    if (repeats_open(m, c->request, reply)) {
        return;
    }
    if (m->n_leases + 1 > m->limits.leases) {
        refuse_limit(reply, "leases");
    } else if (c->label.len > m->limits.label_bytes) {
        refuse_limit(reply, "label_bytes");
    } else if (grows_past_store(m, c->label.len, 0)) {
        refuse_limit(reply, "stored_bytes");
    } else {
        reply->lease = open_lease(m, c, false);
        reply->left_ms = c->ttl_ms;
    }
}

/* L2: one reply for each lease, so it writes them itself. */
static void lease_renew(struct model *m, const struct pk_command *c,
                        struct pk_effects *out)
{
    uint32_t room = 256;
    for (uint32_t i = 0; i < c->n_leases; i++) {
        uint64_t id = pk_command_lease_at(c, i);
        struct model_lease *lease = live_lease(m, id);
        struct pk_effect reply = {.kind = PK_REPLY, .verb = c->verb, .lease = id};
        if (lease == NULL) {
            refuse_dead(m, id, &reply);
        } else {
            lease->ttl = c->ttl_ms != 0 ? c->ttl_ms : lease->ttl;
            if (lease->deadline < m->clock + lease->ttl) {
                lease->deadline = m->clock + lease->ttl;
            }
            reply.left_ms = lease->ttl;
            reply.event = lease->events;
        }
        pk_effects_add(out, &reply);
        if (lease != NULL && c->heard != NULL &&
            pk_command_heard_at(c, i) != lease->events) { /* D2 */
            uint32_t at = out->count - 1;
            bool cut = tell_state(m, lease, &room, out);
            out->list[at].more = cut;
        }
    }
}

/* L3 */
static void lease_close(struct model *m, const struct pk_command *c,
                        struct pk_effect *reply)
{
    struct model_lease *lease = live_lease(m, c->lease);
    if (lease != NULL) {
        end_lease_plainly(m, lease, PK_END_CLOSED);
    } else if (model_lease_end(m, c->lease) != PK_END_CLOSED) {
        refuse_dead(m, c->lease, reply);
    }
}

void tell_blocker(struct model *m, const struct model_claim *c, struct pk_effect *reply)
{
    uint32_t i = first_blocked(m, c);
    i = i < c->n_parts ? i : c->n_parts - 1; /* its grant is put off (S5) */
    struct pk_bytes name = bytes_of(c->parts[i].name);
    struct model_claim *oldest = oldest_hold(m, name);
    reply->name = name;
    reply->holders = lock_holders(m, name);
    reply->waiters = lock_waiters(m, name);
    reply->closed_ms = lock_closed_ms(m, name);
    if (oldest != NULL) {
        uint32_t part = (uint32_t)(part_named(oldest, name) - oldest->parts);
        struct pk_effect row = hold_row(m, oldest, part);
        row.value = row.value.len > 1024 ? (struct pk_bytes){0} : row.value;
        pk_effects_add(&m->rows, &row);
    }
}

const struct pk_part *mismatch(const struct model *m, const struct pk_command *c)
{
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct pk_bytes name = c->parts[i].name;
        bool claimed = lock_holders(m, name) + lock_waiters(m, name) > 0;
        if (claimed && lock_slots(m, name) != c->parts[i].slots) {
            return &c->parts[i];
        }
    }
    return NULL;
}

/* G3: names the first limit that the claim would pass, or NULL. */
static const char *acquire_limit(const struct model *m, const struct pk_command *c,
                                 bool waits)
{
    uint32_t own = 0;
    uint32_t new_locks = 0;
    uint64_t waiting = 0;
    uint64_t bytes = c->value.len;
    for (size_t i = 0; i < m->n_claims; i++) {
        own += m->claims[i].lease == c->lease;
        waiting += m->claims[i].token == 0;
    }
    for (uint32_t i = 0; i < c->n_parts; i++) {
        if (!lock_exists(m, c->parts[i].name)) {
            new_locks++;
            bytes += c->parts[i].name.len;
        }
    }
    if (m->last_token + waiting + 1 > PK_TOKEN_MAX) {
        return "tokens";
    }
    if (m->n_claims + 1 > m->limits.claims) {
        return "claims";
    }
    if (own + 1 > m->limits.lease_claims) {
        return "lease_claims";
    }
    if (new_locks > 0 && count_locks(m) + new_locks > m->limits.locks) {
        return "locks";
    }
    if (grows_past_store(m, bytes, 0)) {
        return "stored_bytes";
    }
    for (uint32_t i = 0; i < c->n_parts && waits; i++) {
        if (lock_waiters(m, c->parts[i].name) + 1 > m->limits.lock_waiters) {
            return "lock_waiters";
        }
    }
    return NULL;
}

struct model_claim claim_from(struct model *m, const struct pk_command *c)
{
    struct model_claim claim = {
        .lease = c->lease,
        .request = c->request,
        .seq = NEVER, /* behind everybody, until it is taken up */
        .since = m->clock,
        .max_hold = c->max_hold_ms,
        .lock_delay = c->lock_delay_ms,
        .timer = c->wait_ms == PK_WAIT_FOREVER ? NEVER : m->clock + c->wait_ms,
        .value = text_from(c->value),
        .n_parts = c->n_parts,
    };
    for (uint32_t i = 0; i < c->n_parts; i++) {
        claim.parts[i] = (struct model_part){text_from(c->parts[i].name),
                                             c->parts[i].slots, c->parts[i].mode};
    }
    return claim;
}

void take_up(struct model *m, struct model_claim *claim, bool waits,
             struct pk_effect *reply)
{
    for (uint32_t i = 0; i < claim->n_parts && waits; i++) {
        struct pk_effect e = about_part(PK_EV_QUEUED, claim, i);
        e.place = lock_waiters(m, e.name) + 1;
        claim->place = e.place > claim->place ? e.place : claim->place;
        pk_effects_add(&m->events, &e);
    }
    claim->seq = m->next_seq++;
    m->claims = grown(m->claims, m->n_claims, sizeof *m->claims);
    m->claims[m->n_claims++] = *claim;
    if (waits) {
        reply->status = PK_QUEUED;
        reply->place = claim->place;
    } else {
        grant(m, &m->claims[m->n_claims - 1]);
        reply->token = m->last_token;
    }
}

static void acquire(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    const struct pk_part *other = mismatch(m, c);
    if (c->n_parts > m->limits.set_locks) {
        refuse_limit(reply, "set_locks");
        return;
    }
    if (c->value.len > m->limits.value_bytes) {
        refuse_limit(reply, "value_bytes");
        return;
    }
    if (other != NULL) {
        reply->status = PK_MISMATCH;
        reply->name = other->name;
        reply->slots = lock_slots(m, other->name);
        return;
    }
    struct model_claim claim = claim_from(m, c);
    bool waits = first_blocked(m, &claim) < claim.n_parts;
    const char *limit = acquire_limit(m, c, waits);
    if (waits && c->wait_ms == 0) {
        reply->status = PK_BUSY;
        tell_blocker(m, &claim, reply);
        reply->name = c->parts[first_blocked(m, &claim)].name; /* outlives the claim */
        free_claim(&claim);
    } else if (limit != NULL) {
        refuse_limit(reply, limit);
        free_claim(&claim);
    } else {
        if (waits) {
            tell_blocker(m, &claim, reply);
        }
        take_up(m, &claim, waits, reply);
    }
}

/* E4 */
static void cancel(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    struct model_claim *claim = claim_of_request(m, c->lease, c->target);
    if (claim != NULL) {
        reply->token = claim->token;
        end_claim_plainly(m, claim, claim->held ? PK_END_RELEASED : PK_END_WITHDRAWN);
        reply->event = m->reply_event;
    } else if (find_answer(m, c->lease, c->target) == NULL &&
               c->target > live_lease(m, c->lease)->forgotten) {
        struct model_answer a = {.lease = c->lease,
                                 .request = c->target,
                                 .verb = PK_LOCK_ACQUIRE,
                                 .status = PK_CANCELLED};
        remember(m, &a);
    }
}

/* E2, E3: RELEASE and BREAK. */
static void end_hold(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    struct model_claim *claim = holder_with(m, c->name, c->token);
    if (claim == NULL || (c->verb == PK_LOCK_RELEASE && claim->lease != c->lease)) {
        reply->status = PK_NOTHELD;
        return;
    }
    reply->token = c->token;
    bool breaks = c->verb == PK_LOCK_BREAK;
    enum pk_end end = breaks ? PK_END_BROKEN : PK_END_RELEASED;
    struct pk_bytes by = breaks ? c->principal : pk_text("");
    struct pk_bytes why = breaks ? c->reason : pk_text("");
    struct model_lease *lease = known_lease(m, claim->lease);
    if (lease != NULL && lease->keyed) { /* K6 */
        end_lease(m, lease, end, by, why);
    } else {
        end_claim(m, claim, end, by, why);
        reply->event = breaks ? 0 : m->reply_event;
    }
}

/* V1 */
static void change_value(struct model *m, const struct pk_command *c,
                         struct pk_effect *reply)
{
    struct model_claim *claim = holder_with(m, c->name, c->token);
    if (claim == NULL || claim->lease != c->lease) {
        reply->status = PK_NOTHELD;
    } else if (c->value.len > m->limits.value_bytes) {
        refuse_limit(reply, "value_bytes");
    } else if (grows_past_store(m, c->value.len, claim->value.len)) {
        refuse_limit(reply, "stored_bytes");
    } else {
        free(claim->value.data);
        claim->value = text_from(c->value);
        reply->token = claim->token;
        for (uint32_t i = 0; i < claim->n_parts; i++) {
            struct pk_effect e = about_part(PK_EV_VALUE, claim, i);
            e.token = claim->token;
            e.value = bytes_of(claim->value);
            pk_effects_add(&m->events, &e);
        }
    }
}

/* ---- the step ---- */

/* R1 and R2: true when the command was answered from memory, or is refused by it. */
static bool answered_before(struct model *m, const struct pk_command *c, uint64_t lease,
                            struct pk_effect *reply)
{
    if (c->request == 0) {
        return false;
    }
    struct model_claim *claim =
        lease == 0 ? NULL : claim_of_request(m, lease, c->request);
    const struct model_answer *a = find_answer(m, lease, c->request);
    enum pk_verb verb = claim != NULL ? PK_LOCK_ACQUIRE : a != NULL ? a->verb : c->verb;
    if (verb != c->verb) {
        reply->status = PK_BADARG;
        reply->why = pk_text("the request id belongs to another command");
    } else if (claim != NULL && claim->held) {
        reply->token = claim->token;
    } else if (claim != NULL) {
        reply->status = PK_QUEUED;
        reply->place = claim->place;
        tell_blocker(m, claim, reply);
    } else if (a != NULL) {
        reply->status = a->status;
        reply->token = a->token;
    } else if (lease != 0 && c->request <= live_lease(m, lease)->forgotten) {
        reply->status = PK_TOOOLD;
    } else {
        return false;
    }
    return true;
}

static void run_lease_verb(struct model *m, const struct pk_command *c,
                           struct pk_effect *reply)
{
    switch (c->verb) {
    case PK_LEASE_SHOW:
        model_lease_show(m, c, reply);
        break;
    case PK_LOCK_ACQUIRE:
        acquire(m, c, reply);
        break;
    case PK_LOCK_CANCEL:
        cancel(m, c, reply);
        break;
    case PK_LOCK_RELEASE:
        end_hold(m, c, reply);
        break;
    default:
        change_value(m, c, reply);
        break;
    }
}

/* C1; memories shrink when they next take something in */
static void configure(struct model *m, const struct pk_limits *named)
{
#define X(name, initial, ceiling, text)                                                  \
    if (named->name > 0) {                                                               \
        m->limits.name = named->name;                                                    \
    }
    PK_LIMITS(X)
#undef X
}

/* N2, N3 */
static void set_version(struct model *m, const struct pk_command *c,
                        struct pk_effect *reply)
{
    uint64_t apart =
        c->version > m->version ? c->version - m->version : m->version - c->version;
    bool runs = PK_VERSION_OLDEST <= c->version && c->version <= PK_VERSION_NEWEST;
    if (apart > 1 || !runs) {
        reply->status = PK_BADARG;
        reply->why =
            pk_text(apart > 1 ? "the cluster version is raised and lowered by one at a "
                                "time"
                              : "this release does not run that cluster version");
        return;
    }
    m->version = c->version;
    m->held = (c->flags & PK_VERSION_HOLD) != 0;
}

/* A verb whose answers are remembered: for its lease, or (lease 0) for the machine. */
static void run_remembered(struct model *m, const struct pk_command *c,
                           struct pk_effect *reply)
{
    if (c->lease != 0 || (pk_verb_fields(c->verb) & PK_F_LEASE)) {
        if (live_lease(m, c->lease) == NULL) {
            refuse_dead(m, c->lease, reply);
            return;
        }
    }
    if (c->verb == PK_LOCK_ACQUIRE && live_lease(m, c->lease)->keyed) { /* K6 */
        reply->status = PK_BADARG;
        reply->why = pk_text("the lease carries a key alone");
        return;
    }
    if (answered_before(m, c, c->lease, reply)) {
        return;
    }
    if (c->verb == PK_CONFIGURE) {
        configure(m, &c->limits);
    } else if (c->verb == PK_LEAP) {
        leap(m, c, reply);
    } else if (c->verb == PK_LOCK_BREAK) {
        end_hold(m, c, reply);
    } else if (c->verb == PK_SET_VERSION) {
        set_version(m, c, reply);
    } else {
        run_lease_verb(m, c, reply);
    }
    bool lives = c->lease == 0 || live_lease(m, c->lease) != NULL;
    if (lives && (c->lease == 0 || claim_of_request(m, c->lease, c->request) == NULL)) {
        struct model_answer a = {.lease = c->lease,
                                 .request = c->request,
                                 .verb = c->verb,
                                 .status = reply->status,
                                 .token = reply->token};
        remember(m, &a);
    }
}

static void run(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    if (c->verb != PK_SET_VERSION && pk_command_needs(c) > m->version) { /* N4 */
        reply->status = PK_BADARG;
        reply->why = pk_text("the cluster version is too low for this command");
        return;
    }
    switch (c->verb) {
    case PK_TICK:
        break;
    case PK_LEASE_OPEN:
        lease_open(m, c, reply);
        break;
    case PK_LEASE_CLOSE:
        lease_close(m, c, reply);
        break;
    case PK_LOCK_SHOW:
        model_lock_show(m, c, reply);
        break;
    case PK_LOCK_LIST:
        model_lock_list(m, c, reply);
        break;
    case PK_FENCE_CLAIM:
    case PK_FENCE_CHECK:
    case PK_FENCE_SET:
    case PK_FENCE_GET:
    case PK_FENCE_SHOW:
        model_fence(m, c, reply);
        break;
    case PK_FENCE_MODE:
        model_fence_mode(m, c, reply);
        break;
    case PK_KEY_TAKE:
    case PK_KEY_KEEP:
    case PK_KEY_DROP:
        model_key(m, c, reply);
        break;
    default:
        run_remembered(m, c, reply);
        break;
    }
}

static void append(struct pk_effects *out, struct pk_effects *from)
{
    for (uint32_t i = 0; i < from->count; i++) {
        pk_effects_add(out, &from->list[i]);
    }
    pk_effects_reset(from);
}

void model_step(struct model *m, const struct pk_command *c, struct pk_effects *out)
{
    const char *wrong = pk_command_wrong(c);
    struct pk_effect reply = {
        .kind = PK_REPLY, .verb = c->verb, .lease = c->lease, .request = c->request};
    if (wrong != NULL) {
        reply.status = PK_BADARG;
        reply.why = pk_text(wrong);
        pk_effects_add(out, &reply);
        return;
    }
    pass_time(m, c);
    append(out, &m->events);
    if (c->verb == PK_LEASE_RENEW) {
        lease_renew(m, c, out);
        return;
    }
    run(m, c, &reply);
    settle(m);
    pk_effects_add(out, &reply);
    append(out, &m->rows);
    append(out, &m->events);
}
