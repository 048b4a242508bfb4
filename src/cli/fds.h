/* SPDX-License-Identifier: MIT */
/*
 * Descriptors of a process that stands between a caller and a job: its own high and
 * close-on-exec, those it was given handed on and then let go.
 */
#ifndef PICKET_CLI_FDS_H
#define PICKET_CLI_FDS_H

#include <stdbool.h>
#include <stddef.h>

/* Puts something into the places of standard input, output and error that are closed, so
 * that no descriptor of ours gets one of these numbers and is read, written or inherited
 * in its place. Using it fails with EBADF, as before, and a job finds it closed. Call it
 * before anything is opened. False: there is no descriptor left. */
bool pk_fds_fill_standard(void);

/* Moves a descriptor of ours out of the job's way and makes it close-on-exec; returns its
 * new number. A negative `fd` comes back as it is. */
int pk_fds_raise(int fd);

/* Lets go of everything that came from our caller, so that a reader at the other end of
 * it does not wait for us: standard input and output become /dev/null, the rest is closed
 * but for standard error and the `count` descriptors in `keep`. */
void pk_fds_drop_inherited(const int *keep, size_t count);

#endif
