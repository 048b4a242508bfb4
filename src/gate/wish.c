/* SPDX-License-Identifier: MIT */
#include "gate/wish.h"

#include <http_parser.h>

#include "core/utf8.h"

static bool refuse(struct pk_wish *a, enum pk_wish_flaw flaw, const char *why)
{
    if (a->flaw == PK_WISH_FINE) {
        a->flaw = flaw;
        a->why = why;
    }
    return false;
}

/* ---- token and key ---- */

static bool read_token(struct pk_wish *a, const struct pk_head *h)
{
    static const char why[] =
        "X-Picket-Token is one whole number from 1 to 9007199254740991";
    size_t n;
    const struct pk_field *f = pk_head_field(h, PK_FIELD_TOKEN, &n);
    if (n == 0) {
        return true;
    }
    if (n > 1 || f->value.len == 0 || f->value.len > 16 || f->value.data[0] == '0') {
        return refuse(a, PK_WISH_BAD_TOKEN, why);
    }
    for (uint32_t i = 0; i < f->value.len; i++) {
        char c = f->value.data[i];
        if (c < '0' || c > '9') {
            return refuse(a, PK_WISH_BAD_TOKEN, why);
        }
        a->token = a->token * 10 + (uint64_t)(c - '0');
    }
    a->has_token = true;
    return a->token <= PK_TOKEN_MAX || refuse(a, PK_WISH_BAD_TOKEN, why);
}

/* Keys are for calls that change something; on others they are only passed on. */
static bool read_key(struct pk_wish *a, const struct pk_head *h)
{
    size_t n;
    const struct pk_field *f = pk_head_field(h, PK_FIELD_IDEMPOTENCY_KEY, &n);
    bool changes = h->method == HTTP_POST || h->method == HTTP_PUT ||
                   h->method == HTTP_PATCH || h->method == HTTP_DELETE;
    if (n == 0 || !changes) {
        return true;
    }
    bool fine = n == 1 && f->value.len > 0 && f->value.len <= PK_WISH_KEY_MAX;
    for (uint32_t i = 0; fine && i < f->value.len; i++) {
        fine = f->value.data[i] >= ' ' && f->value.data[i] <= '~';
    }
    a->has_key = fine;
    a->key = fine ? f->value : pk_bytes("", 0);
    return fine || refuse(a, PK_WISH_BAD_KEY,
                          "Idempotency-Key is one key of 1 to 255 printable characters");
}

/* ---- paths ---- */

static struct pk_bytes path_of(const struct pk_head *h)
{
    const char *mark = memchr(h->target.data, '?', h->target.len);
    size_t len = mark == NULL ? h->target.len : (size_t)(mark - h->target.data);
    return pk_bytes(h->target.data, len);
}

/* The next segment of a path that begins with '/'; false: there is none. */
static bool next_segment(struct pk_bytes *path, struct pk_bytes *segment)
{
    if (path->len == 0) {
        return false;
    }
    const char *from = path->data + 1;
    size_t len = path->len - 1;
    const char *slash = memchr(from, '/', len);
    size_t n = slash == NULL ? len : (size_t)(slash - from);
    *segment = pk_bytes(from, n);
    *path = pk_bytes(from + n, len - n);
    return true;
}

