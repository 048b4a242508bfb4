/* SPDX-License-Identifier: MIT */
#include <stdio.h>

#include "core/door.h"
#include "sim/script.h"
#include "tap.h"

static struct pk_script_error error;

static bool reads(const char *text, struct pk_script *out)
{
    return pk_script_read(text, strlen(text), out, &error);
}

static void refused(const char *text, uint32_t line, const char *why)
{
    struct pk_script s;
    CHECK(!reads(text, &s));
    CHECK_STR(error.text, why);
    CHECK_U64(error.line, line);
    CHECK(s.acts == NULL);
}

static uint64_t digest_of(const struct pk_script *s)
{
    struct pk_checker checker;
    struct pk_world *w = pk_script_run(s, &checker);
    uint64_t digest = pk_world_digest(w);
    pk_world_free(w);
    return digest;
}

TEST(script__reads_settings_and_acts)
{
    struct pk_script s;
    CHECK(reads("sim 1 # A title\n"
                "# and more\n"
                "flavour etcd; ttl 2500ms\n"
                "fence check, clients 3\n"
                "at 1.5 B pause 800ms\n"
                "at 0.25 A acquire\n"
                "until 20\n"
                "expect two-valid lost-update\n"
                "expect-fenced nothing\n",
                &s));
    CHECK_STR(s.title, "A title");
    CHECK_U64(s.config.flavour, PK_FLAVOUR_ETCD);
    CHECK_U64(s.config.fence, PK_PROTECT_WRITES);
    CHECK_U64(s.config.clients, 3);
    CHECK_U64(s.config.ttl_us, 2500000);
    CHECK_U64(s.n_acts, 2);
    CHECK_U64(s.acts[0].at_us, 250000);
    CHECK_U64(s.acts[0].op, PK_OP_ACQUIRE);
    CHECK_U64(s.acts[1].who, 1);
    CHECK_U64(s.acts[1].arg, 800000);
    CHECK_U64(s.until_us, 20000000);
    CHECK(s.expects && s.expects_fenced);
    CHECK_U64(s.expect, 1U << PK_CHECK_TWO_VALID | 1U << PK_CHECK_LOST_UPDATE);
    CHECK_U64(s.expect_fenced, 0);
    pk_script_free(&s);
}

TEST(script__ends_a_while_after_the_last_act)
{
    struct pk_script s;
    CHECK(reads("sim 1\nat 7 A acquire\nat 3 B acquire\n", &s));
    CHECK_U64(s.until_us, 17000000);
    CHECK(!s.expects);
    pk_script_free(&s);
}

TEST(script__keeps_the_order_of_acts_at_one_time)
{
    struct pk_script s;
    CHECK(reads("sim 1\nat 1 A acquire\nat 0 C acquire\nat 1 B acquire\n", &s));
    CHECK_U64(s.acts[0].who, 2);
    CHECK_U64(s.acts[1].who, 0);
    CHECK_U64(s.acts[2].who, 1);
    pk_script_free(&s);
}

TEST(script__says_what_is_wrong_and_where)
{
    refused("", 0, "a script begins with: sim 1");
    refused("# nothing\n\n", 2, "a script begins with: sim 1");
    refused("hello\n", 1, "a script begins with: sim 1");
    refused("\nsim 2\n", 2, "this is a script of another version: 2");
    refused("sim 1\n\nflavour raft\n", 3, "there is no such choice: raft");
    refused("sim 1\nfence maybe\n", 2, "there is no such choice: maybe");
    refused("sim 1\nspeed 3\n", 2, "there is no such word: speed");
    refused("sim 1\nttl soon\n", 2, "a time is missing or wrong: soon");
    refused("sim 1\nttl\n", 2, "a time is missing or wrong");
    refused("sim 1\nttl -3s\n", 2, "a time is missing or wrong: -3s");
    refused("sim 1\nseed x\n", 2, "a number is missing or wrong: x");
    refused("sim 1\nseed 18446744073709551616\n", 2,
            "a number is missing or wrong: 18446744073709551616");
    refused("sim 1\nclients 9\nttl 5s\n", 2, "there are 1 to 8 clients");
    refused("sim 1\nttl 2h\n", 2, "a time is missing or wrong: 2h");
    refused("sim 1\nttl 0.1s\nfence on\n", 2, "the TTL is 0.5 s to 1 h");
    refused("sim 1\nmistakes 256\n", 2, "there is no such mistake");
    refused("sim 1\nloss 1001\n", 2, "of 1000 messages at most 1000 are lost or slow");
    refused("sim 1\nexpect trouble\n", 2, "there is no such check: trouble");
}

TEST(script__says_what_is_wrong_with_an_act_and_where)
{
    refused("sim 1\nat A acquire\n", 2, "a time is missing or wrong: A");
    refused("sim 1\nat 1. A acquire\n", 2, "a time is missing or wrong: 1.");
    refused("sim 1\nat 1 Z acquire\n", 2, "who is A to H, service, or n1 to n5, not: Z");
    refused("sim 1\nat 1 A dance\n", 2, "nobody can do that: dance");
    refused("sim 1\nat 1 A acquire 3s\n", 2, "too much: 3s");
    refused("sim 1\nat 1 A pause long\n", 2, "that is no length of time: long");
    refused("sim 1\nat 1 A pause\n", 2, "a pause has a length");
    refused("sim 1\nat 1 A drift much\n", 2,
            "a drift is a number of millionths, not: much");
    refused("sim 1\nat 1 A cut -2s\n", 2, "time does not go back");
    refused("sim 1\nat 1 service write\n", 2, "only clients do that");
}

