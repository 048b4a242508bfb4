/* SPDX-License-Identifier: MIT */
/*
 * For tests of the network driver: nodes that do what a test wants. Behind them is the
 * real machine and the real protocol; what is false is only the cluster: all nodes of a
 * world share one machine, so that whatever one of them did is known to all, and each can
 * be told to misbehave.
 *
 * A node has a thread. Its fields are guarded by the world's mutex; tests set them with
 * node_set, or before any client is there.
 */
#ifndef PICKET_TEST_FAKENODE_H
#define PICKET_TEST_FAKENODE_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <picket.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/door.h"
#include "core/machine.h"
#include "host/clock.h"
#include "host/fd.h"
#include "proto/proto.h"
#include "tap.h"

enum { NODES = 3, CONNS = 32, LOG_MAX = 4096, IN_MAX = 65536 };

struct conn {
    int fd; /* -1: none */
    bool watching;
    char in[IN_MAX];
    size_t in_len;
    struct pk_resp_out out;
    struct pk_resp_out withheld; /* events, while the world withholds them */
};

/* One request for the machine, as it came. */
struct heard {
    unsigned conn; /* the node's how manyth, from 1 */
    char *bytes;
    size_t len;
};

struct node {
    struct world *world;
    uint16_t port;
    int listener, nudge;
    pthread_t thread;
    bool up, stopping, cut;
    struct conn conns[CONNS];
    unsigned ids[CONNS];
    unsigned accepted;
    struct heard log[LOG_MAX];
    unsigned n_log;

    /* How it misbehaves, by requests whose words begin with `when` ("": all that are for
     * the machine), `times` times. */
    const char *when;
    unsigned times;
    bool undone;         /* not even run */
    const char *instead; /* is sent in place of the answer; NULL: nothing, and hang up */
    const char *breaks;  /* after it was run, this lock is broken */
    bool mute;           /* hears everything and says nothing */
    bool deaf;           /* does not know CLIENT REDIRECT */
    bool rude;           /* nor RESP3 */
    uint64_t renew_after_ms;
};

struct world {
    pthread_mutex_t mutex;
    struct pk_machine *machine;
    uint64_t began_ms;
    struct pk_effects effects;
    struct {
        uint64_t lease;
        struct conn *conn;
    } owners[CONNS * NODES];
    unsigned n_owners;
    bool withholds; /* events reach the owner of their lease only after world_tell() */
    struct node nodes[NODES];
};

static struct world world;

/* ---- what a node says ---- */

static inline struct conn *owner_of(uint64_t lease)
{
    for (unsigned i = 0; i < world.n_owners; i++) {
        if (world.owners[i].lease == lease && lease != 0) {
            return world.owners[i].conn;
        }
    }
    return NULL;
}

static inline void own(uint64_t lease, struct conn *c)
{
    unsigned i = 0;
    while (i < world.n_owners && world.owners[i].lease != lease) {
        i++;
    }
    PK_ASSERT(i < sizeof world.owners / sizeof world.owners[0]);
    world.owners[i].lease = lease;
    world.owners[i].conn = c;
    world.n_owners += i == world.n_owners;
}

static inline void conn_flush(struct conn *c)
{
    size_t sent = 0;
    while (c->fd >= 0 && sent < c->out.len) {
        ssize_t n = send(c->fd, c->out.data + sent, c->out.len - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            break; /* the client has gone; reading will tell */
        }
        sent += (size_t)n;
    }
    c->out.len = 0;
}

static inline void conn_close(struct conn *c)
{
    pk_fd_close(&c->fd);
    for (unsigned i = 0; i < world.n_owners; i++) {
        if (world.owners[i].conn == c) {
            world.owners[i].conn = NULL;
        }
    }
    c->watching = false;
    c->out.len = 0;
    c->withheld.len = 0;
    c->in_len = 0;
}

