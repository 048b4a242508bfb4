/* SPDX-License-Identifier: MIT */
/* Snapshots: one form for one state, and nothing else is taken for one. */
#include "core/machine.h"

#include <stdlib.h>

#include "core/door.h"
#include "core/wire.h"
#include "tap.h"

enum { DIGEST_BYTES = 8, END_BYTES = 2 + DIGEST_BYTES, VERSION_AT = 4 };

struct bytes {
    unsigned char *data;
    size_t len;
};

static struct bytes snapshot(struct pk_machine *m)
{
    struct bytes b = {NULL, 0};
    b.len = pk_machine_snapshot(m, &b.data);
    return b;
}

static void drop(struct bytes b)
{
    pk_door_resize(b.data, 0);
}

static void check_equal(struct bytes a, struct bytes b)
{
    CHECK_U64(a.len, b.len);
    CHECK(memcmp(a.data, b.data, a.len) == 0);
}

static void check_same(struct pk_machine *a, struct pk_machine *b)
{
    struct bytes x = snapshot(a);
    struct bytes y = snapshot(b);
    check_equal(x, y);
    CHECK_U64(pk_machine_digest(a), pk_machine_digest(b));
    drop(x);
    drop(y);
}

/* True when the bytes are refused; read from a block of their own, for sanitizers. */
static bool refused(const unsigned char *data, size_t len)
{
    unsigned char *copy = malloc(len + 1);
    CHECK(copy != NULL);
    if (len > 0) {
        memcpy(copy, data, len);
    }
    struct pk_machine *m = pk_machine_restore(copy, len);
    bool none = m == NULL;
    pk_machine_free(m);
    free(copy);
    return none;
}

/* Puts the digest of what stands before the end item into it. */
static void mend_digest(struct bytes b)
{
    struct pk_restore *s = pk_restore_begin();
    if (b.len >= END_BYTES && pk_restore_feed(s, b.data, b.len - END_BYTES)) {
        pk_put_u64(b.data + b.len - DIGEST_BYTES, pk_restore_digest(s));
    }
    pk_machine_free(pk_restore_end(s));
}

/* ---- commands ---- */

static void step(struct pk_machine *m, struct pk_command c)
{
    struct pk_effects effects = {0};
    pk_machine_step(m, &c, &effects);
    CHECK_STR(pk_machine_check(m), NULL);
    pk_effects_free(&effects);
}

static void open_lease(struct pk_machine *m, uint64_t request, const char *label)
{
    step(m, (struct pk_command){.verb = PK_LEASE_OPEN,
                                .request = request,
                                .ttl_ms = 1000 + request,
                                .label = pk_text(label)});
}

static struct pk_command acquire(uint64_t lease, uint64_t request, const char *name)
{
    struct pk_command c = {.verb = PK_LOCK_ACQUIRE,
                           .lease = lease,
                           .request = request,
                           .wait_ms = PK_WAIT_FOREVER,
                           .n_parts = 1};
    c.parts[0] = (struct pk_part){.name = pk_text(name), .mode = PK_EXCLUSIVE};
    return c;
}

static void release(struct pk_machine *m, uint64_t lease, uint64_t request,
                    const char *name, uint64_t token)
{
    step(m, (struct pk_command){.verb = PK_LOCK_RELEASE,
                                .lease = lease,
                                .request = request,
                                .name = pk_text(name),
                                .token = token});
}

static void set_fence(struct pk_machine *m, const char *name, uint64_t token,
                      const char *value)
{
    step(m, (struct pk_command){.verb = PK_FENCE_SET,
                                .request = 5,
                                .name = pk_text(name),
                                .token = token,
                                .value = pk_text(value)});
}

static void keep_fence(struct pk_machine *m, const char *name, uint64_t keep_ms)
{
    step(m,
         (struct pk_command){
             .verb = PK_FENCE_SET, .name = pk_text(name), .token = 1, .ttl_ms = keep_ms});
}

static void shadow_fence(struct pk_machine *m, const char *name)
{
    step(m, (struct pk_command){
                .verb = PK_FENCE_MODE, .name = pk_text(name), .flags = PK_FENCE_SHADOW});
}

static void tick(struct pk_machine *m, uint64_t stamp)
{
    step(m, (struct pk_command){.verb = PK_TICK, .stamp_ms = stamp});
}

