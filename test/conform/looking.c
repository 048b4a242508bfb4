/* SPDX-License-Identifier: MIT */
/* What a store says of itself; lists, elections, the watch stream, fence registers. */
#include "conform.h"

static bool is_flag(int flag)
{
    return flag == 0 || flag == 1;
}

/* Words that others decide by are of those that are known; the rest is for people. */
TEST(guarantees__are_declared)
{
    begin();
    const struct picket_guarantees *g = guarantees();
    const char *const texts[] = {g->driver, g->scope, g->token, g->clock, g->failover};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        CHECK(texts[i] != NULL && texts[i][0] != '\0' && strchr(texts[i], '\n') == NULL);
    }
    CHECK(strcmp(g->fairness, "fifo") == 0 || strcmp(g->fairness, "none") == 0);
    CHECK(strncmp(g->waiting, "push", 4) == 0 || strncmp(g->waiting, "poll", 4) == 0);
    CHECK(is_flag(g->shared) && is_flag(g->semaphore) && is_flag(g->sets));
    CHECK(is_flag(g->election) && is_flag(g->fence) && is_flag(g->watch));
    CHECK(is_flag(g->lock_delay) && is_flag(g->extend) && is_flag(g->by_id));
    CHECK(is_flag(g->reasons) && g->tokens >= 0 && g->tokens <= 2);
    /* A lock that nobody can fence is not one to rely on. */
    bool correct = strcmp(g->promise, "correctness") == 0;
    CHECK(correct ? g->tokens != 0 : strcmp(g->promise, "efficiency") == 0);
}

TEST(guarantees__can_be_required)
{
    begin();
    struct picket *p = NULL;
    bool correct = strcmp(guarantees()->promise, "correctness") == 0;
    CHECK_OK(open_as(&(struct picket_options){.require = "efficiency"}, &p));
    picket_close(p);
    enum picket_status s =
        open_as(&(struct picket_options){.require = "correctness"}, &p);
    if (correct) {
        CHECK_OK(s);
        picket_close(p);
    } else {
        CHECK_REFUSED(s);
        CHECK(strstr(picket_last_error(), "efficiency") != NULL);
    }
    CHECK_IS(open_as(&(struct picket_options){.require = "luck"}, &p), PICKET_BADARG);
}

TEST(list__comes_in_pages)
{
    begin();
    enum { LOCKS = 25, PAGE = 7 };
    struct picket *p = open_client(LONG_TTL_MS);
    char prefix[192], name[256], after[256] = "";
    (void)snprintf(prefix, sizeof prefix, "%s/", name_of("list"));
    for (int i = LOCKS - 1; i >= 0; i--) { /* byte order is not the order of taking */
        (void)snprintf(name, sizeof name, "%s%02d", prefix, i);
        (void)take(p, name);
    }
    int seen = 0;
    for (;;) {
        struct picket_view *v;
        CHECK_OK(picket_list(p, prefix, after[0] == '\0' ? NULL : after, PAGE, &v));
        size_t rows = v->n_rows;
        CHECK(rows <= PAGE);
        for (size_t i = 0; i < rows; i++) {
            (void)snprintf(name, sizeof name, "%s%02d", prefix, seen++);
            CHECK_STR(v->rows[i].name, name);
            CHECK_U64(v->rows[i].holders, 1);
            CHECK_U64(v->rows[i].waiters, 0);
            CHECK_U64(v->rows[i].lease, picket_lease(p));
        }
        picket_view_free(v);
        if (rows < PAGE) {
            break;
        }
        (void)snprintf(after, sizeof after, "%s", name);
    }
    CHECK_U64(seen, LOCKS);
    struct picket_view *v;
    CHECK_OK(picket_list(p, prefix, NULL, 1000, &v));
    CHECK_U64(v->n_rows, LOCKS);
    picket_view_free(v);
    CHECK_OK(picket_list(p, name_of("none"), NULL, 10, &v));
    CHECK_U64(v->n_rows, 0);
    picket_view_free(v);
    picket_close(p);
}

/* ---- watching ---- */

struct expected {
    const char *what, *name, *why;
};

static struct picket_event expect(struct picket_watch *w, struct expected x)
{
    struct picket_event e = {.what = ""};
    CHECK_OK(picket_watch_next(w, PATIENCE_MS, &e));
    CHECK_STR(e.what, x.what);
    CHECK_STR(e.name, x.name);
    if (guarantees()->reasons) {
        CHECK_STR(e.why, x.why);
    }
    return e;
}

