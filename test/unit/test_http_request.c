/* SPDX-License-Identifier: MIT */
/* What a request says about the answer it wants; test_http has the rest, on sockets. */
#include "server/http_request.h"

#include <stdio.h>

#include "tap.h"

static struct pk_http_request request;

/* Reads a request with that header, `step` bytes at a time. */
static void read_with(const char *header, size_t step)
{
    char text[1024];
    size_t used;
    int len = snprintf(text, sizeof text,
                       "GET /page HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", header);
    CHECK(len > 0 && (size_t)len < sizeof text);
    memset(&request, 0xa5, sizeof request);
    pk_http_request_init(&request, NULL);
    enum pk_http_got got = PK_HTTP_MORE;
    for (size_t at = 0; got == PK_HTTP_MORE; at += used) {
        size_t left = (size_t)len - at;
        CHECK(left > 0);
        got = pk_http_request_read(&request,
                                   pk_bytes(text + at, left < step ? left : step), &used);
    }
    CHECK(got == PK_HTTP_ONE && request.refusal == 0);
}

static bool takes_gzip(const char *header)
{
    read_with(header, SIZE_MAX);
    bool at_once = request.takes_gzip;
    read_with(header, 1);
    CHECK(request.takes_gzip == at_once);
    return at_once;
}

TEST(request__takes_gzip_when_it_says_so)
{
    CHECK(takes_gzip("Accept-Encoding: gzip"));
    CHECK(takes_gzip("accept-encoding: GZIP"));
    CHECK(takes_gzip("Accept-Encoding: deflate, gzip , br"));
    CHECK(takes_gzip("Accept-Encoding: br,gzip"));
    CHECK(takes_gzip("Accept-Encoding: ,, gzip"));
}

static bool takes_html(const char *header)
{
    read_with(header, SIZE_MAX);
    bool at_once = request.takes_html;
    read_with(header, 1);
    CHECK(request.takes_html == at_once);
    return at_once;
}

TEST(request__takes_html_when_it_is_a_browsers)
{
    CHECK(takes_html("Accept: text/html"));
    CHECK(takes_html("accept: TEXT/HTML,application/xhtml+xml,*/*;q=0.8"));
    CHECK(!takes_html("Accept: */*"));
    CHECK(!takes_html("Accept: text/plain, text/html"));
    CHECK(!takes_html("Accept: text/htm"));
    CHECK(!takes_html("X-Accept: text/html"));
    CHECK(!takes_html("Accept-Encoding: text/html"));
}

TEST(request__takes_gzip_only_without_conditions)
{
    char longest[600] = "Accept-Encoding: gzip";
    CHECK(!takes_gzip("Accept: gzip"));
    CHECK(!takes_gzip("Accept-Encoding:"));
    CHECK(!takes_gzip("Accept-Encoding: identity"));
    CHECK(!takes_gzip("Accept-Encoding: gzip;q=0"));
    CHECK(!takes_gzip("Accept-Encoding: xgzip, gzipx, g, ,"));
    CHECK(!takes_gzip("Accept-Encodin: gzip"));
    CHECK(!takes_gzip("Accept-Encodings: gzip"));
    for (size_t i = strlen(longest); i < 400; i++) {
        longest[i] = i % 2 == 1 ? ',' : 'x';
    }
    CHECK(!takes_gzip(longest)); /* too long to be kept whole */
}

TEST(request__tells_what_it_has)
{
    char longest[600] = "If-None-Match: ";
    read_with("If-None-Match: \"17\"", SIZE_MAX);
    CHECK(pk_bytes_equal(request.has_tag, pk_text("\"17\"")));
    read_with("if-none-match: \"17\"", 1);
    CHECK(pk_bytes_equal(request.has_tag, pk_text("\"17\"")));
    read_with("If-Match: \"17\"", SIZE_MAX);
    CHECK_U64(request.has_tag.len, 0);
    memset(longest + strlen(longest), 'x', 400);
    read_with(longest, SIZE_MAX);
    CHECK_U64(request.has_tag.len, 0);
}

TEST(request__wishes_are_of_one_request)
{
    static const char two[] = "GET / HTTP/1.1\r\nHost: localhost\r\n"
                              "Accept-Encoding: gzip\r\nIf-None-Match: \"1\"\r\n\r\n"
                              "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    size_t used;
    pk_http_request_init(&request, NULL);
    struct pk_bytes in = pk_bytes(two, sizeof two - 1);
    CHECK(pk_http_request_read(&request, in, &used) == PK_HTTP_ONE);
    CHECK(request.takes_gzip && request.has_tag.len > 0);
    in = pk_bytes(two + used, sizeof two - 1 - used);
    CHECK(pk_http_request_read(&request, in, &used) == PK_HTTP_ONE);
    CHECK(!request.takes_gzip && request.has_tag.len == 0);
}
