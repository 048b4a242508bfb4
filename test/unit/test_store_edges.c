/* SPDX-License-Identifier: MIT */
/* The log store in single situations that a random life (test_store.c) rarely meets. */
#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/snapshot.h"
#include "raft/store.h"
#include "sim_disk.h"
#include "tap.h"

enum { SEGMENT = 32 * 1024, STATE = 3000, ENTRY = 64, OPERATIONS_MAX = 100, SLICE = 500 };

static struct pk_log_owner owner = {.cluster = 9, .incarnation = 0x77aa55};

static struct world {
    struct sim_disk disk;
    struct pk_store *store;
    struct pk_store_loaded loaded;
    struct rng rng;
    char failed[PK_STORE_WHY_MAX];
    struct raft_io_append append;
    struct raft_io_snapshot_put put;
    struct raft_io_snapshot_get get;
    unsigned appended, puts; /* how often they were called back */
    int put_status;
    uint64_t got; /* index of the snapshot that was read */
    bool closed;
} w;

static unsigned char state[STATE], data[ENTRY];

/* ---- lives ---- */

static void on_begun(void *ctx, struct pk_disk_op *op)
{
    (void)ctx;
    (void)op;
}

static void on_failed(void *ctx, const char *why)
{
    (void)ctx;
    (void)snprintf(w.failed, sizeof w.failed, "%s", why);
}

static void finish_all(void)
{
    unsigned n = 0;
    while (w.disk.under_way != NULL && w.failed[0] == '\0') {
        CHECK(n++ < OPERATIONS_MAX); /* or the store repeats something for ever */
        sim_disk_finish(&w.disk, w.disk.under_way);
    }
}

static void begin(bool create)
{
    struct pk_store_options o = {.disk = &w.disk.disk,
                                 .owner = owner,
                                 .segment_bytes = SEGMENT,
                                 .log_bytes = 8 * SEGMENT,
                                 .slice_bytes = SLICE,
                                 .failed = on_failed};
    w.store = pk_store_new(&o);
    w.failed[0] = '\0';
    const char *wrong = create ? pk_store_create(w.store) : pk_store_open(w.store);
    CHECK_STR(wrong == NULL ? "" : wrong, "");
    CHECK_U64(pk_store_load(w.store, &w.loaded), 0);
}

static void free_loaded(void)
{
    struct pk_store_loaded *l = &w.loaded;
    for (size_t i = 0; i < l->n; i++) {
        if (i + 1 == l->n || l->entries[i + 1].batch != l->entries[i].batch) {
            raft_free(l->entries[i].batch);
        }
    }
    raft_free(l->entries);
    if (l->snapshot != NULL) {
        raft_configuration_close(&l->snapshot->configuration);
        raft_free(l->snapshot->bufs[0].base);
        raft_free(l->snapshot->bufs);
        raft_free(l->snapshot);
    }
    *l = (struct pk_store_loaded){0};
}

static void end_life(void)
{
    free_loaded();
    w.disk.under_way = NULL; /* none of it gets to the disk */
    pk_store_free(w.store);
}

static void fresh(void)
{
    memset(&w, 0, sizeof w);
    memset(state, 0x5a, sizeof state);
    memset(data, 0xc3, sizeof data);
    w.rng = rng_of(1, 1);
    sim_disk_init(&w.disk);
    w.disk.begun = on_begun;
    begin(true);
    CHECK_U64(pk_store_set_term(w.store, 1), 0);
}

static void restart(void)
{
    end_life();
    sim_disk_crash(&w.disk, &w.rng, true);
    begin(false);
}

static void end(void)
{
    end_life();
    sim_disk_free(&w.disk);
}

/* ---- requests ---- */

static void on_appended(struct raft_io_append *req, int status)
{
    (void)req;
    w.appended += status == 0;
}

static void append(unsigned n, unsigned short type)
{
    static struct raft_entry entries[8];
    for (unsigned i = 0; i < n; i++) {
        entries[i] =
            (struct raft_entry){.term = 1, .type = type, .buf = {data, sizeof data}};
    }
    CHECK_U64(pk_store_append(w.store, &w.append, entries, n, on_appended), 0);
}

static void on_put(struct raft_io_snapshot_put *req, int status)
{
    (void)req;
    w.puts++;
    w.put_status = status;
}

