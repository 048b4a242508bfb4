/* SPDX-License-Identifier: MIT */
/* File locks, the clock and the options of sockets. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "host/clock.h"
#include "host/filelock.h"
#include "host/socket.h"
#include "statedir.h"
#include "tap.h"

/* Only a hang takes this long. */
#define PATIENCE_MS 40000

static int open_file(const char *name)
{
    int at = open(dir, O_RDONLY | O_DIRECTORY);
    int fd = openat(at, name, O_RDWR | O_CREAT, 0600);
    CHECK(at >= 0 && fd >= 0 && close(at) == 0);
    return fd;
}

/* ---- file locks ---- */

TEST(filelock__is_for_one_at_a_time)
{
    dir_fresh();
    int first = open_file("lock");
    int second = open_file("lock");
    CHECK_U64(pk_filelock_take(first, 0), 0);
    CHECK_U64(pk_filelock_take(second, 0), ETIMEDOUT);
    CHECK_U64(pk_filelock_take(second, pk_clock_ms() + 10), ETIMEDOUT);
    pk_filelock_leave(first);
    CHECK_U64(pk_filelock_take(second, 0), 0);
    CHECK_U64(pk_filelock_take(first, 0), ETIMEDOUT);
    CHECK(close(second) == 0);
    CHECK_U64(pk_filelock_take(first, 0), 0);
    CHECK(close(first) == 0);
}

TEST(filelock__says_what_went_wrong)
{
    CHECK_U64(pk_filelock_take(-1, pk_clock_ms() + 100), EBADF);
}

static int turn_fd;

static void end_turn(int signo)
{
    (void)signo;
    (void)flock(turn_fd, LOCK_UN);
}

/* In a process of its own: has the lock of the file, until SIGCONT if `one_turn`. */
static _Noreturn void be_holder(const char *name, bool one_turn, int out)
{
    char path[5000];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    (void)alarm(2 * PATIENCE_MS / 1000); /* should the test fail */
    turn_fd = open(path, O_RDWR);
    if (one_turn) {
        (void)signal(SIGCONT, end_turn);
    }
    if (flock(turn_fd, LOCK_EX) != 0 || write(out, "l", 1) != 1) {
        _exit(1);
    }
    for (;;) {
        (void)pause();
    }
}

/* Returns once the lock is taken. */
static pid_t start_holder(const char *name, bool one_turn)
{
    int line[2];
    char byte;
    CHECK(pipe(line) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        be_holder(name, one_turn, line[1]);
    }
    CHECK(pid > 0 && close(line[1]) == 0);
    CHECK(read(line[0], &byte, 1) == 1 && close(line[0]) == 0);
    return pid;
}

static void end_holder(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

/* Not the owner of another file's lock, however many there are. */
TEST(filelock__names_the_owner)
{
    char text[64], wanted[64];
    dir_fresh();
    int ours = open_file("ours"), other = open_file("other"), third = open_file("third");
    pid_t first = start_holder("other", false);
    pid_t second = start_holder("ours", false);
    pid_t last = start_holder("third", false);
    (void)snprintf(wanted, sizeof wanted, "process %d", (int)second);
    CHECK_STR(pk_filelock_owner(ours, text, sizeof text), wanted);
    (void)snprintf(wanted, sizeof wanted, "process %d", (int)first);
    CHECK_STR(pk_filelock_owner(other, text, sizeof text), wanted);
    end_holder(first);
    end_holder(second);
    end_holder(last);
    CHECK_STR(pk_filelock_owner(ours, text, sizeof text),
              "a process that can't be seen from here");
    CHECK(close(ours) == 0 && close(other) == 0 && close(third) == 0);
}

/* Two file systems of our own: the first file of each has the same number there. */
static bool mount_two(void)
{
    char path[5000];
    for (const char *name = "ab"; *name != '\0'; name++) {
        (void)snprintf(path, sizeof path, "%s/%c", dir, *name);
        if (mkdir(path, 0700) != 0 || mount("picket-test", path, "tmpfs", 0, NULL) != 0) {
            return false;
        }
    }
    return true;
}

enum { NAMED, MISNAMED, NO_MOUNTS };

/* Holds the file of one, and asks for the owner of the other's, which nobody holds at
 * first. */
static _Noreturn void look_at_two(void)
{
    char text[64], wanted[64];
    struct stat a, b;
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || !mount_two()) {
        _exit(NO_MOUNTS);
    }
    int first = open_file("a/lock"), second = open_file("b/lock");
    if (fstat(first, &a) != 0 || fstat(second, &b) != 0 || a.st_ino != b.st_ino) {
        _exit(NO_MOUNTS);
    }
    pid_t wrong = start_holder("a/lock", false);
    pid_t right = start_holder("b/lock", false);
    (void)snprintf(wanted, sizeof wanted, "process %d", (int)right);
    bool named = strcmp(pk_filelock_owner(second, text, sizeof text), wanted) == 0;
    (void)snprintf(wanted, sizeof wanted, "process %d", (int)wrong);
    named = named && strcmp(pk_filelock_owner(first, text, sizeof text), wanted) == 0;
    end_holder(wrong);
    end_holder(right);
    _exit(named ? NAMED : MISNAMED);
}

