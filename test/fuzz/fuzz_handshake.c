/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a greeting between nodes. What is whole has one form: it encodes to the
 * very same bytes, and each of its beginnings is a part of it and nothing else.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raft/handshake.h"

static void demand(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pk_greeting g, part;
    unsigned char bytes[PK_GREETING_MAX];
    if (size == 0 || pk_greeting_decode(data, size, &g) != PK_GREETING_WHOLE) {
        return 0;
    }
    size_t len = pk_greeting_encode(&g, bytes);
    bytes[4] = data[4]; /* a refusal is understood in every version */
    /* A newer release may say more behind it, and the length counts that. */
    demand(len <= size && memcmp(bytes, data, 6) == 0 &&
               memcmp(bytes + 8, data + 8, len - 8) == 0,
           "encodes to other bytes");
    for (size_t i = 0; i < size; i++) {
        demand(pk_greeting_decode(data, i, &part) == PK_GREETING_PART,
               "a beginning of it is not a part");
    }
    return 0;
}
