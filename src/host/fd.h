/* SPDX-License-Identifier: MIT */
#ifndef PICKET_HOST_FD_H
#define PICKET_HOST_FD_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

/* Closes the descriptor if there is one, and forgets it: -1 is none. */
static inline void pk_fd_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* Makes an eventfd readable. A full counter is readable already, so that EAGAIN is fine;
 * after EINTR nothing was written, and a wake-up must not get lost. */
static inline void pk_fd_poke(int fd)
{
    const uint64_t one = 1;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* Writes all of it, however many pieces that takes. False with errno set. */
static inline bool pk_fd_write(int fd, const void *data, size_t len)
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

/* Reads `len` bytes at `offset`, fewer only where the file ends; returns how many. -1
 * with errno set. */
static inline ssize_t pk_fd_read_at(int fd, void *out, size_t len, off_t offset)
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

#endif
