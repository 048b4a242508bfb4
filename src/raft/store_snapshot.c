/* SPDX-License-Identifier: MIT */
/*
 * Snapshots: three slots, of which the oldest is overwritten by the next. A state is
 * written and read in slices, so that no turn of the loop and no memory grows with it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "host/memory.h"
#include "host/version.h"
#include "raft/crc32c.h"
#include "raft/snapshot.h"
#include "raft/store_inside.h"

/*
 *     WAITS     for a slot, for space on the disk, or for entries before it
 *     OPENING   the slot's old head is overwritten; the file is there, with room
 *     WRITING   slices of the state are read from the source and written
 *     LOADING   it came in chunks, and its slices are read from the slot and loaded
 *     SEALING   the head is written, and everything made durable
 */
enum put_state { WAITS, OPENING, WRITING, LOADING, SEALING };

struct pk_snapshot_put {
    struct pk_disk_op op;
    struct pk_store *store;
    struct raft_io_snapshot_put *req;
    enum put_state state;
    unsigned slot, trailing;
    uint64_t index;
    uint64_t written_before; /* pk_store.written at the snapshot before this one */
    struct pk_snapshot_source *source;
    struct pk_snapshot_source memory; /* the source, when libraft has the bytes */
    struct raft_buffer buffer;
    uint64_t read;                     /* bytes that came from it, or from the slot */
    struct pk_snapshot_handle *handle; /* NULL, or libraft's */
    void *load, *state_loaded;         /* while it is LOADING, and then */
    bool at_end;                       /* of the source */
    struct pk_snapshot_head head;
    unsigned char bytes[PK_SNAPSHOT_HEAD];
    unsigned char slice[]; /* as long as the options say */
};

struct pk_snapshot_read {
    struct pk_snapshot_read *next;
    struct pk_disk_op op;
    struct pk_store *store;
    struct raft_io_snapshot_get *req;
    unsigned slot;
};

void pk_store_slot_name(unsigned slot, char out[PK_DISK_NAME_MAX])
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

const struct pk_snapshot_id *pk_store_newest(const struct pk_store *s)
{
    unsigned newest = newest_slot(s);
    return s->slots[newest] == 0 ? NULL : &s->ids[newest];
}

/* Somebody reads it or writes to it, or it is the newest. */
static bool is_in_use(const struct pk_store *s, unsigned slot)
{
    bool written = s->put != NULL && s->put->state != WAITS && s->put->slot == slot;
    bool comes = s->incoming.state != PK_INCOMING_NONE && s->incoming.slot == slot;
    bool newest = slot == newest_slot(s) && s->slots[slot] != 0;
    return s->readers[slot] > 0 || written || comes || newest;
}

unsigned pk_store_oldest_slot(const struct pk_store *s)
{
    unsigned oldest = PK_STORE_SLOTS;
    for (unsigned i = 0; i < PK_STORE_SLOTS; i++) {
        bool older = oldest == PK_STORE_SLOTS || s->slots[i] < s->slots[oldest];
        if (older && !is_in_use(s, i)) {
            oldest = i;
        }
    }
    return oldest;
}

static void set_slot(struct pk_store *s, unsigned slot, const struct pk_snapshot_head *h)
{
    s->slots[slot] = h->index;
    s->ids[slot] = (struct pk_snapshot_id){
        .index = h->index, .term = h->term, .size = h->state_len, .sum = h->state_sum};
}

/* ---- reading ---- */

/* A snapshot as libraft wants it, but for its buffer; NULL: the head is none. */
static struct raft_snapshot *open_head(struct pk_snapshot_head *h)
{
    struct raft_snapshot *out = raft_malloc(sizeof *out);
    pk_memory_need(out);
    struct raft_buffer conf = {h->configuration, h->configuration_len};
    *out = (struct raft_snapshot){.index = h->index,
                                  .term = h->term,
                                  .configuration_index = h->configuration_index,
                                  .n_bufs = 1};
    raft_configuration_init(&out->configuration);
    if (raft_configuration_decode(&conf, &out->configuration) != 0) {
        raft_free(out);
        return NULL;
    }
    out->bufs = raft_malloc(sizeof *out->bufs);
    pk_memory_need(out->bufs);
    return out;
}

