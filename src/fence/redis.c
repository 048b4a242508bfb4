/* SPDX-License-Identifier: MIT */
/* Redis: redis://[USER]:PASSWORD@HOST:PORT/NUMBER, or ?socket=FILE. Everything that has
 * to be atomic is in lua/fence.lua, which is run by its digest. A prefix is for the keys
 * of locks (drivers/redis.c), and allowed so that one URL does for both. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/redis_link.h"
#include "core/door.h"
#include "core/limits.h"
#include "fence/resource.h"
#include "host/clock.h"
#include "host/memory.h"

#define FORM "redis://:PASSWORD@HOST:PORT/NUMBER"

enum {
    CONNECT_MS = 5000,
    ANSWER_MS = 20000,
    KEY_MAX = PK_NAME_MAX + 24,
};

extern const char pk_fence_lua[];

struct pk_resource {
    struct pk_url url;
    struct pk_redis_link link;
};

/* ---- opening ---- */

static bool is_number(const char *text)
{
    return strspn(text, "0123456789") == strlen(text) && strlen(text) < 6;
}

static void close_redis(struct pk_resource *r)
{
    pk_redis_free(&r->link);
    pk_url_free(&r->url);
    pk_door_resize(r, 0);
}

static enum picket_status open_redis(const char *url, struct pk_resource **out)
{
    struct pk_resource *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct pk_resource){.link.script = pk_fence_lua};
    struct pk_redis_link *l = &r->link;
    pk_redis_init(l);
    enum picket_status s = pk_url_read(url, "socket prefix", FORM, &r->url);
    if (s == PICKET_OK) {
        s = pk_url_place(&r->url, FORM, &l->place);
    }
    if (s == PICKET_OK) {
        l->url = &r->url;
        pk_url_show(&r->url, l->where, sizeof l->where);
        s = is_number(r->url.path)
                ? pk_redis_reach(l, pk_clock_ms() + CONNECT_MS)
                : pk_fail(PICKET_BADARG, "%s: Redis numbers its databases; it is " FORM,
                          l->where);
    }
    if (s != PICKET_OK) {
        close_redis(r);
        return s;
    }
    *out = r;
    return PICKET_OK;
}

/* ---- commands and the script ---- */

/* What can be repeated without harm was as good as not done; the rest is UNKNOWN. */
static enum picket_status soften(const struct pk_resource *r, enum picket_status s,
                                 bool once)
{
    return s == PICKET_UNKNOWN && !once ? pk_fail(PICKET_UNREACHABLE, "%s", r->link.why)
                                        : s;
}

static enum picket_status command(struct pk_resource *r, const struct pk_redis_words *w,
                                  bool once, redisReply **out)
{
    uint64_t until_ms = pk_clock_ms() + ANSWER_MS;
    return soften(r, pk_redis_command(&r->link, w, once, until_ms, out), once);
}

static void print_key(const char *name, char out[KEY_MAX])
{
    (void)snprintf(out, KEY_MAX, "picket:fence:{%s}", name);
}

struct call {
    const char *verb, *name;
    uint64_t token;
    const struct pk_bytes *value; /* NULL: none; with one it must not be repeated */
};

static enum picket_status run_script(struct pk_resource *r, const struct call *c,
                                     redisReply **out)
{
    struct pk_redis_words w;
    char key[KEY_MAX];
    bool once = c->value != NULL;
    uint64_t until_ms = pk_clock_ms() + ANSWER_MS;
    print_key(c->name, key);
    pk_redis_call(&r->link, &w);
    pk_redis_add_text(&w, "1");
    pk_redis_add_text(&w, key);
    pk_redis_add_text(&w, c->verb);
    pk_redis_add_number(&w, c->token);
    if (once) {
        pk_redis_add(&w, *c->value);
    }
    return soften(r, pk_redis_run(&r->link, &w, once, until_ms, out), once);
}

/* The fence in "STALE ...: token=7", of an error that the script made. */
static uint64_t fence_in(const char *text)
{
    const char *at = strstr(text, "token=");
    return at == NULL ? 0 : (uint64_t)strtoull(at + strlen("token="), NULL, 10);
}

/* Runs it; `*out` is NULL unless it went well. */
static enum picket_status ask_script(struct pk_resource *r, const struct call *c,
                                     uint64_t *fence, redisReply **out)
{
    *out = NULL;
    enum picket_status s = run_script(r, c, out);
    if (*out == NULL) {
        return s;
    }
    const char *text = (*out)->str;
    bool refused = (*out)->type == REDIS_REPLY_ERROR;
    *fence = refused        ? fence_in(text)
             : text != NULL ? (uint64_t)strtoull(text, NULL, 10)
                            : 0;
    if (refused) {
        s = strncmp(text, "STALE ", 6) == 0 ? pk_fail_plain(PICKET_STALE)
            : strncmp(text, "UNCLAIMED ", 10) == 0
                ? pk_fail_plain(PICKET_UNCLAIMED)
                : pk_redis_refused(r->link.where, text);
        freeReplyObject(*out);
        *out = NULL;
    }
    return s;
}

/* ---- the verbs ---- */

