/* SPDX-License-Identifier: MIT */
/* raft/guard.h around a raft_io that only writes down what reaches it. */
#include <raft.h>

#include "core/door.h"
#include "raft/guard.h"
#include "tap.h"

static struct {
    struct raft raft;
    struct raft_io io;
    struct pk_raft_guard *guard;
    /* What came through to the library, or to the raft_io. */
    unsigned received;
    struct raft_message message;
    raft_io_recv_cb receive;
    struct raft_io_snapshot_get *get;
    raft_io_snapshot_get_cb get_cb;
    struct raft_io_snapshot_get *got;
    struct raft_snapshot *got_snapshot;
    int got_status, get_refusal;
    raft_index put_index; /* of the configuration in a snapshot to be written */
    unsigned put_members;
    int own_role; /* of this node, when a message came through */
} w;

static int io_start(struct raft_io *io, unsigned msecs, raft_io_tick_cb tick,
                    raft_io_recv_cb receive)
{
    (void)tick;
    CHECK(io == &w.io);
    CHECK_U64(msecs, 30);
    w.receive = receive;
    return 0;
}

static int io_send(struct raft_io *io, struct raft_io_send *req,
                   const struct raft_message *m, raft_io_send_cb cb)
{
    (void)io;
    (void)req;
    (void)cb;
    w.message = *m;
    return 0;
}

static int io_snapshot_get(struct raft_io *io, struct raft_io_snapshot_get *req,
                           raft_io_snapshot_get_cb cb)
{
    (void)io;
    w.get = req;
    w.get_cb = cb;
    return w.get_refusal;
}

static int io_snapshot_put(struct raft_io *io, unsigned trailing,
                           struct raft_io_snapshot_put *req,
                           const struct raft_snapshot *snapshot,
                           raft_io_snapshot_put_cb cb)
{
    (void)io;
    (void)trailing;
    (void)req;
    (void)cb;
    w.put_index = snapshot->configuration_index;
    w.put_members = snapshot->configuration.n;
    return 0;
}

static void library_receives(struct raft_io *io, struct raft_message *m)
{
    CHECK(io == &w.io);
    w.received++;
    w.message = *m;
    if (w.raft.configuration.servers != NULL) {
        w.own_role = w.raft.configuration.servers[1].role;
    }
}

static void library_ticks(struct raft_io *io)
{
    (void)io;
}

static void library_gets(struct raft_io_snapshot_get *req, struct raft_snapshot *s,
                         int status)
{
    w.got = req;
    w.got_snapshot = s;
    w.got_status = status;
}

static void guard(struct pk_raft_guard_switches off)
{
    memset(&w, 0, sizeof w);
    w.io = (struct raft_io){.version = 1,
                            .start = io_start,
                            .send = io_send,
                            .snapshot_get = io_snapshot_get,
                            .snapshot_put = io_snapshot_put,
                            .data = &w.raft}; /* which raft_init does */
    w.guard = pk_raft_guard_install(&w.io, &w.raft, off);
    CHECK_U64(w.io.start(&w.io, 30, library_ticks, library_receives), 0);
}

static void finish(void)
{
    pk_raft_guard_free(w.guard);
    CHECK(w.io.start == io_start && w.io.send == io_send);
    CHECK(w.io.snapshot_get == io_snapshot_get);
}

/* ---- G1 ---- */

/* With everything that the receiver has to free. */
static struct raft_message install_snapshot(void)
{
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
    raft_configuration_init(&m.install_snapshot.conf);
    CHECK_U64(raft_configuration_add(&m.install_snapshot.conf, 1, "a", RAFT_VOTER), 0);
    m.install_snapshot.data = (struct raft_buffer){raft_malloc(8), 8};
    return m;
}

static void free_snapshot(struct raft_message *m)
{
    raft_configuration_close(&m->install_snapshot.conf);
    raft_free(m->install_snapshot.data.base);
}

TEST(raft_guard__g1_drops_a_snapshot_while_one_is_written)
{
    guard((struct pk_raft_guard_switches){0});
    w.raft.legacy.snapshot_taking = true;
    struct raft_message m = install_snapshot();
    w.receive(&w.io, &m); /* the leak checker sees whether its memory was freed */
    CHECK_U64(w.received, 0);
    CHECK_U64(pk_raft_guard_counts(w.guard).g1, 1);
    finish();
}

