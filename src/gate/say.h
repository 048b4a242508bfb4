/* SPDX-License-Identifier: MIT */
/* Text and JSON into a buffer. */
#ifndef PICKET_GATE_SAY_H
#define PICKET_GATE_SAY_H

#include <string.h>

#include "core/bytes.h"
#include "proto/resp.h"

static inline void pk_say(struct pk_resp_out *out, const char *text)
{
    pk_resp_raw(out, text, strlen(text));
}

static inline void pk_say_number(struct pk_resp_out *out, uint64_t v)
{
    char digits[PK_RESP_DIGITS_MAX];
    pk_resp_raw(out, digits, pk_resp_digits(digits, v));
}

/* As a JSON string; `text` is printable UTF-8, so only two characters need care. */
static inline void pk_say_string(struct pk_resp_out *out, struct pk_bytes text)
{
    pk_say(out, "\"");
    for (uint32_t i = 0; i < text.len; i++) {
        pk_say(out, text.data[i] == '"' || text.data[i] == '\\' ? "\\" : "");
        pk_resp_raw(out, text.data + i, 1);
    }
    pk_say(out, "\"");
}

#endif
