/* SPDX-License-Identifier: MIT */
#include "sim_io.h"

#include <inttypes.h>
#include <raft.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "raft/store.h"
#include "sim_check.h"

enum {
    SEGMENT = 64 * 1024,
    LOG_BYTES = 24 * SEGMENT,
    SLICE = 1024, /* so that a snapshot has many */
};

/* A request to the store, in the place of the library's own. */
struct append {
    struct raft_io_append own;
    struct sim_io *io;
    struct raft_io_append *req;
    raft_io_append_cb cb;
    uint64_t last; /* index that is acknowledged with it */
    struct append *next;
};

struct put {
    struct raft_io_snapshot_put own;
    struct sim_io *io;
    struct raft_io_snapshot_put *req;
    raft_io_snapshot_put_cb cb;
    uint64_t index;
    bool received; /* from another node: the log goes on behind it */
};

struct sim_io {
    struct raft_io io;
    struct sim_io_options o;
    struct sim_io_counts *counts;
    struct pk_store *store;
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    unsigned tick_ms;
    struct raft_io_send **sent; /* to be told that they are */
    size_t n_sent, sent_capacity;
    struct append *appends, **end; /* handed to the store, in the order of the log */
    bool broken; /* this life is over, and the call that ended it has not returned yet */
    bool withholds_snapshots;
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

static bool is_long(const struct pk_disk_op *op)
{
    return op->kind == PK_DISK_STORE || op->kind == PK_DISK_READ;
}

/* An operation on its way. */
struct on_its_way {
    struct sim_io *io;
    struct pk_disk_op *op;
};

static void op_finished(void *self, uint64_t what, void *load)
{
    (void)self;
    (void)what;
    struct on_its_way way = *(struct on_its_way *)load;
    struct sim_io *s = way.io;
    sim_heap_give(load);
    enter(s);
    sim_disk_finish(s->o.disk, way.op);
    if (!s->broken) {
        s->io.capacity = pk_store_capacity(s->store);
        worked(s);
    }
}

/* Operations take their time, each by itself, and so end in any order. */
static void op_begun(void *ctx, struct pk_disk_op *op)
{
    struct sim_io *s = ctx;
    const struct sim_speed *v = s->o.speed;
    uint64_t most = is_long(op) ? v->snapshot_us : v->most_us;
    uint64_t takes_us = rng_between(s->o.rng, v->least_us, most);
    struct on_its_way *way = sim_queue_load(s->o.process->queue, sizeof *way);
    *way = (struct on_its_way){s, op};
    sim_process_at(s->o.process, now_us(s) + takes_us, op_finished, 0, way);
}

/* A process ends within a write that fails. Here the call returns, to a library that does
 * not get over errors: it is told that all is well, and nothing it does is seen. */
static int unless_broken(const struct sim_io *s, int rv)
{
    return s->broken ? 0 : rv;
}

static void store_failed(void *ctx, const char *why)
{
    struct sim_io *s = ctx;
    s->broken = true;
    s->o.failed(s->o.process->self, why);
}

static void on_appended(struct raft_io_append *own, int status)
{
    struct append *a = own->data;
    struct sim_io *s = a->io;
    if (a != s->appends) {
        sim_violation("D1",
                      "node %" PRIu32 " acknowledges entry %" PRIu64
                      " before one that precedes it",
                      s->o.place + 1, a->last);
    }
    s->appends = a->next;
    s->end = s->appends == NULL ? &s->appends : s->end;
    if (status == 0 && a->last > s->o.promised->index) {
        s->o.promised->index = a->last;
    }
    struct raft_io_append *req = a->req;
    raft_io_append_cb cb = a->cb;
    sim_heap_give(a);
    cb(req, status);
}

static int append(struct raft_io *io, struct raft_io_append *req,
                  const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    struct sim_io *s = sim_of(io);
    struct append *a = sim_heap_take(s->o.heap, sizeof *a);
    *a = (struct append){
        .io = s, .req = req, .cb = cb, .last = pk_store_last_index(s->store) + n};
    a->own.data = a;
    req->cb = cb;
    *s->end = a;
    s->end = &a->next;
    s->counts->appends++;
    int rv = pk_store_append(s->store, &a->own, entries, n, on_appended);
    io->capacity = pk_store_capacity(s->store);
    return unless_broken(s, rv);
}

static int truncate_log(struct raft_io *io, raft_index index)
{
    struct sim_io *s = sim_of(io);
    struct sim_promised *p = s->o.promised;
    s->counts->truncations += index <= pk_store_last_index(s->store);
    p->index = p->index < index ? p->index : index - 1;
    for (struct append *a = s->appends; a != NULL; a = a->next) {
        a->last = a->last < index ? a->last : index - 1;
    }
    return pk_store_truncate(s->store, index);
}

static int set_term(struct raft_io *io, raft_term term)
{
    struct sim_io *s = sim_of(io);
    int rv = pk_store_set_term(s->store, term);
    if (rv == 0) {
        s->o.promised->term = term;
        s->o.promised->vote = 0;
    }
    return unless_broken(s, rv);
}

static int set_vote(struct raft_io *io, raft_id vote)
{
    struct sim_io *s = sim_of(io);
    int rv = pk_store_set_vote(s->store, vote);
    if (rv == 0) {
        s->o.promised->vote = vote;
    }
    return unless_broken(s, rv);
}

static int bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    return pk_store_bootstrap(sim_of(io)->store, conf);
}