TEST(raft_guard__g1_lets_a_snapshot_in_at_other_times)
{
    guard((struct pk_raft_guard_switches){0});
    struct raft_message m = install_snapshot();
    w.receive(&w.io, &m);
    CHECK_U64(w.received, 1);
    CHECK_U64(pk_raft_guard_counts(w.guard).g1, 0);
    free_snapshot(&m);
    finish();
}

TEST(raft_guard__g1_stops_nothing_else)
{
    guard((struct pk_raft_guard_switches){0});
    w.raft.legacy.snapshot_taking = true;
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    w.receive(&w.io, &m);
    CHECK_U64(w.received, 1);
    finish();
}

TEST(raft_guard__g1_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g1 = true});
    w.raft.legacy.snapshot_taking = true;
    struct raft_message m = install_snapshot();
    w.receive(&w.io, &m);
    CHECK_U64(w.received, 1);
    free_snapshot(&m);
    finish();
}

/* ---- G2 ---- */

/* The leader_commit that reaches the library of a node that has committed up to 100. */
static uint64_t commit_after(raft_index prev, unsigned n, raft_index leader_commit)
{
    static struct raft_entry commands[16]; /* of type 0: what they are does not matter */
    CHECK(n <= 16);
    w.raft.commit_index = 100;
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES,
                             .append_entries = {.prev_log_index = prev,
                                                .entries = commands,
                                                .n_entries = n,
                                                .leader_commit = leader_commit}};
    w.receive(&w.io, &m);
    return w.message.append_entries.leader_commit;
}

TEST(raft_guard__g2_keeps_the_commit_index_from_going_back)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK_U64(commit_after(90, 5, 120), 100);
    CHECK_U64(commit_after(0, 0, 101), 100);
    CHECK_U64(pk_raft_guard_counts(w.guard).g2, 2);
    CHECK_U64(w.received, 2);
    finish();
}

TEST(raft_guard__g2_leaves_sound_messages_alone)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK_U64(commit_after(95, 5, 120), 120); /* ends where we have committed */
    CHECK_U64(commit_after(100, 7, 120), 120);
    CHECK_U64(commit_after(90, 5, 100), 100);
    CHECK_U64(commit_after(90, 5, 80), 80);
    CHECK_U64(pk_raft_guard_counts(w.guard).g2, 0);
    finish();
}

TEST(raft_guard__g2_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g2 = true});
    CHECK_U64(commit_after(90, 5, 120), 120);
    finish();
}

/* ---- G3 ---- */

static void load_snapshot(raft_index index, raft_term term)
{
    struct raft_snapshot s = {.index = index, .term = term};
    struct raft_io_snapshot_get req = {0};
    CHECK_U64(w.io.snapshot_get(&w.io, &req, library_gets), 0);
    w.get_cb(w.get, &s, 0);
    CHECK(w.got == &req && w.got_snapshot == &s);
    CHECK_U64(w.got_status, 0);
}

static struct raft_server member = {.id = 7, .address = (char *)"n7@h:1"};

/* The last_term that is sent when the library says `term`. */
static uint64_t term_after(raft_index index, raft_term term)
{
    struct raft_message m = {
        .type = RAFT_INSTALL_SNAPSHOT,
        .server_id = member.id,
        .server_address = member.address,
        .install_snapshot = {.last_index = index, .last_term = term}};
    struct raft_io_send req = {0};
    w.raft.configuration = (struct raft_configuration){.servers = &member, .n = 1};
    CHECK_U64(w.io.send(&w.io, &req, &m, NULL), 0);
    CHECK_U64(m.install_snapshot.last_term, term); /* the library's own stays as it is */
    CHECK_U64(w.message.install_snapshot.last_index, index);
    return w.message.install_snapshot.last_term;
}

TEST(raft_guard__g3_sends_a_snapshot_with_its_own_term)
{
    guard((struct pk_raft_guard_switches){0});
    load_snapshot(50, 3);
    load_snapshot(80, 4);
    CHECK_U64(term_after(80, 3), 4);
    CHECK_U64(pk_raft_guard_counts(w.guard).g3, 1);
    CHECK_U64(term_after(50, 3), 3);
    CHECK_U64(term_after(70, 3), 3); /* never loaded: nothing is known of it */
    CHECK_U64(pk_raft_guard_counts(w.guard).g3, 1);
    finish();
}

