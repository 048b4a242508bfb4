/* SPDX-License-Identifier: MIT */
/* Heads, what they ask for, and how they are passed on: bytes in, bytes out. */
#include <stdio.h>

#include "core/door.h"
#include "gate/body.h"
#include "gate/head.h"
#include "gate/rewrite.h"
#include "gate/wish.h"
#include "tap.h"

static struct pk_head head;
static struct pk_wish ask;

/* The status it is refused with; 0: taken. */
static int request(const char *text)
{
    size_t at = 0, len = strlen(text);
    if (pk_head_scan(text, len, &at) != PK_SCAN_WHOLE || at != len) {
        return -1;
    }
    (void)pk_head_read_request(&head, pk_bytes(text, len));
    return head.refusal;
}

/* The same with one more line of fields. */
static int with(const char *line)
{
    static char text[40000];
    (void)snprintf(text, sizeof text, "POST /a HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", line);
    return request(text);
}

TEST(head__finds_the_end_however_the_bytes_come)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\nmore";
    size_t at = 0;
    for (size_t len = 0; len < sizeof text - 5; len++) {
        CHECK(pk_head_scan(text, len, &at) == PK_SCAN_MORE);
    }
    CHECK(pk_head_scan(text, sizeof text - 1, &at) == PK_SCAN_WHOLE);
    CHECK_U64(at, sizeof text - 5);
}

TEST(head__takes_what_is_plain)
{
    CHECK_U64(request("GET /a?b=c HTTP/1.1\r\nHost: h\r\n\r\n"), 0);
    CHECK(head.keep_alive && head.framing == PK_FRAMING_NONE);
    CHECK_U64(with("Content-Length: 12"), 0);
    CHECK_U64(head.length, 12);
    CHECK(head.framing == PK_FRAMING_LENGTH);
    CHECK_U64(with("transfer-encoding: Chunked"), 0);
    CHECK(head.framing == PK_FRAMING_CHUNKED);
    CHECK_U64(with("Expect: 100-continue"), 0);
    CHECK(head.expects);
    CHECK_U64(with("Connection: close"), 0);
    CHECK(!head.keep_alive);
    CHECK_U64(with("Empty:"), 0);
    CHECK_U64(request("GET / HTTP/1.0\r\n\r\n"), 0);
    CHECK(!head.keep_alive);
    CHECK_U64(request("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"), 0);
    CHECK(head.keep_alive);
}

