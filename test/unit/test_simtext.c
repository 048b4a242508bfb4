/* SPDX-License-Identifier: MIT */
/* Prose, pictures and JSON. */
#include "sim/export.h"
#include "sim/picture.h"
#include "tap.h"

static struct pk_prose out;

/* What was written since the last call. */
static void wrote(const char *text)
{
    CHECK_STR(out.data, text);
    pk_prose_free(&out);
}

TEST(prose__numbers)
{
    pk_prose_number(&out, 0);
    wrote("0");
    pk_prose_number(&out, UINT64_MAX);
    wrote("18446744073709551615");
    pk_prose_signed(&out, -42);
    wrote("-42");
    pk_prose_signed(&out, INT64_MIN);
    wrote("-9223372036854775808");
    pk_prose_hex(&out, UINT64_C(0x0123456789abcdef));
    wrote("0123456789abcdef");
}

TEST(prose__times)
{
    pk_prose_seconds(&out, 8000000);
    wrote("8");
    pk_prose_seconds(&out, 250000);
    wrote("0.25");
    pk_prose_seconds(&out, -1000001);
    wrote("-1.000001");
    pk_prose_clock(&out, 8540999);
    wrote("8.540");
}

TEST(prose__who)
{
    pk_prose_who(&out, 7);
    wrote("H");
    pk_prose_who(&out, PK_WHO_SERVICE);
    wrote("service");
    pk_prose_who(&out, PK_WHO_NODE + 4);
    wrote("n5");
    pk_prose_who(&out, PK_WHO_RESOURCE);
    wrote("resource");
}

TEST(prose__json)
{
    pk_prose_add(&out, "{");
    pk_prose_key(&out, "a");
    pk_prose_number(&out, 1);
    pk_prose_key(&out, "b");
    pk_prose_quoted(&out, "say \"no\"\\\n");
    pk_prose_add(&out, "}");
    wrote("{\"a\":1,\"b\":\"say \\\"no\\\"\\\\\\u000a\"}");
}

static const char story[] = "sim 1 # <A> & \"B\"\n"
                            "fence off\n"
                            "at 0 A acquire\n"
                            "at 0.5 A write\n"
                            "at 1 A pause 8s\n"
                            "at 2 B acquire\n"
                            "at 7 B write\n"
                            "at 9.2 A write\n"
                            "until 12s\n";

static void play(struct pk_script *s, struct pk_world **w, struct pk_checker *c)
{
    struct pk_script_error e;
    CHECK(pk_script_read(story, strlen(story), s, &e));
    *w = pk_script_run(s, c);
}

static uint32_t count_of(const char *what)
{
    uint32_t n = 0;
    for (const char *at = out.data; (at = strstr(at, what)) != NULL; at++) {
        n++;
    }
    return n;
}

TEST(picture__shows_what_happened)
{
    struct pk_script s;
    struct pk_world *w;
    struct pk_checker c;
    play(&s, &w, &c);
    pk_export_picture(&s, w, &c, 800, &out);
    CHECK(strncmp(out.data, "<svg xmlns=", 11) == 0);
    CHECK(strstr(out.data, "<title>&lt;A> &amp; &quot;B&quot;</title>") != NULL);
    CHECK_U64(count_of("class=\"hold\""), 2);
    CHECK_U64(count_of("class=\"wait\""), 1);
    CHECK_U64(count_of("class=\"belief\""), 2);
    CHECK_U64(count_of("class=\"pause\""), 1);
    CHECK_U64(count_of("class=\"write\""), 2);
    CHECK_U64(count_of("class=\"stale\""), 1);
    CHECK_U64(count_of("class=\"violation\""), c.n_hits);
    CHECK(strcmp(out.data + out.len - 7, "</svg>\n") == 0);
    pk_prose_free(&out);
    pk_world_free(w);
    pk_script_free(&s);
}

TEST(picture__of_a_part_leaves_out_the_rest)
{
    struct pk_script s;
    struct pk_world *w;
    struct pk_checker c;
    play(&s, &w, &c);
    struct pk_picture p = {
        .clients = 4, .from_us = 0, .to_us = 1500000, .width = 400, .title = ""};
    p.trace = pk_world_trace(w, &p.count);
    pk_picture_draw(&p, &out);
    CHECK_U64(count_of("class=\"hold\""), 1);
    CHECK_U64(count_of("class=\"wait\""), 0);
    CHECK_U64(count_of("<style>"), 0);
    pk_prose_free(&out);
    pk_world_free(w);
    pk_script_free(&s);
}

TEST(picture__of_nothing)
{
    struct pk_picture p = {.clients = 1, .width = 300, .title = "empty"};
    pk_picture_draw(&p, &out);
    CHECK(strstr(out.data, "</svg>") != NULL);
    pk_prose_free(&out);
}

TEST(export__names_checks)
{
    pk_export_checks(0, &out);
    wrote("nothing");
    pk_export_checks(1U << PK_CHECK_TWO_HOLDERS | 1U << PK_CHECK_DIGESTS, &out);
    wrote("two-holders digests");
}

TEST(export__json_has_the_verdict_and_the_trace)
{
    struct pk_script s;
    struct pk_world *w;
    struct pk_checker c;
    uint32_t count;
    play(&s, &w, &c);
    (void)pk_world_trace(w, &count);
    pk_export_json(&s, w, &c, &out);
    CHECK(strstr(out.data, "\"broken\":\"fence-back lost-update stale-write\"") != NULL);
    CHECK(strstr(out.data, "\"title\":\"<A> & \\\"B\\\"\"") != NULL);
    CHECK_U64(count_of("\"kind\":"), count);
    CHECK_U64(count_of("\"why\":"), c.n_hits);
    pk_prose_free(&out);
    pk_world_free(w);
    pk_script_free(&s);
}
