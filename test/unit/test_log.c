/* SPDX-License-Identifier: MIT */
/* The log writes to standard error, so each test puts something of its own there. */
#include "server/log.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/utf8.h"
#include "tap.h"

static int saved = -1;  /* the real standard error */
static int reader = -1; /* the other end of ours */
static char got[1 << 20];
static size_t got_len;

static void put_there(int fd, int other)
{
    saved = saved >= 0 ? saved : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    CHECK(saved >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    close(fd);
    reader = other;
    got_len = 0;
}

static void capture(bool json)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    put_there(fds[1], fds[0]);
    pk_log_open(PK_LOG_INFO, json);
}

/* Takes in all that is there now. */
static void drain(void)
{
    struct pollfd p = {.fd = reader, .events = POLLIN};
    while (poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0) {
        ssize_t n = read(reader, got + got_len, sizeof got - 1 - got_len);
        if (n <= 0) {
            break;
        }
        got_len += (size_t)n;
    }
    got[got_len] = '\0';
}

static void release(void)
{
    drain();
    CHECK(dup2(saved, STDERR_FILENO) == STDERR_FILENO);
    close(reader);
}

/* What stands behind the time, whose form is checked. */
static const char *after_time(bool json)
{
    const char *form =
        json ? "{\"ts\":\"dddd-dd-ddTdd:dd:dd.dddZ\"," : "ts=dddd-dd-ddTdd:dd:dd.dddZ ";
    size_t len = strlen(form);
    CHECK(got_len > len);
    for (size_t i = 0; i < len; i++) {
        bool digit = got[i] >= '0' && got[i] <= '9';
        CHECK(form[i] == 'd' ? digit : got[i] == form[i]);
    }
    return got + len;
}

TEST(log__writes_one_line_of_fields)
{
    capture(false);
    pk_log(PK_LOG_INFO, "leader", "term", pk_log_u64(4), "node", "n1", NULL);
    release();
    CHECK_STR(after_time(false), "level=info event=leader term=4 node=n1\n");
}

TEST(log__writes_one_json_object_per_line)
{
    capture(true);
    pk_log(PK_LOG_WARN, "slow", "term", pk_log_u64(4), "node", "n1", NULL);
    release();
    CHECK_STR(after_time(true),
              "\"level\":\"warn\",\"event\":\"slow\",\"term\":4,\"node\":\"n1\"}\n");
}

/* A lock that is called "7" is no number, and a number that JSON readers would round is
 * a string. */
TEST(log__json_numbers_are_those_that_are_numbers)
{
    capture(true);
    pk_log(PK_LOG_INFO, "e", "a", "7", "b", pk_log_u64(9007199254740991), "c",
           pk_log_u64(9007199254740992), "d", pk_log_u64(0), NULL);
    release();
    CHECK_STR(strstr(got, "\"a\""),
              "\"a\":\"7\",\"b\":9007199254740991,\"c\":\"9007199254740992\",\"d\":0}\n");
}

TEST(log__quotes_what_is_not_plain)
{
    capture(false);
    pk_log(PK_LOG_INFO, "e", "a", "", "b", "two words", "c", "x=y", "d", "\"\\", "e",
           "na\xc3\xafve", NULL);
    release();
    CHECK_STR(strstr(got, " a="), " a=\"\" b=\"two words\" c=\"x=y\" d=\"\\\"\\\\\" "
                                  "e=na\xc3\xafve\n");
}

/* Newlines, terminal escapes, NUL, broken UTF-8 and a C1 control: all on one line, all
 * printable, in both forms. */