static int recover(struct raft_io *io, const struct raft_configuration *conf)
{
    (void)io;
    (void)conf;
    return RAFT_INVALID; /* nobody here loses a quorum for good */
}

static void on_put(struct raft_io_snapshot_put *own, int status)
{
    struct put p = *(struct put *)own->data;
    struct sim_promised *promised = p.io->o.promised;
    if (status == 0 && p.received) {
        promised->index = p.index;
    }
    sim_heap_give(own->data);
    p.cb(p.req, status);
}

static int snapshot_put(struct raft_io *io, unsigned trailing,
                        struct raft_io_snapshot_put *req,
                        const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    struct sim_io *s = sim_of(io);
    struct put *p = sim_heap_take(s->o.heap, sizeof *p);
    *p = (struct put){.io = s,
                      .req = req,
                      .cb = cb,
                      .index = snapshot->index,
                      .received = trailing == 0};
    p->own.data = p;
    req->cb = cb;
    s->counts->snapshots_taken += trailing > 0;
    s->counts->snapshots_installed += trailing == 0;
    return pk_store_snapshot_put(s->store, trailing, &p->own, snapshot, on_put);
}

static int snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                        raft_io_snapshot_get_cb cb)
{
    return pk_store_snapshot_get(sim_of(io)->store, req, cb);
}

/* D1: a start finds everything that was acknowledged, or refuses. */
static void check_loaded(const struct sim_io *s, const struct pk_store_loaded *l)
{
    const struct sim_promised *p = s->o.promised;
    uint64_t snapshot = l->snapshot == NULL ? 0 : l->snapshot->index;
    uint64_t last = l->start + l->n - 1;
    last = last > snapshot ? last : snapshot;
    if (last < p->index) {
        sim_violation("D1",
                      "node %" PRIu32 " starts with %" PRIu64 " entries, %" PRIu64
                      " were acknowledged",
                      s->o.place + 1, last, p->index);
    }
    if (l->term < p->term || (l->term == p->term && p->vote != 0 && l->vote != p->vote)) {
        sim_violation("D1",
                      "node %" PRIu32 " starts in term %" PRIu64 " with vote %" PRIu64
                      ", not in term %" PRIu64 " with vote %" PRIu64,
                      s->o.place + 1, (uint64_t)l->term, (uint64_t)l->vote, p->term,
                      p->vote);
    }
}

static int load(struct raft_io *io, raft_term *term, raft_id *voted_for,
                struct raft_snapshot **snapshot, raft_index *start_index,
                struct raft_entry *entries[], size_t *n_entries)
{
    struct sim_io *s = sim_of(io);
    struct pk_store_loaded l;
    int rv = pk_store_load(s->store, &l);
    if (rv != 0) {
        (void)snprintf(io->errmsg, sizeof io->errmsg, "%s", pk_store_why(s->store));
        return rv;
    }
    check_loaded(s, &l);
    *term = l.term;
    *voted_for = l.vote;
    *snapshot = l.snapshot;
    *start_index = l.start;
    *entries = l.entries;
    *n_entries = l.n;
    io->capacity = pk_store_capacity(s->store);
    return 0;
}

