/* SPDX-License-Identifier: MIT */
#include "gate/head.h"

#include <http_parser.h>
#include <strings.h>

static bool refuse(struct pk_head *h, int status, const char *why)
{
    if (h->refusal == 0) {
        h->refusal = status;
        h->why = why;
    }
    return false;
}

/* ---- bytes ---- */

bool pk_head_is(struct pk_bytes b, const char *word)
{
    return b.len == strlen(word) && strncasecmp(b.data, word, b.len) == 0;
}

int pk_head_hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static struct pk_bytes trimmed(struct pk_bytes b)
{
    while (b.len > 0 && (b.data[0] == ' ' || b.data[0] == '\t')) {
        b.data++;
        b.len--;
    }
    while (b.len > 0 && (b.data[b.len - 1] == ' ' || b.data[b.len - 1] == '\t')) {
        b.len--;
    }
    return b;
}

/* The next of a comma-separated list, trimmed; false: that was all. */
static bool next_word(struct pk_bytes *list, struct pk_bytes *word)
{
    if (list->len == 0) {
        return false;
    }
    const char *comma = memchr(list->data, ',', list->len);
    size_t len = comma == NULL ? list->len : (size_t)(comma - list->data);
    *word = trimmed(pk_bytes(list->data, len));
    len += comma != NULL;
    *list = pk_bytes(list->data + len, list->len - len);
    return true;
}

static bool is_token(struct pk_bytes b)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (uint32_t i = 0; i < b.len; i++) {
        char c = b.data[i];
        bool plain =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!plain && (c == '\0' || strchr(others, c) == NULL)) {
            return false;
        }
    }
    return b.len > 0;
}

/* H1, all but what pk_head_scan has seen to. */
static bool lines_are_clean(struct pk_bytes b)
{
    for (uint32_t i = 0; i < b.len; i++) {
        unsigned char c = (unsigned char)b.data[i];
        if (c >= ' ' && c != 0x7f) {
            continue;
        }
        bool ends = c == '\r' && i + 1 < b.len && b.data[i + 1] == '\n';
        if (c == '\n' && i + 1 < b.len &&
            (b.data[i + 1] == ' ' || b.data[i + 1] == '\t')) {
            return false; /* a folded line */
        }
        if (!ends && c != '\n' && c != '\t') {
            return false;
        }
    }
    return true;
}

enum pk_scan pk_head_scan(const char *data, size_t len, size_t *at)
{
    while (*at < len) {
        const char *found = memchr(data + *at, '\n', len - *at);
        if (found == NULL) {
            *at = len;
            return PK_SCAN_MORE;
        }
        size_t i = (size_t)(found - data);
        if (i == 0 || data[i - 1] != '\r') {
            return PK_SCAN_BAD;
        }
        *at = i + 1;
        if (i >= 3 && data[i - 2] == '\n') {
            return PK_SCAN_WHOLE;
        }
    }
    return PK_SCAN_MORE;
}

/* ---- what http_parser finds ---- */

static struct pk_head *head_of(http_parser *p)
{
    return p->data;
}

static int on_url(http_parser *p, const char *at, size_t len)
{
    head_of(p)->target = pk_bytes(at, len);
    return 0;
}

static int on_status(http_parser *p, const char *at, size_t len)
{
    head_of(p)->reason = pk_bytes(at, len);
    return 0;
}

static const struct {
    const char *name;
    uint32_t len;
    bool hop, kept;
} known[] = {[PK_FIELD_OTHER] = {"", 0, false, false},
#define X(kind, name, hop, kept) [PK_FIELD_##kind] = {name, sizeof(name) - 1, hop, kept},
             PK_FIELDS(X)
#undef X
};

static enum pk_field_kind kind_of(struct pk_bytes name)
{
    for (size_t i = 1; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].len == name.len &&
            strncasecmp(known[i].name, name.data, name.len) == 0) {
            return (enum pk_field_kind)i;
        }
    }
    return PK_FIELD_OTHER;
}

