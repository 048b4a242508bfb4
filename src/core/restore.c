/* SPDX-License-Identifier: MIT */
/* The way back from a snapshot (view.c) to a machine, fed with bytes as they come. */
#include "core/door.h"
#include "core/state.h"
#include "core/version.h"
#include "core/wire.h"

static const char magic[] = {'P', 'K', 'S', 'T'};

enum {
    HEAD_BYTES = sizeof magic + 1,
    DIGEST_BYTES = 8,
    ITEM_MAX = 2 * 1024 * 1024, /* the largest value, names, and room to grow */
    LENGTH_MAX = 10,
};

/*
 *     HEAD      magic and version are expected
 *     MACHINE   the machine's own fields
 *     ITEMS   leases, claims and so on, until the end item
 *     COMPLETE  everything has been read, and the digest is right
 *     REFUSED   the bytes are no snapshot that this program can read
 */
enum restore_state { HEAD, MACHINE, ITEMS, COMPLETE, REFUSED };

struct pk_restore {
    enum restore_state state;
    struct pk_machine *machine;
    struct pk_lease *lease; /* of the last claim, or the last lease; NULL: none */
    unsigned char *bytes;   /* the beginning of a item whose end has not come yet */
    size_t len, capacity;
    uint32_t version; /* cluster version of the snapshot; 0: not known yet */
    bool scans;       /* items are looked at, and not kept */
};

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

static void read_replies(struct pk_reader *r, struct pk_replies **to)
{
    uint64_t n = pk_read_uint(r);
    for (uint64_t i = 0; i < n && !r->bad; i++) {
        struct pk_answer a = {0};
        a.request = pk_read_ranged(r, 1, UINT64_MAX);
        a.token = pk_read_ranged(r, 0, PK_TOKEN_MAX);
        unsigned verb = pk_read_byte(r);
        unsigned status = pk_read_byte(r);
        unsigned end = pk_read_byte(r);
        if (demand(r, verb < PK_VERB_COUNT && status < PK_STATUS_COUNT &&
                          end < PK_END_COUNT)) {
            a.verb = (uint8_t)verb;
            a.status = (uint8_t)status;
            a.end = (uint8_t)end;
            pk_replies_add(to, UINT32_MAX, a);
        }
    }
}

static void read_machine(struct pk_reader *r, struct pk_restore *s)
{
    struct pk_machine *m = s->machine;
    m->version = (uint32_t)pk_read_ranged(r, s->version, s->version);
    m->held = read_flag(r);
    m->clock = pk_read_ranged(r, 0, PK_TIME_MAX);
    m->last_token = pk_read_ranged(r, 0, PK_TOKEN_MAX);
    m->next_lease = pk_read_ranged(r, 1, PK_COUNT_MAX);
    m->next_seq = pk_read_ranged(r, 1, PK_COUNT_MAX);
    m->next_ended = pk_read_ranged(r, 1, PK_COUNT_MAX);
    m->work = (uint32_t)pk_read_ranged(r, 0, UINT32_MAX);
    m->restored_below = pk_read_ranged(r, 1, m->next_lease);
    uint64_t sweep = pk_read_ranged(r, 0, m->clock + 1);
    if (!r->bad && sweep > 0) {
        m->sweep = pk_timer_new(m, PK_TIMER_SWEEP, 0, m, sweep - 1);
    }
    pk_limits_read(r, &m->limits);
    read_replies(r, &m->replies);
    demand(r, pk_limits_wrong(&m->limits) == NULL);
}

/* Why a lease has ended, or is about to. */
static uint8_t read_end(struct pk_reader *r)
{
    unsigned why = pk_read_byte(r);
    demand(r, why == PK_END_CLOSED || why == PK_END_EXPIRED || why == PK_END_RESTORED ||
                  why == PK_END_RELEASED || why == PK_END_BROKEN);
    return r->bad ? PK_END_CLOSED : (uint8_t)why;
}

/* Whose claims are still there, but nothing else of it (S5). */
static void read_ending(struct pk_reader *r, struct pk_lease *l)
{
    if (r->at != r->end && *r->at != PK_END_NONE) {
        l->end = read_end(r);
        l->ending = true;
    } else {
        demand(r, pk_read_byte(r) == PK_END_NONE);
    }
}

static void read_lease(struct pk_reader *r, struct pk_restore *s)
{
    struct pk_machine *m = s->machine;
    struct pk_lease *l = pk_lease_new(m);
    l->id = pk_read_ranged(r, 1, m->next_lease - 1);
    l->ttl_ms = (uint32_t)pk_read_ranged(r, PK_TTL_MIN_MS, PK_TTL_MAX_MS);
    uint64_t deadline = pk_read_ranged(r, 0, 2 * PK_TIME_MAX);
    l->opened_by = pk_read_uint(r);
    uint64_t forgotten = pk_read_uint(r);
    uint32_t events = (uint32_t)pk_read_ranged(r, 0, UINT32_MAX);
    read_ending(r, l);
    l->keyed = read_flag(r);
    struct pk_bytes label = pk_read_bytes(r, PK_LABEL_CEILING);
    if (r->bad || !demand(r, pk_lease_join(m, l))) {
        pk_lease_drop(m, l);
        return;
    }
    pk_lease_arm(m, l, deadline);
    l->label = pk_blob_new(m, label);
    pk_replies_forget(&l->replies, forgotten);
    pk_replies_set_events(&l->replies, events);
    read_replies(r, &l->replies);
    s->lease = l;
    pk_item_in(m, PK_ITEM_LEASE, l);
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
    pk_item_in(m, PK_ITEM_CLAIM, c);
}

