/* SPDX-License-Identifier: MIT */
#include "server/json_out.h"

#include "core/utf8.h"
#include "tap.h"

static struct pk_resp_out out;

static struct pk_jout fresh(void)
{
    out.len = 0;
    return (struct pk_jout){.out = &out};
}

static const char *written(void)
{
    pk_resp_raw(&out, "", 1);
    return out.data;
}

static const char *text(struct pk_bytes b, uint32_t most)
{
    struct pk_jout j = fresh();
    pk_jout_text(&j, b, most);
    return written();
}

TEST(json_out__puts_commas_where_they_belong)
{
    struct pk_jout j = fresh();
    pk_jout_begin(&j, '{');
    pk_jout_put_number(&j, "a", UINT64_MAX);
    pk_jout_key(&j, "b");
    pk_jout_begin(&j, '[');
    pk_jout_end(&j, ']');
    pk_jout_key(&j, "c");
    pk_jout_begin(&j, '[');
    pk_jout_bool(&j, true);
    pk_jout_null(&j);
    pk_jout_begin(&j, '{');
    pk_jout_put_bool(&j, "d", false);
    pk_jout_end(&j, '}');
    pk_jout_end(&j, ']');
    pk_jout_put_text(&j, "e", pk_text("x"), 9);
    pk_jout_end(&j, '}');
    CHECK_STR(written(), "{\"a\":18446744073709551615,\"b\":[],"
                         "\"c\":[true,null,{\"d\":false}],\"e\":\"x\"}");
}

TEST(json_out__escapes_what_would_end_a_text_a_line_or_a_script)
{
    CHECK_STR(text(pk_text("a\"b\\c\nd\x7f</script>"), 99),
              "\"a\\u0022b\\u005cc\\u000ad\\u007f\\u003c/script>\"");
    CHECK_STR(text(pk_bytes("\0", 1), 9), "\"\\u0000\"");
    CHECK_STR(text(pk_bytes(NULL, 0), 9), "\"\"");
}

TEST(json_out__cuts_between_characters)
{
    CHECK_STR(text(pk_text("grün"), 5), "\"grün\"");
    CHECK_STR(text(pk_text("grün"), 4), "\"grü…\"");
    CHECK_STR(text(pk_text("grün"), 3), "\"gr…\"");
    CHECK_STR(text(pk_text("grün"), 0), "\"…\"");
}

TEST(json_out__makes_text_of_any_bytes)
{
    CHECK_STR(text(pk_text("a\xff"
                           "b"),
                   9),
              "\"a\xef\xbf\xbd"
              "b\"");
    CHECK_STR(text(pk_text("\xc3"), 9), "\"\xef\xbf\xbd\""); /* cut short */
    CHECK_STR(text(pk_text("\xc0\x80"), 9),
              "\"\xef\xbf\xbd\xef\xbf\xbd\""); /* too long */
    CHECK_STR(text(pk_text("\xed\xa0\x80"), 3),
              "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""); /* half of a pair */
    CHECK_STR(text(pk_text("\xf0\x9f\x94\x92"), 4), "\"\xf0\x9f\x94\x92\"");
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        unsigned char bytes[12];
        for (size_t k = 0; k < sizeof bytes; k++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            bytes[k] = (unsigned char)(seed >> 56);
        }
        struct pk_jout j = fresh();
        pk_jout_text(&j, pk_bytes(bytes, sizeof bytes), sizeof bytes);
        struct pk_bytes got = pk_bytes(out.data, out.len);
        CHECK(pk_utf8_printable(got, false) && memchr(got.data, '<', got.len) == NULL);
    }
}
