/* SPDX-License-Identifier: MIT */
/*
 * Files as resources: the whole file is the value, its fence lies beside it
 * (fencefile.h).
 *
 * A new file is written under a name of its own, ".NAME.TOKEN.tmp", and synced before the
 * turn is taken; in the turn there is only the judgement and the rename. The name has
 * the token in it, so that whoever raises the fence knows which left-over of its
 * predecessor can go.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"
#include "core/door.h"
#include "core/limits.h"
#include "fence/cas.h"
#include "fence/fencefile.h"
#include "host/fd.h"
#include "host/filelock.h"
#include "host/memory.h"

/* ---- the new file, before it is in place ---- */

struct draft {
    char name[PK_FENCEFILE_NAME_MAX];
    int fd;
};

static void name_draft(const struct pk_fenced *p, uint64_t token, char *out, size_t size)
{
    int n = snprintf(out, size, ".%s.%" PRIu64 ".tmp", p->base, token);
    PK_ASSERT(n > 0 && (size_t)n < size); /* pk_fenced_open left room */
}

/* A file that replaces another looks like it: same rights, and same owner if we may. */
static bool dress_like(int fd, const struct stat *old)
{
    if (fchown(fd, old->st_uid, old->st_gid) != 0 && errno != EPERM) {
        return false;
    }
    return fchmod(fd, old->st_mode & 07777) == 0;
}

