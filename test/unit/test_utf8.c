/* SPDX-License-Identifier: MIT */
/* What counts as text: every code point by its encoding, and every wrong encoding. */
#include "core/utf8.h"

#include "tap.h"

static bool printable(const char *bytes, size_t len)
{
    return pk_utf8_printable(pk_bytes(bytes, len), false);
}

/* The well-formed bytes of a code point; surrogates are written as if they were one. */
static size_t encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = len; i-- > 1;) {
        out[i] = (char)(0x80 | (cp & 0x3f));
        cp >>= 6;
    }
    out[0] = (char)(heads[len] | cp);
    return len;
}

TEST(utf8__every_code_point)
{
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char bytes[4];
        size_t len = encode(cp, bytes);
        bool control = cp < 0x20 || (cp >= 0x7f && cp < 0xa0);
        bool surrogate = cp >= 0xd800 && cp < 0xe000;
        CHECK(printable(bytes, len) == (!control && !surrogate));
    }
}

TEST(utf8__beyond_the_last_code_point)
{
    CHECK(printable("\xf4\x8f\xbf\xbf", 4));
    CHECK(!printable("\xf4\x90\x80\x80", 4));
    CHECK(!printable("\xf5\x80\x80\x80", 4));
    CHECK(!printable("\xff", 1));
}

TEST(utf8__only_the_shortest_form)
{
    CHECK(!printable("\xc0\xaf", 2));
    CHECK(!printable("\xc1\xbf", 2));
    CHECK(!printable("\xe0\x9f\xbf", 3));
    CHECK(!printable("\xf0\x8f\xbf\xbf", 4));
}

TEST(utf8__cut_short)
{
    static const char *const whole[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x94\x92"};
    for (size_t i = 0; i < 3; i++) {
        CHECK(printable(whole[i], strlen(whole[i])));
        for (size_t len = 1; len < strlen(whole[i]); len++) {
            CHECK(!printable(whole[i], len));
            CHECK(!printable(whole[i] + len, strlen(whole[i]) - len));
        }
    }
}

TEST(utf8__newlines_only_where_allowed)
{
    CHECK(!pk_utf8_printable(pk_text("a\nb"), false));
    CHECK(pk_utf8_printable(pk_text("a\nb"), true));
    CHECK(!pk_utf8_printable(pk_text("a\rb"), true));
    CHECK(!pk_utf8_printable(pk_text("a\tb"), true));
}

TEST(utf8__the_empty_string_is_printable)
{
    CHECK(pk_utf8_printable(pk_text(""), false));
    CHECK(pk_utf8_printable(pk_text(NULL), true));
}
