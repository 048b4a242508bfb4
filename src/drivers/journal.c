/* SPDX-License-Identifier: MIT */
#include "drivers/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/error.h"
#include "core/door.h"
#include "core/wire.h"
#include "host/clock.h"
#include "host/fd.h"
#include "host/filelock.h"
#include "host/memory.h"
#include "host/version.h"

static const unsigned char magic[] = {'P', 'K', 'J', 'L'};
enum {
    VERSION = 1,
    FILE_HEADER = 32,
    NOTE = 32,
    RECORD_HEADER = 16,
    /* A journal is rewritten when it is this long and several times its own snapshot. */
    BLOATED_BYTES = 256 * 1024,
    BLOATED_FACTOR = 4,
};

/* ---- the directory ---- */

/* Makes one directory, and its name durable: a journal is worth nothing if the way to it
 * is gone after a power cut. False with errno set when it is not there afterwards. */
static bool make_dir(const char *path, mode_t mode)
{
    if (mkdir(path, mode) != 0) {
        return errno == EEXIST;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int parent = fd < 0 ? -1 : openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool durable = parent >= 0 && fsync(parent) == 0;
    pk_fd_close(&parent);
    pk_fd_close(&fd);
    return durable;
}

/* Makes the directory and its parents, like mkdir -p, the last one private to the user.
 */
static bool make_path(const char *path)
{
    char *copy = pk_memory_copy(path);
    size_t len = strlen(copy);
    while (len > 1 && copy[len - 1] == '/') {
        copy[--len] = '\0'; /* else the last one would count as a parent */
    }
    bool made = true;
    for (char *slash = strchr(copy + 1, '/'); made && slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        made = make_dir(copy, 0755);
        *slash = '/';
    }
    made = made && make_dir(copy, 0700);
    free(copy);
    return made;
}

/* True when the directory has something in it that isn't ours, and no journal: a mistyped
 * path. */
static bool foreign(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        pk_fd_close(&fd);
        return false;
    }
    bool strange = false;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        const char *n = e->d_name;
        bool ours = strcmp(n, "lock") == 0 || strcmp(n, "wake") == 0 ||
                    strncmp(n, "journal", 7) == 0;
        bool dots = strcmp(n, ".") == 0 || strcmp(n, "..") == 0;
        strange = strange || (!ours && !dots);
    }
    closedir(d);
    struct stat st;
    bool journal = fstatat(dir_fd, "journal", &st, 0) == 0 && S_ISREG(st.st_mode);
    return strange && !journal;
}

static enum picket_status cannot(const struct pk_journal *j, const char *what)
{
    int error = errno;
    bool denied = error == EACCES || error == EPERM;
    /* A member of the group meets files from before it was the group's. */
    const char *hint = denied && j->dir.shared && faccessat(j->dir_fd, ".", W_OK, 0) == 0
                           ? "; its files must be its group's: run 'chgrp -R' and "
                             "'chmod -R g+rw' on it"
                           : "";
    return pk_fail(denied ? PICKET_DENIED : PICKET_STORE,
                   "can't %s the state directory %s: %s%s", what, j->path,
                   strerror(error), hint);
}

static enum picket_status open_lock(struct pk_journal *j)
{
    int fd = openat(j->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return cannot(j, "write to");
    }
    pk_state_dir_give(&j->dir, fd);
    enum picket_status s = pk_state_dir_trust(&j->dir, fd, j->path);
    if (s != PICKET_OK) {
        close(fd);
        return s;
    }
    pk_fd_close(&j->lock_fd);
    j->lock_fd = fd;
    return PICKET_OK;
}

enum picket_status pk_journal_open(struct pk_journal *j, const char *path)
{
    *j = (struct pk_journal){.dir_fd = -1, .lock_fd = -1, .fd = -1};
    j->path = pk_memory_copy(path);
    if (!make_path(path)) {
        return cannot(j, "make");
    }
    j->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->dir_fd < 0) {
        return cannot(j, "open");
    }
    if (foreign(j->dir_fd)) {
        return pk_fail(PICKET_STORE,
                       "%s is not a Picket state directory: it has other files in it",
                       path);
    }
    enum picket_status s = pk_state_dir_read(j->dir_fd, path, &j->dir);
    return s == PICKET_OK ? open_lock(j) : s;
}

