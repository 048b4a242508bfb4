/* SPDX-License-Identifier: MIT */
#include "cli/backup_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/errors.h"
#include "core/machine.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/memory.h"
#include "raft/backup.h"

enum { READ_BYTES = 64 * 1024, CHUNK_LEAST = 1024 };

/* ---- verifying ---- */

const char *pk_backup_verify(int fd, uint64_t *len)
{
    unsigned char room[READ_BYTES];
    struct stat st;
    *len = 0;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > PK_BACKUP_MAX) {
        return "a backup has at most 4 GiB";
    }
    struct pk_backup_reader *r = pk_backup_checker_new();
    ssize_t n = 1;
    while (n > 0) {
        n = pk_fd_read_at(fd, room, sizeof room, (off_t)*len);
        if (n > 0) {
            pk_backup_feed(r, room, (size_t)n);
            *len += (uint64_t)n;
        }
    }
    const char *wrong = n < 0 ? strerror(errno) : pk_backup_wrong(r);
    pk_machine_free(pk_backup_reader_end(r));
    return wrong;
}

/* ---- writing ---- */

static bool is_standard_output(const char *name)
{
    return strcmp(name, "-") == 0;
}

int pk_backup_file_check(const char *verb, const char *name, bool force)
{
    struct stat st;
    if (is_standard_output(name)) {
        return isatty(STDOUT_FILENO) == 0
                   ? 0
                   : pk_errors_fail("cluster: %s: it is no text; send it into a file or "
                                    "a pipe",
                                    verb);
    }
    if (!force && lstat(name, &st) == 0) {
        return pk_errors_fail("cluster: %s: %s is there already; choose another name or "
                              "say --force",
                              verb, name);
    }
    return 0;
}

static int fail(const struct pk_backup_file *f, const char *what, const char *why)
{
    return pk_errors_fail("cluster: %s: can't %s %s: %s", f->verb, what,
                          f->part == NULL ? "the output" : f->part, why);
}

int pk_backup_file_open(struct pk_backup_file *f, const char *verb, const char *name)
{
    *f = (struct pk_backup_file){.verb = verb, .name = name, .fd = STDOUT_FILENO};
    if (is_standard_output(name)) {
        f->checker = pk_backup_checker_new();
        return 0;
    }
    f->part = pk_memory_print("%s.part", name);
    f->fd = open(f->part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (f->fd < 0) {
        int code = fail(f, "write", strerror(errno));
        free(f->part);
        f->part = NULL;
        return code;
    }
    return 0;
}

int pk_backup_file_write(struct pk_backup_file *f, const void *bytes, size_t len)
{
    if (!pk_fd_write(f->fd, bytes, len)) {
        return fail(f, "write", strerror(errno));
    }
    f->bytes += len;
    if (f->checker != NULL) {
        pk_backup_feed(f->checker, bytes, len);
    }
    return 0;
}

int pk_backup_file_restart(struct pk_backup_file *f)
{
    if (f->bytes == 0) {
        return 0;
    }
    if (f->part == NULL) {
        return pk_errors_fail("cluster: %s: the node with the backup is gone, and a part "
                              "was already written to the output; repeat it",
                              f->verb);
    }
    f->bytes = 0;
    return ftruncate(f->fd, 0) == 0 && lseek(f->fd, 0, SEEK_SET) == 0
               ? 0
               : fail(f, "write", strerror(errno));
}

static bool sync_folder_of(const char *file)
{
    char *copy = pk_memory_copy(file);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    pk_fd_close(&fd);
    free(copy);
    return synced;
}

/* What is read back shall come from the disk: its pages are dropped from the cache. */
static int verify(struct pk_backup_file *f)
{
    uint64_t len;
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    const char *wrong = pk_backup_verify(f->fd, &len);
    if (wrong == NULL && len != f->bytes) {
        wrong = "it has another length than what was written";
    }
    return wrong == NULL ? 0 : fail(f, "verify", wrong);
}

int pk_backup_file_keep(struct pk_backup_file *f)
{
    if (f->part == NULL) {
        const char *wrong = pk_backup_wrong(f->checker);
        return wrong == NULL ? 0 : fail(f, "verify", wrong);
    }
    if (fsync(f->fd) != 0) {
        return fail(f, "write", strerror(errno));
    }
    int code = verify(f);
    if (code == 0 && (rename(f->part, f->name) != 0 || !sync_folder_of(f->name))) {
        code = pk_errors_fail("cluster: %s: can't rename %s to %s: %s", f->verb, f->part,
                              f->name, strerror(errno));
    }
    if (code == 0) {
        free(f->part);
        f->part = NULL;
        pk_fd_close(&f->fd);
    }
    return code;
}

void pk_backup_file_close(struct pk_backup_file *f)
{
    if (f->checker != NULL) {
        pk_machine_free(pk_backup_reader_end(f->checker));
        f->checker = NULL;
    }
    if (f->part != NULL) {
        (void)unlink(f->part);
        free(f->part);
        f->part = NULL;
        pk_fd_close(&f->fd);
    }
}

/* ---- pace ---- */

void pk_pace_keep(const struct pk_pace *p, uint64_t bytes)
{
    enum { S_MS = 1000, MS_NS = 1000000 };
    if (p->rate == 0) {
        return;
    }
    uint64_t due =
        p->began_ms + bytes / p->rate * S_MS + bytes % p->rate * S_MS / p->rate;
    uint64_t now = pk_clock_ms();
    if (due > now) {
        struct timespec t = {.tv_sec = (time_t)((due - now) / S_MS),
                             .tv_nsec = (long)((due - now) % S_MS) * MS_NS};
        (void)nanosleep(&t, NULL);
    }
}

size_t pk_pace_chunk(const struct pk_pace *p, size_t most)
{
    if (p->rate == 0 || p->rate >= most) {
        return most;
    }
    return p->rate < CHUNK_LEAST ? CHUNK_LEAST : (size_t)p->rate;
}

void pk_pace_show(const char *what, uint64_t done, uint64_t all)
{
    if (!pk_errors_quiet() && isatty(STDERR_FILENO) == 1) {
        (void)fprintf(stderr, "\rpicket: %3u %% of %" PRIu64 " bytes %s%s",
                      (unsigned)(all == 0 ? 100 : done * 100 / all), all, what,
                      done == all ? "\n" : "");
    }
}
