/* SPDX-License-Identifier: MIT */
/*
 * Who descends from a process, read from /proc.
 *
 * A scan is a photograph taken with a slow shutter: processes come, go and change parents
 * while it runs, so one scan may miss somebody. Whoever needs certainty scans again until
 * the tree keeps still (cli/proctree.h does). What a scan does list was a descendant when
 * it was read, and (pid, start) names it for good: a recycled pid has another start.
 *
 * There are two ways to the same list. The walk follows /proc/PID/task/TID/children, so
 * that its cost is that of the tree; the sweep reads every /proc/PID/stat of the machine
 * and needs no kernel option. pk_procscan_descendants() picks.
 *
 * Ownership: a list belongs to the caller, grows as needed and ends with
 * pk_procscan_free(). Nothing here fails for want of memory: a list that can't grow is
 * cut short and says so.
 */
#ifndef PICKET_CLI_PROCSCAN_H
#define PICKET_CLI_PROCSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct pk_proc {
    pid_t pid;
    pid_t parent;
    uint64_t start; /* clock ticks after boot */
    char state;     /* of its first thread: R S D T t Z X … */
    bool dead;      /* a zombie: nothing of it will run again */
};

struct pk_proclist {
    struct pk_proc *at;
    size_t count;
    size_t capacity;
    bool cut; /* there were more; memory or PK_PROCSCAN_MAX ran out */
};

/* More than any kernel's default pid_max; ends a scan that a fork storm keeps feeding. */
#define PK_PROCSCAN_MAX 131072u

/* Whether /proc is there and speaks of the same pids as we do. */
bool pk_procscan_usable(void);

/* Reads one process. False when there is none (any more). */
bool pk_procscan_read(pid_t pid, struct pk_proc *p);

/* The name of a process, "" when it is gone. */
enum { PK_PROC_NAME_MAX = 16 };
void pk_procscan_name(pid_t pid, char out[PK_PROC_NAME_MAX]);

/* Whether every thread of a live process is stopped. True as well when it has just
 * died. */
bool pk_procscan_stopped(pid_t pid);

/* Called for each descendant as soon as it was read: it may be gone in a moment. */
typedef void pk_procscan_visit_cb(void *ctx, const struct pk_proc *p);

/* Fills `l` with the descendants of `root`, parents before their children, zombies
 * included, `root` itself not. The caller and what descends from it are left out unless
 * it is the root. `visit_cb` may be NULL. */
void pk_procscan_descendants(pid_t root, struct pk_proclist *l,
                             pk_procscan_visit_cb *visit_cb, void *ctx);

/* The two ways; the walk must be asked for only where pk_procscan_can_walk(). Among
 * siblings it tends to read the youngest first: the likeliest not to be there much
 * longer. */
bool pk_procscan_can_walk(void);
void pk_procscan_walk(pid_t root, struct pk_proclist *l, pk_procscan_visit_cb *visit_cb,
                      void *ctx);
void pk_procscan_sweep(pid_t root, struct pk_proclist *l, pk_procscan_visit_cb *visit_cb,
                       void *ctx);

/* Appends a copy of `p`; false when the list could not grow. */
bool pk_procscan_add(struct pk_proclist *l, const struct pk_proc *p);

void pk_procscan_free(struct pk_proclist *l);

#endif
