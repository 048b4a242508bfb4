/* SPDX-License-Identifier: MIT */
/*
 * What is known to be on disk: the note in the lock file against journals that lost
 * something, disks whose syncs fail, names that may not last, and a lock file that is
 * removed.
 */
#include "journaled.h"

/* ---- less than the note says ---- */

TEST(note__a_journal_cut_after_it_was_acknowledged_is_refused)
{
    struct file f = make(true);
    char sizes[100];
    for (size_t len = FILE_HEADER; len < f.len; len++) {
        file_write(in_state("journal"), f.bytes, len);
        (void)snprintf(sizes, sizeof sizes,
                       "%zu bytes were acknowledged, %zu are there: put back", f.len,
                       len);
        is_refused(sizes);
    }
    file_write(in_state("journal"), f.bytes, f.len);
    goes_on(BEGINNING "C:" LAST " ");
    file_drop(&f);
}

/* Not a torn tail: the note says that it was whole. */
TEST(note__a_flipped_bit_of_an_acknowledged_record_is_damage)
{
    struct file f = make(true);
    for (size_t at = f.len - last_len; at < f.len; at++) {
        for (int bit = 0; bit < 8; bit++) {
            f.bytes[at] ^= (unsigned char)(1 << bit);
            file_write(in_state("journal"), f.bytes, f.len);
            is_refused("damaged");
            f.bytes[at] ^= (unsigned char)(1 << bit);
        }
    }
    file_write(in_state("journal"), f.bytes, f.len);
    goes_on(BEGINNING "C:" LAST " ");
    file_drop(&f);
}

TEST(note__a_journal_that_is_gone_is_not_begun_anew)
{
    struct file f = make(true);
    struct reader r;
    bool empty;
    CHECK(unlink(in_state("journal")) == 0);
    open_reader(&r);
    for (int i = 0; i < 2; i++) {
        CHECK(read_all(&r, &empty) == PICKET_STORE);
        CHECK(strstr(picket_last_error(), "journal is gone") != NULL);
    }
    pk_journal_close(&r.j);
    CHECK(!file_exists(in_state("journal")));
    file_write(in_state("journal"), f.bytes, f.len); /* another inode: copied back */
    goes_on(BEGINNING "C:" LAST " ");
    file_drop(&f);
}

/* By the note, and without it by a process that has seen a later one. */
TEST(note__a_journal_of_another_time_or_store_is_refused)
{
    struct file other = make(true);
    struct reader r;
    bool empty;
    struct file older = make(true); /* a new directory, a new store */
    open_reader(&r);
    CHECK(replace(&r, "all of it") == PICKET_OK);
    struct file good = file_read(in_state("journal"));
    const struct file *wrong[] = {&older, &other};
    for (int i = 0; i < 2; i++) {
        file_write(in_state("journal"), wrong[i]->bytes, wrong[i]->len);
        is_refused("not the one that was used last");
    }
    CHECK(unlink(in_state("lock")) == 0 && unlink(in_state("journal")) == 0);
    CHECK(read_all(&r, &empty) == PICKET_STORE);
    CHECK(strstr(picket_last_error(), "gone") != NULL);
    for (int i = 0; i < 2; i++) {
        file_write(in_state("journal"), wrong[i]->bytes, wrong[i]->len);
        CHECK(read_all(&r, &empty) == PICKET_STORE);
        CHECK(strstr(picket_last_error(), "not the one") != NULL);
        CHECK(unlink(in_state("journal")) == 0);
    }
    file_write(in_state("journal"), good.bytes, good.len - 1);
    CHECK(read_all(&r, &empty) == PICKET_STORE);
    CHECK(strstr(picket_last_error(), "cut short") != NULL);
    file_write(in_state("journal"), good.bytes, good.len);
    CHECK_STR(look(&r), "S:all of it B:clock ");
    pk_journal_close(&r.j);
    goes_on("S:all of it B:clock ");
    file_drop(&other);
    file_drop(&older);
    file_drop(&good);
}

/* ---- more than the note says ---- */

/* The note is not synced: a power cut leaves an older one, or none. */
TEST(note__an_older_note_is_no_reason_to_refuse)
{
    struct file f = make(true);
    struct reader r;
    put_unsynced(f.bytes, f.len);
    goes_on(BEGINNING "C:" LAST " ");
    open_reader(&r);
    CHECK(replace(&r, "all of it") == PICKET_OK);
    pk_journal_close(&r.j);
    file_write(in_state("lock"), note.bytes, note.len); /* of the generation before */
    goes_on("S:all of it B:clock ");
    CHECK(unlink(in_state("lock")) == 0);
    goes_on("S:all of it B:clock C:after C:and on ");
    file_drop(&f);
}

