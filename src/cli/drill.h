/* SPDX-License-Identifier: MIT */
/*
 * The drill: a holder is paused past the end of its lease, a second one comes in, the
 * first wakes up and goes on writing. Does the resource refuse it?
 *
 * The director (drill.c) starts two holders as processes of their own (drill_holder.c),
 * pauses and wakes the first with real signals, and tells what happened from what they
 * report. A holder does what any program under a lock does: take it, claim, read, take
 * its time, write. The write adds one to a number, so that a lost update shows.
 */
#ifndef PICKET_CLI_DRILL_H
#define PICKET_CLI_DRILL_H

#include <picket_fence.h>
#include <stdbool.h>
#include <sys/types.h>

#define PK_DRILL_NAME "picket-drill" /* of the lock and of the resource */

struct pk_drill_plan {
    const char *lock_url, *resource_url;
    uint64_t ttl_ms, wait_ms;
    bool fence; /* give tokens to the resource */
};

enum pk_drill_word {
    PK_DRILL_FAILED, /* `why`; it has ended */
    PK_DRILL_HELD,   /* has the lock, with `token`; 0: this lock has none to give */
    PK_DRILL_READ,   /* claimed, unless without a fence, and read `number` */
    PK_DRILL_WROTE,  /* or tried to write `number`: `status`, `fence` */
};

struct pk_drill_report {
    enum pk_drill_word word;
    enum picket_status status;
    enum picket_status guard; /* WROTE: what checkpoint says after it */
    uint64_t token, fence, number;
    char why[400];
};

/* One holder and the way to it. */
struct pk_drill_holder {
    pid_t pid;
    int say_fd;  /* a byte: write now; another: let go of the lock and end */
    int hear_fd; /* struct pk_drill_report, one after the other */
};

/* Starts one. `waits`: after having read it waits for the word to write. False with
 * errno set. Wants a process with one thread. */
bool pk_drill_start(const struct pk_drill_plan *plan, bool waits,
                    struct pk_drill_holder *out);
/* The next report; one that never comes, because it died, is FAILED. */
void pk_drill_hear(struct pk_drill_holder *h, struct pk_drill_report *out);
/* Lets it end, awake or not, and waits for that. */
void pk_drill_end(struct pk_drill_holder *h);

/* The number that the resource holds now; 0 when nobody has written any. */
enum picket_status pk_drill_read(struct picket_resource *r, uint64_t token,
                                 uint64_t *number);

#endif
