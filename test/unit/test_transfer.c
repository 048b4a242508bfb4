/* SPDX-License-Identifier: MIT */
/*
 * Snapshots from one log store to another (raft/store.h): in chunks, over a wire that
 * loses anything, resumed where they were cut, replaced by others, from nodes that lie.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/door.h"
#include "raft/snapshot.h"
#include "raft/store.h"
#include "sim_disk.h"
#include "tap.h"

enum {
    SEGMENT = 32 * 1024,
    STATE = 5000,
    CHUNK = 64,
    CHUNK_GROWN = 16 * CHUNK, /* the largest */
    SLICE = 700,
    PARCELS = 64,
    STEPS_MAX = 20000,
    SENDER = 1,
    RECEIVER = 2,
    STRANGER = 3,
};

/* What is on the wire. */
struct parcel {
    enum { CHUNK_IN, HAVE, INSTALL } kind;
    uint64_t from;
    struct pk_snapshot_chunk chunk;
    unsigned char bytes[PK_STORE_CHUNK_MAX / 16];
    uint64_t have;
    struct raft_message message;
    unsigned char name[PK_SNAPSHOT_NAME];
};

struct side {
    struct sim_disk disk;
    struct pk_store *store;
    uint64_t id;
    char failed[PK_STORE_WHY_MAX];
    struct raft_io_snapshot_put put;
    struct raft_io_snapshot_get get;
    unsigned puts, gots;
    int put_status;
    struct raft_snapshot *got;
    uint64_t told; /* the last HAVE that it sent */
};

static struct {
    struct side a, b;
    struct rng rng;
    struct parcel parcels[PARCELS];
    unsigned first, n;
    unsigned sent;         /* parcels ever */
    unsigned lose;         /* the n-th of them is lost; 0: none */
    unsigned chunks;       /* with bytes, that were sent */
    size_t bytes;          /* in them */
    unsigned installs;     /* messages that came with their state */
    struct raft_message m; /* the last one, as libraft would get it */
} w;

static unsigned char state[STATE];

/* ---- a state that is its bytes ---- */

struct bytes {
    size_t len;
    unsigned char data[2 * STATE];
};

static unsigned states; /* that there are */

static void *begin_load(void)
{
    struct bytes *b = pk_door_resize(NULL, sizeof *b);
    b->len = 0;
    states++;
    return b;
}

static bool feed(void *load, const unsigned char *bytes, size_t len)
{
    struct bytes *b = load;
    CHECK(b->len + len <= sizeof b->data);
    CHECK(len <= SLICE);
    memcpy(b->data + b->len, bytes, len);
    b->len += len;
    return true;
}

static void drop(void *loaded)
{
    states--;
    pk_door_resize(loaded, 0);
}

static void *end_load(void *load)
{
    struct bytes *b = load;
    if (b->len < STATE) {
        drop(b);
        return NULL;
    }
    return b;
}

static uint32_t no_needs(const void *load)
{
    (void)load;
    return 0;
}

static const struct pk_snapshot_loader loader = {
    .begin = begin_load, .feed = feed, .needs = no_needs, .end = end_load, .drop = drop};

/* ---- the wire ---- */

static struct parcel lost;

static struct parcel *post(struct side *from)
{
    w.sent++;
    if (w.sent == w.lose) {
        return &lost;
    }
    CHECK(w.n < PARCELS);
    struct parcel *p = &w.parcels[(w.first + w.n++) % PARCELS];
    memset(p, 0, sizeof *p);
    p->from = from->id;
    return p;
}

static void send_chunk(void *ctx, uint64_t peer, const struct pk_snapshot_chunk *c)
{
    struct parcel *p = post(ctx);
    (void)peer;
    CHECK(c->len <= sizeof p->bytes);
    w.chunks += c->len > 0;
    w.bytes += c->len;
    p->kind = CHUNK_IN;
    p->chunk = *c;
    if (c->len > 0) {
        memcpy(p->bytes, c->bytes, c->len);
    }
    p->chunk.bytes = p->bytes;
}

static void send_have(void *ctx, uint64_t peer, const struct pk_snapshot_id *id,
                      uint64_t have)
{
    struct parcel *p = post(ctx);
    (void)peer;
    p->kind = HAVE;
    p->chunk.id = *id;
    p->have = have;
    ((struct side *)ctx)->told = have;
}

static void send_install(void *ctx, const struct raft_message *m)
{
    struct parcel *p = post(ctx);
    p->kind = INSTALL;
    p->message = *m;
    memcpy(p->name, m->install_snapshot.data.base, sizeof p->name);
}

