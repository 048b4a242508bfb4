/* SPDX-License-Identifier: MIT */
#include "server/http_request.h"

#include <arpa/inet.h>
#include <strings.h>

#include "core/door.h"

static struct pk_http_request *request_of(http_parser *p)
{
    return p->data;
}

/* Appends as much as fits; `len` counts also what did not, so that a cut is seen. */
static void gather(char *to, size_t size, size_t *len, struct pk_bytes piece)
{
    if (*len < size) {
        size_t room = size - *len;
        memcpy(to + *len, piece.data, piece.len < room ? piece.len : room);
    }
    *len += piece.len;
}

/* ---- what the parser finds; everything may come in pieces ---- */

static int on_url(http_parser *p, const char *at, size_t len)
{
    struct pk_http_request *r = request_of(p);
    gather(r->url, sizeof r->url, &r->url_len, pk_bytes(at, len));
    return 0;
}

static int on_header_field(http_parser *p, const char *at, size_t len)
{
    struct pk_http_request *r = request_of(p);
    if (r->in_value || r->headers == 0) {
        r->in_value = false;
        r->field_len = 0;
        r->headers++;
    }
    gather(r->field, sizeof r->field, &r->field_len, pk_bytes(at, len));
    return 0;
}

static bool named(const struct pk_http_request *r, const char *name)
{
    size_t len = strlen(name);
    return r->field_len == len && strncasecmp(r->field, name, len) == 0;
}

static int on_header_value(http_parser *p, const char *at, size_t len)
{
    struct pk_http_request *r = request_of(p);
    if (!r->in_value) {
        r->in_value = true;
        r->header = named(r, "Host")              ? PK_HTTP_HOST
                    : named(r, "Origin")          ? PK_HTTP_ORIGIN
                    : named(r, "Accept")          ? PK_HTTP_ACCEPT
                    : named(r, "Accept-Encoding") ? PK_HTTP_ACCEPTED
                    : named(r, "If-None-Match")   ? PK_HTTP_NONE_MATCH
                                                  : PK_HTTP_OTHER;
        r->n_host += r->header == PK_HTTP_HOST;
        r->n_origin += r->header == PK_HTTP_ORIGIN;
    }
    struct pk_bytes piece = pk_bytes(at, len);
    if (r->header == PK_HTTP_HOST) {
        gather(r->host, sizeof r->host, &r->host_len, piece);
    } else if (r->header == PK_HTTP_ACCEPT) {
        gather(r->accept, sizeof r->accept, &r->accept_len, piece);
    } else if (r->header == PK_HTTP_ACCEPTED) {
        gather(r->accepted, sizeof r->accepted, &r->accepted_len, piece);
    } else if (r->header == PK_HTTP_NONE_MATCH) {
        gather(r->none_match, sizeof r->none_match, &r->none_match_len, piece);
    }
    return 0;
}

static int on_headers_complete(http_parser *p)
{
    bool sized = (p->flags & F_CONTENTLENGTH) != 0 && p->content_length > 0;
    request_of(p)->has_body = sized || p->uses_transfer_encoding;
    return 1; /* what follows is not read as a body: who sends one is refused */
}