void pk_store_free_snapshot(struct pk_store *s, struct raft_snapshot *snapshot)
{
    if (snapshot == NULL) {
        return;
    }
    struct pk_snapshot_handle *h = pk_snapshot_handle_of(&snapshot->bufs[0]);
    if (h != NULL && h->state != NULL) {
        s->o.loader->drop(h->state);
    }
    raft_configuration_close(&snapshot->configuration);
    raft_free(snapshot->bufs[0].base);
    raft_free(snapshot->bufs);
    raft_free(snapshot);
}

static struct raft_buffer new_buffer(size_t len)
{
    struct raft_buffer b = {.base = raft_malloc(len + 1), .len = len};
    pk_memory_need(b.base);
    return b;
}

static struct raft_buffer new_handle(const struct pk_snapshot_id *id, void *state)
{
    struct raft_buffer b = new_buffer(sizeof(struct pk_snapshot_handle));
    struct pk_snapshot_handle *h = b.base;
    pk_snapshot_handle_init(h);
    h->id = *id;
    h->state = state;
    return b;
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

static int read_part(struct pk_store *s, unsigned slot, uint64_t offset, size_t size,
                     struct pk_disk_op *op)
{
    char name[PK_DISK_NAME_MAX];
    pk_store_slot_name(slot, name);
    *op = pk_store_op(PK_DISK_READ, name);
    op->offset = offset;
    op->size = size;
    return pk_store_now(s, op);
}

static int read_head(struct pk_store *s, unsigned slot, struct pk_snapshot_head *h)
{
    struct pk_disk_op op;
    int error = read_part(s, slot, 0, PK_SNAPSHOT_HEAD, &op);
    if (error == 0 && pk_snapshot_head_decode(&s->o.owner, op.bytes, op.len, h)) {
        set_slot(s, slot, h);
    } else if (!is_new(op.bytes, op.len)) {
        memcpy(s->bad_slot, op.name, sizeof op.name);
    }
    pk_door_resize(op.bytes, 0);
    return error == ENOENT ? 0 : error;
}

/* Where the bytes of a state go at a start: to the loader, or into a buffer. */
struct sink {
    const struct pk_snapshot_loader *loader;
    void *load;
    struct raft_buffer bytes;
    size_t at;
};

static bool pour(struct sink *k, const unsigned char *bytes, size_t len)
{
    if (k->loader != NULL) {
        return k->loader->feed(k->load, bytes, len);
    }
    memcpy((unsigned char *)k->bytes.base + k->at, bytes, len);
    k->at += len;
    return true;
}

/* 0, or an errno; *good: the state is what its head says. */
static int pour_all(struct pk_store *s, unsigned slot, struct sink *k, bool *good)
{
    const struct pk_snapshot_id *id = &s->ids[slot];
    uint32_t sum = 0;
    uint64_t at = 0;
    *good = true;
    while (at < id->size && *good) {
        struct pk_disk_op op;
        uint64_t left = id->size - at;
        size_t n = left < s->o.slice_bytes ? (size_t)left : s->o.slice_bytes;
        int error = read_part(s, slot, PK_SNAPSHOT_HEAD + at, n, &op);
        *good = error == 0 && op.len == n;
        if (*good) {
            sum = pk_crc32c(sum, op.bytes, n);
            *good = pour(k, op.bytes, n);
        }
        pk_door_resize(op.bytes, 0);
        if (error != 0) {
            return error;
        }
        at += n;
    }
    *good = *good && sum == id->sum;
    return 0;
}

/* What a start finds in a slot. */
struct found_state {
    bool good;            /* false: it is damaged, or */
    uint32_t needs;       /* needs this cluster version */
    struct raft_buffer b; /* the state, or a handle with it */
};

/* Reads the state of a slot. 0, or an errno. */
static int read_state(struct pk_store *s, unsigned slot, struct found_state *out)
{
    const struct pk_snapshot_id *id = &s->ids[slot];
    struct sink k = {.loader = s->o.loader};
    if (k.loader != NULL) {
        k.load = k.loader->begin();
    } else if (id->size <= PK_STORE_STATE_MAX) {
        k.bytes = new_buffer((size_t)id->size);
    }
    *out = (struct found_state){0};
    int error = pour_all(s, slot, &k, &out->good);
    if (k.loader != NULL) {
        out->needs = out->good ? 0 : k.loader->needs(k.load);
        void *state = k.loader->end(k.load);
        out->good = out->good && state != NULL;
        if (out->good) {
            out->b = new_handle(id, state);
        } else if (state != NULL) {
            k.loader->drop(state);
        }
    } else if (out->good && error == 0) {
        out->b = k.bytes;
    } else {
        raft_free(k.bytes.base);
    }
    return error;
}

static int refuse_slot(struct pk_store *s, unsigned slot, int error)
{
    char name[PK_DISK_NAME_MAX];
    pk_store_slot_name(slot, name);
    return pk_store_refuse(s, RAFT_IOERR, "can't read raft/%s: %s", name,
                           strerror(error));
}

static int refuse_version(struct pk_store *s, unsigned slot, uint32_t version)
{
    char name[PK_DISK_NAME_MAX];
    char what[sizeof name + sizeof "raft/"];
    pk_store_slot_name(slot, name);
    (void)snprintf(what, sizeof what, "raft/%s", name);
    return pk_store_refuse(s, RAFT_CORRUPT, "%s", pk_version_needed(what, version));
}

/* The newest that is whole: a slot whose state is damaged is as good as empty. One that
 * a newer build wrote is not: an older one in its place would undo what was acknowledged.
 */
static int find_whole(struct pk_store *s, struct pk_snapshot_head *heads,
                      struct raft_snapshot **out)
{
    while (pk_store_newest(s) != NULL) {
        unsigned slot = newest_slot(s);
        struct found_state found;
        int error = read_state(s, slot, &found);
        if (error != 0) {
            return refuse_slot(s, slot, error);
        }
        if (found.needs != 0) {
            return refuse_version(s, slot, found.needs);
        }
        *out = found.good ? open_head(&heads[slot]) : NULL;
        if (*out != NULL) {
            (*out)->bufs[0] = found.b;
            s->state_bytes = heads[slot].state_len;
            return 0;
        }
        pk_store_slot_name(slot, s->bad_slot);
        s->slots[slot] = 0;
    }
    return 0;
}

int pk_store_find_snapshot(struct pk_store *s, struct raft_snapshot **out)
{
    struct pk_snapshot_head *heads = pk_door_resize(NULL, PK_STORE_SLOTS * sizeof *heads);
    int rv = 0;
    *out = NULL;
    for (unsigned i = 0; i < PK_STORE_SLOTS && rv == 0; i++) {
        s->slots[i] = 0;
        int error = read_head(s, i, &heads[i]);
        rv = error == 0 ? 0 : refuse_slot(s, i, error);
    }
    if (rv == 0) {
        rv = find_whole(s, heads, out);
    }
    pk_door_resize(heads, 0);
    return rv;
}

/* A snapshot of another node can't be loaded by this build. */
static void fail_version(struct pk_store *s, uint32_t version)
{
    if (!s->failed) {
        s->failed = true;
        pk_store_refuse(s, 0, "%s", pk_version_needed("the leader's snapshot", version));
        s->o.failed(s->o.ctx, s->why);
    }
}

void pk_store_fail_slot(struct pk_store *s, const char *name, int error)
{
    if (!s->failed) {
        s->failed = true;
        pk_store_refuse(s, 0, "raft/%s can't be read any more: %s", name,
                        error == 0 ? "it is damaged" : strerror(error));
        s->o.failed(s->o.ctx, s->why);
    }
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

/* Only the head is read: the state goes to others in chunks. */
static void on_read(struct pk_disk_op *op, int error)
{
    struct pk_snapshot_read *r = op->data;
    struct pk_store *s = r->store;
    struct raft_io_snapshot_get *req = r->req;
    struct pk_snapshot_head h;
    bool good =
        error == 0 && pk_snapshot_head_decode(&s->o.owner, op->bytes, op->len, &h);
    struct raft_snapshot *found = good ? open_head(&h) : NULL;
    pk_door_resize(op->bytes, 0);
    if (found == NULL) {
        pk_store_fail_slot(s, op->name, error);
    } else {
        found->bufs[0] = new_handle(&s->ids[r->slot], NULL);
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
    r->op.size = PK_SNAPSHOT_HEAD;
    r->op.done = on_read;
    r->op.data = r;
    pk_store_slot_name(r->slot, r->op.name);
    req->cb = cb;
    r->next = s->reads;
    s->reads = r;
    s->readers[r->slot]++;
    s->o.disk->submit(s->o.disk->ctx, &r->op);
    return 0;
}

/* ---- writing ---- */

static void on_slice(struct pk_disk_op *op, int error);

/* The source of a snapshot whose bytes libraft has: it keeps them until they are written.
 */
static enum pk_source_state read_memory(void *ctx, unsigned char *to, size_t room,
                                        size_t *n)
{
    const struct pk_snapshot_put *p = ctx;
    size_t left = p->buffer.len - (size_t)p->read;
    *n = left < room ? left : room;
    memcpy(to, (const unsigned char *)p->buffer.base + p->read, *n);
    return *n == left ? PK_SOURCE_END : PK_SOURCE_MORE;
}

static int open_put(struct pk_snapshot_put *p, const struct raft_snapshot *snapshot)
{
    struct pk_snapshot_head *h = &p->head;
    struct raft_buffer conf;
    int rv = raft_configuration_encode(&snapshot->configuration, &conf);
    if (rv != 0 || conf.len > PK_CONFIGURATION_MAX) {
        return rv != 0 ? rv : RAFT_TOOBIG;
    }
    h->owner = p->store->o.owner;
    h->index = snapshot->index;
    h->term = snapshot->term;
    h->configuration_index = snapshot->configuration_index;
    h->configuration_len = (uint32_t)conf.len;
    memcpy(h->configuration, conf.base, conf.len);
    raft_free(conf.base);
    struct pk_snapshot_handle *handle = pk_snapshot_handle_of(&snapshot->bufs[0]);
    PK_ASSERT(snapshot->n_bufs == 1);
    p->buffer = snapshot->bufs[0];
    p->memory = (struct pk_snapshot_source){.ctx = p, .read = read_memory};
    p->source = handle != NULL ? handle->source : &p->memory;
    p->handle = handle;
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

/* Hands one part to the disk. */
static void submit_part(struct pk_snapshot_put *p, enum pk_disk_kind kind,
                        const unsigned char *bytes, size_t len)
{
    p->op.kind = kind;
    p->op.parts[0] = (struct pk_disk_part){bytes, len};
    p->op.n_parts = 1;
    p->store->o.disk->submit(p->store->o.disk->ctx, &p->op);
}

/* The next one may be a little larger, on a disk that is full by then. */
uint64_t pk_store_slot_size(uint64_t state_bytes)
{
    return PK_SNAPSHOT_HEAD + state_bytes + state_bytes / 4;
}

/* ---- one that came in chunks ---- */

static void read_slice(struct pk_snapshot_put *p)
{
    struct pk_store *s = p->store;
    uint64_t left = p->handle->id.size - p->read;
    p->op.kind = PK_DISK_READ;
    p->op.offset = PK_SNAPSHOT_HEAD + p->read;
    p->op.size = left < s->o.slice_bytes ? left : s->o.slice_bytes;
    s->o.disk->submit(s->o.disk->ctx, &p->op);
}

static void begin_loading(struct pk_snapshot_put *p)
{
    const struct pk_incoming *in = &p->store->incoming;
    p->state = LOADING;
    p->slot = in->slot;
    p->load = p->store->o.loader->begin();
    pk_store_slot_name(p->slot, p->op.name);
    read_slice(p);
}

/* False: the slot has other bytes than those that came. */
static bool load_slice(struct pk_snapshot_put *p)
{
    const struct pk_snapshot_loader *loader = p->store->o.loader;
    bool good = p->op.len == p->op.size && loader->feed(p->load, p->op.bytes, p->op.len);
    p->head.state_sum = pk_crc32c(p->head.state_sum, p->op.bytes, p->op.len);
    p->read += p->op.len;
    if (good && p->read == p->handle->id.size) {
        p->state_loaded = loader->end(p->load);
        p->load = NULL;
        good = p->state_loaded != NULL && p->head.state_sum == p->handle->id.sum;
    }
    return good;
}

static void submit(struct pk_snapshot_put *p)
{
    struct pk_store *s = p->store;
    PK_ASSERT(p->state == WAITS);
    if (is_too_early(p)) {
        return;
    }
    if (p->source == NULL) {
        begin_loading(p);
        return;
    }
    p->slot = pk_store_oldest_slot(s);
    if (p->slot == PK_STORE_SLOTS) {
        pk_store_give_up_sent(s);
        p->slot = pk_store_oldest_slot(s);
    }
    if (p->slot == PK_STORE_SLOTS) {
        return;
    }
    p->state = OPENING;
    pk_store_slot_name(p->slot, p->op.name);
    s->slots[p->slot] = 0;
    memset(p->bytes, 0, sizeof p->bytes);
    p->op.size = pk_store_slot_size(s->state_bytes);
    submit_part(p, PK_DISK_STORE, p->bytes, sizeof p->bytes);
}

int pk_store_snapshot_put(struct pk_store *s, unsigned trailing,
                          struct raft_io_snapshot_put *req,
                          const struct raft_snapshot *snapshot,
                          raft_io_snapshot_put_cb cb)
{
    PK_ASSERT(s->put == NULL);
    struct pk_snapshot_put *p = pk_door_resize(NULL, sizeof *p + s->o.slice_bytes);
    memset(p, 0, sizeof *p);
    p->store = s;
    p->req = req;
    p->trailing = trailing;
    p->index = snapshot->index;
    int rv = open_put(p, snapshot);
    if (rv != 0) {
        pk_door_resize(p, 0);
        return rv;
    }
    if (p->source == NULL) {
        struct pk_incoming *in = &s->incoming;
        PK_ASSERT(in->state == PK_INCOMING_WHOLE && s->o.loader != NULL &&
                  pk_snapshot_same(&in->id, &p->handle->id));
        in->state = PK_INCOMING_INSTALLING; /* from now on no other takes its place */
    }
    p->op.done = on_slice;
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
    set_slot(s, p->slot, &p->head);
    s->state_bytes = p->head.state_len;
    if (p->trailing > 0) { /* it was taken here */
        pk_store_release(s, p->index > p->trailing ? p->index - p->trailing + 1 : 1);
    } else { /* it was received, and the log goes on behind it */
        s->truncate = 0;
        s->reset = p->index + 1;
        s->tail_index = p->index;
    }
}

/* The snapshot is there, or (`error`: of libraft) it is given up. */
static void end_put(struct pk_snapshot_put *p, int error)
{
    struct pk_store *s = p->store;
    struct raft_io_snapshot_put *req = p->req;
    s->put_lacked_space = error == RAFT_NOSPACE;
    if (error == 0) {
        take_in(s, p);
    } else {
        s->written_at_snapshot = p->written_before; /* one is still due, but not now */
        s->put_pause = PK_STORE_PAUSE;
    }
    if (p->state_loaded != NULL && error == 0) {
        p->handle->state = p->state_loaded;
        p->state_loaded = NULL;
    }
    if (s->incoming.state == PK_INCOMING_INSTALLING) {
        pk_store_end_incoming(s);
    }
    pk_store_free_put(s);
    req->cb(req, error);
    pk_store_pump(s);
    pk_store_maybe_closed(s);
}

/* Everything was written but for the head, by which the slot counts. */
static void seal(struct pk_snapshot_put *p)
{
    p->state = SEALING;
    p->head.state_len = p->read;
    pk_snapshot_head_encode(&p->head, p->bytes);
    p->op.offset = 0;
    p->op.size = pk_store_slot_size(p->read);
    submit_part(p, PK_DISK_STORE, p->bytes, sizeof p->bytes);
}

/* A slice that is empty goes to the disk, too: so the loop has its turn. */
static void write_slice(struct pk_snapshot_put *p)
{
    size_t n = 0;
    enum pk_source_state got =
        p->source->read(p->source->ctx, p->slice, p->store->o.slice_bytes, &n);
    if (got == PK_SOURCE_GONE) {
        end_put(p, RAFT_CANCELED);
        return;
    }
    p->state = WRITING;
    p->at_end = got == PK_SOURCE_END;
    p->op.offset = PK_SNAPSHOT_HEAD + p->read;
    p->head.state_sum = pk_crc32c(p->head.state_sum, p->slice, n);
    p->read += n;
    submit_part(p, PK_DISK_WRITE, p->slice, n);
}

/* A received snapshot that lacks space waits: without it this node can't go on, and there
 * may be space later. */
static void lack_space(struct pk_snapshot_put *p)
{
    bool received = p->trailing == 0;
    if (p->state_loaded != NULL) {
        pk_store_fail(p->store, p->op.name, ENOSPC); /* its head has its place already */
        return;
    }
    if (!received || p->store->closing) {
        end_put(p, RAFT_NOSPACE);
        return;
    }
    p->state = WAITS;
    p->at_end = false; /* all of it is written again */
    p->read = 0;
    p->head.state_sum = 0;
    p->op.offset = 0;
}

static void on_loaded(struct pk_snapshot_put *p, int error)
{
    struct pk_store *s = p->store;
    bool good = error == 0 && load_slice(p);
    p->op.bytes = pk_door_resize(p->op.bytes, 0);
    uint32_t needs = !good && p->load != NULL ? s->o.loader->needs(p->load) : 0;
    if (needs != 0) {
        fail_version(s, needs);
    } else if (!good) {
        pk_store_fail_slot(s, p->op.name, error);
    } else if (s->closing) {
        end_put(p, RAFT_CANCELED);
    } else if (p->state_loaded != NULL) {
        seal(p);
    } else {
        read_slice(p);
    }
}

static void on_slice(struct pk_disk_op *op, int error)
{
    struct pk_snapshot_put *p = op->data;
    struct pk_store *s = p->store;
    if (p->state == LOADING) {
        on_loaded(p, error);
        return;
    }
    if (error == ENOSPC) {
        lack_space(p);
        return;
    }
    if (error != 0) {
        pk_store_fail(s, op->name, error);
    }
    if (s->failed) {
        return;
    }
    if (p->state == SEALING) {
        end_put(p, 0);
    } else if (s->closing) {
        end_put(p, RAFT_CANCELED);
    } else if (p->at_end) {
        seal(p);
    } else {
        write_slice(p);
    }
}

void pk_store_free_put(struct pk_store *s)
{
    struct pk_snapshot_put *p = s->put;
    s->put = NULL;
    if (p == NULL) {
        return;
    }
    if (p->load != NULL) {
        void *state = s->o.loader->end(p->load);
        p->state_loaded = state;
    }
    if (p->state_loaded != NULL) {
        s->o.loader->drop(p->state_loaded);
    }
    pk_door_resize(p, 0);
}

bool pk_store_writes_snapshot(const struct pk_store *s)
{
    return s->put != NULL && s->put->state != WAITS && !s->put_lacked_space;
}

void pk_store_cancel_snapshot(struct pk_store *s)
{
    struct pk_snapshot_put *p = s->put;
    if (p != NULL && p->state == WAITS) {
        struct raft_io_snapshot_put *req = p->req;
        pk_store_free_put(s);
        req->cb(req, RAFT_CANCELED);
    }
}

void pk_store_retry_snapshot(struct pk_store *s)
{
    if (s->put != NULL && s->put->state == WAITS) {
        submit(s->put);
    }
}
