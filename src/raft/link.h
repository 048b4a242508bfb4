/* SPDX-License-Identifier: MIT */
/*
 * Streams of other nodes' messages, between the socket and libraft.
 *
 * A connection that a node has dialled and we have answered becomes a *link*: libraft
 * reads from it and never writes. We stay between the two, because libraft takes the
 * lengths in messages as they come (frame.h). How: libraft starts reading as soon as it
 * is given a stream. We note the two callbacks that it gave libuv, put ours in their
 * place, check what arrives, and then call libraft's as libuv would have done. That is
 * cheaper than libraft alone, which reads each message in three pieces.
 *
 * Each node has at most one link to us (P10).
 */
#ifndef PICKET_RAFT_LINK_H
#define PICKET_RAFT_LINK_H

#include <raft/uv.h>
#include <stdbool.h>
#include <stdint.h>

#include "raft/frame.h"
#include "raft/identity.h"

struct pk_links;

struct pk_link {
    uv_tcp_t tcp; /* first: libraft frees the stream, and with it all of this */
    struct pk_links *all;
    struct pk_link *prev, *next;
    uint64_t peer; /* who is at the other end: filled in before it is given away */
    uint64_t run;  /* and in which run of its process */
    char name[PK_NODE_NAME_MAX];
    uv_alloc_cb lib_alloc;
    uv_read_cb lib_read;
    struct pk_frame frame;
    uint64_t heard_ms; /* the loop's time of its last bytes */
};

struct pk_links {
    struct pk_link *first;
    /* A link has been ended because of a message on it. */
    void (*refused)(void *ctx, const char *peer, const char *why);
    void *ctx;
    char buffer[64 * 1024]; /* what was read is passed on before the next is read */
};

/* A link whose `tcp` has been made on the loop, but is not connected yet. Close it and
 * give it to raft_free, unless it is given away. */
struct pk_link *pk_link_new(uv_loop_t *loop);
/* NULL: that node has none. */
struct pk_link *pk_links_find(const struct pk_links *all, uint64_t peer);
/* Gives a connected link to libraft, in place of the one which that node had. */
void pk_links_give(struct pk_links *all, struct pk_link *l, raft_uv_accept_cb accept,
                   struct raft_uv_transport *raft, const char *address);
/* libraft is closing and has let go of them all. */
void pk_links_forget(struct pk_links *all);

#endif