/* Something of everything a snapshot can hold. */
static struct pk_machine *rich_machine(void)
{
    struct pk_machine *m = pk_machine_new();
    open_lease(m, 1, "host=h1\npid=1");
    open_lease(m, 2, "");
    open_lease(m, 3, "na\xc3\xafve");
    open_lease(m, 0, "gone");
    struct pk_command c = acquire(4, 1, "closed");
    c.lock_delay_ms = 5000;
    step(m, c); /* breaking it closes the lock */
    step(m, (struct pk_command){.verb = PK_LOCK_BREAK,
                                .request = 77,
                                .name = pk_text("closed"),
                                .token = 1,
                                .principal = pk_text("ops"),
                                .reason = pk_text("drill")});
    step(m, (struct pk_command){.verb = PK_LEASE_CLOSE, .lease = 4});
    c = acquire(1, 1, "jobs/nightly");
    c.max_hold_ms = 900;
    c.value = pk_text("10.0.0.1:80");
    step(m, c);
    c = acquire(2, 1, "jobs/nightly");
    c.wait_ms = 800;
    c.n_parts = 3;
    c.parts[1] = (struct pk_part){.name = pk_text("shared"), .mode = PK_SHARED};
    c.parts[2] = (struct pk_part){.name = pk_text("slots"), .mode = PK_SLOT, .slots = 3};
    step(m, c);
    c = acquire(3, 0, "slots");
    c.parts[0].mode = PK_SLOT;
    c.parts[0].slots = 3;
    step(m, c);
    for (uint64_t request = 2; request < 24; request++) {
        release(m, 3, request, "nobody's", 9); /* more answers than are remembered */
    }
    set_fence(m, "disk", 3, "state");
    step(m, (struct pk_command){
                .verb = PK_FENCE_CLAIM, .name = pk_text("bare"), .token = 2});
    shadow_fence(m, "bare");
    shadow_fence(m, "unclaimed");
    set_fence(m, "bare", 1, "let through");
    keep_fence(m, "note", 300);
    keep_fence(m, "memo", 300);
    struct pk_command take = {.verb = PK_KEY_TAKE, .ttl_ms = 700, .n_parts = 2};
    take.value = pk_text("mine");
    take.parts[0] = (struct pk_part){.name = pk_text("key"), .mode = PK_EXCLUSIVE};
    take.parts[1] = (struct pk_part){.name = pk_text("broken"), .mode = PK_EXCLUSIVE};
    step(m, take);
    step(m, (struct pk_command){
                .verb = PK_LOCK_BREAK, .name = pk_text("broken"), .token = 5});
    tick(m, 20);
    return m;
}

/* ---- one form for one state ---- */

TEST(snapshot__an_empty_machine)
{
    struct pk_machine *m = pk_machine_new();
    struct bytes b = snapshot(m);
    struct pk_machine *back = pk_machine_restore(b.data, b.len);
    CHECK(back != NULL);
    check_same(m, back);
    pk_machine_free(back);
    pk_machine_free(m);
    drop(b);
}

TEST(snapshot__restored_is_the_same_and_goes_on_the_same)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    struct pk_machine *back = pk_machine_restore(b.data, b.len);
    CHECK(back != NULL);
    check_same(m, back);
    CHECK_U64(pk_machine_next_deadline(back), pk_machine_next_deadline(m));
    CHECK_U64(pk_machine_last_token(back), pk_machine_last_token(m));
    while (pk_machine_next_deadline(m) != UINT64_MAX) {
        uint64_t next = pk_machine_next_deadline(m);
        tick(m, next);
        tick(back, next);
        check_same(m, back);
    }
    pk_machine_free(back);
    pk_machine_free(m);
    drop(b);
}

TEST(snapshot__the_order_of_independent_things_leaves_no_trace)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
    struct pk_machine *up = pk_machine_new();
    struct pk_machine *down = pk_machine_new();
    for (int i = 0; i < 7; i++) {
        set_fence(up, names[i], (uint64_t)i + 1, names[i]);
        set_fence(down, names[6 - i], 7 - (uint64_t)i, names[6 - i]);
    }
    check_same(up, down);
    pk_machine_free(up);
    pk_machine_free(down);
}