static void put(uint64_t index, uint64_t term, unsigned trailing)
{
    struct raft_buffer buf = {state, sizeof state};
    struct raft_snapshot s = {.index = index, .term = term, .bufs = &buf, .n_bufs = 1};
    raft_configuration_init(&s.configuration);
    CHECK_U64(raft_configuration_add(&s.configuration, 1, "n1@h:1", RAFT_VOTER), 0);
    CHECK_U64(pk_store_snapshot_put(w.store, trailing, &w.put, &s, on_put), 0);
    raft_configuration_close(&s.configuration);
}

/* ---- term and vote ---- */

TEST(meta__a_vote_is_there_after_a_start_and_goes_with_its_term)
{
    fresh();
    CHECK_U64(pk_store_set_vote(w.store, 4), 0);
    restart();
    CHECK_U64(w.loaded.term, 1);
    CHECK_U64(w.loaded.vote, 4);
    CHECK_U64(pk_store_set_term(w.store, 2), 0);
    restart();
    CHECK_U64(w.loaded.term, 2);
    CHECK_U64(w.loaded.vote, 0);
    end();
}

/* A write that was cut off between the slots: the newer one counts. */
TEST(meta__a_start_uses_the_newer_of_two_good_slots)
{
    fresh();
    w.disk.fail_in = 2;
    CHECK(pk_store_set_vote(w.store, 4) != 0);
    restart();
    CHECK_U64(w.loaded.vote, 4);
    const struct sim_file *f = sim_disk_find(&w.disk, "meta");
    CHECK(memcmp(f->bytes, f->bytes + PK_META_SLOT, PK_META_SLOT) == 0);
    end();
}

TEST(meta__has_the_configuration_that_was_appended_last)
{
    fresh();
    append(1, RAFT_CHANGE);
    finish_all();
    restart();
    const struct pk_meta *m = pk_store_meta(w.store);
    CHECK_U64(m->configuration_len, sizeof data);
    CHECK(memcmp(m->configuration, data, sizeof data) == 0);
    end();
}

/* A directory that was put in the place of another node's. */
TEST(meta__of_another_node_is_refused)
{
    fresh();
    end_life();
    struct pk_store_options o = {
        .disk = &w.disk.disk, .owner = owner, .failed = on_failed};
    o.owner.incarnation++;
    w.store = pk_store_new(&o);
    const char *wrong = pk_store_open(w.store);
    CHECK(wrong != NULL && strstr(wrong, "belongs to another node") != NULL);
    end();
}

/* ---- files ---- */

/* Without the mark, which is only evidence. */
static void is_refused_after(enum sim_damage how, const char *words)
{
    fresh();
    append(3, RAFT_COMMAND);
    finish_all();
    end_life();
    sim_disk_damage(&w.disk, sim_disk_find(&w.disk, "mark"), SIM_LOSE, &w.rng);
    struct sim_file *f = sim_disk_find(&w.disk, "log-000");
    if (how == SIM_CUT) {
        f->len = 0;
        f->capacity = 0;
        f->bytes = pk_door_resize(f->bytes, 1);
    } else {
        sim_disk_damage(&w.disk, f, how, &w.rng);
    }
    struct pk_store_options o = {.disk = &w.disk.disk,
                                 .owner = owner,
                                 .segment_bytes = SEGMENT,
                                 .failed = on_failed};
    w.store = pk_store_new(&o);
    CHECK(pk_store_open(w.store) == NULL);
    CHECK(pk_store_load(w.store, &w.loaded) != 0);
    CHECK(strstr(pk_store_why(w.store), words) != NULL);
    w.loaded = (struct pk_store_loaded){0};
    end();
}

TEST(file__a_segment_that_is_gone_is_refused)
{
    is_refused_after(SIM_LOSE, "raft/log-000 is gone");
}

TEST(file__a_segment_that_was_cut_is_refused)
{
    is_refused_after(SIM_CUT, "raft/log-000 has 0 bytes instead of 32768");
}

/* ---- numbers of batches ---- */

static uint64_t number_under_way(void)
{
    return pk_get_u64(w.disk.under_way->parts[0].bytes + PK_SECTOR_DATA);
}

/* Of a batch only the first sector got to the disk. It is dropped, and a later batch with
 * its number could be completed by what is left of it. */
TEST(batch__numbers_of_dropped_ones_are_not_used_again)
{
    fresh();
    append(1, RAFT_COMMAND);
    finish_all();
    append(1, RAFT_COMMAND);
    uint64_t dropped = number_under_way();
    const struct pk_disk_op *op = w.disk.under_way;
    memcpy(sim_disk_find(&w.disk, op->name)->bytes + op->offset, op->parts[0].bytes,
           PK_SECTOR);
    restart();
    CHECK_U64(w.loaded.n, 1);
    append(1, RAFT_COMMAND);
    CHECK(number_under_way() > dropped);
    end();
}

