/* SPDX-License-Identifier: MIT */
#include "proto/resp.h"

#include "core/door.h"

enum {
    FIRST_BYTES = 512,
    COUNT_DIGITS_MAX = 10, /* of a length or count: more is out of all bounds */
    WORD_LEAST = 6,        /* bytes of the shortest word of a request: $0 CRLF CRLF */
    VALUE_LEAST = 3,       /* bytes of the shortest value of a reply: _ CRLF */
};

/* What is still to be read. Every step checks that its bytes are there; when they are
 * not, `missing` says how many more it takes at least. */
struct scan {
    const char *at;
    const char *end;
    size_t missing;
};

static size_t left(const struct scan *s)
{
    return (size_t)(s->end - s->at);
}

static enum pk_resp_got more(struct scan *s, size_t missing)
{
    s->missing = missing;
    return PK_RESP_MORE;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A length or count with its CRLF; negative ones are all -1. */
static enum pk_resp_got scan_count(struct scan *s, int64_t *out)
{
    const char *at = s->at;
    bool negative = at < s->end && *at == '-';
    at += negative ? 1 : 0;
    const char *first = at;
    int64_t v = 0;
    for (; at < s->end && is_digit(*at); at++) {
        if (at - first == COUNT_DIGITS_MAX) {
            return PK_RESP_BAD;
        }
        v = 10 * v + (*at - '0');
    }
    if (at == s->end) {
        return more(s, 1);
    }
    if (at == first || *at != '\r') {
        return PK_RESP_BAD;
    }
    if (s->end - at < 2) {
        return more(s, 1);
    }
    if (at[1] != '\n') {
        return PK_RESP_BAD;
    }
    s->at = at + 2;
    *out = negative ? -1 : v;
    return PK_RESP_ONE;
}

/* `len` bytes and CRLF. */
static enum pk_resp_got scan_block(struct scan *s, size_t len, struct pk_bytes *out)
{
    if (left(s) < len + 2) {
        return more(s, len + 2 - left(s));
    }
    if (s->at[len] != '\r' || s->at[len + 1] != '\n') {
        return PK_RESP_BAD;
    }
    *out = pk_bytes(s->at, len);
    s->at += len + 2;
    return PK_RESP_ONE;
}

/* ---- requests ---- */

static enum pk_resp_got bad(const char **why, const char *sentence)
{
    *why = sentence;
    return PK_RESP_BAD;
}

static enum pk_resp_got scan_word(struct scan *s, struct pk_bytes *out, const char **why)
{
    int64_t len;
    if (s->at == s->end) {
        return more(s, WORD_LEAST);
    }
    if (*s->at++ != '$') {
        return bad(why, "a request is an array of bulk strings: '$' was expected");
    }
    enum pk_resp_got got = scan_count(s, &len);
    if (got == PK_RESP_ONE && (len < 0 || len > PK_RESP_REQUEST_MAX)) {
        got = PK_RESP_BAD;
    }
    if (got == PK_RESP_BAD) {
        return bad(why, "the length of a bulk string is not a number, or too large");
    }
    if (got == PK_RESP_ONE) {
        got = scan_block(s, (size_t)len, out);
    }
    if (got == PK_RESP_BAD) {
        return bad(why, "a bulk string does not end with CRLF where it should");
    }
    return got;
}

static enum pk_resp_got request_array(struct pk_bytes in, struct pk_bytes *args,
                                      uint32_t *n, size_t *used, const char **why)
{
    struct scan s = {.at = in.data + 1, .end = in.data + in.len};
    int64_t count = 0;
    enum pk_resp_got got = scan_count(&s, &count);
    if (got == PK_RESP_BAD || count > PK_RESP_ARGS_MAX) {
        return bad(why, "the number of words is not a number, or larger than 8300");
    }
    uint32_t words = count < 0 ? 0 : (uint32_t)count;
    uint32_t have = 0;
    while (got == PK_RESP_ONE && have < words) {
        got = scan_word(&s, &args[have], why);
        have += got == PK_RESP_ONE ? 1 : 0;
    }
    if (got == PK_RESP_BAD) {
        return got;
    }
    /* What is known to come counts at once: a request that is too large is refused
     * before its bytes are there. */
    size_t least = (size_t)(s.at - in.data);
    if (got == PK_RESP_MORE) {
        size_t later = have < words ? (size_t)(words - have - 1) * WORD_LEAST : 0;
        least = in.len + s.missing + later;
    }
    if (least > PK_RESP_REQUEST_MAX) {
        return bad(why, "the request is larger than 1200 KiB");
    }
    *n = got == PK_RESP_ONE ? words : 0;
    *used = least;
    return got;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool begins(struct pk_bytes b, const char *text)
{
    size_t len = strlen(text);
    return b.len >= len && memcmp(b.data, text, len) == 0;
}

/* Words typed by hand. A browser can be made to send an HTTP request here, with commands
 * in its body; its first line is recognised, so that nothing behind it is read. */
static enum pk_resp_got request_line(struct pk_bytes in, struct pk_bytes *args,
                                     uint32_t *n, size_t *used, const char **why)
{
    size_t most = in.len < PK_RESP_INLINE_MAX ? in.len : PK_RESP_INLINE_MAX;
    const char *newline = memchr(in.data, '\n', most);
    if (newline == NULL && in.len >= PK_RESP_INLINE_MAX) {
        return bad(why, "a typed line is longer than 4096 bytes");
    }
    if (newline == NULL) {
        *used = in.len + 1U;
        return PK_RESP_MORE;
    }
    *used = (size_t)(newline - in.data) + 1;
    const char *end = newline > in.data && newline[-1] == '\r' ? newline - 1 : newline;
    uint32_t words = 0;
    for (const char *at = in.data; at < end; at++) {
        if (is_blank(*at)) {
            continue;
        }
        const char *start = at;
        for (; at < end && !is_blank(*at); at++) {
            if ((unsigned char)*at < ' ') {
                return bad(why, "a typed line has a control character in it");
            }
        }
        args[words++] = pk_bytes(start, (size_t)(at - start));
    }
    if (words > 0 && begins(args[words - 1], "HTTP/")) {
        return bad(why, "this port speaks RESP, not HTTP");
    }
    *n = words;
    return PK_RESP_ONE;
}

/* A line has fewer words than fit, so neither form of a request can overrun `args`. */
_Static_assert(PK_RESP_INLINE_MAX / 2 <= PK_RESP_ARGS_MAX, "a line's words fit");

enum pk_resp_got pk_resp_request(struct pk_bytes in, struct pk_bytes *args, uint32_t *n,
                                 size_t *used, const char **why)
{
    *n = 0;
    *used = 1;
    *why = NULL;
    if (in.len == 0) {
        return PK_RESP_MORE;
    }
    return in.data[0] == '*' ? request_array(in, args, n, used, why)
                             : request_line(in, args, n, used, why);
}

/* ---- writing ---- */

void pk_resp_free(struct pk_resp_out *o)
{
    pk_door_resize(o->data, 0);
    *o = (struct pk_resp_out){.resp3 = o->resp3};
}

char *pk_resp_reserve(struct pk_resp_out *o, size_t more_bytes)
{
    PK_ASSERT(more_bytes <= SIZE_MAX / 4 && o->len <= SIZE_MAX / 4);
    if (o->data == NULL || o->capacity - o->len < more_bytes) {
        size_t capacity = o->capacity == 0 ? FIRST_BYTES : o->capacity;
        while (capacity - o->len < more_bytes) {
            capacity *= 2;
        }
        o->data = pk_door_resize(o->data, capacity);
        o->capacity = capacity;
    }
    return o->data + o->len;
}

void pk_resp_raw(struct pk_resp_out *o, const void *data, size_t len)
{
    if (len > 0) {
        memcpy(pk_resp_reserve(o, len), data, len);
        o->len += len;
    }
}

static void put_crlf(char *to)
{
    to[0] = '\r';
    to[1] = '\n';
}

/* A mark, a number and CRLF, at `to`; the bytes it took. */
static size_t put_header(char *to, char mark, uint64_t v)
{
    to[0] = mark;
    size_t n = pk_resp_digits(to + 1, v);
    put_crlf(to + 1 + n);
    return n + 3;
}

enum { HEADER_MAX = PK_RESP_DIGITS_MAX + 3 };

static void header(struct pk_resp_out *o, char mark, uint64_t v)
{
    o->len += put_header(pk_resp_reserve(o, HEADER_MAX), mark, v);
}

/* Text of one line: what would end it becomes a blank. */
static void line_text(struct pk_resp_out *o, const char *text)
{
    size_t len = strlen(text);
    char *to = pk_resp_reserve(o, len);
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '\r' || c == '\n') {
            c = ' ';
        }
        to[i] = c;
    }
    o->len += len;
}

