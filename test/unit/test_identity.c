/* SPDX-License-Identifier: MIT */
#include "raft/identity.h"

#include "host/fd.h"
#include "statedir.h"
#include "tap.h"

static char why[5200];

static struct pk_identity named(const char *name)
{
    struct pk_identity id = {.cluster = 12, .id = pk_node_id_new()};
    (void)snprintf(id.name, sizeof id.name, "%s", name);
    return id;
}

/* A directory with an identity in it, unlocked again. */
static struct pk_identity made(const char *name)
{
    struct pk_identity id;
    bool fresh = false;
    dir_fresh();
    int lock = pk_identity_open(state, &id, &fresh, why, sizeof why);
    CHECK(lock >= 0 && fresh);
    id = named(name);
    CHECK_STR(pk_identity_create(state, &id), NULL);
    pk_fd_close(&lock);
    return id;
}

/* Opens it, wants it refused, and the sentence to have these words in it. */
static void refused_with(const char *words)
{
    struct pk_identity id;
    bool fresh;
    int lock = pk_identity_open(state, &id, &fresh, why, sizeof why);
    CHECK(lock < 0);
    if (strstr(why, words) == NULL) {
        CHECK_STR(why, words);
    }
}

static struct pk_peer peer_named(const char *name, uint64_t id)
{
    struct pk_peer p = {.id = id};
    (void)snprintf(p.name, sizeof p.name, "%s", name);
    (void)snprintf(p.client, sizeof p.client, "%s:7000", name);
    return p;
}

TEST(identity__names_are_short_and_plain)
{
    char longest[PK_NODE_NAME_MAX + 1];
    memset(longest, 'a', sizeof longest);
    longest[PK_NODE_NAME_MAX] = '\0';
    CHECK(pk_node_name_wrong(longest) != NULL);
    longest[PK_NODE_NAME_MAX - 1] = '\0';
    CHECK_STR(pk_node_name_wrong(longest), NULL);
    CHECK_STR(pk_node_name_wrong("Node-1_b.example"), NULL);
    CHECK(pk_node_name_wrong("") != NULL);
    CHECK(pk_node_name_wrong("a@b") != NULL);
    CHECK(pk_node_name_wrong("a b") != NULL);
    CHECK(pk_node_name_wrong("n\xc3\xa4") != NULL);
}

/* The consensus keeps ids in signed numbers here and there, and 0 is nobody. */
TEST(identity__ids_are_random_and_positive)
{
    uint64_t before = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t id = pk_node_id_new();
        CHECK(id != 0 && id >> 63 == 0 && id != before);
        CHECK(pk_node_id_is_valid(id));
        before = id;
    }
    CHECK(!pk_node_id_is_valid(0) && !pk_node_id_is_valid(UINT64_C(1) << 63));
}

TEST(identity__is_the_same_when_opened_again)
{
    struct pk_identity id = made("n1"), again;
    bool fresh = true;
    int lock = pk_identity_open(state, &again, &fresh, why, sizeof why);
    CHECK(lock >= 0 && !fresh);
    CHECK_U64(again.cluster, 12);
    CHECK_U64(again.id, id.id);
    CHECK_STR(again.name, "n1");
    pk_fd_close(&lock);
}

/* A node that waits to be admitted has an id and no cluster; then it gets one. */
TEST(identity__the_cluster_may_become_known_later)
{
    struct pk_identity id = made("n1"), again;
    bool fresh;
    id.cluster = 0;
    CHECK_STR(pk_identity_create(state, &id), NULL);
    int lock = pk_identity_open(state, &again, &fresh, why, sizeof why);
    CHECK(lock >= 0 && !fresh);
    CHECK_U64(again.cluster, 0);
    CHECK_U64(again.id, id.id);
    again.cluster = 13;
    CHECK_STR(pk_identity_create(state, &again), NULL);
    pk_fd_close(&lock);
    lock = pk_identity_open(state, &again, &fresh, why, sizeof why);
    CHECK(lock >= 0 && !fresh);
    CHECK_U64(again.cluster, 13);
    CHECK_U64(again.id, id.id);
    pk_fd_close(&lock);
}

