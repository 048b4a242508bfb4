/* SPDX-License-Identifier: MIT */
/*
 * For tests of what nodes say to each other: several nodes on one loop, each with its
 * own data directory and replica, and plain sockets to bother them with.
 */
#ifndef PICKET_TEST_NODES_H
#define PICKET_TEST_NODES_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "core/wire.h"
#include "host/clock.h"
#include "raft/handshake.h"
#include "raft/replica.h"
#include "raft/transport.h"
#include "raft/uvio.h"
#include "statedir.h"
#include "tap.h"

enum { NODES_MAX = 3, CLUSTER = 77, PATIENCE_MS = 120000 };

struct node {
    char dir[4300];
    char listen[PK_HOST_MAX];
    char address[PK_ADDRESS_MAX];
    struct pk_identity self;
    struct pk_peers peers;
    struct pk_uvio *uvio;
    struct pk_replica *replica;
    int lock;
    uint64_t applied;  /* entries */
    unsigned replaced; /* times that a snapshot came from the leader */
    unsigned refusals; /* told by the transport */
    uint32_t version;  /* the cluster version by which it judges others; 0: none */
    char peer[PK_NODE_ADDRESS_MAX];
    char why[1024]; /* the last refusal, or why it does not start */
    unsigned closed;
};

static uv_loop_t loop;
static struct node nodes[NODES_MAX];
static uint32_t snapshot_entries; /* between snapshots; 0: as many as usual */

/* ---- time ---- */

static inline void on_patience_over(uv_timer_t *t)
{
    *(bool *)t->data = true;
}

/* Runs of mutants wait less for what a mistake keeps from happening. */
static inline uint64_t patience_ms(void)
{
    const char *haste = getenv("PICKET_TEST_HASTE");
    long by = haste == NULL ? 1 : strtol(haste, NULL, 10);
    return PATIENCE_MS / (uint64_t)(by < 1 ? 1 : by);
}

