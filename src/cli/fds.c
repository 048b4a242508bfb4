/* SPDX-License-Identifier: MIT */
#include "cli/fds.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    OWN_FROM = 100,
    UNLISTED_MAX = 4096, /* how far descriptors are looked for without /proc */
};

bool pk_fds_fill_standard(void)
{
    int fd = 0;
    while (fd >= 0 && fd <= STDERR_FILENO) {
        if (fcntl(fd, F_GETFD) >= 0) {
            fd++;
            continue;
        }
        /* The lowest number that is free is this one. */
        fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    return fd >= 0;
}

int pk_fds_raise(int fd)
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, OWN_FROM);
    if (high < 0) {
        return fd; /* a tight limit on descriptors: an unusual number does no harm */
    }
    (void)close(fd);
    return high;
}

static bool among(int fd, const int *keep, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (keep[i] == fd) {
            return true;
        }
    }
    return false;
}

void pk_fds_drop_inherited(const int *keep, size_t count)
{
    DIR *open_fds = opendir("/proc/self/fd");
    struct dirent *entry;
    while (open_fds != NULL && (entry = readdir(open_fds)) != NULL) {
        int fd = (int)strtol(entry->d_name, NULL, 10); /* "." and ".." give 0 */
        if (fd > STDERR_FILENO && fd != dirfd(open_fds) && !among(fd, keep, count)) {
            (void)close(fd);
        }
    }
    for (int fd = STDERR_FILENO + 1; open_fds == NULL && fd < UNLISTED_MAX; fd++) {
        if (!among(fd, keep, count)) {
            (void)close(fd);
        }
    }
    if (open_fds != NULL) {
        (void)closedir(open_fds);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(null, STDOUT_FILENO);
        if (null > STDERR_FILENO) {
            (void)close(null);
        }
    } else { /* whoever waits for the end of a pipe must not wait for us */
        (void)close(STDIN_FILENO);
        (void)close(STDOUT_FILENO);
    }
}
