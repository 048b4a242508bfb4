/* SPDX-License-Identifier: MIT */
/*
 * The HTTP server on real sockets. It runs on a thread of its own; the test is the client
 * and sends raw bytes. Nothing is timed: where the server has to lose its patience, it is
 * given little of it, and the test waits for what must happen then.
 */
#include "server/http.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "core/door.h"
#include "server/http_request.h"
#include "tap.h"

enum { BIG = 1024 * 1024, GIVE_UP_S = 20 };

/* Waits for something that must happen. */
#define WAIT(condition)                                                                  \
    for (int tries = 0; !(condition); tries++) {                                         \
        CHECK(tries < GIVE_UP_S * 200);                                                  \
        poll(NULL, 0, 5);                                                                \
    }

/* ---- the server ---- */

static struct {
    uv_loop_t loop;
    uv_async_t stop;
    struct pk_http *http;
    pthread_t thread;
    uint16_t port;
    struct pk_http_stream *stream; /* of the last GET /stream; the thread's own */
    atomic_int answers, gone, closed;
    uv_check_t turn;
    int in_turn, at_once; /* answers in this turn of the loop, and the most in any */
    atomic_bool held;     /* the loop stands still in GET /hold */
} site;

static void on_gone(void *owner)
{
    site.gone++;
    if (owner == site.stream) {
        site.stream = NULL;
    }
}

static void body(struct pk_http_answer *out, const char *text)
{
    pk_resp_raw(&out->body, text, strlen(text));
}

static void fill(struct pk_http_answer *out, size_t len)
{
    memset(pk_resp_reserve(&out->body, len), 'x', len);
    out->body.len += len;
}

static void begin_stream(struct pk_http_answer *out)
{
    if (out->stream == NULL) {
        out->status = 503;
        body(out, "too many streams\n");
        return;
    }
    out->type = "text/event-stream";
    out->gone = on_gone;
    out->owner = site.stream = out->stream;
    body(out, "first\n");
}

/* Sends until the stream does not take any more. */
static void flood(struct pk_http_answer *out)
{
    static char piece[65536];
    int taken = 0;
    memset(piece, 'y', sizeof piece);
    while (site.stream != NULL &&
           pk_http_send(site.stream, pk_bytes(piece, sizeof piece))) {
        taken++;
    }
    char text[32];
    (void)snprintf(text, sizeof text, "%d\n", taken);
    body(out, text);
}

static bool is(struct pk_bytes path, const char *text)
{
    return pk_bytes_equal(path, pk_text(text));
}

static void get(void *ctx, struct pk_bytes path, struct pk_bytes query,
                struct pk_http_answer *out)
{
    PK_ASSERT(ctx == &site);
    site.answers++;
    site.at_once += ++site.in_turn > site.at_once;
    if (is(path, "/hello")) {
        body(out, "hello\n");
    } else if (is(path, "/hold")) {
        WAIT(!site.held);
    } else if (is(path, "/echo")) {
        out->type = "application/octet-stream";
        pk_resp_raw(&out->body, query.data, query.len);
    } else if (is(path, "/big")) {
        fill(out, BIG);
    } else if (is(path, "/too-big")) {
        fill(out, PK_HTTP_UNSENT_MAX + 1);
    } else if (is(path, "/stream")) {
        begin_stream(out);
    } else if (is(path, "/send")) {
        bool sent = site.stream != NULL && pk_http_send(site.stream, query);
        body(out, sent ? "sent\n" : "not sent\n");
    } else if (is(path, "/flood")) {
        flood(out);
    } else if (is(path, "/end")) {
        pk_http_end(site.stream);
    } else {
        out->status = 404;
        body(out, "nothing here\n");
    }
}

static void on_closed(void *ctx)
{
    PK_ASSERT(ctx == &site);
    site.closed++;
}

static void on_turn(uv_check_t *turn)
{
    *(int *)turn->data = 0;
}

static void on_stop(uv_async_t *async)
{
    uv_close((uv_handle_t *)&site.turn, NULL);
    pk_http_close(site.http, on_closed, &site);
    uv_close((uv_handle_t *)async, NULL);
}

static void *run(void *unused)
{
    (void)unused;
    uv_run(&site.loop, UV_RUN_DEFAULT);
    return NULL;
}

static const char *const hosts[] = {"node1.internal", NULL};

