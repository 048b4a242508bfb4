/* SPDX-License-Identifier: MIT */
/* Requests and their queues. Those that are over are kept to be used again, so that a
 * call allocates nothing. */
#include <string.h>

#include "core/door.h"
#include "drivers/remote.h"

enum {
    SPARES_MAX = 16,
    SPARE_BYTES = 64 * 1024, /* of a spare's request, */
    SPARE_ROWS = 256,        /* and in its answer */
};

void pk_remote_asks_add(struct pk_remote_asks *q, struct pk_remote_ask *a)
{
    a->next = NULL;
    if (q->last == NULL) {
        q->first = a;
    } else {
        q->last->next = a;
    }
    q->last = a;
}

void pk_remote_asks_add_first(struct pk_remote_asks *q, struct pk_remote_ask *a)
{
    a->next = q->first;
    q->first = a;
    if (q->last == NULL) {
        q->last = a;
    }
}

void pk_remote_asks_remove(struct pk_remote_asks *q, struct pk_remote_ask *a)
{
    struct pk_remote_ask *before = NULL;
    for (struct pk_remote_ask *at = q->first; at != a; at = at->next) {
        PK_ASSERT(at != NULL);
        before = at;
    }
    if (before == NULL) {
        q->first = a->next;
    } else {
        before->next = a->next;
    }
    if (q->last == a) {
        q->last = before;
    }
}

struct pk_remote_ask *pk_remote_ask_new(struct pk_store *s, enum pk_remote_ask_kind kind)
{
    struct pk_remote_ask *a = s->spare;
    if (a != NULL) {
        s->spare = a->next;
        s->n_spare--;
    } else {
        a = pk_door_resize(NULL, sizeof *a);
        memset(a, 0, sizeof *a);
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&a->answered, &attr);
        pthread_condattr_destroy(&attr);
    }
    a->kind = kind;
    a->bytes.len = 0;
    a->only_reads = a->in_flight = a->maybe = a->abandoned = a->done = false;
    pk_effects_reset(&a->answer);
    a->said[0] = '\0';
    return a;
}

void pk_remote_ask_free(struct pk_remote_ask *a)
{
    pthread_cond_destroy(&a->answered);
    pk_effects_free(&a->answer);
    pk_resp_free(&a->bytes);
    pk_door_resize(a, 0);
}

void pk_remote_ask_drop(struct pk_store *s, struct pk_remote_ask *a)
{
    if (s->n_spare == SPARES_MAX || a->bytes.capacity > SPARE_BYTES ||
        a->answer.capacity > SPARE_ROWS) {
        pk_remote_ask_free(a);
        return;
    }
    a->next = s->spare;
    s->spare = a;
    s->n_spare++;
}