void pk_resp_simple(struct pk_resp_out *o, const char *text)
{
    pk_resp_raw(o, "+", 1);
    line_text(o, text);
    pk_resp_raw(o, "\r\n", 2);
}

void pk_resp_error(struct pk_resp_out *o, const char *code, const char *text)
{
    pk_resp_raw(o, "-", 1);
    line_text(o, code);
    pk_resp_raw(o, " ", 1);
    line_text(o, text);
    pk_resp_raw(o, "\r\n", 2);
}

void pk_resp_int(struct pk_resp_out *o, uint64_t v)
{
    if (v <= INT64_MAX) {
        header(o, ':', v);
        return;
    }
    char room[PK_RESP_DIGITS_MAX];
    pk_resp_bulk(o, pk_bytes(room, pk_resp_digits(room, v)));
}

void pk_resp_signed(struct pk_resp_out *o, int64_t v)
{
    if (v >= 0) {
        header(o, ':', (uint64_t)v);
        return;
    }
    char room[PK_RESP_DIGITS_MAX];
    pk_resp_raw(o, ":-", 2);
    pk_resp_raw(o, room, pk_resp_digits(room, 0 - (uint64_t)v));
    pk_resp_raw(o, "\r\n", 2);
}

void pk_resp_bulk(struct pk_resp_out *o, struct pk_bytes b)
{
    char *start = pk_resp_reserve(o, HEADER_MAX + (size_t)b.len + 2);
    char *to = start + put_header(start, '$', b.len);
    if (b.len > 0) {
        memcpy(to, b.data, b.len);
    }
    put_crlf(to + b.len);
    o->len += (size_t)(to - start) + b.len + 2;
}

