/* SPDX-License-Identifier: MIT */
#include "raft/backup.h"

#include <string.h>

#include "core/door.h"
#include "core/machine.h"
#include "core/version.h"
#include "core/wire.h"
#include "host/version.h"

static const unsigned char magic[4] = {'P', 'K', 'B', 'K'};

enum {
    AT_VERSION = sizeof magic,
    HEAD_BYTES = AT_VERSION + 1,
    DIGEST_BYTES = 8,
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- making ---- */

/*
 *     HEAD      the first bytes are being read
 *     MACHINE   the machine's view is
 *     DIGEST    the last bytes are; the view has ended
 *     DONE      everything was read
 *     UNSOUND   the machine's digest was wrong
 *     ENDED     by pk_backup_end
 */
enum backup_state { HEAD, MACHINE, DIGEST, DONE, UNSOUND, ENDED };

struct pk_backup {
    enum backup_state state;
    struct pk_machine *machine;
    uint64_t digest; /* of the bytes that were read */
    size_t at;       /* in the head or the digest */
    unsigned char head[HEAD_BYTES];
};

struct pk_backup *pk_backup_begin(struct pk_machine *m)
{
    struct pk_backup *b = pk_door_resize(NULL, sizeof *b);
    *b = (struct pk_backup){.machine = m, .digest = PK_DIGEST_START};
    memcpy(b->head, magic, sizeof magic);
    b->head[AT_VERSION] = (unsigned char)pk_machine_version(m);
    pk_view_begin(m);
    return b;
}

static size_t read_fixed(struct pk_backup *b, const unsigned char *from, size_t len,
                         unsigned char *to, size_t room)
{
    size_t n = least(room, len - b->at);
    memcpy(to, from + b->at, n);
    b->at += n;
    if (b->at == len) {
        b->state++;
        b->at = 0;
    }
    return n;
}

static size_t read_machine(struct pk_backup *b, unsigned char *to, size_t room)
{
    size_t n = pk_view_read(b->machine, to, room);
    if (pk_view_is_done(b->machine)) {
        b->state = pk_view_is_sound(b->machine) ? DIGEST : UNSOUND;
        pk_view_end(b->machine);
    }
    return n;
}

enum pk_source_state pk_backup_read(struct pk_backup *b, unsigned char *to, size_t room,
                                    size_t *n)
{
    *n = 0;
    if (b->state == HEAD) {
        *n += read_fixed(b, b->head, sizeof b->head, to, room);
    }
    if (b->state == MACHINE && *n < room) {
        *n += read_machine(b, to + *n, room - *n);
    }
    if (b->state < DIGEST || (b->state == DIGEST && b->at == 0)) {
        b->digest = pk_digest(b->digest, to, *n);
    }
    if (b->state == DIGEST && *n < room) {
        unsigned char digest[DIGEST_BYTES];
        pk_put_u64(digest, b->digest);
        *n += read_fixed(b, digest, sizeof digest, to + *n, room - *n);
    }
    return b->state < DONE    ? PK_SOURCE_MORE
           : b->state == DONE ? PK_SOURCE_END
                              : PK_SOURCE_GONE;
}

bool pk_backup_is_unsound(const struct pk_backup *b)
{
    return b->state == UNSOUND;
}

bool pk_backup_views(const struct pk_backup *b)
{
    return b->state < DIGEST;
}

void pk_backup_end(struct pk_backup *b)
{
    if (pk_backup_views(b)) {
        pk_view_end(b->machine);
        b->state = ENDED;
    }
}

void pk_backup_free(struct pk_backup *b)
{
    if (b != NULL) {
        pk_backup_end(b);
        pk_door_resize(b, 0);
    }
}

/* ---- reading ---- */

/* The end of a stream is not known before it has come: the last bytes so far are held
 * back, since they may be the digest. */
struct pk_backup_reader {
    struct pk_restore *restore;
    uint64_t taken;  /* bytes before those that are held back */
    uint64_t digest; /* of these */
    unsigned char head[HEAD_BYTES];
    unsigned char held[DIGEST_BYTES];
    size_t n_held;
};

static struct pk_backup_reader *new_reader(struct pk_restore *restore)
{
    struct pk_backup_reader *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct pk_backup_reader){.restore = restore, .digest = PK_DIGEST_START};
    return r;
}

struct pk_backup_reader *pk_backup_reader_new(void)
{
    return new_reader(pk_restore_begin());
}

struct pk_backup_reader *pk_backup_checker_new(void)
{
    return new_reader(pk_restore_scan());
}

uint32_t pk_backup_version(const struct pk_backup_reader *r)
{
    bool ours = r->taken >= HEAD_BYTES && memcmp(r->head, magic, sizeof magic) == 0;
    return ours ? r->head[AT_VERSION] : 0;
}

static void take(struct pk_backup_reader *r, const unsigned char *bytes, size_t len)
{
    r->digest = pk_digest(r->digest, bytes, len);
    if (r->taken < HEAD_BYTES) {
        size_t n = least(HEAD_BYTES - (size_t)r->taken, len);
        memcpy(r->head + r->taken, bytes, n);
        r->taken += n;
        bytes += n;
        len -= n;
    }
    r->taken += len;
    if (len > 0 && pk_backup_version(r) != 0) {
        (void)pk_restore_feed(r->restore, bytes, len); /* the end says if it failed */
    }
}

void pk_backup_feed(struct pk_backup_reader *r, const unsigned char *bytes, size_t len)
{
    size_t keep = least(len, DIGEST_BYTES);
    size_t all = r->n_held + keep;
    size_t over = all > DIGEST_BYTES ? all - DIGEST_BYTES : 0;
    take(r, r->held, over);
    take(r, bytes, len - keep);
    memmove(r->held, r->held + over, r->n_held - over);
    memcpy(r->held + r->n_held - over, bytes + len - keep, keep);
    r->n_held = all - over;
}

const char *pk_backup_wrong(const struct pk_backup_reader *r)
{
    uint32_t version = pk_backup_version(r);
    if (version == 0) {
        return "this is not a backup";
    }
    if (r->n_held < DIGEST_BYTES || r->digest != pk_get_u64(r->held)) {
        return "the backup is damaged or not complete";
    }
    if (!pk_version_runs(version)) {
        return pk_version_needed("the backup", version);
    }
    bool whole =
        pk_restore_version(r->restore) == version && pk_restore_is_complete(r->restore);
    return whole ? NULL : "the state in the backup can't be read";
}

struct pk_machine *pk_backup_reader_end(struct pk_backup_reader *r)
{
    struct pk_machine *m = pk_restore_take(r->restore);
    pk_door_resize(r, 0);
    return m;
}
