/* SPDX-License-Identifier: MIT */
/*
 * One HTTP/2 stream by libcurl, as gRPC uses it: messages behind five bytes of length go
 * both ways, the verdict comes in the trailers. For calls (etcd_rpc.h) and for streams
 * that stay (etcd_stream.h).
 */
#ifndef PICKET_DRIVERS_ETCD_LINE_H
#define PICKET_DRIVERS_ETCD_LINE_H

#include <curl/curl.h>
#include <picket.h>

#include "client/place.h"
#include "drivers/etcd_proto.h"

enum { PK_ETCD_FDS_MAX = 8 };

/* What has to go out, and what came back. */
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

enum picket_status pk_etcd_line_init(struct pk_etcd_line *l);
void pk_etcd_line_free(struct pk_etcd_line *l);
/* Closes its connections. */
void pk_etcd_line_disconnect(struct pk_etcd_line *l);
/* In the child of a fork: closes the descriptors. */
void pk_etcd_line_forked(struct pk_etcd_line *l);

/* Gets it ready for a call of `method` at that place, with that token if there is one. */
void pk_etcd_line_address(struct pk_etcd_line *l, const struct pk_place *p,
                          const char *token, const char *method);
/* A bare connection to that place, for curl_easy_cleanup to close; NULL: none. */
CURL *pk_etcd_line_probe(struct pk_etcd_line *l, const struct pk_place *p, int timeout_ms,
                         int *fd);
void pk_etcd_line_header(struct pk_etcd_line *l, const char *text);
/* libcurl 7.88 can't use a connection again that was made with "HTTP/2 as everybody
 * knows"; asked for HTTP/2 only, it can, but a new connection would begin with HTTP/1.
 * So it is asked so as long as there is a connection, and gets no new one then. */
void pk_etcd_line_warm(struct pk_etcd_line *l, bool warm);
/* A message that has to go out. */
void pk_etcd_line_put(struct pk_etcd_line *l, const struct pk_pb_out *message);
/* The next whole message that has come. */
bool pk_etcd_line_take(struct pk_etcd_line *l, struct pk_bytes *out);
/* Says in `trouble` why there was no verdict. */
void pk_etcd_line_trouble(struct pk_etcd_line *l, CURLcode code);

#endif
