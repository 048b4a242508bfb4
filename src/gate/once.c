/* SPDX-License-Identifier: MIT */
#include "gate/once.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "core/limits.h"
#include "core/wire.h"
#include "gate/rewrite.h"

enum { RECORD_VERSION = 1, FIELDS_MAX = 32768 };

struct pk_once {
    struct picket *store;
    uint64_t keep_ms;
    bool retry_unknown;
    char name[PK_NAME_MAX + 1];
    EVP_MD_CTX *md;
    struct pk_record call; /* ours: request, body and how it ended */
    struct pk_resp_out fields, answer;

    enum pk_once_found found;
    struct picket_lock *lock; /* while the call is under way */
    char *value;              /* what the store had; `record` borrows from it */
    struct pk_record record;
    enum pk_once_how how;
    bool recorded;
};

/* ---- records ---- */

static void write_parts(const struct pk_record *r, struct pk_writer *w)
{
    pk_write_byte(w, RECORD_VERSION);
    pk_write_byte(w, (unsigned)r->kind);
    pk_write_raw(w, r->request, sizeof r->request);
    pk_write_byte(w, r->has_body);
    pk_write_raw(w, r->body, sizeof r->body);
    pk_write_uint(w, (uint64_t)r->status);
    pk_write_bytes(w, r->fields);
    pk_write_bytes(w, r->answer);
}

void pk_record_write(const struct pk_record *r, struct pk_resp_out *out)
{
    struct pk_writer count = {0};
    write_parts(r, &count);
    struct pk_writer w = {.out = (unsigned char *)pk_resp_reserve(out, count.len)};
    write_parts(r, &w);
    out->len += w.len;
}

static void read_hash(struct pk_reader *r, unsigned char *hash)
{
    const unsigned char *raw = pk_read_raw(r, PK_ONCE_HASH);
    if (raw != NULL) {
        memcpy(hash, raw, PK_ONCE_HASH);
    }
}

bool pk_record_read(struct pk_record *r, struct pk_bytes value)
{
    *r = (struct pk_record){.kind = PK_RECORD_NONE};
    if (value.len == 0) {
        return true; /* cleared */
    }
    const unsigned char *data = (const unsigned char *)value.data;
    struct pk_reader in = {.at = data, .end = data + value.len};
    bool version = pk_read_byte(&in) == RECORD_VERSION;
    r->kind =
        (enum pk_record_kind)pk_read_ranged(&in, PK_RECORD_STARTED, PK_RECORD_KINDS - 1);
    read_hash(&in, r->request);
    r->has_body = pk_read_ranged(&in, 0, 1) == 1;
    read_hash(&in, r->body);
    r->status = (int)pk_read_ranged(&in, 0, 999);
    r->fields = pk_read_bytes(&in, PK_VALUE_CEILING);
    r->answer = pk_read_bytes(&in, PK_VALUE_CEILING);
    return version && !in.bad && in.at == in.end;
}

/* ---- the call ---- */

static void digest(unsigned char *out, const void *data, size_t len)
{
    PK_ASSERT(EVP_Digest(data, len, out, NULL, EVP_sha256(), NULL) == 1);
}

static void hash_piece(struct pk_once *o, const void *data, size_t len)
{
    PK_ASSERT(EVP_DigestUpdate(o->md, data, len) == 1);
}

static void name_register(struct pk_once *o, const struct pk_once_options *options)
{
    unsigned char hash[PK_ONCE_HASH];
    char hex[2 * PK_ONCE_HASH + 1];
    digest(hash, options->key.data, options->key.len);
    for (size_t i = 0; i < sizeof hash; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    }
    bool named = options->resource.len > 0;
    int n = snprintf(o->name, sizeof o->name, "%s/once/%.*s/%s", options->name,
                     named ? (int)options->resource.len : 1,
                     named ? options->resource.data : "-", hex);
    PK_ASSERT(n > 0 && n < (int)sizeof o->name); /* the rules for resources saw to it */
}

struct pk_once *pk_once_new(const struct pk_once_options *options,
                            const struct pk_head *h)
{
    struct pk_once *o = pk_door_resize(NULL, sizeof *o);
    memset(o, 0, sizeof *o);
    o->store = options->store;
    o->keep_ms = options->keep_ms;
    o->retry_unknown = options->retry_unknown;
    name_register(o, options);
    o->md = EVP_MD_CTX_new();
    PK_ASSERT(o->md != NULL && EVP_DigestInit_ex(o->md, EVP_sha256(), NULL) == 1);
    const char *method = pk_head_method(h);
    hash_piece(o, method, strlen(method) + 1);
    hash_piece(o, h->target.data, h->target.len);
    PK_ASSERT(EVP_DigestFinal_ex(o->md, o->call.request, NULL) == 1 &&
              EVP_DigestInit_ex(o->md, EVP_sha256(), NULL) == 1);
    return o;
}

void pk_once_free(struct pk_once *o)
{
    if (o == NULL) {
        return;
    }
    PK_ASSERT(o->lock == NULL);
    EVP_MD_CTX_free(o->md);
    pk_resp_free(&o->fields);
    pk_resp_free(&o->answer);
    free(o->value);
    pk_door_resize(o, 0);
}

void pk_once_hash(struct pk_once *o, struct pk_bytes piece)
{
    hash_piece(o, piece.data, piece.len);
}