TEST(note__a_damaged_note_loses_nothing)
{
    struct file f = make(true);
    struct file whole = file_read(in_state("lock"));
    struct reader r;
    CHECK_U64(whole.len, 32);
    for (size_t at = 0; at < whole.len * 8 + whole.len; at++) {
        unsigned char bad[32];
        bool flip = at < whole.len * 8;
        memcpy(bad, whole.bytes, sizeof bad);
        bad[flip ? at / 8 : 0] ^= flip ? (unsigned char)(1 << at % 8) : 0;
        file_write(in_state("journal"), f.bytes, f.len);
        file_write(in_state("lock"), bad, flip ? sizeof bad : at - whole.len * 8);
        open_reader(&r);
        CHECK_STR(look(&r), BEGINNING "C:" LAST " ");
        CHECK(file_is(in_state("journal"), f.bytes, f.len));
        pk_journal_close(&r.j);
        if (at % 16 == 0) {
            goes_on(BEGINNING "C:" LAST " ");
            file_write(in_state("lock"), whole.bytes, whole.len);
        }
    }
    memset(whole.bytes, 0, whole.len);
    file_write(in_state("lock"), whole.bytes, whole.len);
    goes_on(BEGINNING "C:" LAST " ");
    file_drop(&whole);
    file_drop(&f);
}

/* ---- syncs that fail ---- */

/* A record that its writer could not sync, nor cut off: it was killed, or the disk fails
 * all the time. The next sync succeeds without having written it. */
static void leave_unsynced(struct reader *writer)
{
    sync_fails = cut_fails = true;
    enum picket_status s = append(writer, LAST);
    sync_fails = cut_fails = false;
    CHECK(s == PICKET_UNKNOWN);
}

TEST(sync__that_is_lucky_after_a_failure_is_not_believed)
{
    struct file f = make(false);
    struct reader w, r, late;
    bool empty;
    file_drop(&f);
    open_reader(&w);
    open_reader(&r);
    CHECK_STR(look(&r), BEGINNING);
    cache_begin();
    leave_unsynced(&w);
    sync_fails = true; /* a reader's own, too */
    enum picket_status s = read_all(&r, &empty);
    sync_fails = false;
    CHECK(s == PICKET_STORE);
    CHECK_STR(r.seen, BEGINNING);
    open_reader(&late);
    CHECK_STR(look(&late), BEGINNING "C:" LAST " ");
    cut_power();
    goes_on(BEGINNING "C:" LAST " "); /* what was seen is there for ever */
    pk_journal_close(&w.j);
    pk_journal_close(&r.j);
    pk_journal_close(&late.j);
}

TEST(sync__that_failed_is_made_good_by_the_next_record)
{
    struct file f = make(false);
    struct reader w;
    file_drop(&f);
    open_reader(&w);
    CHECK_STR(look(&w), BEGINNING);
    cache_begin();
    sync_fails = true;
    enum picket_status s = append(&w, "a record that is longer than the next one");
    sync_fails = false;
    CHECK(s == PICKET_UNKNOWN);
    CHECK(append(&w, LAST) == PICKET_OK);
    cut_power();
    pk_journal_close(&w.j);
    goes_on(BEGINNING "C:" LAST " ");
}

/* Told at once, and as not done; that is true only if the cut is on disk, too. */
TEST(sync__on_a_full_disk_is_a_refusal)
{
    static const int errors[] = {ENOSPC, EDQUOT};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        struct file f = make(false);
        struct reader a, b;
        open_reader(&a);
        open_reader(&b);
        CHECK_STR(look(&b), BEGINNING);
        cache_begin();
        sync_fails = sync_fails_late = true;
        sync_error = errors[i];
        enum picket_status s = append(&a, LAST);
        sync_fails_late = false;
        CHECK(s == PICKET_STORE);
        CHECK(strstr(picket_last_error(), strerror(errors[i])) != NULL);
        CHECK(strstr(picket_last_error(), "nothing was changed") != NULL);
        CHECK(file_is(in_state("journal"), f.bytes, f.len));
        CHECK(disk.len == f.len && memcmp(disk.bytes, f.bytes, f.len) == 0);
        cut_fails = true;
        s = append(&a, LAST);
        sync_fails = cut_fails = false;
        sync_error = EIO;
        CHECK(s == PICKET_UNKNOWN);
        file_write(in_state("journal"), f.bytes, f.len);
        CHECK(append(&a, LAST) == PICKET_OK); /* room again */
        CHECK_STR(look(&b), BEGINNING "C:" LAST " ");
        cached = 0;
        pk_journal_close(&a.j);
        pk_journal_close(&b.j);
        file_drop(&f);
    }
}

