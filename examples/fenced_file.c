/* SPDX-License-Identifier: MIT */
/*
 * Adds lines to a file, one writer at a time, and no late one ever.
 *
 *     fenced_file PATH [LINES [RENDER_MS]]        (5 lines of 500 ms)
 *
 * Each line is a read, some time of thinking, and a write. The lock keeps writers apart;
 * the fence beside the file (".NAME.fence") refuses one that was paused meanwhile. It is
 * claimed before the file is read: then nobody else's line can come in between.
 *
 * In two terminals:
 *     $ fenced_file report          rendering line 1 ... line 5
 *     $ fenced_file report          waits; goes on with line 6
 *
 * SIGSTOP the first while it renders, for more than 2 s: the second goes on. Woken up,
 * the first knows nothing of that and writes. The file refuses it: 1. Between two lines
 * its own checkpoint would have told it: 123. After kill -9 at any point the file is
 * whole, with the line or without it.
 *
 * All writers must see the same file: on one machine, or a file system with locks.
 *
 * Exit codes: 0 done; 1 refused by the fence; 123 the lock was lost; 125 an error.
 */
#include <errno.h>
#include <inttypes.h>
#include <picket_fence.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TTL_MS = 5000 };

static int explain(enum picket_status s)
{
    (void)fprintf(stderr, "fenced_file: %s\n", picket_last_error());
    if (s == PICKET_STALE) {
        return 1;
    }
    return s == PICKET_LOST || s == PICKET_AT_RISK ? 123 : 125;
}

/* Copies what is there to `out` and counts its lines; no file is an empty one. */
static int copy_old(const char *path, FILE *out, int *lines)
{
    int c = EOF;
    FILE *in = fopen(path, "r");
    if (in == NULL) {
        return errno == ENOENT ? 0 : -1;
    }
    while ((c = getc(in)) != EOF && putc(c, out) != EOF) {
        *lines += c == '\n';
    }
    int bad = ferror(in) != 0 || ferror(out) != 0;
    return fclose(in) != 0 || bad ? -1 : 0;
}

/* The new contents: what was there, and a line that takes its time. Nothing here looks at
 * the lock, as in a library that has never heard of locks. */
static int render(const char *path, int fd, uint64_t token, int render_ms)
{
    int lines = 0;
    FILE *out = fdopen(dup(fd), "w");
    if (out == NULL) {
        return -1;
    }
    int bad = copy_old(path, out, &lines);
    (void)printf("rendering line %d, token %" PRIu64 "\n", lines + 1, token);
    (void)poll(NULL, 0, render_ms);
    bad |= fprintf(out, "line %d by token %" PRIu64 "\n", lines + 1, token) < 0;
    return fclose(out) != 0 || bad ? -1 : 0;
}

/* Returns 0 or the exit code. */
static int add_line(const char *path, struct picket_lock *lock, int render_ms)
{
    struct picket_fence_file *file;
    uint64_t token = picket_token(lock);
    enum picket_status s = picket_checkpoint(lock, (uint64_t)render_ms);
    if (s == PICKET_OK) {
        s = picket_fence_file_open(path, token, NULL, &file); /* claims */
    }
    if (s != PICKET_OK) {
        return explain(s);
    }
    if (render(path, picket_fence_file_fd(file), token, render_ms) < 0) {
        (void)fprintf(stderr, "fenced_file: %s: %s\n", path, strerror(errno));
        picket_fence_file_abandon(file);
        return 125;
    }
    s = picket_fence_file_commit(file, NULL);
    return s == PICKET_OK ? 0 : explain(s);
}

int main(int argc, char **argv)
{
    struct picket *p;
    struct picket_lock *lock;
    const struct picket_options options = {.ttl_ms = TTL_MS};
    const char *path = argc > 1 ? argv[1] : NULL;
    long lines = argc > 2 ? strtol(argv[2], NULL, 10) : 5;
    long render_ms = argc > 3 ? strtol(argv[3], NULL, 10) : 500;
    if (path == NULL || lines < 1 || render_ms < 0 || render_ms > TTL_MS / 2) {
        (void)fprintf(stderr, "usage: fenced_file PATH [LINES [RENDER_MS, to 1000]]\n");
        return 125;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* each line at once, also into a pipe */
    enum picket_status s = picket_open(NULL, &options, &p);
    if (s != PICKET_OK) {
        return explain(s);
    }
    s = picket_acquire(p, "examples/file", NULL, &lock);
    int code = s == PICKET_OK ? 0 : explain(s);
    for (long i = 0; code == 0 && i < lines; i++) {
        code = add_line(path, lock, (int)render_ms);
    }
    picket_close(p);
    return code;
}
