/* SPDX-License-Identifier: MIT */
#include "core/utf8.h"

/* The length of the sequence that `lead` opens; 0 for a byte that can't open one. */
static uint32_t sequence_length(unsigned char lead)
{
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 2;
    }
    if ((lead & 0xf0) == 0xe0) {
        return 3;
    }
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

/* Reads one code point of `n` bytes; false when it is not the shortest form of a scalar
 * value. */
static bool decode(const unsigned char *s, uint32_t n, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7fU >> n);
    for (uint32_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return false;
        }
        c = c << 6 | (s[i] & 0x3f);
    }
    *out = c;
    return c >= least[n] && c <= 0x10ffff && (c & 0xfffff800) != 0xd800;
}

bool pk_utf8_printable(struct pk_bytes s, bool newlines)
{
    const unsigned char *at = (const unsigned char *)s.data;
    uint32_t left = s.len;
    while (left > 0) {
        uint32_t n = sequence_length(*at);
        uint32_t c = 0;
        if (n == 0 || n > left || !decode(at, n, &c)) {
            return false;
        }
        bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
        if (control && !(newlines && c == '\n')) {
            return false;
        }
        at += n;
        left -= n;
    }
    return true;
}
