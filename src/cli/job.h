/* SPDX-License-Identifier: MIT */
/*
 * Starting the command of `picket run`: everything between fork and exec.
 *
 * The process is forked early (pk_job_prepare) and waits for its word to execute the
 * command (pk_job_go). So it stays in the caller's session and process group while its
 * parent goes and leaves both: a parent in another group of the same session would tie
 * the group to the job, and the kernel hangs up a whole group, the caller's scripts
 * included, when such a tie breaks while one of its members is stopped.
 *
 * The job finds what it would have found without us: our caller's descriptors, process
 * group, session, signal mask and dispositions. What is new to it are the environment
 * strings, and one descriptor if asked for: PICKET_LOSS_FD, the read end of a pipe that
 * comes to its end at the moment of loss, because the parent alone holds the write end
 * and closes it then.
 *
 * The job dies with its parent (PR_SET_PDEATHSIG), whatever happens to that.
 */
#ifndef PICKET_CLI_JOB_H
#define PICKET_CLI_JOB_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What a process was started with, to be put back in front of an exec. */
struct pk_job_signals {
    sigset_t mask;
    sigset_t ignored;
};

struct pk_job_options {
    char *const *argv; /* NULL-terminated, found through PATH */
    bool loss_fd;      /* make the loss pipe */
    const struct pk_job_signals *signals;
};

struct pk_job {
    pid_t pid;
    int go_fd;   /* where it waits for its word */
    int exec_fd; /* gives the errno of a failed exec, an int, or ends once exec is done */
    int loss_fd; /* write end of the loss pipe; -1 when there is none */
};

/* Room for the environment strings of a job, their final NULs included. */
#define PK_JOB_ENV_MAX 65536u

/* Notes the caller's signal mask and which signals it ignores. Call it before changing
 * any. */
void pk_job_save_signals(struct pk_job_signals *s);

/* Forks the process that will be the job. Returns 0, or -errno with nothing started. The
 * caller, who must have a single thread, owns the descriptors; they are close-on-exec. */
int pk_job_prepare(const struct pk_job_options *o, struct pk_job *job);

/* Lets it execute the command, with NAME=VALUE strings (each with its final NUL, one
 * after the other) added to its environment. Returns 0 or -errno. */
int pk_job_go(struct pk_job *job, const char *env, size_t size);

/* Lays NAME=VALUE strings (NULL-terminated array; may be NULL) out as for pk_job_go().
 * Returns the bytes used, -EINVAL for one that is no NAME=VALUE, -E2BIG when there is no
 * room. */
int pk_job_pack_env(const char *const env[], char *buf, size_t room);

/* Puts NAME=VALUE strings, laid out as for pk_job_go(), into our own environment. */
void pk_job_set_env(const char *env, size_t size);

/* Lets the job inherit `fd` and names it in PICKET_LOSS_FD. Returns 0 or an errno. */
int pk_job_give_loss_fd(int fd);

/* The exit code of a shell for a command that could not be executed: 126, or 127 when
 * there is none. */
int pk_job_exec_code(int error);

#endif
