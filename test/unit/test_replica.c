/* SPDX-License-Identifier: MIT */
/* What a replica keeps: over restarts, snapshots, backups, and against its own log. */
#include "core/version.h"
#include "core/wire.h"
#include "host/version.h"
#include "raft/inside.h"
#include "turned.h"

static struct pk_machine *machine(struct node *n)
{
    return pk_replica_machine(n->replica);
}

/* Holds `name`, with a new lease; returns the token. */
static uint64_t hold(struct node *n, const char *name)
{
    struct told opened = node_ask(n, lease_open(60000));
    struct told held = node_ask(n, lock_try(opened.lease, name));
    CHECK(held.status == PK_OK && held.token > 0);
    return held.token;
}

static void restart(struct node *n)
{
    node_settle(n);
    node_stop(n);
    CHECK(node_start(n) == NULL);
    node_settle(n);
}

/* ---- restarts ---- */

TEST(replica__comes_back_from_its_log)
{
    struct node *n = node_serving(node_new(1));
    uint64_t token = hold(n, "a");
    uint64_t digest = pk_machine_digest(machine(n));
    restart(n);
    CHECK_U64(pk_machine_digest(machine(n)), digest);
    CHECK_U64(pk_machine_last_token(machine(n)), token);
    CHECK_U64(n->gaps, 0);
    CHECK(hold(n, "b") > token);
    node_free(n);
}

/* As many snapshots as the threshold says; the newest and the log behind it are the
 * state. */
TEST(replica__comes_back_from_a_snapshot)
{
    struct node *n = node_new(1);
    n->options.threshold = 4;
    n->options.trailing = 2;
    node_serving(n);
    for (int i = 0; i < 10; i++) {
        (void)hold(n, (char[]){(char)('a' + i), 0});
    }
    CHECK(n->disk.snapshots >= 4);
    uint64_t digest = pk_machine_digest(machine(n));
    restart(n);
    CHECK_U64(n->gaps, 1);
    CHECK_U64(pk_machine_digest(machine(n)), digest);
    CHECK(node_ask(n, lock_try(1, "a")).status == PK_BUSY);
    node_free(n);
}

/* Guard G2's second cure: a snapshot that is labelled lower than what it holds. The
 * entries between are there again, and are not run again. */
TEST(replica__runs_no_entry_twice)
{
    struct node *n = node_new(1);
    n->options.threshold = 8;
    node_serving(n);
    for (int i = 0; i < 8; i++) {
        (void)hold(n, (char[]){(char)('a' + i), 0});
    }
    node_settle(n);
    CHECK(n->disk.snapshots > 0);
    uint64_t digest = pk_machine_digest(machine(n));
    n->disk.snapshot_index -= 5;
    unsigned steps = n->events[PK_REPLY];
    unsigned behind = (unsigned)(n->disk.first + n->disk.n - 1 - n->disk.snapshot_index);
    restart(n);
    CHECK_U64(pk_machine_digest(machine(n)), digest);
    CHECK_U64(n->events[PK_REPLY] - steps, behind - 5);
    node_free(n);
}

TEST(replica__refuses_a_damaged_snapshot)
{
    struct node *n = node_new(1);
    n->options.threshold = 4;
    node_serving(n);
    for (int i = 0; i < 5; i++) {
        (void)hold(n, (char[]){(char)('a' + i), 0});
    }
    node_settle(n);
    node_stop(n);
    for (size_t at = 0; at < n->disk.snapshot.len; at++) {
        n->disk.snapshot.data[at] ^= 0x10;
        CHECK_STR(node_start(n), "the snapshot is damaged");
        CHECK_STR(n->broken, ""); /* start says it */
        node_stop(n);
        n->disk.snapshot.data[at] ^= 0x10;
    }
    size_t whole = n->disk.snapshot.len;
    for (n->disk.snapshot.len = 0; n->disk.snapshot.len < whole; n->disk.snapshot.len++) {
        CHECK(node_start(n) != NULL);
        node_stop(n);
    }
    CHECK(node_start(n) == NULL);
    node_free(n);
}

