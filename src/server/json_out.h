/* SPDX-License-Identifier: MIT */
/*
 * JSON, written into a growing buffer: no commas to think of, and any bytes become text
 * that is well-formed. Pure.
 */
#ifndef PICKET_SERVER_JSON_OUT_H
#define PICKET_SERVER_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/bytes.h"
#include "proto/resp.h"

struct pk_jout {
    struct pk_resp_out *out;
    bool comma; /* one is due before the next value or key */
};

/* Objects and arrays: begin with '{' or '[', end with '}' or ']'. */
void pk_jout_begin(struct pk_jout *j, char bracket);
void pk_jout_end(struct pk_jout *j, char bracket);
void pk_jout_key(struct pk_jout *j, const char *key);
void pk_jout_number(struct pk_jout *j, uint64_t v);
void pk_jout_bool(struct pk_jout *j, bool v);
void pk_jout_null(struct pk_jout *j);
/* At most `most` bytes of the text, cut between characters and then ended by "…". Bytes
 * that are no UTF-8 become U+FFFD. No control character and no '<' is left as it is. */
void pk_jout_text(struct pk_jout *j, struct pk_bytes text, uint32_t most);

/* A key and its value. */
void pk_jout_put_number(struct pk_jout *j, const char *key, uint64_t v);
/* An id: a string of digits, since JavaScript rounds numbers above 2^53. */
void pk_jout_put_id(struct pk_jout *j, const char *key, uint64_t id);
void pk_jout_put_bool(struct pk_jout *j, const char *key, bool v);
void pk_jout_put_text(struct pk_jout *j, const char *key, struct pk_bytes text,
                      uint32_t most);

#endif
