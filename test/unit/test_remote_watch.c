/* SPDX-License-Identifier: MIT */
/* Watches over the network driver: gaps, silence, and readers that are slow. */
#include "client/driver.h"
#include "drivers/remote.h"
#include "fakenode.h"

static void expect(struct picket_watch *w, const char *what, const char *name)
{
    struct picket_event e;
    CHECK(picket_watch_next(w, PATIENCE_MS, &e) == PICKET_OK);
    CHECK_STR(e.what, what);
    CHECK_STR(e.name, name);
}

TEST(watch__goes_on_after_a_gap)
{
    world_begin(2);
    struct picket *p = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *q = open_client(node_url(&world.nodes[0]), LONG_TTL_MS);
    struct picket_watch *w;
    struct picket_event e;
    CHECK(picket_watch_open(q, "w/", &w) == PICKET_OK);
    struct picket_lock *l = take(p, "w/1");
    CHECK(readable(picket_watch_fd(w), PATIENCE_MS));
    expect(w, "granted", "w/1");
    CHECK(picket_watch_next(w, 0, &e) == PICKET_TIMEOUT);
    CHECK(!readable(picket_watch_fd(w), 0));
    node_down(&world.nodes[0]);
    CHECK(picket_release(l) == PICKET_OK);
    CHECK(picket_watch_next(w, 100, &e) == PICKET_TIMEOUT);
    (void)node_up(0);
    expect(w, "gap", "");
    l = take(p, "w/2");
    expect(w, "granted", "w/2");
    CHECK(picket_release(l) == PICKET_OK);
    expect(w, "ended", "w/2");
    picket_watch_close(w);
    picket_close(q);
    picket_close(p);
}

/* A watch of node 0 that nobody reads, and the client that it belongs to. */
static struct pk_store *watch_unread(struct pk_store **client)
{
    struct pk_store *w;
    const char *url = node_url(&world.nodes[0]);
    CHECK(pk_remote_driver.open(strchr(url, ':') + 1, client) == PICKET_OK);
    CHECK(pk_remote_driver.watch_open(*client, &w) == PICKET_OK);
    return w;
}

/* Waits until the watch has missed something, or has that many events in store. */
static bool misses(struct pk_store *w, uint32_t events)
{
    uint64_t limit = pk_clock_ms() + PATIENCE_MS;
    bool missed = false, full = false;
    while (!missed && !full && pk_clock_ms() < limit) {
        (void)usleep(1000);
        pthread_mutex_lock(&w->mutex);
        missed = w->missed;
        full = w->inbox.count >= events;
        pthread_mutex_unlock(&w->mutex);
    }
    return missed;
}

/* What happened before a gap must not be told after it. */
TEST(watch__a_gap_takes_what_was_not_read)
{
    world_begin(2);
    struct pk_store *s, *w = watch_unread(&s);
    struct picket *p = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct pk_effects out = {0};
    bool gap = false;
    (void)take(p, "db");
    CHECK(readable(pk_remote_driver.watch_fd(w), PATIENCE_MS));
    node_down(&world.nodes[0]);
    (void)node_up(0);
    CHECK(misses(w, UINT32_MAX));
    CHECK(pk_remote_driver.watch_next(w, 0, &out, &gap) == PICKET_OK);
    CHECK(gap);
    CHECK_U64(out.count, 0);
    picket_close(p);
    pk_remote_driver.close(w);
    pk_remote_driver.close(s);
}

/* P10: who does not read its events is told of a gap; memory has an end. */
TEST(watch__events_that_nobody_reads_become_a_gap)
{
    enum { EVENTS = 70000, AT_ONCE = 1000 };
    world_begin(1);
    struct pk_store *s, *w = watch_unread(&s);
    struct pk_effect e = {.kind = PK_EV_GRANTED, .parts = 1, .name = pk_text("db")};
    struct pk_effects out = {0};
    bool gap = false;
    pthread_mutex_lock(&world.mutex);
    struct conn *c = &world.nodes[0].conns[0];
    while (!c->watching) {
        c++;
    }
    for (uint64_t i = 1; i <= EVENTS; i++) {
        e.token = e.lease = e.request = i;
        pk_proto_write_event(&c->out, &e);
        if (i % AT_ONCE == 0) {
            conn_flush(c);
        }
    }
    pthread_mutex_unlock(&world.mutex);
    CHECK(misses(w, EVENTS));
    CHECK(pk_remote_driver.watch_next(w, 0, &out, &gap) == PICKET_OK);
    CHECK(gap);
    CHECK(out.count < EVENTS);
    pk_effects_free(&out);
    pk_remote_driver.close(w);
    pk_remote_driver.close(s);
}

/* Nothing is asked over a watch's connection, so it must find out by itself that nobody
 * is there any more. */
TEST(watch__notices_silence)
{
    world_begin(2);
    struct picket *p = open_client(world_url(2), LONG_TTL_MS);
    struct picket_watch *w;
    CHECK(picket_watch_open(p, "", &w) == PICKET_OK);
    node_mute(&world.nodes[0], true);
    expect(w, "gap", "");
    CHECK_U64(node_accepted(&world.nodes[1]), 1);
    picket_watch_close(w);
    picket_close(p);
}

TEST(watch__needs_a_server)
{
    world_begin(1);
    node_down(&world.nodes[0]);
    struct picket *p = open_client(world_url(1), 0);
    struct picket_watch *w;
    CHECK(picket_watch_open(p, "", &w) == PICKET_UNREACHABLE);
    CHECK(strstr(picket_last_error(), "refused") != NULL);
    picket_close(p);
}
