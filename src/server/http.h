/* SPDX-License-Identifier: MIT */
/*
 * A small HTTP/1.1 server on the loop, for looking only: GET and HEAD, short requests,
 * answers from memory; also answers that go on (server-sent events). The parser is
 * http_parser's; what is ours are the bounds: connections, header bytes, time for a
 * request, unsent bytes.
 *
 * Against pages elsewhere that try to talk to it from a browser: requests with an
 * Origin, or a Host that is not an address or a name it was told, are refused; every
 * answer carries a strict Content-Security-Policy and nosniff; no CORS.
 */
#ifndef PICKET_SERVER_HTTP_H
#define PICKET_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"
#include "proto/resp.h"

struct uv_loop_s;
struct pk_http;
struct pk_http_stream;

enum {
    PK_HTTP_CONNECTIONS_MAX = 64,
    PK_HTTP_REQUEST_MAX = 8192, /* bytes of request line and headers */
    PK_HTTP_REQUEST_MS = 5000,  /* to send a request, and between two of them */
    PK_HTTP_UNSENT_MAX = 4 * 1024 * 1024,
};

struct pk_http_answer {
    int status;              /* 200 */
    const char *type;        /* "text/plain; charset=utf-8" */
    struct pk_resp_out body; /* freed by the server */
};

struct pk_http_options {
    struct uv_loop_s *loop;
    const char *listen; /* HOST:PORT */
    const char *const *hosts; /* names besides addresses and localhost that Host may
                                 have; ends with NULL; may be NULL */
    /* Answers GET `path` (no query; `query` may be empty). */
    void (*get)(void *ctx, struct pk_bytes path, struct pk_bytes query,
                struct pk_http_answer *out);
    void *ctx;
};

/* NULL with a sentence in `why`. */
struct pk_http *pk_http_new(const struct pk_http_options *o, char *why, size_t size);
uint16_t pk_http_port(const struct pk_http *h);
/* Closes everything; `closed` is called when it may be forgotten (it frees itself). */
void pk_http_close(struct pk_http *h, void (*closed)(void *ctx), void *ctx);

#endif
