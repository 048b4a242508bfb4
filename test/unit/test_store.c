/* SPDX-License-Identifier: MIT */
/*
 * The log store on a simulated disk, beside a model: random entries, truncations,
 * snapshots, crashes and power cuts at any moment, and every kind of damage.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "core/wire.h"
#include "raft/store.h"
#include "sim_disk.h"
#include "tap.h"

enum {
    SEGMENT = 32 * 1024,
    LOG_BYTES = 6 * SEGMENT,
    ENTRIES_MAX = 20000,
    DATA_MAX = 9000,
    LINES_MAX = 64,
    INSTALLED = 1000, /* a snapshot from elsewhere is so far ahead */
};

static const struct pk_log_owner owner = {.cluster = 9, .incarnation = 0x77aa55};

/* What an entry is: all that a test needs to know it again. An entry that was cut before
 * it was acknowledged may be there again after a crash, if the cut was not durable. */
struct fact {
    uint64_t term;
    uint32_t seed, len;
    struct fact *before; /* what was handed over earlier for the same index */
};

/* A request under way. */
struct line {
    struct raft_io_append append;
    struct raft_io_snapshot_put put;
    struct raft_entry *entries;
    unsigned n;
    uint64_t last; /* index that is acknowledged with it */
    bool used;
};

static struct world {
    struct sim_disk disk;
    struct pk_store *store;
    struct rng rng;
    struct fact facts[ENTRIES_MAX]; /* by index: what was handed to the store */
    uint64_t last;                  /* index of the last one handed over */
    uint64_t first_void;            /* entries from here on were cut, at the latest */
    uint64_t acknowledged;
    uint64_t snapshot; /* the newest that is acknowledged */
    uint64_t taking;   /* the one on its way; 0: none */
    uint64_t term;
    struct line lines[LINES_MAX];
    char failed[PK_STORE_WHY_MAX];
    bool closed;
} w;

/* ---- running ---- */

static void on_begun(void *ctx, struct pk_disk_op *op)
{
    (void)ctx;
    (void)op; /* finished by finish_one, in any order */
}

static void on_failed(void *ctx, const char *why)
{
    (void)ctx;
    (void)snprintf(w.failed, sizeof w.failed, "%s", why);
}

static bool finish_one(void)
{
    size_t n = 0;
    for (struct pk_disk_op *op = w.disk.under_way; op != NULL; op = op->next) {
        n++;
    }
    if (n == 0) {
        return false;
    }
    struct pk_disk_op *op = w.disk.under_way;
    for (uint64_t i = rng_below(&w.rng, n); i > 0; i--) {
        op = op->next;
    }
    sim_disk_finish(&w.disk, op);
    return true;
}

static void finish_all(void)
{
    while (w.failed[0] == '\0' && finish_one()) {
    }
}

/* ---- entries ---- */

static void forget(struct fact *f)
{
    while (f->before != NULL) {
        struct fact *before = f->before;
        f->before = before->before;
        free(before);
    }
}

static void fill(unsigned char *out, const struct fact *f)
{
    struct rng r = rng_of(f->seed, 5);
    for (uint32_t i = 0; i < f->len; i++) {
        out[i] = (unsigned char)rng_next(&r);
    }
}

static struct line *new_line(void)
{
    for (size_t i = 0; i < LINES_MAX; i++) {
        if (!w.lines[i].used) {
            w.lines[i] = (struct line){.used = true};
            w.lines[i].append.data = &w.lines[i];
            w.lines[i].put.data = &w.lines[i];
            return &w.lines[i];
        }
    }
    return NULL;
}

static void free_line(struct line *l)
{
    for (unsigned i = 0; i < l->n; i++) {
        free(l->entries[i].buf.base);
    }
    free(l->entries);
    *l = (struct line){0};
}

static void on_appended(struct raft_io_append *req, int status)
{
    struct line *l = req->data;
    CHECK(status == 0 || status == RAFT_CANCELED);
    if (status == 0) {
        /* In the order of the log: a cut may have come meanwhile, and then it counts. */
        if (l->last < w.first_void && l->last > w.acknowledged) {
            w.acknowledged = l->last;
        }
    }
    free_line(l);
}