TEST(identity__is_nobody_elses_to_read)
{
    struct stat st;
    (void)made("n1");
    CHECK(stat(state, &st) == 0);
    CHECK_U64(st.st_mode & 0777, 0700);
    CHECK(stat(in_state("identity"), &st) == 0);
    CHECK_U64(st.st_mode & 0777, 0600);
    CHECK(stat(in_state("lock"), &st) == 0);
    CHECK_U64(st.st_mode & 0777, 0600);
}

TEST(identity__two_processes_cant_share_a_directory)
{
    struct pk_identity id;
    bool fresh;
    char words[64];
    (void)made("n1");
    int lock = pk_identity_open(state, &id, &fresh, why, sizeof why);
    CHECK(lock >= 0);
    (void)snprintf(words, sizeof words, "in use by process %ld", (long)getpid());
    refused_with(words);
    file_write(in_state("lock"), "", 0); /* somebody's, but whose? */
    refused_with("in use by another process");
    pk_fd_close(&lock);
    lock = pk_identity_open(state, &id, &fresh, why, sizeof why);
    CHECK(lock >= 0);
    pk_fd_close(&lock);
}

/* Any one byte changed, or any number of them cut off. */
TEST(identity__damage_is_refused_and_says_what_to_do)
{
    (void)made("n1");
    struct file whole = file_read(in_state("identity"));
    for (size_t i = 0; i < whole.len; i++) {
        whole.bytes[i] ^= 0x10;
        file_write(in_state("identity"), whole.bytes, whole.len);
        refused_with("identity is damaged: replace this node");
        whole.bytes[i] ^= 0x10;
        file_write(in_state("identity"), whole.bytes, i);
        refused_with("picket cluster replace");
    }
    unsigned char longer[4096] = {0};
    memcpy(longer, whole.bytes, whole.len);
    file_write(in_state("identity"), longer, sizeof longer);
    refused_with("damaged");
    file_write(in_state("identity"), whole.bytes, whole.len);
    struct pk_identity id;
    bool fresh;
    int lock = pk_identity_open(state, &id, &fresh, why, sizeof why);
    CHECK(lock >= 0);
    pk_fd_close(&lock);
    file_drop(&whole);
}

TEST(identity__a_log_without_identity_is_no_new_node)
{
    (void)made("n1");
    CHECK(mkdir(in_state("raft"), 0700) == 0);
    CHECK(unlink(in_state("identity")) == 0);
    refused_with("its identity is gone: replace this node");
}

TEST(identity__a_directory_of_something_else_is_left_alone)
{
    dir_fresh();
    CHECK(mkdir(state, 0700) == 0);
    file_write(in_state("thesis.tex"), "x", 1);
    refused_with("not a Picket data directory");
}

TEST(identity__an_interrupted_first_start_is_a_new_node)
{
    struct pk_identity id;
    bool fresh = false;
    (void)made("n1");
    CHECK(rename(in_state("identity"), in_state("identity.new")) == 0);
    int lock = pk_identity_open(state, &id, &fresh, why, sizeof why);
    CHECK(lock >= 0 && fresh);
    pk_fd_close(&lock);
}

TEST(identity__no_parent_no_directory)
{
    struct pk_identity id;
    bool fresh;
    char path[4400];
    dir_fresh();
    (void)snprintf(path, sizeof path, "%s/missing/state", dir);
    CHECK(pk_identity_open(path, &id, &fresh, why, sizeof why) < 0);
    CHECK(strstr(why, "can't make the data directory") != NULL);
}

TEST(identity__a_full_disk_is_said_and_leaves_no_half_identity)
{
    struct pk_identity id;
    bool fresh = false;
    dir_fresh();
    int lock = pk_identity_open(state, &id, &fresh, why, sizeof why);
    CHECK(lock >= 0);
    id = named("n1");
    limit_files(5);
    const char *wrong = pk_identity_create(state, &id);
    unlimit_files();
    CHECK(wrong != NULL && strstr(wrong, "can't write") != NULL);
    CHECK(!file_exists(in_state("identity")));
    pk_fd_close(&lock);
}

/* ---- peers ---- */

static struct pk_peers peers;

static void meet(const struct pk_peer *who)
{
    pk_peers_meet(&peers, who, NULL, 0);
}