/* A follower far behind gets the leader's snapshot: the state is replaced. */
TEST(replica__takes_a_leaders_snapshot)
{
    struct node *n = node_new(1);
    n->options.threshold = 4;
    node_serving(n);
    for (int i = 0; i < 5; i++) {
        (void)hold(n, (char[]){(char)('a' + i), 0});
    }
    node_settle(n);
    struct raft_message m = {
        .type = RAFT_INSTALL_SNAPSHOT,
        .install_snapshot = {.term = 5,
                             .last_index = n->disk.snapshot_index + 90,
                             .last_term = 4,
                             .conf_index = n->disk.conf_index,
                             .data = mem_given(n->disk.snapshot)}};
    node_stop(n);
    mem_disk_free(&n->disk);
    memset(&n->disk, 0, sizeof n->disk);
    n->voters = 3;
    n->gaps = 0;
    CHECK(node_start(n) == NULL);
    raft_configuration_init(&m.install_snapshot.conf);
    for (raft_id id = 1; id <= 3; id++) {
        char address[16];
        snprintf(address, sizeof address, "node-%llu", id);
        CHECK_U64(
            raft_configuration_add(&m.install_snapshot.conf, id, address, RAFT_VOTER), 0);
    }
    mem_deliver(&n->io, 2, m);
    CHECK_U64(n->gaps, 0);
    mem_finish_all(&n->io);
    CHECK_U64(n->gaps, 1);
    CHECK(pk_machine_stats(machine(n)).holds >= 2);
    CHECK_U64(pk_replica_standing(n->replica).applied_index,
              m.install_snapshot.last_index);
    node_free(n);
}

/* ---- digests ---- */

TEST(replica__tells_the_digest_of_its_state_after_a_marked_entry)
{
    struct node *n = node_new(1);
    n->turn_options.digest_every = 4;
    node_serving(n);
    (void)hold(n, "a");
    CHECK_U64(n->marks, 0);
    (void)hold(n, "b"); /* its first entry is the fourth, after the barrier */
    CHECK_U64(n->marks, 1);
    CHECK(n->mark_index > 0);
    node_free(n);
}

/* Also when nobody asks for anything. */
TEST(replica__tells_the_digest_of_an_idle_state_after_a_while)
{
    struct node *n = node_new(1);
    n->turn_options.digest_ms = 60000;
    node_serving(n);
    (void)hold(n, "a");
    CHECK_U64(n->marks, 0);
    n->io.now_ms += 59000;
    node_settle(n);
    CHECK_U64(n->marks, 0);
    n->io.now_ms += 1000;
    node_settle(n);
    CHECK_U64(n->marks, 1);
    node_settle(n);
    CHECK_U64(n->marks, 1);
    n->io.now_ms += 60000;
    node_settle(n);
    CHECK_U64(n->marks, 2);
    node_free(n);
}

/* A leader of three, after an entry with a mark. */
static struct node *marked_leader(void)
{
    struct node *n = node_new(3);
    n->turn_options.digest_every = 4;
    node_serving(n);
    while (n->marks == 0) {
        CHECK(node_add(n, lease_open(60000), 7));
        node_turn(n);
        node_settle(n);
        node_ack(n);
        node_settle(n);
    }
    return n;
}

/* A leader whose digest is not that of the two others is the damaged one. */
TEST(replica__stops_when_the_majority_has_another_state)
{
    struct node *n = marked_leader();
    pk_replica_hear_mark(n->replica, 2, n->mark_index, n->mark_digest ^ 1);
    CHECK_STR(n->broken, ""); /* the third one may agree with us */
    CHECK(pk_replica_standing(n->replica).leader);
    pk_replica_hear_mark(n->replica, 3, n->mark_index, n->mark_digest ^ 1);
    CHECK(strstr(n->broken, "this node is the damaged one") != NULL);
    CHECK(!pk_replica_standing(n->replica).leader);
    struct pk_entry more = {.kind = PK_ENTRY_COMMANDS, .batch = 99};
    CHECK(pk_replica_propose(n->replica, &more, 0) == PK_NOT_TAKEN);
    node_free(n);
}

