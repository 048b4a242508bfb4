/* SPDX-License-Identifier: MIT */
/* Reads that no log entry carries: who answers them, when, and from which state. */
#include "server/read_index.h"

#include "turned.h"

enum { RETRY_MS = 100, PATIENCE_MS = 3000 };

static struct pk_command lease_show(uint64_t lease)
{
    return (struct pk_command){.verb = PK_LEASE_SHOW, .lease = lease, .count = 1};
}

/* The last note that the node has sent. */
static const struct pk_read_note *last_note(const struct node *n)
{
    CHECK(n->n_notes > 0);
    return &n->notes[n->n_notes - 1];
}

/* Another node's answer to the last note, of that kind. */
static struct pk_read_note answer_to_last(const struct node *n,
                                          enum pk_read_note_kind kind)
{
    struct pk_read_note answer = *last_note(n);
    answer.kind = kind;
    return answer;
}

static void hear(struct node *n, uint64_t from, struct pk_read_note note)
{
    pk_turn_hear(n->turn, from, &note);
    node_turn(n);
}

/* A node that follows node 2, which leads term 2. */
static struct node *node_following(void)
{
    struct node *n = node_new(3);
    CHECK(node_start(n) == NULL);
    mem_lead(&n->io, 2, 2, 1, 1, 1, NULL, 0);
    node_turn(n);
    CHECK(pk_turn_reads(n->turn) && !pk_turn_serving(n->turn));
    return n;
}

/* ---- a leader ---- */

TEST(reads__of_a_lone_node_need_no_entry)
{
    struct node *n = node_serving(node_new(1));
    size_t entries = n->disk.n;
    CHECK(node_add(n, lease_show(1), 1));
    CHECK_U64(pk_turn_pending(n->turn), 1);
    node_turn(n);
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].answered && n->told[0].status == PK_NOTFOUND);
    CHECK_U64(n->io.n_writes, 0);
    CHECK_U64(n->disk.n, entries);
    CHECK_U64(pk_turn_counts(n->turn).reads, 1);
    node_free(n);
}

TEST(reads__wait_until_a_majority_is_in_the_term)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    CHECK_U64(n->n_told, 0);
    CHECK_U64(n->n_notes, 1);
    CHECK(last_note(n)->kind == PK_READ_PROBE && n->noted_to[0] == 0);
    CHECK_U64(last_note(n)->term, node_term(n));
    hear(n, 2, answer_to_last(n, PK_READ_TERM));
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].answered);
    CHECK_U64(pk_turn_counts(n->turn).rounds, 1);
    node_free(n);
}

/* Answers of another term, another run, an earlier round, and of who is no voter. */
TEST(reads__are_confirmed_by_nothing_else)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    struct pk_read_note good = answer_to_last(n, PK_READ_TERM);
    struct pk_read_note bad = good;
    bad.term = good.term + 1;
    hear(n, 2, bad);
    bad.term = good.term - 1;
    hear(n, 2, bad);
    bad = good;
    bad.run++;
    hear(n, 2, bad);
    bad = good;
    bad.round--;
    hear(n, 2, bad);
    bad = good;
    bad.round++; /* one that has not begun */
    hear(n, 2, bad);
    hear(n, 9, good);
    hear(n, 1, good); /* the leader counts once */
    CHECK_U64(n->n_told, 0);
    bad = good;
    bad.kind = PK_READ_INDEX; /* a leader asks nobody for an index */
    hear(n, 2, bad);
    CHECK_U64(n->n_told, 0);
    hear(n, 3, good);
    CHECK_U64(n->n_told, 1);
    node_free(n);
}

/* A read that comes after a round began is not confirmed by it. */
TEST(reads__that_come_later_need_a_later_round)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    struct pk_read_note first = answer_to_last(n, PK_READ_TERM);
    CHECK(node_add(n, lease_show(1), 2));
    node_turn(n);
    CHECK_U64(n->n_notes, 2);
    struct pk_read_note second = answer_to_last(n, PK_READ_TERM);
    hear(n, 2, first);
    CHECK_U64(n->n_told, 1);
    /* Two rounds are under way at most: the third waits, and shares the next one. */
    CHECK(node_add(n, lease_show(1), 3));
    node_turn(n);
    CHECK(node_add(n, lease_show(1), 4));
    node_turn(n);
    CHECK(node_add(n, lease_show(1), 5));
    node_turn(n);
    CHECK_U64(n->n_notes, 3);
    hear(n, 3, second);
    CHECK_U64(n->n_told, 2);
    hear(n, 3,
         answer_to_last(n, PK_READ_TERM)); /* a later round confirms all before it */
    CHECK_U64(n->n_notes, 4);
    hear(n, 3, answer_to_last(n, PK_READ_TERM));
    CHECK_U64(n->n_told, 5);
    for (unsigned i = 0; i < 5; i++) {
        CHECK_U64(n->told[i].who, i + 1);
    }
    node_free(n);
}