struct pk_log_use sim_io_use(void *io)
{
    return pk_store_use(((struct sim_io *)io)->store);
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
    pk_store_tick(s->store);
    s->io.capacity = pk_store_capacity(s->store);
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
        "n1@sim:1",   "n2@sim:2",   "n3@sim:3",   "n4@sim:4",
        "n5@sim:5",   "n6@sim:6",   "n7@sim:7",   "n8@sim:8",
        "n9@sim:9",   "n10@sim:10", "n11@sim:11", "n12@sim:12",
        "n13@sim:13", "n14@sim:14", "n15@sim:15", "n16@sim:16"};
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
    size_t conf_len;          /* InstallSnapshot */
    struct pk_snapshot_id id; /* of a chunk, or the answer to one */
    uint64_t at;              /* its offset, or how far the receiver has come */
    size_t len; /* of the bytes: configuration and data, or those of the entries */
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

/* Digests and snapshots go as messages of types that the library has not. */
enum { MARK = RAFT_TIMEOUT_NOW + 1, CHUNK, HAVE, NOTE };

static struct packet *new_own(struct sim_io *s, int type, uint64_t peer, size_t len)
{
    struct raft_message m = {.type = (enum raft_message_type)type, .server_id = peer};
    return new_packet(s, &m, 0, len);
}

static void send_own(struct sim_io *s, struct packet *p)
{
    if (s->broken) {
        sim_heap_give(p);
    } else {
        sim_net_send(&p->head);
    }
}

static void send_chunk(void *ctx, uint64_t peer, const struct pk_snapshot_chunk *c)
{
    struct sim_io *s = ctx;
    struct packet *p = new_own(s, CHUNK, peer, c->len);
    p->id = c->id;
    p->at = c->offset;
    if (c->len > 0) {
        memcpy(p->pieces, c->bytes, c->len);
    }
    s->counts->chunks_sent += c->len > 0;
    send_own(s, p);
}

static void send_have(void *ctx, uint64_t peer, const struct pk_snapshot_id *id,
                      uint64_t have)
{
    struct sim_io *s = ctx;
    struct packet *p = new_own(s, HAVE, peer, 0);
    p->id = *id;
    p->at = have;
    send_own(s, p);
}

static void send_install(void *ctx, const struct raft_message *m)
{
    struct sim_io *s = ctx;
    send_own(s, pack_install(s, m));
}

void sim_io_tell_mark(struct sim_io *s, uint64_t index, uint64_t digest)
{
    for (uint32_t to = 0; to < SIM_NODES_MAX && !s->broken; to++) {
        if (to != s->o.place && s->o.net->places[to].who != NULL) {
            struct raft_message m = {.type = (enum raft_message_type)MARK,
                                     .server_id = to + 1};
            m.append_entries.term = index;
            m.append_entries.prev_log_index = digest;
            sim_net_send(&new_packet(s, &m, 0, 0)->head);
        }
    }
}

bool sim_io_is_mark(const struct sim_message *m, uint64_t *index, uint64_t *digest)
{
    const struct packet *p = (const struct packet *)m;
    *index = p->m.append_entries.term;
    *digest = p->m.append_entries.prev_log_index;
    return (int)p->m.type == MARK;
}

void sim_io_note(struct sim_io *s, uint32_t to, const void *bytes, size_t len)
{
    if (to != s->o.place && s->o.net->places[to].who != NULL) {
        struct packet *p = new_own(s, NOTE, to + 1, len);
        memcpy(p->pieces, bytes, len);
        send_own(s, p);
    }
}

