/* SPDX-License-Identifier: MIT */
/*
 * `picket fence file`: what a command prints becomes a file, if the token is still the
 * highest when it is done. The command writes into the draft itself, so that nothing
 * passes through us, however large it is.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/errors.h"
#include "cli/fence.h"
#include "cli/guard.h"
#include "cli/job.h"
#include "cli/signals.h"
#include "core/door.h"

/* Starts the command with `out` as its standard output. 0, or -errno. */
static int start(char *const *argv, int out, struct pk_job *job)
{
    struct pk_job_signals signals;
    struct pk_job_options o = {.argv = argv, .signals = &signals};
    pk_job_save_signals(&signals);
    int ours = dup(STDOUT_FILENO);
    if (ours < 0 || dup2(out, STDOUT_FILENO) < 0) {
        return -errno;
    }
    int error = pk_job_prepare(&o, job);
    PK_ASSERT(dup2(ours, STDOUT_FILENO) >= 0);
    (void)close(ours);
    return error;
}

/* Waits for the command's end and passes signals on to it meanwhile. Its wait status. */
static int attend(pid_t pid, int signal_fd)
{
    struct signalfd_siginfo info;
    int status = 0;
    int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd fds[] = {{.fd = pid_fd, .events = POLLIN},
                           {.fd = signal_fd, .events = POLLIN}};
    while (pid_fd >= 0 && fds[0].revents == 0) {
        int n = poll(fds, 2, -1);
        PK_ASSERT(n >= 0 || errno == EINTR);
        while (pk_signals_next(signal_fd, &info)) {
            if (pk_guard_should_forward(&info)) {
                (void)kill(pid, (int)info.ssi_signo);
            }
        }
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid_fd >= 0) {
        (void)close(pid_fd);
    }
    return status;
}

/* Runs the command into the draft. 0 when it ended well, else an exit code. */
static int fill(const struct pk_fence_words *s, struct picket_fence_file *f)
{
    struct pk_job job;
    int error = start(s->command, picket_fence_file_fd(f), &job);
    if (error < 0) {
        return pk_errors_fail("can't start the command: %s", strerror(-error));
    }
    int signal_fd = pk_signals_catch();
    (void)pk_job_go(&job, "", 0);
    int failed = 0;
    bool executed = read(job.exec_fd, &failed, sizeof failed) != (ssize_t)sizeof failed;
    (void)close(job.exec_fd);
    int status = attend(job.pid, signal_fd);
    (void)close(signal_fd);
    if (!executed) {
        (void)pk_errors_fail("can't run %s: %s", s->command[0], strerror(failed));
        return pk_job_exec_code(failed);
    }
    int code =
        WIFSIGNALED(status) ? PK_EXIT_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
    if (code != 0) {
        pk_errors_remark("%s ended with %d; %s is left as it was", s->command[0], code,
                         s->name);
    }
    return code;
}

static int refuse(const struct pk_fence_words *s, enum picket_status status,
                  uint64_t fence)
{
    if (status != PICKET_STALE) {
        return pk_errors_status(status);
    }
    pk_errors_remark("%s: token %" PRIu64 ": %s; the fence stands at %" PRIu64
                     ", the file is left as it was",
                     s->name, s->token, picket_status_text(status), fence);
    return PK_EXIT_NO;
}

int pk_fence_file(const struct pk_fence_words *s)
{
    struct picket_fence_file *f;
    uint64_t fence = 0;
    if (s->url != NULL) {
        return pk_errors_fail("fence: file takes a PATH, not --resource");
    }
    enum picket_status status = picket_fence_file_open(s->name, s->token, &fence, &f);
    if (status != PICKET_OK) {
        return refuse(s, status, fence);
    }
    int code = fill(s, f);
    if (code != 0) {
        picket_fence_file_abandon(f);
        return code;
    }
    status = picket_fence_file_commit(f, &fence);
    if (status != PICKET_OK) {
        return refuse(s, status, fence);
    }
    if (fence > s->token) {
        pk_errors_remark(
            "%s is in shadow mode: it was replaced, and would not have been: "
            "the fence stands at %" PRIu64,
            s->name, fence);
    }
    return 0;
}
