/* SPDX-License-Identifier: MIT */
#include "sim_disk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "raft/log_format.h"

/* ---- files ---- */

struct sim_file *sim_disk_find(struct sim_disk *d, const char *name)
{
    for (uint32_t i = 0; i < d->n_files; i++) {
        if (strcmp(d->files[i].name, name) == 0) {
            return &d->files[i];
        }
    }
    return NULL;
}

static struct sim_file *make_file(struct sim_disk *d, const char *name)
{
    struct sim_file *f = sim_disk_find(d, name);
    if (f == NULL) {
        PK_ASSERT(d->n_files < SIM_FILES_MAX);
        f = &d->files[d->n_files++];
        *f = (struct sim_file){0};
        (void)snprintf(f->name, sizeof f->name, "%s", name);
    }
    return f;
}

static void lose_file(struct sim_disk *d, struct sim_file *f)
{
    pk_door_resize(f->bytes, 0);
    pk_door_resize(f->synced, 0);
    *f = d->files[--d->n_files];
}

static void grow(struct sim_file *f, size_t len)
{
    if (len > f->capacity) {
        f->bytes = pk_door_resize(f->bytes, len);
        f->capacity = len;
    }
    if (len > f->len) {
        memset(f->bytes + f->len, 0, len - f->len);
        f->len = len;
    }
}

/* ---- operations ---- */

static size_t length_of(const struct pk_disk_op *op)
{
    size_t len = 0;
    for (unsigned i = 0; i < op->n_parts; i++) {
        len += op->parts[i].len;
    }
    return len;
}

static size_t end_of(const struct pk_disk_op *op)
{
    size_t end = (size_t)op->offset + length_of(op);
    return op->kind == PK_DISK_STORE && op->size > end ? (size_t)op->size : end;
}

/* The byte of an operation at `at` of its file. */
static unsigned char byte_of(const struct pk_disk_op *op, size_t at)
{
    at -= (size_t)op->offset;
    unsigned i = 0;
    while (at >= op->parts[i].len) {
        at -= op->parts[i++].len;
    }
    return op->parts[i].bytes[at];
}

static bool grows_file(const struct pk_disk_op *op)
{
    return op->kind == PK_DISK_STORE || op->kind == PK_DISK_WRITE;
}

static bool lacks_room(struct sim_disk *d, const struct pk_disk_op *op)
{
    const struct sim_file *f = sim_disk_find(d, op->name);
    return d->full && grows_file(op) &&
           (f == NULL || f->len < (size_t)op->offset + length_of(op));
}

/* What a power cut may bring back. */
static void keep_synced(struct sim_file *f)
{
    if (f->synced == NULL) {
        f->synced = pk_door_resize(NULL, f->len + 1);
        f->synced_len = f->len;
        if (f->len > 0) {
            memcpy(f->synced, f->bytes, f->len);
        }
    }
}

static void sync_file(struct sim_file *f)
{
    if (f != NULL) {
        f->synced = pk_door_resize(f->synced, 0);
    }
}

static void write_all(struct sim_disk *d, const struct pk_disk_op *op)
{
    struct sim_file *f = make_file(d, op->name);
    size_t at = (size_t)op->offset;
    PK_ASSERT(grows_file(op) || at + length_of(op) <= f->len);
    if (op->kind == PK_DISK_WRITE) {
        keep_synced(f);
    }
    if (!d->full || f->len < at + length_of(op)) {
        grow(f, end_of(op));
    }
    for (unsigned i = 0; i < op->n_parts; i++) {
        if (op->parts[i].len > 0) {
            memcpy(f->bytes + at, op->parts[i].bytes, op->parts[i].len);
        }
        at += op->parts[i].len;
    }
    if (op->kind == PK_DISK_STORE) {
        sync_file(f);
    }
}

static int read_all(struct sim_disk *d, struct pk_disk_op *op)
{
    const struct sim_file *f = sim_disk_find(d, op->name);
    op->bytes = NULL;
    op->len = 0;
    if (f == NULL) {
        return ENOENT;
    }
    size_t from = (size_t)op->offset < f->len ? (size_t)op->offset : f->len;
    size_t rest = f->len - from;
    op->len = op->size != 0 && op->size < rest ? (size_t)op->size : rest;
    op->bytes = pk_door_resize(NULL, op->len + 1);
    if (op->len > 0) {
        memcpy(op->bytes, f->bytes + from, op->len);
    }
    return 0;
}

static bool is_to_fail(struct sim_disk *d, const struct pk_disk_op *op)
{
    bool counts = d->fail_kinds == 0 || ((d->fail_kinds >> op->kind) & 1) != 0;
    bool fails = counts && d->fail_in > 0 && --d->fail_in == 0;
    d->failed[op->kind] += fails;
    return fails;
}

static void count_no_space(struct sim_disk *d, const struct pk_disk_op *op)
{
    bool segment = strncmp(op->name, "log-", 4) == 0;
    d->no_space_segments += segment;
    d->no_space_snapshots += !segment;
}

