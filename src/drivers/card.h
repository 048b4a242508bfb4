/* SPDX-License-Identifier: MIT */
/*
 * How a claim is written in other people's stores. Its *card* is its key's value: for
 * people and for every other Picket to read, never for deciding who holds. Lines of text:
 *
 *     picket=1
 *     lease=LEASE
 *     request=REQUEST
 *     mode=exclusive
 *     since=MILLISECONDS     wall clock of the owner, so ages are only about right
 *     ttl=MILLISECONDS
 *     value=TEXT             if it has one, with %XX for what is special
 *     host=..., pid=...      the owner's label, as it is, to the end
 *
 * And its lock's name is a part of the key, with %XX for all but letters, digits and
 * "_-.:@+=,~"; a name of dots alone has its first one written as %2E.
 */
#ifndef PICKET_DRIVERS_CARD_H
#define PICKET_DRIVERS_CARD_H

#include "core/command.h"

struct pk_card {
    uint64_t lease, request;
    enum pk_mode mode;
    uint64_t since_ms; /* by the wall clock */
    uint64_t ttl_ms;
    struct pk_bytes value;
    struct pk_bytes label;
};

/* The text, to be freed with free(); *len is its length without the NUL. */
char *pk_card_write(const struct pk_card *card, size_t *len);
/* Reads it; the label borrows from `text`, the value from `room`, which has text.len
 * bytes. False: it is not a card, but whatever some other client keeps there. */
bool pk_card_read(struct pk_bytes text, char *room, struct pk_card *out);

enum { PK_KEY_MAX = 3 * PK_NAME_MAX + 1 };

/* Writes `name` as a part of a key, with a NUL. */
void pk_key_escape(const char *name, char out[PK_KEY_MAX]);
/* And back, with a NUL. False: not a key of ours, or too long for a name. */
bool pk_key_unescape(struct pk_bytes key, char out[PK_NAME_MAX + 1]);

/* Wall clock in ms, for `since` alone. */
uint64_t pk_card_now(void);

#endif
