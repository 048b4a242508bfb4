/* SPDX-License-Identifier: MIT */
/* Tokens at the far end (P2): leaps stop before numbers that JSON can't carry exactly. */
#include "core/state.h"

#include "tap.h"

static struct pk_effect reply_to(struct pk_machine *m, const struct pk_command *c)
{
    static struct pk_effects effects;
    pk_effects_reset(&effects);
    pk_machine_step(m, c, &effects);
    return effects.list[0];
}

TEST(tokens__leaps_end_below_the_largest_token)
{
    struct pk_machine *m = pk_machine_new();
    struct pk_command leap = {.verb = PK_LEAP};
    uint64_t leaps = 0;
    struct pk_effect e = reply_to(m, &leap);
    while (e.status == PK_OK) {
        leaps++;
        CHECK_U64(e.token, leaps * PK_TOKEN_LEAP);
        e = reply_to(m, &leap);
    }
    CHECK(e.status == PK_LIMIT);
    CHECK(pk_bytes_equal(e.why, pk_text("tokens")));
    CHECK_U64(leaps, PK_TOKEN_MAX / PK_TOKEN_LEAP);
    CHECK(pk_machine_last_token(m) <= PK_TOKEN_MAX);
    CHECK(pk_machine_last_token(m) + PK_TOKEN_LEAP > PK_TOKEN_MAX);
    CHECK_STR(pk_machine_check(m), NULL);
    pk_machine_free(m);
}

TEST(tokens__grants_go_on_above_a_leap)
{
    struct pk_machine *m = pk_machine_new();
    struct pk_command leap = {.verb = PK_LEAP};
    struct pk_command open = {.verb = PK_LEASE_OPEN, .ttl_ms = 1000};
    struct pk_command acquire = {.verb = PK_LOCK_ACQUIRE, .lease = 1, .n_parts = 1};
    acquire.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_EXCLUSIVE};
    CHECK(reply_to(m, &open).status == PK_OK);
    CHECK_U64(reply_to(m, &acquire).token, 1);
    CHECK_U64(reply_to(m, &leap).token, 1 + PK_TOKEN_LEAP);
    CHECK(reply_to(m, &acquire).status == PK_LOST);
    acquire.lease = reply_to(m, &open).lease;
    CHECK_U64(acquire.lease, 1 + PK_TOKEN_LEAP); /* ids of leases leap too */
    CHECK_U64(reply_to(m, &acquire).token, 2 + PK_TOKEN_LEAP);
    pk_machine_free(m);
}

TEST(tokens__a_leap_starts_from_the_higher_of_two)
{
    struct pk_machine *m = pk_machine_new();
    struct pk_command leap = {.verb = PK_LEAP, .token = 1000};
    CHECK_U64(reply_to(m, &leap).token, 1000 + PK_TOKEN_LEAP);
    CHECK_U64(reply_to(m, &leap).token, 1000 + 2 * PK_TOKEN_LEAP); /* its own is higher */
    leap.token = PK_TOKEN_MAX - PK_TOKEN_LEAP + 1;
    struct pk_effect e = reply_to(m, &leap);
    CHECK(e.status == PK_LIMIT);
    CHECK(pk_bytes_equal(e.why, pk_text("tokens")));
    CHECK_U64(pk_machine_last_token(m), 1000 + 2 * PK_TOKEN_LEAP);
    leap.token = PK_TOKEN_MAX - PK_TOKEN_LEAP;
    CHECK_U64(reply_to(m, &leap).token, PK_TOKEN_MAX);
    CHECK_STR(pk_machine_check(m), NULL);
    pk_machine_free(m);
}

/* Two keys need two tokens, and those in reserve for waiters are not there for them. */
TEST(tokens__run_out_for_keys_before_any_is_taken)
{
    struct pk_machine *m = pk_machine_new();
    struct pk_command take = {.verb = PK_KEY_TAKE, .ttl_ms = 1000, .n_parts = 2};
    take.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_EXCLUSIVE};
    take.parts[1] = (struct pk_part){.name = pk_text("b"), .mode = PK_EXCLUSIVE};
    m->last_token = PK_TOKEN_MAX - 1;
    struct pk_effect e = reply_to(m, &take);
    CHECK(e.status == PK_LIMIT);
    CHECK(pk_bytes_equal(e.why, pk_text("tokens")));
    CHECK_U64(pk_machine_stats(m).leases, 0);
    CHECK_U64(pk_machine_last_token(m), PK_TOKEN_MAX - 1);
    m->last_token = PK_TOKEN_MAX - 2;
    e = reply_to(m, &take);
    CHECK(e.status == PK_OK);
    CHECK_U64(e.token, PK_TOKEN_MAX - 1);
    CHECK_U64(e.lease, 1);
    CHECK_U64(e.holders, 2);
    CHECK_U64(pk_machine_last_token(m), PK_TOKEN_MAX);
    CHECK_STR(pk_machine_check(m), NULL);
    pk_machine_free(m);
}

/* The last tokens: who waits has one in reserve, and nobody is let in beyond that. */
TEST(tokens__run_out_by_a_refusal_and_never_in_a_grant)
{
    struct pk_machine *m = pk_machine_new();
    struct pk_command open = {.verb = PK_LEASE_OPEN, .ttl_ms = 1000};
    struct pk_command acquire = {
        .verb = PK_LOCK_ACQUIRE, .lease = 1, .n_parts = 1, .wait_ms = PK_WAIT_FOREVER};
    acquire.parts[0] = (struct pk_part){.name = pk_text("a"), .mode = PK_EXCLUSIVE};
    CHECK(reply_to(m, &open).status == PK_OK);
    m->last_token = PK_TOKEN_MAX - 2;
    CHECK_U64(reply_to(m, &acquire).token, PK_TOKEN_MAX - 1);
    CHECK(reply_to(m, &acquire).status == PK_QUEUED);
    struct pk_effect e = reply_to(m, &acquire);
    CHECK(e.status == PK_LIMIT);
    CHECK(pk_bytes_equal(e.why, pk_text("tokens")));
    struct pk_command release = {.verb = PK_LOCK_RELEASE,
                                 .lease = 1,
                                 .name = pk_text("a"),
                                 .token = PK_TOKEN_MAX - 1};
    CHECK(reply_to(m, &release).status == PK_OK);
    CHECK_U64(pk_machine_last_token(m), PK_TOKEN_MAX);
    CHECK(reply_to(m, &acquire).status == PK_LIMIT);
    CHECK_STR(pk_machine_check(m), NULL);
    pk_machine_free(m);
}
