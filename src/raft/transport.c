/* SPDX-License-Identifier: MIT */
/*
 * A *talk* is a handshake under way, dialled or answered. It comes to nothing and its
 * stream is closed, or the stream becomes libraft's: as it is when we dialled, since
 * libraft only writes to those; as a link (link.h) when we answered.
 */
#include "raft/transport.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <raft.h>
#include <raft/uv.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "host/clock.h"
#include "raft/handshake.h"
#include "raft/link.h"

enum {
    BACKLOG = 128,
    TOLD_MAX = 64,        /* refusals remembered, so that each is told once */
    SILENT_ELECTIONS = 3, /* a peer may be silent for so many election timeouts */
};

/* A host and a port of "host:port" or "[host]:port". */
struct place {
    char host[PK_HOST_MAX];
    char port[8];
};

struct talk;

/* A question to the resolver, which can't always be called off. */
struct lookup {
    uv_getaddrinfo_t req;
    struct talk *talk; /* NULL: nobody waits for the answer any more */
};

struct talk {
    struct pk_transport *t;
    struct pk_link *link;
    struct talk *prev, *next; /* in t->talks, the oldest first */
    uint64_t deadline_ms;
    char peer[PK_NODE_ADDRESS_MAX]; /* what a refusal is told of */
    unsigned char in[PK_GREETING_MAX];
    size_t have;
    /* Dialling only. */
    struct raft_uv_connect *req; /* NULL: answering */
    uint64_t wanted;
    struct lookup *lookup;
    struct addrinfo *found, *try_next;
    uv_connect_t connect;
    bool again; /* when closed, dial the next address */
    int status; /* else, what to tell libraft */
};

/* A refusal that was told, as digests. */
struct told {
    uint64_t peer, why;
};

struct pk_transport {
    struct raft_uv_transport raft;
    struct pk_uvio_options o;
    char address[PK_NODE_ADDRESS_MAX];
    uv_tcp_t listener;
    uv_timer_t alarm; /* at the deadline of the oldest talk */
    raft_uv_accept_cb accept;
    raft_uv_transport_close_cb closed;
    struct talk *talks, *newest;
    size_t strangers;
    size_t open; /* handles that have not called back yet */
    bool closing;
    bool orphan; /* freed before it was closed */
    uint16_t port;
    struct pk_uvio_counts counts;
    struct told told[TOLD_MAX];
    size_t told_next;
    char why[PK_REFUSAL_MAX + 64];
    uint64_t run; /* of this process, so that others see when there are two of us */
    struct pk_links links;
};

/* ---- words ---- */

static uint64_t digest_of(const char *text)
{
    return pk_digest(PK_DIGEST_START, text, strlen(text));
}

/* Tells a refusal, once per peer and reason: who is refused comes back at once. */
static void tell(struct pk_transport *t, const char *peer, const char *why)
{
    struct told mark = {.peer = digest_of(peer), .why = digest_of(why)};
    for (size_t i = 0; i < TOLD_MAX; i++) {
        if (t->told[i].peer == mark.peer && t->told[i].why == mark.why) {
            return;
        }
    }
    t->told[t->told_next] = mark;
    t->told_next = (t->told_next + 1) % TOLD_MAX;
    if (t->o.refused != NULL) {
        t->o.refused(t->o.ctx, peer, why);
    }
}

/* All is well with the peer: should it be refused again, that is news. */
static void untell(struct pk_transport *t, const char *peer)
{
    uint64_t digest = digest_of(peer);
    for (size_t i = 0; i < TOLD_MAX; i++) {
        if (t->told[i].peer == digest) {
            t->told[i] = (struct told){0};
        }
    }
}

static void on_frame_refused(void *ctx, const char *peer, const char *why)
{
    struct pk_transport *t = ctx;
    t->counts.frames_refused++;
    tell(t, peer, why);
}

