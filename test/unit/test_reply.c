/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "chance.h"
#include "proto/proto.h"
#include "tap.h"

/* By hand and not by the table under test, so that a field it forgets is missed here. */
static const char *difference(const struct pk_effect *a, const struct pk_effect *b)
{
#define NUMBER(member)                                                                   \
    if (a->member != b->member) {                                                        \
        return #member;                                                                  \
    }
#define TEXT(member)                                                                     \
    if (!pk_bytes_equal(a->member, b->member)) {                                         \
        return #member;                                                                  \
    }
    NUMBER(kind)
    NUMBER(status)
    NUMBER(end)
    NUMBER(mode)
    NUMBER(slots)
    NUMBER(part)
    NUMBER(parts)
    NUMBER(place)
    NUMBER(holders)
    NUMBER(waiters)
    NUMBER(would)
    NUMBER(shadow)
    NUMBER(shadowed)
    NUMBER(value_bytes)
    NUMBER(lease)
    NUMBER(request)
    NUMBER(token)
    NUMBER(left_ms)
    NUMBER(closed_ms)
    NUMBER(since_ms)
    NUMBER(renew_after_ms)
    TEXT(name)
    TEXT(value)
    TEXT(label)
    TEXT(by)
    TEXT(why)
#undef NUMBER
#undef TEXT
    return NULL;
}

static struct pk_effect some_effect(enum pk_effect_kind kind)
{
    struct pk_effect e = {.kind = kind};
    e.end = (enum pk_end)below(PK_END_COUNT);
    e.mode = (enum pk_mode)below(PK_SLOT + 1);
    e.slots = (uint32_t)some_number(UINT32_MAX);
    e.part = (uint32_t)some_number(15);
    e.parts = (uint32_t)some_number(16);
    e.place = (uint32_t)some_number(UINT32_MAX);
    e.holders = (uint32_t)some_number(UINT32_MAX);
    e.waiters = (uint32_t)some_number(UINT32_MAX);
    e.would = (enum pk_status)below(PK_STATUS_COUNT);
    e.shadow = (uint32_t)below(2);
    e.shadowed = some_number(UINT64_MAX);
    e.value_bytes = (uint32_t)some_number(UINT32_MAX);
    e.lease = some_number(UINT64_MAX);
    e.request = some_number(UINT64_MAX);
    e.token = some_number(UINT64_MAX);
    e.left_ms = some_number(UINT64_MAX);
    e.closed_ms = some_number(UINT64_MAX);
    e.since_ms = some_number(UINT64_MAX);
    e.renew_after_ms = some_number(UINT64_MAX);
    e.name = some_text(hostile, HOSTILE, 6);
    e.value = some_text(hostile, HOSTILE, 12);
    e.label = some_text(hostile, HOSTILE, 12);
    e.by = some_text(hostile, HOSTILE, 3);
    e.why = some_text(hostile, HOSTILE, 6);
    return e;
}

static enum pk_effect_kind some_event(void)
{
    return (enum pk_effect_kind)(PK_EV_LEASE_OPENED +
                                 below(PK_EFFECT_COUNT - PK_EV_LEASE_OPENED));
}

static struct pk_bytes all_of(const struct pk_resp_out *o)
{
    return pk_bytes(o->data, o->len);
}

/* ---- round trips ---- */

/* Replies of any status, each with rows, and events between them that are passed over.
 * `expected` gets what must come back. */
static void some_answer(struct pk_effects *all, struct pk_effects *expected)
{
    uint64_t replies = below(3) == 0 ? 1 + below(5) : 1;
    for (uint64_t r = 0; r < replies; r++) {
        struct pk_effect e = some_effect(PK_REPLY);
        e.status = (enum pk_status)below(PK_STATUS_COUNT);
        e.verb = (enum pk_verb)below(PK_VERB_COUNT);
        if (below(4) == 0) {
            e = (struct pk_effect){.kind = PK_REPLY, .status = e.status};
        }
        pk_effects_add(all, &e);
        pk_effects_add(expected, &e);
        for (uint64_t rows = below(4); rows > 0; rows--) {
            e = some_effect((enum pk_effect_kind)(PK_ROW_LOCK + below(3)));
            pk_effects_add(all, &e);
            pk_effects_add(expected, &e);
        }
        for (uint64_t events = below(3); events > 0; events--) {
            e = some_effect(some_event());
            pk_effects_add(all, &e);
        }
    }
}

