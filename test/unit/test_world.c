/* SPDX-License-Identifier: MIT */
#include "sim/script.h"
#include "sim/survey.h"
#include "tap.h"

static struct pk_world *world;
static struct pk_world_config config;

static void begin(enum pk_flavour flavour, enum pk_protection fence)
{
    config = pk_world_defaults();
    config.flavour = flavour;
    config.fence = fence;
    world = pk_world_new(&config);
}

static void end(void)
{
    pk_world_free(world);
}

/* Times in ms: what happens then, or how long it takes. */
static void act(uint64_t at_ms, uint32_t who, enum pk_op op, int64_t arg_ms)
{
    struct pk_act a = {at_ms * 1000, who, op, arg_ms * 1000};
    CHECK(pk_world_act_wrong(&config, &a) == NULL);
    pk_world_act(world, &a);
}

static struct pk_world_view at(uint64_t ms)
{
    struct pk_world_view v;
    pk_world_run(world, ms * 1000);
    pk_world_view(world, &v);
    CHECK_U64(v.now_us, ms * 1000);
    return v;
}

/* How many records of a kind there are about somebody. */
static uint32_t count(enum pk_record_kind kind, uint32_t who)
{
    uint32_t n;
    uint32_t found = 0;
    const struct pk_record *trace = pk_world_trace(world, &n);
    for (uint32_t i = 0; i < n; i++) {
        found += trace[i].kind == kind && trace[i].who == who;
    }
    return found;
}

static uint32_t broken(void)
{
    struct pk_checker c = {0};
    pk_world_settle(world);
    pk_checker_catch_up(&c, world);
    return pk_checker_mask(&c);
}

enum { A, B, C, D };

TEST(world__a_client_gets_the_lock_writes_and_gives_it_back)
{
    for (uint32_t f = 0; f < PK_FLAVOUR_COUNT; f++) {
        begin((enum pk_flavour)f, PK_PROTECT_CLAIM);
        act(0, A, PK_OP_ACQUIRE, 0);
        act(500, A, PK_OP_WRITE, 0);
        act(1000, A, PK_OP_RELEASE, 0);
        struct pk_world_view v = at(800);
        CHECK(v.holder == A);
        CHECK(v.clients[A].believes && v.clients[A].phase == PK_SIM_HOLDING);
        CHECK_U64(v.counter, 1);
        CHECK_U64(v.accepted, 1);
        CHECK((v.holder_token != 0) == (f != PK_FLAVOUR_REDLOCK));
        CHECK(v.left_us > 0 && v.left_us <= config.ttl_us + 2000000);
        v = at(2000);
        CHECK(v.holder == -1);
        CHECK(!v.clients[A].believes && v.clients[A].phase == PK_SIM_IDLE);
        CHECK_U64(broken(), 0);
        end();
    }
}

TEST(world__an_idle_holder_is_kept_by_the_keeper)
{
    for (uint32_t f = 0; f < PK_FLAVOUR_COUNT; f++) {
        begin((enum pk_flavour)f, PK_PROTECT_CLAIM);
        act(0, A, PK_OP_ACQUIRE, 0);
        CHECK(at(60000).holder == A);
        CHECK_U64(count(PK_REC_GRANTED, A), 1);
        CHECK_U64(count(PK_REC_LOST, A), 0);
        end();
    }
}

TEST(world__the_fence_refuses_who_woke_up_late)
{
    static const uint64_t rejected[] = {
        [PK_PROTECT_OFF] = 0, [PK_PROTECT_WRITES] = 1, [PK_PROTECT_CLAIM] = 1};
    for (uint32_t fence = 0; fence < PK_PROTECTIONS; fence++) {
        begin(PK_FLAVOUR_PICKET, (enum pk_protection)fence);
        act(0, A, PK_OP_ACQUIRE, 0);
        act(500, A, PK_OP_WRITE, 0);
        act(1000, A, PK_OP_PAUSE, 8000);
        act(2000, B, PK_OP_ACQUIRE, 0);
        act(7000, B, PK_OP_WRITE, 0);
        act(9200, A, PK_OP_WRITE, 0);
        struct pk_world_view v = at(9000);
        CHECK(v.holder == B && v.clients[A].believes);
        v = at(12000);
        CHECK_U64(v.rejected, rejected[fence]);
        CHECK(v.clients[A].believes == (fence == PK_PROTECT_OFF));
        CHECK((broken() != 0) == (fence == PK_PROTECT_OFF));
        end();
    }
}

