/* SPDX-License-Identifier: MIT */
#include "server/pending.h"

#include <string.h>

#include "core/door.h"

enum { RING_LEAST = 64, BYTES_LEAST = 1024 };

void pk_pending_free(struct pk_pending *p)
{
    pk_door_resize(p->ring, 0);
    pk_door_resize(p->bytes, 0);
    *p = (struct pk_pending){0};
}

static struct pk_pending_one *at(const struct pk_pending *p, size_t i)
{
    return &p->ring[(p->first + i) & (p->capacity - 1)];
}

static void grow_ring(struct pk_pending *p)
{
    size_t capacity = p->capacity == 0 ? RING_LEAST : 2 * p->capacity;
    struct pk_pending_one *to = pk_door_resize(NULL, capacity * sizeof *to);
    for (size_t i = 0; i < p->count; i++) {
        to[i] = *at(p, i);
    }
    pk_door_resize(p->ring, 0);
    p->ring = to;
    p->capacity = capacity;
    p->first = 0;
}

/* Room for `size` bytes at `to`. What was taken off the front is used again before the
 * queue grows. */
static void make_room(struct pk_pending *p, uint32_t size)
{
    size_t used = p->to - p->from;
    if (p->to + size <= p->room) {
        return;
    }
    if (used + size > p->room / 2) {
        size_t least = p->room == 0 ? BYTES_LEAST : 2 * p->room;
        p->room = used + size > least ? used + size : least;
        p->bytes = pk_door_resize(p->bytes, p->room);
    }
    memmove(p->bytes, p->bytes + p->from, used);
    p->from = 0;
    p->to = used;
}

unsigned char *pk_pending_add(struct pk_pending *p, enum pk_pending_kind kind,
                              struct pk_ticket ticket, uint32_t size)
{
    PK_ASSERT(kind != PK_PENDING_COMMAND || size == 0);
    if (p->count == p->capacity) {
        grow_ring(p);
    }
    *at(p, p->count++) =
        (struct pk_pending_one){.kind = kind, .bytes = size, .ticket = ticket};
    if (size == 0) {
        return NULL;
    }
    make_room(p, size);
    p->to += size;
    return p->bytes + p->to - size;
}

const struct pk_pending_one *pk_pending_at(const struct pk_pending *p, size_t i)
{
    PK_ASSERT(i < p->count);
    return at(p, i);
}

const unsigned char *pk_pending_first_bytes(const struct pk_pending *p)
{
    return p->bytes + p->from;
}

void pk_pending_drop_first(struct pk_pending *p)
{
    PK_ASSERT(p->count > 0);
    p->from += at(p, 0)->bytes;
    if (p->from == p->to) {
        p->from = p->to = 0;
    }
    p->first = (p->first + 1) & (p->capacity - 1);
    p->count--;
}

uint32_t pk_pending_drop_commands(struct pk_pending *p, uint32_t n)
{
    PK_ASSERT(n <= p->count);
    size_t kept = p->count - n;
    uint32_t dropped = 0;
    for (size_t i = kept; i < p->count; i++) {
        if (at(p, i)->kind == PK_PENDING_COMMAND) {
            dropped++;
        } else {
            *at(p, kept++) = *at(p, i);
        }
    }
    p->count = kept;
    return dropped;
}
