/* SPDX-License-Identifier: MIT */
#include "server/past.h"

#include <stdio.h>

#include "tap.h"

static struct pk_machine *m;
static struct pk_past *past;
static struct pk_effects effects;

static void begin(void)
{
    m = pk_machine_new();
    past = pk_past_new();
}

static void end(void)
{
    pk_machine_free(m);
    pk_past_free(past);
}

static struct pk_effect run(struct pk_command c)
{
    pk_effects_reset(&effects);
    pk_machine_step(m, &c, &effects);
    pk_past_step(past, m, &c, &effects);
    for (uint32_t i = 0; i < effects.count; i++) {
        if (effects.list[i].kind == PK_REPLY) {
            return effects.list[i];
        }
    }
    return (struct pk_effect){.status = PK_STATUS_COUNT};
}

static uint64_t lease_of(const char *label, uint64_t at_ms)
{
    return run((struct pk_command){.verb = PK_LEASE_OPEN,
                                   .stamp_ms = at_ms,
                                   .ttl_ms = 10000,
                                   .label = pk_text(label)})
        .lease;
}

static uint64_t acquire(uint64_t lease, const char *name, uint64_t at_ms)
{
    static uint64_t request;
    struct pk_command c = {.verb = PK_LOCK_ACQUIRE,
                           .stamp_ms = at_ms,
                           .lease = lease,
                           .request = ++request,
                           .n_parts = 1,
                           .wait_ms = PK_WAIT_FOREVER};
    c.parts[0] = (struct pk_part){.name = pk_text(name), .mode = PK_EXCLUSIVE};
    return run(c).token;
}

static void release(uint64_t lease, const char *name, uint64_t token, uint64_t at_ms)
{
    CHECK(run((struct pk_command){.verb = PK_LOCK_RELEASE,
                                  .stamp_ms = at_ms,
                                  .lease = lease,
                                  .name = pk_text(name),
                                  .token = token})
              .status == PK_OK);
}

static const struct pk_past_hold *hold(const char *name, uint32_t nth)
{
    return pk_past_hold(past, pk_text(name), nth);
}

TEST(past__knows_who_held_a_lock_and_how_it_ended)
{
    begin();
    uint64_t a = lease_of("first", 0);
    uint64_t b = lease_of("second", 0);
    uint64_t token = acquire(a, "db", 100);
    CHECK_U64(acquire(b, "db", 150), 0);
    CHECK(hold("db", 0)->end == PK_END_NONE && hold("db", 1) == NULL);
    release(a, "db", token, 400);
    CHECK(pk_bytes_equal(pk_past_text(&hold("db", 0)->label), pk_text("second")));
    CHECK_U64(hold("db", 0)->waited_ms, 250);
    CHECK_U64(hold("db", 0)->granted_ms, 400);
    CHECK(hold("db", 1)->end == PK_END_RELEASED);
    CHECK_U64(hold("db", 1)->token, token);
    CHECK_U64(hold("db", 1)->ended_ms, 400);
    CHECK(hold("other", 0) == NULL);
    CHECK_U64(pk_past_losses(past), 0);
    end();
}

TEST(past__keeps_the_latest_of_a_busy_lock)
{
    begin();
    uint64_t a = lease_of("a", 0);
    for (uint64_t i = 0; i < 100; i++) {
        release(a, "busy", acquire(a, "busy", i), i);
    }
    for (uint32_t i = 0; i < PK_PAST_HOLDS; i++) {
        CHECK_U64(hold("busy", i)->token, 100 - i);
    }
    CHECK(hold("busy", PK_PAST_HOLDS) == NULL);
    end();
}

/* Locks that share a ring push each other out, and are not taken for one another. */
TEST(past__does_not_mix_locks_up)
{
    begin();
    uint64_t a = lease_of("a", 0);
    char name[16];
    for (uint32_t i = 0; i < 20000; i++) {
        (void)snprintf(name, sizeof name, "l%u", i);
        uint64_t token = acquire(a, name, 1);
        CHECK(hold(name, 0) != NULL && hold(name, 0)->token == token);
        CHECK(hold(name, 1) == NULL);
        release(a, name, token, 1);
    }
    end();
}