TEST(watch__tells_everything_in_order)
{
    begin();
    needs(guarantees()->watch && guarantees()->tokens, "watching");
    char prefix[192], a[256], b[256];
    (void)snprintf(prefix, sizeof prefix, "%s/", name_of("w"));
    (void)snprintf(a, sizeof a, "%sa", prefix);
    (void)snprintf(b, sizeof b, "%sb", prefix);
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket *q = open_client(LONG_TTL_MS);
    struct picket_watch *w;
    struct picket_event e;
    struct picket_lock *before = take(p, name_of("before"));
    CHECK_OK(picket_watch_open(q, prefix, &w));
    CHECK(!readable(picket_watch_fd(w), 0) ||
          picket_watch_next(w, 0, &e) == PICKET_TIMEOUT);
    struct picket_lock *l = take(p, a);
    CHECK(readable(picket_watch_fd(w), PATIENCE_MS));
    CHECK_OK(picket_release(before)); /* has another prefix */
    struct picket_lock *m = enqueue(q, a, NULL);
    struct picket_lock *n = take(p, b);
    struct picket_lock *o = enqueue(p, a, NULL);
    CHECK_OK(picket_cancel(o));
    CHECK_OK(picket_release(l));
    await_grant(m);
    CHECK_OK(picket_break(p, a, picket_token(m), "enough"));
    CHECK_OK(picket_release(n));
    e = expect(w, (struct expected){"granted", a, ""});
    CHECK_U64(e.token, picket_token(l));
    CHECK_U64(e.lease, picket_lease(p));
    uint64_t time = e.time_ms;
    e = expect(w, (struct expected){"queued", a, ""});
    CHECK_U64(e.lease, picket_lease(q));
    CHECK_U64(e.place, 1);
    (void)expect(w, (struct expected){"granted", b, ""});
    (void)expect(w, (struct expected){"queued", a, ""});
    (void)expect(w, (struct expected){"left", a, "withdrawn"});
    (void)expect(w, (struct expected){"ended", a, "released"});
    e = expect(w, (struct expected){"granted", a, ""});
    CHECK_U64(e.token, picket_token(m));
    e = expect(w, (struct expected){"ended", a, "broken"});
    if (guarantees()->reasons) {
        CHECK_STR(e.reason, "enough");
        CHECK(strchr(e.by, '@') != NULL);
    }
    e = expect(w, (struct expected){"ended", b, "released"});
    CHECK(e.time_ms >= time);
    CHECK_IS(picket_watch_next(w, 0, &e), PICKET_TIMEOUT);
    picket_watch_close(w);
    picket_close(p);
    picket_close(q);
}

/* A stream is not shared: each gets all of it, and one that isn't read holds up nobody.
 */
TEST(watch__is_everybodys_own)
{
    begin();
    needs(guarantees()->watch, "watching");
    enum { TIMES = 50 };
    const char *name = name_of("w");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_watch *w[2];
    for (int i = 0; i < 2; i++) {
        CHECK_OK(picket_watch_open(p, name, &w[i]));
    }
    for (int i = 0; i < TIMES; i++) {
        picket_lock_close(take(p, name));
    }
    for (int i = 0; i < 2; i++) {
        uint64_t last = 0;
        for (int k = 0; k < TIMES; k++) {
            struct picket_event e = expect(w[i], (struct expected){"granted", name, ""});
            CHECK_LATER(e.token, last);
            last = e.token;
            (void)expect(w[i], (struct expected){"ended", name, "released"});
        }
        picket_watch_close(w[i]);
    }
    picket_close(p);
}

static void expect_leader(struct picket *observer, const char *name, const char *value,
                          size_t len)
{
    struct picket_view *v;
    CHECK_OK(picket_show(observer, name, &v));
    CHECK_U64(v->n_rows, 1);
    CHECK_U64(v->rows[0].value_len, len);
    CHECK(memcmp(v->rows[0].value, value, len) == 0);
    picket_view_free(v);
}

