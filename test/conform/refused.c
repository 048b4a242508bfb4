/* SPDX-License-Identifier: MIT */
/*
 * What a store does not declare it must refuse, with PICKET_UNSUPPORTED and a sentence
 * that names the driver; and the refusal must leave everything as it was. Where it is
 * declared there is nothing to refuse, and other cases want to see it.
 */
#include "conform.h"

static void declared(int flag)
{
    if (flag) {
        SKIP("declared");
    }
}

/* A store that takes nothing for what it refused: the lock can be had, as if nobody had
 * asked. */
static void check_untouched(struct picket *p, const char *name)
{
    struct picket_lock *l;
    CHECK_U64(holders_of(p, name) + waiters_of(p, name), 0);
    CHECK_OK(picket_try(p, name, NULL, &l));
    CHECK_OK(picket_release(l));
    picket_lock_close(l);
}

static void check_acquire_refused(const struct picket_acquire_options *o)
{
    struct picket *p = open_client(LONG_TTL_MS);
    const char *name = name_of("db");
    struct picket_want want = {.name = name, .mode = o->mode, .slots = o->slots};
    struct picket_lock *l;
    CHECK_REFUSED(picket_try(p, name, o, &l));
    CHECK_REFUSED(picket_acquire(p, name, o, &l));
    CHECK_REFUSED(picket_enqueue(p, &want, 1, o, &l));
    check_untouched(p, name);
    picket_close(p);
}

TEST(refused__shared_locks)
{
    begin();
    declared(guarantees()->shared);
    check_acquire_refused(
        &(struct picket_acquire_options){.mode = PICKET_SHARED, .wait_ms = PATIENCE_MS});
}

TEST(refused__semaphores)
{
    begin();
    declared(guarantees()->semaphore);
    check_acquire_refused(&(struct picket_acquire_options){
        .mode = PICKET_SLOT, .slots = 3, .wait_ms = PATIENCE_MS});
}

TEST(refused__lock_delay)
{
    begin();
    declared(guarantees()->lock_delay);
    check_acquire_refused(
        &(struct picket_acquire_options){.lock_delay_ms = 1000, .wait_ms = PATIENCE_MS});
}

TEST(refused__sets)
{
    begin();
    declared(guarantees()->sets);
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_want wants[] = {{.name = name_of("x")}, {.name = name_of("y")}};
    struct picket_lock *l;
    CHECK_REFUSED(picket_acquire_set(p, wants, 2, NULL, &l));
    CHECK_REFUSED(picket_enqueue(p, wants, 2, NULL, &l));
    check_untouched(p, wants[0].name);
    check_untouched(p, wants[1].name);
    picket_close(p);
}

TEST(refused__elections)
{
    begin();
    declared(guarantees()->election);
    check_acquire_refused(&(struct picket_acquire_options){
        .value = "node-1", .value_len = 6, .wait_ms = PATIENCE_MS});
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(p, name_of("leader"));
    CHECK_REFUSED(picket_set_value(l, "node-1", 6));
    CHECK_OK(picket_checkpoint(l, 1));
    picket_close(p);
}

TEST(refused__fences)
{
    begin();
    declared(guarantees()->fence);
    struct picket *p = open_client(LONG_TTL_MS);
    const char *r = name_of("file");
    struct picket_fence_state state;
    uint64_t fence = 99;
    char *value = NULL;
    size_t len;
    CHECK_REFUSED(picket_fence_claim(p, r, 5, &fence));
    CHECK_REFUSED(picket_fence_check(p, r, 5, &fence));
    CHECK_REFUSED(picket_fence_set(p, r, 5, "one", 3, &fence));
    CHECK_REFUSED(picket_fence_keep(p, r, 5, "one", 3, 60000));
    CHECK_REFUSED(picket_fence_get(p, r, 0, &value, &len, &fence));
    CHECK_REFUSED(picket_fence_mode(p, r, 1));
    CHECK_REFUSED(picket_fence_show(p, r, &state));
    CHECK_U64(fence, 99);
    picket_close(p);
}

TEST(refused__watching)
{
    begin();
    declared(guarantees()->watch);
    struct picket *p = open_client(LONG_TTL_MS);
    struct picket_watch *w;
    CHECK_REFUSED(picket_watch_open(p, "", &w));
    picket_close(p);
}

/* A shorter one is the client's own business: it may believe less than it was given. */
TEST(refused__a_longer_ttl)
{
    begin();
    declared(guarantees()->extend);
    struct picket *p = open_client(LONG_TTL_MS / 2);
    struct picket_lock *l = take(p, name_of("db"));
    CHECK_REFUSED(picket_extend(p, LONG_TTL_MS));
    CHECK_OK(picket_checkpoint(l, 1));
    CHECK(picket_left_ms(l) <= LONG_TTL_MS / 2);
    CHECK_OK(picket_extend(p, 0));
    CHECK_OK(picket_checkpoint(l, 1));
    enum picket_status s = picket_extend(p, LONG_TTL_MS / 4);
    if (s != PICKET_OK) {
        CHECK_REFUSED(s);
    } else {
        CHECK(picket_left_ms(l) <= LONG_TTL_MS / 4);
    }
    CHECK_OK(picket_checkpoint(l, 1));
    picket_close(p);
}

TEST(refused__leases_by_their_id)
{
    begin();
    declared(guarantees()->by_id);
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name);
    struct picket_view *v;
    uint64_t lease = picket_lease(a), left;
    uint64_t token = picket_token(l) != 0 ? picket_token(l) : 1;
    CHECK(lease != 0);
    CHECK_REFUSED(picket_lease_show(b, lease, &v));
    CHECK_REFUSED(picket_lease_renew(b, lease, 0, &left));
    CHECK_REFUSED(picket_lease_release(b, lease, name, token));
    CHECK_REFUSED(picket_lease_close(b, lease));
    CHECK_OK(picket_extend(a, 0));
    CHECK_OK(picket_checkpoint(l, 1));
    CHECK_U64(holders_of(b, name), 1);
    picket_close(a);
    picket_close(b);
}

/* Without tokens nobody can say which hold is meant, and none may be pretended. */
TEST(refused__tokens)
{
    begin();
    declared(guarantees()->tokens);
    const char *name = name_of("db");
    struct picket *a = open_client(LONG_TTL_MS);
    struct picket *b = open_client(LONG_TTL_MS);
    struct picket_lock *l = take(a, name), *m;
    struct picket_view *v;
    CHECK_U64(picket_token(l), 0);
    CHECK_OK(picket_show(b, name, &v));
    CHECK_U64(v->n_rows, 1);
    CHECK_U64(v->rows[0].token, 0);
    CHECK_U64(v->rows[0].place, 0);
    picket_view_free(v);
    CHECK_IS(picket_try(b, name, NULL, &m), PICKET_BUSY);
    CHECK(strstr(picket_last_error(), "token") == NULL);
    CHECK_REFUSED(picket_break(b, name, 1, "it hangs"));
    CHECK_REFUSED(picket_break(b, name, 0, "it hangs"));
    CHECK_OK(picket_extend(a, 0));
    CHECK_OK(picket_checkpoint(l, 1));
    picket_close(a);
    picket_close(b);
}
