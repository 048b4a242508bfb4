/* SPDX-License-Identifier: MIT */
/* Leases: a client's liveness, and the memory that makes its retries safe. Rules L and R.
 */
#include "core/door.h"
#include "core/state.h"

static int order_id(const void *key, const struct pk_node *node)
{
    uint64_t a = *(const uint64_t *)key;
    uint64_t b = PK_OWNER(node, struct pk_lease, by_id)->id;
    return (a > b) - (a < b);
}

static int order_opening(const void *key, const struct pk_node *node)
{
    uint64_t a = *(const uint64_t *)key;
    uint64_t b = PK_OWNER(node, struct pk_lease, by_open)->opened_by;
    return (a > b) - (a < b);
}

static int order_deadline(const void *key, const struct pk_node *node)
{
    const struct pk_lease *a = key;
    const struct pk_lease *b = PK_OWNER(node, struct pk_lease, by_deadline);
    if (a->deadline_ms != b->deadline_ms) {
        return a->deadline_ms < b->deadline_ms ? -1 : 1;
    }
    return (a->id > b->id) - (a->id < b->id);
}

/* The first claim of a request: claims without an id (0) are told apart by seq alone. */
static int order_request(const void *key, const struct pk_node *node)
{
    uint64_t a = *(const uint64_t *)key;
    uint64_t b = PK_OWNER(node, struct pk_claim, node)->request;
    return (a > b) - (a < b);
}

struct pk_lease *pk_lease_new(struct pk_machine *m)
{
    return pk_pool_zeroed(&m->pool, sizeof(struct pk_lease));
}

void pk_lease_drop(struct pk_machine *m, struct pk_lease *l)
{
    pk_pool_give(&m->pool, l, sizeof *l);
}

struct pk_lease *pk_lease_find(const struct pk_machine *m, uint64_t id)
{
    struct pk_node *n = pk_tree_find(&m->leases, &id, order_id);
    return n == NULL ? NULL : PK_OWNER(n, struct pk_lease, by_id);
}

struct pk_node *pk_lease_seek(const struct pk_machine *m, uint64_t id)
{
    return pk_tree_seek(&m->leases, &id, order_id);
}

struct pk_claim *pk_lease_claim(const struct pk_lease *l, uint64_t request)
{
    struct pk_node *n =
        request == 0 ? NULL : pk_tree_find(&l->claims, &request, order_request);
    return n == NULL ? NULL : PK_OWNER(n, struct pk_claim, node);
}

uint64_t pk_lease_left(const struct pk_machine *m, const struct pk_lease *l)
{
    return pk_lease_over(m, l) == PK_END_NONE ? pk_time_left(m, l->deadline_ms) : 0;
}

void pk_lease_arm(struct pk_machine *m, struct pk_lease *l, uint64_t deadline_ms)
{
    l->deadline_ms = deadline_ms;
    bool in = pk_tree_insert(&m->deadlines, &l->by_deadline, l, order_deadline);
    PK_ASSERT(in);
}

void pk_lease_disarm(struct pk_machine *m, struct pk_lease *l)
{
    pk_tree_erase(&m->deadlines, &l->by_deadline);
}

bool pk_lease_is_armed(const struct pk_machine *m, const struct pk_lease *l)
{
    return pk_tree_find(&m->deadlines, l, order_deadline) == &l->by_deadline;
}

enum pk_end pk_lease_over(const struct pk_machine *m, const struct pk_lease *l)
{
    if (l->end != PK_END_NONE) {
        return (enum pk_end)l->end;
    }
    if (l->id < m->restored_below) {
        return PK_END_RESTORED;
    }
    return l->deadline_ms <= m->clock ? PK_END_EXPIRED : PK_END_NONE;
}

bool pk_lease_has_ended(const struct pk_lease *l)
{
    return l->end != PK_END_NONE && !l->ending;
}

/* L4: what to say of a lease that is not alive. */
static void reply_gone(struct pk_machine *m, const struct pk_command *c, uint64_t id,
                       const struct pk_lease *l)
{
    bool ever = id != 0 && id < m->next_lease;
    struct pk_effect *e = pk_reply(m, c, ever ? PK_LOST : PK_NOTFOUND);
    e->lease = id;
    if (ever) {
        e->end = l == NULL ? PK_END_FORGOTTEN : pk_lease_over(m, l);
    }
}

struct pk_lease *pk_lease_alive(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_lease *l = pk_lease_find(m, c->lease);
    if (l == NULL || pk_lease_over(m, l) != PK_END_NONE) {
        reply_gone(m, c, c->lease, l);
        return NULL;
    }
    return l;
}

