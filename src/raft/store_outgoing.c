/* SPDX-License-Identifier: MIT */
/*
 * Snapshots on their way to other nodes, one for each: the state goes in chunks, the next
 * one when the receiver has written the one before, and then libraft's InstallSnapshot
 * message. libraft repeats that message every few seconds until the receiver has come so
 * far: while its state is on the way, a repetition only shows that it is still wanted.
 *
 *     ASKED     a chunk or a question is out; the receiver says how far it has come
 *     READING   the next chunk is being read from the slot
 *     SENT      the receiver has the whole state, and the message was sent
 *
 * A slow link gets small chunks, so that what it carries besides does not wait for long.
 */
#include <string.h>

#include "core/door.h"
#include "raft/crc32c.h"
#include "raft/store_inside.h"

enum {
    ASK_TICKS = 33,     /* about 1 s without an answer: ask how far it has come */
    WANTED_TICKS = 600, /* about 18 s: libraft would have repeated its message */
    CHUNK_GROWS = PK_STORE_CHUNK_MAX / PK_STORE_CHUNK_LEAST, /* times at most */
    SLOW_TICKS = 3, /* a chunk that took so long was too large */
};

enum sent_state { ASKED, READING, SENT };

struct pk_snapshot_sent {
    struct pk_snapshot_sent *next;
    struct pk_store *store;
    enum sent_state state;
    struct pk_disk_op op;
    struct pk_snapshot_id id;
    unsigned slot;
    bool forgotten; /* but for the disk, which is reading */
    struct raft_message message;
    char address[128];
    uint64_t offset;   /* of the chunk that is out or being read */
    size_t len;        /* of it; 0: a question is out */
    uint32_t chunk;    /* bytes of the next one */
    uint64_t summed;   /* the bytes up to here were read one after the other, */
    uint32_t sum;      /* with this checksum */
    unsigned ticks;    /* since the last answer */
    unsigned unwanted; /* since libraft's last message */
};

/* ---- which there are ---- */

static struct pk_snapshot_sent *find(const struct pk_store *s, uint64_t peer)
{
    struct pk_snapshot_sent *o = s->sent;
    while (o != NULL && (o->forgotten || o->message.server_id != peer)) {
        o = o->next;
    }
    return o;
}

static void release_slot(struct pk_snapshot_sent *o)
{
    if (o->state != SENT) {
        o->store->readers[o->slot]--;
    }
}

static void free_sent(struct pk_snapshot_sent *o)
{
    raft_configuration_close(&o->message.install_snapshot.conf);
    pk_door_resize(o, 0);
}

static void forget(struct pk_snapshot_sent *o)
{
    struct pk_snapshot_sent **at = &o->store->sent;
    if (o->state == READING) {
        o->forgotten = true; /* until the disk has read */
        return;
    }
    while (*at != o) {
        at = &(*at)->next;
    }
    *at = o->next;
    release_slot(o);
    free_sent(o);
}

/* Without snapshots of its own a node runs out of log; a receiver can begin anew. */
void pk_store_give_up_sent(struct pk_store *s)
{
    struct pk_snapshot_sent *silent = NULL;
    for (struct pk_snapshot_sent *o = s->sent; o != NULL; o = o->next) {
        bool holds = o->state != SENT && !o->forgotten;
        if (holds && (silent == NULL || o->ticks > silent->ticks)) {
            silent = o;
        }
    }
    if (silent != NULL) {
        forget(silent);
    }
}

bool pk_store_is_sending(const struct pk_store *s)
{
    const struct pk_snapshot_sent *o = s->sent;
    while (o != NULL && o->state != READING) {
        o = o->next;
    }
    return o != NULL;
}

void pk_store_free_sent(struct pk_store *s)
{
    while (s->sent != NULL) {
        struct pk_snapshot_sent *o = s->sent;
        s->sent = o->next;
        free_sent(o);
    }
}

/* ---- the message ---- */

static void copy_conf(const struct raft_configuration *from,
                      struct raft_configuration *to)
{
    raft_configuration_init(to);
    for (unsigned i = 0; i < from->n; i++) {
        const struct raft_server *v = &from->servers[i];
        PK_ASSERT(raft_configuration_add(to, v->id, v->address, v->role) == 0);
    }
}

static void send_message(struct pk_snapshot_sent *o)
{
    unsigned char name[PK_SNAPSHOT_NAME];
    struct raft_message m = o->message;
    pk_snapshot_name(&o->id, name);
    m.server_address = o->address;
    m.install_snapshot.data = (struct raft_buffer){.base = name, .len = sizeof name};
    o->store->o.send_install(o->store->o.ctx, &m);
}

/* ---- chunks ---- */

static void send_part(struct pk_snapshot_sent *o, const unsigned char *bytes, size_t len)
{
    struct pk_snapshot_chunk c = {
        .id = o->id, .offset = o->offset, .bytes = bytes, .len = len};
    o->state = ASKED;
    o->len = len;
    o->ticks = len > 0 ? 0 : o->ticks;
    o->store->o.send_chunk(o->store->o.ctx, o->message.server_id, &c);
}

static void halve_chunk(struct pk_snapshot_sent *o)
{
    if (o->len > 0 && o->chunk / 2 >= o->store->o.chunk_bytes) {
        o->chunk /= 2;
    }
}

static void ask(struct pk_snapshot_sent *o)
{
    halve_chunk(o);
    send_part(o, NULL, 0);
}