TEST(peers__are_remembered)
{
    (void)made("n1");
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    CHECK_U64(peers.count, 0);
    struct pk_peer n2 = peer_named("n2", 5), n3 = peer_named("n3", 6);
    meet(&n2);
    meet(&n3);
    meet(&n2);
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    CHECK_U64(peers.count, 2);
    const struct pk_peer *known = pk_peers_find(&peers, n3.id);
    CHECK(known != NULL);
    CHECK_STR(known->name, "n3");
    CHECK_STR(known->client, "n3:7000");
    CHECK_STR(known->http, "");
    CHECK(pk_peers_find(&peers, 7) == NULL);
}

/* The consensus knows it by its id; nobody minds that the name was another's. */
TEST(peers__a_new_node_of_an_old_name_is_another_node)
{
    (void)made("n1");
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    struct pk_peer n2 = peer_named("n2", 5), fresh = peer_named("n2", 6);
    meet(&n2);
    meet(&fresh);
    CHECK_U64(peers.count, 2);
    CHECK(pk_peers_find(&peers, 5) != NULL && pk_peers_find(&peers, 6) != NULL);
}

TEST(peers__may_move)
{
    (void)made("n1");
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    struct pk_peer n2 = peer_named("n2", 5);
    meet(&n2);
    (void)snprintf(n2.client, sizeof n2.client, "elsewhere:7000");
    (void)snprintf(n2.http, sizeof n2.http, "elsewhere:7001");
    meet(&n2);
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    CHECK_U64(peers.count, 1);
    CHECK_STR(pk_peers_find(&peers, n2.id)->client, "elsewhere:7000");
    CHECK_STR(pk_peers_find(&peers, n2.id)->http, "elsewhere:7001");
}

/* Members stay, those who are none any more make room. */
TEST(peers__are_bounded)
{
    (void)made("n1");
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    for (unsigned i = 0; i < PK_PEERS_MAX; i++) {
        char name[PK_NODE_NAME_MAX];
        memset(name, 'x', sizeof name);
        (void)snprintf(name + 40, sizeof name - 40, "%023u", i);
        struct pk_peer p = peer_named(name, (UINT64_MAX >> 1) - i);
        memset(p.client, 'c', sizeof p.client - 1);
        memset(p.http, 'h', sizeof p.http - 1);
        meet(&p);
    }
    CHECK_U64(peers.count, PK_PEERS_MAX);
    const uint64_t members[] = {peers.list[0].id, peers.list[1].id, peers.list[3].id};
    uint64_t leaves = peers.list[2].id;
    struct pk_peer more = peer_named("more", 1);
    pk_peers_meet(&peers, &more, members, 3);
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    CHECK_U64(peers.count, PK_PEERS_MAX);
    CHECK(pk_peers_find(&peers, 1) != NULL);
    CHECK(pk_peers_find(&peers, leaves) == NULL);
    for (size_t i = 0; i < 3; i++) {
        CHECK(pk_peers_find(&peers, members[i]) != NULL);
    }
}

TEST(peers__a_full_disk_costs_only_the_memory_of_them)
{
    (void)made("n1");
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    struct pk_peer n2 = peer_named("n2", 5);
    limit_files(5);
    meet(&n2);
    unlimit_files();
    CHECK(pk_peers_find(&peers, 5) != NULL);
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    CHECK_U64(peers.count, 0);
}

TEST(peers__damage_is_ignored_with_a_warning)
{
    (void)made("n1");
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    struct pk_peer n2 = peer_named("n2", 5);
    meet(&n2);
    struct file whole = file_read(in_state("peers"));
    for (size_t i = 0; i < whole.len; i++) {
        whole.bytes[i] ^= 1;
        file_write(in_state("peers"), whole.bytes, whole.len);
        const char *wrong = pk_peers_load(&peers, state);
        CHECK(wrong != NULL && strstr(wrong, "peers is damaged") != NULL);
        CHECK_U64(peers.count, 0);
        whole.bytes[i] ^= 1;
    }
    meet(&n2);
    CHECK_STR(pk_peers_load(&peers, state), NULL);
    CHECK_U64(peers.count, 1);
    file_drop(&whole);
}
