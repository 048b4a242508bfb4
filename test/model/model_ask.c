/* SPDX-License-Identifier: MIT */
/* The model's questions about its own state, and the verbs that only ask (Q1 to Q3). */
#include "model_state.h"

#include <stdlib.h>

struct pk_bytes bytes_of(struct text t)
{
    return pk_bytes(t.data, t.len);
}

struct text text_from(struct pk_bytes b)
{
    struct text t = {malloc(b.len + (size_t)1), b.len};
    if (t.data == NULL) {
        abort();
    }
    if (b.len > 0) {
        memcpy(t.data, b.data, b.len);
    }
    return t;
}

bool text_is(struct text t, struct pk_bytes b)
{
    return pk_bytes_equal(bytes_of(t), b);
}

struct model_lease *known_lease(const struct model *m, uint64_t id)
{
    for (size_t i = 0; i < m->n_leases; i++) {
        if (m->leases[i].id == id) {
            return &m->leases[i];
        }
    }
    return NULL;
}

struct model_lease *live_lease(const struct model *m, uint64_t id)
{
    struct model_lease *l = known_lease(m, id);
    return l != NULL && over(m, l) == PK_END_NONE ? l : NULL;
}

struct model_lease *ended_lease(const struct model *m, uint64_t id)
{
    for (size_t i = 0; i < m->n_ended; i++) {
        if (m->ended[i].id == id) {
            return &m->ended[i];
        }
    }
    return NULL;
}

struct model_claim *claim_of_request(const struct model *m, uint64_t lease,
                                     uint64_t request)
{
    for (size_t i = 0; i < m->n_claims; i++) {
        if (m->claims[i].lease == lease && m->claims[i].request == request) {
            return &m->claims[i];
        }
    }
    return NULL;
}

struct model_part *part_named(struct model_claim *c, struct pk_bytes name)
{
    for (uint32_t i = 0; i < c->n_parts; i++) {
        if (text_is(c->parts[i].name, name)) {
            return &c->parts[i];
        }
    }
    return NULL;
}

struct model_claim *holder_with(const struct model *m, struct pk_bytes name,
                                uint64_t token)
{
    for (size_t i = 0; i < m->n_claims; i++) {
        struct model_claim *c = &m->claims[i];
        if (c->held && c->token == token && part_named(c, name) != NULL) {
            return c;
        }
    }
    return NULL;
}

struct model_claim *oldest_hold(const struct model *m, struct pk_bytes name)
{
    struct model_claim *oldest = NULL;
    for (size_t i = 0; i < m->n_claims; i++) {
        struct model_claim *c = &m->claims[i];
        if (c->held && part_named(c, name) != NULL &&
            (oldest == NULL || c->token < oldest->token)) {
            oldest = c;
        }
    }
    return oldest;
}

bool lock_exists(const struct model *m, struct pk_bytes name)
{
    return lock_holders(m, name) + lock_waiters(m, name) > 0 ||
           lock_closed_ms(m, name) > 0;
}

uint32_t lock_slots(const struct model *m, struct pk_bytes name)
{
    for (size_t i = 0; i < m->n_claims; i++) {
        struct model_part *p = part_named(&m->claims[i], name);
        if (p != NULL) {
            return p->slots;
        }
    }
    return 0;
}

uint32_t lock_holders(const struct model *m, struct pk_bytes name)
{
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_claims; i++) {
        n += m->claims[i].held && part_named(&m->claims[i], name) != NULL;
    }
    return n;
}

uint32_t lock_waiters(const struct model *m, struct pk_bytes name)
{
    return waiters_before(m, name, NEVER);
}

uint32_t waiters_before(const struct model *m, struct pk_bytes name, uint64_t seq)
{
    uint32_t n = 0;
    for (size_t i = 0; i < m->n_claims; i++) {
        struct model_claim *c = &m->claims[i];
        n += !c->held && c->seq < seq && part_named(c, name) != NULL;
    }
    return n;
}

uint64_t lock_closed_ms(const struct model *m, struct pk_bytes name)
{
    for (size_t i = 0; i < m->n_closings; i++) {
        if (text_is(m->closings[i].name, name)) {
            uint64_t until = m->closings[i].until;
            return until > m->clock ? until - m->clock : 1;
        }
    }
    return 0;
}