/* An observer that looks knows who leads, and what the leader says now. */
TEST(election__value_is_seen)
{
    begin();
    needs(guarantees()->election, "elections");
    const char *name = name_of("leader");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket *observer = open_client(LONG_TTL_MS);
    struct picket_acquire_options first = {.value = "node-1", .value_len = 6};
    struct picket_acquire_options second = {
        .value = "node\0two", .value_len = 8, .wait_ms = PICKET_FOREVER};
    struct picket_lock *l, *m;
    CHECK_OK(picket_acquire(a, name, &first, &l));
    expect_leader(observer, name, "node-1", 6);
    uint64_t token = picket_token(l);
    CHECK_OK(picket_set_value(l, "node-1b", 7));
    expect_leader(observer, name, "node-1b", 7);
    CHECK_U64(picket_token(l), token);
    CHECK_OK(picket_extend(a, 0));
    expect_leader(observer, name, "node-1b", 7);
    m = enqueue(b, name, &second);
    CHECK_OK(picket_release(l));
    await_grant(m);
    CHECK_LATER(picket_token(m), token);
    expect_leader(observer, name, "node\0two", 8);
    CHECK_IS(picket_set_value(l, "late", 4), PICKET_NOTHELD);
    expect_leader(observer, name, "node\0two", 8);
    CHECK_OK(picket_set_value(m, "", 0));
    expect_leader(observer, name, "", 0);
    picket_close(b);
    CHECK_U64(holders_of(observer, name), 0);
    picket_close(observer);
    picket_close(a);
}

/* One that watches is told of each change, and of the end. */
TEST(election__value_is_seen_and_watched)
{
    begin();
    needs(guarantees()->election && guarantees()->watch, "elections to watch");
    const char *name = name_of("leader");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket *observer = open_client(LONG_TTL_MS);
    struct picket_watch *w;
    struct picket_view *v;
    CHECK_OK(picket_watch_open(observer, name, &w));
    struct picket_acquire_options first = {.value = "node-1", .value_len = 6};
    struct picket_acquire_options second = {
        .value = "node\0two", .value_len = 8, .wait_ms = PICKET_FOREVER};
    struct picket_lock *l, *m;
    CHECK_OK(picket_acquire(a, name, &first, &l));
    struct picket_event e = expect(w, (struct expected){"granted", name, ""});
    CHECK_STR(e.value, "node-1");
    CHECK_OK(picket_show(observer, name, &v));
    CHECK_U64(v->n_rows, 1);
    CHECK_STR(v->rows[0].value, "node-1");
    picket_view_free(v);
    CHECK_OK(picket_set_value(l, "node-1b", 7));
    e = expect(w, (struct expected){"value", name, ""});
    CHECK_STR(e.value, "node-1b");
    m = enqueue(b, name, &second);
    (void)expect(w, (struct expected){"queued", name, ""});
    CHECK_OK(picket_release(l));
    await_grant(m);
    (void)expect(w, (struct expected){"ended", name, "released"});
    e = expect(w, (struct expected){"granted", name, ""});
    CHECK_U64(e.value_len, 8);
    CHECK(memcmp(e.value, "node\0two", 8) == 0);
    CHECK_IS(picket_set_value(l, "late", 4), PICKET_NOTHELD);
    picket_watch_close(w);
    picket_close(observer);
    picket_close(a);
    picket_close(b);
}

/* ---- fences ---- */

/* P6, the whole table. */
TEST(fence__never_goes_back)
{
    begin();
    needs(guarantees()->fence, "fences");
    const char *r = name_of("file");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket *q = open_client(LONG_TTL_MS);
    uint64_t fence = 99;
    char *value = NULL;
    size_t len = 0;
    CHECK_IS(picket_fence_get(p, r, 0, &value, &len, &fence), PICKET_NOTFOUND);
    CHECK_IS(picket_fence_check(p, r, 5, &fence), PICKET_UNCLAIMED);
    CHECK_U64(fence, 0);
    CHECK_OK(picket_fence_set(p, r, 5, "one", 3, &fence));
    CHECK_U64(fence, 5);
    CHECK_OK(picket_fence_check(p, r, 5, &fence));
    CHECK_IS(picket_fence_check(p, r, 6, &fence), PICKET_UNCLAIMED);
    CHECK_U64(fence, 5);
    CHECK_OK(picket_fence_claim(q, r, 6, &fence));
    CHECK_U64(fence, 6);
    CHECK_IS(picket_fence_set(p, r, 5, "zombie", 6, &fence), PICKET_STALE);
    CHECK_U64(fence, 6);
    CHECK_IS(picket_fence_claim(p, r, 5, &fence), PICKET_STALE);
    CHECK_IS(picket_fence_check(p, r, 5, &fence), PICKET_STALE);
    CHECK_IS(picket_fence_get(p, r, 5, &value, &len, &fence), PICKET_STALE);
    /* What the older one wrote is what the newer one finds. */
    CHECK_OK(picket_fence_get(q, r, 6, &value, &len, &fence));
    CHECK_U64(len, 3);
    CHECK_STR(value, "one");
    free(value);
    CHECK_OK(picket_fence_claim(q, r, 6, &fence)); /* again is fine */
    /* A read with a token raises the fence for everybody. */
    CHECK_OK(picket_fence_get(q, r, 7, &value, &len, &fence));
    CHECK_U64(fence, 7);
    free(value);
    CHECK_IS(picket_fence_set(p, r, 6, "zombie", 6, &fence), PICKET_STALE);
    CHECK_U64(fence, 7);
    CHECK_OK(picket_fence_get(p, r, 0, &value, &len, &fence));
    CHECK_U64(fence, 7);
    free(value);
    picket_close(p);
    picket_close(q);
}

