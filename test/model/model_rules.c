/* SPDX-License-Identifier: MIT */
/* The model's rules that act on the state: repeats (R), settling (W), ending (E), time
 * (S2). */
#include "model_state.h"

#include <stdlib.h>

/* Makes room for one more element at the end of an array. */
void *grown(void *array, size_t count, size_t size)
{
    void *p = realloc(array, (count + 1) * size);
    if (p == NULL) {
        abort();
    }
    return p;
}

/* Closes the gap that element `at` leaves. */
static void removed(void *array, size_t *count, size_t size, size_t at)
{
    char *p = (char *)array + at * size;
    (*count)--;
    memmove(p, p + size, (*count - at) * size);
}

void free_claim(struct model_claim *c)
{
    free(c->value.data);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        free(c->parts[i].name.data);
    }
}

/* ---- repeats (R) ---- */

struct model_answer *find_answer(const struct model *m, uint64_t lease, uint64_t request)
{
    for (size_t i = 0; i < m->n_answers; i++) {
        if (m->answers[i].lease == lease && m->answers[i].request == request) {
            return &m->answers[i];
        }
    }
    return NULL;
}

/* R3: the oldest go until there are no more than the limit. */
static void forget_oldest(struct model *m, uint64_t lease)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->n_answers; i++) {
        kept += m->answers[i].lease == lease;
    }
    for (size_t i = 0; kept > m->limits.replies;) {
        if (m->answers[i].lease != lease) {
            i++;
            continue;
        }
        struct model_lease *owner = live_lease(m, lease);
        if (owner != NULL && m->answers[i].request > owner->forgotten) {
            owner->forgotten = m->answers[i].request;
        }
        removed(m->answers, &m->n_answers, sizeof *m->answers, i);
        kept--;
    }
}

void remember(struct model *m, const struct model_answer *a)
{
    if (a->request != 0) {
        m->answers = grown(m->answers, m->n_answers, sizeof *m->answers);
        m->answers[m->n_answers++] = *a;
        forget_oldest(m, a->lease);
    }
}

static void forget_lease_answers(struct model *m, uint64_t lease)
{
    for (size_t i = 0; i < m->n_answers;) {
        if (m->answers[i].lease == lease) {
            removed(m->answers, &m->n_answers, sizeof *m->answers, i);
        } else {
            i++;
        }
    }
}

/* ---- bounded work (S5) ---- */

static void work_done(struct model *m, uint64_t units)
{
    m->work = m->work < units ? 0 : m->work - units;
}

enum pk_end over(const struct model *m, const struct model_lease *l)
{
    return l->id < m->restored_below ? PK_END_RESTORED
           : l->deadline <= m->clock ? PK_END_EXPIRED
                                     : PK_END_NONE;
}

static bool is_settling(const struct model *m, struct pk_bytes name, size_t *at)
{
    for (*at = 0; *at < m->n_settlings; ++*at) {
        if (text_is(m->settlings[*at].name, name)) {
            return true;
        }
    }
    return false;
}

static void stop_settling(struct model *m, struct pk_bytes name)
{
    size_t at;
    if (is_settling(m, name, &at)) {
        free(m->settlings[at].name.data);
        removed(m->settlings, &m->n_settlings, sizeof *m->settlings, at);
    }
}

static void settle_later(struct model *m, struct pk_bytes name)
{
    size_t at;
    if (!is_settling(m, name, &at) && lock_closed_ms(m, name) == 0) {
        m->settlings = grown(m->settlings, m->n_settlings, sizeof *m->settlings);
        m->settlings[m->n_settlings++] = (struct model_settling){
            .name = text_from(name), .at = m->clock, .seq = m->next_seq++};
    }
}

/* ---- delivery (D) ---- */

uint32_t next_event(const struct model *m, uint64_t lease)
{
    struct model_lease *l = live_lease(m, lease);
    if (l == NULL) {
        return 0;
    }
    l->events = l->events == UINT32_MAX ? 1 : l->events + 1;
    return l->events;
}

/* ---- settling (W) and granting (G6) ---- */

static void touch(struct model *m, struct pk_bytes name)
{
    for (size_t i = 0; i < m->n_touched; i++) {
        if (text_is(m->touched[i], name)) {
            return;
        }
    }
    m->touched = grown(m->touched, m->n_touched, sizeof *m->touched);
    m->touched[m->n_touched++] = text_from(name);
}

static void touch_all(struct model *m, const struct model_claim *c)
{
    for (uint32_t i = 0; i < c->n_parts; i++) {
        touch(m, bytes_of(c->parts[i].name));
    }
}

