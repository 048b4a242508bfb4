/* SPDX-License-Identifier: MIT */
/*
 * Messages of the consensus engine as bytes on a connection between nodes, and notes of
 * our own beside them. Pure: no socket, no clock.
 *
 *     frame    offset  bytes
 *                   0      1   type: that of libraft's message, 7 for a note, 8 for a
 *                              chunk of a snapshot
 *                   1      1   version of this format
 *                   2      1   version of libraft's message
 *                   3      1   0
 *                   4      4   length of the header
 *                   8      8   length of the payload
 *                  16      4   CRC-32C of bytes 0 to 15 and of the header
 *     header   words of 8 bytes; the first is the id of the node that sends
 *         AppendEntries         term, previous index, previous term, commit; for each
 *                               entry: its term, its type (1) 0 (3) length (4)
 *         AppendEntriesResult   term, rejected, last index, features (2) capacity (2) 0
 *         RequestVote           term, candidate, last index, last term, flags
 *         RequestVoteResult     term, flags (2) features (2) capacity (2) 0
 *         InstallSnapshot       term, last index, last term, index of the configuration,
 *                               the configuration as libraft encodes it
 *         TimeoutNow            term, last index, last term
 *         note                  up to 256 bytes
 *         chunk                 index, term, size of a snapshot's state; checksum of the
 *                               state (4) and of this payload (4); offset in the state
 *     payload  the bytes of all entries, those of a chunk, or the name of a snapshot
 *              (store.h) whose state has come in chunks; not in the CRC, because entries
 *              and chunks carry checksums of their own
 *
 * Integers are little endian. A reader holds every length against a bound before it takes
 * memory for it, and its memory grows with the bytes that arrive, not with the length
 * that was announced (P10). What stands in an entry or a snapshot is not looked at.
 */
#ifndef PICKET_RAFT_MESSAGE_H
#define PICKET_RAFT_MESSAGE_H

#include <raft.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "raft/snapshot.h"

enum {
    PK_MESSAGE_VERSION = 1,
    PK_MESSAGE_FRAME = 20, /* bytes of the frame */
    PK_MESSAGE_HEADER_MAX = 1024 * 1024,
    PK_MESSAGE_ENTRIES_MAX = 128 * 1024 * 1024, /* bytes of one message's entries */
    /* So much of them is sent in one message, if it is more than one entry: whoever
     * follows over a slow link hears from its leader in time. */
    PK_MESSAGE_ENTRIES_SENT = 128 * 1024,
    PK_MESSAGE_SNAPSHOT_MAX = 4096, /* bytes of a snapshot's name */
    PK_MESSAGE_CONFIGURATION_MAX = 4096,
    PK_MESSAGE_MEMBERS_MAX = 64,
    PK_NOTE_MAX = 256,
    PK_MESSAGE_NOTE = 7, /* the type of a note, behind libraft's */
    PK_MESSAGE_CHUNK = 8,
};

/* ---- writing ---- */

/* A message as parts for one writev. The first part is frame and header, in the same
 * block of memory; the others refer to the entries or the snapshot of the message. */
struct pk_encoded {
    uint64_t payload; /* bytes of all parts but the first */
    unsigned n;
    uv_buf_t parts[];
};

/* Encodes a message of node `from`. The memory that entries and snapshot are in must stay
 * until the parts are written; `m` itself need not. AppendEntries that would be beyond
 * the bounds is cut behind as many entries as fit. NULL: not a single entry fits, the
 * snapshot is too large, or the type is unknown. Free with pk_door_resize(e, 0). */
struct pk_encoded *pk_message_encode(const struct raft_message *m, uint64_t from);
/* The same for a note of at most PK_NOTE_MAX bytes, which are copied. */
struct pk_encoded *pk_note_encode(const void *bytes, size_t len, uint64_t from);
/* And for a chunk of at most PK_STORE_CHUNK_MAX bytes, which are copied too. */
struct pk_encoded *pk_chunk_encode(const struct pk_snapshot_chunk *c, uint64_t from);

/* ---- reading ---- */

enum pk_message_state {
    PK_MESSAGE_PART,    /* more bytes are needed */
    PK_MESSAGE_WHOLE,   /* `message` is complete: call pk_message_take */
    PK_MESSAGE_NOTED,   /* `note` is, until the next bytes are read */
    PK_MESSAGE_CHUNKED, /* `chunk` is, likewise */
    PK_MESSAGE_WRONG,   /* `why`: the connection must end, nothing more can be read */
};

/* Zeroed, a reader is at the beginning of a stream. */
struct pk_message_reader {
    enum { PK_IN_FRAME, PK_IN_HEADER, PK_IN_PAYLOAD } in;
    size_t have; /* bytes of the part that it is in */
    unsigned char frame[PK_MESSAGE_FRAME];
    unsigned char *header, *payload;
    size_t header_len, header_room;
    size_t payload_len, payload_room;
    uint64_t from; /* whom the message says it is of */
    struct raft_message message;
    bool owns_message; /* memory in `message` is to be freed here */
    const unsigned char *note;
    size_t note_len;
    struct pk_snapshot_chunk chunk;
    uint32_t chunk_sum; /* of its bytes */
    const char *why;
};

/* Reads until a message is complete or the bytes are used up; *used says how many were.
 * Total on any bytes. */
enum pk_message_state pk_message_read(struct pk_message_reader *r,
                                      const unsigned char *in, size_t len, size_t *used);
/* Where in the payload the next bytes of the stream can be put directly, at most *len of
 * them; NULL when it is not worth it. Tell how many came with pk_message_came. */
unsigned char *pk_message_room(struct pk_message_reader *r, size_t *len);
enum pk_message_state pk_message_came(struct pk_message_reader *r, size_t n);
/* Hands the message out, with its memory: entries and their one batch, or configuration
 * and data, all from raft_malloc. server_address is NULL. */
void pk_message_take(struct pk_message_reader *r, struct raft_message *out);
/* Frees the memory of a message that was taken. */
void pk_message_drop(struct raft_message *m);
/* Frees what the reader has of a message; it is at the beginning of a stream again. */
void pk_message_reader_free(struct pk_message_reader *r);

#endif
