/* SPDX-License-Identifier: MIT */
#include "core/pool.h"

#include <stdbool.h>
#include <string.h>

#include "core/door.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__wasm__)
#define WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define WATCHED 1
#endif
#endif
#ifndef WATCHED
#define WATCHED 0
#endif

enum { FIRST_SLAB = 1024 }; /* bytes; each is twice as large as the one before */

/* What a place holds after a thing was given back. */
struct place {
    struct place *next;
};

struct pk_slab {
    struct pk_slab *next, **back; /* of those with room; back is NULL: it has none */
    struct place *free;           /* places that were given back */
    uint32_t used;                /* places that are taken */
    uint32_t touched;             /* those behind were never taken yet */
    uint32_t places;
    _Alignas(PK_POOL_GRAIN) unsigned char bytes[];
};

_Static_assert(sizeof(struct place) <= PK_POOL_GRAIN, "fits into the smallest thing");

/* ---- the list of slabs with room ---- */

static void link_roomy(struct pk_slabs *of, struct pk_slab *s)
{
    s->next = of->roomy;
    s->back = &of->roomy;
    if (s->next != NULL) {
        s->next->back = &s->next;
    }
    of->roomy = s;
}

static void unlink_roomy(struct pk_slab *s)
{
    *s->back = s->next;
    if (s->next != NULL) {
        s->next->back = s->back;
    }
    s->back = NULL;
}

/* ---- all slabs, by address ---- */

/* How many slabs begin at or before that address. */
static uint32_t count_up_to(const struct pk_slabs *of, const void *at)
{
    uint32_t low = 0;
    uint32_t high = of->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)of->all[middle] <= (uintptr_t)at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void add_slab(struct pk_slabs *of, size_t size)
{
    size_t bytes = FIRST_SLAB;
    for (uint32_t i = 0; i < of->n && bytes < PK_POOL_SLAB_MOST; i++) {
        bytes *= 2;
    }
    struct pk_slab *s = pk_door_resize(NULL, bytes);
    memset(s, 0, sizeof *s);
    s->places = (uint32_t)((bytes - sizeof *s) / size);
    if (of->n == of->capacity) {
        of->capacity = of->capacity == 0 ? 1 : 2 * of->capacity;
        of->all = pk_door_resize(of->all, of->capacity * sizeof(struct pk_slab *));
    }
    uint32_t at = count_up_to(of, s);
    memmove(of->all + at + 1, of->all + at, (of->n - at) * sizeof(struct pk_slab *));
    of->all[at] = s;
    of->n++;
    link_roomy(of, s);
}

static void drop_slab(struct pk_slabs *of, uint32_t at)
{
    struct pk_slab *s = of->all[at];
    unlink_roomy(s);
    of->n--;
    memmove(of->all + at, of->all + at + 1, (of->n - at) * sizeof(struct pk_slab *));
    pk_door_resize(s, 0);
}

/* ---- for the machine ---- */

static size_t round_up(size_t size)
{
    return (size + PK_POOL_GRAIN - 1) / PK_POOL_GRAIN * PK_POOL_GRAIN;
}

static void *take_place(struct pk_slabs *of, size_t size)
{
    if (of->roomy == NULL) {
        add_slab(of, size);
    }
    struct pk_slab *s = of->roomy;
    void *thing = s->free;
    if (thing != NULL) {
        s->free = s->free->next;
    } else {
        thing = s->bytes + s->touched++ * size;
    }
    s->used++;
    if (s->used == s->places) {
        unlink_roomy(s);
    }
    return thing;
}

void *pk_pool_take(struct pk_pool *p, size_t size)
{
    PK_ASSERT(size > 0);
    size_t room = round_up(size);
    return WATCHED || room > PK_POOL_MOST
               ? pk_door_resize(NULL, size)
               : take_place(&p->of[room / PK_POOL_GRAIN - 1], room);
}

void *pk_pool_zeroed(struct pk_pool *p, size_t size)
{
    return memset(pk_pool_take(p, size), 0, size);
}

static void give_place(struct pk_slabs *of, void *thing, size_t size)
{
    uint32_t at = count_up_to(of, thing);
    PK_ASSERT(at > 0);
    struct pk_slab *s = of->all[at - 1];
    size_t offset = (size_t)((unsigned char *)thing - s->bytes);
    PK_ASSERT(offset % size == 0 && offset / size < s->touched && s->used > 0);
    struct place *place = thing;
    place->next = s->free;
    s->free = place;
    s->used--;
    if (s->back == NULL) {
        link_roomy(of, s);
    }
    bool only = of->roomy == s && s->next == NULL;
    if (s->used == 0 && !only) {
        drop_slab(of, at - 1);
    }
}

void pk_pool_give(struct pk_pool *p, void *thing, size_t size)
{
    size_t room = round_up(size);
    if (WATCHED || room > PK_POOL_MOST) {
        pk_door_resize(thing, 0);
    } else if (thing != NULL) {
        give_place(&p->of[room / PK_POOL_GRAIN - 1], thing, room);
    }
}

void pk_pool_end(struct pk_pool *p)
{
    for (size_t i = 0; i < sizeof p->of / sizeof p->of[0]; i++) {
        struct pk_slabs *of = &p->of[i];
        while (of->n > 0) {
            PK_ASSERT(of->all[of->n - 1]->used == 0);
            drop_slab(of, of->n - 1);
        }
        of->all = pk_door_resize(of->all, 0);
        of->capacity = 0;
    }
}
