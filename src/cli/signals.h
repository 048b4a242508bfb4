/* SPDX-License-Identifier: MIT */
/*
 * Signals of a process that has a lease: they become readable, so that it can give the
 * lease back before it ends. To be caught before the first thread is made, which then
 * inherits the mask; after pk_guard_start(), so that the job does not.
 */
#ifndef PICKET_CLI_SIGNALS_H
#define PICKET_CLI_SIGNALS_H

#include <stdbool.h>
#include <sys/signalfd.h>

/* Returns a descriptor that is readable when a signal of pk_guard_signals() has come, but
 * for those that the caller wants ignored (nohup); -1 after an error said. A broken pipe
 * becomes an error of writing. */
int pk_signals_catch(void);

/* The next signal; false when there is none now. */
bool pk_signals_next(int fd, struct signalfd_siginfo *info);

/* Whether it asks us to end. */
bool pk_signals_ends(const struct signalfd_siginfo *info);

#endif
