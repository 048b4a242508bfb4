/* SPDX-License-Identifier: MIT */
/*
 * The guard of `picket run`: the job's whole tree is dead before the lock moves on.
 *
 *     picket (the keeper: has the lease)  ->  guardian  ->  job  ->  whatever it starts
 *
 * The keeper moves a deadline in shared memory, safe-until, with every renewal. The
 * guardian sleeps until then. When it passes unmoved, the guardian ends the tree, and
 * needs nobody for it: the keeper may be stopped, killed or stuck. When the guardian
 * itself is killed, the tree falls to the keeper, which ends it the same way
 * (pk_guard_kill_all). The tree includes whoever double-forked or left for another
 * session: both processes are subreapers.
 *
 * Promises, all on CLOCK_BOOTTIME:
 * - No grace: at safe-until the loss pipe ends and the tree gets SIGTERM; at safe-until +
 *   kill_after_ms what remains is killed. With grace: at safe-until the tree is frozen;
 *   it goes on once safe-until is in the future again, and is killed, unthawed, at
 *   safe-until + grace_ms.
 * - "lost" from the keeper, or the keeper's death: loss pipe and SIGTERM at once, SIGKILL
 *   after kill_after_ms, and never later than the times above. A frozen tree is killed at
 *   once.
 * - When the job's main process ends, whatever it left behind is ended the same way, or
 *   waited for (PK_GUARD_WAIT_CHILDREN), and only then the report is sent. So a lock
 *   released on a report guards nothing that still runs, unless that was asked for
 *   (PK_GUARD_LEAVE_CHILDREN).
 * - Nothing of ours reaches the job but the environment strings and, if asked for, one
 *   descriptor, PICKET_LOSS_FD, which reads end-of-file when the lock is lost
 *   (cli/job.h).
 *
 * What it can't do: kill what it may not signal (a job that changed its user), hurry a
 * process in an uninterruptible system call, or act when keeper and guardian are both
 * killed or stopped at once (killed: the job's main process dies with the guardian, its
 * descendants remain).
 *
 * Threads: pk_guard_start() wants a process with one thread. pk_guard_safe_until(),
 * pk_guard_signal() and pk_guard_lost() may then be called from any thread; the rest from
 * one. Errors are negative errno values.
 */
#ifndef PICKET_CLI_GUARD_H
#define PICKET_CLI_GUARD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/signalfd.h>
#include <sys/types.h>

#include "cli/job.h"
#include "cli/procscan.h"

/* Room for the environment strings of pk_guard_go(), their final NULs included. */
#define PK_GUARD_ENV_MAX PK_JOB_ENV_MAX

/* What a report says for the status of a main process that never ran, or was not seen to
 * end. */
#define PK_GUARD_NO_STATUS (-1)

/* What becomes of processes that the main one leaves behind when it ends by itself. A
 * loss ends them in any case. */
enum pk_guard_children {
    PK_GUARD_END_CHILDREN,   /* they are ended as after a loss */
    PK_GUARD_WAIT_CHILDREN,  /* the job ends with the last of them */
    PK_GUARD_LEAVE_CHILDREN, /* they run on, unguarded */
};

struct pk_guard_options {
    char *const *argv; /* the job, NULL-terminated; must stay until pk_guard_start() */
    uint32_t kill_after_ms; /* between SIGTERM and SIGKILL */
    uint32_t grace_ms;      /* frozen for so long before killed; 0: not frozen at all */
    bool loss_fd;           /* give the job a PICKET_LOSS_FD */
    enum pk_guard_children children;
    /* Run in the guardian when the keeper has died without pk_guard_close(), after the
     * tree is gone: the place to close the lease. The guardian keeps none of the
     * descriptors that were open at pk_guard_start() but standard error; what the keeper
     * learned after pk_guard_start() must come through shared memory. May be NULL. */
    void (*orphaned_cb)(void *ctx);
    void *ctx;
};

struct pk_guard_shared;

/* The keeper's handle. All fields are private. */
struct pk_guard {
    pid_t pid;
    int fd;
    struct pk_guard_shared *shared;
    uint32_t kill_after_ms;
    uint32_t grace_ms;
};