/* H1 to H6: what others could read otherwise. */
TEST(head__refuses_what_could_be_read_in_two_ways)
{
    CHECK_U64(with("Content-Length: 1\r\nContent-Length: 1"), 400);
    CHECK_U64(with("Content-Length: 1\r\nContent-Length: 2"), 400);
    CHECK_U64(with("Content-Length: 1, 1"), 400);
    CHECK_U64(with("Content-Length: +1"), 400);
    CHECK_U64(with("Content-Length: -1"), 400);
    CHECK_U64(with("Content-Length: 0x1"), 400);
    CHECK_U64(with("Content-Length: 1 1"), 400);
    CHECK_U64(with("Content-Length:"), 400);
    CHECK_U64(with("Content-Length: 99999999999999999999999"), 400);
    CHECK_U64(with("Content-Length: 5\r\nTransfer-Encoding: chunked"), 400);
    CHECK_U64(with("Transfer-Encoding: chunked\r\nContent-Length: 5"), 400);
    CHECK_U64(with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), 400);
    CHECK(with("Transfer-Encoding: gzip, chunked") != 0);
    CHECK(with("Transfer-Encoding: chunked, identity") != 0);
    CHECK(with("Transfer-Encoding: identity") != 0);
    CHECK(with("Transfer-Encoding: \"chunked\"") != 0);
    CHECK(with("Transfer-Encoding:\vchunked") != 0);
    CHECK_U64(with("Content-Length : 5"), 400);
    CHECK_U64(with("Content-Length\t: 5"), 400);
    CHECK_U64(with("X: a\r\n b"), 400);
    CHECK_U64(with("X: a\r\n\tb"), 400);
    CHECK_U64(with(" X: a"), 400);
    CHECK_U64(with("X: a\rb"), 400);
    CHECK_U64(with("X: a\x01"), 400);
    CHECK_U64(with("X"), 400);
    CHECK_U64(with(": x"), 400);
    CHECK_U64(with("Host: other"), 400);
    CHECK_U64(with("Connection: close, X-Picket-Token\r\nX-Picket-Token: 5"), 400);
    CHECK_U64(with("Connection: content-length\r\nContent-Length: 5"), 400);
    CHECK_U64(with("Expect: miracles"), 417);
    CHECK_U64(with("Upgrade: websocket\r\nConnection: upgrade"), 501);
    CHECK_U64(request("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

TEST(head__refuses_request_lines_that_are_not_plain)
{
    CHECK_U64(request("GET  / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    CHECK_U64(request("GET /  HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    CHECK_U64(request("GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    CHECK_U64(request("GET * HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    CHECK_U64(request("GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    CHECK_U64(request("GET /\xc3\xa4 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    CHECK_U64(request("GET / HTTP/1.1\r\n\r\n"), 400);
    CHECK(request("GET / HTTP/2.0\r\nHost: h\r\n\r\n") != 0);
    CHECK(request("GET /\r\n\r\n") != 0);
    CHECK_U64(request("CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n"), 501);
    CHECK_U64(request("NONSENSE / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    static const char nul[] = "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n";
    CHECK(!pk_head_read_request(&head, pk_bytes(nul, sizeof nul - 1)));
    CHECK_U64(head.refusal, 400);
    size_t at = 0;
    CHECK(pk_head_scan("GET / HTTP/1.1\n\n", 16, &at) == PK_SCAN_BAD);
}

TEST(head__bounds_the_number_of_fields)
{
    static char lines[20000];
    size_t len = 0;
    for (int i = 0; i < PK_HEAD_FIELDS - 1; i++) { /* and Host */
        len += (size_t)snprintf(lines + len, sizeof lines - len, "%sX: 1",
                                i == 0 ? "" : "\r\n");
    }
    CHECK_U64(with(lines), 0);
    (void)snprintf(lines + len, sizeof lines - len, "\r\nX: 1");
    CHECK_U64(with(lines), 431);
}

/* ---- answers ---- */

static enum pk_framing answer(const char *text, bool to_head)
{
    CHECK(pk_head_read_answer(&head, pk_bytes(text, strlen(text)), to_head));
    return head.framing;
}

TEST(head__knows_where_an_answer_ends)
{
    CHECK(answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false) ==
          PK_FRAMING_LENGTH);
    CHECK(answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true) ==
          PK_FRAMING_NONE);
    CHECK(answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false) ==
          PK_FRAMING_NONE);
    CHECK(answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false) ==
          PK_FRAMING_CHUNKED);
    CHECK(answer("HTTP/1.1 200 OK\r\n\r\n", false) == PK_FRAMING_END);
    CHECK(!head.keep_alive);
    CHECK(answer("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n", false) ==
          PK_FRAMING_NONE);
    CHECK(answer("HTTP/1.1 204 No Content\r\n\r\n", false) == PK_FRAMING_NONE);
    CHECK(head.keep_alive);
    CHECK(answer("HTTP/1.1 100 Continue\r\n\r\n", false) == PK_FRAMING_NONE);
    static const char upgrade[] = "HTTP/1.1 101 Switching\r\n\r\n";
    CHECK(!pk_head_read_answer(&head, pk_text(upgrade), false));
}

/* ---- what is asked ---- */

static struct pk_wish_rules by_path = {.depth = 1, .resource_max = 100};
static struct pk_wish_rules by_field = {.from_field = true, .resource_max = 10};

static enum pk_wish_flaw asks(const char *target, const char *line,
                              const struct pk_wish_rules *r)
{
    static char text[4096];
    (void)snprintf(text, sizeof text, "PUT %s HTTP/1.1\r\nHost: h\r\n%s\r\n", target,
                   line);
    CHECK_U64(request(text), 0);
    (void)pk_wish_read(&ask, &head, r);
    return ask.flaw;
}

static enum pk_wish_flaw token(const char *value)
{
    char line[100];
    (void)snprintf(line, sizeof line, "X-Picket-Token: %s\r\n", value);
    return asks("/a", line, &by_path);
}

TEST(ask__reads_tokens_strictly)
{
    CHECK(token("1") == PK_WISH_FINE && ask.token == 1 && ask.has_token);
    CHECK(token("9007199254740991") == PK_WISH_FINE);
    CHECK_U64(ask.token, PK_TOKEN_MAX);
    static const char *const bad[] = {
        "0",
        "-1",
        "+1",
        "9007199254740992",
        "99999999999999999999999",
        "1.0",
        "1e3",
        "0x10",
        "01",
        "1 2",
        "1,2",
        "",
        "abc",
        "1a",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(token(bad[i]) == PK_WISH_BAD_TOKEN);
    }
    CHECK(asks("/a", "X-Picket-Token: 1\r\nx-picket-token: 1\r\n", &by_path) ==
          PK_WISH_BAD_TOKEN);
    CHECK(asks("/a", "", &by_path) == PK_WISH_FINE && !ask.has_token);
}

TEST(ask__names_the_resource_by_the_first_segments)
{
    struct pk_wish_rules two = {.depth = 2, .resource_max = 100};
    CHECK(asks("/a/b/c?d=/../e", "", &by_path) == PK_WISH_FINE);
    CHECK_STR(ask.resource, "a");
    CHECK(asks("/a/b/c", "", &two) == PK_WISH_FINE);
    CHECK_STR(ask.resource, "a/b");
    CHECK(asks("/a/", "", &two) == PK_WISH_FINE);
    CHECK_STR(ask.resource, "a");
    CHECK(asks("/%41l%69ce/%7Ex", "", &two) == PK_WISH_FINE);
    CHECK_STR(ask.resource, "Alice/~x");
    CHECK(asks("/%c3%a4", "", &by_path) == PK_WISH_FINE);
    CHECK_STR(ask.resource, "\xc3\xa4");
    CHECK(asks("/", "X-Picket-Token: 1\r\n", &by_path) == PK_WISH_BAD_RESOURCE);
    CHECK(asks("/", "", &by_path) == PK_WISH_FINE);
    CHECK(asks("/once/b", "", &two) == PK_WISH_BAD_RESOURCE);
    CHECK(asks("/%ff", "", &by_path) == PK_WISH_BAD_RESOURCE);
    CHECK(asks("/a%0ab", "", &by_path) == PK_WISH_BAD_RESOURCE);
}

/* A path must not lead elsewhere than its fence. */
TEST(ask__refuses_paths_that_lead_elsewhere)
{
    static const char *const bad[] = {
        "/a/../b", "/../a",  "/./a",   "/a/.",     "/a/..",    "//a",   "/a//b",
        "/a%2fb",  "/a%2Fb", "/a%5cb", "/%2e%2e/", "/a/%2E",   "/a%00", "/a\\b",
        "/a%",     "/a%2",   "/a%zz",  "/a;x=1",   "/a/b%2fc", "///",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(asks(bad[i], "X-Picket-Token: 1\r\n", &by_path) == PK_WISH_BAD_PATH);
    }
    CHECK(asks("/a/b;x=1", "", &by_path) == PK_WISH_FINE);
    CHECK(asks("/a/...", "", &by_path) == PK_WISH_FINE);
    CHECK(asks("/a/b.c", "", &by_path) == PK_WISH_FINE);
}

TEST(ask__reads_the_resource_from_its_field)
{
    static const char both[] = "X-Picket-Token: 1\r\nX-Picket-Resource: r 1\r\n";
    CHECK(asks("/a//../b", both, &by_field) == PK_WISH_FINE);
    CHECK_STR(ask.resource, "r 1");
    CHECK(asks("/a", "X-Picket-Token: 1\r\n", &by_field) == PK_WISH_BAD_RESOURCE);
    CHECK(asks("/a", "", &by_field) == PK_WISH_FINE);
    CHECK(asks("/a", "X-Picket-Resource: 12345678901\r\n", &by_field) ==
          PK_WISH_BAD_RESOURCE);
    CHECK(asks("/a", "X-Picket-Resource: a\r\nX-Picket-Resource: a\r\n", &by_field) ==
          PK_WISH_BAD_RESOURCE);
    CHECK(asks("/a", "X-Picket-Resource: \xff\r\n", &by_field) == PK_WISH_BAD_RESOURCE);
    CHECK(asks("/a", "X-Picket-Resource: once/a\r\n", &by_field) == PK_WISH_BAD_RESOURCE);
    struct pk_wish_rules based = by_field;
    based.based = true;
    CHECK(asks("/a/../../b", both, &based) == PK_WISH_BAD_PATH);
}

TEST(ask__reads_keys_of_calls_that_change_something)
{
    CHECK(asks("/a", "Idempotency-Key: k 1\r\n", &by_path) == PK_WISH_FINE);
    CHECK(ask.has_key && pk_bytes_equal(ask.key, pk_text("k 1")));
    CHECK(asks("/a", "Idempotency-Key: \r\n", &by_path) == PK_WISH_BAD_KEY);
    CHECK(asks("/a", "Idempotency-Key: \xc3\xa4\r\n", &by_path) == PK_WISH_BAD_KEY);
    CHECK(asks("/a", "Idempotency-Key: a\r\nIdempotency-Key: a\r\n", &by_path) ==
          PK_WISH_BAD_KEY);
    char line[400] = "Idempotency-Key: ";
    memset(line + strlen(line), 'k', 256);
    memcpy(line + 17 + 256, "\r\n", 3);
    CHECK(asks("/a", line, &by_path) == PK_WISH_BAD_KEY);
    CHECK_U64(request("GET /a HTTP/1.1\r\nHost: h\r\nIdempotency-Key: a\r\n\r\n"), 0);
    CHECK(pk_wish_read(&ask, &head, &by_path) && !ask.has_key);
}

/* ---- passing on ---- */

TEST(rewrite__passes_a_request_on_without_what_is_not_meant_for_others)
{
    CHECK_U64(request("PUT /a?b HTTP/1.0\r\nConnection: keep-alive, X-Mine\r\n"
                      "X-Mine: 1\r\nTE: trailers\r\nKeep-Alive: 5\r\n"
                      "X-Forwarded-For: 10.0.0.1\r\nX-Picket-Token: 5\r\n"
                      "Content-Length: 3\r\nProxy-Authorization: x\r\n\r\n"),
              0);
    struct pk_resp_out out = {0};
    pk_rewrite_request(&out, &head,
                       &(struct pk_rewrite_request){
                           .base = "/base", .host = "up:80", .client = "10.0.0.2"});
    pk_resp_raw(&out, "", 1);
    CHECK_STR(out.data, "PUT /base/a?b HTTP/1.1\r\nHost: up:80\r\nX-Picket-Token: 5\r\n"
                        "Content-Length: 3\r\nX-Forwarded-For: 10.0.0.1, 10.0.0.2\r\n"
                        "Via: 1.1 picket-gate\r\n\r\n");
    pk_resp_free(&out);
}

TEST(rewrite__says_the_length_of_an_answer_anew)
{
    struct pk_resp_out out = {0};
    CHECK(answer("HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\nA: b\r\n"
                 "Connection: keep-alive, A\r\nPicket-Replayed: true\r\n\r\n",
                 false) == PK_FRAMING_CHUNKED);
    pk_rewrite_answer(&out, &head,
                      &(struct pk_rewrite_answer){.framing = PK_FRAMING_CHUNKED,
                                                  .close = true,
                                                  .would_refuse = "stale"});
    pk_resp_raw(&out, "", 1);
    CHECK_STR(out.data, "HTTP/1.1 200 Fine\r\nVia: 1.1 picket-gate\r\n"
                        "Picket-Would-Refuse: stale\r\nTransfer-Encoding: chunked\r\n"
                        "Connection: close\r\n\r\n");
    pk_resp_free(&out);
}

TEST(rewrite__writes_chunk_lines)
{
    char room[PK_REWRITE_CHUNK + 1] = {0};
    CHECK_U64(pk_rewrite_chunk(room, 1), 3);
    CHECK(memcmp(room, "1\r\n", 3) == 0);
    CHECK_U64(pk_rewrite_chunk(room, 0x1af0), 6);
    CHECK(memcmp(room, "1af0\r\n", 6) == 0);
    CHECK_U64(pk_rewrite_chunk(room, SIZE_MAX), 18);
}

/* ---- bodies ---- */

/* Takes the body in pieces of `step` bytes; gives its bytes, or NULL when it is bad. It
 * must be one of the two. */
static const char *take(const char *text, size_t step, size_t *used)
{
    static char got[1000];
    char piece[1000];
    struct pk_body b;
    size_t len = strlen(text), at = 0, n = 0;
    pk_body_init(&b, &head);
    while (at < len && !b.whole && !b.bad) {
        size_t kept, here = len - at < step ? len - at : step;
        memcpy(piece, text + at, here);
        at += pk_body_take(&b, piece, here, &kept);
        memcpy(got + n, piece, kept);
        n += kept;
    }
    got[n] = '\0';
    *used = at;
    CHECK_U64(b.taken, n);
    CHECK(b.whole != b.bad);
    return b.whole ? got : NULL;
}

static void check_body(const char *text, const char *wanted, size_t length)
{
    for (size_t step = 1; step < 40; step++) {
        size_t used;
        const char *got = take(text, step, &used);
        CHECK((got == NULL) == (wanted == NULL));
        if (wanted != NULL) {
            CHECK_STR(got, wanted);
            CHECK_U64(used, length);
        }
    }
}

TEST(body__comes_out_of_chunks_whole)
{
    CHECK_U64(with("Transfer-Encoding: chunked"), 0);
    check_body("3\r\nabc\r\n0a;x=\"y\"\r\n0123456789\r\n0\r\n\r\nGET", "abc0123456789",
               35);
    check_body("0\r\nA: b\r\nC: d\r\n\r\n", "", 17);
    check_body("000\r\n\r\n", "", 7);
}

TEST(body__refuses_chunks_that_are_not_plain)
{
    CHECK_U64(with("Transfer-Encoding: chunked"), 0);
    static const char *const bad[] = {
        "\r\n",
        "x\r\n",
        "-1\r\n",
        "+1\r\na\r\n",
        "0x1\r\na\r\n",
        "1 \r\na\r\n",
        "1\na\r\n",
        "1\r\nab\r\n",
        "1\r\na\n0\r\n",
        "1\r\na\r0",
        "00000000000000001\r\na",
        "1;a\nb\r\n",
        "0\r\n\n",
        "0\r\nA\nb\r\n\r\n",
        " 1\r\na\r\n",
        "ffffffffffffffff1\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_body(bad[i], NULL, 0);
    }
}

/* Bytes that are thrown away have a bound too (P10): those of all trailers together. */
TEST(body__bounds_what_it_throws_away)
{
    enum { LINES = PK_BODY_TRAILER_BYTES / 4 };
    struct pk_body b;
    char last[] = "0\r\n";
    size_t kept;
    CHECK_U64(with("Transfer-Encoding: chunked"), 0);
    pk_body_init(&b, &head);
    CHECK_U64(pk_body_take(&b, last, 3, &kept), 3);
    for (int i = 0; i <= LINES; i++) {
        char line[] = "A: b\r\n";
        CHECK(!b.bad);
        (void)pk_body_take(&b, line, 6, &kept);
    }
    CHECK(b.bad && !b.whole);
    pk_body_init(&b, &head);
    char size[] = "1;";
    CHECK_U64(pk_body_take(&b, size, 2, &kept), 2);
    for (int i = 0; i <= PK_BODY_EXTENSION_BYTES; i++) {
        char byte[] = "x";
        CHECK(!b.bad);
        (void)pk_body_take(&b, byte, 1, &kept);
    }
    CHECK(b.bad && !b.whole);
}

TEST(body__has_the_length_it_says)
{
    CHECK_U64(with("Content-Length: 5"), 0);
    check_body("helloGET", "hello", 5);
    struct pk_body b;
    pk_body_init(&b, &head);
    CHECK(!pk_body_end(&b));
}