static struct raft_message named(const struct parcel *p)
{
    struct raft_message m = p->message;
    m.server_id = p->from;
    raft_configuration_init(&m.install_snapshot.conf);
    CHECK_U64(raft_configuration_add(&m.install_snapshot.conf, 1, "n1@h:1", RAFT_VOTER),
              0);
    m.install_snapshot.data =
        (struct raft_buffer){raft_malloc(PK_SNAPSHOT_NAME), PK_SNAPSHOT_NAME};
    memcpy(m.install_snapshot.data.base, p->name, PK_SNAPSHOT_NAME);
    return m;
}

static void free_message(struct raft_message *m)
{
    raft_configuration_close(&m->install_snapshot.conf);
    raft_free(m->install_snapshot.data.base);
}

/* The other side's store gets what is first on the wire. False: there is nothing. */
static bool deliver(void)
{
    if (w.n == 0) {
        return false;
    }
    struct parcel *p = &w.parcels[w.first];
    struct pk_store *to = p->from == SENDER ? w.b.store : w.a.store;
    w.first = (w.first + 1) % PARCELS;
    w.n--;
    if (p->kind == CHUNK_IN) {
        pk_store_chunk(to, p->from, &p->chunk);
    } else if (p->kind == HAVE) {
        pk_store_have(to, p->from, &p->chunk.id, p->have);
    } else {
        struct raft_message m = named(p);
        if (pk_store_install(to, &m)) {
            CHECK_U64(w.installs++, 0);
            w.m = m;
        } else {
            free_message(&m);
        }
    }
    return true;
}

/* ---- the two sides ---- */

static void on_begun(void *ctx, struct pk_disk_op *op)
{
    (void)ctx, (void)op;
}

static void on_failed(void *ctx, const char *why)
{
    (void)snprintf(((struct side *)ctx)->failed, PK_STORE_WHY_MAX, "%s", why);
}

static bool finish_one(struct side *s)
{
    bool any = s->disk.under_way != NULL && s->failed[0] == '\0';
    if (any) {
        sim_disk_finish(&s->disk, s->disk.under_way);
    }
    return any;
}

static void open_side(struct side *s, uint64_t id)
{
    struct pk_store_options o = {.disk = &s->disk.disk,
                                 .owner = {.cluster = 9, .incarnation = id},
                                 .segment_bytes = SEGMENT,
                                 .slice_bytes = SLICE,
                                 .chunk_bytes = CHUNK,
                                 .loader = &loader,
                                 .send_chunk = send_chunk,
                                 .send_have = send_have,
                                 .send_install = send_install,
                                 .failed = on_failed,
                                 .ctx = s};
    struct pk_store_loaded l;
    s->id = id;
    sim_disk_init(&s->disk);
    s->disk.begun = on_begun;
    s->store = pk_store_new(&o);
    CHECK_STR(pk_store_create(s->store), NULL);
    CHECK_U64(pk_store_load(s->store, &l), 0);
    CHECK_U64(pk_store_set_term(s->store, 1), 0);
}

static void on_put(struct raft_io_snapshot_put *req, int status)
{
    struct side *s = req->data;
    s->puts++;
    s->put_status = status;
}

static void put(struct side *s, uint64_t index, struct raft_buffer *buf,
                unsigned trailing)
{
    struct raft_snapshot snapshot = {.index = index, .term = 1, .bufs = buf, .n_bufs = 1};
    raft_configuration_init(&snapshot.configuration);
    CHECK_U64(raft_configuration_add(&snapshot.configuration, 1, "n1@h:1", RAFT_VOTER),
              0);
    s->put.data = s;
    CHECK_U64(pk_store_snapshot_put(s->store, trailing, &s->put, &snapshot, on_put), 0);
    raft_configuration_close(&snapshot.configuration);
}

static void take(struct side *s, uint64_t index)
{
    struct raft_buffer buf = {state, sizeof state};
    unsigned puts = s->puts;
    state[0] = (unsigned char)index;
    put(s, index, &buf, 4);
    while (s->puts == puts) {
        CHECK(finish_one(s));
    }
}

static void on_got(struct raft_io_snapshot_get *req, struct raft_snapshot *s, int status)
{
    struct side *side = req->data;
    CHECK_U64(status, 0);
    side->got = s;
    side->gots++;
}