static inline void publish(const struct pk_effect *e)
{
    bool about = e->kind == PK_EV_GRANTED || e->kind == PK_EV_ENDED ||
                 e->kind == PK_EV_LEFT || e->kind == PK_EV_LEASE_ENDED;
    struct conn *owner = about ? owner_of(e->lease) : NULL;
    if (owner != NULL && world.withholds) {
        owner->withheld.resp3 = owner->out.resp3;
        pk_proto_write_event(&owner->withheld, e);
    } else if (owner != NULL) {
        pk_proto_write_event(&owner->out, e);
        conn_flush(owner);
    }
    for (int n = 0; n < NODES; n++) {
        for (int i = 0; i < CONNS; i++) {
            struct conn *c = &world.nodes[n].conns[i];
            if (c->fd >= 0 && c->watching && c != owner) {
                pk_proto_write_event(&c->out, e);
                conn_flush(c);
            }
        }
    }
}

/* Runs it at the present time; world.effects has what came of it, with what a server
 * adds. Mutex held. */
static inline void world_step(struct pk_command *c, uint64_t renew_after_ms)
{
    pk_effects_reset(&world.effects);
    c->stamp_ms = pk_clock_ms() - world.began_ms;
    pk_machine_step(world.machine, c, &world.effects);
    for (uint32_t i = 0; i < world.effects.count; i++) {
        struct pk_effect *e = &world.effects.list[i];
        bool renews = c->verb == PK_LEASE_OPEN || c->verb == PK_LEASE_RENEW;
        bool reads = (pk_verb_fields(c->verb) & PK_F_READ) != 0;
        if (e->kind >= PK_EV_LEASE_OPENED || (e->kind == PK_REPLY && (renews || reads))) {
            e->since_ms = pk_machine_clock(world.machine);
        }
        if (e->kind == PK_REPLY && renews && e->status == PK_OK) {
            e->renew_after_ms = renew_after_ms;
        }
    }
}

static inline void publish_all(void)
{
    for (uint32_t i = 0; i < world.effects.count; i++) {
        if (world.effects.list[i].kind >= PK_EV_LEASE_OPENED) {
            publish(&world.effects.list[i]);
        }
    }
}

/* Whether the first two words begin with `words`. */
static inline bool begins(const struct pk_bytes *args, uint32_t n, const char *words)
{
    char said[80];
    struct pk_bytes second = n > 1 ? args[1] : pk_bytes("", 0);
    (void)snprintf(said, sizeof said, "%.*s %.*s",
                   (int)(args[0].len < 32 ? args[0].len : 32), args[0].data,
                   (int)(second.len < 32 ? second.len : 32), second.data);
    return strncmp(said, words, strlen(words)) == 0;
}

static inline bool is_own(const struct pk_bytes *args, uint32_t count)
{
    return begins(args, count, "HELLO") || begins(args, count, "CLIENT") ||
           begins(args, count, "PING");
}

/* The connection's own words; false: it is none. */
static inline bool do_own(struct node *n, struct conn *c, const struct pk_bytes *args,
                          uint32_t count)
{
    if (begins(args, count, "HELLO")) {
        c->out.resp3 = !n->rude;
        if (n->rude) {
            pk_resp_error(&c->out, "ERR", "unknown command 'HELLO'");
        } else {
            pk_resp_map(&c->out, 1);
            pk_resp_text(&c->out, "server");
            pk_resp_text(&c->out, "fake");
        }
    } else if (begins(args, count, "CLIENT REDIRECT")) {
        if (n->deaf) {
            pk_resp_error(&c->out, "ERR", "unknown subcommand");
        } else {
            pk_resp_simple(&c->out, "OK");
        }
    } else if (begins(args, count, "PING")) {
        pk_resp_simple(&c->out, "PONG");
    } else {
        return false;
    }
    return true;
}

static inline void do_command(struct node *n, struct conn *c, struct pk_command *cmd,
                              bool answer)
{
    world_step(cmd, n->renew_after_ms);
    const struct pk_effect *r = NULL;
    for (uint32_t i = 0; i < world.effects.count && r == NULL; i++) {
        r = world.effects.list[i].kind == PK_REPLY ? &world.effects.list[i] : NULL;
    }
    PK_ASSERT(r != NULL);
    bool acts = cmd->verb == PK_LEASE_OPEN || cmd->verb == PK_LEASE_RENEW ||
                cmd->verb == PK_LOCK_ACQUIRE;
    if (acts && r->lease != 0 && (r->status == PK_OK || r->status == PK_QUEUED)) {
        own(r->lease, c);
    }
    if (answer) {
        pk_proto_write_reply(&c->out, &world.effects);
        conn_flush(c);
    }
    publish_all();
}

