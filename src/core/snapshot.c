/* SPDX-License-Identifier: MIT */
/*
 * The state as bytes, and back.
 *
 *     "PKSN"  version (1 byte)
 *     clock  last_token  next_lease  next_seq  limits  the machine's remembered answers
 *     n, then the live leases by id:
 *         id  ttl  deadline  opened_by  forgotten  keyed (1 byte)  label  answers
 *         n, then its claims by (request, seq):
 *             request  seq  token  since  max_hold  lock_delay  place  timer (0: none)
 *             value
 *             n, then its parts in order: name  mode (1 byte)  slots
 *     n, then the ended leases, oldest first: id  why (1 byte)  opened_by
 *     n, then the closed locks by name: name  until  id
 *     n, then the fences by name:
 *         name  token  request  shadow (1 byte)  shadowed  value
 *         until (0: for good), and unless 0: id
 *     digest of all bytes before it (8 bytes, little endian)
 *
 * Integers are varints, strings a length and bytes (wire.h). Everything is in the order
 * of a tree or a list of the state and every integer has one form, so equal states give
 * equal bytes. Restore accepts exactly what snapshot can write, and asks check.c in the
 * end.
 */
#include "core/door.h"
#include "core/state.h"
#include "core/wire.h"

static const char magic[] = {'P', 'K', 'S', 'N'};
enum {
    VERSION = 3, /* 2: keyed leases; 3: mode and end of fences */
    DIGEST_BYTES = 8,
};

/* ---- writing ---- */

static void write_replies(struct pk_writer *w, const struct pk_replies *r)
{
    pk_write_uint(w, r->count);
    for (uint32_t i = 0; i < r->count; i++) {
        const struct pk_answer *a = &r->ring[(r->first + i) % r->capacity];
        pk_write_uint(w, a->request);
        pk_write_uint(w, a->token);
        pk_write_byte(w, a->verb);
        pk_write_byte(w, a->status);
    }
}

static void write_claim(struct pk_writer *w, const struct pk_claim *c)
{
    pk_write_uint(w, c->request);
    pk_write_uint(w, c->seq);
    pk_write_uint(w, c->token);
    pk_write_uint(w, c->since_ms);
    pk_write_uint(w, c->max_hold_ms);
    pk_write_uint(w, c->lock_delay_ms);
    pk_write_uint(w, c->place);
    pk_write_uint(w, c->timer == NULL ? 0 : c->timer->at);
    pk_write_bytes(w, pk_blob_bytes(c->value));
    pk_write_uint(w, c->n_parts);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        pk_write_bytes(w, pk_lock_name(c->parts[i].lock));
        pk_write_byte(w, c->parts[i].mode);
        pk_write_uint(w, c->parts[i].lock->slots);
    }
}

static void write_lease(struct pk_writer *w, const struct pk_lease *l)
{
    pk_write_uint(w, l->id);
    pk_write_uint(w, l->ttl_ms);
    pk_write_uint(w, l->timer.at);
    pk_write_uint(w, l->opened_by);
    pk_write_uint(w, l->forgotten);
    pk_write_byte(w, l->keyed);
    pk_write_bytes(w, pk_blob_bytes(l->label));
    write_replies(w, &l->replies);
    pk_write_uint(w, l->n_holds + (uint64_t)l->n_waits);
    for (struct pk_node *n = pk_tree_first(&l->claims); n != NULL; n = pk_tree_next(n)) {
        write_claim(w, PK_OWNER(n, struct pk_claim, node));
    }
}

static void write_leases(struct pk_writer *w, const struct pk_machine *m)
{
    pk_write_uint(w, m->stats.leases);
    for (struct pk_node *n = pk_tree_first(&m->leases); n != NULL; n = pk_tree_next(n)) {
        const struct pk_lease *l = PK_OWNER(n, struct pk_lease, by_id);
        if (l->end == PK_END_NONE) {
            write_lease(w, l);
        }
    }
    pk_write_uint(w, m->n_ended);
    for (const struct pk_lease *l = m->ended_first; l != NULL; l = l->next_ended) {
        pk_write_uint(w, l->id);
        pk_write_byte(w, l->end);
        pk_write_uint(w, l->opened_by);
    }
}

