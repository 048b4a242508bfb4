/* SPDX-License-Identifier: MIT */
#include "client/keeper.h"

enum {
    /* The least time between two renewals in a hurry: several clients that act for one
     * lease, and push each other out as its owners, must not renew all the time. */
    HURRY_MS = 200,
};

uint64_t pk_keeper_margin(uint64_t ttl_ms, uint64_t asked)
{
    uint64_t delivery = ttl_ms / 10 < 50 ? ttl_ms / 10 : 50;
    uint64_t floor = ttl_ms / 50 + delivery;
    uint64_t wanted = asked > floor ? asked : floor;
    return wanted < ttl_ms ? wanted : ttl_ms;
}

/* The service's wish, but not so late that the lease would be overdue by then, nor so
 * soon that renewing is all we do. */
static uint64_t within_reason(uint64_t hint_ms, uint64_t ttl_ms)
{
    uint64_t most = ttl_ms / 2;
    uint64_t least = ttl_ms / 10;
    return hint_ms > most ? most : hint_ms < least ? least : hint_ms;
}

void pk_keeper_acked(struct pk_keeper *k, uint64_t sent_ms, uint64_t ttl_ms,
                     uint64_t hint_ms)
{
    k->sent_ms = sent_ms;
    k->ttl_ms = ttl_ms;
    k->next_ms = sent_ms + (hint_ms != 0 ? within_reason(hint_ms, ttl_ms) : ttl_ms / 3);
    k->failures = 0;
}

void pk_keeper_failed(struct pk_keeper *k, uint64_t now_ms, uint64_t random)
{
    k->failures++;
    k->next_ms =
        now_ms + pk_backoff_ms(k->failures, k->ttl_ms / 100 + 1, k->ttl_ms / 6, random);
}

void pk_keeper_hurry(struct pk_keeper *k, uint64_t now_ms)
{
    uint64_t pause = k->ttl_ms / 20 < HURRY_MS ? k->ttl_ms / 20 : HURRY_MS;
    uint64_t at = k->sent_ms + pause > now_ms ? k->sent_ms + pause : now_ms;
    k->next_ms = at < k->next_ms ? at : k->next_ms;
}

uint64_t pk_keeper_safe_until(const struct pk_keeper *k)
{
    return k->sent_ms + k->ttl_ms - pk_keeper_margin(k->ttl_ms, k->margin_ms);
}

uint64_t pk_keeper_lost_at(const struct pk_keeper *k)
{
    return pk_keeper_safe_until(k) + k->grace_ms;
}

enum pk_trust pk_keeper_trust(const struct pk_keeper *k, uint64_t now_ms)
{
    if (now_ms >= pk_keeper_lost_at(k)) {
        return PK_TRUST_LOST;
    }
    if (now_ms >= pk_keeper_safe_until(k)) {
        return PK_TRUST_SUSPENDED;
    }
    return now_ms >= k->sent_ms + k->ttl_ms / 2 ? PK_TRUST_OVERDUE : PK_TRUST_SAFE;
}

uint64_t pk_backoff_ms(uint32_t failures, uint64_t least, uint64_t most, uint64_t random)
{
    uint64_t pause = least;
    for (uint32_t i = 1; i < failures && pause < most; i++) {
        pause *= 2;
    }
    pause = pause < most ? pause : most;
    return pause / 2 + random % (pause / 2 + 1);
}
