/* SPDX-License-Identifier: MIT */
#include "raft/inside.h"
#include "turned.h"

/* ---- serving ---- */

TEST(turn__serves_only_after_an_entry_of_its_own_term)
{
    struct node *n = node_new(1);
    CHECK(node_start(n) == NULL);
    CHECK(pk_replica_standing(n->replica).leader);
    node_turn(n);
    CHECK(!pk_turn_serving(n->turn));
    CHECK(!node_add(n, lease_open(1000), 1));
    CHECK_U64(pk_turn_next_ms(n->turn), UINT64_MAX);
    mem_finish_all(&n->io);
    CHECK(!pk_turn_serving(n->turn));
    node_turn(n);
    CHECK(pk_turn_serving(n->turn));
    CHECK(n->serving && n->leader == 1);
    struct pk_entry barrier = last_entry(n);
    CHECK(barrier.kind == PK_ENTRY_COMMANDS);
    CHECK_U64(barrier.count, 0);
    CHECK_U64(barrier.origin, n->options.origin);
    CHECK(node_add(n, lease_open(1000), 1));
    CHECK_U64(pk_turn_counts(n->turn).reigns, 1);
    node_free(n);
}

TEST(turn__tells_cluster_time_between_entries)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(60000)).status == PK_OK);
    node_pass(n, 100);
    uint64_t now = n->io.now_ms;
    uint64_t clock = pk_turn_clock(n->turn, now);
    CHECK(clock >= pk_machine_clock(pk_replica_machine(n->replica)) + 100);
    CHECK_U64(pk_turn_clock(n->turn, now + 250), clock + 250);
    CHECK_U64(pk_turn_clock(n->turn, now + 5000), clock); /* a pause will be left out */
    CHECK_U64(pk_turn_clock(n->turn, now - 1), clock);
    node_free(n);
}

TEST(turn__serves_nobody_as_a_follower)
{
    struct node *n = node_new(3);
    CHECK(node_start(n) == NULL);
    node_turn(n);
    CHECK_U64(n->standings, 0);
    mem_lead(&n->io, 2, 2, 1, 1, 1, NULL, 0);
    node_turn(n);
    CHECK(!n->serving && n->leader == 2);
    CHECK_U64(n->standings, 1);
    node_turn(n);
    CHECK_U64(n->standings, 1); /* told once */
    CHECK(!node_add(n, lease_open(1000), 1));
    node_free(n);
}

/* ---- entries and answers ---- */

TEST(turn__makes_one_entry_of_one_turn)
{
    struct node *n = node_serving(node_new(1));
    size_t before = n->disk.n;
    for (uint64_t i = 1; i <= 5; i++) {
        CHECK(node_add(n, lease_open(1000 * i), i));
    }
    CHECK_U64(pk_turn_pending(n->turn), 5);
    node_turn(n);
    CHECK_U64(n->n_told, 0); /* nothing is answered before it is on the disk */
    mem_finish_all(&n->io);
    CHECK_U64(n->disk.n, before + 1);
    CHECK_U64(last_entry(n).count, 5);
    CHECK_U64(last_entry(n).index, n->disk.first + before);
    CHECK_U64(n->n_told, 5);
    for (uint64_t i = 0; i < 5; i++) {
        CHECK(n->told[i].answered && n->told[i].status == PK_OK);
        CHECK_U64(n->told[i].who, i + 1);
        CHECK_U64(n->told[i].lease, i + 1);
    }
    CHECK_U64(pk_turn_pending(n->turn), 0);
    CHECK_U64(n->events[PK_EV_LEASE_OPENED], 5);
    node_turn(n);
    CHECK_U64(n->io.n_writes, 0); /* an empty turn proposes nothing */
    node_free(n);
}

/* Answers keep the order of the log while many entries are under way, and the rings
 * wrap around. */
TEST(turn__answers_in_the_order_of_the_log)
{
    struct node *n = node_new(1);
    n->turn_options.in_flight = 3;
    node_serving(n);
    uint64_t asked = 0;
    for (int round = 0; round < 20; round++) {
        for (int batch = 0; batch < 3; batch++) {
            for (int i = 0; i <= batch; i++) {
                CHECK(node_add(n, lease_open(60000), ++asked));
            }
            node_turn(n);
        }
        CHECK_U64(pk_turn_pending(n->turn), 6);
        node_settle(n);
    }
    CHECK_U64(n->n_told, asked);
    for (uint64_t i = 0; i < asked; i++) {
        CHECK_U64(n->told[i].who, i + 1);
        CHECK_U64(n->told[i].lease, i + 1);
    }
    node_free(n);
}

