/* SPDX-License-Identifier: MIT */
#include "server/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/door.h"
#include "core/utf8.h"

/* A pipe takes so much whole or not at all, and has room for it when it says it has room
 * (POLLOUT): the promise never to wait rests on it. */
_Static_assert(PK_LOG_LINE_MAX <= PIPE_BUF, "a line fits a pipe's unit");

enum {
    CUT = 3,                              /* of "...", which ends a value that was cut */
    BODY_MAX = PK_LOG_LINE_MAX - CUT - 3, /* the rest is for a quote, '}' and the end */
};

struct line {
    char data[PK_LOG_LINE_MAX];
    size_t len;
    bool json, full;
};

static struct {
    enum pk_log_level most;
    bool json;
    bool torn;                /* the last line went out in part */
    uint64_t dropped, unsaid; /* unsaid: since the last line that got through */
    char numbers[PK_LOG_NUMBERS + 1][24]; /* and one for the count of dropped lines */
    char texts[PK_LOG_TEXTS][PK_LOG_TEXT_MAX];
    unsigned next_number, next_text;
} state = {.most = PK_LOG_INFO};

void pk_log_open(enum pk_log_level most, bool json)
{
    state.most = most;
    state.json = json;
}

bool pk_log_wants(enum pk_log_level level)
{
    return level <= state.most;
}

uint64_t pk_log_dropped(void)
{
    return state.dropped;
}

/* ---- values ---- */

const char *pk_log_u64(uint64_t v)
{
    char *at = state.numbers[state.next_number++ % (PK_LOG_NUMBERS + 1)];
    (void)snprintf(at, sizeof state.numbers[0], "%" PRIu64, v);
    return at;
}

/* Where the value comes from tells whether it is a number: a lock called "7" is none. */
static bool is_number(const char *value)
{
    uintptr_t at = (uintptr_t)value, first = (uintptr_t)state.numbers;
    return at >= first && at < first + sizeof state.numbers;
}

const char *pk_log_bytes(const void *data, unsigned long len)
{
    static const char replacement[] = "\xef\xbf\xbd"; /* for a NUL, which would end it */
    char *out = state.texts[state.next_text++ % PK_LOG_TEXTS];
    size_t n = 0;
    size_t most = PK_LOG_TEXT_MAX - CUT - 1;
    const char *from = data;
    for (unsigned long i = 0; i < len; i++) {
        size_t need = from[i] == '\0' ? sizeof replacement - 1 : 1;
        if (n + need > most) {
            memcpy(out + n, "...", CUT);
            n += CUT;
            break;
        }
        memcpy(out + n, from[i] == '\0' ? replacement : &from[i], need);
        n += need;
    }
    out[n] = '\0';
    return out;
}

/* ---- a line ---- */

/* Adds the piece, or nothing of it and nothing after it. */
static void put(struct line *l, const char *piece, size_t len)
{
    if (l->full || l->len + len > BODY_MAX) {
        l->full = true;
        return;
    }
    memcpy(l->data + l->len, piece, len);
    l->len += len;
}

/* For what there is always room left. */
static void put_last(struct line *l, const char *piece)
{
    size_t len = strlen(piece);
    PK_ASSERT(len <= sizeof l->data - l->len);
    memcpy(l->data + l->len, piece, len);
    l->len += len;
}

/* One character at `at`, of which `left` bytes are there: as it is if it can stand in a
 * quoted string, else escaped. Returns the bytes it took. */