static bool append(unsigned n, uint32_t most)
{
    struct line *l = new_line();
    if (l == NULL || w.last + n >= ENTRIES_MAX) {
        return false;
    }
    CHECK_U64(pk_store_truncate(w.store, w.last + 1), 0); /* as libraft does */
    l->entries = calloc(n, sizeof *l->entries);
    l->n = n;
    for (unsigned i = 0; i < n; i++) {
        struct fact *f = &w.facts[++w.last];
        struct fact *before = f->term == 0 ? f->before : malloc(sizeof *before);
        if (f->term != 0) {
            *before = *f;
        }
        *f = (struct fact){.term = w.term,
                           .seed = (uint32_t)rng_next(&w.rng),
                           .len = (uint32_t)rng_below(&w.rng, most) / 8 * 8,
                           .before = before};
        l->entries[i] = (struct raft_entry){
            .term = f->term, .type = RAFT_COMMAND, .buf = {malloc(f->len + 1), f->len}};
        fill(l->entries[i].buf.base, f);
    }
    l->last = w.last;
    w.first_void = UINT64_MAX;
    CHECK_U64(pk_store_append(w.store, &l->append, l->entries, n, on_appended), 0);
    return true;
}

/* Entries that nobody acknowledged may be cut, as a new leader does. */
static void cut(void)
{
    uint64_t least = w.acknowledged > w.snapshot ? w.acknowledged : w.snapshot;
    least = w.taking > least ? w.taking : least;
    if (w.last > least) {
        uint64_t index = least + 1 + rng_below(&w.rng, w.last - least);
        w.term++;
        CHECK_U64(pk_store_set_term(w.store, w.term), 0);
        CHECK_U64(pk_store_truncate(w.store, index), 0);
        w.last = index - 1;
        w.first_void = index;
        for (size_t i = 0; i < LINES_MAX; i++) { /* what was cut is never acknowledged */
            if (w.lines[i].used && w.lines[i].last >= index) {
                w.lines[i].last = 0;
            }
        }
        append(1, 100);
    }
}

/* ---- snapshots ---- */

static unsigned char state_bytes[3000];

static void on_put(struct raft_io_snapshot_put *req, int status)
{
    struct line *l = req->data;
    CHECK(status == 0 || status == RAFT_CANCELED || status == RAFT_NOSPACE);
    if (status == 0 && w.taking > w.snapshot) {
        w.snapshot = w.taking;
    }
    w.taking = 0;
    free_line(l);
}

static void put_snapshot(uint64_t index, unsigned trailing)
{
    struct line *l = new_line();
    if (l == NULL) {
        return;
    }
    struct raft_buffer buf = {state_bytes, sizeof state_bytes};
    struct raft_snapshot s = {
        .index = index, .term = w.facts[index].term, .bufs = &buf, .n_bufs = 1};
    raft_configuration_init(&s.configuration);
    CHECK_U64(raft_configuration_add(&s.configuration, 1, "n1@h:1", RAFT_VOTER), 0);
    s.configuration_index = 1;
    w.taking = index;
    CHECK_U64(pk_store_snapshot_put(w.store, trailing, &l->put, &s, on_put), 0);
    raft_configuration_close(&s.configuration);
}

static void take_snapshot(void)
{
    if (w.taking == 0 && w.acknowledged > w.snapshot) {
        unsigned trailing = 1 + (unsigned)rng_below(&w.rng, 20);
        put_snapshot(w.acknowledged, trailing);
    }
}

/* As a leader's snapshot that stands for entries which this node never had. */
static void install_snapshot(void)
{
    if (w.taking != 0 || w.last + INSTALLED + 10 >= ENTRIES_MAX) {
        return;
    }
    finish_all(); /* libraft writes nothing beside it */
    uint64_t index = w.last + INSTALLED;
    w.term++;
    CHECK_U64(pk_store_set_term(w.store, w.term), 0);
    forget(&w.facts[index]);
    w.facts[index] = (struct fact){.term = w.term};
    put_snapshot(index, 0);
    finish_all();
    w.last = w.acknowledged = index;
}

/* ---- lives ---- */

static void begin(bool create)
{
    struct pk_store_options o = {.disk = &w.disk.disk,
                                 .owner = owner,
                                 .segment_bytes = SEGMENT,
                                 .log_bytes = LOG_BYTES,
                                 .slice_bytes = 700,
                                 .failed = on_failed};
    w.store = pk_store_new(&o);
    w.failed[0] = '\0';
    w.first_void = UINT64_MAX;
    const char *wrong = create ? pk_store_create(w.store) : pk_store_open(w.store);
    if (wrong != NULL) {
        CHECK_STR(wrong, "");
    }
}

