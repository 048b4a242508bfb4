/* SPDX-License-Identifier: MIT */
/* Messages on their way to other nodes: each is called back once, from the loop, whatever
 * becomes of it; none is kept for ever. Transports without an engine. */
#include "core/door.h"
#include "nodes.h"
#include "raft/message.h"
#include "raft/store.h"

enum { SENDS = 4096, ELECTION_MS = 60 };

/* A transport and what it has heard. */
struct end {
    struct pk_identity self;
    struct pk_peers peers;
    struct pk_transport *transport;
    char listen[PK_HOST_MAX];
    char address[PK_NODE_ADDRESS_MAX];
    unsigned received, noted, refusals;
    uint64_t terms[64]; /* of the messages that came */
    uint64_t from;      /* the last one's sender */
    char sender[PK_NODE_ADDRESS_MAX];
    size_t payload; /* bytes that came in all */
    unsigned char note[PK_NOTE_MAX];
    size_t note_len;
    bool closed;
    unsigned chunks;
    struct pk_snapshot_chunk chunk; /* the last one, without its bytes */
};

static struct end a, b;

/* What became of the messages that were sent. */
static struct raft_io_send sends[SENDS];
static unsigned n_sends, done, lost, canceled, calls[SENDS];
static bool sending, close_was_called_back;

static void on_sent(struct raft_io_send *req, int status)
{
    size_t nth = (size_t)(req - sends);
    CHECK(!sending);               /* never from inside of send */
    CHECK(!close_was_called_back); /* nor after the end */
    calls[nth]++;
    CHECK_U64(calls[nth], 1);
    done += status == 0;
    lost += status == RAFT_NOCONNECTION;
    canceled += status == RAFT_CANCELED;
    CHECK(status == 0 || status == RAFT_NOCONNECTION || status == RAFT_CANCELED);
}

static void on_message(void *ctx, struct raft_message *m)
{
    struct end *e = ctx;
    e->from = m->server_id;
    (void)snprintf(e->sender, sizeof e->sender, "%s", m->server_address);
    uint64_t term = m->type == RAFT_APPEND_ENTRIES     ? m->append_entries.term
                    : m->type == RAFT_INSTALL_SNAPSHOT ? m->install_snapshot.term
                                                       : m->timeout_now.term;
    e->terms[e->received++ % 64] = term;
    for (unsigned i = 0;
         m->type == RAFT_APPEND_ENTRIES && i < m->append_entries.n_entries; i++) {
        e->payload += m->append_entries.entries[i].buf.len;
    }
    e->payload +=
        m->type == RAFT_INSTALL_SNAPSHOT ? m->install_snapshot.data.len : (size_t)0;
    pk_message_drop(m);
}

static void on_note(void *ctx, uint64_t from, const unsigned char *bytes, size_t len)
{
    struct end *e = ctx;
    e->noted++;
    e->from = from;
    e->note_len = len;
    memcpy(e->note, bytes, len);
}

static void on_chunk(void *ctx, uint64_t from, const struct pk_snapshot_chunk *c)
{
    struct end *e = ctx;
    e->chunks++;
    e->from = from;
    e->chunk = *c;
    for (size_t i = 0; i < c->len; i++) {
        CHECK_U64(c->bytes[i], 0x3c);
    }
}

static void on_end_refused(void *ctx, const char *peer, const char *why)
{
    printf("# %s: %s\n", peer, why);
    ((struct end *)ctx)->refusals++;
}

static void end_begin(struct end *e, const char *name, uint16_t port)
{
    char path[4300];
    (void)snprintf(path, sizeof path, "%s/%s", state, name);
    (void)mkdir(path, 0700);
    memset(e, 0, sizeof *e);
    e->self = identity_of(name);
    CHECK_STR(pk_peers_load(&e->peers, path), NULL);
    (void)snprintf(e->listen, sizeof e->listen, "127.0.0.1:%u", (unsigned)port);
    struct pk_uvio_options o = {.loop = &loop,
                                .listen = e->listen,
                                .self = &e->self,
                                .peers = &e->peers,
                                .election_ms = ELECTION_MS,
                                .refused = on_end_refused,
                                .ctx = e};
    e->transport = pk_transport_new(&o);
    CHECK_STR(pk_transport_bind(e->transport), NULL);
    (void)snprintf(e->address, sizeof e->address, "%s@127.0.0.1:%u", name,
                   (unsigned)pk_transport_port(e->transport));
    CHECK(pk_transport_set_address(e->transport, e->address));
    pk_transport_start(e->transport, on_message, on_note, on_chunk, e);
}

static void on_end_closed(void *ctx)
{
    CHECK(!((struct end *)ctx)->closed);
    ((struct end *)ctx)->closed = true;
    close_was_called_back = ctx == &a; /* the one that sends */
}

