/* SPDX-License-Identifier: MIT */
/*
 * What the log store asks of a disk: one folder of files, and operations that say when
 * their bytes are durable. The store (store.h) knows nothing else of files, threads or
 * time, so that the same code runs on real files (file_disk.h) and on the simulated disk
 * of test/sim.
 *
 * An operation is the caller's memory until `done` is called: on the loop's thread, and
 * never from within pk_disk.submit. Operations may finish in any order. A durable
 * operation that reports 0 survives a power cut; one that reports an error may have
 * written any part of its bytes.
 */
#ifndef PICKET_RAFT_DISK_H
#define PICKET_RAFT_DISK_H

#include <stddef.h>
#include <stdint.h>

enum {
    PK_DISK_NAME_MAX = 32, /* of a file, with its NUL */
    PK_DISK_PARTS_MAX = 4,
    PK_DISK_BLOCK = 4096, /* alignment of PK_DISK_OVERWRITE: memory, offset, length */
};

enum pk_disk_kind {
    /* Overwrites blocks of a file that a PK_DISK_STORE has made, durably, without any
     * change of the file's size or extents: the way of a commit. One part, aligned. */
    PK_DISK_OVERWRITE,
    /* Writes all parts, one after the other, from the beginning of a file, which is made
     * if it is not there and becomes at least `size` bytes long; bytes behind the parts
     * stay as they are. Durable with the file's name. On a full disk a file that is there
     * already gets its parts if they fit, and is not made longer than they need. */
    PK_DISK_STORE,
    /* Writes one part, which may be empty, at `offset` of a file that is there; the file
     * grows if it has to. Durable with the next PK_DISK_STORE to the same file. */
    PK_DISK_WRITE,
    /* Reads into memory of core/door.h, which the caller frees: a whole file, or at most
     * `size` bytes from `offset` on, if `size` is not 0. */
    PK_DISK_READ,
    /* Makes durable what pk_disk.note has written. */
    PK_DISK_SYNC,
};

struct pk_disk_part {
    const unsigned char *bytes;
    size_t len;
};

struct pk_disk_op {
    enum pk_disk_kind kind;
    char name[PK_DISK_NAME_MAX]; /* of the file */
    uint64_t offset;             /* OVERWRITE, WRITE and READ */
    uint64_t size;               /* STORE (less than the parts: no matter) and READ */
    struct pk_disk_part parts[PK_DISK_PARTS_MAX];
    unsigned n_parts;
    unsigned char *bytes; /* READ: what was read */
    size_t len;
    /* `error`: 0 or an errno (ENOENT: no such file; ENOSPC: the disk is full). */
    void (*done)(struct pk_disk_op *op, int error);
    void *data;              /* the caller's */
    struct pk_disk_op *next; /* the disk's, while the operation is under way */
    int error;               /* the same */
};

struct pk_disk {
    void *ctx;
    /* Begins an operation. */
    void (*submit)(void *ctx, struct pk_disk_op *op);
    /* Does an operation at once; `done` is not called. 0 or an errno. For starting, and
     * for term and vote, which the consensus library wants to be durable on return. */
    int (*now)(void *ctx, struct pk_disk_op *op);
    /* Writes at once without waiting for the disk: survives the process, and a power cut
     * only once a PK_DISK_SYNC is done. The file must be there. 0 or an errno. */
    int (*note)(void *ctx, const char *name, uint64_t offset, const void *bytes,
                size_t len);
    /* Calls `each` for every file of the folder. 0 or an errno. */
    int (*list)(void *ctx, void (*each)(void *arg, const char *name, uint64_t size),
                void *arg);
    /* Bytes that new files may take. */
    uint64_t (*room)(void *ctx);
};

#endif
