/* SPDX-License-Identifier: MIT */
/* Whole nodes, with files and sockets: they find each other, come back, and don't come
 * back when they must not. */
#include "nodes.h"

static void cluster_is_calm(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CHECK_U64(pk_uvio_counts(nodes[i].uvio).frames_refused, 0);
        CHECK_U64(nodes[i].refusals, 0);
    }
}

/* Ends node `i` and opens it again at the same address. */
static void reopen(size_t i)
{
    char name[8];
    uint16_t port = pk_uvio_port(nodes[i].uvio);
    node_end(&nodes[i]);
    (void)snprintf(name, sizeof name, "n%zu", i + 1);
    node_open(&nodes[i], name, "127.0.0.1", port);
}

TEST(uvio__three_nodes_elect_a_leader_and_commit)
{
    nodes_fresh();
    cluster_start(3);
    commit(10);
    commit(65536);
    CHECK_U64(leader()->peers.count, 2);
    CHECK(pk_uvio_counts(leader()->uvio).handshakes >= 4);
    for (size_t i = 0; i < leader()->peers.count; i++) {
        uint64_t peer = leader()->peers.list[i].id;
        CHECK(pk_uvio_silence_ms(leader()->uvio, peer) != UINT64_MAX);
    }
    CHECK_U64(pk_uvio_silence_ms(leader()->uvio, 1), UINT64_MAX); /* nobody's id */
    cluster_is_calm(3);
    nodes_end();
}

static bool has_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6,
                              .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return has;
}

TEST(uvio__addresses_may_be_names_and_ipv6)
{
    static const char *const hosts[] = {"localhost", "[::1]"};
    for (size_t i = 0; i < (has_ipv6() ? 2 : 1); i++) {
        nodes_fresh();
        cluster_start_at(hosts[i], 2);
        commit(10);
        cluster_is_calm(2);
        nodes_end();
    }
}

/* Enough in flight that messages come in many pieces and several at a time. */
TEST(uvio__much_at_once_arrives_whole)
{
    nodes_fresh();
    cluster_start(3);
    commit(10);
    static char value[60000];
    struct pk_command c = {.verb = PK_FENCE_SET, .name = pk_text("r"), .token = 1};
    struct node *l = leader();
    uint64_t expected = l->applied;
    for (unsigned i = 0; i < 60; i++) {
        memset(value, 'a' + (int)(i % 26), sizeof value);
        c.value = pk_bytes(value, (i * 997) % sizeof value);
        struct pk_entry e = {.kind = PK_ENTRY_COMMANDS, .count = 1, .batch = i};
        size_t body = pk_command_size(&c);
        (void)pk_command_encode(&c, pk_replica_room(l->replica, body));
        CHECK(pk_replica_propose(l->replica, &e, body) == PK_PROPOSED);
        expected++;
    }
    run_until(all_have, &expected);
    uint64_t digest = pk_machine_digest(pk_replica_machine(nodes[0].replica));
    for (size_t i = 1; i < 3; i++) {
        CHECK_U64(pk_machine_digest(pk_replica_machine(nodes[i].replica)), digest);
    }
    cluster_is_calm(3);
    nodes_end();
}

TEST(uvio__a_node_comes_back_with_its_data)
{
    nodes_fresh();
    cluster_start(3);
    for (int i = 0; i < 5; i++) {
        commit(100);
    }
    for (size_t i = 0; i < 3; i++) {
        uint64_t before = nodes[i].applied;
        reopen(i);
        CHECK_STR(node_start(&nodes[i], NULL, 0), NULL);
        run_until(all_have, &before);
        commit(100);
    }
    cluster_is_calm(3);
    nodes_end();
}

/* The end of a load on another thread. */
struct load {
    unsigned calls;
    const char *wrong;
};

static void on_loaded(void *ctx, const char *wrong)
{
    struct load *l = ctx;
    l->calls++;
    l->wrong = wrong;
}

static bool is_loaded(void *ctx)
{
    return ((const struct load *)ctx)->calls > 0;
}

static struct load load_elsewhere(struct node *n)
{
    struct load l = {0};
    pk_uvio_load(n->uvio, on_loaded, &l);
    run_until(is_loaded, &l);
    CHECK_U64(l.calls, 1);
    return l;
}