/* ---- open, renew, close ---- */

bool pk_lease_join(struct pk_machine *m, struct pk_lease *l)
{
    if (!pk_tree_insert(&m->leases, &l->by_id, &l->id, order_id)) {
        return false;
    }
    if (l->opened_by != 0 &&
        !pk_tree_insert(&m->openings, &l->by_open, &l->opened_by, order_opening)) {
        pk_tree_erase(&m->leases, &l->by_id);
        return false;
    }
    m->stats.leases += l->end == PK_END_NONE;
    return true;
}

/* L1: the same OPEN again gets the same lease. */
static bool reopened(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_node *n =
        c->request == 0 ? NULL : pk_tree_find(&m->openings, &c->request, order_opening);
    if (n == NULL) {
        return false;
    }
    const struct pk_lease *l = PK_OWNER(n, struct pk_lease, by_open);
    if (pk_lease_over(m, l) != PK_END_NONE) {
        reply_gone(m, c, l->id, l);
        return true;
    }
    struct pk_effect *e = pk_reply(m, c, PK_OK);
    e->lease = l->id;
    e->left_ms = pk_lease_left(m, l);
    return true;
}

struct pk_lease *pk_lease_begin(struct pk_machine *m, const struct pk_command *c,
                                bool keyed)
{
    struct pk_lease *l = pk_lease_new(m);
    l->id = m->next_lease++;
    l->ttl_ms = (uint32_t)c->ttl_ms;
    l->opened_by = c->request;
    l->label = pk_blob_new(m, c->label);
    l->keyed = keyed;
    bool joined = pk_lease_join(m, l);
    PK_ASSERT(joined);
    pk_lease_arm(m, l, m->clock + l->ttl_ms);
    pk_item_in(m, PK_ITEM_LEASE, l);
    pk_event(m, (struct pk_effect){
                    .kind = PK_EV_LEASE_OPENED, .lease = l->id, .label = c->label});
    return l;
}

void pk_lease_open(struct pk_machine *m, const struct pk_command *c)
{
    if (reopened(m, c)) {
        return;
    }
    if (m->stats.leases >= m->limits.leases) {
        pk_reply_limit(m, c, "leases");
        return;
    }
    if (c->label.len > m->limits.label_bytes) {
        pk_reply_limit(m, c, "label_bytes");
        return;
    }
    if (!pk_room_for(m, c->label.len)) {
        pk_reply_limit(m, c, "stored_bytes");
        return;
    }
    struct pk_effect *e = pk_reply(m, c, PK_OK);
    e->lease = m->next_lease;
    e->left_ms = c->ttl_ms;
    pk_lease_begin(m, c, false);
}

void pk_lease_extend(struct pk_machine *m, struct pk_lease *l, uint64_t ttl_ms)
{
    pk_item_out(m, PK_ITEM_LEASE, l);
    l->ttl_ms = (uint32_t)ttl_ms;
    pk_lease_disarm(m, l);
    pk_lease_arm(m, l, m->clock + ttl_ms);
    pk_item_in(m, PK_ITEM_LEASE, l);
}

/* A shorter TTL counts from the next renewal on: should the answer to this one get lost,
 * its holder still trusts in what it was promised before (P4). */
static void renew(struct pk_machine *m, struct pk_lease *l, uint64_t ttl_ms)
{
    uint64_t promised = l->deadline_ms;
    pk_item_out(m, PK_ITEM_LEASE, l);
    l->ttl_ms = (uint32_t)ttl_ms;
    if (m->clock + ttl_ms > promised) {
        pk_lease_disarm(m, l);
        pk_lease_arm(m, l, m->clock + ttl_ms);
    }
    pk_item_in(m, PK_ITEM_LEASE, l);
}

static void outcome_row(struct pk_machine *m, const struct pk_lease *l,
                        const struct pk_answer *a)
{
    struct pk_effect e = {.kind = PK_ROW_OUTCOME,
                          .lease = l->id,
                          .request = a->request,
                          .token = a->token,
                          .end = (enum pk_end)a->end};
    pk_effects_add(m->out, &e);
}

/* D2: how all claims of the lease stand, and how those ended that are remembered. *room
 * is how many rows there may still be; false: they were not enough. */
