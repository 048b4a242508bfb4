/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a stream of messages, in pieces whose size the first byte gives and all
 * at once: the same messages come out, and memory stays within what came. Unless the
 * first byte is above 127, checksums are put right first, or nothing would ever get past
 * them.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire.h"
#include "raft/crc32c.h"
#include "raft/message.h"

enum { ROOM_FIRST = 1024 * 1024 };

static void demand(bool ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s\n", what);
        abort();
    }
}

/* What became of a stream. */
struct outcome {
    uint64_t digest; /* of all messages */
    size_t at;       /* where it was refused; else its length */
    const char *why;
};

static uint64_t digest_message(uint64_t d, struct raft_message *m)
{
    d = pk_digest(d, &m->type, sizeof m->type);
    if (m->type == RAFT_APPEND_ENTRIES) {
        for (unsigned i = 0; i < m->append_entries.n_entries; i++) {
            const struct raft_entry *e = &m->append_entries.entries[i];
            d = pk_digest(d, e->buf.base, e->buf.len);
        }
    } else if (m->type == RAFT_INSTALL_SNAPSHOT) {
        const struct raft_install_snapshot *s = &m->install_snapshot;
        for (unsigned i = 0; i < s->conf.n; i++) {
            const char *address = s->conf.servers[i].address;
            d = pk_digest(d, address, strlen(address));
        }
        d = pk_digest(d, s->data.base, s->data.len);
    } else {
        d = pk_digest(d, &m->timeout_now.term, sizeof m->timeout_now.term);
    }
    return d;
}

static struct outcome read_all(const unsigned char *in, size_t size, size_t piece)
{
    struct pk_message_reader r;
    struct outcome o = {.digest = PK_DIGEST_START};
    memset(&r, 0, sizeof r);
    while (o.at < size && o.why == NULL) {
        size_t used, n = size - o.at < piece ? size - o.at : piece;
        enum pk_message_state state = pk_message_read(&r, in + o.at, n, &used);
        o.at += used;
        demand(r.payload_room <= 2 * o.at + ROOM_FIRST, "memory for what did not come");
        if (state == PK_MESSAGE_WHOLE) {
            struct raft_message m;
            pk_message_take(&r, &m);
            o.digest = digest_message(o.digest, &m);
            pk_message_drop(&m);
        } else if (state == PK_MESSAGE_NOTED) {
            o.digest = pk_digest(o.digest, r.note, r.note_len);
        } else if (state == PK_MESSAGE_CHUNKED) {
            demand(r.chunk.offset + r.chunk.len <= r.chunk.id.size, "a chunk too long");
            o.digest = pk_digest(o.digest, r.chunk.bytes, r.chunk.len);
        } else if (state == PK_MESSAGE_WRONG) {
            o.why = r.why;
        }
    }
    pk_message_reader_free(&r);
    return o;
}

static uint32_t get_u32(const unsigned char *in)
{
    return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static void put_checksums_right(unsigned char *in, size_t size)
{
    size_t at = 0;
    while (size - at > PK_MESSAGE_FRAME) {
        unsigned char *frame = in + at;
        uint64_t header = get_u32(frame + 4);
        uint64_t payload = pk_get_u64(frame + 8);
        size_t left = size - at - PK_MESSAGE_FRAME;
        if (header > left || payload > left - header) {
            break;
        }
        uint32_t crc = pk_crc32c(0, frame, 16);
        crc = pk_crc32c(crc, frame + PK_MESSAGE_FRAME, header);
        for (unsigned i = 0; i < 4; i++) {
            frame[16 + i] = (unsigned char)(crc >> 8 * i);
        }
        at += PK_MESSAGE_FRAME + (size_t)header + (size_t)payload;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    unsigned first = data[0];
    size--;
    unsigned char *copy = malloc(size);
    demand(copy != NULL, "no memory");
    memcpy(copy, data + 1, size);
    if (first < 128) {
        put_checksums_right(copy, size);
    }
    struct outcome whole = read_all(copy, size, size);
    struct outcome split = read_all(copy, size, first % 31 + 1);
    free(copy);
    demand(whole.why == split.why, "the verdict depends on the pieces");
    demand(whole.digest == split.digest, "the messages depend on the pieces");
    return 0;
}
