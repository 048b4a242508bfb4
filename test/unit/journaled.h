/* SPDX-License-Identifier: MIT */
/*
 * For tests of the journal: handles that keep what they were shown, and writers that
 * can be killed before any step. The calls that change files are ours here, so that a
 * process can be killed at each of them and a disk fails when we say so.
 */
#ifndef PICKET_TEST_JOURNALED_H
#define PICKET_TEST_JOURNALED_H

#include <errno.h>
#include <sys/file.h>
#include <sys/syscall.h>

#include "core/wire.h"
#include "drivers/journal.h"
#include "host/clock.h"
#include "statedir.h"

enum { FILE_HEADER = 32, RECORD_HEADER = 16, PATIENCE_MS = 120000 };

/* ---- steps ---- */

static int steps_left = -1; /* until SIGKILL; -1: never */
static bool sync_fails, dir_sync_fails;
static bool sync_fails_late; /* with an error of before: everything is on disk */
static int sync_error = EIO;
static unsigned syncs, file_syncs, dir_syncs, renames; /* fdatasync, and fsync */

/* ---- a page cache ----
 *
 * Of one file, the one that `cached` is the inode of: which of its bytes wait to be
 * written, and which are on disk. As on Linux, a sync that fails takes them for written
 * all the same. What is read before a power cut is the file; what is read after it, the
 * disk. */

static ino_t cached;
static struct {
    unsigned char bytes[8192];
    bool dirty[8192];
    size_t len;
} disk;
static bool name_is_dirty, name_on_disk; /* the same for the last rename */
static bool cut_fails;

static inline bool is_cached(int fd)
{
    struct stat st;
    return cached != 0 && fstat(fd, &st) == 0 && st.st_ino == cached;
}

static inline void cache_write(int fd, size_t len, off_t offset)
{
    if (is_cached(fd) && (size_t)offset + len <= sizeof disk.bytes) {
        memset(disk.dirty + offset, true, len);
    }
}

static inline void cache_sync(int fd, bool succeeds)
{
    static unsigned char now[sizeof disk.bytes];
    if (!is_cached(fd)) {
        return;
    }
    ssize_t len = pread(fd, now, sizeof now, 0);
    for (ssize_t i = 0; i < len; i++) {
        if (disk.dirty[i] && succeeds) {
            disk.bytes[i] = now[i];
        }
        disk.dirty[i] = false;
    }
    disk.len = succeeds && len > 0 ? (size_t)len : disk.len;
}

/* From here on the journal has a cache. All of it is on disk. */
static inline void cache_begin(void)
{
    struct file f = file_read(in_state("journal"));
    struct stat st;
    CHECK(stat(in_state("journal"), &st) == 0 && f.len <= sizeof disk.bytes);
    memset(&disk, 0, sizeof disk);
    memcpy(disk.bytes, f.bytes, f.len);
    disk.len = f.len;
    cached = st.st_ino;
    file_drop(&f);
}

/* Takes everything away that is not on disk. */
static inline void cut_power(void)
{
    file_write(in_state("journal"), disk.bytes, disk.len);
    cached = 0;
}

/* ---- the calls ---- */

/* True when this step is the last, which is then done by half. */
static inline bool last_step(void)
{
    return steps_left >= 0 && steps_left-- == 0;
}

static inline void step(void)
{
    if (last_step()) {
        (void)raise(SIGKILL);
    }
}

ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset)
{
    if (last_step()) {
        (void)syscall(SYS_pwrite64, fd, bytes, len / 2, offset);
        (void)raise(SIGKILL);
    }
    cache_write(fd, len, offset);
    return syscall(SYS_pwrite64, fd, bytes, len, offset);
}

int ftruncate(int fd, off_t len)
{
    step();
    if (cut_fails) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_ftruncate, fd, len);
}

int fdatasync(int fd)
{
    step();
    syncs++;
    cache_sync(fd, !sync_fails || sync_fails_late);
    if (sync_fails) {
        errno = sync_error;
        return -1;
    }
    return 0;
}

int fsync(int fd)
{
    struct stat st;
    step();
    bool folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    dir_syncs += folder && renames > 0;
    file_syncs += !folder && renames == 0;
    bool fails = folder && dir_sync_fails;
    name_on_disk = name_on_disk || (folder && name_is_dirty && !fails);
    name_is_dirty = name_is_dirty && !folder;
    if (!folder) {
        cache_sync(fd, true);
    }
    errno = EIO;
    return fails ? -1 : 0;
}

/* Some file systems lock no directories. */
static bool dir_lock_fails;
static unsigned interrupts; /* of the next calls that unlock */

int flock(int fd, int what)
{
    struct stat st;
    if (dir_lock_fails && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        errno = EBADF;
        return -1;
    }
    if (what == LOCK_UN && interrupts > 0) {
        interrupts--;
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, what);
}

int renameat(int old_dir, const char *old, int new_dir, const char *new)
{
    step();
    renames++;
    name_is_dirty = true;
    name_on_disk = false;
    return (int)syscall(SYS_renameat, old_dir, old, new_dir, new);
}

/* ---- using a journal ---- */

