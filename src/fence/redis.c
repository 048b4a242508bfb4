/* SPDX-License-Identifier: MIT */
/* Redis: redis://[USER]:PASSWORD@HOST:PORT/NUMBER, or ?socket=FILE. Everything that has
 * to be atomic is in lua/fence.lua, which is run by its digest. */
#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/error.h"
#include "client/url.h"
#include "core/door.h"
#include "core/limits.h"
#include "fence/resource.h"

#define FORM "redis://:PASSWORD@HOST:PORT/NUMBER"

enum {
    PORT = 6379,
    CONNECT_S = 5,
    ANSWER_S = 20,
    ARGS_MAX = 8,
    DIGEST = 40,
    WHERE_MAX = 512,
    KEY_MAX = PK_NAME_MAX + 24,
};

extern const char pk_fence_lua[];

struct pk_resource {
    struct pk_url url;
    struct pk_place place;   /* "" and 0: the usual one */
    char where[WHERE_MAX];   /* the URL without its password, for people */
    char digest[DIGEST + 1]; /* of the script there; "": not loaded yet */
    redisContext *context;   /* NULL: no connection now */
};

/* ---- asking ---- */

struct words {
    const char *data[ARGS_MAX];
    size_t len[ARGS_MAX];
    int count;
};

static void add(struct words *w, struct pk_bytes word)
{
    PK_ASSERT(w->count < ARGS_MAX);
    w->data[w->count] = word.data;
    w->len[w->count++] = word.len;
}

static void leave(struct pk_resource *r)
{
    if (r->context != NULL) {
        redisFree(r->context);
        r->context = NULL;
    }
}

static enum picket_status fail_away(struct pk_resource *r, const char *why)
{
    enum picket_status s =
        pk_fail(PICKET_UNREACHABLE, "%s can't be reached: %s", r->where, why);
    leave(r);
    return s;
}

static bool begins(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* What an error reply amounts to; its text begins with a code. */
static enum picket_status fail_reply(const struct pk_resource *r, const char *text)
{
    static const struct {
        const char *code;
        enum picket_status status;
    } codes[] = {
        {"STALE ", PICKET_STALE},         {"UNCLAIMED ", PICKET_UNCLAIMED},
        {"NOAUTH ", PICKET_DENIED},       {"WRONGPASS ", PICKET_DENIED},
        {"NOPERM ", PICKET_DENIED},       {"ERR invalid password", PICKET_DENIED},
        {"LOADING ", PICKET_UNREACHABLE}, {"MASTERDOWN ", PICKET_UNREACHABLE},
        {"BUSY ", PICKET_UNREACHABLE},    {"ERR max number of", PICKET_UNREACHABLE},
    };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        if (begins(text, codes[i].code)) {
            return i < 2 ? pk_fail_plain(codes[i].status)
                         : pk_fail(codes[i].status, "%s: %s", r->where, text);
        }
    }
    return pk_fail(PICKET_STORE, "%s: %s", r->where, text);
}

/* hiredis would write without MSG_NOSIGNAL, and a broken connection end the process. */
static bool send_words(redisContext *context, struct words *w)
{
    char *text = NULL;
    PK_ASSERT(context != NULL);
    int len = redisFormatCommandArgv(&text, w->count, w->data, w->len);
    PK_ASSERT(len > 0);
    ssize_t n = 0;
    for (int sent = 0; n >= 0 && sent < len; sent += (int)n) {
        n = send(context->fd, text + sent, (size_t)(len - sent), MSG_NOSIGNAL);
        n = n < 0 && errno == EINTR ? 0 : n;
    }
    redisFreeCommand(text);
    return n >= 0;
}

/* Sends and waits. OK: `*out` is the reply, to be freed, and may be an error.
 * UNREACHABLE: none came, `*out` is NULL and the connection is gone. */
static enum picket_status exchange(struct pk_resource *r, struct words *w,
                                   redisReply **out)
{
    void *reply = NULL;
    *out = NULL;
    if (!send_words(r->context, w)) {
        return fail_away(r, strerror(errno));
    }
    if (redisGetReply(r->context, &reply) != REDIS_OK) {
        return fail_away(r, r->context->errstr);
    }
    *out = reply;
    return PICKET_OK;
}

/* Makes an error reply a failure, and frees it. */
static enum picket_status judge(const struct pk_resource *r, enum picket_status s,
                                redisReply **reply)
{
    if (*reply != NULL && (*reply)->type == REDIS_REPLY_ERROR) {
        s = fail_reply(r, (*reply)->str);
        freeReplyObject(*reply);
        *reply = NULL;
    }
    return s;
}

/* ---- connections ---- */

static enum picket_status greet(struct pk_resource *r)
{
    redisReply *reply = NULL;
    struct words auth = {.count = 0};
    struct words number = {.count = 0};
    const struct pk_url *u = &r->url;
    enum picket_status s = PICKET_OK;
    add(&auth, pk_text("AUTH"));
    if (u->user[0] != '\0') {
        add(&auth, pk_text(u->user));
    }
    add(&auth, pk_text(u->password));
    add(&number, pk_text("SELECT"));
    add(&number, pk_text(u->path));
    if (u->password[0] != '\0') {
        s = judge(r, exchange(r, &auth, &reply), &reply);
        freeReplyObject(reply);
    }
    if (s == PICKET_OK && u->path[0] != '\0') {
        s = judge(r, exchange(r, &number, &reply), &reply);
        freeReplyObject(reply);
    }
    return s;
}

