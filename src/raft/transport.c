/* SPDX-License-Identifier: MIT */
/*
 * Who may talk to this node: the judgement of handshakes, dialled and answered, and the
 * listening socket. A handshake that ends well becomes a link (link.c) when we answered,
 * and gives a sender (sender.c) its connection when we dialled.
 */
#include "raft/transport.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "core/door.h"
#include "core/wire.h"
#include "host/clock.h"
#include "raft/transport_inside.h"

enum {
    BACKLOG = 128,
    ELECTION_MS = 300,
    SILENT_ELECTIONS = 3, /* a peer may be silent for so many election timeouts */
};

uint32_t pk_transport_election_ms(const struct pk_transport *t)
{
    return t->o.election_ms == 0 ? ELECTION_MS : t->o.election_ms;
}

/* ---- words ---- */

static uint64_t digest_of(const char *text)
{
    return pk_digest(PK_DIGEST_START, text, strlen(text));
}

void pk_transport_tell(struct pk_transport *t, const char *peer, const char *why)
{
    struct pk_told mark = {.peer = digest_of(peer), .why = digest_of(why)};
    for (size_t i = 0; i < PK_TOLD_MAX; i++) {
        if (t->told[i].peer == mark.peer && t->told[i].why == mark.why) {
            return;
        }
    }
    t->told[t->told_next] = mark;
    t->told_next = (t->told_next + 1) % PK_TOLD_MAX;
    if (t->o.refused != NULL) {
        t->o.refused(t->o.ctx, peer, why);
    }
}

/* All is well with the peer: should it be refused again, that is news. */
static void untell(struct pk_transport *t, const char *peer)
{
    uint64_t digest = digest_of(peer);
    for (size_t i = 0; i < PK_TOLD_MAX; i++) {
        if (t->told[i].peer == digest) {
            t->told[i] = (struct pk_told){0};
        }
    }
}

/* ---- greetings ---- */

static bool is_dialled(const struct pk_handshake *h)
{
    return h->kind->greet != NULL;
}

