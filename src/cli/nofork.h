/* SPDX-License-Identifier: MIT */
/*
 * `picket run -F`: picket itself becomes the job, as under `flock -F`, and a helper
 * beside it holds the lease and does the guarding.
 *
 *     caller  ->  picket, later the job  ->  whatever it starts
 *     (init)  ->  helper
 *
 * pk_nofork_split() returns twice. The helper opens the lease, waits for the lock, says
 * pk_nofork_go() or pk_nofork_exit(), and sits in pk_nofork_watch() until the job is
 * gone. The other process waits in pk_nofork_become() and executes the command or exits
 * as told. The helper is nobody's child but init's, so that the job has no child it did
 * not make.
 *
 * Promise: when safe-until (CLOCK_BOOTTIME) passes unmoved, or pk_nofork_lost() is
 * called, the loss pipe ends and the job's tree, the job included, gets SIGTERM; what
 * remains at safe-until + kill_after_ms is killed.
 *
 * What it gives up against cli/guard.h: one process guards instead of two, so the job
 * runs on if the helper is killed or stopped; what the job leaves behind when it ends by
 * itself is not followed; there is no grace. The job is made a subreaper, so that
 * double-forkers stay in its tree, and may find dead children that are not its own.
 *
 * pk_nofork_safe_until() and pk_nofork_lost() may be called from any thread of the
 * helper. Errors are negative errno values.
 */
#ifndef PICKET_CLI_NOFORK_H
#define PICKET_CLI_NOFORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* All fields are private. */
struct pk_nofork {
    int fd;      /* between the two */
    int loss_fd; /* the job's: read end; the helper's: write end */
    pid_t job;
    int job_fd;   /* pidfd; readable when the job has ended */
    int poke_fd;  /* eventfd: look at the fields below again */
    int alarm_fd; /* the helper's timer */
    uint32_t kill_after_ms;
    _Atomic uint64_t safe_until_ms;
    _Atomic bool lost;
};

enum pk_nofork_side { PK_NOFORK_JOB, PK_NOFORK_HELPER };

enum pk_nofork_end {
    PK_NOFORK_EXITED, /* the job ended by itself, or was never started */
    PK_NOFORK_LOST,   /* its tree was ended because of the deadline or pk_nofork_lost() */
};

/* Splits. Call it as first thing, with one thread. Returns which side this is, or -errno
 * with nothing split. The helper has a session of its own, all signals blocked, and
 * of the caller's descriptors only standard error. */
int pk_nofork_split(struct pk_nofork *n, uint32_t kill_after_ms, bool loss_fd);

/* The job's side: waits for the word and executes `argv`. Returns only when there is
 * nothing to execute: the exit code given to pk_nofork_exit(), 126 or 127 after a failed
 * exec, 125 when the helper died. */
int pk_nofork_become(struct pk_nofork *n, char *const argv[]);

/* The helper's side from here on. */

/* Readable when the job's side has ended: interrupted while it waited, say. */
int pk_nofork_fd(const struct pk_nofork *n);

/* Moves the deadline; as pk_guard_safe_until(). */
void pk_nofork_safe_until(struct pk_nofork *n, uint64_t ms);

/* Lets the other side execute its command, with these strings added to the environment;
 * errors as pk_guard_go(). */
int pk_nofork_go(struct pk_nofork *n, const char *const env[]);

/* Lets the other side exit with `code`. */
int pk_nofork_exit(struct pk_nofork *n, int code);

/* The lock is lost: makes pk_nofork_watch() end the tree now. */
void pk_nofork_lost(struct pk_nofork *n);

/* Blocks until the job has ended or was ended. `left`: how many could not be killed. */
enum pk_nofork_end pk_nofork_watch(struct pk_nofork *n, uint32_t *left);

#endif