/* Writes of one holder are in its own order, also from one process to the next; values
 * are bytes. */
TEST(fence__keeps_the_last_write)
{
    begin();
    needs(guarantees()->fence, "fences");
    const char *r = name_of("file");
    char text[32];
    char *value;
    size_t len;
    for (int i = 0; i < 5; i++) {
        struct picket *p = open_client(LONG_TTL_MS);
        for (int k = 0; k < 10; k++) {
            int n = snprintf(text, sizeof text, "%d/%d", i, k);
            CHECK_OK(picket_fence_set(p, r, 3, text, (size_t)n, NULL));
        }
        CHECK_OK(picket_fence_get(p, r, 3, &value, &len, NULL));
        CHECK_STR(value, text);
        free(value);
        picket_close(p);
    }
    static char large[60000];
    for (size_t i = 0; i < sizeof large; i++) {
        large[i] = (char)(i * 7 + i / 251);
    }
    struct picket *p = open_client(LONG_TTL_MS);
    CHECK_OK(picket_fence_set(p, r, 4, large, sizeof large, NULL));
    CHECK_OK(picket_fence_get(p, r, 4, &value, &len, NULL));
    CHECK_U64(len, sizeof large);
    CHECK(memcmp(value, large, len) == 0);
    free(value);
    CHECK_OK(picket_fence_set(p, r, 4, "", 0, NULL));
    CHECK_OK(picket_fence_get(p, r, 0, &value, &len, NULL));
    CHECK_U64(len, 0);
    free(value);
    picket_close(p);
}

static void expect_state(struct picket *p, const char *r, struct picket_fence_state want)
{
    struct picket_fence_state got = {0};
    CHECK_OK(picket_fence_show(p, r, &got));
    CHECK_U64(got.token, want.token);
    CHECK_U64(got.shadow, want.shadow);
    CHECK_U64(got.shadowed, want.shadowed);
    CHECK_U64(got.left_ms, want.left_ms);
}

/* In shadow mode nobody is refused, everybody is told and counted, and the fence stays.
 */
TEST(fence__in_shadow_mode_counts_and_lets_through)
{
    begin();
    needs(guarantees()->fence, "fences");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket *q = open_client(LONG_TTL_MS);
    const char *r = name_of("disk");
    struct picket_fence_state state;
    uint64_t fence = 99;
    char *value = NULL;
    size_t len = 0;
    CHECK_IS(picket_fence_show(p, r, &state), PICKET_NOTFOUND);
    CHECK_OK(picket_fence_mode(p, r, 1));
    CHECK_OK(picket_fence_mode(q, r, 1)); /* again is fine */
    expect_state(q, r, (struct picket_fence_state){.shadow = 1});
    CHECK_IS(picket_fence_get(p, r, 0, &value, &len, &fence), PICKET_NOTFOUND);
    CHECK_OK(picket_fence_check(p, r, 5, &fence)); /* would be unclaimed */
    CHECK_U64(fence, 0);
    CHECK_OK(picket_fence_set(q, r, 6, "new", 3, &fence));
    CHECK_U64(fence, 6);
    CHECK_OK(picket_fence_claim(p, r, 5, &fence)); /* the rest would be stale */
    CHECK_U64(fence, 6);
    CHECK_OK(picket_fence_set(p, r, 5, "zombie", 6, &fence));
    CHECK_U64(fence, 6);
    CHECK_OK(picket_fence_get(p, r, 5, &value, &len, &fence));
    CHECK_STR(value, "zombie");
    CHECK_U64(fence, 6);
    free(value);
    CHECK_OK(picket_fence_check(p, r, 5, &fence));
    CHECK_U64(fence, 6);
    expect_state(q, r,
                 (struct picket_fence_state){.token = 6, .shadow = 1, .shadowed = 3});
    CHECK_OK(picket_fence_mode(q, r, 0));
    CHECK_IS(picket_fence_set(p, r, 5, "again", 5, &fence), PICKET_STALE);
    CHECK_IS(picket_fence_check(p, r, 7, &fence), PICKET_UNCLAIMED);
    expect_state(p, r, (struct picket_fence_state){.token = 6, .shadowed = 3});
    picket_close(p);
    picket_close(q);
}

