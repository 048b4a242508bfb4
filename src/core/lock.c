/* SPDX-License-Identifier: MIT */
/* Locks and the claims on them: granting, waiting, waking, ending. Rules G, W, E, V and
 * Q. */
#include "core/door.h"
#include "core/state.h"

/* ---- finding things ---- */

static int order_name(const void *key, const struct pk_node *node)
{
    return pk_bytes_compare(*(const struct pk_bytes *)key,
                            pk_lock_name(PK_OWNER(node, struct pk_lock, node)));
}

static int order_claim(const void *key, const struct pk_node *node)
{
    const struct pk_claim *a = key;
    const struct pk_claim *b = PK_OWNER(node, struct pk_claim, node);
    if (a->request != b->request) {
        return a->request < b->request ? -1 : 1;
    }
    return (a->seq > b->seq) - (a->seq < b->seq);
}

static struct pk_claim_part *part_at(const struct pk_node *node)
{
    return PK_OWNER(node, struct pk_claim_part, node);
}

struct pk_claim *pk_claim_of(const struct pk_claim_part *p)
{
    return PK_OWNER(p - p->index, struct pk_claim, parts);
}

static int order_seq(const void *key, const struct pk_node *node)
{
    uint64_t a = *(const uint64_t *)key;
    uint64_t b = pk_claim_of(part_at(node))->seq;
    return (a > b) - (a < b);
}

static int order_token(const void *key, const struct pk_node *node)
{
    uint64_t a = *(const uint64_t *)key;
    uint64_t b = pk_claim_of(part_at(node))->token;
    return (a > b) - (a < b);
}

struct pk_bytes pk_lock_name(const struct pk_lock *l)
{
    return pk_bytes(l->name, l->name_len);
}

struct pk_lock *pk_lock_find(const struct pk_machine *m, struct pk_bytes name)
{
    struct pk_node *n = pk_tree_find(&m->locks, &name, order_name);
    return n == NULL ? NULL : PK_OWNER(n, struct pk_lock, node);
}

struct pk_node *pk_lock_after(const struct pk_machine *m, struct pk_bytes name)
{
    struct pk_node *n = pk_tree_seek(&m->locks, &name, order_name);
    return n != NULL && order_name(&name, n) == 0 ? pk_tree_next(n) : n;
}

static size_t size_of_lock(size_t name_len)
{
    return offsetof(struct pk_lock, name) + name_len;
}

static struct pk_lock *new_lock(struct pk_machine *m, struct pk_bytes name)
{
    PK_ASSERT(name.len > 0 && name.len <= PK_NAME_MAX);
    struct pk_lock *l = pk_pool_zeroed(&m->pool, size_of_lock(name.len));
    l->name_len = (uint8_t)name.len;
    memcpy(l->name, name.data, name.len);
    bool in = pk_tree_insert(&m->locks, &l->node, &name, order_name);
    PK_ASSERT(in);
    m->stats.locks++;
    m->stats.stored_bytes += name.len;
    return l;
}

struct pk_lock *pk_lock_get(struct pk_machine *m, struct pk_bytes name)
{
    struct pk_lock *l = pk_lock_find(m, name);
    return l != NULL ? l : new_lock(m, name);
}

void pk_lock_free(struct pk_machine *m, struct pk_lock *l)
{
    pk_timer_free(m, l->timer);
    pk_tree_erase(&m->locks, &l->node);
    m->stats.locks--;
    m->stats.stored_bytes -= l->name_len;
    pk_pool_give(&m->pool, l, size_of_lock(l->name_len));
}

bool pk_lock_is_closed(const struct pk_lock *l)
{
    return l->timer != NULL && l->timer->kind == PK_TIMER_LOCK;
}

static uint64_t closed_ms(const struct pk_machine *m, const struct pk_lock *l)
{
    return pk_lock_is_closed(l) ? pk_timer_left(m, l->timer) : 0;
}

struct pk_claim_part *pk_lock_oldest_hold(const struct pk_lock *l)
{
    struct pk_node *n = pk_tree_first(&l->holds);
    return n == NULL ? NULL : part_at(n);
}

/* ---- claims ---- */

static size_t size_of_claim(uint32_t n_parts)
{
    return sizeof(struct pk_claim) + n_parts * sizeof(struct pk_claim_part);
}

struct pk_claim *pk_claim_new(struct pk_machine *m, uint32_t n_parts)
{
    PK_ASSERT(n_parts >= 1 && n_parts <= PK_SET_MAX);
    struct pk_claim *c = pk_pool_zeroed(&m->pool, size_of_claim(n_parts));
    c->n_parts = (uint8_t)n_parts;
    for (uint32_t i = 0; i < n_parts; i++) {
        c->parts[i].index = (uint8_t)i;
    }
    return c;
}