/* The lease with that id, unless it has ended; NULL: there is none yet. */
static struct pk_lease *lease_of_claim(struct pk_restore *s, uint64_t id)
{
    if (s->lease == NULL || s->lease->id != id) {
        s->lease = pk_lease_find(s->machine, id);
    }
    return s->lease != NULL && !pk_lease_has_ended(s->lease) ? s->lease : NULL;
}

static void read_claim(struct pk_reader *r, struct pk_restore *s)
{
    struct pk_machine *m = s->machine;
    struct pk_lease *l = lease_of_claim(s, pk_read_uint(r));
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
    if (!demand(r, timer == 0 || !pk_timer_taken(m, &key)) ||
        !demand(r, l != NULL && pk_lease_claim(l, request) == NULL)) {
        return;
    }
    struct pk_claim *c = pk_claim_new(m, n_parts);
    c->lease = l;
    c->request = request;
    c->seq = seq;
    c->token = token;
    c->since_ms = since;
    c->place = place;
    if (!demand(r, pk_claim_join(m, c))) {
        pk_claim_drop(m, c);
        return;
    }
    pk_claim_agree(m, c, value, max_hold, delay);
    if (timer != 0) {
        pk_claim_time(m, c, timer);
    }
    read_parts(r, m, c);
}

static void read_ended(struct pk_reader *r, struct pk_restore *s)
{
    struct pk_machine *m = s->machine;
    uint64_t least = m->ended_last == NULL ? 1 : m->ended_last->ended_nth + 1;
    struct pk_lease *l = pk_lease_new(m);
    uint64_t nth = pk_read_ranged(r, least, m->next_ended - 1);
    l->id = pk_read_ranged(r, 1, m->next_lease - 1);
    l->end = read_end(r);
    l->opened_by = pk_read_uint(r);
    if (r->bad || !demand(r, pk_lease_join(m, l))) {
        pk_lease_drop(m, l);
        return;
    }
    pk_lease_append_ended(m, l, nth);
}

