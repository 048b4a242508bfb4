/* SPDX-License-Identifier: MIT */
/* What transport.c, handshaking.c, asking.c, link.c and sender.c share. */
#ifndef PICKET_RAFT_TRANSPORT_INSIDE_H
#define PICKET_RAFT_TRANSPORT_INSIDE_H

#include <uv.h>

#include "raft/handshake.h"
#include "raft/message.h"
#include "raft/transport.h"

enum { PK_TOLD_MAX = 64 }; /* refusals remembered, so that each is told once */

/* ---- handshakes: a connection until it is known who is at the other end ---- */

struct pk_handshake;

/* What one is for. */
struct pk_handshake_kind {
    /* Connected: says the first word; false: it can't. NULL: the other side dialled. */
    bool (*greet)(struct pk_handshake *h);
    /* The other side's word. Ends the handshake or takes its connection. */
    void (*hear)(struct pk_handshake *h, const struct pk_greeting *g);
    /* It came to nothing and is gone. May be NULL. */
    void (*failed)(void *ctx, const char *why);
};

struct pk_lookup;

struct pk_handshake {
    struct pk_transport *t;
    const struct pk_handshake_kind *kind;
    void *ctx; /* for `failed` */
    uv_tcp_t *tcp;
    struct pk_handshake *prev, *next; /* in t->handshakes, the oldest first */
    uint64_t deadline_ms;
    char peer[PK_NODE_ADDRESS_MAX]; /* what a refusal is told of */
    unsigned char in[PK_GREETING_MAX];
    size_t have;
    /* Dialling only. */
    uint64_t wanted; /* the node that should be there */
    enum pk_purpose purpose;
    struct pk_lookup *lookup;
    struct addrinfo *found, *try_next;
    uv_connect_t connect;
    bool again;      /* when closed, dial the next address */
    const char *why; /* what is the matter, as far as known */
};

/* Begins one, within PK_HANDSHAKE_MS. Dialling: to a "host:port"; what can't be dialled
 * fails later, never at once. */
struct pk_handshake *pk_handshake_new(struct pk_transport *t,
                                      const struct pk_handshake_kind *kind, void *ctx);
void pk_handshake_dial(struct pk_handshake *h, const char *where);
/* Reads the other side's word; `tcp` is connected. False: it can't be read from. */
bool pk_handshake_listen(struct pk_handshake *h);
bool pk_handshake_say(struct pk_handshake *h, const struct pk_greeting *g);
/* Ends one that has come to nothing. */
void pk_handshake_end(struct pk_handshake *h);
/* Ends one well: its connection is the caller's, its memory is freed. */
uv_tcp_t *pk_handshake_take(struct pk_handshake *h);
void pk_handshakes_alarm(uv_timer_t *alarm);

struct pk_endpoint {
    char host[PK_HOST_MAX];
    char port[8];
};
/* False: it is neither "host:port" nor "[host]:port". */
bool pk_endpoint_split(const char *text, struct pk_endpoint *out);

/* ---- links: connections that others dialled; we read ---- */

struct pk_link {
    uv_tcp_t *tcp;
    struct pk_transport *t;
    struct pk_link *prev, *next;
    uint64_t peer; /* who is at the other end */
    uint64_t run;  /* and in which run of its process */
    enum pk_purpose purpose;
    struct pk_release release;
    char name[PK_NODE_NAME_MAX];
    char address[PK_NODE_ADDRESS_MAX];
    struct pk_message_reader reader;
    uint64_t heard_ms; /* the loop's time of its last bytes */
};

/* NULL: that node has none. */
struct pk_link *pk_links_find(const struct pk_transport *t, uint64_t peer,
                              enum pk_purpose purpose);
/* Begins to read from a connection, in place of the one that its node had. */
void pk_links_begin(struct pk_transport *t, uv_tcp_t *tcp,
                    const struct pk_greeting *from);
void pk_links_close(struct pk_transport *t);

/* ---- senders: connections that we dialled; we write ---- */

struct pk_outgoing;
struct pk_sender;

/* Calls back for messages that failed. */
void pk_senders_later(uv_timer_t *later);
void pk_senders_flush(struct pk_transport *t);
void pk_senders_redial(uv_timer_t *redial);
/* What waits is canceled, connections are closed. */
void pk_senders_close(struct pk_transport *t);
void pk_senders_free(struct pk_transport *t);
/* The other side is who it should be. */
void pk_sender_connected(struct pk_sender *s, uv_tcp_t *tcp);
/* Whom to dial is in the sender. */
void pk_transport_dial(struct pk_transport *t, struct pk_sender *s, uint64_t id,
                       const char *address, enum pk_purpose purpose);
void pk_sender_failed(void *sender, const char *why);

/* ---- asking ---- */

struct pk_asker {
    struct pk_waiting who;
    uint64_t heard_ms; /* the loop's time; 0: nobody is here */
};

/* Answers ASK, and remembers who asked. */
void pk_asking_answer(struct pk_handshake *h, const struct pk_greeting *g);

/* ---- the whole ---- */

/* A refusal that was told, as digests. */
struct pk_told {
    uint64_t peer, why;
};

struct pk_transport {
    struct pk_uvio_options o;
    char address[PK_NODE_ADDRESS_MAX];
    uint16_t port;
    uint64_t run; /* of this process, so that others see when there are two of us */
    uv_tcp_t listener;
    uv_timer_t alarm;  /* at the deadline of the oldest handshake */
    uv_timer_t redial; /* runs while a sender has no connection */
    uv_timer_t later;  /* runs while messages that failed wait for their callback */
    size_t open;       /* handles that have not called back yet */
    bool started, closing, orphan;
    pk_transport_receive_cb receive;
    pk_transport_note_cb note;
    pk_transport_chunk_cb chunk;
    void *ctx;
    void (*closed)(void *ctx);
    void *closed_ctx;
    struct pk_handshake *handshakes, *newest;
    size_t strangers;
    struct pk_link *links;
    size_t n_links;
    struct pk_sender *senders;
    size_t n_senders;
    struct pk_outgoing *failed, **last_failed;
    struct pk_asker askers[PK_WAITING_NODES_MAX];
    struct pk_uvio_counts counts;
    struct pk_told told[PK_TOLD_MAX];
    size_t told_next;
    char why[PK_REFUSAL_MAX + 64];
    char buffer[64 * 1024]; /* what was read is used up before the next is read */
};

/* A handle has been closed. */
void pk_transport_gone(struct pk_transport *t);
/* Tells a refusal, once per peer and reason: who is refused comes back at once. */
void pk_transport_tell(struct pk_transport *t, const char *peer, const char *why);
/* Refuses whoever answered or asked: tells our people, and the other side's. */
void pk_transport_refuse(struct pk_handshake *h, const char *why);
/* A greeting with what every node says of itself. */
struct pk_greeting pk_transport_greeting(const struct pk_transport *t,
                                         enum pk_greeting_kind kind);
/* Once connected: small messages leave at once, a dead connection is noticed. */
void pk_transport_tune(const struct pk_transport *t, uv_tcp_t *tcp);
/* The members of the configuration in force; none when it is not known. */
size_t pk_transport_members(const struct pk_transport *t, struct pk_member *out);
uint32_t pk_transport_election_ms(const struct pk_transport *t);

#endif