void pk_claim_drop(struct pk_machine *m, struct pk_claim *c)
{
    pk_pool_give(&m->pool, c, size_of_claim(c->n_parts));
}

bool pk_claim_link_part(struct pk_claim_part *p)
{
    const struct pk_claim *c = pk_claim_of(p);
    struct pk_lock *l = p->lock;
    bool waits = c->token == 0;
    bool in = waits ? pk_tree_insert(&l->queue, &p->node, &c->seq, order_seq)
                    : pk_tree_insert(&l->holds, &p->node, &c->token, order_token);
    l->n_waits += in && waits;
    l->n_holds += in && !waits;
    return in;
}

static void unlink_part(struct pk_claim_part *p)
{
    if (pk_claim_of(p)->token == 0) {
        pk_tree_erase(&p->lock->queue, &p->node);
        p->lock->n_waits--;
    } else {
        pk_tree_erase(&p->lock->holds, &p->node);
        p->lock->n_holds--;
    }
}

/* Counts the claim in or out, in its lease and in the machine, as waiting or held. */
static void count_claim(struct pk_machine *m, const struct pk_claim *c, bool in)
{
    struct pk_lease *l = c->lease;
    uint32_t *mine = c->token == 0 ? &l->n_waits : &l->n_holds;
    uint64_t *all = c->token == 0 ? &m->stats.waits : &m->stats.holds;
    *mine += in ? 1 : UINT32_MAX;
    *all += in ? 1 : UINT64_MAX;
}

bool pk_claim_join(struct pk_machine *m, struct pk_claim *c)
{
    if (!pk_tree_insert(&c->lease->claims, &c->node, c, order_claim)) {
        return false;
    }
    count_claim(m, c, true);
    return true;
}

const struct pk_terms *pk_claim_terms(const struct pk_claim *c)
{
    static const struct pk_terms none;
    return c->terms != NULL ? c->terms : &none;
}

struct pk_terms *pk_claim_own_terms(struct pk_machine *m, struct pk_claim *c)
{
    if (c->terms == NULL) {
        c->terms = pk_pool_zeroed(&m->pool, sizeof *c->terms);
    }
    return c->terms;
}

void pk_claim_agree(struct pk_machine *m, struct pk_claim *c, struct pk_bytes value,
                    uint32_t max_hold_ms, uint32_t lock_delay_ms)
{
    if (value.len != 0 || max_hold_ms != 0 || lock_delay_ms != 0) {
        struct pk_terms *t = pk_claim_own_terms(m, c);
        t->value = pk_blob_new(m, value);
        t->max_hold_ms = max_hold_ms;
        t->lock_delay_ms = lock_delay_ms;
    }
}

void pk_claim_time(struct pk_machine *m, struct pk_claim *c, uint64_t at)
{
    pk_claim_own_terms(m, c)->timer = pk_timer_new(m, PK_TIMER_CLAIM, c->seq, c, at);
}

void pk_claim_untime(struct pk_machine *m, struct pk_claim *c)
{
    if (c->terms != NULL) {
        pk_timer_free(m, c->terms->timer);
        c->terms->timer = NULL;
    }
}

void pk_claim_free(struct pk_machine *m, struct pk_claim *c)
{
    pk_claim_untime(m, c);
    if (c->terms != NULL) {
        pk_blob_free(m, c->terms->value);
        pk_pool_give(&m->pool, c->terms, sizeof *c->terms);
    }
    count_claim(m, c, false);
    pk_tree_erase(&c->lease->claims, &c->node);
    pk_claim_drop(m, c);
}

/* An effect about one part of a claim, with what all such effects carry. */
static struct pk_effect about(enum pk_effect_kind kind, const struct pk_claim_part *p)
{
    const struct pk_claim *c = pk_claim_of(p);
    return (struct pk_effect){.kind = kind,
                              .name = pk_lock_name(p->lock),
                              .mode = (enum pk_mode)p->mode,
                              .slots = p->mode == PK_SLOT ? p->lock->slots : 0,
                              .part = p->index,
                              .parts = c->n_parts,
                              .lease = c->lease->id,
                              .request = c->request,
                              .seq = c->seq,
                              .token = c->token};
}

static void describe_claim(const struct pk_machine *m, struct pk_effect *e,
                           const struct pk_claim *c)
{
    e->since_ms = c->since_ms;
    e->left_ms = pk_lease_left(m, c->lease);
    e->label = pk_blob_bytes(c->lease->label);
    e->value = pk_blob_bytes(pk_claim_terms(c)->value);
}

void pk_claim_row(struct pk_machine *m, const struct pk_claim_part *p, uint32_t place)
{
    const struct pk_claim *c = pk_claim_of(p);
    struct pk_effect e = about(c->token == 0 ? PK_ROW_WAIT : PK_ROW_HOLD, p);
    describe_claim(m, &e, c);
    e.place = c->token == 0 ? place : 0;
    pk_effects_add(m->out, &e);
}

