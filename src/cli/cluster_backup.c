/* SPDX-License-Identifier: MIT */
/*
 * Backup and restore.
 *
 * A backup is looked through before it is kept, and before it is restored: a damaged one
 * costs a sentence and changes nothing. Pieces of a restore gather in the cluster until
 * the last word, ADOPT, makes them the state; a piece at 0 begins anew, so whatever goes
 * wrong on the way, one starts over. When the answer to ADOPT is lost, ADOPT is sent
 * again: if the first one was done, the second finds nothing to adopt and is refused, and
 * the tokens tell, since an adoption leaps over 2^32 of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cluster.h"
#include "cli/errors.h"
#include "core/door.h"
#include "host/fd.h"
#include "host/memory.h"
#include "raft/recover.h"
#include "raft/replica.h"

enum {
    PIECE_BYTES = 512 * 1024,
    BACKUP_MS = 120000, /* for a large state to come over a slow line */
    STARTS_MAX = 3,     /* of one restore */
};

#define TOKEN_LEAP (UINT64_C(1) << 32)

/* ---- backup ---- */

static bool sync_folder_of(const char *file)
{
    char *copy = pk_memory_copy(file);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    pk_fd_close(&fd);
    free(copy);
    return synced;
}

/* FILE is either as it was or the whole backup. */
static int keep(const char *file, struct pk_bytes backup)
{
    char *fresh = pk_memory_print("%s.tmp", file);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool made = fd >= 0;
    bool kept = made && pk_fd_write(fd, backup.data, backup.len) && fsync(fd) == 0 &&
                rename(fresh, file) == 0 && sync_folder_of(file);
    int error = errno;
    pk_fd_close(&fd);
    if (made && !kept) {
        (void)unlink(fresh);
    }
    int code = kept ? 0
                    : pk_errors_fail("cluster: backup: can't write %s: %s",
                                     made ? file : fresh, strerror(error));
    free(fresh);
    return code;
}

static int put_out(struct pk_bytes backup)
{
    return pk_fd_write(STDOUT_FILENO, backup.data, backup.len)
               ? 0
               : pk_errors_fail("cluster: backup: can't write the output: %s",
                                strerror(errno));
}

static int check_target(const char *file, bool force)
{
    struct stat st;
    if (strcmp(file, "-") == 0) {
        return isatty(STDOUT_FILENO) == 0
                   ? 0
                   : pk_errors_fail("cluster: backup: it is no text; send it into a file "
                                    "or a pipe");
    }
    if (!force && lstat(file, &st) == 0) {
        return pk_errors_fail("cluster: backup: %s is there already; choose another name "
                              "or say --force",
                              file);
    }
    return 0;
}

int pk_cluster_backup(struct pk_cluster *c, const char *file, bool force)
{
    static const char *const words[] = {"CLUSTER", "BACKUP"};
    struct pk_cluster_answer a;
    int code = check_target(file, force);
    if (code != 0) {
        return code;
    }
    enum pk_cluster_got got = pk_cluster_ask_words(c, words, 2, BACKUP_MS, &a);
    if (got != PK_CLUSTER_OK) {
        return pk_cluster_fail(c, "backup", got, &a);
    }
    struct pk_resp_cursor cursor = {.rest = a.value};
    struct pk_bytes backup = pk_resp_next(&cursor).bytes;
    const char *wrong = pk_backup_wrong((const unsigned char *)backup.data, backup.len);
    if (wrong != NULL) {
        return pk_errors_fail("cluster: backup: what came is of no use: %s; ask again",
                              wrong);
    }
    if (strcmp(file, "-") == 0) {
        return put_out(backup);
    }
    code = keep(file, backup);
    if (code == 0) {
        pk_errors_remark("%u bytes in %s", (unsigned)backup.len, file);
    }
    return code;
}

/* ---- recover ---- */

int pk_cluster_recover(const char *dir, const char *file, bool force)
{
    char why[1024] = "";
    struct pk_recovered r;
    int code = check_target(file, force);
    if (code != 0) {
        return code;
    }
    if (!pk_recover(dir, &r, why, sizeof why)) {
        return pk_errors_fail("cluster: recover: %s", why);
    }
    struct pk_bytes backup = pk_bytes(r.backup, r.len);
    code = strcmp(file, "-") == 0 ? put_out(backup) : keep(file, backup);
    pk_door_resize(r.backup, 0);
    if (code == 0) {
        pk_errors_remark("the log of node %s ends with entry %" PRIu64 " of term %" PRIu64
                         ". Of several survivors take the one with the highest term, and "
                         "of these the one with the highest entry. Then start new nodes "
                         "with empty directories, and 'picket cluster restore %s --yes'",
                         r.name, r.index, r.term, file);
    }
    return code;
}

/* ---- restore ---- */

struct backup {
    unsigned char *bytes;
    size_t len, capacity;
};

