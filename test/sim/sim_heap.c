/* SPDX-License-Identifier: MIT */
#include "sim_heap.h"

#include <raft.h>
#include <string.h>

#include "core/door.h"

void sim_heap_init(struct sim_heap *h)
{
    h->all.next = &h->all;
    h->all.before = &h->all;
}

static void link_in(struct sim_heap *h, struct sim_block *b)
{
    b->next = h->all.next;
    b->before = &h->all;
    b->next->before = b;
    h->all.next = b;
}

static void link_out(struct sim_block *b)
{
    b->next->before = b->before;
    b->before->next = b->next;
}

void *sim_heap_take(struct sim_heap *h, size_t size)
{
    struct sim_block *b = pk_door_resize(NULL, sizeof *b + size);
    link_in(h, b);
    return b + 1;
}

void sim_heap_give(void *p)
{
    if (p != NULL) {
        struct sim_block *b = (struct sim_block *)p - 1;
        link_out(b);
        pk_door_resize(b, 0);
    }
}

void sim_heap_clear(struct sim_heap *h)
{
    while (h->all.next != &h->all) {
        sim_heap_give(h->all.next + 1);
    }
}

/* ---- for the library ---- */

static struct sim_heap *current;

static void *take(void *unused, size_t size)
{
    (void)unused;
    return sim_heap_take(current, size);
}

static void give(void *unused, void *p)
{
    (void)unused;
    sim_heap_give(p);
}

static void *take_zeroed(void *unused, size_t count, size_t size)
{
    (void)unused;
    void *p = sim_heap_take(current, count * size);
    memset(p, 0, count * size);
    return p;
}

static void *resize(void *unused, void *p, size_t size)
{
    (void)unused;
    if (p == NULL) {
        return sim_heap_take(current, size);
    }
    struct sim_block *b = (struct sim_block *)p - 1;
    link_out(b);
    b = pk_door_resize(b, sizeof *b + size);
    link_in(current, b);
    return b + 1;
}

/* Only the library's files on disk want aligned memory, and there are none here. */
static void *take_aligned(void *unused, size_t alignment, size_t size)
{
    PK_ASSERT(alignment <= sizeof(struct sim_block));
    return take(unused, size);
}

static void give_aligned(void *unused, size_t alignment, void *p)
{
    (void)alignment;
    give(unused, p);
}

void sim_heap_for_raft(struct sim_heap *h)
{
    static struct raft_heap heap = {
        .malloc = take,
        .free = give,
        .calloc = take_zeroed,
        .realloc = resize,
        .aligned_alloc = take_aligned,
        .aligned_free = give_aligned,
    };
    if (current == NULL) {
        raft_heap_set(&heap);
    }
    current = h;
}
