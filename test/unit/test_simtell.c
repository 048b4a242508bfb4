/* SPDX-License-Identifier: MIT */
/* Records in words: each kind has a sentence, and it says what happened. */
#include "sim/tell.h"

#include <string.h>

#include "core/status.h"
#include "sim/world.h"
#include "tap.h"

static struct pk_prose told;

static const char *tell(struct pk_record r)
{
    told.len = 0;
    pk_prose_add(&told, "");
    pk_record_tell(&r, &told);
    return told.data;
}

TEST(tell__every_kind_has_a_sentence)
{
    for (uint32_t kind = 0; kind < PK_RECORD_KINDS; kind++) {
        const char *text = tell((struct pk_record){.kind = (uint8_t)kind});
        CHECK(strlen(text) > 8);
        CHECK(strpbrk(text, "%?") == NULL);
    }
    CHECK_STR(tell((struct pk_record){.kind = PK_RECORD_KINDS}), "?");
    pk_prose_free(&told);
}

TEST(tell__codes_that_nobody_knows_do_no_harm)
{
    for (uint32_t kind = 0; kind < PK_RECORD_KINDS; kind++) {
        struct pk_record r = {.kind = (uint8_t)kind,
                              .who = UINT8_MAX,
                              .peer = UINT8_MAX,
                              .code = UINT8_MAX,
                              .token = UINT64_MAX,
                              .arg = UINT64_MAX};
        CHECK(strlen(tell(r)) > 8);
    }
    pk_prose_free(&told);
}

TEST(tell__says_who_and_with_which_token)
{
    CHECK_STR(tell((struct pk_record){.kind = PK_REC_GRANTED, .who = 1, .token = 7}),
              "the service gives the lock to B with token 7");
    CHECK_STR(tell((struct pk_record){.kind = PK_REC_GRANTED, .who = 1}),
              "the service gives the lock to B");
    CHECK_STR(tell((struct pk_record){
                  .kind = PK_REC_ENDED, .token = 3, .code = PK_END_EXPIRED}),
              "for the service, A's hold with token 3 is over: "
              "its lease was not renewed in time");
    CHECK_STR(tell((struct pk_record){.kind = PK_REC_RAISED, .token = 9}),
              "the fence stands at token 9");
    pk_prose_free(&told);
}

TEST(tell__refusals_are_not_told_as_done)
{
    struct pk_record r = {.kind = PK_REC_WROTE, .who = 2, .token = 4, .arg = 11};
    CHECK_STR(tell(r), "C writes 11 with token 4");
    r.code = 1;
    CHECK_STR(tell(r), "the resource refuses C's write of 11 with token 4");
    r.kind = PK_REC_READ;
    CHECK_STR(tell(r), "the resource refuses to be read by C with token 4");
    r.code = 0;
    CHECK_STR(tell(r), "C reads 11 with token 4");
    pk_prose_free(&told);
}

TEST(tell__times_lengths_and_messages)
{
    CHECK_STR(tell((struct pk_record){.kind = PK_REC_PAUSED, .arg = 8200000}),
              "A stands still until 8.200 s");
    CHECK_STR(tell((struct pk_record){.kind = PK_REC_CUT, .peer = PK_WHO_SERVICE}),
              "the link from A to service is cut");
    CHECK_STR(tell((struct pk_record){.kind = PK_REC_JUMPED,
                                      .who = PK_WHO_NODE + 2,
                                      .arg = (uint64_t)-1500000}),
              "n3's wall clock jumps by -1.5 s");
    CHECK_STR(tell((struct pk_record){.kind = PK_REC_DRIFTS, .arg = (uint64_t)-20}),
              "A's clock runs fast by -20 millionths");
    struct pk_record sent = {
        .kind = PK_REC_SENT, .peer = PK_WHO_RESOURCE, .code = PK_WORD_WRITE, .arg = 5};
    CHECK_STR(tell(sent), "A says \"write\" to resource");
    sent.arg = 0;
    CHECK_STR(tell(sent), "A says \"write\" to resource; it gets lost");
    CHECK_STR(tell((struct pk_record){.kind = PK_REC_IGNORED, .code = PK_OP_RELEASE}),
              "A can't release now");
    pk_prose_free(&told);
}

TEST(tell__the_machinery_is_detail)
{
    CHECK(pk_record_weight(&(struct pk_record){.kind = PK_REC_SENT}) == PK_WEIGHT_DETAIL);
    CHECK(pk_record_weight(&(struct pk_record){.kind = PK_REC_RENEWED}) ==
          PK_WEIGHT_DETAIL);
    CHECK(pk_record_weight(&(struct pk_record){.kind = PK_REC_GRANTED}) ==
          PK_WEIGHT_EVENT);
    CHECK(pk_record_weight(&(struct pk_record){.kind = PK_REC_WROTE}) == PK_WEIGHT_EVENT);
}