TEST(raft_guard__g3_remembers_the_last_ones)
{
    guard((struct pk_raft_guard_switches){0});
    for (raft_index i = 1; i <= 40; i++) {
        load_snapshot(i * 10, i);
    }
    CHECK_U64(term_after(400, 1), 40);
    CHECK_U64(term_after(250, 1), 25);
    CHECK_U64(term_after(10, 7), 7);
    finish();
}

TEST(raft_guard__g3_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g3 = true});
    load_snapshot(80, 4);
    CHECK_U64(term_after(80, 3), 3);
    finish();
}

/* A load that fails is passed on and teaches nothing; one that can't begin leaves
 * nothing behind, nor does one that never ends. */
TEST(raft_guard__g3_survives_loads_that_fail)
{
    guard((struct pk_raft_guard_switches){0});
    struct raft_io_snapshot_get req = {0};
    CHECK_U64(w.io.snapshot_get(&w.io, &req, library_gets), 0);
    w.get_cb(w.get, NULL, RAFT_IOERR);
    CHECK_U64(w.got_status, RAFT_IOERR);
    w.get_refusal = RAFT_NOMEM;
    CHECK_U64(w.io.snapshot_get(&w.io, &req, library_gets), RAFT_NOMEM);
    w.get_refusal = 0;
    CHECK_U64(w.io.snapshot_get(&w.io, &req, library_gets), 0);
    finish();
}

/* Other messages go out as they are. */
TEST(raft_guard__g3_sends_the_rest_untouched)
{
    guard((struct pk_raft_guard_switches){0});
    load_snapshot(80, 4);
    struct raft_message m = {.type = RAFT_TIMEOUT_NOW,
                             .timeout_now = {.term = 3, .last_log_index = 80}};
    struct raft_io_send req = {0};
    CHECK_U64(w.io.send(&w.io, &req, &m, NULL), 0);
    CHECK_U64(w.message.timeout_now.term, 3);
    finish();
}

/* ---- G4 ---- */

/* How many entries of a message reach the library; 'c' is a configuration. */
static unsigned entries_after(const char *types)
{
    struct raft_entry entries[8] = {{0}};
    unsigned n = (unsigned)strlen(types);
    for (unsigned i = 0; i < n; i++) {
        entries[i].type = types[i] == 'c' ? RAFT_CHANGE : RAFT_COMMAND;
    }
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES,
                             .append_entries = {.entries = entries, .n_entries = n}};
    w.receive(&w.io, &m);
    return w.message.append_entries.n_entries;
}

TEST(raft_guard__g4_cuts_a_message_before_a_configuration)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK_U64(entries_after(".c"), 1);
    CHECK_U64(entries_after("...c.c."), 3);
    CHECK_U64(entries_after("cc"), 1); /* as the first it does no harm */
    CHECK_U64(entries_after("c..c"), 3);
    CHECK_U64(pk_raft_guard_counts(w.guard).g4, 4);
    CHECK_U64(w.received, 4);
    finish();
}

TEST(raft_guard__g4_leaves_sound_messages_alone)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK_U64(entries_after(""), 0);
    CHECK_U64(entries_after("c"), 1);
    CHECK_U64(entries_after("c...."), 5);
    CHECK_U64(entries_after("....."), 5);
    CHECK_U64(pk_raft_guard_counts(w.guard).g4, 0);
    finish();
}

TEST(raft_guard__g4_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g4 = true});
    CHECK_U64(entries_after(".c"), 2);
    finish();
}

/* ---- G5 ---- */

TEST(raft_guard__g5_drops_votes_after_the_election)
{
    const unsigned short states[] = {RAFT_FOLLOWER, RAFT_LEADER, RAFT_UNAVAILABLE};
    guard((struct pk_raft_guard_switches){0});
    struct raft_message m = {.type = RAFT_REQUEST_VOTE_RESULT};
    for (unsigned i = 0; i < 3; i++) {
        w.raft.state = states[i];
        w.receive(&w.io, &m);
        CHECK_U64(w.received, 0);
        CHECK_U64(pk_raft_guard_counts(w.guard).g5, i + 1);
    }
    finish();
}

