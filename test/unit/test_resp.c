/* SPDX-License-Identifier: MIT */
#include "proto/resp.h"

#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

static struct pk_bytes args[PK_RESP_ARGS_MAX];

/* A request with the sentence for a BAD one in `why`. */
static enum pk_resp_got request(struct pk_bytes in, uint32_t *n, size_t *used,
                                const char **why)
{
    memset(args, 0xaa, sizeof args);
    return pk_resp_request(in, args, n, used, why);
}

/* The words of a request in `in`, joined by '|'; NULL unless it is ONE and all of it. */
static const char *words_of(const char *in)
{
    static char joined[256];
    uint32_t n;
    size_t used, len = 0;
    const char *why;
    if (request(pk_text(in), &n, &used, &why) != PK_RESP_ONE || used != strlen(in)) {
        return NULL;
    }
    joined[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        len += (size_t)snprintf(joined + len, sizeof joined - len, "%.*s|",
                                (int)args[i].len, args[i].data);
    }
    return joined;
}

static const char *why_bad(const char *in)
{
    uint32_t n;
    size_t used;
    const char *why;
    return request(pk_text(in), &n, &used, &why) == PK_RESP_BAD ? why : "not bad";
}

TEST(resp__a_request_is_an_array_of_bulk_strings)
{
    CHECK_STR(words_of("*2\r\n$4\r\nPING\r\n$2\r\nhi\r\n"), "PING|hi|");
    CHECK_STR(words_of("*1\r\n$0\r\n\r\n"), "|");
    CHECK_STR(words_of("*1\r\n$4\r\na\r\nb\r\n"), "a\r\nb|");
}

/* Bytes of any kind, NUL included, are where they were in the input. */
TEST(resp__words_are_read_in_place)
{
    static const char in[] = "*1\r\n$3\r\n\0\xff\n\r\n";
    uint32_t n;
    size_t used;
    const char *why;
    CHECK(request(pk_bytes(in, sizeof in - 1), &n, &used, &why) == PK_RESP_ONE);
    CHECK_U64(n, 1);
    CHECK(args[0].data == in + 8 && args[0].len == 3);
    CHECK_U64(used, sizeof in - 1);
}

TEST(resp__an_array_of_nothing_is_an_empty_request)
{
    CHECK_STR(words_of("*0\r\n"), "");
    CHECK_STR(words_of("*-1\r\n"), "");
    CHECK_STR(words_of("*-7\r\n"), "");
}

TEST(resp__a_line_is_a_request_too)
{
    CHECK_STR(words_of("PING\r\n"), "PING|");
    CHECK_STR(words_of("PING\n"), "PING|");
    CHECK_STR(words_of(" \t LOCK  SHOW\tdb/1 \r\n"), "LOCK|SHOW|db/1|");
    CHECK_STR(words_of("\r\n"), "");
    CHECK_STR(words_of("\n"), "");
    CHECK_STR(words_of("   \r\n"), "");
}

TEST(resp__requests_come_one_behind_the_other)
{
    const char *in = "*1\r\n$4\r\nPING\r\nECHO x\r\n*1\r\n$4\r\nQUIT\r\n*1\r\n$";
    static const char *const first[] = {"PING", "ECHO", "QUIT"};
    uint32_t n;
    size_t used;
    const char *why;
    for (int i = 0; i < 3; i++) {
        CHECK(request(pk_text(in), &n, &used, &why) == PK_RESP_ONE);
        CHECK(n > 0 && pk_resp_is(args[0], first[i]));
        in += used;
    }
    CHECK(request(pk_text(in), &n, &used, &why) == PK_RESP_MORE);
}

/* Of every part of a request it is known that there is more, and how much at least: the
 * wish never goes beyond what a request really has. */
TEST(resp__every_beginning_of_a_request_waits_for_more)
{
    static const char *const whole[] = {
        "*3\r\n$5\r\nLEASE\r\n$4\r\nOPEN\r\n$12\r\n000000001000\r\n",
        "*2\r\n$0\r\n\r\n$0\r\n\r\n",
        "*-1\r\n",
        "LEASE OPEN 1000\r\n",
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        size_t len = strlen(whole[i]);
        for (size_t part = 0; part < len; part++) {
            uint32_t n;
            size_t used;
            const char *why;
            CHECK(request(pk_bytes(whole[i], part), &n, &used, &why) == PK_RESP_MORE);
            CHECK(used > part && used <= len);
            CHECK_U64(n, 0);
        }
    }
}

