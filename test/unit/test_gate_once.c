/* SPDX-License-Identifier: MIT */
/* Idempotency keys: records as bytes, and one call after another on a real store. */
#include "gate/once.h"

#include "core/door.h"
#include "statedir.h"
#include "tap.h"

/* ---- records ---- */

static const struct pk_record sample = {.kind = PK_RECORD_DONE,
                                        .request = {1, 2},
                                        .body = {3, 4},
                                        .has_body = true,
                                        .status = 201,
                                        .fields = {"A: b\r\n", 6},
                                        .answer = {"hello", 5}};

TEST(record__is_read_as_it_was_written)
{
    struct pk_resp_out out = {0};
    struct pk_record r;
    pk_record_write(&sample, &out);
    CHECK(pk_record_read(&r, pk_bytes(out.data, out.len)));
    CHECK(r.kind == PK_RECORD_DONE && r.status == 201 && r.has_body);
    CHECK(memcmp(r.request, sample.request, PK_ONCE_HASH) == 0);
    CHECK(memcmp(r.body, sample.body, PK_ONCE_HASH) == 0);
    CHECK(pk_bytes_equal(r.fields, sample.fields));
    CHECK(pk_bytes_equal(r.answer, sample.answer));
    for (size_t len = 1; len < out.len; len++) {
        CHECK(!pk_record_read(&r, pk_bytes(out.data, len)));
    }
    out.data[0]++; /* another version */
    CHECK(!pk_record_read(&r, pk_bytes(out.data, out.len)));
    pk_resp_free(&out);
}

TEST(record__nothing_is_none)
{
    struct pk_record r;
    CHECK(pk_record_read(&r, pk_bytes("", 0)));
    CHECK(r.kind == PK_RECORD_NONE);
}

/* ---- calls ---- */

static char url[4300];
static struct picket *store;

static void open_store(void)
{
    dir_fresh();
    (void)snprintf(url, sizeof url, "local:%s", state);
    CHECK(picket_open(url, NULL, &store) == PICKET_OK);
}

/* Another gate, after the lease of `mine` has ended. */
static void reopen_as_another(struct picket *mine)
{
    CHECK(picket_lease_close(mine, picket_lease(mine)) == PICKET_OK);
    CHECK(picket_open(url, NULL, &store) == PICKET_OK);
}

static void close_store(void)
{
    picket_close(store);
}

enum { KEEP_MS = 3600 * 1000 };

static struct pk_once *call(const char *target, const char *body, bool retry)
{
    static struct pk_head h;
    static char text[200];
    (void)snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: h\r\n\r\n", target);
    CHECK(pk_head_read_request(&h, pk_text(text)));
    struct pk_once_options o = {.store = store,
                                .name = "gate",
                                .resource = pk_text("r"),
                                .key = pk_text("k"),
                                .keep_ms = KEEP_MS,
                                .retry_unknown = retry};
    struct pk_once *once = pk_once_new(&o, &h);
    pk_once_hash(once, pk_text(body));
    pk_once_hashed(once);
    pk_once_begin(once);
    return once;
}

static void end(struct pk_once *o, enum pk_once_how how)
{
    pk_once_settle(o, how, 201);
    pk_once_end(o);
    CHECK(pk_once_recorded(o));
    pk_once_free(o);
}

static enum pk_once_found found(const char *target, const char *body)
{
    struct pk_once *o = call(target, body, false);
    enum pk_once_found f = pk_once_found(o);
    if (f == PK_ONCE_FRESH) {
        end(o, PK_ONCE_CLEAR);
    } else {
        pk_once_free(o);
    }
    return f;
}

static void gather(struct pk_once *o, const char *body)
{
    static struct pk_head h;
    CHECK(
        pk_head_read_answer(&h, pk_text("HTTP/1.1 201 Created\r\nA: b\r\n\r\n"), false));
    CHECK(pk_once_answer(o, &h));
    CHECK(pk_once_gather(o, pk_text(body)));
}

TEST(once__keeps_the_answer_for_repeats)
{
    open_store();
    struct pk_once *o = call("/a", "body", false);
    CHECK(pk_once_found(o) == PK_ONCE_FRESH);
    CHECK(found("/a", "body") == PK_ONCE_IN_PROGRESS);
    CHECK(found("/b", "body") == PK_ONCE_MISMATCH);
    gather(o, "the answer");
    end(o, PK_ONCE_KEEP);
    o = call("/a", "body", false);
    CHECK(pk_once_found(o) == PK_ONCE_REPEAT && pk_once_same(o));
    CHECK(pk_bytes_equal(pk_once_record(o)->answer, pk_text("the answer")));
    CHECK(pk_once_record(o)->kind == PK_RECORD_DONE);
    pk_once_free(o);
    o = call("/a", "another", false);
    CHECK(pk_once_found(o) == PK_ONCE_REPEAT && !pk_once_same(o));
    pk_once_free(o);
    CHECK(found("/b", "body") == PK_ONCE_MISMATCH);
    close_store();
}

