/* SPDX-License-Identifier: MIT */
#include "drivers/etcd_proto.h"

#include <string.h>

#include "core/door.h"

/* ---- the encoding ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5, VARINT_MAX = 10 };

static unsigned char *room_for(struct pk_pb_out *o, size_t more)
{
    if (o->len + more > o->capacity) {
        o->capacity = 2 * (o->len + more) + 64;
        o->data = pk_door_resize(o->data, o->capacity);
    }
    return o->data + o->len;
}

void pk_pb_free(struct pk_pb_out *o)
{
    (void)pk_door_resize(o->data, 0);
    *o = (struct pk_pb_out){0};
}

static size_t write_varint(unsigned char out[VARINT_MAX], uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) {
        out[n++] = (unsigned char)(v | 0x80);
    }
    out[n++] = (unsigned char)v;
    return n;
}

static void put_varint(struct pk_pb_out *o, uint64_t v)
{
    o->len += write_varint(room_for(o, VARINT_MAX), v);
}

void pk_pb_uint(struct pk_pb_out *o, uint32_t field, uint64_t value)
{
    put_varint(o, (uint64_t)field << 3 | VARINT);
    put_varint(o, value);
}

void pk_pb_bytes(struct pk_pb_out *o, uint32_t field, struct pk_bytes value)
{
    put_varint(o, (uint64_t)field << 3 | BYTES);
    put_varint(o, value.len);
    unsigned char *at = room_for(o, value.len);
    if (value.len > 0) {
        memcpy(at, value.data, value.len);
    }
    o->len += value.len;
}

size_t pk_pb_begin(struct pk_pb_out *o, uint32_t field)
{
    put_varint(o, (uint64_t)field << 3 | BYTES);
    return o->len;
}

void pk_pb_end(struct pk_pb_out *o, size_t begun)
{
    unsigned char length[VARINT_MAX];
    size_t len = o->len - begun;
    size_t n = write_varint(length, len);
    (void)room_for(o, n);
    memmove(o->data + begun + n, o->data + begun, len);
    memcpy(o->data + begun, length, n);
    o->len += n;
}

struct pk_pb_in pk_pb_read(struct pk_bytes message)
{
    return (struct pk_pb_in){.rest = message};
}

static struct pk_bytes take(struct pk_pb_in *in, uint64_t len)
{
    if (len > in->rest.len) {
        in->bad = true;
        return pk_bytes(NULL, 0);
    }
    struct pk_bytes taken = pk_bytes(in->rest.data, len);
    in->rest = len == 0 ? in->rest : pk_bytes(in->rest.data + len, in->rest.len - len);
    return taken;
}

static uint64_t take_varint(struct pk_pb_in *in)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < VARINT_MAX && i < in->rest.len; i++) {
        unsigned char byte = (unsigned char)in->rest.data[i];
        if (i == VARINT_MAX - 1 && byte > 1) {
            break; /* more than 64 bits */
        }
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            (void)take(in, i + 1);
            return v;
        }
    }
    in->bad = true;
    return 0;
}

bool pk_pb_next(struct pk_pb_in *in, struct pk_pb_field *out)
{
    *out = (struct pk_pb_field){0};
    if (in->bad || in->rest.len == 0) {
        return false;
    }
    uint64_t tag = take_varint(in);
    in->bad = in->bad || tag >> 3 == 0 || tag >> 3 > UINT32_MAX >> 3;
    out->number = in->bad ? 0 : (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case VARINT:
        out->value = take_varint(in);
        break;
    case FIXED64:
        (void)take(in, 8);
        break;
    case BYTES:
        out->bytes = take(in, take_varint(in));
        break;
    case FIXED32:
        (void)take(in, 4);
        break;
    default:
        in->bad = true;
    }
    return !in->bad;
}

/* ---- requests ---- */

static void put_number(struct pk_pb_out *o, uint32_t field, uint64_t value)
{
    if (value != 0) {
        pk_pb_uint(o, field, value);
    }
}

static void put_text(struct pk_pb_out *o, uint32_t field, struct pk_bytes value)
{
    if (value.len != 0) {
        pk_pb_bytes(o, field, value);
    }
}