/* Growing keeps the order, wherever the ring has its seam. */
TEST(turn__takes_in_any_number)
{
    struct node *n = node_serving(node_new(1));
    for (uint64_t i = 1; i <= 40; i++) {
        CHECK(node_ask(n, lease_open(60000)).status == PK_OK);
    }
    for (uint64_t i = 41; i <= 300; i++) {
        CHECK(node_add(n, lease_open(60000), i));
    }
    node_settle(n);
    CHECK_U64(n->n_told, 300);
    for (uint64_t i = 41; i <= 300; i++) {
        CHECK_U64(n->told[i - 1].who, i);
        CHECK_U64(n->told[i - 1].lease, i);
    }
    node_free(n);
}

/* Past the limit of entries in flight batches grow instead: group commit. */
TEST(turn__holds_commands_while_enough_is_in_flight)
{
    struct node *n = node_new(1);
    n->turn_options.in_flight = 2;
    node_serving(n);
    uint64_t entries = pk_turn_counts(n->turn).entries;
    for (uint64_t i = 1; i <= 6; i++) {
        CHECK(node_add(n, lease_open(1000), i));
        node_turn(n);
    }
    CHECK_U64(pk_turn_counts(n->turn).entries, entries + 2);
    CHECK_U64(pk_turn_pending(n->turn), 6);
    node_settle(n);
    CHECK_U64(pk_turn_counts(n->turn).entries, entries + 3);
    CHECK_U64(last_entry(n).count, 4);
    CHECK_U64(n->n_told, 6);
    CHECK_U64(n->told[5].who, 6);
    node_free(n);
}

TEST(turn__is_full_at_its_limit)
{
    struct node *n = node_new(1);
    n->turn_options.batch_bytes = 64;
    node_serving(n);
    uint64_t taken = 0;
    while (node_add(n, lease_open(1000), taken + 1)) {
        taken++;
        CHECK(taken < 64);
    }
    CHECK(taken > 1);
    node_turn(n);
    CHECK(node_add(n, lease_open(1000), 99)); /* there is room in the next turn */
    node_settle(n);
    CHECK_U64(n->n_told, taken + 1);
    static char label[200];
    memset(label, 'l', sizeof label);
    struct pk_command large = lease_open(1000);
    large.label = pk_bytes(label, sizeof label);
    CHECK(node_ask(n, large).status == PK_OK); /* alone, a larger one passes */
    node_free(n);
}

/* The stamp that a caller left in a command is nobody's. */
TEST(turn__stamps_by_itself)
{
    struct node *n = node_serving(node_new(1));
    struct pk_command c = lease_open(1000);
    c.stamp_ms = 999999;
    uint64_t before = pk_machine_clock(pk_replica_machine(n->replica));
    node_pass(n, 50);
    CHECK(node_ask(n, c).status == PK_OK);
    CHECK_U64(pk_machine_clock(pk_replica_machine(n->replica)), before + 50);
    node_free(n);
}

/* A first command that is not fit must not keep the clock from moving. */
TEST(turn__moves_the_clock_past_a_bad_command)
{
    struct node *n = node_serving(node_new(1));
    uint64_t before = pk_machine_clock(pk_replica_machine(n->replica));
    node_pass(n, 50);
    CHECK(node_add(n, lease_open(1), 1)); /* shorter than a TTL can be */
    CHECK(node_add(n, lease_open(1000), 2));
    node_settle(n);
    CHECK(n->told[0].status == PK_BADARG && n->told[1].status == PK_OK);
    CHECK_U64(pk_machine_clock(pk_replica_machine(n->replica)), before + 50);
    node_free(n);
}

/* ---- time ---- */

