/* SPDX-License-Identifier: MIT */
#include "sim_io.h"

#include <raft.h>
#include <string.h>

#include "core/door.h"

enum { ROOMY = UINT16_MAX }; /* what a disk with room reports, in KiB */

enum write_kind { APPEND, TRUNCATE, INSTALL, TAKE };

/* Something that is on its way to the disk. */
struct write {
    struct write *next;
    enum write_kind kind;
    uint64_t index; /* TRUNCATE: from where on */
    struct sim_record **records;
    unsigned n_records;
    struct sim_snapshot *snapshot;
    uint64_t trailing;
    struct raft_io_append *append;
    struct raft_io_snapshot_put *put;
};

struct lane {
    struct write *first, **last;
    uint64_t last_us; /* when its last write reaches the disk */
};

struct sim_io {
    struct raft_io io;
    struct sim_io_options o;
    struct sim_io_counts *counts;
    struct lane log, taken; /* snapshots of our own go beside the log */
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    unsigned tick_ms;
    struct raft_io_send **sent; /* to be told that they are */
    size_t n_sent, sent_capacity;
};

static struct sim_io *sim_of(const struct raft_io *io)
{
    return io->impl;
}

/* Events carry us in `what`; they don't outlive the life that we belong to. */
static uint64_t what_of(struct sim_io *s)
{
    return (uint64_t)(uintptr_t)s;
}

static struct sim_io *of_what(uint64_t what)
{
    return (struct sim_io *)(uintptr_t)what;
}

static uint64_t now_us(const struct sim_io *s)
{
    return s->o.process->queue->now_us;
}

/* Every way into the library begins with the one and ends with the other. */
static void enter(struct sim_io *s)
{
    sim_heap_for_raft(s->o.heap);
}

static void worked(struct sim_io *s)
{
    sim_io_flush(s);
    s->o.worked(s->o.process->self);
}

/* ---- the disk ---- */

static void apply_write(struct sim_disk *d, struct write *w)
{
    switch (w->kind) {
    case APPEND:
        for (unsigned i = 0; i < w->n_records; i++) {
            sim_disk_append(d, w->records[i]);
        }
        break;
    case TRUNCATE:
        sim_disk_truncate(d, w->index);
        break;
    case INSTALL:
    case TAKE:
        sim_disk_put_snapshot(d, w->snapshot, w->trailing);
        break;
    }
}

static struct write *take_first(struct lane *l)
{
    struct write *w = l->first;
    l->first = w->next;
    if (l->first == NULL) {
        l->last = &l->first;
    }
    return w;
}

static void free_write(struct write *w)
{
    sim_heap_give(w->records);
    sim_heap_give(w);
}

static void written(struct sim_io *s, struct lane *l)
{
    struct write *w = take_first(l);
    struct raft_io_append *append = w->append;
    struct raft_io_snapshot_put *put = w->put;
    apply_write(s->o.disk, w);
    free_write(w);
    enter(s);
    if (append != NULL) {
        append->cb(append, 0);
    }
    if (put != NULL) {
        put->cb(put, 0);
    }
    worked(s);
}

static void log_written(void *self, uint64_t what, void *load)
{
    (void)self;
    (void)load;
    written(of_what(what), &of_what(what)->log);
}

static void snapshot_written(void *self, uint64_t what, void *load)
{
    (void)self;
    (void)load;
    written(of_what(what), &of_what(what)->taken);
}

static struct write *new_write(struct sim_io *s, enum write_kind kind)
{
    struct write *w = sim_heap_take(s->o.disk->heap, sizeof *w);
    *w = (struct write){.kind = kind};
    return w;
}

static void enqueue(struct sim_io *s, struct write *w)
{
    bool beside = w->kind == TAKE;
    struct lane *l = beside ? &s->taken : &s->log;
    const struct sim_speed *v = s->o.speed;
    uint64_t takes_us = w->snapshot != NULL
                            ? rng_between(s->o.rng, v->least_us, v->snapshot_us)
                            : rng_between(s->o.rng, v->least_us, v->most_us);
    uint64_t begins_us = now_us(s) > l->last_us ? now_us(s) : l->last_us;
    /* Truncations go with the append behind them. */
    l->last_us = begins_us + (w->kind == TRUNCATE ? 0 : takes_us);
    *l->last = w;
    l->last = &w->next;
    sim_process_at(s->o.process, l->last_us, beside ? snapshot_written : log_written,
                   what_of(s), NULL);
}