/* Who gives what is wished for gets through in few looks, whatever the sizes. */
TEST(resp__a_large_word_is_waited_for_in_one_piece)
{
    uint32_t n;
    size_t used;
    const char *why;
    CHECK(request(pk_text("*3\r\n$1000000\r\nx"), &n, &used, &why) == PK_RESP_MORE);
    CHECK_U64(used, 4 + 10 + 1000000 + 2 + 6 + 6);
}

TEST(resp__hostile_requests_are_refused_with_a_sentence)
{
    static const struct {
        const char *in, *why;
    } cases[] = {
        {"*x\r\n", "the number of words is not a number, or larger than 8300"},
        {"*\r\n", "the number of words is not a number, or larger than 8300"},
        {"*1\n", "the number of words is not a number, or larger than 8300"},
        {"*1\rx", "the number of words is not a number, or larger than 8300"},
        {"*--1\r\n", "the number of words is not a number, or larger than 8300"},
        {"*+1\r\n", "the number of words is not a number, or larger than 8300"},
        {"*8301\r\n", "the number of words is not a number, or larger than 8300"},
        {"*99999999999", "the number of words is not a number, or larger than 8300"},
        {"*1\r\nx", "a request is an array of bulk strings: '$' was expected"},
        {"*1\r\n:1\r\n", "a request is an array of bulk strings: '$' was expected"},
        {"*1\r\n$-1\r\n", "the length of a bulk string is not a number, or too large"},
        {"*1\r\n$\r\n", "the length of a bulk string is not a number, or too large"},
        {"*1\r\n$1x\r\n", "the length of a bulk string is not a number, or too large"},
        {"*1\r\n$1228801\r\n",
         "the length of a bulk string is not a number, or too large"},
        {"*1\r\n$18446744073709551615\r\n",
         "the length of a bulk string is not a number, or too large"},
        {"*1\r\n$1\r\nabc", "a bulk string does not end with CRLF where it should"},
        {"*1\r\n$1\r\na\rb", "a bulk string does not end with CRLF where it should"},
        {"*1\r\n$1228800\r\n", "the request is larger than 1200 KiB"},
        {"*2\r\n$700000\r\n", "not bad"},
        {"*4200\r\n$1203600\r\n", "the request is larger than 1200 KiB"},
        {"P\x01NG\r\n", "a typed line has a control character in it"},
        {"\x16\x03\x01\n", "a typed line has a control character in it"},
        {"PI\rNG\r\n", "a typed line has a control character in it"},
        {"POST / HTTP/1.1\r\nHost: x\r\n", "this port speaks RESP, not HTTP"},
        {"GET /LOCK HTTP/1.0\n", "this port speaks RESP, not HTTP"},
        {"GET /a b HTTP/1.1\r\n", "this port speaks RESP, not HTTP"},
        {"HTTP/1.1\r\n", "this port speaks RESP, not HTTP"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_STR(why_bad(cases[i].in), cases[i].why);
    }
}

TEST(resp__a_line_without_end_is_refused_at_its_limit)
{
    static char line[PK_RESP_INLINE_MAX + 1];
    memset(line, 'a', sizeof line - 1);
    uint32_t n;
    size_t used;
    const char *why;
    CHECK(request(pk_bytes(line, PK_RESP_INLINE_MAX - 1), &n, &used, &why) ==
          PK_RESP_MORE);
    CHECK_STR(why_bad(line), "a typed line is longer than 4096 bytes");
    line[PK_RESP_INLINE_MAX] = '\n';
    CHECK(request(pk_bytes(line, sizeof line), &n, &used, &why) == PK_RESP_BAD);
    CHECK_STR(why, "a typed line is longer than 4096 bytes");
    line[PK_RESP_INLINE_MAX - 1] = '\n';
    CHECK(request(pk_bytes(line, PK_RESP_INLINE_MAX), &n, &used, &why) == PK_RESP_ONE);
}

/* As many words as are allowed, in either form. */
TEST(resp__the_most_words_fit)
{
    struct pk_resp_out o = {0};
    uint32_t n;
    size_t used;
    const char *why;
    pk_resp_array(&o, PK_RESP_ARGS_MAX);
    for (int i = 0; i < PK_RESP_ARGS_MAX; i++) {
        pk_resp_text(&o, "w");
    }
    CHECK(request(pk_bytes(o.data, o.len), &n, &used, &why) == PK_RESP_ONE);
    CHECK_U64(n, PK_RESP_ARGS_MAX);
    CHECK_U64(used, o.len);
    o.len = 0;
    for (int i = 0; i < PK_RESP_INLINE_MAX / 2 - 1; i++) {
        pk_resp_raw(&o, "w ", 2);
    }
    pk_resp_raw(&o, "w\n", 2);
    CHECK(request(pk_bytes(o.data, o.len), &n, &used, &why) == PK_RESP_ONE);
    CHECK_U64(n, PK_RESP_INLINE_MAX / 2);
    pk_resp_free(&o);
}

/* ---- writing ---- */

/* What was written, and an empty buffer again. */
static const char *written(struct pk_resp_out *o)
{
    static char text[512];
    CHECK(o->len < sizeof text);
    memcpy(text, o->data, o->len);
    text[o->len] = '\0';
    o->len = 0;
    return text;
}

static void write_some_of_all(struct pk_resp_out *o)
{
    pk_resp_map(o, 1);
    pk_resp_text(o, "k");
    pk_resp_array(o, 2);
    pk_resp_null(o);
    pk_resp_signed(o, -5);
    pk_resp_push(o, 1);
    pk_resp_bulk(o, pk_bytes("\r\n", 2));
    pk_resp_simple(o, "OK");
}

TEST(resp__maps_pushes_and_nulls_have_a_form_in_each_version)
{
    struct pk_resp_out two = {0}, three = {.resp3 = true};
    write_some_of_all(&two);
    write_some_of_all(&three);
    CHECK_STR(written(&two), "*2\r\n$1\r\nk\r\n*2\r\n$-1\r\n:-5\r\n*1\r\n$2\r\n\r\n\r\n"
                             "+OK\r\n");
    CHECK_STR(written(&three), "%1\r\n$1\r\nk\r\n*2\r\n_\r\n:-5\r\n>1\r\n$2\r\n\r\n\r\n"
                               "+OK\r\n");
    pk_resp_free(&two);
    pk_resp_free(&three);
    CHECK(three.data == NULL && three.resp3);
}

TEST(resp__numbers_are_integers_as_far_as_these_go)
{
    struct pk_resp_out o = {0};
    pk_resp_int(&o, 0);
    pk_resp_int(&o, INT64_MAX);
    pk_resp_int(&o, (uint64_t)INT64_MAX + 1);
    pk_resp_int(&o, UINT64_MAX);
    pk_resp_signed(&o, INT64_MIN);
    CHECK_STR(written(&o), ":0\r\n:9223372036854775807\r\n"
                           "$19\r\n9223372036854775808\r\n"
                           "$20\r\n18446744073709551615\r\n:-9223372036854775808\r\n");
    pk_resp_free(&o);
}

TEST(resp__an_error_stays_on_its_line)
{
    struct pk_resp_out o = {0};
    pk_resp_error(&o, "ERR", "no\r\n+OK\r\n");
    pk_resp_simple(&o, "a\nb");
    CHECK_STR(written(&o), "-ERR no  +OK  \r\n+a b\r\n");
    pk_resp_free(&o);
}

TEST(resp__the_buffer_grows)
{
    struct pk_resp_out o = {0};
    for (int i = 0; i < 1000; i++) {
        memset(pk_resp_reserve(&o, (size_t)i), 'x', (size_t)i);
        o.len += (size_t)i;
    }
    CHECK_U64(o.len, 999 * 1000 / 2);
    CHECK(o.len <= o.capacity && o.data[0] == 'x' && o.data[o.len - 1] == 'x');
    pk_resp_free(&o);
}

/* ---- reading ---- */

static struct pk_resp_value only(const char *in)
{
    size_t used = 0;
    CHECK(pk_resp_whole(pk_text(in), &used) == PK_RESP_ONE);
    CHECK_U64(used, strlen(in));
    struct pk_resp_cursor c = {.rest = pk_text(in)};
    struct pk_resp_value v = pk_resp_next(&c);
    CHECK(!c.bad && c.rest.len == 0);
    return v;
}

static bool is_bytes(struct pk_resp_value v, enum pk_resp_type type, const char *text)
{
    return v.type == type && pk_bytes_equal(v.bytes, pk_text(text));
}

static bool is_int(struct pk_resp_value v, int64_t number)
{
    return v.type == PK_RESP_INT && v.number == number;
}

TEST(resp__plain_values_are_read)
{
    CHECK(is_bytes(only("+PONG\r\n"), PK_RESP_SIMPLE, "PONG"));
    CHECK(is_bytes(only("+\r\n"), PK_RESP_SIMPLE, ""));
    CHECK(is_bytes(only("-ERR no\r\n"), PK_RESP_ERROR, "ERR no"));
    CHECK(is_bytes(only("$2\r\nab\r\n"), PK_RESP_BULK, "ab"));
    CHECK(is_bytes(only("$2\r\n\r\n\r\n"), PK_RESP_BULK, "\r\n"));
    CHECK(is_int(only(":0\r\n"), 0));
    CHECK(is_int(only(":+7\r\n"), 7));
    CHECK(is_int(only(":-7\r\n"), -7));
    CHECK(is_int(only(":9223372036854775807\r\n"), INT64_MAX));
    CHECK(is_int(only(":-9223372036854775808\r\n"), INT64_MIN));
    CHECK(only("$-1\r\n").type == PK_RESP_NULL);
    CHECK(only("*-1\r\n").type == PK_RESP_NULL);
}

TEST(resp__values_of_version_3_are_read)
{
    CHECK(only("_\r\n").type == PK_RESP_NULL);
    CHECK(is_int(only("#t\r\n"), 1));
    CHECK(is_int(only("#f\r\n"), 0));
    CHECK(is_bytes(only(",1.5\r\n"), PK_RESP_SIMPLE, "1.5"));
    CHECK(is_bytes(only("(123456789012345678901234\r\n"), PK_RESP_SIMPLE,
                   "123456789012345678901234"));
    CHECK(is_bytes(only("=6\r\ntxt:ab\r\n"), PK_RESP_BULK, "ab"));
    CHECK(is_bytes(only("!4\r\nERR!\r\n"), PK_RESP_ERROR, "ERR!"));
    CHECK(only("~0\r\n").type == PK_RESP_ARRAY);
    CHECK(only("%0\r\n").type == PK_RESP_MAP);
    CHECK(only(">0\r\n").type == PK_RESP_PUSH);
}

TEST(resp__what_is_inside_comes_in_reading_order)
{
    const char *in = "%2\r\n$1\r\na\r\n*2\r\n:1\r\n%1\r\n+x\r\n+y\r\n$1\r\nb\r\n:2\r\n";
    struct pk_resp_cursor c = {.rest = pk_text(in)};
    size_t used;
    CHECK(pk_resp_whole(c.rest, &used) == PK_RESP_ONE && used == strlen(in));
    struct pk_resp_value map = pk_resp_next(&c);
    CHECK(map.type == PK_RESP_MAP && map.n == 2);
    CHECK(is_bytes(pk_resp_next(&c), PK_RESP_BULK, "a"));
    struct pk_resp_value list = pk_resp_next(&c);
    CHECK(list.type == PK_RESP_ARRAY && list.n == 2);
    pk_resp_skip(&c, &list);
    CHECK(is_bytes(pk_resp_next(&c), PK_RESP_BULK, "b"));
    CHECK(is_int(pk_resp_next(&c), 2));
    CHECK(!c.bad);
    CHECK(pk_resp_next(&c).type == PK_RESP_NULL && c.bad);
}

TEST(resp__every_beginning_of_a_value_waits_for_more)
{
    static const char *const whole[] = {
        "%2\r\n$6\r\nstatus\r\n$2\r\nOK\r\n+rows\r\n*2\r\n%1\r\n:1\r\n_\r\n-E\r\n",
        "*3\r\n*0\r\n$-1\r\n=4\r\ntxt:\r\n",
        "-ERR a line\r\n",
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        size_t len = strlen(whole[i]), used;
        for (size_t part = 0; part < len; part++) {
            CHECK(pk_resp_whole(pk_bytes(whole[i], part), &used) == PK_RESP_MORE);
            CHECK(used > part && used <= len);
        }
        CHECK(pk_resp_whole(pk_text(whole[i]), &used) == PK_RESP_ONE && used == len);
    }
}

TEST(resp__values_that_are_none_are_refused)
{
    static const char *const cases[] = {
        "x\r\n",
        "\r\n",
        "+a\n",
        "+\n",
        ":\r\n",
        ":-\r\n",
        ":1a\r\n",
        ":9223372036854775808\r\n",
        ":-9223372036854775809\r\n",
        "#x\r\n",
        "#\r\n",
        "_x\r\n",
        "$1\r\nabc",
        "$x\r\n",
        "$?\r\n",
        "=-1\r\n",
        "=3\r\ntxt\r\n",
        "!-1\r\n",
        "%-1\r\n",
        ">-1\r\n",
        "|1\r\n",
        "*99999999999\r\n",
        "$268435457\r\n",
        "*89478486\r\n",
        "*4294967297\r\n:1\r\n",
        "*1\r\n*89478485\r\n*2\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t used;
        CHECK(pk_resp_whole(pk_text(cases[i]), &used) == PK_RESP_BAD);
    }
}

/* Depth is no danger: nothing recurses. */
TEST(resp__deep_nesting_is_read_and_skipped)
{
    enum { DEPTH = 100000 };
    struct pk_resp_out o = {0};
    size_t used;
    for (int i = 0; i < DEPTH; i++) {
        pk_resp_array(&o, 1);
    }
    pk_resp_null(&o);
    CHECK(pk_resp_whole(pk_bytes(o.data, o.len), &used) == PK_RESP_ONE);
    CHECK_U64(used, o.len);
    struct pk_resp_cursor c = {.rest = pk_bytes(o.data, o.len)};
    struct pk_resp_value v = pk_resp_next(&c);
    pk_resp_skip(&c, &v);
    CHECK(!c.bad && c.rest.len == 0);
    pk_resp_free(&o);
}

/* A cursor over less than a whole value turns bad, and stays so. */
TEST(resp__a_cursor_ends_at_what_is_missing)
{
    struct pk_resp_cursor c = {.rest = pk_text("*3\r\n:1\r\n$5\r\nab")};
    struct pk_resp_value v = pk_resp_next(&c);
    pk_resp_skip(&c, &v);
    CHECK(c.bad);
    CHECK(pk_resp_next(&c).type == PK_RESP_NULL);
    struct pk_resp_cursor none = {0};
    CHECK(pk_resp_next(&none).type == PK_RESP_NULL && none.bad);
}

/* ---- words ---- */

static bool number(const char *text, uint64_t expected)
{
    uint64_t v = 1;
    return pk_resp_number(pk_text(text), &v) && v == expected;
}

TEST(resp__a_number_is_digits_that_fit)
{
    uint64_t v;
    CHECK(number("0", 0));
    CHECK(number("18446744073709551615", UINT64_MAX));
    CHECK(number("00000000000000000000000007", 7));
    static const char *const bad[] = {
        "",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1x",
        "/",
        ":",
        "18446744073709551616",
        "99999999999999999999",
        "\xff",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(!pk_resp_number(pk_text(bad[i]), &v));
    }
}

TEST(resp__words_compare_without_case)
{
    CHECK(pk_resp_is(pk_text("acQuire"), "ACQUIRE"));
    CHECK(pk_resp_is(pk_text(""), ""));
    CHECK(!pk_resp_is(pk_text("ACQUIR"), "ACQUIRE"));
    CHECK(!pk_resp_is(pk_text("ACQUIRED"), "ACQUIRE"));
    CHECK(!pk_resp_is(pk_bytes("A\0B", 3), "A"));
    CHECK(!pk_resp_is(pk_text("@"), "`"));
}