TEST(snapshot__what_was_undone_leaves_no_trace)
{
    struct pk_machine *plain = rich_machine();
    struct pk_machine *busy = rich_machine();
    struct pk_command try = acquire(3, 0, "jobs/nightly");
    try.wait_ms = 0;
    step(busy, try);
    release(busy, 3, 0, "jobs/nightly", 99);
    step(busy, (struct pk_command){.verb = PK_LOCK_LIST,
                                   .count = PK_PAGE_MAX,
                                   .principal = pk_text("ops")});
    step(busy,
         (struct pk_command){.verb = PK_FENCE_CHECK, .name = pk_text("x"), .token = 1});
    step(busy, (struct pk_command){.verb = PK_LEASE_SHOW, .lease = 1, .count = 1});
    step(busy, (struct pk_command){.verb = PK_LEASE_OPEN, .ttl_ms = 1});
    open_lease(busy, 1, "the same opening again");
    tick(busy, 3);
    struct pk_command value = {.verb = PK_LOCK_VALUE,
                               .lease = 1,
                               .name = pk_text("jobs/nightly"),
                               .token = 2,
                               .value = pk_text("for a moment")};
    step(busy, value);
    value.value = pk_text("10.0.0.1:80");
    step(busy, value);
    check_same(plain, busy);
    pk_machine_free(plain);
    pk_machine_free(busy);
}

TEST(snapshot__a_ring_that_went_round_is_as_one_that_was_read)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    struct pk_machine *back = pk_machine_restore(b.data, b.len);
    CHECK(back != NULL);
    for (uint64_t request = 50; request < 90; request++) {
        release(m, 3, request, "nobody's", 9);
        release(back, 3, request, "nobody's", 9);
        check_same(m, back);
    }
    pk_machine_free(back);
    pk_machine_free(m);
    drop(b);
}

/* ---- nothing else ---- */

/* That a lease is keyed is part of the state: of bytes, digest and what comes next. */
TEST(snapshot__a_key_is_not_a_hold_that_looks_the_same)
{
    struct pk_machine *key = pk_machine_new();
    struct pk_machine *hold = pk_machine_new();
    struct pk_command take = {
        .verb = PK_KEY_TAKE, .ttl_ms = 1000, .n_parts = 1, .value = pk_text("v")};
    take.parts[0] = (struct pk_part){.name = pk_text("k"), .mode = PK_EXCLUSIVE};
    step(key, take);
    open_lease(hold, 0, "");
    struct pk_command c = acquire(1, 0, "k");
    c.value = pk_text("v");
    step(hold, c);
    CHECK(pk_machine_digest(key) != pk_machine_digest(hold));
    struct bytes b = snapshot(key);
    struct pk_machine *back = pk_machine_restore(b.data, b.len);
    CHECK(back != NULL);
    struct pk_command drop_it = take;
    drop_it.verb = PK_KEY_DROP;
    drop_it.ttl_ms = 0;
    step(back, drop_it);
    step(hold, drop_it);
    CHECK_U64(pk_machine_stats(back).holds, 0);
    CHECK_U64(pk_machine_stats(hold).holds, 1);
    pk_machine_free(back);
    pk_machine_free(hold);
    pk_machine_free(key);
    drop(b);
}

/* So are the times at which fences end, and their order (F10). */
TEST(snapshot__fences_end_when_they_would_have)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    struct pk_machine *back = pk_machine_restore(b.data, b.len);
    CHECK(back != NULL);
    struct pk_effects e = {0};
    pk_machine_step(back, &(struct pk_command){.verb = PK_TICK, .stamp_ms = 299}, &e);
    CHECK_U64(e.count, 1);
    pk_effects_reset(&e);
    pk_machine_step(back, &(struct pk_command){.verb = PK_TICK, .stamp_ms = 300}, &e);
    CHECK_U64(e.count, 3);
    CHECK(e.list[0].kind == PK_EV_FENCE_ENDED && e.list[1].kind == PK_EV_FENCE_ENDED);
    CHECK(pk_bytes_equal(e.list[0].name, pk_text("note")));
    CHECK(pk_bytes_equal(e.list[1].name, pk_text("memo")));
    pk_effects_free(&e);
    pk_machine_free(back);
    pk_machine_free(m);
    drop(b);
}

