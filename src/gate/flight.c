/* SPDX-License-Identifier: MIT */
#include "gate/flight.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "core/limits.h"

enum { PAGE = 100 }; /* locks looked at in one go */

struct flight {
    struct pk_node node;
    struct picket_lock *lock;
    uint64_t token;
    uint32_t name_len;
    char name[];
};

struct key {
    struct pk_bytes name;
    uint64_t token;
};

/* ---- what is held ---- */

static struct pk_bytes name_of(const struct flight *f)
{
    return pk_bytes(f->name, f->name_len);
}

static int by_key(const void *key, const struct pk_node *node)
{
    const struct key *k = key;
    const struct flight *f = PK_OWNER(node, struct flight, node);
    int order = pk_bytes_compare(k->name, name_of(f));
    return order != 0 ? order : (k->token > f->token) - (k->token < f->token);
}

static struct flight *find(const struct pk_flights *f, struct pk_bytes name,
                           uint64_t token)
{
    const struct key key = {name, token};
    struct pk_node *n = pk_tree_find(&f->held, &key, by_key);
    return n == NULL ? NULL : PK_OWNER(n, struct flight, node);
}

struct picket_lock *pk_flights_find(const struct pk_flights *f, struct pk_bytes resource,
                                    uint64_t token)
{
    const struct flight *one = find(f, resource, token);
    return one == NULL ? NULL : one->lock;
}

void pk_flights_keep(struct pk_flights *f, struct pk_bytes resource, uint64_t token,
                     struct picket_lock *lock)
{
    struct flight *one = find(f, resource, token);
    if (one == NULL) {
        const struct key key = {resource, token};
        one = pk_door_resize(NULL, sizeof *one + resource.len);
        memset(one, 0, sizeof *one);
        one->token = token;
        one->name_len = resource.len;
        memcpy(one->name, resource.data, resource.len);
        bool in = pk_tree_insert(&f->held, &one->node, &key, by_key);
        PK_ASSERT(in);
    }
    one->lock = lock;
}

static struct picket_lock *forget(struct pk_flights *f, struct flight *one)
{
    struct picket_lock *lock = one->lock;
    pk_tree_erase(&f->held, &one->node);
    pk_door_resize(one, 0);
    return lock;
}

/* Below the fence it is the older ones that fly under it, at the fence all there are. */
static bool in_use(const struct flight *one, const struct pk_admit *a)
{
    struct pk_admit_row row;
    if (!pk_admit_look(a, name_of(one), &row)) {
        return false;
    }
    bool flies =
        one->token < row.fence ? row.older > 0 : row.flying > 0 || row.waiting > 0;
    return flies || row.claiming == one->token;
}

struct picket_lock *pk_flights_idle(struct pk_flights *f, const struct pk_admit *a)
{
    for (struct pk_node *n = pk_tree_first(&f->held); n != NULL; n = pk_tree_next(n)) {
        struct flight *one = PK_OWNER(n, struct flight, node);
        if (!in_use(one, a)) {
            return forget(f, one);
        }
    }
    return NULL;
}

void pk_flights_free(struct pk_flights *f)
{
    struct pk_node *n;
    while ((n = pk_tree_first(&f->held)) != NULL) {
        (void)forget(f, PK_OWNER(n, struct flight, node));
    }
}

/* ---- one claim ---- */

static void name_lock(const struct pk_flight_claim *c, uint64_t token, char *out,
                      size_t size)
{
    int n = snprintf(out, size, "%s/flight/%.*s/", c->gate, (int)c->resource.len,
                     c->resource.data);
    if (token != 0) {
        n += snprintf(out + n, size - (size_t)n, "%" PRIu64, token);
    }
    PK_ASSERT(n > 0 && (size_t)n < size); /* resource_max leaves room */
}

/* Holds the lock of this token; a lease that has ended in a pause has taken it away. */
static enum picket_status take_off(struct pk_flight_claim *c)
{
    char name[PK_NAME_MAX + 1];
    const struct picket_acquire_options shared = {.mode = PICKET_SHARED};
    if (c->lock != NULL && picket_checkpoint(c->lock, 0) == PICKET_OK) {
        return PICKET_OK;
    }
    picket_lock_close(c->lock);
    c->lock = NULL;
    name_lock(c, c->token, name, sizeof name);
    return picket_try(c->store, name, &shared, &c->lock);
}

/* Waits until nobody has that lock any more. */
static enum picket_status wait_for(struct pk_flight_claim *c, const char *name)
{
    struct picket_lock *alone = NULL;
    const struct picket_acquire_options o = {.wait_ms = (int64_t)c->patience_ms};
    enum picket_status s = picket_acquire(c->store, name, &o, &alone);
    picket_lock_close(alone);
    return s;
}

/* The token that a lock's name ends in; 0: it is of another resource. */
static uint64_t token_in(const char *name, size_t prefix)
{
    char *end;
    uint64_t token = strtoull(name + prefix, &end, 10);
    return *end == '\0' ? token : 0;
}

/* Waits for all lower tokens that fly anywhere. */
static enum picket_status wait_for_lower(struct pk_flight_claim *c)
{
    char prefix[PK_NAME_MAX + 1];
    char after[PK_NAME_MAX + 1] = "";
    enum picket_status s = PICKET_OK;
    bool more = true;
    name_lock(c, 0, prefix, sizeof prefix);
    while (more && s == PICKET_OK) {
        struct picket_view *v;
        s = picket_list(c->store, prefix, after[0] == '\0' ? NULL : after, PAGE, &v);
        if (s != PICKET_OK) {
            return s;
        }
        for (size_t i = 0; i < v->n_rows && s == PICKET_OK; i++) {
            const struct picket_row *row = &v->rows[i];
            uint64_t token = token_in(row->name, strlen(prefix));
            if (token != 0 && token < c->token && row->holders > 0) {
                s = wait_for(c, row->name);
            }
            (void)snprintf(after, sizeof after, "%s", row->name);
        }
        more = v->more != 0 && v->n_rows > 0;
        picket_view_free(v);
    }
    return s;
}

enum picket_status pk_flight_claim(struct pk_flight_claim *c)
{
    char fence[PK_NAME_MAX + 1];
    struct picket_lock *before = c->lock;
    enum picket_status taken = take_off(c);
    bool fresh = c->lock != before;
    (void)snprintf(fence, sizeof fence, "%s/%.*s", c->gate, (int)c->resource.len,
                   c->resource.data);
    /* BUSY: somebody with a higher token waits for ours to end; the fence says so. */
    enum picket_status s = taken == PICKET_OK || taken == PICKET_BUSY
                               ? picket_fence_claim(c->store, fence, c->token, &c->fence)
                               : taken;
    if (s == PICKET_OK) {
        s = taken != PICKET_OK ? taken : fresh ? wait_for_lower(c) : PICKET_OK;
    }
    if (s != PICKET_OK && fresh) {
        picket_lock_close(c->lock);
        c->lock = NULL;
    }
    return s;
}
