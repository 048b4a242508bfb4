/* SPDX-License-Identifier: MIT */
/* The client over the network driver when pushes, connections or answers get lost: what
 * was missed is found with the next renewal. */
#include "fakenode.h"

/* A grant that was pushed while there was no connection. */
TEST(remote__a_missed_grant_is_found)
{
    world_begin(2);
    struct picket *holder = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *waiter = open_client(node_url(&world.nodes[0]), LONG_TTL_MS);
    struct picket_lock *l = take(holder, "db");
    struct picket_lock *m = enqueue(waiter, "db", NULL);
    struct picket_lock *other = take(waiter, "other");
    node_down(&world.nodes[0]);
    CHECK(picket_release(l) == PICKET_OK);
    (void)node_up(0);
    CHECK(readable(picket_ready_fd(m), PATIENCE_MS));
    CHECK(picket_wait(m, 0) == PICKET_OK);
    CHECK(picket_token(m) > picket_token(l));
    CHECK(picket_checkpoint(other, 1) == PICKET_OK);
    picket_close(waiter);
    picket_close(holder);
}

/* So is the end of a hold, and that of a wait. */
TEST(remote__a_missed_end_is_found)
{
    world_begin(2);
    struct picket *admin = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *p = open_client(node_url(&world.nodes[0]), LONG_TTL_MS);
    struct picket_lock *held = take(p, "held");
    struct picket_lock *kept = take(p, "kept");
    struct picket_lock *in_the_way = take(admin, "queue");
    struct picket_acquire_options o = {.wait_ms = 300};
    struct picket_lock *waiting = enqueue(p, "queue", &o);
    int loss = picket_loss_fd(held);
    node_down(&world.nodes[0]);
    CHECK(picket_break(admin, "held", picket_token(held), "gone") == PICKET_OK);
    (void)usleep(400000); /* past the limit of the wait, in cluster time */
    CHECK(picket_release(in_the_way) == PICKET_OK);
    (void)node_up(0);
    CHECK(readable(loss, PATIENCE_MS));
    CHECK(picket_state(held) == PICKET_GONE);
    CHECK_STR(picket_loss_reason(held), "broken: by an operator");
    CHECK(readable(picket_ready_fd(waiting), PATIENCE_MS));
    CHECK(picket_wait(waiting, 0) == PICKET_TIMEOUT);
    CHECK(picket_checkpoint(kept, 1) == PICKET_OK);
    picket_close(p);
    picket_close(admin);
}

/* After the reconnection the lease's events come again, over the new connection. */
TEST(remote__is_told_again_after_a_reconnection)
{
    world_begin(2);
    struct picket *holder = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *waiter = open_client(node_url(&world.nodes[0]), LONG_TTL_MS);
    struct picket_lock *l = take(holder, "db");
    struct picket_lock *m = enqueue(waiter, "db", NULL);
    struct heard h[4];
    for (int i = 0; i < 3; i++) {
        node_cut(&world.nodes[0]);
        for (int tries = 0;
             node_heard(&world.nodes[0], "RENEW", h, 4) <= (unsigned)i && tries < 20000;
             tries++) {
            (void)usleep(1000);
        }
    }
    CHECK(picket_release(l) == PICKET_OK);
    CHECK(readable(picket_ready_fd(m), PATIENCE_MS));
    CHECK(picket_wait(m, 0) == PICKET_OK);
    picket_close(waiter);
    picket_close(holder);
}

/* A lease that ended meanwhile is told at once, long before our own clock would. */
TEST(remote__a_lost_lease_is_told_after_the_reconnection)
{
    world_begin(2);
    struct picket *admin = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *p = open_client(node_url(&world.nodes[0]), LONG_TTL_MS);
    struct picket_lock *l = take(p, "db");
    uint64_t lease = picket_lease(p);
    int loss = picket_loss_fd(l);
    node_down(&world.nodes[0]);
    CHECK(picket_lease_close(admin, lease) == PICKET_OK);
    CHECK(!readable(loss, 0));
    (void)node_up(0);
    CHECK(readable(loss, LONG_TTL_MS / 6));
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK_STR(picket_loss_reason(l), "closed");
    CHECK(picket_checkpoint(l, 0) == PICKET_LOST);
    picket_close(p);
    picket_close(admin);
}

/* A TTL whose renewals come soon, if the node wants them soon, and which no pause of the
 * machine uses up. */
enum { RENEWED_TTL_MS = 20000 };

