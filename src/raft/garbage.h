/* SPDX-License-Identifier: MIT */
/*
 * What a replica no longer uses and frees in slices: machines and staged backups may be
 * large, and the loop must not stop for the time that freeing one takes.
 */
#ifndef PICKET_RAFT_GARBAGE_H
#define PICKET_RAFT_GARBAGE_H

#include <stdint.h>

struct pk_machine;
struct pk_staging;

enum { PK_GARBAGE_SLICE = 2048 }; /* leases, claims, locks and fences at a time */

/* Zeroed: empty. */
struct pk_garbage {
    struct pk_garbage_item *first;
};

/* Takes ownership of the machine; it must have no view. NULL: nothing happens. */
void pk_garbage_add_machine(struct pk_garbage *g, struct pk_machine *m);
/* Takes over a reference to the staging, and the machine of its reader. */
void pk_garbage_add_staging(struct pk_garbage *g, struct pk_staging *s);
/* Frees a slice of it. A staging that a snapshot still shares stays. */
void pk_garbage_free_some(struct pk_garbage *g);
/* Frees everything at once. */
void pk_garbage_free(struct pk_garbage *g);

#endif
