/* SPDX-License-Identifier: MIT */
/*
 * Heads as the gate passes them on. Pure. Fields of one connection are left out, the
 * length is said anew, Via and X-Forwarded-For are added; all else stays as it was, in
 * its order.
 */
#ifndef PICKET_GATE_REWRITE_H
#define PICKET_GATE_REWRITE_H

#include "gate/head.h"
#include "proto/resp.h"

struct pk_rewrite_request {
    const char *base;   /* before the target: "" or "/base" */
    const char *host;   /* for a request that has none */
    const char *client; /* its address */
};

void pk_rewrite_request(struct pk_resp_out *out, const struct pk_head *h,
                        const struct pk_rewrite_request *r);

struct pk_rewrite_answer {
    enum pk_framing framing;  /* for this client */
    bool close;               /* the connection ends after it */
    bool old;                 /* the client speaks HTTP/1.0 */
    const char *would_refuse; /* shadow mode: why; NULL: it would not be */
};

void pk_rewrite_answer(struct pk_resp_out *out, const struct pk_head *h,
                       const struct pk_rewrite_answer *r);
/* An interim answer (1xx). */
void pk_rewrite_interim(struct pk_resp_out *out, const struct pk_head *h);

/* The parts of the above, for answers that are kept: the status line, the fields without
 * any that speak of length or connection, and the end of a head with its length. */
void pk_rewrite_status(struct pk_resp_out *out, int status, struct pk_bytes reason);
void pk_rewrite_fields(struct pk_resp_out *out, const struct pk_head *h);
void pk_rewrite_end(struct pk_resp_out *out, const struct pk_rewrite_answer *r);
/* "Name: value", with its end. */
void pk_rewrite_field(struct pk_resp_out *out, const char *name, const char *value);

/* The line before a chunk of `len` bytes; `room` has PK_REWRITE_CHUNK bytes. */
enum { PK_REWRITE_CHUNK = 20 };
size_t pk_rewrite_chunk(char *room, size_t len);

#endif