void pk_etcd_put_find(struct pk_pb_out *o, const struct pk_etcd_find *f)
{
    put_text(o, 1, f->key);
    put_text(o, 2, f->end);
    put_number(o, 3, f->limit);
    put_number(o, 4, f->revision);
    if (f->order != PK_ETCD_BY_KEY) {
        pk_pb_uint(o, 5, f->order == PK_ETCD_OLDEST ? 1 : 2);
        pk_pb_uint(o, 6, 2); /* by create revision */
    }
    put_number(o, 8, f->keys_only);
    put_number(o, 12, f->min_create);
    put_number(o, 13, f->max_create);
}

void pk_etcd_if_created(struct pk_pb_out *o, struct pk_bytes key, struct pk_bytes end,
                        uint64_t created)
{
    size_t compare = pk_pb_begin(o, 1);
    pk_pb_uint(o, 2, 1); /* its create revision equals */
    put_text(o, 3, key);
    pk_pb_uint(o, 5, created);
    put_text(o, 64, end);
    pk_pb_end(o, compare);
}

void pk_etcd_if_lease(struct pk_pb_out *o, struct pk_bytes key, uint64_t lease)
{
    size_t compare = pk_pb_begin(o, 1);
    pk_pb_uint(o, 2, 4); /* its lease equals */
    put_text(o, 3, key);
    pk_pb_uint(o, 8, lease);
    pk_pb_end(o, compare);
}

void pk_etcd_op_find(struct pk_pb_out *o, enum pk_etcd_branch b,
                     const struct pk_etcd_find *f)
{
    size_t op = pk_pb_begin(o, b);
    size_t find = pk_pb_begin(o, 1);
    pk_etcd_put_find(o, f);
    pk_pb_end(o, find);
    pk_pb_end(o, op);
}

void pk_etcd_op_write(struct pk_pb_out *o, enum pk_etcd_branch b,
                      const struct pk_etcd_write *w)
{
    size_t op = pk_pb_begin(o, b);
    size_t put = pk_pb_begin(o, 2);
    put_text(o, 1, w->key);
    put_text(o, 2, w->value);
    put_number(o, 3, w->lease);
    put_number(o, 6, w->keep_lease);
    pk_pb_end(o, put);
    pk_pb_end(o, op);
}

void pk_etcd_op_delete(struct pk_pb_out *o, enum pk_etcd_branch b, struct pk_bytes key)
{
    size_t op = pk_pb_begin(o, b);
    size_t del = pk_pb_begin(o, 3);
    put_text(o, 1, key);
    pk_pb_end(o, del);
    pk_pb_end(o, op);
}

void pk_etcd_put_watch(struct pk_pb_out *o, const struct pk_etcd_watching *w)
{
    size_t create = pk_pb_begin(o, 1);
    put_text(o, 1, w->key);
    put_text(o, 2, w->end);
    put_number(o, 3, w->from);
    if (w->deletions_only) {
        pk_pb_uint(o, 5, 0); /* a filter: no puts */
    }
    put_number(o, 6, w->previous);
    put_number(o, 7, w->id);
    pk_pb_end(o, create);
}

void pk_etcd_put_unwatch(struct pk_pb_out *o, uint64_t id)
{
    size_t cancel = pk_pb_begin(o, 2);
    pk_pb_uint(o, 1, id);
    pk_pb_end(o, cancel);
}

void pk_etcd_put_progress(struct pk_pb_out *o)
{
    pk_pb_end(o, pk_pb_begin(o, 3));
}

/* ---- answers ---- */

/* Where a field goes. */
struct slot {
    uint32_t number;
    enum { NUMBER, FLAG, TEXT } kind;
    size_t offset;
};

