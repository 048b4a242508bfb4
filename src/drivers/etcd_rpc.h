/* SPDX-License-Identifier: MIT */
/*
 * gRPC to the members of an etcd, by libcurl: HTTP/2 without TLS, messages behind five
 * bytes of length, the verdict in the trailers. A *caller* asks and waits for the answer;
 * a *stream* goes both ways and never blocks. Each is used by one thread at a time and
 * has a connection of its own.
 *
 * A call goes to one member after the other until one answers. Between the one and the
 * other it may have been done twice, so what is called must be repeatable; `doubt` says
 * that some attempt may have reached a member that did not answer.
 */
#ifndef PICKET_DRIVERS_ETCD_RPC_H
#define PICKET_DRIVERS_ETCD_RPC_H

#include <curl/curl.h>

#include "client/url.h"
#include "drivers/etcd_proto.h"

/* Which etcd; the same for all who talk to it. */
struct pk_etcd_site {
    struct pk_url url;
    struct pk_places places;
    char shown[512]; /* the URL, for people */
};

enum { PK_ETCD_FDS_MAX = 8 };

/* One HTTP/2 stream: what has to go out, and what came back. */
struct pk_etcd_line {
    CURL *easy;
    struct curl_slist *headers;
    int fds[PK_ETCD_FDS_MAX]; /* its sockets, for a fork; -1: none */
    struct pk_pb_out out;     /* framed, from `sent` on still to go */
    size_t sent;
    uint32_t begun; /* how often its first byte went out */
    bool open_end;  /* more will have to go out later */
    bool paused;    /* because there was nothing to go out */
    bool warm;      /* only with the connection that there is */
    unsigned char *in;
    size_t in_len, in_capacity, used;
    bool grpc;         /* it answers as a gRPC server does */
    long code;         /* gRPC's; -1: not told */
    char said[256];    /* by the server, with the code */
    char trouble[256]; /* what went wrong on the way */
    char error[CURL_ERROR_SIZE];
};

struct pk_etcd_caller {
    const struct pk_etcd_site *site;
    struct pk_etcd_line line;
    uint32_t at;    /* the place asked last */
    bool connected; /* to that */
    char *token;    /* of who has a password */
    bool open_door; /* there is a password, but nobody is asked for one */
    bool doubt;     /* of the last call */
};

enum picket_status pk_etcd_caller_init(struct pk_etcd_caller *c,
                                       const struct pk_etcd_site *site);
void pk_etcd_caller_free(struct pk_etcd_caller *c);

/* Calls, as "KV/Range". OK: the answer's message, good until the next call. STORE also
 * for what the server refused: pk_etcd_refused tells that. */
enum picket_status pk_etcd_call(struct pk_etcd_caller *c, const char *method,
                                const struct pk_pb_out *request, uint64_t until_ms,
                                struct pk_bytes *reply);
/* The same, but only to the place with that number. */
enum picket_status pk_etcd_call_at(struct pk_etcd_caller *c, uint32_t place,
                                   const char *method, const struct pk_pb_out *request,
                                   uint64_t until_ms, struct pk_bytes *reply);
/* Whether the last call was refused with a text that has this in it. */
bool pk_etcd_refused(const struct pk_etcd_caller *c, const char *text);
/* STORE: the answer is not what an etcd says. */
enum picket_status pk_etcd_fail_garbled(const struct pk_etcd_caller *c);

struct pk_etcd_stream {
    struct pk_etcd_line line;
    CURLM *multi;
    int epoll_fd;      /* readable when there is something to pump */
    int nudge_fd;      /* in it, too: for other threads */
    uint64_t timer_ms; /* pump again by then; UINT64_MAX: no need */
    bool running;
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

/* In the child of a fork: closes the descriptors. */
void pk_etcd_line_forked(struct pk_etcd_line *l);
void pk_etcd_stream_forked(struct pk_etcd_stream *s);

#endif
