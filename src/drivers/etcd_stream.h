/* SPDX-License-Identifier: MIT */
/*
 * A gRPC stream that goes both ways and never blocks, on a connection of its own. Used by
 * one thread at a time. Packets may vanish without a word, so a stream of watches that is
 * silent is asked whether it is still there.
 */
#ifndef PICKET_DRIVERS_ETCD_STREAM_H
#define PICKET_DRIVERS_ETCD_STREAM_H

#include "drivers/etcd_rpc.h"

struct pk_etcd_stream {
    struct pk_etcd_line line;
    CURLM *multi;
    int epoll_fd;      /* readable when there is something to pump */
    int nudge_fd;      /* in it, too: for other threads */
    int timer_fd;      /* in it, too: for who can only wait for a descriptor */
    uint64_t timer_ms; /* pump again by then; UINT64_MAX: no need */
    bool running;
    uint64_t heard_ms, asked_ms;
};

enum picket_status pk_etcd_stream_init(struct pk_etcd_stream *s);
void pk_etcd_stream_free(struct pk_etcd_stream *s);
/* Begins to talk to the caller's place, with the caller's right to. */
void pk_etcd_stream_dial(struct pk_etcd_stream *s, const struct pk_etcd_caller *c,
                         const char *method);
void pk_etcd_stream_hang_up(struct pk_etcd_stream *s);
void pk_etcd_stream_send(struct pk_etcd_stream *s, const struct pk_pb_out *message);
/* Moves what can be moved now. False: the stream is over, for what line.said or
 * line.trouble say. */
bool pk_etcd_stream_pump(struct pk_etcd_stream *s);
/* The next whole message, good until the next pump. */
bool pk_etcd_stream_next(struct pk_etcd_stream *s, struct pk_bytes *out);
/* Makes epoll_fd readable; by any thread. */
void pk_etcd_stream_nudge(struct pk_etcd_stream *s);

/* Asks after a silence. False: it has lasted too long. */
bool pk_etcd_stream_alive(struct pk_etcd_stream *s);
/* When to pump, and to ask that, at the latest. */
uint64_t pk_etcd_stream_due(const struct pk_etcd_stream *s);

/* In the child of a fork: closes the descriptors. */
void pk_etcd_stream_forked(struct pk_etcd_stream *s);

#endif