static bool split_place(const char *text, struct place *out)
{
    const char *colon = strrchr(text, ':');
    size_t len = colon == NULL ? 0 : (size_t)(colon - text);
    bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';
    if (bracketed) {
        text++;
        len -= 2;
    }
    if (colon == NULL || len >= sizeof out->host || strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || colon[1] == '\0') {
        return false;
    }
    (void)snprintf(out->host, sizeof out->host, "%.*s", (int)len, text);
    (void)snprintf(out->port, sizeof out->port, "%s", colon + 1);
    bool one_colon = memchr(text, ':', len) == NULL;
    return bracketed || one_colon;
}

/* ---- handles ---- */

static void maybe_closed(struct pk_transport *t)
{
    if (!t->closing || t->open > 0) {
        return;
    }
    if (t->orphan) {
        pk_door_resize(t, 0);
    } else if (t->closed != NULL) {
        raft_uv_transport_close_cb closed = t->closed;
        t->closed = NULL;
        closed(&t->raft);
    }
}

static void on_own_handle_closed(uv_handle_t *h)
{
    struct pk_transport *t = h->data;
    t->open--;
    maybe_closed(t);
}

static void set_alarm(struct pk_transport *t);

/* Deadlines are in the order of arrival, since all talks get the same time. */
static void join_talks(struct talk *k)
{
    struct pk_transport *t = k->t;
    k->deadline_ms = uv_now(t->o.loop) + PK_HANDSHAKE_MS;
    k->prev = t->newest;
    *(t->newest == NULL ? &t->talks : &t->newest->next) = k;
    t->newest = k;
    t->strangers += k->req == NULL;
    t->open++;
    set_alarm(t);
}

static void leave_talks(struct talk *k)
{
    struct pk_transport *t = k->t;
    *(k->prev == NULL ? &t->talks : &k->prev->next) = k->next;
    *(k->next == NULL ? &t->newest : &k->next->prev) = k->prev;
    t->strangers -= k->req == NULL;
    set_alarm(t);
}

static void free_talk(struct talk *k)
{
    struct pk_transport *t = k->t;
    if (k->lookup != NULL) {
        k->lookup->talk = NULL;
        (void)uv_cancel((uv_req_t *)&k->lookup->req);
    }
    uv_freeaddrinfo(k->found);
    pk_door_resize(k, 0);
    t->open--;
}

static void dial_next(struct talk *k);

static void on_talk_closed(uv_handle_t *h)
{
    struct talk *k = h->data;
    struct pk_transport *t = k->t;
    if (k->again) {
        k->again = false;
        PK_ASSERT(uv_tcp_init(t->o.loop, &k->link->tcp) == 0);
        k->link->tcp.data = k;
        dial_next(k);
        return;
    }
    struct raft_uv_connect *req = k->req;
    int status = k->status;
    raft_free(k->link);
    free_talk(k);
    if (req != NULL) {
        req->cb(req, NULL, status);
    }
    maybe_closed(t);
}

/* Ends a talk that has come to nothing. */
static void end_talk(struct talk *k, int status)
{
    k->status = status;
    k->again = false;
    leave_talks(k);
    if (!uv_is_closing((uv_handle_t *)&k->link->tcp)) {
        uv_close((uv_handle_t *)&k->link->tcp, on_talk_closed);
    }
}

static void on_alarm(uv_timer_t *alarm)
{
    struct pk_transport *t = alarm->data;
    while (t->talks != NULL && t->talks->deadline_ms <= uv_now(t->o.loop)) {
        end_talk(t->talks, RAFT_NOCONNECTION);
    }
}

static void set_alarm(struct pk_transport *t)
{
    uint64_t now = uv_now(t->o.loop);
    if (t->talks == NULL) {
        (void)uv_timer_stop(&t->alarm);
        return;
    }
    uint64_t at = t->talks->deadline_ms;
    (void)uv_timer_start(&t->alarm, on_alarm, at > now ? at - now : 0, 0);
}