TEST(turn__ticks_when_something_is_due)
{
    struct node *n = node_serving(node_new(1));
    CHECK_U64(pk_turn_next_ms(n->turn), n->io.now_ms + 60000); /* states are compared */
    CHECK(node_ask(n, lease_open(100)).status == PK_OK);
    uint64_t due_ms = n->io.now_ms + 100;
    CHECK_U64(pk_turn_next_ms(n->turn), due_ms);
    node_pass(n, 99);
    CHECK_U64(n->io.n_writes, 0);
    CHECK_U64(pk_turn_next_ms(n->turn), due_ms);
    node_pass(n, 1);
    CHECK(n->io.n_writes > 0);
    CHECK_U64(n->events[PK_EV_LEASE_ENDED], 0); /* not before it is on the disk */
    CHECK_U64(pk_turn_next_ms(n->turn), UINT64_MAX);
    size_t writes = n->io.n_writes;
    node_pass(n, 20);
    CHECK_U64(n->io.n_writes, writes); /* one tick is enough */
    node_settle(n);
    CHECK_U64(n->events[PK_EV_LEASE_ENDED], 1);
    CHECK_U64(pk_turn_counts(n->turn).ticks, 1);
    CHECK_U64(n->n_told, 1);
    node_free(n);
}

/* Only entries that move the clock count as a tick under way. */
TEST(turn__ticks_beside_a_restore)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(60)).status == PK_OK);
    n->io.now_ms += 60;
    CHECK(pk_turn_add_restore(n->turn, pk_text("x"), 0, (struct pk_ticket){.who = 1}));
    node_turn(n);
    CHECK_U64(pk_turn_counts(n->turn).ticks, 0);
    node_turn(n);
    CHECK_U64(pk_turn_counts(n->turn).ticks, 1);
    node_turn(n);
    CHECK_U64(pk_turn_counts(n->turn).ticks, 1);
    node_free(n);
}

/* A far deadline is approached in steps, and none of them looks like a pause. */
TEST(turn__wakes_before_a_pause_would_be_seen)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(1000)).status == PK_OK);
    uint64_t due_ms = n->io.now_ms + 1000;
    for (int i = 0; i < 20 && n->events[PK_EV_LEASE_ENDED] == 0; i++) {
        CHECK(pk_turn_next_ms(n->turn) <= n->io.now_ms + MEM_ELECTION_MS / 2);
        n->io.now_ms = pk_turn_next_ms(n->turn);
        node_turn(n);
        node_settle(n);
    }
    CHECK_U64(n->events[PK_EV_LEASE_ENDED], 1);
    CHECK_U64(n->io.now_ms, due_ms);
    CHECK_U64(pk_turn_counts(n->turn).left_out_ms, 0);
    node_free(n);
}

/* P4: a loop that stood still stretches leases. */
TEST(turn__leaves_out_a_pause)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(400)).status == PK_OK);
    n->io.now_ms += 5000;
    node_turn(n);
    node_settle(n);
    CHECK_U64(n->events[PK_EV_LEASE_ENDED], 0);
    CHECK_U64(pk_turn_counts(n->turn).left_out_ms, 5000);
    node_pass(n, 400);
    node_settle(n);
    CHECK_U64(n->events[PK_EV_LEASE_ENDED], 1);
    node_free(n);
}

/* A batch that nobody can use still ends what is due. */
TEST(turn__ticks_beside_bad_commands)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(60)).status == PK_OK);
    node_pass(n, 30);
    n->io.now_ms += 30;
    CHECK(node_add(n, lease_open(1), 2));
    node_settle(n);
    CHECK(n->told[1].status == PK_BADARG);
    CHECK_U64(n->events[PK_EV_LEASE_ENDED], 1);
    CHECK_U64(last_entry(n).count, 2); /* in the same entry */
    CHECK_U64(pk_turn_counts(n->turn).ticks, 1);
    node_free(n);
}

/* ---- a restored backup ---- */

enum { DELAY_MS = 60000 };

/* A backup in which "db" is held with a lock-delay, on a node whose clock is by more than
 * that delay ahead of the backup's; the next adoption restores it. */
static struct node *node_with_old_backup(void)
{
    struct node *n = node_serving(node_new(1));
    uint64_t lease = node_ask(n, lease_open(8 * DELAY_MS)).lease;
    struct pk_command c = lock_try(lease, "db");
    c.lock_delay_ms = DELAY_MS;
    CHECK(node_ask(n, c).status == PK_OK);
    struct pk_backup_of of;
    enum { ROOM = 4096 };
    unsigned char *bytes = pk_door_resize(NULL, ROOM);
    size_t len;
    CHECK(pk_replica_backup_begin(n->replica, &of));
    CHECK(pk_replica_backup_read(n->replica, bytes, ROOM, &len) == PK_SOURCE_END);
    pk_replica_backup_end(n->replica);
    node_pass(n, 2 * DELAY_MS);
    unsigned before = n->n_told;
    CHECK(pk_turn_add_restore(n->turn, pk_bytes(bytes, len), 0,
                              (struct pk_ticket){.who = 1}));
    node_settle(n);
    CHECK(n->n_told == before + 1 && n->told[before].status == PK_OK);
    pk_door_resize(bytes, 0);
    return n;
}