void pk_claim_brief_row(struct pk_machine *m, const struct pk_claim_part *p)
{
    const struct pk_claim *c = pk_claim_of(p);
    struct pk_effect e = about(c->token == 0 ? PK_ROW_WAIT : PK_ROW_HOLD, p);
    e.since_ms = c->since_ms;
    e.place = c->token == 0 ? c->place : 0;
    pk_effects_add(m->out, &e);
}

/* Q5: whether a further row may follow; if not, the reply says that there is more. */
bool pk_page_has_room(struct pk_machine *m, struct pk_page *p)
{
    const struct pk_effect *last = &m->out->list[m->out->count - 1];
    if (last->kind != PK_REPLY) {
        p->rows++;
        p->bytes += PK_ROW_BYTES + last->name.len + last->label.len + last->value.len;
    }
    bool room = p->rows < p->count && p->bytes < PK_PAGE_BYTES;
    m->out->list[p->reply].more = !room;
    return room;
}

struct pk_page pk_page_begin(const struct pk_machine *m, const struct pk_command *c)
{
    return (struct pk_page){.reply = m->out->count - 1, .count = c->count};
}

/* ---- granting ---- */

/* G1 for a lock that exists. Shared holds are never beside an exclusive one (I1), so
 * looking at any one hold tells about all. */
static bool compatible(const struct pk_lock *l, enum pk_mode mode)
{
    if (pk_lock_is_closed(l)) {
        return false;
    }
    if (mode == PK_SLOT) {
        return l->n_holds < l->slots;
    }
    return l->n_holds == 0 ||
           (mode == PK_SHARED && pk_lock_oldest_hold(l)->mode == PK_SHARED);
}

/* G2 for a claim that waits. */
bool pk_claim_ready(const struct pk_claim *c)
{
    for (uint32_t i = 0; i < c->n_parts; i++) {
        const struct pk_claim_part *p = &c->parts[i];
        bool first = pk_tree_first(&p->lock->queue) == &p->node;
        if (!first || !compatible(p->lock, (enum pk_mode)p->mode)) {
            return false;
        }
    }
    return true;
}

/* Puts a lock on the list of those to settle, once. */
static void touch(struct pk_machine *m, struct pk_lock *l)
{
    if (l->touched) {
        return;
    }
    if (m->n_touched == m->touched_capacity) {
        m->touched_capacity = m->touched_capacity == 0 ? 16 : m->touched_capacity * 2;
        m->touched = pk_door_resize(m->touched, m->touched_capacity * sizeof *m->touched);
    }
    l->touched = 1;
    m->touched[m->n_touched++] = l;
}

uint64_t pk_next_token(const struct pk_machine *m)
{
    return m->last_token + 1;
}

void pk_claim_grant(struct pk_machine *m, struct pk_claim *c)
{
    PK_ASSERT(c->token == 0 && c->lease->end == PK_END_NONE);
    PK_ASSERT(m->last_token < PK_TOKEN_MAX);
    uint32_t number = c->place == 0 ? 0 : pk_lease_count_event(m, c->lease); /* D1 */
    pk_claim_untime(m, c);
    count_claim(m, c, false);
    c->token = m->last_token = pk_next_token(m);
    pk_work_done(m, c->n_parts);
    uint64_t waited_ms = m->clock - c->since_ms;
    c->since_ms = m->clock;
    count_claim(m, c, true);
    const struct pk_terms *terms = pk_claim_terms(c);
    if (terms->max_hold_ms != 0) {
        pk_claim_time(m, c, m->clock + terms->max_hold_ms);
    }
    for (uint32_t i = 0; i < c->n_parts; i++) {
        bool linked = pk_claim_link_part(&c->parts[i]);
        PK_ASSERT(linked);
        struct pk_effect e = about(PK_EV_GRANTED, &c->parts[i]);
        e.value = pk_blob_bytes(terms->value);
        e.lasted_ms = waited_ms;
        e.event = number;
        pk_event(m, e);
        touch(m, c->parts[i].lock);
    }
    pk_item_in(m, PK_ITEM_CLAIM, c);
}

/* S5: PK_END_NONE while a waiting claim may be granted, else why it is over, although it
 * is still in its queues. */
static enum pk_end wait_over(const struct pk_machine *m, const struct pk_claim *c)
{
    enum pk_end end = pk_lease_over(m, c->lease);
    const struct pk_timer *timer = pk_claim_terms(c)->timer;
    bool timed_out = timer != NULL && pk_timer_is_due(m, timer);
    return end == PK_END_NONE && timed_out ? PK_END_TIMED_OUT : end;
}

