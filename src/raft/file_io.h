/* SPDX-License-Identifier: MIT */
/*
 * The operations of file_disk.h as calls that wait for the disk, and the descriptors that
 * stay open. Interrupted calls are repeated and short writes continued; every other error
 * is returned as an errno, and nothing is tried twice.
 */
#ifndef PICKET_RAFT_FILE_IO_H
#define PICKET_RAFT_FILE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "raft/disk.h"

struct pk_open_file {
    char name[PK_DISK_NAME_MAX];
    int durable; /* O_DSYNC; -1: not open */
    bool direct; /* `durable` has O_DIRECT, which not every file system takes */
    int plain;   /* for notes; -1: not open */
};

/* The folder is for every thread, the table for the loop's thread alone. */
struct pk_files {
    int folder;
    struct pk_open_file *open;
    size_t count;
};

/* One operation under way. */
struct pk_file_request {
    struct pk_disk_op *op;
    int fd;      /* OVERWRITE and SYNC; stays open */
    bool direct; /* its writes go past the page cache */
    int error;
    uint64_t began_us;
    struct pk_file_request *next;
};

/* Opens the folder and makes the names in it durable, since the process that made them
 * may have ended too early to do so. 0 or an errno. */
int pk_files_open(struct pk_files *f, const char *dir);
void pk_files_close(struct pk_files *f);
/* Sets `fd` and `direct`, if the operation needs them. EINVAL: an OVERWRITE beyond the
 * end of its file, which would change the file's size. 0 or an errno. */
int pk_files_prepare(struct pk_files *f, struct pk_file_request *r);
/* Does an operation that pk_files_prepare has allowed. For any thread. 0 or an errno. */
int pk_file_run(int folder, struct pk_file_request *r);
/* pk_disk.note, .list and .room. */
int pk_files_note(struct pk_files *f, const char *name, uint64_t offset,
                  const void *bytes, size_t len);
int pk_files_list(const struct pk_files *f,
                  void (*each)(void *arg, const char *name, uint64_t size), void *arg);
uint64_t pk_files_room(const struct pk_files *f);

#endif