static struct talk *new_talk(struct pk_transport *t, struct raft_uv_connect *req)
{
    struct talk *k = pk_door_resize(NULL, sizeof *k);
    memset(k, 0, sizeof *k);
    k->t = t;
    k->req = req;
    k->link = pk_link_new(t->o.loop);
    k->link->tcp.data = k;
    join_talks(k);
    return k;
}

/* The talk was a success: its stream becomes libraft's. */
static struct pk_link *hand_over(struct talk *k)
{
    struct pk_link *link = k->link;
    k->t->counts.handshakes++;
    untell(k->t, k->peer);
    (void)uv_read_stop((uv_stream_t *)&link->tcp);
    link->tcp.data = NULL;
    leave_talks(k);
    free_talk(k);
    return link;
}

/* Once connected. */
static void tune(struct pk_transport *t, uv_tcp_t *tcp)
{
    uint32_t silence = t->o.election_ms * SILENT_ELECTIONS;
    unsigned ms = silence > PK_PEER_SILENCE_MS ? silence : PK_PEER_SILENCE_MS;
    int fd = -1;
    (void)uv_tcp_nodelay(tcp, 1);
    (void)uv_tcp_keepalive(tcp, 1, (ms + 999) / 1000);
    if (uv_fileno((uv_handle_t *)tcp, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    }
}

/* ---- greetings ---- */

static bool send_greeting(struct talk *k, const struct pk_greeting *g)
{
    unsigned char bytes[PK_GREETING_MAX];
    uv_buf_t out = uv_buf_init((char *)bytes, (unsigned)pk_greeting_encode(g, bytes));
    /* The first bytes on a new connection always fit into the socket's buffer. */
    return uv_try_write((uv_stream_t *)&k->link->tcp, &out, 1) == (int)out.len;
}

static bool send_own(struct talk *k, enum pk_greeting_kind kind, uint64_t to)
{
    const struct pk_transport *t = k->t;
    const struct pk_identity *self = t->o.self;
    struct pk_greeting g = {.kind = kind, .cluster = self->cluster, .to = to};
    const char *client = t->o.client == NULL ? "" : t->o.client;
    const char *http = t->o.http == NULL ? "" : t->o.http;
    g.run = t->run;
    g.from.id = self->id;
    g.from.incarnation = self->incarnation;
    (void)snprintf(g.from.name, sizeof g.from.name, "%s", self->name);
    (void)snprintf(g.from.client, sizeof g.from.client, "%s", client);
    (void)snprintf(g.from.http, sizeof g.from.http, "%s", http);
    (void)snprintf(g.address, sizeof g.address, "%s", t->address);
    return send_greeting(k, &g);
}

/* Refuses whoever answered or asked: tells our people, and the other side's. */
static void refuse(struct talk *k, const char *why)
{
    k->t->counts.refused++;
    tell(k->t, k->peer, why);
    if (k->req == NULL) {
        struct pk_greeting g = {.kind = PK_REFUSAL};
        (void)snprintf(g.why, sizeof g.why, "%s", why);
        (void)send_greeting(k, &g);
    }
    end_talk(k, RAFT_NOCONNECTION);
}

/* NULL, or why we don't talk to it, in words that both sides understand. `wanted` is
 * whom we dialled; 0: it dialled us. */
static const char *judge(struct pk_transport *t, const struct pk_greeting *g,
                         uint64_t wanted)
{
    const struct pk_identity *self = t->o.self;
    if (g->cluster != self->cluster) {
        return "the clusters differ";
    }
    if (wanted != 0 && g->from.id != wanted) {
        (void)snprintf(t->why, sizeof t->why, "node %s is there", g->from.name);
        return t->why;
    }
    if (g->to != self->id) {
        (void)snprintf(t->why, sizeof t->why, "node %s is here, and another was dialled",
                       self->name);
        return t->why;
    }
    if (g->from.id == self->id) {
        (void)snprintf(t->why, sizeof t->why, "both nodes are called %s", self->name);
        return t->why;
    }
    return pk_peers_meet(t->o.peers, &g->from);
}

/* A node that came back has lost its old link; one whose link is alive is there twice. */
static const char *judge_run(struct pk_transport *t, const struct pk_greeting *g)
{
    const struct pk_link *link = pk_links_find(&t->links, g->from.id);
    if (link == NULL || link->run == g->run) {
        return NULL;
    }
    (void)snprintf(t->why, sizeof t->why,
                   "another process with the identity of node %s is connected already: "
                   "are there two copies of its data directory?",
                   g->from.name);
    return t->why;
}

static void answer(struct talk *k, const struct pk_greeting *g)
{
    struct pk_transport *t = k->t;
    if (g->kind == PK_HELLO && g->cluster == t->o.self->cluster) {
        (void)snprintf(k->peer, sizeof k->peer, "%s", g->from.name);
    }
    const char *why = g->kind == PK_HELLO ? judge(t, g, 0) : "a hello was expected";
    if (why == NULL) {
        why = judge_run(t, g);
    }
    if (why != NULL) {
        refuse(k, why);
        return;
    }
    if (!send_own(k, PK_WELCOME, g->from.id)) {
        end_talk(k, RAFT_NOCONNECTION);
        return;
    }
    struct pk_link *link = hand_over(k);
    link->peer = g->from.id;
    link->run = g->run;
    (void)snprintf(link->name, sizeof link->name, "%s", g->from.name);
    pk_links_give(&t->links, link, t->accept, &t->raft, g->address);
}

static void hear_answer(struct talk *k, const struct pk_greeting *g)
{
    struct pk_transport *t = k->t;
    if (g->kind == PK_REFUSAL) {
        (void)snprintf(t->why, sizeof t->why, "it refuses this node: %s", g->why);
        refuse(k, t->why);
        return;
    }
    const char *why =
        g->kind == PK_WELCOME ? judge(t, g, k->wanted) : "a welcome was expected";
    if (why != NULL) {
        refuse(k, why);
        return;
    }
    struct raft_uv_connect *req = k->req;
    struct pk_link *link = hand_over(k);
    req->cb(req, (uv_stream_t *)&link->tcp, 0);
}

static void alloc_for_talk(uv_handle_t *h, size_t suggested, uv_buf_t *out)
{
    (void)suggested;
    struct talk *k = h->data;
    *out = uv_buf_init((char *)k->in + k->have, (unsigned)(sizeof k->in - k->have));
}

static void on_talk_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    struct talk *k = s->data;
    struct pk_greeting g;
    if (n < 0) {
        end_talk(k, RAFT_NOCONNECTION);
        return;
    }
    k->have += (size_t)n;
    switch (pk_greeting_decode(k->in, k->have, &g)) {
    case PK_GREETING_PART:
        break;
    case PK_GREETING_WHOLE:
        (k->req == NULL ? answer : hear_answer)(k, &g);
        break;
    case PK_GREETING_VERSION_DIFFERS:
        refuse(k, "the versions of the protocol between nodes differ");
        break;
    case PK_GREETING_GARBAGE:
        refuse(k, "these bytes are not of the protocol between nodes");
        break;
    }
}

