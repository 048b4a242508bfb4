/* SPDX-License-Identifier: MIT */
/*
 * What the store remembers of a key of `picket once`: that an attempt has begun, or how
 * it ended and what it printed. Text, so that `picket fence get once/KEY` shows it:
 *
 *     picket-once 1 done token 42 attempt 1 exit 0 cut 0
 *     what it printed
 */
#ifndef PICKET_CLI_ONCE_RECORD_H
#define PICKET_CLI_ONCE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PK_ONCE_HEAD_MAX = 160 };

enum pk_once_state {
    PK_ONCE_NONE,  /* nobody has begun, or it was forgotten */
    PK_ONCE_BEGUN, /* and nothing is known of an end */
    PK_ONCE_DONE,
};

struct pk_once_record {
    enum pk_once_state state;
    uint64_t token;   /* of who wrote it */
    uint64_t attempt; /* from 1 */
    int exit;         /* DONE: the command's code, 0 to 255 */
    bool cut;         /* DONE: it printed more than is kept */
    const char *output;
    size_t len;
};

/* Reads a value; the output is borrowed from it. False: it is something else. */
bool pk_once_record_read(const char *value, size_t len, struct pk_once_record *out);
/* Writes it, malloc'ed. */
char *pk_once_record_write(const struct pk_once_record *r, size_t *len);

#endif
