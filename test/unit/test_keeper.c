/* SPDX-License-Identifier: MIT */
#include "client/keeper.h"
#include "tap.h"

/* Validity ends a margin before the service may end the lease, counted from before
 * sending. */
TEST(keeper__safe_time_ends_before_the_lease)
{
    struct pk_keeper k = {0};
    pk_keeper_acked(&k, 1000, 10000, 0);
    CHECK_U64(pk_keeper_safe_until(&k), 1000 + 10000 - 250);
    CHECK(pk_keeper_trust(&k, 10749) == PK_TRUST_OVERDUE);
    CHECK(pk_keeper_trust(&k, 10750) == PK_TRUST_LOST);
}

/* The margin covers rates that differ by 1 % on both sides: TTL (1 - r) / (1 + r) and
 * more. */
TEST(keeper__margin_covers_the_clock_rates_for_every_ttl)
{
    for (uint64_t ttl = 50; ttl <= 24 * 3600 * 1000; ttl += 1 + ttl / 7) {
        uint64_t margin = pk_keeper_margin(ttl, 0);
        /* The holder's slow clock shows (ttl - margin) when up to that * 100/99 has
         * passed; the service's fast clock lets the lease end after ttl * 100/101. */
        CHECK((ttl - margin) * 101 <= ttl * 99);
    }
}

/* A margin that was asked for is kept, unless it is less than is safe. */
TEST(keeper__margin_is_never_below_its_floor)
{
    CHECK_U64(pk_keeper_margin(10000, 100), 250);
    CHECK_U64(pk_keeper_margin(10000, 3000), 3000);
    CHECK_U64(pk_keeper_margin(10000, 99999), 10000);
    CHECK_U64(pk_keeper_margin(50, 0), 6);
}

TEST(keeper__renews_at_a_third_or_when_the_service_says)
{
    struct pk_keeper k = {0};
    pk_keeper_acked(&k, 500, 9000, 0);
    CHECK_U64(k.next_ms, 3500);
    pk_keeper_acked(&k, 500, 9000, 4000);
    CHECK_U64(k.next_ms, 4500);
}

/* Never so late that the lease is overdue by then, nor so soon that it never rests. */
TEST(keeper__follows_the_service_within_reason)
{
    struct pk_keeper k = {0};
    pk_keeper_acked(&k, 500, 9000, 8000);
    CHECK_U64(k.next_ms, 5000);
    pk_keeper_acked(&k, 500, 9000, UINT64_MAX);
    CHECK_U64(k.next_ms, 5000);
    pk_keeper_acked(&k, 500, 9000, 1);
    CHECK_U64(k.next_ms, 1400);
}

/* At once, but never all the time; and nothing is put off. */
TEST(keeper__in_a_hurry_renews_soon_and_not_too_often)
{
    struct pk_keeper k = {0};
    pk_keeper_acked(&k, 1000, 30000, 0);
    pk_keeper_hurry(&k, 5000);
    CHECK_U64(k.next_ms, 5000);
    pk_keeper_acked(&k, 5000, 30000, 0);
    pk_keeper_hurry(&k, 5001);
    CHECK_U64(k.next_ms, 5200);
    pk_keeper_hurry(&k, 90000);
    CHECK_U64(k.next_ms, 5200);
    pk_keeper_acked(&k, 7000, 1000, 0);
    pk_keeper_hurry(&k, 7000);
    CHECK_U64(k.next_ms, 7050);
}

TEST(keeper__is_overdue_after_half_the_ttl)
{
    struct pk_keeper k = {0};
    pk_keeper_acked(&k, 0, 1000, 0);
    CHECK(pk_keeper_trust(&k, 499) == PK_TRUST_SAFE);
    CHECK(pk_keeper_trust(&k, 500) == PK_TRUST_OVERDUE);
}

/* With grace the holder is suspended first, and lost only after it. */
TEST(keeper__grace_comes_after_safe_time)
{
    struct pk_keeper k = {.grace_ms = 2000};
    pk_keeper_acked(&k, 0, 1000, 0);
    uint64_t safe = pk_keeper_safe_until(&k);
    CHECK(pk_keeper_trust(&k, safe) == PK_TRUST_SUSPENDED);
    CHECK(pk_keeper_trust(&k, safe + 1999) == PK_TRUST_SUSPENDED);
    CHECK(pk_keeper_trust(&k, safe + 2000) == PK_TRUST_LOST);
}

/* Failed renewals are tried again soon, then less often, but several times within the
 * TTL. */
TEST(keeper__failures_back_off_within_bounds)
{
    struct pk_keeper k = {0};
    pk_keeper_acked(&k, 0, 6000, 0);
    uint64_t now = k.next_ms;
    for (int i = 0; i < 20; i++) {
        pk_keeper_failed(&k, now, (uint64_t)i * 7919);
        CHECK(k.next_ms > now && k.next_ms <= now + 1000);
        now = k.next_ms;
    }
    pk_keeper_acked(&k, now, 6000, 0);
    CHECK_U64(k.failures, 0);
}

/* Jitter stays in the upper half of the pause, and a large count can't overflow. */
TEST(keeper__backoff_doubles_up_to_its_limit)
{
    CHECK_U64(pk_backoff_ms(1, 8, 1000, 0), 4);
    CHECK_U64(pk_backoff_ms(1, 8, 1000, 4), 8);
    CHECK_U64(pk_backoff_ms(2, 8, 1000, 8), 16);
    CHECK_U64(pk_backoff_ms(UINT32_MAX, 8, 1000, 500), 1000);
}