static int do_op(struct sim_disk *d, struct pk_disk_op *op)
{
    if (is_to_fail(d, op)) {
        return EIO;
    }
    switch (op->kind) {
    case PK_DISK_OVERWRITE:
    case PK_DISK_STORE:
    case PK_DISK_WRITE:
        if (op->kind == PK_DISK_WRITE && sim_disk_find(d, op->name) == NULL) {
            return ENOENT;
        }
        if (lacks_room(d, op)) {
            count_no_space(d, op);
            return ENOSPC;
        }
        write_all(d, op);
        return 0;
    case PK_DISK_READ:
        return read_all(d, op);
    case PK_DISK_SYNC:
        sync_file(sim_disk_find(d, op->name));
        return 0;
    }
    return EINVAL;
}

static void forget_op(struct sim_disk *d, struct pk_disk_op *op)
{
    struct pk_disk_op **at = &d->under_way;
    while (*at != op) {
        at = &(*at)->next;
    }
    *at = op->next;
}

void sim_disk_finish(struct sim_disk *d, struct pk_disk_op *op)
{
    forget_op(d, op);
    int error = do_op(d, op);
    op->done(op, error);
}

/* ---- as a pk_disk ---- */

static void submit(void *ctx, struct pk_disk_op *op)
{
    struct sim_disk *d = ctx;
    op->next = d->under_way;
    d->under_way = op;
    d->begun(d->ctx, op);
}

static int now(void *ctx, struct pk_disk_op *op)
{
    return do_op(ctx, op);
}

static int note(void *ctx, const char *name, uint64_t offset, const void *bytes,
                size_t len)
{
    struct sim_disk *d = ctx;
    struct sim_file *f = sim_disk_find(d, name);
    if (f == NULL || offset + len > f->len) {
        return ENOENT;
    }
    keep_synced(f);
    memcpy(f->bytes + offset, bytes, len);
    return 0;
}

static int list(void *ctx, void (*each)(void *arg, const char *name, uint64_t size),
                void *arg)
{
    struct sim_disk *d = ctx;
    for (uint32_t i = 0; i < d->n_files; i++) {
        each(arg, d->files[i].name, d->files[i].len);
    }
    return 0;
}

static uint64_t room(void *ctx)
{
    const struct sim_disk *d = ctx;
    return d->full && !d->overstates ? 0 : UINT64_MAX;
}

void sim_disk_init(struct sim_disk *d)
{
    *d = (struct sim_disk){.disk = {.ctx = d,
                                    .submit = submit,
                                    .now = now,
                                    .note = note,
                                    .list = list,
                                    .room = room}};
}

void sim_disk_wipe(struct sim_disk *d)
{
    PK_ASSERT(d->under_way == NULL);
    while (d->n_files > 0) {
        lose_file(d, &d->files[0]);
    }
}

void sim_disk_free(struct sim_disk *d)
{
    d->under_way = NULL;
    sim_disk_wipe(d);
}

/* ---- crashes ---- */

/* How much of an operation gets to the disk: nothing, all, a beginning, any sectors. */
enum reach { NOTHING, ALL, BEGINNING, ANY_SECTORS, REACHES };

static void tear(struct sim_disk *d, const struct pk_disk_op *op, struct rng *rng)
{
    enum reach how = (enum reach)rng_below(rng, REACHES);
    bool writes = op->kind == PK_DISK_OVERWRITE || grows_file(op);
    if (!writes || how == NOTHING || lacks_room(d, op)) {
        d->lost += writes;
        return;
    }
    size_t len = length_of(op);
    size_t sectors = (len + PK_SECTOR - 1) / PK_SECTOR;
    size_t kept = how == BEGINNING ? (size_t)rng_below(rng, sectors + 1) : sectors;
    struct sim_file *f = make_file(d, op->name);
    size_t wanted =
        (size_t)op->offset + (kept * PK_SECTOR < len ? kept * PK_SECTOR : len);
    grow(f, wanted);
    for (size_t i = 0; i < kept; i++) {
        if (how == ANY_SECTORS && rng_chance(rng, 500)) {
            continue;
        }
        for (size_t at = i * PK_SECTOR; at < (i + 1) * PK_SECTOR && at < len; at++) {
            f->bytes[op->offset + at] = byte_of(op, (size_t)op->offset + at);
        }
    }
    d->torn += how != ALL;
}

void sim_disk_crash(struct sim_disk *d, struct rng *rng, bool power)
{
    for (; d->under_way != NULL; d->under_way = d->under_way->next) {
        tear(d, d->under_way, rng);
    }
    d->fail_in = 0;
    d->fail_kinds = 0;
    for (uint32_t i = 0; i < d->n_files; i++) {
        struct sim_file *f = &d->files[i];
        if (f->synced != NULL && power && rng_chance(rng, 700)) {
            f->len = f->synced_len;
            memcpy(f->bytes, f->synced, f->len);
        }
        sync_file(f);
    }
}

/* ---- damage ---- */

void sim_disk_damage(struct sim_disk *d, struct sim_file *f, enum sim_damage how,
                     struct rng *rng)
{
    size_t at = f->len == 0 ? 0 : (size_t)rng_below(rng, f->len);
    if (how == SIM_LOSE || f->len == 0) {
        lose_file(d, f);
    } else if (how == SIM_CUT) {
        f->len = at;
    } else if (how == SIM_FLIP) {
        f->bytes[at] ^= (unsigned char)(1U << rng_below(rng, 8));
    } else {
        size_t from = at / PK_SECTOR * PK_SECTOR;
        size_t len = f->len - from < PK_SECTOR ? f->len - from : PK_SECTOR;
        memset(f->bytes + from, 0, len);
    }
}