static int on_field(http_parser *p, const char *at, size_t len)
{
    struct pk_head *h = head_of(p);
    if (h->n == PK_HEAD_FIELDS) {
        return refuse(h, 431, "a head has at most 100 fields") ? 0 : 1;
    }
    struct pk_bytes name = pk_bytes(at, len);
    enum pk_field_kind kind = kind_of(name);
    h->fields[h->n++] =
        (struct pk_field){.name = name, .kind = kind, .hop = known[kind].hop};
    return is_token(name) && at[len] == ':' ? 0 : 1;
}

static int on_value(http_parser *p, const char *at, size_t len)
{
    struct pk_head *h = head_of(p);
    h->fields[h->n - 1].value = trimmed(pk_bytes(at, len));
    return 0;
}

static int on_headers_complete(http_parser *p)
{
    (void)p;
    return 1; /* bodies are read by body.h */
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_status = on_status,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers_complete,
};

static bool split(struct pk_head *h, struct pk_bytes bytes, http_parser *p,
                  enum http_parser_type type)
{
    memset(h, 0, offsetof(struct pk_head, fields));
    h->refusal = 0;
    h->why = "";
    http_parser_init(p, type);
    p->data = h;
    if (!lines_are_clean(bytes)) {
        return refuse(h, 400, "control characters and folded lines are not taken");
    }
    size_t used = http_parser_execute(p, &settings, bytes.data, bytes.len);
    enum http_errno failed = HTTP_PARSER_ERRNO(p);
    if (failed != HPE_OK || used != bytes.len) {
        return refuse(h, 400,
                      failed == HPE_OK || failed == HPE_CB_header_field
                          ? "not a head of HTTP/1"
                          : http_errno_description(failed));
    }
    h->minor = p->http_minor;
    if (p->http_major != 1 || p->http_minor > 1) {
        return refuse(h, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    }
    return true;
}

/* ---- what the fields say ---- */

const struct pk_field *pk_head_field(const struct pk_head *h, enum pk_field_kind kind,
                                     size_t *n)
{
    const struct pk_field *found = NULL;
    size_t count = 0;
    for (size_t i = 0; i < h->n; i++) {
        if (h->fields[i].kind == kind) {
            found = found == NULL ? &h->fields[i] : found;
            count++;
        }
    }
    if (n != NULL) {
        *n = count;
    }
    return found;
}

const char *pk_head_method(const struct pk_head *h)
{
    return http_method_str((enum http_method)h->method);
}

/* A field that Connection names belongs to this connection only (H6). */
static bool mark_named(struct pk_head *h, struct pk_bytes word)
{
    for (size_t i = 0; i < h->n; i++) {
        struct pk_field *f = &h->fields[i];
        if (f->name.len == word.len &&
            strncasecmp(f->name.data, word.data, word.len) == 0) {
            if (known[f->kind].kept) {
                return refuse(h, 400, "Connection names a field that must be passed on");
            }
            f->hop = true;
        }
    }
    return true;
}

static bool read_connection(struct pk_head *h)
{
    bool close = false, keep = false;
    for (size_t i = 0; i < h->n; i++) {
        struct pk_bytes list = h->fields[i].value, word;
        if (h->fields[i].kind != PK_FIELD_CONNECTION) {
            continue;
        }
        while (next_word(&list, &word)) {
            close = close || pk_head_is(word, "close");
            keep = keep || pk_head_is(word, "keep-alive");
            if (!mark_named(h, word)) {
                return false;
            }
        }
    }
    h->keep_alive = !close && (h->minor > 0 || keep);
    return true;
}

static bool read_length(struct pk_head *h, const struct pk_field *f)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < f->value.len; i++) {
        char c = f->value.data[i];
        if (c < '0' || c > '9' || v > (UINT64_MAX - 9) / 10) {
            return refuse(h, 400, "Content-Length is not a number of bytes");
        }
        v = v * 10 + (uint64_t)(c - '0');
    }
    h->length = v;
    h->has_length = true;
    return f->value.len > 0 || refuse(h, 400, "Content-Length is not a number of bytes");
}