static void write_closed_locks(struct pk_writer *w, const struct pk_machine *m)
{
    uint32_t left = m->n_closed; /* mostly none: then there is nothing to walk for */
    pk_write_uint(w, left);
    for (struct pk_node *n = pk_tree_first(&m->locks); left > 0; n = pk_tree_next(n)) {
        const struct pk_lock *l = PK_OWNER(n, struct pk_lock, node);
        if (l->closed != NULL) {
            pk_write_bytes(w, pk_lock_name(l));
            pk_write_uint(w, l->closed->at);
            pk_write_uint(w, l->closed->id);
            left--;
        }
    }
}

static void write_fences(struct pk_writer *w, const struct pk_machine *m)
{
    pk_write_uint(w, m->stats.fences);
    for (struct pk_node *n = pk_tree_first(&m->fences); n != NULL; n = pk_tree_next(n)) {
        const struct pk_fence *f = PK_OWNER(n, struct pk_fence, node);
        pk_write_bytes(w, pk_fence_name(f));
        pk_write_uint(w, f->token);
        pk_write_uint(w, f->request);
        pk_write_byte(w, f->shadow);
        pk_write_uint(w, f->shadowed);
        pk_write_bytes(w, pk_blob_bytes(f->value));
        pk_write_uint(w, f->ends == NULL ? 0 : f->ends->at);
        if (f->ends != NULL) {
            pk_write_uint(w, f->ends->id);
        }
    }
}

static void write_state(struct pk_writer *w, const struct pk_machine *m)
{
    pk_write_raw(w, magic, sizeof magic);
    pk_write_byte(w, VERSION);
    pk_write_uint(w, m->clock);
    pk_write_uint(w, m->last_token);
    pk_write_uint(w, m->next_lease);
    pk_write_uint(w, m->next_seq);
    pk_limits_write(w, &m->limits);
    write_replies(w, &m->replies);
    write_leases(w, m);
    write_closed_locks(w, m);
    write_fences(w, m);
}

size_t pk_machine_snapshot(const struct pk_machine *m, unsigned char **out)
{
    struct pk_writer measure = {0};
    write_state(&measure, m);
    unsigned char *bytes = pk_door_resize(NULL, measure.len + DIGEST_BYTES);
    struct pk_writer w = {.out = bytes, .digesting = true, .digest = PK_DIGEST_START};
    write_state(&w, m);
    PK_ASSERT(w.len == measure.len);
    pk_put_u64(bytes + w.len, w.digest);
    *out = bytes;
    return w.len + DIGEST_BYTES;
}

uint64_t pk_machine_digest(const struct pk_machine *m)
{
    struct pk_writer w = {.digesting = true, .digest = PK_DIGEST_START};
    write_state(&w, m);
    return w.digest;
}

/* ---- reading ---- */

/* Marks the input as flawed unless `ok`; returns whether it is still good. */
static bool demand(struct pk_reader *r, bool ok)
{
    r->bad = r->bad || !ok;
    return !r->bad;
}

static bool read_flag(struct pk_reader *r)
{
    unsigned flag = pk_read_byte(r);
    return demand(r, flag <= 1) && flag == 1;
}

static struct pk_bytes read_name(struct pk_reader *r)
{
    struct pk_bytes name = pk_read_bytes(r, PK_NAME_MAX);
    demand(r, pk_name_wrong(name) == NULL);
    return name;
}

static void read_replies(struct pk_reader *r, struct pk_replies *to)
{
    uint64_t n = pk_read_uint(r);
    uint64_t unused = 0;
    for (uint64_t i = 0; i < n && !r->bad; i++) {
        struct pk_answer a = {0};
        a.request = pk_read_ranged(r, 1, UINT64_MAX);
        a.token = pk_read_ranged(r, 0, PK_TOKEN_MAX);
        unsigned verb = pk_read_byte(r);
        unsigned status = pk_read_byte(r);
        if (demand(r, verb < PK_VERB_COUNT && status < PK_STATUS_COUNT)) {
            a.verb = (enum pk_verb)verb;
            a.status = (enum pk_status)status;
            pk_replies_add(to, UINT32_MAX, a, &unused);
        }
    }
}

