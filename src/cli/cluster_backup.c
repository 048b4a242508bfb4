/* SPDX-License-Identifier: MIT */
/*
 * Backup, and the state of a survivor. A backup comes in chunks from one node, which has
 * made it for us (server/backup.h): from a follower if there is one that keeps up, so
 * that the leader need not do it. After a cut we go on with the same node; if the node is
 * gone, or has no longer that backup, we begin anew, with another one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/backup_file.h"
#include "cli/cluster.h"
#include "cli/errors.h"
#include "core/door.h"
#include "host/clock.h"
#include "raft/backup.h"
#include "raft/recover.h"

enum {
    OPEN_MS = 1000,
    MAKE_MS = 3600 * 1000, /* for a node to write a large state to a slow disk */
    CHUNK_MS = 60 * 1000,
    BUSY_MS = 15 * 1000,
    STARTS_MAX = 3, /* of one backup */
    CUTS_MAX = 20,  /* attempts to reach the node again, one after the other */
    LAG_MAX = 1000, /* entries that a follower may be behind */
};

/* A backup that a node keeps for us. */
struct source {
    struct pk_ask line;
    bool open;
    char name[PK_CLUSTER_TEXT_MAX], at[PK_CLUSTER_TEXT_MAX];
    uint64_t after; /* the last entry that was committed when we looked */
    uint64_t id, index, cluster_ms, bytes;
    char code[16], why[480]; /* of the last thing that went wrong */
};

/* ---- which node ---- */

static bool keeps_up(const struct pk_cluster_view *v, const struct pk_cluster_node *n)
{
    enum pk_member_state state = pk_cluster_state(v, n);
    return n->answered && strcmp(n->role, "voter") == 0 &&
           (state == PK_STATE_FOLLOWER ||
            (state == PK_STATE_LAGGING && n->match + LAG_MAX >= v->commit_index));
}

/* A voter that follows the leader and has most of its log, but not `gone`; else the
 * leader; NULL: there is none. */
static const struct pk_cluster_node *choose(struct pk_cluster_view *v, const char *gone)
{
    const struct pk_cluster_node *best = NULL;
    if (v->leader[0] == '\0') {
        return NULL;
    }
    for (size_t i = 0; i < v->count; i++) {
        const struct pk_cluster_node *n = &v->nodes[i];
        bool more = best == NULL || n->match > best->match;
        if (keeps_up(v, n) && more && strcmp(n->name, gone) != 0) {
            best = n;
        }
    }
    return best != NULL ? best : pk_cluster_node(v, v->leader);
}

/* 0, or an exit code after having said why. */
static int find_source(struct pk_cluster *c, const char *from, struct source *s)
{
    struct pk_cluster_view *v = pk_door_resize(NULL, sizeof *v);
    *v = (struct pk_cluster_view){0};
    pk_cluster_look(c, v);
    const struct pk_cluster_node *n =
        from != NULL ? pk_cluster_node(v, from) : choose(v, s->name);
    int code = 0;
    if (from != NULL && (n == NULL || !n->answered)) {
        code = pk_errors_fail("cluster: backup: node \"%s\" %s; see 'picket cluster "
                              "status'",
                              from, n == NULL ? "is no member" : "does not answer");
    } else if (n == NULL || !n->answered) {
        code = pk_errors_fail("cluster: backup: not done, since %s has no leader that "
                              "answers (%s); name a node by --from, or see 'picket "
                              "cluster status'",
                              c->url, v->answered ? "nobody leads" : v->why);
    } else {
        (void)snprintf(s->name, sizeof s->name, "%s", n->name);
        (void)snprintf(s->at, sizeof s->at, "%s", n->at);
        s->after = from != NULL ? 0 : v->commit_index;
    }
    pk_door_resize(v, 0);
    return code;
}

/* ---- asking it ---- */

/* CUT: nothing was answered, ask again; GONE: the node has no such backup any more, or
 * does not answer; REFUSED: asking again would not help. */
enum got { GOT, CUT, GONE, REFUSED };

static void close_line(struct source *s)
{
    if (s->open) {
        pk_ask_close(&s->line);
        s->open = false;
    }
}