/* ---- the mark ---- */

static bool mark_is_durable(void)
{
    return sim_disk_find(&w.disk, "mark")->synced == NULL;
}

TEST(mark__is_flushed_when_the_log_is_idle)
{
    fresh();
    append(1, RAFT_COMMAND);
    finish_all();
    CHECK(!mark_is_durable());
    for (int i = 0; i < 20; i++) {
        pk_store_tick(w.store);
        finish_all();
    }
    CHECK(mark_is_durable());
    end();
}

static void on_closed(void *ctx)
{
    (void)ctx;
    w.closed = true;
}

TEST(mark__is_flushed_when_the_store_is_closed)
{
    fresh();
    append(1, RAFT_COMMAND);
    finish_all();
    CHECK(!mark_is_durable());
    pk_store_close(w.store, on_closed, NULL);
    finish_all();
    CHECK(w.closed);
    CHECK(mark_is_durable());
    end();
}

/* ---- space ---- */

/* The disk said that it had room, and then had none. */
TEST(space__a_segment_that_can_not_be_made_is_no_end)
{
    fresh();
    w.disk.full = w.disk.overstates = true;
    pk_store_tick(w.store);
    CHECK(w.disk.under_way != NULL);
    unsigned before = pk_store_capacity(w.store);
    finish_all();
    CHECK_STR(w.failed, "");
    CHECK_U64(pk_store_capacity(w.store), before);
    w.disk.full = false;
    pk_store_tick(w.store);
    finish_all();
    CHECK(pk_store_capacity(w.store) > before);
    end();
}

/* A node can't go on without the snapshot that its leader sent: it waits for space. */
TEST(space__a_received_snapshot_waits_for_it)
{
    fresh();
    w.disk.full = true;
    put(100, 1, 0);
    finish_all();
    CHECK_STR(w.failed, "");
    CHECK_U64(w.puts, 0);
    w.disk.full = false;
    pk_store_tick(w.store);
    finish_all();
    CHECK_U64(w.puts, 1);
    CHECK_U64(w.put_status, 0);
    end();
}

/* The disk fills up behind the first, second, ... write of a received snapshot: once
 * there is space, all of the snapshot is written again. */
TEST(space__a_received_snapshot_that_waited_is_whole)
{
    unsigned writes = 0, waited = 0;
    do {
        fresh();
        put(100, 1, 0);
        for (unsigned i = 0; i < writes && w.disk.under_way != NULL; i++) {
            sim_disk_finish(&w.disk, w.disk.under_way);
        }
        w.disk.full = true;
        finish_all();
        waited = w.puts == 0 ? waited + 1 : waited;
        w.disk.full = false;
        pk_store_tick(w.store);
        finish_all();
        CHECK_U64(w.puts, 1);
        CHECK_U64(w.put_status, 0);
        restart();
        CHECK(w.loaded.snapshot != NULL);
        CHECK_U64(w.loaded.snapshot->bufs[0].len, STATE);
        CHECK(memcmp(w.loaded.snapshot->bufs[0].base, state, STATE) == 0);
        end();
    } while (writes++ < STATE / SLICE + 2);
    CHECK(waited > 1);
}

/* ---- snapshots ---- */

static void on_got(struct raft_io_snapshot_get *req, struct raft_snapshot *s, int status)
{
    (void)req;
    CHECK_U64(status, 0);
    w.got = s->index;
    raft_configuration_close(&s->configuration);
    raft_free(s->bufs[0].base);
    raft_free(s->bufs);
    raft_free(s);
}

TEST(snapshot__one_that_is_being_read_is_not_overwritten)
{
    fresh();
    append(8, RAFT_COMMAND);
    finish_all();
    put(1, 1, 4);
    finish_all();
    CHECK_U64(pk_store_snapshot_get(w.store, &w.get, on_got), 0);
    struct pk_disk_op *read = w.disk.under_way;
    for (uint64_t index = 2; index <= 6; index++) {
        put(index, 1, 4);
        for (uint64_t puts = w.puts; w.puts == puts;) {
            CHECK(strcmp(w.disk.under_way->name, read->name) != 0);
            sim_disk_finish(&w.disk, w.disk.under_way);
        }
    }
    sim_disk_finish(&w.disk, read);
    CHECK_U64(w.got, 1);
    end();
}

