/* SPDX-License-Identifier: MIT */
/*
 * For tests of src/raft and src/server/turn.h: a raft_io in memory. Nothing happens by
 * itself: writes reach the disk when the test says so, the clock moves when the test
 * moves it, and the other nodes are played by the test, by messages that it makes up.
 */
#ifndef PICKET_TEST_MEMIO_H
#define PICKET_TEST_MEMIO_H

#include <raft.h>
#include <stdio.h>

#include "core/door.h"
#include "raft/snapshot.h"
#include "tap.h"

enum { MEM_TELLS_CAPACITY = 1 }; /* among the features of a node */
enum { MEM_ENTRIES = 256, MEM_WRITES = 256, MEM_SENDS = 4096, MEM_ELECTION_MS = 300 };

struct mem_bytes {
    unsigned char *data;
    size_t len;
};

struct mem_entry {
    raft_term term;
    enum raft_entry_type type;
    struct mem_bytes bytes;
};

/* What outlives a restart. */
struct mem_disk {
    raft_term term;
    raft_id vote;
    raft_index first; /* index of entries[0] */
    struct mem_entry entries[MEM_ENTRIES];
    size_t n;
    raft_index snapshot_index; /* 0: no snapshot */
    raft_term snapshot_term;
    raft_index conf_index;
    struct mem_bytes conf, snapshot;
    unsigned snapshots; /* ever written */
};

struct mem_write {
    struct mem_entry entries[MEM_ENTRIES];
    unsigned n;
    raft_index truncate; /* 0: no truncation */
    struct raft_io_append *append;
    struct raft_io_snapshot_put *put;
    struct mem_bytes conf, snapshot;
    raft_index index, conf_index;
    raft_term term;
};

struct mem_io {
    struct raft_io io;
    struct mem_disk *disk;
    uint64_t now_ms;
    unsigned short others_capacity; /* what the other nodes say of their disks */
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    struct mem_write *writes[MEM_WRITES];
    size_t n_writes;
    struct raft_io_send *sends[MEM_SENDS];
    size_t n_sends;
    unsigned sent[RAFT_TIMEOUT_NOW + 1]; /* messages so far, by type */
};

static inline struct mem_io *mem_of(const struct raft_io *io)
{
    return io->impl;
}

static inline struct mem_bytes mem_copy(const void *data, size_t len)
{
    struct mem_bytes b = {pk_door_resize(NULL, len + 1), len};
    memcpy(b.data, data, len);
    return b;
}

static inline void mem_drop(struct mem_bytes *b)
{
    pk_door_resize(b->data, 0);
    *b = (struct mem_bytes){0};
}

/* The same bytes, as the library wants to own them. */
static inline struct raft_buffer mem_given(struct mem_bytes b)
{
    struct raft_buffer buf = {raft_malloc(b.len + 1), b.len};
    memcpy(buf.base, b.data, b.len);
    return buf;
}

static inline struct mem_bytes mem_conf(const struct raft_configuration *conf)
{
    struct raft_buffer buf;
    CHECK_U64(raft_configuration_encode(conf, &buf), 0);
    struct mem_bytes b = mem_copy(buf.base, buf.len);
    raft_free(buf.base);
    return b;
}

/* ---- the disk ---- */

static inline void mem_disk_cut(struct mem_disk *d, raft_index from)
{
    while (d->n > 0 && d->first + d->n > from) {
        mem_drop(&d->entries[--d->n].bytes);
    }
}

static inline void mem_disk_free(struct mem_disk *d)
{
    mem_disk_cut(d, 0);
    mem_drop(&d->conf);
    mem_drop(&d->snapshot);
}

static inline struct mem_entry *mem_disk_at(struct mem_disk *d, raft_index index)
{
    CHECK(index >= d->first && index < d->first + d->n);
    return &d->entries[index - d->first];
}

static inline void mem_disk_append(struct mem_disk *d, struct mem_entry e)
{
    CHECK(d->n < MEM_ENTRIES);
    d->first = d->first == 0 ? 1 : d->first;
    d->entries[d->n++] = e;
}

/* The log stays as long as it is: a follower may still want it. */
static inline void mem_disk_put(struct mem_disk *d, const struct mem_write *w)
{
    mem_drop(&d->conf);
    mem_drop(&d->snapshot);
    d->snapshot_index = w->index;
    d->snapshot_term = w->term;
    d->conf_index = w->conf_index;
    d->conf = w->conf;
    d->snapshot = w->snapshot;
    d->snapshots++;
}

/* The oldest write reaches the disk. */
static inline void mem_finish(struct mem_io *m)
{
    CHECK(m->n_writes > 0);
    struct mem_write *w = m->writes[0];
    memmove(m->writes, m->writes + 1, --m->n_writes * sizeof(struct mem_write *));
    if (w->truncate != 0) {
        mem_disk_cut(m->disk, w->truncate);
    }
    for (unsigned i = 0; i < w->n; i++) {
        mem_disk_append(m->disk, w->entries[i]);
    }
    if (w->put != NULL) {
        mem_disk_put(m->disk, w);
        w->put->cb(w->put, 0);
    } else if (w->append != NULL) {
        w->append->cb(w->append, 0);
    }
    pk_door_resize(w, 0);
}