/* Reads the parts and stands the claim in its locks; the rest of it is complete. */
static void read_parts(struct pk_reader *r, struct pk_machine *m, struct pk_claim *c)
{
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct pk_bytes name = read_name(r);
        unsigned mode = pk_read_byte(r);
        uint32_t slots = (uint32_t)pk_read_ranged(r, 0, PK_SLOTS_MAX);
        bool kind_ok = mode == PK_SLOT
                           ? slots > 0
                           : slots == 0 && (mode == PK_EXCLUSIVE || mode == PK_SHARED);
        if (!demand(r, kind_ok)) {
            return;
        }
        struct pk_lock *l = pk_lock_get(m, name);
        bool first = l->n_holds + l->n_waits == 0;
        struct pk_claim_part *p = &c->parts[i];
        p->lock = l;
        p->mode = (uint8_t)mode;
        if (!demand(r, first || l->slots == slots) || !demand(r, pk_claim_link_part(p))) {
            return;
        }
        l->slots = slots;
    }
}

static void read_claim(struct pk_reader *r, struct pk_machine *m, struct pk_lease *l)
{
    uint64_t request = pk_read_uint(r);
    uint64_t seq = pk_read_ranged(r, 1, m->next_seq - 1);
    uint64_t token = pk_read_ranged(r, 0, m->last_token);
    uint64_t since = pk_read_ranged(r, 0, m->clock);
    uint32_t max_hold = (uint32_t)pk_read_ranged(r, 0, PK_HOLD_MAX_MS);
    uint32_t delay = (uint32_t)pk_read_ranged(r, 0, PK_DELAY_MAX_MS);
    uint32_t place = (uint32_t)pk_read_ranged(r, 0, UINT32_MAX);
    uint64_t timer = pk_read_ranged(r, 0, 2 * PK_TIME_MAX);
    struct pk_bytes value = pk_read_bytes(r, PK_VALUE_CEILING);
    uint32_t n_parts = (uint32_t)pk_read_ranged(r, 1, PK_SET_MAX);
    struct pk_timer key = {.at = timer, .kind = PK_TIMER_CLAIM, .id = seq};
    if (!demand(r, timer == 0 || (timer > m->clock && !pk_timer_taken(m, &key)))) {
        return;
    }
    struct pk_claim *c = pk_claim_new(n_parts);
    c->lease = l;
    c->request = request;
    c->seq = seq;
    c->token = token;
    c->since_ms = since;
    c->max_hold_ms = max_hold;
    c->lock_delay_ms = delay;
    c->place = place;
    if (!demand(r, pk_claim_join(m, c, true))) {
        pk_door_resize(c, 0);
        return;
    }
    c->value = pk_blob_new(m, value);
    c->timer = timer == 0 ? NULL : pk_timer_new(m, PK_TIMER_CLAIM, seq, c, timer);
    read_parts(r, m, c);
}

static void read_lease(struct pk_reader *r, struct pk_machine *m, uint64_t least_id)
{
    struct pk_lease *l = pk_zeroed(sizeof *l);
    l->id = pk_read_ranged(r, least_id, m->next_lease - 1);
    l->ttl_ms = pk_read_ranged(r, PK_TTL_MIN_MS, PK_TTL_MAX_MS);
    uint64_t deadline = pk_read_ranged(r, m->clock + 1, 2 * PK_TIME_MAX);
    l->opened_by = pk_read_uint(r);
    l->forgotten = pk_read_uint(r);
    l->keyed = read_flag(r);
    struct pk_bytes label = pk_read_bytes(r, PK_LABEL_CEILING);
    if (r->bad || !demand(r, pk_lease_join(m, l))) {
        pk_door_resize(l, 0);
        return;
    }
    pk_timer_arm(m, &l->timer, deadline);
    l->label = pk_blob_new(m, label);
    read_replies(r, &l->replies);
    uint64_t claims = pk_read_uint(r);
    for (uint64_t i = 0; i < claims && !r->bad; i++) {
        read_claim(r, m, l);
    }
}

static void read_ended(struct pk_reader *r, struct pk_machine *m)
{
    struct pk_lease *l = pk_zeroed(sizeof *l);
    l->id = pk_read_ranged(r, 1, m->next_lease - 1);
    unsigned why = pk_read_byte(r);
    l->opened_by = pk_read_uint(r);
    demand(r, why == PK_END_CLOSED || why == PK_END_EXPIRED || why == PK_END_RESTORED ||
                  why == PK_END_RELEASED || why == PK_END_BROKEN);
    l->end = r->bad ? PK_END_CLOSED : (enum pk_end)why;
    if (r->bad || !demand(r, pk_lease_join(m, l))) {
        pk_door_resize(l, 0);
        return;
    }
    pk_lease_append_ended(m, l);
}

