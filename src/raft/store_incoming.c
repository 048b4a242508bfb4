/* SPDX-License-Identifier: MIT */
/*
 * A snapshot that another node sends, in chunks. Each is written to a slot before the
 * sender is told to send the next, so one chunk is in memory at a time, whatever the
 * sender says about sizes (P10). Chunks and answers may be lost: a sender that hears
 * nothing asks, and goes on where this node says that it has come to.
 *
 * There is one such snapshot at a time. Another one takes its place if it is newer or of
 * the same sender, or if the one before has not got on for a while.
 */
#include <errno.h>
#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "host/memory.h"
#include "raft/crc32c.h"
#include "raft/store_inside.h"

enum {
    STALE_TICKS = 100,   /* about 3 s: another sender may begin */
    FORGET_TICKS = 2000, /* about a minute: the slot is free again */
};

void pk_snapshot_name(const struct pk_snapshot_id *id,
                      unsigned char out[PK_SNAPSHOT_NAME])
{
    pk_put_u64(out, id->size);
    pk_put_u64(out + 8, id->sum);
}

/* ---- states ---- */

static bool has_slot(const struct pk_incoming *in)
{
    return in->state != PK_INCOMING_NONE;
}

bool pk_store_is_receiving(const struct pk_store *s)
{
    return s->incoming.state == PK_INCOMING_OPENING ||
           s->incoming.state == PK_INCOMING_WRITING;
}

void pk_store_end_incoming(struct pk_store *s)
{
    s->incoming.state = PK_INCOMING_NONE;
    s->incoming.bytes = pk_door_resize(s->incoming.bytes, 0);
}

void pk_store_tick_incoming(struct pk_store *s)
{
    struct pk_incoming *in = &s->incoming;
    bool waits = in->state == PK_INCOMING_READY || in->state == PK_INCOMING_WHOLE;
    in->idle_ticks++;
    if (waits && in->idle_ticks > FORGET_TICKS) {
        pk_store_end_incoming(s);
    }
}

static void answer(struct pk_store *s, uint64_t peer, const struct pk_snapshot_id *id,
                   uint64_t have)
{
    if (!s->closing) {
        s->o.send_have(s->o.ctx, peer, id, have);
    }
}

/* ---- writing ---- */

/* A chunk has been written. A state whose checksum is wrong is forgotten, and the sender
 * begins anew. */
static void take_chunk(struct pk_store *s)
{
    struct pk_incoming *in = &s->incoming;
    in->sum = pk_crc32c(in->sum, in->bytes, in->len);
    in->have += in->len;
    in->state = PK_INCOMING_READY;
    if (in->have == in->id.size && in->sum != in->id.sum) {
        struct pk_snapshot_id id = in->id;
        pk_store_end_incoming(s);
        answer(s, in->peer, &id, 0);
        return;
    }
    if (in->have == in->id.size) {
        in->state = PK_INCOMING_WHOLE;
    }
    answer(s, in->peer, &in->id, in->have);
}

static void on_written(struct pk_disk_op *op, int error)
{
    struct pk_store *s = op->data;
    struct pk_incoming *in = &s->incoming;
    if (error != 0 && error != ENOSPC) {
        pk_store_fail(s, op->name, error);
    }
    if (s->failed) {
        return;
    }
    if (error != 0) {
        pk_store_end_incoming(s); /* the sender asks again, and there may be space then */
    } else if (in->state == PK_INCOMING_WRITING) {
        take_chunk(s);
    } else {
        in->state = PK_INCOMING_READY;
        answer(s, in->peer, &in->id, 0);
    }
    pk_store_maybe_closed(s);
}

static void submit(struct pk_store *s, enum pk_disk_kind kind, size_t len)
{
    struct pk_incoming *in = &s->incoming;
    in->op.kind = kind;
    in->op.parts[0] = (struct pk_disk_part){in->bytes, len};
    in->op.n_parts = 1;
    in->op.done = on_written;
    in->op.data = s;
    s->o.disk->submit(s->o.disk->ctx, &in->op);
}

/* Empties a slot for it; without a slot that is free the sender asks again. */
static void begin(struct pk_store *s, uint64_t peer, const struct pk_snapshot_id *id)
{
    struct pk_incoming *in = &s->incoming;
    pk_store_end_incoming(s);
    unsigned slot = pk_store_oldest_slot(s);
    if (slot == PK_STORE_SLOTS) {
        return;
    }
    *in = (struct pk_incoming){
        .state = PK_INCOMING_OPENING, .id = *id, .peer = peer, .slot = slot};
    s->slots[slot] = 0;
    in->bytes = pk_door_resize(NULL, PK_SNAPSHOT_HEAD);
    memset(in->bytes, 0, PK_SNAPSHOT_HEAD);
    pk_store_slot_name(slot, in->op.name);
    submit(s, PK_DISK_STORE, PK_SNAPSHOT_HEAD);
}