enum pk_guard_event {
    PK_GUARD_STARTED, /* pid: the job's main process runs */
    PK_GUARD_EXITED, /* status, left, name, late: it ended by itself, and the tree is gone
                       * or, if asked for, left alone */
    PK_GUARD_EXEC_FAILED, /* error: it could not be started; nothing runs */
    PK_GUARD_LOST,   /* status, left: ended because of the deadline or pk_guard_lost() */
    PK_GUARD_FROZEN, /* past safe-until, waiting for it to move */
    PK_GUARD_THAWED, /* it moved; the job goes on */
    PK_GUARD_GONE,   /* the guardian died; call pk_guard_kill_all() */
};

struct pk_guard_report {
    enum pk_guard_event event;
    pid_t pid;     /* of the main process, once started */
    int status;    /* as from waitpid(), or PK_GUARD_NO_STATUS */
    int error;     /* errno */
    uint32_t left; /* EXITED: processes left behind by the main one that were ended, or
                    * left alone; LOST: processes that could not be killed (normally
                    * none) */
    char name[PK_PROC_NAME_MAX]; /* EXITED: of the first of them */
    bool late; /* EXITED: safe-until passed before the last of the tree was gone */
};

/* Forks the guardian. Call it before anything else: before the first thread, before
 * changing signal handling, while the open descriptors are those the job shall inherit.
 * Makes the caller a subreaper and sets SIGCHLD to its default, so that the guardian's
 * death can be seen. -ENOTSUP: there is no /proc to find the tree in. */
int pk_guard_start(struct pk_guard *g, const struct pk_guard_options *o);

/* Moves the deadline (CLOCK_BOOTTIME in ms, UINT64_MAX: never). Usually forward; backward
 * works too. 0 is not a time. */
void pk_guard_safe_until(struct pk_guard *g, uint64_t ms);

/* Starts the job with these NAME=VALUE strings added to the environment (NULL-terminated;
 * may be NULL). The deadline must have been set; if it has passed, LOST is reported and
 * nothing started. -EINVAL: no deadline or not a NAME=VALUE; -E2BIG: over
 * PK_GUARD_ENV_MAX. */
int pk_guard_go(struct pk_guard *g, const char *const env[]);

/* Passes a signal on to the job's main process. While frozen, SIGCONT is not passed on
 * and the others take effect after the thaw. */
int pk_guard_signal(struct pk_guard *g, int signo);

/* The lock is lost: end the tree now. */
int pk_guard_lost(struct pk_guard *g);

/* Readable when there is a report. */
int pk_guard_fd(const struct pk_guard *g);

/* Reads one report: 1, or 0 when there is none now. EXITED, EXEC_FAILED, LOST and GONE
 * are the last one: none comes after it but GONE. */
int pk_guard_report(struct pk_guard *g, struct pk_guard_report *r);

/* After GONE, or when the guardian does not answer: kills the guardian if it is still
 * there, then ends every descendant of the caller, blocking, by the same rule. Returns
 * how many are left. */
uint32_t pk_guard_kill_all(struct pk_guard *g);

/* The time by which a healthy guardian has reported LOST; NEVER while there is no
 * deadline. A keeper that still has no report then (a stopped guardian) calls
 * pk_guard_kill_all(). */
uint64_t pk_guard_overdue_ms(const struct pk_guard *g);

/* Dismisses the guardian and frees the handle. What still runs of the tree is ended
 * first. */
void pk_guard_close(struct pk_guard *g);

/* What `picket run` exits with after a last report: the job's own code, 128 + signal, 126
 * or 127, 123 when lost, 125 when the guardian is gone. */
int pk_guard_exit_code(const struct pk_guard_report *r);

/* The signals that a keeper passes on. */
void pk_guard_signals(sigset_t *set);

/* Whether to pass this one on. Not if the terminal made it: then the kernel sent it to
 * the whole foreground group, and the job has it already. */
bool pk_guard_should_forward(const struct signalfd_siginfo *info);

#endif