TEST(past__tells_losses_with_their_reason)
{
    begin();
    uint64_t a = lease_of("careless", 0);
    uint64_t first = acquire(a, "db", 100);
    uint64_t b = lease_of("slow", 5000);
    uint64_t second = acquire(b, "disk", 6000);
    CHECK(run((struct pk_command){.verb = PK_LOCK_BREAK,
                                  .stamp_ms = 7000,
                                  .name = pk_text("disk"),
                                  .token = second,
                                  .principal = pk_text("ann"),
                                  .reason = pk_text("it hangs")})
              .status == PK_OK);
    (void)run((struct pk_command){.verb = PK_TICK, .stamp_ms = 10000});
    CHECK_U64(pk_past_losses(past), 2);
    const struct pk_past_loss *expired = pk_past_loss(past, 0);
    const struct pk_past_loss *broken = pk_past_loss(past, 1);
    CHECK(expired->end == PK_END_EXPIRED && expired->token == first);
    CHECK_U64(expired->held_ms, 9900);
    CHECK(pk_bytes_equal(pk_past_text(&expired->label), pk_text("careless")));
    CHECK(broken->end == PK_END_BROKEN && broken->at_ms == 7000);
    CHECK(pk_bytes_equal(pk_bytes(broken->name, broken->name_len), pk_text("disk")));
    CHECK(pk_bytes_equal(pk_past_text(&broken->by), pk_text("ann")));
    CHECK(pk_bytes_equal(pk_past_text(&broken->why), pk_text("it hangs")));
    CHECK(pk_past_loss(past, 2) == NULL);
    for (int i = 0; i < 2 * PK_PAST_LOSSES; i++) {
        uint64_t t = acquire(b, "disk", 10000);
        CHECK(run((struct pk_command){
                      .verb = PK_LOCK_BREAK, .name = pk_text("disk"), .token = t})
                  .status == PK_OK);
    }
    CHECK_U64(pk_past_losses(past), 2 + 2 * PK_PAST_LOSSES);
    CHECK(pk_past_loss(past, PK_PAST_LOSSES - 1) != NULL);
    CHECK(pk_past_loss(past, PK_PAST_LOSSES) == NULL);
    pk_past_forget(past);
    CHECK(pk_past_loss(past, 0) == NULL && hold("disk", 0) == NULL);
    end();
}

/* A lock of several holders: an end is noted on the hold that ended. */
TEST(past__tells_holds_of_one_lock_apart)
{
    begin();
    uint64_t a = lease_of("first", 0);
    uint64_t b = lease_of("second", 0);
    uint64_t tokens[2];
    for (int i = 0; i < 2; i++) {
        struct pk_command c = {.verb = PK_LOCK_ACQUIRE,
                               .lease = i == 0 ? a : b,
                               .n_parts = 1,
                               .parts = {{pk_text("db"), 0, PK_SHARED}}};
        tokens[i] = run(c).token;
    }
    release(b, "db", tokens[1], 100);
    CHECK(hold("db", 0)->end == PK_END_RELEASED && hold("db", 0)->token == tokens[1]);
    CHECK(hold("db", 1)->end == PK_END_NONE && hold("db", 1)->token == tokens[0]);
    (void)run((struct pk_command){.verb = PK_LEAP});
    CHECK(hold("db", 1)->end == PK_END_RESTORED);
    CHECK_U64(pk_past_losses(past), 1); /* a restore takes the lock from its holder */
    CHECK(pk_past_loss(past, 0)->end == PK_END_RESTORED);
    CHECK_U64(pk_past_loss(past, 0)->token, tokens[0]);
    end();
}

static enum pk_status claim(enum pk_verb verb, uint64_t token)
{
    return run((struct pk_command){.verb = verb,
                                   .name = pk_text("volume"),
                                   .token = token,
                                   .principal = pk_text("bob")})
        .status;
}

TEST(past__tells_what_fences_refuse)
{
    begin();
    CHECK(claim(PK_FENCE_CLAIM, 5) == PK_OK);
    CHECK_U64(pk_past_refusals(past), 0);
    CHECK(claim(PK_FENCE_CLAIM, 4) == PK_STALE);
    CHECK(claim(PK_FENCE_CHECK, 6) == PK_UNCLAIMED);
    const struct pk_past_refusal *r = pk_past_refusal(past, 1);
    CHECK(r->token == 4 && r->highest == 5 && r->why == PK_STALE && !r->shadow);
    CHECK(pk_bytes_equal(pk_bytes(r->name, r->name_len), pk_text("volume")));
    CHECK(pk_bytes_equal(pk_past_text(&r->by), pk_text("bob")));
    CHECK(pk_past_refusal(past, 0)->why == PK_UNCLAIMED);
    CHECK(run((struct pk_command){.verb = PK_FENCE_MODE,
                                  .name = pk_text("volume"),
                                  .flags = PK_FENCE_SHADOW})
              .status == PK_OK);
    CHECK(claim(PK_FENCE_CLAIM, 3) == PK_OK);
    CHECK(pk_past_refusal(past, 0)->shadow && pk_past_refusal(past, 0)->why == PK_STALE);
    CHECK_U64(pk_past_refusals(past), 3);
    end();
}