static int append(struct raft_io *io, struct raft_io_append *req,
                  const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    struct sim_io *s = sim_of(io);
    struct sim_heap *h = s->o.disk->heap;
    struct write *w = new_write(s, APPEND);
    w->records = sim_heap_take(h, n * sizeof *w->records);
    w->n_records = n;
    for (unsigned i = 0; i < n; i++) {
        const struct raft_entry *e = &entries[i];
        w->records[i] = sim_record_new(h, e->term, (int)e->type, e->buf.base, e->buf.len);
    }
    req->cb = cb;
    w->append = req;
    s->counts->appends++;
    enqueue(s, w);
    return 0;
}

static int truncate_log(struct raft_io *io, raft_index index)
{
    struct sim_io *s = sim_of(io);
    struct write *w = new_write(s, TRUNCATE);
    w->index = index;
    s->counts->truncations++;
    enqueue(s, w);
    return 0;
}

static int set_term(struct raft_io *io, raft_term term)
{
    sim_of(io)->o.disk->term = term;
    sim_of(io)->o.disk->vote = 0;
    return 0;
}

static int set_vote(struct raft_io *io, raft_id vote)
{
    sim_of(io)->o.disk->vote = vote;
    return 0;
}

static int bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    struct sim_disk *d = sim_of(io)->o.disk;
    struct raft_buffer b;
    if (d->term != 0 || d->count > 0) {
        return RAFT_CANTBOOTSTRAP;
    }
    int rv = raft_configuration_encode(conf, &b);
    if (rv == 0) {
        d->term = 1;
        sim_disk_append(d, sim_record_new(d->heap, 1, RAFT_CHANGE, b.base, b.len));
        raft_free(b.base);
    }
    return rv;
}

static int recover(struct raft_io *io, const struct raft_configuration *conf)
{
    (void)io;
    (void)conf;
    return RAFT_INVALID; /* nobody here loses a quorum for good */
}

/* ---- snapshots ---- */

static size_t total_len(const struct raft_snapshot *from)
{
    size_t len = 0;
    for (unsigned i = 0; i < from->n_bufs; i++) {
        len += from->bufs[i].len;
    }
    return len;
}

static struct sim_snapshot *pack_snapshot(struct sim_heap *h,
                                          const struct raft_snapshot *from)
{
    struct raft_buffer conf;
    int rv = raft_configuration_encode(&from->configuration, &conf);
    PK_ASSERT(rv == 0);
    struct sim_snapshot *to = sim_snapshot_new(h, conf.len, total_len(from));
    to->index = from->index;
    to->term = from->term;
    to->conf_index = from->configuration_index;
    memcpy(to->bytes, conf.base, conf.len);
    raft_free(conf.base);
    size_t at = to->conf_len;
    for (unsigned i = 0; i < from->n_bufs; i++) {
        memcpy(to->bytes + at, from->bufs[i].base, from->bufs[i].len);
        at += from->bufs[i].len;
    }
    return to;
}

static struct raft_configuration unpack_conf(const unsigned char *bytes, size_t len)
{
    struct raft_configuration conf;
    struct raft_buffer b = {raft_malloc(len), len};
    memcpy(b.base, bytes, len);
    raft_configuration_init(&conf);
    int rv = raft_configuration_decode(&b, &conf);
    PK_ASSERT(rv == 0);
    raft_free(b.base);
    return conf;
}

static struct raft_buffer copy(const unsigned char *bytes, size_t len)
{
    struct raft_buffer b = {raft_malloc(len), len};
    memcpy(b.base, bytes, len);
    return b;
}

static struct raft_snapshot *unpack_snapshot(const struct sim_snapshot *from)
{
    struct raft_snapshot *to = raft_malloc(sizeof *to);
    to->index = from->index;
    to->term = from->term;
    to->configuration = unpack_conf(from->bytes, from->conf_len);
    to->configuration_index = from->conf_index;
    to->n_bufs = 1;
    to->bufs = raft_malloc(sizeof *to->bufs);
    to->bufs[0] = copy(from->bytes + from->conf_len, from->data_len);
    return to;
}