static inline void do_request(struct node *n, struct conn *c, const struct pk_bytes *args,
                              uint32_t count)
{
    static struct pk_proto_scratch scratch;
    struct pk_command cmd;
    const char *why;
    bool strange = n->times > 0 && begins(args, count, n->when) &&
                   (n->when[0] != '\0' || !is_own(args, count));
    if (n->mute) {
        return;
    }
    n->times -= strange;
    if (strange && n->undone && n->instead != NULL) {
        pk_resp_raw(&c->out, n->instead, strlen(n->instead));
        return;
    }
    if (do_own(n, c, args, count)) {
        return;
    }
    if (begins(args, count, "LOCK WATCH")) {
        c->watching = true;
        pk_resp_simple(&c->out, "OK");
        return;
    }
    PK_ASSERT(pk_proto_read_command(args, count, &scratch, &cmd, &why) ==
              PK_PROTO_COMMAND);
    if (!strange || !n->undone) {
        do_command(n, c, &cmd, !strange);
    }
    if (strange && n->breaks != NULL) {
        struct pk_command harm = {.verb = PK_LOCK_BREAK,
                                  .name = pk_text(n->breaks),
                                  .token = pk_machine_last_token(world.machine)};
        conn_close(c); /* so that nobody is told */
        world_step(&harm, 0);
        publish_all();
    }
    if (strange && n->instead != NULL) {
        pk_resp_raw(&c->out, n->instead, strlen(n->instead));
    } else if (strange) {
        conn_close(c);
    }
}

/* ---- a node's thread ---- */

static inline void note(struct node *n, unsigned conn, const char *bytes, size_t len)
{
    struct heard *h = &n->log[n->n_log % LOG_MAX];
    free(h->bytes);
    *h = (struct heard){conn, malloc(len), len};
    PK_ASSERT(h->bytes != NULL);
    memcpy(h->bytes, bytes, len);
    n->n_log++;
}

static inline void conn_read(struct node *n, unsigned i)
{
    static struct pk_bytes args[PK_RESP_ARGS_MAX];
    struct conn *c = &n->conns[i];
    ssize_t got = recv(c->fd, c->in + c->in_len, sizeof c->in - c->in_len, MSG_DONTWAIT);
    if (got <= 0) {
        conn_close(c);
        return;
    }
    c->in_len += (size_t)got;
    size_t at = 0, used;
    uint32_t count;
    const char *why;
    while (c->fd >= 0 && pk_resp_request(pk_bytes(c->in + at, c->in_len - at), args,
                                         &count, &used, &why) == PK_RESP_ONE) {
        if (!is_own(args, count)) {
            note(n, n->ids[i], c->in + at, used);
        }
        do_request(n, c, args, count);
        at += used;
    }
    conn_flush(c);
    if (c->fd >= 0) {
        memmove(c->in, c->in + at, c->in_len - at);
        c->in_len -= at;
    }
}

static inline void conn_accept(struct node *n)
{
    int fd = accept4(n->listener, NULL, NULL, SOCK_CLOEXEC);
    unsigned i = 0;
    while (i < CONNS && n->conns[i].fd >= 0) {
        i++;
    }
    if (fd >= 0 && i == CONNS) {
        close(fd);
    } else if (fd >= 0) {
        n->conns[i].fd = fd;
        n->conns[i].out.resp3 = false;
        n->ids[i] = ++n->accepted;
    }
}

