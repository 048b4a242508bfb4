/* SPDX-License-Identifier: MIT */
#include "server/read_index.h"

#include <string.h>

#include "core/door.h"
#include "core/wire.h"

/* ---- notes ---- */

void pk_read_note_encode(const struct pk_read_note *n,
                         unsigned char out[PK_READ_NOTE_BYTES])
{
    out[0] = (unsigned char)n->kind;
    pk_put_u64(out + 1, n->run);
    pk_put_u64(out + 9, n->round);
    pk_put_u64(out + 17, n->term);
    pk_put_u64(out + 25, n->index);
    pk_put_u64(out + 33, n->clock_ms);
}

bool pk_read_note_decode(const unsigned char *in, size_t len, struct pk_read_note *n)
{
    if (len != PK_READ_NOTE_BYTES || in[0] < PK_READ_PROBE || in[0] > PK_READ_INDEX) {
        return false;
    }
    *n = (struct pk_read_note){.kind = (enum pk_read_note_kind)in[0],
                               .run = pk_get_u64(in + 1),
                               .round = pk_get_u64(in + 9),
                               .term = pk_get_u64(in + 17),
                               .index = pk_get_u64(in + 25),
                               .clock_ms = pk_get_u64(in + 33)};
    return true;
}

/* ---- rounds ---- */

uint64_t pk_read_rounds_begin(struct pk_read_rounds *r)
{
    return ++r->last;
}

void pk_read_rounds_forget(struct pk_read_rounds *r)
{
    r->n = 0;
}

static void note_heard(struct pk_read_rounds *r, uint64_t id, uint64_t round)
{
    size_t i = 0;
    while (i < r->n && r->heard[i].id != id) {
        i++;
    }
    if (i == PK_READ_VOTERS_MAX) {
        return; /* members came and went: until the next term these don't count */
    }
    if (i == r->n) {
        r->heard[r->n++].id = id;
        r->heard[i].round = 0;
    }
    r->heard[i].round = round > r->heard[i].round ? round : r->heard[i].round;
}

static uint64_t heard_of(const struct pk_read_rounds *r, uint64_t id)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->heard[i].id == id) {
            return r->heard[i].round;
        }
    }
    return 0;
}

/* How many voters have answered `round` or a later one. */
static size_t answered(const struct pk_read_rounds *r, uint64_t round,
                       const uint64_t *voters, size_t n, uint64_t self)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += voters[i] == self || heard_of(r, voters[i]) >= round;
    }
    return count;
}

void pk_read_rounds_hear(struct pk_read_rounds *r, uint64_t id, uint64_t round,
                         const uint64_t *voters, size_t n, uint64_t self)
{
    if (round > r->last) {
        return; /* no round of ours */
    }
    if (id != self) {
        note_heard(r, id, round);
    }
    /* A majority for this very round, or for an earlier one that others have answered. */
    for (size_t i = 0; i < r->n + 1; i++) {
        uint64_t candidate = i < r->n ? r->heard[i].round : round;
        if (candidate > r->confirmed && answered(r, candidate, voters, n, self) > n / 2) {
            r->confirmed = candidate;
        }
    }
}
