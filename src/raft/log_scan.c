/* SPDX-License-Identifier: MIT */
#include "raft/log_scan.h"

#include "core/door.h"

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- looking at one segment ---- */

void pk_scan_look(const struct pk_log_owner *owner, uint32_t segment,
                  const unsigned char *bytes, size_t len, struct pk_segment_look *out)
{
    *out = (struct pk_segment_look){0};
    for (size_t i = 0; i + PK_SECTOR <= len; i += PK_SECTOR) {
        uint64_t number;
        struct pk_log_place at = {segment, i};
        if (pk_sector_check(owner, at, bytes + i, &number)) {
            out->highest = larger(out->highest, number);
        } else {
            out->bad_end = i + PK_SECTOR;
        }
    }
    for (size_t i = 0; i + PK_BLOCK <= len; i += PK_BLOCK) {
        struct pk_batch_look look = {.owner = owner, .at = {segment, i}};
        struct pk_batch_head h = {0};
        uint32_t chain;
        enum pk_batch_state state =
            pk_batch_decode(&look, bytes + i, len - i, &h, &chain);
        if (state == PK_BATCH_GOOD || state == PK_BATCH_TORN) {
            out->durable = larger(out->durable, h.durable);
        }
        if (i == 0) {
            out->bad = state == PK_BATCH_BAD;
            out->begins = state == PK_BATCH_GOOD;
            out->first = h;
        }
    }
}

/* ---- from batch to batch ---- */

/* The log begins with the newest segment whose first entry is not behind the one that is
 * needed. */
void pk_scan_begin(struct pk_scan *s, uint64_t needed)
{
    s->at = (struct pk_log_place){0};
    s->last = s->highest = s->durable = 0;
    s->chain = 0;
    s->wants = s->bad = false;
    uint64_t newest = 0;
    for (uint32_t i = 0; i < s->segments; i++) {
        const struct pk_segment_look *l = &s->looks[i];
        s->highest = larger(s->highest, l->highest);
        s->durable = larger(s->durable, l->durable);
        if (l->begins && l->first.first_index <= needed && l->first.number > newest) {
            newest = l->first.number;
            s->at.segment = i;
            s->last = l->first.before;
            s->chain = l->first.chain;
            s->wants = true;
        }
    }
    s->last = s->wants ? s->last : 0;
}

bool pk_scan_wants(const struct pk_scan *s, uint32_t *segment)
{
    *segment = s->at.segment;
    return s->wants;
}

static bool follows(const struct pk_scan *s, const struct pk_batch_head *h)
{
    return h->before == s->last && h->chain == s->chain && h->number > s->last;
}

/* The log goes on at the beginning of another segment. */
static bool goes_on_elsewhere(struct pk_scan *s)
{
    for (uint32_t i = 0; i < s->segments; i++) {
        const struct pk_segment_look *l = &s->looks[i];
        if (i != s->at.segment && l->begins && follows(s, &l->first)) {
            s->at = (struct pk_log_place){i, 0};
            return true;
        }
    }
    return false;
}

void pk_scan_take(struct pk_scan *s, const unsigned char *bytes, size_t len)
{
    s->wants = false;
    while (s->at.offset + PK_BLOCK <= len) {
        struct pk_batch_look look = {.owner = s->owner, .at = s->at, .above = s->last};
        struct pk_batch_head h;
        uint32_t chain;
        const unsigned char *in = bytes + s->at.offset;
        enum pk_batch_state state =
            pk_batch_decode(&look, in, len - s->at.offset, &h, &chain);
        if (state != PK_BATCH_GOOD || !follows(s, &h)) {
            s->bad = state == PK_BATCH_BAD;
            break;
        }
        s->batch(s->ctx, s->at, &h, in);
        s->last = h.number;
        s->chain = chain;
        s->at.offset += pk_batch_size(0, h.bytes - PK_BATCH_HEAD);
    }
    if (goes_on_elsewhere(s)) {
        s->wants = true;
        s->bad = false;
    }
}

/* ---- the verdict ---- */

static bool any_begins(const struct pk_scan *s)
{
    uint32_t i = 0;
    while (i < s->segments && !s->looks[i].begins) {
        i++;
    }
    return i < s->segments;
}

enum pk_scan_verdict pk_scan_end(struct pk_scan *s, uint64_t mark)
{
    PK_ASSERT(!s->wants);
    s->highest = larger(larger(s->highest, mark), s->last);
    if (s->bad) {
        return PK_SCAN_DAMAGED;
    }
    for (uint32_t i = 0; i < s->segments; i++) {
        if (s->looks[i].bad) {
            s->at = (struct pk_log_place){i, 0};
            return PK_SCAN_DAMAGED;
        }
    }
    /* Nothing of what was written once is the log that is needed. */
    bool gone = s->last == 0 && any_begins(s);
    bool lost = larger(s->durable, mark) > s->last;
    return lost || gone ? PK_SCAN_LOST : PK_SCAN_SOUND;
}
