/* SPDX-License-Identifier: MIT */
/*
 * Bodies of HTTP/1 messages, taken out of their framing piece by piece. Pure.
 *
 * What is passed on is framed anew by us, so that nobody behind the gate can read
 * lengths otherwise than the gate did. Chunks are read strictly: sizes are 1 to 16 hex
 * digits, each line ends with CR LF; extensions and trailers are thrown away, and
 * bounded (P10).
 */
#ifndef PICKET_GATE_BODY_H
#define PICKET_GATE_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gate/head.h"

enum { PK_BODY_TRAILER_BYTES = 8192, PK_BODY_EXTENSION_BYTES = 1024 };

struct pk_body {
    bool whole;     /* all of it has been taken */
    bool bad;       /* it is not what was announced */
    uint64_t taken; /* bytes of it */

    /* The rest is private. */
    enum pk_framing framing;
    uint64_t left; /* of the length, or of the chunk */
    unsigned step;
    uint32_t digits, aside; /* of a size; of what is thrown away */
};

void pk_body_init(struct pk_body *b, const struct pk_head *h);
/* Takes from data[0..len): *kept bytes of the body are moved to the front, and the result
 * says how many bytes were used up in all. Takes all there is, unless `whole` or `bad`.
 */
size_t pk_body_take(struct pk_body *b, char *data, size_t len, size_t *kept);
/* Bytes that are still to come; UINT64_MAX: not known. */
uint64_t pk_body_left(const struct pk_body *b);
/* The connection has ended; false: in the middle of the body. */
bool pk_body_end(struct pk_body *b);

#endif