TEST(raft_guard__g5_leaves_the_rest_alone)
{
    guard((struct pk_raft_guard_switches){0});
    struct raft_message vote = {.type = RAFT_REQUEST_VOTE_RESULT};
    w.raft.state = RAFT_CANDIDATE;
    w.receive(&w.io, &vote);
    CHECK_U64(w.received, 1);
    struct raft_message request = {.type = RAFT_REQUEST_VOTE};
    w.raft.state = RAFT_FOLLOWER;
    w.receive(&w.io, &request);
    CHECK_U64(w.received, 2);
    CHECK_U64(pk_raft_guard_counts(w.guard).g5, 0);
    finish();
}

TEST(raft_guard__g5_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g5 = true});
    struct raft_message m = {.type = RAFT_REQUEST_VOTE_RESULT};
    w.raft.state = RAFT_FOLLOWER;
    w.receive(&w.io, &m);
    CHECK_U64(w.received, 1);
    finish();
}

/* ---- G6 ---- */

/* The term in the answer to a pre-vote, of a node that is in term 4. */
static raft_term term_sent(raft_term term, bool granted)
{
    struct raft_io_send req;
    struct raft_message m = {.type = RAFT_REQUEST_VOTE_RESULT};
    m.request_vote_result.term = term;
    m.request_vote_result.vote_granted = granted;
    m.request_vote_result.pre_vote = true;
    w.raft.current_term = 4;
    CHECK_U64(w.io.send(&w.io, &req, &m, NULL), 0);
    CHECK(w.message.request_vote_result.vote_granted == granted);
    return w.message.request_vote_result.term;
}

TEST(raft_guard__g6_tells_who_is_refused_the_term)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK_U64(term_sent(3, false), 4);
    CHECK_U64(pk_raft_guard_counts(w.guard).g6, 1);
    finish();
}

TEST(raft_guard__g6_leaves_other_answers_alone)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK_U64(term_sent(5, false), 5);
    CHECK_U64(term_sent(4, false), 4);
    CHECK_U64(term_sent(5, true), 5);
    CHECK_U64(pk_raft_guard_counts(w.guard).g6, 0);
    finish();
}

TEST(raft_guard__g6_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g6 = true});
    CHECK_U64(term_sent(3, false), 3);
    finish();
}

/* ---- G7 ---- */

/* Writes a snapshot of index 35 with the configuration of index 1, which has one member,
 * while the library has one of two members at `newer`, which it calls uncommitted. */
static void put_snapshot(raft_index newer, unsigned trailing)
{
    struct raft_io_snapshot_put req;
    struct raft_snapshot s = {.index = 35, .configuration_index = 1};
    s.configuration.n = 1;
    w.raft.configuration.n = 2;
    w.raft.configuration_uncommitted_index = newer;
    CHECK_U64(w.io.snapshot_put(&w.io, trailing, &req, &s, NULL), 0);
    CHECK_U64(s.configuration.n, 1); /* the library has its own back */
    CHECK_U64(s.configuration_index, 1);
}

TEST(raft_guard__g7_writes_a_snapshot_with_its_own_configuration)
{
    guard((struct pk_raft_guard_switches){0});
    put_snapshot(35, 16);
    CHECK_U64(w.put_index, 35);
    CHECK_U64(w.put_members, 2);
    put_snapshot(32, 16);
    CHECK_U64(w.put_index, 32);
    CHECK_U64(pk_raft_guard_counts(w.guard).g7, 2);
    finish();
}

TEST(raft_guard__g7_leaves_sound_snapshots_alone)
{
    const raft_index newer[] = {0, 1, 36};
    guard((struct pk_raft_guard_switches){0});
    for (unsigned i = 0; i < 3; i++) {
        put_snapshot(newer[i], 16);
        CHECK_U64(w.put_index, 1);
        CHECK_U64(w.put_members, 1);
    }
    put_snapshot(32, 0); /* one that was received */
    CHECK_U64(w.put_index, 1);
    CHECK_U64(pk_raft_guard_counts(w.guard).g7, 0);
    finish();
}

TEST(raft_guard__g7_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g7 = true});
    put_snapshot(32, 16);
    CHECK_U64(w.put_index, 1);
    finish();
}

/* ---- G8 ---- */

enum { ELECTION_MS = 300, NOW_MS = 5000 };

static raft_time io_time(struct raft_io *io)
{
    (void)io;
    return NOW_MS;
}

/* Asks node 2 for its vote, which it has if `role` says so, and which has heard of a
 * leader `ms` ago. Returns whether it can grant the vote. */
