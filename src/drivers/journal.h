/* SPDX-License-Identifier: MIT */
/*
 * A journal in a directory that several processes append to, taking turns.
 *
 *     DIR/lock      flock'ed around every use of the journal; inode and length of the
 *                   journal that was last known to be on disk (8 bytes each)
 *     DIR/journal   "PKJL", version (1 byte), 3 zero bytes, then records:
 *                       length of the payload (4 bytes)   check of the length (4 bytes)
 *                       digest of the payload (8 bytes)   payload: kind (1 byte), data
 *
 * Integers are little endian. The first record is a snapshot. A record is appended by one
 * write and is on disk (fdatasync) before the lock is let go, so at most the last record
 * can be torn, and nobody was told of that one: it is cut off by whoever appends next. A
 * bad record with a good one behind it is damage, and refused. Compaction writes a new
 * file and renames it over the old.
 */
#ifndef PICKET_DRIVERS_JOURNAL_H
#define PICKET_DRIVERS_JOURNAL_H

#include <picket.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/bytes.h"

enum pk_record {
    PK_RECORD_SNAPSHOT = 'S', /* the machine; only as the first record */
    PK_RECORD_EPOCH = 'B',    /* from here on, how cluster time follows the clock */
    PK_RECORD_COMMANDS = 'C', /* encoded commands, one after the other */
};

struct pk_journal {
    char *path; /* of the directory, for messages */
    int dir_fd, lock_fd, fd;
    ino_t inode;
    uint64_t end;      /* behind the last good record that was read or written */
    uint64_t baseline; /* what snapshot and epoch took: the size after compaction */
    unsigned char *buffer;
    size_t capacity;
};

/* Opens the directory, which is made if it is not there, and its lock. */
enum picket_status pk_journal_open(struct pk_journal *j, const char *path);
void pk_journal_close(struct pk_journal *j);
/* After fork, in the child: only lets go of the descriptors. */
void pk_journal_forked(struct pk_journal *j);

/* Everything below needs the lock. Gives up at `until_ms` with UNREACHABLE. */
enum picket_status pk_journal_lock(struct pk_journal *j, uint64_t until_ms);
void pk_journal_unlock(struct pk_journal *j);

/* Shows the records that were appended since the last call to `visit`, which returns
 * false when it can't make sense of one. When the file is another one by now, that is all
 * of its records, of which the first is a snapshot. *empty: there is no journal yet. */
typedef bool pk_journal_visit(void *ctx, enum pk_record kind, struct pk_bytes data);
enum picket_status pk_journal_read(struct pk_journal *j, pk_journal_visit *visit,
                                   void *ctx, bool *empty);

/* Appends one record and waits until it is on disk. Needs a read before it under the same
 * lock. STORE: refused, nothing has changed. UNKNOWN: the disk failed while writing. */
enum picket_status pk_journal_append(struct pk_journal *j, enum pk_record kind,
                                     struct pk_bytes data);

/* True when compaction is worth it. */
bool pk_journal_bloated(const struct pk_journal *j);
/* Makes a new journal of these two records, in place of the old one or as the first. */
enum picket_status pk_journal_replace(struct pk_journal *j, struct pk_bytes snapshot,
                                      struct pk_bytes epoch);

#endif