void pk_journal_forked(struct pk_journal *j)
{
    pk_fd_close(&j->fd);
    pk_fd_close(&j->lock_fd);
    pk_fd_close(&j->dir_fd);
}

void pk_journal_close(struct pk_journal *j)
{
    pk_journal_forked(j);
    free(j->path);
    free(j->buffer);
    *j = (struct pk_journal){.dir_fd = -1, .lock_fd = -1, .fd = -1};
}

/* ---- taking turns ---- */

static enum picket_status lock_this(struct pk_journal *j, int fd, uint64_t until_ms)
{
    char who[64];
    int error = pk_filelock_take(fd, until_ms);
    if (error == ETIMEDOUT) {
        return pk_fail(PICKET_UNREACHABLE,
                       "%s is in use by %s, which does not let go: is it stopped?",
                       j->path, pk_filelock_owner(fd, who, sizeof who));
    }
    errno = error;
    return error == 0 ? PICKET_OK : cannot(j, "lock");
}

enum picket_status pk_journal_lock(struct pk_journal *j, uint64_t until_ms)
{
    enum picket_status s = lock_this(j, j->lock_fd, until_ms);
    /* Removed, by a cleaner of old files: others make a new one, and so must we. */
    while (s == PICKET_OK && !pk_filelock_in_place(j->lock_fd, j->dir_fd, "lock")) {
        s = open_lock(j);
        s = s == PICKET_OK ? lock_this(j, j->lock_fd, until_ms) : s;
    }
    if (s != PICKET_OK) {
        return s;
    }
    /* The lock file can be removed while its owner is in its turn, and the next process
     * then locks another file. The directory can't be replaced under the journal. Where a
     * directory can't be locked (NFS), the lock file alone has to do. */
    s = lock_this(j, j->dir_fd, until_ms);
    if (s == PICKET_UNREACHABLE) {
        pk_filelock_leave(j->lock_fd);
        return s;
    }
    return PICKET_OK;
}

void pk_journal_unlock(struct pk_journal *j)
{
    pk_filelock_leave(j->dir_fd);
    pk_filelock_leave(j->lock_fd);
}

/* ---- records ---- */

static uint32_t length_check(const unsigned char *header)
{
    return (uint32_t)(pk_digest(PK_DIGEST_START, header, 4) >> 16);
}

static uint32_t get_u32(const unsigned char *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 |
           (uint32_t)in[3] << 24;
}

static void put_u32(unsigned char *out, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (unsigned char)(v >> (8 * i));
    }
}

/* The length of the good record at the start of `at`, header included; 0: there is none.
 */
static size_t record_length(const unsigned char *at, size_t left)
{
    if (left < RECORD_HEADER || get_u32(at + 4) != length_check(at)) {
        return 0;
    }
    size_t len = get_u32(at);
    if (len == 0 || len > left - RECORD_HEADER ||
        pk_digest(PK_DIGEST_START, at + RECORD_HEADER, len) != pk_get_u64(at + 8)) {
        return 0;
    }
    return RECORD_HEADER + len;
}

static bool good_record_within(const unsigned char *at, size_t left)
{
    for (size_t i = 1; i + RECORD_HEADER < left; i++) {
        if (record_length(at + i, left - i) != 0) {
            return true;
        }
    }
    return false;
}

static void reserve(struct pk_journal *j, size_t size)
{
    if (j->capacity < size) {
        j->capacity = size < 4096 ? 4096 : size;
        j->buffer = pk_door_resize(j->buffer, j->capacity);
    }
}

