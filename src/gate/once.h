/* SPDX-License-Identifier: MIT */
/*
 * Idempotency keys: a call with a key is made once, and repeats are told its answer.
 *
 * For each key of a resource the store has one register (name/once/RESOURCE/HASH) with a
 * record: *started* before the call goes upstream; then *done* with the answer, or *not
 * kept* when the answer did not fit. Who makes the call holds a lock of the same name,
 * and writes with that lock's token: so a gate that was paused and overtaken can't
 * overwrite what its successor wrote (P6), and the register is claimed before it is read.
 * Registers end by themselves (F10), or they would fill the store.
 *
 * Calls that say so block, and belong on the thread pool; nothing else may use the object
 * meanwhile. docs/gate.md has the table of what happens when.
 */
#ifndef PICKET_GATE_ONCE_H
#define PICKET_GATE_ONCE_H

#include <picket.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "gate/head.h"
#include "proto/resp.h"

enum {
    PK_ONCE_HASH = 32,
    /* Bytes of an answer that may be kept: what a value has room for by default, less the
     * record around it. A store that takes less makes it "not kept". */
    PK_ONCE_ANSWER_MAX = 65000,
};

/* ---- records (pure) ---- */

enum pk_record_kind {
    PK_RECORD_NONE, /* never seen, or cleared */
    PK_RECORD_STARTED,
    PK_RECORD_DONE,
    PK_RECORD_NOT_KEPT,
    PK_RECORD_KINDS
};

struct pk_record {
    enum pk_record_kind kind;
    unsigned char request[PK_ONCE_HASH]; /* of method and target */
    unsigned char body[PK_ONCE_HASH];    /* of the request's body, if it was whole */
    bool has_body;
    int status;
    struct pk_bytes fields, answer; /* the answer's; its fields as lines */
};

/* False: it is not a record. */
bool pk_record_read(struct pk_record *r, struct pk_bytes value);
void pk_record_write(const struct pk_record *r, struct pk_resp_out *out);

/* ---- one call ---- */

enum pk_once_found {
    PK_ONCE_FRESH,  /* make the call; then pk_once_end */
    PK_ONCE_REPEAT, /* `record` has its answer, if it was kept and the bodies are equal */
    PK_ONCE_IN_PROGRESS,
    PK_ONCE_UNKNOWN,  /* it was started, and nobody knows how it ended */
    PK_ONCE_MISMATCH, /* the key was used for another call */
    PK_ONCE_FAILED,   /* the store could not be asked */
};

enum pk_once_how {
    PK_ONCE_KEEP,
    PK_ONCE_NOT_KEPT, /* the status only */
    PK_ONCE_CLEAR,    /* nothing was done: the next one is the first */
    PK_ONCE_LEAVE,    /* as it is: started */
};

struct pk_once;

struct pk_once_options {
    struct picket *store;
    const char *name; /* the gate's */
    struct pk_bytes resource, key;
    uint64_t keep_ms; /* each record, from when it was written */
    bool retry_unknown;
};

struct pk_once *pk_once_new(const struct pk_once_options *o, const struct pk_head *h);
/* It must have ended, unless it never was FRESH. */
void pk_once_free(struct pk_once *o);

/* A piece of the request's body, in order; then its end. */
void pk_once_hash(struct pk_once *o, struct pk_bytes piece);
void pk_once_hashed(struct pk_once *o);

/* The answer, as it comes. False: it is too large to be kept. */
bool pk_once_answer(struct pk_once *o, const struct pk_head *h);
bool pk_once_gather(struct pk_once *o, struct pk_bytes piece);
/* What has been gathered; lives as long as the object. */
struct pk_bytes pk_once_fields(const struct pk_once *o);
struct pk_bytes pk_once_gathered(const struct pk_once *o);

/* Blocks. Looks the key up and marks it as started if it is new. */
void pk_once_begin(struct pk_once *o);
enum pk_once_found pk_once_found(const struct pk_once *o);
/* After REPEAT, once the body was hashed: whether this is the same call. */
bool pk_once_same(const struct pk_once *o);
const struct pk_record *pk_once_record(const struct pk_once *o);

/* How it ended, to be told by pk_once_end. `status`: of the answer. */
void pk_once_settle(struct pk_once *o, enum pk_once_how how, int status);
/* Blocks. Records how it ended and lets the lock go. */
void pk_once_end(struct pk_once *o);
/* After the end: whether the store has taken it. */
bool pk_once_recorded(const struct pk_once *o);

#endif