/* Whoever held it in the backup has the lock-delay to end, counted from the restore. */
static void closed_for_the_lock_delay(struct node *n)
{
    uint64_t lease = node_ask(n, lease_open(8 * DELAY_MS)).lease;
    CHECK(node_ask(n, lock_try(lease, "db")).status == PK_BUSY);
    node_pass(n, DELAY_MS - 1000);
    node_settle(n);
    CHECK(node_ask(n, lock_try(lease, "db")).status == PK_BUSY);
    node_pass(n, 1000);
    node_settle(n);
    CHECK(node_ask(n, lock_try(lease, "db")).status == PK_OK);
}

/* The stamps go on from the backup's clock. */
TEST(turn__restore_begins_a_new_reign)
{
    struct node *n = node_with_old_backup();
    CHECK(pk_turn_add_adopt(n->turn, (struct pk_ticket){.who = 2}));
    node_turn(n);
    node_settle(n);
    CHECK_U64(n->gaps, 1);
    closed_for_the_lock_delay(n);
    node_free(n);
}

/* While an adoption is in flight its clock is not known, so nothing is stamped: neither
 * a command nor a tick. */
TEST(turn__restore_in_flight_is_followed_by_no_stamp)
{
    struct node *n = node_with_old_backup();
    CHECK(node_ask(n, lease_open(60)).status == PK_OK);
    CHECK(pk_turn_add_adopt(n->turn, (struct pk_ticket){.who = 2}));
    node_turn(n);
    uint64_t entries = pk_turn_counts(n->turn).entries;
    CHECK(node_add(n, lease_open(1000), 3));
    node_pass(n, 90); /* the lease is overdue */
    CHECK_U64(pk_turn_counts(n->turn).entries, entries);
    node_settle(n);
    CHECK_U64(n->gaps, 1);
    CHECK_U64(n->told[n->n_told - 1].who, 3);
    CHECK(n->told[n->n_told - 1].status == PK_OK);
    closed_for_the_lock_delay(n);
    node_free(n);
}

/* ---- reigns ---- */

/* P4: a new reign goes on from the machine's clock, wherever the own clock stands. */
TEST(turn__begins_each_reign_at_the_machines_clock)
{
    struct node *n = node_serving(node_new(1));
    node_pass(n, 500);
    CHECK(node_ask(n, lease_open(100)).status == PK_OK);
    uint64_t clock = pk_machine_clock(pk_replica_machine(n->replica));
    node_stop(n);
    CHECK(node_start(n) == NULL);
    n->io.now_ms = 7;
    node_settle(n);
    CHECK(pk_turn_serving(n->turn));
    CHECK_U64(pk_machine_clock(pk_replica_machine(n->replica)), clock);
    CHECK_U64(pk_turn_next_ms(n->turn), 7 + 100); /* the whole TTL is left */
    node_free(n);
}

TEST(turn__counts_the_time_without_a_leader)
{
    struct node *n = node_new(3);
    CHECK(node_start(n) == NULL);
    node_turn(n);
    node_pass(n, 90);
    CHECK_U64(pk_turn_counts(n->turn).leaderless_ms, 90);
    mem_lead(&n->io, 2, 2, 1, 1, 1, NULL, 0);
    node_turn(n);
    node_pass(n, 30);
    CHECK_U64(pk_turn_counts(n->turn).leaderless_ms, 90);
    node_free(n);
}

/* ---- losing leadership ---- */

