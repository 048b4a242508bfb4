/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/drill.h"
#include "fence/resource.h"
#include "host/clock.h"
#include "host/fd.h"

/* ---- the director's side ---- */

static void close_pair(int fds[2])
{
    pk_fd_close(&fds[0]);
    pk_fd_close(&fds[1]);
}

static _Noreturn void hold(const struct pk_drill_plan *plan, bool waits, int in, int out);

bool pk_drill_start(const struct pk_drill_plan *plan, bool waits,
                    struct pk_drill_holder *out)
{
    int say[2] = {-1, -1};
    int hear[2] = {-1, -1};
    pid_t parent = getpid();
    pid_t pid = -1;
    if (pipe2(say, O_CLOEXEC) == 0 && pipe2(hear, O_CLOEXEC) == 0) {
        pid = fork();
    }
    if (pid < 0) {
        int error = errno;
        close_pair(say);
        close_pair(hear);
        errno = error;
        return false;
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        pk_fd_close(&say[1]);
        pk_fd_close(&hear[0]);
        hold(plan, waits, say[0], hear[1]);
    }
    pk_fd_close(&say[0]);
    pk_fd_close(&hear[1]);
    *out = (struct pk_drill_holder){pid, say[1], hear[0]};
    return true;
}

void pk_drill_hear(struct pk_drill_holder *h, struct pk_drill_report *out)
{
    ssize_t n;
    do {
        n = read(h->hear_fd, out, sizeof *out); /* shorter than a pipe's atomic size */
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof *out) {
        *out =
            (struct pk_drill_report){.word = PK_DRILL_FAILED, .status = PICKET_UNKNOWN};
        (void)snprintf(out->why, sizeof out->why, "process %d died", (int)h->pid);
    }
}

void pk_drill_end(struct pk_drill_holder *h)
{
    if (h->pid > 0) {
        /* Two words: one that may still be waited for, and the one to end. Closing would
         * not do, since the other holder has inherited the descriptor. */
        (void)pk_fd_write(h->say_fd, "we", 2);
        (void)kill(h->pid, SIGCONT);
        while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        pk_fd_close(&h->say_fd);
        pk_fd_close(&h->hear_fd);
        h->pid = 0;
    }
}

/* ---- the holder's side ---- */

struct holder {
    const struct pk_drill_plan *plan;
    int in, out;
    struct picket *client;
    struct picket_lock *lock;
    uint64_t token; /* 0: the store has none to give */
    struct picket_resource *resource;
    uint64_t number;
};

static void report(const struct holder *h, struct pk_drill_report r)
{
    if (!pk_fd_write(h->out, &r, sizeof r)) {
        _exit(1); /* the director is gone */
    }
}

static _Noreturn void fail(const struct holder *h, enum picket_status s)
{
    struct pk_drill_report r = {.word = PK_DRILL_FAILED, .status = s};
    (void)snprintf(r.why, sizeof r.why, "%s", picket_last_error());
    report(h, r);
    _exit(1);
}

static enum picket_status take_lock(struct holder *h)
{
    const struct pk_drill_plan *plan = h->plan;
    struct picket_options o = {.ttl_ms = (uint32_t)plan->ttl_ms, .note = "drill"};
    struct picket_acquire_options a = {.wait_ms = (int64_t)plan->wait_ms};
    enum picket_status s = picket_open(plan->lock_url, &o, &h->client);
    uint64_t until = pk_clock_ms() + plan->wait_ms;
    if (s == PICKET_OK) {
        do { /* a machine that is slow for so short a TTL is no verdict on the resource */
            s = picket_acquire(h->client, PK_DRILL_NAME, &a, &h->lock);
        } while (s == PICKET_LOST && pk_clock_ms() < until);
    }
    if (s == PICKET_OK) {
        h->token = picket_token(h->lock);
    }
    return s;
}

enum picket_status pk_drill_read(struct picket_resource *r, uint64_t token,
                                 uint64_t *number)
{
    char *value = NULL;
    size_t len;
    *number = 0;
    enum picket_status s =
        picket_resource_get(r, PK_DRILL_NAME, token, &value, &len, NULL);
    if (s == PICKET_OK) {
        *number = strtoull(value, NULL, 10);
    }
    free(value);
    return s == PICKET_NOTFOUND ? PICKET_OK : s;
}

static bool fenced(const struct holder *h)
{
    return h->plan->fence && h->token != 0;
}

/* Claims before it reads (P6); who knows of no fence just reads. */
static enum picket_status begin(struct holder *h)
{
    uint64_t token = fenced(h) ? h->token : 0;
    enum picket_status s = picket_resource_open(h->plan->resource_url, &h->resource);
    if (s == PICKET_OK && token != 0) {
        s = picket_resource_claim(h->resource, PK_DRILL_NAME, token, NULL);
    }
    return s == PICKET_OK ? pk_drill_read(h->resource, token, &h->number) : s;
}

/* Writes as if the lock were still held: this is what a zombie does. */
static struct pk_drill_report finish(struct holder *h)
{
    char value[64];
    struct pk_drill_report r = {
        .word = PK_DRILL_WROTE, .token = h->token, .number = h->number + 1};
    int len = snprintf(value, sizeof value, "%" PRIu64 " by process %d", r.number,
                       (int)getpid());
    if (fenced(h)) {
        r.status = picket_resource_set(h->resource, PK_DRILL_NAME, h->token, value,
                                       (size_t)len, &r.fence);
    } else {
        r.status = pk_resource_overwrite(h->resource, PK_DRILL_NAME,
                                         pk_bytes(value, (size_t)len));
    }
    (void)snprintf(r.why, sizeof r.why, "%s",
                   r.status == PICKET_OK ? "" : picket_last_error());
    r.guard = picket_checkpoint(h->lock, 0);
    return r;
}

static void wait_for_word(const struct holder *h)
{
    char word;
    ssize_t n;
    do {
        n = read(h->in, &word, 1);
    } while (n < 0 && errno == EINTR);
}

static _Noreturn void hold(const struct pk_drill_plan *plan, bool waits, int in, int out)
{
    struct holder h = {.plan = plan, .in = in, .out = out};
    (void)signal(SIGPIPE, SIG_IGN);
    enum picket_status s = take_lock(&h);
    if (s != PICKET_OK) {
        fail(&h, s);
    }
    report(&h, (struct pk_drill_report){.word = PK_DRILL_HELD, .token = h.token});
    s = begin(&h);
    if (s != PICKET_OK) {
        fail(&h, s);
    }
    report(&h, (struct pk_drill_report){.word = PK_DRILL_READ, .number = h.number});
    if (waits) {
        wait_for_word(&h);
    }
    report(&h, finish(&h));
    wait_for_word(&h);
    picket_resource_close(h.resource);
    picket_close(h.client);
    _exit(0);
}