static int snapshot_put(struct raft_io *io, unsigned trailing,
                        struct raft_io_snapshot_put *req,
                        const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct sim_io *s = sim_of(io);
    struct write *w = new_write(s, trailing > 0 ? TAKE : INSTALL);
    w->snapshot = pack_snapshot(s->o.disk->heap, snapshot);
    w->trailing = trailing;
    req->cb = cb;
    w->put = req;
    s->counts->snapshots_taken += trailing > 0;
    s->counts->snapshots_installed += trailing == 0;
    enqueue(s, w);
    return 0;
}

/* A snapshot is being read for somebody else. */
struct reading {
    struct sim_io *io;
    struct raft_io_snapshot_get *req;
};

static void snapshot_read(void *self, uint64_t what, void *load)
{
    (void)self;
    (void)what;
    struct reading r = *(struct reading *)load;
    sim_heap_give(load);
    enter(r.io);
    const struct sim_snapshot *from = r.io->o.disk->snapshot;
    if (from == NULL) {
        r.req->cb(r.req, NULL, RAFT_NOTFOUND);
    } else {
        r.req->cb(r.req, unpack_snapshot(from), 0);
    }
    worked(r.io);
}

static int snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                        raft_io_snapshot_get_cb cb)
{
    struct sim_io *s = sim_of(io);
    struct reading *r = sim_queue_load(s->o.process->queue, sizeof *r);
    *r = (struct reading){s, req};
    req->cb = cb;
    uint64_t takes_us =
        rng_between(s->o.rng, s->o.speed->least_us, s->o.speed->snapshot_us);
    sim_process_at(s->o.process, now_us(s) + takes_us, snapshot_read, 0, r);
    return 0;
}

/* ---- loading ---- */

/* All entries in one piece of memory, as the library wants them. */
static struct raft_entry *unpack_records(struct sim_record *const *records, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        len += records[i]->len;
    }
    struct raft_entry *entries = raft_malloc(n * sizeof *entries);
    unsigned char *batch = raft_malloc(len + 1);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        entries[i] = (struct raft_entry){.term = records[i]->term,
                                         .type = (enum raft_entry_type)records[i]->type,
                                         .buf = {batch + at, records[i]->len},
                                         .batch = batch};
        memcpy(batch + at, records[i]->bytes, records[i]->len);
        at += records[i]->len;
    }
    return entries;
}

static int load(struct raft_io *io, raft_term *term, raft_id *voted_for,
                struct raft_snapshot **snapshot, raft_index *start_index,
                struct raft_entry *entries[], size_t *n_entries)
{
    struct sim_disk *d = sim_of(io)->o.disk;
    sim_disk_recover(d);
    *term = d->term;
    *voted_for = d->vote;
    *snapshot = d->snapshot == NULL ? NULL : unpack_snapshot(d->snapshot);
    *start_index = d->first;
    *entries = d->count == 0 ? NULL : unpack_records(d->records, d->count);
    *n_entries = d->count;
    return 0;
}

/* ---- time ---- */

static void next_tick(struct sim_io *s);

static void tick(void *self, uint64_t what, void *load)
{
    (void)self;
    (void)load;
    struct sim_io *s = of_what(what);
    next_tick(s);
    enter(s);
    s->tick(&s->io);
    worked(s);
}

static void next_tick(struct sim_io *s)
{
    uint64_t at_ms = sim_process_ms(s->o.process) + s->tick_ms;
    sim_process_at(s->o.process, sim_clock_when_us(&s->o.process->clock, at_ms), tick,
                   what_of(s), NULL);
}

static int start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick_cb,
                 raft_io_recv_cb receive)
{
    struct sim_io *s = sim_of(io);
    s->tick = tick_cb;
    s->receive = receive;
    s->tick_ms = msecs;
    next_tick(s);
    return 0;
}

static raft_time time_ms(struct raft_io *io)
{
    return sim_process_ms(sim_of(io)->o.process);
}

static int draw(struct raft_io *io, int min, int max)
{
    return min + (int)rng_below(sim_of(io)->o.rng, (uint64_t)(max - min));
}

/* ---- messages ---- */

