/* SPDX-License-Identifier: MIT */
/*
 * A library for LD_PRELOAD: a resolver and a disk that can hang. test/e2e/resolver.py and
 * test/e2e/starting.py run nodes under it.
 *
 *     PICKET_HANG=DIR
 *
 * A name that ends in ".test" is 127.0.0.1. While DIR/names exists, looking up such a
 * name does not return; while DIR/files exists, openat does not return to any thread but
 * the first of its process. Each call that waits has a file DIR/waits-PID-N.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

typedef int resolve(const char *, const char *, const struct addrinfo *,
                    struct addrinfo **);
typedef int open_at(int, const char *, int, ...);

static bool is_ours(const char *host)
{
    static const char ending[] = ".test";
    size_t len = host == NULL ? 0 : strlen(host);
    return len >= strlen(ending) && strcmp(host + len - strlen(ending), ending) == 0;
}

static void wait_while(const char *dir, const char *what)
{
    static atomic_uint calls;
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000L};
    char hang[512];
    char mark[512];
    (void)snprintf(hang, sizeof hang, "%s/%s", dir, what);
    (void)snprintf(mark, sizeof mark, "%s/waits-%d-%u", dir, (int)getpid(), ++calls);
    while (access(hang, F_OK) == 0) {
        int fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0) {
            (void)close(fd);
        }
        (void)nanosleep(&pause, NULL);
    }
    (void)unlink(mark);
}

PUBLIC int getaddrinfo(const char *host, const char *service,
                       const struct addrinfo *hints, struct addrinfo **out)
{
    resolve *next = (resolve *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *dir = getenv("PICKET_HANG");
    bool numeric = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (dir == NULL || numeric || !is_ours(host)) {
        return next(host, service, hints, out);
    }
    wait_while(dir, "names");
    return next("127.0.0.1", service, hints, out);
}

PUBLIC int openat64(int folder, const char *name, int flags, ...)
{
    open_at *next = (open_at *)dlsym(RTLD_NEXT, "openat64");
    const char *dir = getenv("PICKET_HANG");
    va_list more;
    va_start(more, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    if (dir != NULL && gettid() != getpid()) {
        wait_while(dir, "files");
    }
    return next(folder, name, flags, mode);
}
