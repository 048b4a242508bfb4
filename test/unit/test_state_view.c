/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a snapshot, from a state that goes on (raft/snapshot.h), and back: in
 * slices of any size, with a backup on its way in, given up, and from damaged memory.
 */
#include "core/door.h"
#include "core/machine.h"
#include "core/state.h"
#include "raft/backup.h"
#include "raft/garbage.h"
#include "raft/replica.h"
#include "raft/snapshot.h"
#include "tap.h"

enum { LEASES = 200, PIECE = 3000 };

struct bytes {
    unsigned char *data;
    size_t len;
};

static struct pk_effects effects;

static struct pk_effect step(struct pk_machine *m, const struct pk_command *c)
{
    pk_effects_reset(&effects);
    pk_machine_step(m, c, &effects);
    return effects.list[0];
}

static void open_leases(struct pk_machine *m, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct pk_command c = {
            .verb = PK_LEASE_OPEN, .ttl_ms = 10000, .label = pk_text("somebody")};
        CHECK_U64(step(m, &c).status, PK_OK);
    }
}

static struct pk_state new_state(void)
{
    struct pk_state s = {pk_machine_new(), 77, pk_staging_new()};
    unsigned char piece[PIECE];
    open_leases(s.machine, LEASES);
    memset(piece, 'a', sizeof piece);
    pk_staging_add(s.staging, piece, sizeof piece);
    memset(piece, 'b', sizeof piece);
    pk_staging_add(s.staging, piece, sizeof piece - 1);
    return s;
}

static void free_state(struct pk_state *s)
{
    pk_machine_free(s->machine);
    pk_staging_drop(s->staging);
    pk_effects_free(&effects);
}

/* What the state does while the snapshot of before is being read. */
static void go_on(struct pk_state *s)
{
    struct pk_command close = {.verb = PK_LEASE_CLOSE, .lease = 1};
    (void)step(s->machine, &close);
    open_leases(s->machine, 1);
    s->last_entry++;
    pk_staging_add(s->staging, "more", 4);
}

static enum pk_source_state pull(struct pk_snapshot_source *from, struct bytes *b,
                                 size_t room)
{
    size_t n = 0;
    b->data = pk_door_resize(b->data, b->len + room);
    enum pk_source_state state = from->read(from->ctx, b->data + b->len, room, &n);
    CHECK(n <= room);
    b->len += n;
    return state;
}

static struct pk_state *load(const struct bytes *b, size_t slice)
{
    void *l = pk_state_loader.begin();
    bool good = true;
    for (size_t at = 0; at < b->len && good; at += slice) {
        size_t n = b->len - at < slice ? b->len - at : slice;
        good = pk_state_loader.feed(l, b->data + at, n);
    }
    return pk_state_loader.end(l);
}

static void check_staged(const struct pk_staging *s)
{
    size_t at = 0;
    for (const struct pk_staged_piece *p = s->first; p != NULL; p = p->next) {
        for (size_t i = 0; i < p->len; i++, at++) {
            CHECK_U64(p->bytes[i], at < PIECE ? 'a' : 'b');
        }
    }
    CHECK_U64(at, 2 * PIECE - 1);
    CHECK_U64(s->len, at);
}

static void check_round_trip(size_t slice)
{
    struct pk_state s = new_state();
    struct bytes b = {0};
    uint64_t digest = pk_machine_digest(s.machine);
    struct pk_state_view *v = pk_state_view_begin(&s);
    while (pull(pk_state_view_source(v), &b, slice) == PK_SOURCE_MORE) {
        go_on(&s);
    }
    CHECK(!pk_state_view_is_unsound(v));
    struct pk_state *back = load(&b, slice);
    CHECK(back != NULL);
    CHECK_U64(pk_machine_digest(back->machine), digest);
    CHECK_U64(back->last_entry, 77);
    check_staged(back->staging);
    pk_state_view_free(v);
    pk_state_loader.drop(back);
    pk_door_resize(b.data, 0);
    free_state(&s);
}

TEST(view__has_the_state_of_its_beginning_in_slices_of_any_size)
{
    static const size_t slices[] = {1, 7, 28, 29, 30, 100, 1000, PIECE, 64 * 1024};
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
        check_round_trip(slices[i]);
    }
}

/* A backup that begins anew, while the old one is part of a snapshot. */
TEST(view__keeps_a_staged_backup_that_the_state_has_dropped)
{
    struct pk_state s = new_state();
    struct bytes b = {0};
    struct pk_state_view *v = pk_state_view_begin(&s);
    CHECK(pull(pk_state_view_source(v), &b, 100) == PK_SOURCE_MORE);
    pk_staging_drop(s.staging);
    s.staging = pk_staging_new();
    while (pull(pk_state_view_source(v), &b, 100) == PK_SOURCE_MORE) {
    }
    struct pk_state *back = load(&b, 100);
    CHECK(back != NULL);
    check_staged(back->staging);
    pk_state_view_free(v);
    pk_state_loader.drop(back);
    pk_door_resize(b.data, 0);
    free_state(&s);
}

