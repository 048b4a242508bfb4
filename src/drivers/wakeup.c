/* SPDX-License-Identifier: MIT */
#include "drivers/wakeup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/fd.h"

void pk_wakeup_open(struct pk_wakeup *w, const struct pk_state_dir *d, int state_dir_fd)
{
    *w = (struct pk_wakeup){.dir_fd = -1, .ear = -1, .mouth = -1};
    if (mkdirat(state_dir_fd, "wake", 0700) == 0 || errno == EEXIST) {
        w->dir_fd = openat(state_dir_fd, "wake", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (w->dir_fd >= 0) {
            pk_state_dir_give(d, w->dir_fd);
        }
        w->mouth = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
}

/* The address of a lease's socket. Through the descriptor, because a state directory's
 * own path may be longer than an address can be. */
static struct sockaddr_un address_of(const struct pk_wakeup *w, uint64_t lease)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%llu", w->dir_fd,
             (unsigned long long)lease);
    return a;
}

static void forget(struct pk_wakeup *w, uint64_t lease)
{
    char name[32];
    snprintf(name, sizeof name, "%llu", (unsigned long long)lease);
    unlinkat(w->dir_fd, name, 0);
}

void pk_wakeup_listen(struct pk_wakeup *w, uint64_t lease)
{
    if (w->ear >= 0) {
        close(w->ear);
        forget(w, w->lease);
        w->ear = -1;
    }
    if (lease == 0 || w->dir_fd < 0) {
        return;
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un a = address_of(w, lease);
    forget(w, lease);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0) {
        /* Whoever may use the directory may poke; the directory says who that is. */
        int unimportant = chmod(a.sun_path, 0666);
        (void)unimportant;
    }
    w->ear = fd;
    w->lease = lease;
}

void pk_wakeup_forked(struct pk_wakeup *w)
{
    pk_fd_close(&w->ear);
    pk_fd_close(&w->mouth);
    pk_fd_close(&w->dir_fd);
}

void pk_wakeup_close(struct pk_wakeup *w)
{
    pk_wakeup_listen(w, 0);
    pk_wakeup_forked(w);
}

void pk_wakeup_drain(struct pk_wakeup *w)
{
    char byte;
    while (w->ear >= 0 && recv(w->ear, &byte, 1, 0) >= 0) {
    }
}

void pk_wakeup_poke(struct pk_wakeup *w, uint64_t lease)
{
    if (w->mouth < 0) {
        return;
    }
    struct sockaddr_un a = address_of(w, lease);
    if (sendto(w->mouth, "", 1, MSG_NOSIGNAL, (struct sockaddr *)&a, sizeof a) < 0 &&
        errno == ECONNREFUSED) {
        forget(w, lease); /* its process died without tidying up */
    }
}