/* While the next one is being written, the newest is whole. */
TEST(snapshot__the_newest_is_not_overwritten)
{
    fresh();
    append(8, RAFT_COMMAND);
    finish_all();
    for (uint64_t index = 1; index <= 6; index++) {
        put(index, 1, 4);
        struct sim_file *f = sim_disk_find(&w.disk, w.disk.under_way->name);
        memset(f->bytes, 0, f->len); /* it is cut off */
        restart();
        CHECK_U64(w.loaded.snapshot == NULL ? 0 : w.loaded.snapshot->index, index - 1);
        put(index, 1, 4);
        finish_all();
    }
    end();
}

/* A node with entries that never were committed gets a snapshot that ends among them, and
 * ends before it writes anything more. */
TEST(snapshot__a_received_one_overtakes_a_log_with_other_entries)
{
    fresh();
    append(5, RAFT_COMMAND);
    finish_all();
    put(3, 9, 0);
    finish_all();
    restart();
    CHECK_U64(w.loaded.snapshot->index, 3);
    CHECK_U64(w.loaded.start, 4);
    CHECK_U64(w.loaded.n, 0);
    end();
}

/* libraft would take the entry for the last one that is stored. */
TEST(snapshot__a_received_one_is_acknowledged_after_entries_before_it)
{
    fresh();
    pk_store_tick(w.store); /* makes spare segments */
    finish_all();
    append(1, RAFT_COMMAND);
    struct pk_disk_op *entry = w.disk.under_way;
    put(100, 1, 0);
    while (w.disk.under_way != entry || entry->next != NULL) { /* all but the entry */
        struct pk_disk_op *op = w.disk.under_way;
        sim_disk_finish(&w.disk, op != entry ? op : entry->next);
    }
    CHECK_U64(w.appended, 0);
    CHECK_U64(w.puts, 0);
    sim_disk_finish(&w.disk, entry);
    CHECK_U64(w.appended, 1);
    finish_all();
    CHECK_U64(w.puts, 1);
    end();
}

/* A bit of its state, anywhere: the one before counts, and the log reaches back to it. */
TEST(snapshot__with_a_damaged_state_is_as_good_as_none)
{
    for (size_t at = 0; at < STATE; at += 97) {
        fresh();
        append(8, RAFT_COMMAND);
        finish_all();
        put(1, 1, 4);
        finish_all();
        put(2, 1, 4);
        finish_all();
        struct sim_file *f = sim_disk_find(&w.disk, "snapshot-1");
        CHECK(f->len > 8192 + STATE);
        f->bytes[8192 + at] ^= 4;
        restart();
        CHECK_U64(w.loaded.snapshot->index, 1);
        end();
    }
}

/* ---- snapshots that are read while the state goes on ---- */

/* A source of `left` bytes. */
struct trickle {
    struct pk_snapshot_source source;
    struct pk_snapshot_handle handle;
    size_t left;
    unsigned pauses; /* how often it has nothing before it has something */
    bool gone;
};

static enum pk_source_state read_trickle(void *ctx, unsigned char *to, size_t room,
                                         size_t *n)
{
    struct trickle *t = ctx;
    *n = 0;
    if (t->gone) {
        return PK_SOURCE_GONE;
    }
    if (t->pauses > 0) {
        t->pauses--;
        return PK_SOURCE_MORE;
    }
    *n = t->left < room ? t->left : room;
    memset(to, 0x5a, *n);
    t->left -= *n;
    return t->left == 0 ? PK_SOURCE_END : PK_SOURCE_MORE;
}

static void put_trickle(struct trickle *t, uint64_t index)
{
    t->source = (struct pk_snapshot_source){.ctx = t, .read = read_trickle};
    pk_snapshot_handle_init(&t->handle);
    t->handle.source = &t->source;
    struct raft_buffer buf = {&t->handle, sizeof t->handle};
    struct raft_snapshot s = {.index = index, .term = 1, .bufs = &buf, .n_bufs = 1};
    raft_configuration_init(&s.configuration);
    CHECK_U64(pk_store_snapshot_put(w.store, 4, &w.put, &s, on_put), 0);
}

static void begin_with_snapshot(void)
{
    fresh();
    append(8, RAFT_COMMAND);
    finish_all();
    put(1, 1, 4);
    finish_all();
}

