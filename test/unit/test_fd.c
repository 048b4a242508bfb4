/* SPDX-License-Identifier: MIT */
/* Calls that a signal interrupts, or that take only a part of the bytes. */
#include "host/fd.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tap.h"

enum { PART = 3 };

static int interruptions; /* the next calls that fail with EINTR */
static bool in_parts;     /* calls take at most PART bytes */

static bool interrupted(void)
{
    if (interruptions == 0) {
        return false;
    }
    interruptions--;
    errno = EINTR;
    return true;
}

static size_t part_of(size_t len)
{
    return in_parts && len > PART ? PART : len;
}

/* In the place of the C library's, also for the code that is tested. */

ssize_t pread64(int fd, void *out, size_t len, off64_t offset)
{
    return interrupted() ? -1 : syscall(SYS_pread64, fd, out, part_of(len), offset);
}

ssize_t pwrite64(int fd, const void *data, size_t len, off64_t offset)
{
    return interrupted() ? -1 : syscall(SYS_pwrite64, fd, data, part_of(len), offset);
}

ssize_t write(int fd, const void *data, size_t len)
{
    return interrupted() ? -1 : syscall(SYS_write, fd, data, part_of(len));
}

ssize_t send(int fd, const void *data, size_t len, int flags)
{
    return interrupted() ? -1 : syscall(SYS_sendto, fd, data, len, flags, NULL, 0);
}

static const char text[] = "a text of several parts";

static void behave(void)
{
    interruptions = 0;
    in_parts = false;
}

TEST(fd__writes_and_reads_all_in_parts)
{
    char got[sizeof text + 8] = "";
    FILE *f = tmpfile();
    CHECK(f != NULL);
    int fd = fileno(f);
    in_parts = true;
    interruptions = 2;
    bool written = pk_fd_write(fd, text, sizeof text);
    interruptions = 2;
    ssize_t n = pk_fd_read_at(fd, got, sizeof text, 0);
    ssize_t rest = pk_fd_read_at(fd, got + sizeof text, 8, sizeof text - 2);
    behave();
    CHECK(written);
    CHECK_U64(n, sizeof text);
    CHECK_STR(got, text);
    CHECK_U64(rest, 2); /* the file ends there */
    CHECK(pk_fd_read_at(-1, got, 1, 0) == -1 && errno == EBADF);
    CHECK(!pk_fd_write(-1, text, 1) && errno == EBADF);
    in_parts = true;
    interruptions = 2;
    written = pk_fd_write_at(fd, "several", 7, 2);
    behave();
    CHECK(written && pk_fd_read_at(fd, got, sizeof text, 0) == sizeof text);
    CHECK_STR(got, "a several several parts");
    CHECK(!pk_fd_write_at(-1, text, 1, 0) && errno == EBADF);
    (void)fclose(f);
}

TEST(fd__sends_after_an_interruption)
{
    char got[sizeof text];
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    interruptions = 2;
    bool sent = pk_fd_send(ends[0], text, sizeof text, MSG_DONTWAIT);
    behave();
    CHECK(sent);
    CHECK(recv(ends[1], got, sizeof got, MSG_DONTWAIT) == sizeof text);
    pk_fd_close(&ends[1]);
    CHECK(ends[1] == -1);
    CHECK(!pk_fd_send(ends[0], text, 1, 0) && errno == EPIPE); /* and no SIGPIPE */
    pk_fd_close(&ends[0]);
}

TEST(fd__pokes_after_an_interruption)
{
    uint64_t count = 0;
    int fd = eventfd(0, EFD_NONBLOCK);
    interruptions = 2;
    pk_fd_poke(fd);
    behave();
    CHECK(read(fd, &count, sizeof count) == sizeof count);
    CHECK_U64(count, 1);
    pk_fd_close(&fd);
}