static void write_chunk(struct pk_store *s, const struct pk_snapshot_chunk *c)
{
    struct pk_incoming *in = &s->incoming;
    in->state = PK_INCOMING_WRITING;
    in->bytes = pk_door_resize(in->bytes, c->len);
    in->len = c->len;
    memcpy(in->bytes, c->bytes, c->len);
    in->op.offset = PK_SNAPSHOT_HEAD + in->have;
    submit(s, PK_DISK_WRITE, c->len);
}

/* ---- chunks ---- */

static bool is_chunk(const struct pk_snapshot_chunk *c)
{
    const struct pk_snapshot_id *id = &c->id;
    return id->index > 0 && id->term > 0 && id->size > 0 &&
           id->size <= PK_STORE_STATE_MAX && c->offset <= id->size &&
           c->len <= id->size - c->offset && c->len <= PK_STORE_CHUNK_MAX;
}

static bool may_replace(const struct pk_incoming *in, uint64_t peer,
                        const struct pk_snapshot_id *id)
{
    switch (in->state) {
    case PK_INCOMING_NONE:
        return true;
    case PK_INCOMING_READY:
    case PK_INCOMING_WHOLE:
        return peer == in->peer || id->index > in->id.index ||
               in->idle_ticks > STALE_TICKS;
    default:
        return false; /* the disk or libraft is busy with it */
    }
}

void pk_store_chunk(struct pk_store *s, uint64_t peer, const struct pk_snapshot_chunk *c)
{
    struct pk_incoming *in = &s->incoming;
    const struct pk_snapshot_id *newest = pk_store_newest(s);
    if (s->failed || s->closing || !is_chunk(c)) {
        return;
    }
    if (newest != NULL && newest->index >= c->id.index) {
        answer(s, peer, &c->id, c->id.size); /* what is in it is here already */
        return;
    }
    if (!has_slot(in) || !pk_snapshot_same(&in->id, &c->id)) {
        if (may_replace(in, peer, &c->id)) {
            begin(s, peer, &c->id);
        }
        return;
    }
    in->peer = peer;
    in->idle_ticks = 0;
    if (in->state == PK_INCOMING_WHOLE || in->state == PK_INCOMING_INSTALLING) {
        answer(s, peer, &in->id, in->id.size);
    } else if (in->state == PK_INCOMING_READY && c->len > 0 && c->offset == in->have) {
        write_chunk(s, c);
    } else if (in->state == PK_INCOMING_READY) {
        answer(s, peer, &in->id, in->have);
    }
}

/* ---- the message at the end ---- */

static bool read_name(const struct raft_message *m, struct pk_snapshot_id *id)
{
    const struct raft_install_snapshot *i = &m->install_snapshot;
    if (i->data.len != PK_SNAPSHOT_NAME) {
        return false;
    }
    const unsigned char *name = i->data.base;
    uint64_t sum = pk_get_u64(name + 8);
    *id = (struct pk_snapshot_id){.index = i->last_index,
                                  .term = i->last_term,
                                  .size = pk_get_u64(name),
                                  .sum = (uint32_t)sum};
    return id->index > 0 && id->term > 0 && id->size > 0 && sum <= UINT32_MAX;
}

bool pk_store_install(struct pk_store *s, struct raft_message *m)
{
    const struct pk_incoming *in = &s->incoming;
    struct pk_snapshot_id id;
    if (s->failed || s->closing || !read_name(m, &id)) {
        return false;
    }
    const struct pk_snapshot_id *newest = pk_store_newest(s);
    if (newest != NULL && newest->index >= id.index) {
        return false; /* it is installed; the leader finds out by AppendEntries */
    }
    if (in->state == PK_INCOMING_INSTALLING || !has_slot(in) ||
        !pk_snapshot_same(&in->id, &id)) {
        bool busy = in->state == PK_INCOMING_INSTALLING;
        if (!busy) {
            answer(s, m->server_id, &id, 0);
        }
        return false;
    }
    if (in->state != PK_INCOMING_WHOLE) {
        answer(s, m->server_id, &id, in->have);
        return false;
    }
    struct pk_snapshot_handle *h = raft_malloc(sizeof *h);
    pk_memory_need(h);
    pk_snapshot_handle_init(h);
    h->id = id;
    raft_free(m->install_snapshot.data.base);
    m->install_snapshot.data = (struct raft_buffer){.base = h, .len = sizeof *h};
    return true;
}
