/* SPDX-License-Identifier: MIT */
#include "drivers/redis_inbox.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/keeper.h"
#include "host/clock.h"

enum {
    SUBSCRIBE_MS = 1000, /* at most; the keeper's thread does nothing else meanwhile */
    RETRY_LEAST_MS = 500,
    RETRY_MOST_MS = 5000,
    TEXT_MAX = 2048, /* of a message; longer ones are cut */
};

void pk_redis_inbox_init(struct pk_redis_inbox *i, const struct pk_redis_link *like)
{
    *i = (struct pk_redis_inbox){.link = {.url = like->url, .place = like->place}};
    memcpy(i->link.where, like->where, sizeof like->where);
    pk_redis_init(&i->link);
    (void)snprintf(i->channel, sizeof i->channel, "picket-inbox:%016" PRIx64,
                   pk_random());
}

static bool subscribe(struct pk_redis_inbox *i, uint64_t until_ms)
{
    struct pk_redis_words w = {.count = 0};
    redisReply *reply = NULL;
    uint64_t limit = pk_clock_ms() + SUBSCRIBE_MS;
    pk_redis_add_text(&w, "SUBSCRIBE");
    pk_redis_add_text(&w, i->channel);
    enum picket_status s = pk_redis_command(&i->link, &w, false,
                                            limit < until_ms ? limit : until_ms, &reply);
    freeReplyObject(reply);
    if (s == PICKET_OK) {
        i->failures = 0;
        return true;
    }
    pk_redis_hang_up(&i->link);
    i->failures += i->failures < 16;
    i->retry_ms = pk_clock_ms() +
                  pk_backoff_ms(i->failures, RETRY_LEAST_MS, RETRY_MOST_MS, pk_random());
    return false;
}

/* "WORD LEASE [REQUEST [BY\nWHY]]", as lock.lua writes it. */
static void absorb(struct pk_redis_inbox *i, const char *message)
{
    char text[TEXT_MAX];
    (void)snprintf(text, sizeof text, "%s", message);
    char *word = text;
    char *at = strchr(text, ' ');
    if (at == NULL) {
        return;
    }
    *at++ = '\0';
    uint64_t lease = strtoull(at, &at, 10);
    uint64_t request = strtoull(at, &at, 10);
    if (strcmp(word, "go") == 0) {
        pk_bridge_stir(i->bridge, lease, request);
    } else if (strcmp(word, "closed") == 0) {
        pk_bridge_lease_ended(i->bridge, lease, PK_END_CLOSED);
    } else if (strcmp(word, "released") == 0) {
        pk_bridge_ended(i->bridge, lease, request, PK_END_RELEASED, "", "");
    } else if (strcmp(word, "broken") == 0) {
        char *by = at + strspn(at, " ");
        char *why = strchr(by, '\n');
        if (why != NULL) {
            *why++ = '\0';
        }
        pk_bridge_ended(i->bridge, lease, request, PK_END_BROKEN, by,
                        why != NULL ? why : "");
    }
}

static void hear_all(struct pk_redis_inbox *i)
{
    redisReply *r;
    while ((r = pk_redis_heard(&i->link)) != NULL) {
        bool message = r->type == REDIS_REPLY_ARRAY && r->elements == 3 &&
                       r->element[0]->str != NULL && r->element[2]->str != NULL &&
                       strcmp(r->element[0]->str, "message") == 0;
        if (message) {
            absorb(i, r->element[2]->str);
        }
        freeReplyObject(r);
    }
}

bool pk_redis_inbox_await(struct pk_redis_inbox *i, uint64_t until_ms)
{
    uint64_t now = pk_clock_ms();
    if (i->link.fd < 0 && i->retry_ms <= now && now < until_ms &&
        subscribe(i, until_ms)) {
        return true; /* what was said before we listened is not known */
    }
    uint64_t at = i->link.fd < 0 && i->retry_ms < until_ms ? i->retry_ms : until_ms;
    if (pk_bridge_sleep(i->bridge, i->link.fd, at) && pk_redis_listen(&i->link)) {
        hear_all(i);
    }
    return false;
}