static void read_leases(struct pk_reader *r, struct pk_machine *m)
{
    uint64_t alive = pk_read_uint(r);
    uint64_t id = 0;
    for (uint64_t i = 0; i < alive && !r->bad; i++) {
        read_lease(r, m, id + 1);
        struct pk_node *n = pk_tree_last(&m->leases);
        id = n == NULL ? 0 : PK_OWNER(n, struct pk_lease, by_id)->id;
    }
    uint64_t ended = pk_read_uint(r);
    for (uint64_t i = 0; i < ended && !r->bad; i++) {
        read_ended(r, m);
    }
}

static void read_closed_locks(struct pk_reader *r, struct pk_machine *m)
{
    uint64_t n = pk_read_uint(r);
    struct pk_bytes before = {0};
    for (uint64_t i = 0; i < n && !r->bad; i++) {
        struct pk_bytes name = read_name(r);
        uint64_t until = pk_read_ranged(r, m->clock + 1, 2 * PK_TIME_MAX);
        uint64_t id = pk_read_ranged(r, 1, m->next_seq - 1);
        if (demand(r, pk_bytes_compare(before, name) < 0)) {
            struct pk_lock *l = pk_lock_get(m, name);
            struct pk_timer key = {.at = until, .kind = PK_TIMER_LOCK, .id = id};
            if (demand(r, !pk_timer_taken(m, &key))) {
                pk_lock_shut(m, l, id, until);
            }
        }
        before = name;
    }
}

/* When the fence ends, if it does. */
static void read_fence_end(struct pk_reader *r, struct pk_machine *m, struct pk_fence *f)
{
    uint64_t until = pk_read_ranged(r, 0, 2 * PK_TIME_MAX);
    if (until == 0) {
        return;
    }
    uint64_t id = pk_read_ranged(r, 1, m->next_seq - 1);
    struct pk_timer key = {.at = until, .kind = PK_TIMER_FENCE, .id = id};
    if (demand(r, until > m->clock && !pk_timer_taken(m, &key))) {
        pk_fence_keep(m, f, id, until);
    }
}

static void read_fences(struct pk_reader *r, struct pk_machine *m)
{
    uint64_t n = pk_read_uint(r);
    struct pk_bytes before = {0};
    for (uint64_t i = 0; i < n && !r->bad; i++) {
        struct pk_bytes name = read_name(r);
        uint64_t token = pk_read_ranged(r, 0, PK_TOKEN_MAX);
        uint64_t request = pk_read_uint(r);
        bool shadow = read_flag(r);
        uint64_t shadowed = pk_read_uint(r);
        struct pk_bytes value = pk_read_bytes(r, PK_VALUE_CEILING);
        if (demand(r, pk_bytes_compare(before, name) < 0)) {
            struct pk_fence *f = pk_fence_new(m, name);
            f->token = token;
            f->request = request;
            f->shadow = shadow;
            f->shadowed = shadowed;
            f->value = pk_blob_new(m, value);
            read_fence_end(r, m, f);
        }
        before = name;
    }
}

static void read_state(struct pk_reader *r, struct pk_machine *m)
{
    const unsigned char *head = pk_read_raw(r, sizeof magic);
    if (!demand(r, head != NULL && memcmp(head, magic, sizeof magic) == 0) ||
        !demand(r, pk_read_byte(r) == VERSION)) {
        return;
    }
    m->clock = pk_read_ranged(r, 0, PK_TIME_MAX);
    m->last_token = pk_read_ranged(r, 0, PK_TOKEN_MAX);
    m->next_lease = pk_read_ranged(r, 1, PK_COUNT_MAX);
    m->next_seq = pk_read_ranged(r, 1, PK_COUNT_MAX);
    pk_limits_read(r, &m->limits);
    read_replies(r, &m->replies);
    if (demand(r, pk_limits_wrong(&m->limits) == NULL)) {
        read_leases(r, m);
        read_closed_locks(r, m);
        read_fences(r, m);
    }
}

struct pk_machine *pk_machine_restore(const unsigned char *in, size_t len)
{
    if (len < DIGEST_BYTES || pk_digest(PK_DIGEST_START, in, len - DIGEST_BYTES) !=
                                  pk_get_u64(in + len - DIGEST_BYTES)) {
        return NULL;
    }
    struct pk_reader r = {.at = in, .end = in + len - DIGEST_BYTES};
    struct pk_machine *m = pk_machine_new();
    read_state(&r, m);
    if (r.bad || r.at != r.end || pk_machine_check(m) != NULL) {
        pk_machine_free(m);
        return NULL;
    }
    return m;
}
