/* SPDX-License-Identifier: MIT */
/*
 * What a Redis tells a client of its own accord: a channel that only this client listens
 * to, on a connection of its own. Messages may get lost with the connection; whoever
 * waits stands again after each new subscription, and looks from time to time anyway.
 */
#ifndef PICKET_DRIVERS_REDIS_INBOX_H
#define PICKET_DRIVERS_REDIS_INBOX_H

#include "client/redis_link.h"
#include "drivers/bridge.h"

struct pk_redis_inbox {
    struct pk_redis_link link;
    struct pk_store *bridge;
    char channel[48];
    uint64_t retry_ms; /* when to try to subscribe again */
    uint32_t failures;
};

/* With the same place as `like`. */
void pk_redis_inbox_init(struct pk_redis_inbox *i, const struct pk_redis_link *like);
/* `await` of bridge.h. */
bool pk_redis_inbox_await(struct pk_redis_inbox *i, uint64_t until_ms);

#endif
