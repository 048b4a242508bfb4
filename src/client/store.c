/* SPDX-License-Identifier: MIT */
/* What needs no lock handle: fences, leases by their id, and the watch stream. */
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"
#include "host/memory.h"

/* ---- fences ---- */

/* Asks, and tells the fence's token where the answer has it; `answer` is the caller's to
 * free. */
static enum picket_status ask_fence(struct picket *p, struct pk_command *c,
                                    struct pk_effects *answer, uint64_t *fence)
{
    enum picket_status s = pk_client_ask(p, c, answer);
    bool told = s == PICKET_OK || s == PICKET_STALE || s == PICKET_UNCLAIMED;
    if (told && fence != NULL) {
        *fence = answer->list[0].token;
    }
    return s;
}

/* The same where only the verdict counts. */
static enum picket_status ask_plainly(struct picket *p, struct pk_command *c,
                                      uint64_t *fence)
{
    struct pk_effects answer = {0};
    enum picket_status s = ask_fence(p, c, &answer, fence);
    pk_effects_free(&answer);
    return s;
}

enum picket_status picket_fence_claim(struct picket *p, const char *resource,
                                      uint64_t token, uint64_t *fence)
{
    struct pk_command c = {
        .verb = PK_FENCE_CLAIM, .name = pk_text(resource), .token = token};
    return ask_plainly(p, &c, fence);
}

enum picket_status picket_fence_check(struct picket *p, const char *resource,
                                      uint64_t token, uint64_t *fence)
{
    struct pk_command c = {
        .verb = PK_FENCE_CHECK, .name = pk_text(resource), .token = token};
    return ask_plainly(p, &c, fence);
}

/* No request id: each call is one write, and calls of one holder are in its own order. */
static struct pk_command write_of(const char *resource, uint64_t token, const void *value,
                                  size_t len)
{
    return (struct pk_command){.verb = PK_FENCE_SET,
                               .name = pk_text(resource),
                               .token = token,
                               .value = pk_bytes(value, len)};
}

enum picket_status picket_fence_set(struct picket *p, const char *resource,
                                    uint64_t token, const void *value, size_t len,
                                    uint64_t *fence)
{
    struct pk_command c = write_of(resource, token, value, len);
    return ask_plainly(p, &c, fence);
}

enum picket_status picket_fence_keep(struct picket *p, const char *resource,
                                     uint64_t token, const void *value, size_t len,
                                     uint64_t keep_ms)
{
    struct pk_command c = write_of(resource, token, value, len);
    c.ttl_ms = keep_ms;
    return ask_plainly(p, &c, NULL);
}

enum picket_status picket_fence_get(struct picket *p, const char *resource,
                                    uint64_t token, char **value, size_t *len,
                                    uint64_t *fence)
{
    struct pk_command c = {
        .verb = PK_FENCE_GET, .name = pk_text(resource), .token = token};
    struct pk_effects answer = {0};
    enum picket_status s = ask_fence(p, &c, &answer, fence);
    if (s == PICKET_OK) {
        struct pk_bytes v = answer.list[0].value;
        *value = pk_memory_copy_n(v.data, v.len);
        *len = v.len;
    }
    pk_effects_free(&answer);
    return s;
}

/* Sets the mode, if it is still the one of that moment when its epoch was asked for. */
static enum picket_status replace_mode(struct picket *p, const char *resource, int shadow)
{
    struct pk_command show = {.verb = PK_FENCE_SHOW, .name = pk_text(resource)};
    struct pk_effects answer = {0};
    enum picket_status s = pk_client_ask(p, &show, &answer);
    uint64_t epoch = s == PICKET_OK ? answer.list[0].epoch : 0;
    pk_effects_free(&answer);
    if (s != PICKET_OK && s != PICKET_NOTFOUND) {
        return s;
    }
    struct pk_command c = {.verb = PK_FENCE_MODE,
                           .name = pk_text(resource),
                           .flags = shadow != 0 ? PK_FENCE_SHADOW : 0,
                           .epoch = epoch};
    return ask_plainly(p, &c, NULL);
}

enum picket_status picket_fence_mode(struct picket *p, const char *resource, int shadow)
{
    enum { TRIES = 8 };
    enum picket_status s = PICKET_TOOOLD;
    for (int i = 0; i < TRIES && s == PICKET_TOOOLD; i++) {
        s = replace_mode(p, resource, shadow); /* others may be changing it, too */
    }
    return s;
}

enum picket_status picket_fence_show(struct picket *p, const char *resource,
                                     struct picket_fence_state *out)
{
    struct pk_command c = {.verb = PK_FENCE_SHOW, .name = pk_text(resource)};
    struct pk_effects answer = {0};
    enum picket_status s = pk_client_ask(p, &c, &answer);
    if (s == PICKET_OK) {
        const struct pk_effect *e = &answer.list[0];
        *out = (struct picket_fence_state){.token = e->token,
                                           .shadow = e->shadow != 0,
                                           .shadowed = e->shadowed,
                                           .left_ms = e->left_ms};
    }
    pk_effects_free(&answer);
    return s;
}

/* ---- by id ---- */

enum picket_status picket_break(struct picket *p, const char *name, uint64_t token,
                                const char *reason)
{
    struct pk_command c = {.verb = PK_LOCK_BREAK,
                           .request = pk_random(),
                           .principal = pk_text(p->principal),
                           .name = pk_text(name),
                           .token = token,
                           .reason = pk_text(reason)};
    return ask_plainly(p, &c, NULL);
}

