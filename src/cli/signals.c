/* SPDX-License-Identifier: MIT */
#include "cli/signals.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/errors.h"
#include "cli/guard.h"
#include "core/door.h"

int pk_signals_catch(void)
{
    struct sigaction now;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t set;
    pk_guard_signals(&set);
    for (int signo = 1; signo < SIGRTMIN; signo++) {
        /* A blocked signal is delivered to a signalfd even when it is ignored. */
        if (sigismember(&set, signo) == 1 && sigaction(signo, NULL, &now) == 0 &&
            now.sa_handler == SIG_IGN) {
            (void)sigdelset(&set, signo);
        }
    }
    PK_ASSERT(sigaction(SIGPIPE, &ignore, NULL) == 0);
    PK_ASSERT(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        (void)pk_errors_fail("can't watch for signals: %s", strerror(errno));
    }
    return fd;
}

bool pk_signals_next(int fd, struct signalfd_siginfo *info)
{
    ssize_t n;
    do {
        n = read(fd, info, sizeof *info);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *info;
}

bool pk_signals_ends(const struct signalfd_siginfo *info)
{
    switch ((int)info->ssi_signo) {
    case SIGINT:
    case SIGTERM:
    case SIGHUP:
    case SIGQUIT:
        return true;
    default:
        return false;
    }
}