TEST(reply__an_answer_survives_the_way_over_the_wire)
{
    struct pk_effects all = {0}, expected = {0}, back = {0};
    struct pk_resp_out o = {0};
    state = 1;
    for (int round = 0; round < 4000; round++) {
        pk_effects_reset(&all);
        pk_effects_reset(&expected);
        pk_effects_reset(&back);
        rewind_texts();
        o.len = 0;
        o.resp3 = round % 2 == 0;
        some_answer(&all, &expected);
        pk_proto_write_reply(&o, &all);
        struct pk_bytes error;
        CHECK(pk_proto_read_answer(all_of(&o), &back, &error) == PK_PROTO_REPLY);
        CHECK_U64(error.len, 0);
        CHECK_U64(back.count, expected.count);
        for (uint32_t i = 0; i < back.count; i++) {
            const char *differs = difference(&back.list[i], &expected.list[i]);
            CHECK_STR(differs == NULL ? "" : differs, "");
        }
    }
    pk_effects_free(&all);
    pk_effects_free(&expected);
    pk_effects_free(&back);
    pk_resp_free(&o);
}

TEST(reply__an_event_survives_the_way_over_the_wire)
{
    struct pk_effects back = {0};
    struct pk_resp_out o = {0};
    state = 2;
    for (int i = 0; i < 2000; i++, rewind_texts()) {
        struct pk_effect e = some_effect(some_event());
        struct pk_bytes error;
        pk_effects_reset(&back);
        o.len = 0;
        o.resp3 = i % 2 == 0;
        pk_proto_write_event(&o, &e);
        CHECK(o.data[0] == (o.resp3 ? '>' : '*'));
        CHECK(pk_proto_read_answer(all_of(&o), &back, &error) == PK_PROTO_EVENT);
        CHECK_U64(back.count, 1);
        const char *differs = difference(&back.list[0], &e);
        CHECK_STR(differs == NULL ? "" : differs, "");
    }
    pk_effects_free(&back);
    pk_resp_free(&o);
}

/* ---- the bytes ---- */

static const char *written(struct pk_resp_out *o)
{
    static char text[2048];
    CHECK(o->len < sizeof text);
    memcpy(text, o->data, o->len);
    text[o->len] = '\0';
    o->len = 0;
    return text;
}

static void write_list(struct pk_resp_out *o, struct pk_effect *list, uint32_t n)
{
    pk_proto_write_reply(o, &(struct pk_effects){.list = list, .count = n});
}

TEST(reply__what_was_done_is_a_map_that_begins_with_its_status)
{
    struct pk_effect list[] = {
        {.kind = PK_EV_LEASE_ENDED, .lease = 3},
        {.kind = PK_REPLY, .status = PK_OK, .lease = 7, .renew_after_ms = 333},
        {.kind = PK_EV_LEASE_OPENED, .lease = 7},
    };
    struct pk_resp_out o = {.resp3 = true};
    write_list(&o, list, 3);
    CHECK_STR(written(&o), "%3\r\n$6\r\nstatus\r\n$2\r\nOK\r\n$5\r\nlease\r\n:7\r\n"
                           "$14\r\nrenew_after_ms\r\n:333\r\n");
    o.resp3 = false;
    write_list(&o, list, 3);
    CHECK_STR(written(&o), "*6\r\n$6\r\nstatus\r\n$2\r\nOK\r\n$5\r\nlease\r\n:7\r\n"
                           "$14\r\nrenew_after_ms\r\n:333\r\n");
    pk_resp_free(&o);
}