static bool is_end_closed(void *e)
{
    return ((struct end *)e)->closed;
}

static void end_close(struct end *e)
{
    pk_transport_close(e->transport, on_end_closed, e);
    CHECK(!e->closed);
    run_until(is_end_closed, e);
    pk_transport_free(e->transport);
    e->transport = NULL;
}

static void begin(void)
{
    nodes_fresh();
    memset(sends, 0, sizeof sends);
    memset(calls, 0, sizeof calls);
    n_sends = done = lost = canceled = 0;
    close_was_called_back = false;
    end_begin(&a, "n1", 0);
}

/* Every message was called back for, and nothing is left. */
static void finish(void)
{
    struct end *ends[] = {&a, &b};
    for (size_t i = 0; i < 2; i++) {
        if (ends[i]->transport != NULL) {
            end_close(ends[i]);
        }
    }
    CHECK_U64(done + lost + canceled, n_sends);
    nodes_end();
}

static void send_to(const char *name, const char *address, struct raft_message m)
{
    CHECK(n_sends < SENDS);
    m.server_id = identity_of(name).id;
    m.server_address = address;
    sending = true;
    CHECK(pk_transport_send(a.transport, &sends[n_sends++], &m, on_sent) == 0);
    sending = false;
}

static struct raft_message small(uint64_t term)
{
    struct raft_message m = {.type = RAFT_TIMEOUT_NOW};
    m.timeout_now.term = term;
    return m;
}

static struct raft_entry big_entry;

/* AppendEntries with one entry of that size. */
static struct raft_message large(size_t size)
{
    static unsigned char *block;
    static size_t room;
    if (size > room) {
        block = realloc(block, size);
        CHECK(block != NULL);
        memset(block, 'x', size);
        room = size;
    }
    struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
    big_entry =
        (struct raft_entry){.term = 1, .type = RAFT_COMMAND, .buf = {block, size}};
    m.append_entries.entries = &big_entry;
    m.append_entries.n_entries = 1;
    return m;
}

static bool has_received(void *count)
{
    return b.received >= *(unsigned *)count;
}

static bool all_called_back(void *unused)
{
    (void)unused;
    return done + lost + canceled == n_sends;
}

static void arrive(unsigned count)
{
    run_until(has_received, &count);
    CHECK_U64(b.received, count);
}

/* Both ends, and a connection between them. */
static void begin_connected(void)
{
    begin();
    end_begin(&b, "n2", 0);
    send_to("n2", b.address, small(1));
    arrive(1);
    run_until(all_called_back, NULL);
    CHECK_U64(done, 1);
}

TEST(sender__messages_arrive_in_order)
{
    begin_connected();
    for (uint64_t i = 2; i <= 40; i++) {
        send_to("n2", b.address, small(i));
    }
    arrive(40);
    for (uint64_t i = 0; i < 40; i++) {
        CHECK_U64(b.terms[i], i + 1);
    }
    CHECK_U64(b.from, a.self.id);
    CHECK_STR(b.sender, a.address);
    run_until(all_called_back, NULL);
    CHECK_U64(done, 40);
    CHECK_U64(a.refusals + b.refusals, 0);
    CHECK_U64(pk_transport_counts(a.transport).handshakes, 1); /* one connection */
    CHECK(pk_transport_silence_ms(b.transport, a.self.id) != UINT64_MAX);
    CHECK_U64(pk_transport_silence_ms(a.transport, b.self.id), UINT64_MAX);
    finish();
}

TEST(sender__large_messages_arrive)
{
    begin_connected();
    send_to("n2", b.address, large(4 << 20));
    send_to("n2", b.address, large(64));
    send_to("n2", b.address, small(9));
    arrive(4);
    CHECK_U64(b.payload, (4 << 20) + 64);
    CHECK_U64(b.terms[3], 9);
    finish();
}

/* As long as nobody is there, the newest three wait. */
TEST(sender__few_wait_for_a_connection)
{
    begin();
    end_begin(&b, "n2", 0);
    uint16_t port = pk_transport_port(b.transport);
    char address[PK_NODE_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "%s", b.address);
    end_close(&b);
    for (uint64_t i = 1; i <= 10; i++) {
        send_to("n2", address, small(i));
    }
    run_for(3 * ELECTION_MS);
    CHECK_U64(lost, 7);
    CHECK_U64(done + canceled, 0);
    end_begin(&b, "n2", port);
    arrive(PK_WAITING_MAX);
    CHECK_U64(b.terms[0], 8);
    CHECK_U64(b.terms[2], 10);
    run_until(all_called_back, NULL);
    CHECK_U64(done, 3);
    finish();
}

