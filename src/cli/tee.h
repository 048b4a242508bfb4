/* SPDX-License-Identifier: MIT */
/*
 * Standard output that is kept as well as passed on: a process of its own copies what a
 * command prints to where it was going, and its first bytes into memory. A process, not a
 * thread: it is started before the guard, which wants a process with one thread.
 */
#ifndef PICKET_CLI_TEE_H
#define PICKET_CLI_TEE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pk_tee {
    pid_t pid;
    int stdout_fd; /* where it was going */
    int kept_fd;
    size_t keep;
};

/* From now on what we and our children print goes through it; at most `keep` bytes are
 * kept. 0, or -errno with nothing changed. */
int pk_tee_start(struct pk_tee *t, size_t keep);
/* Our own standard output is again what it was; that of children started meanwhile stays.
 */
void pk_tee_restore(struct pk_tee *t);
/* Waits until all writers are gone and returns what was kept, malloc'ed; *cut: there was
 * more. After pk_tee_restore(). */
char *pk_tee_end(struct pk_tee *t, size_t *len, bool *cut);

#endif
