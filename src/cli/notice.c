/* SPDX-License-Identifier: MIT */
#include "cli/notice.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cli/errors.h"
#include "core/door.h"
#include "host/fd.h"
#include "host/memory.h"

enum { MOMENT_MS = 1000 };

static void *wait_and_say(void *ctx)
{
    const struct pk_notice *n = ctx;
    struct pollfd fd = {.fd = n->stop_fd, .events = POLLIN};
    if (poll(&fd, 1, MOMENT_MS) == 0) {
        pk_errors_remark("%s", n->text);
    }
    return NULL;
}

void pk_notice_start(struct pk_notice *n, const char *text)
{
    sigset_t every, before;
    *n = (struct pk_notice){.stop_fd = pk_errors_quiet() ? -1 : eventfd(0, EFD_CLOEXEC)};
    if (n->stop_fd < 0) {
        return;
    }
    n->text = pk_memory_copy(text);
    sigfillset(&every); /* signals are for the verb's own thread */
    PK_ASSERT(pthread_sigmask(SIG_BLOCK, &every, &before) == 0);
    bool started = pthread_create(&n->thread, NULL, wait_and_say, n) == 0;
    PK_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (!started) {
        pk_fd_close(&n->stop_fd);
    }
}

void pk_notice_stop(struct pk_notice *n)
{
    if (n->stop_fd >= 0) {
        pk_fd_poke(n->stop_fd);
        PK_ASSERT(pthread_join(n->thread, NULL) == 0);
        pk_fd_close(&n->stop_fd);
    }
    free(n->text);
    n->text = NULL;
}
