/* SPDX-License-Identifier: MIT */
#include "raft/uvio.h"

#include <errno.h>
#include <raft.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <uv.h>

#include "core/door.h"
#include "core/wire.h"
#include "host/clock.h"
#include "raft/file_disk.h"
#include "raft/message.h"
#include "raft/store.h"
#include "raft/transport.h"

#if !defined RAFT_VERSION_NUMBER || RAFT_VERSION_NUMBER < 2201
#error "libraft 0.22.1 or newer is needed: older ones lose acknowledged writes"
#endif

enum {
    MARK_BYTES = 17, /* 'M', index, digest */
    HAVE_BYTES = 41, /* 'H', index, term, size, sum of a snapshot, bytes of it */
};

/* How far a load on another thread has come. */
enum loading {
    NOT_LOADED, /* or what was loaded has been taken */
    LOADING,    /* the store belongs to the other thread */
    LOADED,
};

struct pk_uvio {
    struct raft_io io;
    struct pk_uvio_options o;
    struct pk_transport *transport;
    struct pk_file_disk *files;
    struct pk_store *store;
    uv_timer_t timer;
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    raft_io_close_cb closed;
    uint64_t durable;       /* batch, when last looked */
    uint64_t writing_since; /* loop time of the first look at the same one; 0: idle */
    unsigned open;          /* parts that have not said that they are closed */

    enum loading loading;
    uv_work_t work;
    struct pk_store_loaded result;
    int status; /* of the load */
    void (*loaded)(void *ctx, const char *wrong);
    void *loaded_ctx;
};

static struct pk_uvio *of(struct raft_io *io)
{
    return (struct pk_uvio *)io; /* its first member */
}

static int refused(struct pk_uvio *u, int status)
{
    (void)snprintf(u->io.errmsg, sizeof u->io.errmsg, "%s", pk_store_why(u->store));
    return status;
}

/* ---- the disk half ---- */

/* What a load writes to mend the log is not told: no client waits for it, and it is
 * written by another thread. */
static void on_wrote(void *ctx, uint64_t us)
{
    struct pk_uvio *u = ctx;
    if (u->loading != LOADING && u->o.wrote != NULL) {
        u->o.wrote(u->o.ctx, us);
    }
}

static void on_failed(void *ctx, const char *why)
{
    struct pk_uvio *u = ctx;
    u->o.failed(u->o.ctx, why);
}

static int init(struct raft_io *io, raft_id id, const char *address)
{
    struct pk_uvio *u = of(io);
    PK_ASSERT(id == u->o.self->id);
    return pk_transport_set_address(u->transport, address) ? 0 : RAFT_NAMETOOLONG;
}

/* NOLINTNEXTLINE(readability-function-size): the library wants so many parameters */
static int load(struct raft_io *io, raft_term *term, raft_id *voted_for,
                struct raft_snapshot **snapshot, raft_index *start_index,
                struct raft_entry *entries[], size_t *n_entries)
{
    struct pk_uvio *u = of(io);
    struct pk_store_loaded l = u->result;
    int status = u->loading == LOADED ? u->status : pk_store_load(u->store, &l);
    u->loading = NOT_LOADED;
    if (status != 0) {
        return refused(u, status);
    }
    *term = l.term;
    *voted_for = l.vote;
    *snapshot = l.snapshot;
    *start_index = l.start;
    *entries = l.entries;
    *n_entries = l.n;
    io->capacity = pk_store_capacity(u->store);
    return 0;
}

static void load_elsewhere(uv_work_t *work)
{
    struct pk_uvio *u = work->data;
    u->status = pk_store_load(u->store, &u->result);
}

static void close_store(struct pk_uvio *u);

static void on_loaded(uv_work_t *work, int status)
{
    struct pk_uvio *u = work->data;
    PK_ASSERT(status == 0); /* nobody cancels it */
    u->loading = LOADED;
    if (u->closed != NULL) {
        close_store(u);
        return;
    }
    u->loaded(u->loaded_ctx, u->status == 0 ? NULL : pk_store_why(u->store));
}

void pk_uvio_load(struct pk_uvio *u, void (*loaded)(void *ctx, const char *wrong),
                  void *ctx)
{
    u->loading = LOADING;
    u->loaded = loaded;
    u->loaded_ctx = ctx;
    u->work.data = u;
    PK_ASSERT(uv_queue_work(u->o.loop, &u->work, load_elsewhere, on_loaded) == 0);
}