/* Runs the loop until it is true. What takes too long fails the test. */
static inline void run_until(bool (*is_true)(void *), void *ctx)
{
    bool over = false;
    uv_timer_t patience;
    uv_timer_t beat; /* what is looked at is not always something the loop wakes up for */
    CHECK(uv_timer_init(&loop, &patience) == 0 && uv_timer_init(&loop, &beat) == 0);
    patience.data = &over;
    bool unused = false;
    beat.data = &unused;
    uv_timer_start(&patience, on_patience_over, patience_ms(), 0);
    uv_timer_start(&beat, on_patience_over, 1, 1);
    while (!over && !is_true(ctx)) {
        uv_run(&loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&patience, NULL);
    uv_close((uv_handle_t *)&beat, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    CHECK(!over);
}

static inline bool is_past(void *at)
{
    return pk_clock_ms() >= *(uint64_t *)at;
}

static inline void run_for(uint64_t ms)
{
    uint64_t at = pk_clock_ms() + ms;
    run_until(is_past, &at);
}

/* ---- nodes ---- */

static inline void on_stepped(void *ctx, const struct pk_step *s)
{
    (void)ctx;
    (void)s;
}

static inline void on_applied(void *ctx, const struct pk_entry *e)
{
    (void)e;
    ((struct node *)ctx)->applied++;
}

static inline void on_replaced(void *ctx)
{
    ((struct node *)ctx)->replaced++;
}

static inline void on_failed(void *ctx, const char *why)
{
    (void)ctx;
    FAIL(why);
}

static inline void on_broken(void *ctx, const char *why)
{
    (void)ctx;
    FAIL(why);
}

static inline void on_refused(void *ctx, const char *peer, const char *why)
{
    struct node *n = ctx;
    n->refusals++;
    (void)snprintf(n->peer, sizeof n->peer, "%s", peer);
    (void)snprintf(n->why, sizeof n->why, "%s", why);
}

static inline uint32_t on_version(void *ctx)
{
    return ((const struct node *)ctx)->version;
}

static inline size_t on_members(void *ctx, struct pk_member *out)
{
    struct node *n = ctx;
    return n->replica == NULL ? 0 : pk_replica_members(n->replica, out, NULL);
}

/* Fresh loop, fresh directory, no nodes. */
static inline void nodes_fresh(void)
{
    dir_fresh();
    memset(nodes, 0, sizeof nodes);
    snapshot_entries = 0;
    memset(&loop, 0, sizeof loop);
    CHECK(uv_loop_init(&loop) == 0);
    CHECK(mkdir(state, 0700) == 0);
    (void)signal(SIGPIPE, SIG_IGN); /* as every user of libuv has to */
}

/* The identity that a node of that name has in these tests. */
static inline struct pk_identity identity_of(const char *name)
{
    uint64_t digest = pk_digest(PK_DIGEST_START, name, strlen(name));
    struct pk_identity id = {.cluster = CLUSTER, .id = (digest & INT64_MAX) | 1};
    (void)snprintf(id.name, sizeof id.name, "%s", name);
    return id;
}

/* Gives the node its directory, its identity and its sockets; `host` is what it listens
 * on and what others dial. A `port` of 0: any. False: n->why says why not. */
static inline bool node_opens(struct node *n, const char *name, const char *host,
                              uint16_t port)
{
    bool fresh;
    (void)snprintf(n->dir, sizeof n->dir, "%s/%s", state, name);
    n->lock = pk_identity_open(n->dir, &n->self, &fresh, n->why, sizeof n->why);
    CHECK(n->lock >= 0);
    if (fresh) {
        n->self = identity_of(name);
        CHECK(pk_identity_create(n->dir, &n->self) == NULL);
    }
    CHECK(pk_peers_load(&n->peers, n->dir) == NULL);
    (void)snprintf(n->listen, sizeof n->listen, "%s:%u", host, (unsigned)port);
    struct pk_uvio_options o = {.loop = &loop,
                                .dir = n->dir,
                                .listen = n->listen,
                                .self = &n->self,
                                .client = "127.0.0.1:1",
                                .http = "",
                                .peers = &n->peers,
                                .election_ms = 150,
                                .refused = on_refused,
                                .failed = on_failed,
                                .members = on_members,
                                .version = on_version,
                                .ctx = n};
    n->uvio = pk_uvio_new(&o, n->why, sizeof n->why);
    if (n->uvio != NULL && !pk_uvio_open(n->uvio, fresh, n->why, sizeof n->why)) {
        pk_uvio_free(n->uvio);
        uv_run(&loop, UV_RUN_NOWAIT);
        n->uvio = NULL;
    }
    if (n->uvio == NULL) {
        (void)close(n->lock);
        return false;
    }
    (void)snprintf(n->address, sizeof n->address, "%s@%s:%u", name, host,
                   (unsigned)pk_uvio_port(n->uvio));
    return true;
}

static inline void node_open(struct node *n, const char *name, const char *host,
                             uint16_t port)
{
    if (!node_opens(n, name, host, port)) {
        FAIL(n->why);
    }
}

static inline struct pk_member member_of(const char *address)
{
    struct pk_member m = {.role = PK_MEMBER_VOTER};
    char name[PK_NODE_NAME_MAX];
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(address, "@"), address);
    m.id = identity_of(name).id;
    (void)snprintf(m.address, sizeof m.address, "%s", address);
    return m;
}

/* NULL, or why it does not start; then it has to be ended all the same. */
static inline const char *node_start(struct node *n, const struct pk_member *members,
                                     size_t count)
{
    struct pk_replica_options o = {.id = n->self.id,
                                   .address = n->address,
                                   .origin = pk_random(),
                                   .election_ms = 400,
                                   .use = pk_uvio_use,
                                   .use_ctx = n->uvio,
                                   .reserve = pk_uvio_reserve(),
                                   .threshold = snapshot_entries,
                                   .trailing = snapshot_entries};
    struct pk_replica_hooks hooks = {.ctx = n,
                                     .stepped = on_stepped,
                                     .applied = on_applied,
                                     .replaced = on_replaced,
                                     .broken = on_broken};
    n->applied = 0;
    n->replica = pk_replica_new(pk_uvio_io(n->uvio), &o, &hooks, n->why, sizeof n->why);
    if (n->replica == NULL) {
        return n->why;
    }
    const char *wrong = pk_replica_bootstrap(n->replica, members, count);
    return wrong != NULL ? wrong : pk_replica_start(n->replica);
}

static inline void on_node_closed(void *ctx)
{
    ((struct node *)ctx)->closed++;
}

static inline bool is_closed(void *n)
{
    return ((struct node *)n)->closed > 0;
}

/* Ends a node; its directory stays. */
static inline void node_end(struct node *n)
{
    if (n->replica != NULL) {
        pk_replica_close(n->replica, on_node_closed, n);
        run_until(is_closed, n);
        CHECK_U64(n->closed, 1);
        pk_replica_free(n->replica);
    }
    pk_uvio_free(n->uvio);
    uv_run(&loop, UV_RUN_NOWAIT);
    (void)close(n->lock);
    memset(n, 0, sizeof *n);
}

static inline void on_walk(uv_handle_t *h, void *count)
{
    (*(unsigned *)count)++;
    printf("# left open: %s\n", uv_handle_type_name(h->type));
}

/* Ends all, and nothing of them is left on the loop. */
static inline void nodes_end(void)
{
    unsigned left = 0;
    for (size_t i = 0; i < NODES_MAX; i++) {
        if (nodes[i].uvio != NULL) {
            node_end(&nodes[i]);
        }
    }
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_walk(&loop, on_walk, &left);
    CHECK_U64(left, 0);
    CHECK(uv_loop_close(&loop) == 0);
}

/* A cluster of `count` nodes, n1 and so on. */
static inline void cluster_start_at(const char *host, size_t count)
{
    struct pk_member members[NODES_MAX];
    for (size_t i = 0; i < count; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "n%zu", i + 1);
        node_open(&nodes[i], name, host, 0);
        members[i] = member_of(nodes[i].address);
    }
    for (size_t i = 0; i < count; i++) {
        const char *wrong = node_start(&nodes[i], members, count);
        CHECK_STR(wrong, NULL);
    }
}