enum { BRIEF_MS = 300 }; /* to keep a register, and wait for its end */

/* A register that is kept for a while only ends by itself, with its event, and is as if
 * it had never been; one that was written again without a time stays. */
TEST(fence__that_is_kept_for_a_while_ends)
{
    begin();
    needs(guarantees()->fence && guarantees()->watch, "fences to watch");
    const char *stays = name_of("stays");
    const char *r = name_of("note");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_fence_state state = {0};
    struct picket_watch *w;
    uint64_t fence = 99;
    CHECK_OK(picket_fence_keep(p, stays, 5, "one", 3, BRIEF_MS));
    CHECK_OK(picket_fence_set(p, stays, 5, "two", 3, NULL));
    CHECK_OK(picket_fence_keep(p, r, 5, "long", 4, LONG_TTL_MS));
    CHECK_OK(picket_fence_show(p, r, &state));
    CHECK(state.left_ms > LONG_TTL_MS / 2 && state.left_ms <= LONG_TTL_MS);
    CHECK_IS(picket_fence_keep(p, r, 4, "zombie", 6, 0), PICKET_STALE);
    CHECK_OK(picket_watch_open(p, r, &w));
    CHECK_OK(picket_fence_keep(p, r, 6, "short", 5, BRIEF_MS));
    (void)expect(w, (struct expected){"fence-raised", r, ""});
    (void)expect(w, (struct expected){"fence-set", r, ""});
    struct picket_event e = expect(w, (struct expected){"fence-ended", r, ""});
    CHECK_U64(e.token, 6);
    CHECK_IS(picket_fence_show(p, r, &state), PICKET_NOTFOUND);
    CHECK_OK(picket_fence_set(p, r, 1, "anew", 4, &fence));
    CHECK_U64(fence, 1);
    expect_state(p, stays, (struct picket_fence_state){.token = 5});
    picket_watch_close(w);
    picket_close(p);
}

/* Nobody need watch: whoever asks finds it gone. */
TEST(fence__that_has_ended_is_not_found)
{
    begin();
    needs(guarantees()->fence, "fences");
    const char *r = name_of("note");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket *q = open_client(LONG_TTL_MS);
    enum picket_status s = picket_fence_keep(p, r, 1, "v", 1, BRIEF_MS);
    CHECK(s == PICKET_OK);
    picket_close(p);
    while (s == PICKET_OK) { /* at the latest until the suite's own limit */
        char *value = NULL;
        size_t len;
        s = picket_fence_get(q, r, 0, &value, &len, NULL);
        free(value);
    }
    CHECK(s == PICKET_NOTFOUND);
    CHECK_IS(picket_fence_keep(q, r, 1, "v", 1, 49), PICKET_BADARG);
    CHECK_IS(picket_fence_keep(q, r, 1, "v", 1, UINT64_MAX), PICKET_BADARG);
    picket_close(q);
}

TEST(fence__mode_wants_a_name)
{
    begin();
    needs(guarantees()->fence, "fences");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_fence_state state;
    CHECK_IS(picket_fence_mode(p, "", 1), PICKET_BADARG);
    CHECK_IS(picket_fence_show(p, "a\nb", &state), PICKET_BADARG);
    picket_close(p);
}

TEST(fence__is_watched)
{
    begin();
    needs(guarantees()->fence && guarantees()->watch, "fences to watch");
    const char *r = name_of("file");
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_watch *w;
    CHECK_OK(picket_watch_open(p, r, &w));
    CHECK_OK(picket_fence_set(p, r, 8, "new", 3, NULL));
    struct picket_event e = expect(w, (struct expected){"fence-raised", r, ""});
    CHECK_U64(e.token, 8);
    e = expect(w, (struct expected){"fence-set", r, ""});
    CHECK_STR(e.value, "new");
    CHECK_OK(picket_fence_mode(p, r, 1));
    e = expect(w, (struct expected){"fence-mode", r, ""});
    CHECK_U64(e.shadow, 1);
    CHECK_OK(picket_fence_claim(p, r, 7, NULL));
    e = expect(w, (struct expected){"fence-shadowed", r, ""});
    CHECK_U64(e.token, 7);
    CHECK_OK(picket_fence_mode(p, r, 0));
    e = expect(w, (struct expected){"fence-mode", r, ""});
    CHECK_U64(e.shadow, 0);
    picket_watch_close(w);
    picket_close(p);
}
