/* SPDX-License-Identifier: MIT */
#include "raft/garbage.h"

#include "core/door.h"
#include "core/machine.h"
#include "raft/snapshot.h"

enum { PIECE_COST = 64 }; /* of freeing a piece, as compared to a lease */

/* Exactly one of the two is not NULL. */
struct pk_garbage_item {
    struct pk_garbage_item *next;
    struct pk_machine *machine;
    struct pk_staging *staging;
};

static void add(struct pk_garbage *g, struct pk_machine *m, struct pk_staging *s)
{
    struct pk_garbage_item *i = pk_door_resize(NULL, sizeof *i);
    *i = (struct pk_garbage_item){.next = g->first, .machine = m, .staging = s};
    g->first = i;
}

void pk_garbage_add_machine(struct pk_garbage *g, struct pk_machine *m)
{
    if (m != NULL) {
        add(g, m, NULL);
    }
}

void pk_garbage_add_staging(struct pk_garbage *g, struct pk_staging *s)
{
    pk_garbage_add_machine(g, pk_staging_take_machine(s));
    add(g, NULL, s);
}

/* True: nothing is left of the item but itself. */
static bool free_slice(struct pk_garbage_item *i)
{
    if (i->machine != NULL) {
        return pk_machine_free_some(i->machine, PK_GARBAGE_SLICE);
    }
    PK_ASSERT(i->staging != NULL);
    unsigned left = PK_GARBAGE_SLICE / PIECE_COST;
    while (left > 0 && i->staging->refs == 1 && pk_staging_free_piece(i->staging)) {
        left--;
    }
    bool over = left > 0 && i->staging->refs == 1;
    if (over) {
        pk_staging_drop(i->staging);
    }
    return over;
}

void pk_garbage_free_some(struct pk_garbage *g)
{
    struct pk_garbage_item **at = &g->first;
    /* One that a snapshot shares does not keep the others. */
    while (*at != NULL && (*at)->staging != NULL && (*at)->staging->refs > 1) {
        at = &(*at)->next;
    }
    struct pk_garbage_item *i = *at;
    if (i != NULL && free_slice(i)) {
        *at = i->next;
        pk_door_resize(i, 0);
    }
}

void pk_garbage_free(struct pk_garbage *g)
{
    while (g->first != NULL) {
        struct pk_garbage_item *i = g->first;
        g->first = i->next;
        pk_machine_free(i->machine);
        pk_staging_drop(i->staging);
        pk_door_resize(i, 0);
    }
}