TEST(reads__are_asked_for_again_when_no_answer_comes)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    struct pk_read_note lost = *last_note(n);
    CHECK(pk_turn_next_ms(n->turn) <= n->io.now_ms + RETRY_MS);
    n->io.now_ms += RETRY_MS - 1;
    node_turn(n);
    CHECK_U64(n->n_notes, 1);
    n->io.now_ms += 1;
    node_turn(n);
    CHECK_U64(n->n_notes, 2);
    CHECK(last_note(n)->round > lost.round);
    hear(n, 2, answer_to_last(n, PK_READ_TERM));
    CHECK_U64(n->n_told, 1);
    node_free(n);
}

/* Everything that the leader has in its log is applied first: it may have been
 * acknowledged by an earlier leader. */
TEST(reads__wait_for_entries_before_them)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_open(60000), 1));
    node_turn(n);
    mem_finish_all(&n->io);
    CHECK(node_add(n, lease_show(1), 2));
    node_turn(n);
    hear(n, 2, answer_to_last(n, PK_READ_TERM));
    CHECK_U64(n->n_told, 0);
    node_ack(n);
    node_turn(n);
    CHECK_U64(n->n_told, 2);
    CHECK_U64(n->told[0].who, 1);
    CHECK(n->told[1].who == 2 && n->told[1].status == PK_OK);
    node_free(n);
}

/* ---- beside commands ---- */

TEST(reads__between_commands_see_those_before_them)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_show(1), 1));
    CHECK(node_add(n, lease_open(60000), 2));
    CHECK(node_add(n, lease_show(1), 3));
    CHECK(node_add(n, lease_show(2), 4));
    CHECK(node_add(n, lease_open(60000), 5));
    CHECK(node_add(n, lease_show(2), 6));
    node_turn(n);
    CHECK_U64(n->n_notes, 0); /* the entry is enough */
    mem_finish_all(&n->io);
    CHECK_U64(last_entry(n).count,
              3); /* a tick before the first read, and two commands */
    CHECK_U64(n->n_told, 0);
    node_ack(n);
    CHECK_U64(n->n_told, 6);
    static const enum pk_status wanted[] = {PK_NOTFOUND, PK_OK, PK_OK,
                                            PK_NOTFOUND, PK_OK, PK_OK};
    for (unsigned i = 0; i < 6; i++) {
        CHECK_U64(n->told[i].who, i + 1);
        CHECK_U64(n->told[i].status, wanted[i]);
    }
    CHECK_U64(pk_turn_pending(n->turn), 0);
    node_free(n);
}

TEST(reads__are_confirmed_by_a_later_entry)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    CHECK(node_add(n, lease_open(60000), 2));
    node_turn(n);
    mem_finish_all(&n->io);
    CHECK_U64(last_entry(n).count, 2); /* the read must not see the command */
    CHECK_U64(n->n_told, 0);
    node_ack(n);
    CHECK_U64(n->n_told, 2);
    CHECK(n->told[0].who == 1 && n->told[0].status == PK_NOTFOUND);
    CHECK(n->told[1].who == 2 && n->told[1].status == PK_OK);
    hear(n, 2, answer_to_last(n, PK_READ_TERM)); /* too late, and harmless */
    CHECK_U64(n->n_told, 2);
    node_free(n);
}

/* An entry that was proposed before the read came proves nothing about the time after. */
TEST(reads__are_not_confirmed_by_an_earlier_entry)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_open(60000), 1));
    node_turn(n);
    mem_finish_all(&n->io);
    CHECK(node_add(n, lease_show(1), 2));
    node_turn(n);
    node_ack(n);
    node_turn(n);
    CHECK_U64(n->n_told, 1);
    hear(n, 3, answer_to_last(n, PK_READ_TERM));
    CHECK_U64(n->n_told, 2);
    node_free(n);
}

/* Reads don't make a command wait that has nobody before it. */
TEST(reads__keep_no_command_back)
{
    struct node *n = node_serving(node_new(3));
    for (uint64_t i = 1; i <= 20; i++) {
        CHECK(node_add(n, lease_show(1), i));
    }
    node_turn(n);
    CHECK_U64(n->n_notes, 1);
    uint64_t entries = pk_turn_counts(n->turn).entries;
    CHECK(node_add(n, lease_open(60000), 21));
    node_turn(n);
    CHECK_U64(pk_turn_counts(n->turn).entries, entries + 1);
    node_settle(n);
    node_ack(n);
    CHECK_U64(n->n_told, 21);
    node_free(n);
}