/* As libraft does: it loads the newest snapshot and sends it. */
static void raft_sends(struct side *s, uint64_t term)
{
    unsigned gots = s->gots;
    s->get.data = s;
    CHECK_U64(pk_store_snapshot_get(s->store, &s->get, on_got), 0);
    while (s->gots == gots) {
        CHECK(finish_one(s));
    }
    struct raft_message m = {
        .type = RAFT_INSTALL_SNAPSHOT, .server_id = w.b.id, .server_address = "n2@h:2"};
    m.install_snapshot = (struct raft_install_snapshot){
        .term = term,
        .last_index = s->got->index,
        .last_term = s->got->term,
        .conf = s->got->configuration,
        .conf_index = 1,
        .data = s->got->bufs[0],
    };
    pk_store_send(s->store, &m);
    free_message(&m);
    raft_free(s->got->bufs);
    raft_free(s->got);
}

static void fresh(void)
{
    memset(&w, 0, sizeof w);
    w.rng = rng_of(1, 1);
    for (size_t i = 0; i < sizeof state; i++) {
        state[i] = (unsigned char)(i * 7 + i / 256);
    }
    open_side(&w.a, SENDER);
    open_side(&w.b, RECEIVER);
}

static void end_side(struct side *s)
{
    s->disk.under_way = NULL;
    pk_store_free(s->store);
    sim_disk_free(&s->disk);
}

static void end(void)
{
    if (w.installs > 0 && w.m.install_snapshot.data.base != NULL) {
        free_message(&w.m);
    }
    end_side(&w.a);
    end_side(&w.b);
    CHECK_U64(states, 0);
}

/* Everything that can happen happens, and time passes when nothing does. */
static void run(bool (*until)(void))
{
    for (unsigned i = 0; !until(); i++) {
        CHECK(i < STEPS_MAX);
        bool any = finish_one(&w.b);
        any = finish_one(&w.a) || any;
        any = deliver() || any;
        if (!any) {
            pk_store_tick(w.a.store);
            pk_store_tick(w.b.store);
        }
        if (i % 2000 == 1999) { /* libraft repeats its message */
            raft_sends(&w.a, 7);
        }
    }
}

static bool has_come(void)
{
    return w.installs > 0;
}

static bool is_installed(void)
{
    return w.b.puts > 0;
}

/* libraft asks for the state that has come, and gets it. */
static void install(void)
{
    struct raft_buffer buf = w.m.install_snapshot.data;
    put(&w.b, w.m.install_snapshot.last_index, &buf, 0);
    run(is_installed);
    CHECK_U64(w.b.put_status, 0);
    struct pk_snapshot_handle *h = pk_snapshot_handle_of(&buf);
    CHECK(h != NULL && h->state != NULL);
    const struct bytes *got = h->state;
    CHECK_U64(got->len, sizeof state);
    CHECK(memcmp(got->data, state, sizeof state) == 0);
    drop(h->state);
}

/* Chunks that a whole state takes, when none is lost. */
static unsigned chunks_of_all(void)
{
    fresh();
    take(&w.a, 10);
    raft_sends(&w.a, 5);
    run(has_come);
    unsigned n = w.chunks;
    end();
    return n;
}

TEST(transfer__a_state_goes_in_chunks_and_is_loaded_in_slices)
{
    fresh();
    take(&w.a, 10);
    raft_sends(&w.a, 5);
    run(has_come);
    CHECK(w.chunks > 5);
    CHECK_U64(w.m.install_snapshot.term, 5);
    CHECK_U64(w.m.install_snapshot.last_index, 10);
    CHECK_U64(w.m.install_snapshot.last_term, 1);
    install();
    end();
}

/* Each parcel in turn is lost: the rest of the state follows, not the whole again. */
TEST(transfer__goes_on_where_it_was_cut)
{
    for (unsigned lose = 1;; lose++) {
        fresh();
        take(&w.a, 10);
        w.lose = lose;
        raft_sends(&w.a, 5);
        run(has_come);
        bool was_lost = w.sent >= lose;
        /* The sender asks by itself; only its message is libraft's to repeat. */
        CHECK(w.a.gots == 1 || lost.kind == INSTALL);
        CHECK(w.bytes <= STATE + CHUNK_GROWN); /* at most the lost one again */
        install();
        end();
        if (!was_lost) {
            break;
        }
    }
}

/* libraft sends every few seconds, and has a newer snapshot by then. */
TEST(transfer__repetitions_change_nothing)
{
    unsigned all = chunks_of_all();
    fresh();
    take(&w.a, 10);
    raft_sends(&w.a, 5);
    for (unsigned i = 0; i < 20 && !has_come(); i++) {
        (void)(finish_one(&w.b) || finish_one(&w.a) || deliver());
        raft_sends(&w.a, 6);
    }
    take(&w.a, 20);
    state[0] = 10;
    raft_sends(&w.a, 6);
    run(has_come);
    CHECK(w.chunks <= all);
    CHECK_U64(w.m.install_snapshot.last_index, 10);
    CHECK_U64(w.m.install_snapshot.term, 6); /* the leader's term of now */
    install();
    end();
}