static inline void *node_run(void *arg)
{
    struct node *n = arg;
    pthread_mutex_lock(&world.mutex);
    while (!n->stopping) {
        struct pollfd fds[CONNS + 2] = {{.fd = n->listener, .events = POLLIN},
                                        {.fd = n->nudge, .events = POLLIN}};
        for (int i = 0; i < CONNS; i++) {
            fds[i + 2] = (struct pollfd){.fd = n->conns[i].fd, .events = POLLIN};
        }
        pthread_mutex_unlock(&world.mutex);
        (void)poll(fds, CONNS + 2, -1);
        pthread_mutex_lock(&world.mutex);
        uint64_t count;
        if (fds[1].revents != 0 && read(n->nudge, &count, sizeof count) < 0) {
            abort();
        }
        for (unsigned i = 0; i < CONNS; i++) {
            if (n->cut || n->stopping) {
                conn_close(&n->conns[i]);
            } else if (fds[i + 2].revents != 0 && n->conns[i].fd == fds[i + 2].fd) {
                conn_read(n, i);
            }
        }
        n->cut = false;
        if (fds[0].revents != 0 && !n->stopping) {
            conn_accept(n);
        }
    }
    pthread_mutex_unlock(&world.mutex);
    return NULL;
}

/* ---- for tests ---- */

static inline void node_nudge(struct node *n)
{
    uint64_t one = 1;
    PK_ASSERT(write(n->nudge, &one, sizeof one) == sizeof one);
}