static enum got ask(struct source *s, const char *const *words, size_t n, uint32_t ms,
                    struct pk_bytes *answer)
{
    bool sent;
    if (!s->open) {
        s->open = pk_ask_open(&s->line, s->at, OPEN_MS);
    }
    if (!s->open || !pk_ask_words(&s->line, words, n, ms, answer, &sent)) {
        (void)snprintf(s->why, sizeof s->why, "%s", s->line.why);
        close_line(s);
        return CUT;
    }
    struct pk_resp_cursor cursor = {.rest = *answer};
    struct pk_resp_value v = pk_resp_next(&cursor);
    if (v.type != PK_RESP_ERROR) {
        return GOT;
    }
    const char *space = memchr(v.bytes.data, ' ', v.bytes.len);
    size_t code = space == NULL ? v.bytes.len : (size_t)(space - v.bytes.data);
    size_t skip = space == NULL ? 0 : code + 1;
    (void)snprintf(s->code, sizeof s->code, "%.*s", (int)code, v.bytes.data);
    (void)snprintf(s->why, sizeof s->why, "%.*s", (int)(v.bytes.len - skip),
                   v.bytes.data + skip);
    return strcmp(s->code, "NOTFOUND") == 0 ? GONE : REFUSED;
}

/* A client that was killed keeps the node busy for 10 s: that long it may take. */
static enum got ask_to_begin(struct source *s, struct pk_bytes *answer)
{
    char after[24];
    const char *const words[] = {"CLUSTER", "BACKUP", "AFTER", after};
    uint64_t began = pk_clock_ms();
    (void)snprintf(after, sizeof after, "%" PRIu64, s->after);
    enum got got = ask(s, words, 4, MAKE_MS, answer);
    while (got == REFUSED && strcmp(s->code, "BUSY") == 0 &&
           pk_clock_ms() - began < BUSY_MS) {
        pk_cluster_pause();
        got = ask(s, words, 4, MAKE_MS, answer);
    }
    return got;
}

/* Has the node make a backup. */
static enum got begin(struct source *s)
{
    static const char *const keys[] = {"id", "index", "cluster_ms", "bytes"};
    uint64_t *const values[] = {&s->id, &s->index, &s->cluster_ms, &s->bytes};
    struct pk_bytes answer;
    enum got got = ask_to_begin(s, &answer);
    if (got != GOT) {
        return got;
    }
    struct pk_resp_cursor cursor = {.rest = answer};
    struct pk_resp_value map = pk_resp_next(&cursor);
    bool is_map = map.type == PK_RESP_MAP || map.type == PK_RESP_ARRAY;
    uint32_t pairs = !is_map ? 0 : map.type == PK_RESP_MAP ? map.n : map.n / 2;
    for (uint32_t i = 0; i < pairs && !cursor.bad; i++) {
        struct pk_bytes key = pk_resp_next(&cursor).bytes;
        struct pk_resp_value v = pk_resp_next(&cursor);
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            if (v.type == PK_RESP_INT && pk_resp_is(key, keys[k])) {
                *values[k] = (uint64_t)v.number;
            }
        }
    }
    if (!is_map || s->id == 0 || s->bytes == 0) {
        (void)snprintf(s->why, sizeof s->why,
                       "node %s does not make backups in chunks; is it of an older "
                       "version?",
                       s->name);
        return REFUSED;
    }
    return GOT;
}

static enum got fetch_chunk(struct source *s, uint64_t offset, size_t len,
                            struct pk_bytes *out)
{
    char id[24], at[24], count[24];
    const char *const words[] = {"CLUSTER", "BACKUP", id, at, count};
    struct pk_bytes answer;
    (void)snprintf(id, sizeof id, "%" PRIu64, s->id);
    (void)snprintf(at, sizeof at, "%" PRIu64, offset);
    (void)snprintf(count, sizeof count, "%zu", len);
    enum got got = CUT;
    for (int i = 0; i < CUTS_MAX && got == CUT; i++) {
        if (i > 0) {
            pk_cluster_pause();
        }
        got = ask(s, words, 5, CHUNK_MS, &answer);
    }
    if (got != GOT) {
        return got == CUT ? GONE : got;
    }
    struct pk_resp_cursor cursor = {.rest = answer};
    *out = pk_resp_next(&cursor).bytes;
    if (out->len == 0 || out->len > len) {
        (void)snprintf(s->why, sizeof s->why, "node %s sent a wrong chunk", s->name);
        return REFUSED;
    }
    return GOT;
}

/* The node need not keep it any longer. If that is lost, the node drops it later. */
static void let_go(struct source *s)
{
    char id[24];
    const char *const words[] = {"CLUSTER", "BACKUP", id, "END"};
    struct pk_bytes answer;
    (void)snprintf(id, sizeof id, "%" PRIu64, s->id);
    (void)ask(s, words, 4, OPEN_MS, &answer);
}