/* ---- dialling ---- */

/* A handle connects but once, so the next address needs a new one. */
static void dial_again(struct talk *k)
{
    k->again = true;
    uv_close((uv_handle_t *)&k->link->tcp, on_talk_closed);
}

static void on_connected(uv_connect_t *req, int status)
{
    struct talk *k = req->data;
    if (uv_is_closing((uv_handle_t *)&k->link->tcp)) {
        return; /* ended meanwhile; the close will call back */
    }
    if (status < 0) {
        dial_again(k);
        return;
    }
    tune(k->t, &k->link->tcp);
    if (!send_own(k, PK_HELLO, k->wanted) ||
        uv_read_start((uv_stream_t *)&k->link->tcp, alloc_for_talk, on_talk_read) != 0) {
        end_talk(k, RAFT_NOCONNECTION);
    }
}

/* Dials the next of the addresses that were found. */
static void dial_next(struct talk *k)
{
    struct addrinfo *to = k->try_next;
    if (to == NULL) {
        end_talk(k, RAFT_NOCONNECTION);
        return;
    }
    k->try_next = to->ai_next;
    k->connect.data = k;
    if (uv_tcp_connect(&k->connect, &k->link->tcp, to->ai_addr, on_connected) != 0) {
        dial_again(k);
    }
}

