/* SPDX-License-Identifier: MIT */
/*
 * Views: the state of one moment, read bit by bit while the machine goes on.
 *
 *     "PKST"  the machine's cluster version (1 byte), which says how to read the rest
 *     items, each: its length, kind (1 byte), fields (item.c)
 *         the machine's own fields first
 *         a lease before its claims; ended leases oldest first
 *         the end: digest of the state (8 bytes, little endian)
 *
 * The walk goes over leases with their claims, ended leases, locks with a timer and
 * fences, each in the order of its tree or list. A thing that is about to change is
 * written before the walk has come to it (item.c), and made note of, so that the walk
 * passes it over. What is new since the view began carries the same note. So a view that
 * is read while nothing changes has one form for one state, and any other has the same
 * items in another order.
 *
 * In the end the hashes of all items that were written must sum up to the digest of the
 * moment when the view began: otherwise memory was damaged (pk_view_is_sound).
 */
#include "core/door.h"
#include "core/state.h"
#include "core/wire.h"

enum {
    VISITS = 4096, /* things that one read looks at, at most */
    PIECE = 64 * 1024,
    FRAME_MAX = 10,
    DIGEST_BYTES = 8,
};

enum view_phase { LEASES, ENDED, LOCKS, FENCES, LAST, DONE };

/* Where the walk has come to among things with names. */
struct view_name {
    uint8_t len;
    char bytes[PK_NAME_MAX];
};

/* Items that were written, each in one piece; a larger one has a piece of its size. */
struct view_piece {
    struct view_piece *next;
    size_t len, capacity;
    unsigned char bytes[];
};

/* When everything changes before it is read, all items are here at once: about a fifth of
 * the state, if that is leases and locks. So no byte is here twice, or longer than
 * needed: a piece that is full is cut to its length, and freed when it has been read. */
struct pk_view {
    enum view_phase phase;
    struct view_piece *first, **last; /* *last: the one that is written to, or NULL */
    size_t read;                      /* of the first piece */
    size_t unread;                    /* of all pieces */
    uint64_t digest;                  /* of the state that is viewed */
    uint64_t items;        /* sum of the hashes so far, and of the machine's fields */
    uint64_t lease;        /* the walk is at this lease, or the first one after it, */
    uint64_t request, seq; /* behind this claim of it */
    const struct pk_lease *ended; /* the next one */
    uint64_t timed_left;          /* locks with a timer that are not written yet */
    struct view_name name;        /* behind this lock or fence */
};

/* ---- writing ---- */

/* No more is written to the last piece. */
static void close_piece(struct pk_view *v)
{
    struct view_piece *p = *v->last;
    p = pk_door_resize(p, sizeof *p + p->len);
    *v->last = p;
    v->last = &p->next;
}

/* A piece that has so much room behind what is in it. */
static struct view_piece *piece_for(struct pk_view *v, size_t more)
{
    if (*v->last != NULL && (*v->last)->len + more > (*v->last)->capacity) {
        close_piece(v);
    }
    if (*v->last == NULL) {
        size_t capacity = more > PIECE ? more : PIECE;
        struct view_piece *p = pk_door_resize(NULL, sizeof *p + capacity);
        *p = (struct view_piece){.capacity = capacity};
        *v->last = p;
    }
    return *v->last;
}

static void free_first(struct pk_view *v)
{
    struct view_piece *p = v->first;
    v->last = v->last == &p->next ? &v->first : v->last;
    v->first = p->next;
    v->read = 0;
    pk_door_resize(p, 0);
}

static void append(struct pk_view *v, const void *bytes, size_t len)
{
    struct view_piece *p = piece_for(v, len);
    memcpy(p->bytes + p->len, bytes, len);
    p->len += len;
    v->unread += len;
}

static void append_item(struct pk_view *v, enum pk_item kind, const void *thing)
{
    struct pk_writer measure = {0};
    pk_item_write(&measure, kind, thing);
    struct view_piece *p = piece_for(v, FRAME_MAX + measure.len);
    struct pk_writer w = {.out = p->bytes + p->len};
    pk_write_uint(&w, measure.len);
    pk_item_write(&w, kind, thing);
    p->len += w.len;
    v->unread += w.len;
    v->items += pk_item_hash(kind, thing);
}

