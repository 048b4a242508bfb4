/* SPDX-License-Identifier: MIT */
#include "raft/file_io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/door.h"
#include "host/fd.h"

enum { ZEROS = 1 << 20 }; /* bytes written at a time where a file grows */

/* -1 with errno set. */
static int open_in(int folder, const char *name, int flags)
{
    int fd;
    do {
        fd = openat(folder, name, flags | O_CLOEXEC, 0600);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

static int sync_all(int fd)
{
    int failed;
    do {
        failed = fsync(fd);
    } while (failed != 0 && errno == EINTR);
    return failed != 0 ? errno : 0;
}

static int sync_data(int fd)
{
    int failed;
    do {
        failed = fdatasync(fd);
    } while (failed != 0 && errno == EINTR);
    return failed != 0 ? errno : 0;
}

static int write_at(int fd, const void *bytes, size_t len, uint64_t offset)
{
    return pk_fd_write_at(fd, bytes, len, (off_t)offset) ? 0 : errno;
}

/* ---- descriptors that stay open ---- */

int pk_files_open(struct pk_files *f, const char *dir)
{
    *f = (struct pk_files){.folder = open_in(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY)};
    if (f->folder < 0) {
        return errno;
    }
    int error = sync_all(f->folder);
    if (error != 0 && error != EROFS) {
        pk_fd_close(&f->folder);
        return error;
    }
    return 0;
}

void pk_files_close(struct pk_files *f)
{
    for (size_t i = 0; i < f->count; i++) {
        pk_fd_close(&f->open[i].durable);
        pk_fd_close(&f->open[i].plain);
    }
    f->open = pk_door_resize(f->open, 0);
    f->count = 0;
    pk_fd_close(&f->folder);
}

static struct pk_open_file *find(const struct pk_files *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++) {
        if (strcmp(f->open[i].name, name) == 0) {
            return &f->open[i];
        }
    }
    return NULL;
}

static struct pk_open_file *add(struct pk_files *f, const char *name)
{
    f->open = pk_door_resize(f->open, (f->count + 1) * sizeof *f->open);
    struct pk_open_file *file = &f->open[f->count++];
    *file = (struct pk_open_file){.durable = -1, .plain = -1};
    memcpy(file->name, name, strlen(name) + 1);
    return file;
}

/* Some file systems refuse O_DIRECT only when blocks are read or written. */
static bool takes_direct(int fd)
{
    _Alignas(PK_DISK_BLOCK) unsigned char block[PK_DISK_BLOCK];
    return pread(fd, block, sizeof block, 0) >= 0 || errno != EINVAL;
}

static int open_durable(int folder, const char *name)
{
    const int flags = O_RDWR | O_DSYNC;
    int fd = open_in(folder, name, flags | O_DIRECT);
    if (fd < 0 && errno != EINVAL) {
        return -1;
    }
    if (fd >= 0 && takes_direct(fd)) {
        return fd;
    }
    pk_fd_close(&fd);
    return open_in(folder, name, flags);
}

/* The file with its descriptor of one sort, opened once. NULL with errno set. */
static struct pk_open_file *open_file(struct pk_files *f, const char *name, bool durable)
{
    struct pk_open_file *file = find(f, name);
    if (file != NULL && (durable ? file->durable : file->plain) >= 0) {
        return file;
    }
    PK_ASSERT(strlen(name) < PK_DISK_NAME_MAX && strchr(name, '/') == NULL);
    int fd = durable ? open_durable(f->folder, name) : open_in(f->folder, name, O_WRONLY);
    if (fd < 0) {
        return NULL;
    }
    file = file != NULL ? file : add(f, name);
    *(durable ? &file->durable : &file->plain) = fd;
    file->direct = file->direct || (durable && (fcntl(fd, F_GETFL) & O_DIRECT) != 0);
    return file;
}

/* Bytes in a removed file would be lost with the process. Only what is needed is asked
 * for: once somebody has asked for a file's times, the next write gives it new ones, and
 * a durable write then has to wait for the inode too. */
static int check_there(int fd, uint64_t end)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_NLINK | STATX_SIZE, &st) != 0) {
        return errno;
    }
    if (st.stx_nlink == 0) {
        return ENOENT;
    }
    return end > st.stx_size ? EINVAL : 0;
}

int pk_files_prepare(struct pk_files *f, struct pk_file_request *r)
{
    const struct pk_disk_op *op = r->op;
    const struct pk_disk_part *part = &op->parts[0];
    bool overwrite = op->kind == PK_DISK_OVERWRITE;
    if (op->kind == PK_DISK_STORE || op->kind == PK_DISK_READ) {
        return 0;
    }
    if (overwrite) {
        PK_ASSERT(op->n_parts == 1 && part->len > 0 && part->len <= INT32_MAX);
        PK_ASSERT(((uintptr_t)part->bytes | op->offset | part->len) % PK_DISK_BLOCK == 0);
    }
    const struct pk_open_file *file = open_file(f, op->name, overwrite);
    if (file == NULL) {
        return errno;
    }
    r->fd = overwrite ? file->durable : file->plain;
    r->direct = overwrite && file->direct;
    return check_there(r->fd, overwrite ? op->offset + part->len : 0);
}

int pk_files_note(struct pk_files *f, const char *name, uint64_t offset,
                  const void *bytes, size_t len)
{
    const struct pk_open_file *file = open_file(f, name, false);
    if (file == NULL) {
        return errno;
    }
    int error = check_there(file->plain, 0);
    return error != 0 ? error : write_at(file->plain, bytes, len, offset);
}