#define SLOT(number, kind, what, field)                                                  \
    {                                                                                    \
        number, kind, offsetof(struct pk_etcd_##what, field)                             \
    }
#define READ(m, slots, out) read_slots(m, slots, sizeof(slots) / sizeof((slots)[0]), out)

static void fill(const struct slot *slot, const struct pk_pb_field *f, void *out)
{
    unsigned char *to = (unsigned char *)out + slot->offset;
    bool set = f->value != 0;
    if (slot->kind == NUMBER) {
        memcpy(to, &f->value, sizeof f->value);
    } else if (slot->kind == FLAG) {
        memcpy(to, &set, sizeof set);
    } else {
        memcpy(to, &f->bytes, sizeof f->bytes);
    }
}

/* Reads the fields that have a slot; of one that comes twice, the last counts. */
static bool read_slots(struct pk_bytes m, const struct slot *slots, size_t n, void *out)
{
    struct pk_pb_in in = pk_pb_read(m);
    struct pk_pb_field f;
    while (pk_pb_next(&in, &f)) {
        for (size_t i = 0; i < n; i++) {
            if (slots[i].number == f.number) {
                fill(&slots[i], &f, out);
            }
        }
    }
    return !in.bad;
}

/* The message within the message that has this number; empty if there is none. */
static struct pk_bytes part_of(struct pk_bytes m, uint32_t number)
{
    struct pk_pb_in in = pk_pb_read(m);
    struct pk_pb_field f;
    struct pk_bytes part = {0};
    while (pk_pb_next(&in, &f)) {
        part = f.number == number ? f.bytes : part;
    }
    return part;
}

/* The header is the first part of every answer. */
static bool read_header(struct pk_bytes answer, struct pk_etcd_header *out)
{
    struct pk_bytes m = part_of(answer, 1);
    static const struct slot slots[] = {
        SLOT(1, NUMBER, header, cluster), SLOT(2, NUMBER, header, member),
        SLOT(3, NUMBER, header, revision), SLOT(4, NUMBER, header, term)};
    return READ(m, slots, out);
}

static bool read_kv(struct pk_bytes m, void *out)
{
    static const struct slot slots[] = {
        SLOT(1, TEXT, kv, key), SLOT(2, NUMBER, kv, created),
        SLOT(3, NUMBER, kv, modified), SLOT(5, TEXT, kv, value),
        SLOT(6, NUMBER, kv, lease)};
    *(struct pk_etcd_kv *)out = (struct pk_etcd_kv){0};
    return READ(m, slots, out);
}

static bool read_event(struct pk_bytes m, void *out)
{
    static const struct slot slots[] = {SLOT(1, FLAG, event, deleted)};
    struct pk_etcd_event *event = out;
    *event = (struct pk_etcd_event){0};
    return READ(m, slots, out) && read_kv(part_of(m, 2), &event->kv) &&
           read_kv(part_of(m, 3), &event->previous);
}

static bool read_member(struct pk_bytes m, void *out)
{
    static const struct slot slots[] = {SLOT(1, NUMBER, member, id),
                                        SLOT(2, TEXT, member, name),
                                        SLOT(5, FLAG, member, learner)};
    *(struct pk_etcd_member *)out = (struct pk_etcd_member){0};
    return READ(m, slots, out);
}

static bool read_alarm(struct pk_bytes m, void *out)
{
    static const struct slot slots[] = {SLOT(1, NUMBER, alarm, member),
                                        SLOT(2, NUMBER, alarm, kind)};
    *(struct pk_etcd_alarm *)out = (struct pk_etcd_alarm){0};
    return READ(m, slots, out);
}

static bool next_of(struct pk_etcd_many *many, struct pk_bytes *out)
{
    struct pk_pb_field f;
    while (pk_pb_next(&many->in, &f)) {
        if (f.number == many->field) {
            *out = f.bytes;
            return true;
        }
    }
    return false;
}

/* They have been read once, when the answer came: so they are well-formed. */
#define NEXT(what)                                                                       \
    bool pk_etcd_next_##what(struct pk_etcd_many *many, struct pk_etcd_##what *out)      \
    {                                                                                    \
        struct pk_bytes m;                                                               \
        return next_of(many, &m) && read_##what(m, out);                                 \
    }
NEXT(kv)
NEXT(event)
NEXT(member)
NEXT(alarm)

/* All fields with that number, each of which `read` must be able to read into `room`. */
static bool read_many(struct pk_bytes m, uint32_t field,
                      bool (*read)(struct pk_bytes m, void *out), void *room,
                      struct pk_etcd_many *out)
{
    struct pk_bytes one;
    *out = (struct pk_etcd_many){.in = pk_pb_read(m), .field = field};
    struct pk_etcd_many all = *out;
    while (next_of(&all, &one)) {
        if (!read(one, room)) {
            return false;
        }
    }
    return !all.in.bad;
}

bool pk_etcd_read_found(struct pk_bytes m, struct pk_etcd_found *out)
{
    static const struct slot slots[] = {SLOT(3, FLAG, found, more)};
    struct pk_etcd_kv kv;
    *out = (struct pk_etcd_found){0};
    return READ(m, slots, out) && read_header(m, &out->header) &&
           read_many(m, 2, read_kv, &kv, &out->kvs);
}

static bool read_deleted(struct pk_bytes m, uint64_t *deleted)
{
    struct pk_pb_in in = pk_pb_read(m);
    struct pk_pb_field f;
    while (pk_pb_next(&in, &f)) {
        *deleted += f.number == 2 ? f.value : 0;
    }
    return !in.bad;
}

static bool read_op(struct pk_bytes m, void *out)
{
    struct pk_etcd_txn *txn = out;
    struct pk_pb_in in = pk_pb_read(m);
    struct pk_pb_field f;
    while (pk_pb_next(&in, &f)) {
        if (f.number == 1 &&
            (txn->n_found == PK_ETCD_OPS_MAX ||
             !pk_etcd_read_found(f.bytes, &txn->found[txn->n_found++]))) {
            return false;
        }
        if (f.number == 3 && !read_deleted(f.bytes, &txn->deleted)) {
            return false;
        }
    }
    return !in.bad;
}

bool pk_etcd_read_txn(struct pk_bytes m, struct pk_etcd_txn *out)
{
    static const struct slot slots[] = {SLOT(2, FLAG, txn, done)};
    struct pk_etcd_many ops;
    *out = (struct pk_etcd_txn){0};
    return READ(m, slots, out) && read_header(m, &out->header) &&
           read_many(m, 3, read_op, out, &ops);
}

bool pk_etcd_read_lease(struct pk_bytes m, struct pk_etcd_lease *out)
{
    static const struct slot slots[] = {SLOT(2, NUMBER, lease, id),
                                        SLOT(3, NUMBER, lease, ttl_s),
                                        SLOT(4, NUMBER, lease, granted_s)};
    *out = (struct pk_etcd_lease){0};
    return READ(m, slots, out) && read_header(m, &out->header);
}

bool pk_etcd_read_seen(struct pk_bytes m, struct pk_etcd_seen *out)
{
    static const struct slot slots[] = {
        SLOT(2, NUMBER, seen, id), SLOT(3, FLAG, seen, created),
        SLOT(4, FLAG, seen, cancelled), SLOT(5, NUMBER, seen, compacted),
        SLOT(6, TEXT, seen, reason)};
    struct pk_etcd_event event;
    *out = (struct pk_etcd_seen){0};
    return READ(m, slots, out) && read_header(m, &out->header) &&
           read_many(m, 11, read_event, &event, &out->events);
}

bool pk_etcd_read_state(struct pk_bytes m, struct pk_etcd_state *out)
{
    static const struct slot slots[] = {
        SLOT(2, TEXT, state, version), SLOT(3, NUMBER, state, db_bytes),
        SLOT(4, NUMBER, state, leader), SLOT(10, FLAG, state, learner)};
    *out = (struct pk_etcd_state){0};
    return READ(m, slots, out) && read_header(m, &out->header);
}

bool pk_etcd_read_members(struct pk_bytes m, struct pk_etcd_many *out)
{
    struct pk_etcd_member member;
    return read_many(m, 2, read_member, &member, out);
}

bool pk_etcd_read_alarms(struct pk_bytes m, struct pk_etcd_many *out)
{
    struct pk_etcd_alarm alarm;
    return read_many(m, 2, read_alarm, &alarm, out);
}

bool pk_etcd_read_token(struct pk_bytes m, struct pk_bytes *out)
{
    static const struct slot slots[] = {{2, TEXT, 0}};
    *out = pk_bytes(NULL, 0);
    return READ(m, slots, out);
}
