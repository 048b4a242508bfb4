/* SPDX-License-Identifier: MIT */
#include "core/effect.h"

#include "core/door.h"

/* The list's bytes live in blocks that never move, so an effect's strings stay valid
 * while more are added. Used blocks come first in the chain; after a reset all are free
 * again. */
struct pk_effect_block {
    struct pk_effect_block *next;
    uint32_t used;
    uint32_t size;
    char bytes[];
};

enum { BLOCK_BYTES = 16384, BLOCK_BYTES_MAX = 1 << 26, FIRST_EFFECTS = 64 };

const char *pk_effect_name(enum pk_effect_kind k)
{
    static const char *const names[] = {
        "reply",        "lock",        "hold",           "wait",        "outcome",
        "lease-opened", "lease-ended", "queued",         "left",        "granted",
        "ended",        "value",       "closed",         "opened",      "fence-raised",
        "fence-set",    "fence-mode",  "fence-shadowed", "fence-ended", "leapt",
    };
    _Static_assert(sizeof names / sizeof names[0] == PK_EFFECT_COUNT,
                   "one name per kind");
    PK_ASSERT(k < PK_EFFECT_COUNT);
    return names[k];
}

/* One block is kept, the largest: that's the steady state's size. */
void pk_effects_reset(struct pk_effects *e)
{
    e->count = 0;
    struct pk_effect_block *keep = e->blocks;
    while (keep != NULL && keep->next != NULL) {
        struct pk_effect_block *next = keep->next;
        struct pk_effect_block *smaller = next->size > keep->size ? keep : next;
        struct pk_effect_block *larger = smaller == keep ? next : keep;
        larger->next = next->next;
        pk_door_resize(smaller, 0);
        keep = larger;
    }
    if (keep != NULL) {
        keep->used = 0;
    }
    e->blocks = keep;
}

void pk_effects_free(struct pk_effects *e)
{
    pk_effects_reset(e);
    pk_door_resize(e->blocks, 0);
    pk_door_resize(e->list, 0);
    *e = (struct pk_effects){0};
}

static struct pk_bytes keep_bytes(struct pk_effects *e, struct pk_bytes from)
{
    if (from.len == 0) {
        return pk_bytes("", 0);
    }
    struct pk_effect_block *b = e->blocks;
    if (b == NULL || b->size - b->used < from.len) {
        uint32_t size = b == NULL ? BLOCK_BYTES : b->size;
        while (size < from.len ||
               (b != NULL && size == b->size && size < BLOCK_BYTES_MAX)) {
            size *= 2;
        }
        b = pk_door_resize(NULL, sizeof *b + size);
        *b = (struct pk_effect_block){.next = e->blocks, .size = size};
        e->blocks = b;
    }
    char *at = b->bytes + b->used;
    memcpy(at, from.data, from.len);
    b->used += from.len;
    return pk_bytes(at, from.len);
}

struct pk_effect *pk_effects_add(struct pk_effects *e, const struct pk_effect *from)
{
    if (e->count == e->capacity) {
        e->capacity = e->capacity == 0 ? FIRST_EFFECTS : e->capacity * 2;
        e->list = pk_door_resize(e->list, e->capacity * sizeof *e->list);
    }
    struct pk_effect *to = &e->list[e->count++];
    *to = *from;
    to->name = keep_bytes(e, from->name);
    to->value = keep_bytes(e, from->value);
    to->label = keep_bytes(e, from->label);
    to->by = keep_bytes(e, from->by);
    to->why = keep_bytes(e, from->why);
    return to;
}
