/* SPDX-License-Identifier: MIT */
/*
 * The nodes of a Redlock: independent Redis servers that are asked the same thing at the
 * same time, each by its own short deadline, so that a dead one costs little.
 */
#ifndef PICKET_DRIVERS_REDLOCK_NODES_H
#define PICKET_DRIVERS_REDLOCK_NODES_H

#include "client/redis_link.h"
#include "drivers/bridge.h"
#include "drivers/redis_settings.h"

#define PK_REDLOCK_FORM "redlock://:PASSWORD@HOST:PORT,HOST:PORT,..."

struct pk_nodes {
    struct pk_url url;
    char where[PK_REDIS_WHERE_MAX]; /* for people */
    char prefix[PK_REDIS_PREFIX_MAX + 1];
    struct pk_redis_link links[PK_PLACES_MAX];
    uint32_t count;
    uint32_t majority;
    uint64_t ttl_ms; /* of the lease; 0: none yet */
};

/* A lock and its owner, as all nodes have them. */
struct pk_redlock_pair {
    const char *name;
    struct pk_bytes card;
    uint64_t lock_delay_ms; /* that its keys outlive the lease */
};

enum { PK_REDLOCK_PAIRS_MAX = 80 };

struct pk_redlock_question {
    const char *verb; /* of redlock.lua */
    uint64_t ttl_ms;  /* of the lease, for those that want one */
    const struct pk_redlock_pair *pairs;
    uint32_t n_pairs;
    uint32_t mask; /* of the nodes that are asked */
};

enum picket_status pk_nodes_open(struct pk_nodes *n, const char *rest);
void pk_nodes_free(struct pk_nodes *n);

uint32_t pk_nodes_all(const struct pk_nodes *n); /* the mask of all of them */
uint32_t pk_nodes_count(uint32_t mask);

/* Until when one question may take: a small part of the TTL that `n` was last told, and
 * not beyond `until_ms`. */
uint64_t pk_nodes_limit(const struct pk_nodes *n, uint64_t until_ms);

/* Asks them; the mask of those that have answered. Answers stay in the links until the
 * next question. */
uint32_t pk_nodes_ask(struct pk_nodes *n, const struct pk_redlock_question *q,
                      uint64_t until_ms);
/* What node `i` said of pair `pair`; "" if it said nothing. */
struct pk_bytes pk_nodes_word(const struct pk_nodes *n, uint32_t i, uint32_t pair);
/* The mask of those who have answered this word about it. */
uint32_t pk_nodes_saying(const struct pk_nodes *n, uint32_t answered, uint32_t pair,
                         const char *word);

/* The mask of those that have not answered, but may have done what was asked. */
uint32_t pk_nodes_maybe(const struct pk_nodes *n, uint32_t answered);

/* Too few have answered. `maybe`: what was asked may have been done. */
enum picket_status pk_nodes_fail(const struct pk_nodes *n, uint32_t answered, bool maybe);

/* redlock_scan.c: `scan` of bridge.h. */
enum picket_status pk_redlock_scan(struct pk_nodes *n, const char *name, bool whole_name,
                                   struct pk_scan *scan, uint64_t until_ms);

#endif
