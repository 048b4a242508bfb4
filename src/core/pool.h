/* SPDX-License-Identifier: MIT */
/*
 * Memory for the many small things of one machine: leases, claims, locks, labels.
 *
 * A common allocator puts 8 bytes before each block and rounds it up to 16, and a million
 * leases with a lock each are four million blocks. Here things of one size (rounded up to
 * 8) lie side by side in slabs of up to 64 KiB with nothing between them: so whoever
 * gives a thing back says its size. A slab in which nothing is left goes back through the
 * door, unless it is the only one of its size with room. Things larger than PK_POOL_MOST
 * come through the door themselves.
 *
 * Under AddressSanitizer and MemorySanitizer everything comes through the door, so that
 * they see each use of what was given back. In WebAssembly it does, too: there the bytes
 * of the page count for more.
 */
#ifndef PICKET_CORE_POOL_H
#define PICKET_CORE_POOL_H

#include <stddef.h>
#include <stdint.h>

enum {
    PK_POOL_GRAIN = 8,
    PK_POOL_MOST = 320,
    PK_POOL_SLAB_MOST = 64 * 1024,
};

struct pk_slab;

/* Of one size; all slabs by address, and those with room in a list. */
struct pk_slabs {
    struct pk_slab *roomy;
    struct pk_slab **all;
    uint32_t n, capacity;
};

/* A zeroed one is empty. */
struct pk_pool {
    struct pk_slabs of[PK_POOL_MOST / PK_POOL_GRAIN];
};

/* Memory for a thing of that size, which is not 0; and its way back (NULL: nothing). */
void *pk_pool_take(struct pk_pool *p, size_t size);
void *pk_pool_zeroed(struct pk_pool *p, size_t size);
void pk_pool_give(struct pk_pool *p, void *thing, size_t size);
/* Frees what is left of the pool, when everything was given back. */
void pk_pool_end(struct pk_pool *p);

#endif
