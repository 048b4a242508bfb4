/* SPDX-License-Identifier: MIT */
#include "core/wire.h"

#include <string.h>

/* Eight bytes at a time; the writer hashes the length by itself. */
static void hash_bytes(struct pk_writer *w, const unsigned char *at, size_t len)
{
    while (len >= 8) {
        w->digest = pk_hash(w->digest, pk_get_u64(at));
        at += 8;
        len -= 8;
    }
    if (len > 0) {
        unsigned char rest[8] = {0};
        memcpy(rest, at, len);
        w->digest = pk_hash(w->digest, pk_get_u64(rest));
    }
}

void pk_write_raw(struct pk_writer *w, const void *data, size_t len)
{
    if (len == 0) {
        return;
    }
    if (w->hashing) {
        hash_bytes(w, data, len);
        return;
    }
    if (w->out != NULL) {
        memcpy(w->out + w->len, data, len);
    }
    if (w->digesting) {
        w->digest = pk_digest(w->digest, data, len);
    }
    w->len += len;
}

void pk_write_byte(struct pk_writer *w, unsigned byte)
{
    unsigned char b = (unsigned char)byte;
    pk_write_raw(w, &b, 1);
}

void pk_write_uint(struct pk_writer *w, uint64_t v)
{
    if (w->hashing) {
        w->digest = pk_hash(w->digest, v);
        return;
    }
    unsigned char buf[10];
    size_t n = 0;
    while (v >= 0x80) {
        buf[n++] = (unsigned char)(v | 0x80);
        v >>= 7;
    }
    buf[n++] = (unsigned char)v;
    pk_write_raw(w, buf, n);
}

void pk_write_bytes(struct pk_writer *w, struct pk_bytes b)
{
    pk_write_uint(w, b.len);
    pk_write_raw(w, b.data, b.len);
}

const unsigned char *pk_read_raw(struct pk_reader *r, size_t len)
{
    if (r->bad || (size_t)(r->end - r->at) < len) {
        r->bad = true;
        return NULL;
    }
    const unsigned char *at = r->at;
    r->at += len;
    return at;
}

unsigned pk_read_byte(struct pk_reader *r)
{
    const unsigned char *at = pk_read_raw(r, 1);
    return at == NULL ? 0 : *at;
}

uint64_t pk_read_uint(struct pk_reader *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        unsigned b = pk_read_byte(r);
        if (r->bad) {
            return 0;
        }
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            bool longer_than_needed = b == 0 && shift > 0;
            bool over_64_bits = shift == 63 && b > 1;
            r->bad = longer_than_needed || over_64_bits;
            return r->bad ? 0 : v;
        }
    }
    r->bad = true;
    return 0;
}

uint64_t pk_read_ranged(struct pk_reader *r, uint64_t least, uint64_t most)
{
    uint64_t v = pk_read_uint(r);
    if (v < least || v > most) {
        r->bad = true;
    }
    return r->bad ? 0 : v;
}

struct pk_bytes pk_read_bytes(struct pk_reader *r, size_t most)
{
    size_t len = (size_t)pk_read_ranged(r, 0, most);
    const unsigned char *at = pk_read_raw(r, len);
    return at == NULL ? pk_bytes(NULL, 0) : pk_bytes(at, len);
}

void pk_put_u64(unsigned char *out, uint64_t v)
{
    for (int i = 0; i < 8; i++) {
        out[i] = (unsigned char)(v >> (8 * i));
    }
}

uint64_t pk_get_u64(const unsigned char *in)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) {
        v |= (uint64_t)in[i] << (8 * i);
    }
    return v;
}

void pk_put_u32(unsigned char *out, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (unsigned char)(v >> 8 * i);
    }
}

uint32_t pk_get_u32(const unsigned char *in)
{
    uint32_t v = 0;
    for (int i = 3; i >= 0; i--) {
        v = v << 8 | in[i];
    }
    return v;
}

uint64_t pk_digest(uint64_t digest, const void *data, size_t len)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < len; i++) {
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}

uint64_t pk_hash(uint64_t hash, uint64_t value)
{
    hash ^= value * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash << 29) | (hash >> 35);
    return hash * UINT64_C(0xbf58476d1ce4e5b9);
}

uint64_t pk_hash_end(uint64_t hash)
{
    hash = (hash ^ (hash >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    hash = (hash ^ (hash >> 29)) * UINT64_C(0x94d049bb133111eb);
    return hash ^ (hash >> 32);
}