TEST(log__hostile_bytes_stay_in_their_line)
{
    static const char hostile[] =
        "a\nlevel=error\x1b[2J\0\xff\xc2\x9b\xf0\x9f\x94\x92\x7f";
    for (int json = 0; json < 2; json++) {
        capture(json == 1);
        pk_log(PK_LOG_INFO, "e", "lock", pk_log_bytes(hostile, sizeof hostile - 1), NULL);
        release();
        CHECK(pk_utf8_printable(pk_bytes(got, got_len - 1), false));
        CHECK(got[got_len - 1] == '\n');
        CHECK_STR(strstr(got, "lock") + (json ? 6 : 5),
                  json ? "\"a\\nlevel=error\\u001b[2J\xef\xbf\xbd\\ufffd\\ufffd\\ufffd"
                         "\xf0\x9f\x94\x92\\u007f\"}\n"
                       : "\"a\\nlevel=error\\u001b[2J\xef\xbf\xbd\\ufffd\\ufffd\\ufffd"
                         "\xf0\x9f\x94\x92\\u007f\"\n");
    }
}

/* Every byte there is, at every place of a value, keeps a line a line. */
TEST(log__no_byte_breaks_a_line)
{
    for (int byte = 1; byte < 256; byte++) {
        char value[] = {'a', (char)byte, (char)byte, 'b', '\0'};
        capture(byte % 2 == 1);
        pk_log(PK_LOG_INFO, "e", "v", value, "w", value + 1, NULL);
        release();
        CHECK(strchr(got, '\n') == got + got_len - 1);
        CHECK(pk_utf8_printable(pk_bytes(got, got_len - 1), false));
    }
}

TEST(log__leaves_out_what_is_not_wanted)
{
    capture(false);
    pk_log_open(PK_LOG_WARN, false);
    pk_log(PK_LOG_INFO, "no", NULL);
    pk_log(PK_LOG_DEBUG, "no", NULL);
    pk_log(PK_LOG_ERROR, "yes", NULL);
    release();
    CHECK(!pk_log_wants(PK_LOG_INFO) && pk_log_wants(PK_LOG_WARN));
    CHECK_STR(after_time(false), "level=error event=yes\n");
}

/* A long value is cut and says so; fields for which there is no room are left out whole.
 * A line never has more bytes than a pipe takes in one piece. */
TEST(log__a_line_is_bounded)
{
    static char most[3 * PK_LOG_LINE_MAX];
    for (size_t len = PK_LOG_LINE_MAX - 200; len < PK_LOG_LINE_MAX + 50; len++) {
        memset(most, '\n', sizeof most); /* two bytes each, when written */
        most[len % 2 == 0 ? len : len / 2] = '\0';
        for (int json = 0; json < 2; json++) {
            capture(json == 1);
            pk_log(PK_LOG_INFO, "e", "long", most, "short", "x", NULL);
            release();
            CHECK(got_len <= PK_LOG_LINE_MAX);
            CHECK(strchr(got, '\n') == got + got_len - 1);
            bool whole = strstr(got, json ? "\"short\":\"x\"}" : " short=x") != NULL;
            bool cut = strstr(got, json ? "...\"}\n" : "...\"\n") != NULL;
            bool neither = strstr(got, json ? "\\n\"}\n" : "\\n\"\n") != NULL;
            CHECK(whole + cut + neither == 1);
        }
    }
}

TEST(log__long_bytes_are_cut)
{
    char name[2 * PK_LOG_TEXT_MAX];
    memset(name, 'n', sizeof name);
    const char *shown = pk_log_bytes(name, sizeof name);
    CHECK_U64(strlen(shown), PK_LOG_TEXT_MAX - 1);
    CHECK_STR(shown + PK_LOG_TEXT_MAX - 4, "...");
    CHECK_U64(strlen(pk_log_bytes(name, 255)), 255);
}

/* As many values as are promised live at once. */
TEST(log__values_live_until_the_end_of_the_line)
{
    const char *numbers[PK_LOG_NUMBERS], *texts[PK_LOG_TEXTS];
    for (unsigned i = 0; i < PK_LOG_NUMBERS; i++) {
        numbers[i] = pk_log_u64(i + 100);
    }
    for (unsigned i = 0; i < PK_LOG_TEXTS; i++) {
        texts[i] = pk_log_bytes(&"abcdefgh"[i], 1);
    }
    CHECK_STR(numbers[0], "100");
    CHECK_STR(numbers[PK_LOG_NUMBERS - 1], "115");
    CHECK_STR(texts[0], "a");
    CHECK_STR(texts[PK_LOG_TEXTS - 1], "h");
}