/* Every name of every part and closing once, sorted. *names is the caller's. */
static size_t lock_names(const struct model *m, struct pk_bytes **names)
{
    size_t n = 0;
    *names = malloc((m->n_claims * PK_SET_MAX + m->n_closings + 1) * sizeof **names);
    if (*names == NULL) {
        abort();
    }
    for (size_t i = 0; i < m->n_claims; i++) {
        for (uint32_t p = 0; p < m->claims[i].n_parts; p++) {
            (*names)[n++] = bytes_of(m->claims[i].parts[p].name);
        }
    }
    for (size_t i = 0; i < m->n_closings; i++) {
        (*names)[n++] = bytes_of(m->closings[i].name);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        struct pk_bytes name = (*names)[i];
        size_t at = 0;
        while (at < kept && pk_bytes_compare((*names)[at], name) < 0) {
            at++;
        }
        if (at < kept && pk_bytes_equal((*names)[at], name)) {
            continue;
        }
        memmove(*names + at + 1, *names + at, (kept - at) * sizeof **names);
        (*names)[at] = name;
        kept++;
    }
    return kept;
}

uint32_t count_locks(const struct model *m)
{
    struct pk_bytes *names;
    size_t n = lock_names(m, &names);
    free(names);
    return (uint32_t)n;
}

/* Names of locks and fences once each, labels of live leases, values of claims and
 * fences. */
uint64_t stored_bytes(const struct model *m)
{
    struct pk_bytes *names;
    size_t n = lock_names(m, &names);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += names[i].len;
    }
    free(names);
    for (size_t i = 0; i < m->n_leases; i++) {
        sum += m->leases[i].label.len;
    }
    for (size_t i = 0; i < m->n_claims; i++) {
        sum += m->claims[i].value.len;
    }
    for (size_t i = 0; i < m->n_fences; i++) {
        sum += m->fences[i].name.len + m->fences[i].value.len;
    }
    return sum;
}

bool grows_past_store(const struct model *m, uint64_t more, uint64_t less)
{
    return more > less && stored_bytes(m) + more - less > m->limits.stored_bytes;
}

/* ---- rows ---- */

struct pk_effect about_part(enum pk_effect_kind kind, const struct model_claim *c,
                            uint32_t i)
{
    return (struct pk_effect){
        .kind = kind,
        .name = bytes_of(c->parts[i].name),
        .mode = c->parts[i].mode,
        .slots = c->parts[i].slots,
        .lease = c->lease,
        .request = c->request,
        .part = i,
        .parts = c->n_parts,
    };
}

struct pk_effect hold_row(const struct model *m, const struct model_claim *c, uint32_t i)
{
    const struct model_lease *lease = known_lease(m, c->lease);
    struct pk_effect row = about_part(PK_ROW_HOLD, c, i);
    row.token = c->token;
    row.since_ms = c->since;
    if (lease != NULL) {
        row.left_ms = over(m, lease) == PK_END_NONE ? lease->deadline - m->clock : 0;
        row.label = bytes_of(lease->label);
    }
    row.value = bytes_of(c->value);
    return row;
}

static struct pk_effect wait_row(const struct model *m, const struct model_claim *c,
                                 uint32_t i)
{
    struct pk_effect row = hold_row(m, c, i);
    row.kind = PK_ROW_WAIT;
    row.place = c->place; /* a SHOW of the lock itself puts the present one here */
    return row;
}

/* The index in the claim of the part with this name, which must be there. */
static uint32_t index_named(struct model_claim *c, struct pk_bytes name)
{
    return (uint32_t)(part_named(c, name) - c->parts);
}

/* Q5 */
static void add_row(struct model *m, const struct pk_command *c, struct pk_effect *reply,
                    const struct pk_effect *row)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->rows.count; i++) {
        const struct pk_effect *r = &m->rows.list[i];
        bytes += 128 + r->name.len + r->label.len + r->value.len;
    }
    if (m->rows.count < c->count && bytes < UINT64_C(262144)) {
        pk_effects_add(&m->rows, row);
    } else {
        reply->more = 1;
    }
}

