/* SPDX-License-Identifier: MIT */
#include "sim/prose.h"

#include <string.h>

#include "core/door.h"
#include "sim/world.h"

void pk_prose_free(struct pk_prose *p)
{
    (void)pk_door_resize(p->data, 0);
    *p = (struct pk_prose){0};
}

void pk_prose_bytes(struct pk_prose *p, const char *data, size_t len)
{
    if (p->len + len + 1 > p->capacity) {
        p->capacity = 2 * (p->len + len + 1);
        p->data = pk_door_resize(p->data, p->capacity);
    }
    memcpy(p->data + p->len, data, len);
    p->len += len;
    p->data[p->len] = '\0';
}

void pk_prose_add(struct pk_prose *p, const char *text)
{
    pk_prose_bytes(p, text, strlen(text));
}

void pk_prose_number(struct pk_prose *p, uint64_t n)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    pk_prose_bytes(p, digits + at, sizeof digits - at);
}

void pk_prose_signed(struct pk_prose *p, int64_t n)
{
    if (n < 0) {
        pk_prose_add(p, "-");
    }
    pk_prose_number(p, n < 0 ? (uint64_t)-n : (uint64_t)n);
}

void pk_prose_hex(struct pk_prose *p, uint64_t n)
{
    for (int shift = 60; shift >= 0; shift -= 4) {
        pk_prose_bytes(p, &"0123456789abcdef"[n >> shift & 15], 1);
    }
}

/* The last `n` digits, with zeros in front. */
static void add_digits(struct pk_prose *p, uint64_t value, int n)
{
    char digits[8];
    for (int i = n; i-- > 0; value /= 10) {
        digits[i] = (char)('0' + value % 10);
    }
    pk_prose_bytes(p, digits, (size_t)n);
}

void pk_prose_seconds(struct pk_prose *p, int64_t us)
{
    uint64_t size = us < 0 ? (uint64_t)-us : (uint64_t)us;
    if (us < 0) {
        pk_prose_add(p, "-");
    }
    pk_prose_number(p, size / 1000000);
    uint64_t rest = size % 1000000;
    if (rest > 0) {
        int digits = 6;
        while (rest % 10 == 0) {
            rest /= 10;
            digits--;
        }
        pk_prose_add(p, ".");
        add_digits(p, rest, digits);
    }
}

void pk_prose_clock(struct pk_prose *p, uint64_t us)
{
    pk_prose_number(p, us / 1000000);
    pk_prose_add(p, ".");
    add_digits(p, us / 1000 % 1000, 3);
}

void pk_prose_who(struct pk_prose *p, uint32_t who)
{
    if (who < PK_CLIENTS_MAX) {
        char name[] = {(char)('A' + who)};
        pk_prose_bytes(p, name, 1);
    } else if (who >= PK_WHO_NODE && who < PK_WHO_NODE + PK_NODES_MAX) {
        pk_prose_add(p, "n");
        pk_prose_number(p, who - PK_WHO_NODE + 1);
    } else {
        pk_prose_add(p, who == PK_WHO_SERVICE ? "service" : "resource");
    }
}

void pk_prose_quoted(struct pk_prose *p, const char *text)
{
    pk_prose_add(p, "\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            pk_prose_add(p, "\\");
        }
        if (c < ' ') {
            pk_prose_add(p, "\\u00");
            pk_prose_bytes(p, &"0123456789abcdef"[c >> 4], 1);
            pk_prose_bytes(p, &"0123456789abcdef"[c & 15], 1);
        } else {
            pk_prose_bytes(p, text, 1);
        }
    }
    pk_prose_add(p, "\"");
}

void pk_prose_key(struct pk_prose *p, const char *key)
{
    char last = p->len > 0 ? p->data[p->len - 1] : '{';
    if (last != '{' && last != '[') {
        pk_prose_add(p, ",");
    }
    pk_prose_quoted(p, key);
    pk_prose_add(p, ":");
}