/* One slice at a time, and the loop has its turn also when there is nothing to write. */
TEST(slices__are_bounded_and_go_one_by_one)
{
    begin_with_snapshot();
    struct trickle t = {.left = 10 * SLICE + 1, .pauses = 3};
    unsigned slices = 0;
    put_trickle(&t, 2);
    while (w.puts < 2) {
        struct pk_disk_op *op = w.disk.under_way;
        CHECK(op->next == NULL);
        slices += op->kind == PK_DISK_WRITE;
        CHECK(op->kind != PK_DISK_WRITE || op->parts[0].len <= SLICE);
        sim_disk_finish(&w.disk, op);
    }
    CHECK_U64(w.put_status, 0);
    CHECK_U64(slices, 3 + 11);
    restart();
    CHECK_U64(w.loaded.snapshot->index, 2);
    CHECK_U64(w.loaded.snapshot->bufs[0].len, 10 * SLICE + 1);
    end();
}

/* Cut off after any number of operations, it does not count, and the one before does. */
TEST(slices__that_are_cut_off_are_no_snapshot)
{
    for (unsigned after = 0;; after++) {
        begin_with_snapshot();
        struct trickle t = {.left = 3 * SLICE};
        put_trickle(&t, 2);
        for (unsigned i = 0; i < after && w.puts < 2; i++) {
            sim_disk_finish(&w.disk, w.disk.under_way);
        }
        bool whole = w.puts == 2;
        w.disk.under_way = NULL;
        restart();
        CHECK_U64(w.loaded.snapshot->index, whole ? 2 : 1);
        end();
        if (whole) {
            break;
        }
    }
}

TEST(slices__whose_source_is_gone_are_given_up_and_due_again)
{
    begin_with_snapshot();
    append(8, RAFT_COMMAND);
    finish_all();
    struct trickle t = {.left = 3 * SLICE};
    put_trickle(&t, 2);
    sim_disk_finish(&w.disk, w.disk.under_way);
    t.gone = true;
    uint64_t since = pk_store_use(w.store).since;
    finish_all();
    CHECK_U64(w.puts, 2);
    CHECK(w.put_status == RAFT_CANCELED);
    CHECK(pk_store_use(w.store).since > since);
    t = (struct trickle){.left = 3 * SLICE};
    put_trickle(&t, 2);
    finish_all();
    CHECK_U64(w.put_status, 0);
    end();
}

TEST(slices__are_given_up_when_the_store_is_closed)
{
    begin_with_snapshot();
    struct trickle t = {.left = 100 * SLICE};
    put_trickle(&t, 2);
    sim_disk_finish(&w.disk, w.disk.under_way);
    pk_store_close(w.store, on_closed, NULL);
    CHECK(!w.closed);
    finish_all();
    CHECK(w.closed);
    CHECK(w.put_status == RAFT_CANCELED);
    CHECK(t.left > 90 * SLICE);
    end();
}

/* Bytes that a node of that id writes before it wants a snapshot. */
static uint64_t bytes_until_wanted(uint64_t id)
{
    owner.incarnation = id;
    fresh();
    while (!pk_store_use(w.store).wants) {
        append(1, RAFT_COMMAND);
        pk_store_tick(w.store);
        finish_all();
    }
    uint64_t since = pk_store_use(w.store).since;
    end();
    return since;
}

/* Otherwise all of them would be busy with it at the same time. */
TEST(snapshot__nodes_take_theirs_at_different_times)
{
    enum { NODES = 8 };
    struct pk_log_owner before = owner;
    uint64_t wanted[NODES];
    unsigned different = 0;
    for (unsigned i = 0; i < NODES; i++) {
        wanted[i] = bytes_until_wanted(UINT64_C(0xdeadbeefcafef00d) * (i + 1));
        unsigned same = 0;
        for (unsigned k = 0; k < i; k++) {
            same += wanted[k] == wanted[i];
        }
        different += same == 0;
        CHECK(wanted[i] < 2 * wanted[0] && wanted[0] < 2 * wanted[i]);
    }
    CHECK(different >= NODES / 2);
    owner = before;
}

/* ---- ends ---- */

TEST(store__can_end_while_everything_is_under_way)
{
    fresh();
    append(8, RAFT_COMMAND);
    finish_all();
    put(1, 1, 4);
    finish_all();
    CHECK_U64(pk_store_snapshot_get(w.store, &w.get, on_got), 0);
    put(2, 1, 4);
    append(1, RAFT_COMMAND);
    pk_store_tick(w.store);
    restart();
    CHECK_U64(w.loaded.snapshot->index, 1);
    end();
}