/* The claim of `lease` that comes next after (request, seq), or NULL. */
static struct model_claim *next_claim(const struct model *m, uint64_t lease,
                                      uint64_t request, uint64_t seq)
{
    struct model_claim *next = NULL;
    for (size_t i = 0; i < m->n_claims; i++) {
        struct model_claim *c = &m->claims[i];
        bool after = c->request > request || (c->request == request && c->seq > seq);
        bool sooner = next == NULL || c->request < next->request ||
                      (c->request == next->request && c->seq < next->seq);
        if (c->lease == lease && after && sooner) {
            next = c;
        }
    }
    return next;
}

/* False: there is no room for it. */
static bool add_bounded(struct pk_effects *out, const struct pk_effect *row,
                        uint32_t *room)
{
    if (*room == 0) {
        return false;
    }
    --*room;
    pk_effects_add(out, row);
    return true;
}

bool tell_state(const struct model *m, const struct model_lease *l, uint32_t *room,
                struct pk_effects *out)
{
    struct model_claim *claim = next_claim(m, l->id, 0, 0);
    for (; claim != NULL; claim = next_claim(m, l->id, claim->request, claim->seq)) {
        for (uint32_t i = 0; i < claim->n_parts; i++) {
            struct pk_effect row =
                about_part(claim->held ? PK_ROW_HOLD : PK_ROW_WAIT, claim, i);
            row.token = claim->token;
            row.since_ms = claim->since;
            row.place = claim->held ? 0 : claim->place;
            if (!add_bounded(out, &row, room)) {
                return true;
            }
        }
    }
    for (size_t i = 0; i < m->n_answers; i++) {
        const struct model_answer *a = &m->answers[i];
        struct pk_effect row = {.kind = PK_ROW_OUTCOME,
                                .lease = l->id,
                                .request = a->request,
                                .token = a->token,
                                .end = a->end};
        if (a->lease == l->id && a->end != PK_END_NONE && !add_bounded(out, &row, room)) {
            return true;
        }
    }
    return false;
}

void model_lease_show(struct model *m, const struct pk_command *c,
                      struct pk_effect *reply)
{
    const struct model_lease *lease = live_lease(m, c->lease);
    reply->left_ms = lease->deadline - m->clock;
    reply->label = bytes_of(lease->label);
    struct model_claim *claim = next_claim(m, c->lease, 0, 0);
    while (claim != NULL) {
        reply->holders += claim->held;
        reply->waiters += !claim->held;
        bool wanted = c->target == 0 || claim->request == c->target;
        for (uint32_t i = 0; i < claim->n_parts && wanted; i++) {
            struct pk_effect row =
                claim->held ? hold_row(m, claim, i) : wait_row(m, claim, i);
            add_row(m, c, reply, &row);
        }
        claim = next_claim(m, c->lease, claim->request, claim->seq);
    }
}

void model_lock_show(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    struct model_claim *oldest = oldest_hold(m, c->name);
    reply->name = c->name;
    reply->slots = lock_slots(m, c->name);
    reply->holders = lock_holders(m, c->name);
    reply->waiters = lock_waiters(m, c->name);
    reply->closed_ms = lock_closed_ms(m, c->name);
    reply->mode = oldest == NULL ? PK_MODE_NONE : part_named(oldest, c->name)->mode;
    uint64_t shown = 0; /* the token of the hold shown last */
    for (uint32_t n = 0; n < reply->holders; n++) {
        struct model_claim *next = NULL;
        for (size_t i = 0; i < m->n_claims; i++) {
            struct model_claim *claim = &m->claims[i];
            if (claim->held && part_named(claim, c->name) != NULL &&
                claim->token > shown && (next == NULL || claim->token < next->token)) {
                next = claim;
            }
        }
        struct pk_effect row = hold_row(m, next, index_named(next, c->name));
        add_row(m, c, reply, &row);
        shown = next->token;
    }
    for (size_t i = 0; i < m->n_claims; i++) {
        struct model_claim *claim = &m->claims[i];
        if (!claim->held && part_named(claim, c->name) != NULL) {
            struct pk_effect row = wait_row(m, claim, index_named(claim, c->name));
            row.place = waiters_before(m, c->name, claim->seq) + 1;
            add_row(m, c, reply, &row);
        }
    }
}