TEST(world__a_failover_stretches_leases)
{
    begin(PK_FLAVOUR_PICKET, PK_PROTECT_CLAIM);
    act(0, A, PK_OP_ACQUIRE, 0);
    act(100, A, PK_OP_CUT, 0);
    act(200, B, PK_OP_ACQUIRE, 0);
    act(1000, PK_WHO_SERVICE, PK_OP_FAILOVER, 10000);
    CHECK(at(14000).holder == A);
    CHECK(at(16000).holder == B);
    CHECK_U64(broken(), 0);
    end();
}

TEST(world__a_paused_service_stretches_nothing)
{
    begin(PK_FLAVOUR_PICKET, PK_PROTECT_CLAIM);
    act(0, A, PK_OP_ACQUIRE, 0);
    act(100, A, PK_OP_CUT, 0);
    act(200, B, PK_OP_ACQUIRE, 0);
    act(1000, PK_WHO_SERVICE, PK_OP_PAUSE, 6000);
    CHECK(at(6900).holder == A);
    CHECK(at(7100).holder != A);
    CHECK_U64(broken(), 0);
    end();
}

/* The first answer to a question for a lease is lost, and the lease ends unknown. */
TEST(world__a_lease_that_ended_before_it_was_known_is_asked_for_anew)
{
    for (uint32_t f = 0; f <= PK_FLAVOUR_ZOOKEEPER; f++) {
        begin((enum pk_flavour)f, PK_PROTECT_CLAIM);
        act(0, A, PK_OP_ACQUIRE, 0);
        act(10, A, PK_OP_CUT, 12000);
        struct pk_world_view v = at(16000);
        CHECK(v.holder == A && v.clients[A].believes);
        end();
    }
}

TEST(world__a_crashed_client_remembers_nothing)
{
    begin(PK_FLAVOUR_PICKET, PK_PROTECT_CLAIM);
    act(0, A, PK_OP_ACQUIRE, 0);
    act(1000, A, PK_OP_CRASH, 500);
    struct pk_world_view v = at(1200);
    CHECK(!v.clients[A].believes && v.clients[A].paused);
    act(2000, A, PK_OP_WRITE, 0);
    (void)at(3000);
    CHECK_U64(count(PK_REC_IGNORED, A), 1);
    CHECK(at(7000).holder == -1);
    end();
}

/* A script that can crash a client as often as it likes must not run out of anything. */
TEST(world__many_sessions_of_one_client)
{
    begin(PK_FLAVOUR_ETCD, PK_PROTECT_CLAIM);
    for (uint64_t i = 0; i < 600; i++) {
        act(i * 100, A, PK_OP_ACQUIRE, 0);
        act(i * 100 + 80, A, PK_OP_CRASH, 0);
    }
    (void)at(80000);
    CHECK_U64(broken(), 0);
    end();
}

TEST(world__a_clock_that_runs_fast_ends_trust_early)
{
    begin(PK_FLAVOUR_PICKET, PK_PROTECT_CLAIM);
    struct pk_act drift = {.who = A, .op = PK_OP_DRIFT, .arg = 100000};
    pk_world_act(world, &drift);
    act(0, A, PK_OP_ACQUIRE, 0);
    act(0, B, PK_OP_ACQUIRE, 0);
    act(100, A, PK_OP_CUT, 0);
    struct pk_world_view v = at(4450); /* 4895 ms by its own clock */
    CHECK(v.clients[A].left_us < 0 && v.clients[B].left_us > 0);
    end();
}

TEST(world__a_checkpoint_keeps_a_program_from_writing)
{
    config = pk_world_defaults();
    config.fence = PK_PROTECT_OFF;
    config.checkpoint = true;
    world = pk_world_new(&config);
    act(0, A, PK_OP_ACQUIRE, 0);
    act(1000, A, PK_OP_PAUSE, 8000);
    act(9200, A, PK_OP_WRITE, 0);
    struct pk_world_view v = at(10000);
    CHECK_U64(v.counter, 0);
    CHECK(!v.clients[A].believes);
    end();
}

/* The planted mistake that chance alone hits too seldom: an answer gets lost, the
 * question is repeated, and the lease counts from the repeat. */
