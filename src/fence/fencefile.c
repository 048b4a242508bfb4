/* SPDX-License-Identifier: MIT */
#include "fence/fencefile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"
#include "core/door.h"
#include "core/limits.h"
#include "core/wire.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/fields.h"
#include "host/filelock.h"
#include "host/memory.h"

enum { SLOTS = 2, SLOT_BYTES = PK_FENCEFILE_BYTES / SLOTS };

#define FORM                                                                             \
    "picket-fence 1 seq %" PRIu64 " token %" PRIu64 " shadow %d shadowed %" PRIu64

/* ---- places ---- */

enum picket_status pk_fenced_cannot(const struct pk_fenced *p, const char *deed)
{
    int error = errno;
    bool denied = error == EACCES || error == EPERM || error == EROFS;
    return pk_fail(denied ? PICKET_DENIED : PICKET_STORE, "can't %s %s: %s", deed,
                   p->path, strerror(error));
}

/* Where the file is that `path` leads to; malloc'ed. A file that does not exist yet is
 * where its directory says. */
static char *follow(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode)) {
        return pk_memory_copy(path);
    }
    char *real = realpath(path, NULL);
    if (real == NULL && errno == ENOMEM) {
        pk_memory_out();
    }
    return real;
}

/* Splits into directory (opened) and name. */
static enum picket_status settle(char *real, struct pk_fenced *p)
{
    char *slash = strrchr(real, '/');
    const char *base = slash == NULL ? real : slash + 1;
    int n = snprintf(p->fence, sizeof p->fence, ".%s.fence", base);
    bool odd = base[0] == '\0' || strcmp(base, ".") == 0 || strcmp(base, "..") == 0;
    if (odd || n < 0 || (size_t)n >= sizeof p->fence - 32) {
        return pk_fail(PICKET_BADARG, "%s can't be fenced: %s", p->path,
                       odd ? "a file is wanted, not a directory"
                           : "its name is too long for a fence beside it");
    }
    (void)snprintf(p->base, sizeof p->base, "%s", base);
    const char *dir = slash == NULL ? "." : real;
    if (slash == real) {
        dir = "/";
    } else if (slash != NULL) {
        *slash = '\0';
    }
    p->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return p->dir_fd < 0 ? pk_fenced_cannot(p, "open the directory of") : PICKET_OK;
}

enum picket_status pk_fenced_open(const char *path, struct pk_fenced *out)
{
    struct stat st;
    *out = (struct pk_fenced){.dir_fd = -1};
    (void)snprintf(out->path, sizeof out->path, "%s", path);
    char *real = follow(path);
    if (real == NULL) {
        return pk_fenced_cannot(out, "follow the link");
    }
    enum picket_status s = settle(real, out);
    free(real);
    if (s == PICKET_OK && fstatat(out->dir_fd, out->base, &st, 0) == 0 &&
        !S_ISREG(st.st_mode)) {
        s = pk_fail(PICKET_BADARG, "%s can't be fenced: it is not a plain file", path);
        pk_fenced_close(out);
    }
    return s;
}

void pk_fenced_close(struct pk_fenced *p)
{
    pk_fd_close(&p->dir_fd);
}

/* ---- slots ---- */

static uint64_t digest(const char *text, size_t len)
{
    return pk_digest(PK_DIGEST_START, text, len);
}

static void print_slot(uint64_t seq, const struct picket_fence_state *state,
                       char slot[SLOT_BYTES])
{
    char text[SLOT_BYTES];
    int n = snprintf(text, sizeof text, FORM, seq, state->token, state->shadow,
                     state->shadowed);
    memset(slot, '\n', SLOT_BYTES);
    int all = snprintf(slot, SLOT_BYTES, "%s check %016" PRIx64 "\n", text,
                       digest(text, (size_t)n));
    slot[all] = '\n'; /* no NUL: the file is text */
}

/* False: the slot is not whole, or never was. */
static bool read_slot(const char *slot, struct pk_fencefile *out)
{
    char text[SLOT_BYTES + 1];
    char again[SLOT_BYTES];
    const char *at = text;
    uint64_t shadow = 0;
    memcpy(text, slot, SLOT_BYTES);
    text[SLOT_BYTES] = '\0';
    if (!pk_field_read(&at, "picket-fence 1 seq ", &out->seq) ||
        !pk_field_read(&at, " token ", &out->state.token) ||
        !pk_field_read(&at, " shadow ", &shadow) ||
        !pk_field_read(&at, " shadowed ", &out->state.shadowed)) {
        return false;
    }
    out->state.shadow = shadow != 0;
    print_slot(out->seq, &out->state, again); /* with its check */
    return memcmp(again, slot, SLOT_BYTES) == 0 && out->state.token <= PK_TOKEN_MAX;
}

bool pk_fencefile_parse(const char slots[PK_FENCEFILE_BYTES], struct pk_fencefile *out)
{
    out->seq = 0;
    for (size_t i = 0; i < SLOTS; i++) {
        struct pk_fencefile one = {0};
        if (read_slot(slots + i * SLOT_BYTES, &one) && one.seq > out->seq) {
            out->seq = one.seq;
            out->state = one.state;
        }
    }
    return out->seq > 0;
}