TEST(replica__goes_on_when_one_of_three_has_another_state)
{
    struct node *n = marked_leader();
    pk_replica_hear_mark(n->replica, 2, n->mark_index, n->mark_digest ^ 1);
    pk_replica_hear_mark(n->replica, 3, n->mark_index, n->mark_digest);
    CHECK_STR(n->broken, "");
    CHECK(pk_replica_standing(n->replica).leader);
    node_free(n);
}

/* ---- a log that can't be read ---- */

/* Node 2 leads and commits one more entry with these bytes. */
static void follow(struct node *n, const void *bytes, size_t len)
{
    CHECK(node_start(n) == NULL);
    struct mem_entry e = {2, RAFT_COMMAND, mem_copy(bytes, len)};
    mem_lead(&n->io, 2, 2, 1, 1, 1, &e, 1);
    mem_finish_all(&n->io);
    mem_lead(&n->io, 2, 2, 2, 2, 2, NULL, 0);
    mem_drop(&e.bytes);
}

static size_t make_entry(unsigned char *out, struct pk_entry e, const char *body)
{
    e.body = pk_text(body);
    memcpy(out + PK_ENTRY_HEAD, body, e.body.len);
    pk_entry_seal(out, &e);
    return pk_entry_size(e.body.len);
}

TEST(replica__stops_at_an_entry_that_is_none)
{
    struct node *n = node_new(3);
    follow(n, "no entry", 8);
    CHECK_STR(n->broken, "entry 2 of the log is not readable");
    node_free(n);
}

TEST(replica__stops_at_an_entry_of_a_newer_version)
{
    unsigned char bytes[128];
    struct pk_entry e = {.kind = PK_ENTRY_COMMANDS,
                         .needs = PK_VERSION_NEWEST + 1,
                         .batch = 1,
                         .index = 2};
    struct node *n = node_new(3);
    follow(n, bytes, make_entry(bytes, e, ""));
    CHECK_STR(n->broken, pk_version_needed("entry 2 of the log", PK_VERSION_NEWEST + 1));
    node_free(n);
}

TEST(replica__stops_at_commands_that_are_none)
{
    unsigned char bytes[128];
    struct pk_entry e = {.kind = PK_ENTRY_COMMANDS, .batch = 1, .index = 2, .count = 1};
    struct node *n = node_new(3);
    follow(n, bytes, make_entry(bytes, e, "\xff\xff\xff"));
    CHECK_STR(n->broken, "entry 2 of the log has commands that can't be read");
    node_free(n);
}

TEST(replica__stops_at_bytes_behind_the_commands)
{
    unsigned char bytes[128], body[] = {PK_TICK, 0, 0, 'x'};
    struct pk_entry e = {.kind = PK_ENTRY_COMMANDS, .batch = 1, .index = 2, .count = 1};
    e.body = pk_bytes(body, sizeof body);
    memcpy(bytes + PK_ENTRY_HEAD, body, sizeof body);
    pk_entry_seal(bytes, &e);
    struct node *n = node_new(3);
    follow(n, bytes, pk_entry_size(sizeof body));
    CHECK_STR(n->broken, "entry 2 of the log has commands that can't be read");
    node_free(n);
}

TEST(replica__stops_at_an_entry_of_another_place)
{
    unsigned char bytes[128];
    struct pk_entry e = {.kind = PK_ENTRY_COMMANDS, .batch = 1, .index = 3};
    struct node *n = node_new(3);
    follow(n, bytes, make_entry(bytes, e, ""));
    CHECK_STR(n->broken, "entry 2 of the log was made for another place");
    node_free(n);
}

/* Entries of others are run, and answered nobody. */
TEST(replica__follows)
{
    unsigned char bytes[256], command[64];
    struct pk_command c = lease_open(1000);
    struct pk_entry e = {.kind = PK_ENTRY_COMMANDS,
                         .batch = 1,
                         .index = 2,
                         .stamp_ms = 77,
                         .count = 1,
                         .origin = 5};
    size_t len = pk_command_encode(&c, command);
    e.body = pk_bytes(command, len);
    memcpy(bytes + PK_ENTRY_HEAD, command, len);
    pk_entry_seal(bytes, &e);
    struct node *n = node_new(3);
    follow(n, bytes, pk_entry_size(len));
    CHECK_STR(n->broken, "");
    CHECK_U64(n->events[PK_EV_LEASE_OPENED], 1);
    CHECK_U64(pk_machine_clock(machine(n)), 77);
    CHECK_U64(n->n_told, 0);
    node_free(n);
}

