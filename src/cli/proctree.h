/* SPDX-License-Identifier: MIT */
/*
 * Doing something to a whole tree of processes: signal, freeze, thaw, kill, end.
 *
 * The tree is everything that descends from a root process, whatever process group,
 * session or signal mask it has chosen for itself. The root is given as a pid, 0 meaning
 * the caller. Who wants to keep double-forkers in the tree makes the root a subreaper
 * (PR_SET_CHILD_SUBREAPER).
 *
 * Promises:
 * - Only members are hit. A process is named by pid and start time, and signalled through
 *   a pidfd where the kernel has them, so a recycled pid is never mistaken for its
 *   predecessor.
 * - The caller itself is never a member, nor what descends from it when it is not the
 *   root.
 * - When the caller is the root and a subreaper, "nothing left" is exact: the kernel says
 *   that there is no child. For any other root it is what /proc shows, twice in a row.
 * - No call waits longer than the patience it is given, plus the time of one pass over
 *   the tree.
 *
 * What can remain: processes that we may not signal (they changed their user) and, for as
 * long as that lasts, processes in an uninterruptible system call, which die on leaving
 * it. Calls report their number.
 *
 * The calls allocate, hold nothing between calls, and may be used from any thread.
 */
#ifndef PICKET_CLI_PROCTREE_H
#define PICKET_CLI_PROCTREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/procscan.h"

/* Who is told of the caller's children that were reaped, with their wait statuses. */
struct pk_proctree_reaper {
    void (*reaped_cb)(void *ctx, pid_t pid, int status);
    void *ctx;
};

/* Sends `signo` to every live member, and to those that appear meanwhile. Children come
 * before their parents for SIGCONT, so that no parent sees a child that looks stopped;
 * after them otherwise. Returns how many got it. With a `reaper` (may be NULL), the
 * caller's dead children are cleared away meanwhile, if it is the root: among thousands
 * of them, as a fork storm leaves them, the living are hard to find in time. */
uint32_t pk_proctree_signal(pid_t root, bool include_root, int signo,
                            const struct pk_proctree_reaper *reaper);

/* Stops every member (SIGSTOP) until none is new and none runs. Returns how many do not
 * stand still after patience_ms; a process inside vfork() is one that can't. */
uint32_t pk_proctree_freeze(pid_t root, bool include_root, uint32_t patience_ms,
                            const struct pk_proctree_reaper *reaper);

/* Lets every member go on (SIGCONT), also those that somebody else had stopped. */
void pk_proctree_thaw(pid_t root, bool include_root);

/* Freezes, so that nobody can fork away, kills (SIGKILL), and repeats until nothing is
 * left. The root, if it goes too, goes last. Returns how many are left after patience_ms.
 * When the root is the caller, SIGCHLD is ignored meanwhile and its children's statuses
 * are lost; for the one that matters there is pk_proctree_kill_child(). */
uint32_t pk_proctree_kill(pid_t root, bool include_root, uint32_t patience_ms);

/* Kills one child of the caller, not what descends from it, and reaps it. False when it
 * was not dead after patience_ms. */
bool pk_proctree_kill_child(pid_t pid, uint32_t patience_ms, int *status);

/* The whole sequence, blocking: SIGTERM (and SIGCONT, so that stopped members get it), up
 * to kill_after_ms for them to obey, then pk_proctree_kill(), whose remark on SIGCHLD
 * holds here too. Returns how many are left. */
uint32_t pk_proctree_end(pid_t root, bool include_root, uint32_t kill_after_ms,
                         uint32_t patience_ms);

/* The number of live members right now, and the name of one that is next to the root;
 * `name` may be NULL. */
uint32_t pk_proctree_count(pid_t root, bool include_root, char name[PK_PROC_NAME_MAX]);

/* Reaps the caller's dead children, at most `most` of them: some trees make them faster
 * than anybody can. */
enum pk_proctree_children {
    PK_CHILDREN_NONE,  /* there is no child left, dead or alive */
    PK_CHILDREN_ALIVE, /* there are, and all of them live */
    PK_CHILDREN_MORE,  /* there may be more dead ones */
};
enum pk_proctree_children pk_proctree_reap(uint32_t most,
                                           const struct pk_proctree_reaper *reaper);

#endif