static void read_lock(struct pk_reader *r, struct pk_restore *s)
{
    struct pk_machine *m = s->machine;
    struct pk_bytes name = read_name(r);
    unsigned kind = pk_read_byte(r);
    uint64_t at = pk_read_ranged(r, 0, 2 * PK_TIME_MAX);
    uint64_t id = pk_read_ranged(r, 1, m->next_seq - 1);
    struct pk_timer key = {.at = at, .kind = (enum pk_timer_kind)kind, .id = id};
    demand(r, kind == PK_TIMER_LOCK || kind == PK_TIMER_SETTLE);
    if (!demand(r, !r->bad && !pk_timer_taken(m, &key))) {
        return;
    }
    struct pk_lock *l = pk_lock_get(m, name);
    if (demand(r, l->timer == NULL)) {
        pk_lock_time(m, l, (enum pk_timer_kind)kind, id, at);
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
    if (demand(r, !pk_timer_taken(m, &key))) {
        pk_fence_keep(m, f, id, until);
    }
}

static void read_fence(struct pk_reader *r, struct pk_restore *s)
{
    struct pk_machine *m = s->machine;
    struct pk_bytes name = read_name(r);
    uint64_t token = pk_read_ranged(r, 0, PK_TOKEN_MAX);
    uint64_t request = pk_read_uint(r);
    bool shadow = read_flag(r);
    uint32_t epoch = (uint32_t)pk_read_ranged(r, 0, UINT32_MAX);
    uint64_t shadowed = pk_read_uint(r);
    struct pk_bytes value = pk_read_bytes(r, PK_VALUE_CEILING);
    if (!demand(r, !r->bad && pk_fence_find(m, name) == NULL)) {
        return;
    }
    struct pk_fence *f = pk_fence_new(m, name);
    f->token = token;
    f->request = request;
    f->shadow = shadow;
    f->epoch = epoch;
    f->shadowed = shadowed;
    f->value = pk_blob_new(m, value);
    read_fence_end(r, m, f);
    if (!r->bad) {
        pk_item_in(m, PK_ITEM_FENCE, f);
    }
}

static void read_digest(struct pk_reader *r, struct pk_restore *s)
{
    const unsigned char *digest = pk_read_raw(r, DIGEST_BYTES);
    bool right =
        digest != NULL && (s->scans || pk_get_u64(digest) == pk_restore_digest(s));
    if (demand(r, right)) {
        s->state = COMPLETE;
    }
}

/* Reads one item, all of whose bytes are there. */
static void read_item(struct pk_restore *s, const unsigned char *at, size_t len)
{
    static void (*const readers[])(struct pk_reader *, struct pk_restore *) = {
        [PK_ITEM_LEASE] = read_lease, [PK_ITEM_CLAIM] = read_claim,
        [PK_ITEM_ENDED] = read_ended, [PK_ITEM_LOCK] = read_lock,
        [PK_ITEM_FENCE] = read_fence, [PK_ITEM_END] = read_digest,
    };
    struct pk_reader r = {.at = at, .end = at + len};
    unsigned kind = pk_read_byte(&r);
    if (s->state == MACHINE) {
        if (demand(&r, kind == PK_ITEM_MACHINE)) {
            read_machine(&r, s);
            s->state = ITEMS;
        }
    } else if (demand(&r, kind >= PK_ITEM_LEASE && kind <= PK_ITEM_END)) {
        if (s->scans && kind != PK_ITEM_END) {
            r.at = r.end;
        } else {
            readers[kind](&r, s);
        }
    }
    if (r.bad || r.at != r.end) {
        s->state = REFUSED;
    }
}

uint32_t pk_snapshot_version(const unsigned char *in, size_t len)
{
    return len >= HEAD_BYTES && memcmp(in, magic, sizeof magic) == 0 ? in[sizeof magic]
                                                                     : 0;
}

/* Reads the head or one item from the beginning of the bytes; returns how many it took:
 * 0 when more are needed. */
static size_t read_some(struct pk_restore *s, const unsigned char *at, size_t len)
{
    if (s->state == HEAD) {
        if (len < HEAD_BYTES) {
            return 0;
        }
        s->version = pk_snapshot_version(at, len);
        s->state = pk_version_runs(s->version) ? MACHINE : REFUSED;
        return HEAD_BYTES;
    }
    struct pk_reader r = {.at = at, .end = at + len};
    uint64_t size = pk_read_uint(&r);
    if (r.bad && len < LENGTH_MAX) {
        return 0;
    }
    if (r.bad || size == 0 || size > ITEM_MAX) {
        s->state = REFUSED;
        return len;
    }
    if ((uint64_t)(r.end - r.at) < size) {
        return 0;
    }
    read_item(s, r.at, size);
    return (size_t)(r.at - at) + size;
}

/* ---- for whoever restores ---- */

struct pk_restore *pk_restore_begin(void)
{
    struct pk_restore *s = pk_zeroed(sizeof *s);
    s->machine = pk_machine_new();
    return s;
}

struct pk_restore *pk_restore_scan(void)
{
    struct pk_restore *s = pk_restore_begin();
    s->scans = true;
    return s;
}

/* Reads as much of the bytes as there are whole items; returns what is left over. */
static size_t read_all(struct pk_restore *s, const unsigned char *at, size_t len)
{
    size_t used = 0;
    size_t n = 1;
    while (n > 0 && used < len && s->state < COMPLETE) {
        n = read_some(s, at + used, len - used);
        used += n;
    }
    return len - used;
}

static void keep_rest(struct pk_restore *s, const unsigned char *rest, size_t len)
{
    if (len > s->capacity) {
        s->capacity = 2 * len;
        s->bytes = pk_door_resize(s->bytes, s->capacity);
    }
    memmove(s->bytes, rest, len);
    s->len = len;
}

bool pk_restore_feed(struct pk_restore *s, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    if (s->len > 0) {
        if (s->len + len > s->capacity) {
            s->capacity = 2 * (s->len + len);
            s->bytes = pk_door_resize(s->bytes, s->capacity);
        }
        memcpy(s->bytes + s->len, at, len);
        at = s->bytes;
        len += s->len;
    }
    size_t left = read_all(s, at, len);
    if (s->state == COMPLETE && left > 0) {
        s->state = REFUSED; /* nothing comes behind the end */
    }
    if (left > 0) {
        keep_rest(s, at + len - left, left);
    } else {
        s->len = 0;
    }
    return s->state != REFUSED;
}

uint64_t pk_restore_digest(const struct pk_restore *s)
{
    return pk_machine_digest(s->machine);
}

uint32_t pk_restore_version(const struct pk_restore *s)
{
    return s->version;
}

bool pk_restore_is_complete(const struct pk_restore *s)
{
    return s->state == COMPLETE;
}

struct pk_machine *pk_restore_take(struct pk_restore *s)
{
    struct pk_machine *m = s->machine;
    pk_door_resize(s->bytes, 0);
    pk_door_resize(s, 0);
    return m;
}

struct pk_machine *pk_restore_end(struct pk_restore *s)
{
    bool complete = pk_restore_is_complete(s);
    struct pk_machine *m = pk_restore_take(s);
    if (!complete) {
        pk_machine_free(m);
        m = NULL;
    }
    return m;
}

struct pk_machine *pk_machine_restore(const unsigned char *in, size_t len)
{
    struct pk_restore *s = pk_restore_begin();
    (void)pk_restore_feed(s, in, len);
    struct pk_machine *m = pk_restore_end(s);
    if (m != NULL && pk_machine_check(m) != NULL) {
        pk_machine_free(m);
        m = NULL;
    }
    return m;
}