/* What was proposed may still happen; what was only taken in will not. */
TEST(turn__answers_unknown_when_leadership_is_lost)
{
    struct node *n = node_new(3);
    n->turn_options.in_flight = 1;
    node_serving(n);
    CHECK(node_add(n, lease_open(1000), 1));
    CHECK(node_add(n, lease_open(1000), 2));
    node_turn(n);
    CHECK(node_add(n, lease_open(1000), 3));
    node_turn(n);
    CHECK_U64(pk_turn_pending(n->turn), 3);
    mem_lead(&n->io, 3, node_term(n) + 1, 1, 1, 1, NULL, 0); /* another one leads */
    CHECK_U64(n->n_told, 0);
    node_turn(n);
    CHECK_U64(n->n_told, 3);
    CHECK(n->told[0].refusal == PK_REFUSED_UNKNOWN && n->told[0].who == 1);
    CHECK(n->told[1].refusal == PK_REFUSED_UNKNOWN && n->told[1].who == 2);
    CHECK(n->told[2].refusal == PK_REFUSED_NOT_LEADER && n->told[2].who == 3);
    CHECK(!pk_turn_serving(n->turn) && !n->serving);
    CHECK_U64(n->leader, 3);
    CHECK_U64(pk_turn_pending(n->turn), 0);
    CHECK_U64(pk_turn_counts(n->turn).unknown, 2);
    CHECK_U64(pk_turn_counts(n->turn).refused, 1);
    CHECK_U64(pk_turn_next_ms(n->turn), UINT64_MAX);
    node_free(n);
}

/* An isolated leader notices by itself. */
TEST(turn__stops_serving_without_a_majority)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_open(1000), 1));
    node_turn(n);
    node_pass(n, 3 * MEM_ELECTION_MS);
    CHECK(!pk_turn_serving(n->turn));
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].refusal == PK_REFUSED_UNKNOWN);
    node_free(n);
}

/* The entry that was answered "unknown" commits after all, in the next reign of the same
 * node: it is run, everybody sees its events, nobody is answered twice. */
TEST(turn__has_no_ticket_for_an_entry_of_an_older_reign)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_open(60000), 1));
    node_turn(n);
    node_pass(n, 3 * MEM_ELECTION_MS);
    CHECK_U64(n->n_told, 1);
    mem_finish_all(&n->io);
    node_elect(n);
    CHECK(!pk_turn_serving(n->turn));
    CHECK_U64(n->events[PK_EV_LEASE_OPENED], 0);
    mem_finish_all(&n->io);
    node_ack(n);
    CHECK_U64(n->events[PK_EV_LEASE_OPENED], 1);
    CHECK_U64(n->n_told, 1);
    node_turn(n);
    CHECK(pk_turn_serving(n->turn));
    CHECK_U64(pk_turn_counts(n->turn).reigns, 2);
    node_free(n);
}

/* Leadership was lost and won again before anybody looked: still another term. */
TEST(turn__sees_a_term_that_it_missed)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_open(60000), 1));
    node_turn(n);
    CHECK(node_add(n, lease_open(60000), 2));
    mem_finish_all(&n->io);
    mem_lead(&n->io, 3, node_term(n) + 1, 1, 1, 1, NULL, 0);
    for (int i = 0; i < 40 && !pk_replica_standing(n->replica).candidate; i++) {
        mem_tick(&n->io, HEARTBEAT_MS);
    }
    mem_vote(&n->io, 2, node_term(n) + 1, true);
    mem_vote(&n->io, 2, node_term(n), false);
    CHECK(pk_replica_standing(n->replica).leader);
    node_turn(n);
    CHECK(!pk_turn_serving(n->turn));
    CHECK_U64(n->n_told, 2);
    CHECK(n->told[0].refusal == PK_REFUSED_UNKNOWN);
    CHECK(n->told[1].refusal == PK_REFUSED_NOT_LEADER);
    mem_finish_all(&n->io);
    node_ack(n);
    node_turn(n);
    CHECK(pk_turn_serving(n->turn));
    node_free(n);
}

/* ---- handing over ---- */

/* While leadership is on its way to another node nothing is proposed; if it stays here
 * after all, the held commands go on. */
TEST(turn__holds_commands_during_a_transfer_that_fails)
{
    struct node *n = node_serving(node_new(3));
    CHECK(pk_replica_transfer(n->replica, 2) == NULL);
    CHECK(pk_replica_transfer(n->replica, 2) != NULL);
    CHECK(pk_replica_standing(n->replica).transferring);
    CHECK(node_add(n, lease_open(60000), 1));
    node_turn(n);
    CHECK_U64(n->io.n_writes, 0);
    CHECK_U64(n->n_told, 0);
    for (int i = 0; i < 30 && pk_replica_standing(n->replica).transferring; i++) {
        node_ack(n); /* still our follower */
        node_pass(n, HEARTBEAT_MS);
    }
    CHECK(pk_turn_serving(n->turn));
    mem_finish_all(&n->io);
    node_ack(n);
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].status == PK_OK);
    node_free(n);
}

