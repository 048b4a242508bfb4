/* SPDX-License-Identifier: MIT */
/* The step: time first, then permission, then the verb, then whoever can be woken. */
#include "core/machine.h"

#include "core/door.h"
#include "core/state.h"
#include "core/version.h"
#include "core/wire.h"

/* ---- memory ---- */

void *pk_zeroed(size_t size)
{
    void *p = pk_door_resize(NULL, size);
    memset(p, 0, size);
    return p;
}

struct pk_blob *pk_blob_new(struct pk_machine *m, struct pk_bytes b)
{
    if (b.len == 0) {
        return NULL;
    }
    struct pk_blob *blob = pk_pool_take(&m->pool, sizeof *blob + b.len);
    blob->len = b.len;
    memcpy(blob->data, b.data, b.len);
    m->stats.stored_bytes += b.len;
    return blob;
}

void pk_blob_free(struct pk_machine *m, struct pk_blob *b)
{
    if (b != NULL) {
        PK_ASSERT(m->stats.stored_bytes >= b->len);
        m->stats.stored_bytes -= b->len;
        pk_pool_give(&m->pool, b, sizeof *b + b->len);
    }
}

uint32_t pk_blob_len(const struct pk_blob *b)
{
    return b == NULL ? 0 : b->len;
}

struct pk_bytes pk_blob_bytes(const struct pk_blob *b)
{
    return b == NULL ? pk_bytes("", 0) : pk_bytes(b->data, b->len);
}

bool pk_room_for(const struct pk_machine *m, uint64_t more)
{
    return more == 0 || m->stats.stored_bytes + more <= m->limits.stored_bytes;
}

/* ---- timers ---- */

static int order_timer(const void *key, const struct pk_node *node)
{
    const struct pk_timer *a = key;
    const struct pk_timer *b = PK_OWNER(node, struct pk_timer, node);
    if (a->at != b->at) {
        return a->at < b->at ? -1 : 1;
    }
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    return (a->id > b->id) - (a->id < b->id);
}

void pk_timer_arm(struct pk_machine *m, struct pk_timer *t, uint64_t at)
{
    t->at = at;
    bool in = pk_tree_insert(&m->timers, &t->node, t, order_timer);
    PK_ASSERT(in);
}

bool pk_timer_taken(const struct pk_machine *m, const struct pk_timer *key)
{
    return pk_tree_find(&m->timers, key, order_timer) != NULL;
}

void pk_timer_disarm(struct pk_machine *m, struct pk_timer *t)
{
    pk_tree_erase(&m->timers, &t->node);
}

struct pk_timer *pk_timer_new(struct pk_machine *m, enum pk_timer_kind kind, uint64_t id,
                              void *owner, uint64_t at)
{
    struct pk_timer *t = pk_pool_zeroed(&m->pool, sizeof *t);
    t->kind = kind;
    t->id = id;
    t->owner = owner;
    pk_timer_arm(m, t, at);
    return t;
}

void pk_timer_free(struct pk_machine *m, struct pk_timer *t)
{
    if (t != NULL) {
        pk_timer_disarm(m, t);
        pk_pool_give(&m->pool, t, sizeof *t);
    }
}

bool pk_timer_is_due(const struct pk_machine *m, const struct pk_timer *t)
{
    return t->at <= m->clock;
}

uint64_t pk_time_left(const struct pk_machine *m, uint64_t at)
{
    uint64_t now = m->as_of_ms > m->clock ? m->as_of_ms : m->clock;
    return at > now ? at - now : 1;
}

uint64_t pk_timer_left(const struct pk_machine *m, const struct pk_timer *t)
{
    return t == NULL ? 0 : pk_time_left(m, t->at);
}

void pk_work_done(struct pk_machine *m, uint32_t units)
{
    m->work = m->work > units ? m->work - units : 0;
}