TEST(sender__what_waits_is_canceled_at_the_end)
{
    begin();
    send_to("n2", "n2@127.0.0.1:1", small(1)); /* nobody listens there */
    send_to("n3", "n3@nowhere", small(1));     /* that is no address */
    send_to("n4", "", small(1));
    run_for(2 * ELECTION_MS);
    CHECK_U64(done + lost, 0);
    send_to("n2", "n2@127.0.0.1:1", small(2));
    finish();
    CHECK_U64(canceled, 4);
}

/* Also what has just failed, and what is being written. */
TEST(sender__everything_is_called_back_at_the_end)
{
    begin_connected();
    for (int i = 0; i < 20; i++) {
        send_to("n2", b.address, large(1 << 18));
        send_to("n3", "n3@127.0.0.1:1", small(1));
    }
    struct raft_io_send late;
    struct raft_message m = small(1);
    m.server_id = b.self.id;
    m.server_address = b.address;
    pk_transport_close(a.transport, on_end_closed, &a);
    CHECK_U64(pk_transport_send(a.transport, &late, &m, on_sent), RAFT_CANCELED);
    run_until(is_end_closed, &a);
    pk_transport_free(a.transport);
    a.transport = NULL;
    finish();
    CHECK(canceled >= PK_WAITING_MAX);
    CHECK_U64(lost, 20 - PK_WAITING_MAX);
}

/* A socket that takes the connection of n1 as node n2 and never reads from it again. */
static struct plug deaf_node(int listener)
{
    struct plug p = {.fd = -1};
    while (p.fd < 0) {
        uv_run(&loop, UV_RUN_NOWAIT);
        p.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    }
    run_until(is_answered, &p);
    struct node n = {.self = a.self};
    struct pk_greeting g = hello_of("n2", &n);
    g.kind = PK_WELCOME;
    plug_greet(&p, &g);
    return p;
}

