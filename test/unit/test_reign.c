/* SPDX-License-Identifier: MIT */
#include "server/reign.h"
#include "tap.h"

static struct pk_reign reign_at(uint64_t clock_ms, uint64_t now_ms)
{
    struct pk_reign r = {.pause_ms = 300};
    pk_reign_begin(&r, clock_ms, now_ms);
    return r;
}

/* P4: only differences of the own clock count. */
TEST(reign__goes_on_from_the_machines_clock)
{
    struct pk_reign r = reign_at(5000, 777000);
    CHECK_U64(pk_reign_stamp(&r, 777000), 5000);
    CHECK_U64(pk_reign_stamp(&r, 777001), 5001);
    CHECK_U64(pk_reign_stamp(&r, 777301), 5301);
    CHECK_U64(pk_reign_stamp(&r, 777301), 5301);
}

/* A step as long as the pause counts; a longer one does not, not even in part. */
TEST(reign__leaves_out_a_pause)
{
    struct pk_reign r = reign_at(100, 0);
    CHECK_U64(pk_reign_stamp(&r, 300), 400);
    CHECK_U64(pk_reign_stamp(&r, 601), 400);
    CHECK_U64(r.left_out_ms, 301);
    CHECK_U64(pk_reign_stamp(&r, 611), 410);
    CHECK_U64(r.left_out_ms, 301);
}

TEST(reign__never_goes_back)
{
    struct pk_reign r = reign_at(100, 1000);
    CHECK_U64(pk_reign_stamp(&r, 1050), 150);
    CHECK_U64(pk_reign_stamp(&r, 1010), 150);
    CHECK_U64(pk_reign_stamp(&r, 1060), 160);
}

/* What was left out stays counted over reigns; time between reigns is nobody's. */
TEST(reign__begins_anew)
{
    struct pk_reign r = reign_at(100, 0);
    (void)pk_reign_stamp(&r, 1000);
    pk_reign_end(&r);
    CHECK(!r.began);
    pk_reign_begin(&r, 90, 9000);
    CHECK(r.began);
    CHECK_U64(pk_reign_stamp(&r, 9010), 100);
    CHECK_U64(r.left_out_ms, 1000);
}
