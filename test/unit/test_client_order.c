/* SPDX-License-Identifier: MIT */
/* What happens between the steps of a call: a grant, a loss, a call of another thread. */
#include <picket.h>
#include <unistd.h>

#include "client/client.h"
#include "hooked.h"
#include "interposed.h"
#include "statedir.h"
#include "tap.h"

enum { STEPS_MAX = 64, TTL_MS = 600000 };

static char url[4300];

static struct picket *open_client(void)
{
    struct picket *p = NULL;
    struct picket_options o = {.ttl_ms = TTL_MS};
    CHECK(picket_open(url, &o, &p) == PICKET_OK);
    return p;
}

static void fresh(void)
{
    dir_fresh();
    (void)snprintf(url, sizeof url, "local:%s", state);
}

static uint32_t holders_of(struct picket *p, const char *name)
{
    struct picket_view *v;
    CHECK(picket_show(p, name, &v) == PICKET_OK);
    uint32_t n = v->holders;
    picket_view_free(v);
    return n;
}

/* `a` waits for what `b` holds. */
struct queue {
    struct picket *a, *b;
    struct picket_lock *waiting, *held;
};

static struct queue new_queue(void)
{
    fresh();
    struct queue q = {.a = open_client(), .b = open_client()};
    struct picket_want want = {.name = "db"};
    CHECK(picket_acquire(q.b, "db", NULL, &q.held) == PICKET_OK);
    CHECK(picket_enqueue(q.a, &want, 1, NULL, &q.waiting) == PICKET_OK);
    return q;
}

static void end_queue(struct queue *q)
{
    picket_close(q->a);
    picket_close(q->b);
}

/* A call makes the client take in what the store has to tell; not while this thread is
 * at that anyway. */
static void hear(struct picket *p)
{
    if (pthread_mutex_trylock(&p->absorbing) == 0) {
        (void)pthread_mutex_unlock(&p->absorbing);
        (void)holders_of(p, "db");
    }
}

/* `b` lets go, and `a` hears of what that means for it. */
static void grant(void *ctx)
{
    struct queue *q = ctx;
    CHECK(picket_release(q->held) == PICKET_OK);
    hear(q->a);
}

static enum picket_status close_it(struct picket_lock *l)
{
    picket_lock_close(l);
    return PICKET_OK;
}

/* Gives the lock back by that call, with the grant before each of its steps in turn: the
 * lock is free after it, whenever the grant came. */
static void check_grant_between(enum picket_status (*give_back)(struct picket_lock *))
{
    bool happened = true;
    for (unsigned step = 0; happened; step++) {
        CHECK(step < STEPS_MAX);
        struct queue q = new_queue();
        interpose(&q.a->mutex, step, grant, &q);
        enum picket_status s = give_back(q.waiting);
        happened = interpose_end();
        CHECK(s == PICKET_OK);
        CHECK_U64(holders_of(q.b, "db"), happened ? 0 : 1);
        CHECK(happened || step > 0);
        end_queue(&q);
    }
}

TEST(order__grant_while_it_is_released)
{
    check_grant_between(picket_release);
}

TEST(order__grant_while_it_is_cancelled)
{
    check_grant_between(picket_cancel);
}

TEST(order__grant_while_it_is_closed)
{
    check_grant_between(close_it);
}

/* The token is read with the mutex, as whoever grants writes it. */
TEST(order__grant_while_the_token_is_read)
{
    struct queue q = new_queue();
    interpose(&q.a->mutex, 0, grant, &q);
    uint64_t token = picket_token(q.waiting);
    CHECK(interpose_end());
    CHECK(token > picket_token(q.held));
    CHECK_U64(token, picket_token(q.waiting));
    end_queue(&q);
}

static void lose(void *ctx)
{
    picket_detach(ctx);
}