static bool message_came_again(void)
{
    return w.sent > 0 && w.n == 0;
}

/* The message was lost: it goes again, and the state does not. */
TEST(transfer__the_message_is_repeated_without_the_state)
{
    fresh();
    take(&w.a, 10);
    raft_sends(&w.a, 5);
    while (!(w.n == 1 && w.parcels[w.first].kind == INSTALL)) {
        if (!finish_one(&w.b) && !finish_one(&w.a)) {
            CHECK(deliver());
        }
    }
    w.n = 0;
    unsigned chunks = w.chunks;
    raft_sends(&w.a, 5);
    CHECK(w.n == 1 && w.parcels[w.first].kind == INSTALL); /* at once */
    run(has_come);
    CHECK_U64(w.chunks, chunks);
    install();
    w.sent = 1;
    raft_sends(&w.a, 5); /* one more, for what is installed: nobody wants it */
    run(message_came_again);
    CHECK_U64(w.installs, 1);
    end();
}

/* The slot of a state that is being sent is not overwritten by the next ones. */
TEST(transfer__a_slot_is_kept_while_it_is_sent)
{
    fresh();
    take(&w.a, 10);
    raft_sends(&w.a, 5);
    for (uint64_t index = 11; index < 16; index++) {
        (void)(finish_one(&w.b) || deliver());
        take(&w.a, index);
    }
    state[0] = 10;
    run(has_come);
    CHECK_U64(w.m.install_snapshot.last_index, 10);
    install();
    end();
}

/* A node goes on taking snapshots, and lets go of slots for receivers that are gone. */
TEST(transfer__silent_receivers_do_not_keep_all_slots)
{
    fresh();
    for (uint64_t index = 1; index < 8; index++) {
        take(&w.a, index);
        w.b.id = RECEIVER + index; /* somebody else, who never answers */
        raft_sends(&w.a, 5);
        w.n = 0;
        for (unsigned i = 0; i < 10; i++) {
            pk_store_tick(w.a.store);
        }
    }
    end();
}

static bool sender_failed(void)
{
    return w.a.failed[0] != '\0';
}

/* A disk that has changed a state: nobody gets it. */
TEST(transfer__a_damaged_state_ends_its_sender)
{
    fresh();
    take(&w.a, 10);
    struct sim_file *f = sim_disk_find(&w.a.disk, "snapshot-0");
    f->bytes[8192 + STATE / 2] ^= 1;
    raft_sends(&w.a, 5);
    run(sender_failed);
    CHECK(strstr(w.a.failed, "raft/snapshot-0 can't be read any more") != NULL);
    CHECK_U64(w.installs, 0);
    end();
}

/* ---- the receiver alone ---- */

static struct pk_snapshot_id id_of(uint64_t index)
{
    return (struct pk_snapshot_id){.index = index, .term = 1, .size = 1000, .sum = 77};
}

static void offer(uint64_t peer, struct pk_snapshot_id id, uint64_t offset, size_t len)
{
    static unsigned char zeros[PK_STORE_CHUNK_MAX + 1];
    struct pk_snapshot_chunk c = {.id = id, .offset = offset, .bytes = zeros, .len = len};
    w.b.told = UINT64_MAX;
    pk_store_chunk(w.b.store, peer, &c);
    while (finish_one(&w.b)) {
    }
    w.n = 0;
}

/* Wrong in the end: it begins anew, and takes no memory and no slot meanwhile. */
TEST(receiver__forgets_a_state_with_a_wrong_checksum)
{
    fresh();
    offer(SENDER, id_of(10), 0, 0);
    CHECK_U64(w.b.told, 0);
    offer(SENDER, id_of(10), 0, 600);
    CHECK_U64(w.b.told, 600);
    offer(SENDER, id_of(10), 600, 400);
    CHECK_U64(w.b.told, 0);
    struct raft_message m = {.install_snapshot = {.last_index = 10, .last_term = 1}};
    struct parcel p = {.from = SENDER, .message = m};
    struct pk_snapshot_id id = id_of(10);
    pk_snapshot_name(&id, p.name);
    m = named(&p);
    CHECK(!pk_store_install(w.b.store, &m));
    free_message(&m);
    end();
}

