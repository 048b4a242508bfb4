/* SPDX-License-Identifier: MIT */
/*
 * Restore. The whole backup is verified before the first byte of it is sent: a damaged
 * one costs a sentence and changes nothing. Its pieces gather in the cluster, where each
 * node builds the state from them as they come, until the last word, ADOPT, makes that
 * the state, at one entry for all nodes. A restore that is broken off before leaves the
 * state as it was, and a piece at 0 begins anew.
 *
 * When the answer to ADOPT is lost, ADOPT is sent again: if the first one was done, the
 * second finds nothing to adopt and is refused, and the tokens tell, since an adoption
 * leaps over 2^32 of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/backup_file.h"
#include "cli/cluster.h"
#include "cli/errors.h"
#include "core/limits.h"
#include "host/clock.h"
#include "host/fd.h"
#include "raft/backup.h"

enum {
    STARTS_MAX = 3, /* of one restore */
    LOST_MAX = 3,   /* answers to one piece */
};

/* ---- the file ---- */

struct backup {
    const char *name;
    FILE *spool; /* what came from standard input; NULL: it is a file */
    int fd;
    uint64_t len;
};

static int fail(const char *what, const char *name, const char *why)
{
    return pk_errors_fail("cluster: restore: can't %s %s: %s", what, name, why);
}

/* Standard input can be read once only, and a backup is read twice: so it goes to a file
 * without a name first. */
static int spool_input(struct backup *b)
{
    unsigned char room[16 * 1024];
    ssize_t n = 1;
    b->name = "standard input";
    b->spool = tmpfile();
    if (b->spool == NULL) {
        return fail("keep", b->name, strerror(errno));
    }
    b->fd = fileno(b->spool);
    while (n != 0) {
        n = read(STDIN_FILENO, room, sizeof room);
        if (n < 0 && errno != EINTR) {
            return fail("read", b->name, strerror(errno));
        }
        if (n > 0 && !pk_fd_write(b->fd, room, (size_t)n)) {
            return fail("keep", b->name, strerror(errno));
        }
    }
    return 0;
}

static int open_backup(const char *file, struct backup *b)
{
    *b = (struct backup){.name = file, .fd = -1};
    if (strcmp(file, "-") == 0) {
        int code = spool_input(b);
        if (code != 0) {
            return code;
        }
    } else {
        b->fd = open(file, O_RDONLY | O_CLOEXEC);
        if (b->fd < 0) {
            return fail("open", file, strerror(errno));
        }
    }
    const char *wrong = pk_backup_verify(b->fd, &b->len);
    return wrong == NULL ? 0
                         : pk_errors_fail("cluster: restore: %s: %s; nothing was changed",
                                          b->name, wrong);
}

static void close_backup(struct backup *b)
{
    if (b->spool != NULL) {
        (void)fclose(b->spool);
    } else {
        pk_fd_close(&b->fd);
    }
}

/* ---- pieces ---- */

static enum pk_cluster_got send_piece(struct pk_cluster *c, const unsigned char *bytes,
                                      size_t len, uint64_t at,
                                      struct pk_cluster_answer *a)
{
    char offset[24];
    struct pk_resp_out request = {0};
    (void)snprintf(offset, sizeof offset, "%" PRIu64, at);
    pk_resp_array(&request, 4);
    pk_resp_text(&request, "CLUSTER");
    pk_resp_text(&request, "RESTORE");
    pk_resp_text(&request, offset);
    pk_resp_bulk(&request, pk_bytes(bytes, len));
    enum pk_cluster_got got = pk_cluster_ask(c, &request, PK_CLUSTER_CHANGE_MS, true, a);
    pk_resp_free(&request);
    return got;
}

/* A piece whose answer was lost (*lost) is sent again. If the first one was taken, the
 * second is refused, since it no longer begins where the bytes end: so a refusal is taken
 * for a success, and if it was none, the next piece is refused, too. */
static enum pk_cluster_got send_surely(struct pk_cluster *c, const unsigned char *bytes,
                                       size_t len, uint64_t at,
                                       struct pk_cluster_answer *a, bool *lost)
{
    bool lost_before = *lost;
    enum pk_cluster_got got = PK_CLUSTER_UNKNOWN;
    for (int i = 0; i < LOST_MAX && got == PK_CLUSTER_UNKNOWN; i++) {
        got = send_piece(c, bytes, len, at, a);
        *lost = *lost || got == PK_CLUSTER_UNKNOWN;
    }
    if (got != PK_CLUSTER_REFUSED || !*lost) {
        return got;
    }
    return lost_before ? PK_CLUSTER_UNKNOWN : PK_CLUSTER_OK;
}

/* All pieces, from the beginning. UNKNOWN: it is not known how many are there. *code: an
 * exit code, if the file can't be read. */
static enum pk_cluster_got send_pieces(struct pk_cluster *c, const struct backup *b,
                                       uint64_t rate, struct pk_cluster_answer *a,
                                       int *code)
{
    struct pk_pace pace = {.rate = rate, .began_ms = pk_clock_ms()};
    enum pk_cluster_got got = PK_CLUSTER_OK;
    uint64_t at = 0;
    bool lost = false;
    while (at < b->len && got == PK_CLUSTER_OK) {
        unsigned char room[PK_BACKUP_PIECE];
        size_t most = pk_pace_chunk(&pace, sizeof room);
        size_t len = b->len - at < most ? (size_t)(b->len - at) : most;
        if (pk_fd_read_at(b->fd, room, len, (off_t)at) != (ssize_t)len) {
            *code = fail("read", b->name, "it has changed meanwhile");
            return got;
        }
        got = send_surely(c, room, len, at, a, &lost);
        at += len;
        if (got == PK_CLUSTER_OK) {
            pk_pace_show("sent", at, b->len);
            pk_pace_keep(&pace, at);
        }
    }
    return got;
}

/* ---- the last word ---- */

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
        after >= before + PK_TOKEN_LEAP) {
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

static int put_back(struct pk_cluster *c, const struct backup *b, uint64_t rate)
{
    struct pk_cluster_answer a;
    enum pk_cluster_got got = PK_CLUSTER_UNKNOWN;
    int code = 0;
    for (int i = 0; i < STARTS_MAX && code == 0 && got == PK_CLUSTER_UNKNOWN; i++) {
        got = send_pieces(c, b, rate, &a, &code);
    }
    if (code != 0) {
        return code;
    }
    return got == PK_CLUSTER_OK ? adopt(c) : pk_cluster_fail(c, "restore", got, &a);
}

int pk_cluster_restore(struct pk_cluster *c, const char *file, bool yes, uint64_t rate)
{
    struct backup b;
    int code = open_backup(file, &b);
    if (code == 0 && !yes) {
        code = pk_errors_fail("cluster: restore: this ends all leases of %s and replaces "
                              "everything in it; say --yes if you mean it",
                              c->url);
    }
    if (code == 0) {
        code = put_back(c, &b, rate);
    }
    close_backup(&b);
    if (code == 0) {
        pk_errors_remark("restored %" PRIu64 " bytes; all leases were ended, and tokens "
                         "go on above all that were ever given out",
                         b.len);
    }
    return code;
}
