/* SPDX-License-Identifier: MIT */
/*
 * The lock idiom of Redis, for clients that know nothing of Picket: SET NX PX, GET, TTL,
 * EXPIRE, DEL, and the compare-and-delete / compare-and-expire scripts of the known lock
 * libraries (script.h). Keys are real leases with tokens (KEY verbs of the machine), so
 * native clients see them and queue behind them; LOCK TOKEN, a word of our own, tells the
 * token to the owner. Whatever is not part of the idiom gets
 * an error and changes nothing: this is no Redis, and does not pretend to be one.
 */
#ifndef PICKET_SERVER_REDIS_H
#define PICKET_SERVER_REDIS_H

#include "core/command.h"
#include "core/effect.h"
#include "proto/resp.h"

enum pk_redis_got {
    PK_REDIS_COMMAND,  /* *c is to be run; answer with pk_redis_answer and *form */
    PK_REDIS_ANSWERED, /* the answer is already in `out`. A node that does not lead takes
                          it back and passes the request on, as it does with commands:
                          scripts must be known where they are run */
    PK_REDIS_OTHER,    /* no word of Redis that we know: try elsewhere */
};

/* Reads one request. The command borrows from `args` and `label`. `form` says how to
 * answer; never 0 (0 is the native protocol). */
enum pk_redis_got pk_redis_read(const struct pk_bytes *args, uint32_t n,
                                struct pk_bytes label, struct pk_command *c,
                                uint64_t *form, struct pk_resp_out *out);
/* The machine's effects as Redis would say it. */
void pk_redis_answer(uint64_t form, const struct pk_command *c,
                     const struct pk_effects *e, struct pk_resp_out *out);

#endif
