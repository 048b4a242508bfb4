/* SPDX-License-Identifier: MIT */
#include "raft/uvio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <raft.h>
#include <raft/uv.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/door.h"
#include "host/fd.h"
#include "raft/transport.h"

#if !defined RAFT_VERSION_NUMBER || RAFT_VERSION_NUMBER < 2201
#error "libraft 0.22.1 or newer is needed: older ones lose acknowledged writes"
#endif

enum {
    DISK_RETRY_MS = 500,
    /* The library counts free room in KiB, in 16 bits: 64 MiB would be none, and below
     * 4 MiB it refuses to append. */
    SEGMENT_BYTES = 8 * 1024 * 1024,
};

struct pk_uvio {
    struct raft_io io;
    struct raft_io lib; /* the functions that we stand before */
    struct pk_transport *transport;
    struct raft_uv_transport none; /* what the library's own network half is given */
    raft_uv_transport_close_cb none_closed;
    raft_io_recv_cb receive;
    int dir_fd; /* the node's data directory */
    bool began; /* DIR/began is there */
    struct raft_tracer tracer;
    void (*wrote)(void *ctx, uint64_t us);
    void *ctx;
    uint64_t write_began_us;
};

static struct pk_uvio *of(struct raft_io *io)
{
    return (struct pk_uvio *)io; /* its first member */
}

/* ---- a log that is gone ---- */

/* DIR/began says that this node has once had a term, and so may have voted: if there is
 * no trace of one in DIR/raft, it is a wiped node, although its identity is there. */

static bool exists(const struct pk_uvio *u, const char *name)
{
    return faccessat(u->dir_fd, name, F_OK, 0) == 0;
}

static void note_begin(struct pk_uvio *u)
{
    if (!u->began) {
        int fd = openat(u->dir_fd, "began", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        u->began = fd >= 0 && fsync(u->dir_fd) == 0; /* if not, next time */
        pk_fd_close(&fd);
    }
}

/* True if DIR/raft has the first term in it, without a vote, and nothing else. */
static bool has_first_term_only(const struct pk_uvio *u)
{
    /* The library's format: format, version of the file, term, vote; 8 bytes each. */
    static const unsigned char first[32] = {[0] = 1, [8] = 1, [16] = 1};
    unsigned char found[sizeof first + 1];
    int fd = openat(u->dir_fd, "raft/metadata1", O_RDONLY | O_CLOEXEC);
    bool same = fd >= 0 && read(fd, found, sizeof found) == (ssize_t)sizeof first &&
                memcmp(found, first, sizeof first) == 0;
    pk_fd_close(&fd);
    fd = same ? openat(u->dir_fd, "raft", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL) {
        pk_fd_close(&fd);
        return false;
    }
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        same = same && (e->d_name[0] == '.' || strcmp(e->d_name, "metadata1") == 0);
    }
    closedir(d);
    return same;
}

/* A bootstrap stores the first term, then the first configuration. One that ended
 * between the two is undone, because the library would take the node for one that has a
 * log, and a node without a configuration never serves. Nothing is lost with that term:
 * the node has neither voted nor stored an entry. */
static void undo_half_bootstrap(const struct pk_uvio *u)
{
    if (!exists(u, "began") && has_first_term_only(u)) {
        (void)unlinkat(u->dir_fd, "raft/metadata1", 0);
    }
}

static bool is_log_gone(struct pk_uvio *u)
{
    undo_half_bootstrap(u);
    bool has_term = exists(u, "raft/metadata1") || exists(u, "raft/metadata2");
    u->began = exists(u, "began");
    if (has_term) {
        note_begin(u);
    }
    return u->began && !has_term;
}

static int set_term_and_note(struct raft_io *io, raft_term term)
{
    int status = of(io)->lib.set_term(io, term);
    if (status == 0) {
        note_begin(of(io));
    }
    return status;
}

static int bootstrap_and_note(struct raft_io *io, const struct raft_configuration *conf)
{
    int status = of(io)->lib.bootstrap(io, conf);
    if (status == 0) {
        note_begin(of(io));
    }
    return status;
}

/* ---- what went wrong, and what to do ---- */

static const char start_over[] =
    "; remove this node from the cluster and let it come back empty, under a new name";

/* A log that can't be read is no log with a hole: what this node has promised is gone.
 * The library's message says where; people also need to know what to do (P3). */
static int advise(struct raft_io *io, int status)
{
    /* A file that is too short is an I/O error to the library, like one that we may not
     * read; only the former is for good. */
    bool cut = status == RAFT_IOERR && strstr(io->errmsg, "short read") != NULL;
    if (status == RAFT_CORRUPT || status == RAFT_MALFORMED || cut) {
        size_t len = strnlen(io->errmsg, sizeof io->errmsg - sizeof start_over);
        memcpy(io->errmsg + len, start_over, sizeof start_over);
    }
    return status;
}

static int init_or_advise(struct raft_io *io, raft_id id, const char *address)
{
    int status = of(io)->lib.init(io, id, address);
    return advise(io, status);
}

/* NOLINTNEXTLINE(readability-function-size): the library wants so many parameters */
static int load_or_advise(struct raft_io *io, raft_term *term, raft_id *voted_for,
                          struct raft_snapshot **snapshot, raft_index *start_index,
                          struct raft_entry *entries[], size_t *n_entries)
{
    int status =
        of(io)->lib.load(io, term, voted_for, snapshot, start_index, entries, n_entries);
    return advise(io, status);
}

/* ---- the network half ---- */

