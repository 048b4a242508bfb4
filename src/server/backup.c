/* SPDX-License-Identifier: MIT */
#include "server/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/door.h"
#include "host/clock.h"
#include "host/fd.h"
#include "raft/backup.h"
#include "server/inside.h"
#include "server/log.h"

enum {
    READ_MS = 10 * 1000,      /* since the last chunk: somebody is reading it */
    KEPT_MS = 10 * 60 * 1000, /* without a read, then it is dropped */
    SPARED_MB = 32,           /* of the disk, which the log may need */
};

/* ---- what threads do ---- */

/* The file has no name: it takes no space any longer than this process has it open. */
static int open_file(struct pk_backup_job *j)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/backup.tmp", j->dir) >= (int)sizeof path) {
        return ENAMETOOLONG;
    }
    j->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return j->fd >= 0 && unlink(path) == 0 ? 0 : errno;
}

/* Whether the disk has so little left that the log should have it. */
static bool is_disk_full(int fd)
{
    struct statvfs v;
    return fstatvfs(fd, &v) == 0 &&
           (uint64_t)v.f_bavail * v.f_frsize < (uint64_t)SPARED_MB << 20;
}

static void write_slice(uv_work_t *w)
{
    struct pk_backup_job *j = w->data;
    j->error = j->fd >= 0 ? 0 : open_file(j);
    if (j->error == 0 && is_disk_full(j->fd)) {
        j->error = ENOSPC;
    }
    if (j->error == 0 && !pk_fd_write_at(j->fd, j->room, j->len, (off_t)j->offset)) {
        j->error = errno;
    }
}

static void read_chunk(uv_work_t *w)
{
    struct pk_backup_job *j = w->data;
    ssize_t n = pk_fd_read_at(j->fd, j->room, j->len, (off_t)j->offset);
    j->error = n < 0 ? errno : (size_t)n < j->len ? EIO : 0;
}

/* Giving back the blocks of a large file takes the kernel a while. */
struct closing {
    uv_work_t work;
    int fd;
};

static void close_file(uv_work_t *w)
{
    pk_fd_close(&((struct closing *)w->data)->fd);
}

static void on_file_closed(uv_work_t *w, int status)
{
    (void)status;
    pk_door_resize(w->data, 0);
}

static void close_later(uv_loop_t *loop, int fd)
{
    struct closing *c = pk_door_resize(NULL, sizeof *c);
    *c = (struct closing){.fd = fd};
    c->work.data = c;
    PK_ASSERT(uv_queue_work(loop, &c->work, close_file, on_file_closed) == 0);
}

/* ---- the one that waits for an answer ---- */

/* NULL: it is gone. */
static struct pk_conn *take_waiter(struct pk_server *s)
{
    struct pk_conn *c = pk_conn_at(s, s->backup.who);
    s->backup.who = 0;
    return c;
}

static void let_go_on(struct pk_conn *c)
{
    c->stall = PK_STALL_NONE;
    pk_conn_wake(c);
}

static void make_wait(struct pk_conn *c)
{
    c->server->backup.who = pk_conn_who(c);
    pk_conn_stall(c, PK_STALL_WAIT);
}

static void put_number(struct pk_resp_out *o, const char *key, uint64_t value)
{
    pk_resp_text(o, key);
    pk_resp_int(o, value);
}

static void answer_made(struct pk_server *s)
{
    const struct pk_backup_job *j = &s->backup;
    struct pk_conn *c = take_waiter(s);
    pk_log(PK_LOG_INFO, "backup", "client", c == NULL ? "" : c->name, "entry",
           pk_log_u64(j->of.index), "bytes", pk_log_u64(j->bytes), NULL);
    if (c == NULL) {
        return;
    }
    struct pk_resp_out *o = pk_conn_out(c);
    pk_resp_map(o, 6);
    put_number(o, "id", j->id);
    pk_resp_text(o, "node");
    pk_resp_text(o, s->self.name);
    put_number(o, "index", j->of.index);
    put_number(o, "cluster_ms", j->of.clock_ms);
    put_number(o, "last_token", j->of.last_token);
    put_number(o, "bytes", j->bytes);
    let_go_on(c);
}

/* ---- its life ---- */

static void drop(struct pk_server *s)
{
    struct pk_backup_job *j = &s->backup;
    if (j->stage == PK_BACKUP_WRITING) {
        pk_replica_backup_end(s->replica);
    }
    if (j->fd >= 0) {
        close_later(&s->loop, j->fd);
    }
    pk_door_resize(j->room, 0);
    *j = (struct pk_backup_job){.fd = -1};
}