/* E5: ends the leases of before the restore, by id. */
static void sweep(struct pk_machine *m)
{
    struct pk_node *n = pk_lease_seek(m, m->swept_below);
    while (n != NULL && PK_OWNER(n, struct pk_lease, by_id)->id < m->restored_below) {
        struct pk_lease *l = PK_OWNER(n, struct pk_lease, by_id);
        m->swept_below = l->id;
        if (l->end == PK_END_NONE) {
            if (m->work == 0) {
                return;
            }
            pk_lease_end(m, l, &(struct pk_ending){.why = PK_END_RESTORED});
        }
        n = pk_tree_next(n); /* only now: the end may forget others, but not this one */
    }
    pk_timer_free(m, m->sweep);
    m->sweep = NULL;
}

static void timer_due(struct pk_machine *m, struct pk_timer *t)
{
    switch (t->kind) {
    case PK_TIMER_CLAIM: {
        struct pk_claim *c = t->owner;
        enum pk_end why = c->token == 0 ? PK_END_TIMED_OUT : PK_END_OVERHELD;
        (void)pk_claim_end(m, c, &(struct pk_ending){.why = why});
        break;
    }
    case PK_TIMER_LOCK:
    case PK_TIMER_SETTLE:
        pk_lock_due(m, t->owner);
        break;
    case PK_TIMER_FENCE:
        pk_fence_ended(m, t->owner);
        break;
    case PK_TIMER_SWEEP:
        sweep(m);
        break;
    }
}

/* What is due next ends; false: nothing is due. At one instant leases end first. */
static bool next_due(struct pk_machine *m)
{
    struct pk_node *d = pk_tree_first(&m->deadlines);
    struct pk_node *n = pk_tree_first(&m->timers);
    struct pk_lease *l = d == NULL ? NULL : PK_OWNER(d, struct pk_lease, by_deadline);
    struct pk_timer *t = n == NULL ? NULL : PK_OWNER(n, struct pk_timer, node);
    if (l != NULL && l->deadline_ms <= m->clock &&
        (t == NULL || l->deadline_ms <= t->at)) {
        pk_lease_end(m, l, &(struct pk_ending){.why = pk_lease_over(m, l)});
        return true;
    }
    if (t != NULL && pk_timer_is_due(m, t)) {
        timer_due(m, t);
        return true;
    }
    return false;
}

/* S2, S5. What is due ends before anybody is woken, so nothing is granted to the overdue.
 */
static void advance(struct pk_machine *m, const struct pk_command *c)
{
    bool moves = c->stamp_ms > m->clock;
    if (moves) {
        m->clock = c->stamp_ms;
    }
    if (moves || c->verb == PK_TICK || c->verb == PK_LEAP) {
        m->work = m->limits.step_work;
    }
    while (m->work > 0 && next_due(m)) {
    }
    pk_locks_settle(m);
}

/* ---- effects ---- */

struct pk_effect *pk_reply(struct pk_machine *m, const struct pk_command *c,
                           enum pk_status s)
{
    struct pk_effect e = {.kind = PK_REPLY,
                          .verb = c->verb,
                          .status = s,
                          .lease = c->lease,
                          .request = c->request};
    return pk_effects_add(m->out, &e);
}

void pk_reply_limit(struct pk_machine *m, const struct pk_command *c, const char *limit)
{
    /* The names are literals, so they outlive the list as its own copies would. */
    pk_reply(m, c, PK_LIMIT)->why = pk_text(limit);
}

void pk_event(struct pk_machine *m, struct pk_effect from)
{
    pk_effects_add(m->out, &from);
}

/* ---- remembered answers ---- */

static struct pk_answer *answer_at(struct pk_replies *r, uint32_t i)
{
    return &r->ring[(r->first + i) % r->capacity];
}

const struct pk_answer *pk_replies_at(const struct pk_replies *r, uint32_t i)
{
    return &r->ring[(r->first + i) % r->capacity];
}

uint32_t pk_replies_count(const struct pk_replies *r)
{
    return r == NULL ? 0 : r->count;
}

uint64_t pk_replies_forgotten(const struct pk_replies *r)
{
    return r == NULL ? 0 : r->forgotten;
}