void pk_view_add(struct pk_machine *m, enum pk_item kind, void *thing)
{
    struct pk_view *v = m->view;
    if (kind == PK_ITEM_CLAIM) {
        struct pk_lease *l = ((struct pk_claim *)thing)->lease;
        if (l->view != m->views) {
            pk_view_add(m, PK_ITEM_LEASE, l);
        }
    }
    v->timed_left -= kind == PK_ITEM_LOCK;
    *pk_item_view(kind, thing) = m->views;
    append_item(v, kind, thing);
}

/* ---- walking; each part returns true when it has come to its end ---- */

/* A claim greater than the one that the walk is behind. */
static int order_behind(const void *key, const struct pk_node *node)
{
    const struct pk_view *v = key;
    const struct pk_claim *c = PK_OWNER(node, struct pk_claim, node);
    if (v->request != c->request) {
        return v->request < c->request ? -1 : 1;
    }
    return v->seq < c->seq ? -1 : 1;
}

static bool walk_claims(struct pk_machine *m, struct pk_view *v, struct pk_lease *l,
                        uint32_t *visits)
{
    struct pk_node *n = pk_tree_seek(&l->claims, v, order_behind);
    for (; n != NULL && *visits > 0; n = pk_tree_next(n), --*visits) {
        struct pk_claim *c = PK_OWNER(n, struct pk_claim, node);
        if (c->view != m->views) {
            pk_view_add(m, PK_ITEM_CLAIM, c);
        }
        v->request = c->request;
        v->seq = c->seq;
    }
    return n == NULL;
}

static bool walk_leases(struct pk_machine *m, struct pk_view *v, uint32_t *visits)
{
    struct pk_node *n = pk_lease_seek(m, v->lease);
    while (n != NULL && *visits > 0) {
        struct pk_lease *l = PK_OWNER(n, struct pk_lease, by_id);
        if (l->id != v->lease) {
            v->lease = l->id;
            v->request = 0;
            v->seq = 0;
        }
        --*visits;
        if (!pk_lease_has_ended(l)) {
            if (l->view != m->views) {
                pk_view_add(m, PK_ITEM_LEASE, l);
            }
            if (!walk_claims(m, v, l, visits)) {
                return false;
            }
        }
        n = pk_tree_next(n);
        v->lease++;
        v->request = 0;
        v->seq = 0;
    }
    return n == NULL;
}

static bool walk_ended(struct pk_machine *m, struct pk_view *v, uint32_t *visits)
{
    for (; v->ended != NULL && *visits > 0; v->ended = v->ended->next_ended, --*visits) {
        if (v->ended->view != m->views) {
            pk_view_add(m, PK_ITEM_ENDED, (struct pk_lease *)v->ended);
        }
    }
    return v->ended == NULL;
}

static void note_name(struct pk_view *v, struct pk_bytes name)
{
    v->name.len = (uint8_t)name.len;
    memcpy(v->name.bytes, name.data, name.len);
}

static bool walk_locks(struct pk_machine *m, struct pk_view *v, uint32_t *visits)
{
    struct pk_node *n = v->timed_left == 0
                            ? NULL /* mostly: then there is nothing to walk for */
                            : pk_lock_after(m, pk_bytes(v->name.bytes, v->name.len));
    for (; n != NULL && *visits > 0; n = pk_tree_next(n), --*visits) {
        struct pk_lock *l = PK_OWNER(n, struct pk_lock, node);
        if (l->timer != NULL && l->view != m->views) {
            pk_view_add(m, PK_ITEM_LOCK, l);
        }
        note_name(v, pk_lock_name(l));
    }
    return n == NULL;
}

