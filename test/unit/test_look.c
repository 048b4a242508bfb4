/* SPDX-License-Identifier: MIT */
/* Looking without a step: what is seen is what SHOW and LIST would say. */
#include "core/look.h"

#include "tap.h"

static struct pk_machine *m;

static struct pk_effect run(struct pk_command c)
{
    static struct pk_effects effects;
    pk_effects_reset(&effects);
    pk_machine_step(m, &c, &effects);
    for (uint32_t i = 0; i < effects.count; i++) {
        if (effects.list[i].kind == PK_REPLY) {
            return effects.list[i];
        }
    }
    return (struct pk_effect){.status = PK_STATUS_COUNT};
}

static uint64_t lease_of(const char *label, uint64_t stamp_ms)
{
    return run((struct pk_command){.verb = PK_LEASE_OPEN,
                                   .stamp_ms = stamp_ms,
                                   .ttl_ms = 10000,
                                   .label = pk_text(label)})
        .lease;
}

static struct pk_effect acquire(uint64_t lease, const char *name, enum pk_mode mode,
                                uint64_t stamp_ms)
{
    static uint64_t request;
    struct pk_command c = {.verb = PK_LOCK_ACQUIRE,
                           .stamp_ms = stamp_ms,
                           .lease = lease,
                           .request = ++request,
                           .n_parts = 1,
                           .lock_delay_ms = 7000,
                           .value = pk_text("here"),
                           .wait_ms = PK_WAIT_FOREVER};
    c.parts[0] = (struct pk_part){.name = pk_text(name), .mode = mode};
    return run(c);
}

struct seen {
    uint32_t n, most;
    struct pk_look_lock locks[8];
    struct pk_look_claim claims[8];
};

static bool see_lock(void *ctx, const struct pk_look_lock *l)
{
    struct seen *s = ctx;
    s->locks[s->n++] = *l;
    return s->n < s->most;
}

static bool see_claim(void *ctx, const struct pk_look_claim *c)
{
    struct seen *s = ctx;
    s->claims[s->n++] = *c;
    return s->n < s->most;
}

static struct seen locks_after(const char *after, uint32_t most)
{
    struct seen s = {.most = most};
    pk_look_locks(m, pk_text(after), see_lock, &s);
    return s;
}

static struct seen claims_of(const char *name, uint32_t most)
{
    struct seen s = {.most = most};
    pk_look_holds(m, pk_text(name), see_claim, &s);
    if (s.n < most) {
        pk_look_waits(m, pk_text(name), see_claim, &s);
    }
    return s;
}

TEST(look__walks_locks_by_name_from_anywhere)
{
    m = pk_machine_new();
    CHECK_U64(locks_after("", 8).n, 0);
    uint64_t a = lease_of("a", 1);
    CHECK(acquire(a, "b", PK_EXCLUSIVE, 2).status == PK_OK);
    CHECK(acquire(a, "d", PK_EXCLUSIVE, 3).status == PK_OK);
    CHECK(acquire(a, "c", PK_EXCLUSIVE, 4).status == PK_OK);
    CHECK_U64(locks_after("", 8).n, 3);
    CHECK_U64(locks_after("", 2).n, 2);
    CHECK(pk_bytes_equal(locks_after("b", 8).locks[0].name, pk_text("c")));
    CHECK(pk_bytes_equal(locks_after("bb", 8).locks[0].name, pk_text("c")));
    CHECK_U64(locks_after("d", 8).n, 0);
    pk_machine_free(m);
}

TEST(look__sees_holds_and_the_queue)
{
    m = pk_machine_new();
    uint64_t a = lease_of("first", 100);
    uint64_t b = lease_of("second", 200);
    uint64_t token = acquire(a, "db", PK_SHARED, 300).token;
    CHECK(acquire(b, "db", PK_SHARED, 400).status == PK_OK);
    CHECK(acquire(a, "db", PK_EXCLUSIVE, 500).status == PK_QUEUED);
    CHECK(acquire(b, "db", PK_EXCLUSIVE, 600).status == PK_QUEUED);
    struct pk_look_lock l;
    CHECK(pk_look_lock(m, pk_text("db"), &l));
    CHECK_U64(l.holders, 2);
    CHECK_U64(l.waiters, 2);
    CHECK_U64(l.token, token);
    CHECK_U64(l.since_ms, 300);
    CHECK_U64(l.ends_ms, 10100);
    CHECK_U64(l.ttl_ms, 10000);
    CHECK(l.mode == PK_SHARED && !l.keyed && l.closed_until_ms == 0);
    CHECK(pk_bytes_equal(l.label, pk_text("first")));
    CHECK(pk_bytes_equal(l.value, pk_text("here")));
    struct seen s = claims_of("db", 8);
    CHECK_U64(s.n, 4);
    CHECK_U64(s.claims[1].ends_ms, 10200);
    CHECK_U64(s.claims[1].place, 0);
    CHECK_U64(s.claims[2].place, 1);
    CHECK_U64(s.claims[3].place, 2);
    CHECK_U64(s.claims[3].lease, b);
    CHECK_U64(s.claims[3].token, 0);
    CHECK_U64(s.claims[3].since_ms, 600);
    CHECK(s.claims[3].mode == PK_EXCLUSIVE && s.claims[3].parts == 1);
    CHECK(pk_bytes_equal(s.claims[3].label, pk_text("second")));
    CHECK_U64(claims_of("db", 1).n, 1);
    CHECK_U64(claims_of("db", 3).n, 3);
    CHECK_U64(claims_of("none", 8).n, 0);
    CHECK(!pk_look_lock(m, pk_text("none"), &l));
    pk_machine_free(m);
}

TEST(look__sees_a_closed_lock_and_no_label_of_the_dead)
{
    m = pk_machine_new();
    uint64_t a = lease_of("gone", 0);
    CHECK(acquire(a, "db", PK_EXCLUSIVE, 0).status == PK_OK);
    CHECK(pk_bytes_equal(pk_look_label(m, a), pk_text("gone")));
    CHECK(run((struct pk_command){.verb = PK_TICK, .stamp_ms = 10000}).kind == PK_REPLY);
    struct pk_look_lock l;
    CHECK(pk_look_lock(m, pk_text("db"), &l));
    CHECK_U64(l.closed_until_ms, 17000);
    CHECK_U64(l.token, 0);
    CHECK_U64(l.holders, 0);
    CHECK_U64(pk_look_label(m, a).len, 0);
    CHECK_U64(pk_look_label(m, 12345).len, 0);
    pk_machine_free(m);
}

TEST(look__knows_a_key)
{
    m = pk_machine_new();
    struct pk_command take = {
        .verb = PK_KEY_TAKE, .n_parts = 1, .value = pk_text("mine"), .ttl_ms = 500};
    take.parts[0] = (struct pk_part){.name = pk_text("k"), .mode = PK_EXCLUSIVE};
    CHECK(run(take).status == PK_OK);
    struct pk_look_lock l;
    CHECK(pk_look_lock(m, pk_text("k"), &l));
    CHECK(l.keyed && pk_bytes_equal(l.value, pk_text("mine")));
    pk_machine_free(m);
}
