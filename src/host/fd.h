/* SPDX-License-Identifier: MIT */
/* Descriptors: closing, and calls that go on after a signal or a part of the bytes. */
#ifndef PICKET_HOST_FD_H
#define PICKET_HOST_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Closes the descriptor if there is one, and forgets it: -1 is none. */
void pk_fd_close(int *fd);
/* Makes an eventfd readable. A full counter is readable already, so that EAGAIN is fine;
 * after EINTR nothing was written, and a wake-up must not get lost. */
void pk_fd_poke(int fd);
/* Sends one message without a SIGPIPE. False with errno set. */
bool pk_fd_send(int fd, const void *data, size_t len, int flags);
/* Writes all of it, however many pieces that takes. False with errno set. */
bool pk_fd_write(int fd, const void *data, size_t len);
/* Reads `len` bytes at `offset`, fewer only where the file ends; returns how many. -1
 * with errno set. */
ssize_t pk_fd_read_at(int fd, void *out, size_t len, off_t offset);
/* Writes all of it at `offset`, however many pieces that takes. False with errno set. */
bool pk_fd_write_at(int fd, const void *data, size_t len, off_t offset);

#endif
