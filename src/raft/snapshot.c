/* SPDX-License-Identifier: MIT */
#include "raft/snapshot.h"

#include <raft.h>
#include <string.h>

#include "core/door.h"
#include "core/machine.h"
#include "core/version.h"
#include "core/wire.h"
#include "raft/backup.h"

static const char state_magic[4] = {'P', 'K', 'F', 'S'};

enum {
    AT_VERSION = sizeof state_magic,
    AT_ENTRY = AT_VERSION + 1,
    AT_STAGED = AT_ENTRY + 8,
    AT_DIGEST = AT_STAGED + 8,
    HEAD_BYTES = AT_DIGEST + 8,
};

/* ---- staging ---- */

struct pk_staging *pk_staging_new(void)
{
    struct pk_staging *s = pk_door_resize(NULL, sizeof *s);
    *s = (struct pk_staging){.refs = 1};
    return s;
}

void pk_staging_add(struct pk_staging *s, const void *bytes, size_t len)
{
    if (len == 0) {
        return;
    }
    struct pk_staged_piece *p = pk_door_resize(NULL, sizeof *p + len);
    p->next = NULL;
    p->len = len;
    memcpy(p->bytes, bytes, len);
    *(s->last == NULL ? &s->first : &s->last->next) = p;
    s->last = p;
    s->len += len;
    if (s->reader == NULL) {
        s->reader = pk_backup_reader_new();
    }
    pk_backup_feed(s->reader, p->bytes, len);
}

struct pk_machine *pk_staging_take_machine(struct pk_staging *s)
{
    struct pk_backup_reader *reader = s->reader;
    s->reader = NULL;
    return reader == NULL ? NULL : pk_backup_reader_end(reader);
}

bool pk_staging_free_piece(struct pk_staging *s)
{
    struct pk_staged_piece *p = s->first;
    PK_ASSERT(s->refs == 1);
    if (p != NULL) {
        s->first = p->next;
        pk_door_resize(p, 0);
    }
    return p != NULL;
}

void pk_staging_drop(struct pk_staging *s)
{
    if (s == NULL) {
        return;
    }
    if (s->refs > 1) {
        s->refs--;
        return;
    }
    while (pk_staging_free_piece(s)) {
    }
    pk_machine_free(pk_staging_take_machine(s));
    pk_door_resize(s, 0);
}

/* ---- taking ---- */

/*
 *     HEAD      the fields before the staged backup are being read
 *     STAGED    the staged backup is
 *     MACHINE   the machine's view is
 *     DONE      everything was read
 *     UNSOUND   everything was read, and the digest was wrong
 *     ENDED     by pk_state_view_end
 */
enum view_state { HEAD, STAGED, MACHINE, DONE, UNSOUND, ENDED };

