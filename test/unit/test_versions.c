/* SPDX-License-Identifier: MIT */
/*
 * Formats and their versions: what was recorded in test/fixtures is read and written
 * again byte for byte, and each of it is refused when it needs one version more, in one
 * sentence, with every file left as it was.
 */
#include <inttypes.h>

#include "core/door.h"
#include "core/version.h"
#include "core/wire.h"
#include "drivers/journal.h"
#include "fixtures/fixtures.h"
#include "host/clock.h"
#include "host/version.h"
#include "raft/backup.h"
#include "raft/crc32c.h"
#include "raft/entry.h"
#include "raft/identity.h"
#include "raft/recover.h"
#include "raft/replica.h"
#include "statedir.h"

#define V1 PICKET_TEST_SOURCE "/fixtures/v1"
enum { NEXT = PK_VERSION_NEWEST + 1, META_SLOT = 8192 };

/* A copy of a recorded folder, as `state`. */
static void copy_folder(const char *name)
{
    char command[9000];
    dir_fresh();
    (void)snprintf(command, sizeof command, "cp -r '%s/%s' '%s' && chmod -R u+w '%s'", V1,
                   name, state, state);
    CHECK(system(command) == 0);
}

/* All files of `state` as one number, but for the lock, which has the process id. */
static uint64_t digest_state(void)
{
    char command[9000], text[64] = "";
    (void)snprintf(command, sizeof command,
                   "cd '%s' && find . -type f ! -name lock | LC_ALL=C sort | xargs cksum "
                   "| cksum",
                   state);
    FILE *f = popen(command, "r");
    CHECK(f != NULL && fgets(text, sizeof text, f) != NULL);
    (void)pclose(f);
    return strtoull(text, NULL, 10);
}

static struct file fixture(const char *name)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/%s", V1, name);
    return file_read(path);
}

static void seal_digest(struct file *f)
{
    pk_put_u64(f->bytes + f->len - 8, pk_digest(PK_DIGEST_START, f->bytes, f->len - 8));
}

/* ---- snapshots and backups ---- */

TEST(versions__a_snapshot_is_read_and_written_the_same)
{
    struct file f = fixture("snapshot");
    struct pk_machine *m = pk_machine_restore(f.bytes, f.len);
    struct pk_machine *again = fixture_machine();
    unsigned char *bytes = NULL;
    CHECK(m != NULL);
    CHECK_U64(pk_machine_version(m), 1);
    CHECK(pk_machine_version_is_held(m));
    CHECK_U64(pk_machine_digest(m), pk_machine_digest(again));
    CHECK_U64(pk_machine_snapshot(m, &bytes), f.len);
    CHECK(memcmp(bytes, f.bytes, f.len) == 0);
    pk_door_resize(bytes, 0);
    pk_machine_free(m);
    pk_machine_free(again);
    file_drop(&f);
}

TEST(versions__a_newer_snapshot_is_refused)
{
    struct file f = fixture("snapshot");
    f.bytes[4] = NEXT;
    CHECK(pk_machine_restore(f.bytes, f.len) == NULL);
    CHECK_U64(pk_snapshot_version(f.bytes, f.len), NEXT);
    f.bytes[4] = PK_VERSION_OLDEST - 1;
    CHECK(pk_machine_restore(f.bytes, f.len) == NULL);
    f.bytes[0] = 'Q';
    CHECK_U64(pk_snapshot_version(f.bytes, f.len), 0);
    CHECK_U64(pk_snapshot_version((const unsigned char *)"PKST", 4), 0);
    file_drop(&f);
}

static const char *backup_wrong(const struct file *f)
{
    struct pk_backup_reader *r = pk_backup_reader_new();
    pk_backup_feed(r, f->bytes, f->len);
    const char *why = pk_backup_wrong(r);
    pk_machine_free(pk_backup_reader_end(r));
    return why;
}

TEST(versions__a_backup_is_read)
{
    struct file f = fixture("backup");
    CHECK_STR(backup_wrong(&f), NULL);
    f.bytes[4] = NEXT;
    seal_digest(&f);
    CHECK_STR(backup_wrong(&f), pk_version_needed("the backup", NEXT));
    file_drop(&f);
}

