/* SPDX-License-Identifier: MIT */
/*
 * Looks over a stream of libraft's messages before libraft sees it.
 *
 * The library takes lengths from the wire straight into malloc, and follows counts in a
 * header past the header's end. This is a reader of its framing that keeps no message,
 * only where it is in one: every length is held against a bound, and every count against
 * the length of the header it stands in, before the byte that the library would act on
 * is passed (P10).
 *
 *     preamble   type (1)   (1)   version (1)   (5)   length of the header (8)
 *     header     a multiple of 8 bytes; integers are little endian
 *         AppendEntries     term, previous index, previous term, commit, n,
 *                           n times: term (8), type (1) (3) length (4)
 *         InstallSnapshot   term, index, term, configuration's index and length,
 *                           configuration, length of the data
 *         others            of a fixed length
 *     payload    entries, or the data of the snapshot
 *
 * What stands in an entry or a snapshot is not looked at: whoever may send those is a
 * member, and members are believed.
 */
#ifndef PICKET_RAFT_FRAME_H
#define PICKET_RAFT_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PK_FRAME_HEADER_MAX = 1024 * 1024,
    PK_FRAME_ENTRIES_MAX = 128 * 1024 * 1024, /* of one message, together */
    PK_FRAME_CONFIGURATION_MAX = 4096,
    PK_FRAME_MEMBERS_MAX = 64,
};

/* As much state as the limits of the machine can be raised to. */
#define PK_FRAME_SNAPSHOT_MAX (UINT64_C(4) << 30)

struct pk_frame {
    unsigned type;
    uint64_t at;      /* bytes of preamble and header seen */
    uint64_t header;  /* bytes it has, once the preamble is over */
    uint64_t count;   /* entries, or bytes of the configuration */
    uint64_t payload; /* bytes of it, as far as told; then those still to come */
    bool in_payload;
    unsigned char word[8];
    unsigned char configuration[PK_FRAME_CONFIGURATION_MAX];
};

/* Zeroed, a frame is at the beginning of a stream. Takes the next bytes of it; NULL, or
 * why the stream must end and not one of these bytes be passed on. */
const char *pk_frame_check(struct pk_frame *f, const unsigned char *in, size_t len);

#endif
