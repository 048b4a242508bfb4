/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/tee.h"
#include "core/door.h"
#include "host/fd.h"

/* In the process of its own. It ends with the last writer, whatever signals come: who
 * ends the job ends it, too. */
static _Noreturn void copy(struct pk_tee *t, int in)
{
    static char buf[65536];
    size_t kept = 0;
    bool reader = true;
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    for (;;) {
        ssize_t n = read(in, buf, sizeof buf);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            _exit(0);
        }
        /* A reader that has left does not end the job, and what it prints is kept. */
        reader = reader && pk_fd_write(t->stdout_fd, buf, (size_t)n);
        size_t room = t->keep + 1 - kept; /* one more, to see that there was more */
        size_t more = (size_t)n < room ? (size_t)n : room;
        kept += pk_fd_write(t->kept_fd, buf, more) ? more : 0;
    }
}

int pk_tee_start(struct pk_tee *t, size_t keep)
{
    int ends[2] = {-1, -1};
    *t = (struct pk_tee){.stdout_fd = -1, .kept_fd = -1, .keep = keep};
    (void)fflush(stdout);
    t->stdout_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    t->kept_fd = memfd_create("picket-tee", MFD_CLOEXEC);
    bool ready = t->stdout_fd >= 0 && t->kept_fd >= 0 && pipe2(ends, O_CLOEXEC) == 0;
    t->pid = ready ? fork() : -1;
    if (t->pid == 0) {
        pk_fd_close(&ends[1]);
        copy(t, ends[0]);
    }
    int error = t->pid < 0 ? errno : 0;
    if (error == 0 && dup2(ends[1], STDOUT_FILENO) < 0) {
        error = errno;
    }
    pk_fd_close(&ends[0]);
    pk_fd_close(&ends[1]);
    if (error != 0) {
        pk_fd_close(&t->stdout_fd);
        pk_fd_close(&t->kept_fd);
    }
    return -error;
}

void pk_tee_restore(struct pk_tee *t)
{
    PK_ASSERT(dup2(t->stdout_fd, STDOUT_FILENO) >= 0);
}

char *pk_tee_end(struct pk_tee *t, size_t *len, bool *cut)
{
    while (waitpid(t->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    char *kept = pk_door_resize(NULL, t->keep + 1);
    ssize_t n = pk_fd_read_at(t->kept_fd, kept, t->keep + 1, 0);
    *cut = n > (ssize_t)t->keep;
    *len = n < 0 ? 0 : *cut ? t->keep : (size_t)n;
    pk_fd_close(&t->stdout_fd);
    pk_fd_close(&t->kept_fd);
    return kept;
}
