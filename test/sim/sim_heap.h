/* SPDX-License-Identifier: MIT */
/*
 * Memory that can be forgotten all at once: what a killed process had, or a whole world.
 *
 * The consensus library draws from here too (raft_heap_set), so that a crash in the
 * middle of its work leaves nothing behind and needs no word with the library.
 */
#ifndef PICKET_SIM_HEAP_H
#define PICKET_SIM_HEAP_H

#include <stddef.h>

struct sim_block {
    struct sim_block *next, *before;
};

struct sim_heap {
    struct sim_block all; /* a ring; sim_heap_init ties it */
};

void sim_heap_init(struct sim_heap *h);
void *sim_heap_take(struct sim_heap *h, size_t size);
/* NULL is fine. */
void sim_heap_give(void *p);
/* Frees everything that was taken and not given back. */
void sim_heap_clear(struct sim_heap *h);

/* From now on the library's memory comes from `h`. */
void sim_heap_for_raft(struct sim_heap *h);

#endif