/* ---- time ---- */

TEST(reads__tell_times_as_of_now)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(1000)).status == PK_OK);
    node_pass(n, 300);
    struct told t = node_ask(n, lease_show(1));
    CHECK(t.status == PK_OK);
    CHECK_U64(t.left_ms, 700);
    node_free(n);
}

TEST(reads__come_after_what_is_due)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(100)).status == PK_OK);
    n->io.now_ms += 100;
    CHECK(node_add(n, lease_show(1), 2));
    node_turn(n);
    CHECK_U64(n->n_told, 1);
    node_settle(n);
    CHECK_U64(n->n_told, 2);
    CHECK(n->told[1].status == PK_LOST);
    CHECK_U64(last_entry(n).count, 1); /* a tick alone */
    CHECK_U64(pk_turn_counts(n->turn).ticks, 1);
    node_free(n);
}

/* A full disk refuses commands, and reads go on, whatever is due. */
TEST(reads__are_answered_on_a_full_disk)
{
    struct node *n = node_serving(node_new(1));
    CHECK(node_ask(n, lease_open(100)).status == PK_OK);
    n->io.io.capacity = 0;
    CHECK(node_add(n, lease_show(1), 2));
    CHECK(node_add(n, lease_open(1000), 3));
    CHECK(node_add(n, lease_show(1), 4));
    node_turn(n);
    CHECK_U64(n->n_told, 4);
    CHECK(n->told[1].refusal == PK_REFUSED_NO_SPACE && n->told[1].who == 3);
    CHECK(n->told[2].answered && n->told[2].who == 2);
    CHECK(n->told[3].answered && n->told[3].who == 4);
    n->io.now_ms += 100;
    CHECK(node_add(n, lease_show(1), 5));
    node_turn(n);
    CHECK_U64(n->n_told, 5);
    CHECK(n->told[4].answered && n->told[4].left_ms == 1); /* nobody has ended it yet */
    n->io.io.capacity = UINT16_MAX;
    node_free(n);
}

/* States are compared once a minute, also when there are reads alone. */
TEST(reads__do_not_get_lost_in_an_entry_that_only_marks)
{
    struct node *n = node_new(1);
    n->turn_options.digest_ms = 1000;
    node_serving(n);
    n->io.now_ms += 1000;
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    node_settle(n);
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].answered);
    CHECK(last_entry(n).mark);
    node_free(n);
}

/* ---- a follower ---- */

TEST(reads__of_a_follower_wait_for_the_index_of_its_leader)
{
    struct node *n = node_following();
    CHECK(node_add(n, lease_show(1), 1));
    CHECK(!node_add(n, lease_open(1000), 2));
    node_turn(n);
    CHECK(last_note(n)->kind == PK_READ_ASK && n->noted_to[0] == 2);
    struct pk_read_note index = answer_to_last(n, PK_READ_INDEX);
    index.index = 2;
    hear(n, 2, index);
    CHECK_U64(n->n_told, 0); /* it has entry 1 only */
    struct mem_entry e = {
        .term = 2, .type = RAFT_BARRIER, .bytes = mem_copy("\0\0\0\0\0\0\0", 8)};
    mem_lead(&n->io, 2, 2, 1, 1, 1, &e, 1);
    mem_finish_all(&n->io);
    node_turn(n);
    CHECK_U64(n->n_told, 0); /* and the second is not committed */
    mem_lead(&n->io, 2, 2, 2, 2, 2, NULL, 0);
    node_turn(n);
    CHECK_U64(n->n_told, 1);
    CHECK(n->told[0].answered && n->told[0].status == PK_NOTFOUND);
    mem_drop(&e.bytes);
    node_free(n);
}

TEST(reads__of_a_follower_go_to_the_leader_of_now)
{
    struct node *n = node_following();
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    struct pk_read_note old = answer_to_last(n, PK_READ_INDEX);
    old.index = 1;
    mem_lead(&n->io, 3, 3, 1, 1, 1, NULL, 0); /* another leader */
    node_turn(n);
    CHECK_U64(n->n_notes, 2);
    CHECK_U64(n->noted_to[1], 3);
    hear(n, 2, old); /* what the old one said of the old round */
    CHECK_U64(n->n_told, 0);
    struct pk_read_note index = answer_to_last(n, PK_READ_INDEX);
    index.index = 1;
    index.run++;
    hear(n, 3, index); /* meant for the process that ran here before */
    CHECK_U64(n->n_told, 0);
    index.run--;
    hear(n, 3, index);
    CHECK_U64(n->n_told, 1);
    node_free(n);
}