static enum picket_status simply(struct pk_resource *r, const struct call *c,
                                 uint64_t *fence)
{
    redisReply *reply;
    enum picket_status s = ask_script(r, c, fence, &reply);
    freeReplyObject(reply);
    return s;
}

static enum picket_status claim(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence)
{
    return simply(r, &(struct call){"claim", name, token, NULL}, fence);
}

static enum picket_status check(struct pk_resource *r, const char *name, uint64_t token,
                                uint64_t *fence)
{
    return simply(r, &(struct call){"check", name, token, NULL}, fence);
}

static enum picket_status set(struct pk_resource *r, const char *name, uint64_t token,
                              struct pk_bytes value, uint64_t *fence)
{
    return simply(r, &(struct call){"set", name, token, &value}, fence);
}

/* The fields of a fence, without a token. */
static enum picket_status read_fields(struct pk_resource *r, const char *name,
                                      const char *const *fields, redisReply **out)
{
    char key[KEY_MAX];
    struct pk_redis_words w = {.count = 0};
    print_key(name, key);
    pk_redis_add_text(&w, "HMGET");
    pk_redis_add_text(&w, key);
    for (; *fields != NULL; fields++) {
        pk_redis_add_text(&w, *fields);
    }
    return command(r, &w, false, out);
}

static uint64_t number_at(const redisReply *reply, size_t i)
{
    const char *text = i < reply->elements ? reply->element[i]->str : NULL;
    return text == NULL ? 0 : (uint64_t)strtoull(text, NULL, 10);
}

static enum picket_status get(struct pk_resource *r, const char *name, uint64_t token,
                              char **value, size_t *len, uint64_t *fence)
{
    static const char *const fields[] = {"token", "value", NULL};
    redisReply *reply = NULL;
    enum picket_status s =
        token == 0
            ? read_fields(r, name, fields, &reply)
            : ask_script(r, &(struct call){"get", name, token, NULL}, fence, &reply);
    if (reply == NULL) {
        return s;
    }
    PK_ASSERT(reply->elements == 2);
    const redisReply *found = reply->element[1];
    *fence = number_at(reply, 0);
    if (found->str == NULL && *fence == 0) {
        freeReplyObject(reply);
        return pk_fail_plain(PICKET_NOTFOUND);
    }
    *len = found->str == NULL ? 0 : (size_t)found->len;
    *value = pk_door_resize(NULL, *len + 1);
    memcpy(*value, found->str == NULL ? "" : found->str, *len);
    (*value)[*len] = '\0';
    freeReplyObject(reply);
    return PICKET_OK;
}

/* Sets one field of the hash. */
static enum picket_status write_field(struct pk_resource *r, const char *name,
                                      const char *field, struct pk_bytes value, bool once)
{
    char key[KEY_MAX];
    redisReply *reply = NULL;
    struct pk_redis_words w = {.count = 0};
    print_key(name, key);
    pk_redis_add_text(&w, "HSET");
    pk_redis_add_text(&w, key);
    pk_redis_add_text(&w, field);
    pk_redis_add(&w, value);
    enum picket_status s = command(r, &w, once, &reply);
    freeReplyObject(reply);
    return s;
}

static enum picket_status mode(struct pk_resource *r, const char *name, bool shadow)
{
    return write_field(r, name, "shadow", pk_text(shadow ? "1" : "0"), false);
}

static enum picket_status overwrite(struct pk_resource *r, const char *name,
                                    struct pk_bytes value)
{
    return write_field(r, name, "value", value, true);
}

static enum picket_status show(struct pk_resource *r, const char *name,
                               struct picket_fence_state *out)
{
    static const char *const fields[] = {"token", "shadow", "shadowed", "value", NULL};
    redisReply *reply;
    enum picket_status s = read_fields(r, name, fields, &reply);
    if (reply == NULL) {
        return s;
    }
    PK_ASSERT(reply->elements == 4);
    bool known = false;
    for (size_t i = 0; i < reply->elements; i++) {
        known = known || reply->element[i]->str != NULL;
    }
    *out = (struct picket_fence_state){.token = number_at(reply, 0),
                                       .shadow = number_at(reply, 1) == 1,
                                       .shadowed = number_at(reply, 2)};
    freeReplyObject(reply);
    return known ? PICKET_OK : pk_fail_plain(PICKET_NOTFOUND);
}

/* ---- installing: the script is all there is, and it comes with the first call ---- */

static enum picket_status sql(const struct picket_fence_table *t, char **out)
{
    if (t != NULL && t->table != NULL) {
        return pk_fail(PICKET_UNSUPPORTED, "Redis has no tables to be guarded");
    }
    *out = pk_memory_copy(pk_fence_lua);
    return PICKET_OK;
}

static enum picket_status run(struct pk_resource *r, const char *text)
{
    (void)text; /* it is the script that each connection loads */
    return pk_redis_reach(&r->link, pk_clock_ms() + CONNECT_MS);
}

const struct pk_resource_kind pk_resource_redis = {.scheme = "redis",
                                                   .form = FORM,
                                                   .open = open_redis,
                                                   .close = close_redis,
                                                   .claim = claim,
                                                   .check = check,
                                                   .set = set,
                                                   .get = get,
                                                   .mode = mode,
                                                   .show = show,
                                                   .overwrite = overwrite,
                                                   .sql = sql,
                                                   .run = run};