uint32_t pk_replies_events(const struct pk_replies *r)
{
    return r == NULL ? 0 : r->events;
}

const struct pk_answer *pk_replies_find(const struct pk_replies *r, uint64_t request)
{
    for (uint32_t i = 0; i < pk_replies_count(r); i++) {
        if (pk_replies_at(r, i)->request == request) {
            return pk_replies_at(r, i);
        }
    }
    return NULL;
}

/* The hash of the answers is a number whose digits are their hashes, oldest first: one
 * that comes or goes costs its own hash, however many are remembered. */
#define HASH_BASE UINT64_C(0x9fb21c651e98df25)

static uint64_t answer_hash(const struct pk_answer *a)
{
    uint64_t h = pk_hash(pk_hash(0, a->request), a->token);
    return pk_hash_end(pk_hash(pk_hash(pk_hash(h, a->verb), a->status), a->end));
}

uint64_t pk_replies_hash(const struct pk_replies *r)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < pk_replies_count(r); i++) {
        hash = hash * HASH_BASE + answer_hash(pk_replies_at(r, i));
    }
    return hash;
}

/* Gives the ring room for `capacity` answers, oldest first. */
static void replies_resize(struct pk_replies **r, uint32_t capacity)
{
    struct pk_replies *old = *r;
    struct pk_replies *to = pk_zeroed(sizeof *to + capacity * sizeof to->ring[0]);
    to->capacity = capacity;
    to->count = pk_replies_count(old);
    to->forgotten = pk_replies_forgotten(old);
    to->events = pk_replies_events(old);
    to->hash = old == NULL ? 0 : old->hash;
    for (uint32_t i = 0; old != NULL && i < old->count; i++) {
        to->ring[i] = *answer_at(old, i);
    }
    pk_door_resize(old, 0);
    *r = to;
}

static void drop_oldest(struct pk_replies *r)
{
    const struct pk_answer *oldest = answer_at(r, 0);
    uint64_t digit = answer_hash(oldest);
    for (uint32_t i = 1; i < r->count; i++) {
        digit *= HASH_BASE;
    }
    r->hash -= digit;
    r->forgotten = oldest->request > r->forgotten ? oldest->request : r->forgotten;
    r->first = (r->first + 1) % r->capacity;
    r->count--;
}

void pk_replies_add(struct pk_replies **r, uint32_t limit, struct pk_answer a)
{
    PK_ASSERT(limit > 0);
    while (*r != NULL && (*r)->count >= limit) {
        drop_oldest(*r);
    }
    if (*r == NULL || (*r)->count == (*r)->capacity) {
        uint32_t twice = *r == NULL ? 1 : (*r)->capacity * 2;
        replies_resize(r, twice < limit ? twice : limit);
    }
    PK_ASSERT(*r != NULL && (*r)->count < (*r)->capacity);
    (*r)->count++;
    *answer_at(*r, (*r)->count - 1) = a;
    (*r)->hash = (*r)->hash * HASH_BASE + answer_hash(&a);
}

void pk_replies_forget(struct pk_replies **r, uint64_t request)
{
    if (request != 0) {
        if (*r == NULL) {
            replies_resize(r, 1);
        }
        (*r)->forgotten = request;
    }
}

void pk_replies_set_events(struct pk_replies **r, uint32_t events)
{
    if (events != 0) {
        if (*r == NULL) {
            replies_resize(r, 1);
        }
        (*r)->events = events;
    }
}

void pk_replies_free(struct pk_replies **r)
{
    pk_door_resize(*r, 0);
    *r = NULL;
}

/* ---- permission ---- */

bool pk_authorize(const struct pk_machine *m, struct pk_bytes principal,
                  enum pk_verb verb, struct pk_bytes name)
{
    /* Everybody may do everything until access rules are part of the replicated state. */
    (void)m;
    (void)principal;
    (void)verb;
    (void)name;
    return true;
}

