/* SPDX-License-Identifier: MIT */
/*
 * A library for LD_PRELOAD: a resolver that can hang. test/e2e/resolver.py runs nodes
 * under it.
 *
 *     PICKET_RESOLVER=DIR
 *
 * A name that ends in ".test" is 127.0.0.1. While DIR/hang exists, looking up such a name
 * does not return; each lookup that waits has a file DIR/waits-PID-N. Everything else
 * goes to the real resolver.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int resolve(const char *, const char *, const struct addrinfo *,
                    struct addrinfo **);

static bool is_ours(const char *host)
{
    static const char ending[] = ".test";
    size_t len = host == NULL ? 0 : strlen(host);
    return len >= strlen(ending) && strcmp(host + len - strlen(ending), ending) == 0;
}

static void wait_while_hanging(const char *dir)
{
    static atomic_uint lookups;
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000L};
    char hang[512];
    char mark[512];
    (void)snprintf(hang, sizeof hang, "%s/hang", dir);
    (void)snprintf(mark, sizeof mark, "%s/waits-%d-%u", dir, (int)getpid(), ++lookups);
    while (access(hang, F_OK) == 0) {
        int fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0) {
            (void)close(fd);
        }
        (void)nanosleep(&pause, NULL);
    }
    (void)unlink(mark);
}

__attribute__((visibility("default"))) int getaddrinfo(const char *host,
                                                       const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **out)
{
    resolve *next = (resolve *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *dir = getenv("PICKET_RESOLVER");
    bool numeric = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (dir == NULL || numeric || !is_ours(host)) {
        return next(host, service, hints, out);
    }
    wait_while_hanging(dir);
    return next("127.0.0.1", service, hints, out);
}