/* G1 */
static bool compatible(const struct model *m, struct pk_bytes name, enum pk_mode mode,
                       uint32_t slots)
{
    struct model_claim *oldest = oldest_hold(m, name);
    if (lock_closed_ms(m, name) > 0) {
        return false;
    }
    switch (mode) {
    case PK_EXCLUSIVE:
        return oldest == NULL;
    case PK_SHARED: /* an exclusive hold would be the only one */
        return oldest == NULL || part_named(oldest, name)->mode != PK_EXCLUSIVE;
    case PK_SLOT:
        return lock_holders(m, name) < slots;
    case PK_MODE_NONE:
        break;
    }
    return false;
}

/* G2: the index of the first part that is in the way, or n_parts when the claim is
 * ready. */
uint32_t first_blocked(const struct model *m, const struct model_claim *c)
{
    uint32_t i = 0;
    while (i < c->n_parts) {
        const struct model_part *p = &c->parts[i];
        struct pk_bytes name = bytes_of(p->name);
        if (!compatible(m, name, p->mode, p->slots) ||
            waiters_before(m, name, c->seq) > 0) {
            break;
        }
        i++;
    }
    return i;
}

void grant(struct model *m, struct model_claim *c)
{
    uint32_t event = c->place > 0 ? next_event(m, c->lease) : 0;
    work_done(m, c->n_parts);
    c->held = true;
    c->token = ++m->last_token;
    uint64_t waited = m->clock - c->since;
    c->since = m->clock;
    c->timer = c->max_hold == 0 ? NEVER : m->clock + c->max_hold;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct pk_effect e = about_part(PK_EV_GRANTED, c, i);
        e.token = c->token;
        e.value = bytes_of(c->value);
        e.lasted_ms = waited;
        e.event = event;
        pk_effects_add(&m->events, &e);
    }
    touch_all(m, c);
}

static struct model_claim *head_of_queue(const struct model *m, struct pk_bytes name)
{
    for (size_t i = 0; i < m->n_claims; i++) {
        if (!m->claims[i].held && part_named(&m->claims[i], name) != NULL) {
            return &m->claims[i];
        }
    }
    return NULL;
}

/* Why a waiting claim will not be granted any more, although it still waits. */
static enum pk_end wait_over(const struct model *m, const struct model_claim *c)
{
    const struct model_lease *lease = known_lease(m, c->lease);
    if (lease == NULL) {
        return model_lease_end(m, c->lease);
    }
    if (over(m, lease) != PK_END_NONE) {
        return over(m, lease);
    }
    return c->timer <= m->clock ? PK_END_TIMED_OUT : PK_END_NONE;
}

/* Grants or ends the claim at the head of the lock's queue; false: neither can be. */
static bool can_move(const struct model *m, struct pk_bytes name,
                     struct model_claim **head)
{
    *head = head_of_queue(m, name);
    return *head != NULL && (wait_over(m, *head) != PK_END_NONE ||
                             first_blocked(m, *head) == (*head)->n_parts);
}

static void settle_one(struct model *m, struct pk_bytes name, bool first)
{
    struct model_claim *head;
    while (can_move(m, name, &head) && (first || m->work > 0)) {
        enum pk_end end = wait_over(m, head);
        if (end != PK_END_NONE) {
            end_claim_plainly(m, head, end);
        } else {
            grant(m, head);
        }
        first = false;
    }
    if (can_move(m, name, &head)) {
        settle_later(m, name);
    } else {
        stop_settling(m, name);
    }
}

void settle(struct model *m)
{
    for (size_t left = m->n_touched; m->n_touched > 0; left -= left > 0) {
        struct text name = m->touched[0];
        removed(m->touched, &m->n_touched, sizeof *m->touched, 0);
        settle_one(m, bytes_of(name), left > 0);
        free(name.data);
    }
}

/* ---- ending (E) ---- */

static void close_lock(struct model *m, struct pk_bytes name, uint64_t until)
{
    size_t i = 0;
    while (i < m->n_closings && !text_is(m->closings[i].name, name)) {
        i++;
    }
    if (i == m->n_closings) {
        stop_settling(m, name);
        m->closings = grown(m->closings, m->n_closings, sizeof *m->closings);
        m->closings[m->n_closings++] =
            (struct model_closing){.name = text_from(name), .seq = m->next_seq++};
    } else if (m->closings[i].until >= until) {
        return;
    }
    m->closings[i].until = until;
    struct pk_effect e = {
        .kind = PK_EV_CLOSED, .name = name, .closed_ms = until - m->clock};
    pk_effects_add(&m->events, &e);
}

