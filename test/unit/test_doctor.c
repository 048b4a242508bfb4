/* SPDX-License-Identifier: MIT */
/* What `picket doctor` makes of what it has measured. */
#include "cli/doctor.h"
#include "tap.h"

#include <string.h>

/* The only finding for such times. */
static struct pk_finding judge(uint64_t p50_us, uint64_t max_us, uint64_t pause_us,
                               uint64_t ttl_ms)
{
    struct pk_doctor_times t = {
        .calls = 50, .p50_us = p50_us, .max_us = max_us, .pause_us = pause_us};
    struct pk_findings found = {0};
    pk_doctor_judge(&t, ttl_ms, &found);
    CHECK(found.count == 1);
    struct pk_finding only = found.list[0];
    pk_findings_free(&found);
    return only;
}

TEST(judge__is_content_with_a_quick_store_and_a_quiet_machine)
{
    struct pk_finding f = judge(200, 900, 3000, 10000);
    CHECK(f.grade == PK_FINE);
    CHECK(strcmp(f.code, "ttl") == 0);
}

/* 1 s is renewed at 333 ms and trusted until 930 ms: 597 ms lie between. */
TEST(judge__wants_a_lease_to_outlive_pause_and_answer)
{
    CHECK(judge(100, 0, 596000, 1000).grade == PK_NOTE);
    struct pk_finding f = judge(100, 0, 597000, 1000);
    CHECK(f.grade == PK_UNSAFE);
    CHECK(strcmp(f.code, "ttl-too-short") == 0);
    CHECK(judge(100, 300000, 297000, 1000).grade == PK_UNSAFE);
}

TEST(judge__wants_ten_round_trips_in_a_lease)
{
    CHECK(judge(100000, 100000, 0, 1000).grade != PK_UNSAFE);
    struct pk_finding f = judge(100001, 100001, 0, 1000);
    CHECK(f.grade == PK_UNSAFE);
    CHECK(strcmp(f.code, "ttl-too-short") == 0);
}

/* Who follows the advice is content. */
TEST(judge__advises_a_ttl_that_will_do)
{
    CHECK(strstr(judge(100, 0, 700000, 1000).text, "--ttl 6s or more") != NULL);
    CHECK(judge(100, 0, 700000, 6000).grade == PK_FINE);
    CHECK(strstr(judge(200000, 200000, 0, 1000).text, "--ttl 5s or more") != NULL);
    CHECK(judge(200000, 200000, 0, 5000).grade == PK_FINE);
}