TEST(reply__rows_are_maps_that_begin_with_their_kind)
{
    struct pk_effect list[] = {
        {.kind = PK_REPLY, .status = PK_QUEUED, .place = 1},
        {.kind = PK_ROW_HOLD, .mode = PK_SHARED, .token = 4},
    };
    struct pk_resp_out o = {.resp3 = true};
    write_list(&o, list, 2);
    CHECK_STR(written(&o), "%3\r\n$6\r\nstatus\r\n$6\r\nQUEUED\r\n$5\r\nplace\r\n:1\r\n"
                           "$4\r\nrows\r\n*1\r\n%3\r\n$4\r\nkind\r\n$4\r\nhold\r\n"
                           "$4\r\nmode\r\n$6\r\nshared\r\n$5\r\ntoken\r\n:4\r\n");
    pk_resp_free(&o);
}

TEST(reply__what_shadow_mode_lets_through_says_what_it_would_have_been)
{
    struct pk_effect list[] = {
        {.kind = PK_REPLY, .status = PK_OK, .token = 2, .would = PK_STALE}};
    struct pk_resp_out o = {.resp3 = true};
    write_list(&o, list, 1);
    CHECK_STR(written(&o), "%3\r\n$6\r\nstatus\r\n$2\r\nOK\r\n$5\r\ntoken\r\n:2\r\n"
                           "$5\r\nwould\r\n$5\r\nSTALE\r\n");
    list[0] = (struct pk_effect){
        .kind = PK_REPLY, .token = 2, .shadow = 1, .shadowed = 3, .value_bytes = 6};
    write_list(&o, list, 1);
    CHECK_STR(written(&o), "%5\r\n$6\r\nstatus\r\n$2\r\nOK\r\n$5\r\ntoken\r\n:2\r\n"
                           "$6\r\nshadow\r\n:1\r\n$8\r\nshadowed\r\n:3\r\n"
                           "$11\r\nvalue_bytes\r\n:6\r\n");
    pk_resp_free(&o);
}

TEST(reply__a_refusal_is_one_line_with_its_fields)
{
    struct pk_effect list[] = {
        {.kind = PK_REPLY, .status = PK_BUSY, .name = pk_text("a b"), .waiters = 2},
        {.kind = PK_ROW_HOLD,
         .end = PK_END_NONE,
         .mode = PK_EXCLUSIVE,
         .token = 9,
         .label = pk_text("host=x\r\n50%")},
    };
    struct pk_resp_out o = {0};
    write_list(&o, list, 2);
    CHECK_STR(written(&o),
              "-BUSY held by somebody else: name=a%20b waiters=2 row.kind=hold "
              "row.mode=exclusive row.token=9 row.label=host%3Dx%0D%0A50%25\r\n");
    list[0] = (struct pk_effect){.kind = PK_REPLY, .status = PK_LOST};
    write_list(&o, list, 1);
    CHECK_STR(written(&o), "-LOST the lease has ended, and everything on it\r\n");
    pk_resp_free(&o);
}

/* For people: what is wrong is the sentence. What can't be one is a field. */
TEST(reply__a_bad_argument_speaks_for_itself)
{
    static const struct {
        const char *why, *line;
    } cases[] = {
        {"the name is empty", "-BADARG the name is empty: request=7\r\n"},
        {"50% = \xc3\xbc", "-BADARG 50% = \xc3\xbc: request=7\r\n"},
        {"", "-BADARG not a valid request: request=7\r\n"},
        {"so: a=b", "-BADARG not a valid request: request=7 why=so:%20a%3Db\r\n"},
        {"a\r\nb", "-BADARG not a valid request: request=7 why=a%0D%0Ab\r\n"},
        {"not a valid request", "-BADARG not a valid request: request=7 "
                                "why=not%20a%20valid%20request\r\n"},
    };
    struct pk_effects back = {0};
    struct pk_resp_out o = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pk_bytes error;
        struct pk_effect e = {.kind = PK_REPLY,
                              .status = PK_BADARG,
                              .request = 7,
                              .why = pk_text(cases[i].why)};
        write_list(&o, &e, 1);
        pk_effects_reset(&back);
        CHECK(pk_proto_read_answer(all_of(&o), &back, &error) == PK_PROTO_REPLY);
        CHECK(back.count == 1 && difference(&back.list[0], &e) == NULL);
        CHECK_STR(written(&o), cases[i].line);
    }
    pk_effects_free(&back);
    pk_resp_free(&o);
}