/* The process is gone; its memory goes with it. */
static void abandon(void)
{
    pk_store_free(w.store);
    w.store = NULL;
    for (size_t i = 0; i < LINES_MAX; i++) {
        if (w.lines[i].used) {
            free_line(&w.lines[i]);
        }
    }
    w.taking = 0;
}

static void crash(bool power)
{
    sim_disk_crash(&w.disk, &w.rng, power);
    abandon();
}

static void free_loaded(struct pk_store_loaded *l)
{
    void *batch = NULL;
    for (size_t i = 0; i < l->n; i++) {
        if (l->entries[i].batch != batch) {
            raft_free(batch);
            batch = l->entries[i].batch;
        }
    }
    raft_free(batch);
    raft_free(l->entries);
    if (l->snapshot != NULL) {
        raft_configuration_close(&l->snapshot->configuration);
        raft_free(l->snapshot->bufs[0].base);
        raft_free(l->snapshot->bufs);
        raft_free(l->snapshot);
    }
}

static void is_fact(const struct raft_entry *e, uint64_t index)
{
    unsigned char expected[DATA_MAX + 1];
    const struct fact *f = &w.facts[index];
    while (index > w.acknowledged && f->term != e->term && f->before != NULL) {
        f = f->before;
    }
    CHECK_U64(e->term, f->term);
    CHECK_U64(e->buf.len, f->len);
    fill(expected, f);
    CHECK(f->len == 0 || memcmp(e->buf.base, expected, f->len) == 0);
    struct fact found = *f;
    forget(&w.facts[index]);
    found.before = NULL;
    w.facts[index] = found;
}

/* All that was acknowledged is there, and all that is there was handed over (P3). */
static void check_loaded(const struct pk_store_loaded *l)
{
    uint64_t snapshot = l->snapshot == NULL ? 0 : l->snapshot->index;
    uint64_t last = l->start + l->n - 1;
    CHECK(snapshot >= w.snapshot);
    CHECK(l->start <= snapshot + 1);
    CHECK((last > snapshot ? last : snapshot) >= w.acknowledged);
    CHECK_U64(l->term, w.term);
    for (size_t i = 0; i < l->n; i++) {
        is_fact(&l->entries[i], l->start + i);
    }
    if (l->snapshot != NULL) {
        CHECK_U64(l->snapshot->term, w.facts[snapshot].term);
        CHECK_U64(l->snapshot->bufs[0].len, sizeof state_bytes);
        CHECK(memcmp(l->snapshot->bufs[0].base, state_bytes, sizeof state_bytes) == 0);
        CHECK_U64(l->snapshot->configuration.n, 1);
    }
}

/* What is on disk is the truth from now on. */
static void load(void)
{
    struct pk_store_loaded l;
    int rv = pk_store_load(w.store, &l);
    if (rv != 0) {
        CHECK_STR(pk_store_why(w.store), "");
    }
    check_loaded(&l);
    w.snapshot = l.snapshot == NULL ? 0 : l.snapshot->index;
    uint64_t last = l.start + l.n - 1;
    w.last = last > w.snapshot ? last : w.snapshot;
    w.acknowledged = w.last;
    for (uint64_t i = w.last + 1; i < ENTRIES_MAX; i++) { /* gone for good */
        forget(&w.facts[i]);
        w.facts[i] = (struct fact){0};
    }
    free_loaded(&l);
}

static void fresh(uint64_t seed)
{
    memset(&w, 0, sizeof w);
    w.rng = rng_of(seed, 1);
    w.term = 1;
    memset(state_bytes, 0x5a, sizeof state_bytes);
    sim_disk_init(&w.disk);
    w.disk.begun = on_begun;
    begin(true);
    CHECK_U64(pk_store_set_term(w.store, 1), 0);
    load();
    pk_store_tick(w.store); /* makes spare segments */
    finish_all();
}

static void end(void)
{
    if (w.store != NULL) {
        crash(false);
    }
    sim_disk_free(&w.disk);
    for (uint64_t i = 0; i < ENTRIES_MAX; i++) {
        forget(&w.facts[i]);
    }
}

/* ---- a random life ---- */

