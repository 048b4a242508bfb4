/* SPDX-License-Identifier: MIT */
/*
 * How much memory the machine takes, counted at its door: for leases with a lock each,
 * while all of them change under a view, and when all of them end.
 *
 * A block counts as what a common allocator takes for it: 8 bytes before it, rounded up
 * to 16, at least 32.
 */
#include "core/machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "core/pool.h"
#include "tap.h"

/* ---- the doors ---- */

static size_t now, most; /* bytes */

/* Before each block; keeps the alignment of malloc. */
union head {
    size_t size;
    max_align_t align;
};

static size_t cost(size_t size)
{
    size_t rounded = (size + 8 + 15) / 16 * 16;
    return rounded < 32 ? 32 : rounded;
}

void *pk_door_resize(void *old, size_t size)
{
    union head *h = old == NULL ? NULL : (union head *)old - 1;
    now -= h == NULL ? 0 : cost(h->size);
    if (size == 0) {
        free(h);
        return NULL;
    }
    h = realloc(h, sizeof *h + size);
    if (h == NULL) {
        abort();
    }
    h->size = size;
    now += cost(size);
    most = now > most ? now : most;
    return h + 1;
}

_Noreturn void pk_door_stop(const char *file, int line, const char *why)
{
    fprintf(stderr, "stopped: %s (%s:%d)\n", why, file, line);
    abort();
}

/* ---- a machine with many leases ---- */

enum {
    LEASES = 20000,
    NAME = 19,
    LABEL = 40, /* as long as "host=web1.example.com pid=4711 user=app" */
    TTL_MS = 60000,
    SOME = 256 * 1024, /* for effects, tables that double, and slabs that have room */
};

static uint64_t clock_ms;

static uint64_t step(struct pk_machine *m, struct pk_command c)
{
    struct pk_effects effects = {0};
    c.stamp_ms = clock_ms;
    pk_machine_step(m, &c, &effects);
    CHECK(effects.list[0].status == PK_OK);
    uint64_t token = effects.list[0].token;
    pk_effects_free(&effects);
    return token;
}

static uint64_t acquire(struct pk_machine *m, uint64_t lease)
{
    char name[NAME + 1];
    (void)snprintf(name, sizeof name, "orders/%012u", (unsigned)(lease * 7919 % 1000003));
    return step(
        m, (struct pk_command){.verb = PK_LOCK_ACQUIRE,
                               .lease = lease,
                               .parts = {{.name = pk_text(name), .mode = PK_EXCLUSIVE}},
                               .n_parts = 1});
}

static struct pk_machine *full_machine(void)
{
    char label[LABEL + 1] = "";
    memset(label, 'x', LABEL);
    struct pk_machine *m = pk_machine_new();
    clock_ms = 1;
    for (uint64_t i = 1; i <= LEASES; i++) {
        step(m, (struct pk_command){.verb = PK_LEASE_OPEN,
                                    .request = i,
                                    .ttl_ms = TTL_MS,
                                    .label = pk_text(label)});
        CHECK_U64(acquire(m, i), i);
    }
    return m;
}

TEST(memory__a_lease_with_its_lock_takes_at_most_350_bytes)
{
    if (TAP_SANITIZED) {
        SKIP("sanitizers see each thing by itself: there are no slabs");
    }
    size_t before = now;
    struct pk_machine *m = full_machine();
    size_t each = (now - before) / LEASES;
    printf("# %zu bytes, %zu beyond name and label\n", each, each - NAME - LABEL);
    CHECK(each - NAME - LABEL <= 350);
    pk_machine_free(m);
    CHECK_U64(now, before);
}

TEST(memory__all_of_it_comes_back_when_leases_end)
{
    struct pk_machine *m = full_machine();
    size_t full = now;
    most = now;
    clock_ms += 2 * TTL_MS;
    while (pk_machine_stats(m).leases > 0) {
        struct pk_effects effects = {0};
        struct pk_command tick = {.verb = PK_TICK, .stamp_ms = clock_ms};
        pk_machine_step(m, &tick, &effects);
        pk_effects_free(&effects);
    }
    printf("# %zu bytes, at most %zu while leases end, %zu after it\n", full, most, now);
    CHECK(most <= full + full / 8);
    CHECK(now <= full / 8); /* some ended leases are remembered (L4) */
    pk_machine_free(m);
}

/* ---- a view, while everything changes ---- */

enum { FENCES = 40, VALUE = 40000 };

static void set_fence(struct pk_machine *m, unsigned nth, size_t len)
{
    static char value[VALUE];
    char name[32];
    (void)snprintf(name, sizeof name, "register/%u", nth);
    step(m, (struct pk_command){.verb = PK_FENCE_SET,
                                .name = pk_text(name),
                                .token = 1,
                                .value = pk_bytes(value, len)});
}

static void set_fences(struct pk_machine *m, size_t len)
{
    for (unsigned i = 0; i < FENCES; i++) {
        set_fence(m, i, len);
    }
}