/* The library's backend insists on a transport. It gets one that listens to nobody and
 * is never asked to connect, since `send` is ours; it closes when ours does. */

static int init_none(struct raft_uv_transport *none, raft_id id, const char *address)
{
    struct pk_uvio *u = none->impl;
    (void)id;
    return pk_transport_set_address(u->transport, address) ? 0 : RAFT_NAMETOOLONG;
}

static int listen_none(struct raft_uv_transport *none, raft_uv_accept_cb cb)
{
    (void)none;
    (void)cb;
    return 0;
}

static void on_transport_closed(void *ctx)
{
    struct pk_uvio *u = ctx;
    u->none_closed(&u->none);
}

static void close_none(struct raft_uv_transport *none, raft_uv_transport_close_cb cb)
{
    struct pk_uvio *u = none->impl;
    u->none_closed = cb;
    pk_transport_close(u->transport, on_transport_closed, u);
}

static void on_message(void *ctx, struct raft_message *m)
{
    struct pk_uvio *u = ctx;
    u->receive(&u->io, m);
}

static int start_both(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                      raft_io_recv_cb receive)
{
    struct pk_uvio *u = of(io);
    int status = u->lib.start(io, msecs, tick, receive);
    if (status == 0) {
        u->receive = receive;
        pk_transport_start(u->transport, on_message, NULL, u);
    }
    return status;
}

static int send_message(struct raft_io *io, struct raft_io_send *req,
                        const struct raft_message *m, raft_io_send_cb cb)
{
    return pk_transport_send(of(io)->transport, req, m, cb);
}

/* ---- the whole ---- */

static bool open_files(struct pk_uvio *u, const struct pk_uvio_options *o, char *why,
                       size_t size)
{
    char dir[4096];
    if (snprintf(dir, sizeof dir, "%s/raft", o->dir) >= (int)sizeof dir) {
        (void)snprintf(why, size, "the path of the data directory is too long");
        return false;
    }
    u->dir_fd = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (u->dir_fd < 0 || (mkdir(dir, 0700) != 0 && errno != EEXIST)) {
        (void)snprintf(why, size, "can't make %s: %s", dir, strerror(errno));
        return false;
    }
    if (is_log_gone(u)) {
        (void)snprintf(why, size, "the log in %s is gone%s", dir, start_over);
        return false;
    }
    u->none = (struct raft_uv_transport){.version = 1,
                                         .impl = u,
                                         .init = init_none,
                                         .listen = listen_none,
                                         .close = close_none};
    if (raft_uv_init(&u->io, o->loop, dir, &u->none) != 0) {
        (void)snprintf(why, size, "can't use %s: %s", dir, u->io.errmsg);
        return false;
    }
    return true;
}

static void free_without_files(struct pk_uvio *u)
{
    pk_transport_free(u->transport);
    pk_fd_close(&u->dir_fd);
    pk_door_resize(u, 0);
}

/* Of all that the library traces only the writes are of interest, one at a time. */
static void on_trace(struct raft_tracer *t, int type, const void *info)
{
    struct pk_uvio *u = t->impl;
    (void)info;
    if (type == RAFT_UV_TRACER_WRITE_SUBMIT) {
        u->write_began_us = uv_hrtime() / 1000;
    } else if (type == RAFT_UV_TRACER_WRITE_COMPLETE) {
        u->wrote(u->ctx, uv_hrtime() / 1000 - u->write_began_us);
    }
}

struct pk_uvio *pk_uvio_new(const struct pk_uvio_options *o, char *why, size_t size)
{
    struct pk_uvio *u = pk_door_resize(NULL, sizeof *u);
    memset(u, 0, sizeof *u);
    u->dir_fd = -1;
    u->transport = pk_transport_new(o);
    const char *wrong = pk_transport_bind(u->transport);
    if (wrong != NULL) {
        (void)snprintf(why, size, "%s", wrong);
    }
    if (wrong != NULL || !open_files(u, o, why, size)) {
        free_without_files(u);
        return NULL;
    }
    u->lib = u->io;
    u->io.init = init_or_advise;
    u->io.load = load_or_advise;
    u->io.set_term = set_term_and_note;
    u->io.bootstrap = bootstrap_and_note;
    u->io.start = start_both;
    u->io.send = send_message;
    raft_uv_set_auto_recovery(&u->io, false);
    raft_uv_set_disk_retry(&u->io, DISK_RETRY_MS);
    u->wrote = o->wrote;
    u->ctx = o->ctx;
    u->tracer = (struct raft_tracer){.impl = u, .version = 2, .emit = on_trace};
    raft_uv_set_tracer(&u->io, o->wrote == NULL ? NULL : &u->tracer);
    return u;
}

struct raft_io *pk_uvio_io(struct pk_uvio *u)
{
    return &u->io;
}

struct pk_transport *pk_uvio_transport(struct pk_uvio *u)
{
    return u->transport;
}

void pk_uvio_tune(struct pk_uvio *u)
{
    raft_uv_set_segment_size(&u->io, SEGMENT_BYTES);
}

uint16_t pk_uvio_port(const struct pk_uvio *u)
{
    return pk_transport_port(u->transport);
}

struct pk_uvio_counts pk_uvio_counts(const struct pk_uvio *u)
{
    return pk_transport_counts(u->transport);
}

uint64_t pk_uvio_silence_ms(const struct pk_uvio *u, uint64_t peer)
{
    return pk_transport_silence_ms(u->transport, peer);
}

void pk_uvio_free(struct pk_uvio *u)
{
    raft_uv_close(&u->io);
    free_without_files(u);
}
