/* SPDX-License-Identifier: MIT */
/*
 * Asking a node one thing at a time, waiting for the answer: for the command line and
 * for a node that joins. No retries but one redirect at a time; the caller decides.
 */
#ifndef PICKET_SERVER_ASK_H
#define PICKET_SERVER_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/resp.h"

struct pk_ask {
    int fd; /* -1: not connected */
    char *in;
    size_t in_len, in_capacity;
    size_t used; /* of the answer that was handed out */
    char why[256];
};

/* Connects to HOST:PORT, waiting at most `ms`. False: `why` says it. */
bool pk_ask_open(struct pk_ask *a, const char *address, uint32_t ms);
void pk_ask_close(struct pk_ask *a);
/* Sends the bytes of a request, waiting at most `ms`. False: `why`; the connection is
 * closed, and the other side did not get the whole request. */
bool pk_ask_send(struct pk_ask *a, const struct pk_resp_out *request, uint32_t ms);
/* Waits at most `ms` for the answer to what was sent. */
enum pk_ask_got {
    PK_ASK_ANSWERED, /* *answer is one whole RESP value, borrowed until the next call */
    PK_ASK_LATE,     /* nothing yet; call again */
    PK_ASK_ENDED,    /* `why`; the connection is closed */
};
enum pk_ask_got pk_ask_receive(struct pk_ask *a, uint32_t ms, struct pk_bytes *answer);
/* Sends the bytes of a request and waits for its answer; pushes are passed over. The
 * answer is one whole RESP value, borrowed until the next call. False: `why`; the
 * connection is closed, and the outcome is unknown unless `sent` is false. */
bool pk_ask(struct pk_ask *a, const struct pk_resp_out *request, uint32_t ms,
            struct pk_bytes *answer, bool *sent);
/* The same for words. */
bool pk_ask_words(struct pk_ask *a, const char *const *words, size_t n, uint32_t ms,
                  struct pk_bytes *answer, bool *sent);

#endif
