/* SPDX-License-Identifier: MIT */
/*
 * Heads of HTTP/1 messages: found, read and judged. Pure: bytes in, facts out.
 *
 * http_parser splits a head into its parts: it fits our loop (no threads, no memory, no
 * sockets of its own), src/server uses it, and Debian 12 has it; its successor llhttp is
 * not packaged there. Debian builds it for tolerance, though, and a gate must not
 * tolerate what the service behind it could read otherwise. So a head is read whole, and
 * ours are the rules against smuggling:
 *
 *  H1 Lines end with CR LF. No other control character but TAB, no folded lines.
 *  H2 The request line is METHOD SP TARGET SP HTTP/1.0|1.1, and the target is a path.
 *  H3 Field names are tokens, followed by the colon; at most PK_HEAD_FIELDS of them.
 *  H4 A message has one length: one Content-Length in digits, or "Transfer-Encoding:
 *     chunked" and nothing else, never both; chunked is not for HTTP/1.0.
 *  H5 A request of HTTP/1.1 has one Host.
 *  H6 Connection can't strip what the gate or the length depends on.
 */
#ifndef PICKET_GATE_HEAD_H
#define PICKET_GATE_HEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

enum {
    PK_HEAD_BYTES = 16384, /* with its empty line */
    PK_HEAD_FIELDS = 100,
};

/* X(kind, name, of one connection only, Connection must not name it) */
#define PK_FIELDS(X)                                                                     \
    X(CONNECTION, "Connection", true, false)                                             \
    X(KEEP_ALIVE, "Keep-Alive", true, false)                                             \
    X(PROXY_CONNECTION, "Proxy-Connection", true, false)                                 \
    X(PROXY_AUTHENTICATE, "Proxy-Authenticate", true, false)                             \
    X(PROXY_AUTHORIZATION, "Proxy-Authorization", true, false)                           \
    X(TE, "TE", true, false)                                                             \
    X(TRAILER, "Trailer", true, false)                                                   \
    X(UPGRADE, "Upgrade", true, false)                                                   \
    X(TRANSFER_ENCODING, "Transfer-Encoding", true, true)                                \
    X(CONTENT_LENGTH, "Content-Length", false, true)                                     \
    X(HOST, "Host", false, true)                                                         \
    X(EXPECT, "Expect", false, true)                                                     \
    X(TOKEN, "X-Picket-Token", false, true)                                              \
    X(RESOURCE, "X-Picket-Resource", false, true)                                        \
    X(IDEMPOTENCY_KEY, "Idempotency-Key", false, true)                                   \
    X(FORWARDED_FOR, "X-Forwarded-For", false, true)                                     \
    X(REPLAYED, "Picket-Replayed", false, true)                                          \
    X(WOULD_REFUSE, "Picket-Would-Refuse", false, true)

enum pk_field_kind {
    PK_FIELD_OTHER,
#define X(kind, name, hop, kept) PK_FIELD_##kind,
    PK_FIELDS(X)
#undef X
};

struct pk_field {
    struct pk_bytes name, value; /* the value without blanks around it */
    enum pk_field_kind kind;
    bool hop; /* of this connection only: not passed on */
};

enum pk_framing {
    PK_FRAMING_NONE,   /* no body */
    PK_FRAMING_LENGTH, /* `length` bytes */
    PK_FRAMING_CHUNKED,
    PK_FRAMING_END, /* an answer that lasts until the connection ends */
};

/* Borrows from the bytes it was read from. */
struct pk_head {
    unsigned method;         /* of a request: http_parser's number */
    struct pk_bytes target;  /* as it was sent */
    int status;              /* of an answer */
    struct pk_bytes reason;  /* may be empty */
    int minor;               /* of HTTP/1.x */
    enum pk_framing framing; /* of what follows */
    uint64_t length;
    bool has_length; /* it names its length; of an answer also where no body follows */
    bool keep_alive;
    bool expects; /* Expect: 100-continue */
    size_t n;
    struct pk_field fields[PK_HEAD_FIELDS];
    /* If it can't be taken: */
    int refusal; /* the status to refuse a request with; 0: it is fine */
    const char *why;
};

enum pk_scan { PK_SCAN_MORE, PK_SCAN_WHOLE, PK_SCAN_BAD };

/* Looks for the end of a head. *at: how far it has been looked at, 0 at first; on WHOLE
 * the head's length. BAD: H1. */
enum pk_scan pk_head_scan(const char *data, size_t len, size_t *at);

/* Read a whole head. False: `refusal` and `why` are set. */
bool pk_head_read_request(struct pk_head *h, struct pk_bytes bytes);
/* `to_head`: it answers a HEAD, so no body follows. */
bool pk_head_read_answer(struct pk_head *h, struct pk_bytes bytes, bool to_head);

/* The one field of a kind; NULL: none. *n (may be NULL) says how many there are. */
const struct pk_field *pk_head_field(const struct pk_head *h, enum pk_field_kind kind,
                                     size_t *n);
const char *pk_head_method(const struct pk_head *h);
/* Case does not matter in ASCII. */
bool pk_head_is(struct pk_bytes b, const char *word);
/* What a hex digit stands for; -1: it is none. */
int pk_head_hex(char c);

#endif