static int on_message_complete(http_parser *p)
{
    struct pk_http_request *r = request_of(p);
    r->done = true;
    r->keep_alive = http_should_keep_alive(p) != 0;
    http_parser_pause(p, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_message_complete = on_message_complete,
};

/* ---- what is refused ---- */

static bool is_address(int family, const char *text)
{
    unsigned char unused[sizeof(struct in6_addr)];
    return inet_pton(family, text, unused) == 1;
}

/* "" or ":123" */
static bool is_port(const char *s)
{
    return *s == '\0' || (*s == ':' && strspn(s + 1, "0123456789") == strlen(s + 1));
}

static bool is_known(const struct pk_http_request *r, const char *name)
{
    bool known = strcasecmp(name, "localhost") == 0;
    for (size_t i = 0; !known && r->hosts != NULL && r->hosts[i] != NULL; i++) {
        known = strcasecmp(name, r->hosts[i]) == 0;
    }
    return known;
}

/* Whether Host names us as only somebody would who knows the way: a name that we were
 * not told may be somebody else's, pointed at our address. */
static bool host_allowed(const struct pk_http_request *r)
{
    char host[PK_HTTP_HOST_MAX];
    if (r->host_len >= sizeof host || memchr(r->host, '\0', r->host_len) != NULL) {
        return false;
    }
    memcpy(host, r->host, r->host_len);
    host[r->host_len] = '\0';
    bool bracketed = host[0] == '[';
    size_t len = strcspn(host, bracketed ? "]" : ":");
    if (bracketed && host[len] != ']') {
        return false;
    }
    if (!is_port(host + len + (bracketed ? 1 : 0))) {
        return false;
    }
    host[len] = '\0';
    return bracketed ? is_address(AF_INET6, host + 1)
                     : is_address(AF_INET, host) || is_known(r, host);
}

static void refuse(struct pk_http_request *r, int status, const char *why)
{
    if (r->refusal == 0) {
        r->refusal = status;
        r->why = why;
    }
    r->keep_alive = false;
}

static void judge(struct pk_http_request *r)
{
    const http_parser *p = &r->parser;
    if (p->http_major != 1) {
        refuse(r, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    }
    if (p->method != HTTP_GET && p->method != HTTP_HEAD) {
        refuse(r, 405, "this is for looking only: GET and HEAD");
    }
    if (r->has_body) {
        refuse(r, 413, "requests with a body are not taken");
    }
    if (r->url_len == 0 || r->url[0] != '/') {
        refuse(r, 400, "the target of a request is a path");
    }
    if (r->n_host > 1 || (r->n_host == 0 && p->http_minor > 0)) {
        refuse(r, 400, "a request has one Host");
    }
    if (r->n_host == 1 && !host_allowed(r)) {
        refuse(r, 421,
               "this node does not know itself by that Host name; use an address");
    }
    if (r->n_origin > 0) {
        refuse(r, 403, "requests from other pages are not answered");
    }
}

/* Whether "gzip" is among the words, and without conditions. A list that was too long to
 * be kept has none. */
static bool lists_gzip(const char *list, size_t len)
{
    static const char word[] = "gzip";
    size_t size = sizeof word - 1;
    for (size_t at = 0; len <= PK_HTTP_WORDS_MAX && at < len;) {
        const char *comma = memchr(list + at, ',', len - at);
        size_t end = comma == NULL ? len : (size_t)(comma - list);
        size_t next = end + 1;
        while (at < end && list[at] == ' ') {
            at++;
        }
        while (end > at && list[end - 1] == ' ') {
            end--;
        }
        if (end - at == size && strncasecmp(list + at, word, size) == 0) {
            return true;
        }
        at = next;
    }
    return false;
}

/* Browsers name this type first, whatever else they list. */
static bool begins_html(const char *list, size_t len)
{
    static const char type[] = "text/html";
    size_t size = sizeof type - 1;
    return len >= size && strncasecmp(list, type, size) == 0;
}

/* What the client takes, and what it has. */
static void read_wishes(struct pk_http_request *r)
{
    bool whole = r->none_match_len <= sizeof r->none_match;
    r->takes_gzip = lists_gzip(r->accepted, r->accepted_len);
    r->takes_html = begins_html(r->accept, r->accept_len);
    r->has_tag = pk_bytes(r->none_match, whole ? r->none_match_len : 0);
}

static void split_url(struct pk_http_request *r)
{
    size_t len = r->url_len;
    const char *hash = memchr(r->url, '#', len);
    len = hash == NULL ? len : (size_t)(hash - r->url);
    const char *mark = memchr(r->url, '?', len);
    size_t path = mark == NULL ? len : (size_t)(mark - r->url);
    r->path = pk_bytes(r->url, path);
    r->query = mark == NULL ? pk_bytes("", 0) : pk_bytes(mark + 1, len - path - 1);
}

/* ---- reading ---- */

/* All but the parser and what it was told. */
static void begin(struct pk_http_request *r)
{
    r->refusal = 0;
    r->why = "";
    r->path = r->query = pk_bytes("", 0);
    r->head_only = r->keep_alive = r->old = false;
    r->taken = 0;
    r->done = r->in_value = r->has_body = false;
    r->header = PK_HTTP_OTHER;
    r->field_len = r->host_len = r->url_len = 0;
    r->accept_len = r->accepted_len = r->none_match_len = 0;
    r->takes_gzip = r->takes_html = false;
    r->has_tag = pk_bytes("", 0);
    r->headers = r->n_host = r->n_origin = 0;
}

void pk_http_request_init(struct pk_http_request *r, const char *const *hosts)
{
    http_parser_init(&r->parser, HTTP_REQUEST);
    r->parser.data = r;
    r->hosts = hosts;
    begin(r);
}

enum pk_http_got pk_http_request_read(struct pk_http_request *r, struct pk_bytes in,
                                      size_t *used)
{
    PK_ASSERT(r->refusal == 0); /* who was refused gets no second chance */
    if (r->done) {
        begin(r);
    }
    *used = 0;
    if (in.len == 0) {
        return PK_HTTP_MORE; /* to the parser, no bytes would be the end of them */
    }
    size_t room = PK_HTTP_REQUEST_MAX - r->taken;
    size_t len = in.len < room ? in.len : room;
    *used = http_parser_execute(&r->parser, &settings, in.data, len);
    r->taken += *used;
    if (r->done) {
        http_parser_pause(&r->parser, 0);
        r->taken = 0;
        r->head_only = r->parser.method == HTTP_HEAD;
        r->old = r->parser.http_minor == 0;
        split_url(r);
        read_wishes(r);
        judge(r);
        return PK_HTTP_ONE;
    }
    if (HTTP_PARSER_ERRNO(&r->parser) != HPE_OK) {
        refuse(r, 400, "that is not an HTTP request");
        return PK_HTTP_BAD;
    }
    if (r->taken == PK_HTTP_REQUEST_MAX) {
        bool url = r->headers == 0;
        refuse(r, url ? 414 : 431, "a request has at most 8192 bytes");
        return PK_HTTP_BAD;
    }
    return PK_HTTP_MORE;
}