static void step(void)
{
    uint64_t what = rng_below(&w.rng, 100);
    if (what < 45) {
        append(1 + (unsigned)rng_below(&w.rng, 4),
               rng_chance(&w.rng, 50) ? DATA_MAX : 300);
    } else if (what < 85) {
        (void)finish_one();
    } else if (what < 88) {
        cut();
    } else if (what < 94) {
        take_snapshot();
    } else if (what < 95) {
        install_snapshot();
    } else {
        pk_store_tick(w.store);
    }
    if (pk_store_use(w.store).wants) {
        take_snapshot();
    }
    CHECK(pk_store_use(w.store).bytes <= LOG_BYTES);
}

TEST(store__survives_crashes_at_any_moment)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        fresh(seed);
        for (int life = 0; life < 8; life++) {
            for (uint64_t n = rng_below(&w.rng, 150); n > 0; n--) {
                step();
                CHECK_STR(w.failed, "");
            }
            crash(rng_chance(&w.rng, 500));
            begin(false);
            load();
        }
        end();
    }
}

/* ---- order ---- */

TEST(store__acknowledges_in_the_order_of_the_log)
{
    fresh(1);
    for (int i = 0; i < 3; i++) {
        CHECK(append(1, 100));
    }
    struct pk_disk_op *newest = w.disk.under_way; /* the one that was begun last */
    sim_disk_finish(&w.disk, newest);
    CHECK_U64(w.acknowledged, 0);
    finish_all();
    CHECK_U64(w.acknowledged, 3);
    end();
}

static void on_closed(void *ctx)
{
    (void)ctx;
    w.closed = true;
}

TEST(store__closes_when_everything_under_way_is_done)
{
    fresh(1);
    for (int i = 0; i < 8; i++) {
        CHECK(append(1, 100)); /* more than are handed to the disk at a time */
    }
    pk_store_close(w.store, on_closed, NULL);
    CHECK(!w.closed);
    while (!w.closed) {
        CHECK(finish_one());
    }
    CHECK(w.disk.under_way == NULL);
    CHECK(w.acknowledged >= 1);
    abandon();
    begin(false);
    load();
    end();
}

/* ---- errors ---- */

TEST(store__a_failed_write_is_the_end)
{
    for (int fails = 1; fails <= 3; fails++) {
        fresh(7);
        for (int i = 0; i < 3; i++) {
            CHECK(append(1, 100));
        }
        w.disk.fail_in = fails;
        finish_all();
        CHECK(strstr(w.failed, "can't write raft/log-000: Input/output error") != NULL);
        CHECK(w.acknowledged < 3);
        uint64_t acknowledged = w.acknowledged;
        while (finish_one()) { /* others end well, and nobody hears of it */
        }
        CHECK_U64(w.acknowledged, acknowledged);
        crash(true);
        begin(false);
        load();
        end();
    }
}

TEST(store__a_failed_write_of_term_or_vote_is_the_end)
{
    for (int fails = 1; fails <= 2; fails++) {
        fresh(7);
        w.disk.fail_in = fails;
        CHECK(pk_store_set_vote(w.store, 4) != 0);
        CHECK(strstr(w.failed, "can't write raft/meta") != NULL);
        end();
    }
}

/* ---- a full disk ---- */

TEST(store__lives_on_a_full_disk_and_goes_on_when_there_is_room)
{
    fresh(3);
    w.disk.full = true;
    unsigned refused = 0;
    for (int i = 0; i < 2000; i++) {
        if (pk_store_capacity(w.store) < pk_store_reserve(w.store)) {
            refused++; /* as libraft does */
            break;
        }
        CHECK(append(1, 2000));
        finish_all();
    }
    CHECK(refused > 0);
    CHECK(pk_store_use(w.store).wants); /* a snapshot would help, without new space */
    CHECK_U64(pk_store_set_term(w.store, ++w.term), 0);
    CHECK(append(1, 100)); /* the first entry of a term has room */
    finish_all();
    crash(true);
    begin(false); /* restarts on the full disk */
    load();
    CHECK_STR(w.failed, "");
    w.disk.full = false;
    for (int i = 0; i < 10; i++) {
        pk_store_tick(w.store);
        finish_all();
    }
    CHECK(pk_store_capacity(w.store) >= pk_store_reserve(w.store));
    end();
}

