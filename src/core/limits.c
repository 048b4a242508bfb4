/* SPDX-License-Identifier: MIT */
#include "core/limits.h"

#include "core/wire.h"

enum { LIMIT_COUNT = sizeof(struct pk_limits) / sizeof(uint32_t) };

struct pk_limits pk_limits_default(void)
{
    return (struct pk_limits){
#define X(name, initial, ceiling, text) .name = (initial),
        PK_LIMITS(X)
#undef X
    };
}

const char *pk_limits_wrong(const struct pk_limits *l)
{
#define X(name, initial, ceiling, text)                                                  \
    if (l->name < 1 || (uint64_t)l->name > (uint64_t)(ceiling)) {                        \
        return "limit " #name " must be between 1 and " #ceiling;                        \
    }
    PK_LIMITS(X)
#undef X
    return NULL;
}

void pk_limits_change(struct pk_limits *l, const struct pk_limits *change)
{
#define X(name, initial, ceiling, text)                                                  \
    l->name = change->name != 0 ? change->name : l->name;
    PK_LIMITS(X)
#undef X
}

const char *pk_limits_change_wrong(const struct pk_limits *change)
{
    struct pk_limits l = pk_limits_default();
    pk_limits_change(&l, change);
    return pk_limits_wrong(&l);
}

void pk_limits_write(struct pk_writer *w, const struct pk_limits *l)
{
    pk_write_uint(w, LIMIT_COUNT);
#define X(name, initial, ceiling, text) pk_write_uint(w, l->name);
    PK_LIMITS(X)
#undef X
}

void pk_limits_read(struct pk_reader *r, struct pk_limits *l)
{
    pk_read_ranged(r, LIMIT_COUNT, LIMIT_COUNT);
#define X(name, initial, ceiling, text)                                                  \
    l->name = (uint32_t)pk_read_ranged(r, 0, UINT32_MAX);
    PK_LIMITS(X)
#undef X
}