const char *sim_io_address(uint32_t place)
{
    static const char names[SIM_NODES_MAX][16] = {
        "n1@sim:1", "n2@sim:2", "n3@sim:3", "n4@sim:4", "n5@sim:5",
        "n6@sim:6", "n7@sim:7", "n8@sim:8", "n9@sim:9", "n10@sim:10"};
    PK_ASSERT(place < SIM_NODES_MAX);
    return names[place];
}

/* An entry of AppendEntries; its bytes stand behind all of them. */
struct piece {
    raft_term term;
    enum raft_entry_type type;
    size_t len;
};

struct packet {
    struct sim_message head;
    struct raft_message m;
    size_t conf_len; /* InstallSnapshot */
    size_t len;      /* of the bytes: configuration and data, or those of the entries */
    struct piece pieces[];
};

static struct packet *new_packet(struct sim_io *s, const struct raft_message *m,
                                 unsigned pieces, size_t len)
{
    struct packet *p = sim_net_message(s->o.net, s->o.place, (uint32_t)(m->server_id - 1),
                                       sizeof *p + pieces * sizeof p->pieces[0] + len);
    p->m = *m;
    p->conf_len = 0;
    p->len = len;
    return p;
}

static struct packet *pack_append(struct sim_io *s, const struct raft_message *m)
{
    const struct raft_append_entries *a = &m->append_entries;
    size_t len = 0;
    for (unsigned i = 0; i < a->n_entries; i++) {
        len += a->entries[i].buf.len;
    }
    struct packet *p = new_packet(s, m, a->n_entries, len);
    unsigned char *to = (unsigned char *)(p->pieces + a->n_entries);
    for (unsigned i = 0; i < a->n_entries; i++) {
        const struct raft_entry *e = &a->entries[i];
        p->pieces[i] = (struct piece){e->term, e->type, e->buf.len};
        memcpy(to, e->buf.base, e->buf.len);
        to += e->buf.len;
    }
    return p;
}

static struct packet *pack_install(struct sim_io *s, const struct raft_message *m)
{
    const struct raft_install_snapshot *i = &m->install_snapshot;
    struct raft_buffer conf;
    int rv = raft_configuration_encode(&i->conf, &conf);
    PK_ASSERT(rv == 0);
    struct packet *p = new_packet(s, m, 0, conf.len + i->data.len);
    unsigned char *to = (unsigned char *)p->pieces;
    p->conf_len = conf.len;
    memcpy(to, conf.base, conf.len);
    memcpy(to + conf.len, i->data.base, i->data.len);
    raft_free(conf.base);
    s->counts->snapshots_sent++;
    return p;
}

static void remember_sent(struct sim_io *s, struct raft_io_send *req)
{
    if (s->n_sent == s->sent_capacity) {
        s->sent_capacity = s->sent_capacity == 0 ? 16 : s->sent_capacity * 2;
        s->sent =
            pk_door_resize(s->sent, s->sent_capacity * sizeof(struct raft_io_send *));
    }
    s->sent[s->n_sent++] = req;
}

static int send_message(struct raft_io *io, struct raft_io_send *req,
                        const struct raft_message *m, raft_io_send_cb cb)
{
    struct sim_io *s = sim_of(io);
    struct packet *p = m->type == RAFT_APPEND_ENTRIES     ? pack_append(s, m)
                       : m->type == RAFT_INSTALL_SNAPSHOT ? pack_install(s, m)
                                                          : new_packet(s, m, 0, 0);
    req->cb = cb;
    remember_sent(s, req);
    sim_net_send(&p->head);
    return 0;
}

void sim_io_flush(struct sim_io *s)
{
    for (size_t i = 0; i < s->n_sent; i++) { /* more may come while it goes on */
        s->sent[i]->cb(s->sent[i], 0);
    }
    s->n_sent = 0;
}

static void unpack_append(const struct packet *p, struct raft_append_entries *a)
{
    a->entries = NULL;
    if (a->n_entries == 0) {
        return;
    }
    a->entries = raft_malloc(a->n_entries * sizeof *a->entries);
    unsigned char *batch = raft_malloc(p->len + 1);
    memcpy(batch, p->pieces + a->n_entries, p->len);
    size_t at = 0;
    for (unsigned i = 0; i < a->n_entries; i++) {
        a->entries[i] = (struct raft_entry){.term = p->pieces[i].term,
                                            .type = p->pieces[i].type,
                                            .buf = {batch + at, p->pieces[i].len},
                                            .batch = batch};
        at += p->pieces[i].len;
    }
}

