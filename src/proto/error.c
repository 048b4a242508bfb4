/* SPDX-License-Identifier: MIT */
/* The errors that are not the machine's: all from the table in proto.h. */
#include "core/door.h"
#include "proto/proto.h"

static const struct {
    const char *name, *outcome, *text;
} errors[] = {
#define X(code, outcome, sentence) {#code, outcome, sentence},
    PK_PROTO_ERRORS(X)
#undef X
};

const char *pk_proto_error_name(enum pk_proto_error e)
{
    PK_ASSERT(e < PK_PROTO_ERROR_COUNT);
    return errors[e].name;
}

const char *pk_proto_error_outcome(enum pk_proto_error e)
{
    PK_ASSERT(e < PK_PROTO_ERROR_COUNT);
    return errors[e].outcome;
}

const char *pk_proto_error_text(enum pk_proto_error e)
{
    PK_ASSERT(e < PK_PROTO_ERROR_COUNT);
    return errors[e].text;
}

void pk_proto_write_error(struct pk_resp_out *o, enum pk_proto_error e,
                          const char *detail)
{
    pk_resp_error(o, pk_proto_error_name(e),
                  detail == NULL ? pk_proto_error_text(e) : detail);
}

enum pk_proto_error pk_proto_error_of(struct pk_bytes text, struct pk_bytes *detail)
{
    uint32_t len = 0;
    while (len < text.len && text.data[len] != ' ') {
        len++;
    }
    unsigned e = 0;
    while (e < PK_PROTO_ERROR_COUNT &&
           !pk_bytes_equal(pk_bytes(text.data, len), pk_text(errors[e].name))) {
        e++;
    }
    if (detail != NULL) {
        *detail = len == text.len ? pk_bytes("", 0)
                                  : pk_bytes(text.data + len + 1, text.len - len - 1);
    }
    return (enum pk_proto_error)e;
}
