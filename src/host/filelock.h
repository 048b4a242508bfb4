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

/* 0; ETIMEDOUT when somebody else has it until `until_ms` (host/clock.h); or what went
 * wrong. */
int pk_filelock_take(int fd, uint64_t until_ms);
void pk_filelock_leave(int fd);

/* Writes who has it: "process 12", or that it can't be seen. Returns `out`. */
const char *pk_filelock_owner(int fd, char *out, size_t size);

/* Whether a process has such a lock on any file; no, if that can't be seen. */
bool pk_filelock_held_by(long pid);

/* True while the file of `fd` is still the one that `name` leads to: a cleaner of old
 * files may have removed it, and then others lock another one. */
bool pk_filelock_in_place(int fd, int dir_fd, const char *name);

#endif
