/* SPDX-License-Identifier: MIT */
/*
 * RESP, the bytes: Redis' protocol, versions 2 and 3. Requests are read in place;
 * replies are written into one growing buffer and read back by a cursor. Pure: no
 * sockets, no globals.
 */
#ifndef PICKET_PROTO_RESP_H
#define PICKET_PROTO_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

enum {
    PK_RESP_DIGITS_MAX = 20,               /* of an unsigned 64-bit number */
    PK_RESP_ARGS_MAX = 8300,               /* words of one request */
    PK_RESP_REQUEST_MAX = 1200 * 1024,     /* bytes of one request, all in all */
    PK_RESP_INLINE_MAX = 4096,             /* bytes of a request typed by hand */
    PK_RESP_REPLY_MAX = 256 * 1024 * 1024, /* bytes of one reply that a client takes */
};

/* ---- requests ---- */

enum pk_resp_got {
    PK_RESP_MORE, /* not all of it is there yet */
    PK_RESP_ONE,
    PK_RESP_BAD, /* no RESP, or larger than allowed: answer and close */
};

/* Reads the first request of `in`: an array of bulk strings, or one line of words. On
 * ONE, args[0..*n) borrow from `in` and *used says how many bytes it took (*n may be 0:
 * an empty line, to be ignored); `args` has room for PK_RESP_ARGS_MAX. On MORE, *used is
 * the length that `in` must have before another look is worth while. On BAD, *why is a
 * sentence. */
enum pk_resp_got pk_resp_request(struct pk_bytes in, struct pk_bytes *args, uint32_t *n,
                                 size_t *used, const char **why);

/* ---- writing ---- */

/* A growing buffer; a zeroed one is empty. Memory through core/door.h. */
struct pk_resp_out {
    char *data;
    size_t len, capacity;
    bool resp3; /* maps, pushes and nulls as such, else as RESP2 has it */
};

void pk_resp_free(struct pk_resp_out *o);
/* Room for `more` bytes at data + len. */
char *pk_resp_reserve(struct pk_resp_out *o, size_t more);

void pk_resp_raw(struct pk_resp_out *o, const void *data, size_t len);
void pk_resp_simple(struct pk_resp_out *o, const char *text); /* +text */
/* -CODE text; bytes that would end the line become blanks. */
void pk_resp_error(struct pk_resp_out *o, const char *code, const char *text);
void pk_resp_int(struct pk_resp_out *o, uint64_t v); /* above 2^63-1: as a bulk string */
void pk_resp_signed(struct pk_resp_out *o, int64_t v);
void pk_resp_bulk(struct pk_resp_out *o, struct pk_bytes b);
void pk_resp_text(struct pk_resp_out *o, const char *text); /* bulk */
void pk_resp_null(struct pk_resp_out *o);
void pk_resp_array(struct pk_resp_out *o, size_t n);
void pk_resp_map(struct pk_resp_out *o, size_t pairs); /* RESP2: array of 2 x pairs */
void pk_resp_push(struct pk_resp_out *o, size_t n);    /* RESP2: array, as SUBSCRIBE's */

/* ---- reading replies ---- */

enum pk_resp_type {
    PK_RESP_SIMPLE, /* also RESP3's doubles and big numbers, as text */
    PK_RESP_ERROR,
    PK_RESP_INT,  /* also booleans: 0 or 1 */
    PK_RESP_BULK, /* also verbatim text, without its format */
    PK_RESP_NULL,
    PK_RESP_ARRAY, /* n items follow; also sets */
    PK_RESP_MAP,   /* n pairs follow */
    PK_RESP_PUSH,  /* n items follow */
};

struct pk_resp_value {
    enum pk_resp_type type;
    struct pk_bytes bytes; /* SIMPLE, ERROR, BULK */
    int64_t number;        /* INT */
    uint32_t n;            /* ARRAY, MAP, PUSH */
};

/* Whether `in` begins with one whole value, with all that is inside it; *used is its
 * length, on MORE the length that `in` must have before another look is worth while.
 * Nesting costs nothing: nothing here or in proto.h recurses. */
enum pk_resp_got pk_resp_whole(struct pk_bytes in, size_t *used);

struct pk_resp_cursor {
    struct pk_bytes rest; /* of a whole value */
    bool bad;
};

/* The next value in reading order; NULL type and `bad` when there is none. */
struct pk_resp_value pk_resp_next(struct pk_resp_cursor *c);
/* Steps over all that is inside a value just read. */
void pk_resp_skip(struct pk_resp_cursor *c, const struct pk_resp_value *v);

/* The decimal form of `v`; `room` has PK_RESP_DIGITS_MAX bytes. Returns its length. */
size_t pk_resp_digits(char *room, uint64_t v);
/* A decimal number, the whole of `b`; false if it isn't one or does not fit. */
bool pk_resp_number(struct pk_bytes b, uint64_t *out);
/* Case does not matter in ASCII. */
bool pk_resp_is(struct pk_bytes b, const char *word);

#endif