enum picket_status picket_lease_renew(struct picket *p, uint64_t lease, uint32_t ttl_ms,
                                      uint64_t *left_ms)
{
    unsigned char id[8];
    pk_command_put_lease(id, 0, lease);
    struct pk_command c = {
        .verb = PK_LEASE_RENEW, .leases = id, .n_leases = 1, .ttl_ms = ttl_ms};
    struct pk_effects answer = {0};
    enum picket_status s = pk_client_ask(p, &c, &answer);
    if (s == PICKET_OK && left_ms != NULL) {
        *left_ms = answer.list[0].left_ms;
    }
    pk_effects_free(&answer);
    return s;
}

enum picket_status picket_lease_release(struct picket *p, uint64_t lease,
                                        const char *name, uint64_t token)
{
    struct pk_command c = {
        .verb = PK_LOCK_RELEASE, .lease = lease, .name = pk_text(name), .token = token};
    return ask_plainly(p, &c, NULL);
}

enum picket_status picket_lease_close(struct picket *p, uint64_t lease)
{
    struct pk_command c = {.verb = PK_LEASE_CLOSE, .lease = lease};
    return ask_plainly(p, &c, NULL);
}

/* ---- watching ---- */

struct picket_watch {
    struct picket *client;
    struct pk_store *stream;
    struct pk_opened opened;
    char *prefix;
    struct pk_effects events; /* from `next` on still to be handed out */
    uint32_t next;
    bool gap;
    char *texts[4]; /* of the event handed out last */
};

enum picket_status picket_watch_open(struct picket *p, const char *prefix,
                                     struct picket_watch **out)
{
    struct pk_store *stream;
    enum picket_status s = pk_client_usable(p);
    if (s == PICKET_OK) {
        s = p->driver->watch_open(p->store, &stream);
    }
    if (s != PICKET_OK) {
        return s;
    }
    struct picket_watch *w = pk_door_resize(NULL, sizeof *w);
    memset(w, 0, sizeof *w);
    w->client = p;
    w->stream = stream;
    pk_opened_join(&w->opened, p->driver, stream);
    w->prefix = pk_memory_copy(prefix);
    *out = w;
    return PICKET_OK;
}

static void free_texts(struct picket_watch *w)
{
    for (size_t i = 0; i < sizeof w->texts / sizeof w->texts[0]; i++) {
        free(w->texts[i]);
        w->texts[i] = NULL;
    }
}

static const char *keep_text(struct picket_watch *w, size_t i, struct pk_bytes b)
{
    w->texts[i] = pk_memory_copy_n(b.data, b.len);
    return w->texts[i];
}

static void hand_out(struct picket_watch *w, const struct pk_effect *e,
                     struct picket_event *out)
{
    free_texts(w);
    *out = (struct picket_event){
        .what = pk_effect_name(e->kind),
        .name = keep_text(w, 0, e->name),
        .why = e->end == PK_END_NONE ? "" : pk_end_name(e->end),
        .by = keep_text(w, 1, e->by),
        .reason = keep_text(w, 2, e->why),
        .mode = pk_view_mode(e->mode),
        .lease = e->lease,
        .token = e->token,
        .place = e->place,
        .shadow = e->shadow != 0,
        .closed_ms = e->closed_ms,
        .time_ms = e->since_ms,
        .value = keep_text(w, 3, e->value),
        .value_len = e->value.len,
    };
}

/* Events without a name belong to the whole, so only a watcher of everything gets them.
 */
static bool concerns(const struct picket_watch *w, const struct pk_effect *e)
{
    size_t len = strlen(w->prefix);
    return e->name.len >= len && memcmp(e->name.data, w->prefix, len) == 0;
}

/* Hands out what has been fetched already; false: nothing is left. */
static bool next_fetched(struct picket_watch *w, struct picket_event *out)
{
    if (w->gap) {
        w->gap = false;
        *out = (struct picket_event){
            .what = "gap", .name = "", .why = "", .by = "", .reason = "", .value = ""};
        return true;
    }
    while (w->next < w->events.count) {
        const struct pk_effect *e = &w->events.list[w->next++];
        if (concerns(w, e)) {
            hand_out(w, e, out);
            return true;
        }
    }
    return false;
}

enum picket_status picket_watch_next(struct picket_watch *w, int64_t timeout_ms,
                                     struct picket_event *out)
{
    enum picket_status s = pk_client_usable(w->client);
    uint64_t until = timeout_ms < 0 ? UINT64_MAX : pk_clock_ms() + (uint64_t)timeout_ms;
    while (s == PICKET_OK && !next_fetched(w, out)) {
        pk_effects_reset(&w->events);
        w->next = 0;
        s = w->client->driver->watch_next(w->stream, until, &w->events, &w->gap);
        if (s == PICKET_OK && !w->gap && w->events.count == 0) {
            s = pk_fail_plain(PICKET_TIMEOUT);
        }
    }
    return s;
}

int picket_watch_fd(const struct picket_watch *w)
{
    return pk_client_usable(w->client) == PICKET_OK
               ? w->client->driver->watch_fd(w->stream)
               : -1;
}

void picket_watch_close(struct picket_watch *w)
{
    /* In a forked child nothing is closed, as in picket_close(). */
    if (w != NULL && !pk_client_inherited(w->client)) {
        pk_opened_leave(&w->opened);
        w->client->driver->close(w->stream);
        free_texts(w);
        free(w->prefix);
        pk_effects_free(&w->events);
        pk_door_resize(w, 0);
    }
}
