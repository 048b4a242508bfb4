/* SPDX-License-Identifier: MIT */
#include "gate/admit.h"

#include "core/door.h"
#include "core/tree.h"

struct pk_admit_resource {
    struct pk_node node;
    struct pk_list_link idle;     /* while nobody uses it, the longest unused first */
    struct pk_list_link to_claim; /* a claim is to be made */
    struct pk_list_link draining; /* somebody waits */
    struct pk_list asking;        /* in order of arrival, and so are the others */
    struct pk_list asked;
    struct pk_list waiting;
    struct pk_list flying;
    uint64_t n_flying, n_older, n_waiting; /* older: flying below the fence */
    uint64_t fence;                        /* the highest heard of */
    bool known;                            /* and it can't be higher (alone) */
    uint64_t claiming;                     /* the token; 0: no claim is under way */
    uint32_t name_len;
    char name[]; /* the bytes of it */
};

struct pk_admit {
    struct pk_admit_options options;
    struct pk_tree resources;
    size_t n_resources;
    struct pk_list idle, to_claim, draining, due;
    uint64_t epoch;
    struct pk_admit_counts counts;
};

/* ---- resources ---- */

static struct pk_bytes name_of(const struct pk_admit_resource *r)
{
    return pk_bytes(r->name, r->name_len);
}

static int by_name(const void *key, const struct pk_node *node)
{
    const struct pk_admit_resource *r = PK_OWNER(node, struct pk_admit_resource, node);
    return pk_bytes_compare(*(const struct pk_bytes *)key, name_of(r));
}

static bool unused(const struct pk_admit_resource *r)
{
    return r->claiming == 0 && r->n_flying == 0 && r->n_waiting == 0 &&
           pk_list_empty(&r->asking) && pk_list_empty(&r->asked);
}

static void forget_resource(struct pk_admit *a, struct pk_admit_resource *r)
{
    PK_ASSERT(unused(r));
    pk_list_remove(&r->idle);
    pk_tree_erase(&a->resources, &r->node);
    a->n_resources--;
    pk_door_resize(r, 0);
}

/* What nobody uses is kept for later. */
static void settle_use(struct pk_admit *a, struct pk_admit_resource *r)
{
    if (unused(r) && !pk_list_linked(&r->idle)) {
        pk_list_push(&a->idle, &r->idle);
    }
}

/* In as much room as there is (A8). The last thing of a step: resources may go. */
static void trim(struct pk_admit *a)
{
    struct pk_list_link *oldest;
    while (a->n_resources > a->options.resources_max &&
           (oldest = pk_list_first(&a->idle)) != NULL) {
        forget_resource(a, PK_OWNER(oldest, struct pk_admit_resource, idle));
    }
}

static struct pk_admit_resource *find_or_add(struct pk_admit *a, struct pk_bytes name)
{
    struct pk_node *node = pk_tree_find(&a->resources, &name, by_name);
    if (node != NULL) {
        return PK_OWNER(node, struct pk_admit_resource, node);
    }
    struct pk_admit_resource *r = pk_door_resize(NULL, sizeof *r + name.len);
    memset(r, 0, sizeof *r);
    memcpy(r->name, name.data, name.len);
    r->name_len = name.len;
    pk_list_init(&r->asking);
    pk_list_init(&r->asked);
    pk_list_init(&r->waiting);
    pk_list_init(&r->flying);
    (void)pk_tree_insert(&a->resources, &r->node, &name, by_name);
    a->n_resources++;
    return r;
}

/* ---- tickets ---- */

static struct pk_admit_ticket *first_of(const struct pk_list *l)
{
    struct pk_list_link *link = pk_list_first(l);
    return link == NULL ? NULL : PK_OWNER(link, struct pk_admit_ticket, link);
}

static struct pk_admit_ticket *next_of(const struct pk_list *l,
                                       const struct pk_admit_ticket *t)
{
    struct pk_list_link *link = pk_list_next(l, &t->link);
    return link == NULL ? NULL : PK_OWNER(link, struct pk_admit_ticket, link);
}

static void count(struct pk_admit *a, struct pk_admit_ticket *t, int by)
{
    struct pk_admit_resource *r = t->resource;
    uint64_t one = (uint64_t)by; /* -1 wraps as it should */
    if (t->place == PK_ADMIT_WAITING) {
        r->n_waiting += one;
        a->counts.waiting += one;
    } else if (t->place == PK_ADMIT_FLYING) {
        r->n_flying += one;
        r->n_older += t->token < r->fence ? one : 0;
        a->counts.flying += one;
    }
}