/* A lock that is lost between two looks at it is told as lost, not as at risk. */
TEST(order__loss_while_it_is_checked)
{
    bool happened = true;
    for (unsigned step = 0; happened; step++) {
        fresh();
        CHECK(step < STEPS_MAX);
        struct picket *p = open_client();
        struct picket_lock *l;
        CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
        interpose(&p->mutex, step, lose, p);
        enum picket_status s = picket_checkpoint(l, 0);
        happened = interpose_end();
        CHECK(s == (happened ? PICKET_LOST : PICKET_OK));
        picket_close(p);
    }
}

/* ---- a lease that is lost and replaced ---- */

/* `a` held "db" on a lease that is over; commands about it belong to that lease alone. */
static struct {
    struct picket *a, *b;
    struct picket_lock *held;
    uint64_t lease;
    _Atomic bool strayed;
} tenant;

static enum picket_status watch_leases(struct pk_store *s, struct pk_command *c,
                                       uint64_t until_ms, struct pk_effects *out)
{
    bool about_it = c->verb == PK_LOCK_RELEASE || c->verb == PK_LOCK_CANCEL ||
                    c->verb == PK_LOCK_VALUE;
    tenant.strayed = tenant.strayed || (about_it && c->lease != tenant.lease);
    return pk_local_driver.call(s, c, until_ms, out);
}

static void replace_lease(void *unused)
{
    (void)unused;
    struct picket_lock *other;
    CHECK(picket_lease_close(tenant.b, tenant.lease) == PICKET_OK);
    hear(tenant.a);
    if (picket_lease(tenant.a) == 0) {
        CHECK(picket_acquire(tenant.a, "other", NULL, &other) == PICKET_OK);
        CHECK(picket_lease(tenant.a) != tenant.lease);
    }
}

static enum picket_status set_value(struct picket_lock *l)
{
    return picket_set_value(l, "v", 1);
}

static void check_lease_replaced(enum picket_status (*call)(struct picket_lock *))
{
    bool happened = true;
    for (unsigned step = 0; happened; step++) {
        fresh();
        CHECK(step < STEPS_MAX);
        tenant.a = open_client();
        hook_client(tenant.a);
        tenant.b = open_client();
        tenant.strayed = false;
        CHECK(picket_acquire(tenant.a, "db", NULL, &tenant.held) == PICKET_OK);
        tenant.lease = picket_lease(tenant.a);
        set_hook(watch_leases);
        interpose(&tenant.a->mutex, step, replace_lease, NULL);
        enum picket_status s = call(tenant.held);
        happened = interpose_end();
        CHECK(s == PICKET_OK || s == PICKET_LOST || s == PICKET_NOTHELD);
        CHECK(!tenant.strayed);
        set_hook(NULL);
        picket_close(tenant.a);
        picket_close(tenant.b);
    }
}

TEST(order__lease_replaced_while_it_is_released)
{
    check_lease_replaced(picket_release);
}

TEST(order__lease_replaced_while_its_value_is_set)
{
    check_lease_replaced(set_value);
}

/* ---- two threads ---- */

static struct {
    struct picket_lock *lock;
    pthread_t thread;
    _Atomic bool begun, ended;
    enum picket_status status;
} second;

static void *release_too(void *unused)
{
    (void)unused;
    second.status = picket_release(second.lock);
    second.ended = true;
    return NULL;
}

/* While the first release is on its way, another thread releases the same lock: it has
 * done so, or waits for the first, before that one goes on. */
static enum picket_status release_meanwhile(struct pk_store *s, struct pk_command *c,
                                            uint64_t until_ms, struct pk_effects *out)
{
    if (c->verb == PK_LOCK_RELEASE && !atomic_exchange(&second.begun, true)) {
        unsigned before = interposed_waits;
        CHECK(pthread_create(&second.thread, NULL, release_too, NULL) == 0);
        while (!second.ended && interposed_waits == before) {
            (void)usleep(1000);
        }
    }
    return pk_local_driver.call(s, c, until_ms, out);
}

