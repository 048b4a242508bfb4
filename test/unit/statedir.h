/* SPDX-License-Identifier: MIT */
/*
 * For tests of the embedded default: a state directory of its own for each test, and its
 * files as bytes, to look at and to damage.
 */
#ifndef PICKET_TEST_STATEDIR_H
#define PICKET_TEST_STATEDIR_H

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"

static char dir[4096];   /* this test's own; not made yet below it: */
static char state[4200]; /* the state directory */

/* Lets no file grow past `size`: what a full disk does, without one. */
static inline void limit_files(size_t size)
{
    struct rlimit now;
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)getrlimit(RLIMIT_FSIZE, &now);
    now.rlim_cur = size;
    (void)setrlimit(RLIMIT_FSIZE, &now);
}

static inline void unlimit_files(void)
{
    struct rlimit now;
    (void)getrlimit(RLIMIT_FSIZE, &now);
    now.rlim_cur = now.rlim_max;
    (void)setrlimit(RLIMIT_FSIZE, &now);
}

/* Forked children leave by _exit or a signal, so only the test itself cleans up, and with
 * this priority after all else that a test program has to end. */
__attribute__((destructor(101))) static void dir_remove(void)
{
    char command[4200];
    if (dir[0] != '\0') {
        (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
        if (system(command) != 0) {
            printf("# left behind: %s\n", dir);
        }
        dir[0] = '\0';
    }
}

static inline void dir_fresh(void)
{
    unlimit_files(); /* a test that failed may have left it set */
    dir_remove();
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(dir, sizeof dir, "%s/picket-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
    CHECK(mkdtemp(dir) != NULL);
    CHECK(chmod(dir, 0755) == 0);
    (void)snprintf(state, sizeof state, "%s/state", dir);
}

/* The path of a file in the state directory, good until the fourth call from now. */
static inline const char *in_state(const char *name)
{
    static char paths[4][4400];
    static unsigned next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", state, name);
    return path;
}

/* ---- files as bytes ---- */

struct file {
    unsigned char *bytes;
    size_t len;
};

static inline void file_drop(struct file *f)
{
    free(f->bytes);
    *f = (struct file){0};
}

static inline struct file file_read(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    struct file f = {.len = (size_t)st.st_size};
    f.bytes = malloc(f.len + 1);
    CHECK(f.bytes != NULL);
    CHECK(read(fd, f.bytes, f.len) == (ssize_t)f.len);
    (void)close(fd);
    return f;
}

/* In place of what was there; the inode stays, as it does when a disk does damage. */
static inline void file_write(const char *path, const void *bytes, size_t len)
{
    /* Not O_TRUNC: some file systems take a file emptied and written for precious, and
     * wait for the disk. */
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, bytes, len) == (ssize_t)len);
    CHECK(ftruncate(fd, (off_t)len) == 0);
    (void)close(fd);
}

static inline bool file_is(const char *path, const void *bytes, size_t len)
{
    struct file now = file_read(path);
    bool same = now.len == len && memcmp(now.bytes, bytes, len) == 0;
    file_drop(&now);
    return same;
}

static inline size_t file_size(const char *path)
{
    struct stat st;
    CHECK(stat(path, &st) == 0);
    return (size_t)st.st_size;
}

static inline bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* How many entries a directory has. */
static inline unsigned entries_of(const char *path)
{
    unsigned count = 0;
    DIR *d = opendir(path);
    CHECK(d != NULL);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    }
    (void)closedir(d);
    return count;
}

#endif
