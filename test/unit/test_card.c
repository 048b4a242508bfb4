/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "client/url.h"
#include "drivers/card.h"
#include "tap.h"

/* ---- names in keys ---- */

TEST(key__comes_back_as_the_name_it_was)
{
    const char *names[] = {"a",     "jobs/backup", "50 %",    ".",
                           "..",    "...",         ".hidden", "\xc3\xa4\xe2\x82\xac",
                           "a%2Fb", "?#&=+"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char key[PK_KEY_MAX], name[PK_NAME_MAX + 1];
        pk_key_escape(names[i], key);
        printf("# %s\n", key);
        CHECK(strpbrk(key, "/ ?#&") == NULL);
        CHECK(strcmp(key, ".") != 0 && strcmp(key, "..") != 0);
        CHECK(pk_key_unescape(pk_text(key), name));
        CHECK_STR(name, names[i]);
    }
}

TEST(key__has_room_for_the_longest_name)
{
    char longest[PK_NAME_MAX + 1], key[PK_KEY_MAX], name[PK_NAME_MAX + 1];
    memset(longest, '/', PK_NAME_MAX);
    longest[PK_NAME_MAX] = '\0';
    pk_key_escape(longest, key);
    CHECK_U64(strlen(key), 3 * PK_NAME_MAX);
    CHECK(pk_key_unescape(pk_text(key), name));
    CHECK_STR(name, longest);
}

TEST(key__of_somebody_else_is_no_name)
{
    char name[PK_NAME_MAX + 1], endless[PK_KEY_MAX];
    memset(endless, 'x', sizeof endless);
    CHECK(!pk_key_unescape(pk_text(""), name));
    CHECK(!pk_key_unescape(pk_text("a%2"), name));
    CHECK(!pk_key_unescape(pk_text("a%GG"), name));
    CHECK(!pk_key_unescape(pk_text("a%0A"), name)); /* no name has a newline */
    CHECK(!pk_key_unescape(pk_bytes(endless, PK_NAME_MAX + 1), name));
    CHECK(!pk_key_unescape(pk_bytes(endless, sizeof endless), name));
}

/* ---- cards ---- */

TEST(card__is_read_as_it_was_written)
{
    struct pk_card card = {.lease = UINT64_MAX,
                           .request = 7,
                           .mode = PK_SHARED,
                           .since_ms = 1700000000000,
                           .ttl_ms = 10000,
                           .value = pk_bytes("node\0two\n%41", 12),
                           .label = pk_text("host=web1\npid=7\nnote=a=b")};
    struct pk_card back;
    char room[512];
    size_t len;
    char *text = pk_card_write(&card, &len);
    CHECK_U64(len, strlen(text));
    CHECK(pk_card_read(pk_bytes(text, len), room, &back));
    CHECK_U64(back.lease, card.lease);
    CHECK_U64(back.request, card.request);
    CHECK(back.mode == PK_SHARED);
    CHECK_U64(back.since_ms, card.since_ms);
    CHECK_U64(back.ttl_ms, card.ttl_ms);
    CHECK(pk_bytes_equal(back.value, card.value));
    CHECK(pk_bytes_equal(back.label, card.label));
    free(text);
}

TEST(card__need_not_have_a_value_or_a_label)
{
    struct pk_card card = {.lease = 1, .request = 2, .mode = PK_EXCLUSIVE}, back;
    char room[512];
    size_t len;
    char *text = pk_card_write(&card, &len);
    CHECK(pk_card_read(pk_bytes(text, len), room, &back));
    CHECK_U64(back.value.len, 0);
    CHECK_U64(back.label.len, 0);
    CHECK(back.mode == PK_EXCLUSIVE);
    /* Cut anywhere within its numbers, it is no card; but it never does harm. */
    for (size_t cut = 0; cut < len; cut++) {
        (void)pk_card_read(pk_bytes(text, cut), room, &back);
    }
    CHECK(!pk_card_read(pk_bytes(text, 20), room, &back));
    free(text);
}

TEST(card__of_somebody_else_is_none)
{
    const char *others[] = {"",
                            "8f14e45fceea",
                            "picket=2\nlease=1\n",
                            "picket=1\nlease=x\n",
                            "{\"picket\":1}",
                            "picket=1"};
    struct pk_card back;
    char room[512];
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK(!pk_card_read(pk_text(others[i]), room, &back));
        CHECK_U64(back.lease, 0);
        CHECK(back.mode == PK_EXCLUSIVE);
    }
}