void pk_resp_text(struct pk_resp_out *o, const char *text)
{
    pk_resp_bulk(o, pk_text(text));
}

void pk_resp_null(struct pk_resp_out *o)
{
    if (o->resp3) {
        pk_resp_raw(o, "_\r\n", 3);
    } else {
        pk_resp_raw(o, "$-1\r\n", 5);
    }
}

void pk_resp_array(struct pk_resp_out *o, size_t n)
{
    header(o, '*', n);
}

void pk_resp_map(struct pk_resp_out *o, size_t pairs)
{
    header(o, o->resp3 ? '%' : '*', o->resp3 ? pairs : 2 * pairs);
}

void pk_resp_push(struct pk_resp_out *o, size_t n)
{
    header(o, o->resp3 ? '>' : '*', n);
}

/* ---- reading replies ---- */

/* A line up to its CRLF. */
static enum pk_resp_got scan_line(struct scan *s, struct pk_bytes *out)
{
    const char *newline = memchr(s->at, '\n', left(s));
    if (newline == NULL) {
        return more(s, 1);
    }
    if (newline == s->at || newline[-1] != '\r') {
        return PK_RESP_BAD;
    }
    *out = pk_bytes(s->at, (size_t)(newline - 1 - s->at));
    s->at = newline + 1;
    return PK_RESP_ONE;
}

static bool signed_number(struct pk_bytes b, int64_t *out)
{
    bool sign = b.len > 0 && (b.data[0] == '-' || b.data[0] == '+');
    bool negative = sign && b.data[0] == '-';
    uint64_t v;
    if (!pk_resp_number(pk_bytes(b.data + sign, b.len - sign), &v) ||
        v > (uint64_t)INT64_MAX + negative) {
        return false;
    }
    /* The least number has no positive twin. */
    *out = negative && v > 0 ? -(int64_t)(v - 1) - 1 : (int64_t)v;
    return true;
}

static enum pk_resp_got value_line(struct scan *s, char mark, struct pk_resp_value *v)
{
    enum pk_resp_got got = scan_line(s, &v->bytes);
    if (got != PK_RESP_ONE) {
        return got;
    }
    bool ok = true;
    switch (mark) {
    case '-':
        v->type = PK_RESP_ERROR;
        break;
    case ':':
        v->type = PK_RESP_INT;
        ok = signed_number(v->bytes, &v->number);
        break;
    case '#':
        v->type = PK_RESP_INT;
        ok = v->bytes.len == 1 && (v->bytes.data[0] == 't' || v->bytes.data[0] == 'f');
        v->number = ok && v->bytes.data[0] == 't';
        break;
    case '_':
        v->type = PK_RESP_NULL;
        ok = v->bytes.len == 0;
        break;
    default:
        v->type = PK_RESP_SIMPLE;
    }
    return ok ? PK_RESP_ONE : PK_RESP_BAD;
}

static enum pk_resp_got value_block(struct scan *s, char mark, struct pk_resp_value *v)
{
    enum { FORMAT_BYTES = 4 }; /* "txt:" before verbatim text */
    int64_t len;
    enum pk_resp_got got = scan_count(s, &len);
    if (got != PK_RESP_ONE) {
        return got;
    }
    if (len < 0 && mark == '$') {
        v->type = PK_RESP_NULL;
        return PK_RESP_ONE;
    }
    if (len < (mark == '=' ? FORMAT_BYTES : 0) || len > PK_RESP_REPLY_MAX) {
        return PK_RESP_BAD;
    }
    got = scan_block(s, (size_t)len, &v->bytes);
    v->type = mark == '!' ? PK_RESP_ERROR : PK_RESP_BULK;
    if (got == PK_RESP_ONE && mark == '=') {
        v->bytes = pk_bytes(v->bytes.data + FORMAT_BYTES, v->bytes.len - FORMAT_BYTES);
    }
    return got;
}

