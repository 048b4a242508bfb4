/* SPDX-License-Identifier: MIT */
/* What a start finds on disk, and whether it may go on with that. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/version.h"
#include "core/wire.h"
#include "host/memory.h"
#include "host/version.h"
#include "raft/entry.h"
#include "raft/log_scan.h"
#include "raft/store_inside.h"

/* The entries as they are read. Each batch's bytes are one piece of memory, which
 * libraft frees when the last entry in it goes. */
struct reading {
    struct pk_store *store;
    uint64_t start; /* index of entries[0] */
    struct raft_entry *entries;
    size_t n, capacity;
    void *batch;    /* the one that is being taken in, which stays until that is done */
    bool malformed; /* checksums are right, and the records are none of ours */
};

/* ---- entries ---- */

static uint64_t next_index(const struct reading *r)
{
    return r->start + r->n;
}

/* Whether another entry than those from `i` on lives in their first one's memory. */
static bool is_shared(const struct reading *r, size_t i)
{
    return i > 0 && r->entries[i - 1].batch == r->entries[i].batch;
}

/* Entries from the n-th on are void. */
static void cut(struct reading *r, size_t n)
{
    while (r->n > n) {
        struct raft_entry *last = &r->entries[r->n - 1];
        if (!is_shared(r, r->n - 1) && last->batch != r->batch) {
            raft_free(last->batch);
        }
        r->n--;
    }
}

/* The first n entries are not wanted. */
static void drop_first(struct reading *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool last_of_batch =
            i + 1 == r->n || r->entries[i + 1].batch != r->entries[i].batch;
        if (last_of_batch) {
            raft_free(r->entries[i].batch);
        }
    }
    r->n -= n;
    r->start += n;
    if (n > 0 && r->n > 0) {
        memmove(r->entries, r->entries + n, r->n * sizeof *r->entries);
    }
}

static void add(struct reading *r, const struct pk_record *record)
{
    if (r->n == r->capacity) {
        r->capacity = r->capacity == 0 ? 1024 : 2 * r->capacity;
        r->entries = raft_realloc(r->entries, r->capacity * sizeof *r->entries);
        pk_memory_need(r->entries);
    }
    r->entries[r->n++] = (struct raft_entry){
        .term = record->term,
        .type = (enum raft_entry_type)record->type,
        .buf = {(void *)record->data, record->len},
        .batch = r->batch,
    };
}

static void take_index(struct reading *r, const struct pk_record *record)
{
    uint64_t index = pk_get_u64(record->data);
    if (record->type == PK_RECORD_RESET || r->n == 0) {
        cut(r, 0);
        r->start = index;
    } else if (index > next_index(r)) {
        r->malformed = true;
    } else {
        cut(r, index > r->start ? (size_t)(index - r->start) : 0);
        r->start = index < r->start ? index : r->start;
    }
}

static void note_segment(struct pk_store *s, struct pk_log_place at,
                         const struct pk_batch_head *h)
{
    struct pk_segment *g = &s->segments[at.segment];
    if (!g->used) {
        *g = (struct pk_segment){
            .used = true, .order = h->number, .first_index = h->first_index};
    }
    g->last_index = h->last_index > g->last_index ? h->last_index : g->last_index;
    g->bytes += pk_batch_size(0, h->bytes - PK_BATCH_HEAD);
    s->current = at.segment;
}

static void take_batch(void *ctx, struct pk_log_place at, const struct pk_batch_head *h,
                       const unsigned char *in)
{
    struct reading *r = ctx;
    struct pk_batch_cursor c;
    struct pk_record record;
    unsigned char *batch = raft_malloc(h->bytes);
    pk_memory_need(batch);
    pk_batch_gather(h, in, batch);
    r->malformed = r->malformed || !pk_batch_open(&c, h, batch);
    r->batch = batch;
    while (!r->malformed && pk_batch_next(&c, &record)) {
        if (record.type >= PK_RECORD_TRUNCATION) {
            take_index(r, &record);
            continue;
        }
        if (r->n == 0 && r->start == 0) {
            r->start = h->first_index;
        }
        add(r, &record);
    }
    r->batch = NULL;
    if (r->n == 0 || r->entries[r->n - 1].batch != batch) {
        raft_free(batch);
    }
    r->malformed = r->malformed || next_index(r) != h->last_index + 1;
    r->store->batched_term = h->last_term;
    note_segment(r->store, at, h);
}

/* ---- segments ---- */