/* The claim at the head of the queue if something can be done about it now, or NULL. */
static struct pk_claim *movable_head(const struct pk_machine *m, const struct pk_lock *l)
{
    struct pk_node *n = pk_tree_first(&l->queue);
    struct pk_claim *c = n == NULL ? NULL : pk_claim_of(part_at(n));
    bool moves = c != NULL && (wait_over(m, c) != PK_END_NONE || pk_claim_ready(c));
    return moves ? c : NULL;
}

/* Grants the claim at the head of a queue, or ends it when it is over. */
static void move_head(struct pk_machine *m, struct pk_claim *c)
{
    enum pk_end over = wait_over(m, c);
    if (over != PK_END_NONE) {
        (void)pk_claim_end(m, c, &(struct pk_ending){.why = over});
        return;
    }
    pk_item_out(m, PK_ITEM_CLAIM, c);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        unlink_part(&c->parts[i]);
    }
    pk_claim_grant(m, c);
}

void pk_lock_time(struct pk_machine *m, struct pk_lock *l, enum pk_timer_kind kind,
                  uint64_t id, uint64_t at)
{
    PK_ASSERT(l->timer == NULL);
    l->timer = pk_timer_new(m, kind, id, l, at);
    m->n_timed++;
    pk_item_in(m, PK_ITEM_LOCK, l);
}

static void untime(struct pk_machine *m, struct pk_lock *l)
{
    if (l->timer != NULL) {
        pk_item_out(m, PK_ITEM_LOCK, l);
        pk_timer_free(m, l->timer);
        l->timer = NULL;
        m->n_timed--;
    }
}

/* W1; `first`: also when no work is left, one claim moves. */
static void settle(struct pk_machine *m, struct pk_lock *l, bool first)
{
    struct pk_claim *head = movable_head(m, l);
    while (head != NULL && (first || m->work > 0)) {
        move_head(m, head);
        head = movable_head(m, l);
        first = false;
    }
    if (head != NULL && l->timer == NULL) {
        pk_lock_time(m, l, PK_TIMER_SETTLE, m->next_seq++, m->clock); /* S5 */
    } else if (head == NULL && !pk_lock_is_closed(l)) {
        untime(m, l);
    }
    if (l->n_holds == 0 && l->n_waits == 0) {
        l->slots = 0;
        if (l->timer == NULL && !l->touched) {
            pk_lock_free(m, l);
        }
    }
}

void pk_locks_settle(struct pk_machine *m)
{
    /* The list may grow while it is worked off: a granted set touches its other locks
     * (W2). What a command itself has touched moves at once, so that few are never put
     * off (S5). */
    uint32_t at_once = m->n_touched;
    for (uint32_t i = 0; i < m->n_touched; i++) {
        struct pk_lock *l = m->touched[i];
        l->touched = 0;
        settle(m, l, i < at_once);
    }
    m->n_touched = 0;
}

/* ---- acquire ---- */

/* True when part `i` can be granted now. A lock that nobody claims (closed, or it would
 * not be there) takes any kind. */
static bool grantable(const struct pk_attempt *a, uint32_t i)
{
    const struct pk_lock *l = a->locks[i];
    if (l == NULL) {
        return true;
    }
    bool claimed = l->n_holds + l->n_waits > 0;
    return claimed ? l->n_waits == 0 && compatible(l, a->c->parts[i].mode)
                   : !pk_lock_is_closed(l);
}

struct pk_attempt pk_attempt_begin(const struct pk_machine *m, const struct pk_command *c,
                                   struct pk_lease *lease)
{
    struct pk_attempt a = {.c = c, .lease = lease, .blocked = c->n_parts};
    a.claims = lease == NULL ? c->n_parts : 1;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        a.locks[i] = pk_lock_find(m, c->parts[i].name);
        if (a.blocked == c->n_parts && !grantable(&a, i)) {
            a.blocked = i;
        }
    }
    return a;
}

static struct pk_effect plain_reply(const struct pk_command *c, enum pk_status s)
{
    return (struct pk_effect){.kind = PK_REPLY,
                              .verb = c->verb,
                              .status = s,
                              .lease = c->lease,
                              .request = c->request};
}

/* G5: replies with what is in the way, and the row of whoever holds it. */
static void reply_blocked(struct pk_machine *m, struct pk_effect e,
                          const struct pk_lock *l)
{
    e.name = pk_lock_name(l);
    e.holders = l->n_holds;
    e.waiters = l->n_waits;
    e.closed_ms = closed_ms(m, l);
    pk_effects_add(m->out, &e);
    if (l->n_holds > 0) {
        struct pk_effect row = about(PK_ROW_HOLD, pk_lock_oldest_hold(l));
        describe_claim(m, &row, pk_claim_of(pk_lock_oldest_hold(l)));
        if (row.value.len > PK_BLOCKER_VALUE) {
            row.value = (struct pk_bytes){0}; /* whoever wants it asks for it */
        }
        pk_effects_add(m->out, &row);
    }
}