static inline void mem_flush(struct mem_io *m)
{
    while (m->n_sends > 0) {
        struct raft_io_send *req = m->sends[--m->n_sends];
        req->cb(req, 0);
    }
}

static inline void mem_finish_all(struct mem_io *m)
{
    mem_flush(m);
    while (m->n_writes > 0) {
        mem_finish(m);
        mem_flush(m);
    }
}

/* ---- the raft_io ---- */

static inline struct mem_write *mem_write_new(struct mem_io *m)
{
    CHECK(m->n_writes < MEM_WRITES);
    struct mem_write *w = pk_door_resize(NULL, sizeof *w);
    memset(w, 0, sizeof *w);
    m->writes[m->n_writes++] = w;
    return w;
}

static inline int mem_init(struct raft_io *io, raft_id id, const char *address)
{
    (void)io, (void)id, (void)address;
    return 0;
}

static inline void mem_close(struct raft_io *io, raft_io_close_cb cb)
{
    cb(io);
}

static inline struct raft_snapshot *mem_unpack(const struct mem_disk *d)
{
    struct raft_snapshot *s = raft_malloc(sizeof *s);
    struct raft_buffer conf = {d->conf.data, d->conf.len};
    s->index = d->snapshot_index;
    s->term = d->snapshot_term;
    s->configuration_index = d->conf_index;
    raft_configuration_init(&s->configuration);
    CHECK_U64(raft_configuration_decode(&conf, &s->configuration), 0);
    s->n_bufs = 1;
    s->bufs = raft_malloc(sizeof *s->bufs);
    s->bufs[0] = mem_given(d->snapshot);
    return s;
}

/* Entries in one piece of memory, as the library wants those from outside. */
static inline struct raft_entry *mem_entries(const struct mem_entry *from, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        len += from[i].bytes.len;
    }
    struct raft_entry *to = raft_malloc((n + 1) * sizeof *to);
    unsigned char *batch = raft_malloc(len + 1);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = (struct raft_entry){
            from[i].term, from[i].type, {batch + at, from[i].bytes.len}, batch};
        memcpy(batch + at, from[i].bytes.data, from[i].bytes.len);
        at += from[i].bytes.len;
    }
    return to;
}

static inline int mem_load(struct raft_io *io, raft_term *term, raft_id *vote,
                           struct raft_snapshot **snapshot, raft_index *first,
                           struct raft_entry *entries[], size_t *n)
{
    const struct mem_disk *d = mem_of(io)->disk;
    *term = d->term;
    *vote = d->vote;
    *snapshot = d->snapshot_index == 0 ? NULL : mem_unpack(d);
    *first = d->first == 0 ? 1 : d->first;
    *n = d->n;
    *entries = d->n == 0 ? NULL : mem_entries(d->entries, d->n);
    return 0;
}

static inline int mem_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                            raft_io_recv_cb receive)
{
    (void)msecs;
    mem_of(io)->tick = tick;
    mem_of(io)->receive = receive;
    return 0;
}

static inline int mem_bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    struct mem_disk *d = mem_of(io)->disk;
    if (d->term != 0) {
        return RAFT_CANTBOOTSTRAP;
    }
    d->term = 1;
    mem_disk_append(d, (struct mem_entry){1, RAFT_CHANGE, mem_conf(conf)});
    return 0;
}

static inline int mem_recover(struct raft_io *io, const struct raft_configuration *conf)
{
    (void)io, (void)conf;
    return RAFT_INVALID;
}

static inline int mem_set_term(struct raft_io *io, raft_term term)
{
    mem_of(io)->disk->term = term;
    mem_of(io)->disk->vote = 0;
    return 0;
}

static inline int mem_set_vote(struct raft_io *io, raft_id vote)
{
    mem_of(io)->disk->vote = vote;
    return 0;
}

static inline int mem_send(struct raft_io *io, struct raft_io_send *req,
                           const struct raft_message *m, raft_io_send_cb cb)
{
    struct mem_io *s = mem_of(io);
    CHECK(s->n_sends < MEM_SENDS);
    req->cb = cb;
    s->sends[s->n_sends++] = req;
    s->sent[m->type]++;
    return 0;
}

static inline int mem_append(struct raft_io *io, struct raft_io_append *req,
                             const struct raft_entry entries[], unsigned n,
                             raft_io_append_cb cb)
{
    struct mem_write *w = mem_write_new(mem_of(io));
    req->cb = cb;
    w->append = req;
    w->n = n;
    for (unsigned i = 0; i < n; i++) {
        w->entries[i] =
            (struct mem_entry){entries[i].term, entries[i].type,
                               mem_copy(entries[i].buf.base, entries[i].buf.len)};
    }
    return 0;
}

static inline int mem_truncate(struct raft_io *io, raft_index index)
{
    mem_write_new(mem_of(io))->truncate = index;
    return 0;
}