/* Leaves no lease, claim or fence as it was. */
static void change_all(struct pk_machine *m)
{
    clock_ms++;
    for (uint64_t i = 1; i <= LEASES; i++) {
        unsigned char id[8];
        char name[NAME + 1];
        pk_command_put_lease(id, 0, i);
        step(m, (struct pk_command){.verb = PK_LEASE_RENEW, .leases = id, .n_leases = 1});
        (void)snprintf(name, sizeof name, "orders/%012u", (unsigned)(i * 7919 % 1000003));
        step(m,
             (struct pk_command){
                 .verb = PK_LOCK_RELEASE, .lease = i, .name = pk_text(name), .token = i});
        acquire(m, i);
    }
    set_fences(m, 1);
}

/* What the view takes is never more than what is still to be read of it, also when all of
 * it was written before the first byte is read. */
TEST(memory__a_view_holds_each_changed_thing_once)
{
    enum { READ = 64 * 1024, ROOM = 8 * 1024 * 1024, EARLY = 1024 * 1024 };
    unsigned char *bytes = malloc(ROOM);
    struct pk_machine *m = full_machine();
    size_t leases = now;
    set_fences(m, VALUE);
    uint64_t digest = pk_machine_digest(m);
    pk_view_begin(m);
    change_all(m);
    size_t held = now;
    size_t len = 0;
    size_t held_early = 0;
    size_t len_early = 0;
    while (!pk_view_is_done(m)) {
        CHECK(bytes != NULL && len + READ <= ROOM);
        len += pk_view_read(m, bytes + len, READ);
        held_early = len_early == 0 && len > EARLY ? now : held_early;
        len_early = len_early == 0 && len > EARLY ? len : len_early;
    }
    CHECK(pk_view_is_sound(m));
    pk_view_end(m);
    size_t after = now;
    printf("# a snapshot of %zu bytes took %zu, and %zu when %zu were read\n", len,
           held - after, held_early - after, len_early);
    CHECK(held - after <= len + SOME);
    CHECK(held_early - after <= len - len_early + SOME);
    CHECK(len - (size_t)FENCES * VALUE <= leases / 3);
    struct pk_machine *back = pk_machine_restore(bytes, len);
    CHECK(back != NULL);
    CHECK_U64(pk_machine_digest(back), digest);
    pk_machine_free(back);
    pk_machine_free(m);
    free(bytes);
}

/* ---- the pool ---- */

enum { THINGS = 600, ROUNDS = 40000, LARGEST = PK_POOL_MOST + 80 };

struct thing {
    unsigned char *bytes; /* NULL: not taken now */
    size_t size;
};

static bool is_intact(const struct thing *t, unsigned char mark)
{
    for (size_t i = 0; i < t->size; i++) {
        if (t->bytes[i] != mark) {
            return false;
        }
    }
    return true;
}

TEST(pool__things_do_not_overlap)
{
    static struct thing things[THINGS];
    static struct pk_pool pool;
    size_t before = now;
    uint64_t chance = 1;
    for (unsigned i = 0; i < ROUNDS; i++) {
        chance = chance * UINT64_C(6364136223846793005) + 1442695040888963407U;
        unsigned nth = (unsigned)(chance >> 33) % THINGS;
        struct thing *t = &things[nth];
        if (t->bytes == NULL) {
            t->size = 1 + (unsigned)(chance >> 20) % LARGEST;
            t->bytes = pk_pool_zeroed(&pool, t->size);
            CHECK_U64((uintptr_t)t->bytes % 8, 0);
            CHECK(is_intact(t, 0));
            memset(t->bytes, (int)(nth % 251), t->size);
        } else {
            CHECK(is_intact(t, (unsigned char)(nth % 251)));
            pk_pool_give(&pool, t->bytes, t->size);
            t->bytes = NULL;
        }
    }
    for (unsigned i = 0; i < THINGS; i++) {
        pk_pool_give(&pool, things[i].bytes, things[i].size);
    }
    pk_pool_end(&pool);
    CHECK_U64(now, before);
}

/* One thing comes and goes while all others stay, and is alone in its slab. */
TEST(pool__the_only_slab_with_room_stays)
{
    enum { MANY = 2000, AT_LEAST = 100, SIZE = 136 };
    static void *things[MANY];
    static struct pk_pool pool;
    unsigned n = 0;
    if (TAP_SANITIZED) {
        SKIP("there are no slabs");
    }
    size_t before = now;
    while (n < AT_LEAST || now == before) { /* until a slab is new */
        before = now;
        CHECK(n < MANY);
        things[n++] = pk_pool_take(&pool, SIZE);
    }
    size_t full = now;
    pk_pool_give(&pool, things[n - 1], SIZE);
    CHECK_U64(now, full);
    CHECK(pk_pool_take(&pool, SIZE) == things[n - 1]);
    for (unsigned i = 0; i < n; i++) {
        pk_pool_give(&pool, things[i], SIZE);
    }
    pk_pool_end(&pool);
}