static void start(uint32_t request_ms)
{
    const char *why;
    memset(&site, 0, sizeof site);
    signal(SIGPIPE, SIG_IGN);
    CHECK(uv_loop_init(&site.loop) == 0);
    CHECK(uv_async_init(&site.loop, &site.stop, on_stop) == 0);
    site.turn.data = &site.in_turn;
    CHECK(uv_check_init(&site.loop, &site.turn) + uv_check_start(&site.turn, on_turn) ==
          0);
    struct pk_http_options o = {.loop = &site.loop,
                                .listen = "127.0.0.1:0",
                                .hosts = hosts,
                                .request_ms = request_ms,
                                .get = get,
                                .ctx = &site};
    site.http = pk_http_new(&o, &why);
    CHECK(site.http != NULL);
    site.port = pk_http_port(site.http);
    CHECK(pthread_create(&site.thread, NULL, run, NULL) == 0);
}

/* Everything must go with it, the open connections too. */
static void stop(void)
{
    CHECK(uv_async_send(&site.stop) == 0);
    CHECK(pthread_join(site.thread, NULL) == 0);
    CHECK_U64(site.closed, 1);
    CHECK(uv_loop_close(&site.loop) == 0);
}

/* ---- the client ---- */

static char got[4 * BIG];
static size_t got_len; /* bytes of the last answer */

static int dial_with(int receive_bytes)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(site.port)};
    struct timeval patience = {.tv_sec = GIVE_UP_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    if (receive_bytes > 0) {
        CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes,
                         sizeof receive_bytes) == 0);
    }
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

static int dial(void)
{
    return dial_with(0);
}

