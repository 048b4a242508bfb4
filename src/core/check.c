/* SPDX-License-Identifier: MIT */
/* Re-derives the inequalities I1 to I12 of README.md from the state alone. */
#include "core/door.h"
#include "core/state.h"

/* What the walk counts, to be compared with what the machine believes. */
struct census {
    struct pk_stats stats;
    uint64_t deadlines, timers, ended, timed, parts_held, parts_waiting;
    uint64_t items;   /* sum of their hashes */
    uint64_t *tokens; /* of the holds */
    uint64_t *seqs;   /* of the claims */
};

#define DEMAND(x, sentence)                                                              \
    do {                                                                                 \
        if (!(x)) {                                                                      \
            return sentence;                                                             \
        }                                                                                \
    } while (0)

static void sift_down(uint64_t *v, size_t from, size_t n)
{
    for (size_t child = 2 * from + 1; child < n; child = 2 * from + 1) {
        if (child + 1 < n && v[child + 1] > v[child]) {
            child++;
        }
        if (v[from] >= v[child]) {
            return;
        }
        uint64_t t = v[from];
        v[from] = v[child];
        v[child] = t;
        from = child;
    }
}

/* Heap sort: no recursion, no worst case, no libc whose ties could differ. */
static bool all_different(uint64_t *v, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) {
        sift_down(v, i, n);
    }
    for (size_t end = n; end-- > 1;) {
        uint64_t t = v[0];
        v[0] = v[end];
        v[end] = t;
        sift_down(v, 0, end);
    }
    for (size_t i = 1; i < n; i++) {
        if (v[i - 1] == v[i]) {
            return false;
        }
    }
    return true;
}

static bool timer_in(const struct pk_machine *m, const struct pk_timer *t,
                     const void *owner)
{
    return t != NULL && t->owner == owner && pk_timer_taken(m, t);
}

/* ---- claims and leases ---- */

static const char *check_part(const struct pk_claim *c, const struct pk_claim_part *p)
{
    DEMAND(pk_claim_of(p) == c, "I3: a part leads back to another claim");
    const struct pk_tree *in = c->token == 0 ? &p->lock->queue : &p->lock->holds;
    DEMAND(pk_tree_has(in, &p->node), "I3: a claim does not stand in its lock");
    DEMAND((p->mode == PK_SLOT) == (p->lock->slots > 0), "I8: a claim of another kind");
    return NULL;
}

static const char *check_claim(const struct pk_machine *m, const struct pk_lease *l,
                               const struct pk_claim *c, struct census *seen)
{
    DEMAND(c->lease == l, "I3: a claim of another lease");
    DEMAND(c->token <= m->last_token, "I2: a token that was never granted");
    DEMAND(c->seq > 0 && c->seq < m->next_seq, "I2: a claim from the future");
    DEMAND(c->since_ms <= m->clock, "I4: a claim that begins in the future");
    const struct pk_terms *t = pk_claim_terms(c);
    bool timed = c->token == 0 ? t->timer != NULL : t->max_hold_ms != 0;
    DEMAND(timed == (t->timer != NULL),
           "I4: a hold has a timer if and only if it has a max-hold");
    DEMAND(!timed || timer_in(m, t->timer, c), "I4: a claim's timer is not armed");
    DEMAND(!timed || (t->timer->kind == PK_TIMER_CLAIM && t->timer->id == c->seq),
           "I4: a claim's timer under another id");
    DEMAND(c->request == 0 || pk_replies_find(l->replies, c->request) == NULL,
           "R3: a request is both claimed and remembered");
    seen->items += pk_item_hash(PK_ITEM_CLAIM, c);
    seen->seqs[seen->stats.holds + seen->stats.waits] = c->seq;
    if (c->token == 0) {
        seen->stats.waits++;
    } else {
        seen->tokens[seen->stats.holds++] = c->token;
    }
    seen->timers += timed;
    seen->stats.stored_bytes += pk_blob_len(t->value);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        const char *wrong = check_part(c, &c->parts[i]);
        DEMAND(wrong == NULL, wrong);
        seen->parts_held += c->token != 0;
        seen->parts_waiting += c->token == 0;
    }
    return NULL;
}