TEST(world__a_lease_counts_from_the_first_asking)
{
    for (uint32_t mistaken = 0; mistaken < 2; mistaken++) {
        config = pk_world_defaults();
        config.mistakes = mistaken ? PK_MISTAKE_FROM_RETRY : 0;
        world = pk_world_new(&config);
        act(0, A, PK_OP_ACQUIRE, 0);
        act(10, A, PK_OP_CUT, 100);
        act(1000, A, PK_OP_CUT, 0);
        act(1500, B, PK_OP_ACQUIRE, 0);
        CHECK(at(6000).holder == B);
        CHECK_U64(broken(), mistaken ? 1U << PK_CHECK_TWO_VALID : 0);
        end();
    }
}

TEST(world__a_full_trace_ends_the_world)
{
    config = pk_world_defaults();
    config.flavour = PK_FLAVOUR_REDLOCK;
    config.ttl_us = 500000;
    config.clients = PK_CLIENTS_MAX;
    world = pk_world_new(&config);
    for (uint32_t i = 0; i < PK_CLIENTS_MAX; i++) {
        act(0, i, PK_OP_ACQUIRE, 0);
    }
    pk_world_run(world, UINT64_C(86400) * 1000000);
    uint32_t n;
    (void)pk_world_trace(world, &n);
    CHECK(pk_world_full(world));
    CHECK(n >= PK_TRACE_MAX && n < PK_TRACE_MAX + 1000);
    CHECK(!pk_world_step(world));
    CHECK_U64(pk_world_next(world), UINT64_MAX);
    end();
}

TEST(world__steps_are_the_same_as_a_run)
{
    struct pk_world_config c = pk_world_defaults();
    struct pk_script s;
    struct pk_checker checker;
    pk_script_random(&s, &c, 2, false);
    struct pk_world *run = pk_script_run(&s, &checker);
    struct pk_world *stepped = pk_world_new(&s.config);
    for (uint32_t i = 0; i < s.n_acts; i++) {
        pk_world_act(stepped, &s.acts[i]);
    }
    while (pk_world_next(stepped) <= s.until_us) {
        CHECK(pk_world_step(stepped));
    }
    pk_world_run(stepped, s.until_us);
    pk_world_settle(stepped);
    CHECK_U64(pk_world_digest(run), pk_world_digest(stepped));
    pk_world_free(run);
    pk_world_free(stepped);
    pk_script_free(&s);
}

TEST(world__the_same_twice_and_another_with_another_seed)
{
    for (uint32_t f = 0; f < PK_FLAVOUR_COUNT; f++) {
        struct pk_survey one = {.config = pk_world_defaults(), .rough = 3, .jumps = true};
        one.config.flavour = (enum pk_flavour)f;
        struct pk_survey same = one;
        struct pk_survey other = one;
        (void)pk_survey_run(&one, 11);
        (void)pk_survey_run(&same, 11);
        (void)pk_survey_run(&other, 12);
        CHECK_U64(one.digest, same.digest);
        CHECK(one.digest != other.digest);
    }
}

TEST(world__settings_that_make_no_sense)
{
    struct pk_world_config c = pk_world_defaults();
    CHECK(pk_world_config_wrong(&c) == NULL);
    c.clients = 0;
    CHECK(pk_world_config_wrong(&c) != NULL);
    c = pk_world_defaults();
    c.flavour = PK_FLAVOUR_COUNT;
    CHECK(pk_world_config_wrong(&c) != NULL);
    c = pk_world_defaults();
    c.fence = PK_PROTECTIONS;
    CHECK(pk_world_config_wrong(&c) != NULL);
    c = pk_world_defaults();
    c.delay_us = 61000000;
    CHECK(pk_world_config_wrong(&c) != NULL);
}

TEST(world__acts_that_make_no_sense)
{
    struct pk_world_config c = pk_world_defaults();
    static const struct pk_act wrong[] = {
        {.who = 4, .op = PK_OP_ACQUIRE},
        {.who = PK_WHO_RESOURCE, .op = PK_OP_PAUSE, .arg = 1},
        {.who = PK_WHO_NODE, .op = PK_OP_PAUSE, .arg = 1},
        {.who = PK_WHO_SERVICE, .op = PK_OP_CRASH},
        {.who = A, .op = PK_OP_FAILOVER},
        {.who = A, .op = PK_OP_JUMP, .arg = 1},
        {.who = A, .op = PK_OP_PAUSE},
        {.who = A, .op = PK_OP_DRIFT, .arg = 500001},
        {.who = A, .op = PK_OP_CUT, .arg = -1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK(pk_world_act_wrong(&c, &wrong[i]) != NULL);
    }
}