static struct picket *open_renewing(void)
{
    pthread_mutex_lock(&world.mutex);
    world.nodes[0].renew_after_ms = 1;
    pthread_mutex_unlock(&world.mutex);
    return open_client(node_url(&world.nodes[0]), RENEWED_TTL_MS);
}

/* Pushes that never come, over a connection that lives on: the next renewal brings the
 * news, with the reason. */
TEST(remote__a_renewal_tells_of_a_break_whose_push_was_lost)
{
    world_begin(2);
    struct picket *admin = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *p = open_renewing();
    struct picket_lock *l = take(p, "db");
    struct picket_lock *kept = take(p, "kept");
    world_withhold();
    CHECK(picket_break(admin, "db", picket_token(l), "gone") == PICKET_OK);
    CHECK(readable(picket_loss_fd(l), PATIENCE_MS));
    CHECK(picket_state(l) == PICKET_GONE);
    CHECK_STR(picket_loss_reason(l), "broken: by an operator");
    CHECK(picket_checkpoint(kept, 1) == PICKET_OK);
    world_tell(); /* late, and harmless */
    CHECK(picket_release(kept) == PICKET_OK);
    picket_close(p);
    picket_close(admin);
}

TEST(remote__a_renewal_tells_of_a_grant_whose_push_was_lost)
{
    world_begin(2);
    struct picket *holder = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *waiter = open_renewing();
    struct picket_lock *l = take(holder, "db");
    struct picket_lock *m = enqueue(waiter, "db", NULL);
    world_withhold();
    CHECK(picket_release(l) == PICKET_OK);
    CHECK(readable(picket_ready_fd(m), PATIENCE_MS));
    CHECK(picket_wait(m, 0) == PICKET_OK);
    CHECK(picket_token(m) > picket_token(l));
    world_tell();
    CHECK(picket_checkpoint(m, 1) == PICKET_OK);
    picket_close(waiter);
    picket_close(holder);
}

/* A release by another process is an end like others; nothing was lost. */
TEST(remote__a_renewal_tells_of_a_release_by_others)
{
    world_begin(2);
    struct picket *admin = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *p = open_renewing();
    struct picket_lock *l = take(p, "db");
    world_withhold();
    CHECK(picket_lease_release(admin, picket_lease(p), "db", picket_token(l)) ==
          PICKET_OK);
    for (int tries = 0; picket_state(l) == PICKET_HELD && tries < PATIENCE_MS; tries++) {
        (void)usleep(1000);
    }
    CHECK(picket_state(l) == PICKET_RELEASED);
    picket_close(p);
    picket_close(admin);
}

/* More than a renewal's answer can tell of: then each claim is asked about. */
TEST(remote__a_renewal_that_tells_not_all_makes_it_look)
{
    enum { MANY = PK_RENEW_ROWS + 2 };
    struct picket_lock *l[MANY];
    world_begin(2);
    struct picket *admin = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *p = open_renewing();
    for (int i = 0; i < MANY; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "lock-%d", i);
        l[i] = take(p, name);
    }
    world_withhold();
    uint64_t token = picket_token(l[MANY - 2]);
    CHECK(picket_break(admin, "lock-256", token, "gone") == PICKET_OK);
    CHECK(readable(picket_loss_fd(l[MANY - 2]), PATIENCE_MS));
    CHECK(picket_checkpoint(l[MANY - 1], 1) == PICKET_OK);
    CHECK(picket_checkpoint(l[0], 1) == PICKET_OK);
    picket_close(p);
    picket_close(admin);
}

/* A node that has missed something itself says so. */
TEST(remote__a_gap_makes_it_look)
{
    world_begin(2);
    struct picket *admin = open_client(node_url(&world.nodes[1]), LONG_TTL_MS);
    struct picket *p = open_client(node_url(&world.nodes[0]), LONG_TTL_MS);
    struct picket_lock *l = take(p, "db");
    uint64_t lease = picket_lease(p);
    int loss = picket_loss_fd(l);
    uint64_t left;
    /* Another connection uses the lease: it gets the events now. */
    CHECK(picket_lease_renew(admin, lease, 0, &left) == PICKET_OK);
    CHECK(picket_break(admin, "db", picket_token(l), "gone") == PICKET_OK);
    CHECK(!readable(loss, 200));
    pthread_mutex_lock(&world.mutex);
    struct conn *c = &world.nodes[0].conns[0];
    pk_proto_write_gap(&c->out, lease);
    conn_flush(c);
    pthread_mutex_unlock(&world.mutex);
    CHECK(readable(loss, LONG_TTL_MS / 6));
    picket_close(p);
    picket_close(admin);
}