static int bootstrap(struct raft_io *io, const struct raft_configuration *conf)
{
    int status = pk_store_bootstrap(of(io)->store, conf);
    return status == 0 ? 0 : refused(of(io), status);
}

static int recover(struct raft_io *io, const struct raft_configuration *conf)
{
    (void)io;
    (void)conf;
    return RAFT_INVALID; /* see `picket cluster recover` */
}

static int set_term(struct raft_io *io, raft_term term)
{
    return pk_store_set_term(of(io)->store, term);
}

static int set_vote(struct raft_io *io, raft_id vote)
{
    return pk_store_set_vote(of(io)->store, vote);
}

static int append(struct raft_io *io, struct raft_io_append *req,
                  const struct raft_entry entries[], unsigned n, raft_io_append_cb cb)
{
    int status = pk_store_append(of(io)->store, req, entries, n, cb);
    io->capacity = pk_store_capacity(of(io)->store);
    return status;
}

static int truncate_log(struct raft_io *io, raft_index index)
{
    return pk_store_truncate(of(io)->store, index);
}

static int snapshot_put(struct raft_io *io, unsigned trailing,
                        struct raft_io_snapshot_put *req,
                        const struct raft_snapshot *snapshot, raft_io_snapshot_put_cb cb)
{
    return pk_store_snapshot_put(of(io)->store, trailing, req, snapshot, cb);
}

static int snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                        raft_io_snapshot_get_cb cb)
{
    return pk_store_snapshot_get(of(io)->store, req, cb);
}

/* ---- the network half ---- */

static void on_message(void *ctx, struct raft_message *m)
{
    struct pk_uvio *u = ctx;
    if (m->type == RAFT_INSTALL_SNAPSHOT && !pk_store_install(u->store, m)) {
        pk_message_drop(m);
        return;
    }
    u->receive(&u->io, m);
}

static void on_chunk(void *ctx, uint64_t from, const struct pk_snapshot_chunk *c)
{
    struct pk_uvio *u = ctx;
    pk_store_chunk(u->store, from, c);
}

static void on_have(struct pk_uvio *u, uint64_t from, const unsigned char *at)
{
    struct pk_snapshot_id id = {.index = pk_get_u64(at),
                                .term = pk_get_u64(at + 8),
                                .size = pk_get_u64(at + 16),
                                .sum = (uint32_t)pk_get_u64(at + 24)};
    pk_store_have(u->store, from, &id, pk_get_u64(at + 32));
}

static void on_note(void *ctx, uint64_t from, const unsigned char *bytes, size_t len)
{
    struct pk_uvio *u = ctx;
    if (len == MARK_BYTES && bytes[0] == 'M' && u->o.marked != NULL) {
        u->o.marked(u->o.ctx, from, pk_get_u64(bytes + 1), pk_get_u64(bytes + 9));
    } else if (len == HAVE_BYTES && bytes[0] == 'H') {
        on_have(u, from, bytes + 1);
    } else if (len > 0 && bytes[0] == 'S' && u->o.noted != NULL) {
        u->o.noted(u->o.ctx, from, bytes + 1, len - 1);
    }
}

void pk_uvio_note(struct pk_uvio *u, uint64_t peer, const void *bytes, size_t len)
{
    unsigned char note[PK_NOTE_MAX] = {'S'};
    PK_ASSERT(len < sizeof note);
    memcpy(note + 1, bytes, len);
    pk_transport_note(u->transport, peer, note, len + 1);
}

void pk_uvio_tell_mark(struct pk_uvio *u, uint64_t peer, uint64_t index, uint64_t digest)
{
    unsigned char bytes[MARK_BYTES] = {'M'};
    pk_put_u64(bytes + 1, index);
    pk_put_u64(bytes + 9, digest);
    pk_transport_note(u->transport, peer, bytes, sizeof bytes);
}

static void send_chunk(void *ctx, uint64_t peer, const struct pk_snapshot_chunk *c)
{
    struct pk_uvio *u = ctx;
    pk_transport_chunk(u->transport, peer, c);
}