static void on_found(uv_getaddrinfo_t *req, int status, struct addrinfo *found)
{
    (void)status; /* nothing found is an empty list */
    struct lookup *lookup = (struct lookup *)req;
    struct talk *k = lookup->talk;
    pk_door_resize(lookup, 0);
    if (k == NULL) {
        uv_freeaddrinfo(found);
        return;
    }
    k->lookup = NULL;
    k->found = found;
    k->try_next = found;
    if (!uv_is_closing((uv_handle_t *)&k->link->tcp)) {
        dial_next(k);
    }
}

/* Numbers are understood at once, names by a thread of libuv's. */
static void look_up(struct talk *k, const struct place *at)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    if (getaddrinfo(at->host, at->port, &hints, &k->found) == 0) {
        k->try_next = k->found;
        dial_next(k);
        return;
    }
    k->found = NULL;
    hints.ai_flags = AI_NUMERICSERV;
    k->lookup = pk_door_resize(NULL, sizeof *k->lookup);
    k->lookup->talk = k;
    if (uv_getaddrinfo(k->t->o.loop, &k->lookup->req, on_found, at->host, at->port,
                       &hints) != 0) {
        pk_door_resize(k->lookup, 0);
        k->lookup = NULL;
        end_talk(k, RAFT_NOCONNECTION);
    }
}

static int raft_connect(struct raft_uv_transport *raft, struct raft_uv_connect *req,
                        raft_id id, const char *address, raft_uv_connect_cb cb)
{
    struct pk_transport *t = raft->impl;
    struct place at;
    const char *sign = strchr(address, '@');
    if (sign == NULL || strlen(address) >= PK_NODE_ADDRESS_MAX ||
        !split_place(sign + 1, &at)) {
        (void)snprintf(raft->errmsg, sizeof raft->errmsg, "%s is not NAME@HOST:PORT",
                       address);
        return RAFT_INVALID;
    }
    struct talk *k = new_talk(t, req);
    req->cb = cb;
    k->wanted = id;
    (void)snprintf(k->peer, sizeof k->peer, "%s", address);
    look_up(k, &at);
    return 0;
}

/* ---- listening ---- */

/* Who is at the other end, as far as one can tell before it has spoken. */
static void name_stranger(struct talk *k)
{
    struct sockaddr_storage from;
    int len = sizeof from;
    char host[64] = "?";
    if (uv_tcp_getpeername(&k->link->tcp, (struct sockaddr *)&from, &len) == 0) {
        (void)getnameinfo((struct sockaddr *)&from, (socklen_t)len, host, sizeof host,
                          NULL, 0, NI_NUMERICHOST);
    }
    (void)snprintf(k->peer, sizeof k->peer, "%s", host);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct pk_transport *t = listener->data;
    if (status < 0) {
        return; /* out of descriptors, perhaps: libuv tries again */
    }
    if (t->strangers == PK_STRANGERS_MAX) {
        /* The oldest has had the most time. Nodes need less than a round trip. */
        struct talk *k = t->talks;
        while (k->req != NULL) {
            k = k->next;
        }
        end_talk(k, RAFT_NOCONNECTION);
    }
    struct talk *k = new_talk(t, NULL);
    uv_stream_t *s = (uv_stream_t *)&k->link->tcp;
    if (uv_accept(listener, s) != 0 || t->accept == NULL ||
        uv_read_start(s, alloc_for_talk, on_talk_read) != 0) {
        end_talk(k, RAFT_NOCONNECTION);
        return;
    }
    tune(t, &k->link->tcp);
    name_stranger(k);
}

static const char *cannot_listen(struct pk_transport *t, const char *why)
{
    (void)snprintf(t->why, sizeof t->why, "can't listen for other nodes on %s: %s",
                   t->o.listen, why);
    return t->why;
}

