/* SPDX-License-Identifier: MIT */
#include "cli/drill_rival.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/error.h"
#include "core/door.h"
#include "host/clock.h"

#ifdef PICKET_WITH_REDIS
#include <hiredis/hiredis.h>
#endif

bool pk_rival_is(const char *url)
{
    return strncmp(url, "redis:", 6) == 0 || strncmp(url, "redlock:", 8) == 0;
}

#ifdef PICKET_WITH_REDIS

enum { NODES_MAX = 9, CONNECT_MS = 1000, NAP_MS = 20, DEFAULT_PORT = 6379 };

struct pk_rival {
    size_t count;
    redisContext *nodes[NODES_MAX]; /* NULL: not reached */
    char *name;
    char owner[24];
};

static const char release_script[] =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "
    "end return 0";

/* "HOST[:PORT]" up to a comma. */
static redisContext *dial(const char *at, size_t len)
{
    char host[256];
    struct timeval limit = {.tv_usec = CONNECT_MS * 1000 % 1000000,
                            .tv_sec = CONNECT_MS / 1000};
    (void)snprintf(host, sizeof host, "%.*s", (int)len, at);
    char *colon = strrchr(host, ':');
    int port = colon == NULL ? DEFAULT_PORT : (int)strtol(colon + 1, NULL, 10);
    if (colon != NULL) {
        *colon = '\0';
    }
    redisContext *c = redisConnectWithTimeout(host, port, limit);
    if (c != NULL && (c->err != 0 || redisSetTimeout(c, limit) != REDIS_OK)) {
        redisFree(c);
        c = NULL;
    }
    return c;
}

static struct pk_rival *open_all(const char *url, const char *name)
{
    struct pk_rival *r = pk_door_resize(NULL, sizeof *r);
    const char *at = strchr(url, ':') + 1;
    *r = (struct pk_rival){.name = strdup(name)};
    PK_ASSERT(r->name != NULL);
    (void)snprintf(r->owner, sizeof r->owner, "%016" PRIx64, pk_random());
    at += strspn(at, "/");
    while (*at != '\0' && r->count < NODES_MAX) {
        size_t len = strcspn(at, ",/");
        r->nodes[r->count++] = dial(at, len);
        at += len + strspn(at + len, ",/");
    }
    return r;
}

/* On how many nodes the question is answered with yes. */
static size_t set_everywhere(struct pk_rival *r, uint64_t ttl_ms)
{
    size_t won = 0;
    for (size_t i = 0; i < r->count; i++) {
        redisReply *reply = r->nodes[i] == NULL
                                ? NULL
                                : redisCommand(r->nodes[i], "SET %s %s NX PX %" PRIu64,
                                               r->name, r->owner, ttl_ms);
        won += reply != NULL && reply->type == REDIS_REPLY_STATUS;
        if (reply != NULL) {
            freeReplyObject(reply);
        }
    }
    return won;
}

static void delete_everywhere(struct pk_rival *r)
{
    for (size_t i = 0; i < r->count; i++) {
        void *reply = r->nodes[i] == NULL
                          ? NULL
                          : redisCommand(r->nodes[i], "EVAL %s 1 %s %s", release_script,
                                         r->name, r->owner);
        if (reply != NULL) {
            freeReplyObject(reply);
        }
    }
}

static size_t reached(const struct pk_rival *r)
{
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++) {
        n += r->nodes[i] != NULL;
    }
    return n;
}

static void close_all(struct pk_rival *r)
{
    for (size_t i = 0; i < r->count; i++) {
        if (r->nodes[i] != NULL) {
            redisFree(r->nodes[i]);
        }
    }
    free(r->name);
    pk_door_resize(r, 0);
}

enum picket_status pk_rival_take(const char *url, const char *name, uint64_t ttl_ms,
                                 uint64_t wait_ms, struct pk_rival **out)
{
    uint64_t until = pk_clock_ms() + wait_ms;
    struct pk_rival *r = open_all(url, name);
    size_t majority = r->count / 2 + 1;
    if (reached(r) < majority) {
        enum picket_status s = pk_fail(PICKET_UNREACHABLE,
                                       "%zu of %zu Redis nodes can be reached; %zu are "
                                       "needed",
                                       reached(r), r->count, majority);
        close_all(r);
        return s;
    }
    while (set_everywhere(r, ttl_ms) < majority) {
        delete_everywhere(r);
        if (pk_clock_ms() >= until) {
            close_all(r);
            return pk_fail(PICKET_TIMEOUT, "%s is held by somebody else", name);
        }
        uint64_t nap = NAP_MS + pk_random() % NAP_MS;
        nanosleep(&(struct timespec){.tv_nsec = (long)nap * 1000000}, NULL);
    }
    *out = r;
    return PICKET_OK;
}

void pk_rival_release(struct pk_rival *r)
{
    delete_everywhere(r);
    close_all(r);
}

#else

enum picket_status pk_rival_take(const char *url, const char *name, uint64_t ttl_ms,
                                 uint64_t wait_ms, struct pk_rival **out)
{
    (void)name, (void)ttl_ms, (void)wait_ms, (void)out;
    return pk_fail(PICKET_UNSUPPORTED, "%s: built without Redis", url);
}

void pk_rival_release(struct pk_rival *r)
{
    (void)r;
}

#endif