TEST(script__judges_acts_by_settings_that_come_later)
{
    struct pk_script s;
    CHECK(reads("sim 1\nat 1 n2 jump 3s\nflavour redlock\n", &s));
    pk_script_free(&s);
    refused("sim 1\nat 1 A acquire\nat 1 n2 jump 3s\nflavour etcd\n", 3,
            "there is nobody of that name");
    refused("sim 1\nat 0 D acquire\nclients 2\n", 2, "there is nobody of that name");
    refused("sim 1\nflavour redlock\nat 0 service failover 1s\n", 3,
            "there is nobody of that name");
}

TEST(script__has_a_limit_of_acts)
{
    struct pk_prose text = {0};
    struct pk_script s;
    pk_prose_add(&text, "sim 1\n");
    for (int i = 0; i < PK_ACTS_MAX; i++) {
        pk_prose_add(&text, "at 1 A write\n");
    }
    CHECK(reads(text.data, &s));
    CHECK_U64(s.n_acts, PK_ACTS_MAX);
    pk_script_free(&s);
    pk_prose_add(&text, "at 1 A write\n");
    refused(text.data, PK_ACTS_MAX + 2, "more than 4096 acts are too many");
    pk_prose_free(&text);
}

/* Whatever is written can be read, and plays the same. */
TEST(script__round_trip_of_random_scripts)
{
    for (uint32_t i = 0; i < 40; i++) {
        struct pk_world_config c = pk_world_defaults();
        struct pk_script before;
        struct pk_script after;
        struct pk_prose text = {0};
        struct pk_prose again = {0};
        c.seed = i;
        c.flavour = (enum pk_flavour)(i % PK_FLAVOUR_COUNT);
        c.fence = (enum pk_protection)(i % PK_PROTECTIONS);
        c.clients = 1 + i % PK_CLIENTS_MAX;
        c.checkpoint = i % 2 == 1;
        pk_script_random(&before, &c, i % 4, true);
        before.expects = true;
        before.expect = i;
        before.expects_fenced = i % 3 == 0;
        pk_script_write(&before, &text);
        CHECK(reads(text.data, &after));
        pk_script_write(&after, &again);
        CHECK_STR(text.data, again.data);
        CHECK_U64(digest_of(&before), digest_of(&after));
        pk_prose_free(&text);
        pk_prose_free(&again);
        pk_script_free(&before);
        pk_script_free(&after);
    }
}

TEST(script__a_link_holds_all_of_it)
{
    struct pk_script s;
    struct pk_prose link = {0};
    CHECK(reads("sim 1 # 50% & more\nat 0.5 A acquire\nuntil 2s\n", &s));
    pk_script_link(&s, &link);
    CHECK_STR(link.data, "v=1&s=sim_1_%23_50%25_%26_more~flavour_picket~fence_on~ttl_5s~"
                         "at_0.5_A_acquire~until_2s~");
    pk_prose_free(&link);
    pk_script_free(&s);
}

/* ---- smaller ---- */

static uint32_t mask_of(const struct pk_script *s)
{
    struct pk_checker checker;
    pk_world_free(pk_script_run(s, &checker));
    return pk_checker_mask(&checker);
}

TEST(script__shrinks_to_what_is_needed)
{
    const uint32_t wanted = 1U << PK_CHECK_STALE_WRITE;
    struct pk_world_config c = pk_world_defaults();
    struct pk_script s;
    c.fence = PK_PROTECT_OFF;
    uint32_t before = 0;
    for (c.seed = 1; before == 0; c.seed++) {
        pk_script_random(&s, &c, 2, false);
        if ((mask_of(&s) & wanted) != 0) {
            before = s.n_acts;
        } else {
            pk_script_free(&s);
        }
    }
    uint32_t runs = pk_script_shrink(&s, wanted, 2000);
    CHECK(runs <= 2000);
    CHECK(mask_of(&s) & wanted);
    CHECK(s.n_acts * 5 < before);
    /* Nothing of it can be left out. */
    for (uint32_t i = 0; i < s.n_acts; i++) {
        struct pk_act left_out = s.acts[i];
        memmove(&s.acts[i], &s.acts[i + 1], (s.n_acts - i - 1) * sizeof s.acts[0]);
        s.n_acts--;
        CHECK(!(mask_of(&s) & wanted));
        pk_script_add(&s, &left_out);
    }
    pk_script_free(&s);
}

TEST(script__shrinking_keeps_to_its_budget)
{
    struct pk_world_config c = pk_world_defaults();
    struct pk_script s;
    c.mistakes = PK_MISTAKE_EARLY;
    c.seed = 1;
    do {
        c.seed++;
        pk_script_random(&s, &c, 3, false);
    } while (mask_of(&s) == 0 && (pk_script_free(&s), true));
    CHECK_U64(pk_script_shrink(&s, UINT32_MAX, 5), 5);
    CHECK(mask_of(&s) != 0);
    pk_script_free(&s);
}