TEST(reply__several_leases_get_an_answer_each)
{
    struct pk_effect list[] = {
        {.kind = PK_REPLY, .status = PK_OK, .lease = 1},
        {.kind = PK_REPLY, .status = PK_LOST, .lease = 2, .end = PK_END_TIMED_OUT},
    };
    struct pk_resp_out o = {.resp3 = true};
    write_list(&o, list, 2);
    CHECK_STR(written(&o), "*2\r\n%2\r\n$6\r\nstatus\r\n$2\r\nOK\r\n$5\r\nlease\r\n:1\r\n"
                           "-LOST the lease has ended, and everything on it: lease=2 "
                           "end=timed-out\r\n");
    write_list(&o, list, 1);
    CHECK_STR(written(&o), "%2\r\n$6\r\nstatus\r\n$2\r\nOK\r\n$5\r\nlease\r\n:1\r\n");
    pk_resp_free(&o);
}

TEST(reply__a_gap_is_an_event_that_may_name_a_lease)
{
    struct pk_effects back = {0};
    struct pk_bytes error;
    struct pk_resp_out o = {.resp3 = true};
    pk_proto_write_gap(&o, 0);
    CHECK(pk_proto_read_answer(all_of(&o), &back, &error) == PK_PROTO_GAP);
    CHECK_STR(written(&o), ">3\r\n$5\r\nevent\r\n$3\r\ngap\r\n%0\r\n");
    pk_proto_write_gap(&o, 7);
    CHECK(pk_proto_read_answer(all_of(&o), &back, &error) == PK_PROTO_GAP);
    CHECK_STR(written(&o), ">3\r\n$5\r\nevent\r\n$3\r\ngap\r\n%1\r\n"
                           "$5\r\nlease\r\n:7\r\n");
    o.resp3 = false;
    pk_proto_write_gap(&o, 0);
    CHECK(pk_proto_read_answer(all_of(&o), &back, &error) == PK_PROTO_GAP);
    CHECK_U64(back.count, 0);
    pk_effects_free(&back);
    pk_resp_free(&o);
}

/* ---- what else may come ---- */

static enum pk_proto_answer answer_to(const char *in, struct pk_effects *out)
{
    struct pk_bytes error;
    pk_effects_reset(out);
    return pk_proto_read_answer(pk_text(in), out, &error);
}

/* A newer server may say more, in any order and in either form of a map. */
TEST(reply__fields_that_are_not_known_are_passed_over)
{
    struct pk_effects out = {0};
    CHECK(answer_to("%4\r\n+status\r\n+OK\r\n+rows\r\n*1\r\n*4\r\n+kind\r\n+wait\r\n"
                    "+place\r\n$1\r\n3\r\n+new\r\n*2\r\n%1\r\n:1\r\n:2\r\n_\r\n"
                    "+token\r\n:5\r\n",
                    &out) == PK_PROTO_REPLY);
    CHECK_U64(out.count, 2);
    CHECK(out.list[0].kind == PK_REPLY && out.list[0].token == 5);
    CHECK(out.list[1].kind == PK_ROW_WAIT && out.list[1].place == 3);
    CHECK(answer_to("-BUSY new words: hue=red token=5 row.kind=lock row.hue=%20\r\n",
                    &out) == PK_PROTO_REPLY);
    CHECK_U64(out.count, 2);
    CHECK(out.list[0].status == PK_BUSY && out.list[0].token == 5);
    CHECK(out.list[1].kind == PK_ROW_LOCK);
    CHECK(answer_to("-LOST\r\n", &out) == PK_PROTO_REPLY);
    CHECK(out.count == 1 && out.list[0].status == PK_LOST);
    pk_effects_free(&out);
}