static bool authorized(const struct pk_machine *m, const struct pk_command *c)
{
    for (uint32_t i = 0; i < c->n_parts; i++) {
        if (!pk_authorize(m, c->principal, c->verb, c->parts[i].name)) {
            return false;
        }
    }
    return c->n_parts > 0 || pk_authorize(m, c->principal, c->verb, c->name);
}

/* ---- verbs without a noun of their own ---- */

static void tick(struct pk_machine *m, const struct pk_command *c)
{
    pk_reply(m, c, PK_OK);
}

/* R2: answers a repeat of a request that has no lease, and returns true. */
static bool repeated(struct pk_machine *m, const struct pk_command *c)
{
    const struct pk_answer *a =
        c->request == 0 ? NULL : pk_replies_find(m->replies, c->request);
    if (a == NULL) {
        return false;
    }
    if (a->verb != c->verb) {
        pk_reply(m, c, PK_BADARG)->why =
            pk_text("the request id belongs to another command");
    } else {
        pk_reply(m, c, (enum pk_status)a->status)->token = a->token;
    }
    return true;
}

static void remember(struct pk_machine *m, const struct pk_effect *reply)
{
    if (reply->request != 0) {
        struct pk_answer a = {.request = reply->request,
                              .token = reply->token,
                              .verb = (uint8_t)reply->verb,
                              .status = (uint8_t)reply->status};
        pk_replies_add(&m->replies, m->limits.replies, a);
    }
}

/* R2: the verbs whose requests have no lease to remember their answers. */
static bool is_leaseless(enum pk_verb v)
{
    return v == PK_CONFIGURE || v == PK_LEAP || v == PK_LOCK_BREAK || v == PK_SET_VERSION;
}

static void configure(struct pk_machine *m, const struct pk_command *c)
{
    pk_limits_change(&m->limits, &c->limits); /* C1 */
    pk_reply(m, c, PK_OK);
}

/* E5. A backup may be older than tokens that were given out after it; 2^32 grants later
 * is certainly past them all (P2), and so it is above a token that the caller names. So
 * are the ids of leases: one of after the backup must not come back as somebody else's,
 * whom its old owner would then renew, or close. */
static void leap(struct pk_machine *m, const struct pk_command *c)
{
    uint64_t from = c->token > m->last_token ? c->token : m->last_token;
    if (from + PK_TOKEN_LEAP + m->stats.waits > PK_TOKEN_MAX) {
        pk_reply_limit(m, c, "tokens");
        return;
    }
    m->last_token = from + PK_TOKEN_LEAP;
    m->next_lease = m->next_lease > m->last_token ? m->next_lease : m->last_token;
    pk_reply(m, c, PK_OK)->token = m->last_token;
    pk_event(m, (struct pk_effect){.kind = PK_EV_LEAPT, .token = m->last_token});
    m->restored_below = m->next_lease;
    m->swept_below = 0;
    if (m->sweep == NULL) {
        m->sweep = pk_timer_new(m, PK_TIMER_SWEEP, 0, m, m->clock);
    }
    sweep(m);
}

/* NULL, or why the state can't be lowered to that version (N3): a version that adds
 * something to the state looks for it here. */
static const char *lowering_wrong(const struct pk_machine *m, uint32_t version)
{
    (void)m;
    (void)version;
    return NULL;
}

static void set_version(struct pk_machine *m, const struct pk_command *c)
{
    uint32_t to = (uint32_t)c->version;
    const char *wrong = NULL;
    if (to + 1 < m->version || to > m->version + 1) {
        wrong = "the cluster version is raised and lowered by one at a time";
    } else if (!pk_version_runs(to)) {
        wrong = "this release does not run that cluster version";
    } else if (to < m->version) {
        wrong = lowering_wrong(m, to);
    }
    if (wrong != NULL) {
        pk_reply(m, c, PK_BADARG)->why = pk_text(wrong);
        return;
    }
    m->version = to;
    m->held = (c->flags & PK_VERSION_HOLD) != 0;
    pk_reply(m, c, PK_OK);
}

