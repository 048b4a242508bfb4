/* SPDX-License-Identifier: MIT */
/*
 * Borrowed byte strings, the form in which text passes through the core: not terminated,
 * not owned. A header that hands one out says how long it stays valid.
 */
#ifndef PICKET_CORE_BYTES_H
#define PICKET_CORE_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct pk_bytes {
    const char *data;
    uint32_t len;
};

static inline struct pk_bytes pk_bytes(const void *data, size_t len)
{
    return (struct pk_bytes){(const char *)data, (uint32_t)len};
}

/* The bytes of a C string; NULL gives the empty one. */
static inline struct pk_bytes pk_text(const char *s)
{
    return pk_bytes(s, s == NULL ? 0 : strlen(s));
}

/* Byte order, shorter first on a common prefix: the order of every list and snapshot. */
static inline int pk_bytes_compare(struct pk_bytes a, struct pk_bytes b)
{
    uint32_t common = a.len < b.len ? a.len : b.len;
    int order = common == 0 ? 0 : memcmp(a.data, b.data, common);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

static inline bool pk_bytes_equal(struct pk_bytes a, struct pk_bytes b)
{
    return a.len == b.len && pk_bytes_compare(a, b) == 0;
}

#endif