static int read_all(int fd, const char *name, struct backup *b)
{
    ssize_t n = 1;
    while (n != 0) {
        if (b->len == b->capacity) {
            b->capacity = b->capacity == 0 ? PIECE_BYTES : 2 * b->capacity;
            b->bytes = pk_door_resize(b->bytes, b->capacity);
        }
        n = read(fd, b->bytes + b->len, b->capacity - b->len);
        if (n < 0 && errno != EINTR) {
            return pk_errors_fail("cluster: restore: can't read %s: %s", name,
                                  strerror(errno));
        }
        b->len += n > 0 ? (size_t)n : 0;
        if (b->len > PK_BACKUP_MAX) {
            break; /* which pk_backup_wrong says */
        }
    }
    const char *wrong = pk_backup_wrong(b->bytes, b->len);
    return wrong == NULL ? 0
                         : pk_errors_fail("cluster: restore: %s: %s; nothing was changed",
                                          name, wrong);
}

static int load(const char *file, struct backup *b)
{
    if (strcmp(file, "-") == 0) {
        return read_all(STDIN_FILENO, "standard input", b);
    }
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return pk_errors_fail("cluster: restore: can't open %s: %s", file,
                              strerror(errno));
    }
    int code = read_all(fd, file, b);
    pk_fd_close(&fd);
    return code;
}

static void show_progress(size_t sent, size_t len)
{
    if (!pk_errors_quiet() && isatty(STDERR_FILENO) == 1) {
        (void)fprintf(stderr, "\rpicket: %3u %% sent%s",
                      (unsigned)(len == 0 ? 100 : sent * 100 / len),
                      sent == len ? "\n" : "");
    }
}

static enum pk_cluster_got send_piece(struct pk_cluster *c, const struct backup *b,
                                      size_t at, struct pk_cluster_answer *a)
{
    size_t len = b->len - at < PIECE_BYTES ? b->len - at : PIECE_BYTES;
    char offset[24];
    struct pk_resp_out request = {0};
    (void)snprintf(offset, sizeof offset, "%zu", at);
    pk_resp_array(&request, 4);
    pk_resp_text(&request, "CLUSTER");
    pk_resp_text(&request, "RESTORE");
    pk_resp_text(&request, offset);
    pk_resp_bulk(&request, pk_bytes(b->bytes + at, len));
    enum pk_cluster_got got = pk_cluster_ask(c, &request, PK_CLUSTER_CHANGE_MS, true, a);
    pk_resp_free(&request);
    return got;
}

/* All pieces, from the beginning. UNKNOWN: nobody knows how many are there. */
static enum pk_cluster_got send_pieces(struct pk_cluster *c, const struct backup *b,
                                       struct pk_cluster_answer *a)
{
    enum pk_cluster_got got = PK_CLUSTER_OK;
    for (size_t at = 0; at < b->len && got == PK_CLUSTER_OK; at += PIECE_BYTES) {
        show_progress(at, b->len);
        got = send_piece(c, b, at, a);
    }
    if (got == PK_CLUSTER_OK) {
        show_progress(b->len, b->len);
    }
    return got;
}

/* The last token that the leader has given out. False: not known. */
static bool last_token(struct pk_cluster *c, uint64_t *token)
{
    static const char *const words[] = {"INFO"};
    static const char key[] = "last_token:";
    struct pk_cluster_answer a;
    if (pk_cluster_ask_words(c, words, 1, PK_CLUSTER_ANSWER_MS, &a) != PK_CLUSTER_OK) {
        return false;
    }
    struct pk_resp_cursor cursor = {.rest = a.value};
    struct pk_bytes text = pk_resp_next(&cursor).bytes;
    const char *at = memmem(text.data, text.len, key, strlen(key));
    *token = at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
    return at != NULL;
}

static int adopt(struct pk_cluster *c)
{
    static const char *const words[] = {"CLUSTER", "ADOPT"};
    struct pk_cluster_answer a;
    uint64_t before = 0;
    uint64_t after = 0;
    bool known = last_token(c, &before);
    enum pk_cluster_got got = pk_cluster_ask_words(c, words, 2, PK_CLUSTER_CHANGE_MS, &a);
    if (got == PK_CLUSTER_REFUSED && a.repeated && known && last_token(c, &after) &&
        after >= before + TOKEN_LEAP) {
        return 0; /* the first one was done */
    }
    if (got == PK_CLUSTER_UNKNOWN) {
        return pk_errors_fail("cluster: restore: it may or may not have been done (%s); "
                              "'picket ls' shows the locks of the backup as free if it "
                              "was, and repeating it does no harm",
                              a.why);
    }
    return got == PK_CLUSTER_OK ? 0 : pk_cluster_fail(c, "restore", got, &a);
}

int pk_cluster_restore(struct pk_cluster *c, const char *file, bool yes)
{
    struct backup b = {0};
    struct pk_cluster_answer a;
    int code = load(file, &b);
    if (code == 0 && !yes) {
        code = pk_errors_fail("cluster: restore: this ends all leases of %s and replaces "
                              "everything in it; say --yes if you mean it",
                              c->url);
    }
    if (code == 0) {
        enum pk_cluster_got got = PK_CLUSTER_UNKNOWN;
        for (int i = 0; i < STARTS_MAX && got == PK_CLUSTER_UNKNOWN; i++) {
            got = send_pieces(c, &b, &a);
        }
        code = got == PK_CLUSTER_OK ? adopt(c) : pk_cluster_fail(c, "restore", got, &a);
    }
    if (code == 0) {
        pk_errors_remark("restored; all leases were ended, and tokens go on above all "
                         "that were ever given out");
    }
    pk_door_resize(b.bytes, 0);
    return code;
}