TEST(reply__what_is_not_ours_is_strange)
{
    static const char *const cases[] = {
        "+PONG\r\n",
        ":1\r\n",
        "_\r\n",
        "$-1\r\n",
        "*0\r\n",
        "%0\r\n",
        "%1\r\n+server\r\n+picket\r\n",
        "*2\r\n+server\r\n+picket\r\n",
        "*1\r\n+status\r\n",
        ">2\r\n+message\r\n+x\r\n",
        ">3\r\n+event\r\n+newer\r\n%0\r\n",
        "*2\r\n%1\r\n+status\r\n+OK\r\n:1\r\n",
        "*2\r\n%1\r\n+status\r\n+OK\r\n-NOTLEADER a:1\r\n",
    };
    struct pk_effects out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(answer_to(cases[i], &out) == PK_PROTO_STRANGE);
        CHECK_U64(out.count, 0);
    }
    pk_effects_free(&out);
}

TEST(reply__what_can_not_be_is_broken)
{
    static const char *const cases[] = {
        "",
        "+PONG",
        "+PONG\r\n+PONG\r\n",
        "?",
        "%1\r\n+status\r\n+BUSY\r\n",
        "%1\r\n+status\r\n+FINE\r\n",
        "%1\r\n+status\r\n:1\r\n",
        "%2\r\n+status\r\n+OK\r\n+token\r\n:-1\r\n",
        "%2\r\n+status\r\n+OK\r\n+token\r\n+x\r\n",
        "%2\r\n+status\r\n+OK\r\n+token\r\n_\r\n",
        "%2\r\n+status\r\n+OK\r\n+token\r\n*0\r\n",
        "%2\r\n+status\r\n+OK\r\n+slots\r\n:4294967296\r\n",
        "%2\r\n+status\r\n+OK\r\n+mode\r\n:1\r\n",
        "%2\r\n+status\r\n+OK\r\n+mode\r\n+odd\r\n",
        "%2\r\n+status\r\n+OK\r\n+end\r\n+odd\r\n",
        "%2\r\n+status\r\n+OK\r\n+would\r\n+odd\r\n",
        "%2\r\n+status\r\n+OK\r\n+name\r\n:1\r\n",
        "%2\r\n+status\r\n+OK\r\n:1\r\n:1\r\n",
        "%2\r\n+status\r\n+OK\r\n+rows\r\n:1\r\n",
        "%2\r\n+status\r\n+OK\r\n+rows\r\n*1\r\n%0\r\n",
        "%2\r\n+status\r\n+OK\r\n+rows\r\n*1\r\n*3\r\n+kind\r\n+hold\r\n+x\r\n",
        "%2\r\n+status\r\n+OK\r\n+rows\r\n*1\r\n%1\r\n+kind\r\n+reply\r\n",
        "%2\r\n+status\r\n+OK\r\n+rows\r\n*1\r\n%1\r\n+token\r\n:1\r\n",
        ">3\r\n+event\r\n+granted\r\n:1\r\n",
        ">3\r\n+event\r\n+granted\r\n%1\r\n+token\r\n+x\r\n",
        ">3\r\n+event\r\n:1\r\n%0\r\n",
        "-BUSY x: token=x\r\n",
        "-BUSY x: name=%\r\n",
        "-BUSY x: name=%4\r\n",
        "-BUSY x: name=%4g\r\n",
        "-BUSY x: name=%g4\r\n",
        "-BUSY x: row.token=1\r\n",
        "-BUSY x: row.kind=granted\r\n",
        "-BUSY x: row.kind=hold token=1\r\n",
        "*2\r\n%1\r\n+status\r\n+OK\r\n%1\r\n+status\r\n+x\r\n",
    };
    struct pk_effects out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (answer_to(cases[i], &out) != PK_PROTO_BROKEN) {
            printf("# case %zu\n", i);
            FAIL("not broken");
        }
        CHECK_U64(out.count, 0);
    }
    pk_effects_free(&out);
}