static inline void cluster_start(size_t count)
{
    cluster_start_at("127.0.0.1", count);
}

static inline struct node *leader(void)
{
    for (size_t i = 0; i < NODES_MAX; i++) {
        if (nodes[i].replica != NULL && pk_replica_standing(nodes[i].replica).leader) {
            return &nodes[i];
        }
    }
    return NULL;
}

static inline bool is_led(void *unused)
{
    (void)unused;
    return leader() != NULL;
}

static inline bool all_have(void *count)
{
    for (size_t i = 0; i < NODES_MAX; i++) {
        if (nodes[i].replica != NULL && nodes[i].applied < *(uint64_t *)count) {
            return false;
        }
    }
    return true;
}

/* Commits one entry with a value of `size` bytes; waits until everybody has run it. */
static inline void commit(size_t size)
{
    static char value[65536];
    CHECK(size <= sizeof value);
    uint64_t most = 0;
    enum pk_proposed done = PK_NOT_LEADER;
    for (size_t i = 0; i < NODES_MAX; i++) {
        most = nodes[i].applied > most ? nodes[i].applied : most;
    }
    struct pk_command c = {.verb = PK_FENCE_SET,
                           .name = pk_text("resource"),
                           .token = 1,
                           .value = pk_bytes(value, size)};
    size_t body = pk_command_size(&c);
    while (done != PK_PROPOSED) {
        run_until(is_led, NULL);
        struct pk_entry e = {.kind = PK_ENTRY_COMMANDS, .count = 1, .batch = 1};
        (void)pk_command_encode(&c, pk_replica_room(leader()->replica, body));
        done = pk_replica_propose(leader()->replica, &e, body);
        CHECK(done == PK_PROPOSED || done == PK_NOT_LEADER || done == PK_NO_SPACE);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    most++;
    run_until(all_have, &most);
}

/* ---- plain sockets ---- */

static inline unsigned open_sockets(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct stat st;
        count += fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    }
    return count;
}