/* The byte that an escape at s[i] stands for; -1: it is none. */
static int unescape(struct pk_bytes s, uint32_t i)
{
    if (i + 2 >= s.len) {
        return -1;
    }
    int high = pk_head_hex(s.data[i + 1]), low = pk_head_hex(s.data[i + 2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool is_dots(struct pk_bytes s)
{
    return (s.len == 1 && s.data[0] == '.') ||
           (s.len == 2 && s.data[0] == '.' && s.data[1] == '.');
}

/* Q2 for one segment. */
static const char *segment_wrong(struct pk_bytes s)
{
    if (is_dots(s)) {
        return "a path must not have . and .. segments";
    }
    for (uint32_t i = 0; i < s.len; i++) {
        if (s.data[i] == '\\') {
            return "a path must not have backslashes";
        }
        if (s.data[i] != '%') {
            continue;
        }
        int byte = unescape(s, i);
        if (byte < 0) {
            return "a % in a path begins an escape of two hex digits";
        }
        if (byte == '/' || byte == '\\' || byte == '.' || byte == '\0') {
            return "a path must not have escaped slashes, backslashes, dots or NULs";
        }
    }
    return NULL;
}

/* Adds a decoded segment to the resource's name (Q1). */
static bool add_segment(struct pk_wish *a, struct pk_bytes s, size_t most)
{
    static const char too_long[] = "the resource's name is too long";
    if (memchr(s.data, ';', s.len) != NULL) {
        return refuse(a, PK_WISH_BAD_PATH,
                      "the segments that name the resource must not have parameters (;)");
    }
    if (a->resource_len > 0) {
        a->resource[a->resource_len++] = '/';
    }
    for (uint32_t i = 0; i < s.len; i++) {
        if (a->resource_len >= most) {
            return refuse(a, PK_WISH_BAD_RESOURCE, too_long);
        }
        bool escape = s.data[i] == '%';
        int byte = escape ? unescape(s, i) : (unsigned char)s.data[i];
        a->resource[a->resource_len++] = (char)byte;
        i += escape ? 2 : 0;
    }
    return true;
}

static bool read_path(struct pk_wish *a, const struct pk_head *h,
                      const struct pk_wish_rules *r)
{
    struct pk_bytes path = path_of(h), segment;
    uint32_t n = 0;
    while (next_segment(&path, &segment)) {
        const char *wrong = segment_wrong(segment);
        if (wrong != NULL) {
            return refuse(a, PK_WISH_BAD_PATH, wrong);
        }
        if (segment.len == 0 && path.len > 0) {
            return refuse(a, PK_WISH_BAD_PATH, "a path must not have empty segments");
        }
        if (segment.len > 0 && n++ < r->depth &&
            !add_segment(a, segment, r->resource_max)) {
            return false;
        }
    }
    return a->resource_len > 0 || !a->has_token ||
           refuse(a, PK_WISH_BAD_RESOURCE,
                  "the path names no resource: it has no first segment");
}

static bool read_field(struct pk_wish *a, const struct pk_head *h,
                       const struct pk_wish_rules *r)
{
    size_t n;
    const struct pk_field *f = pk_head_field(h, PK_FIELD_RESOURCE, &n);
    if (n == 0) {
        return !a->has_token ||
               refuse(a, PK_WISH_BAD_RESOURCE,
                      "a token is for a resource: say X-Picket-Resource");
    }
    if (n > 1 || f->value.len == 0 || f->value.len > r->resource_max) {
        return refuse(a, PK_WISH_BAD_RESOURCE,
                      "X-Picket-Resource is one name, and not too long");
    }
    memcpy(a->resource, f->value.data, f->value.len);
    a->resource_len = f->value.len;
    return true;
}

static bool check_base(struct pk_wish *a, const struct pk_head *h)
{
    struct pk_bytes path = path_of(h), segment;
    while (next_segment(&path, &segment)) {
        const char *wrong = segment_wrong(segment);
        if (wrong != NULL) {
            return refuse(a, PK_WISH_BAD_PATH, wrong);
        }
    }
    return true;
}

static bool check_name(struct pk_wish *a)
{
    size_t own = strlen(PK_WISH_RESERVED);
    if (!pk_utf8_printable(pk_bytes(a->resource, a->resource_len), false)) {
        return refuse(a, PK_WISH_BAD_RESOURCE, "a resource's name is printable UTF-8");
    }
    if (a->resource_len >= own && memcmp(a->resource, PK_WISH_RESERVED, own) == 0) {
        return refuse(a, PK_WISH_BAD_RESOURCE,
                      "names that begin with once/ are the gate's own");
    }
    a->resource[a->resource_len] = '\0';
    return true;
}

bool pk_wish_read(struct pk_wish *a, const struct pk_head *h,
                  const struct pk_wish_rules *r)
{
    memset(a, 0, sizeof *a);
    a->why = "";
    bool token = read_token(a, h); /* a flaw in it must not hide one in the path */
    bool path = r->from_field ? read_field(a, h, r) && (!r->based || check_base(a, h))
                              : read_path(a, h, r);
    return path && token && check_name(a) && read_key(a, h);
}