/* All bytes of a source, at once. */
static inline struct mem_bytes mem_pull(const struct pk_snapshot_source *from)
{
    enum { AT_ONCE = 64 };
    struct mem_bytes b = {pk_door_resize(NULL, AT_ONCE), 0};
    enum pk_source_state state = PK_SOURCE_MORE;
    while (state == PK_SOURCE_MORE) {
        size_t n;
        state = from->read(from->ctx, b.data + b.len, AT_ONCE, &n);
        b.len += n;
        b.data = pk_door_resize(b.data, b.len + AT_ONCE);
    }
    CHECK(state == PK_SOURCE_END);
    return b;
}

static inline int mem_snapshot_put(struct raft_io *io, unsigned trailing,
                                   struct raft_io_snapshot_put *req,
                                   const struct raft_snapshot *s,
                                   raft_io_snapshot_put_cb cb)
{
    (void)trailing;
    struct mem_write *w = mem_write_new(mem_of(io));
    const struct pk_snapshot_handle *h = pk_snapshot_handle_of(&s->bufs[0]);
    CHECK_U64(s->n_bufs, 1);
    w->snapshot =
        h == NULL ? mem_copy(s->bufs[0].base, s->bufs[0].len) : mem_pull(h->source);
    w->conf = mem_conf(&s->configuration);
    w->index = s->index;
    w->term = s->term;
    w->conf_index = s->configuration_index;
    req->cb = cb;
    w->put = req;
    return 0;
}

static inline int mem_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                                   raft_io_snapshot_get_cb cb)
{
    (void)io, (void)req, (void)cb;
    return RAFT_NOTFOUND; /* no test here sends one */
}

static inline raft_time mem_time(struct raft_io *io)
{
    return mem_of(io)->now_ms;
}

static inline int mem_random(struct raft_io *io, int min, int max)
{
    (void)io, (void)max;
    return min;
}

static inline void mem_open(struct mem_io *m, struct mem_disk *disk)
{
    *m = (struct mem_io){.disk = disk, .now_ms = 1000, .others_capacity = UINT16_MAX};
    m->io = (struct raft_io){
        .version = 1,
        .capacity = UINT16_MAX,
        .impl = m,
        .init = mem_init,
        .close = mem_close,
        .load = mem_load,
        .start = mem_start,
        .bootstrap = mem_bootstrap,
        .recover = mem_recover,
        .set_term = mem_set_term,
        .set_vote = mem_set_vote,
        .send = mem_send,
        .append = mem_append,
        .truncate = mem_truncate,
        .snapshot_put = mem_snapshot_put,
        .snapshot_get = mem_snapshot_get,
        .time = mem_time,
        .random = mem_random,
    };
}

/* Writes that did not make it to the disk. */
static inline void mem_lose_writes(struct mem_io *m)
{
    while (m->n_writes > 0) {
        struct mem_write *w = m->writes[--m->n_writes];
        for (unsigned i = 0; i < w->n; i++) {
            mem_drop(&w->entries[i].bytes);
        }
        mem_drop(&w->conf);
        mem_drop(&w->snapshot);
        pk_door_resize(w, 0);
    }
}

/* ---- the others ---- */

static inline void mem_tick(struct mem_io *m, uint64_t ms)
{
    m->now_ms += ms;
    m->tick(&m->io);
    mem_flush(m);
}

static inline void mem_deliver(struct mem_io *m, raft_id from, struct raft_message msg)
{
    char address[32];
    snprintf(address, sizeof address, "node-%llu", from);
    msg.server_id = from;
    msg.server_address = address;
    m->receive(&m->io, &msg);
    mem_flush(m);
}

static inline void mem_vote(struct mem_io *m, raft_id from, raft_term term, bool pre_vote)
{
    mem_deliver(
        m, from,
        (struct raft_message){.type = RAFT_REQUEST_VOTE_RESULT,
                              .request_vote_result = {.version = 2,
                                                      .term = term,
                                                      .vote_granted = true,
                                                      .pre_vote = pre_vote,
                                                      .features = MEM_TELLS_CAPACITY,
                                                      .capacity = m->others_capacity}});
}

/* `from` has the log up to `last`. */
static inline void mem_ack(struct mem_io *m, raft_id from, raft_term term,
                           raft_index last)
{
    mem_deliver(
        m, from,
        (struct raft_message){.type = RAFT_APPEND_ENTRIES_RESULT,
                              .append_entries_result = {.version = 1,
                                                        .term = term,
                                                        .last_log_index = last,
                                                        .features = MEM_TELLS_CAPACITY,
                                                        .capacity = m->others_capacity}});
}

/* `from` leads `term`, and sends `n` entries behind `prev`. */
static inline void mem_lead(struct mem_io *m, raft_id from, raft_term term,
                            raft_index prev, raft_term prev_term, raft_index commit,
                            const struct mem_entry *entries, unsigned n)
{
    mem_deliver(m, from,
                (struct raft_message){
                    .type = RAFT_APPEND_ENTRIES,
                    .append_entries = {.term = term,
                                       .prev_log_index = prev,
                                       .prev_log_term = prev_term,
                                       .leader_commit = commit,
                                       .entries = n > 0 ? mem_entries(entries, n) : NULL,
                                       .n_entries = n},
                });
}

#endif