/* R1 for a claim that exists: its present outcome is the answer. */
static void reply_from_claim(struct pk_machine *m, const struct pk_command *c,
                             const struct pk_claim *claim)
{
    if (claim->token != 0) {
        pk_reply(m, c, PK_OK)->token = claim->token;
        return;
    }
    /* It waits, so some part is behind somebody or not compatible (I5); or its grant is
     * put off, and any part will do (S5). */
    const struct pk_claim_part *p = claim->parts;
    const struct pk_claim_part *last = p + claim->n_parts - 1;
    while (p < last && pk_tree_first(&p->lock->queue) == &p->node &&
           compatible(p->lock, (enum pk_mode)p->mode)) {
        p++;
    }
    struct pk_effect e = plain_reply(c, PK_QUEUED);
    e.place = claim->place;
    e.seq = claim->seq;
    reply_blocked(m, e, p->lock);
}

/* The first lock of the attempt that is in use as another kind, or NULL. */
static const struct pk_lock *mismatched(const struct pk_attempt *a)
{
    for (uint32_t i = 0; i < a->c->n_parts; i++) {
        const struct pk_lock *l = a->locks[i];
        bool claimed = l != NULL && l->n_holds + l->n_waits > 0;
        if (claimed && l->slots != a->c->parts[i].slots) {
            return l;
        }
    }
    return NULL;
}

/* The limit that the claim would pass, or NULL. */
static const char *limit_reached(const struct pk_machine *m, const struct pk_attempt *a)
{
    uint32_t new_locks = 0;
    uint64_t new_bytes = a->claims * ((uint64_t)a->c->label.len + a->c->value.len);
    bool queue_full = false;
    for (uint32_t i = 0; i < a->c->n_parts; i++) {
        if (a->locks[i] == NULL) {
            new_locks++;
            new_bytes += a->c->parts[i].name.len;
        } else if (a->locks[i]->n_waits >= m->limits.lock_waiters) {
            queue_full = true;
        }
    }
    if (a->lease == NULL && m->stats.leases + a->claims > m->limits.leases) {
        return "leases";
    }
    if (m->stats.waits + a->claims > PK_TOKEN_MAX - m->last_token) {
        return "tokens"; /* who waits has one in reserve, so a grant never lacks one */
    }
    if (m->stats.holds + m->stats.waits + a->claims > m->limits.claims) {
        return "claims";
    }
    if (a->lease != NULL &&
        a->lease->n_holds + a->lease->n_waits >= m->limits.lease_claims) {
        return "lease_claims";
    }
    if (new_locks > 0 && m->stats.locks + new_locks > m->limits.locks) {
        return "locks";
    }
    if (!pk_room_for(m, new_bytes)) {
        return "stored_bytes";
    }
    bool must_wait = a->blocked < a->c->n_parts;
    return must_wait && queue_full ? "lock_waiters" : NULL;
}

struct pk_claim *pk_attempt_claim(struct pk_machine *m, const struct pk_attempt *a,
                                  uint32_t first, uint32_t n)
{
    const struct pk_command *c = a->c;
    struct pk_claim *claim = pk_claim_new(m, n);
    claim->lease = a->lease;
    claim->request = c->request;
    claim->seq = m->next_seq++;
    claim->since_ms = m->clock;
    pk_claim_agree(m, claim, c->value, (uint32_t)c->max_hold_ms,
                   (uint32_t)c->lock_delay_ms);
    for (uint32_t i = 0; i < n; i++) {
        const struct pk_part *p = &c->parts[first + i];
        struct pk_lock *l = a->locks[first + i];
        claim->parts[i].lock = l != NULL ? l : new_lock(m, p->name);
        claim->parts[i].lock->slots = p->slots;
        claim->parts[i].mode = (uint8_t)p->mode;
    }
    bool joined = pk_claim_join(m, claim);
    PK_ASSERT(joined);
    return claim;
}

static void enqueue(struct pk_machine *m, struct pk_claim *claim,
                    const struct pk_attempt *a)
{
    for (uint32_t i = 0; i < claim->n_parts; i++) {
        uint32_t place = claim->parts[i].lock->n_waits + 1;
        claim->place = place > claim->place ? place : claim->place;
    }
    struct pk_effect e = plain_reply(a->c, PK_QUEUED);
    e.place = claim->place;
    e.seq = claim->seq;
    reply_blocked(m, e, a->locks[a->blocked]);
    for (uint32_t i = 0; i < claim->n_parts; i++) {
        bool linked = pk_claim_link_part(&claim->parts[i]);
        PK_ASSERT(linked);
        struct pk_effect queued = about(PK_EV_QUEUED, &claim->parts[i]);
        queued.place = claim->parts[i].lock->n_waits;
        pk_event(m, queued);
    }
    if (a->c->wait_ms != PK_WAIT_FOREVER) {
        pk_claim_time(m, claim, m->clock + a->c->wait_ms);
    }
    pk_item_in(m, PK_ITEM_CLAIM, claim);
}

