/* SPDX-License-Identifier: MIT */
/*
 * HTTP requests out of the bytes of one connection, one after another. Knows no sockets.
 *
 * http_parser reads them. Ours is what it leaves open: how long a request may be, and
 * which ones are refused though they are well-formed: other methods than GET and HEAD,
 * bodies, a Host that is no address, not localhost and none of the names given (a page
 * elsewhere whose name was pointed at us), any Origin (a script of a page elsewhere).
 * Only what an answer depends on is kept.
 */
#ifndef PICKET_SERVER_HTTP_REQUEST_H
#define PICKET_SERVER_HTTP_REQUEST_H

#include <http_parser.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

enum {
    PK_HTTP_REQUEST_MAX = 8192, /* bytes of request line and headers */
    PK_HTTP_HOST_MAX = 256,     /* bytes of a Host that could be right */
    PK_HTTP_WORDS_MAX = 128,    /* bytes of other headers that are looked at */
};

enum pk_http_got {
    PK_HTTP_MORE, /* not all of it is there yet */
    PK_HTTP_ONE,  /* a request; it may have to be refused all the same */
    PK_HTTP_BAD,  /* no HTTP, or too long: refuse and close */
};

enum pk_http_header {
    PK_HTTP_OTHER,
    PK_HTTP_HOST,
    PK_HTTP_ORIGIN,
    PK_HTTP_ACCEPT,
    PK_HTTP_ACCEPTED,   /* Accept-Encoding */
    PK_HTTP_NONE_MATCH, /* If-None-Match */
};

struct pk_http_request {
    /* Of the request just read: */
    int refusal;                 /* 0, or the status to refuse it with */
    const char *why;             /* and a sentence */
    struct pk_bytes path, query; /* as sent: not decoded; borrowed until the next read */
    bool head_only;              /* HEAD */
    bool keep_alive;             /* the client may send another */
    bool old;                    /* HTTP/1.0 */
    bool takes_gzip;             /* the answer may be packed */
    bool takes_html;             /* it says so by name: a browser does, curl does not */
    struct pk_bytes has_tag;     /* of what it has already; empty: nothing; borrowed */

    size_t taken; /* bytes of a request that is not whole yet */

    /* The rest is private. */
    http_parser parser;
    const char *const *hosts;
    bool done, in_value, has_body;
    enum pk_http_header header;
    char field[16]; /* the name of the present header, if it can be one of ours */
    size_t field_len;
    uint32_t headers, n_host, n_origin;
    char host[PK_HTTP_HOST_MAX];
    size_t host_len;
    char accept[PK_HTTP_WORDS_MAX];
    char accepted[PK_HTTP_WORDS_MAX], none_match[PK_HTTP_WORDS_MAX];
    size_t accept_len, accepted_len, none_match_len;
    char url[PK_HTTP_REQUEST_MAX];
    size_t url_len;
};

/* `hosts`: names that Host may have, ends with NULL; may be NULL; must stay. */
void pk_http_request_init(struct pk_http_request *r, const char *const *hosts);
/* Reads on, to the end of one request at most. *used: bytes taken from `in`. */
enum pk_http_got pk_http_request_read(struct pk_http_request *r, struct pk_bytes in,
                                      size_t *used);

#endif
