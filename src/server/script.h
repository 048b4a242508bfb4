/* SPDX-License-Identifier: MIT */
/*
 * The Lua scripts of Redis' lock clients, known by what they say. There is no
 * interpreter: a script is brought to a normal form (comments, blanks, quotes, names of
 * locals, case of command names and other things without a meaning fold away), and the
 * normal form is looked up in a table of meanings. What is not in the table is refused.
 *
 * The rule for every folding step: a text that comes out as one of our forms does, in
 * Redis, exactly what the table says, for every state of the keys. A step may miss a
 * script that it could have known; it must never take one for another.
 */
#ifndef PICKET_SERVER_SCRIPT_H
#define PICKET_SERVER_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bytes.h"

enum {
    PK_SCRIPT_BYTES_MAX = 8192, /* longer texts are not looked at */
    PK_SCRIPT_FORM_MAX = 1024,  /* bytes of a normal form; no known one is longer */
    PK_SCRIPTS_MAX = 256,       /* digests remembered; the oldest goes first */
    PK_SCRIPT_DIGEST = 20,      /* SHA-1, because Redis' clients say it so */
};

enum pk_script_act {
    PK_SCRIPT_TAKE, /* sets keys that were free, with a TTL */
    PK_SCRIPT_KEEP, /* a new TTL for keys that have the value */
    PK_SCRIPT_DROP, /* deletes keys that have the value */
};

enum pk_script_yes { PK_SCRIPT_ONE, PK_SCRIPT_OK, PK_SCRIPT_COUNT };
enum pk_script_no { PK_SCRIPT_ZERO, PK_SCRIPT_NIL, PK_SCRIPT_MINUS };

/* What a known script means. The *_arg say which of ARGV, from 1; 0: none. */
struct pk_script {
    enum pk_script_act act;
    bool all_keys; /* all or none of KEYS (DROP: each for itself); else KEYS[1] */
    bool seconds;  /* the TTL is in seconds, else in milliseconds */
    uint8_t value_arg, ttl_arg;
    uint8_t add_arg;        /* when this one is "0", the TTL is added to what is left */
    uint8_t db_arg;         /* the database that it selects first */
    enum pk_script_yes yes; /* returned when it was done: 1, OK, how many keys */
    enum pk_script_no no;   /* returned when it was not: 0, nil, -1 */
};

/* Writes the normal form of `text` to `out` and returns its length; 0: this is not Lua
 * that any known script could be written in, or it is too long. */
size_t pk_script_normalise(struct pk_bytes text, char out[PK_SCRIPT_FORM_MAX]);
/* What the script means; false: it is not known. */
bool pk_script_meaning(struct pk_bytes text, struct pk_script *out);

/* The known scripts that clients have shown us, by digest: EVALSHA sends nothing else.
 * A zeroed struct is empty. */
struct pk_scripts {
    struct pk_script_seen {
        unsigned char digest[PK_SCRIPT_DIGEST];
        struct pk_script meaning;
    } seen[PK_SCRIPTS_MAX];
    uint32_t count, next;
};

/* NULL: not seen, or forgotten since. */
const struct pk_script *pk_scripts_find(const struct pk_scripts *s,
                                        const unsigned char digest[PK_SCRIPT_DIGEST]);
/* Finds out what the script means and remembers it; NULL: it is not known. `digest`
 * gets its SHA-1. */
const struct pk_script *pk_scripts_learn(struct pk_scripts *s, struct pk_bytes text,
                                         unsigned char digest[PK_SCRIPT_DIGEST]);

#endif
