/* SPDX-License-Identifier: MIT */
/* Standing, on a real store: taken, refused to a second, lost, and taken again. */
#include "gate/stand.h"

#include "host/clock.h"
#include "server/log.h"
#include "statedir.h"
#include "tap.h"

static char url[4300];
static uv_loop_t loop;
static int gained, lost;

static void on_changed(void *ctx, bool stands)
{
    (void)ctx;
    gained += stands;
    lost += !stands;
}

static struct picket *open_client(void)
{
    struct picket *p;
    CHECK(picket_open(url, NULL, &p) == PICKET_OK);
    return p;
}

static struct pk_stand stand_of(struct picket *p)
{
    return (struct pk_stand){
        .loop = &loop, .store = p, .name = "gate", .changed = on_changed};
}

static void begin(void)
{
    dir_fresh();
    (void)snprintf(url, sizeof url, "local:%s", state);
    pk_log_open(PK_LOG_ERROR, false);
    CHECK(uv_loop_init(&loop) == 0);
    gained = lost = 0;
}

static void end(struct pk_stand *s, struct picket *p)
{
    pk_stand_close(s);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(!pk_stand_busy(s));
    picket_close(p);
    CHECK(uv_loop_close(&loop) == 0);
}

TEST(stand__is_for_one_at_a_time)
{
    begin();
    struct picket *p = open_client(), *q = open_client();
    struct pk_stand one = stand_of(p), two = stand_of(q);
    CHECK(pk_stand_start(&one, false) == PICKET_OK);
    CHECK(pk_stand_stands(&one) && pk_stand_held(&one));
    CHECK(pk_stand_start(&two, false) == PICKET_BUSY);
    CHECK(pk_stand_start(&two, true) == PICKET_OK); /* in line */
    CHECK(!pk_stand_stands(&two));
    pk_stand_close(&one);
    while (gained < 2) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK(pk_stand_stands(&two));
    picket_close(p);
    end(&two, q);
}

/* The clock and the client's own thread know of a loss before the loop does (P5). */
TEST(stand__is_lost_before_anybody_tells_and_taken_again)
{
    begin();
    struct picket *p = open_client(), *chief = open_client();
    struct pk_stand s = stand_of(p);
    CHECK(pk_stand_start(&s, false) == PICKET_OK);
    CHECK(picket_break(chief, "gate", picket_token(s.lock), "test") == PICKET_OK);
    uint64_t until = pk_clock_ms() + 60000; /* only a gate that never hears reaches it */
    while (pk_stand_stands(&s)) {
        /* the loop does not run: nothing but the client's thread can say it */
        CHECK(pk_clock_ms() < until);
    }
    CHECK(pk_stand_held(&s));
    CHECK_U64(lost, 0);
    while (gained < 2) {
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK_U64(lost, 1);
    CHECK(pk_stand_stands(&s));
    picket_close(chief);
    end(&s, p);
}

TEST(stand__shared_needs_no_lock)
{
    begin();
    struct picket *p = open_client();
    struct pk_stand s = stand_of(p);
    s.shared = true;
    CHECK(pk_stand_start(&s, false) == PICKET_OK);
    CHECK(pk_stand_stands(&s));
    end(&s, p);
}
