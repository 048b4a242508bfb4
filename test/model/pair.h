/* SPDX-License-Identifier: MIT */
/*
 * The machine and the model in lockstep: every command goes through its encoding into
 * both, and everything that comes out must be the same.
 */
#ifndef PICKET_TEST_PAIR_H
#define PICKET_TEST_PAIR_H

#include "model.h"
#include "watch.h"

struct pair {
    struct pk_machine *machine;
    struct model *model;
    struct watch watch;                         /* the promises, from the effects alone */
    struct pk_effects from_machine, from_model; /* of the last step */
    struct pk_effects from_read; /* of the same command without a step (S6) */
    char wrong[160];             /* what the last step found, or "" */
    /* A view that is read while commands go on, and what it must turn out to be. */
    unsigned char *viewed, *expected;
    size_t viewed_len, expected_len;
};

void pair_start(struct pair *p);
void pair_end(struct pair *p);

/* Steps both, and reads on in a view of an earlier moment. True when they agree and every
 * invariant holds; else `wrong` says what not. */
bool pair_step(struct pair *p, const struct pk_command *c);

/* Snapshot, restore, snapshot: must give the same bytes; goes on with the restored
 * machine. */
bool pair_restore(struct pair *p);

#endif