/* What stood in the list before stays, whatever comes. */
TEST(reply__answers_are_appended)
{
    struct pk_effects out = {0};
    struct pk_bytes error;
    pk_effects_add(&out, &(struct pk_effect){.kind = PK_EV_LEAPT, .token = 1});
    CHECK(pk_proto_read_answer(pk_text("-LOST\r\n"), &out, &error) == PK_PROTO_REPLY);
    CHECK(pk_proto_read_answer(
              pk_text("*2\r\n%1\r\n+status\r\n+OK\r\n%1\r\n+status\r\n+x\r\n"), &out,
              &error) == PK_PROTO_BROKEN);
    CHECK_U64(out.count, 2);
    CHECK(out.list[0].kind == PK_EV_LEAPT && out.list[1].kind == PK_REPLY);
    pk_effects_free(&out);
}

/* ---- errors that are not the machine's ---- */

TEST(reply__other_errors_are_refusals_with_code_and_detail)
{
    struct pk_effects out = {0};
    struct pk_resp_out o = {0};
    for (enum pk_proto_error e = 0; e < PK_PROTO_ERROR_COUNT; e++) {
        struct pk_bytes error, detail;
        o.len = 0;
        pk_proto_write_error(&o, e, NULL);
        CHECK(pk_proto_read_answer(all_of(&o), &out, &error) == PK_PROTO_REFUSED);
        CHECK(pk_proto_error_of(error, &detail) == e);
        CHECK(pk_bytes_equal(detail, pk_text(pk_proto_error_text(e))));
        o.len = 0;
        pk_proto_write_error(&o, e, "10.0.0.1:7000");
        CHECK(pk_proto_read_answer(all_of(&o), &out, &error) == PK_PROTO_REFUSED);
        CHECK(pk_proto_error_of(error, &detail) == e);
        CHECK(pk_bytes_equal(detail, pk_text("10.0.0.1:7000")));
    }
    CHECK_U64(out.count, 0);
    CHECK_STR(written(&o), "-WRONGTYPE 10.0.0.1:7000\r\n");
    CHECK_STR(pk_proto_error_outcome(PK_PROTO_ERROR_UNKNOWN), "unknown");
    CHECK_STR(pk_proto_error_outcome(PK_PROTO_ERROR_NOTLEADER), "not done");
    pk_effects_free(&out);
    pk_resp_free(&o);
}

TEST(reply__codes_of_strangers_are_refusals_too)
{
    struct pk_effects out = {0};
    struct pk_bytes error, detail;
    CHECK(pk_proto_read_answer(pk_text("-MOVED 3999 a:1\r\n"), &out, &error) ==
          PK_PROTO_REFUSED);
    CHECK(pk_bytes_equal(error, pk_text("MOVED 3999 a:1")));
    CHECK(pk_proto_error_of(error, &detail) == PK_PROTO_ERROR_COUNT);
    CHECK(pk_bytes_equal(detail, pk_text("3999 a:1")));
    CHECK(pk_proto_error_of(pk_text("ERR"), &detail) == PK_PROTO_ERROR_ERR);
    CHECK(pk_proto_error_of(pk_text(""), NULL) == PK_PROTO_ERROR_COUNT);
    CHECK(pk_proto_error_of(pk_text("ERROR x"), NULL) == PK_PROTO_ERROR_COUNT);
    CHECK_U64(detail.len, 0);
    CHECK(answer_to("-OK fine\r\n", &out) == PK_PROTO_REFUSED);
    CHECK(answer_to("-\r\n", &out) == PK_PROTO_REFUSED);
    pk_effects_free(&out);
}

/* The colon of an error is where its fields begin, so no sentence may have one; and a
 * code means one thing only. */
TEST(reply__sentences_and_codes_can_be_told_apart)
{
    for (enum pk_status s = 0; s < PK_STATUS_COUNT; s++) {
        CHECK(strchr(pk_status_text(s), ':') == NULL);
        for (enum pk_proto_error e = 0; e < PK_PROTO_ERROR_COUNT; e++) {
            CHECK(strcmp(pk_status_name(s), pk_proto_error_name(e)) != 0);
        }
    }
}