static enum picket_status read_state(const struct pk_fenced *p, int fd,
                                     struct pk_fencefile *out)
{
    char slots[PK_FENCEFILE_BYTES] = {0};
    if (pk_fd_read_at(fd, slots, sizeof slots, 0) < 0) {
        return pk_fenced_cannot(p, "read the fence of");
    }
    return pk_fencefile_parse(slots, out)
               ? PICKET_OK
               : pk_fail(PICKET_STORE,
                         "the fence of %s (%s) is damaged; nothing is written until you "
                         "have found out its last token",
                         p->path, p->fence);
}

/* ---- the file ---- */

enum picket_status pk_fencefile_look(const struct pk_fenced *p, struct pk_fencefile *out)
{
    *out = (struct pk_fencefile){.fd = -1};
    int fd = openat(p->dir_fd, p->fence, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? PICKET_OK : pk_fenced_cannot(p, "open the fence of");
    }
    enum picket_status s = read_state(p, fd, out);
    pk_fd_close(&fd);
    return s;
}

/* A file without a name, or with one that nobody looks for where the file system has no
 * such thing; `path` gets the way to it. */
static int open_fresh(const struct pk_fenced *p, char *path, size_t size, bool *named)
{
    int fd = openat(p->dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    *named = fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT);
    (void)snprintf(path, size, "/proc/self/fd/%d", fd);
    if (*named) {
        (void)snprintf(path, size, "%s.%016" PRIx64, p->fence, pk_random());
        fd = openat(p->dir_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return fd;
}

/* Makes the fence, whole from its first moment; that somebody else was quicker is fine.
 * False with errno set. */
static bool make(const struct pk_fenced *p)
{
    char slots[PK_FENCEFILE_BYTES];
    char fresh[PK_FENCEFILE_NAME_MAX + 32];
    bool named;
    const struct picket_fence_state none = {0};
    memset(slots, '\n', sizeof slots);
    print_slot(1, &none, slots);
    int fd = open_fresh(p, fresh, sizeof fresh, &named);
    bool made = fd >= 0 && pk_fd_write(fd, slots, sizeof slots) && fsync(fd) == 0 &&
                (linkat(p->dir_fd, fresh, p->dir_fd, p->fence, AT_SYMLINK_FOLLOW) == 0 ||
                 errno == EEXIST) &&
                fsync(p->dir_fd) == 0;
    int error = errno;
    if (fd >= 0 && named) {
        (void)unlinkat(p->dir_fd, fresh, 0);
    }
    pk_fd_close(&fd);
    errno = error;
    return made;
}

static enum picket_status take_turn(const struct pk_fenced *p, int fd)
{
    char who[64];
    int error = pk_filelock_take(fd, pk_clock_ms() + PK_FENCEFILE_PATIENCE_MS);
    if (error == ETIMEDOUT) {
        return pk_fail(PICKET_UNREACHABLE,
                       "the fence of %s is in use by %s, which does not let go: is it "
                       "stopped?",
                       p->path, pk_filelock_owner(fd, who, sizeof who));
    }
    errno = error;
    return error == 0 ? PICKET_OK : pk_fenced_cannot(p, "lock the fence of");
}

enum picket_status pk_fencefile_enter(const struct pk_fenced *p, struct pk_fencefile *out)
{
    enum picket_status s = PICKET_OK;
    *out = (struct pk_fencefile){.fd = -1};
    while (s == PICKET_OK) {
        out->fd = openat(p->dir_fd, p->fence, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (out->fd < 0) {
            bool made = errno == ENOENT && make(p);
            s = made ? PICKET_OK : pk_fenced_cannot(p, "make the fence of");
            continue;
        }
        s = take_turn(p, out->fd);
        if (s == PICKET_OK && pk_filelock_in_place(out->fd, p->dir_fd, p->fence)) {
            s = read_state(p, out->fd, out);
            break;
        }
        pk_fd_close(&out->fd); /* removed meanwhile: others use another one */
    }
    if (s != PICKET_OK) {
        pk_fd_close(&out->fd);
    }
    return s;
}

enum picket_status pk_fencefile_write(const struct pk_fenced *p, struct pk_fencefile *f,
                                      const struct picket_fence_state *state)
{
    char slot[SLOT_BYTES];
    PK_ASSERT(f->fd >= 0 && state->token >= f->state.token); /* P6 */
    print_slot(f->seq + 1, state, slot);
    off_t at = (off_t)((f->seq % SLOTS) * SLOT_BYTES);
    if (pwrite(f->fd, slot, sizeof slot, at) != (ssize_t)sizeof slot) {
        return pk_fenced_cannot(p, "write the fence of");
    }
    if (fdatasync(f->fd) != 0) {
        return pk_fail(PICKET_UNKNOWN, "the disk under %s failed: %s", p->path,
                       strerror(errno));
    }
    f->seq++;
    f->state = *state;
    return PICKET_OK;
}

void pk_fencefile_leave(struct pk_fencefile *f)
{
    pk_fd_close(&f->fd); /* and the lock with it */
}
