/* SPDX-License-Identifier: MIT */
/*
 * One TCP connection of the gate: a block of bytes that came in, and one write at a time.
 *
 * Back-pressure is the rule that nothing is kept elsewhere: what has been read stands in
 * the block until it is used, a full block stops reading, and a write that the peer does
 * not take at once goes on from the memory it was given, which must stay as it is until
 * `sent`. So a connection costs PK_WIRE_BYTES and what its owner keeps (P10).
 */
#ifndef PICKET_GATE_WIRE_H
#define PICKET_GATE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum {
    PK_WIRE_BYTES = 32768, /* more than a head has */
    PK_WIRE_BUFS = 5,      /* of one write, at most */
};

struct pk_wire_events {
    void (*came)(void *owner);             /* there is more to use */
    void (*ended)(void *owner, int error); /* by UV_EOF or for a reason; once */
    void (*sent)(void *owner, int error);  /* what was PENDING is done with */
    void (*closed)(void *owner);           /* it may be freed */
};

enum pk_wire_sent { PK_WIRE_DONE, PK_WIRE_PENDING, PK_WIRE_FAILED };

struct pk_wire {
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
    const struct pk_wire_events *events;
    void *owner;
    char *in;
    size_t at, len;    /* what has come and is not used: in[at..len) */
    uint64_t accepted; /* bytes that the kernel took */
    uint64_t late_ms;  /* the loop's time at which the owner loses patience; 0: never */
    bool reading, writing, ended, closing;
};

void pk_wire_init(struct pk_wire *w, uv_loop_t *loop, const struct pk_wire_events *events,
                  void *owner);
/* Reads as long as there is room; harmless when it does already, or has ended. */
void pk_wire_read(struct pk_wire *w);
/* The first `n` bytes of what has come are used. Moves nothing that a write may use. */
void pk_wire_use(struct pk_wire *w, size_t n);
/* Moves what is left to the front, so that there is room again. */
void pk_wire_pack(struct pk_wire *w);
/* Sends all of it. PENDING: `sent` will come, and until then there is no other send. */
enum pk_wire_sent pk_wire_send(struct pk_wire *w, uv_buf_t *bufs, unsigned n);
/* No more will be sent; the peer sees an end. */
void pk_wire_shut(struct pk_wire *w);
void pk_wire_close(struct pk_wire *w);
/* The same, but the peer is told that it was broken off, and what is under way is lost.
 */
void pk_wire_reset(struct pk_wire *w);

#endif