const char *pk_transport_bind(struct pk_transport *t)
{
    struct place at;
    struct addrinfo *found = NULL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    if (!split_place(t->o.listen, &at)) {
        return cannot_listen(t, "it is not HOST:PORT");
    }
    int error = getaddrinfo(at.host[0] == '\0' ? NULL : at.host, at.port, &hints, &found);
    if (error != 0) {
        return cannot_listen(t, gai_strerror(error));
    }
    int status = uv_tcp_bind(&t->listener, found->ai_addr, 0);
    freeaddrinfo(found);
    if (status == 0) {
        status = uv_listen((uv_stream_t *)&t->listener, BACKLOG, on_connection);
    }
    if (status != 0) {
        return cannot_listen(t, uv_strerror(status));
    }
    struct sockaddr_storage here;
    int len = sizeof here;
    PK_ASSERT(uv_tcp_getsockname(&t->listener, (struct sockaddr *)&here, &len) == 0);
    t->port = ntohs(here.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&here)->sin6_port
                                               : ((struct sockaddr_in *)&here)->sin_port);
    return NULL;
}

static int raft_init_transport(struct raft_uv_transport *raft, raft_id id,
                               const char *address)
{
    struct pk_transport *t = raft->impl;
    PK_ASSERT(id == t->o.self->id);
    if (strlen(address) >= sizeof t->address) {
        return RAFT_NAMETOOLONG;
    }
    (void)snprintf(t->address, sizeof t->address, "%s", address);
    return 0;
}

static int raft_listen(struct raft_uv_transport *raft, raft_uv_accept_cb cb)
{
    struct pk_transport *t = raft->impl;
    t->accept = cb;
    return 0;
}

/* ---- the whole ---- */

static void raft_close_transport(struct raft_uv_transport *raft,
                                 raft_uv_transport_close_cb cb)
{
    struct pk_transport *t = raft->impl;
    PK_ASSERT(!t->closing);
    t->closing = true;
    t->closed = cb;
    t->accept = NULL;
    pk_links_forget(&t->links);
    while (t->talks != NULL) {
        end_talk(t->talks, RAFT_CANCELED);
    }
    uv_close((uv_handle_t *)&t->listener, on_own_handle_closed);
    uv_close((uv_handle_t *)&t->alarm, on_own_handle_closed);
}

struct pk_transport *pk_transport_new(const struct pk_uvio_options *o)
{
    struct pk_transport *t = pk_door_resize(NULL, sizeof *t);
    memset(t, 0, sizeof *t);
    t->o = *o;
    PK_ASSERT(uv_tcp_init(o->loop, &t->listener) == 0);
    PK_ASSERT(uv_timer_init(o->loop, &t->alarm) == 0);
    t->listener.data = t;
    t->alarm.data = t;
    t->open = 2;
    t->run = pk_random();
    t->links.refused = on_frame_refused;
    t->links.ctx = t;
    t->raft.version = 1;
    t->raft.impl = t;
    t->raft.init = raft_init_transport;
    t->raft.listen = raft_listen;
    t->raft.connect = raft_connect;
    t->raft.close = raft_close_transport;
    return t;
}

struct raft_uv_transport *pk_transport_raft(struct pk_transport *t)
{
    return &t->raft;
}

uint16_t pk_transport_port(const struct pk_transport *t)
{
    return t->port;
}

struct pk_uvio_counts pk_transport_counts(const struct pk_transport *t)
{
    return t->counts;
}

uint64_t pk_transport_silence_ms(const struct pk_transport *t, uint64_t peer)
{
    const struct pk_link *l = pk_links_find(&t->links, peer);
    return l == NULL ? UINT64_MAX : uv_now(t->o.loop) - l->heard_ms;
}

void pk_transport_free(struct pk_transport *t)
{
    if (!t->closing) {
        raft_close_transport(&t->raft, NULL);
    }
    t->orphan = true;
    maybe_closed(t);
}