/* Again is fine, from another thread and at the same time, too. */
TEST(order__released_by_two_at_once)
{
    fresh();
    struct picket *p = open_client();
    hook_client(p);
    CHECK(picket_acquire(p, "db", NULL, &second.lock) == PICKET_OK);
    set_hook(release_meanwhile);
    CHECK(picket_release(second.lock) == PICKET_OK);
    CHECK(second.begun && pthread_join(second.thread, NULL) == 0);
    CHECK(second.status == PICKET_OK);
    CHECK(picket_state(second.lock) == PICKET_RELEASED);
    set_hook(NULL);
    picket_close(p);
}

static void *take_and_close(void *arg)
{
    for (int i = 0; i < 100; i++) {
        struct picket_lock *l;
        if (picket_try(arg, "db", NULL, &l) == PICKET_OK) {
            picket_lock_close(l);
        }
    }
    return NULL;
}

/* Detaching is no closing: other threads may use the client meanwhile. */
TEST(order__detached_by_one_thread_and_used_by_another)
{
    fresh();
    struct picket *p = open_client();
    struct picket_lock *l;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_and_close, p) == 0);
    for (int i = 0; i < 100; i++) {
        picket_detach(p);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    /* A lease that is opened now is kept and told of. */
    CHECK(picket_acquire(p, "own", NULL, &l) == PICKET_OK);
    CHECK(picket_break(p, "own", picket_token(l), "to see") == PICKET_OK);
    CHECK(picket_state(l) == PICKET_GONE);
    picket_close(p);
}

/* ---- arguments ---- */

/* A TTL that no lease can have is refused, and ends nothing. */
TEST(order__extended_by_a_wrong_ttl)
{
    fresh();
    struct picket *p = open_client();
    struct picket_lock *l;
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    CHECK(picket_extend(p, 49) == PICKET_BADARG);
    CHECK(picket_extend(p, 24 * 3600 * 1000 + 1) == PICKET_BADARG);
    CHECK(strstr(picket_last_error(), "50 ms") != NULL);
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    picket_close(p);
}

static enum picket_status deny_renewals(struct pk_store *s, struct pk_command *c,
                                        uint64_t until_ms, struct pk_effects *out)
{
    const struct pk_effect denied = {.kind = PK_REPLY, .status = PK_DENIED};
    if (c->verb == PK_LEASE_RENEW) {
        pk_effects_add(out, &denied);
        return PICKET_OK;
    }
    return pk_local_driver.call(s, c, until_ms, out);
}

/* A refusal is no word about the lease: it lives for as long as it was told before. */
TEST(order__refused_renewal_ends_nothing)
{
    fresh();
    struct picket *p = open_client();
    hook_client(p);
    struct picket_lock *l;
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    set_hook(deny_renewals);
    CHECK(picket_extend(p, 0) == PICKET_DENIED);
    CHECK(picket_checkpoint(l, 1) == PICKET_OK);
    set_hook(NULL);
    picket_close(p);
}

static _Atomic unsigned too_old;

static enum picket_status call_all_too_old(struct pk_store *s, struct pk_command *c,
                                           uint64_t until_ms, struct pk_effects *out)
{
    const struct pk_effect refused = {.kind = PK_REPLY, .status = PK_TOOOLD};
    if (c->verb == PK_LOCK_ACQUIRE || c->verb == PK_LOCK_RELEASE) {
        pk_effects_add(out, &refused);
        too_old++;
        return PICKET_OK;
    }
    return pk_local_driver.call(s, c, until_ms, out);
}

/* Whoever was overtaken tries again, but not for ever. */
TEST(order__overtaken_again_and_again_ends)
{
    fresh();
    struct picket *p = open_client();
    struct picket_lock *l, *none;
    hook_client(p);
    CHECK(picket_acquire(p, "db", NULL, &l) == PICKET_OK);
    set_hook(call_all_too_old);
    too_old = 0;
    CHECK(picket_try(p, "more", NULL, &none) == PICKET_TOOOLD);
    CHECK(picket_release(l) == PICKET_TOOOLD);
    CHECK(too_old > 10 && too_old < 1000);
    set_hook(NULL);
    CHECK(picket_release(l) == PICKET_OK);
    picket_close(p);
}