/* ---- backup and restore ---- */

struct backup {
    unsigned char *bytes;
    size_t len;
};

/* The next `room` bytes of the backup that was begun. */
static enum pk_source_state read_backup(struct node *n, struct backup *b, size_t room)
{
    size_t len = 0;
    b->bytes = pk_door_resize(b->bytes, b->len + room);
    enum pk_source_state got =
        pk_replica_backup_read(n->replica, b->bytes + b->len, room, &len);
    CHECK(len <= room);
    b->len += len;
    return got;
}

static struct backup take_backup(struct node *n)
{
    struct backup b = {0};
    struct pk_backup_of of;
    CHECK(pk_replica_backup_begin(n->replica, &of));
    CHECK_U64(of.clock_ms, pk_machine_clock(machine(n)));
    CHECK_U64(of.last_token, pk_machine_last_token(machine(n)));
    while (read_backup(n, &b, 100) == PK_SOURCE_MORE) {
    }
    pk_replica_backup_end(n->replica);
    return b;
}

/* NULL when the bytes are a backup, to both kinds of readers. */
static const char *wrong(const unsigned char *bytes, size_t len)
{
    struct pk_backup_reader *reader = pk_backup_reader_new();
    struct pk_backup_reader *checker = pk_backup_checker_new();
    pk_backup_feed(reader, bytes, len);
    for (size_t i = 0; i < len; i++) {
        pk_backup_feed(checker, bytes + i, 1);
    }
    const char *why = pk_backup_wrong(reader);
    const char *other = pk_backup_wrong(checker);
    CHECK((why == NULL) == (other == NULL));
    pk_machine_free(pk_backup_reader_end(reader));
    pk_machine_free(pk_backup_reader_end(checker));
    return why;
}

static struct told answer_of(struct node *n, bool taken)
{
    unsigned before = n->n_told;
    CHECK(taken);
    node_turn(n);
    node_settle(n);
    CHECK_U64(n->n_told, before + 1);
    return n->told[before];
}

static struct told put_piece(struct node *n, const void *bytes, size_t len,
                             uint64_t offset)
{
    return answer_of(n, pk_turn_add_restore(n->turn, pk_bytes(bytes, len), offset,
                                            (struct pk_ticket){.who = 1}));
}

static struct told adopt(struct node *n)
{
    return answer_of(n, pk_turn_add_adopt(n->turn, (struct pk_ticket){.who = 2}));
}

/* In pieces of `step` bytes. */
static void put_backup(struct node *n, struct backup b, size_t step)
{
    for (size_t at = 0; at < b.len; at += step) {
        size_t len = b.len - at < step ? b.len - at : step;
        CHECK(put_piece(n, b.bytes + at, len, at).status == PK_OK);
    }
}