/* A snapshot that can't be written is given up, and the log goes on. */
TEST(store__a_snapshot_without_space_is_no_end)
{
    fresh(3);
    CHECK(append(1, 100));
    finish_all();
    w.disk.full = true;
    take_snapshot();
    finish_all();
    CHECK_STR(w.failed, "");
    CHECK_U64(w.snapshot, 0);
    w.disk.full = false;
    take_snapshot();
    finish_all();
    CHECK_U64(w.snapshot, 1);
    end();
}

/* It is tried again after a while, and nobody is kept waiting for it. */
TEST(store__a_snapshot_without_space_is_tried_again_later)
{
    fresh(3);
    w.disk.full = true;
    while (pk_store_capacity(w.store) >= pk_store_reserve(w.store)) {
        CHECK(append(1, 2000));
        finish_all();
    }
    CHECK(pk_store_use(w.store).wants);
    take_snapshot();
    finish_all();
    CHECK(!pk_store_use(w.store).wants);
    unsigned ticks = 0;
    for (; !pk_store_use(w.store).wants; ticks++) {
        pk_store_tick(w.store);
        CHECK(ticks < 100);
    }
    CHECK(ticks > 1);
    take_snapshot();
    CHECK(!pk_store_use(w.store).waits);
    end();
}

static struct pk_disk_op *find_op(enum pk_disk_kind kind)
{
    struct pk_disk_op *op = w.disk.under_way;
    while (op != NULL && op->kind != kind) {
        op = op->next;
    }
    return op;
}

static void finish_batches(void)
{
    for (struct pk_disk_op *op = find_op(PK_DISK_OVERWRITE); op != NULL;
         op = find_op(PK_DISK_OVERWRITE)) {
        sim_disk_finish(&w.disk, op);
    }
}

TEST(store__while_a_segment_is_made_little_room_is_no_full_disk)
{
    fresh(3);
    while (find_op(PK_DISK_STORE) == NULL || !pk_store_use(w.store).waits) {
        CHECK(append(1, 5000));
        finish_batches();
    }
    for (int i = 0; i < 20; i++) { /* what was proposed before, more than there is room */
        CHECK(append(1, 5000));
        CHECK(pk_store_capacity(w.store) >= pk_store_reserve(w.store));
        CHECK(pk_store_use(w.store).waits);
        finish_batches();
    }
    CHECK(w.acknowledged < w.last);
    finish_all();
    CHECK_U64(w.acknowledged, w.last);
    w.disk.full = true;
    while (append(1, 600)) { /* far more than are handed to the disk at a time */
    }
    unsigned capacity = pk_store_capacity(w.store);
    finish_batches();
    CHECK(capacity < pk_store_capacity(w.store) + 8U);
    end();
}

/* ---- bounds ---- */

TEST(store__keeps_the_log_within_its_bytes)
{
    fresh(5);
    for (int i = 0; i < 1500; i++) {
        CHECK(append(1, 4000));
        finish_all();
        pk_store_tick(w.store);
        if (pk_store_use(w.store).wants) {
            take_snapshot();
        }
        CHECK(pk_store_capacity(w.store) >= pk_store_reserve(w.store));
        CHECK(pk_store_use(w.store).bytes <= LOG_BYTES);
    }
    CHECK(w.snapshot > 0);
    end();
}

/* ---- damage ---- */

/* A log with some segments, snapshots, and entries behind them. */
static void build(uint64_t seed)
{
    fresh(seed);
    for (int i = 0; i < 60; i++) {
        append(1 + (unsigned)rng_below(&w.rng, 3), 1500);
        finish_all();
        if (i % 20 == 19) {
            take_snapshot();
            finish_all();
        }
    }
    crash(true);
}

static struct sim_disk copy_of_disk(void)
{
    struct sim_disk d = w.disk;
    for (uint32_t i = 0; i < d.n_files; i++) {
        d.files[i].bytes = pk_door_resize(NULL, d.files[i].len + 1);
        d.files[i].capacity = d.files[i].len + 1;
        memcpy(d.files[i].bytes, w.disk.files[i].bytes, d.files[i].len);
    }
    d.disk.ctx = &w.disk;
    return d;
}

