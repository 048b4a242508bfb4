/* SPDX-License-Identifier: MIT */
/*
 * The promises P1, P2, P7 and P9, checked from the effects alone: what somebody could
 * know who sees the stream of events and nothing of the state. Third opinion beside
 * check.c and the model, so that a mistake which those two share still shows.
 */
#ifndef PICKET_TEST_WATCH_H
#define PICKET_TEST_WATCH_H

#include <stddef.h>
#include <stdint.h>

#include "core/command.h"
#include "core/effect.h"

/* One lock of a hold or of a wait, as its event told. */
struct watched {
    uint64_t lease, request, token;
    enum pk_mode mode;
    uint32_t slots, name_len;
    char name[PK_NAME_MAX];
};

struct watched_list {
    struct watched *list; /* in order of arrival */
    size_t count, capacity;
};

struct watch {
    struct watched_list holds, waits, closed;
    struct watched_list leases; /* alive; only `lease` counts */
    struct watched_list keys;   /* those of them that a TAKE opened */
    uint64_t last_token;
    /* Queues are looked at only when every acquire has its own request id: without
     * one, two waits of a lease can't be told apart from outside. */
    bool blind_to_queues;
};

/* Takes in the effects of one step. `behind`: something is overdue (S5), so nobody is
 * stranded yet. NULL, or the sentence of the promise that they break. */
const char *watch_step(struct watch *w, const struct pk_command *c,
                       const struct pk_effects *effects, bool behind);
/* NULL when nothing is held, waited for, closed or alive any more. */
const char *watch_leftover(const struct watch *w);
/* The token under which the lease holds the lock, 0 when it doesn't. */
uint64_t watch_token(const struct watch *w, uint64_t lease, struct pk_bytes name);
void watch_free(struct watch *w);

#endif
