/* SPDX-License-Identifier: MIT */
/*
 * Picket's other half: the check on the side of the resource.
 *
 * A fencing token is worth nothing until the thing you protect refuses a lower one. A
 * *resource* here is whatever you write to under a lock; its *fence* is the memory of the
 * highest token it has seen. The rule is always the same: a lower token is refused
 * (PICKET_STALE), an equal one passes, a higher one raises the fence and passes.
 *
 * CLAIM FIRST. A new holder raises the fence before it reads: then no write of an older
 * holder can land between its read and its write. A check without a claim proves nothing.
 *
 * Three ways to use this header:
 *
 *  - picket_resource_*: fences with a small value each, kept by a database, a Redis, a
 *    directory or a Picket store, behind one interface and a URL.
 *  - picket_fence_file_*: replace one file as a whole, fenced.
 *  - picket_resource_over(): your own store, if it has a compare-and-swap.
 *
 * In a database you write in the same transaction as you claim; the functions that
 * `picket fence install` puts there do that, from any language: docs/fencing.md.
 *
 * Tokens are from 1 to 2^53 - 1, of any lock service, as long as they come from one.
 * Names follow the rules of picket.h. Threads: a handle may be used by several at a time,
 * they take turns; closing it is its last use.
 */
#ifndef PICKET_FENCE_H
#define PICKET_FENCE_H

#include <picket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- fences with a value, in whatever keeps them ---- */

struct picket_resource;

/* Opens what keeps the fences:
 *   local:DIR, picket://HOST:PORT,...   the fence registers of a Picket store
 *   file:DIR                            files below DIR, each with its fence beside it
 *   sqlite:FILE                         a database with the fence installed
 *   postgres://USER@HOST/DATABASE
 *   mysql://USER:PASSWORD@HOST/DATABASE
 *   redis://:PASSWORD@HOST:PORT/NUMBER
 * UNSUPPORTED: this library was built without that kind. */
PICKET_CHECKED enum picket_status picket_resource_open(const char *url,
                                                       struct picket_resource **out);
PICKET_API void picket_resource_close(struct picket_resource *r);

/* `fence` (may be NULL) gets the highest token seen, on OK, STALE and UNCLAIMED alike. On
 * OK with *fence > token the fence is in shadow mode, and would have refused. STORE: the
 * fence is not installed there, or of another version. */
PICKET_CHECKED enum picket_status picket_resource_claim(struct picket_resource *r,
                                                        const char *name, uint64_t token,
                                                        uint64_t *fence);
/* OK only while `token` is the one that claimed last. Changes nothing. */
PICKET_CHECKED enum picket_status picket_resource_check(struct picket_resource *r,
                                                        const char *name, uint64_t token,
                                                        uint64_t *fence);
/* Raises the fence if need be and replaces the value, in one step. */
PICKET_CHECKED enum picket_status picket_resource_set(struct picket_resource *r,
                                                      const char *name, uint64_t token,
                                                      const void *value, size_t len,
                                                      uint64_t *fence);
/* The value, malloc'ed and NUL-terminated; a token raises the fence as a claim does, 0
 * reads as anybody. NOTFOUND: nobody has claimed or set it. */
PICKET_CHECKED enum picket_status picket_resource_get(struct picket_resource *r,
                                                      const char *name, uint64_t token,
                                                      char **value, size_t *len,
                                                      uint64_t *fence);
/* Shadow mode: what would have been refused is let through and counted, until enforcement
 * is switched on. A name that is not known yet gets a fence that stands at 0. */
PICKET_CHECKED enum picket_status picket_resource_mode(struct picket_resource *r,
                                                       const char *name, int shadow);
PICKET_CHECKED enum picket_status picket_resource_show(struct picket_resource *r,
                                                       const char *name,
                                                       struct picket_fence_state *out);

/* ---- putting the fence into a database ---- */

struct picket_fence_table {
    const char *table;    /* an existing table, to be guarded by a trigger; NULL: none */
    const char *column;   /* its integer column with the writer's token */
    const char *resource; /* the fence that guards it; NULL: the table's name */
};

/* The statements for the database of that URL (nothing is asked of it), malloc'ed. `t`
 * may be NULL. UNSUPPORTED: this kind of resource needs no installation. */
PICKET_CHECKED enum picket_status
picket_fence_sql(const char *url, const struct picket_fence_table *t, char **sql);
/* Runs them, in one transaction where the database has that. Again is fine. */
PICKET_CHECKED enum picket_status
picket_fence_install(const char *url, const struct picket_fence_table *t);

/* ---- one file, replaced as a whole ---- */

/* The fence is a small file beside it, ".NAME.fence". Whatever happens to the writer, a
 * reader of PATH sees the old file or the new one. */
struct picket_fence_file;

/* Claims the file for `token` and opens a temporary file beside it, to be written through
 * picket_fence_file_fd(). */
PICKET_CHECKED enum picket_status picket_fence_file_open(const char *path, uint64_t token,
                                                         uint64_t *fence,
                                                         struct picket_fence_file **out);
PICKET_API int picket_fence_file_fd(const struct picket_fence_file *f);
/* Syncs what was written, checks again and puts it in place, or refuses; frees `f` in any
 * case. On OK the new file is on disk. */
PICKET_CHECKED enum picket_status picket_fence_file_commit(struct picket_fence_file *f,
                                                           uint64_t *fence);
/* Leaves the file as it was. NULL is fine. */
PICKET_API void picket_fence_file_abandon(struct picket_fence_file *f);

/* ---- anything with a compare-and-swap ---- */

enum { PICKET_VERSION_MAX = 80 };

/* What a store of yours keeps for one name. */
struct picket_cell {
    struct picket_fence_state fence;  /* all zero: nobody has claimed it */
    char version[PICKET_VERSION_MAX]; /* yours: revision, ETag...; "" for none yet */
    const void *value;                /* NULL: swap leaves it as it is */
    size_t len;
};

struct picket_cas {
    void *ctx;
    /* Reads the cell; what is not there is all zero, and OK. The value is malloc'ed, and
     * only wanted if `with_value`. */
    enum picket_status (*load)(void *ctx, const char *name, int with_value,
                               struct picket_cell *out);
    /* Replaces it if its version is still `version`, durably, in one step; BUSY: it isn't
     * any more, nothing was done. */
    enum picket_status (*compare_and_swap)(void *ctx, const char *name,
                                           const char *version,
                                           const struct picket_cell *next);
    void (*close)(void *ctx); /* may be NULL */
};

/* A resource over it: the rule is ours, the store yours. `cas` is copied. */
PICKET_CHECKED enum picket_status picket_resource_over(const struct picket_cas *cas,
                                                       struct picket_resource **out);

#ifdef __cplusplus
}
#endif

#endif
