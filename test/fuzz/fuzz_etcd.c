/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as an answer of etcd; the first byte says to what. Whatever is accepted can
 * be walked through to its end, borrows from the input alone, and has fields that read
 * the same once they are written again.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/door.h"
#include "drivers/etcd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pk_bytes whole;

static void demand_inside(struct pk_bytes b)
{
    PK_ASSERT(b.len == 0 ||
              (b.data >= whole.data && b.data + b.len <= whole.data + whole.len));
}

static void demand_kv(const struct pk_etcd_kv *kv)
{
    demand_inside(kv->key);
    demand_inside(kv->value);
}

static void walk_kvs(struct pk_etcd_many many)
{
    struct pk_etcd_kv kv;
    while (pk_etcd_next_kv(&many, &kv)) {
        demand_kv(&kv);
    }
    PK_ASSERT(!many.in.bad && many.in.rest.len == 0);
}

static void walk_events(struct pk_etcd_many many)
{
    struct pk_etcd_event event;
    while (pk_etcd_next_event(&many, &event)) {
        demand_kv(&event.kv);
        demand_kv(&event.previous);
    }
    PK_ASSERT(!many.in.bad && many.in.rest.len == 0);
}

static void read_txn(struct pk_bytes m)
{
    struct pk_etcd_txn txn;
    if (pk_etcd_read_txn(m, &txn)) {
        PK_ASSERT(txn.n_found <= PK_ETCD_OPS_MAX);
        for (uint32_t i = 0; i < txn.n_found; i++) {
            walk_kvs(txn.found[i].kvs);
        }
    }
}

static void read_lists(struct pk_bytes m)
{
    struct pk_etcd_many many;
    struct pk_etcd_member member;
    struct pk_etcd_alarm alarm;
    if (pk_etcd_read_members(m, &many)) {
        while (pk_etcd_next_member(&many, &member)) {
            demand_inside(member.name);
        }
        PK_ASSERT(!many.in.bad && many.in.rest.len == 0);
    }
    if (pk_etcd_read_alarms(m, &many)) {
        while (pk_etcd_next_alarm(&many, &alarm)) {
        }
        PK_ASSERT(!many.in.bad && many.in.rest.len == 0);
    }
}

static void read_small(struct pk_bytes m)
{
    struct pk_etcd_lease lease;
    struct pk_etcd_state state;
    struct pk_bytes token;
    char by[PK_PRINCIPAL_MAX + 1], why[PK_REASON_MAX + 1];
    (void)pk_etcd_read_lease(m, &lease);
    if (pk_etcd_read_state(m, &state)) {
        demand_inside(state.version);
    }
    if (pk_etcd_read_token(m, &token)) {
        demand_inside(token);
    }
    (void)pk_etcd_note_read(m, by, why);
    PK_ASSERT(strlen(by) <= PK_PRINCIPAL_MAX && strlen(why) <= PK_REASON_MAX);
}

/* Writes the fields as we write them, and reads that. */
static void write_again(struct pk_bytes m)
{
    struct pk_pb_in in = pk_pb_read(m);
    struct pk_pb_field f, g;
    struct pk_pb_out out = {0};
    while (pk_pb_next(&in, &f)) {
        if (f.bytes.data != NULL) {
            pk_pb_bytes(&out, f.number, f.bytes);
        } else {
            pk_pb_uint(&out, f.number, f.value);
        }
    }
    struct pk_pb_in first = pk_pb_read(m);
    struct pk_pb_in second = pk_pb_read(pk_bytes(out.data, out.len));
    while (pk_pb_next(&first, &f)) {
        PK_ASSERT(pk_pb_next(&second, &g) && f.number == g.number && f.value == g.value &&
                  pk_bytes_equal(f.bytes, g.bytes));
    }
    PK_ASSERT(!pk_pb_next(&second, &g) && !second.bad);
    pk_pb_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pk_etcd_found found;
    struct pk_etcd_seen seen;
    if (size == 0) {
        return 0;
    }
    whole = pk_bytes(data + 1, size - 1);
    switch (data[0] % 6) {
    case 0:
        if (pk_etcd_read_found(whole, &found)) {
            walk_kvs(found.kvs);
        }
        break;
    case 1:
        read_txn(whole);
        break;
    case 2:
        if (pk_etcd_read_seen(whole, &seen)) {
            demand_inside(seen.reason);
            walk_events(seen.events);
        }
        break;
    case 3:
        read_lists(whole);
        break;
    case 4:
        read_small(whole);
        break;
    default:
        write_again(whole);
    }
    return 0;
}