/* N4. The leader refuses such a command before; but the version may have been lowered
 * since. */
static bool is_too_new(const struct pk_machine *m, const struct pk_command *c)
{
    return c->verb != PK_SET_VERSION && pk_command_needs(c) > m->version;
}

static void run(struct pk_machine *m, const struct pk_command *c)
{
    typedef void verb_fn(struct pk_machine *, const struct pk_command *);
    static verb_fn *const verbs[PK_VERB_COUNT] = {
        [PK_TICK] = tick,
        [PK_CONFIGURE] = configure,
        [PK_LEAP] = leap,
        [PK_LEASE_OPEN] = pk_lease_open,
        [PK_LEASE_RENEW] = pk_lease_renew,
        [PK_LEASE_CLOSE] = pk_lease_close,
        [PK_LEASE_SHOW] = pk_lease_show,
        [PK_LOCK_ACQUIRE] = pk_lock_acquire,
        [PK_LOCK_CANCEL] = pk_lock_cancel,
        [PK_LOCK_RELEASE] = pk_lock_release,
        [PK_LOCK_VALUE] = pk_lock_value,
        [PK_LOCK_BREAK] = pk_lock_break,
        [PK_LOCK_SHOW] = pk_lock_show,
        [PK_LOCK_LIST] = pk_lock_list,
        [PK_FENCE_CLAIM] = pk_fence_claim,
        [PK_FENCE_CHECK] = pk_fence_check,
        [PK_FENCE_SET] = pk_fence_set,
        [PK_FENCE_GET] = pk_fence_get,
        [PK_KEY_TAKE] = pk_key_take,
        [PK_KEY_KEEP] = pk_key_keep,
        [PK_KEY_DROP] = pk_key_drop,
        [PK_FENCE_MODE] = pk_fence_mode,
        [PK_FENCE_SHOW] = pk_fence_show,
        [PK_SET_VERSION] = set_version,
    };
    uint32_t reply = m->out->count;
    if (!is_leaseless(c->verb)) {
        verbs[c->verb](m, c);
    } else if (!repeated(m, c)) {
        verbs[c->verb](m, c);
        remember(m, &m->out->list[reply]);
    }
}

/* S3, S4 */
static void run_if_allowed(struct pk_machine *m, const struct pk_command *c)
{
    if (is_too_new(m, c)) {
        pk_reply(m, c, PK_BADARG)->why =
            pk_text("the cluster version is too low for this command");
    } else if (authorized(m, c)) {
        run(m, c);
    } else {
        pk_reply(m, c, PK_DENIED);
    }
}

void pk_machine_step(struct pk_machine *m, const struct pk_command *c,
                     struct pk_effects *out)
{
    m->out = out;
    const char *wrong = pk_command_wrong(c);
    if (wrong != NULL) {
        pk_reply(m, c, PK_BADARG)->why = pk_text(wrong);
    } else {
        advance(m, c);
        run_if_allowed(m, c);
        pk_locks_settle(m);
    }
    m->out = NULL;
}

void pk_machine_read(struct pk_machine *m, const struct pk_command *c,
                     struct pk_effects *out)
{
    PK_ASSERT(pk_command_is_read(c));
    m->out = out;
    m->as_of_ms = c->stamp_ms;
    const char *wrong = pk_command_wrong(c);
    if (wrong != NULL) {
        pk_reply(m, c, PK_BADARG)->why = pk_text(wrong);
    } else {
        run_if_allowed(m, c);
    }
    PK_ASSERT(m->n_touched == 0); /* nothing has changed that others could wait for */
    m->as_of_ms = 0;
    m->out = NULL;
}

/* ---- questions ---- */

struct pk_machine *pk_machine_new(void)
{
    struct pk_machine *m = pk_zeroed(sizeof *m);
    m->next_lease = 1;
    m->next_seq = 1;
    m->next_ended = 1;
    m->restored_below = 1;
    m->version = PK_VERSION_OLDEST;
    m->limits = pk_limits_default();
    m->work = m->limits.step_work;
    return m;
}