/* A pipe that nobody reads: the call returns, and what is lost is counted and told. */
TEST(log__drops_and_counts_when_nobody_reads)
{
    capture(false);
    CHECK(fcntl(reader, F_SETPIPE_SZ, 8192) >= 8192);
    uint64_t before = pk_log_dropped();
    for (int i = 0; i < 1000; i++) {
        pk_log(PK_LOG_INFO, "flood", "i", pk_log_u64((uint64_t)i), NULL);
    }
    uint64_t dropped = pk_log_dropped() - before;
    CHECK(dropped > 0 && dropped < 1000);
    CHECK((fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) == 0);
    drain();
    size_t lines = 0;
    for (size_t i = 0; i < got_len; i++) {
        lines += got[i] == '\n';
    }
    CHECK_U64(lines + dropped, 1000);
    got_len = 0;
    pk_log(PK_LOG_INFO, "back", NULL);
    pk_log(PK_LOG_INFO, "again", NULL);
    release();
    char told[64];
    (void)snprintf(told, sizeof told, "event=back dropped=%llu\n",
                   (unsigned long long)dropped);
    CHECK(strstr(got, told) != NULL);
    CHECK(strstr(got, "event=again\n") != NULL);
}

/* A pipe whose reader is gone must not end the process by SIGPIPE. */
TEST(log__survives_a_reader_that_is_gone)
{
    int fds[2];
    CHECK(pipe(fds) == 0);
    put_there(fds[1], dup(fds[0]));
    close(fds[0]);
    close(reader);
    reader = -1;
    uint64_t before = pk_log_dropped();
    pk_log(PK_LOG_ERROR, "nobody", NULL);
    CHECK(dup2(saved, STDERR_FILENO) == STDERR_FILENO);
    CHECK_U64(pk_log_dropped(), before + 1);
}

/* Both ends of a connection with small buffers. */
static void connection(int fds[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    int least = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &least, sizeof least) == 0);
    CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
    CHECK(connect(fds[1], (struct sockaddr *)&at, len) == 0);
    fds[0] = accept(listener, NULL, NULL);
    CHECK(fds[0] >= 0);
    close(listener);
}

/* A socket may take a part of a line: the next one begins on a line of its own. */
TEST(log__a_torn_line_does_not_join_the_next)
{
    int fds[2];
    connection(fds);
    put_there(fds[1], fds[0]);
    pk_log_open(PK_LOG_INFO, false);
    char value[PK_LOG_LINE_MAX - 200];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    uint64_t before = pk_log_dropped();
    for (int i = 0; i < 100 && pk_log_dropped() == before; i++) {
        pk_log(PK_LOG_INFO, "big", "value", value, NULL);
    }
    CHECK(pk_log_dropped() > before);
    /* Until all that was sent has come over: the last byte shows whether it was torn. */
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    while (poll(&p, 1, 10) == 0) {
        drain();
    }
    pk_log(PK_LOG_INFO, "after", NULL);
    CHECK(shutdown(STDERR_FILENO, SHUT_WR) == 0);
    ssize_t n;
    while ((n = read(reader, got + got_len, sizeof got - 1 - got_len)) > 0) {
        got_len += (size_t)n;
    }
    release();
    const char *after = strstr(got, " event=after dropped=");
    CHECK(after != NULL);
    for (const char *line = got; line != NULL && *line != '\0';) {
        CHECK(strncmp(line, "ts=", 3) == 0);
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    /* Else this test shows nothing: the line before is only a piece. */
    while (*--after != '\n') {
    }
    CHECK(after[-1] == 'v');
}
