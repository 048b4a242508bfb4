/* SPDX-License-Identifier: MIT */
#include "server/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/door.h"
#include "host/fd.h"
#include "host/memory.h"
#include "server/log.h"
#include "sim/tracefile.h"

enum { LINE_MAX_BYTES = 4096, BUFFER_BYTES = 1 << 20 };

struct pk_trace_log {
    struct pk_trace_log_options o;
    char *old_path;
    int fd; /* -1: it could not be written any more */
    uint64_t size;
    struct pk_prose out; /* what was not written yet */
};

/* ---- the file ---- */

static void add_begin(struct pk_trace_log *t)
{
    struct pk_trace_line l = {
        .kind = PK_TRACE_BEGIN, .text = pk_text(t->o.node), .number = t->o.cluster};
    pk_trace_write(&l, &t->out);
}

/* Whether the file is one of ours, or empty. */
static bool is_trace(int fd, uint64_t size)
{
    static const char begin[] = "picket-trace ";
    char first[sizeof begin - 1];
    return size == 0 ||
           (pk_fd_read_at(fd, first, sizeof first, 0) == (ssize_t)sizeof first &&
            memcmp(first, begin, sizeof first) == 0);
}

/* A line that a crash or a full disk has cut off goes. False: it can't be done. */
static bool drop_unfinished(int fd, uint64_t *size)
{
    char tail[LINE_MAX_BYTES];
    uint64_t n = *size < sizeof tail ? *size : sizeof tail;
    if (n == 0) {
        return true;
    }
    if (pk_fd_read_at(fd, tail, n, (off_t)(*size - n)) != (ssize_t)n) {
        return false;
    }
    uint64_t whole = n;
    while (whole > 0 && tail[whole - 1] != '\n') {
        whole--;
    }
    if (whole == 0 && n < *size) {
        return false; /* no line of ours is that long */
    }
    *size -= n - whole;
    return whole == n || ftruncate(fd, (off_t)*size) == 0;
}

static const char *open_file(struct pk_trace_log *t)
{
    struct stat st;
    t->fd = open(t->o.path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (t->fd < 0 || fstat(t->fd, &st) != 0) {
        return strerror(errno);
    }
    if (!S_ISREG(st.st_mode)) {
        return "a trace is recorded in a plain file";
    }
    t->size = (uint64_t)st.st_size;
    if (!is_trace(t->fd, t->size) || !drop_unfinished(t->fd, &t->size)) {
        return "there is a file that is no trace; name another one for --trace";
    }
    return NULL;
}

static void give_up(struct pk_trace_log *t, const char *why)
{
    /* The last line is to be whole; if that fails too, the next one to open it sees. */
    bool whole = t->fd >= 0 && ftruncate(t->fd, (off_t)t->size) == 0;
    pk_log(PK_LOG_WARN, "trace-stopped", "file", t->o.path, "why", why, "whole",
           whole ? "yes" : "no", NULL);
    if (t->fd >= 0) {
        (void)close(t->fd);
    }
    t->fd = -1;
    pk_prose_free(&t->out);
}

/* The full file becomes the old one, and a new one begins. */
static void turn_over(struct pk_trace_log *t)
{
    (void)close(t->fd);
    t->fd = -1;
    const char *wrong =
        rename(t->o.path, t->old_path) == 0 ? open_file(t) : strerror(errno);
    if (wrong != NULL) {
        give_up(t, wrong);
        return;
    }
    add_begin(t);
}

void pk_trace_log_flush(struct pk_trace_log *t)
{
    if (t == NULL || t->fd < 0 || t->out.len == 0) {
        return;
    }
    for (size_t done = 0; done < t->out.len;) {
        ssize_t n = write(t->fd, t->out.data + done, t->out.len - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            give_up(t, n < 0 ? strerror(errno) : "nothing was written");
            return;
        }
        done += (size_t)n;
    }
    t->size += t->out.len;
    t->out.len = 0;
    if (t->size >= t->o.bytes_max) {
        turn_over(t);
    }
}

/* ---- life ---- */

const char *pk_trace_log_open(const struct pk_trace_log_options *o,
                              struct pk_trace_log **out)
{
    struct pk_trace_log *t = pk_door_resize(NULL, sizeof *t);
    *t = (struct pk_trace_log){.o = *o, .fd = -1};
    t->old_path = pk_memory_print("%s.old", o->path);
    const char *wrong = open_file(t);
    if (wrong != NULL) {
        pk_trace_log_free(t);
        return wrong;
    }
    add_begin(t);
    *out = t;
    return NULL;
}

void pk_trace_log_free(struct pk_trace_log *t)
{
    if (t == NULL) {
        return;
    }
    pk_trace_log_flush(t);
    if (t->fd >= 0) {
        (void)close(t->fd);
    }
    free(t->old_path);
    pk_prose_free(&t->out);
    pk_door_resize(t, 0);
}

/* ---- what happens ---- */

void pk_trace_log_step(struct pk_trace_log *t, uint64_t at_ms, const struct pk_command *c,
                       const struct pk_effects *e)
{
    if (t == NULL || t->fd < 0) {
        return;
    }
    pk_trace_step(at_ms, c, e, &t->out);
    if (t->out.len > BUFFER_BYTES) {
        pk_trace_log_flush(t);
    }
}

static void add_line(struct pk_trace_log *t, struct pk_trace_line l)
{
    if (t != NULL && t->fd >= 0) {
        pk_trace_write(&l, &t->out);
    }
}

void pk_trace_log_leader(struct pk_trace_log *t, uint64_t at_ms, const char *name)
{
    add_line(t, (struct pk_trace_line){
                    .kind = PK_TRACE_LEADER, .at_ms = at_ms, .text = pk_text(name)});
}

void pk_trace_log_gap(struct pk_trace_log *t, uint64_t at_ms)
{
    add_line(t, (struct pk_trace_line){.kind = PK_TRACE_GAP, .at_ms = at_ms});
}
