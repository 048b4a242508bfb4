/* SPDX-License-Identifier: MIT */
/*
 * The part of etcd's messages (Protocol Buffers) that locks need: requests are written,
 * answers are read. Pure. An answer that is not well-formed is refused as a whole, before
 * anything of it is used; what is unknown in it is skipped. Bytes that are read borrow
 * from the message.
 */
#ifndef PICKET_DRIVERS_ETCD_PROTO_H
#define PICKET_DRIVERS_ETCD_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

/* ---- the encoding ---- */

/* A message that is being written; zeroed it is empty. */
struct pk_pb_out {
    unsigned char *data;
    size_t len, capacity;
};

void pk_pb_free(struct pk_pb_out *o);
void pk_pb_uint(struct pk_pb_out *o, uint32_t field, uint64_t value);
void pk_pb_bytes(struct pk_pb_out *o, uint32_t field, struct pk_bytes value);
/* A message within the message: all that is written until its end, to be called with
 * what begin gave. */
size_t pk_pb_begin(struct pk_pb_out *o, uint32_t field);
void pk_pb_end(struct pk_pb_out *o, size_t begun);

/* One field: a number, or bytes. */
struct pk_pb_field {
    uint32_t number;
    uint64_t value;
    struct pk_bytes bytes;
};

/* What is still to be read of a message. */
struct pk_pb_in {
    struct pk_bytes rest;
    bool bad; /* it was not well-formed */
};

struct pk_pb_in pk_pb_read(struct pk_bytes message);
/* False: there is no more, or it is bad. */
bool pk_pb_next(struct pk_pb_in *in, struct pk_pb_field *out);

/* ---- requests ---- */

enum pk_etcd_order { PK_ETCD_BY_KEY, PK_ETCD_OLDEST, PK_ETCD_NEWEST };

struct pk_etcd_find {
    struct pk_bytes key, end; /* no end: that key alone */
    uint64_t limit;
    uint64_t revision; /* 0: now */
    uint64_t min_create, max_create;
    enum pk_etcd_order order;
    bool keys_only;
};

struct pk_etcd_write {
    struct pk_bytes key, value;
    uint64_t lease;
    bool keep_lease; /* that the key has */
};

void pk_etcd_put_find(struct pk_pb_out *o, const struct pk_etcd_find *f);

/* Parts of a transaction. `created` 0: that nothing is there. */
void pk_etcd_if_created(struct pk_pb_out *o, struct pk_bytes key, struct pk_bytes end,
                        uint64_t created);
void pk_etcd_if_lease(struct pk_pb_out *o, struct pk_bytes key, uint64_t lease);
/* What is done when all conditions hold, or else. */
enum pk_etcd_branch { PK_ETCD_THEN = 2, PK_ETCD_ELSE = 3 };
void pk_etcd_op_find(struct pk_pb_out *o, enum pk_etcd_branch b,
                     const struct pk_etcd_find *f);
void pk_etcd_op_write(struct pk_pb_out *o, enum pk_etcd_branch b,
                      const struct pk_etcd_write *w);
void pk_etcd_op_delete(struct pk_pb_out *o, enum pk_etcd_branch b, struct pk_bytes key);

struct pk_etcd_watching {
    struct pk_bytes key, end;
    uint64_t from; /* the first revision wanted */
    uint64_t id;   /* ours, not 0 */
    bool deletions_only, previous;
};

void pk_etcd_put_watch(struct pk_pb_out *o, const struct pk_etcd_watching *w);
void pk_etcd_put_unwatch(struct pk_pb_out *o, uint64_t id);
/* "Are you there?" on a stream of watches. */
void pk_etcd_put_progress(struct pk_pb_out *o);

/* ---- answers ---- */

struct pk_etcd_header {
    uint64_t cluster, member, revision, term;
};

struct pk_etcd_kv {
    struct pk_bytes key, value;
    uint64_t created, modified, lease;
};

/* Things of one kind in an answer; pk_etcd_next_* takes them one after the other. */
struct pk_etcd_many {
    struct pk_pb_in in;
    uint32_t field;
};

struct pk_etcd_found {
    struct pk_etcd_header header;
    struct pk_etcd_many kvs;
    bool more;
};

enum { PK_ETCD_OPS_MAX = 4 };

struct pk_etcd_txn {
    struct pk_etcd_header header;
    bool done; /* the conditions held */
    struct pk_etcd_found found[PK_ETCD_OPS_MAX];
    uint32_t n_found;
    uint64_t deleted;
};

struct pk_etcd_lease { /* granted, renewed or looked at */
    struct pk_etcd_header header;
    uint64_t id;
    int64_t ttl_s, granted_s;
};

struct pk_etcd_event {
    bool deleted;
    struct pk_etcd_kv kv;
    struct pk_etcd_kv previous; /* zeroed: not told */
};

struct pk_etcd_seen {
    struct pk_etcd_header header;
    uint64_t id;
    bool created, cancelled;
    uint64_t compacted; /* it was cancelled because all before this is gone */
    struct pk_bytes reason;
    struct pk_etcd_many events;
};

struct pk_etcd_state {
    struct pk_etcd_header header;
    struct pk_bytes version;
    uint64_t db_bytes, leader;
    bool learner;
};

struct pk_etcd_member {
    uint64_t id;
    struct pk_bytes name;
    bool learner;
};

struct pk_etcd_alarm {
    uint64_t member;
    uint64_t kind; /* 1: out of space, 2: corrupt */
};

/* All: false if it is not well-formed. */
bool pk_etcd_read_found(struct pk_bytes m, struct pk_etcd_found *out);
bool pk_etcd_read_txn(struct pk_bytes m, struct pk_etcd_txn *out);
bool pk_etcd_read_lease(struct pk_bytes m, struct pk_etcd_lease *out);
bool pk_etcd_read_seen(struct pk_bytes m, struct pk_etcd_seen *out);
bool pk_etcd_read_state(struct pk_bytes m, struct pk_etcd_state *out);
bool pk_etcd_read_members(struct pk_bytes m, struct pk_etcd_many *out);
bool pk_etcd_read_alarms(struct pk_bytes m, struct pk_etcd_many *out);
bool pk_etcd_read_token(struct pk_bytes m, struct pk_bytes *out);

/* False: there are no more. */
bool pk_etcd_next_kv(struct pk_etcd_many *many, struct pk_etcd_kv *out);
bool pk_etcd_next_event(struct pk_etcd_many *many, struct pk_etcd_event *out);
bool pk_etcd_next_member(struct pk_etcd_many *many, struct pk_etcd_member *out);
bool pk_etcd_next_alarm(struct pk_etcd_many *many, struct pk_etcd_alarm *out);

#endif