/* ---- the whole ---- */

/* From the beginning to the end, or until the node is gone. *code: an exit code, if it
 * was the file that failed. */
static enum got fetch_all(struct source *s, struct pk_backup_file *f,
                          const struct pk_pace *pace, int *code)
{
    enum got got = begin(s);
    if (got == GOT) {
        pk_errors_detail("node %s has made a backup of %" PRIu64 " bytes", s->name,
                         s->bytes);
    }
    while (got == GOT && *code == 0 && f->bytes < s->bytes) {
        struct pk_bytes chunk;
        uint64_t left = s->bytes - f->bytes;
        size_t most = pk_pace_chunk(pace, PK_BACKUP_CHUNK);
        got = fetch_chunk(s, f->bytes, left < most ? (size_t)left : most, &chunk);
        if (got == GOT) {
            *code = pk_backup_file_write(f, chunk.data, chunk.len);
            pk_pace_show("fetched", f->bytes, s->bytes);
            pk_pace_keep(pace, f->bytes);
        }
    }
    if (got == GOT) {
        let_go(s);
    }
    return got == CUT ? GONE : got;
}

static int fetch(struct pk_cluster *c, const struct pk_backup_wish *w,
                 struct pk_backup_file *f, struct source *s)
{
    enum got got = GONE;
    int code = 0;
    for (int i = 0; i < STARTS_MAX && got == GONE && code == 0; i++) {
        struct pk_pace pace = {.rate = w->rate, .began_ms = pk_clock_ms()};
        code = pk_backup_file_restart(f);
        if (code == 0) {
            code = find_source(c, w->from, s);
        }
        if (code == 0) {
            got = fetch_all(s, f, &pace, &code);
        }
        close_line(s);
    }
    if (code != 0 || got == GOT) {
        return code;
    }
    return pk_errors_fail("cluster: backup: not done: node %s: %s; %s", s->name, s->why,
                          strcmp(s->code, "NOSPACE") == 0
                              ? "name another one by --from"
                              : "repeat it, or name another node by --from");
}

int pk_cluster_backup(struct pk_cluster *c, const struct pk_backup_wish *w)
{
    struct pk_backup_file f;
    struct source s = {.line = {.fd = -1}};
    int code = pk_backup_file_check("backup", w->file, w->force);
    if (code == 0) {
        code = pk_backup_file_open(&f, "backup", w->file);
    }
    if (code != 0) {
        return code;
    }
    code = fetch(c, w, &f, &s);
    if (code == 0) {
        code = pk_backup_file_keep(&f);
    }
    pk_backup_file_close(&f);
    if (code == 0) {
        pk_errors_remark("%" PRIu64 " bytes in %s, verified: the state of node %s after "
                         "entry %" PRIu64 ", cluster time %" PRIu64 " ms",
                         s.bytes, strcmp(w->file, "-") == 0 ? "standard output" : w->file,
                         s.name, s.index, s.cluster_ms);
    }
    return code;
}

/* ---- recover ---- */

static bool write_recovered(void *ctx, const void *bytes, size_t len)
{
    return pk_backup_file_write(ctx, bytes, len) == 0;
}

int pk_cluster_recover(const char *dir, const char *file, bool force)
{
    char why[1024] = "";
    struct pk_recovered r;
    struct pk_backup_file f;
    int code = pk_backup_file_check("recover", file, force);
    if (code == 0) {
        code = pk_backup_file_open(&f, "recover", file);
    }
    if (code != 0) {
        return code;
    }
    if (!pk_recover(dir, write_recovered, &f, &r, why, sizeof why)) {
        /* An empty sentence: the file failed, and has said so. */
        code =
            why[0] == '\0' ? PK_EXIT_ERROR : pk_errors_fail("cluster: recover: %s", why);
    }
    if (code == 0) {
        code = pk_backup_file_keep(&f);
    }
    pk_backup_file_close(&f);
    if (code == 0) {
        pk_errors_remark("the log of node %s ends with entry %" PRIu64 " of term %" PRIu64
                         ". Of several survivors take the one with the highest term, and "
                         "of these the one with the highest entry. Then start new nodes "
                         "with empty directories, and 'picket cluster restore %s --yes'",
                         r.name, r.index, r.term, file);
    }
    return code;
}