static enum pk_resp_got value_group(struct scan *s, char mark, struct pk_resp_value *v)
{
    int64_t n;
    enum pk_resp_got got = scan_count(s, &n);
    if (got != PK_RESP_ONE) {
        return got;
    }
    if (n < 0 && mark == '*') {
        v->type = PK_RESP_NULL;
        return PK_RESP_ONE;
    }
    if (n < 0 || n > PK_RESP_REPLY_MAX / VALUE_LEAST) {
        return PK_RESP_BAD;
    }
    v->type = mark == '%' ? PK_RESP_MAP : mark == '>' ? PK_RESP_PUSH : PK_RESP_ARRAY;
    v->n = (uint32_t)n;
    return PK_RESP_ONE;
}

/* One value without what is inside it. Attributes and streams are BAD: no server sends
 * them unasked. */
static enum pk_resp_got scan_value(struct scan *s, struct pk_resp_value *v)
{
    *v = (struct pk_resp_value){.type = PK_RESP_NULL};
    if (s->at == s->end) {
        return more(s, VALUE_LEAST);
    }
    char mark = *s->at++;
    switch (mark) {
    case '+':
    case '-':
    case ':':
    case '_':
    case '#':
    case ',':
    case '(':
        return value_line(s, mark, v);
    case '$':
    case '=':
    case '!':
        return value_block(s, mark, v);
    case '*':
    case '%':
    case '>':
    case '~':
        return value_group(s, mark, v);
    default:
        return PK_RESP_BAD;
    }
}

static uint64_t items_inside(const struct pk_resp_value *v)
{
    return v->type == PK_RESP_MAP ? 2 * (uint64_t)v->n : v->n;
}

enum pk_resp_got pk_resp_whole(struct pk_bytes in, size_t *used)
{
    *used = VALUE_LEAST;
    if (in.len == 0) {
        return PK_RESP_MORE;
    }
    struct scan s = {.at = in.data, .end = in.data + in.len};
    struct pk_resp_value v;
    uint64_t pending = 1;
    enum pk_resp_got got = PK_RESP_ONE;
    while (got == PK_RESP_ONE && pending > 0) {
        got = scan_value(&s, &v);
        pending += got == PK_RESP_ONE ? items_inside(&v) : 0;
        pending--;
    }
    uint64_t least = got == PK_RESP_ONE ? (uint64_t)(s.at - in.data)
                                        : in.len + s.missing + pending * VALUE_LEAST;
    *used = (size_t)least;
    return least > PK_RESP_REPLY_MAX ? PK_RESP_BAD : got;
}

struct pk_resp_value pk_resp_next(struct pk_resp_cursor *c)
{
    struct pk_resp_value v = {.type = PK_RESP_NULL};
    c->bad = c->bad || c->rest.len == 0;
    if (c->bad) {
        return v;
    }
    struct scan s = {.at = c->rest.data, .end = c->rest.data + c->rest.len};
    if (scan_value(&s, &v) != PK_RESP_ONE) {
        c->bad = true;
        return (struct pk_resp_value){.type = PK_RESP_NULL};
    }
    c->rest = pk_bytes(s.at, left(&s));
    return v;
}

void pk_resp_skip(struct pk_resp_cursor *c, const struct pk_resp_value *v)
{
    for (uint64_t pending = items_inside(v); pending > 0 && !c->bad; pending--) {
        struct pk_resp_value inner = pk_resp_next(c);
        pending += items_inside(&inner);
    }
}

/* ---- words ---- */

size_t pk_resp_digits(char *room, uint64_t v)
{
    char back[PK_RESP_DIGITS_MAX];
    size_t n = 0;
    do {
        back[PK_RESP_DIGITS_MAX - ++n] = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    memcpy(room, back + PK_RESP_DIGITS_MAX - n, n);
    return n;
}

bool pk_resp_number(struct pk_bytes b, uint64_t *out)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < b.len; i++) {
        unsigned digit = (unsigned)b.data[i] - '0';
        if (digit > 9 || v > (UINT64_MAX - digit) / 10) {
            return false;
        }
        v = 10 * v + digit;
    }
    *out = v;
    return b.len > 0;
}

static char folded(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return (char)(c | ('a' - 'A'));
    }
    return c;
}

bool pk_resp_is(struct pk_bytes b, const char *word)
{
    uint32_t i = 0;
    while (i < b.len && word[i] != '\0' && folded(b.data[i]) == folded(word[i])) {
        i++;
    }
    return i == b.len && word[i] == '\0';
}