/* So are mode and count of a fence; and one that nobody has claimed is one all the same.
 */
TEST(snapshot__a_fence_keeps_its_mode_and_its_count)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    struct pk_machine *back = pk_machine_restore(b.data, b.len);
    CHECK(back != NULL);
    struct pk_effects e = {0};
    pk_machine_step(
        back, &(struct pk_command){.verb = PK_FENCE_SHOW, .name = pk_text("bare")}, &e);
    pk_machine_step(
        back, &(struct pk_command){.verb = PK_FENCE_SHOW, .name = pk_text("unclaimed")},
        &e);
    CHECK_U64(e.count, 2);
    CHECK_U64(e.list[0].token, 2);
    CHECK_U64(e.list[0].shadow, 1);
    CHECK_U64(e.list[0].shadowed, 1);
    CHECK_U64(e.list[0].value_bytes, strlen("let through"));
    CHECK_U64(e.list[1].status, PK_OK);
    CHECK_U64(e.list[1].token, 0);
    CHECK_U64(e.list[1].shadow, 1);
    pk_effects_free(&e);
    pk_machine_free(back);
    pk_machine_free(m);
    drop(b);
}

TEST(snapshot__every_flipped_byte_is_refused)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    for (size_t i = 0; i < b.len; i++) {
        for (unsigned flip = 1; flip < 256; flip++) {
            b.data[i] ^= (unsigned char)flip;
            CHECK(refused(b.data, b.len));
            b.data[i] ^= (unsigned char)flip;
        }
    }
    CHECK(!refused(b.data, b.len));
    pk_machine_free(m);
    drop(b);
}

TEST(snapshot__every_truncation_is_refused)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    struct bytes cut = {.data = malloc(b.len + END_BYTES)};
    CHECK(cut.data != NULL);
    uint64_t smaller = 0;
    for (size_t len = 0; len < b.len; len++) {
        CHECK(refused(b.data, len));
        /* With a right end behind what is left, it may be a state of fewer items. */
        memcpy(cut.data, b.data, len);
        memcpy(cut.data + len, b.data + b.len - END_BYTES, END_BYTES);
        cut.len = len + END_BYTES;
        mend_digest(cut);
        struct pk_machine *less = pk_machine_restore(cut.data, cut.len);
        smaller += less != NULL;
        pk_machine_free(less);
    }
    CHECK(smaller > 0 && smaller < b.len / 10);
    free(cut.data);
    pk_machine_free(m);
    drop(b);
}

TEST(snapshot__more_bytes_behind_it_are_refused)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    b.data = pk_door_resize(b.data, b.len + 1);
    b.data[b.len++] = 0;
    CHECK(refused(b.data, b.len));
    mend_digest(b);
    CHECK(refused(b.data, b.len));
    pk_machine_free(m);
    drop(b);
}

TEST(snapshot__another_version_is_refused)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    unsigned char version = b.data[VERSION_AT];
    for (unsigned other = 0; other < 256; other++) {
        b.data[VERSION_AT] = (unsigned char)other;
        mend_digest(b);
        CHECK(refused(b.data, b.len) == (other != version));
    }
    pk_machine_free(m);
    drop(b);
}

/* With a right digest a changed byte may be another valid state; then it must be exactly
 * that state: sound, as long, and with that digest. */
TEST(snapshot__a_changed_byte_is_refused_or_is_the_state)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    uint64_t taken = 0;
    for (size_t i = 0; i < b.len - DIGEST_BYTES; i++) {
        unsigned char was = b.data[i];
        for (unsigned value = 0; value < 256; value++) {
            b.data[i] = (unsigned char)value;
            mend_digest(b);
            struct pk_machine *other = pk_machine_restore(b.data, b.len);
            if (other != NULL) {
                struct bytes again = snapshot(other);
                CHECK_STR(pk_machine_check(other), NULL);
                CHECK_U64(again.len, b.len);
                CHECK(memcmp(again.data + b.len - END_BYTES, b.data + b.len - END_BYTES,
                             END_BYTES) == 0);
                drop(again);
                pk_machine_free(other);
                taken++;
            }
        }
        b.data[i] = was;
    }
    CHECK(taken > b.len);
    pk_machine_free(m);
    drop(b);
}