TEST(replica__restores_a_backup)
{
    struct node *n = node_serving(node_new(1));
    (void)hold(n, "kept");
    struct pk_command set = {
        .verb = PK_FENCE_SET, .name = pk_text("disk"), .token = 5, .value = pk_text("v")};
    CHECK(node_ask(n, set).status == PK_OK);
    struct backup b = take_backup(n);
    CHECK(wrong(b.bytes, b.len) == NULL);
    uint64_t token = hold(n, "later");
    put_backup(n, b, 13);
    struct told told = adopt(n);
    CHECK(told.status == PK_OK && told.who == 2);
    CHECK_U64(n->gaps, 1);
    CHECK(pk_machine_check(machine(n)) == NULL);
    CHECK_U64(pk_machine_stats(machine(n)).fences, 1);
    CHECK_U64(pk_machine_stats(machine(n)).holds, 0); /* all leases end */
    CHECK_U64(n->events[PK_EV_LEAPT], 1);
    CHECK(hold(n, "later") > token); /* P2 */
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

/* P2 also when the present has leapt further than the backup will. */
TEST(replica__leaps_above_all_tokens_of_the_present)
{
    struct node *n = node_serving(node_new(1));
    struct backup b = take_backup(n);
    for (int i = 0; i < 3; i++) {
        CHECK(node_ask(n, (struct pk_command){.verb = PK_LEAP}).status == PK_OK);
    }
    uint64_t token = hold(n, "a");
    CHECK(token > 3 * PK_TOKEN_LEAP);
    put_backup(n, b, 1000);
    struct told told = adopt(n);
    CHECK(told.status == PK_OK);
    CHECK(hold(n, "a") > token);
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

/* The clock of the backup is the clock: time goes on from there, stretched. */
TEST(replica__goes_on_from_the_backups_clock)
{
    struct node *n = node_serving(node_new(1));
    struct backup b = take_backup(n);
    uint64_t clock = pk_machine_clock(machine(n));
    node_pass(n, 5000);
    CHECK(node_ask(n, lease_open(1000)).status == PK_OK);
    CHECK_U64(pk_machine_clock(machine(n)), clock + 5000);
    put_backup(n, b, 1000);
    CHECK(adopt(n).status == PK_OK);
    CHECK_U64(pk_machine_clock(machine(n)), clock);
    node_pass(n, 10);
    CHECK(node_ask(n, lease_open(1000)).status == PK_OK);
    CHECK_U64(pk_machine_clock(machine(n)), clock + 10);
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

/* A stamp of before would carry the old clock over: nothing follows an adoption until it
 * is done. */
TEST(replica__lets_nothing_overtake_an_adoption)
{
    struct node *n = node_serving(node_new(1));
    struct backup b = take_backup(n);
    uint64_t clock = pk_machine_clock(machine(n));
    node_pass(n, 5000);
    put_backup(n, b, 1000);
    CHECK(pk_turn_add_adopt(n->turn, (struct pk_ticket){.who = 2}));
    CHECK(!node_add(n, lease_open(1000), 3)); /* it has its turn for itself */
    node_turn(n);
    CHECK(node_add(n, lease_open(1000), 3));
    CHECK(!pk_turn_add_adopt(n->turn, (struct pk_ticket){.who = 4}));
    node_turn(n);
    CHECK_U64(pk_turn_pending(n->turn), 2);
    node_settle(n);
    CHECK_U64(pk_turn_pending(n->turn), 0);
    CHECK_U64(pk_machine_clock(machine(n)), clock);
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

TEST(replica__refuses_pieces_out_of_order)
{
    struct node *n = node_serving(node_new(1));
    CHECK(put_piece(n, "0123", 4, 0).status == PK_OK);
    struct told told = put_piece(n, "89", 2, 8);
    CHECK(told.status == PK_BADARG);
    CHECK_STR(told.why, "this piece does not begin where the one before it ended");
    CHECK(put_piece(n, "45", 2, 4).status == PK_OK);
    CHECK(put_piece(n, "45", 2, 4).status == PK_BADARG); /* has been here */
    CHECK(put_piece(n, "x", 1, 0).status == PK_OK);      /* begins anew */
    CHECK(put_piece(n, "y", 1, 1).status == PK_OK);
    node_free(n);
}

TEST(replica__refuses_what_is_no_backup)
{
    struct node *n = node_serving(node_new(1));
    uint64_t token = hold(n, "a");
    struct told told = adopt(n);
    CHECK(told.status == PK_BADARG);
    CHECK_STR(told.why, "there is no backup to adopt");
    CHECK(put_piece(n, "0123456789abcdef", 16, 0).status == PK_OK);
    told = adopt(n);
    CHECK(told.status == PK_BADARG);
    CHECK_STR(told.why, "this is not a backup");
    struct backup b = take_backup(n);
    for (size_t at = 0; at < b.len; at++) {
        b.bytes[at] ^= 1;
        CHECK(wrong(b.bytes, b.len) != NULL);
        b.bytes[at] ^= 1;
        CHECK(wrong(b.bytes, at) != NULL);
    }
    b.bytes[b.len / 2] ^= 1;
    put_backup(n, b, 1000);
    told = adopt(n);
    CHECK(told.status == PK_BADARG);
    CHECK_STR(told.why, "the backup is damaged or not complete");
    b.bytes[b.len / 2] ^= 1;
    CHECK(put_piece(n, "x", 1, b.len).status == PK_BADARG); /* nothing is kept of it */
    CHECK_U64(n->gaps, 0);
    CHECK_U64(pk_machine_last_token(machine(n)), token);
    CHECK_U64(pk_machine_stats(machine(n)).holds, 1);
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

/* A checksum that is right does not make a whole state. */
TEST(replica__refuses_a_state_that_is_cut_under_a_right_checksum)
{
    struct node *n = node_serving(node_new(1));
    (void)hold(n, "a");
    struct backup b = take_backup(n);
    for (size_t len = 5; len + 8 < b.len; len++) {
        unsigned char *cut = pk_door_resize(NULL, len + 8);
        memcpy(cut, b.bytes, len);
        pk_put_u64(cut + len, pk_digest(PK_DIGEST_START, cut, len));
        CHECK_STR(wrong(cut, len + 8), "the state in the backup can't be read");
        pk_door_resize(cut, 0);
    }
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

/* A node takes no snapshot while a backup views its machine, and one later. */
TEST(replica__backup_is_of_the_moment_when_it_began)
{
    struct node *n = node_new(1);
    n->options.threshold = 3;
    node_serving(n);
    (void)hold(n, "kept");
    struct pk_backup_of of;
    struct backup b = {0};
    uint64_t digest = pk_machine_digest(machine(n));
    CHECK(pk_replica_backup_begin(n->replica, &of));
    CHECK(!pk_replica_backup_begin(n->replica, &of));
    unsigned snapshots = n->disk.snapshots;
    for (int i = 0; i < 8; i++) {
        CHECK(read_backup(n, &b, 7) == PK_SOURCE_MORE);
        CHECK(node_ask(n, lease_open(1000)).status == PK_OK);
    }
    CHECK_U64(n->disk.snapshots, snapshots);
    while (read_backup(n, &b, 7) == PK_SOURCE_MORE) {
    }
    pk_replica_backup_end(n->replica);
    struct pk_backup_reader *r = pk_backup_reader_new();
    pk_backup_feed(r, b.bytes, b.len);
    CHECK(pk_backup_wrong(r) == NULL);
    struct pk_machine *m = pk_backup_reader_end(r);
    CHECK_U64(pk_machine_digest(m), digest);
    CHECK(pk_machine_check(m) == NULL);
    pk_machine_free(m);
    CHECK(node_ask(n, lease_open(1000)).status == PK_OK);
    CHECK(n->disk.snapshots > snapshots);
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

TEST(replica__backup_is_gone_when_the_state_is_replaced)
{
    struct node *n = node_serving(node_new(1));
    struct backup whole = take_backup(n);
    struct pk_backup_of of;
    struct backup b = {0};
    CHECK(pk_replica_backup_begin(n->replica, &of));
    CHECK(read_backup(n, &b, 7) == PK_SOURCE_MORE);
    put_backup(n, whole, 1000);
    CHECK(adopt(n).status == PK_OK);
    CHECK(read_backup(n, &b, 7) == PK_SOURCE_GONE);
    pk_replica_backup_end(n->replica);
    pk_door_resize(b.bytes, 0);
    b = take_backup(n);
    CHECK(wrong(b.bytes, b.len) == NULL);
    pk_door_resize(b.bytes, 0);
    pk_door_resize(whole.bytes, 0);
    node_free(n);
}

/* A restore that is broken off leaves the state as it was; what has come goes with the
 * next beginning, and is freed in slices. */
TEST(replica__restore_that_is_broken_off_changes_nothing)
{
    struct node *n = node_serving(node_new(1));
    (void)hold(n, "kept");
    struct backup b = take_backup(n);
    uint64_t token = hold(n, "later");
    CHECK(put_piece(n, b.bytes, b.len - 1, 0).status == PK_OK);
    CHECK_U64(pk_machine_last_token(machine(n)), token);
    CHECK_U64(pk_machine_stats(machine(n)).holds, 2);
    CHECK(put_piece(n, b.bytes, 20, 0).status == PK_OK);
    CHECK(put_piece(n, b.bytes + 20, b.len - 20, 20).status == PK_OK);
    CHECK(adopt(n).status == PK_OK);
    for (int i = 0; i < 10; i++) {
        node_turn(n);
    }
    CHECK(n->replica->garbage.first == NULL);
    CHECK(hold(n, "later") > token);
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

/* The pieces are part of the state: a snapshot and a restart in between keep them. */
TEST(replica__keeps_pieces_over_a_snapshot)
{
    struct node *n = node_new(1);
    n->options.threshold = 3;
    node_serving(n);
    struct backup b = take_backup(n);
    CHECK(put_piece(n, b.bytes, 20, 0).status == PK_OK);
    for (int i = 0; i < 4; i++) {
        CHECK(node_ask(n, lease_open(1000)).status == PK_OK);
    }
    CHECK(n->disk.snapshots > 0);
    restart(n);
    CHECK_U64(n->gaps, 1);
    CHECK(put_piece(n, b.bytes + 20, b.len - 20, 20).status == PK_OK);
    CHECK(adopt(n).status == PK_OK);
    CHECK_U64(n->gaps, 2);
    pk_door_resize(b.bytes, 0);
    node_free(n);
}

/* ---- proposing ---- */

/* The room grows and keeps what stands in it; what is too long is refused. */
TEST(replica__takes_entries_up_to_their_limit)
{
    struct node *n = node_serving(node_new(1));
    unsigned char *room = pk_replica_room(n->replica, 10);
    memcpy(room, "0123456789", 10);
    room = pk_replica_room(n->replica, PK_ENTRY_MAX);
    CHECK(memcmp(room, "0123456789", 10) == 0);
    struct pk_entry e = {.kind = PK_ENTRY_RESTORE, .batch = 50};
    CHECK(pk_replica_propose(n->replica, &e, PK_ENTRY_MAX) == PK_NOT_TAKEN);
    CHECK(pk_replica_propose(n->replica, &e, PK_ENTRY_MAX - PK_ENTRY_HEAD) ==
          PK_PROPOSED);
    mem_finish_all(&n->io);
    CHECK_U64(last_entry(n).body.len, PK_ENTRY_MAX - PK_ENTRY_HEAD);
    CHECK(memcmp(last_entry(n).body.data, "0123456789", 10) == 0);
    node_free(n);
}

static unsigned requests(const struct pk_request *q)
{
    unsigned n = 0;
    for (; q != NULL; q = q->next) {
        n++;
    }
    return n;
}

/* In a steady state an entry costs one allocation, that of its bytes. */
TEST(replica__uses_its_requests_again)
{
    struct node *n = node_serving(node_new(1));
    for (int i = 0; i < 100; i++) {
        CHECK(node_ask(n, lease_open(60000)).status == PK_OK);
    }
    CHECK(requests(n->replica->first_request) + requests(n->replica->spare_requests) <=
          2);
    node_free(n);
}

TEST(replica__proposes_as_leader_only)
{
    struct node *n = node_new(3);
    CHECK(node_start(n) == NULL);
    struct pk_entry e = {.kind = PK_ENTRY_COMMANDS, .batch = 1};
    CHECK(pk_replica_propose(n->replica, &e, 0) == PK_NOT_LEADER);
    node_free(n);
}

/* A crash in the middle of everything leaves nothing behind that this process owns. */
TEST(replica__can_be_abandoned)
{
    struct node *n = node_serving(node_new(1));
    (void)hold(n, "a");
    (void)pk_replica_room(n->replica, 100);
    mem_flush(&n->io);
    pk_replica_abandon(n->replica);
    CHECK(n->io.io.close == mem_close);
    CHECK_U64(n->closed, 0);
    pk_turn_free(n->turn);
    CHECK(node_start(n) == NULL);
    node_settle(n);
    CHECK_U64(pk_machine_stats(machine(n)).holds, 1);
    node_free(n);
}
