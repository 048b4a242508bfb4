/* SPDX-License-Identifier: MIT */
#include "server/json_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void raw(struct pk_jout *j, const char *text)
{
    pk_resp_raw(j->out, text, strlen(text));
}

static void value(struct pk_jout *j)
{
    if (j->comma) {
        raw(j, ",");
    }
    j->comma = true;
}

void pk_jout_begin(struct pk_jout *j, char bracket)
{
    value(j);
    pk_resp_raw(j->out, &bracket, 1);
    j->comma = false;
}

void pk_jout_end(struct pk_jout *j, char bracket)
{
    pk_resp_raw(j->out, &bracket, 1);
    j->comma = true;
}

void pk_jout_key(struct pk_jout *j, const char *key)
{
    value(j);
    raw(j, "\"");
    raw(j, key);
    raw(j, "\":");
    j->comma = false;
}

void pk_jout_number(struct pk_jout *j, uint64_t v)
{
    char digits[PK_RESP_DIGITS_MAX];
    value(j);
    pk_resp_raw(j->out, digits, pk_resp_digits(digits, v));
}

void pk_jout_bool(struct pk_jout *j, bool v)
{
    value(j);
    raw(j, v ? "true" : "false");
}

void pk_jout_null(struct pk_jout *j)
{
    value(j);
    raw(j, "null");
}

/* ---- text ---- */

/* The length of the UTF-8 character that begins `s`, in its shortest form and no
 * surrogate; 0: there is none. */
static uint32_t character(const unsigned char *s, uint32_t len)
{
    uint32_t n = s[0] < 0x80   ? 1
                 : s[0] < 0xc2 ? 0
                 : s[0] < 0xe0 ? 2
                 : s[0] < 0xf0 ? 3
                               : 4;
    if (n == 0 || n > len || s[0] > 0xf4) {
        return 0;
    }
    for (uint32_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool low = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool high = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return low || high ? 0 : n;
}

static void escaped(struct pk_jout *j, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    char code[] = "\\u00..";
    code[4] = digits[c >> 4];
    code[5] = digits[c & 15];
    raw(j, code);
}

void pk_jout_text(struct pk_jout *j, struct pk_bytes text, uint32_t most)
{
    const unsigned char *s = (const unsigned char *)text.data;
    uint32_t at = 0;
    value(j);
    raw(j, "\"");
    while (at < text.len) {
        uint32_t n = character(s + at, text.len - at);
        uint32_t taken = n == 0 ? 1 : n;
        if (at + taken > most) {
            raw(j, "…");
            break;
        }
        if (n == 0) {
            raw(j, "\xef\xbf\xbd");
        } else if (s[at] == 0xc2 && s[at + 1] < 0xa0) {
            escaped(j, s[at + 1]); /* a control character of two bytes */
        } else if (s[at] < ' ' || s[at] == '"' || s[at] == '\\' || s[at] == '<' ||
                   s[at] == 0x7f) {
            escaped(j, s[at]);
        } else {
            pk_resp_raw(j->out, s + at, n);
        }
        at += taken;
    }
    raw(j, "\"");
}

/* ---- pairs ---- */

void pk_jout_put_number(struct pk_jout *j, const char *key, uint64_t v)
{
    pk_jout_key(j, key);
    pk_jout_number(j, v);
}

void pk_jout_put_id(struct pk_jout *j, const char *key, uint64_t id)
{
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%" PRIu64, id);
    pk_jout_put_text(j, key, pk_text(digits), sizeof digits);
}

void pk_jout_put_bool(struct pk_jout *j, const char *key, bool v)
{
    pk_jout_key(j, key);
    pk_jout_bool(j, v);
}

void pk_jout_put_text(struct pk_jout *j, const char *key, struct pk_bytes text,
                      uint32_t most)
{
    pk_jout_key(j, key);
    pk_jout_text(j, text, most);
}