/* I10 for a keyed lease whose claims are sound and counted. */
static const char *check_key(const struct pk_lease *l)
{
    DEMAND(l->n_holds == 1 && l->n_waits == 0,
           "I10: a keyed lease without its key alone");
    DEMAND(l->opened_by == 0, "I10: a keyed lease that a request opened");
    const struct pk_claim *c = PK_OWNER(pk_tree_first(&l->claims), struct pk_claim, node);
    DEMAND(c->n_parts == 1 && c->parts[0].mode == PK_EXCLUSIVE,
           "I10: a key is not one exclusive lock");
    const struct pk_terms *t = pk_claim_terms(c);
    DEMAND(c->request == 0 && t->max_hold_ms == 0 && t->lock_delay_ms == 0 &&
               c->place == 0,
           "I10: a key is not a plain hold");
    return NULL;
}

static const char *check_lease(const struct pk_machine *m, const struct pk_lease *l,
                               struct census *seen)
{
    DEMAND(l->id > 0 && l->id < m->next_lease, "I3: a lease id never given out");
    seen->stats.stored_bytes += pk_blob_len(l->label);
    if (pk_lease_has_ended(l)) {
        seen->ended++;
        seen->items += pk_item_hash(PK_ITEM_ENDED, l);
        DEMAND(l->ended_nth < m->next_ended, "I12: an end that was never counted");
        DEMAND(l->claims.root == NULL && l->replies == NULL && l->label == NULL,
               "I3: an ended lease still has something");
        return NULL;
    }
    seen->stats.leases += l->end == PK_END_NONE;
    DEMAND(l->end == PK_END_NONE || (l->replies == NULL && l->label == NULL && !l->keyed),
           "S5: a lease that is ending has more than claims");
    seen->deadlines++;
    seen->items += pk_item_hash(PK_ITEM_LEASE, l);
    DEMAND(pk_lease_is_armed(m, l), "I4: a live lease has no deadline");
    DEMAND(pk_tree_sound(&l->claims), "I9: a lease's claims");
    uint64_t holds = seen->stats.holds;
    uint64_t waits = seen->stats.waits;
    uint64_t request = 0;
    for (struct pk_node *n = pk_tree_first(&l->claims); n != NULL; n = pk_tree_next(n)) {
        const struct pk_claim *c = PK_OWNER(n, struct pk_claim, node);
        DEMAND(c->request > request || c->request == 0, "R1: two claims of one request");
        DEMAND(seen->stats.holds + seen->stats.waits < m->stats.holds + m->stats.waits,
               "I7: more claims than counted");
        DEMAND(c->token == 0 || seen->stats.holds < m->stats.holds,
               "I7: more holds than counted");
        request = c->request;
        const char *wrong = check_claim(m, l, c, seen);
        DEMAND(wrong == NULL, wrong);
    }
    DEMAND(l->n_holds == seen->stats.holds - holds &&
               l->n_waits == seen->stats.waits - waits,
           "I7: a lease's counts");
    return l->keyed ? check_key(l) : NULL;
}

/* ---- locks ---- */

/* Ready, and none of its locks will be settled by itself (S5). */
static bool is_stranded(const struct pk_claim *c)
{
    bool settles = false;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        settles = settles || c->parts[i].lock->timer != NULL;
    }
    return !settles && pk_claim_ready(c);
}