static void send_have(void *ctx, uint64_t peer, const struct pk_snapshot_id *id,
                      uint64_t have)
{
    struct pk_uvio *u = ctx;
    unsigned char bytes[HAVE_BYTES] = {'H'};
    pk_put_u64(bytes + 1, id->index);
    pk_put_u64(bytes + 9, id->term);
    pk_put_u64(bytes + 17, id->size);
    pk_put_u64(bytes + 25, id->sum);
    pk_put_u64(bytes + 33, have);
    pk_transport_note(u->transport, peer, bytes, sizeof bytes);
}

/* A message of our own in the place of the library's. */
struct install {
    struct raft_io_send req;
    unsigned char name[PK_SNAPSHOT_NAME];
};

static void on_install_sent(struct raft_io_send *req, int status)
{
    (void)status;
    pk_door_resize(req, 0); /* its first member */
}

static void send_install(void *ctx, const struct raft_message *m)
{
    struct pk_uvio *u = ctx;
    struct raft_message own = *m;
    struct install *i = pk_door_resize(NULL, sizeof *i);
    memcpy(i->name, m->install_snapshot.data.base, sizeof i->name);
    own.install_snapshot.data.base = i->name;
    if (pk_transport_send(u->transport, &i->req, &own, on_install_sent) != 0) {
        pk_door_resize(i, 0);
    }
}

static int send_message(struct raft_io *io, struct raft_io_send *req,
                        const struct raft_message *m, raft_io_send_cb cb)
{
    if (m->type == RAFT_INSTALL_SNAPSHOT) {
        pk_store_send(of(io)->store, m);
        cb(req, 0); /* after which the library does nothing more with it */
        return 0;
    }
    return pk_transport_send(of(io)->transport, req, m, cb);
}

/* ---- time and chance ---- */

static void look_at_disk(struct pk_uvio *u)
{
    uint64_t durable;
    bool writing = pk_store_is_writing(u->store, &durable);
    if (!writing || durable != u->durable || u->writing_since == 0) {
        u->writing_since = writing ? uv_now(u->o.loop) : 0;
    }
    u->durable = durable;
}

uint64_t pk_uvio_stalled_ms(const struct pk_uvio *u)
{
    return u->writing_since == 0 ? 0 : uv_now(u->o.loop) - u->writing_since;
}

static void on_tick(uv_timer_t *timer)
{
    struct pk_uvio *u = timer->data;
    look_at_disk(u);
    pk_store_tick(u->store);
    u->io.capacity = pk_store_capacity(u->store);
    u->tick(&u->io);
}

static int start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                 raft_io_recv_cb receive)
{
    struct pk_uvio *u = of(io);
    u->tick = tick;
    u->receive = receive;
    pk_transport_start(u->transport, on_message, on_note, on_chunk, u);
    return uv_timer_start(&u->timer, on_tick, msecs, msecs) == 0 ? 0 : RAFT_IOERR;
}

static raft_time now(struct raft_io *io)
{
    return uv_now(of(io)->o.loop);
}

static int draw(struct raft_io *io, int min, int max)
{
    (void)io;
    return min + (int)(pk_random() % (uint64_t)(max - min));
}

/* ---- the end ---- */

static void part_closed(struct pk_uvio *u)
{
    u->open--;
    if (u->open == 0 && u->closed != NULL) {
        u->closed(&u->io);
    }
}

static void on_part_closed(void *ctx)
{
    part_closed(ctx);
}

static void on_store_closed(void *ctx)
{
    struct pk_uvio *u = ctx;
    struct pk_file_disk *files = u->files;
    u->files = NULL;
    pk_file_disk_close(files, on_part_closed, u);
}

static void on_timer_closed(uv_handle_t *h)
{
    part_closed(h->data);
}

/* What was loaded and not taken goes. */
static void unload(struct pk_uvio *u)
{
    PK_ASSERT(u->loading != LOADING);
    if (u->loading == LOADED && u->status == 0) {
        pk_store_unload(u->store, &u->result);
    }
    u->loading = NOT_LOADED;
}

static void close_store(struct pk_uvio *u)
{
    unload(u);
    pk_store_close(u->store, on_store_closed, u);
}

