/* SPDX-License-Identifier: MIT */
/*
 * One line on standard error when something takes longer than a moment: a verb that
 * waits in silence looks as if it hung.
 */
#ifndef PICKET_CLI_NOTICE_H
#define PICKET_CLI_NOTICE_H

#include <pthread.h>
#include <stdbool.h>

struct pk_notice {
    char *text;
    int stop_fd; /* -1: nothing was started */
    pthread_t thread;
};

/* Says `text` (copied) after a moment, unless stopped before; nothing when quiet. Never
 * fails: where there can be no thread, nothing is said. */
void pk_notice_start(struct pk_notice *n, const char *text);
/* Returns when nothing will be said any more. */
void pk_notice_stop(struct pk_notice *n);

#endif