static bool tell_state(struct pk_machine *m, const struct pk_lease *l, uint32_t *room)
{
    for (struct pk_node *n = pk_tree_first(&l->claims); n != NULL; n = pk_tree_next(n)) {
        const struct pk_claim *claim = PK_OWNER(n, struct pk_claim, node);
        for (uint32_t i = 0; i < claim->n_parts; i++) {
            if (*room == 0) {
                return false;
            }
            --*room;
            pk_claim_brief_row(m, &claim->parts[i]);
        }
    }
    for (uint32_t i = 0; i < pk_replies_count(l->replies); i++) {
        const struct pk_answer *a = pk_replies_at(l->replies, i);
        if (a->end == PK_END_NONE) {
            continue;
        }
        if (*room == 0) {
            return false;
        }
        --*room;
        outcome_row(m, l, a);
    }
    return true;
}

void pk_lease_renew(struct pk_machine *m, const struct pk_command *c)
{
    uint32_t room = PK_RENEW_ROWS;
    for (uint32_t i = 0; i < c->n_leases; i++) {
        uint64_t id = pk_command_lease_at(c, i);
        struct pk_lease *l = pk_lease_find(m, id);
        if (l == NULL || pk_lease_over(m, l) != PK_END_NONE) {
            reply_gone(m, c, id, l);
            continue;
        }
        renew(m, l, c->ttl_ms != 0 ? c->ttl_ms : l->ttl_ms);
        struct pk_effect *e = pk_reply(m, c, PK_OK);
        e->lease = id;
        e->left_ms = l->ttl_ms;
        e->event = pk_replies_events(l->replies);
        uint32_t reply = m->out->count - 1;
        if (c->heard != NULL && pk_command_heard_at(c, i) != e->event) {
            m->out->list[reply].more = !tell_state(m, l, &room);
        }
    }
}

/* The lease's item is out. */
static uint32_t next_event(struct pk_lease *l)
{
    uint32_t last = pk_replies_events(l->replies);
    pk_replies_set_events(&l->replies, last == UINT32_MAX ? 1 : last + 1);
    return pk_replies_events(l->replies);
}

uint32_t pk_lease_count_event(struct pk_machine *m, struct pk_lease *l)
{
    if (pk_lease_over(m, l) != PK_END_NONE) {
        return 0;
    }
    pk_item_out(m, PK_ITEM_LEASE, l);
    uint32_t number = next_event(l);
    pk_item_in(m, PK_ITEM_LEASE, l);
    return number;
}

uint32_t pk_lease_note_end(struct pk_machine *m, struct pk_lease *l,
                           struct pk_answer outcome)
{
    uint32_t number = 0;
    if (l->end != PK_END_NONE) {
        return 0; /* it ends itself, and its item is out */
    }
    pk_item_out(m, PK_ITEM_LEASE, l);
    if (pk_lease_over(m, l) == PK_END_NONE) {
        number = next_event(l);
    }
    if (outcome.request != 0) {
        pk_replies_add(&l->replies, m->limits.replies, outcome);
    }
    pk_item_in(m, PK_ITEM_LEASE, l);
    return number;
}

void pk_lease_close(struct pk_machine *m, const struct pk_command *c)
{
    struct pk_lease *l = pk_lease_find(m, c->lease);
    if (l != NULL && l->end == PK_END_CLOSED) {
        pk_reply(m, c, PK_OK); /* L3: it has been done */
        return;
    }
    l = pk_lease_alive(m, c);
    if (l != NULL) {
        pk_reply(m, c, PK_OK);
        pk_lease_end(m, l, &(struct pk_ending){.why = PK_END_CLOSED});
    }
}

/* Rows of one claim; false when there was no room for all of them. */
static bool show_claim(struct pk_machine *m, const struct pk_claim *claim,
                       struct pk_page *page)
{
    for (uint32_t i = 0; i < claim->n_parts; i++) {
        if (!pk_page_has_room(m, page)) {
            return false;
        }
        pk_claim_row(m, &claim->parts[i], claim->place);
    }
    return true;
}

void pk_lease_show(struct pk_machine *m, const struct pk_command *c)
{
    const struct pk_lease *l = pk_lease_alive(m, c);
    if (l == NULL) {
        return;
    }
    struct pk_effect e = {.kind = PK_REPLY,
                          .verb = c->verb,
                          .status = PK_OK,
                          .lease = l->id,
                          .left_ms = pk_lease_left(m, l),
                          .holders = l->n_holds,
                          .waiters = l->n_waits,
                          .label = pk_blob_bytes(l->label)};
    pk_effects_add(m->out, &e);
    struct pk_page page = pk_page_begin(m, c);
    if (c->target != 0) {
        const struct pk_claim *claim = pk_lease_claim(l, c->target);
        if (claim != NULL) {
            (void)show_claim(m, claim, &page);
        }
        return;
    }
    struct pk_node *n = pk_tree_first(&l->claims);
    while (n != NULL && show_claim(m, PK_OWNER(n, struct pk_claim, node), &page)) {
        n = pk_tree_next(n);
    }
}