void pk_once_hashed(struct pk_once *o)
{
    if (!o->call.has_body) {
        PK_ASSERT(EVP_DigestFinal_ex(o->md, o->call.body, NULL) == 1);
        o->call.has_body = true;
    }
}

bool pk_once_answer(struct pk_once *o, const struct pk_head *h)
{
    pk_rewrite_fields(&o->fields, h);
    return o->fields.len <= FIELDS_MAX &&
           !(h->framing == PK_FRAMING_LENGTH && h->length > PK_ONCE_ANSWER_MAX);
}

bool pk_once_gather(struct pk_once *o, struct pk_bytes piece)
{
    if (o->fields.len + o->answer.len + piece.len > PK_ONCE_ANSWER_MAX) {
        return false;
    }
    pk_resp_raw(&o->answer, piece.data, piece.len);
    return true;
}

struct pk_bytes pk_once_fields(const struct pk_once *o)
{
    return pk_bytes(o->fields.data, o->fields.len);
}

struct pk_bytes pk_once_gathered(const struct pk_once *o)
{
    return pk_bytes(o->answer.data, o->answer.len);
}

/* ---- looking up and marking ---- */

/* Reads the register; with a token, claims it first. */
static bool load(struct pk_once *o, uint64_t token)
{
    size_t len;
    free(o->value);
    o->value = NULL;
    o->record = (struct pk_record){.kind = PK_RECORD_NONE};
    enum picket_status s =
        picket_fence_get(o->store, o->name, token, &o->value, &len, NULL);
    if (s != PICKET_OK) {
        return s == PICKET_NOTFOUND;
    }
    return pk_record_read(&o->record, pk_bytes(o->value, len));
}

static enum pk_once_found judge(const struct pk_once *o)
{
    const struct pk_record *r = &o->record;
    if (r->kind == PK_RECORD_NONE) {
        return PK_ONCE_FRESH;
    }
    if (memcmp(r->request, o->call.request, PK_ONCE_HASH) != 0) {
        return PK_ONCE_MISMATCH;
    }
    return r->kind != PK_RECORD_STARTED ? PK_ONCE_REPEAT
           : o->retry_unknown           ? PK_ONCE_FRESH
                                        : PK_ONCE_UNKNOWN;
}

static enum picket_status put(struct pk_once *o, const struct pk_record *r)
{
    struct pk_resp_out value = {0};
    if (r != NULL) {
        pk_record_write(r, &value);
    }
    enum picket_status s = picket_fence_keep(o->store, o->name, picket_token(o->lock),
                                             value.data, value.len, o->keep_ms);
    pk_resp_free(&value);
    return s;
}

static enum pk_once_found mark(struct pk_once *o)
{
    enum picket_status s = picket_try(o->store, o->name, NULL, &o->lock);
    if (s == PICKET_BUSY) {
        return PK_ONCE_IN_PROGRESS;
    }
    if (s != PICKET_OK || !load(o, picket_token(o->lock))) {
        return PK_ONCE_FAILED;
    }
    enum pk_once_found found = judge(o); /* it may have ended just before our turn */
    o->call.kind = PK_RECORD_STARTED;
    return found == PK_ONCE_FRESH && put(o, &o->call) != PICKET_OK ? PK_ONCE_FAILED
                                                                   : found;
}

void pk_once_begin(struct pk_once *o)
{
    o->found = load(o, 0) ? judge(o) : PK_ONCE_FAILED;
    if (o->found == PK_ONCE_FRESH || o->found == PK_ONCE_UNKNOWN) {
        o->found = mark(o); /* a call that is under way is not one of unknown outcome */
    }
    if (o->found != PK_ONCE_FRESH) {
        picket_lock_close(o->lock);
        o->lock = NULL;
    }
}

enum pk_once_found pk_once_found(const struct pk_once *o)
{
    return o->found;
}

bool pk_once_same(const struct pk_once *o)
{
    return !o->record.has_body || memcmp(o->record.body, o->call.body, PK_ONCE_HASH) == 0;
}

const struct pk_record *pk_once_record(const struct pk_once *o)
{
    return &o->record;
}

/* ---- the end ---- */

void pk_once_settle(struct pk_once *o, enum pk_once_how how, int status)
{
    o->how = how;
    o->call.status = status;
}

static enum picket_status record_answer(struct pk_once *o)
{
    struct pk_record done = o->call;
    enum picket_status s = PICKET_LIMIT;
    if (o->how == PK_ONCE_KEEP) {
        done.kind = PK_RECORD_DONE;
        done.fields = pk_once_fields(o);
        done.answer = pk_once_gathered(o);
        s = put(o, &done);
    }
    if (s == PICKET_LIMIT) { /* the store takes less than we thought */
        done.kind = PK_RECORD_NOT_KEPT;
        done.fields = done.answer = pk_bytes("", 0);
        s = put(o, &done);
    }
    return s;
}

void pk_once_end(struct pk_once *o)
{
    PK_ASSERT(o->found == PK_ONCE_FRESH);
    enum picket_status s = PICKET_OK;
    if (o->how == PK_ONCE_CLEAR) {
        s = put(o, NULL);
    } else if (o->how != PK_ONCE_LEAVE) {
        s = record_answer(o);
    }
    o->recorded = s == PICKET_OK;
    picket_lock_close(o->lock);
    o->lock = NULL;
}

bool pk_once_recorded(const struct pk_once *o)
{
    return o->recorded;
}