/* Begins to listen, on the port it had before if it had one. */
static inline struct node *node_up(int i)
{
    struct node *n = &world.nodes[i];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(n->port)};
    socklen_t len = sizeof at;
    int on = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    n->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(n->listener >= 0);
    CHECK(setsockopt(n->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(n->listener, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(listen(n->listener, 64) == 0);
    CHECK(getsockname(n->listener, (struct sockaddr *)&at, &len) == 0);
    n->port = ntohs(at.sin_port);
    n->nudge = eventfd(0, EFD_CLOEXEC);
    n->stopping = false;
    n->up = true;
    CHECK(n->nudge >= 0 && pthread_create(&n->thread, NULL, node_run, n) == 0);
    return n;
}

/* As a killed process: connections end, new ones are refused. */
static inline void node_down(struct node *n)
{
    if (n->up) {
        pthread_mutex_lock(&world.mutex);
        n->stopping = true;
        pthread_mutex_unlock(&world.mutex);
        node_nudge(n);
        pthread_join(n->thread, NULL);
        pthread_mutex_lock(&world.mutex); /* other nodes have the same owners */
        for (int i = 0; i < CONNS; i++) {
            conn_close(&n->conns[i]);
        }
        pthread_mutex_unlock(&world.mutex);
        (void)close(n->listener);
        (void)close(n->nudge);
        n->up = false;
    }
}

/* Ends all its connections. */
static inline void node_cut(struct node *n)
{
    pthread_mutex_lock(&world.mutex);
    n->cut = true;
    pthread_mutex_unlock(&world.mutex);
    node_nudge(n);
}

static inline void node_mute(struct node *n, bool mute)
{
    pthread_mutex_lock(&world.mutex);
    n->mute = mute;
    pthread_mutex_unlock(&world.mutex);
}

/* The next `times` requests that begin with `when` are run (unless `undone`), and then
 * `instead` is the answer; NULL: none, and the connection ends. */
static inline void node_misbehave(struct node *n, const char *when, unsigned times,
                                  bool undone, const char *instead)
{
    pthread_mutex_lock(&world.mutex);
    n->when = when;
    n->times = times;
    n->undone = undone;
    n->instead = instead;
    pthread_mutex_unlock(&world.mutex);
}

/* From now on the owners of leases are told nothing of what happens. */
static inline void world_withhold(void)
{
    pthread_mutex_lock(&world.mutex);
    world.withholds = true;
    pthread_mutex_unlock(&world.mutex);
}

/* Tells the owners what was withheld from them. */
static inline void world_tell(void)
{
    pthread_mutex_lock(&world.mutex);
    world.withholds = false;
    for (int n = 0; n < NODES; n++) {
        for (int i = 0; i < CONNS; i++) {
            struct conn *c = &world.nodes[n].conns[i];
            if (c->withheld.len > 0) {
                pk_resp_raw(&c->out, c->withheld.data, c->withheld.len);
                c->withheld.len = 0;
                conn_flush(c);
            }
        }
    }
    pthread_mutex_unlock(&world.mutex);
}

static inline unsigned node_accepted(struct node *n)
{
    pthread_mutex_lock(&world.mutex);
    unsigned accepted = n->accepted;
    pthread_mutex_unlock(&world.mutex);
    return accepted;
}

/* The requests that a node has heard and that contain `text`, at most `max`. They stay
 * as long as fewer than LOG_MAX came after them. */
static inline unsigned node_heard(struct node *n, const char *text, struct heard *out,
                                  unsigned max)
{
    unsigned found = 0;
    pthread_mutex_lock(&world.mutex);
    for (unsigned i = 0; i < n->n_log && i < LOG_MAX && found < max; i++) {
        if (memmem(n->log[i].bytes, n->log[i].len, text, strlen(text)) != NULL) {
            out[found++] = n->log[i];
        }
    }
    pthread_mutex_unlock(&world.mutex);
    return found;
}

static inline void world_end(void)
{
    for (int i = 0; i < NODES; i++) {
        struct node *n = &world.nodes[i];
        node_down(n);
        for (int k = 0; k < LOG_MAX; k++) {
            free(n->log[k].bytes);
        }
        for (int k = 0; k < CONNS; k++) {
            pk_resp_free(&n->conns[k].out);
            pk_resp_free(&n->conns[k].withheld);
        }
    }
    pk_machine_free(world.machine);
    pk_effects_free(&world.effects);
    memset(&world, 0, sizeof world);
}

__attribute__((destructor)) static void world_end_at_exit(void)
{
    if (world.machine != NULL) {
        world_end();
    }
}

/* A new world with that many nodes, all well. */
static inline void world_begin(int nodes)
{
    if (world.machine != NULL) {
        world_end();
    }
    pthread_mutex_init(&world.mutex, NULL);
    world.machine = pk_machine_new();
    world.began_ms = pk_clock_ms() - 1000; /* so that cluster time is never 0 */
    for (int n = 0; n < NODES; n++) {
        world.nodes[n].when = "";
        for (int i = 0; i < CONNS; i++) {
            world.nodes[n].conns[i].fd = -1;
        }
    }
    for (int n = 0; n < nodes; n++) {
        (void)node_up(n);
    }
}

/* The URL of the first `n` nodes; good until the second call from now. */
static inline const char *world_url(int n)
{
    static char texts[2][128];
    static unsigned next;
    char *text = texts[next++ % 2];
    int len = snprintf(text, sizeof texts[0], "picket://");
    for (int i = 0; i < n; i++) {
        len += snprintf(text + len, sizeof texts[0] - (size_t)len, "%s127.0.0.1:%u",
                        i > 0 ? "," : "", (unsigned)world.nodes[i].port);
    }
    return text;
}

static inline const char *node_url(const struct node *n)
{
    static char text[64];
    (void)snprintf(text, sizeof text, "picket://127.0.0.1:%u", (unsigned)n->port);
    return text;
}

/* ---- clients ---- */

enum { PATIENCE_MS = 120000, LONG_TTL_MS = 600000 };

static inline struct picket *open_client(const char *url, uint32_t ttl_ms)
{
    struct picket *p = NULL;
    struct picket_options o = {.ttl_ms = ttl_ms};
    CHECK(picket_open(url, &o, &p) == PICKET_OK);
    return p;
}

static inline struct picket_lock *take(struct picket *p, const char *name)
{
    struct picket_lock *l;
    CHECK(picket_acquire(p, name, NULL, &l) == PICKET_OK);
    return l;
}

static inline struct picket_lock *enqueue(struct picket *p, const char *name,
                                          const struct picket_acquire_options *o)
{
    struct picket_want want = {.name = name};
    struct picket_lock *l;
    CHECK(picket_enqueue(p, &want, 1, o, &l) == PICKET_OK);
    return l;
}

static inline bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&p, 1, timeout_ms);
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

#endif
