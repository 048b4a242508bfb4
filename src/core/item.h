/* SPDX-License-Identifier: MIT */
/*
 * Items: the state as a set of small pieces, one for each lease, claim, ended lease,
 * lock with a timer, and fence. Private to src/core.
 *
 * The digest of the state is the sum of the hashes of all items (and the hash of the
 * machine's own fields), so a change costs the hash of what changed, whatever the size of
 * the state. A snapshot is the items written out one after the other.
 *
 * Two calls keep both true. Whoever changes a thing takes its item out before, and puts
 * it in again after:
 *
 *     pk_item_out(m, PK_ITEM_LEASE, l);
 *     l->ttl_ms = ttl_ms;
 *     pk_item_in(m, PK_ITEM_LEASE, l);
 *
 * A new thing is only put in, one that goes is only taken out. check.c sums up all hashes
 * anew, so that a forgotten call is noticed in every test.
 */
#ifndef PICKET_CORE_ITEM_H
#define PICKET_CORE_ITEM_H

#include <stdint.h>

struct pk_machine;
struct pk_writer;

enum pk_item {
    PK_ITEM_MACHINE = 1, /* the machine's own fields: the first, and not in the sum */
    PK_ITEM_LEASE,
    PK_ITEM_CLAIM,
    PK_ITEM_ENDED, /* a lease that has ended */
    PK_ITEM_LOCK,  /* a lock that has a timer */
    PK_ITEM_FENCE,
    PK_ITEM_END, /* the last one: the digest */
};

/* Before `thing` changes or goes: takes its item out of the digest, and writes it to
 * the view that is being read, if the view has not come to it yet. */
void pk_item_out(struct pk_machine *m, enum pk_item kind, void *thing);
/* After it was made or has changed: puts its item into the digest. */
void pk_item_in(struct pk_machine *m, enum pk_item kind, void *thing);

/* The kind and the fields. `thing` is a pk_machine, pk_lease, pk_claim, pk_lock or
 * pk_fence. */
void pk_item_write(struct pk_writer *w, enum pk_item kind, const void *thing);
uint64_t pk_item_hash(enum pk_item kind, const void *thing);
/* Where a thing notes the last view that has its item. */
uint16_t *pk_item_view(enum pk_item kind, void *thing);

#endif
