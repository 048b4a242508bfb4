/* SPDX-License-Identifier: MIT */
/*
 * Redis' own way, as lean as can be: SET NX PX, and the delete-if-mine script by its
 * digest, over hiredis. With several ports it is Redlock: to all of them at once, and a
 * majority must agree. redis-pairs PORT[,PORT...] SECONDS
 */
#include <hiredis/hiredis.h>
#include <string.h>

#include "series.h"

enum { NODES_MAX = 16 };

struct nodes {
    redisContext *at[NODES_MAX];
    int n;
    char sha[64];
};

static const char unlock[] = "if redis.call('get', KEYS[1]) == ARGV[1] then "
                             "return redis.call('del', KEYS[1]) else return 0 end";

/* All are asked before the first is heard. */
static bool ask_all(struct nodes *nodes, const char *command, const char *a)
{
    int agreed = 0;
    for (int i = 0; i < nodes->n; i++) {
        int sent = 0;
        if (redisAppendCommand(nodes->at[i], command, a) != REDIS_OK) {
            return false;
        }
        while (sent == 0) {
            if (redisBufferWrite(nodes->at[i], &sent) != REDIS_OK) {
                return false;
            }
        }
    }
    for (int i = 0; i < nodes->n; i++) {
        redisReply *r = NULL;
        if (redisGetReply(nodes->at[i], (void **)&r) != REDIS_OK) {
            return false;
        }
        agreed += r->type == REDIS_REPLY_STATUS || r->integer == 1;
        freeReplyObject(r);
    }
    return agreed > nodes->n / 2;
}

static bool acquire(void *arg)
{
    return ask_all(arg, "SET bench:one %s NX PX 60000", "me-and-nobody-else");
}

static bool release(void *arg)
{
    struct nodes *nodes = arg;
    return ask_all(nodes, "EVALSHA %s 1 bench:one me-and-nobody-else", nodes->sha);
}

static bool open_node(struct nodes *nodes, const char *port)
{
    redisContext *c = redisConnect("127.0.0.1", (int)strtol(port, NULL, 10));
    redisReply *r =
        c == NULL || c->err ? NULL : redisCommand(c, "SCRIPT LOAD %s", unlock);
    if (r == NULL || r->type != REDIS_REPLY_STRING || nodes->n == NODES_MAX) {
        return false;
    }
    (void)snprintf(nodes->sha, sizeof nodes->sha, "%s", r->str);
    freeReplyObject(r);
    nodes->at[nodes->n++] = c;
    return true;
}

int main(int argc, char **argv)
{
    struct nodes nodes = {0};
    bool fine = argc == 3;
    for (const char *port = fine ? argv[1] : NULL; fine && port != NULL;) {
        fine = open_node(&nodes, port);
        port = strchr(port, ',');
        port += port != NULL;
    }
    if (!fine || !series_run(strtod(argv[2], NULL), acquire, release, &nodes)) {
        (void)fprintf(stderr, "redis-pairs PORT[,PORT...] SECONDS: failed\n");
        return 1;
    }
    return 0;
}