static bool is_unclean(enum pk_end end)
{
    return end == PK_END_EXPIRED || end == PK_END_OVERHELD || end == PK_END_BROKEN ||
           end == PK_END_RESTORED;
}

/* E1; `by` and `why` only when broken. */
void end_claim(struct model *m, struct model_claim *at, enum pk_end end,
               struct pk_bytes by, struct pk_bytes why)
{
    struct model_claim c = *at;
    uint32_t event = next_event(m, c.lease);
    m->reply_event = event;
    work_done(m, c.n_parts);
    removed(m->claims, &m->n_claims, sizeof *m->claims, (size_t)(at - m->claims));
    for (uint32_t i = 0; i < c.n_parts; i++) {
        struct pk_effect e = about_part(c.held ? PK_EV_ENDED : PK_EV_LEFT, &c, i);
        e.token = c.token;
        e.end = end;
        e.by = by;
        e.why = why;
        e.lasted_ms = m->clock - c.since;
        e.event = event;
        pk_effects_add(&m->events, &e);
        if (c.held && c.lock_delay > 0 && is_unclean(end)) {
            close_lock(m, e.name, m->clock + c.lock_delay);
        }
    }
    touch_all(m, &c);
    if (live_lease(m, c.lease) != NULL) {
        struct model_answer a = {.lease = c.lease,
                                 .request = c.request,
                                 .verb = PK_LOCK_ACQUIRE,
                                 .end = end,
                                 .token = c.token};
        a.status = c.held ? PK_OK : end == PK_END_TIMED_OUT ? PK_TIMEOUT : PK_CANCELLED;
        remember(m, &a);
    }
    free_claim(&c);
}

void end_claim_plainly(struct model *m, struct model_claim *c, enum pk_end end)
{
    end_claim(m, c, end, pk_text(""), pk_text(""));
}

/* The claim of the lease that is first by (request, seq), or NULL. */
static struct model_claim *first_claim(const struct model *m, uint64_t lease)
{
    struct model_claim *first = NULL;
    for (size_t i = 0; i < m->n_claims; i++) {
        struct model_claim *c = &m->claims[i];
        if (c->lease == lease && (first == NULL || c->request < first->request)) {
            first = c; /* the walk is by seq, so the first of equal requests wins */
        }
    }
    return first;
}

static void trim_ended(struct model *m)
{
    for (int i = 0; i < 2 && m->n_ended > m->limits.ended; i++) {
        removed(m->ended, &m->n_ended, sizeof *m->ended, 0);
    }
}

/* Ends claims of a lease that is ending: one always, then as many as there is work for.
 */
static void go_on_ending(struct model *m, size_t at, struct pk_bytes by,
                         struct pk_bytes why)
{
    struct model_lease lease = m->ending[at];
    struct model_claim *c = first_claim(m, lease.id);
    for (bool first = true; c != NULL && (first || m->work > 0); first = false) {
        end_claim(m, c, lease.end, by, why);
        c = first_claim(m, lease.id);
    }
    if (c != NULL) {
        m->ending[at].deadline = m->clock;
        return;
    }
    removed(m->ending, &m->n_ending, sizeof *m->ending, at);
    m->ended = grown(m->ended, m->n_ended, sizeof *m->ended);
    m->ended[m->n_ended++] = lease;
    trim_ended(m);
}

/* L5; `by` and `why` only when broken. */
void end_lease(struct model *m, struct model_lease *at, enum pk_end end,
               struct pk_bytes by, struct pk_bytes why)
{
    struct model_lease lease = *at;
    removed(m->leases, &m->n_leases, sizeof *m->leases, (size_t)(at - m->leases));
    free(lease.label.data);
    lease.label = (struct text){NULL, 0};
    lease.end = end;
    work_done(m, 1);
    forget_lease_answers(m, lease.id);
    struct pk_effect e = {.kind = PK_EV_LEASE_ENDED, .lease = lease.id, .end = end};
    pk_effects_add(&m->events, &e);
    m->ending = grown(m->ending, m->n_ending, sizeof *m->ending);
    m->ending[m->n_ending++] = lease;
    go_on_ending(m, m->n_ending - 1, by, why);
}

void end_lease_plainly(struct model *m, struct model_lease *l, enum pk_end end)
{
    end_lease(m, l, end, pk_text(""), pk_text(""));
}

/* ---- time (S2) ---- */

void sweep(struct model *m)
{
    while (m->n_leases > 0 && m->leases[0].id < m->restored_below) {
        if (m->work == 0) {
            return;
        }
        end_lease_plainly(m, &m->leases[0], PK_END_RESTORED);
    }
    m->sweep = NEVER;
}