static bool walk_fences(struct pk_machine *m, struct pk_view *v, uint32_t *visits)
{
    struct pk_node *n = pk_fence_after(m, pk_bytes(v->name.bytes, v->name.len));
    for (; n != NULL && *visits > 0; n = pk_tree_next(n), --*visits) {
        struct pk_fence *f = PK_OWNER(n, struct pk_fence, node);
        if (f->view != m->views) {
            pk_view_add(m, PK_ITEM_FENCE, f);
        }
        note_name(v, pk_fence_name(f));
    }
    return n == NULL;
}

static bool write_end(struct pk_machine *m, struct pk_view *v, uint32_t *visits)
{
    (void)m;
    unsigned char end[2 + DIGEST_BYTES] = {1 + DIGEST_BYTES, PK_ITEM_END};
    pk_put_u64(end + 2, v->digest);
    append(v, end, sizeof end);
    --*visits;
    return true;
}

static void walk(struct pk_machine *m, size_t enough)
{
    static bool (*const parts[])(struct pk_machine *, struct pk_view *, uint32_t *) = {
        [LEASES] = walk_leases, [ENDED] = walk_ended, [LOCKS] = walk_locks,
        [FENCES] = walk_fences, [LAST] = write_end,
    };
    enum { A_FEW = 64 }; /* between two looks at how much has been written */
    struct pk_view *v = m->view;
    uint32_t left = VISITS;
    while (left > 0 && v->phase != DONE && v->unread < enough) {
        uint32_t visits = left < A_FEW ? left : A_FEW;
        left -= visits;
        if (parts[v->phase](m, v, &visits)) {
            v->phase++;
            v->name.len = 0;
        }
    }
}

/* ---- for whoever reads ---- */

void pk_view_begin(struct pk_machine *m)
{
    const char head[] = {'P', 'K', 'S', 'T', (char)m->version};
    PK_ASSERT(m->view == NULL && m->out == NULL);
    m->views = m->views == UINT16_MAX ? 1 : m->views + 1;
    struct pk_view *v = pk_zeroed(sizeof *v);
    m->view = v;
    v->digest = pk_machine_digest(m);
    v->ended = m->ended_first;
    v->timed_left = m->n_timed;
    v->last = &v->first;
    append(v, head, sizeof head);
    append_item(v, PK_ITEM_MACHINE, m);
}

size_t pk_view_read(struct pk_machine *m, void *to, size_t room)
{
    struct pk_view *v = m->view;
    size_t done = 0;
    walk(m, room);
    while (done < room && v->unread > 0) {
        size_t left = v->first->len - v->read;
        size_t n = left < room - done ? left : room - done;
        memcpy((unsigned char *)to + done, v->first->bytes + v->read, n);
        done += n;
        v->read += n;
        v->unread -= n;
        if (v->read == v->first->len) {
            free_first(v);
        }
    }
    return done;
}

bool pk_view_is_done(const struct pk_machine *m)
{
    return m->view->phase == DONE && m->view->unread == 0;
}

bool pk_view_is_sound(const struct pk_machine *m)
{
    return m->view->items == m->view->digest;
}

void pk_view_end(struct pk_machine *m)
{
    if (m->view != NULL) {
        while (m->view->first != NULL) {
            free_first(m->view);
        }
        pk_door_resize(m->view, 0);
        m->view = NULL;
    }
}

void pk_view_forget(struct pk_machine *m, const struct pk_lease *ended)
{
    if (m->view != NULL && m->view->ended == ended) {
        m->view->ended = ended->next_ended;
    }
}

size_t pk_machine_snapshot(struct pk_machine *m, unsigned char **out)
{
    enum { STEP = 64 * 1024 };
    unsigned char *bytes = NULL;
    size_t len = 0;
    size_t capacity = 0;
    pk_view_begin(m);
    while (!pk_view_is_done(m)) {
        if (len + STEP > capacity) {
            capacity = 2 * capacity + STEP;
            bytes = pk_door_resize(bytes, capacity);
        }
        len += pk_view_read(m, bytes + len, STEP);
    }
    PK_ASSERT(pk_view_is_sound(m));
    pk_view_end(m);
    *out = pk_door_resize(bytes, len);
    return len;
}