/* What is remembered of the answer to a command. */
static struct pk_answer answer_to(const struct pk_command *c, enum pk_status s,
                                  uint64_t token)
{
    return (struct pk_answer){.request = c->request,
                              .token = token,
                              .verb = (uint8_t)c->verb,
                              .status = (uint8_t)s};
}

/* A refusal is final for its request id: should a late copy of it arrive when the lock is
 * free, nobody would be there to use the grant (P8). */
static void refuse(struct pk_machine *m, struct pk_lease *l, const struct pk_command *c,
                   enum pk_status s)
{
    if (l != NULL) {
        pk_lease_remember(m, l, answer_to(c, s, 0));
    }
}

bool pk_attempt_refused(struct pk_machine *m, const struct pk_attempt *a)
{
    const struct pk_command *c = a->c;
    bool is_set = a->lease != NULL;
    const char *limit = is_set && c->n_parts > m->limits.set_locks ? "set_locks"
                        : c->label.len > m->limits.label_bytes     ? "label_bytes"
                        : c->value.len > m->limits.value_bytes     ? "value_bytes"
                                                                   : NULL;
    const struct pk_lock *other = limit == NULL ? mismatched(a) : NULL;
    if (other != NULL) {
        struct pk_effect e = plain_reply(c, PK_MISMATCH);
        e.name = pk_lock_name(other);
        e.slots = other->slots;
        pk_effects_add(m->out, &e);
        refuse(m, a->lease, c, PK_MISMATCH);
        return true;
    }
    if (limit == NULL && a->blocked < c->n_parts && c->wait_ms == 0) {
        reply_blocked(m, plain_reply(c, PK_BUSY), a->locks[a->blocked]);
        refuse(m, a->lease, c, PK_BUSY);
        return true;
    }
    limit = limit != NULL ? limit : limit_reached(m, a);
    if (limit != NULL) {
        pk_reply_limit(m, c, limit);
        refuse(m, a->lease, c, PK_LIMIT);
    }
    return limit != NULL;
}

void pk_lock_acquire(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_lease *lease = pk_lease_alive(m, c);
    if (lease != NULL && lease->keyed) {
        pk_reply(m, c, PK_BADARG)->why = pk_text("the lease carries a key alone");
        return;
    }
    if (lease == NULL || pk_lease_repeated(m, lease, c)) {
        return;
    }
    const struct pk_claim *earlier = pk_lease_claim(lease, c->request);
    if (earlier != NULL) {
        reply_from_claim(m, c, earlier);
        return;
    }
    struct pk_attempt a = pk_attempt_begin(m, c, lease);
    if (pk_attempt_refused(m, &a)) {
        return;
    }
    struct pk_claim *claim = pk_attempt_claim(m, &a, 0, c->n_parts);
    if (a.blocked < c->n_parts) {
        enqueue(m, claim, &a);
    } else {
        pk_reply(m, c, PK_OK)->token = pk_next_token(m);
        pk_claim_grant(m, claim);
    }
}

/* ---- ending ---- */

static bool unclean(enum pk_end why)
{
    return why == PK_END_EXPIRED || why == PK_END_OVERHELD || why == PK_END_BROKEN ||
           why == PK_END_RESTORED;
}

/* The lock stays shut for a while: its last holder may still believe in it. */
static void shut(struct pk_machine *m, struct pk_lock *l, uint32_t delay_ms)
{
    uint64_t until = m->clock + delay_ms;
    if (!pk_lock_is_closed(l)) {
        untime(m, l); /* who waits is looked at when it opens */
        pk_lock_time(m, l, PK_TIMER_LOCK, m->next_seq++, until);
    } else if (l->timer->at < until) {
        pk_item_out(m, PK_ITEM_LOCK, l);
        pk_timer_disarm(m, l->timer);
        pk_timer_arm(m, l->timer, until);
        pk_item_in(m, PK_ITEM_LOCK, l);
    } else {
        return;
    }
    pk_event(m, (struct pk_effect){.kind = PK_EV_CLOSED,
                                   .name = pk_lock_name(l),
                                   .closed_ms = delay_ms});
}

