/* SPDX-License-Identifier: MIT */
/*
 * The file of a backup while it is written: FILE.part, which becomes FILE once all of it
 * is on disk and was read back and found to be right. Until then FILE is as it was.
 * "-" is standard output, which can't be read back: there the bytes are checked as they
 * go by.
 */
#ifndef PICKET_CLI_BACKUP_FILE_H
#define PICKET_CLI_BACKUP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pk_backup_reader;

struct pk_backup_file {
    const char *verb; /* for messages: backup, recover */
    const char *name;
    char *part; /* NULL: standard output */
    int fd;
    uint64_t bytes;                   /* written so far */
    struct pk_backup_reader *checker; /* of standard output; NULL: none */
};

/* Bytes a second, and where to begin counting. */
struct pk_pace {
    uint64_t rate; /* 0: no limit */
    uint64_t began_ms;
};

/* All return 0, or an exit code after an error said. */

/* Whether NAME can be written, before anything else is done. */
int pk_backup_file_check(const char *verb, const char *name, bool force);
int pk_backup_file_open(struct pk_backup_file *f, const char *verb, const char *name);
int pk_backup_file_write(struct pk_backup_file *f, const void *bytes, size_t len);
/* Another backup begins: forgets what was written. */
int pk_backup_file_restart(struct pk_backup_file *f);
/* All is written: makes it durable, verifies it, gives it its name. */
int pk_backup_file_keep(struct pk_backup_file *f);
/* Frees what is left; a file that was not kept is removed. */
void pk_backup_file_close(struct pk_backup_file *f);

/* Feeds the whole of an open file to a checker, from its beginning. NULL, or a sentence
 * which may be of errno. *len is the number of bytes. */
const char *pk_backup_verify(int fd, uint64_t *len);

/* Waits until `bytes` may have been moved since the beginning. */
void pk_pace_keep(const struct pk_pace *p, uint64_t bytes);
/* How many bytes to move at once, at most `most`. */
size_t pk_pace_chunk(const struct pk_pace *p, size_t most);
/* Shows how far it has come, on a terminal. */
void pk_pace_show(const char *what, uint64_t done, uint64_t all);

#endif