static size_t put_character(struct line *l, const char *at, size_t left)
{
    unsigned char lead = (unsigned char)*at;
    size_t n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    char escape[8];
    if (lead == '"' || lead == '\\') {
        put(l, (char[]){'\\', *at}, 2);
    } else if (n <= left && pk_utf8_printable(pk_bytes(at, n), false)) {
        put(l, at, n);
        return n;
    } else if (lead == '\n') {
        put(l, "\\n", 2);
    } else {
        /* Not text, or a control character of two bytes: either is no byte to show. */
        unsigned shown = lead < 0x80 ? lead : 0xfffd;
        put(l, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", shown));
    }
    return 1;
}

/* False: there was no room for it at all. A value that is too long is cut. */
static bool put_quoted(struct line *l, const char *value)
{
    put(l, "\"", 1);
    if (l->full) {
        return false;
    }
    size_t left = strlen(value);
    while (left > 0 && !l->full) {
        size_t n = put_character(l, value, left);
        value += n;
        left -= n;
    }
    put_last(l, l->full ? "...\"" : "\"");
    return true;
}

static bool put_bare(struct line *l, const char *value)
{
    put(l, value, strlen(value));
    return !l->full;
}

static bool plain(const char *value)
{
    return *value != '\0' && strlen(value) < PK_LOG_TEXT_MAX &&
           strpbrk(value, " \"\\=") == NULL && pk_utf8_printable(pk_text(value), false);
}

static bool exact_number(const char *value)
{
    static const char most[] = "9007199254740991"; /* 2^53 - 1 */
    size_t len = strlen(value);
    return is_number(value) && (len < sizeof most - 1 ||
                                (len == sizeof most - 1 && strcmp(value, most) <= 0));
}

static void put_field(struct line *l, const char *name, const char *value)
{
    size_t before = l->len;
    if (l->json) {
        put(l, before == 0 ? "{\"" : ",\"", 2);
        put(l, name, strlen(name));
        put(l, "\":", 2);
    } else {
        put(l, " ", before == 0 ? 0 : 1);
        put(l, name, strlen(name));
        put(l, "=", 1);
    }
    bool bare = l->json ? exact_number(value) : plain(value);
    if (!(bare ? put_bare(l, value) : put_quoted(l, value))) {
        l->len = before; /* a name without its value is worse than neither */
    }
}

static void put_time(struct line *l)
{
    struct timespec t;
    struct tm at;
    char text[40];
    PK_ASSERT(clock_gettime(CLOCK_REALTIME, &t) == 0);
    PK_ASSERT(gmtime_r(&t.tv_sec, &at) != NULL);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &at);
    (void)snprintf(text + n, sizeof text - n, ".%03ldZ", t.tv_nsec / 1000000);
    put_field(l, "ts", text);
}

/* ---- the way out ---- */

/* What standard error takes of it now; -1: nothing. */
static ssize_t push(const char *data, size_t len)
{
    ssize_t n = send(STDERR_FILENO, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0 || errno != ENOTSOCK) {
        return n;
    }
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    /* Without a reader, a pipe has an error beside POLLOUT: writing would be SIGPIPE. */
    if (poll(&p, 1, 0) != 1 || p.revents != POLLOUT) {
        return -1;
    }
    return write(STDERR_FILENO, data, len);
}

static bool send_line(const struct line *l)
{
    if (state.torn) {
        /* End the piece of a line that is out there: two lines never become one. */
        state.torn = push("\n", 1) != 1;
    }
    ssize_t n = state.torn ? -1 : push(l->data, l->len);
    state.torn = state.torn || (n >= 0 && n < (ssize_t)l->len);
    return n == (ssize_t)l->len;
}

static void put_fields(struct line *l, va_list fields)
{
    const char *name;
    const char *value = "";
    while (value != NULL && (name = va_arg(fields, const char *)) != NULL) {
        value = va_arg(fields, const char *);
        put_field(l, name, value == NULL ? "" : value);
    }
}

void pk_log(enum pk_log_level level, const char *event, ...)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    if (!pk_log_wants(level)) {
        return;
    }
    struct line l;
    l.len = 0;
    l.json = state.json;
    l.full = false;
    put_time(&l);
    put_field(&l, "level", names[level]);
    put_field(&l, "event", event);
    if (state.unsaid > 0) {
        put_field(&l, "dropped", pk_log_u64(state.unsaid));
    }
    va_list fields;
    va_start(fields, event);
    put_fields(&l, fields);
    va_end(fields);
    put_last(&l, l.json ? "}\n" : "\n");
    bool through = send_line(&l);
    state.dropped += !through;
    state.unsaid = through ? 0 : state.unsaid + 1;
}
