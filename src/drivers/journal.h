/* SPDX-License-Identifier: MIT */
/*
 * A journal in a directory that several processes append to, taking turns.
 *
 *     DIR/lock      flock'ed around every use of the journal, together with DIR itself.
 *                   Its content is the note: what is known to be on disk.
 *                       store id (8 bytes)   generation (8)   length (8)   digest (8)
 *     DIR/journal   "PKJL", version (1 byte), 3 zero bytes, store id (8 bytes),
 *                   generation (8), digest of these 24 bytes (8), then records:
 *                       length of the payload (4 bytes)   check of the length (4 bytes)
 *                       digest of the payload (8 bytes)   payload: kind (1 byte), data
 *
 * Integers are little endian. The first record is a snapshot. A record is appended by one
 * write and is on disk (fdatasync) before the lock is released, so at most the last
 * record can be torn, and its caller got no answer: the next append cuts it off. A bad
 * record with a good one behind it is damage, and refused. Compaction writes a new file
 * of the next generation and renames it over the old one. The store id is random and the
 * same in all generations.
 *
 * The note is written only after everything that it names is on disk: the records by
 * fdatasync, the file's name by fsync of the directory. It is not synced itself, so a
 * power cut may take it back to an older note, but never leaves it ahead of the journal:
 *     journal shorter than noted, or bad before the noted length   acknowledged records
 *                                                  are missing: refused
 *     journal missing, older generation, other id  not the journal used last: refused
 *     journal longer than noted                    not known to be on disk: read only
 *                                                  after it was written again and synced
 *     newer generation than noted                  name not known to be on disk: nothing
 *                                                  is appended before a new rename
 *     note missing or its digest wrong             nothing is known: like a note of 0
 *
 * The version is that of this frame. The snapshot says which cluster version its machine
 * has (core/view.c), and so how to read it and the commands behind it.
 */
#ifndef PICKET_DRIVERS_JOURNAL_H
#define PICKET_DRIVERS_JOURNAL_H

#include <picket.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/bytes.h"
#include "drivers/state_dir.h"

enum pk_record {
    PK_RECORD_SNAPSHOT = 'S', /* the machine; only as the first record */
    PK_RECORD_EPOCH = 'B',    /* from here on, how cluster time follows the clock */
    PK_RECORD_COMMANDS = 'C', /* encoded commands, one after the other */
};

/* What is known to be on disk, name and records. id 0: nothing. */
struct pk_journal_note {
    uint64_t id, generation, length;
};

struct pk_journal {
    char *path;              /* of the directory, for messages */
    struct pk_state_dir dir; /* whose it is */
    int dir_fd, lock_fd, fd;
    ino_t inode;
    uint64_t id, generation; /* of the open file; 0: there was none yet */
    uint64_t end;            /* behind the last good record that was read or written */
    uint64_t baseline;       /* what snapshot and epoch took: the size after compaction */
    struct pk_journal_note synced; /* by this process, or read from the lock file */
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
 * lock. STORE: refused, nothing has changed. UNKNOWN: the disk failed while writing, and
 * the record may be found there after a power cut. */
enum picket_status pk_journal_append(struct pk_journal *j, enum pk_record kind,
                                     struct pk_bytes data);

/* True when compaction is worth it. */
bool pk_journal_bloated(const struct pk_journal *j);
/* Makes a new journal of these two records, in place of the old one or as the first. When
 * it fails, the old journal or the new one is in place. Both have all that was
 * acknowledged, and the next append makes sure that the one in place stays. */
enum picket_status pk_journal_replace(struct pk_journal *j, struct pk_bytes snapshot,
                                      struct pk_bytes epoch);

#endif