void pk_transport_tune(const struct pk_transport *t, uv_tcp_t *tcp)
{
    uint32_t silence = pk_transport_election_ms(t) * SILENT_ELECTIONS;
    unsigned ms = silence > PK_PEER_SILENCE_MS ? silence : PK_PEER_SILENCE_MS;
    int fd = -1;
    (void)uv_tcp_nodelay(tcp, 1);
    (void)uv_tcp_keepalive(tcp, 1, (ms + 999) / 1000);
    if (uv_fileno((uv_handle_t *)tcp, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
    }
}

size_t pk_transport_members(const struct pk_transport *t, struct pk_member *out)
{
    return t->o.members == NULL ? 0 : t->o.members(t->o.ctx, out);
}

struct pk_greeting pk_transport_greeting(const struct pk_transport *t,
                                         enum pk_greeting_kind kind)
{
    const struct pk_identity *self = t->o.self;
    struct pk_greeting g = {.kind = kind, .cluster = self->cluster};
    g.from.id = self->id;
    g.release = pk_release_own();
    (void)snprintf(g.from.name, sizeof g.from.name, "%s", self->name);
    (void)snprintf(g.address, sizeof g.address, "%s", t->address);
    return g;
}

static bool send_own(struct pk_handshake *h, enum pk_greeting_kind kind, uint64_t to)
{
    const struct pk_transport *t = h->t;
    struct pk_greeting g = pk_transport_greeting(t, kind);
    const char *client = t->o.client == NULL ? "" : t->o.client;
    const char *http = t->o.http == NULL ? "" : t->o.http;
    g.to = to;
    g.run = t->run;
    g.purpose = h->purpose;
    (void)snprintf(g.from.client, sizeof g.from.client, "%s", client);
    (void)snprintf(g.from.http, sizeof g.from.http, "%s", http);
    return pk_handshake_say(h, &g);
}

void pk_transport_refuse(struct pk_handshake *h, const char *why)
{
    h->t->counts.refused++;
    pk_transport_tell(h->t, h->peer, why);
    if (!is_dialled(h)) {
        struct pk_greeting g = {.kind = PK_REFUSAL};
        (void)snprintf(g.why, sizeof g.why, "%s", why);
        (void)pk_handshake_say(h, &g);
    }
    h->why = "it was refused; the log says why";
    pk_handshake_end(h);
}

/* Another node was dialled than the one that is there or here. */
static const char *wrong_id(struct pk_transport *t, const char *where,
                            const struct pk_peer *who)
{
    (void)snprintf(t->why, sizeof t->why,
                   "node %s %s has id %016llx, and another was dialled; it was replaced "
                   "or wiped",
                   who->name, where, (unsigned long long)who->id);
    return t->why;
}

/* The cluster version that other nodes must run; 0: not known here. */
static uint32_t version_wanted(const struct pk_transport *t)
{
    return t->o.version == NULL ? 0 : t->o.version(t->o.ctx);
}

static const char *judge_release(struct pk_transport *t, const struct pk_greeting *g)
{
    uint32_t version = version_wanted(t);
    if (version == 0 || pk_release_runs(&g->release, version)) {
        return NULL;
    }
    (void)snprintf(t->why, sizeof t->why,
                   "the cluster has version %u, and node %s has picket %s; install %s "
                   "picket there",
                   version, g->from.name, pk_release_text(&g->release),
                   version > g->release.newest ? "a newer" : "an older");
    return t->why;
}

/* NULL, or why we don't talk to it, in words that both sides understand. `wanted` is
 * whom we dialled; 0: it dialled us. */
static const char *judge(struct pk_transport *t, const struct pk_greeting *g,
                         uint64_t wanted)
{
    const struct pk_identity *self = t->o.self;
    if (self->cluster == 0 || g->cluster == 0) {
        (void)snprintf(t->why, sizeof t->why, "node %s belongs to no cluster yet",
                       self->cluster == 0 ? self->name : g->from.name);
        return t->why;
    }
    if (g->cluster != self->cluster) {
        return "the clusters differ";
    }
    if (g->from.id == self->id || strcmp(g->from.name, self->name) == 0) {
        (void)snprintf(t->why, sizeof t->why, "both nodes are called %s", self->name);
        return t->why;
    }
    if (wanted != 0 && g->from.id != wanted) {
        return wrong_id(t, "there", &g->from);
    }
    if (g->to != self->id) {
        struct pk_peer us = {.id = self->id};
        (void)snprintf(us.name, sizeof us.name, "%s", self->name);
        return wrong_id(t, "here", &us);
    }
    return judge_release(t, g);
}

/* A node that came back has lost its old link; one whose link is alive is there twice. */
static const char *judge_run(struct pk_transport *t, const struct pk_greeting *g)
{
    const struct pk_link *link = pk_links_find(t, g->from.id, g->purpose);
    if (link == NULL && t->n_links == PK_LINKS_MAX) {
        return "as many nodes as can be are connected already";
    }
    if (link == NULL || link->run == g->run) {
        return NULL;
    }
    (void)snprintf(t->why, sizeof t->why,
                   "another process with the identity of node %s is connected already: "
                   "are there two copies of its data directory?",
                   g->from.name);
    return t->why;
}

/* The handshake with that peer ended well. */
static uv_tcp_t *take(struct pk_handshake *h, const struct pk_peer *who)
{
    struct pk_member members[PK_MEMBERS_MAX];
    uint64_t ids[PK_MEMBERS_MAX];
    size_t n = pk_transport_members(h->t, members);
    for (size_t i = 0; i < n; i++) {
        ids[i] = members[i].id;
    }
    pk_peers_meet(h->t->o.peers, who, ids, n);
    h->t->counts.handshakes++;
    untell(h->t, h->peer);
    return pk_handshake_take(h);
}

static void answer(struct pk_handshake *h, const struct pk_greeting *g)
{
    struct pk_transport *t = h->t;
    if (g->kind == PK_ASK) {
        pk_asking_answer(h, g);
        return;
    }
    if (!t->started && t->o.self->cluster != 0) {
        pk_handshake_end(h);
        return;
    }
    if (g->kind == PK_HELLO && g->cluster == t->o.self->cluster) {
        (void)snprintf(h->peer, sizeof h->peer, "%s", g->from.name);
    }
    const char *why = g->kind == PK_HELLO ? judge(t, g, 0) : "a hello was expected";
    if (why == NULL) {
        why = judge_run(t, g);
    }
    if (why != NULL) {
        pk_transport_refuse(h, why);
        return;
    }
    if (!send_own(h, PK_WELCOME, g->from.id)) {
        pk_handshake_end(h);
        return;
    }
    uv_tcp_t *tcp = take(h, &g->from);
    pk_links_begin(t, tcp, g);
}

static const struct pk_handshake_kind answering = {.hear = answer};

static bool say_hello(struct pk_handshake *h)
{
    pk_transport_tune(h->t, h->tcp);
    return send_own(h, PK_HELLO, h->wanted);
}

static void hear_answer(struct pk_handshake *h, const struct pk_greeting *g)
{
    struct pk_transport *t = h->t;
    if (g->kind == PK_REFUSAL) {
        (void)snprintf(t->why, sizeof t->why, "it refuses this node: %s", g->why);
        pk_transport_refuse(h, t->why);
        return;
    }
    const char *why =
        g->kind == PK_WELCOME ? judge(t, g, h->wanted) : "a welcome was expected";
    if (why != NULL) {
        pk_transport_refuse(h, why);
        return;
    }
    struct pk_sender *sender = h->ctx;
    uv_tcp_t *tcp = take(h, &g->from);
    pk_sender_connected(sender, tcp);
}

static const struct pk_handshake_kind dialling = {
    .greet = say_hello, .hear = hear_answer, .failed = pk_sender_failed};

void pk_transport_dial(struct pk_transport *t, struct pk_sender *s, uint64_t id,
                       const char *address, enum pk_purpose purpose)
{
    const char *sign = strchr(address, '@');
    struct pk_handshake *h = pk_handshake_new(t, &dialling, s);
    h->wanted = id;
    h->purpose = purpose;
    (void)snprintf(h->peer, sizeof h->peer, "%s", address);
    pk_handshake_dial(h, sign == NULL ? "" : sign + 1);
}

/* ---- listening ---- */

/* Who is at the other end, as far as one can tell before it has spoken. */
static void name_stranger(struct pk_handshake *h)
{
    struct sockaddr_storage from;
    int len = sizeof from;
    char host[64] = "?";
    if (uv_tcp_getpeername(h->tcp, (struct sockaddr *)&from, &len) == 0) {
        (void)getnameinfo((struct sockaddr *)&from, (socklen_t)len, host, sizeof host,
                          NULL, 0, NI_NUMERICHOST);
    }
    (void)snprintf(h->peer, sizeof h->peer, "%s", host);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct pk_transport *t = listener->data;
    if (status < 0) {
        return; /* out of descriptors, perhaps: libuv tries again */
    }
    if (t->strangers == PK_STRANGERS_MAX) {
        /* The oldest has had the most time. Nodes need less than a round trip. */
        struct pk_handshake *oldest = t->handshakes;
        while (is_dialled(oldest)) {
            oldest = oldest->next;
        }
        pk_handshake_end(oldest);
    }
    struct pk_handshake *h = pk_handshake_new(t, &answering, NULL);
    if (uv_accept(listener, (uv_stream_t *)h->tcp) != 0 || !pk_handshake_listen(h)) {
        pk_handshake_end(h);
        return;
    }
    pk_transport_tune(t, h->tcp);
    name_stranger(h);
}

static const char *cannot_listen(struct pk_transport *t, const char *why)
{
    (void)snprintf(t->why, sizeof t->why, "can't listen for other nodes on %s: %s",
                   t->o.listen, why);
    return t->why;
}

const char *pk_transport_bind(struct pk_transport *t)
{
    struct pk_endpoint at;
    struct addrinfo *found = NULL;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    if (!pk_endpoint_split(t->o.listen, &at)) {
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

bool pk_transport_set_address(struct pk_transport *t, const char *address)
{
    return snprintf(t->address, sizeof t->address, "%s", address) <
           (int)sizeof t->address;
}

/* ---- the whole ---- */

static void free_transport(struct pk_transport *t)
{
    pk_senders_free(t);
    pk_door_resize(t, 0);
}

void pk_transport_gone(struct pk_transport *t)
{
    t->open--;
    if (!t->closing || t->open > 0) {
        return;
    }
    if (t->orphan) {
        free_transport(t);
    } else if (t->closed != NULL) {
        t->closed(t->closed_ctx);
    }
}

static void on_own_handle_closed(uv_handle_t *handle)
{
    struct pk_transport *t = handle->data;
    if (handle == (uv_handle_t *)&t->later) {
        pk_senders_flush(t);
    }
    pk_transport_gone(t);
}

void pk_transport_close(struct pk_transport *t, void (*closed)(void *ctx), void *ctx)
{
    PK_ASSERT(!t->closing);
    t->closing = true;
    t->closed = closed;
    t->closed_ctx = ctx;
    pk_links_close(t);
    pk_senders_close(t);
    while (t->handshakes != NULL) {
        pk_handshake_end(t->handshakes);
    }
    uv_close((uv_handle_t *)&t->listener, on_own_handle_closed);
    uv_close((uv_handle_t *)&t->alarm, on_own_handle_closed);
    uv_close((uv_handle_t *)&t->redial, on_own_handle_closed);
    uv_close((uv_handle_t *)&t->later, on_own_handle_closed);
}

static void begin_timer(struct pk_transport *t, uv_timer_t *timer)
{
    PK_ASSERT(uv_timer_init(t->o.loop, timer) == 0);
    timer->data = t;
    t->open++;
}

struct pk_transport *pk_transport_new(const struct pk_uvio_options *o)
{
    struct pk_transport *t = pk_door_resize(NULL, sizeof *t);
    memset(t, 0, sizeof *t);
    t->o = *o;
    t->run = pk_random();
    t->last_failed = &t->failed;
    PK_ASSERT(uv_tcp_init(o->loop, &t->listener) == 0);
    t->listener.data = t;
    t->open = 1;
    begin_timer(t, &t->alarm);
    begin_timer(t, &t->redial);
    begin_timer(t, &t->later);
    return t;
}

void pk_transport_start(struct pk_transport *t, pk_transport_receive_cb receive,
                        pk_transport_note_cb note, pk_transport_chunk_cb chunk, void *ctx)
{
    t->receive = receive;
    t->note = note;
    t->chunk = chunk;
    t->ctx = ctx;
    t->started = true;
}

uint16_t pk_transport_port(const struct pk_transport *t)
{
    return t->port;
}

struct pk_uvio_counts pk_transport_counts(const struct pk_transport *t)
{
    return t->counts;
}

bool pk_transport_release(const struct pk_transport *t, uint64_t peer,
                          struct pk_release *out)
{
    const struct pk_link *l = pk_links_find(t, peer, PK_FOR_MESSAGES);
    if (l != NULL) {
        *out = l->release;
    }
    return l != NULL;
}

uint64_t pk_transport_silence_ms(const struct pk_transport *t, uint64_t peer)
{
    const struct pk_link *l = pk_links_find(t, peer, PK_FOR_MESSAGES);
    return l == NULL ? UINT64_MAX : uv_now(t->o.loop) - l->heard_ms;
}

void pk_transport_free(struct pk_transport *t)
{
    if (!t->closing) {
        pk_transport_close(t, NULL, NULL);
    }
    t->orphan = true;
    if (t->open == 0) {
        free_transport(t);
    }
}