struct plug {
    int fd;
    unsigned char in[4096];
    size_t have;
    bool ended; /* by the other side */
};

static inline struct plug plug_into(uint16_t port)
{
    struct plug p = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(p.fd >= 0 && connect(p.fd, (struct sockaddr *)&at, sizeof at) == 0);
    return p;
}

static inline void plug_write(struct plug *p, const void *bytes, size_t len)
{
    CHECK(send(p->fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
}

static inline void plug_pull(struct plug *p)
{
    (void)close(p->fd);
    p->fd = -1;
}

static inline void plug_look(struct plug *p)
{
    ssize_t n = recv(p->fd, p->in + p->have, sizeof p->in - p->have, MSG_DONTWAIT);
    p->ended = p->ended || n == 0 || (n < 0 && errno != EAGAIN);
    p->have += n > 0 ? (size_t)n : 0;
}

static inline bool is_ended(void *p)
{
    plug_look(p);
    return ((struct plug *)p)->ended;
}

static inline bool is_answered(void *p)
{
    struct plug *plug = p;
    struct pk_greeting g;
    plug_look(plug);
    return plug->have > 0 &&
           pk_greeting_decode(plug->in, plug->have, &g) == PK_GREETING_WHOLE;
}

/* What a node called `name` says to `n`. */
static inline struct pk_greeting hello_of(const char *name, const struct node *n)
{
    struct pk_greeting g = {.kind = PK_HELLO, .cluster = CLUSTER, .to = n->self.id};
    g.from.id = identity_of(name).id;
    g.run = 1;
    g.release = pk_release_own();
    (void)snprintf(g.from.name, sizeof g.from.name, "%s", name);
    (void)snprintf(g.address, sizeof g.address, "%s@127.0.0.1:1", name);
    return g;
}

static inline struct pk_greeting welcome_of(const char *name, const struct node *n)
{
    struct pk_greeting g = hello_of(name, n);
    g.kind = PK_WELCOME;
    return g;
}

static inline void plug_greet(struct plug *p, const struct pk_greeting *g)
{
    unsigned char bytes[PK_GREETING_MAX];
    plug_write(p, bytes, pk_greeting_encode(g, bytes));
}

/* Says it and gives back the answer. */
static inline struct pk_greeting ask(struct plug *p, const struct pk_greeting *g)
{
    struct pk_greeting answer;
    plug_greet(p, g);
    run_until(is_answered, p);
    CHECK(pk_greeting_decode(p->in, p->have, &answer) == PK_GREETING_WHOLE);
    return answer;
}

/* One node alone, which is its own leader and shall stay it. */
static inline struct node *lone_node(void)
{
    nodes_fresh();
    cluster_start(1);
    commit(10);
    return &nodes[0];
}

/* A listening socket of the test, for a node to dial. */
struct door {
    int fd;
    uint16_t port;
    struct plug caller; /* the last who came */
};

static inline struct door door_make(bool is_shut)
{
    struct door d = {.fd =
                         socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(d.fd >= 0 && bind(d.fd, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(is_shut || listen(d.fd, 8) == 0);
    CHECK(getsockname(d.fd, (struct sockaddr *)&at, &size) == 0);
    d.port = ntohs(at.sin_port);
    return d;
}

static inline bool has_caller(void *ctx)
{
    struct door *d = ctx;
    int fd = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) {
        d->caller = (struct plug){.fd = fd};
    }
    return fd >= 0;
}

#endif
