/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a log entry. What opens must seal to the very same bytes (an entry has one
 * form), and its commands are read as a replica reads them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/command.h"
#include "raft/entry.h"

static void demand(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

static void same_bytes(const struct pk_entry *e, const uint8_t *from, size_t len)
{
    demand(pk_entry_size(e->body.len) == len, "seals to another length");
    unsigned char *bytes = malloc(len);
    if (bytes == NULL) {
        abort();
    }
    memset(bytes, 0xa5, len);
    memcpy(bytes + PK_ENTRY_HEAD, e->body.data, e->body.len);
    pk_entry_seal(bytes, e);
    demand(memcmp(bytes, from, len) == 0, "seals to other bytes");
    free(bytes);
}

static void read_commands(const struct pk_entry *e)
{
    const unsigned char *at = (const unsigned char *)e->body.data;
    size_t left = e->body.len;
    struct pk_command c;
    for (uint64_t i = 0; i < e->count; i++) {
        size_t n = pk_command_decode(at, left, &c);
        if (n == 0) {
            return;
        }
        demand(n <= left, "a command longer than the body");
        at += n;
        left -= n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pk_entry e;
    if (!pk_entry_open(data, size, &e)) {
        return 0;
    }
    same_bytes(&e, data, size);
    if (e.kind == PK_ENTRY_COMMANDS) {
        read_commands(&e);
    }
    return 0;
}