TEST(reads__are_refused_when_no_leader_answers)
{
    struct node *n = node_following();
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    n->io.now_ms += PATIENCE_MS;
    node_turn(n);
    CHECK_U64(n->n_told, 0);
    n->io.now_ms += 1;
    node_turn(n);
    CHECK_U64(n->n_told, 1);
    CHECK(!n->told[0].answered && n->told[0].refusal == PK_REFUSED_NOT_LEADER);
    CHECK_U64(pk_turn_pending(n->turn), 0);
    node_free(n);
}

TEST(reads__of_a_follower_that_is_elected_are_its_own)
{
    struct node *n = node_following();
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    struct pk_read_note old = answer_to_last(n, PK_READ_INDEX);
    old.index = 1;
    node_elect(n);
    hear(n, 2, old); /* of a round of before */
    CHECK_U64(n->n_told, 0);
    node_settle(n);
    node_ack(n);
    node_turn(n);
    CHECK(pk_turn_serving(n->turn));
    CHECK_U64(n->n_told, 1); /* confirmed by the first entry of its term */
    CHECK(n->told[0].answered);
    node_free(n);
}

/* ---- for others ---- */

TEST(reads__of_others_are_given_an_index)
{
    struct node *n = node_serving(node_new(3));
    struct pk_read_note ask = {.kind = PK_READ_ASK, .run = 77, .round = 5};
    hear(n, 3, ask);
    CHECK(last_note(n)->kind == PK_READ_PROBE);
    hear(n, 2, answer_to_last(n, PK_READ_TERM));
    CHECK(last_note(n)->kind == PK_READ_INDEX);
    CHECK_U64(n->noted_to[n->n_notes - 1], 3);
    CHECK_U64(last_note(n)->run, 77);
    CHECK_U64(last_note(n)->round, 5);
    CHECK_U64(last_note(n)->index, pk_replica_standing(n->replica).last_index);
    CHECK_U64(last_note(n)->clock_ms, pk_turn_clock(n->turn, n->io.now_ms));
    /* In a turn with commands, the entry is enough. */
    CHECK(node_add(n, lease_open(60000), 1));
    pk_turn_hear(n->turn, 3, &ask);
    unsigned notes = n->n_notes;
    node_settle(n);
    node_ack(n);
    CHECK_U64(n->n_told, 1);
    CHECK_U64(n->n_notes, notes + 1);
    CHECK_U64(last_note(n)->index, pk_replica_standing(n->replica).last_index);
    node_free(n);
}

TEST(reads__of_others_are_not_answered_by_a_follower)
{
    struct node *n = node_following();
    hear(n, 3, (struct pk_read_note){.kind = PK_READ_ASK, .run = 77, .round = 5});
    CHECK_U64(n->n_notes, 0);
    CHECK_U64(pk_turn_pending(n->turn), 0);
    node_free(n);
}

TEST(reads__a_voter_says_which_term_it_is_in)
{
    struct node *n = node_following();
    hear(n, 3,
         (struct pk_read_note){.kind = PK_READ_PROBE, .run = 7, .round = 8, .term = 1});
    CHECK(last_note(n)->kind == PK_READ_TERM && n->noted_to[0] == 3);
    CHECK_U64(last_note(n)->term, 2);
    CHECK_U64(last_note(n)->run, 7);
    CHECK_U64(last_note(n)->round, 8);
    node_free(n);
}

/* ---- the end of a reign, and of the node ---- */

TEST(reads__are_refused_when_leadership_is_lost)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    CHECK(node_add(n, lease_open(1000), 2));
    CHECK(node_add(n, lease_show(1), 3));
    node_turn(n);
    struct pk_read_note late = answer_to_last(n, PK_READ_TERM);
    CHECK(node_add(n, lease_show(1), 4));
    mem_lead(&n->io, 3, node_term(n) + 1, 1, 1, 1, NULL, 0);
    hear(n, 2, late);
    CHECK_U64(n->n_told, 3);
    CHECK(n->told[0].who == 1 && n->told[0].refusal == PK_REFUSED_NOT_LEADER);
    CHECK(n->told[1].who == 2 && n->told[1].refusal == PK_REFUSED_UNKNOWN);
    CHECK(n->told[2].who == 3 && n->told[2].refusal == PK_REFUSED_NOT_LEADER);
    /* What had only been gathered is asked of the new leader. */
    CHECK(last_note(n)->kind == PK_READ_ASK);
    CHECK_U64(n->noted_to[n->n_notes - 1], 3);
    node_free(n);
}

