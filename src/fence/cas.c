/* SPDX-License-Identifier: MIT */
#include "fence/cas.h"

#include <stdlib.h>

#include "client/error.h"
#include "core/door.h"
#include "core/fencing.h"

struct pk_resource {
    struct picket_cas cas;
};

enum { TRIES = 1000 }; /* a swap lost so often is a store that never swaps */

enum picket_status pk_cas_admit(struct picket_fence_state *state, uint64_t token)
{
    switch (pk_fencing(state->token, token)) {
    case PK_FENCING_STALE:
        if (state->shadow == 0) {
            return pk_fail_plain(PICKET_STALE);
        }
        state->shadowed++;
        return PICKET_OK;
    case PK_FENCING_HELD:
        return PICKET_OK;
    case PK_FENCING_RAISE:
        state->token = token;
        return PICKET_OK;
    }
    PK_ASSERT(false);
    return PICKET_BADARG;
}

bool pk_cas_same(const struct picket_fence_state *a, const struct picket_fence_state *b)
{
    return a->token == b->token && a->shadow == b->shadow && a->shadowed == b->shadowed;
}

struct pk_resource *pk_cas_new(const struct picket_cas *cas)
{
    struct pk_resource *r = pk_door_resize(NULL, sizeof *r);
    r->cas = *cas;
    return r;
}

void pk_cas_close(struct pk_resource *r)
{
    if (r->cas.close != NULL) {
        r->cas.close(r->cas.ctx);
    }
    pk_door_resize(r, 0);
}

/* ---- load, change, swap; again while somebody else was quicker ---- */

/* What a verb makes of a cell; other than OK: nothing is swapped. */
typedef enum picket_status (*change)(struct picket_cell *cell, const void *how);

static enum picket_status swap(struct pk_resource *r, const char *name, change make,
                               const void *how, struct picket_fence_state *out)
{
    enum picket_status s = PICKET_BUSY;
    for (int i = 0; s == PICKET_BUSY && i < TRIES; i++) {
        struct picket_cell cell = {0};
        s = r->cas.load(r->cas.ctx, name, 0, &cell);
        if (s != PICKET_OK) {
            return s;
        }
        const struct picket_fence_state before = cell.fence;
        s = make(&cell, how);
        *out = cell.fence;
        bool changed = cell.version[0] == '\0' || cell.value != NULL ||
                       !pk_cas_same(&before, &cell.fence);
        if (s == PICKET_OK && changed) {
            s = r->cas.compare_and_swap(r->cas.ctx, name, cell.version, &cell);
        }
    }
    return s == PICKET_BUSY
               ? pk_fail(s, "%s: somebody else was quicker %d times", name, TRIES)
               : s;
}

struct write {
    uint64_t token;
    struct pk_bytes value;
};

static enum picket_status make_claim(struct picket_cell *cell, const void *how)
{
    return pk_cas_admit(&cell->fence, *(const uint64_t *)how);
}

static enum picket_status make_write(struct picket_cell *cell, const void *how)
{
    const struct write *w = how;
    cell->value = w->value.data;
    cell->len = w->value.len;
    /* Token 0 is a writer who knows of no fence (pk_cas_overwrite). */
    return w->token == 0 ? PICKET_OK : pk_cas_admit(&cell->fence, w->token);
}

static enum picket_status make_mode(struct picket_cell *cell, const void *how)
{
    cell->fence.shadow = *(const bool *)how ? 1 : 0;
    return PICKET_OK;
}

/* ---- the verbs ---- */

enum picket_status pk_cas_claim(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence)
{
    struct picket_fence_state state = {0};
    enum picket_status s = swap(r, name, make_claim, &token, &state);
    *fence = state.token;
    return s;
}

enum picket_status pk_cas_check(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence)
{
    struct picket_cell cell = {0};
    enum picket_status s = r->cas.load(r->cas.ctx, name, 0, &cell);
    if (s != PICKET_OK) {
        return s;
    }
    *fence = cell.fence.token;
    enum pk_fencing word = pk_fencing(cell.fence.token, token);
    if (word == PK_FENCING_HELD || cell.fence.shadow != 0) {
        return PICKET_OK;
    }
    return pk_fail_plain(word == PK_FENCING_STALE ? PICKET_STALE : PICKET_UNCLAIMED);
}

enum picket_status pk_cas_set(struct pk_resource *r, const char *name, uint64_t token,
                              struct pk_bytes value, uint64_t *fence)
{
    struct write w = {token, value};
    struct picket_fence_state state = {0};
    enum picket_status s = swap(r, name, make_write, &w, &state);
    *fence = state.token;
    return s;
}

enum picket_status pk_cas_overwrite(struct pk_resource *r, const char *name,
                                    struct pk_bytes value)
{
    uint64_t unused;
    return pk_cas_set(r, name, 0, value, &unused);
}

/* Claims before it reads, and looks again afterwards: what is read under a fence that has
 * moved on meanwhile is not this token's to see. */
enum picket_status pk_cas_get(struct pk_resource *r, const char *name, uint64_t token,
                              char **value, size_t *len, uint64_t *fence)
{
    struct picket_cell cell = {0};
    enum picket_status s = token == 0 ? PICKET_OK : pk_cas_claim(r, name, token, fence);
    if (s == PICKET_OK) {
        s = r->cas.load(r->cas.ctx, name, 1, &cell);
    }
    if (s != PICKET_OK) {
        return s;
    }
    *fence = cell.fence.token;
    bool moved_on = token != 0 && cell.fence.shadow == 0 &&
                    pk_fencing(cell.fence.token, token) == PK_FENCING_STALE;
    if (moved_on) {
        free((void *)(uintptr_t)cell.value);
        return pk_fail_plain(PICKET_STALE);
    }
    if (cell.value == NULL && cell.fence.token == 0) {
        return pk_fail_plain(PICKET_NOTFOUND);
    }
    char *copy = pk_door_resize((void *)(uintptr_t)cell.value, cell.len + 1);
    copy[cell.len] = '\0';
    *value = copy;
    *len = cell.len;
    return PICKET_OK;
}

enum picket_status pk_cas_mode(struct pk_resource *r, const char *name, bool shadow)
{
    struct picket_fence_state unused;
    return swap(r, name, make_mode, &shadow, &unused);
}

enum picket_status pk_cas_show(struct pk_resource *r, const char *name,
                               struct picket_fence_state *out)
{
    struct picket_cell cell = {0};
    enum picket_status s = r->cas.load(r->cas.ctx, name, 0, &cell);
    if (s == PICKET_OK && cell.version[0] == '\0') {
        s = pk_fail_plain(PICKET_NOTFOUND);
    }
    if (s == PICKET_OK) {
        *out = cell.fence;
    }
    return s;
}
