/* SPDX-License-Identifier: MIT */
#include "host/filelock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>

#include "host/clock.h"

enum { STOPS = 1000 }; /* tried until one is not within a turn */

int pk_filelock_take(int fd, uint64_t until_ms)
{
    /* A turn takes a fraction of a millisecond, and flock can't wait with a limit: short
     * naps, so that a process which was stopped in its turn can't hang us for ever. */
    long nap_ns = 50000;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return errno;
        }
        if (pk_clock_ms() >= until_ms) {
            return ETIMEDOUT;
        }
        nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
        nap_ns = nap_ns < 2000000 ? nap_ns * 3 / 2 : nap_ns;
    }
    return 0;
}

void pk_filelock_leave(int fd)
{
    while (flock(fd, LOCK_UN) != 0 && errno == EINTR) {
    }
}

/* Word number n, from 0, of a line whose words are kept apart by blanks. */
static const char *nth_word(const char *line, int n)
{
    const char *at = line + strspn(line, " ");
    for (; n > 0; n--) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    return at;
}

/* Who has a lock, by a line of /proc/locks, if it is about a flock; else 0:
 *     1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF */
static long owner_in(const char *line)
{
    bool file_lock = strncmp(nth_word(line, 1), "FLOCK ", 6) == 0;
    return file_lock ? strtol(nth_word(line, 4), NULL, 10) : 0;
}

/* Whether a line is about the file. An inode's number is unique on its device only. */
static bool is_of(const char *line, const struct stat *st, bool any_device)
{
    char *end;
    unsigned long major_number = strtoul(nth_word(line, 5), &end, 16);
    unsigned long minor_number = strtoul(end + (*end == ':'), &end, 16);
    bool same_device =
        major_number == major(st->st_dev) && minor_number == minor(st->st_dev);
    return *end == ':' && strtoull(end + 1, NULL, 10) == st->st_ino &&
           (same_device || any_device);
}

static long find_owner(const struct stat *st, bool any_device)
{
    char line[256];
    long owner = 0;
    FILE *f = fopen("/proc/locks", "re");
    while (f != NULL && owner <= 0 && fgets(line, sizeof line, f) != NULL) {
        owner = is_of(line, st, any_device) ? owner_in(line) : 0;
    }
    if (f != NULL) {
        fclose(f);
    }
    return owner;
}

const char *pk_filelock_owner(int fd, char *out, size_t size)
{
    struct stat st;
    bool known = fstat(fd, &st) == 0;
    long owner = known ? find_owner(&st, false) : 0;
    if (known && owner <= 0) {
        /* btrfs and overlayfs have another device there than fstat() tells. */
        owner = find_owner(&st, true);
    }
    if (owner > 0) {
        snprintf(out, size, "process %ld", owner);
    } else {
        snprintf(out, size, "a process that can't be seen from here");
    }
    return out;
}

static bool held_by(pid_t pid)
{
    char line[256];
    bool held = false;
    FILE *f = fopen("/proc/locks", "re");
    while (f != NULL && !held && fgets(line, sizeof line, f) != NULL) {
        held = owner_in(line) == pid;
    }
    if (f != NULL) {
        fclose(f);
    }
    return held;
}

bool pk_filelock_stop(pid_t pid)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    int status;
    for (int i = 0; i < STOPS; i++) {
        if (kill(pid, SIGSTOP) != 0 || waitpid(pid, &status, WUNTRACED) < 0) {
            return false;
        }
        if (!WIFSTOPPED(status)) {
            errno = ECHILD;
            return false;
        }
        if (!held_by(pid)) {
            return true;
        }
        (void)kill(pid, SIGCONT);
        nanosleep(&moment, NULL);
    }
    errno = EBUSY;
    return false;
}

bool pk_filelock_in_place(int fd, int dir_fd, const char *name)
{
    struct stat ours, found;
    return fstat(fd, &ours) == 0 && fstatat(dir_fd, name, &found, 0) == 0 &&
           ours.st_ino == found.st_ino && ours.st_dev == found.st_dev;
}