TEST(uvio__a_log_is_loaded_elsewhere)
{
    nodes_fresh();
    cluster_start(1);
    for (int i = 0; i < 5; i++) {
        commit(100);
    }
    uint64_t before = nodes[0].applied;
    reopen(0);
    CHECK_STR(load_elsewhere(&nodes[0]).wrong, NULL);
    reopen(0); /* what was loaded goes unused */
    CHECK_STR(load_elsewhere(&nodes[0]).wrong, NULL);
    CHECK(pk_uvio_use(nodes[0].uvio).bytes > 0);
    CHECK_STR(node_start(&nodes[0], NULL, 0), NULL);
    run_until(all_have, &before);
    commit(100);
    nodes_end();
}

static bool is_caught_up(void *ctx)
{
    struct node *n = ctx;
    return n->replaced > 0 && leader() != NULL &&
           pk_replica_standing(n->replica).applied_index ==
               pk_replica_standing(leader()->replica).applied_index;
}

/* InstallSnapshot passes between libraft and libraft, configuration and all. */
TEST(uvio__a_node_that_was_away_too_long_gets_a_snapshot)
{
    nodes_fresh();
    snapshot_entries = 16;
    cluster_start(3);
    commit(100);
    size_t away = leader() == &nodes[0] ? 1 : 0;
    uint16_t port = pk_uvio_port(nodes[away].uvio);
    node_end(&nodes[away]);
    for (size_t i = 0; i < 100; i++) {
        commit(65536 - i);
    }
    node_open(&nodes[away], away == 0 ? "n1" : "n2", "127.0.0.1", port);
    CHECK_STR(node_start(&nodes[away], NULL, 0), NULL);
    run_until(is_caught_up, &nodes[away]);
    CHECK_U64(pk_machine_digest(pk_replica_machine(nodes[away].replica)),
              pk_machine_digest(pk_replica_machine(leader()->replica)));
    cluster_is_calm(3);
    nodes_end();
}

static bool is_leader(void *n)
{
    return pk_replica_standing(((struct node *)n)->replica).leader;
}

/* TimeoutNow passes too. */
TEST(uvio__leadership_can_be_handed_over)
{
    nodes_fresh();
    cluster_start(3);
    commit(10);
    struct node *heir = leader() == &nodes[0] ? &nodes[1] : &nodes[0];
    CHECK_STR(pk_replica_transfer(leader()->replica, heir->self.id), NULL);
    run_until(is_leader, heir);
    commit(10);
    cluster_is_calm(3);
    nodes_end();
}

static bool is_told(void *n)
{
    return strstr(((struct node *)n)->why, "it was replaced or wiped") != NULL;
}

/* P3: its vote and what it acknowledged are gone, so it must not take part as the member
 * that it was. */
TEST(uvio__a_wiped_node_is_another_node)
{
    nodes_fresh();
    cluster_start(3);
    commit(100);
    size_t victim = leader() == &nodes[0] ? 1 : 0;
    const char *name = victim == 0 ? "n1" : "n2";
    uint16_t port = pk_uvio_port(nodes[victim].uvio);
    node_end(&nodes[victim]);
    CHECK(rename(in_state(name), in_state("gone")) == 0);
    struct node *n = &nodes[victim];
    node_open(n, name, "127.0.0.1", port);
    n->self.id = pk_node_id_new(); /* as every new directory has */
    struct pk_member alone = {.id = n->self.id};
    (void)snprintf(alone.address, sizeof alone.address, "%s", n->address);
    CHECK_STR(node_start(n, &alone, 1), NULL);
    run_until(is_told, leader());
    CHECK_U64(n->applied, 0);
    node_end(n);
    commit(100); /* the other two go on */
    nodes_end();
}

enum { BLOCK = 4096, STAMP = 500 }; /* of the log's format: src/raft/README.md */

/* The beginning of the last batch in a segment, whose batches have one block each. */
static size_t last_batch(const struct file *f)
{
    size_t at = 0;
    for (size_t i = 0; i < f->len; i += BLOCK) {
        at = pk_get_u64(f->bytes + i + STAMP) != 0 ? i : at;
    }
    CHECK(at > 0);
    return at;
}

