/* SPDX-License-Identifier: MIT */
/*
 * The small records that we read back: the outcome of `picket once`, and a file's fence.
 * The first byte says which. What is accepted has one spelling: written again, it is the
 * same bytes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/once_record.h"
#include "core/door.h"
#include "core/limits.h"
#include "fence/fencefile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_outcome(const char *text, size_t len)
{
    struct pk_once_record r;
    if (!pk_once_record_read(text, len, &r) || r.state == PK_ONCE_NONE) {
        return;
    }
    size_t again_len;
    char *again = pk_once_record_write(&r, &again_len);
    PK_ASSERT(again_len == len && memcmp(again, text, len) == 0);
    free(again);
}

static void read_fence(const char *text, size_t len)
{
    char slots[PK_FENCEFILE_BYTES] = {0};
    struct pk_fencefile f = {.fd = -1};
    memcpy(slots, text, len < sizeof slots ? len : sizeof slots);
    if (pk_fencefile_parse(slots, &f)) {
        PK_ASSERT(f.seq > 0 && f.state.token <= PK_TOKEN_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] == 'o') {
        read_outcome((const char *)data + 1, size - 1);
    } else if (size > 0) {
        read_fence((const char *)data + 1, size - 1);
    }
    return 0;
}