static struct pk_list *list_of(struct pk_admit_resource *r, enum pk_admit_place place)
{
    switch (place) {
    case PK_ADMIT_ASKING:
        return &r->asking;
    case PK_ADMIT_ASKED:
        return &r->asked;
    case PK_ADMIT_WAITING:
        return &r->waiting;
    case PK_ADMIT_FLYING:
        return &r->flying;
    default:
        return NULL;
    }
}

static void move(struct pk_admit *a, struct pk_admit_ticket *t, enum pk_admit_place place)
{
    struct pk_admit_resource *r = t->resource;
    count(a, t, -1);
    pk_list_remove(&t->link);
    t->place = place;
    count(a, t, 1);
    if (place != PK_ADMIT_OUT) {
        pk_list_push(list_of(r, place), &t->link);
    }
    if (r->n_waiting == 0) {
        pk_list_remove(&r->draining);
    } else if (!pk_list_linked(&r->draining)) {
        pk_list_push(&a->draining, &r->draining);
    }
}

static void tell(struct pk_admit *a, struct pk_admit_ticket *t,
                 enum pk_admit_verdict verdict)
{
    t->verdict = verdict;
    t->fence = t->resource->fence;
    if (!pk_list_linked(&t->due)) {
        pk_list_push(&a->due, &t->due);
    }
}

static void refuse(struct pk_admit *a, struct pk_admit_ticket *t,
                   enum pk_admit_verdict verdict)
{
    move(a, t, PK_ADMIT_OUT);
    tell(a, t, verdict);
}

/* Confirmed: it flies, unless lower ones are in the way (A4). */
static void pass(struct pk_admit *a, struct pk_admit_ticket *t, uint64_t now_ms)
{
    struct pk_admit_resource *r = t->resource;
    PK_ASSERT(t->token == r->fence);
    if (r->n_older > 0) {
        t->delayed = true;
    }
    if (r->n_older > 0 && !a->options.shadow) {
        t->since_ms = now_ms;
        move(a, t, PK_ADMIT_WAITING);
        return;
    }
    move(a, t, PK_ADMIT_FLYING);
    tell(a, t, PK_ADMIT_GO);
}

/* Nobody lower is in flight any more: all who wait go, in order. */
static void release(struct pk_admit *a, struct pk_admit_resource *r)
{
    while (r->n_older == 0 && r->n_waiting > 0) {
        struct pk_admit_ticket *t = first_of(&r->waiting);
        move(a, t, PK_ADMIT_FLYING);
        tell(a, t, PK_ADMIT_GO);
    }
}

/* ---- claims ---- */

/* Judges one that arrives, or that arrived during a claim. */
static void judge(struct pk_admit *a, struct pk_admit_ticket *t, uint64_t now_ms)
{
    struct pk_admit_resource *r = t->resource;
    if (t->token < r->fence) {
        refuse(a, t, PK_ADMIT_STALE);
    } else if (r->claiming == 0 && r->known && !a->options.shared &&
               t->token == r->fence) {
        pass(a, t, now_ms);
    } else if (t->place != PK_ADMIT_ASKING) {
        move(a, t, PK_ADMIT_ASKING);
    }
}

/* One claim for all who ask (A3). */
static void begin_claim(struct pk_admit *a, struct pk_admit_resource *r)
{
    if (r->claiming != 0) {
        return;
    }
    for (struct pk_admit_ticket *t = first_of(&r->asking); t != NULL;
         t = first_of(&r->asking)) {
        r->claiming = t->token > r->claiming ? t->token : r->claiming;
        move(a, t, PK_ADMIT_ASKED);
    }
    if (r->claiming != 0) {
        pk_list_push(&a->to_claim, &r->to_claim);
    }
}

/* Everything that flies or waits below the new fence is older from now on. */
static void raise(struct pk_admit *a, struct pk_admit_resource *r, uint64_t fence)
{
    if (fence <= r->fence) {
        return;
    }
    r->fence = fence;
    r->n_older = 0;
    for (struct pk_admit_ticket *t = first_of(&r->flying); t != NULL;
         t = next_of(&r->flying, t)) {
        r->n_older += t->token < fence;
    }
    struct pk_admit_ticket *next;
    for (struct pk_admit_ticket *t = first_of(&r->waiting); t != NULL; t = next) {
        next = next_of(&r->waiting, t);
        if (t->token < fence) {
            refuse(a, t, PK_ADMIT_STALE);
        }
    }
    a->counts.raises++;
}