static void open_lock(struct model *m, size_t at)
{
    work_done(m, 1);
    struct text name = m->closings[at].name;
    removed(m->closings, &m->n_closings, sizeof *m->closings, at);
    struct pk_effect e = {.kind = PK_EV_OPENED, .name = bytes_of(name)};
    pk_effects_add(&m->events, &e);
    touch(m, bytes_of(name));
    free(name.data);
}

/* F10 */
static void end_fence(struct model *m, size_t at)
{
    work_done(m, 1);
    struct model_fence gone = m->fences[at];
    removed(m->fences, &m->n_fences, sizeof *m->fences, at);
    struct pk_effect e = {
        .kind = PK_EV_FENCE_ENDED, .name = bytes_of(gone.name), .token = gone.token};
    pk_effects_add(&m->events, &e);
    free(gone.name.data);
    free(gone.value.data);
}

static void end_due(struct model *m, int kind, size_t at);

/* Ends the first that is due by (time, kind, id); false when nothing is. */
static bool end_first_due(struct model *m)
{
    uint64_t time = NEVER;
    uint64_t id = NEVER;
    int kind = 0; /* 0: a lease that is ending, 1: lease, 2: claim, 3: lock, 4: fence,
                     5: a lock to settle, 6: the sweep */
    size_t at = 0;
    for (size_t i = 0; i < m->n_leases; i++) {
        const struct model_lease *l = &m->leases[i];
        if (l->deadline < time || (l->deadline == time && kind == 1 && l->id < id)) {
            time = l->deadline, kind = 1, id = l->id, at = i;
        }
    }
    for (size_t i = 0; i < m->n_ending; i++) {
        const struct model_lease *l = &m->ending[i];
        if (l->deadline < time || (l->deadline == time && l->id < id)) {
            time = l->deadline, kind = 0, id = l->id, at = i;
        }
    }
    for (size_t i = 0; i < m->n_claims; i++) {
        const struct model_claim *c = &m->claims[i];
        if (c->timer < time || (c->timer == time && kind == 2 && c->seq < id)) {
            time = c->timer, kind = 2, id = c->seq, at = i;
        }
    }
    for (size_t i = 0; i < m->n_closings; i++) {
        const struct model_closing *l = &m->closings[i];
        if (l->until < time || (l->until == time && kind == 3 && l->seq < id)) {
            time = l->until, kind = 3, id = l->seq, at = i;
        }
    }
    for (size_t i = 0; i < m->n_fences; i++) {
        const struct model_fence *f = &m->fences[i];
        if (f->ends < time || (f->ends == time && kind == 4 && f->seq < id)) {
            time = f->ends, kind = 4, id = f->seq, at = i;
        }
    }
    for (size_t i = 0; i < m->n_settlings; i++) {
        const struct model_settling *s = &m->settlings[i];
        if (s->at < time || (s->at == time && kind == 5 && s->seq < id)) {
            time = s->at, kind = 5, id = s->seq, at = i;
        }
    }
    if (m->sweep < time) {
        time = m->sweep, kind = 6;
    }
    if (time > m->clock) {
        return false;
    }
    end_due(m, kind, at);
    return true;
}

static void end_due(struct model *m, int kind, size_t at)
{
    if (kind == 0) {
        go_on_ending(m, at, pk_text(""), pk_text(""));
    } else if (kind == 1) {
        end_lease_plainly(m, &m->leases[at], over(m, &m->leases[at]));
    } else if (kind == 2) {
        struct model_claim *c = &m->claims[at];
        end_claim_plainly(m, c, c->held ? PK_END_OVERHELD : PK_END_TIMED_OUT);
    } else if (kind == 3) {
        open_lock(m, at);
    } else if (kind == 4) {
        end_fence(m, at);
    } else if (kind == 5) {
        struct text name = text_from(bytes_of(m->settlings[at].name));
        work_done(m, 1);
        stop_settling(m, bytes_of(name));
        touch(m, bytes_of(name));
        free(name.data);
    } else {
        sweep(m);
    }
}

void pass_time(struct model *m, const struct pk_command *c)
{
    bool slice = c->stamp_ms > m->clock || c->verb == PK_TICK || c->verb == PK_LEAP;
    m->clock = c->stamp_ms > m->clock ? c->stamp_ms : m->clock;
    m->work = slice ? m->limits.step_work : m->work;
    while (m->work > 0 && end_first_due(m)) {
    }
    settle(m);
}