TEST(turn__refuses_what_it_held_when_a_transfer_succeeds)
{
    struct node *n = node_serving(node_new(3));
    CHECK(pk_replica_transfer(n->replica, 0) == NULL);
    CHECK(node_add(n, lease_open(60000), 1));
    node_turn(n);
    struct pk_standing s = pk_replica_standing(n->replica);
    mem_lead(&n->io, 2, s.term + 1, s.last_index, s.term, s.commit_index, NULL, 0);
    node_turn(n);
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].refusal == PK_REFUSED_NOT_LEADER);
    node_free(n);
}

TEST(turn__drains)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_add(n, lease_open(60000), 1));
    pk_turn_drain(n->turn);
    CHECK(!pk_turn_serving(n->turn));
    CHECK(!node_add(n, lease_open(60000), 2));
    node_settle(n);
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].answered);
    CHECK(!n->serving);
    pk_turn_resume(n->turn);
    CHECK(node_ask(n, lease_open(60000)).status == PK_OK);
    node_free(n);
}

/* ---- no space ---- */

static void disks_are_full(struct node *n, bool full)
{
    n->io.io.capacity = n->io.others_capacity = full ? 0 : UINT16_MAX;
}

/* The library is elected, fails to write its first entry, and forgets that it leads. What
 * it is given later must not be left behind when leadership goes. */
TEST(turn__survives_elections_on_full_disks)
{
    struct node *n = node_serving(node_new(3));
    for (uint64_t round = 1; round <= 3; round++) {
        CHECK(node_add(n, lease_open(60000), round));
        node_turn(n);
        mem_finish_all(&n->io);
        node_pass(n, 3 * MEM_ELECTION_MS);
        CHECK_U64(n->n_told, round);
        CHECK(n->told[round - 1].refusal == PK_REFUSED_UNKNOWN);
        void **pending = n->replica->raft.legacy.pending;
        CHECK(pending[0] == pending); /* the library has let go of everything */
        disks_are_full(n, true);
        node_elect(n);
        node_settle(n);
        CHECK(!pk_turn_serving(n->turn));
        CHECK_U64(pk_turn_counts(n->turn).reigns, round);
        disks_are_full(n, false);
        node_ack(n);
        node_settle(n);
        node_ack(n);
        node_turn(n);
        CHECK(pk_turn_serving(n->turn));
        CHECK_U64(n->events[PK_EV_LEASE_OPENED], round);
    }
    node_free(n);
}

TEST(turn__refuses_when_the_disk_is_full)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(60)).status == PK_OK);
    n->io.io.capacity = 0;
    node_pass(n, 30);
    CHECK(node_add(n, lease_open(1000), 1));
    CHECK(node_add(n, lease_open(1000), 2));
    node_turn(n);
    CHECK_U64(n->n_told, 3);
    CHECK(n->told[1].refusal == PK_REFUSED_NO_SPACE && n->told[1].who == 1);
    CHECK(n->told[2].refusal == PK_REFUSED_NO_SPACE && n->told[2].who == 2);
    CHECK_U64(pk_turn_pending(n->turn), 0);
    node_pass(n, 200); /* a tick is due, and nobody takes it */
    CHECK(pk_turn_next_ms(n->turn) > n->io.now_ms);
    CHECK(pk_turn_next_ms(n->turn) != UINT64_MAX); /* it tries again by itself */
    CHECK_U64(n->events[PK_EV_LEASE_ENDED], 0);
    n->io.io.capacity = UINT16_MAX;
    node_pass(n, 200);
    node_settle(n);
    CHECK_U64(n->events[PK_EV_LEASE_ENDED], 1);
    CHECK(node_ask(n, lease_open(1000)).status == PK_OK);
    node_free(n);
}

static struct pk_log_use used_by(void *log)
{
    return *(struct pk_log_use *)log;
}

/* A disk that is busy is not a full one. */
TEST(turn__holds_commands_while_the_log_makes_room)
{
    struct pk_log_use use = {.waits = false};
    struct node *n = node_new(1);
    n->options.use = used_by;
    n->options.use_ctx = &use;
    node_serving(n);
    use.waits = true;
    uint64_t entries = pk_turn_counts(n->turn).entries;
    CHECK(node_add(n, lease_open(1000), 1));
    node_turn(n);
    node_settle(n);
    CHECK_U64(n->n_told, 0);
    CHECK_U64(pk_turn_counts(n->turn).entries, entries);
    use.waits = false;
    node_settle(n);
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].answered && n->told[0].status == PK_OK);
    node_free(n);
}
