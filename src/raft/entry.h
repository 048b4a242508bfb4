/* SPDX-License-Identifier: MIT */
/*
 * The bytes of one log entry: all that one loop turn of a leader has to say.
 *
 *     head (PK_ENTRY_HEAD bytes, integers little endian)
 *         "PKE"   cluster version that it needs (1)
 *         kind (1)   flags (1)   bytes of padding (1)   zero (1)
 *         origin (8)   batch (8)   index (8)   stamp (8)   count (8)
 *     body
 *         COMMANDS: `count` commands as core/command.h encodes them; each is run with
 *                   the entry's stamp, so that it does not matter which of them is fit
 *                   to move the clock
 *         RESTORE:  a piece of a backup;  ADOPT: nothing
 *     zeros up to a multiple of 8, which the consensus library wants
 *
 * An entry needs the cluster version that its commands need (core/command.h), which is
 * also that of its format. A replica that does not run that version stops before the
 * entry. Raising the version is a command that needs the new one: so whatever comes
 * behind it is only ever run by replicas that can.
 *
 * `index` is the place in the log that the entry had when it was proposed. A replica
 * that has been there already skips it (guard G2 of guard.h says how that can happen).
 * After an entry with the flag MARK all replicas compare the digests of their states
 * (agreement.h).
 */
#ifndef PICKET_RAFT_ENTRY_H
#define PICKET_RAFT_ENTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

enum { PK_ENTRY_HEAD = 48 };

enum pk_entry_kind {
    PK_ENTRY_COMMANDS = 1, /* none of them: a barrier */
    PK_ENTRY_RESTORE = 2,  /* a piece of a backup, to be kept until ADOPT */
    PK_ENTRY_ADOPT = 3,    /* the pieces become the state */
};

struct pk_entry {
    enum pk_entry_kind kind;
    uint32_t needs;  /* cluster version; 0: the oldest that this build runs */
    bool mark;       /* take the digest of the state after this entry */
    uint64_t origin; /* the run of the process that proposed it */
    uint64_t batch;  /* which of its proposals, from 1 */
    uint64_t index;
    uint64_t stamp_ms;
    uint64_t count; /* of commands; RESTORE: offset of this piece */
    struct pk_bytes body;
};

/* The size of an entry whose body has `body` bytes, padding included. */
size_t pk_entry_size(size_t body);
/* Writes the head and the padding of an entry whose body (e->body.len bytes) already
 * stands at out + PK_ENTRY_HEAD. */
void pk_entry_seal(unsigned char *out, const struct pk_entry *e);
/* The cluster version that the entry needs, whether or not this build runs it; 0: the
 * bytes don't begin as one. */
uint32_t pk_entry_needs(const unsigned char *in, size_t len);
/* False when the bytes are no entry, or need another version: what seal can't have
 * written is refused. The body borrows from `in`. */
bool pk_entry_open(const unsigned char *in, size_t len, struct pk_entry *e);

#endif
