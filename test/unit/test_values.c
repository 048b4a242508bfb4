/* SPDX-License-Identifier: MIT */
/* Numbers, times and characters of the command line. */
#include "cli/text.h"
#include "cli/values.h"
#include "tap.h"

static bool reads_as(const char *text, bool bare_seconds, uint64_t wanted)
{
    uint64_t ms = UINT64_MAX;
    return pk_values_read_span(text, bare_seconds, &ms) == NULL && ms == wanted;
}

static bool refuses_span(const char *text, bool bare_seconds)
{
    uint64_t ms = 77;
    return pk_values_read_span(text, bare_seconds, &ms) != NULL && ms == 77;
}

/* Each unit, alone and with a fraction. */
TEST(span__reads_every_unit)
{
    CHECK(reads_as("500ms", false, 500));
    CHECK(reads_as("2s", false, 2000));
    CHECK(reads_as("1.5s", false, 1500));
    CHECK(reads_as("2m", false, 120000));
    CHECK(reads_as("0.5h", false, 1800000));
    CHECK(reads_as("1d", false, 86400000));
    CHECK(reads_as("0s", false, 0));
    CHECK(reads_as("007s", false, 7000));
}

/* A wait that is asked for is never cut short. */
TEST(span__rounds_up_to_a_millisecond)
{
    CHECK(reads_as("0.0001s", false, 1));
    CHECK(reads_as("1.0000000000001s", false, 1001));
    CHECK(reads_as("1.0000000000000s", false, 1000));
    CHECK(reads_as("0.1ms", false, 1));
    CHECK(reads_as("0.333333333m", false, 20000));
}

/* flock's -w takes seconds; everything else wants to be told. */
TEST(span__takes_a_bare_number_only_where_it_means_seconds)
{
    CHECK(reads_as("10", true, 10000));
    CHECK(reads_as("0.25", true, 250));
    CHECK(reads_as("10ms", true, 10));
    CHECK(refuses_span("10", false));
}

TEST(span__refuses_what_is_not_a_time)
{
    const char *const wrong[] = {"",    "s",    "-1s",   "+1s",  " 1s", "1s ",
                                 "1 s", "1.s",  ".5s",   "1..5", "1e3", "0x1",
                                 "1S",  "1sec", "1m30s", "inf",  "nan", "1,5s"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(refuses_span(wrong[i], false));
        CHECK(refuses_span(wrong[i], true));
    }
}

/* Nothing wraps around. */
TEST(span__refuses_what_does_not_fit)
{
    CHECK(refuses_span("18446744073709551615s", false));
    CHECK(refuses_span("18446744073709551616ms", false));
    CHECK(refuses_span("99999999999999999999999999d", false));
    CHECK(refuses_span("213503982334601d", false));
}

TEST(span__is_written_for_people)
{
    char buf[PK_SPAN_ROOM];
    CHECK_STR(pk_values_span(0, buf), "0ms");
    CHECK_STR(pk_values_span(999, buf), "999ms");
    CHECK_STR(pk_values_span(1000, buf), "1s");
    CHECK_STR(pk_values_span(1550, buf), "1.5s");
    CHECK_STR(pk_values_span(59999, buf), "59s");
    CHECK_STR(pk_values_span(60000, buf), "1m");
    CHECK_STR(pk_values_span(125000, buf), "2m05s");
    CHECK_STR(pk_values_span(11520000, buf), "3h12m");
    CHECK_STR(pk_values_span(86400000, buf), "1d");
    CHECK_STR(pk_values_span(367200000, buf), "4d6h");
    CHECK_STR(pk_values_span(UINT64_MAX, buf), "213503982334d14h");
}

TEST(number__is_decimal_digits_within_bounds)
{
    uint64_t n = 77;
    CHECK(pk_values_read_number("1", 1, 5, &n) == NULL && n == 1);
    CHECK(pk_values_read_number("5", 1, 5, &n) == NULL && n == 5);
    CHECK(pk_values_read_number("18446744073709551615", 1, UINT64_MAX, &n) == NULL &&
          n == UINT64_MAX);
    n = 77;
    const char *const wrong[] = {"",   "0",  "6",   "-1",  "+1",
                                 " 1", "1 ", "0x1", "1.0", "18446744073709551617"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(pk_values_read_number(wrong[i], 1, 5, &n) != NULL && n == 77);
    }
}

/* Shortest form, no surrogates, nothing beyond Unicode, nothing cut off. */
TEST(text__knows_utf8_when_it_sees_it)
{
    const char *const right[] = {
        "", "a", "\xc2\x80", "\xe2\x98\x83", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"};
    const char *const wrong[] = {"\x80",         "\xff",
                                 "\xc0\x80",     "\xe0\x80\x80",
                                 "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                 "\xe2\x98",     "\xf8\x88\x80\x80\x80",
                                 "a\xc3"};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        CHECK(pk_text_is_utf8(right[i], strlen(right[i])));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(!pk_text_is_utf8(wrong[i], strlen(wrong[i])));
    }
    CHECK_U64(pk_text_count("na\xc3\xafve \xe2\x98\x83\xff"), 8);
}