static void fail(struct pk_server *s)
{
    char why[256];
    int error = s->backup.error;
    (void)snprintf(why, sizeof why, "the file of the backup can't be %s on this node: %s",
                   s->backup.stage == PK_BACKUP_READING ? "read" : "written",
                   strerror(error));
    struct pk_conn *c = take_waiter(s);
    drop(s);
    pk_log(PK_LOG_WARN, "backup-failed", "why", why, NULL);
    if (c != NULL) {
        pk_resp_error(pk_conn_out(c), error == ENOSPC ? "NOSPACE" : "ERR", why);
        let_go_on(c);
    }
}

/* The node ends; the replica has ended the view itself. */
static void forget(struct pk_backup_job *j)
{
    pk_fd_close(&j->fd);
    pk_door_resize(j->room, 0);
    *j = (struct pk_backup_job){.fd = -1};
}

static void on_written(uv_work_t *w, int status);

/* What has been written is of no use: begins anew in this turn or a later one. */
static void start_over(struct pk_server *s)
{
    pk_replica_backup_end(s->replica);
    s->backup.stage = PK_BACKUP_WAITS;
    s->backup.bytes = 0;
}

/* Reads a slice of the state, and has it written. */
static void make_slice(struct pk_server *s)
{
    struct pk_backup_job *j = &s->backup;
    enum pk_source_state got =
        pk_replica_backup_read(s->replica, j->room, PK_BACKUP_SLICE, &j->len);
    if (got == PK_SOURCE_GONE) { /* the state was replaced */
        start_over(s);
        return;
    }
    j->at_end = got == PK_SOURCE_END;
    j->offset = j->bytes;
    j->bytes += j->len;
    PK_ASSERT(uv_queue_work(&s->loop, &j->work, write_slice, on_written) == 0);
}

static void on_written(uv_work_t *w, int status)
{
    struct pk_backup_job *j = w->data;
    struct pk_server *s = PK_OWNER(j, struct pk_server, backup);
    (void)status;
    if (s->closing) {
        forget(j);
        return;
    }
    if (j->error != 0) {
        fail(s);
    } else if (!j->at_end) {
        make_slice(s);
    } else {
        pk_replica_backup_end(s->replica);
        j->stage = PK_BACKUP_READY;
        j->touched_ms = pk_conn_at(s, j->who) == NULL ? 0 : pk_clock_ms();
        answer_made(s);
    }
}

void pk_backup_turn(struct pk_server *s)
{
    struct pk_backup_job *j = &s->backup;
    if (j->stage == PK_BACKUP_WAITS && !s->closing &&
        pk_replica_standing(s->replica).applied_index >= j->after &&
        pk_replica_backup_begin(s->replica, &j->of)) {
        j->stage = PK_BACKUP_WRITING;
        make_slice(s);
    }
}

void pk_backup_sweep(struct pk_server *s)
{
    struct pk_backup_job *j = &s->backup;
    bool kept = j->stage == PK_BACKUP_READY && pk_clock_ms() - j->touched_ms > KEPT_MS;
    struct pk_conn *c = pk_conn_at(s, j->who);
    bool gone = j->stage == PK_BACKUP_WAITS && (c == NULL || pk_conn_peer_has_gone(c));
    if (gone && c != NULL) {
        pk_conn_close(c);
    }
    if (kept || gone) {
        drop(s);
    }
}

/* What a thread is doing comes to its end first: see forget. */
void pk_backup_close(struct pk_server *s)
{
    struct pk_backup_job *j = &s->backup;
    if (j->stage == PK_BACKUP_WAITS || j->stage == PK_BACKUP_READY) {
        drop(s);
    }
}

/* ---- words ---- */

/* Whether somebody else needs the backup that there is. */
static bool is_wanted(struct pk_server *s)
{
    const struct pk_backup_job *j = &s->backup;
    switch (j->stage) {
    case PK_BACKUP_NONE:
        return false;
    case PK_BACKUP_READY:
        return pk_clock_ms() - j->touched_ms < READ_MS;
    case PK_BACKUP_WAITS:
    case PK_BACKUP_WRITING:
    case PK_BACKUP_READING:
        break;
    }
    return true;
}

