/* SPDX-License-Identifier: MIT */
/* The fence registers of a Picket store as a kind of resource: embedded or a cluster. */
#include <stdlib.h>

#include "fence/resource.h"

static struct picket *client(struct pk_resource *r)
{
    return (struct picket *)r;
}

static enum picket_status open_store(const char *url, struct pk_resource **out)
{
    struct picket *p;
    enum picket_status s = picket_open(url, NULL, &p);
    if (s == PICKET_OK) {
        *out = (struct pk_resource *)p;
    }
    return s;
}

static void close_store(struct pk_resource *r)
{
    picket_close(client(r));
}

static enum picket_status claim(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence)
{
    return picket_fence_claim(client(r), name, token, fence);
}

static enum picket_status check(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence)
{
    return picket_fence_check(client(r), name, token, fence);
}

static enum picket_status set(struct pk_resource *r, const char *name, uint64_t token,
                              struct pk_bytes value, uint64_t *fence)
{
    return picket_fence_set(client(r), name, token, value.data, value.len, fence);
}

static enum picket_status get(struct pk_resource *r, const char *name, uint64_t token,
                              char **value, size_t *len, uint64_t *fence)
{
    return picket_fence_get(client(r), name, token, value, len, fence);
}

static enum picket_status mode(struct pk_resource *r, const char *name, bool shadow)
{
    return picket_fence_mode(client(r), name, shadow);
}

static enum picket_status show(struct pk_resource *r, const char *name,
                               struct picket_fence_state *out)
{
    return picket_fence_show(client(r), name, out);
}

/* Every register is fenced, so that nobody can write without a token. Who knows of no
 * fence is somebody with the newest token that there is. */
static enum picket_status overwrite(struct pk_resource *r, const char *name,
                                    struct pk_bytes value)
{
    uint64_t newest = 0;
    char *old = NULL;
    size_t len;
    enum picket_status s = get(r, name, 0, &old, &len, &newest);
    free(old);
    if (s != PICKET_OK && s != PICKET_NOTFOUND) {
        return s;
    }
    return set(r, name, newest == 0 ? 1 : newest, value, &newest);
}

#define VERBS                                                                            \
    .open = open_store, .close = close_store, .claim = claim, .check = check,            \
    .set = set, .get = get, .mode = mode, .show = show, .overwrite = overwrite

const struct pk_resource_kind pk_resource_local = {
    .scheme = "local", .form = "local:DIR", VERBS};
const struct pk_resource_kind pk_resource_picket = {
    .scheme = "picket", .form = "picket://HOST,HOST,...", VERBS};
