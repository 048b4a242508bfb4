/* SPDX-License-Identifier: MIT */
/* Snapshots: three slots, of which the oldest is overwritten by the next. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "host/memory.h"
#include "raft/crc32c.h"
#include "raft/store_inside.h"

struct pk_snapshot_put {
    struct pk_disk_op op;
    struct pk_store *store;
    struct raft_io_snapshot_put *req;
    unsigned slot, trailing;
    uint64_t index;
    uint64_t written_before; /* pk_store.written at the snapshot before this one */
    bool waits;              /* for space on the disk, a slot, or entries before it */
    struct pk_snapshot_head head;
    unsigned char bytes[PK_SNAPSHOT_HEAD];
};

struct pk_snapshot_read {
    struct pk_snapshot_read *next;
    struct pk_disk_op op;
    struct pk_store *store;
    struct raft_io_snapshot_get *req;
    unsigned slot;
};

static void slot_name(unsigned slot, char out[PK_DISK_NAME_MAX])
{
    (void)snprintf(out, PK_DISK_NAME_MAX, "snapshot-%u", slot);
}

static unsigned newest_slot(const struct pk_store *s)
{
    unsigned newest = 0;
    for (unsigned i = 1; i < PK_STORE_SLOTS; i++) {
        newest = s->slots[i] > s->slots[newest] ? i : newest;
    }
    return newest;
}

/* The slot to overwrite; PK_STORE_SLOTS: all but the newest are being read. */
static unsigned oldest_slot(const struct pk_store *s)
{
    unsigned oldest = PK_STORE_SLOTS;
    for (unsigned i = 0; i < PK_STORE_SLOTS; i++) {
        bool older = oldest == PK_STORE_SLOTS || s->slots[i] < s->slots[oldest];
        if (s->readers[i] == 0 && older && (i != newest_slot(s) || s->slots[i] == 0)) {
            oldest = i;
        }
    }
    return oldest;
}

/* ---- reading ---- */

/* A snapshot as libraft wants it; NULL: the bytes are none. */
static struct raft_snapshot *unpack(const struct pk_store *s, const unsigned char *in,
                                    size_t len)
{
    struct pk_snapshot_head h;
    if (!pk_snapshot_decode(&s->o.owner, in, len, &h)) {
        return NULL;
    }
    struct raft_snapshot *out = raft_malloc(sizeof *out);
    pk_memory_need(out);
    struct raft_buffer conf = {h.configuration, h.configuration_len};
    *out = (struct raft_snapshot){.index = h.index,
                                  .term = h.term,
                                  .configuration_index = h.configuration_index,
                                  .n_bufs = 1};
    raft_configuration_init(&out->configuration);
    if (raft_configuration_decode(&conf, &out->configuration) != 0) {
        raft_free(out);
        return NULL;
    }
    out->bufs = raft_malloc(sizeof *out->bufs);
    pk_memory_need(out->bufs);
    out->bufs[0].len = (size_t)h.state_len;
    out->bufs[0].base = raft_malloc((size_t)h.state_len + 1);
    pk_memory_need(out->bufs[0].base);
    memcpy(out->bufs[0].base, in + PK_SNAPSHOT_HEAD, (size_t)h.state_len);
    return out;
}

static void free_snapshot(struct raft_snapshot *snapshot)
{
    if (snapshot != NULL) {
        raft_configuration_close(&snapshot->configuration);
        raft_free(snapshot->bufs[0].base);
        raft_free(snapshot->bufs);
        raft_free(snapshot);
    }
}

/* A new slot has a head of zeros. */
static bool is_new(const unsigned char *in, size_t len)
{
    size_t i = 0;
    while (i < len && in[i] == 0) {
        i++;
    }
    return i == len && len >= PK_SNAPSHOT_HEAD;
}

