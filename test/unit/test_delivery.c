/* SPDX-License-Identifier: MIT */
/* What a renewal tells an owner that has missed events (rules D), where random worlds and
 * scenarios are too small: the bound of its rows, and numbers that go round. */
#include <stdio.h>

#include "core/door.h"
#include "core/state.h"
#include "tap.h"

static struct pk_machine *m;
static struct pk_effects effects;

static const struct pk_effect *step(struct pk_command c)
{
    pk_effects_reset(&effects);
    pk_machine_step(m, &c, &effects);
    return &effects.list[0];
}

static uint64_t open_lease(void)
{
    return step((struct pk_command){.verb = PK_LEASE_OPEN, .ttl_ms = 1000})->lease;
}

static uint64_t acquire(uint64_t lease, uint64_t request)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%d-%d", (int)lease, (int)request);
    return step((struct pk_command){.verb = PK_LOCK_ACQUIRE,
                                    .lease = lease,
                                    .request = request,
                                    .parts = {{pk_text(name), 0, PK_EXCLUSIVE}},
                                    .n_parts = 1})
        ->token;
}

static const struct pk_effect *release(uint64_t lease, uint64_t request, uint64_t token)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%d-%d", (int)lease, (int)request);
    return step((struct pk_command){
        .verb = PK_LOCK_RELEASE, .lease = lease, .name = pk_text(name), .token = token});
}

/* Renews the first `n` leases; the same number was heard of each. */
static void renew(uint32_t n, uint32_t number)
{
    unsigned char ids[8 * 4], heard[4 * 4];
    for (uint32_t i = 0; i < n; i++) {
        pk_command_put_lease(ids, i, i + UINT64_C(1));
        pk_command_put_heard(heard, i, number);
    }
    (void)step((struct pk_command){
        .verb = PK_LEASE_RENEW, .leases = ids, .heard = heard, .n_leases = n});
}

static void begin(void)
{
    pk_machine_free(m);
    m = pk_machine_new();
}

/* All replies of a renewal share 256 rows; each says whether some of its own are missing.
 */
TEST(delivery__a_renewal_has_at_most_256_rows)
{
    enum { FIRST = 200, SECOND = PK_RENEW_ROWS - FIRST };
    begin();
    for (int i = 0; i < 3; i++) {
        (void)open_lease();
    }
    for (uint64_t r = 1; r <= FIRST; r++) {
        CHECK(acquire(1, r) != 0);
    }
    for (uint64_t r = 1; r <= SECOND; r++) {
        CHECK(acquire(2, r) != 0);
    }
    renew(2, 5); /* of the third there is nothing to tell, and nothing is missing */
    CHECK_U64(effects.count, 2 + PK_RENEW_ROWS);
    CHECK(!effects.list[0].more && !effects.list[1 + FIRST].more);
    CHECK(effects.list[1 + FIRST].kind == PK_REPLY);
    CHECK_U64(effects.list[1 + FIRST].lease, 2);
    CHECK(acquire(2, SECOND + 1) != 0);
    renew(3, 5);
    CHECK_U64(effects.count, 3 + PK_RENEW_ROWS);
    CHECK(!effects.list[0].more && effects.list[1 + FIRST].more);
    CHECK(!effects.list[2 + PK_RENEW_ROWS].more);
    CHECK(acquire(3, 1) != 0);
    renew(3, 5);
    CHECK_U64(effects.count, 3 + PK_RENEW_ROWS);
    CHECK(effects.list[2 + PK_RENEW_ROWS].more);
    renew(3, 0); /* nothing was missed: a grant at once is no event */
    CHECK_U64(effects.count, 3);
}

/* Outcomes count as rows, too. */
TEST(delivery__outcomes_share_the_room)
{
    begin();
    (void)open_lease();
    uint64_t token = 0;
    for (uint64_t r = 1; r <= PK_RENEW_ROWS + 1; r++) {
        token = acquire(1, r);
        CHECK(token != 0);
    }
    CHECK_U64(release(1, PK_RENEW_ROWS + 1, token)->event, 1);
    renew(1, 0);
    CHECK_U64(effects.count, 1 + PK_RENEW_ROWS);
    CHECK(effects.list[0].more);
    CHECK(effects.list[PK_RENEW_ROWS].kind == PK_ROW_HOLD);
}

/* No row carries a value or a label: 256 of them stay small. */
TEST(delivery__rows_are_brief)
{
    static char big[60000];
    memset(big, 'v', sizeof big);
    begin();
    (void)step((struct pk_command){
        .verb = PK_LEASE_OPEN, .ttl_ms = 1000, .label = pk_text("web-1")});
    (void)step((struct pk_command){.verb = PK_LOCK_ACQUIRE,
                                   .lease = 1,
                                   .request = 1,
                                   .parts = {{pk_text("db"), 0, PK_EXCLUSIVE}},
                                   .n_parts = 1,
                                   .value = pk_bytes(big, sizeof big)});
    renew(1, 7);
    CHECK_U64(effects.count, 2);
    CHECK(effects.list[1].kind == PK_ROW_HOLD && effects.list[1].token == 1);
    CHECK(effects.list[1].value.len == 0 && effects.list[1].label.len == 0);
}

/* After the greatest number comes 1: 0 means that there was no event. */
TEST(delivery__numbers_go_round)
{
    begin();
    (void)open_lease();
    uint64_t a = acquire(1, 1), b = acquire(1, 2);
    struct pk_lease *l = pk_lease_find(m, 1);
    pk_item_out(m, PK_ITEM_LEASE, l);
    pk_replies_set_events(&l->replies, UINT32_MAX - 1);
    pk_item_in(m, PK_ITEM_LEASE, l);
    CHECK_U64(release(1, 1, a)->event, UINT32_MAX);
    CHECK_U64(release(1, 2, b)->event, 1);
    CHECK_U64(pk_machine_lease_events(m, 1), 1);
    CHECK_U64(pk_machine_lease_events(m, 2), 0);
    CHECK_STR(pk_machine_check(m), NULL);
    pk_machine_free(m);
    m = NULL;
    pk_effects_free(&effects);
}
