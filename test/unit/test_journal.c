/* SPDX-License-Identifier: MIT */
/*
 * The journal against everything that may befall a file: torn, overwritten, flipped,
 * foreign, denied, full, and its writer killed between any two steps.
 */
#include <sys/wait.h>

#include "journaled.h"

/* ---- the ordinary ---- */

TEST(journal__two_handles_in_turn)
{
    struct file f = make(false);
    file_drop(&f);
    struct reader r[2];
    char text[16], all[1000] = BEGINNING;
    open_reader(&r[0]);
    open_reader(&r[1]);
    for (int i = 0; i < 40; i++) {
        /* Not one after the other only: some twice in a row, some long unread. */
        struct reader *writer = &r[i % 3 == 0];
        (void)snprintf(text, sizeof text, "n%d", i);
        CHECK(append(writer, text) == PICKET_OK);
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof all - used, "C:%s ", text);
        CHECK_STR(writer->seen, all);
        if (i % 5 == 0) {
            CHECK_STR(look(&r[0]), all);
            CHECK_STR(look(&r[1]), all);
        }
    }
    CHECK_STR(look(&r[0]), all);
    CHECK_STR(look(&r[1]), all);
    pk_journal_close(&r[0].j);
    pk_journal_close(&r[1].j);
}

TEST(journal__the_lock_has_one_owner_and_names_it)
{
    struct reader a, b;
    char pid[32];
    dir_fresh();
    open_reader(&a);
    open_reader(&b);
    lock(&a);
    CHECK(pk_journal_lock(&b.j, pk_clock_ms() + 20) == PICKET_UNREACHABLE);
    (void)snprintf(pid, sizeof pid, "process %d", (int)getpid());
    CHECK(strstr(picket_last_error(), pid) != NULL);
    pk_journal_unlock(&a.j);
    CHECK(pk_journal_lock(&b.j, 0) == PICKET_OK); /* free: no patience is needed */
    pk_journal_close(&b.j);
    lock(&a); /* closing lets go too */
    pk_journal_close(&a.j);
}

/* Cleaners of temporary files take old files one by one, and the lock is never written
 * to. Whoever still has the removed one open must not take turns with itself alone. */
TEST(journal__a_removed_lock_is_no_second_lock)
{
    struct file f = make(false);
    file_drop(&f);
    struct reader a, b;
    open_reader(&a);
    CHECK_STR(look(&a), BEGINNING);
    CHECK(unlink(in_state("lock")) == 0);
    open_reader(&b);
    lock(&a);
    CHECK(pk_journal_lock(&b.j, pk_clock_ms() + 20) == PICKET_UNREACHABLE);
    pk_journal_unlock(&a.j);
    lock(&b);
    CHECK(pk_journal_lock(&a.j, pk_clock_ms() + 20) == PICKET_UNREACHABLE);
    pk_journal_unlock(&b.j);
    CHECK(unlink(in_state("lock")) == 0); /* and with nobody new to make it */
    CHECK(append(&a, "on") == PICKET_OK);
    CHECK_U64(file_size(in_state("lock")), note.len); /* noted where others read it */
    CHECK_STR(look(&b), BEGINNING "C:on ");
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
}

/* ---- torn ---- */

TEST(journal__cut_at_any_byte_of_the_last_record)
{
    struct file f = make(true);
    for (size_t len = f.len - last_len; len < f.len; len++) {
        put_unsynced(f.bytes, len);
        goes_on(BEGINNING);
    }
    put_unsynced(f.bytes, f.len);
    goes_on(BEGINNING "C:" LAST " ");
    file_drop(&f);
}

/* What a file system leaves where a block was never written. */
TEST(journal__zeros_from_any_byte_of_the_last_record)
{
    struct file f = make(true);
    static unsigned char page[8192];
    for (size_t at = f.len - last_len; at < f.len; at++) {
        for (int longer = 0; longer < 2; longer++) {
            memset(page, 0, sizeof page);
            memcpy(page, f.bytes, at);
            put_unsynced(page, longer ? sizeof page : f.len);
            goes_on(BEGINNING);
        }
    }
    file_drop(&f);
}

static unsigned char noise(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (unsigned char)(x >> 32);
}

