/* SPDX-License-Identifier: MIT */
/* Each check by traces made by hand: what must be hit, and what is close but must not. */
#include "core/status.h"
#include "sim/check.h"
#include "tap.h"

enum { A, B, C };

static struct pk_checker checker;

static void begin(void)
{
    checker = (struct pk_checker){0};
}

static void feed(struct pk_record r)
{
    pk_checker_feed(&checker, &r);
}

static uint32_t hits(enum pk_check c)
{
    return checker.counts[c];
}

/* Nothing but that check, and it so often. */
static void only(enum pk_check c, uint32_t times)
{
    CHECK_U64(hits(c), times);
    CHECK_U64(pk_checker_mask(&checker), times > 0 ? UINT32_C(1) << c : 0);
}

static void granted(uint8_t who, uint64_t token)
{
    feed((struct pk_record){.kind = PK_REC_GRANTED, .who = who, .token = token});
}

static void ended(uint8_t who, uint64_t token)
{
    feed((struct pk_record){.kind = PK_REC_ENDED, .who = who, .token = token});
}

static void queued(enum pk_record_kind kind, uint8_t who, uint8_t claim)
{
    feed((struct pk_record){.kind = (uint8_t)kind, .who = who, .peer = claim});
}

static void trusted(uint64_t at_us, uint8_t who, uint64_t until_us)
{
    feed((struct pk_record){
        .at_us = at_us, .kind = PK_REC_TRUSTED, .who = who, .arg = until_us});
}

static void at(uint64_t at_us, enum pk_record_kind kind, uint8_t who)
{
    feed((struct pk_record){.at_us = at_us, .kind = (uint8_t)kind, .who = who});
}

struct write {
    uint32_t section;
    uint64_t token, value;
    uint8_t code;
};

static void wrote(uint8_t who, struct write x)
{
    feed((struct pk_record){.kind = PK_REC_WROTE,
                            .who = who,
                            .section = x.section,
                            .token = x.token,
                            .arg = x.value,
                            .code = x.code});
}

static void visited(uint8_t who, uint32_t section, uint8_t code)
{
    feed((struct pk_record){
        .kind = PK_REC_READ, .who = who, .section = section, .code = code});
}

TEST(check__one_holder_after_the_other)
{
    begin();
    granted(A, 1);
    ended(A, 1);
    granted(B, 2);
    only(PK_CHECK_TWO_HOLDERS, 0);
}

TEST(check__two_holders)
{
    begin();
    granted(A, 1);
    granted(B, 2);
    only(PK_CHECK_TWO_HOLDERS, 1);
    CHECK_U64(checker.hits[0].who, B);
    CHECK_U64(checker.hits[0].other, A);
    CHECK_U64(checker.hits[0].record, 1);
}

TEST(check__an_end_of_somebody_else_frees_nothing)
{
    begin();
    granted(A, 1);
    ended(B, 7);
    granted(B, 2);
    only(PK_CHECK_TWO_HOLDERS, 1);
}

TEST(check__an_end_of_an_older_hold_frees_nothing)
{
    begin();
    granted(A, 1);
    ended(A, 1);
    granted(A, 2);
    ended(A, 1);
    granted(B, 3);
    only(PK_CHECK_TWO_HOLDERS, 1);
}

TEST(check__the_same_token_again)
{
    begin();
    granted(A, 5);
    ended(A, 5);
    granted(A, 5);
    only(PK_CHECK_TOKEN_ORDER, 1);
}

TEST(check__a_lower_token)
{
    begin();
    granted(A, 5);
    ended(A, 5);
    granted(B, 4);
    only(PK_CHECK_TOKEN_ORDER, 1);
    CHECK_U64(checker.hits[0].other_token, 5);
}

TEST(check__grants_without_a_token_have_no_order)
{
    begin();
    granted(A, 0);
    ended(A, 0);
    granted(B, 0);
    only(PK_CHECK_TOKEN_ORDER, 0);
}

TEST(check__two_trust_at_once)
{
    begin();
    trusted(10, A, 100);
    trusted(99, B, 200);
    only(PK_CHECK_TWO_VALID, 1);
}

TEST(check__two_trust_one_after_the_other)
{
    begin();
    trusted(10, A, 100);
    trusted(100, B, 200);
    only(PK_CHECK_TWO_VALID, 0);
}

TEST(check__a_renewal_is_no_second_hit)
{
    begin();
    trusted(10, A, 100);
    trusted(50, B, 200);
    trusted(60, B, 250);
    only(PK_CHECK_TWO_VALID, 1);
}

TEST(check__who_stands_still_can_do_no_harm_until_it_wakes)
{
    begin();
    trusted(10, A, 100);
    at(20, PK_REC_PAUSED, A);
    trusted(50, B, 200);
    only(PK_CHECK_TWO_VALID, 0);
    at(60, PK_REC_RESUMED, A);
    only(PK_CHECK_TWO_VALID, 1);
}

TEST(check__who_wakes_too_late_trusts_no_more)
{
    begin();
    trusted(10, A, 100);
    at(20, PK_REC_PAUSED, A);
    trusted(50, B, 200);
    at(100, PK_REC_RESUMED, A);
    only(PK_CHECK_TWO_VALID, 0);
}

TEST(check__a_known_loss_ends_trust)
{
    begin();
    trusted(10, A, 100);
    at(40, PK_REC_LOST, A);
    trusted(50, B, 200);
    at(60, PK_REC_DOUBTED, B);
    trusted(70, C, 300);
    only(PK_CHECK_TWO_VALID, 0);
}