/* ---- the end ---- */

void pk_lease_free(struct pk_machine *m, struct pk_lease *l)
{
    bool has_deadline = !pk_lease_has_ended(l);
    struct pk_node *n;
    while ((n = pk_tree_first(&l->claims)) != NULL) {
        pk_claim_free(m, PK_OWNER(n, struct pk_claim, node));
    }
    if (has_deadline) {
        pk_lease_disarm(m, l);
    }
    pk_tree_erase(&m->leases, &l->by_id);
    if (l->opened_by != 0) {
        pk_tree_erase(&m->openings, &l->by_open);
    }
    pk_blob_free(m, l->label);
    pk_replies_free(&l->replies);
    pk_lease_drop(m, l);
}

void pk_lease_append_ended(struct pk_machine *m, struct pk_lease *l, uint64_t nth)
{
    l->ended_nth = nth;
    l->ending = false;
    l->next_ended = NULL;
    if (m->ended_last == NULL) {
        m->ended_first = l;
    } else {
        m->ended_last->next_ended = l;
    }
    m->ended_last = l;
    m->n_ended++;
    pk_item_in(m, PK_ITEM_ENDED, l);
}

/* Keeps at most limits.ended leases in memory after their end: the oldest are forgotten.
 * Two for one that ended, so that a lowered limit is reached bit by bit. */
static void forget_oldest(struct pk_machine *m)
{
    for (int i = 0; i < 2 && m->n_ended > m->limits.ended; i++) {
        struct pk_lease *oldest = m->ended_first;
        m->ended_first = oldest->next_ended;
        if (m->ended_first == NULL) {
            m->ended_last = NULL;
        }
        m->n_ended--;
        pk_item_out(m, PK_ITEM_ENDED, oldest);
        pk_view_forget(m, oldest);
        pk_lease_free(m, oldest);
    }
}

static void begin_end(struct pk_machine *m, struct pk_lease *l, enum pk_end why)
{
    l->end = (uint8_t)why;
    l->ending = true;
    l->keyed = false; /* nothing asks this of the dead */
    m->stats.leases--;
    pk_blob_free(m, l->label);
    l->label = NULL;
    pk_replies_free(&l->replies);
    pk_work_done(m, 1);
    pk_event(m,
             (struct pk_effect){.kind = PK_EV_LEASE_ENDED, .lease = l->id, .end = why});
}

void pk_lease_end(struct pk_machine *m, struct pk_lease *l, const struct pk_ending *e)
{
    PK_ASSERT(e->why != PK_END_NONE);
    pk_item_out(m, PK_ITEM_LEASE, l);
    pk_lease_disarm(m, l);
    if (l->end == PK_END_NONE) {
        begin_end(m, l, e->why);
    }
    struct pk_node *n = pk_tree_first(&l->claims);
    while (n != NULL) { /* the first one always: so the end of few is never put off */
        (void)pk_claim_end(m, PK_OWNER(n, struct pk_claim, node), e);
        n = pk_tree_first(&l->claims);
        if (n != NULL && m->work == 0) {
            pk_lease_arm(m, l, m->clock); /* S5 */
            pk_item_in(m, PK_ITEM_LEASE, l);
            return;
        }
    }
    pk_lease_append_ended(m, l, m->next_ended++);
    forget_oldest(m);
}

/* ---- repeats ---- */

bool pk_lease_repeated(struct pk_machine *m, struct pk_lease *l,
                       const struct pk_command *c)
{
    if (c->request == 0) {
        return false;
    }
    const struct pk_answer *a = pk_replies_find(l->replies, c->request);
    bool claimed =
        pk_lease_claim(l, c->request) != NULL; /* lock.c answers an ACQUIRE from it */
    if ((a != NULL && a->verb != c->verb) || (claimed && c->verb != PK_LOCK_ACQUIRE)) {
        pk_reply(m, c, PK_BADARG)->why =
            pk_text("the request id belongs to another command");
        return true;
    }
    if (a != NULL) {
        pk_reply(m, c, (enum pk_status)a->status)->token = a->token;
        return true;
    }
    if (!claimed && c->request <= pk_replies_forgotten(l->replies)) {
        pk_reply(m, c, PK_TOOOLD);
        return true;
    }
    return false;
}

void pk_lease_remember(struct pk_machine *m, struct pk_lease *l, struct pk_answer a)
{
    if (a.request != 0) {
        pk_item_out(m, PK_ITEM_LEASE, l);
        pk_replies_add(&l->replies, m->limits.replies, a);
        pk_item_in(m, PK_ITEM_LEASE, l);
    }
}
