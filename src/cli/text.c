/* SPDX-License-Identifier: MIT */
#include "cli/text.h"

#include <string.h>

size_t pk_text_decode(const char *at, size_t len, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800,
                                     0x10000}; /* by length: the shortest form */
    const unsigned char *byte = (const unsigned char *)at;
    if (len == 0) {
        return 0;
    }
    if (byte[0] < 0x80) {
        *code = byte[0];
        return 1;
    }
    size_t n = (byte[0] & 0xe0) == 0xc0   ? 2
               : (byte[0] & 0xf0) == 0xe0 ? 3
               : (byte[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
    if (n == 0 || n > len) {
        return 0;
    }
    uint32_t c = byte[0] & (0x7fU >> n);
    for (size_t i = 1; i < n; i++) {
        if ((byte[i] & 0xc0) != 0x80) {
            return 0;
        }
        c = c << 6 | (byte[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
        return 0;
    }
    *code = c;
    return n;
}

bool pk_text_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

bool pk_text_is_utf8(const char *text, size_t len)
{
    uint32_t code;
    size_t n = 1;
    for (size_t at = 0; at < len && n > 0; at += n) {
        n = pk_text_decode(text + at, len - at, &code);
    }
    return n > 0;
}

size_t pk_text_count(const char *text)
{
    size_t len = strlen(text);
    size_t count = 0;
    for (size_t at = 0; at < len; count++) {
        uint32_t code;
        size_t n = pk_text_decode(text + at, len - at, &code);
        at += n > 0 ? n : 1;
    }
    return count;
}