static void close_io(struct raft_io *io, raft_io_close_cb cb)
{
    struct pk_uvio *u = of(io);
    u->closed = cb;
    u->open = 3;
    uv_close((uv_handle_t *)&u->timer, on_timer_closed);
    pk_transport_close(u->transport, on_part_closed, u);
    if (u->store == NULL) {
        u->open--; /* it never came so far */
    } else if (u->loading != LOADING) {
        close_store(u);
    } /* else on_loaded does */
}

/* ---- the whole ---- */

static void free_handle(uv_handle_t *h)
{
    struct pk_uvio *u = h->data;
    pk_door_resize(u, 0);
}

static void free_files(struct pk_uvio *u)
{
    if (u->store != NULL) {
        unload(u);
        pk_store_free(u->store);
    }
    if (u->files != NULL) {
        pk_file_disk_close(u->files, NULL, NULL);
    }
    u->store = NULL;
    u->files = NULL;
}

void pk_uvio_free(struct pk_uvio *u)
{
    free_files(u);
    pk_transport_free(u->transport);
    if (u->closed != NULL) {
        pk_door_resize(u, 0);
    } else {
        uv_close((uv_handle_t *)&u->timer, free_handle);
    }
}

struct pk_uvio *pk_uvio_new(const struct pk_uvio_options *o, char *why, size_t size)
{
    struct pk_uvio *u = pk_door_resize(NULL, sizeof *u);
    *u = (struct pk_uvio){.o = *o,
                          .io = {.version = 1,
                                 .init = init,
                                 .close = close_io,
                                 .load = load,
                                 .start = start,
                                 .bootstrap = bootstrap,
                                 .recover = recover,
                                 .set_term = set_term,
                                 .set_vote = set_vote,
                                 .send = send_message,
                                 .append = append,
                                 .truncate = truncate_log,
                                 .snapshot_put = snapshot_put,
                                 .snapshot_get = snapshot_get,
                                 .time = now,
                                 .random = draw}};
    PK_ASSERT(uv_timer_init(o->loop, &u->timer) == 0);
    u->timer.data = u;
    u->transport = pk_transport_new(o);
    const char *wrong = pk_transport_bind(u->transport);
    if (wrong != NULL) {
        (void)snprintf(why, size, "%s", wrong);
        pk_uvio_free(u);
        return NULL;
    }
    return u;
}

static bool open_folder(struct pk_uvio *u, char *why, size_t size)
{
    char dir[4096];
    struct pk_file_disk_options f = {
        .loop = u->o.loop, .dir = dir, .wrote = on_wrote, .ctx = u};
    if (snprintf(dir, sizeof dir, "%s/raft", u->o.dir) >= (int)sizeof dir) {
        (void)snprintf(why, size, "the path of the data directory is too long");
        return false;
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
        (void)snprintf(why, size, "can't make %s: %s", dir, strerror(errno));
        return false;
    }
    u->files = pk_file_disk_new(&f, why, size);
    return u->files != NULL;
}

bool pk_uvio_open(struct pk_uvio *u, bool fresh, char *why, size_t size)
{
    if (!open_folder(u, why, size)) {
        return false;
    }
    struct pk_store_options s = {
        .disk = pk_file_disk(u->files),
        .owner = {.cluster = u->o.self->cluster, .incarnation = u->o.self->id},
        .log_bytes = u->o.log_bytes,
        .loader = &pk_state_loader,
        .send_chunk = send_chunk,
        .send_have = send_have,
        .send_install = send_install,
        .failed = on_failed,
        .ctx = u};
    u->store = pk_store_new(&s);
    const char *wrong = fresh ? pk_store_create(u->store) : pk_store_open(u->store);
    if (wrong != NULL) {
        (void)snprintf(why, size, "%s", wrong);
        free_files(u);
    }
    return wrong == NULL;
}

struct raft_io *pk_uvio_io(struct pk_uvio *u)
{
    return &u->io;
}

struct pk_transport *pk_uvio_transport(struct pk_uvio *u)
{
    return u->transport;
}

struct pk_log_use pk_uvio_use(void *uvio)
{
    const struct pk_uvio *u = uvio;
    bool ours = u->store != NULL && u->loading != LOADING;
    return ours ? pk_store_use(u->store) : (struct pk_log_use){0};
}

uint16_t pk_uvio_reserve(void)
{
    return PK_STORE_SEGMENT / 1024;
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