/* What the request of a claim that ended is answered with from now on (R3). */
static struct pk_answer outcome_of(const struct pk_claim *c, enum pk_end why)
{
    enum pk_status s = c->token != 0             ? PK_OK
                       : why == PK_END_TIMED_OUT ? PK_TIMEOUT
                                                 : PK_CANCELLED;
    return (struct pk_answer){.request = c->request,
                              .token = c->token,
                              .verb = PK_LOCK_ACQUIRE,
                              .status = (uint8_t)s,
                              .end = (uint8_t)why};
}

uint32_t pk_claim_end(struct pk_machine *m, struct pk_claim *c, const struct pk_ending *e)
{
    bool held = c->token != 0;
    uint32_t number = pk_lease_note_end(m, c->lease, outcome_of(c, e->why));
    uint32_t delay_ms = pk_claim_terms(c)->lock_delay_ms;
    pk_work_done(m, c->n_parts);
    pk_item_out(m, PK_ITEM_CLAIM, c);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct pk_claim_part *p = &c->parts[i];
        unlink_part(p);
        struct pk_effect event = about(held ? PK_EV_ENDED : PK_EV_LEFT, p);
        event.end = e->why;
        event.by = e->by;
        event.why = e->reason;
        event.lasted_ms = m->clock - c->since_ms;
        event.event = number;
        pk_event(m, event);
        if (held && delay_ms != 0 && unclean(e->why)) {
            shut(m, p->lock, delay_ms);
        }
        touch(m, p->lock);
    }
    pk_claim_free(m, c);
    return number;
}

void pk_lock_due(struct pk_machine *m, struct pk_lock *l)
{
    pk_work_done(m, 1);
    if (pk_lock_is_closed(l)) {
        pk_event(m, (struct pk_effect){.kind = PK_EV_OPENED, .name = pk_lock_name(l)});
    }
    untime(m, l);
    touch(m, l);
}

/* The claim that holds the lock of `c` with the token of `c`, or NULL. */
static struct pk_claim *holder(const struct pk_machine *m, const struct pk_command *c)
{
    const struct pk_lock *l = pk_lock_find(m, c->name);
    struct pk_node *n =
        l == NULL ? NULL : pk_tree_find(&l->holds, &c->token, order_token);
    return n == NULL ? NULL : pk_claim_of(part_at(n));
}

/* The lease and the hold that RELEASE and VALUE are about; false after having replied. */
static bool own_hold(struct pk_machine *m, const struct pk_command *c,
                     struct pk_lease **l, struct pk_claim **claim)
{
    *l = pk_lease_alive(m, c);
    if (*l == NULL || pk_lease_repeated(m, *l, c)) {
        return false;
    }
    *claim = holder(m, c);
    if (*claim == NULL || (*claim)->lease != *l) {
        pk_reply(m, c, PK_NOTHELD);
        refuse(m, *l, c, PK_NOTHELD);
        return false;
    }
    return true;
}

/* Ends a hold by itself, and if it is a key its lease with it (K6). Returns the number of
 * the event; 0: it has none. */
static uint32_t end_hold(struct pk_machine *m, struct pk_claim *claim,
                         const struct pk_ending *e)
{
    if (!claim->lease->keyed) {
        return pk_claim_end(m, claim, e);
    }
    pk_lease_end(m, claim->lease, e);
    return 0;
}

void pk_lock_release(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_lease *l;
    struct pk_claim *claim;
    if (!own_hold(m, c, &l, &claim)) {
        return;
    }
    uint32_t reply = m->out->count;
    pk_reply(m, c, PK_OK)->token = c->token;
    uint32_t number = end_hold(m, claim, &(struct pk_ending){.why = PK_END_RELEASED});
    m->out->list[reply].event = number;
    if (l->end == PK_END_NONE) {
        pk_lease_remember(m, l, answer_to(c, PK_OK, c->token));
    }
}

void pk_lock_break(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_claim *claim = holder(m, c);
    if (claim == NULL) {
        pk_reply(m, c, PK_NOTHELD);
        return;
    }
    pk_reply(m, c, PK_OK)->token = c->token;
    struct pk_ending e = {.why = PK_END_BROKEN, .by = c->principal, .reason = c->reason};
    (void)end_hold(m, claim, &e);
}

void pk_lock_cancel(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_lease *l = pk_lease_alive(m, c);
    if (l == NULL || pk_lease_repeated(m, l, c)) {
        return;
    }
    struct pk_claim *claim = pk_lease_claim(l, c->target);
    uint64_t token = claim == NULL ? 0 : claim->token;
    uint32_t reply = m->out->count;
    pk_reply(m, c, PK_OK)->token = token;
    if (claim != NULL) {
        enum pk_end why = token == 0 ? PK_END_WITHDRAWN : PK_END_RELEASED;
        uint32_t number = pk_claim_end(m, claim, &(struct pk_ending){.why = why});
        m->out->list[reply].event = number;
    } else if (c->target > pk_replies_forgotten(l->replies) &&
               pk_replies_find(l->replies, c->target) == NULL) {
        /* The cancel overtook its acquire: refuse that one when it comes (E4). */
        struct pk_answer refused = answer_to(c, PK_CANCELLED, 0);
        refused.request = c->target;
        refused.verb = PK_LOCK_ACQUIRE;
        pk_lease_remember(m, l, refused);
    }
    pk_lease_remember(m, l, answer_to(c, PK_OK, token));
}