/* ---- in pieces, while the machine goes on ---- */

/* Reads the whole view, `room` bytes at a time, with `meanwhile` after each read. */
static struct bytes view(struct pk_machine *m, size_t room,
                         void (*meanwhile)(struct pk_machine *m, unsigned nth))
{
    struct bytes b = {NULL, 0};
    pk_view_begin(m);
    for (unsigned nth = 0; !pk_view_is_done(m); nth++) {
        b.data = pk_door_resize(b.data, b.len + room);
        b.len += pk_view_read(m, b.data + b.len, room);
        if (meanwhile != NULL) {
            meanwhile(m, nth);
        }
    }
    CHECK(pk_view_is_sound(m));
    pk_view_end(m);
    return b;
}

TEST(view__is_the_snapshot_however_it_is_read)
{
    struct pk_machine *m = rich_machine();
    struct bytes whole = snapshot(m);
    for (size_t room = 1; room < whole.len + 2; room = 2 * room + 1) {
        struct bytes b = view(m, room, NULL);
        check_equal(b, whole);
        drop(b);
    }
    drop(whole);
    pk_machine_free(m);
}

TEST(restore__takes_pieces_of_any_size)
{
    struct pk_machine *m = rich_machine();
    struct bytes b = snapshot(m);
    for (size_t piece = 1; piece < b.len + 2; piece++) {
        struct pk_restore *s = pk_restore_begin();
        for (size_t at = 0; at < b.len; at += piece) {
            size_t n = b.len - at < piece ? b.len - at : piece;
            unsigned char *copy = malloc(n); /* exactly as long, for sanitizers */
            CHECK(copy != NULL);
            memcpy(copy, b.data + at, n);
            CHECK(pk_restore_feed(s, copy, n));
            free(copy);
        }
        CHECK_U64(pk_restore_version(s), pk_machine_version(m));
        struct pk_machine *back = pk_restore_end(s);
        CHECK(back != NULL);
        check_same(m, back);
        pk_machine_free(back);
    }
    drop(b);
    pk_machine_free(m);
}

/* Changes something of everything, and in the end leaves nothing as it was. */
static void change_all(struct pk_machine *m, unsigned nth)
{
    switch (nth) {
    case 0:
        step(m, (struct pk_command){.verb = PK_LEASE_CLOSE, .lease = 1});
        open_lease(m, 100, "new");
        break;
    case 1:
        set_fence(m, "disk", 9, "another");
        set_fence(m, "new", 9, "fence");
        step(m, acquire(3, 200, "a new lock"));
        break;
    case 2:
        release(m, 3, 201, "slots", 4);
        step(m, (struct pk_command){.verb = PK_LEASE_CLOSE, .lease = 2});
        break;
    default:
        tick(m, 1000 + UINT64_C(100) * nth);
        break;
    }
}

TEST(view__is_the_moment_when_it_began)
{
    for (size_t room = 1; room < 600; room += 7) {
        struct pk_machine *m = rich_machine();
        struct bytes before = snapshot(m);
        struct bytes b = view(m, room, change_all);
        struct pk_machine *back = pk_machine_restore(b.data, b.len);
        CHECK(back != NULL);
        struct bytes after = snapshot(back);
        check_equal(after, before);
        pk_machine_free(back);
        pk_machine_free(m);
        drop(before);
        drop(after);
        drop(b);
    }
}

TEST(view__that_was_given_up_leaves_no_trace)
{
    struct pk_machine *m = rich_machine();
    struct bytes before = snapshot(m);
    unsigned char some[64];
    pk_view_begin(m);
    CHECK(pk_view_read(m, some, sizeof some) > 0);
    pk_view_end(m);
    struct bytes after = snapshot(m);
    check_equal(after, before);
    drop(before);
    drop(after);
    pk_machine_free(m);
}

TEST(view__has_a_number_that_comes_round)
{
    struct pk_machine *m = rich_machine();
    struct bytes before = snapshot(m);
    for (unsigned i = 0; i <= UINT16_MAX; i++) {
        pk_view_begin(m);
        pk_view_end(m);
    }
    struct bytes after = snapshot(m);
    check_equal(after, before);
    drop(before);
    drop(after);
    pk_machine_free(m);
}
