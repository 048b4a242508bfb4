/* SPDX-License-Identifier: MIT */
/*
 * For tests of the journal: handles that keep what they were shown, and writers that
 * can be killed before any step. The calls that change files are ours here, so that a
 * process can be killed at each of them and a disk fails when we say so.
 */
#ifndef PICKET_TEST_JOURNALED_H
#define PICKET_TEST_JOURNALED_H

#include <errno.h>
#include <sys/syscall.h>

#include "drivers/journal.h"
#include "host/clock.h"
#include "statedir.h"

enum { FILE_HEADER = 8, RECORD_HEADER = 16, PATIENCE_MS = 120000 };

/* ---- steps ---- */

static int steps_left = -1; /* until SIGKILL; -1: never */
static bool sync_fails;
static unsigned syncs, file_syncs, dir_syncs, renames; /* fdatasync, and fsync */

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
    return syscall(SYS_pwrite64, fd, bytes, len, offset);
}

int ftruncate(int fd, off_t len)
{
    step();
    return (int)syscall(SYS_ftruncate, fd, len);
}

int fdatasync(int fd)
{
    step();
    syncs++;
    if (sync_fails) {
        errno = EIO;
        return -1;
    }
    (void)fd; /* no power is lost here: that it was asked for is what counts */
    return 0;
}

int fsync(int fd)
{
    struct stat st;
    step();
    bool folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    dir_syncs += folder && renames > 0;
    file_syncs += !folder && renames == 0;
    return 0;
}

int renameat(int old_dir, const char *old, int new_dir, const char *new)
{
    step();
    renames++;
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

static inline struct file make(bool with_last)
{
    struct reader r;
    dir_fresh();
    open_reader(&r);
    CHECK_STR(look(&r), "empty");
    CHECK(replace(&r, "start") == PICKET_OK);
    CHECK(append(&r, "one") == PICKET_OK);
    CHECK(append(&r, "the second") == PICKET_OK);
    CHECK(!with_last || append(&r, LAST) == PICKET_OK);
    pk_journal_close(&r.j);
    return file_read(in_state("journal"));
}

static const size_t last_len = RECORD_HEADER + 1 + sizeof LAST - 1;

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