TEST(view__that_was_ended_is_gone_and_another_can_begin)
{
    struct pk_state s = new_state();
    struct bytes b = {0};
    struct pk_state_view *v = pk_state_view_begin(&s);
    CHECK(pull(pk_state_view_source(v), &b, 2 * PIECE + 500) == PK_SOURCE_MORE);
    pk_state_view_end(v);
    CHECK(pull(pk_state_view_source(v), &b, 100) == PK_SOURCE_GONE);
    CHECK(!pk_state_view_is_unsound(v));
    struct pk_state_view *other = pk_state_view_begin(&s);
    pk_state_view_free(v); /* does not end the other one */
    b.len = 0;
    while (pull(pk_state_view_source(other), &b, 1000) == PK_SOURCE_MORE) {
    }
    struct pk_state *back = load(&b, 1000);
    CHECK(back != NULL);
    pk_state_view_free(other);
    pk_state_loader.drop(back);
    pk_door_resize(b.data, 0);
    free_state(&s);
}

/* A bit of a lease has changed by itself: the snapshot must not be believed. */
TEST(view__of_damaged_memory_is_unsound)
{
    struct pk_state s = new_state();
    struct bytes b = {0};
    struct pk_lease *l = pk_lease_find(s.machine, 100);
    l->ttl_ms ^= 1;
    struct pk_state_view *v = pk_state_view_begin(&s);
    enum pk_source_state state = PK_SOURCE_MORE;
    while (state == PK_SOURCE_MORE) {
        state = pull(pk_state_view_source(v), &b, 1000);
    }
    CHECK(state == PK_SOURCE_GONE);
    CHECK(pk_state_view_is_unsound(v));
    pk_state_view_free(v);
    l->ttl_ms ^= 1;
    pk_door_resize(b.data, 0);
    free_state(&s);
}

/* Nor must a backup. */
TEST(backup__of_damaged_memory_is_unsound)
{
    struct pk_state s = new_state();
    unsigned char room[1000];
    size_t n;
    struct pk_lease *l = pk_lease_find(s.machine, 100);
    l->ttl_ms ^= 1;
    struct pk_backup *b = pk_backup_begin(s.machine);
    enum pk_source_state state = PK_SOURCE_MORE;
    while (state == PK_SOURCE_MORE) {
        state = pk_backup_read(b, room, sizeof room, &n);
    }
    CHECK(state == PK_SOURCE_GONE);
    CHECK(pk_backup_is_unsound(b));
    pk_backup_free(b);
    l->ttl_ms ^= 1;
    free_state(&s);
}

/* Lengths that no snapshot has take no memory (P10). */
TEST(loader__refuses_what_is_no_snapshot)
{
    struct pk_state s = new_state();
    struct bytes b = {0};
    struct pk_state_view *v = pk_state_view_begin(&s);
    while (pull(pk_state_view_source(v), &b, 1000) == PK_SOURCE_MORE) {
    }
    for (size_t at = 0; at < 29; at++) { /* its head */
        b.data[at] ^= 0x80;
        CHECK(load(&b, 1000) == NULL);
        b.data[at] ^= 0x80;
    }
    size_t whole = b.len;
    for (b.len = 0; b.len < whole; b.len += b.len < 2 * PIECE + 100 ? 97 : 1) {
        CHECK(load(&b, 1000) == NULL);
    }
    pk_state_view_free(v);
    pk_door_resize(b.data, 0);
    free_state(&s);
}

/* ---- garbage ---- */

TEST(garbage__frees_a_machine_in_slices)
{
    struct pk_machine *m = pk_machine_new();
    unsigned slices = 1;
    open_leases(m, LEASES);
    while (!pk_machine_free_some(m, 10)) {
        slices++;
    }
    CHECK_U64(slices, LEASES / 10 + 1);
    pk_effects_free(&effects);
}

/* A snapshot that is being read shares the staged bytes, which are freed after it. */
TEST(garbage__keeps_what_a_snapshot_shares)
{
    struct pk_garbage g = {0};
    struct pk_state s = new_state();
    struct bytes b = {0};
    struct pk_state_view *v = pk_state_view_begin(&s);
    CHECK(pull(pk_state_view_source(v), &b, 100) == PK_SOURCE_MORE);
    pk_garbage_add_staging(&g, s.staging);
    s.staging = pk_staging_new();
    pk_garbage_add_machine(&g, pk_machine_new());
    for (int i = 0; i < 5; i++) {
        pk_garbage_free_some(&g);
    }
    while (pull(pk_state_view_source(v), &b, 100) == PK_SOURCE_MORE) {
    }
    struct pk_state *back = load(&b, 100);
    CHECK(back != NULL);
    check_staged(back->staging);
    CHECK(g.first != NULL);
    pk_state_view_free(v);
    pk_garbage_free_some(&g);
    CHECK(g.first == NULL);
    pk_state_loader.drop(back);
    pk_door_resize(b.data, 0);
    free_state(&s);
}
