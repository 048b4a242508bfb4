/* SPDX-License-Identifier: MIT */
/*
 * The disk of a real node: struct pk_disk (disk.h) on the files of one folder, with
 * completions on a libuv loop.
 *
 * PK_DISK_OVERWRITE, the way of a commit, goes to the kernel's asynchronous I/O, and if
 * that would wait or is not to be had, to four threads that do nothing else. STORE, READ
 * and SYNC run one after the other in one more thread, so that they never wait in front
 * of a commit. No thread is libuv's: a name lookup that hangs there would hold up all.
 *
 * An error is reported and never retried: after a failed flush the kernel may have
 * dropped the bytes (README.md, D4).
 *
 * All functions are for the loop's thread.
 */
#ifndef PICKET_RAFT_FILE_DISK_H
#define PICKET_RAFT_FILE_DISK_H

#include <stddef.h>
#include <stdint.h>

#include "raft/disk.h"

struct uv_loop_s;
struct pk_file_disk;

enum pk_file_disk_backend {
    /* What the environment variable PICKET_DISK says (aio, threads), else AIO where the
     * kernel and its filters allow it, as long as that is not late. */
    PK_FILE_DISK_AUTO,
    PK_FILE_DISK_THREADS,
    PK_FILE_DISK_AIO, /* pk_file_disk_new fails where it is refused */
};

struct pk_file_disk_options {
    struct uv_loop_s *loop; /* NULL: without pk_disk.submit, for offline tools */
    const char *dir;        /* the folder, which must exist; needed by _new only */
    enum pk_file_disk_backend backend;
    /* An OVERWRITE is durable `us` microseconds after it was submitted; called before its
     * `done`. May be NULL. */
    void (*wrote)(void *ctx, uint64_t us);
    void *ctx;
};

/* NULL with a sentence in `why`. */
struct pk_file_disk *pk_file_disk_new(const struct pk_file_disk_options *o, char *why,
                                      size_t size);
/* Good until pk_file_disk_close calls back. A file that is removed while the disk is
 * open stays missing (ENOENT) for OVERWRITE, SYNC and note. */
struct pk_disk *pk_file_disk(struct pk_file_disk *d);
/* What OVERWRITE uses: PK_FILE_DISK_THREADS or PK_FILE_DISK_AIO. */
enum pk_file_disk_backend pk_file_disk_backend(const struct pk_file_disk *d);
/* Waits for the operations under way, whose `done` is called as usual, frees the disk and
 * then calls `closed` from the loop (without a loop: at once). Operations that are
 * submitted meanwhile end with ECANCELED. */
void pk_file_disk_close(struct pk_file_disk *d, void (*closed)(void *ctx), void *ctx);

#endif
