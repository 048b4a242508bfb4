/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/door.h"
#include "core/utf8.h"

enum { LONG_RUN = 20 };

static void reserve(struct text *t, size_t more)
{
    if (t->capacity - t->len < more) {
        t->capacity = 2 * (t->capacity + more);
        t->data = pk_door_resize(t->data, t->capacity);
    }
}

void text_add(struct text *t, const void *data, size_t len)
{
    reserve(t, len);
    if (len > 0) {
        memcpy(t->data + t->len, data, len);
    }
    t->len += len;
}

void text_addf(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    PK_ASSERT(len >= 0);
    reserve(t, (size_t)len + 1);
    va_start(args, format);
    vsnprintf(t->data + t->len, (size_t)len + 1, format, args);
    va_end(args);
    t->len += (size_t)len;
}

void text_clear(struct text *t)
{
    t->len = 0;
}

void text_free(struct text *t)
{
    pk_door_resize(t->data, 0);
    *t = (struct text){0};
}

bool text_equal(const struct text *a, const struct text *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* Smallest first. */
static const struct unit {
    const char *name;
    uint64_t ms;
} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

enum { UNITS = sizeof units / sizeof units[0] };

void text_duration(struct text *t, uint64_t ms)
{
    size_t i = 0;
    while (i + 1 < UNITS && ms % units[i + 1].ms == 0) {
        i++;
    }
    if (ms == 0) {
        text_addf(t, "0");
    } else {
        text_addf(t, "%" PRIu64 "%s", ms / units[i].ms, units[i].name);
    }
}

const char *number_read(struct pk_bytes word, uint64_t *number)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < word.len; i++) {
        unsigned digit = (unsigned)word.data[i] - '0';
        if (digit > 9 || n > (UINT64_MAX - digit) / 10) {
            return "not a number";
        }
        n = n * 10 + digit;
    }
    *number = n;
    return word.len == 0 ? "not a number" : NULL;
}

const char *duration_read(struct pk_bytes word, uint64_t *ms)
{
    uint32_t digits = 0;
    while (digits < word.len && (unsigned)word.data[digits] - '0' <= 9) {
        digits++;
    }
    uint64_t n = 0;
    if (number_read(pk_bytes(word.data, digits), &n) != NULL) {
        return "not a time like 0, 500ms, 10s, 2m or 1h";
    }
    struct pk_bytes name = pk_bytes(word.data + digits, word.len - digits);
    if (n == 0 && name.len == 0) {
        *ms = 0;
        return NULL;
    }
    for (size_t i = 0; i < UNITS; i++) {
        if (pk_bytes_equal(name, pk_text(units[i].name)) &&
            n <= UINT64_MAX / units[i].ms) {
            *ms = n * units[i].ms;
            return NULL;
        }
    }
    return "not a time like 0, 500ms, 10s, 2m or 1h";
}

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_-./:@+", c) != NULL);
}

static void add_quoted(struct text *t, struct pk_bytes s)
{
    bool printable = pk_utf8_printable(s, true);
    text_addf(t, "\"");
    for (uint32_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c == '"' || c == '\\') {
            text_addf(t, "\\%c", c);
        } else if (c == '\n') {
            text_addf(t, "\\n");
        } else if (c < ' ' || c == 127 || (c > 127 && !printable)) {
            text_addf(t, "\\x%02x", (unsigned)c);
        } else {
            text_add(t, &s.data[i], 1);
        }
    }
    text_addf(t, "\"");
}

void text_string(struct text *t, struct pk_bytes s)
{
    bool bare = s.len > 0;
    bool run = s.len >= LONG_RUN;
    for (uint32_t i = 0; i < s.len; i++) {
        bare = bare && is_bare(s.data[i]);
        run = run && s.data[i] == s.data[0];
    }
    if (run) {
        add_quoted(t, pk_bytes(s.data, 1));
        text_addf(t, "*%" PRIu32, s.len);
    } else if (bare) {
        text_add(t, s.data, s.len);
    } else {
        add_quoted(t, s);
    }
}
