/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a backup, made and read as a stream.
 *
 *     "PKBK"  cluster version (1 byte)
 *     the machine's snapshot (core/view.c), which ends with the digest of its state
 *     digest of all bytes before it (8 bytes, little endian)
 *
 * A backup is made from a view of one moment while the machine goes on, and read in
 * pieces of any size: neither takes memory or time in one step that grows with the state.
 */
#ifndef PICKET_RAFT_BACKUP_H
#define PICKET_RAFT_BACKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raft/snapshot.h"

enum {
    PK_BACKUP_SLICE = 64 * 1024,  /* bytes that one step of the loop makes */
    PK_BACKUP_CHUNK = 256 * 1024, /* bytes of one answer to CLUSTER BACKUP */
    PK_BACKUP_PIECE = 64 * 1024,  /* bytes of one CLUSTER RESTORE */
};

/* Bytes of a whole backup: as much state as the machine's limits can be raised to. */
#define PK_BACKUP_MAX (UINT64_C(4) << 30)

/* ---- making ---- */

struct pk_backup;

/* Begins a view of the machine, which must have none. */
struct pk_backup *pk_backup_begin(struct pk_machine *m);
/* Copies the next bytes; GONE: the view was ended, or the memory is damaged. */
enum pk_source_state pk_backup_read(struct pk_backup *b, unsigned char *to, size_t room,
                                    size_t *n);
/* All bytes were read, and the digest of the state was not the machine's. */
bool pk_backup_is_unsound(const struct pk_backup *b);
/* Whether it has a view of the machine; then the machine can't have another one. */
bool pk_backup_views(const struct pk_backup *b);
/* Ends the machine's view. Must be called before the machine is freed. */
void pk_backup_end(struct pk_backup *b);
void pk_backup_free(struct pk_backup *b);

/* ---- reading ---- */

struct pk_backup_reader;

/* Builds a machine as the bytes come. */
struct pk_backup_reader *pk_backup_reader_new(void);
/* Checks the checksum and the structure only, in the memory of one item. */
struct pk_backup_reader *pk_backup_checker_new(void);
void pk_backup_feed(struct pk_backup_reader *r, const unsigned char *bytes, size_t len);
/* The cluster version that the backup says it needs; 0: the bytes so far are no beginning
 * of one. */
uint32_t pk_backup_version(const struct pk_backup_reader *r);
/* NULL: the bytes so far are a whole backup. Otherwise a sentence. */
const char *pk_backup_wrong(const struct pk_backup_reader *r);
/* The machine; frees `r`. Unless pk_backup_wrong was NULL it can only be freed. */
struct pk_machine *pk_backup_reader_end(struct pk_backup_reader *r);

#endif