static int read_segment(struct pk_store *s, uint32_t segment, unsigned char **bytes)
{
    char name[PK_DISK_NAME_MAX];
    size_t len;
    pk_store_segment_name(segment, name);
    int error = pk_store_read(s, name, bytes, &len);
    if (error == ENOENT) {
        return pk_store_refuse(s, RAFT_CORRUPT, "raft/%s is gone" PK_STORE_REPLACE, name);
    }
    if (error != 0) {
        return pk_store_refuse(s, RAFT_IOERR, "can't read raft/%s: %s", name,
                               strerror(error));
    }
    if (len != s->meta.segment_bytes) {
        *bytes = pk_door_resize(*bytes, 0);
        return pk_store_refuse(
            s, RAFT_CORRUPT, "raft/%s has %zu bytes instead of %" PRIu32 PK_STORE_REPLACE,
            name, len, s->meta.segment_bytes);
    }
    return 0;
}

static int look_at_all(struct pk_store *s, struct pk_segment_look *looks)
{
    int rv = 0;
    for (uint32_t i = 0; i < s->meta.segments && rv == 0; i++) {
        unsigned char *bytes = NULL;
        rv = read_segment(s, i, &bytes);
        if (rv == 0) {
            pk_scan_look(&s->o.owner, i, bytes, s->meta.segment_bytes, &looks[i]);
        }
        pk_door_resize(bytes, 0);
    }
    return rv;
}

/* The number of a durable batch that the mark names; 0: none. */
static uint64_t read_mark(struct pk_store *s)
{
    unsigned char *bytes = NULL;
    size_t len = 0;
    uint64_t mark = 0;
    if (pk_store_read(s, "mark", &bytes, &len) == 0 && len >= 2 * (size_t)PK_SECTOR) {
        uint64_t first = pk_mark_decode(s->o.owner.incarnation, bytes);
        uint64_t second = pk_mark_decode(s->o.owner.incarnation, bytes + PK_SECTOR);
        mark = first > second ? first : second;
        s->mark_slot = first > second; /* the older one is written next */
    }
    pk_door_resize(bytes, 0);
    return mark;
}

/* Fills a segment anew from `from` on, as a new one is. */
static int refill(struct pk_store *s, uint32_t segment, uint64_t from)
{
    size_t size = s->meta.segment_bytes;
    unsigned char *memory = pk_door_resize(NULL, size + PK_DISK_BLOCK);
    size_t past = (uintptr_t)memory % PK_DISK_BLOCK;
    unsigned char *bytes = memory + (past == 0 ? 0 : PK_DISK_BLOCK - past);
    struct pk_disk_op op = {.kind = PK_DISK_OVERWRITE, .offset = from, .n_parts = 1};
    pk_store_segment_name(segment, op.name);
    pk_segment_fill(&s->o.owner, segment, bytes, size);
    op.parts[0] = (struct pk_disk_part){bytes + from, size - (size_t)from};
    int error = s->o.disk->now(s->o.disk->ctx, &op);
    pk_door_resize(memory, 0);
    return error == 0 ? 0
                      : pk_store_refuse(s, RAFT_IOERR, "can't write raft/%s: %s", op.name,
                                        strerror(error));
}

/* Two things outside the log would harm a later start. A segment that begins with a batch
 * which was dropped could be taken for a part of the log. A sector that does not check
 * would be taken for damage to the log, when the log ends just before it. */
static int mend_unused(struct pk_store *s, const struct pk_segment_look *looks)
{
    int rv = 0;
    for (uint32_t i = 0; i < s->meta.segments && rv == 0; i++) {
        const struct pk_segment *g = &s->segments[i];
        bool dropped = !g->used && looks[i].highest > s->number;
        if (dropped || looks[i].bad_end > g->bytes) {
            rv = refill(s, i, g->bytes);
        }
    }
    return rv;
}

static int refuse_gap(struct pk_store *s, uint64_t start)
{
    bool bad = s->bad_slot[0] != '\0';
    return pk_store_refuse(s, RAFT_CORRUPT,
                           "%s%s%sthe log begins with entry %" PRIu64
                           ", and no whole snapshot has those before it" PK_STORE_REPLACE,
                           bad ? "raft/" : "", s->bad_slot, bad ? " is damaged: " : "",
                           start);
}

/* The first entry of any segment. */
static uint64_t first_of_all(const struct pk_scan *scan)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < scan->segments; i++) {
        const struct pk_segment_look *l = &scan->looks[i];
        if (l->begins && (first == 0 || l->first.first_index < first)) {
            first = l->first.first_index;
        }
    }
    return first;
}

static int refuse_scan(struct pk_store *s, const struct pk_scan *scan,
                       enum pk_scan_verdict verdict)
{
    char name[PK_DISK_NAME_MAX];
    if (verdict == PK_SCAN_LOST && scan->last == 0 && first_of_all(scan) > 1) {
        return refuse_gap(s, first_of_all(scan));
    }
    pk_store_segment_name(scan->at.segment, name);
    return pk_store_refuse(s, RAFT_CORRUPT, "raft/%s is damaged at offset %" PRIu64 "%s",
                           name, scan->at.offset,
                           verdict == PK_SCAN_DAMAGED
                               ? PK_STORE_REPLACE
                               : ": durable entries are missing" PK_STORE_REPLACE);
}