TEST(versions__the_sentence_says_what_to_install)
{
    char want[200];
    (void)snprintf(want, sizeof want,
                   "this needs cluster version %d; this build runs %d to %d; install a "
                   "newer picket",
                   NEXT, PK_VERSION_OLDEST, PK_VERSION_NEWEST);
    CHECK_STR(pk_version_needed("this", NEXT), want);
    CHECK_STR(pk_format_needed("that", 2, 1),
              "that has format version 2; this build reads 1; install a newer picket");
    CHECK_STR(pk_version_range(1, 1), "cluster version 1");
    CHECK_STR(pk_version_range(1, 2), "cluster versions 1 to 2");
}

/* ---- a node's directory ---- */

/* What is left of a backup that must be written. */
static bool is_next(void *ctx, const void *bytes, size_t len)
{
    struct file *left = ctx;
    bool same = len <= left->len && memcmp(left->bytes, bytes, len) == 0;
    if (same) {
        left->bytes += len;
        left->len -= len;
    }
    return same;
}

/* Recovers `state`, which must give this backup. */
static void recovers(const struct file *backup)
{
    struct pk_recovered out;
    struct file left = *backup;
    char why[1024] = "";
    bool done = pk_recover(state, is_next, &left, &out, why, sizeof why);
    CHECK_STR(why, "");
    CHECK(done);
    CHECK_U64(left.len, 0);
    CHECK_U64(out.index, FIXTURE_COMMANDS + 1);
}

static void is_refused(const char *want)
{
    struct pk_recovered out;
    struct file nothing = {0};
    char why[1024] = "";
    uint64_t before = digest_state();
    CHECK(!pk_recover(state, is_next, &nothing, &out, why, sizeof why));
    CHECK_STR(why, want);
    CHECK_U64(digest_state(), before);
}

TEST(versions__a_directory_is_read)
{
    struct file backup = fixture("backup");
    copy_folder("node");
    recovers(&backup);
    file_drop(&backup);
}

TEST(versions__a_directory_is_written_the_same)
{
    char command[9000];
    dir_fresh();
    fixture_node(state, 0, 0);
    (void)snprintf(command, sizeof command, "diff -r '%s/node' '%s'", V1, state);
    CHECK(system(command) == 0);
}

TEST(versions__an_entry_of_a_newer_version_is_refused)
{
    char what[64];
    dir_fresh();
    fixture_node(state, NEXT, 0);
    (void)snprintf(what, sizeof what, "entry %d of the log", FIXTURE_COMMANDS + 1);
    is_refused(pk_version_needed(what, NEXT));
    /* By the start already, before anything is run or written. */
    uint64_t before = digest_state();
    CHECK_STR(fixture_load(state), pk_version_needed(what, NEXT));
    CHECK_U64(digest_state(), before);
}

/* Not: an older slot is taken in its place, or it is called damaged. */
TEST(versions__a_state_of_a_newer_version_is_refused)
{
    dir_fresh();
    fixture_node(state, 0, NEXT);
    is_refused(pk_version_needed("raft/snapshot-0", NEXT));
}

TEST(versions__a_newer_log_format_is_refused)
{
    copy_folder("node");
    struct file f = file_read(in_state("raft/meta"));
    for (unsigned char *slot = f.bytes; slot < f.bytes + f.len; slot += META_SLOT) {
        slot[7]++;
        uint32_t sum = pk_crc32c(0, slot, META_SLOT - 4);
        for (unsigned i = 0; i < 4; i++) {
            slot[META_SLOT - 4 + i] = (unsigned char)(sum >> 8 * i);
        }
    }
    file_write(in_state("raft/meta"), f.bytes, f.len);
    is_refused("raft/meta has format version 2; this build reads 1; install a newer "
               "picket");
    file_drop(&f);
}

TEST(versions__a_newer_identity_is_refused)
{
    char want[4300];
    copy_folder("node");
    struct file f = file_read(in_state("identity"));
    f.bytes[4]++;
    seal_digest(&f);
    file_write(in_state("identity"), f.bytes, f.len);
    (void)snprintf(
        want, sizeof want,
        "%s/identity has format version 2; this build reads 1; install a newer "
        "picket",
        state);
    is_refused(want);
    file_drop(&f);
}

/* ---- an embedded store ---- */

static struct pk_machine *replayed;