TEST(reads__are_refused_when_the_node_ends)
{
    struct node *n = node_serving(node_new(3));
    CHECK(node_add(n, lease_show(1), 1));
    node_turn(n);
    CHECK(node_add(n, lease_show(1), 2));
    pk_turn_drain(n->turn);
    CHECK(!node_add(n, lease_show(1), 3));
    pk_turn_give_up(n->turn);
    CHECK_U64(n->n_told, 2);
    CHECK(n->told[0].refusal == PK_REFUSED_NOT_LEADER);
    CHECK(n->told[1].refusal == PK_REFUSED_NOT_LEADER);
    CHECK_U64(pk_turn_pending(n->turn), 0);
    node_free(n);
}

/* ---- rounds and notes by themselves ---- */

TEST(rounds__are_confirmed_by_majorities)
{
    static const uint64_t five[] = {1, 2, 3, 4, 5};
    struct pk_read_rounds r = {0};
    CHECK_U64(pk_read_rounds_begin(&r), 1);
    CHECK_U64(pk_read_rounds_begin(&r), 2);
    CHECK_U64(pk_read_rounds_begin(&r), 3);
    pk_read_rounds_hear(&r, 2, 1, five, 5, 1);
    CHECK_U64(r.confirmed, 0);
    pk_read_rounds_hear(&r, 2, 1, five, 5, 1); /* once is as good as twice */
    CHECK_U64(r.confirmed, 0);
    pk_read_rounds_hear(&r, 3, 3, five, 5, 1);
    CHECK_U64(r.confirmed, 1);
    pk_read_rounds_hear(&r, 4, 2, five, 5, 1);
    CHECK_U64(r.confirmed, 2);
    pk_read_rounds_hear(&r, 4, 1, five, 5, 1); /* a late one takes nothing back */
    CHECK_U64(r.confirmed, 2);
    pk_read_rounds_forget(&r);
    CHECK_U64(pk_read_rounds_begin(&r), 4);
    pk_read_rounds_hear(&r, 5, 4, five, 5, 1); /* those heard before count no more */
    CHECK_U64(r.confirmed, 2);
    pk_read_rounds_hear(&r, 2, 4, five, 5, 1);
    CHECK_U64(r.confirmed, 4);
}

/* A leader that is being removed is no voter: it needs a majority of the others. */
TEST(rounds__of_a_leader_that_is_no_voter)
{
    static const uint64_t others[] = {2, 3};
    struct pk_read_rounds r = {0};
    uint64_t round = pk_read_rounds_begin(&r);
    pk_read_rounds_hear(&r, 1, round, others, 2, 1);
    pk_read_rounds_hear(&r, 2, round, others, 2, 1);
    CHECK_U64(r.confirmed, 0);
    pk_read_rounds_hear(&r, 3, round, others, 2, 1);
    CHECK_U64(r.confirmed, round);
}

TEST(rounds__hear_any_number_of_nodes)
{
    static const uint64_t three[] = {1, 2, 3};
    struct pk_read_rounds r = {0};
    uint64_t round = pk_read_rounds_begin(&r);
    for (uint64_t id = 100; id < 100 + 2 * PK_READ_VOTERS_MAX; id++) {
        pk_read_rounds_hear(&r, id, round, three, 3, 1);
    }
    CHECK_U64(r.confirmed, 0);
}

TEST(notes__pass_through_bytes)
{
    struct pk_read_note n = {PK_READ_INDEX, 1, UINT64_MAX, 3, 4, 5};
    struct pk_read_note out;
    unsigned char bytes[PK_READ_NOTE_BYTES];
    pk_read_note_encode(&n, bytes);
    CHECK(pk_read_note_decode(bytes, sizeof bytes, &out));
    CHECK(n.kind == out.kind && n.run == out.run && n.round == out.round);
    CHECK(n.term == out.term && n.index == out.index && n.clock_ms == out.clock_ms);
    CHECK(!pk_read_note_decode(bytes, sizeof bytes - 1, &out));
    bytes[0] = 0;
    CHECK(!pk_read_note_decode(bytes, sizeof bytes, &out));
    bytes[0] = PK_READ_INDEX + 1;
    CHECK(!pk_read_note_decode(bytes, sizeof bytes, &out));
}