static enum picket_status reach(struct pk_resource *r)
{
    const struct timeval patience = {.tv_sec = CONNECT_S};
    const struct timeval answer = {.tv_sec = ANSWER_S};
    const struct pk_place *at = &r->place;
    const char *socket = pk_url_option(&r->url, "socket");
    if (r->context != NULL) {
        return PICKET_OK;
    }
    r->context =
        socket[0] != '\0'
            ? redisConnectUnixWithTimeout(socket, patience)
            : redisConnectWithTimeout(at->host[0] != '\0' ? at->host : "127.0.0.1",
                                      at->port != 0 ? at->port : PORT, patience);
    PK_ASSERT(r->context != NULL);
    if (r->context->err != 0 || redisSetTimeout(r->context, answer) != REDIS_OK) {
        return fail_away(r, r->context->errstr);
    }
    (void)fcntl(r->context->fd, F_SETFD, FD_CLOEXEC);
    enum picket_status s = greet(r);
    if (s != PICKET_OK) {
        leave(r);
    }
    return s;
}

static bool is_number(const char *text)
{
    return strspn(text, "0123456789") == strlen(text) && strlen(text) < 6;
}

static void close_redis(struct pk_resource *r)
{
    leave(r);
    pk_url_free(&r->url);
    pk_door_resize(r, 0);
}

static enum picket_status open_redis(const char *url, struct pk_resource **out)
{
    struct pk_resource *r = pk_door_resize(NULL, sizeof *r);
    *r = (struct pk_resource){.context = NULL};
    enum picket_status s = pk_url_read(url, "socket", FORM, &r->url);
    if (s == PICKET_OK) {
        s = pk_url_place(&r->url, FORM, &r->place);
    }
    if (s == PICKET_OK) {
        pk_url_show(&r->url, "redis", r->where, sizeof r->where);
        s = is_number(r->url.path)
                ? reach(r)
                : pk_fail(PICKET_BADARG, "%s: Redis numbers its databases; it is " FORM,
                          r->where);
    }
    if (s != PICKET_OK) {
        close_redis(r);
        return s;
    }
    *out = r;
    return PICKET_OK;
}

/* ---- commands and the script ---- */

/* exchange(), over a new connection if there is none or the one there was turns out to be
 * broken. `once`: what may have been done and can't be repeated is UNKNOWN then. */
static enum picket_status insist(struct pk_resource *r, struct words *w, bool once,
                                 redisReply **out)
{
    bool fresh = r->context == NULL;
    enum picket_status s = reach(r);
    *out = NULL;
    if (s != PICKET_OK) {
        return s;
    }
    s = exchange(r, w, out);
    if (s != PICKET_OK && once) {
        return pk_fail(PICKET_UNKNOWN, "the connection to %s broke before the answer",
                       r->where);
    }
    if (s != PICKET_OK && !fresh) {
        s = reach(r);
        s = s == PICKET_OK ? exchange(r, w, out) : s;
    }
    return s;
}

static enum picket_status command(struct pk_resource *r, struct words *w, bool once,
                                  redisReply **out)
{
    enum picket_status s = insist(r, w, once, out);
    return judge(r, s, out);
}

static enum picket_status load(struct pk_resource *r)
{
    redisReply *reply;
    struct words w = {.count = 0};
    add(&w, pk_text("SCRIPT"));
    add(&w, pk_text("LOAD"));
    add(&w, pk_text(pk_fence_lua));
    enum picket_status s = command(r, &w, false, &reply);
    if (reply != NULL) {
        (void)snprintf(r->digest, sizeof r->digest, "%s",
                       reply->str != NULL ? reply->str : "");
        freeReplyObject(reply);
    }
    return s;
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

/* By its digest; a server that has forgotten the script since, because it was restarted,
 * gets it whole. */
static enum picket_status run_script(struct pk_resource *r, const struct call *c,
                                     redisReply **out)
{
    struct words w = {.count = 0};
    char key[KEY_MAX];
    char token[24];
    print_key(c->name, key);
    (void)snprintf(token, sizeof token, "%" PRIu64, c->token);
    enum picket_status s = r->digest[0] == '\0' ? load(r) : PICKET_OK;
    if (s != PICKET_OK) {
        return s;
    }
    add(&w, pk_text("EVALSHA"));
    add(&w, pk_text(r->digest));
    add(&w, pk_text("1"));
    add(&w, pk_text(key));
    add(&w, pk_text(c->verb));
    add(&w, pk_text(token));
    if (c->value != NULL) {
        add(&w, *c->value);
    }
    s = insist(r, &w, c->value != NULL, out);
    if (*out != NULL && (*out)->type == REDIS_REPLY_ERROR &&
        begins((*out)->str, "NOSCRIPT")) {
        freeReplyObject(*out);
        w.data[0] = "EVAL";
        w.len[0] = strlen(w.data[0]);
        w.data[1] = pk_fence_lua;
        w.len[1] = strlen(pk_fence_lua);
        s = insist(r, &w, c->value != NULL, out);
    }
    return s;
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
    return judge(r, s, out);
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
    struct words w = {.count = 0};
    print_key(name, key);
    add(&w, pk_text("HMGET"));
    add(&w, pk_text(key));
    for (; *fields != NULL; fields++) {
        add(&w, pk_text(*fields));
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
    struct words w = {.count = 0};
    print_key(name, key);
    add(&w, pk_text("HSET"));
    add(&w, pk_text(key));
    add(&w, pk_text(field));
    add(&w, value);
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
    *out = strdup(pk_fence_lua);
    PK_ASSERT(*out != NULL);
    return PICKET_OK;
}

static enum picket_status run(struct pk_resource *r, const char *text)
{
    (void)text; /* it is the script that load() loads */
    return load(r);
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