int pk_store_find_snapshot(struct pk_store *s, struct raft_snapshot **out)
{
    *out = NULL;
    for (unsigned i = 0; i < PK_STORE_SLOTS; i++) {
        char name[PK_DISK_NAME_MAX];
        unsigned char *bytes = NULL;
        size_t len = 0;
        slot_name(i, name);
        int error = pk_store_read(s, name, &bytes, &len);
        if (error != 0 && error != ENOENT) {
            free_snapshot(*out);
            *out = NULL;
            return pk_store_refuse(s, RAFT_IOERR, "can't read raft/%s: %s", name,
                                   strerror(error));
        }
        struct raft_snapshot *found = error == 0 ? unpack(s, bytes, len) : NULL;
        if (found == NULL && !is_new(bytes, len)) {
            memcpy(s->bad_slot, name, sizeof name);
        }
        pk_door_resize(bytes, 0);
        s->slots[i] = found == NULL ? 0 : found->index;
        if (found != NULL && (*out == NULL || found->index > (*out)->index)) {
            free_snapshot(*out);
            *out = found;
            s->state_bytes = found->bufs[0].len;
        } else {
            free_snapshot(found);
        }
    }
    return 0;
}

static void drop_read(struct pk_store *s, struct pk_snapshot_read *r)
{
    struct pk_snapshot_read **at = &s->reads;
    while (*at != r) {
        at = &(*at)->next;
    }
    *at = r->next;
    pk_door_resize(r, 0);
}

void pk_store_free_reads(struct pk_store *s)
{
    while (s->reads != NULL) {
        drop_read(s, s->reads);
    }
}

static void on_read(struct pk_disk_op *op, int error)
{
    struct pk_snapshot_read *r = op->data;
    struct pk_store *s = r->store;
    struct raft_io_snapshot_get *req = r->req;
    struct raft_snapshot *found = error == 0 ? unpack(s, op->bytes, op->len) : NULL;
    pk_door_resize(op->bytes, 0);
    if (found == NULL && !s->failed) {
        s->failed = true;
        pk_store_refuse(s, 0, "raft/%s can't be read any more: %s", op->name,
                        error == 0 ? "it is damaged" : strerror(error));
        s->o.failed(s->o.ctx, s->why);
    }
    s->readers[r->slot]--;
    drop_read(s, r);
    if (!s->failed) {
        req->cb(req, found, 0);
        pk_store_maybe_closed(s);
    }
}

int pk_store_snapshot_get(struct pk_store *s, struct raft_io_snapshot_get *req,
                          raft_io_snapshot_get_cb cb)
{
    struct pk_snapshot_read *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct pk_snapshot_read){.store = s, .req = req, .slot = newest_slot(s)};
    r->op.kind = PK_DISK_READ;
    r->op.done = on_read;
    r->op.data = r;
    slot_name(r->slot, r->op.name);
    req->cb = cb;
    r->next = s->reads;
    s->reads = r;
    s->readers[r->slot]++;
    s->o.disk->submit(s->o.disk->ctx, &r->op);
    return 0;
}

/* ---- writing ---- */

static void on_written(struct pk_disk_op *op, int error);

static int pack(struct pk_snapshot_put *p, const struct raft_snapshot *snapshot)
{
    struct pk_snapshot_head *h = &p->head;
    struct raft_buffer conf;
    int rv = raft_configuration_encode(&snapshot->configuration, &conf);
    if (rv != 0 || conf.len > PK_CONFIGURATION_MAX ||
        snapshot->n_bufs >= PK_DISK_PARTS_MAX) {
        return rv != 0 ? rv : RAFT_TOOBIG;
    }
    h->owner = p->store->o.owner;
    h->index = snapshot->index;
    h->term = snapshot->term;
    h->configuration_index = snapshot->configuration_index;
    h->configuration_len = (uint32_t)conf.len;
    memcpy(h->configuration, conf.base, conf.len);
    raft_free(conf.base);
    h->state_len = 0;
    h->state_sum = 0;
    p->op.parts[0] = (struct pk_disk_part){p->bytes, sizeof p->bytes};
    for (unsigned i = 0; i < snapshot->n_bufs; i++) {
        const struct raft_buffer *b = &snapshot->bufs[i];
        p->op.parts[i + 1] = (struct pk_disk_part){b->base, b->len};
        h->state_len += b->len;
        h->state_sum = pk_crc32c(h->state_sum, b->base, b->len);
    }
    p->op.n_parts = snapshot->n_bufs + 1;
    /* The next one may be a little larger, on a disk that is full by then. */
    p->op.size = PK_SNAPSHOT_HEAD + h->state_len + h->state_len / 4;
    pk_snapshot_head_encode(h, p->bytes);
    return 0;
}