/* Starts from a damaged disk: refused in words, or everything is there. */
static bool is_refused_or_whole(void)
{
    struct pk_store_options o = {.disk = &w.disk.disk,
                                 .owner = owner,
                                 .segment_bytes = SEGMENT,
                                 .log_bytes = LOG_BYTES,
                                 .failed = on_failed};
    w.store = pk_store_new(&o);
    const char *wrong = pk_store_open(w.store);
    bool refused = wrong != NULL;
    if (!refused) {
        struct pk_store_loaded l;
        uint64_t snapshot = w.snapshot;
        refused = pk_store_load(w.store, &l) != 0;
        if (refused) {
            wrong = pk_store_why(w.store);
        } else {
            w.snapshot = 0; /* an older one will do, if the log reaches back to it */
            check_loaded(&l);
            w.snapshot = snapshot;
            free_loaded(&l);
        }
    }
    CHECK(!refused || (strncmp(wrong, "raft/", 5) == 0 && strlen(wrong) > 20));
    pk_store_free(w.store);
    w.store = NULL;
    return refused;
}

TEST(damage__to_any_file_is_refused_or_harmless)
{
    static const char *const names[SIM_DAMAGES] = {"flips", "zeroed sectors", "cuts",
                                                   "lost files"};
    const char *more = getenv("PICKET_DAMAGES");
    uint64_t times = more == NULL ? 60 : strtoull(more, NULL, 10);
    for (int how = 0; how < SIM_DAMAGES; how++) {
        uint64_t refused = 0, tried = 0;
        build(11 + (uint64_t)how);
        for (uint32_t file = 0; file < w.disk.n_files; file++) {
            for (uint64_t i = 0; i < times; i++) {
                struct sim_disk kept = copy_of_disk();
                sim_disk_damage(&w.disk, &w.disk.files[file], (enum sim_damage)how,
                                &w.rng);
                refused += is_refused_or_whole();
                tried++;
                sim_disk_free(&w.disk);
                w.disk = kept;
            }
        }
        printf("# %s: %llu tried, %llu refused, the others harmless\n", names[how],
               (unsigned long long)tried, (unsigned long long)refused);
        end();
    }
}

TEST(meta__one_bad_slot_is_written_anew_from_the_other)
{
    for (size_t slot = 0; slot < 2; slot++) {
        build(3);
        struct sim_file *f = sim_disk_find(&w.disk, "meta");
        f->bytes[slot * PK_META_SLOT + 32] ^= 1; /* the term */
        begin(false);
        load();
        CHECK(memcmp(f->bytes, f->bytes + PK_META_SLOT, PK_META_SLOT) == 0);
        end();
    }
}

TEST(meta__two_bad_slots_are_refused)
{
    build(3);
    struct sim_file *f = sim_disk_find(&w.disk, "meta");
    f->bytes[40] ^= 1;
    f->bytes[PK_META_SLOT + 40] ^= 1;
    CHECK(is_refused_or_whole());
    end();
}

/* ---- a new node ---- */

TEST(bootstrap__stores_the_first_configuration_once)
{
    struct raft_configuration conf;
    struct pk_store_loaded l;
    memset(&w, 0, sizeof w);
    w.rng = rng_of(1, 1);
    sim_disk_init(&w.disk);
    w.disk.begun = on_begun;
    begin(true);
    raft_configuration_init(&conf);
    CHECK_U64(raft_configuration_add(&conf, 4, "n1@h:1", RAFT_VOTER), 0);
    CHECK_U64(pk_store_bootstrap(w.store, &conf), 0);
    CHECK_U64(pk_store_bootstrap(w.store, &conf), RAFT_CANTBOOTSTRAP);
    raft_configuration_close(&conf);
    crash(true);
    begin(false);
    CHECK_U64(pk_store_load(w.store, &l), 0);
    CHECK_U64(l.n, 1);
    CHECK_U64(l.start, 1);
    CHECK_U64(l.term, 1);
    CHECK(l.entries[0].type == RAFT_CHANGE);
    CHECK_U64(pk_store_meta(w.store)->configuration_len, l.entries[0].buf.len);
    free_loaded(&l);
    end();
}

TEST(open__of_an_empty_folder_is_refused)
{
    memset(&w, 0, sizeof w);
    sim_disk_init(&w.disk);
    struct pk_store_options o = {
        .disk = &w.disk.disk, .owner = owner, .failed = on_failed};
    w.store = pk_store_new(&o);
    const char *wrong = pk_store_open(w.store);
    CHECK(wrong != NULL && strstr(wrong, "raft/meta is gone") != NULL);
    pk_store_free(w.store);
    w.store = NULL;
}
