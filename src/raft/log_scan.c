/* SPDX-License-Identifier: MIT */
#include "raft/log_scan.h"

#include "core/wire.h"

void pk_scan_begin(struct pk_scan *s, const struct pk_scan_hooks *hooks,
                   const struct pk_durable *mark, bool same_boot)
{
    *s = (struct pk_scan){.hooks = *hooks,
                          .mark = *mark,
                          .same_boot = same_boot,
                          .state = PK_BATCH_BLANK,
                          .evidence = mark->batch};
}

static void note_durable(struct pk_scan *s, uint64_t batch)
{
    s->evidence = batch > s->evidence ? batch : s->evidence;
}

static void take(struct pk_scan *s, const unsigned char *in)
{
    struct pk_batch_cursor c;
    struct pk_record r;
    pk_batch_open(&c, in);
    while (pk_batch_next(&c, &r)) {
        if (r.type == PK_RECORD_TRUNCATION) {
            s->next_index = pk_get_u64(r.data);
            s->hooks.truncate(s->hooks.ctx, s->next_index);
        } else {
            s->hooks.entry(s->hooks.ctx, s->next_index++, &r);
        }
    }
}

/* Takes in the batches of a segment up to the first that does not check. Returns where
 * that one is. */
static size_t take_all(struct pk_scan *s, const struct pk_segment_head *head,
                       const unsigned char *bytes, size_t len)
{
    size_t at = PK_BLOCK;
    struct pk_batch_head h = {0};
    s->state = PK_BATCH_BLANK; /* of a segment that is full to its last block */
    while (at + PK_BLOCK <= len) {
        s->state = pk_batch_decode(bytes + at, len - at, head, s->chain, &h);
        if (s->state == PK_BATCH_GOOD && h.number != s->next_batch) {
            s->state = PK_BATCH_BROKEN;
        }
        if (s->state != PK_BATCH_GOOD) {
            break;
        }
        note_durable(s, h.durable);
        take(s, bytes + at);
        s->chain = h.chain;
        s->next_batch++;
        at += (h.bytes + (size_t)PK_BLOCK - 1) / PK_BLOCK * PK_BLOCK;
        s->state = PK_BATCH_BLANK;
    }
    s->floor = s->state == PK_BATCH_BROKEN
                   ? (struct pk_floor){.term = h.last_term, .index = h.last_index}
                   : (struct pk_floor){0};
    s->segment = head->number;
    s->offset = at;
    return at;
}

/* Evidence that what does not check was durable. Every block may be the beginning of a
 * batch; its chain can't be checked, because the one before it is not known, but its
 * head can. */
static void look_for_evidence(struct pk_scan *s, const struct pk_segment_head *head,
                              const unsigned char *bytes, size_t from, size_t len)
{
    for (size_t at = from; at + PK_BLOCK <= len; at += PK_BLOCK) {
        struct pk_batch_head h;
        enum pk_batch_state state = pk_batch_decode(bytes + at, len - at, head, 0, &h);
        if (state == PK_BATCH_GOOD || state == PK_BATCH_BROKEN) {
            note_durable(s, h.durable);
        }
    }
}

void pk_scan_segment(struct pk_scan *s, const struct pk_segment_head *head,
                     const unsigned char *bytes, size_t len)
{
    size_t at = PK_BLOCK;
    if (s->last_segment == 0) {
        s->next_batch = head->first_batch;
        s->next_index = s->first_index = head->first_index;
        s->chain = head->chain;
    } else if (s->missing == 0 && head->number != s->last_segment + 1) {
        s->missing = s->last_segment + 1;
    }
    s->last_segment = head->number;
    note_durable(s, head->durable);
    if (head->first_batch == s->next_batch && head->chain == s->chain) {
        at = take_all(s, head, bytes, len);
    }
    look_for_evidence(s, head, bytes, at, len);
}

/* There is nothing to tell us that the batch behind the last good one was durable. */
static enum pk_scan_verdict judge_end(const struct pk_scan *s)
{
    bool closed = s->mark.closed && s->mark.batch + 1 == s->next_batch;
    bool exact = s->same_boot || closed;
    bool trace = s->state != PK_BATCH_BLANK;
    return trace && !exact ? PK_SCAN_DOUBT : PK_SCAN_SOUND;
}

/* The number of the first segment that should be there and is not; 0: none. */
static uint64_t missing(const struct pk_scan *s, uint64_t newest, uint64_t needed)
{
    if (s->missing != 0 || newest == 0) {
        return s->missing;
    }
    if (s->last_segment == 0 || s->first_index > needed) {
        return 1; /* or a later one: the first that is needed */
    }
    return newest > s->last_segment ? s->last_segment + 1 : 0;
}

struct pk_scan_found pk_scan_end(struct pk_scan *s, uint64_t newest, uint64_t needed)
{
    struct pk_scan_found f = {
        .segment = s->segment, .offset = s->offset, .floor = s->floor, .chain = s->chain};
    f.last_batch = s->next_batch == 0 ? 0 : s->next_batch - 1;
    uint64_t gone = missing(s, newest, needed);
    if (gone != 0) {
        f.verdict = PK_SCAN_MISSING;
        f.segment = gone;
    } else if (s->next_batch != 0 && s->evidence >= s->next_batch) {
        f.verdict = PK_SCAN_DAMAGED;
    } else {
        f.verdict = judge_end(s);
    }
    return f;
}