/* ---- operations ---- */

/* Real zeros: blocks that are only reserved would change the file's extents when they are
 * first overwritten, which makes a commit wait for the file system's journal. */
static int write_zeros(int fd, uint64_t from, uint64_t to)
{
    if (from >= to) {
        return 0;
    }
    unsigned char *zeros = pk_door_resize(NULL, ZEROS);
    int error = 0;
    memset(zeros, 0, ZEROS);
    while (from < to && error == 0) {
        size_t len = to - from < ZEROS ? (size_t)(to - from) : ZEROS;
        error = write_at(fd, zeros, len, from);
        from += len;
    }
    (void)pk_door_resize(zeros, 0);
    return error;
}

/* Reserves the room first, so that a full disk is known before anything is written. */
static int reserve(int fd, uint64_t size)
{
    int error;
    do {
        error = posix_fallocate(fd, 0, (off_t)size);
    } while (error == EINTR);
    return error;
}

/* Makes room for `least` bytes, and for `size` if there is room for that; *size is what
 * there is then. */
static int make_room(int fd, uint64_t had, uint64_t least, uint64_t *size)
{
    int error = *size > had ? reserve(fd, *size) : 0;
    if (error == ENOSPC && had > 0) {
        *size = least > had ? least : had;
        error = ftruncate(fd, (off_t)had) != 0 ? errno : 0; /* give the rest back */
        error = error == 0 && *size > had ? reserve(fd, *size) : error;
    }
    return error;
}

static int store_into(int folder, int fd, const struct pk_disk_op *op, bool made)
{
    struct stat st;
    uint64_t at = 0, least = 0;
    if (fstat(fd, &st) != 0) {
        return errno;
    }
    for (unsigned i = 0; i < op->n_parts; i++) {
        least += op->parts[i].len;
    }
    uint64_t size = least > op->size ? least : op->size;
    int error = make_room(fd, (uint64_t)st.st_size, least, &size);
    bool grows = size > (uint64_t)st.st_size;
    for (unsigned i = 0; i < op->n_parts && error == 0; i++) {
        error = write_at(fd, op->parts[i].bytes, op->parts[i].len, at);
        at += op->parts[i].len;
    }
    if (error == 0 && grows) {
        uint64_t had = (uint64_t)st.st_size;
        error = write_zeros(fd, at > had ? at : had, size);
    }
    if (error != 0) {
        return error;
    }
    if (!made && !grows) {
        return sync_data(fd);
    }
    error = sync_all(fd);
    return error != 0 ? error : sync_all(folder);
}

static int store(int folder, const struct pk_disk_op *op)
{
    int fd = open_in(folder, op->name, O_WRONLY);
    bool made = fd < 0 && errno == ENOENT;
    if (made) {
        fd = open_in(folder, op->name, O_WRONLY | O_CREAT | O_EXCL);
    }
    if (fd < 0) {
        return errno;
    }
    int error = store_into(folder, fd, op, made);
    pk_fd_close(&fd);
    return error;
}

static int read_from(int fd, struct pk_disk_op *op)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return errno;
    }
    size_t size = op->size == 0 ? (size_t)st.st_size : (size_t)op->size;
    op->bytes = pk_door_resize(NULL, size);
    ssize_t n = pk_fd_read_at(fd, op->bytes, size, (off_t)op->offset);
    if (n < 0) {
        int error = errno;
        op->bytes = pk_door_resize(op->bytes, 0);
        return error;
    }
    op->len = (size_t)n;
    return 0;
}

static int read_all(int folder, struct pk_disk_op *op)
{
    op->bytes = NULL;
    op->len = 0;
    int fd = open_in(folder, op->name, O_RDONLY);
    if (fd < 0) {
        return errno;
    }
    int error = read_from(fd, op);
    pk_fd_close(&fd);
    return error;
}

int pk_file_run(int folder, struct pk_file_request *r)
{
    struct pk_disk_op *op = r->op;
    switch (op->kind) {
    case PK_DISK_OVERWRITE:
    case PK_DISK_WRITE:
        return write_at(r->fd, op->parts[0].bytes, op->parts[0].len, op->offset);
    case PK_DISK_STORE:
        return store(folder, op);
    case PK_DISK_READ:
        return read_all(folder, op);
    case PK_DISK_SYNC:
        return sync_data(r->fd);
    }
    return EINVAL;
}

/* ---- the folder ---- */

int pk_files_list(const struct pk_files *f,
                  void (*each)(void *arg, const char *name, uint64_t size), void *arg)
{
    int fd = open_in(f->folder, ".", O_RDONLY | O_DIRECTORY);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        int error = errno;
        pk_fd_close(&fd);
        return error;
    }
    errno = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        struct stat st;
        bool there = fstatat(f->folder, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && S_ISREG(st.st_mode)) {
            each(arg, e->d_name, (uint64_t)st.st_size);
        }
        errno = 0; /* which tells an error of readdir from the end */
    }
    int error = errno;
    (void)closedir(d);
    return error;
}

uint64_t pk_files_room(const struct pk_files *f)
{
    struct statvfs st;
    return fstatvfs(f->folder, &st) != 0 ? 0 : (uint64_t)st.f_bavail * st.f_frsize;
}
