/* SPDX-License-Identifier: MIT */
#include "core/wire.h"

#include <string.h>

void pk_write_raw(struct pk_writer *w, const void *data, size_t len)
{
    if (len == 0) {
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

uint64_t pk_digest(uint64_t digest, const void *data, size_t len)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < len; i++) {
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}
