/* SPDX-License-Identifier: MIT */
/* Changes of members: each comes to its end once, whatever the raft_io tells or not. */
#include "turned.h"

static unsigned ended;
static char said[128];

static void on_done(void *ctx, const char *wrong)
{
    CHECK(ctx == &ended);
    ended++;
    snprintf(said, sizeof said, "%s", wrong == NULL ? "done" : wrong);
}

static const char *change(struct node *n, enum pk_change what, uint64_t id)
{
    ended = 0;
    said[0] = '\0';
    return pk_replica_change(n->replica, what, id, "node-4", on_done, &ended);
}

/* Begun and written, and told once. */
static void changes(struct node *n, enum pk_change what, uint64_t id)
{
    CHECK(change(n, what, id) == NULL);
    node_turn(n);
    CHECK_U64(ended, 0);
    node_settle(n);
    CHECK_U64(ended, 1);
    CHECK_STR(said, "done");
    node_turn(n);
    CHECK_U64(ended, 1);
}

static enum pk_member_role role_of(struct node *n, uint64_t id)
{
    struct pk_member members[PK_MEMBERS_MAX];
    size_t count = pk_replica_members(n->replica, members, NULL);
    for (size_t i = 0; i < count; i++) {
        if (members[i].id == id) {
            return members[i].role;
        }
    }
    FAIL("no such member");
    return PK_MEMBER_SPARE;
}

TEST(raft_members__are_those_of_the_first_configuration)
{
    struct node *n = node_serving(node_new(3));
    struct pk_member members[PK_MEMBERS_MAX];
    uint64_t progress[PK_MEMBERS_MAX];
    CHECK_U64(pk_replica_members(n->replica, members, progress), 3);
    CHECK_U64(members[1].id, 2);
    CHECK_STR(members[1].address, "node-2");
    CHECK(members[1].role == PK_MEMBER_VOTER);
    CHECK_U64(progress[1], pk_replica_standing(n->replica).last_index);
    CHECK_U64(progress[2], 0); /* never heard of */
    mem_lead(&n->io, 2, node_term(n) + 1, 1, 1, 1, NULL, 0);
    CHECK_U64(pk_replica_members(n->replica, members, progress), 3);
    CHECK_U64(progress[1], 0); /* only a leader knows */
    node_free(n);
}

TEST(raft_members__have_their_names_in_their_addresses)
{
    static const struct pk_member list[] = {{.id = 1, .address = "n1@a:1"},
                                            {.id = 2, .address = "n10@[::1]:2"},
                                            {.id = 3, .address = "nameless"}};
    char name[4];
    CHECK(pk_member_name(&list[0], name, sizeof name));
    CHECK_STR(name, "n1");
    CHECK(pk_member_name(&list[1], name, sizeof name));
    CHECK_STR(name, "n10");
    CHECK(!pk_member_name(&list[1], name, 3)); /* it would be another's when cut */
    CHECK_STR(name, "");
    CHECK(!pk_member_name(&list[2], name, sizeof name));
    CHECK_STR(pk_member_host(&list[1]), "[::1]:2");
    CHECK_STR(pk_member_host(&list[2]), "");
    CHECK(pk_member_named(list, 3, "n1") == &list[0]);
    CHECK(pk_member_named(list, 3, "n10") == &list[1]);
    CHECK(pk_member_named(list, 3, "n") == NULL);
    CHECK(pk_member_named(list, 3, "") == NULL);
}

TEST(raft_members__come_and_go)
{
    struct node *n = node_serving(node_new(1));
    changes(n, PK_CHANGE_ADD, 4);
    CHECK(role_of(n, 4) == PK_MEMBER_SPARE);
    changes(n, PK_CHANGE_STANDBY, 4);
    CHECK(role_of(n, 4) == PK_MEMBER_STANDBY);
    changes(n, PK_CHANGE_REMOVE, 4);
    struct pk_member members[PK_MEMBERS_MAX];
    CHECK_U64(pk_replica_members(n->replica, members, NULL), 1);
    node_free(n);
}