static bool can_vote(int role, unsigned ms, enum raft_message_type type)
{
    struct raft_message m = {.type = (unsigned short)type};
    struct raft_server servers[2] = {{.id = 1, .role = RAFT_VOTER},
                                     {.id = 2, .role = role}};
    w.raft.id = 2;
    w.raft.election_timeout = ELECTION_MS;
    w.raft.election_timer_start = NOW_MS - ms;
    w.raft.configuration.servers = servers;
    w.raft.configuration.n = 2;
    w.io.time = io_time;
    unsigned before = w.received;
    w.receive(&w.io, &m);
    w.raft.configuration.servers = NULL;
    CHECK_U64(w.received, before + 1);
    CHECK(servers[1].role == role && servers[0].role == RAFT_VOTER); /* as it was */
    return w.own_role == RAFT_VOTER && w.message.request_vote.disrupt_leader;
}

TEST(raft_guard__g8_lets_a_node_vote_that_does_not_know_that_it_may)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK(can_vote(RAFT_STANDBY, ELECTION_MS, RAFT_REQUEST_VOTE));
    CHECK(can_vote(RAFT_SPARE, NOW_MS, RAFT_REQUEST_VOTE));
    CHECK_U64(pk_raft_guard_counts(w.guard).g8, 2);
    finish();
}

TEST(raft_guard__g8_leaves_the_rest_alone)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK(!can_vote(RAFT_STANDBY, ELECTION_MS - 1, RAFT_REQUEST_VOTE)); /* has a leader */
    CHECK(
        !can_vote(RAFT_VOTER, ELECTION_MS, RAFT_REQUEST_VOTE)); /* the library does it */
    CHECK(!can_vote(RAFT_STANDBY, ELECTION_MS, RAFT_TIMEOUT_NOW));
    CHECK_U64(pk_raft_guard_counts(w.guard).g8, 0);
    finish();
}

TEST(raft_guard__g8_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g8 = true});
    CHECK(!can_vote(RAFT_STANDBY, ELECTION_MS, RAFT_REQUEST_VOTE));
    finish();
}

/* ---- G9 ---- */

/* Whether the library gets a snapshot of that term, in term 5. */
static bool gets_snapshot_of(raft_term term)
{
    unsigned before = w.received;
    struct raft_message m = install_snapshot();
    w.raft.current_term = 5;
    m.install_snapshot.term = term;
    w.receive(&w.io, &m);
    if (w.received > before) {
        free_snapshot(&m);
    }
    return w.received > before;
}

/* The library would answer it with memory that nobody has set. */
TEST(raft_guard__g9_drops_a_snapshot_of_an_older_term)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK(!gets_snapshot_of(4));
    CHECK_U64(pk_raft_guard_counts(w.guard).g9, 1);
    CHECK(gets_snapshot_of(5));
    CHECK(gets_snapshot_of(6));
    CHECK_U64(pk_raft_guard_counts(w.guard).g9, 1);
    finish();
}

TEST(raft_guard__g9_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g9 = true});
    CHECK(gets_snapshot_of(4));
    finish();
}

/* ---- G10 ---- */

static int sent_status;

static void on_sent(struct raft_io_send *req, int status)
{
    (void)req;
    sent_status = status;
}

/* To which address a snapshot for that node goes; NULL: it does not go out. The library
 * has an address that must not be read. */
static const char *address_after(raft_id id)
{
    struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT,
                             .server_id = id,
                             .server_address = (const char *)(uintptr_t)1};
    struct raft_io_send req = {0};
    w.message = (struct raft_message){0};
    w.raft.configuration = (struct raft_configuration){.servers = &member, .n = 1};
    sent_status = 0;
    CHECK_U64(w.io.send(&w.io, &req, &m, on_sent), 0);
    return w.message.server_address;
}

TEST(raft_guard__g10_sends_a_snapshot_to_the_address_of_now)
{
    guard((struct pk_raft_guard_switches){0});
    CHECK(address_after(member.id) == member.address);
    CHECK_U64(sent_status, 0);
    CHECK_U64(pk_raft_guard_counts(w.guard).g10, 1);
    CHECK(address_after(8) == NULL); /* it has been removed */
    CHECK_U64(sent_status, RAFT_CANCELED);
    finish();
}

TEST(raft_guard__g10_can_be_switched_off)
{
    guard((struct pk_raft_guard_switches){.no_g10 = true});
    CHECK(address_after(8) == (const char *)(uintptr_t)1);
    finish();
}