bool pk_admit_claim(struct pk_admit *a, struct pk_admit_claim *out)
{
    struct pk_list_link *link = pk_list_first(&a->to_claim);
    if (link == NULL) {
        return false;
    }
    struct pk_admit_resource *r = PK_OWNER(link, struct pk_admit_resource, to_claim);
    pk_list_remove(link);
    *out = (struct pk_admit_claim){r, name_of(r), r->claiming, a->epoch, false};
    return true;
}

void pk_admit_claimed(struct pk_admit *a, const struct pk_admit_claim *c, uint64_t fence,
                      uint64_t now_ms)
{
    struct pk_admit_resource *r = c->resource;
    PK_ASSERT(r->claiming == c->token && (fence == 0 || fence >= c->token));
    bool current = c->epoch == a->epoch;
    r->claiming = 0;
    r->known = fence != 0 && current;
    raise(a, r, fence);
    struct pk_admit_ticket *t;
    while ((t = first_of(&r->asked)) != NULL) {
        if (t->token < r->fence) {
            refuse(a, t, PK_ADMIT_STALE);
        } else if (fence == 0) {
            refuse(a, t, PK_ADMIT_UNSURE);
        } else if (c->blocked) {
            refuse(a, t, PK_ADMIT_LATE);
        } else {
            pass(a, t, now_ms);
        }
    }
    struct pk_admit_ticket *next;
    for (t = first_of(&r->asking); t != NULL; t = next) {
        next = next_of(&r->asking, t);
        judge(a, t, now_ms);
    }
    begin_claim(a, r);
    release(a, r);
    settle_use(a, r);
    trim(a);
}

/* ---- steps ---- */

void pk_admit_arrive(struct pk_admit *a, struct pk_admit_ticket *t, struct pk_bytes name,
                     uint64_t token, uint64_t now_ms)
{
    PK_ASSERT(t->place == PK_ADMIT_OUT && !pk_list_linked(&t->due) && token > 0);
    struct pk_admit_resource *r = find_or_add(a, name);
    pk_list_remove(&r->idle);
    *t = (struct pk_admit_ticket){.resource = r, .token = token};
    judge(a, t, now_ms);
    begin_claim(a, r);
    settle_use(a, r);
    trim(a);
}

void pk_admit_leave(struct pk_admit *a, struct pk_admit_ticket *t)
{
    pk_list_remove(&t->due);
    if (t->place == PK_ADMIT_OUT) {
        return;
    }
    struct pk_admit_resource *r = t->resource;
    move(a, t, PK_ADMIT_OUT);
    release(a, r);
    settle_use(a, r);
    trim(a);
}

static void cut_off(struct pk_admit *a, struct pk_admit_resource *r)
{
    for (struct pk_admit_ticket *t = first_of(&r->flying); t != NULL;
         t = next_of(&r->flying, t)) {
        if (t->token < r->fence && !t->cut) {
            t->cut = true;
            tell(a, t, PK_ADMIT_CUT);
        }
    }
}

void pk_admit_tick(struct pk_admit *a, uint64_t now_ms)
{
    struct pk_list_link *next;
    for (struct pk_list_link *link = pk_list_first(&a->draining); link != NULL;
         link = next) {
        struct pk_admit_resource *r = PK_OWNER(link, struct pk_admit_resource, draining);
        next = pk_list_next(&a->draining, link);
        uint64_t waited = now_ms - first_of(&r->waiting)->since_ms;
        if (a->options.cut_off_ms > 0 && waited >= a->options.cut_off_ms) {
            cut_off(a, r);
        }
        struct pk_admit_ticket *t;
        while ((t = first_of(&r->waiting)) != NULL &&
               now_ms - t->since_ms >= a->options.drain_ms) {
            refuse(a, t, PK_ADMIT_LATE);
        }
        settle_use(a, r);
    }
    trim(a);
}

static void refuse_all(struct pk_admit *a, struct pk_list *l)
{
    struct pk_admit_ticket *t;
    while ((t = first_of(l)) != NULL) {
        refuse(a, t, PK_ADMIT_UNSURE);
    }
}

void pk_admit_forget(struct pk_admit *a)
{
    a->epoch++;
    struct pk_node *next;
    for (struct pk_node *n = pk_tree_first(&a->resources); n != NULL; n = next) {
        struct pk_admit_resource *r = PK_OWNER(n, struct pk_admit_resource, node);
        next = pk_tree_next(n);
        r->known = false;
        refuse_all(a, &r->asking);
        refuse_all(a, &r->asked);
        refuse_all(a, &r->waiting);
        settle_use(a, r);
    }
    trim(a);
}

