/* SPDX-License-Identifier: MIT */
#include "raft/recover.h"

#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "host/fd.h"
#include "raft/file_disk.h"
#include "raft/identity.h"
#include "raft/inside.h"
#include "raft/store.h"

static void on_failed(void *ctx, const char *why)
{
    (void)ctx; /* the store's functions return the error, too */
    (void)why;
}

static void free_loaded(struct pk_store_loaded *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (i + 1 == l->n || l->entries[i + 1].batch != l->entries[i].batch) {
            raft_free(l->entries[i].batch);
        }
    }
    raft_free(l->entries);
    if (l->snapshot != NULL) {
        raft_configuration_close(&l->snapshot->configuration);
        raft_free(l->snapshot->bufs[0].base);
        raft_free(l->snapshot->bufs);
        raft_free(l->snapshot);
    }
}

/* Where the backup goes. */
struct sink {
    bool (*write)(void *ctx, const void *bytes, size_t len);
    void *ctx;
    bool done; /* all of it was written */
};

static void write_backup(struct pk_replica *r, struct sink *to)
{
    struct pk_backup_of of;
    unsigned char *room = pk_door_resize(NULL, PK_BACKUP_SLICE);
    enum pk_source_state got = PK_SOURCE_MORE;
    bool good = pk_replica_backup_begin(r, &of);
    while (good && got == PK_SOURCE_MORE) {
        size_t n;
        got = pk_replica_backup_read(r, room, PK_BACKUP_SLICE, &n);
        good = to->write(to->ctx, room, n);
    }
    to->done = good && got == PK_SOURCE_END;
    pk_door_resize(room, 0);
}

static void make_backup(const struct pk_store_loaded *l, struct sink *to,
                        struct pk_recovered *out, char *why, size_t size)
{
    struct pk_replica *r = pk_state_offline(l->snapshot, l->entries, l->n, l->start);
    if (!r->broken) {
        write_backup(r, to);
    }
    if (r->broken) {
        (void)snprintf(why, size, "%s", r->why);
    }
    pk_state_free(r);
    pk_door_resize(r, 0);
    bool any = l->n > 0;
    out->index = any ? l->start + l->n - 1 : l->snapshot == NULL ? 0 : l->snapshot->index;
    out->term = any                   ? l->entries[l->n - 1].term
                : l->snapshot == NULL ? 0
                                      : l->snapshot->term;
}

static void read_log(struct pk_disk *disk, const struct pk_identity *id, struct sink *to,
                     struct pk_recovered *out, char *why, size_t size)
{
    struct pk_store_options o = {.disk = disk,
                                 .owner = {id->cluster, id->id},
                                 .loader = &pk_state_loader,
                                 .failed = on_failed};
    struct pk_store *store = pk_store_new(&o);
    struct pk_store_loaded l;
    const char *wrong = pk_store_open(store);
    if (wrong == NULL && pk_store_load(store, &l) != 0) {
        wrong = pk_store_why(store);
    }
    if (wrong != NULL) {
        (void)snprintf(why, size, "%s", wrong);
    } else {
        make_backup(&l, to, out, why, size);
        free_loaded(&l);
    }
    pk_store_free(store);
}

bool pk_recover(const char *dir, bool (*write)(void *ctx, const void *bytes, size_t len),
                void *ctx, struct pk_recovered *out, char *why, size_t size)
{
    struct sink to = {.write = write, .ctx = ctx};
    struct pk_identity id;
    bool fresh = false;
    char raft[4096];
    *out = (struct pk_recovered){0};
    _Static_assert(sizeof out->name == PK_NODE_NAME_MAX, "a node's name must fit");
    int lock = pk_identity_open(dir, &id, &fresh, why, size);
    if (lock < 0) {
        return false;
    }
    if (fresh || id.cluster == 0) {
        (void)snprintf(why, size, "%s belongs to no cluster: there is nothing in it",
                       dir);
        pk_fd_close(&lock);
        return false;
    }
    (void)snprintf(out->name, sizeof out->name, "%s", id.name);
    (void)snprintf(raft, sizeof raft, "%s/raft", dir);
    struct pk_file_disk_options f = {.dir = raft};
    struct pk_file_disk *files = pk_file_disk_new(&f, why, size);
    if (files != NULL) {
        read_log(pk_file_disk(files), &id, &to, out, why, size);
        pk_file_disk_close(files, NULL, NULL);
    }
    pk_fd_close(&lock);
    return to.done;
}