/* A standby becomes a voter when it has caught up; then it counts for the majority. */
TEST(raft_members__promote_after_catching_up)
{
    struct node *n = node_serving(node_new(1));
    changes(n, PK_CHANGE_ADD, 4);
    changes(n, PK_CHANGE_STANDBY, 4);
    CHECK(change(n, PK_CHANGE_VOTER, 4) == NULL);
    node_settle(n);
    CHECK_U64(ended, 0);
    CHECK_STR(change(n, PK_CHANGE_REMOVE, 4), "another change of members is under way");
    for (int i = 0; i < 10 && ended == 0; i++) {
        mem_ack(&n->io, 4, node_term(n), pk_replica_standing(n->replica).last_index);
        mem_finish_all(&n->io);
        node_pass(n, HEARTBEAT_MS);
    }
    CHECK_U64(ended, 1);
    CHECK_STR(said, "done");
    CHECK(role_of(n, 4) == PK_MEMBER_VOTER);
    node_free(n);
}

/* A node that never answers can't be promoted; after that others can be changed. */
TEST(raft_members__give_up_on_a_node_that_is_not_there)
{
    struct node *n = node_serving(node_new(1));
    changes(n, PK_CHANGE_ADD, 4);
    CHECK(change(n, PK_CHANGE_VOTER, 4) == NULL);
    for (int i = 0; i < 4000 && ended == 0; i++) {
        node_pass(n, HEARTBEAT_MS);
        mem_finish_all(&n->io);
    }
    CHECK_U64(ended, 1);
    CHECK_STR(said, "the node did not catch up with the log in time");
    CHECK(role_of(n, 4) == PK_MEMBER_SPARE);
    changes(n, PK_CHANGE_REMOVE, 4);
    node_free(n);
}

TEST(raft_members__tell_when_leadership_is_lost)
{
    struct node *n = node_serving(node_new(3));
    CHECK(change(n, PK_CHANGE_ADD, 4) == NULL);
    node_pass(n, 3 * MEM_ELECTION_MS);
    CHECK_U64(ended, 1);
    CHECK_STR(said, "leadership was lost; the change may still happen");
    node_free(n);
}

TEST(raft_members__tell_when_the_node_closes)
{
    struct node *n = node_serving(node_new(3));
    CHECK(change(n, PK_CHANGE_ADD, 4) == NULL);
    node_free(n);
    CHECK_U64(ended, 1);
    CHECK_STR(said, "this node is closing; the change may still happen");
}

TEST(raft_members__refuse_in_words)
{
    struct node *n = node_new(3);
    CHECK(node_start(n) == NULL);
    CHECK_STR(change(n, PK_CHANGE_ADD, 4), "this node is not the leader");
    CHECK_STR(pk_replica_transfer(n->replica, 2), "this node is not the leader");
    node_free(n);

    n = node_serving(node_new(3));
    static const struct {
        enum pk_change what;
        uint64_t id;
        const char *why;
    } cases[] = {
        {PK_CHANGE_ADD, 2, "there is a member with this id or address"},
        {PK_CHANGE_ADD, 0, "a member needs an id and an address of at most 127 bytes"},
        {PK_CHANGE_VOTER, 2, "this member is a voter already"},
        {PK_CHANGE_VOTER, 9, "there is no such member"},
        {PK_CHANGE_REMOVE, 9, "there is no such member"},
        {PK_CHANGE_REMOVE, 1, "this node is the leader: hand over leadership first"},
        {PK_CHANGE_STANDBY, 1, "this node is the leader: hand over leadership first"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_STR(change(n, cases[i].what, cases[i].id), cases[i].why);
    }
    CHECK_STR(pk_replica_transfer(n->replica, 1),
              "leadership can only go to another voter");
    CHECK(pk_replica_transfer(n->replica, 2) == NULL);
    CHECK_STR(change(n, PK_CHANGE_ADD, 4), "leadership is being handed over");
    CHECK_U64(ended, 0);
    node_free(n);

    n = node_serving(node_new(1));
    CHECK_STR(pk_replica_transfer(n->replica, 0), "there is no other voter");
    node_free(n);
}

TEST(raft_members__are_at_most_sixteen)
{
    struct node *n = node_serving(node_new(1));
    for (uint64_t id = 2; id <= PK_MEMBERS_MAX; id++) {
        char address[16];
        snprintf(address, sizeof address, "many-%llu", (unsigned long long)id);
        CHECK(pk_replica_change(n->replica, PK_CHANGE_ADD, id, address, on_done,
                                &ended) == NULL);
        node_settle(n);
    }
    CHECK_STR(change(n, PK_CHANGE_ADD, 99), "a cluster has at most 16 members");
    node_free(n);
}