TEST(filelock__tells_files_of_two_disks_apart)
{
    int status = 0;
    dir_fresh();
    pid_t pid = fork();
    if (pid == 0) {
        look_at_two();
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_MOUNTS) {
        SKIP("mounting two file systems is not permitted here");
    }
    CHECK_U64(WEXITSTATUS(status), NAMED);
}

TEST(filelock__stops_outside_of_a_turn)
{
    dir_fresh();
    int fd = open_file("lock");
    pid_t pid = start_holder("lock", true);
    CHECK_U64(pk_filelock_take(fd, 0), ETIMEDOUT);
    CHECK(pk_filelock_stop(pid));
    CHECK_U64(pk_filelock_take(fd, 0), 0);
    end_holder(pid);
    CHECK(!pk_filelock_stop(pid));
    CHECK(close(fd) == 0);
}

/* A cleaner of old files has removed it, and others lock another one. */
TEST(filelock__knows_a_file_that_was_replaced)
{
    dir_fresh();
    int fd = open_file("lock");
    int at = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK(pk_filelock_in_place(fd, at, "lock"));
    CHECK(unlinkat(at, "lock", 0) == 0);
    CHECK(!pk_filelock_in_place(fd, at, "lock"));
    int fresh = open_file("lock");
    CHECK(!pk_filelock_in_place(fd, at, "lock"));
    CHECK(pk_filelock_in_place(fresh, at, "lock"));
    CHECK(close(fd) == 0 && close(fresh) == 0 && close(at) == 0);
}

/* ---- the clock ---- */

/* Whatever the fraction of the second is now. */
TEST(clock__has_less_than_a_second_of_nanoseconds)
{
    for (uint64_t ms = 0; ms < 2000; ms++) {
        struct timespec t = pk_clock_monotonic(pk_clock_ms() + ms);
        CHECK(t.tv_nsec >= 0 && t.tv_nsec < 1000000000);
    }
}

static bool goes_off(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

TEST(clock__timer_goes_off_at_its_time)
{
    int fd = pk_timer_fd(0);
    CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(!goes_off(fd, 0));
    pk_timer_set(fd, pk_clock_ms());
    CHECK(goes_off(fd, PATIENCE_MS / 10));
    pk_timer_set(fd, pk_clock_ms() + 10);
    CHECK(goes_off(fd, PATIENCE_MS));
    pk_timer_set(fd, 0);
    CHECK(!goes_off(fd, 0));
    CHECK(close(fd) == 0);
}

/* ---- sockets ---- */

static int option_of(int fd, int level, int option)
{
    int value = -1;
    socklen_t size = sizeof value;
    CHECK(getsockopt(fd, level, option, &value, &size) == 0);
    return value;
}

/* Soon, but not at the first packet that is lost. */
TEST(socket__notices_a_dead_peer_within_seconds)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    pk_socket_tune(fd);
    CHECK(option_of(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
    CHECK(option_of(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
    int unacknowledged_ms = option_of(fd, IPPROTO_TCP, TCP_USER_TIMEOUT);
    CHECK(unacknowledged_ms >= 1000 && unacknowledged_ms <= 10000);
    int idle_s = option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
                 option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL) *
                     option_of(fd, IPPROTO_TCP, TCP_KEEPCNT);
    CHECK(idle_s >= 2 && idle_s <= 20);
    CHECK(close(fd) == 0);
}