static bool replay(void *ctx, enum pk_record kind, struct pk_bytes data)
{
    (void)ctx;
    const unsigned char *at = (const unsigned char *)data.data;
    struct pk_command c;
    struct pk_effects effects = {0};
    if (kind == PK_RECORD_SNAPSHOT) {
        replayed = pk_machine_restore(at, data.len);
        return replayed != NULL;
    }
    if (kind == PK_RECORD_COMMANDS) {
        CHECK_U64(pk_command_decode(at, data.len, &c), data.len);
        pk_machine_step(replayed, &c, &effects);
        pk_effects_free(&effects);
    }
    return true;
}

TEST(versions__a_journal_is_read)
{
    struct pk_journal j;
    struct pk_machine *want = fixture_machine();
    bool empty = true;
    copy_folder("journal");
    CHECK(pk_journal_open(&j, state) == PICKET_OK);
    CHECK(pk_journal_lock(&j, pk_clock_ms() + 60000) == PICKET_OK);
    CHECK(pk_journal_read(&j, replay, NULL, &empty) == PICKET_OK);
    CHECK(!empty);
    CHECK_U64(pk_machine_digest(replayed), pk_machine_digest(want));
    pk_journal_unlock(&j);
    pk_journal_close(&j);
    pk_machine_free(replayed);
    pk_machine_free(want);
}

/* Its snapshot is of a cluster version that this build does not run. */
TEST(versions__a_newer_embedded_store_is_refused)
{
    enum { HEADER = 32, RECORD = 16, VERSION_AT = HEADER + RECORD + 1 + 4 };
    char url[4300], want[4400];
    struct picket *client = NULL;
    copy_folder("journal");
    struct file f = file_read(in_state("journal"));
    f.bytes[VERSION_AT] = NEXT;
    uint32_t len = f.bytes[HEADER] | (uint32_t)f.bytes[HEADER + 1] << 8;
    pk_put_u64(f.bytes + HEADER + 8,
               pk_digest(PK_DIGEST_START, f.bytes + HEADER + RECORD, len));
    file_write(in_state("journal"), f.bytes, f.len);
    uint64_t before = digest_state();
    (void)snprintf(url, sizeof url, "local:%s", state);
    CHECK(picket_open(url, NULL, &client) == PICKET_STORE);
    (void)snprintf(want, sizeof want, "%s", pk_version_needed(state, NEXT));
    CHECK_STR(picket_last_error(), want);
    CHECK_U64(digest_state(), before);
    file_drop(&f);
}

/* ---- greetings ---- */

static void greeting_is_read(const char *name, enum pk_greeting_kind kind)
{
    struct file f = fixture(name);
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting want = fixture_greeting(kind), g;
    CHECK(pk_greeting_decode(f.bytes, f.len, &g) == PK_GREETING_WHOLE);
    CHECK_U64(g.kind, kind);
    CHECK_U64(pk_greeting_encode(&want, bytes), f.len);
    CHECK(memcmp(bytes, f.bytes, f.len) == 0);
    CHECK_U64(pk_greeting_encode(&g, bytes), f.len);
    CHECK(memcmp(bytes, f.bytes, f.len) == 0);
    f.bytes[4]++;
    CHECK(pk_greeting_decode(f.bytes, f.len, &g) ==
          (kind == PK_REFUSAL ? PK_GREETING_WHOLE : PK_GREETING_VERSION_DIFFERS));
    file_drop(&f);
}

TEST(versions__greetings_are_read)
{
    greeting_is_read("greeting-hello", PK_HELLO);
    greeting_is_read("greeting-welcome", PK_WELCOME);
    greeting_is_read("greeting-refusal", PK_REFUSAL);
    greeting_is_read("greeting-ask", PK_ASK);
    greeting_is_read("greeting-tell", PK_TELL);
}

/* A later release says more, behind what there is today. */
TEST(versions__fields_behind_a_greeting_are_not_looked_at)
{
    struct file f = fixture("greeting-hello");
    unsigned char bytes[PK_GREETING_MAX];
    struct pk_greeting g;
    memcpy(bytes, f.bytes, f.len);
    memcpy(bytes + f.len, "more", 4);
    CHECK(pk_greeting_decode(bytes, f.len + 4, &g) == PK_GREETING_GARBAGE);
    bytes[6] = (unsigned char)(bytes[6] + 4); /* the length of the body */
    CHECK(pk_greeting_decode(bytes, f.len + 4, &g) == PK_GREETING_WHOLE);
    CHECK_U64(g.run, fixture_greeting(PK_HELLO).run);
    file_drop(&f);
}