/* H4 */
static bool read_framing(struct pk_head *h)
{
    size_t lengths, codings;
    const struct pk_field *length = pk_head_field(h, PK_FIELD_CONTENT_LENGTH, &lengths);
    const struct pk_field *coding =
        pk_head_field(h, PK_FIELD_TRANSFER_ENCODING, &codings);
    if (lengths + codings > 1) {
        return refuse(h, 400, "a message has one length, and says it once");
    }
    if (coding != NULL && h->minor == 0) {
        return refuse(h, 400, "HTTP/1.0 has no Transfer-Encoding");
    }
    if (coding != NULL && !pk_head_is(coding->value, "chunked")) {
        return refuse(h, 501, "the only Transfer-Encoding taken is chunked");
    }
    if (length != NULL && !read_length(h, length)) {
        return false;
    }
    h->framing = coding != NULL                ? PK_FRAMING_CHUNKED
                 : length != NULL && h->length ? PK_FRAMING_LENGTH
                                               : PK_FRAMING_NONE;
    return true;
}

static bool read_expect(struct pk_head *h)
{
    size_t n;
    const struct pk_field *f = pk_head_field(h, PK_FIELD_EXPECT, &n);
    if (f == NULL || h->minor == 0) {
        return true; /* HTTP/1.0 can't be told to go on, and is not waiting for it */
    }
    h->expects = n == 1 && pk_head_is(f->value, "100-continue");
    return h->expects || refuse(h, 417, "the only expectation met is 100-continue");
}

/* H2: http_parser takes more than this. */
static bool check_request_line(struct pk_head *h, struct pk_bytes bytes)
{
    const char *end = memchr(bytes.data, '\r', bytes.len);
    size_t method = strlen(pk_head_method(h));
    size_t line = (size_t)(end - bytes.data);
    if (line != method + 1 + h->target.len + 1 + strlen("HTTP/1.1") ||
        h->target.data != bytes.data + method + 1) {
        return refuse(h, 400, "a request begins with METHOD TARGET HTTP/1.1");
    }
    for (uint32_t i = 0; i < h->target.len; i++) {
        unsigned char c = (unsigned char)h->target.data[i];
        if (c <= ' ' || c > '~' || c == '#') {
            return refuse(h, 400, "the target has characters that must be escaped");
        }
    }
    return h->target.data[0] == '/' ||
           refuse(h, 400, "the target of a request is a path");
}

static bool check_host(struct pk_head *h)
{
    size_t n;
    (void)pk_head_field(h, PK_FIELD_HOST, &n);
    return n == 1 || (n == 0 && h->minor == 0) ||
           refuse(h, 400, "a request has one Host");
}

bool pk_head_read_request(struct pk_head *h, struct pk_bytes bytes)
{
    http_parser p;
    if (!split(h, bytes, &p, HTTP_REQUEST)) {
        return false;
    }
    h->method = p.method;
    if (p.method == HTTP_CONNECT) {
        return refuse(h, 501, "CONNECT is not taken: this is a gate to one service");
    }
    if (!check_request_line(h, bytes) || !check_host(h) || !read_connection(h) ||
        !read_framing(h) || !read_expect(h)) {
        return false;
    }
    return pk_head_field(h, PK_FIELD_UPGRADE, NULL) == NULL ||
           refuse(h, 501, "Upgrade is not taken: what it leads to can't be fenced");
}

bool pk_head_read_answer(struct pk_head *h, struct pk_bytes bytes, bool to_head)
{
    http_parser p;
    if (!split(h, bytes, &p, HTTP_RESPONSE)) {
        return false;
    }
    h->status = (int)p.status_code;
    if (h->status < 100 || h->status > 999 || h->status == 101) {
        return refuse(h, 502, "an answer with a status that nobody asked for");
    }
    if (!read_connection(h) || !read_framing(h)) {
        return false;
    }
    if (to_head || h->status < 200 || h->status == 204 || h->status == 304) {
        h->framing = PK_FRAMING_NONE;
    } else if (h->framing == PK_FRAMING_NONE && !h->has_length) {
        h->framing = PK_FRAMING_END;
        h->keep_alive = false;
    }
    return true;
}