static void unpack_install(const struct packet *p, struct raft_install_snapshot *i)
{
    const unsigned char *bytes = (const unsigned char *)p->pieces;
    i->conf = unpack_conf(bytes, p->conf_len);
    i->data = copy(bytes + p->conf_len, p->len - p->conf_len);
}

void sim_io_receive(struct sim_io *s, struct sim_message *head)
{
    struct packet *p = (struct packet *)head;
    struct raft_message m = p->m;
    enter(s);
    m.server_id = head->from + 1;
    m.server_address = sim_io_address(head->from);
    if (m.type == RAFT_APPEND_ENTRIES) {
        unpack_append(p, &m.append_entries);
    } else if (m.type == RAFT_INSTALL_SNAPSHOT) {
        unpack_install(p, &m.install_snapshot);
    }
    sim_heap_give(p);
    s->receive(&s->io, &m);
    worked(s);
}

/* ---- beginning and end ---- */

static int init(struct raft_io *io, raft_id id, const char *address)
{
    (void)address;
    PK_ASSERT(id == sim_of(io)->o.place + 1);
    return 0;
}

static void close_io(struct raft_io *io, raft_io_close_cb cb)
{
    if (cb != NULL) {
        cb(io);
    }
}

struct sim_io *sim_io_new(const struct sim_io_options *o, struct sim_io_counts *counts)
{
    struct sim_io *s = pk_door_resize(NULL, sizeof *s);
    *s = (struct sim_io){.o = *o, .counts = counts};
    s->log.last = &s->log.first;
    s->taken.last = &s->taken.first;
    s->io = (struct raft_io){.version = 1,
                             .capacity = ROOMY,
                             .impl = s,
                             .init = init,
                             .close = close_io,
                             .load = load,
                             .start = start,
                             .bootstrap = bootstrap,
                             .recover = recover,
                             .set_term = set_term,
                             .set_vote = set_vote,
                             .send = send_message,
                             .append = append,
                             .truncate = truncate_log,
                             .snapshot_put = snapshot_put,
                             .snapshot_get = snapshot_get,
                             .time = time_ms,
                             .random = draw};
    return s;
}

struct raft_io *sim_io_raft(struct sim_io *s)
{
    return &s->io;
}

void sim_io_full(struct sim_io *s, bool full)
{
    s->io.capacity = full ? 0 : ROOMY;
}

static void drop_write(struct write *w, unsigned records_kept)
{
    for (unsigned i = records_kept; i < w->n_records; i++) {
        sim_heap_give(w->records[i]);
    }
    sim_heap_give(w->snapshot);
    free_write(w);
}

/* The records of an append reach the disk one by one, so it can be cut too. */
static bool tear(struct sim_io *s, struct write *w)
{
    unsigned kept = (unsigned)rng_below(s->o.rng, w->n_records);
    for (unsigned i = 0; i < kept; i++) {
        sim_disk_append(s->o.disk, w->records[i]);
    }
    drop_write(w, kept);
    return kept > 0;
}

static void crash_lane(struct sim_io *s, struct lane *l)
{
    bool some = false;
    while (l->first != NULL && rng_chance(s->o.rng, 600)) {
        struct write *w = take_first(l);
        apply_write(s->o.disk, w);
        free_write(w);
        some = true;
    }
    if (l->first == NULL) {
        return;
    }
    if (l->first->kind == APPEND) {
        s->counts->writes_lost++;
        some = tear(s, take_first(l)) || some;
    }
    while (l->first != NULL) {
        s->counts->writes_lost++;
        drop_write(take_first(l), 0);
    }
    s->counts->torn += some;
}

void sim_io_crash(struct sim_io *s)
{
    crash_lane(s, &s->log);
    crash_lane(s, &s->taken);
}

void sim_io_free(struct sim_io *s)
{
    pk_door_resize(s->sent, 0);
    pk_door_resize(s, 0);
}