struct pk_state_view {
    struct pk_snapshot_source source;
    enum view_state state;
    struct pk_machine *machine;
    struct pk_staging *staging;
    const struct pk_staged_piece *piece;
    size_t piece_at;      /* bytes of it that were read */
    uint64_t staged_left; /* what the backup has got since is not part of the snapshot */
    unsigned char head[HEAD_BYTES];
    size_t head_at;
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t read_head(struct pk_state_view *v, unsigned char *to, size_t room)
{
    size_t n = least(room, HEAD_BYTES - v->head_at);
    memcpy(to, v->head + v->head_at, n);
    v->head_at += n;
    v->state = v->head_at == HEAD_BYTES ? STAGED : HEAD;
    return n;
}

static size_t read_staged(struct pk_state_view *v, unsigned char *to, size_t room)
{
    size_t n = 0;
    while (v->staged_left > 0 && n < room) {
        size_t part = least(room - n, v->piece->len - v->piece_at);
        memcpy(to + n, v->piece->bytes + v->piece_at, part);
        n += part;
        v->piece_at += part;
        v->staged_left -= part;
        if (v->piece_at == v->piece->len) {
            v->piece = v->piece->next;
            v->piece_at = 0;
        }
    }
    v->state = v->staged_left == 0 ? MACHINE : STAGED;
    return n;
}

static size_t read_machine(struct pk_state_view *v, unsigned char *to, size_t room)
{
    size_t n = pk_view_read(v->machine, to, room);
    if (pk_view_is_done(v->machine)) {
        v->state = pk_view_is_sound(v->machine) ? DONE : UNSOUND;
        pk_view_end(v->machine);
    }
    return n;
}

static enum pk_source_state read_view(void *ctx, unsigned char *to, size_t room,
                                      size_t *n)
{
    struct pk_state_view *v = ctx;
    *n = 0;
    if (v->state == HEAD) {
        *n += read_head(v, to, room);
    }
    if (v->state == STAGED) {
        *n += read_staged(v, to + *n, room - *n);
    }
    if (v->state == MACHINE && *n < room) {
        *n += read_machine(v, to + *n, room - *n);
    }
    return v->state < DONE    ? PK_SOURCE_MORE
           : v->state == DONE ? PK_SOURCE_END
                              : PK_SOURCE_GONE;
}

struct pk_state_view *pk_state_view_begin(const struct pk_state *s)
{
    struct pk_state_view *v = pk_door_resize(NULL, sizeof *v);
    *v = (struct pk_state_view){.machine = s->machine,
                                .staging = s->staging,
                                .piece = s->staging->first,
                                .staged_left = s->staging->len};
    v->source = (struct pk_snapshot_source){.ctx = v, .read = read_view};
    v->staging->refs++;
    memcpy(v->head, state_magic, sizeof state_magic);
    v->head[AT_VERSION] = (unsigned char)pk_machine_version(s->machine);
    pk_put_u64(v->head + AT_ENTRY, s->last_entry);
    pk_put_u64(v->head + AT_STAGED, s->staging->len);
    pk_put_u64(v->head + AT_DIGEST, pk_digest(PK_DIGEST_START, v->head, AT_DIGEST));
    pk_view_begin(v->machine);
    return v;
}

struct pk_snapshot_source *pk_state_view_source(struct pk_state_view *v)
{
    return &v->source;
}

void pk_state_view_end(struct pk_state_view *v)
{
    if (v->state < DONE) {
        pk_view_end(v->machine);
        v->state = ENDED;
    }
}

bool pk_state_view_is_unsound(const struct pk_state_view *v)
{
    return v->state == UNSOUND;
}

void pk_state_view_free(struct pk_state_view *v)
{
    if (v != NULL) {
        pk_state_view_end(v);
        pk_staging_drop(v->staging);
        pk_door_resize(v, 0);
    }
}

/* ---- loading ---- */

struct load {
    unsigned char head[HEAD_BYTES];
    size_t head_at;
    uint32_t version; /* of the state, once the head has come and checks */
    uint64_t staged_left;
    uint64_t last_entry;
    struct pk_staging *staging;
    struct pk_restore *restore;
};

static void *begin_load(void)
{
    struct load *l = pk_door_resize(NULL, sizeof *l);
    *l = (struct load){.staging = pk_staging_new(), .restore = pk_restore_begin()};
    return l;
}

static bool open_head(struct load *l)
{
    l->last_entry = pk_get_u64(l->head + AT_ENTRY);
    l->staged_left = pk_get_u64(l->head + AT_STAGED);
    uint64_t digest = pk_digest(PK_DIGEST_START, l->head, AT_DIGEST);
    if (memcmp(l->head, state_magic, sizeof state_magic) != 0 ||
        pk_get_u64(l->head + AT_DIGEST) != digest) {
        return false;
    }
    l->version = l->head[AT_VERSION];
    return pk_version_runs(l->version) && l->staged_left <= PK_BACKUP_MAX;
}

static bool feed_load(void *load, const unsigned char *bytes, size_t len)
{
    struct load *l = load;
    if (l->head_at < HEAD_BYTES) {
        size_t n = least(len, HEAD_BYTES - l->head_at);
        memcpy(l->head + l->head_at, bytes, n);
        l->head_at += n;
        bytes += n;
        len -= n;
        if (l->head_at == HEAD_BYTES && !open_head(l)) {
            return false;
        }
    }
    if (l->staged_left > 0 && len > 0) {
        size_t n = l->staged_left < len ? (size_t)l->staged_left : len;
        pk_staging_add(l->staging, bytes, n);
        l->staged_left -= n;
        bytes += n;
        len -= n;
    }
    return len == 0 || pk_restore_feed(l->restore, bytes, len);
}

static uint32_t load_needs(const void *load)
{
    const struct load *l = load;
    return pk_version_runs(l->version) ? 0 : l->version;
}

static void *end_load(void *load)
{
    struct load *l = load;
    bool same = pk_restore_version(l->restore) == l->version;
    struct pk_machine *m = pk_restore_end(l->restore);
    struct pk_state *s = NULL;
    if (m != NULL && !same) {
        pk_machine_free(m);
        m = NULL;
    }
    if (m != NULL) {
        s = pk_door_resize(NULL, sizeof *s);
        *s = (struct pk_state){m, l->last_entry, l->staging};
    } else {
        pk_staging_drop(l->staging);
    }
    pk_door_resize(l, 0);
    return s;
}

static void drop_state(void *state)
{
    struct pk_state *s = state;
    pk_machine_free(s->machine);
    pk_staging_drop(s->staging);
    pk_door_resize(s, 0);
}

const struct pk_snapshot_loader pk_state_loader = {
    .begin = begin_load,
    .feed = feed_load,
    .needs = load_needs,
    .end = end_load,
    .drop = drop_state,
};

/* ---- handles ---- */

void pk_snapshot_handle_init(struct pk_snapshot_handle *h)
{
    *h = (struct pk_snapshot_handle){.self = h};
}

struct pk_snapshot_handle *pk_snapshot_handle_of(const struct raft_buffer *b)
{
    struct pk_snapshot_handle *h = b->base;
    return b->len == sizeof *h && h->self == h ? h : NULL;
}

bool pk_snapshot_same(const struct pk_snapshot_id *a, const struct pk_snapshot_id *b)
{
    return a->index == b->index && a->term == b->term && a->size == b->size &&
           a->sum == b->sum;
}