TEST(journal__garbage_from_any_byte_of_the_last_record)
{
    struct file f = make(true);
    unsigned char page[1024];
    for (size_t at = f.len - last_len; at < f.len; at++) {
        for (int longer = 0; longer < 3; longer++) {
            memcpy(page, f.bytes, f.len);
            for (size_t i = at; i < sizeof page; i++) {
                page[i] = noise();
            }
            page[at] = f.bytes[at] ^ 0x55; /* at least this one differs */
            put_unsynced(page, longer == 0 ? at + 1 : longer == 1 ? f.len : sizeof page);
            goes_on(BEGINNING);
        }
    }
    file_drop(&f);
}

/* A handle that was there before the writer died reads what comes after it. */
TEST(journal__a_torn_tail_does_not_irritate_those_who_are_there)
{
    struct file f = make(true);
    struct reader early, late;
    for (size_t len = f.len - last_len + 1; len < f.len; len++) {
        put_unsynced(f.bytes, f.len - last_len);
        open_reader(&early);
        CHECK_STR(look(&early), BEGINNING);
        file_write(in_state("journal"), f.bytes, len);
        CHECK_STR(look(&early), BEGINNING);
        open_reader(&late);
        CHECK(append(&late, "a") == PICKET_OK);
        CHECK_STR(look(&early), BEGINNING "C:a ");
        pk_journal_close(&early.j);
        pk_journal_close(&late.j);
    }
    file_drop(&f);
}

/* ---- damaged ---- */

