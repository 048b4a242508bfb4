/* SPDX-License-Identifier: MIT */
/* The machine's limits as pairs of name and value. */
#include "proto/proto.h"

static const struct {
    const char *name;
    size_t offset;
} limits[] = {
#define X(name, initial, ceiling, text) {#name, offsetof(struct pk_limits, name)},
    PK_LIMITS(X)
#undef X
};

static const char no_such_limit[] = "no such limit; there are:"
#define X(name, initial, ceiling, text) " " #name
    PK_LIMITS(X)
#undef X
    ;

enum { LIMITS = sizeof limits / sizeof limits[0] };

const char *pk_proto_read_limits(const struct pk_bytes *args, uint32_t n,
                                 struct pk_limits *inout)
{
    struct pk_limits l = *inout;
    if (n == 0 || n % 2 != 0) {
        return "limits come in pairs: name value [name value ...]";
    }
    for (uint32_t i = 0; i < n; i += 2) {
        size_t k = 0;
        while (k < LIMITS && !pk_resp_is(args[i], limits[k].name)) {
            k++;
        }
        if (k == LIMITS) {
            return no_such_limit;
        }
        uint64_t v;
        if (!pk_resp_number(args[i + 1], &v) || v == 0 || v > UINT32_MAX) {
            return "a limit must be a whole number from 1 to 4294967295";
        }
        *(uint32_t *)(void *)((char *)&l + limits[k].offset) = (uint32_t)v;
    }
    const char *wrong = pk_limits_change_wrong(&l);
    if (wrong == NULL) {
        *inout = l;
    }
    return wrong;
}

void pk_proto_write_limits(struct pk_resp_out *o, const struct pk_limits *l)
{
    pk_resp_map(o, LIMITS);
    for (size_t i = 0; i < LIMITS; i++) {
        const void *at = (const char *)l + limits[i].offset;
        pk_resp_text(o, limits[i].name);
        pk_resp_int(o, *(const uint32_t *)at);
    }
}