TEST(receiver__takes_only_what_comes_next)
{
    fresh();
    offer(SENDER, id_of(10), 0, 0);
    offer(SENDER, id_of(10), 100, 50);
    CHECK_U64(w.b.told, 0);
    offer(SENDER, id_of(10), 0, 100);
    CHECK_U64(w.b.told, 100);
    offer(SENDER, id_of(10), 0, 100); /* a second time */
    CHECK_U64(w.b.told, 100);
    offer(SENDER, id_of(10), 200, 0); /* a question */
    CHECK_U64(w.b.told, 100);
    end();
}

/* P10: nothing is written and nothing is answered. */
TEST(receiver__ignores_sizes_that_can_not_be)
{
    fresh();
    struct pk_snapshot_id id = id_of(10);
    id.size = PK_STORE_STATE_MAX + 1;
    offer(SENDER, id, 0, 0);
    CHECK_U64(w.b.told, UINT64_MAX);
    id.size = 0;
    offer(SENDER, id, 0, 0);
    CHECK_U64(w.b.told, UINT64_MAX);
    offer(SENDER, id_of(0), 0, 0);
    CHECK_U64(w.b.told, UINT64_MAX);
    offer(SENDER, id_of(10), 1001, 0);
    offer(SENDER, id_of(10), 990, 11);
    CHECK_U64(w.b.told, UINT64_MAX);
    id.size = PK_STORE_STATE_MAX;
    offer(SENDER, id, 0, 0);
    CHECK_U64(w.b.told, 0);
    offer(SENDER, id, 0, PK_STORE_CHUNK_MAX + 1);
    CHECK_U64(w.b.told, UINT64_MAX);
    struct sim_file *f = sim_disk_find(&w.b.disk, "snapshot-0");
    CHECK(f->len < 2 * 8192); /* however large the state is said to be */
    end();
}

/* A newer one, or another one of the same sender, begins in its place. */
TEST(receiver__prefers_a_newer_snapshot)
{
    fresh();
    offer(SENDER, id_of(10), 0, 0);
    offer(SENDER, id_of(10), 0, 100);
    CHECK_U64(w.b.told, 100);
    offer(STRANGER, id_of(9), 0, 0);
    CHECK_U64(w.b.told, UINT64_MAX);
    offer(SENDER, id_of(10), 100, 100);
    CHECK_U64(w.b.told, 200);
    offer(STRANGER, id_of(11), 0, 0);
    CHECK_U64(w.b.told, 0);
    offer(SENDER, id_of(10), 200, 100);
    CHECK_U64(w.b.told, UINT64_MAX);
    offer(STRANGER, id_of(9), 0, 0); /* of the same sender */
    CHECK_U64(w.b.told, 0);
    end();
}

/* A sender that is gone keeps no other out for good, and no slot. */
TEST(receiver__forgets_a_sender_that_is_silent)
{
    fresh();
    offer(SENDER, id_of(10), 0, 0);
    offer(SENDER, id_of(10), 0, 100);
    for (unsigned i = 0; i < 150; i++) {
        pk_store_tick(w.b.store);
    }
    offer(STRANGER, id_of(9), 0, 0);
    CHECK_U64(w.b.told, 0);
    offer(STRANGER, id_of(9), 0, 100);
    CHECK_U64(w.b.told, 100);
    for (unsigned i = 0; i < 3000; i++) {
        pk_store_tick(w.b.store);
    }
    offer(STRANGER, id_of(9), 100, 100);
    CHECK_U64(w.b.told, 0); /* from the beginning */
    end();
}

TEST(receiver__has_what_is_in_an_older_snapshot)
{
    fresh();
    take(&w.b, 10);
    offer(SENDER, id_of(10), 0, 0);
    CHECK_U64(w.b.told, 1000);
    offer(SENDER, id_of(11), 0, 0);
    CHECK_U64(w.b.told, 0);
    end();
}

/* Its own snapshots and the one that comes do not get into each other's way. */
TEST(receiver__takes_snapshots_of_its_own_meanwhile)
{
    fresh();
    take(&w.a, 100);
    raft_sends(&w.a, 5);
    for (uint64_t index = 1; index < 8; index++) {
        take(&w.b, index);
        for (unsigned i = 0; i < 4; i++) {
            (void)(finish_one(&w.b) || finish_one(&w.a) || deliver());
        }
    }
    state[0] = 100;
    w.b.puts = 0;
    run(has_come);
    install();
    end();
}

static bool waits_for_space(void)
{
    return w.b.disk.no_space_snapshots > 3;
}

TEST(receiver__without_space_begins_again_when_there_is_some)
{
    fresh();
    take(&w.a, 10);
    w.b.disk.full = true;
    raft_sends(&w.a, 5);
    run(waits_for_space);
    CHECK_STR(w.b.failed, "");
    w.b.disk.full = false;
    run(has_come);
    install();
    end();
}
