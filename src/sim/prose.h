/* SPDX-License-Identifier: MIT */
/* Text that grows, without any of the C library's formatting: the page's module has no
 * imports, and gets none from here. */
#ifndef PICKET_SIM_PROSE_H
#define PICKET_SIM_PROSE_H

#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is empty; `data` has a NUL once anything was added. */
struct pk_prose {
    char *data;
    size_t len, capacity;
};

void pk_prose_free(struct pk_prose *p);
void pk_prose_bytes(struct pk_prose *p, const char *data, size_t len);
void pk_prose_add(struct pk_prose *p, const char *text);
void pk_prose_number(struct pk_prose *p, uint64_t n);
void pk_prose_signed(struct pk_prose *p, int64_t n);
/* Sixteen digits. */
void pk_prose_hex(struct pk_prose *p, uint64_t n);
/* Seconds with as many decimals as it takes, at most six: "8", "0.25". */
void pk_prose_seconds(struct pk_prose *p, int64_t us);
/* Seconds with three decimals, always. */
void pk_prose_clock(struct pk_prose *p, uint64_t us);
/* "A" for a client, "service", "n3", "resource". */
void pk_prose_who(struct pk_prose *p, uint32_t who);
/* A JSON string, with its quotes. */
void pk_prose_quoted(struct pk_prose *p, const char *text);
/* "key": before a value, with a comma if it isn't the first of its object. */
void pk_prose_key(struct pk_prose *p, const char *key);

#endif