const void *sim_io_note_in(const struct sim_message *m)
{
    const struct packet *p = (const struct packet *)m;
    return (int)p->m.type == NOTE ? p->pieces : NULL;
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
    req->cb = cb;
    remember_sent(s, req);
    if (s->withholds_snapshots && m->type == RAFT_INSTALL_SNAPSHOT && !s->broken) {
        s->counts->snapshots_withheld++;
        store_failed(s, "a snapshot of a sick node");
    }
    if (m->type == RAFT_INSTALL_SNAPSHOT && !s->broken) {
        pk_store_send(s->store, m);
    } else if (!s->broken) {
        send_own(s, m->type == RAFT_APPEND_ENTRIES ? pack_append(s, m)
                                                   : new_packet(s, m, 0, 0));
    }
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

static void unpack_install(const struct packet *p, struct raft_install_snapshot *i)
{
    const unsigned char *bytes = (const unsigned char *)p->pieces;
    i->conf = unpack_conf(bytes, p->conf_len);
    i->data = copy(bytes + p->conf_len, p->len - p->conf_len);
}

static void receive_own(struct sim_io *s, struct packet *p)
{
    uint64_t from = p->head.from + 1;
    struct pk_snapshot_chunk c = {.id = p->id,
                                  .offset = p->at,
                                  .bytes = (const unsigned char *)p->pieces,
                                  .len = p->len};
    if ((int)p->m.type == CHUNK) {
        pk_store_chunk(s->store, from, &c);
    } else {
        pk_store_have(s->store, from, &p->id, p->at);
    }
    sim_heap_give(p);
}

void sim_io_receive(struct sim_io *s, struct sim_message *head)
{
    struct packet *p = (struct packet *)head;
    struct raft_message m = p->m;
    enter(s);
    if ((int)m.type == CHUNK || (int)m.type == HAVE) {
        receive_own(s, p);
        return;
    }
    m.server_id = head->from + 1;
    m.server_address = sim_io_address(head->from);
    if (m.type == RAFT_APPEND_ENTRIES) {
        unpack_append(p, &m.append_entries);
    } else if (m.type == RAFT_INSTALL_SNAPSHOT) {
        unpack_install(p, &m.install_snapshot);
    }
    sim_heap_give(p);
    if (m.type == RAFT_INSTALL_SNAPSHOT && !pk_store_install(s->store, &m)) {
        raft_configuration_close(&m.install_snapshot.conf);
        raft_free(m.install_snapshot.data.base);
        return;
    }
    s->receive(&s->io, &m);
    worked(s);
}

/* ---- beginning and end ---- */

static int init(struct raft_io *io, raft_id id, const char *address)
{
    struct sim_io *s = sim_of(io);
    (void)address;
    PK_ASSERT(id == s->o.place + 1);
    const char *wrong = s->o.fresh ? pk_store_create(s->store) : pk_store_open(s->store);
    if (wrong != NULL) {
        (void)snprintf(io->errmsg, sizeof io->errmsg, "%s", wrong);
    }
    return wrong == NULL ? 0 : RAFT_CORRUPT;
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
    s->end = &s->appends;
    struct pk_store_options store = {.disk = &o->disk->disk,
                                     .owner = {.cluster = 1, .incarnation = o->place + 1},
                                     .segment_bytes = SEGMENT,
                                     .log_bytes = LOG_BYTES,
                                     .slice_bytes = SLICE,
                                     .chunk_bytes = SLICE / 16,
                                     .loader = &pk_state_loader,
                                     .send_chunk = send_chunk,
                                     .send_have = send_have,
                                     .send_install = send_install,
                                     .failed = store_failed,
                                     .ctx = s};
    s->store = pk_store_new(&store);
    o->disk->begun = op_begun;
    o->disk->ctx = s;
    s->io = (struct raft_io){.version = 1,
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

uint16_t sim_io_reserve(void)
{
    return SEGMENT / 1024;
}

struct raft_io *sim_io_raft(struct sim_io *s)
{
    return &s->io;
}

void sim_io_withhold_snapshots(struct sim_io *s, bool withhold)
{
    s->withholds_snapshots = withhold;
}

void sim_io_stop(struct sim_io *s)
{
    s->broken = true;
}

void sim_io_crash(struct sim_io *s, bool power)
{
    uint64_t torn = s->o.disk->torn, lost = s->o.disk->lost;
    sim_disk_crash(s->o.disk, s->o.rng, power);
    s->counts->torn += s->o.disk->torn - torn;
    s->counts->writes_lost += s->o.disk->lost - lost;
}

void sim_io_free(struct sim_io *s)
{
    pk_store_free(s->store);
    pk_door_resize(s->sent, 0);
    pk_door_resize(s, 0);
}
