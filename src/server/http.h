/* SPDX-License-Identifier: MIT */
/*
 * A small HTTP/1.1 server on the loop, for looking only: GET and HEAD, short requests,
 * answers from memory; also answers that go on (server-sent events). The parser is
 * http_parser's (http_request.h); what is ours are the bounds: connections, header bytes,
 * time for a request, unsent bytes. A connection has one answer on its way at a time;
 * until the client has taken it, no more is read. One request is answered in each turn of
 * the loop, so that clients of the lock service don't wait for those who look.
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

struct pk_page;
struct uv_loop_s;
struct pk_http;
struct pk_http_stream;

enum {
    PK_HTTP_CONNECTIONS_MAX = 64,
    PK_HTTP_STREAMS_MAX = 32,  /* of them; the rest is for those who ask and go */
    PK_HTTP_REQUEST_MS = 5000, /* to send a request, between two of them, and to take
                                  any of an answer */
    PK_HTTP_UNSENT_MAX = 4 * 1024 * 1024,
};

struct pk_http_answer {
    int status;              /* 200 */
    const char *type;        /* "text/plain; charset=utf-8" */
    struct pk_resp_out body; /* freed by the server */
    /* Instead of a body, with its own type, policy and tag: a page of the program, packed
     * for who takes that, and not at all for who has it. */
    const struct pk_page *page;
    /* For an answer that goes on: set `gone`, keep `stream`, and the answer stays open
     * for pk_http_send after its body. `gone` is called once, from the loop, when it is
     * over, however that came; the stream is no more then. NULL: there are too many
     * streams; give a plain answer. */
    struct pk_http_stream *stream;
    void (*gone)(void *owner);
    void *owner;
    bool html; /* as asked: the client is one that shows pages */
};

struct pk_http_options {
    struct uv_loop_s *loop;
    const char *listen;       /* HOST:PORT */
    const char *const *hosts; /* names besides addresses and localhost that Host may
                                 have; ends with NULL; may be NULL; outlives the server */
    uint32_t request_ms;      /* 0: PK_HTTP_REQUEST_MS */
    /* Answers GET `path` (no query; `query` may be empty). */
    void (*get)(void *ctx, struct pk_bytes path, struct pk_bytes query,
                struct pk_http_answer *out);
    void *ctx;
};

/* NULL: *why says what is wrong with the address to listen on (the loop must still run
 * for its memory to go). */
struct pk_http *pk_http_new(const struct pk_http_options *o, const char **why);
uint16_t pk_http_port(const struct pk_http *h);
/* Closes everything; `closed` is called when it may be forgotten (it frees itself). */
void pk_http_close(struct pk_http *h, void (*closed)(void *ctx), void *ctx);

/* Adds to an answer that goes on. False: it is over, because the client is gone or left
 * too much untaken; `gone` comes. */
bool pk_http_send(struct pk_http_stream *s, struct pk_bytes data);
/* True when all that was sent has been taken: who sends no more before it never makes a
 * slow client's answers pile up. */
bool pk_http_idle(const struct pk_http_stream *s);
/* Ends the answer after what has been sent. */
void pk_http_end(struct pk_http_stream *s);

#endif