TEST(journal__any_flipped_bit_before_the_last_record_is_damage)
{
    struct file f = make(true);
    for (size_t at = FILE_HEADER; at < f.len - last_len; at++) {
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

TEST(journal__any_flipped_bit_of_the_header_is_refused)
{
    struct file f = make(true);
    for (size_t at = 0; at < FILE_HEADER; at++) {
        for (int bit = 0; bit < 8; bit++) {
            f.bytes[at] ^= (unsigned char)(1 << bit);
            file_write(in_state("journal"), f.bytes, f.len);
            is_refused(at < 4 ? "not a Picket journal" : "");
            f.bytes[at] ^= (unsigned char)(1 << bit);
        }
    }
    file_drop(&f);
}

TEST(journal__a_newer_format_is_left_alone)
{
    struct file f = make(true);
    f.bytes[4]++;
    pk_put_u64(f.bytes + 24, pk_digest(PK_DIGEST_START, f.bytes, 24));
    file_write(in_state("journal"), f.bytes, f.len);
    is_refused(
        "/journal has format version 2; this build reads 1; install a newer picket");
    file_drop(&f);
}

/* The first record came into place whole, by a rename: a file that ends within it, or
 * before it, was not torn by us. Taking it for empty would give out old tokens again. */
TEST(journal__without_its_first_record_it_is_damaged)
{
    struct file f = make(true);
    size_t first = RECORD_HEADER + 1 + sizeof "start" - 1;
    CHECK(unlink(in_state("lock")) == 0); /* it would know that more was there */
    for (size_t len = 0; len < FILE_HEADER + first; len++) {
        file_write(in_state("journal"), f.bytes, len);
        is_refused(len < FILE_HEADER ? "not a Picket journal" : "damaged");
    }
    memset(f.bytes + FILE_HEADER, 0, f.len - FILE_HEADER);
    file_write(in_state("journal"), f.bytes, f.len);
    is_refused("damaged");
    file_drop(&f);
}

/* Both would be applied to a machine that is not the one they were written for. */
TEST(journal__a_snapshot_stands_first_and_only_there)
{
    struct file f = make(true);
    size_t first = RECORD_HEADER + 1 + sizeof "start" - 1;
    size_t second = f.len - FILE_HEADER - first;
    memmove(f.bytes + FILE_HEADER, f.bytes + FILE_HEADER + first, second);
    CHECK(unlink(in_state("lock")) == 0);
    file_write(in_state("journal"), f.bytes, FILE_HEADER + second);
    is_refused("");
    file_drop(&f);

    f = make(false);
    unsigned char *twice = malloc(f.len + first);
    CHECK(twice != NULL);
    memcpy(twice, f.bytes, f.len);
    memcpy(twice + f.len, f.bytes + FILE_HEADER, first);
    file_write(in_state("journal"), twice, f.len + first);
    is_refused("");
    free(twice);
    file_drop(&f);
}

TEST(journal__a_record_nobody_understands_is_not_passed_over)
{
    struct file f = make(false);
    struct reader r;
    bool empty;
    file_drop(&f);
    open_reader(&r);
    CHECK(append(&r, "nonsense") == PICKET_OK);
    pk_journal_close(&r.j);
    open_reader(&r);
    r.choosy = true;
    for (int i = 0; i < 2; i++) {
        CHECK(read_all(&r, &empty) == PICKET_STORE);
        CHECK(strstr(picket_last_error(), "unreadable") != NULL);
        CHECK_STR(r.seen, BEGINNING);
    }
    pk_journal_close(&r.j);
}

TEST(journal__one_that_got_shorter_is_refused)
{
    struct file f = make(true);
    struct reader r;
    bool empty;
    open_reader(&r);
    CHECK_STR(look(&r), BEGINNING "C:" LAST " ");
    file_write(in_state("journal"), f.bytes, f.len - 1);
    CHECK(read_all(&r, &empty) == PICKET_STORE);
    CHECK(strstr(picket_last_error(), "cut short") != NULL);
    pk_journal_close(&r.j);
    file_drop(&f);
}

/* ---- not ours, not allowed ---- */

TEST(journal__a_directory_of_others_is_left_alone)
{
    struct pk_journal j;
    dir_fresh();
    CHECK(mkdir(state, 0700) == 0);
    file_write(in_state("thesis.tex"), "important", 9);
    CHECK(pk_journal_open(&j, state) == PICKET_STORE);
    CHECK(strstr(picket_last_error(), "not a Picket state directory") != NULL);
    pk_journal_close(&j);
    CHECK_U64(entries_of(state), 1);
}

/* Some systems keep a directory of that name: it is no journal. */
TEST(journal__a_directory_called_journal_is_none)
{
    struct pk_journal j;
    dir_fresh();
    CHECK(mkdir(state, 0700) == 0);
    CHECK(mkdir(in_state("journal"), 0700) == 0);
    file_write(in_state("syslog"), "important", 9);
    CHECK(pk_journal_open(&j, state) == PICKET_STORE);
    pk_journal_close(&j);
    CHECK_U64(entries_of(state), 2);
}

TEST(journal__a_path_that_is_no_directory)
{
    struct pk_journal j;
    dir_fresh();
    file_write(state, "x", 1);
    CHECK(pk_journal_open(&j, state) == PICKET_STORE);
    pk_journal_close(&j);
    CHECK(pk_journal_open(&j, in_state("below/it")) == PICKET_STORE);
    pk_journal_close(&j);
    CHECK(file_is(state, "x", 1));
}

/* In a child, because root may do everything: the status that opening `path` gives,
 * +100 if the handle could even read. */
static int open_as_nobody(const char *path)
{
    pid_t child = fork();
    if (child == 0) {
        struct reader r = {0};
        bool empty;
        if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
            _exit(99);
        }
        enum picket_status s = pk_journal_open(&r.j, path);
        if (s == PICKET_OK) {
            s = pk_journal_lock(&r.j, 0);
            s = s == PICKET_OK ? pk_journal_read(&r.j, visit, &r, &empty) : s;
            s += 100;
        }
        _exit((int)s);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

TEST(journal__where_we_may_not_write_is_denied)
{
    struct file f = make(false);
    unsigned before = entries_of(state);
    CHECK(chmod(state, 0555) == 0 && chmod(in_state("lock"), 0444) == 0);
    CHECK_U64(open_as_nobody(state), PICKET_DENIED);
    CHECK_U64(open_as_nobody(in_state("new")), PICKET_DENIED);
    CHECK_U64(open_as_nobody(in_state("new/and/deeper")), PICKET_DENIED);
    CHECK(chmod(in_state("lock"), 0666) == 0 && chmod(in_state("journal"), 0444) == 0);
    CHECK_U64(open_as_nobody(state), 100 + PICKET_DENIED);
    CHECK(chmod(state, 0) == 0);
    CHECK_U64(open_as_nobody(state), PICKET_DENIED);
    CHECK(chmod(state, 0700) == 0);
    CHECK_U64(entries_of(state), before);
    CHECK(file_is(in_state("journal"), f.bytes, f.len));
    file_drop(&f);
}

/* ---- disks that are full or fail ---- */

TEST(journal__a_full_disk_changes_nothing)
{
    struct file f = make(false);
    struct reader a, b;
    open_reader(&a);
    open_reader(&b);
    CHECK_STR(look(&a), BEGINNING);
    for (size_t room = 0; room < last_len; room++) {
        limit_files(f.len + room);
        CHECK(append(&a, LAST) == PICKET_STORE);
        CHECK(strstr(picket_last_error(), "nothing was changed") != NULL);
        unlimit_files();
        CHECK(file_is(in_state("journal"), f.bytes, f.len));
        CHECK_STR(look(&b), BEGINNING);
        CHECK_STR(look(&a), BEGINNING);
    }
    limit_files(f.len + last_len);
    CHECK(append(&a, LAST) == PICKET_OK);
    unlimit_files();
    CHECK_STR(look(&b), BEGINNING "C:" LAST " ");
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
    file_drop(&f);
}

TEST(journal__no_room_for_the_first_one)
{
    struct reader r;
    dir_fresh();
    for (size_t room = 0; room < 50; room += 7) {
        open_reader(&r);
        limit_files(room);
        CHECK(replace(&r, "start") == PICKET_STORE);
        unlimit_files();
        CHECK(!file_exists(in_state("journal")));
        CHECK(!file_exists(in_state("journal.new")));
        CHECK_STR(look(&r), "empty");
        pk_journal_close(&r.j);
    }
    open_reader(&r);
    CHECK(replace(&r, "start") == PICKET_OK);
    pk_journal_close(&r.j);
    goes_on("S:start B:clock ");
}

TEST(journal__a_failing_disk_is_not_believed)
{
    struct file f = make(false);
    struct reader a, b;
    open_reader(&a);
    open_reader(&b);
    CHECK_STR(look(&b), BEGINNING);
    sync_fails = true;
    enum picket_status s = append(&a, LAST);
    sync_fails = false;
    CHECK(s == PICKET_UNKNOWN);
    CHECK(file_is(in_state("journal"), f.bytes, f.len));
    CHECK(append(&b, LAST) == PICKET_OK);
    CHECK_STR(look(&a), BEGINNING "C:" LAST " ");
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
    file_drop(&f);
}

/* ---- compaction ---- */

enum { HANDLES = 4, COMMANDS = 12000 };

/* What the machine is to the journal: something that each record changes. */
struct counter {
    struct pk_journal j;
    uint64_t count, sum;
    unsigned restarts;
};

static bool count_visit(void *ctx, enum pk_record kind, struct pk_bytes data)
{
    struct counter *c = ctx;
    if (kind == PK_RECORD_SNAPSHOT) {
        memcpy(&c->count, data.data, sizeof c->count);
        memcpy(&c->sum, data.data + sizeof c->count, sizeof c->sum);
        c->restarts++;
    } else if (kind == PK_RECORD_COMMANDS) {
        c->count++;
        for (uint32_t i = 0; i < data.len; i++) {
            c->sum = c->sum * 31 + (unsigned char)data.data[i];
        }
    }
    return true;
}

static void count_read(struct counter *c)
{
    bool empty;
    CHECK(pk_journal_lock(&c->j, pk_clock_ms() + PATIENCE_MS) == PICKET_OK);
    CHECK(pk_journal_read(&c->j, count_visit, c, &empty) == PICKET_OK);
}

static void count_replace(struct counter *c)
{
    uint64_t snapshot[2] = {c->count, c->sum};
    CHECK(pk_journal_replace(&c->j, pk_bytes(snapshot, sizeof snapshot),
                             pk_text("clock")) == PICKET_OK);
}

static void count_append(struct counter *c, const char *text, unsigned *replaced)
{
    count_read(c);
    CHECK(pk_journal_append(&c->j, PK_RECORD_COMMANDS, pk_text(text)) == PICKET_OK);
    (void)count_visit(c, PK_RECORD_COMMANDS, pk_text(text));
    if (pk_journal_bloated(&c->j)) {
        count_replace(c);
        ++*replaced;
    }
    pk_journal_unlock(&c->j);
}

TEST(journal__stays_small_and_everybody_follows)
{
    static struct counter c[HANDLES];
    unsigned replaced = 0;
    size_t most = 0;
    char text[80];
    dir_fresh();
    memset(c, 0, sizeof c);
    for (int i = 0; i < HANDLES; i++) {
        CHECK(pk_journal_open(&c[i].j, state) == PICKET_OK);
    }
    count_read(&c[0]);
    count_replace(&c[0]);
    pk_journal_unlock(&c[0].j);
    for (int n = 0; n < COMMANDS; n++) {
        (void)snprintf(text, sizeof text, "command %d, which is about so long, %u", n,
                       noise());
        /* The last handle only looks now and then, so that it misses whole journals. */
        count_append(&c[n % (HANDLES - 1)], text, &replaced);
        size_t size = file_size(in_state("journal"));
        most = size > most ? size : most;
    }
    CHECK(replaced >= 2);
    CHECK(most < 300000);
    for (int i = 0; i < HANDLES; i++) {
        count_read(&c[i]);
        pk_journal_unlock(&c[i].j);
        CHECK_U64(c[i].count, COMMANDS);
        CHECK_U64(c[i].sum, c[0].sum);
        pk_journal_close(&c[i].j);
    }
    CHECK_U64(c[HANDLES - 1].restarts, 1);
    CHECK_U64(entries_of(state), 2);
}

TEST(journal__no_room_to_compact_loses_nothing)
{
    struct file f = make(true);
    struct reader a, b;
    static char large[600];
    memset(large, 'x', sizeof large - 1);
    open_reader(&a);
    open_reader(&b);
    CHECK_STR(look(&b), BEGINNING "C:" LAST " ");
    for (size_t room = 0; room < sizeof large; room += 37) {
        limit_files(room);
        CHECK(replace(&a, large) == PICKET_STORE);
        unlimit_files();
        CHECK(file_is(in_state("journal"), f.bytes, f.len));
        CHECK(!file_exists(in_state("journal.new")));
        CHECK_STR(look(&a), BEGINNING "C:" LAST " ");
        CHECK_STR(look(&b), BEGINNING "C:" LAST " ");
    }
    CHECK(append(&a, "on") == PICKET_OK);
    CHECK_STR(look(&b), BEGINNING "C:" LAST " C:on ");
    CHECK(replace(&b, "all of it") == PICKET_OK);
    CHECK_STR(look(&a), "S:all of it B:clock ");
    pk_journal_close(&a.j);
    pk_journal_close(&b.j);
    file_drop(&f);
}

TEST(journal__what_a_crashed_compaction_left_is_ignored)
{
    struct file f = make(true);
    struct reader r;
    /* The worst that can be left: longer, and made of good records. */
    size_t len = FILE_HEADER + 8 * (f.len - FILE_HEADER);
    unsigned char *left = malloc(len);
    CHECK(left != NULL);
    memcpy(left, f.bytes, FILE_HEADER);
    for (size_t at = FILE_HEADER; at < len; at += f.len - FILE_HEADER) {
        memcpy(left + at, f.bytes + FILE_HEADER, f.len - FILE_HEADER);
    }
    for (size_t part = 0; part <= len; part += len / 16) {
        put_unsynced(f.bytes, f.len);
        file_write(in_state("journal.new"), left, part);
        open_reader(&r);
        CHECK_STR(look(&r), BEGINNING "C:" LAST " ");
        CHECK(replace(&r, "all of it") == PICKET_OK);
        pk_journal_close(&r.j);
        CHECK(!file_exists(in_state("journal.new")));
        goes_on("S:all of it B:clock ");
    }
    free(left);
    file_drop(&f);
}

/* sudo must not lock out the owner, nor widen or narrow who shares the directory. */
TEST(journal__a_compacted_one_belongs_to_the_same_people)
{
    struct file f = make(true);
    struct stat st;
    struct reader r;
    bool root = getuid() == 0;
    file_drop(&f);
    CHECK(chmod(in_state("journal"), 0660) == 0);
    CHECK(!root || chown(in_state("journal"), 65534, 65534) == 0);
    open_reader(&r);
    CHECK(replace(&r, "all of it") == PICKET_OK);
    pk_journal_close(&r.j);
    CHECK(stat(in_state("journal"), &st) == 0);
    CHECK_U64(st.st_mode & 07777, 0660);
    CHECK(!root || (st.st_uid == 65534 && st.st_gid == 65534));
}

/* ---- killed ---- */

enum deed { CREATE, APPEND, APPEND_TO_TORN, COMPACT };

/* Does it in a child that is killed at its n-th step. True: it was not, all is done. */
static bool do_killed(enum deed deed, int n)
{
    pid_t child = fork();
    if (child == 0) {
        struct reader r = {0};
        bool empty;
        if (pk_journal_open(&r.j, state) != PICKET_OK || pk_journal_lock(&r.j, 0) != 0 ||
            pk_journal_read(&r.j, visit, &r, &empty) != PICKET_OK) {
            _exit(1);
        }
        steps_left = n;
        enum picket_status s =
            deed == CREATE || deed == COMPACT
                ? pk_journal_replace(&r.j, pk_text("new"), pk_text("clock"))
                : pk_journal_append(&r.j, PK_RECORD_COMMANDS, pk_text(LAST));
        _exit(s == PICKET_OK ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    return WIFEXITED(status);
}

/* Before or after the deed, never between; and life goes on. Returns which. */
static bool done_or_not(const char *before, const char *after)
{
    struct reader r;
    open_reader(&r);
    bool done = strcmp(look(&r), after) == 0;
    bool empty = strcmp(look(&r), "empty") == 0;
    CHECK_STR(look(&r), done ? after : before);
    CHECK(!empty || replace(&r, "start") == PICKET_OK);
    pk_journal_close(&r.j);
    goes_on(done ? after : empty ? "S:start B:clock " : before);
    return done;
}

static void kill_at_every_step(enum deed deed, const char *before, const char *after)
{
    bool whole = false;
    unsigned undone = 0, done = 0;
    for (int n = 0; !whole; n++) {
        if (deed == CREATE) {
            dir_fresh();
        } else {
            struct file f = make(deed == APPEND_TO_TORN);
            if (deed == APPEND_TO_TORN) {
                put_unsynced(f.bytes, f.len - 3);
            }
            file_drop(&f);
        }
        whole = do_killed(deed, n);
        bool d = done_or_not(before, after);
        CHECK(d || !whole);
        undone += !d;
        done += d && !whole;
        CHECK(n < 100);
    }
    /* Else the steps aren't where we think they are. */
    CHECK(undone >= 1 && done >= 1);
}

TEST(journal__killed_at_any_step_of_an_append)
{
    kill_at_every_step(APPEND, BEGINNING, BEGINNING "C:" LAST " ");
}

TEST(journal__killed_at_any_step_of_an_append_to_a_torn_tail)
{
    kill_at_every_step(APPEND_TO_TORN, BEGINNING, BEGINNING "C:" LAST " ");
}

TEST(journal__killed_at_any_step_of_a_compaction)
{
    kill_at_every_step(COMPACT, BEGINNING, "S:new B:clock ");
}

TEST(journal__killed_at_any_step_of_its_making)
{
    kill_at_every_step(CREATE, "empty", "S:new B:clock ");
}

/* A record, and a new journal before it gets its name, and its name. */
TEST(journal__is_on_disk_before_anybody_is_told)
{
    struct file f = make(false);
    struct reader r;
    file_drop(&f);
    open_reader(&r);
    syncs = file_syncs = dir_syncs = renames = 0;
    CHECK(append(&r, LAST) == PICKET_OK);
    CHECK_U64(syncs, 1);
    CHECK(replace(&r, "all of it") == PICKET_OK);
    CHECK_U64(syncs + file_syncs, 2);
    CHECK_U64(renames, 1);
    CHECK_U64(dir_syncs, 1);
    pk_journal_close(&r.j);
}

/* A writer that is killed between write and sync leaves a record that everybody can
 * read and a power cut can take away. Whoever reads it acts on it (it may grant them a
 * lock), so it must be on disk first; records whose writer lived cost a reader nothing.
 */
TEST(journal__nobody_acts_on_what_is_not_on_disk)
{
    struct file f = make(false);
    struct reader r, w;
    file_drop(&f);
    open_reader(&r);
    open_reader(&w);
    CHECK_STR(look(&r), BEGINNING);
    CHECK(append(&w, "fine") == PICKET_OK);
    syncs = 0;
    CHECK_STR(look(&r), BEGINNING "C:fine ");
    CHECK_U64(syncs, 0);
    CHECK(!do_killed(APPEND, 1)); /* step 0 is the write, 1 the sync */
    CHECK_STR(look(&r), BEGINNING "C:fine C:" LAST " ");
    CHECK_U64(syncs, 1);
    CHECK_STR(look(&w), BEGINNING "C:fine C:" LAST " ");
    CHECK_U64(syncs, 1); /* once is enough for all */
    CHECK(!do_killed(APPEND, 1));
    sync_fails = true;
    bool empty;
    enum picket_status s = read_all(&r, &empty);
    sync_fails = false;
    CHECK(s == PICKET_STORE || s == PICKET_UNKNOWN);
    CHECK_STR(r.seen, BEGINNING "C:fine C:" LAST " ");
    CHECK_STR(look(&r), BEGINNING "C:fine C:" LAST " C:" LAST " ");
    pk_journal_close(&r.j);
    pk_journal_close(&w.j);
}
