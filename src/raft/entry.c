/* SPDX-License-Identifier: MIT */
#include "raft/entry.h"

#include "core/door.h"
#include "core/version.h"
#include "core/wire.h"

static const unsigned char magic[3] = {'P', 'K', 'E'};

enum { UNIT = 8, FLAG_MARK = 1 };

/* Where things stand in the head. */
enum {
    AT_NEEDS = sizeof magic,
    AT_KIND = 4,
    AT_FLAGS = 5,
    AT_PADDING = 6,
    AT_ZERO = 7,
    AT_ORIGIN = 8,
    AT_BATCH = 16,
    AT_INDEX = 24,
    AT_STAMP = 32,
    AT_COUNT = 40,
};

static size_t padding(size_t body)
{
    return (UNIT - body % UNIT) % UNIT;
}

size_t pk_entry_size(size_t body)
{
    return PK_ENTRY_HEAD + body + padding(body);
}

void pk_entry_seal(unsigned char *out, const struct pk_entry *e)
{
    size_t body = e->body.len;
    PK_ASSERT(e->needs <= UINT8_MAX);
    memcpy(out, magic, sizeof magic);
    out[AT_NEEDS] = (unsigned char)(e->needs == 0 ? PK_VERSION_OLDEST : e->needs);
    out[AT_KIND] = (unsigned char)e->kind;
    out[AT_FLAGS] = e->mark ? FLAG_MARK : 0;
    out[AT_PADDING] = (unsigned char)padding(body);
    out[AT_ZERO] = 0;
    pk_put_u64(out + AT_ORIGIN, e->origin);
    pk_put_u64(out + AT_BATCH, e->batch);
    pk_put_u64(out + AT_INDEX, e->index);
    pk_put_u64(out + AT_STAMP, e->stamp_ms);
    pk_put_u64(out + AT_COUNT, e->count);
    memset(out + PK_ENTRY_HEAD + body, 0, padding(body));
}

uint32_t pk_entry_needs(const unsigned char *in, size_t len)
{
    return len >= PK_ENTRY_HEAD && memcmp(in, magic, sizeof magic) == 0 ? in[AT_NEEDS]
                                                                        : 0;
}

static bool head_is_sound(const unsigned char *in, size_t len)
{
    return len >= PK_ENTRY_HEAD && len % UNIT == 0 && len - PK_ENTRY_HEAD <= UINT32_MAX &&
           pk_version_runs(pk_entry_needs(in, len)) && in[AT_KIND] >= PK_ENTRY_COMMANDS &&
           in[AT_KIND] <= PK_ENTRY_ADOPT && (in[AT_FLAGS] & ~FLAG_MARK) == 0 &&
           in[AT_PADDING] < UNIT && in[AT_PADDING] <= len - PK_ENTRY_HEAD &&
           in[AT_ZERO] == 0;
}

static bool padding_is_zero(const unsigned char *in, size_t len)
{
    for (size_t i = len - in[AT_PADDING]; i < len; i++) {
        if (in[i] != 0) {
            return false;
        }
    }
    return true;
}

/* What the head says must fit the kind. */
static bool kind_is_sound(const struct pk_entry *e)
{
    switch (e->kind) {
    case PK_ENTRY_COMMANDS:
        return e->count <= e->body.len && (e->count > 0 || e->body.len == 0);
    case PK_ENTRY_RESTORE:
        return true;
    case PK_ENTRY_ADOPT:
        return e->count == 0 && e->body.len == 0;
    }
    return false;
}

bool pk_entry_open(const unsigned char *in, size_t len, struct pk_entry *e)
{
    if (!head_is_sound(in, len) || !padding_is_zero(in, len)) {
        return false;
    }
    *e = (struct pk_entry){
        .kind = (enum pk_entry_kind)in[AT_KIND],
        .needs = in[AT_NEEDS],
        .mark = (in[AT_FLAGS] & FLAG_MARK) != 0,
        .origin = pk_get_u64(in + AT_ORIGIN),
        .batch = pk_get_u64(in + AT_BATCH),
        .index = pk_get_u64(in + AT_INDEX),
        .stamp_ms = pk_get_u64(in + AT_STAMP),
        .count = pk_get_u64(in + AT_COUNT),
        .body = pk_bytes(in + PK_ENTRY_HEAD, len - PK_ENTRY_HEAD - in[AT_PADDING]),
    };
    return e->index > 0 && kind_is_sound(e);
}