static enum picket_status open_draft(const struct pk_fenced *p, uint64_t token,
                                     struct draft *d)
{
    struct stat old = {0};
    bool replaces = fstatat(p->dir_fd, p->base, &old, 0) == 0;
    mode_t mode = replaces ? old.st_mode & 0777 : 0666;
    name_draft(p, token, d->name, sizeof d->name);
    d->fd = openat(p->dir_fd, d->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
    if (d->fd < 0) {
        return pk_fenced_cannot(p, "write beside");
    }
    /* The lock tells a writer at work from the left-over of one that was killed. */
    if (flock(d->fd, LOCK_EX | LOCK_NB) != 0) {
        pk_fd_close(&d->fd);
        return pk_fail(PICKET_BUSY, "%s is being written with token %" PRIu64 " already",
                       p->path, token);
    }
    if (ftruncate(d->fd, 0) != 0 || (replaces && !dress_like(d->fd, &old))) {
        enum picket_status s = pk_fenced_cannot(p, "write beside");
        (void)unlinkat(p->dir_fd, d->name, 0);
        pk_fd_close(&d->fd);
        return s;
    }
    return PICKET_OK;
}

static void drop_draft(const struct pk_fenced *p, struct draft *d)
{
    if (d->fd >= 0 && pk_filelock_in_place(d->fd, p->dir_fd, d->name)) {
        (void)unlinkat(p->dir_fd, d->name, 0);
    }
    pk_fd_close(&d->fd);
}

/* ---- in the turn ---- */

/* Makes `next` the state and puts the draft (NULL: none) in place. */
static enum picket_status settle(const struct pk_fenced *p, struct pk_fencefile *f,
                                 const struct picket_fence_state *next, struct draft *d)
{
    char left[PK_FENCEFILE_NAME_MAX];
    uint64_t before = f->state.token;
    bool same = pk_cas_same(next, &f->state);
    enum picket_status s = same ? PICKET_OK : pk_fencefile_write(p, f, next);
    if (s == PICKET_OK && next->token > before && next->shadow == 0) {
        name_draft(p, before, left, sizeof left);
        (void)unlinkat(p->dir_fd, left, 0);
    }
    if (s == PICKET_OK && d != NULL &&
        renameat(p->dir_fd, d->name, p->dir_fd, p->base) != 0) {
        s = pk_fenced_cannot(p, "replace");
    }
    return s;
}

/* After the turn: the names in the directory are on disk. */
static enum picket_status sync_names(const struct pk_fenced *p)
{
    return fsync(p->dir_fd) == 0 ? PICKET_OK
                                 : pk_fail(PICKET_UNKNOWN, "the disk under %s failed: %s",
                                           p->path, strerror(errno));
}

/* ---- picket_fence_file_* ---- */

struct picket_fence_file {
    struct pk_fenced place;
    struct draft draft;
    uint64_t token;
};

static void free_file(struct picket_fence_file *f)
{
    drop_draft(&f->place, &f->draft);
    pk_fenced_close(&f->place);
    pk_door_resize(f, 0);
}

/* Judges by the rule and does what follows from it, in one turn. `d` NULL: a claim. */
static enum picket_status judge(const struct pk_fenced *p, uint64_t token,
                                struct draft *d, uint64_t *fence)
{
    struct pk_fencefile f;
    enum picket_status s = pk_fencefile_enter(p, &f);
    if (s != PICKET_OK) {
        return s;
    }
    struct picket_fence_state next = f.state;
    s = pk_cas_admit(&next, token);
    if (s == PICKET_OK && d != NULL && next.token > f.state.token) {
        /* We claimed when we began: this is not the fence that we claimed. */
        s = pk_fail(PICKET_UNCLAIMED,
                    "the fence of %s was removed or put back meanwhile; nothing is "
                    "written",
                    p->path);
    }
    if (s == PICKET_OK) {
        s = settle(p, &f, &next, d);
    }
    if (fence != NULL) {
        *fence = s == PICKET_OK ? next.token : f.state.token;
    }
    pk_fencefile_leave(&f);
    return s;
}

enum picket_status picket_fence_file_open(const char *path, uint64_t token,
                                          uint64_t *fence, struct picket_fence_file **out)
{
    if (token == 0 || token > PK_TOKEN_MAX) {
        return pk_fail(PICKET_BADARG, "a token is a number from 1 to 2^53 - 1");
    }
    struct picket_fence_file *f = pk_door_resize(NULL, sizeof *f);
    *f = (struct picket_fence_file){.draft.fd = -1, .token = token};
    enum picket_status s = pk_fenced_open(path, &f->place);
    if (s == PICKET_OK) {
        s = judge(&f->place, token, NULL, fence);
    }
    if (s == PICKET_OK) {
        s = open_draft(&f->place, token, &f->draft);
    }
    if (s != PICKET_OK) {
        free_file(f);
        return s;
    }
    *out = f;
    return PICKET_OK;
}

int picket_fence_file_fd(const struct picket_fence_file *f)
{
    return f->draft.fd;
}

enum picket_status picket_fence_file_commit(struct picket_fence_file *f, uint64_t *fence)
{
    enum picket_status s = fsync(f->draft.fd) == 0
                               ? judge(&f->place, f->token, &f->draft, fence)
                               : pk_fenced_cannot(&f->place, "write beside");
    if (s == PICKET_OK) {
        s = sync_names(&f->place);
        pk_fd_close(&f->draft.fd); /* its name is the file's now */
    }
    free_file(f);
    return s;
}

void picket_fence_file_abandon(struct picket_fence_file *f)
{
    if (f != NULL) {
        free_file(f);
    }
}

/* ---- files below a directory, as cells ---- */

struct files {
    char *dir; /* "": paths are taken as they are */
};

static enum picket_status find(void *ctx, const char *name, struct pk_fenced *out)
{
    const struct files *files = ctx;
    char path[4096];
    bool below = files->dir[0] != '\0';
    bool up = strncmp(name, "../", 3) == 0 || strstr(name, "/../") != NULL;
    if (below && (name[0] == '/' || up)) {
        return pk_fail(PICKET_BADARG, "%s is not below %s", name, files->dir);
    }
    int n = snprintf(path, sizeof path, "%s%s%s", files->dir, below ? "/" : "", name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return pk_fail(PICKET_BADARG, "the path of %s is too long", name);
    }
    return pk_fenced_open(path, out);
}

/* Reads the file into `cell`; one that is not there leaves it without a value. */
static enum picket_status read_value(const struct pk_fenced *p, struct picket_cell *cell)
{
    struct stat st;
    int fd = openat(p->dir_fd, p->base, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? PICKET_OK : pk_fenced_cannot(p, "read");
    }
    if (fstat(fd, &st) != 0 || st.st_size > PK_VALUE_CEILING) {
        pk_fd_close(&fd);
        return pk_fail(PICKET_LIMIT, "%s has more than the %d bytes of a value", p->path,
                       PK_VALUE_CEILING);
    }
    char *value = pk_door_resize(NULL, (size_t)st.st_size + 1);
    ssize_t n = pk_fd_read_at(fd, value, (size_t)st.st_size, 0);
    pk_fd_close(&fd);
    if (n < 0) {
        pk_door_resize(value, 0);
        return pk_fenced_cannot(p, "read");
    }
    cell->value = value;
    cell->len = (size_t)n;
    return PICKET_OK;
}

static void print_version(const struct pk_fencefile *f, char out[PICKET_VERSION_MAX])
{
    out[0] = '\0';
    if (f->seq != 0) {
        (void)snprintf(out, PICKET_VERSION_MAX, "%" PRIu64, f->seq);
    }
}

static enum picket_status load(void *ctx, const char *name, int with_value,
                               struct picket_cell *out)
{
    struct pk_fenced p = {.dir_fd = -1};
    struct pk_fencefile f = {.fd = -1};
    enum picket_status s = find(ctx, name, &p);
    if (s != PICKET_OK) {
        return s;
    }
    s = pk_fencefile_look(&p, &f);
    if (s == PICKET_OK) {
        out->fence = f.state;
        print_version(&f, out->version);
    }
    if (s == PICKET_OK && with_value != 0) {
        s = read_value(&p, out);
    }
    pk_fenced_close(&p);
    return s;
}

/* Swaps if the version is still `version`, which becomes the new one. */
static enum picket_status swap_in_turn(const struct pk_fenced *p,
                                       char version[PICKET_VERSION_MAX],
                                       const struct picket_cell *next, struct draft *d)
{
    struct pk_fencefile f;
    char present[PICKET_VERSION_MAX];
    enum picket_status s = pk_fencefile_enter(p, &f);
    if (s != PICKET_OK) {
        return s;
    }
    print_version(&f, present);
    bool same = strcmp(present, version) == 0;
    bool fresh = version[0] == '\0' && f.seq == 1; /* entering has just made it */
    s = same || fresh ? settle(p, &f, &next->fence, d) : PICKET_BUSY;
    print_version(&f, version);
    pk_fencefile_leave(&f);
    return s;
}

/* Writes the value with the token that the fence stands at by now. */
static enum picket_status swap_value(const struct pk_fenced *p,
                                     char version[PICKET_VERSION_MAX],
                                     const struct picket_cell *next)
{
    struct draft d = {.fd = -1};
    enum picket_status s = open_draft(p, next->fence.token, &d);
    if (s != PICKET_OK) {
        return s;
    }
    s = pk_fd_write(d.fd, next->value, next->len) && fsync(d.fd) == 0
            ? swap_in_turn(p, version, next, &d)
            : pk_fenced_cannot(p, "write beside");
    drop_draft(p, &d);
    return s == PICKET_OK ? sync_names(p) : s;
}

/* In two turns: the fence is raised before a draft is begun, so that whoever raises it
 * next knows by the fence which draft was left behind by a writer that died. */
static enum picket_status compare_and_swap(void *ctx, const char *name,
                                           const char *version,
                                           const struct picket_cell *next)
{
    struct pk_fenced p = {.dir_fd = -1};
    char seen[PICKET_VERSION_MAX];
    enum picket_status s = find(ctx, name, &p);
    if (s != PICKET_OK) {
        return s;
    }
    (void)snprintf(seen, sizeof seen, "%s", version);
    s = swap_in_turn(&p, seen, next, NULL);
    if (s == PICKET_OK && next->value != NULL) {
        s = swap_value(&p, seen, next);
    }
    pk_fenced_close(&p);
    return s;
}

static void close_files(void *ctx)
{
    struct files *files = ctx;
    free(files->dir);
    pk_door_resize(files, 0);
}

static enum picket_status open_files(const char *url, struct pk_resource **out)
{
    struct files *files = pk_door_resize(NULL, sizeof *files);
    files->dir = pk_memory_copy(strchr(url, ':') + 1);
    struct picket_cas cas = {files, load, compare_and_swap, close_files};
    *out = pk_cas_new(&cas);
    return PICKET_OK;
}

const struct pk_resource_kind pk_resource_file = {
    .scheme = "file", .form = "file:DIR", .open = open_files, PK_CAS_VERBS};