/* ---- names that may not last ---- */

/* After a power cut the old journal may be there again. It has everything that was
 * acknowledged before the compaction, and must have everything after it. */
TEST(name__nothing_is_appended_before_it_is_on_disk)
{
    struct file f = make(true);
    struct reader a, b;
    open_reader(&a);
    open_reader(&b);
    dir_sync_fails = true;
    enum picket_status s = replace(&a, "all of it");
    CHECK(s == PICKET_STORE);
    CHECK(strstr(picket_last_error(), strerror(EIO)) != NULL);
    CHECK_STR(look(&a), "S:all of it B:clock "); /* looking is safe */
    CHECK_STR(look(&b), "S:all of it B:clock ");
    CHECK(append(&a, "x") == PICKET_STORE && append(&b, "x") == PICKET_STORE);
    CHECK(!name_on_disk);
    dir_sync_fails = false;
    CHECK(append(&b, "on") == PICKET_OK);
    CHECK(name_on_disk);
    unsigned before = renames;
    CHECK(append(&a, "and on") == PICKET_OK);
    CHECK_U64(renames, before); /* once is enough for all */
    CHECK_STR(look(&b), "S:all of it B:clock C:on C:and on ");
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
    goes_on("S:all of it B:clock C:on C:and on ");
    file_drop(&f);
}

TEST(name__of_the_first_journal_is_on_disk_before_anything_else)
{
    struct reader r;
    dir_fresh();
    open_reader(&r);
    dir_sync_fails = true;
    enum picket_status s = replace(&r, "start");
    CHECK(s == PICKET_STORE);
    CHECK_STR(look(&r), "S:start B:clock ");
    CHECK(append(&r, "x") == PICKET_STORE);
    dir_sync_fails = false;
    CHECK(append(&r, "one") == PICKET_OK);
    CHECK(name_on_disk);
    pk_journal_close(&r.j);
    goes_on("S:start B:clock C:one ");
}

/* ---- a lock file that is removed ---- */

TEST(turn__lets_nobody_in_when_its_lock_file_is_removed)
{
    struct file f = make(false);
    struct reader a, b;
    char pid[32];
    bool empty;
    file_drop(&f);
    open_reader(&a);
    lock(&a);
    CHECK(pk_journal_read(&a.j, visit, &a, &empty) == PICKET_OK);
    CHECK(unlink(in_state("lock")) == 0);
    open_reader(&b); /* which makes a new one */
    CHECK(pk_journal_lock(&b.j, pk_clock_ms() + 20) == PICKET_UNREACHABLE);
    (void)snprintf(pid, sizeof pid, "process %d", (int)getpid());
    CHECK(strstr(picket_last_error(), pid) != NULL);
    CHECK(pk_journal_append(&a.j, PK_RECORD_COMMANDS, pk_text("in its turn")) ==
          PICKET_OK);
    pk_journal_unlock(&a.j);
    CHECK(append(&b, "after it") == PICKET_OK);
    CHECK_STR(b.seen, BEGINNING "C:in its turn C:after it ");
    lock(&b);
    CHECK(pk_journal_lock(&a.j, pk_clock_ms() + 20) == PICKET_UNREACHABLE);
    pk_journal_unlock(&b.j);
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
    goes_on(BEGINNING "C:in its turn C:after it ");
}

/* On NFS a directory can't be locked: the lock file has to do. */
TEST(turn__needs_no_directory_that_can_be_locked)
{
    struct file f = make(false);
    struct reader a, b;
    file_drop(&f);
    dir_lock_fails = true;
    open_reader(&a);
    open_reader(&b);
    lock(&a);
    enum picket_status s = pk_journal_lock(&b.j, pk_clock_ms() + 20);
    pk_journal_unlock(&a.j);
    enum picket_status appended = append(&b, LAST);
    dir_lock_fails = false;
    CHECK(s == PICKET_UNREACHABLE);
    CHECK(appended == PICKET_OK);
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
    goes_on(BEGINNING "C:" LAST " ");
}

TEST(turn__ends_although_signals_interrupt_it)
{
    struct file f = make(false);
    struct reader a, b;
    file_drop(&f);
    open_reader(&a);
    open_reader(&b);
    for (unsigned n = 1; n < 4; n++) {
        interrupts = n;
        CHECK_STR(look(&a), BEGINNING);
        CHECK(pk_journal_lock(&b.j, pk_clock_ms()) == PICKET_OK);
        pk_journal_unlock(&b.j);
    }
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
}
