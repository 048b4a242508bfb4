/* SPDX-License-Identifier: MIT */
/*
 * One kind of thing that keeps fences, as include/picket_fence.h offers it. A kind is one
 * file of this folder; resource.c finds it by the URL's scheme, checks names and tokens
 * before it is asked, and lets one thread at a time in. So a kind is plain blocking code,
 * and answers with a status whose sentence it has left in pk_fail().
 *
 * Every kind keeps the rule of core/fencing.h; where it has to be said in another
 * language (SQL, Lua), test/unit/test_resource.c holds it to the same table of cases.
 */
#ifndef PICKET_FENCE_RESOURCE_H
#define PICKET_FENCE_RESOURCE_H

#include <picket_fence.h>
#include <stdbool.h>

#include "core/bytes.h"

struct pk_resource; /* the kind's own */

struct pk_resource_kind {
    const char *scheme; /* of its URLs, without the colon */
    const char *alias;  /* another one; NULL: none */
    const char *form;   /* of its URLs, for people: "sqlite:FILE" */

    /* `url` is the whole of it. */
    enum picket_status (*open)(const char *url, struct pk_resource **out);
    void (*close)(struct pk_resource *r);

    /* As their namesakes; `fence` and all other out-pointers are never NULL. `value` of
     * get is malloc'ed, with a NUL behind it. */
    enum picket_status (*claim)(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence);
    enum picket_status (*check)(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence);
    enum picket_status (*set)(struct pk_resource *r, const char *name, uint64_t token,
                              struct pk_bytes value, uint64_t *fence);
    enum picket_status (*get)(struct pk_resource *r, const char *name, uint64_t token,
                              char **value, size_t *len, uint64_t *fence);
    enum picket_status (*mode)(struct pk_resource *r, const char *name, bool shadow);
    enum picket_status (*show)(struct pk_resource *r, const char *name,
                               struct picket_fence_state *out);
    /* Replaces the value as somebody would who knows of no fence; for the drill, which
     * shows what comes of that. */
    enum picket_status (*overwrite)(struct pk_resource *r, const char *name,
                                    struct pk_bytes value);

    /* For databases; NULL elsewhere. The statements, malloc'ed; and a way to run them. */
    enum picket_status (*sql)(const struct picket_fence_table *t, char **out);
    enum picket_status (*run)(struct pk_resource *r, const char *sql);
};

extern const struct pk_resource_kind pk_resource_local, pk_resource_picket,
    pk_resource_file, pk_resource_sqlite, pk_resource_postgres, pk_resource_mysql,
    pk_resource_redis;

/* Those that are built in, from 0 on; NULL after the last. */
const struct pk_resource_kind *pk_resource_kind_at(size_t i);

/* picket_resource's own, for the drill: see `overwrite` above. */
enum picket_status pk_resource_overwrite(struct picket_resource *r, const char *name,
                                         struct pk_bytes value);

#endif