static void tell(int fd, const char *text)
{
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

/* One more byte at least; false: the end, or a connection that was reset. */
static bool more(int fd)
{
    CHECK(got_len < sizeof got - 1);
    ssize_t n = read(fd, got + got_len, sizeof got - 1 - got_len);
    if (n > 0) {
        got_len += (size_t)n;
    }
    got[got_len] = '\0';
    return n > 0;
}

static void read_to_end(int fd)
{
    got_len = 0;
    while (more(fd)) {
    }
}

/* Reads exactly one answer; what follows it stays unread. Returns its status; 0: the
 * connection ended before. */
static int read_answer(int fd, bool has_body)
{
    got_len = 0;
    got[0] = '\0';
    while (strstr(got, "\r\n\r\n") == NULL) {
        ssize_t n = read(fd, got + got_len, 1); /* slow, and never too much */
        if (n <= 0) {
            return 0;
        }
        got[++got_len] = '\0';
    }
    const char *length = strstr(got, "Content-Length: ");
    size_t left = has_body && length != NULL ? strtoul(length + 16, NULL, 10) : 0;
    while (left > 0) {
        ssize_t n = read(fd, got + got_len, left);
        CHECK(n > 0);
        got_len += (size_t)n;
        left -= (size_t)n;
    }
    got[got_len] = '\0';
    CHECK(strncmp(got, "HTTP/1.1 ", 9) == 0);
    return (int)strtol(got + 9, NULL, 10);
}

static const char *body_of_answer(void)
{
    const char *end = strstr(got, "\r\n\r\n");
    CHECK(end != NULL);
    return end + 4;
}

static bool at_end(int fd)
{
    char byte;
    return read(fd, &byte, 1) <= 0;
}

/* One request on a connection of its own, which the answer ends or not. */
static int ask(const char *request)
{
    int fd = dial();
    tell(fd, request);
    int status = read_answer(fd, strncmp(request, "HEAD", 4) != 0);
    close(fd);
    return status;
}

static int ask_host(const char *host)
{
    char request[512];
    (void)snprintf(request, sizeof request, "GET /hello HTTP/1.1\r\nHost: %s\r\n\r\n",
                   host);
    return ask(request);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"

/* ---- good requests ---- */

TEST(http__answers_a_request)
{
    start(0);
    CHECK_U64(ask(GET("/hello")), 200);
    CHECK_STR(body_of_answer(), "hello\n");
    CHECK(strstr(got, "\r\nContent-Type: text/plain; charset=utf-8\r\n") != NULL);
    CHECK(strstr(got, "\r\nContent-Length: 6\r\n") != NULL);
    CHECK(strstr(got, "\r\nContent-Security-Policy: default-src 'none';") != NULL);
    CHECK(strstr(got, "\r\nX-Content-Type-Options: nosniff\r\n") != NULL);
    CHECK(strstr(got, "Access-Control-") == NULL);
    CHECK(strstr(got, "\r\nConnection:") == NULL);
    CHECK_U64(ask(GET("/nowhere")), 404);
    stop();
}

TEST(http__path_and_query_come_apart)
{
    start(0);
    CHECK_U64(ask(GET("/echo?a=1&b=%20?c")), 200);
    CHECK_STR(body_of_answer(), "a=1&b=%20?c");
    CHECK_U64(ask(GET("/echo")), 200);
    CHECK_STR(body_of_answer(), "");
    CHECK_U64(ask(GET("/echo/")), 404);
    stop();
}

TEST(http__head_has_the_headers_and_no_body)
{
    start(0);
    int fd = dial();
    tell(fd, "HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_U64(read_answer(fd, false), 200);
    CHECK(strstr(got, "\r\nContent-Length: 6\r\n") != NULL);
    tell(fd, GET("/hello")); /* would begin with the body, if there were one */
    CHECK_U64(read_answer(fd, true), 200);
    close(fd);
    stop();
}

TEST(http__a_connection_serves_many_requests)
{
    start(0);
    int fd = dial();
    for (int i = 0; i < 20; i++) {
        tell(fd, GET("/hello"));
        CHECK_U64(read_answer(fd, true), 200);
        CHECK_STR(body_of_answer(), "hello\n");
    }
    close(fd);
    stop();
}

TEST(http__closes_when_the_client_wants_it)
{
    start(0);
    int fd = dial();
    tell(fd, "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    read_to_end(fd);
    CHECK(strstr(got, "\r\nConnection: close\r\n") != NULL);
    CHECK_STR(body_of_answer(), "hello\n");
    close(fd);
    fd = dial(); /* HTTP/1.0 closes by itself, and needs no Host */
    tell(fd, "GET /hello HTTP/1.0\r\n\r\n");
    read_to_end(fd);
    CHECK_STR(body_of_answer(), "hello\n");
    close(fd);
    fd = dial();
    tell(fd, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    CHECK_U64(read_answer(fd, true), 200);
    CHECK(strstr(got, "\r\nConnection: keep-alive\r\n") != NULL);
    close(fd);
    stop();
}

/* Requests sent without waiting are answered in order, however their bytes come. */
TEST(http__pipelined_requests_are_answered_in_order)
{
    start(0);
    int fd = dial();
    tell(fd, GET("/hello") GET("/echo?two"));
    CHECK_U64(read_answer(fd, true), 200);
    CHECK_STR(body_of_answer(), "hello\n");
    CHECK_U64(read_answer(fd, true), 200);
    CHECK_STR(body_of_answer(), "two");
    static char many[500 * 80];
    size_t len = 0;
    for (int i = 0; i < 500; i++) {
        len += (size_t)snprintf(many + len, sizeof many - len,
                                "GET /echo?%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i);
    }
    tell(fd, many);
    for (int i = 0; i < 500; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", i);
        CHECK_U64(read_answer(fd, true), 200);
        CHECK_STR(body_of_answer(), text);
    }
    const char *slow = GET("/echo?slow") GET("/hello");
    for (const char *at = slow; *at != '\0'; at++) {
        CHECK(write(fd, at, 1) == 1);
    }
    CHECK_U64(read_answer(fd, true), 200);
    CHECK_STR(body_of_answer(), "slow");
    CHECK_U64(read_answer(fd, true), 200);
    close(fd);
    stop();
}

/* The client has said all it will say, but not heard all. */
TEST(http__one_request_is_answered_in_each_turn_of_the_loop)
{
    int fds[8];
    start(0);
    site.held = true;
    for (int i = 0; i < 8; i++) {
        tell(fds[i] = dial(), i == 0 ? GET("/hold") : GET("/hello"));
        WAIT(site.answers == 1);
    }
    site.held = false;
    for (int i = 0; i < 8; i++) {
        CHECK_U64(read_answer(fds[i], true), 200);
        close(fds[i]);
    }
    stop();
    CHECK_U64(site.at_once, 1);
}

TEST(http__a_half_closed_client_gets_its_answer)
{
    start(0);
    int fd = dial();
    tell(fd, GET("/hello") GET("/big"));
    CHECK(shutdown(fd, SHUT_WR) == 0);
    CHECK_U64(read_answer(fd, true), 200);
    CHECK_U64(read_answer(fd, true), 200);
    CHECK_U64(strlen(body_of_answer()), BIG);
    CHECK(at_end(fd));
    close(fd);
    stop();
}

/* ---- refusals ---- */

TEST(http__other_methods_are_refused)
{
    static const char *const requests[] = {
        "POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n12345",
        "DELETE /hello HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n",
    };
    start(0);
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        int fd = dial();
        tell(fd, requests[i]);
        CHECK_U64(read_answer(fd, true), 405);
        CHECK(strstr(got, "\r\nAllow: GET, HEAD\r\n") != NULL);
        CHECK(strstr(got, "\r\nConnection: close\r\n") != NULL);
        CHECK(at_end(fd));
        close(fd);
    }
    CHECK_U64(site.answers, 0);
    stop();
}

/* Who is refused while still sending must get to read why, not a reset. */
TEST(http__a_refused_client_can_read_why)
{
    static char flood_of_bytes[2 * BIG];
    memset(flood_of_bytes, 'z', sizeof flood_of_bytes);
    start(0);
    int fd = dial();
    tell(fd,
         "POST /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2097152\r\n\r\n");
    CHECK(write(fd, flood_of_bytes, sizeof flood_of_bytes) ==
          (ssize_t)sizeof flood_of_bytes);
    CHECK_U64(read_answer(fd, true), 405);
    CHECK(at_end(fd));
    close(fd);
    stop();
}

TEST(http__what_is_not_a_request_is_refused)
{
    static const struct {
        int status;
        const char *request;
    } cases[] = {
        {400, "\x16\x03\x01\x02"},
        {400, "nonsense\r\n\r\n"},
        {400, "GET /hello HTTP/1.1\r\nHost : localhost\r\n\r\n"},
        {400, "GET http://localhost/hello HTTP/1.1\r\nHost: localhost\r\n\r\n"},
        {400, "GET /hello HTTP/1.1\r\n\r\n"},
        {400, "GET /hello HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n"},
        {413, "GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"},
        {413, "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {505, "GET /hello HTTP/2.0\r\nHost: localhost\r\n\r\n"},
    };
    start(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_U64(ask(cases[i].request), cases[i].status);
    }
    CHECK_U64(site.answers, 0);
    stop();
}

TEST(http__long_requests_are_refused)
{
    static char long_text[PK_HTTP_REQUEST_MAX + 100];
    static char request[2 * PK_HTTP_REQUEST_MAX];
    start(0);
    memset(long_text, 'a', sizeof long_text - 1);
    (void)snprintf(request, sizeof request,
                   "GET /hello HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n", long_text);
    CHECK_U64(ask(request), 431);
    (void)snprintf(request, sizeof request, "GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                   long_text);
    CHECK_U64(ask(request), 414);
    /* The longest that is allowed, to the byte, and one more. */
    size_t fixed = strlen("GET /hello HTTP/1.1\r\nHost: localhost\r\nX: \r\n\r\n");
    for (int over = 0; over < 2; over++) {
        (void)snprintf(request, sizeof request,
                       "GET /hello HTTP/1.1\r\nHost: localhost\r\nX: %.*s\r\n\r\n",
                       (int)(PK_HTTP_REQUEST_MAX - fixed) + over, long_text);
        CHECK_U64(ask(request), over ? 431 : 200);
    }
    stop();
}

TEST(http__other_peoples_names_are_refused)
{
    static const char *const good[] = {
        "localhost", "LocalHost:80",        "127.0.0.1",      "127.0.0.1:7070", "[::1]",
        "[::1]:80",  "node1.internal:7070", "NODE1.Internal", "10.1.2.3",
    };
    static const char *const bad[] = {
        "evil.example",
        "evil.example:7070",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::1].evil.example",
        "[::1",
        "[127.0.0.1]",
        "localhost:80:80",
        "localhost:port",
        "",
        "node1.internalx",
        "user@localhost",
    };
    start(0);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_U64(ask_host(good[i]), 200);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_U64(ask_host(bad[i]), 421);
    }
    char host[400];
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    CHECK_U64(ask_host(host), 421);
    CHECK_U64(site.answers, sizeof good / sizeof good[0]);
    stop();
}

TEST(http__requests_of_other_pages_are_refused)
{
    start(0);
    CHECK_U64(ask("GET /hello HTTP/1.1\r\nHost: localhost\r\n"
                  "Origin: http://evil.example\r\n\r\n"),
              403);
    CHECK_U64(ask("GET /hello HTTP/1.1\r\noRiGiN:\r\nHost: localhost\r\n\r\n"), 403);
    CHECK_U64(site.answers, 0);
    CHECK_U64(ask("GET /hello HTTP/1.1\r\nHost: localhost\r\nX-Origin: a\r\n\r\n"), 200);
    stop();
}

/* ---- bounds ---- */

TEST(http__a_slow_request_is_ended)
{
    start(50);
    int fd = dial();
    tell(fd, "GET /hello HTTP/1.1\r\n");
    CHECK_U64(read_answer(fd, true), 408);
    CHECK(at_end(fd));
    close(fd);
    fd = dial(); /* a byte now and then does not help */
    const char drip[] = "X: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";
    tell(fd, "GET /hello HTTP/1.1\r\n");
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (size_t i = 0; poll(&p, 1, 5) == 0; i++) {
        CHECK(i < GIVE_UP_S * 200);
        CHECK(write(fd, &drip[i % (sizeof drip - 1)], 1) == 1);
    }
    CHECK_U64(read_answer(fd, true), 408);
    close(fd);
    stop();
}

TEST(http__an_idle_connection_is_ended_without_a_word)
{
    start(50);
    int fd = dial();
    read_to_end(fd);
    CHECK_U64(got_len, 0);
    close(fd);
    fd = dial();
    tell(fd, GET("/hello"));
    CHECK_U64(read_answer(fd, true), 200);
    CHECK(at_end(fd));
    close(fd);
    stop();
}

TEST(http__too_many_connections_are_turned_away)
{
    int fds[PK_HTTP_CONNECTIONS_MAX];
    start(0);
    for (int i = 0; i < PK_HTTP_CONNECTIONS_MAX; i++) {
        fds[i] = dial();
        tell(fds[i], GET("/hello"));
        CHECK_U64(read_answer(fds[i], true), 200); /* it is in */
    }
    int fd = dial();
    CHECK_U64(read_answer(fd, true), 503);
    CHECK_STR(body_of_answer(), "too many connections\n");
    CHECK(strstr(got, "\r\nContent-Security-Policy: default-src 'none';") != NULL);
    CHECK(at_end(fd));
    close(fd);
    tell(fds[7], GET("/hello")); /* the others don't suffer */
    CHECK_U64(read_answer(fds[7], true), 200);
    close(fds[3]);
    WAIT((fds[3] = dial(), tell(fds[3], GET("/hello")),
          read_answer(fds[3], true) == 200) ||
         (close(fds[3]), false));
    for (int i = 0; i < PK_HTTP_CONNECTIONS_MAX; i++) {
        close(fds[i]);
    }
    stop();
}

/* All places are taken by clients that ask and never read. They lose them. */
TEST(http__clients_that_never_read_are_ended)
{
    int fds[PK_HTTP_CONNECTIONS_MAX];
    start(50);
    for (int i = 0; i < PK_HTTP_CONNECTIONS_MAX; i++) {
        fds[i] = dial_with(4096);
        tell(fds[i], GET("/big") GET("/big") GET("/big"));
    }
    int fd = -1;
    WAIT((fd = dial(), tell(fd, GET("/hello")), read_answer(fd, true) == 200) ||
         (close(fd), false));
    close(fd);
    /* One answer at a time: nobody's second was even made. */
    CHECK(site.answers <= PK_HTTP_CONNECTIONS_MAX + 1);
    for (int i = 0; i < PK_HTTP_CONNECTIONS_MAX; i++) {
        close(fds[i]);
    }
    stop();
}

TEST(http__an_answer_above_the_bound_is_not_sent)
{
    start(0);
    CHECK_U64(ask(GET("/too-big")), 500);
    stop();
}

/* ---- answers that go on ---- */

TEST(http__a_stream_goes_on_until_it_is_ended)
{
    start(50); /* which a quiet stream survives */
    int fd = dial();
    tell(fd, GET("/stream"));
    CHECK_U64(read_answer(fd, false), 200);
    CHECK(strstr(got, "\r\nContent-Type: text/event-stream\r\n") != NULL);
    CHECK(strstr(got, "\r\nContent-Length:") == NULL);
    CHECK_U64(ask(GET("/send?second")), 200);
    CHECK_STR(body_of_answer(), "sent\n");
    for (int i = 0; i < 10; i++) {
        int idle = dial(); /* each of these waits for a whole request_ms */
        CHECK(at_end(idle));
        close(idle);
    }
    CHECK_U64(site.gone, 0);
    tell(fd, "this is not for anybody");
    CHECK_U64(ask(GET("/send?third")), 200);
    CHECK_U64(ask(GET("/end")), 200);
    read_to_end(fd);
    CHECK_STR(got, "first\nsecondthird");
    WAIT(site.gone == 1);
    CHECK_U64(ask(GET("/send?late")), 200);
    CHECK_STR(body_of_answer(), "not sent\n");
    close(fd);
    stop();
    CHECK_U64(site.gone, 1);
}

TEST(http__a_stream_notices_that_its_client_is_gone)
{
    start(0);
    int fd = dial();
    tell(fd, GET("/stream"));
    CHECK_U64(read_answer(fd, false), 200);
    close(fd);
    WAIT(site.gone == 1);
    stop();
    CHECK_U64(site.gone, 1);
}

/* What a client leaves untaken is bounded, whatever is sent to it. */
TEST(http__a_stream_that_nobody_reads_is_ended)
{
    start(0);
    int fd = dial_with(4096);
    tell(fd, GET("/stream"));
    CHECK_U64(read_answer(fd, false), 200);
    CHECK_U64(ask(GET("/flood")), 200);
    long taken = strtol(body_of_answer(), NULL, 10);
    CHECK(taken > 0);
    /* The bound, and what the kernel may have taken at once. */
    CHECK(taken <= (PK_HTTP_UNSENT_MAX + BIG) / 65536);
    WAIT(site.gone == 1);
    close(fd);
    stop();
    CHECK_U64(site.gone, 1);
}

/* A stream that has something to send but nobody who takes it loses its place, too. */
TEST(http__a_stuck_stream_is_ended)
{
    start(50);
    int fd = dial_with(4096);
    tell(fd, GET("/stream"));
    CHECK_U64(read_answer(fd, false), 200);
    static char request[8000];
    (void)snprintf(request, sizeof request,
                   "GET /send?%07000d HTTP/1.1\r\nHost: localhost\r\n\r\n", 0);
    for (int i = 0; i < 100 && site.gone == 0; i++) { /* far below the bound */
        CHECK_U64(ask(request), 200);
    }
    WAIT(site.gone == 1);
    close(fd);
    stop();
}

TEST(http__streams_leave_room_for_others)
{
    int fds[PK_HTTP_STREAMS_MAX];
    start(0);
    for (int i = 0; i < PK_HTTP_STREAMS_MAX; i++) {
        fds[i] = dial();
        tell(fds[i], GET("/stream"));
        CHECK_U64(read_answer(fds[i], false), 200);
    }
    CHECK_U64(ask(GET("/stream")), 503);
    CHECK_U64(ask(GET("/hello")), 200);
    close(fds[0]);
    WAIT(site.gone == 1);
    CHECK_U64(ask(GET("/stream")), 200);
    stop(); /* with streams open: each is told once */
    CHECK_U64(site.gone, PK_HTTP_STREAMS_MAX + 1);
    for (int i = 1; i < PK_HTTP_STREAMS_MAX; i++) {
        CHECK(!at_end(fds[i])); /* "first" is still to be read */
        close(fds[i]);
    }
}

/* HEAD of a stream has its headers and ends. */
TEST(http__head_does_not_begin_a_stream)
{
    start(0);
    int fd = dial();
    tell(fd, "HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
    read_to_end(fd);
    CHECK_STR(body_of_answer(), "");
    close(fd);
    WAIT(site.gone == 1);
    stop();
}

TEST(http__says_why_it_cannot_listen)
{
    const char *why;
    char listen[64];
    uv_loop_t loop;
    start(0);
    CHECK(uv_loop_init(&loop) == 0);
    (void)snprintf(listen, sizeof listen, "127.0.0.1:%u", (unsigned)site.port);
    struct pk_http_options o = {.loop = &loop, .listen = listen, .get = get};
    CHECK(pk_http_new(&o, &why) == NULL);
    CHECK_STR(why, "address already in use");
    o.listen = "nonsense";
    CHECK(pk_http_new(&o, &why) == NULL);
    CHECK(why != NULL && why[0] != '\0');
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop) == 0);
    stop();
}
