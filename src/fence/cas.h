/* SPDX-License-Identifier: MIT */
/*
 * Fences over a compare-and-swap: what is left to a store that can do that much (struct
 * picket_cas in include/picket_fence.h). The rule is that of core/fencing.h; here it is
 * applied to the state of one fence, with its shadow mode.
 */
#ifndef PICKET_FENCE_CAS_H
#define PICKET_FENCE_CAS_H

#include "fence/resource.h"

/* F1, and F6 for shadow mode, on a state: OK and the state as it becomes by this token,
 * or STALE and the state as it was. */
enum picket_status pk_cas_admit(struct picket_fence_state *state, uint64_t token);
bool pk_cas_same(const struct picket_fence_state *a, const struct picket_fence_state *b);

/* A resource of a kind whose verbs are PK_CAS_VERBS. `cas` is copied. */
struct pk_resource *pk_cas_new(const struct picket_cas *cas);
void pk_cas_close(struct pk_resource *r);

enum picket_status pk_cas_claim(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence);
enum picket_status pk_cas_check(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence);
enum picket_status pk_cas_set(struct pk_resource *r, const char *name, uint64_t token,
                              struct pk_bytes value, uint64_t *fence);
enum picket_status pk_cas_get(struct pk_resource *r, const char *name, uint64_t token,
                              char **value, size_t *len, uint64_t *fence);
enum picket_status pk_cas_mode(struct pk_resource *r, const char *name, bool shadow);
enum picket_status pk_cas_show(struct pk_resource *r, const char *name,
                               struct picket_fence_state *out);
enum picket_status pk_cas_overwrite(struct pk_resource *r, const char *name,
                                    struct pk_bytes value);

#define PK_CAS_VERBS                                                                     \
    .close = pk_cas_close, .claim = pk_cas_claim, .check = pk_cas_check,                 \
    .set = pk_cas_set, .get = pk_cas_get, .mode = pk_cas_mode, .show = pk_cas_show,      \
    .overwrite = pk_cas_overwrite

#endif