static void start_is_refused(const char *path, const char *words)
{
    const char *wrong = node_start(&nodes[0], NULL, 0);
    CHECK(wrong != NULL);
    printf("# %s\n", wrong);
    CHECK(strstr(wrong, words) != NULL);
    CHECK(strstr(wrong, "replace this node: start it with an empty directory") != NULL);
    CHECK(file_exists(path)); /* not put aside */
    nodes_end();
}

/* To go on without what was in it would lose what was acknowledged (P3). */
static void damage_is_refused(bool last, bool cut, const char *words)
{
    char path[5000];
    nodes_fresh();
    cluster_start(1);
    for (int i = 0; i < 20; i++) {
        commit(1000);
    }
    reopen(0);
    (void)snprintf(path, sizeof path, "%s/raft/log-000", nodes[0].dir);
    struct file f = file_read(path);
    size_t at = last ? last_batch(&f) : last_batch(&f) / 2;
    f.bytes[at + 100] ^= 1;
    file_write(path, f.bytes, cut ? at : f.len);
    file_drop(&f);
    struct load l = load_elsewhere(&nodes[0]);
    CHECK(l.wrong != NULL && strstr(l.wrong, words) != NULL);
    reopen(0);
    start_is_refused(path, words);
}

TEST(uvio__a_damaged_log_is_refused_and_says_what_to_do)
{
    damage_is_refused(false, false, "raft/log-000 is damaged at offset");
    damage_is_refused(true, false, "raft/log-000 is damaged at offset");
    damage_is_refused(true, true, "bytes instead of");
}

/* The identity is there, but the votes are not. */
TEST(uvio__a_log_that_is_gone_is_refused_and_says_what_to_do)
{
    nodes_fresh();
    cluster_start(1);
    commit(10);
    uint16_t port = pk_uvio_port(nodes[0].uvio);
    node_end(&nodes[0]);
    CHECK(rename(in_state("n1/raft"), in_state("n1-raft")) == 0);
    struct node *n = &nodes[0];
    CHECK(!node_opens(n, "n1", "127.0.0.1", port));
    printf("# %s\n", n->why);
    CHECK(strstr(n->why, "raft/meta is gone; replace this node") != NULL);
    CHECK(rmdir(in_state("n1/raft")) == 0);
    CHECK(rename(in_state("n1-raft"), in_state("n1/raft")) == 0);
    node_open(n, "n1", "127.0.0.1", port);
    CHECK_STR(node_start(n, NULL, 0), NULL);
    commit(10);
    nodes_end();
}

/* One of its two slots may be damaged, but not both. */
TEST(uvio__damaged_metadata_is_refused_and_says_what_to_do)
{
    char path[5000];
    nodes_fresh();
    cluster_start(1);
    commit(10);
    uint16_t port = pk_uvio_port(nodes[0].uvio);
    (void)snprintf(path, sizeof path, "%s/raft/meta", nodes[0].dir);
    node_end(&nodes[0]);
    struct file f = file_read(path);
    f.bytes[40] ^= 1;
    file_write(path, f.bytes, f.len);
    node_open(&nodes[0], "n1", "127.0.0.1", port); /* writes it anew */
    node_end(&nodes[0]);
    file_drop(&f);
    f = file_read(path);
    CHECK(memcmp(f.bytes, f.bytes + f.len / 2, f.len / 2) == 0);
    f.bytes[40] ^= 1;
    f.bytes[f.len / 2 + 40] ^= 1;
    file_write(path, f.bytes, f.len);
    file_drop(&f);
    CHECK(!node_opens(&nodes[0], "n1", "127.0.0.1", port));
    printf("# %s\n", nodes[0].why);
    CHECK(strstr(nodes[0].why, "raft/meta is damaged; replace this node") != NULL);
    nodes_end();
}

TEST(uvio__its_files_are_nobody_elses_to_read)
{
    struct stat st;
    char path[5000];
    nodes_fresh();
    cluster_start(1);
    commit(10);
    (void)snprintf(path, sizeof path, "%s/raft", nodes[0].dir);
    CHECK(stat(path, &st) == 0);
    CHECK_U64(st.st_mode & 0777, 0700);
    nodes_end();
}