/* Entries behind the snapshot will be run: each must be one that this build can run.
 * Nothing on the disk has changed so far. */
static int check_versions(struct pk_store *s, const struct reading *r, uint64_t needed)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct raft_entry *e = &r->entries[i];
        uint32_t version = pk_entry_needs(e->buf.base, e->buf.len);
        if (r->start + i >= needed && e->type == RAFT_COMMAND && version != 0 &&
            !pk_version_runs(version)) {
            char what[64];
            (void)snprintf(what, sizeof what, "entry %" PRIu64 " of the log",
                           r->start + i);
            return pk_store_refuse(s, RAFT_CORRUPT, "%s",
                                   pk_version_needed(what, version));
        }
    }
    return 0;
}

static int scan_log(struct pk_store *s, struct reading *r, uint64_t needed)
{
    struct pk_segment_look *looks =
        pk_door_resize(NULL, PK_STORE_SEGMENTS_MAX * sizeof *looks);
    struct pk_scan scan = {.owner = &s->o.owner,
                           .looks = looks,
                           .segments = s->meta.segments,
                           .batch = take_batch,
                           .ctx = r};
    int rv = look_at_all(s, looks);
    uint32_t segment;
    if (rv == 0) {
        pk_scan_begin(&scan, needed);
    }
    while (rv == 0 && pk_scan_wants(&scan, &segment)) {
        unsigned char *bytes = NULL;
        rv = read_segment(s, segment, &bytes);
        if (rv == 0) {
            pk_scan_take(&scan, bytes, s->meta.segment_bytes);
        }
        pk_door_resize(bytes, 0);
    }
    if (rv == 0) {
        enum pk_scan_verdict verdict = pk_scan_end(&scan, read_mark(s));
        rv = verdict == PK_SCAN_SOUND && !r->malformed ? 0
                                                       : refuse_scan(s, &scan, verdict);
    }
    if (rv == 0) {
        rv = check_versions(s, r, needed);
    }
    if (rv == 0) {
        s->offset = scan.at.offset;
        s->number = s->durable = scan.last;
        s->chosen = scan.highest;
        s->chain = scan.chain;
        rv = mend_unused(s, looks);
    }
    pk_door_resize(looks, 0);
    return rv;
}

/* ---- the whole ---- */

/* Entries that the snapshot stands for are not wanted, but for some behind it. A log that
 * ends before the snapshot, or has another entry in its place, was overtaken by it. */
static void fit_snapshot(struct pk_store *s, struct reading *r,
                         const struct raft_snapshot *snapshot)
{
    uint64_t index = snapshot == NULL ? 0 : snapshot->index;
    bool overtaken = next_index(r) <= index;
    if (!overtaken && snapshot != NULL && r->n > 0 && index >= r->start) {
        overtaken = r->entries[index - r->start].term != snapshot->term;
    }
    if (overtaken || r->start == 0) {
        cut(r, 0);
        r->start = index + 1;
        s->reset = s->number != 0 ? index + 1 : 0;
    }
    uint64_t keep = pk_store_keep_from(s);
    keep = keep < index + 1 ? keep : index + 1;
    if (keep > r->start && keep <= next_index(r)) {
        drop_first(r, (size_t)(keep - r->start));
    }
    s->tail_index = next_index(r) - 1;
    s->batched_index = s->tail_index;
    s->batched_term = r->n > 0 ? r->entries[r->n - 1].term : s->batched_term;
}

void pk_store_unload(struct pk_store *s, struct pk_store_loaded *l)
{
    struct reading r = {.store = s, .entries = l->entries, .n = l->n};
    cut(&r, 0);
    raft_free(l->entries);
    pk_store_free_snapshot(s, l->snapshot);
    *l = (struct pk_store_loaded){0};
}

int pk_store_load(struct pk_store *s, struct pk_store_loaded *out)
{
    struct reading r = {.store = s};
    *out = (struct pk_store_loaded){.term = s->meta.term, .vote = s->meta.vote};
    int rv = pk_store_find_snapshot(s, &out->snapshot);
    uint64_t needed = out->snapshot == NULL ? 1 : out->snapshot->index + 1;
    if (rv == 0) {
        rv = scan_log(s, &r, needed);
    }
    if (rv == 0 && r.start > needed) {
        rv = refuse_gap(s, r.start);
    }
    if (rv != 0) {
        out->entries = r.entries;
        out->n = r.n;
        pk_store_unload(s, out);
        return rv;
    }
    fit_snapshot(s, &r, out->snapshot);
    s->written = pk_store_use(s).bytes;
    if (r.n == 0) {
        raft_free(r.entries);
        r.entries = NULL;
    }
    out->start = r.start;
    out->entries = r.entries;
    out->n = r.n;
    return 0;
}