/* The records that a handle was shown, as "S:start C:one ". A snapshot starts anew. */
struct reader {
    struct pk_journal j;
    char seen[2000];
    size_t len;
    bool choosy; /* refuses what says "nonsense" */
};

static inline bool visit(void *ctx, enum pk_record kind, struct pk_bytes data)
{
    struct reader *r = ctx;
    if (r->choosy && data.len == 8 && memcmp(data.data, "nonsense", 8) == 0) {
        return false;
    }
    if (kind == PK_RECORD_SNAPSHOT) {
        r->len = 0;
    }
    r->len += (size_t)snprintf(r->seen + r->len, sizeof r->seen - r->len, "%c:%.*s ",
                               (int)kind, (int)data.len, data.data);
    return r->len < sizeof r->seen;
}

static inline void open_reader(struct reader *r)
{
    memset(r, 0, sizeof *r);
    CHECK(pk_journal_open(&r->j, state) == PICKET_OK);
}

static inline void lock(struct reader *r)
{
    CHECK(pk_journal_lock(&r->j, pk_clock_ms() + PATIENCE_MS) == PICKET_OK);
}

static inline enum picket_status read_all(struct reader *r, bool *empty)
{
    lock(r);
    enum picket_status s = pk_journal_read(&r->j, visit, r, empty);
    pk_journal_unlock(&r->j);
    return s;
}

/* What the handle has seen, now that it has looked again. */
static inline const char *look(struct reader *r)
{
    bool empty = false;
    CHECK(read_all(r, &empty) == PICKET_OK);
    return empty ? "empty" : r->seen;
}

static inline enum picket_status append(struct reader *r, const char *text)
{
    bool empty;
    lock(r);
    enum picket_status s = pk_journal_read(&r->j, visit, r, &empty);
    if (s == PICKET_OK) {
        s = pk_journal_append(&r->j, PK_RECORD_COMMANDS, pk_text(text));
    }
    if (s == PICKET_OK) {
        (void)visit(r, PK_RECORD_COMMANDS, pk_text(text));
    }
    pk_journal_unlock(&r->j);
    return s;
}

static inline enum picket_status replace(struct reader *r, const char *snapshot)
{
    lock(r);
    bool empty;
    enum picket_status s = pk_journal_read(&r->j, visit, r, &empty);
    if (s == PICKET_OK) {
        s = pk_journal_replace(&r->j, pk_text(snapshot), pk_text("clock"));
    }
    if (s == PICKET_OK) {
        (void)visit(r, PK_RECORD_SNAPSHOT, pk_text(snapshot));
        (void)visit(r, PK_RECORD_EPOCH, pk_text("clock"));
    }
    pk_journal_unlock(&r->j);
    return s;
}

/* A fresh directory with the journal that most tests begin with. */
#define BEGINNING "S:start B:clock C:one C:the second "
#define LAST "the last"

static struct file note; /* the lock file's content before the last record */

static inline struct file make(bool with_last)
{
    struct reader r;
    dir_fresh();
    open_reader(&r);
    CHECK_STR(look(&r), "empty");
    CHECK(replace(&r, "start") == PICKET_OK);
    CHECK(append(&r, "one") == PICKET_OK);
    CHECK(append(&r, "the second") == PICKET_OK);
    file_drop(&note);
    note = file_read(in_state("lock"));
    CHECK(!with_last || append(&r, LAST) == PICKET_OK);
    pk_journal_close(&r.j);
    return file_read(in_state("journal"));
}

static const size_t last_len = RECORD_HEADER + 1 + sizeof LAST - 1;

/* The files as a writer leaves them that was killed while it wrote the last record, or a
 * power cut: the note says nothing of it. */
static inline void put_unsynced(const void *journal, size_t len)
{
    file_write(in_state("journal"), journal, len);
    file_write(in_state("lock"), note.bytes, note.len);
}

/* The journal as it is now can be opened, has what it should, and goes on. */
static inline void goes_on(const char *has)
{
    struct reader a, b;
    char more[2100];
    open_reader(&a);
    CHECK_STR(look(&a), has);
    CHECK(append(&a, "after") == PICKET_OK);
    CHECK_U64(file_size(in_state("journal")), a.j.end); /* nothing torn is left over */
    open_reader(&b);
    (void)snprintf(more, sizeof more, "%sC:after ", has);
    CHECK_STR(look(&b), more);
    CHECK(append(&b, "and on") == PICKET_OK);
    CHECK(strstr(look(&a), "C:after C:and on ") != NULL);
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
}

/* The journal as it is now is refused, by a sentence that says `why`, and left alone. */
static inline void is_refused(const char *why)
{
    struct reader r;
    bool empty;
    struct file before = file_read(in_state("journal"));
    open_reader(&r);
    for (int i = 0; i < 2; i++) { /* asking again gives no other answer */
        CHECK(read_all(&r, &empty) == PICKET_STORE);
        if (strstr(picket_last_error(), why) == NULL) {
            printf("# %s\n", picket_last_error());
            FAIL("the sentence says why");
        }
    }
    CHECK(append(&r, "x") == PICKET_STORE);
    pk_journal_close(&r.j);
    CHECK(file_is(in_state("journal"), before.bytes, before.len));
    file_drop(&before);
}

#endif