static const char *check_queue(const struct pk_lock *l, struct census *seen)
{
    uint64_t before = 0;
    uint32_t waits = 0;
    for (struct pk_node *n = pk_tree_first(&l->queue); n != NULL; n = pk_tree_next(n)) {
        const struct pk_claim *c = pk_claim_of(PK_OWNER(n, struct pk_claim_part, node));
        DEMAND(c->seq > before && c->token == 0, "I9: a queue out of order");
        before = c->seq;
        waits++;
    }
    DEMAND(waits == l->n_waits, "I7: a lock's waiters");
    seen->parts_waiting -= waits;
    struct pk_node *head = pk_tree_first(&l->queue);
    DEMAND(head == NULL ||
               !is_stranded(pk_claim_of(PK_OWNER(head, struct pk_claim_part, node))),
           "I5: a waiter that could be granted");
    return NULL;
}

static const char *check_holds(const struct pk_lock *l, struct census *seen)
{
    uint64_t before = 0;
    uint32_t holds = 0;
    uint32_t exclusive = 0;
    for (struct pk_node *n = pk_tree_first(&l->holds); n != NULL; n = pk_tree_next(n)) {
        const struct pk_claim_part *p = PK_OWNER(n, struct pk_claim_part, node);
        DEMAND(pk_claim_of(p)->token > before, "I9: holds out of order");
        before = pk_claim_of(p)->token;
        exclusive += p->mode == PK_EXCLUSIVE;
        holds++;
    }
    DEMAND(holds == l->n_holds, "I7: a lock's holders");
    DEMAND(exclusive == 0 || holds == 1, "I1: an exclusive holder is not alone");
    DEMAND(l->slots == 0 || holds <= l->slots, "I1: more holders than slots");
    seen->parts_held -= holds;
    return NULL;
}

static const char *check_lock(const struct pk_machine *m, const struct pk_lock *l,
                              struct census *seen)
{
    seen->stats.locks++;
    seen->stats.stored_bytes += l->name_len;
    seen->timers += l->timer != NULL;
    seen->timed += l->timer != NULL;
    seen->items += l->timer == NULL ? 0 : pk_item_hash(PK_ITEM_LOCK, l);
    DEMAND(!l->touched, "W1: a lock was left unsettled");
    DEMAND(l->n_holds + l->n_waits > 0 || pk_lock_is_closed(l), "I6: an idle lock");
    DEMAND(l->n_holds + l->n_waits > 0 || l->slots == 0, "I6: slots without a claim");
    DEMAND(l->timer == NULL || timer_in(m, l->timer, l), "I4: a lock's timer");
    DEMAND(pk_tree_sound(&l->holds) && pk_tree_sound(&l->queue), "I9: a lock's trees");
    const char *wrong = check_holds(l, seen);
    return wrong != NULL ? wrong : check_queue(l, seen);
}

/* ---- the whole ---- */

static const char *check_fences(const struct pk_machine *m, struct census *seen)
{
    struct pk_bytes before = {0};
    for (struct pk_node *n = pk_tree_first(&m->fences); n != NULL; n = pk_tree_next(n)) {
        const struct pk_fence *f = PK_OWNER(n, struct pk_fence, node);
        DEMAND(pk_bytes_compare(before, pk_fence_name(f)) < 0, "I9: fences out of order");
        DEMAND(f->token <= PK_TOKEN_MAX, "F5: a fence above all tokens");
        DEMAND(f->token > 0 || (f->request == 0 && f->value == NULL && f->shadowed == 0 &&
                                f->ends == NULL),
               "I11: a fence that nobody has claimed was used");
        DEMAND(f->shadow == (f->epoch % 2 == 1), "I13: a fence's mode and its epoch");
        DEMAND(f->ends == NULL || timer_in(m, f->ends, f), "I4: a fence's timer");
        before = pk_fence_name(f);
        seen->timers += f->ends != NULL;
        seen->items += pk_item_hash(PK_ITEM_FENCE, f);
        seen->stats.fences++;
        seen->stats.stored_bytes += f->name_len + (uint64_t)pk_blob_len(f->value);
    }
    return NULL;
}