/* ---- URLs ---- */

#define FORM "x://HOST"

TEST(url__has_all_its_parts)
{
    struct pk_url u;
    struct pk_places p;
    char shown[256];
    CHECK(pk_url_read("etcd://bob:s%3Acret@h1:1,[::1]:2,h3/a/b?prefix=p%2Fq&x=1",
                      "prefix x", FORM, &u) == PICKET_OK);
    CHECK_STR(u.user, "bob");
    CHECK_STR(u.password, "s:cret");
    CHECK_STR(u.path, "a/b");
    CHECK_STR(pk_url_option(&u, "prefix"), "p/q");
    CHECK_STR(pk_url_option(&u, "x"), "1");
    CHECK_STR(pk_url_option(&u, "socket"), "");
    CHECK(pk_url_places(&u, 99, FORM, &p) == PICKET_OK);
    CHECK_U64(p.count, 3);
    CHECK_STR(p.list[1].host, "::1");
    CHECK_U64(p.list[1].port, 2);
    CHECK_U64(p.list[2].port, 99);
    pk_url_show(&u, shown, sizeof shown);
    CHECK_STR(shown, "etcd://bob@h1:1,[::1]:2,h3/a/b?prefix=p%2Fq&x=1");
    struct pk_place one;
    CHECK(pk_url_place(&u, FORM, &one) == PICKET_BADARG);
    pk_url_free(&u);
}

TEST(url__shows_no_secret)
{
    static const char *const pairs[][2] = {
        {"redis://bob:s3cret@h:1/0", "redis://bob@h:1/0"},
        {"redis://:s3cret@h", "redis://h"},
        {"consul://:s3cret@[::1]:8500/p", "consul://[::1]:8500/p"},
        {"etcd://bob:s@3?cret@h1,h2/p@q", "etcd://bob@h1,h2/p@q"},
        {"redis://bob:s3/cret@h", "redis://bob@h"}, /* not escaped, as it should be */
        {"postgres://h/d?user=u&PassWord=s3cret&x=1",
         "postgres://h/d?user=u&PassWord=&x=1"},
        {"postgres://h/d?sslpassword=s3cret", "postgres://h/d?sslpassword="},
        {"host=h password=s3cret dbname=d", "host=h password= dbname=d"},
        {"etcd://h1:1,h2/a@b:c", "etcd://h1:1,h2/a@b:c"},
        {"redis://?socket=/a@b", "redis://?socket=/a@b"},
        {"--on=redis://:s3cret@h", "--on=redis://h"},
        {"local:/var/lib/a:b@c", "local:/var/lib/a:b@c"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char *shown = pk_url_redact(pairs[i][0]);
        CHECK_STR(shown, pairs[i][1]);
        free(shown);
    }
}

TEST(url__may_be_short)
{
    struct pk_url u;
    struct pk_places p;
    struct pk_place one;
    CHECK(pk_url_read("redis://", "socket", FORM, &u) == PICKET_OK);
    CHECK_STR(u.user, "");
    CHECK_STR(u.path, "");
    CHECK(pk_url_place(&u, FORM, &one) == PICKET_OK);
    CHECK_STR(one.host, "");
    CHECK_U64(one.port, 0);
    CHECK(pk_url_places(&u, 1, FORM, &p) == PICKET_BADARG); /* it needs a host there */
    pk_url_free(&u);
}

TEST(url__that_is_wrong_is_refused_without_being_quoted)
{
    const char *wrong[] = {"redis:h",       "redis://h?sock=1", "redis://h?=1",
                           "redis://%zz@h", "redis://h/%0A",    "redis://h?socket=%1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct pk_url u;
        CHECK(pk_url_read(wrong[i], "socket", FORM, &u) == PICKET_BADARG);
        CHECK(strstr(picket_last_error(), FORM) != NULL);
        CHECK(strstr(picket_last_error(), wrong[i]) == NULL);
    }
    const char *hosts[] = {"h:0", "h:99999", "h,", ",h", "[::1", "h:1:2", "a b"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        char url[64];
        struct pk_url u;
        struct pk_places p;
        (void)snprintf(url, sizeof url, "redis://%s", hosts[i]);
        CHECK(pk_url_read(url, "", FORM, &u) == PICKET_OK);
        CHECK(pk_url_places(&u, 1, FORM, &p) == PICKET_BADARG);
        pk_url_free(&u);
    }
}