static bool has_prefix(struct pk_bytes name, struct pk_bytes prefix)
{
    return name.len >= prefix.len &&
           pk_bytes_equal(pk_bytes(name.data, prefix.len), prefix);
}

void model_lock_list(struct model *m, const struct pk_command *c, struct pk_effect *reply)
{
    struct pk_bytes *names;
    size_t n = lock_names(m, &names);
    for (size_t i = 0; i < n; i++) {
        struct pk_bytes name = names[i];
        if (!has_prefix(name, c->name) || pk_bytes_compare(name, c->cursor) <= 0) {
            continue;
        }
        struct model_claim *oldest = oldest_hold(m, name);
        struct pk_effect row = {.name = name};
        if (oldest != NULL) {
            row = hold_row(m, oldest, index_named(oldest, name));
        }
        row.kind = PK_ROW_LOCK;
        row.slots = lock_slots(m, name);
        row.holders = lock_holders(m, name);
        row.waiters = lock_waiters(m, name);
        row.closed_ms = lock_closed_ms(m, name);
        add_row(m, c, reply, &row);
    }
    free(names);
}

/* ---- what machine.h also tells ---- */

uint64_t model_clock(const struct model *m)
{
    return m->clock;
}

uint64_t model_last_token(const struct model *m)
{
    return m->last_token;
}

uint64_t model_version(const struct model *m)
{
    return m->version;
}

bool model_version_is_held(const struct model *m)
{
    return m->held;
}

uint64_t model_next_deadline(const struct model *m)
{
    uint64_t next = NEVER;
    for (size_t i = 0; i < m->n_leases; i++) {
        next = m->leases[i].deadline < next ? m->leases[i].deadline : next;
    }
    for (size_t i = 0; i < m->n_ending; i++) {
        next = m->ending[i].deadline < next ? m->ending[i].deadline : next;
    }
    for (size_t i = 0; i < m->n_settlings; i++) {
        next = m->settlings[i].at < next ? m->settlings[i].at : next;
    }
    next = m->sweep < next ? m->sweep : next;
    for (size_t i = 0; i < m->n_claims; i++) {
        next = m->claims[i].timer < next ? m->claims[i].timer : next;
    }
    for (size_t i = 0; i < m->n_closings; i++) {
        next = m->closings[i].until < next ? m->closings[i].until : next;
    }
    for (size_t i = 0; i < m->n_fences; i++) {
        next = m->fences[i].ends < next ? m->fences[i].ends : next;
    }
    return next;
}

struct pk_stats model_stats(const struct model *m)
{
    struct pk_stats s = {
        .leases = m->n_leases,
        .locks = count_locks(m),
        .fences = m->n_fences,
        .stored_bytes = stored_bytes(m),
    };
    for (size_t i = 0; i < m->n_claims; i++) {
        s.holds += m->claims[i].held;
        s.waits += !m->claims[i].held;
    }
    return s;
}

enum pk_claim_state model_claim(const struct model *m, uint64_t lease, uint64_t request,
                                uint64_t *token)
{
    bool alive = live_lease(m, lease) != NULL;
    const struct model_claim *c = alive ? claim_of_request(m, lease, request) : NULL;
    if (c == NULL) {
        return PK_CLAIM_NONE;
    }
    *token = c->token;
    return c->held ? PK_CLAIM_HELD : PK_CLAIM_WAITING;
}

enum pk_end model_lease_end(const struct model *m, uint64_t lease)
{
    const struct model_lease *ended = ended_lease(m, lease);
    const struct model_lease *known = known_lease(m, lease);
    if (known != NULL) {
        return over(m, known);
    }
    for (size_t i = 0; i < m->n_ending; i++) {
        if (m->ending[i].id == lease) {
            return m->ending[i].end;
        }
    }
    return ended != NULL ? ended->end : PK_END_FORGOTTEN;
}