static void begin(struct pk_conn *c, uint64_t after)
{
    struct pk_server *s = c->server;
    struct pk_backup_job *j = &s->backup;
    if (pk_replica_standing(s->replica).applied_index == 0) {
        pk_resp_error(pk_conn_out(c), "ERR",
                      "this node has no state yet: it belongs to no cluster, or has not "
                      "got the log; ask another node");
        return;
    }
    if (is_wanted(s)) {
        pk_resp_error(pk_conn_out(c), "BUSY",
                      "another client takes a backup of this node; ask another node, or "
                      "again later");
        return;
    }
    if (j->stage == PK_BACKUP_READY) {
        drop(s);
    }
    *j = (struct pk_backup_job){.stage = PK_BACKUP_WAITS,
                                .id = pk_random() >> 1, /* fits RESP's integers */
                                .after = after,
                                .dir = s->options.data,
                                .fd = -1,
                                .room = pk_door_resize(NULL, PK_BACKUP_CHUNK)};
    j->work.data = j;
    make_wait(c);
    pk_backup_turn(s);
}

static void on_read(uv_work_t *w, int status)
{
    struct pk_backup_job *j = w->data;
    struct pk_server *s = PK_OWNER(j, struct pk_server, backup);
    (void)status;
    if (s->closing) {
        forget(j);
        return;
    }
    if (j->error != 0) {
        fail(s);
        return;
    }
    struct pk_conn *c = take_waiter(s);
    j->stage = PK_BACKUP_READY;
    j->touched_ms = pk_clock_ms();
    if (c != NULL) {
        pk_resp_bulk(pk_conn_out(c), pk_bytes(j->room, j->len));
        let_go_on(c);
    }
}

/* The connection waits for a chunk, or is answered at once. */
static void read_at(struct pk_conn *c, uint64_t offset, uint64_t count)
{
    struct pk_backup_job *j = &c->server->backup;
    if (offset > j->bytes || count < 1 || count > PK_BACKUP_CHUNK) {
        pk_resp_error(pk_conn_out(c), "BADARG",
                      "the offset is behind the end of the backup, or bytes is not "
                      "between 1 and 262144");
        return;
    }
    uint64_t left = j->bytes - offset;
    j->touched_ms = pk_clock_ms();
    j->offset = offset;
    j->len = (size_t)(left < count ? left : count);
    if (j->len == 0) {
        pk_resp_bulk(pk_conn_out(c), pk_bytes("", 0));
        return;
    }
    j->stage = PK_BACKUP_READING;
    make_wait(c);
    PK_ASSERT(uv_queue_work(&c->server->loop, &j->work, read_chunk, on_read) == 0);
}

/* About the backup that has this id. */
static bool about(struct pk_conn *c, uint64_t id, const struct pk_bytes *args, uint32_t n)
{
    struct pk_server *s = c->server;
    struct pk_backup_job *j = &s->backup;
    uint64_t offset, count = PK_BACKUP_CHUNK;
    bool there = j->id == id && j->stage >= PK_BACKUP_READY;
    bool end = n == 4 && pk_resp_is(args[3], "END");
    if (there && j->stage == PK_BACKUP_READING) {
        pk_conn_stall(c, PK_STALL_TURN); /* one chunk at a time */
        return false;
    }
    if (end) {
        if (there) {
            drop(s);
        }
        pk_resp_simple(pk_conn_out(c), "OK");
    } else if (!pk_resp_number(args[3], &offset) ||
               (n == 5 && !pk_resp_number(args[4], &count))) {
        pk_resp_error(pk_conn_out(c), "BADARG", "the offset and bytes are numbers");
    } else if (!there) {
        pk_resp_error(pk_conn_out(c), "NOTFOUND",
                      "this node has no backup of that id any more; begin a new one");
    } else {
        read_at(c, offset, count);
    }
    return true;
}

bool pk_backup_ask(struct pk_conn *c, const struct pk_bytes *args, uint32_t n)
{
    uint64_t id, after;
    if (n == 2) {
        begin(c, 0);
    } else if (n == 4 && pk_resp_is(args[2], "AFTER") &&
               pk_resp_number(args[3], &after)) {
        begin(c, after);
    } else if ((n == 4 || n == 5) && pk_resp_number(args[2], &id)) {
        return about(c, id, args, n);
    } else {
        pk_resp_error(pk_conn_out(c), "ERR",
                      "it is CLUSTER BACKUP [AFTER index], CLUSTER BACKUP id offset "
                      "[bytes] or CLUSTER BACKUP id END");
    }
    return true;
}