static int listen_at(char *address, size_t size)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(listen(fd, 8) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    (void)snprintf(address, size, "n2@127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    return fd;
}

/* P10: who does not read costs a bounded amount of memory. */
TEST(sender__a_node_that_does_not_read_gets_no_more)
{
    enum { SIZE = 8 << 20 };
    begin();
    char address[PK_NODE_ADDRESS_MAX];
    int listener = listen_at(address, sizeof address);
    send_to("n2", address, small(1));
    struct plug p = deaf_node(listener);
    run_until(all_called_back, NULL);
    for (unsigned i = 0; i < 20; i++) {
        send_to("n2", address, large(SIZE));
        run_for(1);
    }
    /* One may be in the buffers of the sockets. */
    unsigned fit = PK_UNSENT_BYTES_MAX / SIZE;
    CHECK(lost == 20 - fit || lost == 20 - fit - 1);
    CHECK_U64(done, 1 + (lost == 20 - fit - 1));
    unsigned before = n_sends - done - lost;
    for (unsigned i = 0; i < PK_UNSENT_MAX + 50; i++) {
        send_to("n2", address, small(i)); /* these are small, but not nothing */
        pk_transport_note(a.transport, identity_of("n2").id, "note", 4);
    }
    run_for(1);
    unsigned kept = n_sends - done - lost;
    CHECK(kept > before && kept < PK_UNSENT_MAX);
    finish();
    CHECK_U64(canceled + lost + done, n_sends);
    plug_pull(&p);
    (void)close(listener);
}

/* A snapshot larger than the bound is not kept back for ever. */
TEST(sender__one_large_message_is_always_sent)
{
    begin_connected();
    send_to("n2", b.address, large((PK_UNSENT_BYTES_MAX) + 8));
    send_to("n2", b.address, large(8));
    arrive(2);
    run_until(all_called_back, NULL);
    CHECK_U64(done, 2);
    CHECK_U64(lost, 1);
    CHECK_U64(b.payload, PK_UNSENT_BYTES_MAX + 8);
    finish();
}

static bool chunks_came(void *ctx)
{
    return b.chunks == *(unsigned *)ctx;
}

/* A connection of their own, so messages don't wait behind them: one more handshake. */
TEST(sender__chunks_of_snapshots_go_on_a_connection_of_their_own)
{
    static unsigned char bytes[PK_STORE_CHUNK_MAX];
    struct pk_snapshot_chunk c = {
        .id = {.index = 7, .term = 3, .size = 1 << 20, .sum = 9},
        .offset = 4096,
        .bytes = bytes,
        .len = sizeof bytes};
    unsigned wanted = 1;
    memset(bytes, 0x3c, sizeof bytes);
    begin_connected();
    uint64_t handshakes = pk_transport_counts(b.transport).handshakes;
    pk_transport_chunk(a.transport, identity_of("n9").id, &c); /* nobody knows it */
    pk_transport_chunk(a.transport, identity_of("n2").id, &c);
    run_until(chunks_came, &wanted);
    CHECK_U64(pk_transport_counts(b.transport).handshakes, handshakes + 1);
    CHECK(pk_snapshot_same(&b.chunk.id, &c.id));
    CHECK_U64(b.chunk.offset, 4096);
    CHECK_U64(b.chunk.len, sizeof bytes);
    c.len = 0; /* a question */
    pk_transport_chunk(a.transport, identity_of("n2").id, &c);
    wanted = 2;
    run_until(chunks_came, &wanted);
    CHECK_U64(pk_transport_counts(b.transport).handshakes, handshakes + 1);
    finish();
}

/* A node that does not read gets no second chunk (P10). */
TEST(sender__one_chunk_to_a_node_is_on_its_way)
{
    static unsigned char bytes[PK_STORE_CHUNK_MAX];
    struct pk_snapshot_chunk c = {
        .id = {.index = 7, .term = 3, .size = 1 << 20, .sum = 9},
        .bytes = bytes,
        .len = sizeof bytes};
    unsigned wanted = 1;
    memset(bytes, 0x3c, sizeof bytes);
    begin_connected();
    for (unsigned i = 0; i < 5; i++) { /* before there is a connection for them */
        pk_transport_chunk(a.transport, identity_of("n2").id, &c);
    }
    run_until(chunks_came, &wanted);
    run_for(1);
    CHECK_U64(b.chunks, 1);
    finish();
}

static bool has_left(void *ctx)
{
    struct plug *p = ctx;
    struct plug next = {.fd = accept4(p->fd, NULL, NULL, SOCK_CLOEXEC)};
    if (next.fd >= 0) {
        (void)close(next.fd);
    }
    return next.fd >= 0;
}

/* It is noticed without a message, and dialled again. */
TEST(sender__a_connection_that_ends_is_dialled_again)
{
    begin();
    char address[PK_NODE_ADDRESS_MAX];
    int listener = listen_at(address, sizeof address);
    send_to("n2", address, small(1));
    struct plug p = deaf_node(listener);
    run_until(all_called_back, NULL);
    plug_pull(&p);
    struct plug door = {.fd = listener};
    run_until(has_left, &door);
    run_until(has_left, &door);
    finish();
    (void)close(listener);
}

/* Nobody answers on a connection that was dialled; bytes there are a mistake. */
TEST(sender__bytes_from_the_other_side_end_the_connection)
{
    begin();
    char address[PK_NODE_ADDRESS_MAX];
    int listener = listen_at(address, sizeof address);
    send_to("n2", address, small(1));
    struct plug p = deaf_node(listener);
    run_until(all_called_back, NULL);
    plug_write(&p, "x", 1);
    p.have = 0;
    run_until(is_ended, &p);
    plug_pull(&p);
    finish();
    (void)close(listener);
}

TEST(sender__a_node_that_moved_is_found_at_its_new_address)
{
    begin_connected();
    char address[PK_NODE_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "n2@localhost:%u",
                   (unsigned)pk_transport_port(b.transport));
    send_to("n2", address, small(2));
    arrive(2);
    CHECK_U64(pk_transport_counts(b.transport).handshakes, 2);
    finish();
}

TEST(sender__notes_arrive_or_are_dropped)
{
    begin();
    end_begin(&b, "n2", 0);
    pk_transport_note(a.transport, b.self.id, "early", 5); /* no connection */
    send_to("n2", b.address, small(1));
    pk_transport_note(a.transport, b.self.id, "too early", 9);
    arrive(1);
    CHECK_U64(b.noted, 0);
    unsigned char longest[PK_NOTE_MAX];
    memset(longest, 'l', sizeof longest);
    pk_transport_note(a.transport, b.self.id, longest, sizeof longest);
    send_to("n2", b.address, small(2));
    arrive(2);
    CHECK_U64(b.noted, 1);
    CHECK_U64(b.from, a.self.id);
    CHECK_U64(b.note_len, PK_NOTE_MAX);
    CHECK(memcmp(b.note, longest, sizeof longest) == 0);
    finish();
}

/* More nodes than there can be: the others are told at once that there is no way. */
TEST(sender__nodes_are_bounded)
{
    begin();
    for (unsigned i = 0; i < PK_LINKS_MAX + 6; i++) {
        char name[16], address[32];
        (void)snprintf(name, sizeof name, "m%u", i);
        (void)snprintf(address, sizeof address, "m%u@127.0.0.1:1", i);
        send_to(name, address, small(1));
    }
    run_for(10);
    CHECK_U64(lost, 6);
    finish();
    CHECK_U64(canceled, PK_LINKS_MAX);
}