TEST(check__writes_that_build_on_each_other)
{
    begin();
    wrote(A, (struct write){1, 1, 1, 0});
    wrote(A, (struct write){1, 1, 2, 0});
    wrote(B, (struct write){2, 2, 3, 0});
    only(PK_CHECK_LOST_UPDATE, 0);
}

TEST(check__a_lost_update)
{
    begin();
    wrote(A, (struct write){1, 1, 1, 0});
    wrote(B, (struct write){2, 2, 1, 0});
    only(PK_CHECK_LOST_UPDATE, 1);
    CHECK_U64(checker.hits[0].other, A);
}

TEST(check__what_is_refused_did_not_happen)
{
    begin();
    wrote(B, (struct write){2, 2, 1, 0});
    wrote(A, (struct write){1, 1, 1, 1});
    wrote(A, (struct write){1, 1, 1, 2});
    wrote(B, (struct write){2, 2, 2, 0});
    only(PK_CHECK_LOST_UPDATE, 0);
}

TEST(check__a_fence_that_falls)
{
    begin();
    wrote(B, (struct write){0, 2, 1, 0});
    wrote(A, (struct write){0, 1, 2, 0});
    only(PK_CHECK_FENCE_BACK, 1);
    CHECK_U64(checker.hits[0].other_token, 2);
}

TEST(check__a_fence_of_a_store_without_tokens)
{
    begin();
    wrote(B, (struct write){0, 2, 1, 0});
    wrote(A, (struct write){0, 0, 2, 0});
    only(PK_CHECK_FENCE_BACK, 0);
}

TEST(check__a_write_after_the_next_holder_has_read)
{
    begin();
    visited(A, 1, 0);
    visited(B, 2, 0);
    wrote(A, (struct write){1, 0, 1, 0});
    only(PK_CHECK_STALE_WRITE, 1);
    CHECK_U64(checker.hits[0].other, B);
}

TEST(check__a_write_before_the_next_holder_reads_is_fine)
{
    begin();
    visited(A, 1, 0);
    wrote(A, (struct write){1, 0, 1, 0});
    visited(B, 2, 0);
    wrote(B, (struct write){2, 0, 2, 0});
    only(PK_CHECK_STALE_WRITE, 0);
}

TEST(check__a_read_that_was_refused_is_no_visit)
{
    begin();
    visited(B, 2, 1);
    wrote(A, (struct write){1, 0, 1, 0});
    only(PK_CHECK_STALE_WRITE, 0);
}

TEST(check__first_come_first_served)
{
    begin();
    queued(PK_REC_QUEUED, A, 1);
    queued(PK_REC_QUEUED, B, 1);
    queued(PK_REC_GRANTED, A, 1);
    queued(PK_REC_ENDED, A, 1);
    queued(PK_REC_GRANTED, B, 1);
    only(PK_CHECK_QUEUE_ORDER, 0);
}

TEST(check__served_out_of_turn)
{
    begin();
    queued(PK_REC_QUEUED, A, 1);
    queued(PK_REC_QUEUED, B, 1);
    queued(PK_REC_GRANTED, B, 1);
    only(PK_CHECK_QUEUE_ORDER, 1);
    CHECK_U64(checker.hits[0].other, A);
}

TEST(check__passing_the_queue)
{
    begin();
    queued(PK_REC_QUEUED, A, 1);
    queued(PK_REC_GRANTED, B, 1);
    only(PK_CHECK_QUEUE_ORDER, 1);
}

TEST(check__who_left_the_queue_is_not_waited_for)
{
    begin();
    queued(PK_REC_QUEUED, A, 1);
    queued(PK_REC_QUEUED, B, 1);
    queued(PK_REC_LEFT, A, 1);
    queued(PK_REC_GRANTED, B, 1);
    only(PK_CHECK_QUEUE_ORDER, 0);
}

TEST(check__two_claims_of_one_client_are_two)
{
    begin();
    queued(PK_REC_QUEUED, A, 1);
    queued(PK_REC_QUEUED, A, 2);
    queued(PK_REC_GRANTED, A, 2);
    only(PK_CHECK_QUEUE_ORDER, 1);
}

TEST(check__equal_and_different_replicas)
{
    begin();
    feed((struct pk_record){.kind = PK_REC_DIGEST, .who = 0, .arg = 7});
    feed((struct pk_record){.kind = PK_REC_DIGEST, .who = 1, .arg = 7});
    only(PK_CHECK_DIGESTS, 0);
    feed((struct pk_record){.kind = PK_REC_DIGEST, .who = 1, .arg = 8});
    only(PK_CHECK_DIGESTS, 1);
}

TEST(check__counts_go_on_when_the_list_is_full)
{
    begin();
    for (uint32_t i = 0; i <= PK_HITS_MAX + 4; i++) {
        granted(A, 1000 - i);
        ended(A, 1000 - i);
    }
    CHECK_U64(checker.n_hits, PK_HITS_MAX);
    CHECK_U64(hits(PK_CHECK_TOKEN_ORDER), PK_HITS_MAX + 4);
}

TEST(check__names_are_found)
{
    for (uint32_t i = 0; i < PK_CHECK_COUNT; i++) {
        const char *name = pk_check_name((enum pk_check)i);
        CHECK_U64(pk_check_named(name, strlen(name)), i);
        CHECK(pk_check_text((enum pk_check)i)[0] != '\0');
    }
    CHECK_U64(pk_check_named("two", 3), PK_CHECK_COUNT);
}

TEST(check__a_hit_is_explained)
{
    struct pk_prose out = {0};
    begin();
    granted(A, 3);
    granted(B, 4);
    pk_hit_explain(&checker.hits[0], &out);
    CHECK_STR(out.data, "At 0.000 s B with token 4 was given the lock while A with token "
                        "3 still had it by the service's own account.");
    pk_prose_free(&out);
}