static const char *check_nouns(const struct pk_machine *m, struct census *seen)
{
    const char *wrong = NULL;
    uint64_t id = 0;
    for (struct pk_node *n = pk_tree_first(&m->leases); n != NULL; n = pk_tree_next(n)) {
        const struct pk_lease *l = PK_OWNER(n, struct pk_lease, by_id);
        DEMAND(l->id > id, "I9: leases out of order");
        id = l->id;
        wrong = check_lease(m, l, seen);
        DEMAND(wrong == NULL, wrong);
    }
    struct pk_bytes before = {0};
    for (struct pk_node *n = pk_tree_first(&m->locks); n != NULL; n = pk_tree_next(n)) {
        const struct pk_lock *l = PK_OWNER(n, struct pk_lock, node);
        DEMAND(pk_bytes_compare(before, pk_lock_name(l)) < 0, "I9: locks out of order");
        before = pk_lock_name(l);
        wrong = check_lock(m, l, seen);
        DEMAND(wrong == NULL, wrong);
    }
    DEMAND(seen->parts_held == 0 && seen->parts_waiting == 0,
           "I3: claims that no lock knows");
    return check_fences(m, seen);
}

static const char *check_counts(const struct pk_machine *m, const struct census *seen)
{
    const struct pk_stats *a = &seen->stats;
    const struct pk_stats *b = &m->stats;
    DEMAND(a->leases == b->leases && a->locks == b->locks && a->fences == b->fences,
           "I7: leases, locks or fences miscounted");
    DEMAND(a->holds == b->holds && a->waits == b->waits, "I7: claims miscounted");
    DEMAND(a->stored_bytes == b->stored_bytes, "I7: stored bytes miscounted");
    DEMAND(m->last_token + b->waits <= PK_TOKEN_MAX, "I2: more waiters than tokens left");
    DEMAND(seen->ended == m->n_ended, "I7: ended leases miscounted");
    DEMAND(seen->timed == m->n_timed, "I7: locks with a timer miscounted");
    uint64_t timers = 0;
    uint64_t at = 0;
    for (struct pk_node *n = pk_tree_first(&m->timers); n != NULL; n = pk_tree_next(n)) {
        DEMAND(PK_OWNER(n, struct pk_timer, node)->at >= at, "I9: timers out of order");
        at = PK_OWNER(n, struct pk_timer, node)->at;
        timers++;
    }
    DEMAND(timers == seen->timers + (m->sweep != NULL), "I4: timers without an owner");
    uint64_t deadlines = 0;
    for (struct pk_node *n = pk_tree_first(&m->deadlines); n != NULL;
         n = pk_tree_next(n)) {
        deadlines++; /* that each is found by its key shows that they are in order */
    }
    DEMAND(deadlines == seen->deadlines, "I4: deadlines without a lease");
    DEMAND(pk_machine_next_deadline(m) > m->clock || m->work == 0,
           "I4: something is overdue");
    DEMAND(all_different(seen->tokens, a->holds), "I2: two claims share a token");
    DEMAND(all_different(seen->seqs, a->holds + a->waits), "I2: two claims share a seq");
    DEMAND(seen->items == m->items, "I12: the digest is not that of the state");
    return NULL;
}

const char *pk_machine_check(const struct pk_machine *m)
{
    DEMAND(m->n_touched == 0, "W1: locks were left unsettled");
    DEMAND(pk_tree_sound(&m->leases) && pk_tree_sound(&m->openings) &&
               pk_tree_sound(&m->locks) && pk_tree_sound(&m->fences) &&
               pk_tree_sound(&m->deadlines) && pk_tree_sound(&m->timers),
           "I9: a tree of the machine");
    struct census seen = {0};
    seen.tokens = pk_zeroed((m->stats.holds + 1) * sizeof *seen.tokens);
    seen.seqs = pk_zeroed((m->stats.holds + m->stats.waits + 1) * sizeof *seen.seqs);
    const char *wrong = check_nouns(m, &seen);
    if (wrong == NULL) {
        wrong = check_counts(m, &seen);
    }
    pk_door_resize(seen.tokens, 0);
    pk_door_resize(seen.seqs, 0);
    return wrong;
}