TEST(once__what_was_cleared_is_new_again)
{
    open_store();
    CHECK(found("/a", "x") == PK_ONCE_FRESH); /* and cleared */
    CHECK(found("/b", "y") == PK_ONCE_FRESH);
    close_store();
}

TEST(once__a_call_that_was_left_is_of_unknown_outcome)
{
    open_store();
    struct pk_once *o = call("/a", "x", false);
    end(o, PK_ONCE_LEAVE);
    CHECK(found("/a", "x") == PK_ONCE_UNKNOWN);
    CHECK(found("/b", "x") == PK_ONCE_MISMATCH);
    o = call("/a", "x", true);
    CHECK(pk_once_found(o) == PK_ONCE_FRESH);
    end(o, PK_ONCE_NOT_KEPT);
    o = call("/a", "x", true);
    CHECK(pk_once_found(o) == PK_ONCE_REPEAT);
    CHECK(pk_once_record(o)->kind == PK_RECORD_NOT_KEPT);
    CHECK_U64(pk_once_record(o)->status, 201);
    pk_once_free(o);
    close_store();
}

/* Whatever is written of a key ends by itself: nothing fills the store for good. */
TEST(once__every_record_has_an_end)
{
    static const char reg[] =
        "gate/once/r/8254c329a92850f6d539dd376f4816ee2764517da5e0235514af433164480d7a";
    for (enum pk_once_how how = PK_ONCE_KEEP; how <= PK_ONCE_LEAVE; how++) {
        struct picket_fence_state fence = {0};
        open_store();
        struct pk_once *o = call("/a", "x", false);
        CHECK(picket_fence_show(store, reg, &fence) == PICKET_OK);
        CHECK(fence.left_ms > KEEP_MS / 2 && fence.left_ms <= KEEP_MS);
        gather(o, "the answer");
        end(o, how);
        CHECK(picket_fence_show(store, reg, &fence) == PICKET_OK);
        CHECK(fence.left_ms > KEEP_MS / 2 && fence.left_ms <= KEEP_MS);
        close_store();
    }
}

/* Claimed before it was read: what somebody was told stays true (P6). */
TEST(once__a_zombie_cannot_settle_what_was_told_to_be_unknown)
{
    open_store();
    struct pk_once *zombie = call("/a", "x", false);
    struct picket *mine = store;
    reopen_as_another(mine);
    CHECK(found("/a", "x") == PK_ONCE_UNKNOWN);
    gather(zombie, "too late");
    pk_once_settle(zombie, PK_ONCE_KEEP, 200);
    pk_once_end(zombie);
    CHECK(!pk_once_recorded(zombie));
    pk_once_free(zombie);
    CHECK(found("/a", "x") == PK_ONCE_UNKNOWN);
    picket_close(mine);
    close_store();
}

/* A gate that was paused past its lease writes with a token that is too low (P6). */
TEST(once__a_zombie_cannot_overwrite)
{
    open_store();
    struct pk_once *zombie = call("/a", "x", false);
    CHECK(pk_once_found(zombie) == PK_ONCE_FRESH);
    struct picket *mine = store;
    reopen_as_another(mine);
    struct pk_once *next = call("/a", "x", true);
    CHECK(pk_once_found(next) == PK_ONCE_FRESH);
    gather(next, "of the successor");
    end(next, PK_ONCE_KEEP);
    gather(zombie, "of the zombie");
    pk_once_settle(zombie, PK_ONCE_KEEP, 200);
    pk_once_end(zombie);
    CHECK(!pk_once_recorded(zombie));
    pk_once_free(zombie);
    next = call("/a", "x", false);
    CHECK(pk_bytes_equal(pk_once_record(next)->answer, pk_text("of the successor")));
    pk_once_free(next);
    picket_close(mine);
    close_store();
}

TEST(once__gathers_no_more_than_fits)
{
    static char large[PK_ONCE_ANSWER_MAX];
    open_store();
    struct pk_once *o = call("/a", "x", false);
    gather(o, "some");
    CHECK(!pk_once_gather(o, pk_bytes(large, sizeof large)));
    CHECK(pk_bytes_equal(pk_once_gathered(o), pk_text("some")));
    end(o, PK_ONCE_NOT_KEPT);
    close_store();
}
