/* SPDX-License-Identifier: MIT */
#include "host/fd.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

void pk_fd_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void pk_fd_poke(int fd)
{
    const uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

bool pk_fd_send(int fd, const void *data, size_t len, int flags)
{
    ssize_t n;
    do {
        n = send(fd, data, len, flags | MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n >= 0;
}

bool pk_fd_write(int fd, const void *data, size_t len)
{
    const char *at = (const char *)data;
    while (len > 0) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        len -= (size_t)n;
    }
    return true;
}

ssize_t pk_fd_read_at(int fd, void *out, size_t len, off_t offset)
{
    size_t have = 0;
    while (have < len) {
        ssize_t n = pread(fd, (char *)out + have, len - have, offset + (off_t)have);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        have += (size_t)n;
    }
    return (ssize_t)have;
}

bool pk_fd_write_at(int fd, const void *data, size_t len, off_t offset)
{
    size_t have = 0;
    while (have < len) {
        ssize_t n =
            pwrite(fd, (const char *)data + have, len - have, offset + (off_t)have);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return false;
        }
        if (n == 0) { /* never seen; without an error it would go on for ever */
            errno = EIO;
            return false;
        }
        have += (size_t)n;
    }
    return true;
}