/* Fills the buffer with the record; returns its length. */
static size_t build_record(struct pk_journal *j, size_t at, enum pk_record kind,
                           struct pk_bytes data)
{
    size_t payload = 1 + (size_t)data.len;
    reserve(j, at + RECORD_HEADER + payload);
    unsigned char *out = j->buffer + at;
    put_u32(out, (uint32_t)payload);
    put_u32(out + 4, length_check(out));
    out[RECORD_HEADER] = (unsigned char)kind;
    memcpy(out + RECORD_HEADER + 1, data.data, data.len);
    pk_put_u64(out + 8, pk_digest(PK_DIGEST_START, out + RECORD_HEADER, payload));
    return RECORD_HEADER + payload;
}

/* ---- what is on disk ----
 *
 * A writer that is killed before its fdatasync leaves a record that everybody can read
 * and a power cut can take away again. Nobody may act on such a record, since it may be
 * a grant whose token would then be given out twice (P2). So the note in the lock file
 * says how much of which journal is on disk; whoever reads more than that syncs first.
 *
 * The other way round, a journal that has less than the note says has lost acknowledged
 * records. No power cut does that: the note is written after the sync of what it names,
 * so whatever older or newer note survives, the journal had that length on disk. */

/* True when the open journal is the one that the note is about. */
static bool is_about(const struct pk_journal_note *n, const struct pk_journal *j)
{
    return n->id != 0 && n->id == j->id && n->generation == j->generation;
}

/* How much of the open journal is known to be on disk. */
static uint64_t synced_length(const struct pk_journal *j)
{
    return is_about(&j->synced, j) ? j->synced.length : 0;
}

static void note_synced(struct pk_journal *j)
{
    unsigned char note[NOTE];
    j->synced = (struct pk_journal_note){j->id, j->generation, j->end};
    pk_put_u64(note, j->synced.id);
    pk_put_u64(note + 8, j->synced.generation);
    pk_put_u64(note + 16, j->synced.length);
    pk_put_u64(note + 24, pk_digest(PK_DIGEST_START, note, 24));
    ssize_t n = pwrite(j->lock_fd, note, sizeof note, 0);
    (void)n; /* without it readers sync once more than they need to */
}

/* Reads the note. When it is missing or damaged, nothing is known by it: all zero. */
static struct pk_journal_note read_note(const struct pk_journal *j)
{
    unsigned char note[NOTE];
    if (pk_fd_read_at(j->lock_fd, note, sizeof note, 0) != (ssize_t)sizeof note ||
        pk_get_u64(note + 24) != pk_digest(PK_DIGEST_START, note, 24)) {
        return (struct pk_journal_note){0};
    }
    return (struct pk_journal_note){pk_get_u64(note), pk_get_u64(note + 8),
                                    pk_get_u64(note + 16)};
}

/* Refuses a journal that lacks what the note says is on disk. */
static enum picket_status check_note(const struct pk_journal *j, uint64_t size,
                                     const struct pk_journal_note *n)
{
    bool older = j->id != n->id || j->generation < n->generation;
    if (n->id != 0 && older) {
        return pk_fail(PICKET_STORE,
                       "%s/journal is not the one that was used last, but an older copy "
                       "or of another store: put back the right one, or move the "
                       "directory away to start anew",
                       j->path);
    }
    if (is_about(n, j) && size < n->length) {
        return pk_fail(PICKET_STORE,
                       "%s/journal was cut short: %llu bytes were acknowledged, %llu are "
                       "there: put back the whole file, or move the directory away to "
                       "start anew",
                       j->path, (unsigned long long)n->length, (unsigned long long)size);
    }
    return PICKET_OK;
}

/* There is no journal. That is fine in a new directory. */
static enum picket_status check_absence(const struct pk_journal *j)
{
    struct pk_journal_note n = j->synced.id != 0 ? j->synced : read_note(j);
    return n.id == 0 ? PICKET_OK
                     : pk_fail(PICKET_STORE,
                               "%s/journal is gone: %llu bytes were acknowledged: put it "
                               "back, or move the directory away to start anew",
                               j->path, (unsigned long long)n.length);
}

/* ---- reading ---- */

