/* SPDX-License-Identifier: MIT */
#include "raft/uvio.h"

#include <errno.h>
#include <raft.h>
#include <raft/uv.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/door.h"
#include "raft/transport.h"

#if !defined RAFT_VERSION_NUMBER || RAFT_VERSION_NUMBER < 2201
#error "libraft 0.22.1 or newer is needed: older ones lose acknowledged writes"
#endif

enum {
    ELECTION_MS = 300,
    RETRIES_PER_ELECTION = 3,
    DISK_RETRY_MS = 500,
    /* The library counts free room in KiB, in 16 bits: 64 MiB would be none, and below
     * 4 MiB it refuses to append. */
    SEGMENT_BYTES = 8 * 1024 * 1024,
};

struct pk_uvio {
    struct raft_io io;
    struct raft_io lib; /* the functions that we stand before */
    struct pk_transport *transport;
};

/* ---- what went wrong, and what to do ---- */

static const char start_over[] =
    "; remove this node from the cluster and let it come back empty, under a new name";

/* A log that can't be read is no log with a hole: what this node has promised is gone.
 * The library's message says where; people also need to know what to do (P3). */
static int advise(struct raft_io *io, int status)
{
    if (status == RAFT_CORRUPT || status == RAFT_MALFORMED) {
        size_t room = sizeof io->errmsg - sizeof start_over;
        size_t len = strnlen(io->errmsg, room);
        memcpy(io->errmsg + len, start_over, sizeof start_over);
    }
    return status;
}

static struct pk_uvio *of(struct raft_io *io)
{
    return (struct pk_uvio *)io; /* its first member */
}

static int init_or_advise(struct raft_io *io, raft_id id, const char *address)
{
    return advise(io, of(io)->lib.init(io, id, address));
}

static int load_or_advise(struct raft_io *io, raft_term *term, raft_id *voted_for,
                          struct raft_snapshot **snapshot, raft_index *start_index,
                          struct raft_entry *entries[], size_t *n_entries)
{
    int status =
        of(io)->lib.load(io, term, voted_for, snapshot, start_index, entries, n_entries);
    return advise(io, status);
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
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        (void)snprintf(why, size, "can't make %s: %s", dir, strerror(errno));
        return false;
    }
    int status = raft_uv_init(&u->io, o->loop, dir, pk_transport_raft(u->transport));
    if (status != 0) {
        (void)snprintf(why, size, "can't use %s: %s", dir, u->io.errmsg);
        return false;
    }
    return true;
}

struct pk_uvio *pk_uvio_new(const struct pk_uvio_options *o, char *why, size_t size)
{
    uint32_t election = o->election_ms == 0 ? ELECTION_MS : o->election_ms;
    struct pk_uvio *u = pk_door_resize(NULL, sizeof *u);
    memset(u, 0, sizeof *u);
    u->transport = pk_transport_new(o);
    const char *wrong = pk_transport_bind(u->transport);
    if (wrong != NULL) {
        (void)snprintf(why, size, "%s", wrong);
    }
    if (wrong != NULL || !open_files(u, o, why, size)) {
        pk_transport_free(u->transport);
        pk_door_resize(u, 0);
        return NULL;
    }
    u->lib = u->io;
    u->io.init = init_or_advise;
    u->io.load = load_or_advise;
    raft_uv_set_auto_recovery(&u->io, false);
    raft_uv_set_connect_retry_delay(&u->io, election / RETRIES_PER_ELECTION);
    raft_uv_set_disk_retry(&u->io, DISK_RETRY_MS);
    raft_uv_set_tracer(&u->io, NULL);
    return u;
}

struct raft_io *pk_uvio_io(struct pk_uvio *u)
{
    return &u->io;
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

void pk_uvio_free(struct pk_uvio *u)
{
    raft_uv_close(&u->io);
    pk_transport_free(u->transport);
    pk_door_resize(u, 0);
}
