/* SPDX-License-Identifier: MIT */
/*
 * What a request asks of the gate: its resource, its token, its idempotency key. Pure.
 *
 * With the resource in the path, two spellings of one path must not have two fences, nor
 * may a path lead elsewhere than its fence:
 *
 *  Q1 The segments that name the resource are decoded (%41 is A), and must be printable
 *     UTF-8; their `;` parameters, which some services ignore, are refused.
 *  Q2 Anywhere in the path: `.` and `..` segments, empty ones (`//`), backslashes and
 *     escaped slashes, backslashes, dots and NULs (%2f %5c %2e %00) are refused.
 *
 * With the resource in a field, paths are the service's own business; but where a base
 * path was given, `.` and `..` segments could lead out of it and are refused.
 */
#ifndef PICKET_GATE_WISH_H
#define PICKET_GATE_WISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"
#include "gate/head.h"

enum { PK_WISH_KEY_MAX = 255 };

/* The beginning of names that are the gate's own, under its prefix. */
#define PK_WISH_RESERVED "once/"

struct pk_wish_rules {
    bool from_field;     /* X-Picket-Resource; else the first `depth` segments */
    uint32_t depth;      /* at least 1 */
    size_t resource_max; /* bytes, at most PK_NAME_MAX */
    bool based;          /* the upstream has a base path */
};

enum pk_wish_flaw {
    PK_WISH_FINE,
    PK_WISH_BAD_TOKEN,
    PK_WISH_BAD_RESOURCE,
    PK_WISH_BAD_PATH,
    PK_WISH_BAD_KEY,
};

struct pk_wish {
    bool has_token, has_key;
    uint64_t token;      /* 1..PK_TOKEN_MAX */
    struct pk_bytes key; /* borrowed from the head */
    size_t resource_len; /* 0: it names none */
    char resource[PK_NAME_MAX + 1];
    enum pk_wish_flaw flaw;
    const char *why;
};

/* False: `flaw` and `why` are set. */
bool pk_wish_read(struct pk_wish *a, const struct pk_head *h,
                  const struct pk_wish_rules *r);

#endif