static int write_all(int fd, const unsigned char *data, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, data, len, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        data += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

/* Reads exactly `len` bytes at `offset` into the buffer. */
static enum picket_status load(struct pk_journal *j, size_t len, uint64_t offset)
{
    reserve(j, len);
    ssize_t n = pk_fd_read_at(j->fd, j->buffer, len, (off_t)offset);
    if (n != (ssize_t)len) {
        return pk_fail(PICKET_STORE, "can't read %s/journal: %s", j->path,
                       n < 0 ? strerror(errno) : "it shrank");
    }
    return PICKET_OK;
}

static enum picket_status damaged(const struct pk_journal *j, uint64_t at)
{
    return pk_fail(PICKET_STORE,
                   "%s/journal is damaged at byte %llu: put back a copy, or move the "
                   "directory away to start anew",
                   j->path, (unsigned long long)at);
}

static enum picket_status check_header(struct pk_journal *j, uint64_t size)
{
    if (size < FILE_HEADER || load(j, FILE_HEADER, 0) != PICKET_OK ||
        memcmp(j->buffer, magic, sizeof magic) != 0 || j->buffer[4] == 0) {
        return pk_fail(PICKET_STORE, "%s/journal is not a Picket journal", j->path);
    }
    if (pk_get_u64(j->buffer + 24) !=
        pk_digest(PK_DIGEST_START, j->buffer, FILE_HEADER - 8)) {
        return damaged(j, sizeof magic);
    }
    if (j->buffer[4] != VERSION) {
        char what[PATH_MAX + sizeof "/journal"];
        snprintf(what, sizeof what, "%s/journal", j->path);
        return pk_fail(PICKET_STORE, "%s", pk_format_needed(what, j->buffer[4], VERSION));
    }
    j->id = pk_get_u64(j->buffer + 8);
    j->generation = pk_get_u64(j->buffer + 16);
    j->end = FILE_HEADER;
    j->baseline = 0;
    return PICKET_OK;
}

/* Makes sure that `fd` is the file now called journal: compaction puts a new one in its
 * place. */
static enum picket_status follow(struct pk_journal *j, bool *empty)
{
    struct stat st;
    if (fstatat(j->dir_fd, "journal", &st, 0) != 0) {
        *empty = errno == ENOENT;
        return *empty ? check_absence(j) : cannot(j, "read");
    }
    *empty = false;
    if (j->fd >= 0 && st.st_ino == j->inode) {
        return PICKET_OK;
    }
    int fd = openat(j->dir_fd, "journal", O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return cannot(j, "write to");
    }
    pk_fd_close(&j->fd);
    j->fd = fd;
    j->inode = st.st_ino;
    pk_state_dir_give(&j->dir, fd);
    enum picket_status s = pk_state_dir_trust(&j->dir, fd, j->path);
    s = s == PICKET_OK ? check_header(j, (uint64_t)st.st_size) : s;
    if (s != PICKET_OK) {
        pk_fd_close(&j->fd);
    }
    return s;
}

/* Opens the journal that is there now and checks it against what is known of it, by the
 * note and by this process, which may know more. */
static enum picket_status open_known(struct pk_journal *j, uint64_t *size, bool *empty)
{
    struct stat st;
    enum picket_status s = follow(j, empty);
    if (s != PICKET_OK || *empty) {
        return s;
    }
    if (fstat(j->fd, &st) != 0) {
        return cannot(j, "read");
    }
    *size = (uint64_t)st.st_size;
    struct pk_journal_note note = read_note(j);
    s = check_note(j, *size, &j->synced);
    s = s == PICKET_OK ? check_note(j, *size, &note) : s;
    if (s != PICKET_OK) {
        return s;
    }
    if (*size < j->end) {
        return pk_fail(PICKET_STORE, "%s/journal was cut short by something else",
                       j->path);
    }
    if (is_about(&note, j) && note.length > synced_length(j)) {
        j->synced = note;
    }
    return PICKET_OK;
}

/* Puts on disk what is not known to be there of the good records in the buffer. They are
 * written again first: after an fdatasync that failed, in whatever process, the page
 * cache takes its pages for clean, and the next fdatasync succeeds without writing them.
 */
static enum picket_status sync_tail(struct pk_journal *j, size_t left)
{
    uint64_t from = synced_length(j);
    from = from > j->end ? from : j->end;
    size_t good = 0;
    for (size_t n = record_length(j->buffer, left); n != 0;
         n = record_length(j->buffer + good, left - good)) {
        good += n;
    }
    uint64_t to = j->end + good;
    if (to <= from) {
        return PICKET_OK;
    }
    const unsigned char *unsure = j->buffer + (from - j->end);
    bool written = write_all(j->fd, unsure, (size_t)(to - from), from) == 0;
    if (!written || fdatasync(j->fd) != 0) {
        return pk_fail(PICKET_STORE, "the disk under %s failed: %s", j->path,
                       strerror(errno));
    }
    return PICKET_OK;
}

/* Shows the good records at the start of the buffer; returns how many bytes they take.
 * -1: one made no sense. */
static ssize_t visit_all(struct pk_journal *j, size_t left, pk_journal_visit *visit,
                         void *ctx)
{
    const unsigned char *at = j->buffer;
    for (size_t n = record_length(at, left); n != 0; n = record_length(at, left)) {
        const unsigned char *payload = at + RECORD_HEADER;
        struct pk_bytes data = pk_bytes(payload + 1, n - RECORD_HEADER - 1);
        bool first = j->end == FILE_HEADER;
        if (first != (payload[0] == PK_RECORD_SNAPSHOT) ||
            !visit(ctx, (enum pk_record)payload[0], data)) {
            return -1;
        }
        bool first_two =
            payload[0] != PK_RECORD_COMMANDS && j->end == j->baseline + FILE_HEADER;
        j->end += n;
        j->baseline += first_two ? n : 0;
        at += n;
        left -= n;
    }
    return at - j->buffer;
}

enum picket_status pk_journal_read(struct pk_journal *j, pk_journal_visit *visit,
                                   void *ctx, bool *empty)
{
    uint64_t size = 0;
    enum picket_status s = open_known(j, &size, empty);
    if (s != PICKET_OK || *empty) {
        return s;
    }
    size_t left = (size_t)(size - j->end);
    bool fresh = left > 0 && size > synced_length(j);
    s = left == 0 ? PICKET_OK : load(j, left, j->end);
    if (s == PICKET_OK && fresh) {
        s = sync_tail(j, left);
    }
    if (s != PICKET_OK) {
        return s;
    }
    ssize_t shown = visit_all(j, left, visit, ctx);
    if (shown < 0) {
        return pk_fail(PICKET_STORE, "%s/journal has an unreadable record at byte %llu",
                       j->path, (unsigned long long)j->end);
    }
    /* The first record came with the file, by a rename: that one can't be torn. */
    bool headless = j->end == FILE_HEADER;
    if (headless || j->end < synced_length(j) ||
        good_record_within(j->buffer + shown, left - (size_t)shown)) {
        return damaged(j, j->end);
    }
    if (is_about(&j->synced, j) && j->end > j->synced.length) {
        note_synced(j);
    }
    return PICKET_OK;
}

/* ---- writing ---- */

/* Puts a file that has the first `len` bytes of the buffer in the journal's place. Its
 * name is on disk before anything is appended to it: a power cut would bring back the old
 * journal, without what was acknowledged since. */
static enum picket_status publish(struct pk_journal *j, size_t len)
{
    static const char temporary[] = "journal.new";
    uint64_t id = j->id != 0 ? j->id : pk_random();
    uint64_t generation = j->generation + 1;
    memset(j->buffer, 0, FILE_HEADER);
    memcpy(j->buffer, magic, sizeof magic);
    j->buffer[4] = VERSION;
    pk_put_u64(j->buffer + 8, id);
    pk_put_u64(j->buffer + 16, generation);
    pk_put_u64(j->buffer + 24, pk_digest(PK_DIGEST_START, j->buffer, FILE_HEADER - 8));

    int fd = openat(j->dir_fd, temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return cannot(j, "write to");
    }
    struct stat st;
    if (j->fd >= 0 && fstat(j->fd, &st) == 0) {
        /* The same people as before may use it; sudo must not lock them out. */
        bool kept =
            fchmod(fd, st.st_mode & 0777) == 0 && fchown(fd, st.st_uid, st.st_gid) == 0;
        (void)kept; /* else it belongs to us, who may use it too */
    }
    pk_state_dir_give(&j->dir, fd);
    if (write_all(fd, j->buffer, len, 0) != 0 || fsync(fd) != 0 || fstat(fd, &st) != 0 ||
        renameat(j->dir_fd, temporary, j->dir_fd, "journal") != 0 ||
        fsync(j->dir_fd) != 0) {
        enum picket_status s = cannot(j, "write to");
        unlinkat(j->dir_fd, temporary, 0);
        close(fd);
        return s;
    }
    pk_fd_close(&j->fd);
    j->fd = fd;
    j->inode = st.st_ino;
    j->id = id;
    j->generation = generation;
    j->end = len;
    note_synced(j);
    return PICKET_OK;
}

/* Makes the name of the open journal durable, by a copy and a rename of our own: after an
 * fsync of the directory that failed, a second one need not write what the first did not.
 */
static enum picket_status settle(struct pk_journal *j)
{
    size_t len = (size_t)j->end;
    enum picket_status s = load(j, len, 0);
    return s == PICKET_OK ? publish(j, len) : s;
}

/* The record that was just written is not on disk. */
static enum picket_status unsynced(const struct pk_journal *j, int why)
{
    bool full = why == ENOSPC || why == EDQUOT;
    /* Only a cut that is on disk makes sure that a power cut can't bring the record back.
     * A cut that fails leaves a record that the next reader has to sync (sync_tail). */
    bool cut = ftruncate(j->fd, (off_t)j->end) == 0;
    if (full && cut && fsync(j->fd) == 0) {
        return pk_fail(PICKET_STORE, "can't write to %s: %s; nothing was changed",
                       j->path, strerror(why));
    }
    return pk_fail(PICKET_UNKNOWN, "the disk under %s failed: %s", j->path,
                   strerror(why));
}

enum picket_status pk_journal_append(struct pk_journal *j, enum pk_record kind,
                                     struct pk_bytes data)
{
    struct stat st;
    enum picket_status s = is_about(&j->synced, j) ? PICKET_OK : settle(j);
    if (s != PICKET_OK) {
        return s;
    }
    size_t len = build_record(j, 0, kind, data);
    bool torn = fstat(j->fd, &st) == 0 && (uint64_t)st.st_size > j->end;
    if (torn && ftruncate(j->fd, (off_t)j->end) != 0) {
        return cannot(j, "write to");
    }
    if (write_all(j->fd, j->buffer, len, j->end) != 0) {
        int why = errno;
        /* Should this fail too, the half record is a torn tail, and the next writer's to
         * cut. */
        int cut = ftruncate(j->fd, (off_t)j->end);
        (void)cut;
        return pk_fail(PICKET_STORE, "can't write to %s: %s; nothing was changed",
                       j->path, strerror(why));
    }
    if (fdatasync(j->fd) != 0) {
        return unsynced(j, errno);
    }
    j->end += len;
    note_synced(j);
    return PICKET_OK;
}

bool pk_journal_bloated(const struct pk_journal *j)
{
    return j->end > BLOATED_BYTES && j->end > BLOATED_FACTOR * j->baseline;
}

enum picket_status pk_journal_replace(struct pk_journal *j, struct pk_bytes snapshot,
                                      struct pk_bytes epoch)
{
    size_t len = FILE_HEADER;
    len += build_record(j, len, PK_RECORD_SNAPSHOT, snapshot);
    len += build_record(j, len, PK_RECORD_EPOCH, epoch);
    enum picket_status s = publish(j, len);
    if (s == PICKET_OK) {
        j->baseline = len - FILE_HEADER;
    }
    return s;
}
