/* SPDX-License-Identifier: MIT */
/*
 * A command under a lock: what run and elect have in common.
 *
 *     guard first, while there is one thread -> signals -> client -> lock -> go
 *     then until the end: reports of the guard, signals to pass on, loss to pass on
 *
 * The lock is released only when nothing of the command's tree is left. Whatever happens
 * to this process, the guardian ends the tree in time and closes the lease (cli/guard.h).
 */
#ifndef PICKET_CLI_SUPERVISE_H
#define PICKET_CLI_SUPERVISE_H

#include <picket.h>

#include "cli/grant.h"
#include "cli/options.h"

struct pk_supervise {
    const struct pk_common *common;
    struct pk_grant *grant;
    char *const *argv; /* NULL: only for pk_supervise_check() */
    uint64_t kill_after_ms;
    bool no_fork;
    bool wait_children, leave_children; /* else they are ended with the command */

    /* For who has something to do under the lock, before and after the command; not with
     * no_fork. Both may be NULL. */
    void *ctx;
    /* The lock is ours, the command waits: -1 to let it go, or the code to exit with. */
    int (*granted)(void *ctx, struct picket *p, struct picket_lock *l);
    /* The command has ended with `code` while the lock was ours, and it still is held:
     * the code to exit with. */
    int (*ended)(void *ctx, struct picket *p, struct picket_lock *l, int code);
    const char *env; /* one more NAME=VALUE for the command, set by then; may be NULL */
};

/* --kill-after, -F and what becomes of children; base: the struct pk_supervise. */
extern const struct pk_option pk_supervise_options[];
/* --ttl, --grace and --lock-delay; base: the struct pk_grant. */
extern const struct pk_option pk_supervise_lease_options[];

/* The exit codes of a command under a lock. */
#define PK_SUPERVISE_EXITS                                                               \
    "  the command's own; 128+N when signal N ended it\n"                                \
    "  122  not allowed\n"                                                               \
    "  123  the lock was lost, the command was ended\n"                                  \
    "  124  busy, or not granted in time (-E N: N instead)\n"                            \
    "  125  our own error: a wrong call, the store out of reach\n"                       \
    "  126  the command can't be executed\n"                                             \
    "  127  the command was not found\n"                                                 \
    "  128+N  signal N ended the wait; nothing is left behind"

/* What holds unless an option says otherwise, for the supervision and its grant. */
void pk_supervise_defaults(struct pk_supervise *s, struct pk_grant *g,
                           const struct pk_common *c);

/* As pk_grant_check(), which it includes; pk_supervise() does it by itself. */
int pk_supervise_check(struct pk_supervise *s);

/* Checks the options, takes the lock, runs the command and returns what to exit with.
 * With no_fork it returns only if the command was not executed. */
int pk_supervise(struct pk_supervise *s);

/* The same with no_fork; pk_supervise() goes there by itself. */
int pk_supervise_in_place(struct pk_supervise *s);

/* The strings that the command finds in its environment, for pk_guard_go(). */
enum { PK_SUPERVISE_ENV = 7 };
void pk_supervise_make_env(const struct pk_supervise *s, struct picket *p,
                           struct picket_lock *l, const char *env[PK_SUPERVISE_ENV]);
void pk_supervise_free_env(const char *env[PK_SUPERVISE_ENV]);

/* Why the lock was lost, for a sentence. */
const char *pk_supervise_reason(struct picket_lock *l);

/* Says that not everything of a lost command could be ended. */
void pk_supervise_say_left(uint32_t left);

/* Gives the lock back; says so if it was gone before. */
void pk_supervise_release(const struct pk_supervise *s, struct picket_lock *l);

#endif