struct pk_admit_ticket *pk_admit_decided(struct pk_admit *a)
{
    struct pk_list_link *link = pk_list_first(&a->due);
    if (link == NULL) {
        return NULL;
    }
    pk_list_remove(link);
    return PK_OWNER(link, struct pk_admit_ticket, due);
}

/* ---- the whole ---- */

struct pk_admit *pk_admit_new(const struct pk_admit_options *o)
{
    struct pk_admit *a = pk_door_resize(NULL, sizeof *a);
    memset(a, 0, sizeof *a);
    a->options = *o;
    pk_list_init(&a->idle);
    pk_list_init(&a->to_claim);
    pk_list_init(&a->draining);
    pk_list_init(&a->due);
    return a;
}

void pk_admit_free(struct pk_admit *a)
{
    struct pk_list_link *link;
    while ((link = pk_list_first(&a->idle)) != NULL) {
        forget_resource(a, PK_OWNER(link, struct pk_admit_resource, idle));
    }
    PK_ASSERT(a->n_resources == 0);
    pk_door_resize(a, 0);
}

struct pk_admit_counts pk_admit_counts(const struct pk_admit *a)
{
    struct pk_admit_counts c = a->counts;
    c.resources = a->n_resources;
    return c;
}

static struct pk_admit_row row_of(const struct pk_admit_resource *r)
{
    return (struct pk_admit_row){.name = name_of(r),
                                 .fence = r->fence,
                                 .flying = r->n_flying,
                                 .older = r->n_older,
                                 .waiting = r->n_waiting,
                                 .claiming = r->claiming};
}

bool pk_admit_show(const struct pk_admit *a, struct pk_bytes after,
                   struct pk_admit_row *out)
{
    struct pk_node *n = pk_tree_seek(&a->resources, &after, by_name);
    if (n != NULL && by_name(&after, n) == 0) {
        n = pk_tree_next(n);
    }
    if (n == NULL) {
        return false;
    }
    *out = row_of(PK_OWNER(n, struct pk_admit_resource, node));
    return true;
}

bool pk_admit_look(const struct pk_admit *a, struct pk_bytes name,
                   struct pk_admit_row *out)
{
    struct pk_node *n = pk_tree_find(&a->resources, &name, by_name);
    if (n != NULL) {
        *out = row_of(PK_OWNER(n, struct pk_admit_resource, node));
    }
    return n != NULL;
}

/* ---- what must always hold ---- */

static const char *wrong_flights(const struct pk_admit *a,
                                 const struct pk_admit_resource *r)
{
    uint64_t flying = 0, older = 0, waiting = 0;
    for (struct pk_admit_ticket *t = first_of(&r->flying); t != NULL;
         t = next_of(&r->flying, t)) {
        flying++;
        older += t->token < r->fence;
        if (t->token > r->fence) {
            return "A2: one flies above the fence";
        }
    }
    for (struct pk_admit_ticket *t = first_of(&r->waiting); t != NULL;
         t = next_of(&r->waiting, t)) {
        waiting++;
        if (t->token != r->fence) {
            return "A4: one waits that was overtaken";
        }
    }
    if (flying != r->n_flying || older != r->n_older || waiting != r->n_waiting) {
        return "the counts are not the true ones";
    }
    if (waiting > 0 && older == 0) {
        return "A4: one waits for nobody";
    }
    return a->options.shadow && waiting > 0 ? "one waits in shadow mode" : NULL;
}

const char *pk_admit_wrong(const struct pk_admit *a)
{
    size_t n = 0;
    for (struct pk_node *node = pk_tree_first(&a->resources); node != NULL;
         node = pk_tree_next(node)) {
        const struct pk_admit_resource *r =
            PK_OWNER(node, struct pk_admit_resource, node);
        const char *wrong = wrong_flights(a, r);
        n++;
        if (wrong != NULL) {
            return wrong;
        }
        if (unused(r) != pk_list_linked(&r->idle)) {
            return "A8: in use and idle at once, or neither";
        }
        if (r->claiming == 0 && !pk_list_empty(&r->asked)) {
            return "A3: one waits for a claim that nobody makes";
        }
        if (r->claiming == 0 && !pk_list_empty(&r->asking)) {
            return "A3: one asks and no claim is made";
        }
    }
    return n == a->n_resources ? NULL : "the resources are not counted right";
}