/* Frees one claim, lease, lock or fence. False: there is none left. */
static bool free_one(struct pk_machine *m)
{
    struct pk_node *n = pk_tree_first(&m->leases);
    if (n != NULL) {
        struct pk_lease *l = PK_OWNER(n, struct pk_lease, by_id);
        struct pk_node *claim = pk_tree_first(&l->claims);
        if (claim != NULL) {
            pk_claim_free(m, PK_OWNER(claim, struct pk_claim, node));
        } else {
            pk_lease_free(m, l);
        }
    } else if ((n = pk_tree_first(&m->locks)) != NULL) {
        pk_lock_free(m, PK_OWNER(n, struct pk_lock, node));
    } else if ((n = pk_tree_first(&m->fences)) != NULL) {
        pk_fence_free(m, PK_OWNER(n, struct pk_fence, node));
    }
    return n != NULL;
}

bool pk_machine_free_some(struct pk_machine *m, uint32_t count)
{
    enum { BYTES_OF_ONE = 4096 }; /* freeing so many costs as much as a small thing */
    while (count > 0) {
        uint64_t stored = m->stats.stored_bytes;
        if (!free_one(m)) {
            pk_timer_free(m, m->sweep);
            pk_view_end(m);
            pk_replies_free(&m->replies);
            pk_door_resize(m->touched, 0);
            pk_pool_end(&m->pool);
            pk_door_resize(m, 0);
            return true;
        }
        uint64_t cost = 1 + (stored - m->stats.stored_bytes) / BYTES_OF_ONE;
        count -= cost < count ? (uint32_t)cost : count;
    }
    return false;
}

void pk_machine_free(struct pk_machine *m)
{
    while (m != NULL && !pk_machine_free_some(m, UINT32_MAX)) {
    }
}

uint64_t pk_machine_clock(const struct pk_machine *m)
{
    return m->clock;
}

uint64_t pk_machine_next_deadline(const struct pk_machine *m)
{
    struct pk_node *d = pk_tree_first(&m->deadlines);
    struct pk_node *n = pk_tree_first(&m->timers);
    uint64_t lease =
        d == NULL ? UINT64_MAX : PK_OWNER(d, struct pk_lease, by_deadline)->deadline_ms;
    uint64_t timer = n == NULL ? UINT64_MAX : PK_OWNER(n, struct pk_timer, node)->at;
    return lease < timer ? lease : timer;
}

uint64_t pk_machine_last_token(const struct pk_machine *m)
{
    return m->last_token;
}

uint32_t pk_machine_version(const struct pk_machine *m)
{
    return m->version;
}

bool pk_machine_version_is_held(const struct pk_machine *m)
{
    return m->held;
}

struct pk_limits pk_machine_limits(const struct pk_machine *m)
{
    return m->limits;
}

struct pk_stats pk_machine_stats(const struct pk_machine *m)
{
    return m->stats;
}

enum pk_claim_state pk_machine_claim(const struct pk_machine *m, uint64_t lease,
                                     uint64_t request, uint64_t *token)
{
    const struct pk_lease *l = pk_lease_find(m, lease);
    bool alive = l != NULL && pk_lease_over(m, l) == PK_END_NONE;
    const struct pk_claim *c = alive ? pk_lease_claim(l, request) : NULL;
    if (c == NULL) {
        return PK_CLAIM_NONE;
    }
    *token = c->token;
    return c->token == 0 ? PK_CLAIM_WAITING : PK_CLAIM_HELD;
}

enum pk_end pk_machine_lease_end(const struct pk_machine *m, uint64_t lease)
{
    const struct pk_lease *l = pk_lease_find(m, lease);
    return l == NULL ? PK_END_FORGOTTEN : pk_lease_over(m, l);
}

uint32_t pk_machine_lease_events(const struct pk_machine *m, uint64_t lease)
{
    const struct pk_lease *l = pk_lease_find(m, lease);
    return l == NULL ? 0 : pk_replies_events(l->replies);
}
