/* SPDX-License-Identifier: MIT */
/*
 * Waking exactly the process that was granted something (P7): each lease that somebody
 * attends has a datagram socket DIR/wake/ID, and whoever writes the grant pokes it. A
 * poke is a hint and carries nothing: a lost one is made up for by the sleeper's own
 * timers.
 */
#ifndef PICKET_DRIVERS_WAKEUP_H
#define PICKET_DRIVERS_WAKEUP_H

#include <stdint.h>

#include "drivers/state_dir.h"

struct pk_wakeup {
    int dir_fd; /* DIR/wake */
    int ear;   /* bound to our lease's name; -1: none, sleepers must look by themselves */
    int mouth; /* unbound, for poking others */
    uint64_t lease;
};

/* Never fails: without sockets everything still works, only later. */
void pk_wakeup_open(struct pk_wakeup *w, const struct pk_state_dir *d, int state_dir_fd);
void pk_wakeup_close(struct pk_wakeup *w);
void pk_wakeup_forked(struct pk_wakeup *w);
/* Listens for pokes to this lease from now on; 0: to none. */
void pk_wakeup_listen(struct pk_wakeup *w, uint64_t lease);
/* Takes the pokes that have come. */
void pk_wakeup_drain(struct pk_wakeup *w);
void pk_wakeup_poke(struct pk_wakeup *w, uint64_t lease);

#endif