/* A state that was read from its beginning to its end must be what it was. */
static bool is_sound(struct pk_snapshot_sent *o, const struct pk_disk_op *op)
{
    if (o->offset == 0) {
        o->summed = 0;
        o->sum = 0;
    }
    if (o->offset == o->summed) {
        o->sum = pk_crc32c(o->sum, op->bytes, op->len);
        o->summed += op->len;
    }
    return op->len == o->len && (o->summed < o->id.size || o->sum == o->id.sum);
}

static void on_read(struct pk_disk_op *op, int error)
{
    struct pk_snapshot_sent *o = op->data;
    struct pk_store *s = o->store;
    unsigned char *bytes = op->bytes;
    bool sound = error == 0 && is_sound(o, op);
    o->state = ASKED;
    if (!sound && !s->failed) {
        pk_store_fail_slot(s, op->name, error);
    }
    if (s->failed || s->closing || o->forgotten) {
        forget(o);
    } else {
        send_part(o, bytes, op->len);
    }
    pk_door_resize(bytes, 0);
    if (!s->failed) {
        pk_store_maybe_closed(s);
    }
}

static void read_chunk(struct pk_snapshot_sent *o, uint64_t offset)
{
    struct pk_store *s = o->store;
    uint64_t left = o->id.size - offset;
    o->state = READING;
    o->offset = offset;
    o->len = left < o->chunk ? (size_t)left : o->chunk;
    o->op = (struct pk_disk_op){.kind = PK_DISK_READ,
                                .offset = PK_SNAPSHOT_HEAD + offset,
                                .size = o->len,
                                .done = on_read,
                                .data = o};
    pk_store_slot_name(o->slot, o->op.name);
    s->o.disk->submit(s->o.disk->ctx, &o->op);
}

/* The time that the last chunk took decides about the size of the next. */
static void fit_chunk(struct pk_snapshot_sent *o)
{
    if (o->len > 0 && o->ticks <= 1 && o->chunk < CHUNK_GROWS * o->store->o.chunk_bytes) {
        o->chunk *= 2;
    } else if (o->ticks > SLOW_TICKS) {
        halve_chunk(o);
    }
}

void pk_store_have(struct pk_store *s, uint64_t peer, const struct pk_snapshot_id *id,
                   uint64_t have)
{
    struct pk_snapshot_sent *o = find(s, peer);
    if (s->failed || s->closing || o == NULL || !pk_snapshot_same(&o->id, id) ||
        have > o->id.size) {
        return;
    }
    if (o->state == SENT && have < o->id.size) {
        forget(o); /* it was restarted, perhaps; libraft sends again */
        return;
    }
    /* An answer to something older, while the chunk is on its way. */
    if (o->state != ASKED || (o->len > 0 && have == o->offset)) {
        return;
    }
    fit_chunk(o);
    if (have < o->id.size) {
        read_chunk(o, have);
        return;
    }
    release_slot(o);
    o->state = SENT;
    send_message(o);
}

void pk_store_tick_sent(struct pk_store *s)
{
    struct pk_snapshot_sent *next;
    for (struct pk_snapshot_sent *o = s->sent; o != NULL; o = next) {
        next = o->next;
        o->ticks++;
        o->unwanted++;
        if (o->forgotten) {
            continue;
        }
        if (o->unwanted > WANTED_TICKS) {
            forget(o);
        } else if (o->state == ASKED && o->ticks % ASK_TICKS == 0) {
            ask(o);
        }
    }
}

/* ---- from libraft ---- */

/* The slot that has it; PK_STORE_SLOTS: none has it any more. */
static unsigned slot_of(const struct pk_store *s, const struct pk_snapshot_id *id)
{
    unsigned i = 0;
    while (i < PK_STORE_SLOTS &&
           (s->slots[i] == 0 || !pk_snapshot_same(&s->ids[i], id))) {
        i++;
    }
    return i;
}

static void begin(struct pk_store *s, const struct raft_message *m,
                  const struct pk_snapshot_id *id)
{
    unsigned slot = slot_of(s, id);
    if (slot == PK_STORE_SLOTS) {
        return; /* libraft sends another one later */
    }
    struct pk_snapshot_sent *o = pk_door_resize(NULL, sizeof *o);
    *o = (struct pk_snapshot_sent){.next = s->sent,
                                   .store = s,
                                   .id = *id,
                                   .slot = slot,
                                   .message = *m,
                                   .chunk = s->o.chunk_bytes};
    o->message.install_snapshot.last_index = id->index;
    o->message.install_snapshot.last_term = id->term;
    size_t len = strlen(m->server_address);
    PK_ASSERT(len < sizeof o->address);
    memcpy(o->address, m->server_address, len + 1);
    copy_conf(&m->install_snapshot.conf, &o->message.install_snapshot.conf);
    s->sent = o;
    s->readers[slot]++;
    ask(o);
}

void pk_store_send(struct pk_store *s, const struct raft_message *m)
{
    const struct raft_install_snapshot *i = &m->install_snapshot;
    const struct pk_snapshot_handle *h = pk_snapshot_handle_of(&i->data);
    struct pk_snapshot_sent *o = find(s, m->server_id);
    PK_ASSERT(h != NULL);
    if (s->failed || s->closing) {
        return;
    }
    if (o != NULL && o->state == SENT && !pk_snapshot_same(&o->id, &h->id)) {
        forget(o);
        o = NULL;
    }
    if (o == NULL) {
        begin(s, m, &h->id);
        return;
    }
    o->unwanted = 0;
    o->message.install_snapshot.term = i->term;
    if (o->state == SENT) {
        send_message(o);
    }
}