/* ---- values ---- */

void pk_lock_value(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_lease *l;
    struct pk_claim *claim;
    if (!own_hold(m, c, &l, &claim)) {
        return;
    }
    bool too_long = c->value.len > m->limits.value_bytes;
    uint32_t had = pk_blob_len(pk_claim_terms(claim)->value);
    if (too_long || (c->value.len > had && !pk_room_for(m, c->value.len - had))) {
        pk_reply_limit(m, c, too_long ? "value_bytes" : "stored_bytes");
        refuse(m, l, c, PK_LIMIT);
        return;
    }
    pk_item_out(m, PK_ITEM_CLAIM, claim);
    struct pk_terms *terms = pk_claim_own_terms(m, claim);
    pk_blob_free(m, terms->value);
    terms->value = pk_blob_new(m, c->value);
    pk_item_in(m, PK_ITEM_CLAIM, claim);
    pk_reply(m, c, PK_OK)->token = c->token;
    for (uint32_t i = 0; i < claim->n_parts; i++) {
        struct pk_effect e = about(PK_EV_VALUE, &claim->parts[i]);
        e.value = c->value;
        pk_event(m, e);
    }
    pk_lease_remember(m, l, answer_to(c, PK_OK, c->token));
}

/* ---- reading ---- */

void pk_lock_show(struct pk_machine *m, const struct pk_command *c)
{
    const struct pk_lock *l = pk_lock_find(m, c->name);
    struct pk_effect e = plain_reply(c, PK_OK);
    e.name = c->name;
    if (l != NULL) {
        e.mode =
            l->n_holds == 0 ? PK_MODE_NONE : (enum pk_mode)pk_lock_oldest_hold(l)->mode;
        e.slots = l->slots;
        e.holders = l->n_holds;
        e.waiters = l->n_waits;
        e.closed_ms = closed_ms(m, l);
    }
    pk_effects_add(m->out, &e);
    if (l == NULL) {
        return;
    }
    struct pk_page page = pk_page_begin(m, c);
    bool room = true;
    for (struct pk_node *n = pk_tree_first(&l->holds); n != NULL && room;
         n = pk_tree_next(n)) {
        room = pk_page_has_room(m, &page);
        if (room) {
            pk_claim_row(m, part_at(n), 0);
        }
    }
    uint32_t place = 0;
    for (struct pk_node *n = pk_tree_first(&l->queue); n != NULL && room;
         n = pk_tree_next(n)) {
        room = pk_page_has_room(m, &page);
        if (room) {
            pk_claim_row(m, part_at(n), ++place);
        }
    }
}

static void lock_row(struct pk_machine *m, const struct pk_lock *l)
{
    struct pk_effect e = {.kind = PK_ROW_LOCK, .name = pk_lock_name(l)};
    const struct pk_claim_part *hold = pk_lock_oldest_hold(l);
    if (hold != NULL) {
        e = about(PK_ROW_LOCK, hold);
        describe_claim(m, &e, pk_claim_of(hold));
    }
    e.slots = l->slots;
    e.holders = l->n_holds;
    e.waiters = l->n_waits;
    e.closed_ms = closed_ms(m, l);
    pk_effects_add(m->out, &e);
}

static bool has_prefix(const struct pk_lock *l, struct pk_bytes prefix)
{
    return l->name_len >= prefix.len &&
           pk_bytes_equal(pk_bytes(l->name, prefix.len), prefix);
}

void pk_lock_list(struct pk_machine *m, const struct pk_command *c)
{
    pk_reply(m, c, PK_OK);
    bool from_cursor = pk_bytes_compare(c->cursor, c->name) > 0;
    struct pk_bytes from = from_cursor ? c->cursor : c->name;
    struct pk_node *n = pk_tree_seek(&m->locks, &from, order_name);
    if (n != NULL && c->cursor.len > 0 && order_name(&c->cursor, n) == 0) {
        n = pk_tree_next(n);
    }
    struct pk_page page = pk_page_begin(m, c);
    for (; n != NULL; n = pk_tree_next(n)) {
        const struct pk_lock *l = PK_OWNER(n, struct pk_lock, node);
        if (!has_prefix(l, c->name) || !pk_page_has_room(m, &page)) {
            return;
        }
        lock_row(m, l);
    }
}