/* libraft takes an entry that becomes durable after a snapshot which it has received for
 * the last one that is stored, waits for the others, and never votes again. So entries
 * that were handed over before such a snapshot are acknowledged before it, too. */
static bool is_too_early(const struct pk_snapshot_put *p)
{
    const struct pk_store *s = p->store;
    return p->trailing == 0 && (s->n_flights > 0 || s->first != NULL);
}

static void submit(struct pk_snapshot_put *p)
{
    struct pk_store *s = p->store;
    p->slot = oldest_slot(s);
    p->waits = p->slot == PK_STORE_SLOTS || is_too_early(p);
    if (!p->waits) {
        slot_name(p->slot, p->op.name);
        s->slots[p->slot] = 0;
        s->o.disk->submit(s->o.disk->ctx, &p->op);
    }
}

int pk_store_snapshot_put(struct pk_store *s, unsigned trailing,
                          struct raft_io_snapshot_put *req,
                          const struct raft_snapshot *snapshot,
                          raft_io_snapshot_put_cb cb)
{
    PK_ASSERT(s->put == NULL);
    struct pk_snapshot_put *p = pk_door_resize(NULL, sizeof *p);
    memset(p, 0, sizeof *p);
    p->store = s;
    p->req = req;
    p->trailing = trailing;
    p->index = snapshot->index;
    int rv = pack(p, snapshot);
    if (rv != 0) {
        pk_door_resize(p, 0);
        return rv;
    }
    p->op.kind = PK_DISK_STORE;
    p->op.done = on_written;
    p->op.data = p;
    req->cb = cb;
    s->put = p;
    p->written_before = s->written_at_snapshot;
    s->written_at_snapshot = s->written;
    submit(p);
    return 0;
}

/* The snapshot is durable: it stands for the entries up to its index. */
static void take_in(struct pk_store *s, const struct pk_snapshot_put *p)
{
    s->slots[p->slot] = p->index;
    s->state_bytes = p->head.state_len;
    if (p->trailing > 0) { /* it was taken here */
        pk_store_release(s, p->index > p->trailing ? p->index - p->trailing + 1 : 1);
    } else { /* it was received, and the log goes on behind it */
        s->truncate = 0;
        s->reset = p->index + 1;
        s->tail_index = p->index;
    }
}

static void on_written(struct pk_disk_op *op, int error)
{
    struct pk_snapshot_put *p = op->data;
    struct pk_store *s = p->store;
    struct raft_io_snapshot_put *req = p->req;
    bool received = p->trailing == 0;
    if (error == ENOSPC && received && !s->closing) {
        p->waits = true; /* without it this node can't go on; there may be space later */
        return;
    }
    if (error != 0 && error != ENOSPC) {
        pk_store_fail(s, op->name, error);
    }
    if (s->failed) {
        return;
    }
    s->put_lacked_space = error != 0;
    if (error == 0) {
        take_in(s, p);
    } else {
        s->written_at_snapshot = p->written_before; /* one is still due, but not now */
        s->put_pause = PK_STORE_PAUSE;
    }
    s->put = NULL;
    pk_door_resize(p, 0);
    req->cb(req, error == 0 ? 0 : RAFT_NOSPACE);
    pk_store_pump(s);
    pk_store_maybe_closed(s);
}

bool pk_store_writes_snapshot(const struct pk_store *s)
{
    return s->put != NULL && !s->put->waits && !s->put_lacked_space;
}

void pk_store_cancel_snapshot(struct pk_store *s)
{
    struct pk_snapshot_put *p = s->put;
    if (p != NULL && p->waits) {
        struct raft_io_snapshot_put *req = p->req;
        s->put = NULL;
        pk_door_resize(p, 0);
        req->cb(req, RAFT_CANCELED);
    }
}

void pk_store_retry_snapshot(struct pk_store *s)
{
    if (s->put != NULL && s->put->waits) {
        submit(s->put);
    }
}
