/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a stream of libraft's messages, in pieces whose size the first byte gives
 * and all at once: the verdict is the same, and nothing beyond the bounds is waited for.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raft/frame.h"

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
    static struct pk_frame whole, split;
    if (size == 0) {
        return 0;
    }
    size_t piece = data[0] % 31 + 1;
    data++;
    size--;
    memset(&whole, 0, sizeof whole);
    memset(&split, 0, sizeof split);
    const char *why = pk_frame_check(&whole, data, size);
    const char *again = NULL;
    for (size_t at = 0; at < size && again == NULL; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        again = pk_frame_check(&split, data + at, n);
        demand(again != NULL || split.header <= PK_FRAME_HEADER_MAX, "a header too long");
        demand(again != NULL || split.payload <= PK_FRAME_SNAPSHOT_MAX,
               "a payload too long");
    }
    demand(why == again, "the verdict depends on the pieces");
    return 0;
}
