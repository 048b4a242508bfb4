/* SPDX-License-Identifier: MIT */
/*
 * Taking turns with other processes by a file lock (flock): it can't be left behind by a
 * crash or a reboot, and here it can be waited for with a limit. Turns are meant to be
 * short; the lock ends with pk_filelock_leave() or with the descriptor.
 */
#ifndef PICKET_HOST_FILELOCK_H
#define PICKET_HOST_FILELOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* 0; ETIMEDOUT when somebody else has it until `until_ms` (host/clock.h); or what went
 * wrong. */
int pk_filelock_take(int fd, uint64_t until_ms);
void pk_filelock_leave(int fd);

/* Writes who has it: "process 12", or that it can't be seen. Returns `out`. */
const char *pk_filelock_owner(int fd, char *out, size_t size);

/* Stops a child process (SIGSTOP), but not while it has such a lock on any file, as far
 * as that can be seen: that would keep everybody out. False with errno set. */
bool pk_filelock_stop(pid_t pid);

/* True while the file of `fd` is still the one that `name` leads to: a cleaner of old
 * files may have removed it, and then others lock another one. */
bool pk_filelock_in_place(int fd, int dir_fd, const char *name);

#endif
