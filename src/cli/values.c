/* SPDX-License-Identifier: MIT */
#include "cli/values.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR };

static const struct unit {
    const char *name;
    uint64_t ms;
} units[] = {{"ms", 1}, {"s", SECOND}, {"m", MINUTE}, {"h", HOUR}, {"d", DAY}};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads the digits at *at and moves behind them; false when the number does not fit. */
static bool read_digits(const char **at, uint64_t *out)
{
    uint64_t n = 0;
    for (; is_digit(**at); (*at)++) {
        uint64_t digit = (uint64_t)(**at - '0');
        if (n > (UINT64_MAX - digit) / 10) {
            return false;
        }
        n = 10 * n + digit;
    }
    *out = n;
    return true;
}

const char *pk_values_read_number(const char *text, uint64_t min, uint64_t max,
                                  uint64_t *out)
{
    static char wrong[100];
    const char *at = text;
    uint64_t n = 0;
    if (is_digit(*at) && read_digits(&at, &n) && *at == '\0' && n >= min && n <= max) {
        *out = n;
        return NULL;
    }
    (void)snprintf(wrong, sizeof wrong,
                   "is not a whole number from %" PRIu64 " to %" PRIu64, min, max);
    return wrong;
}

static const struct unit *find_unit(const char *name, bool bare_seconds)
{
    if (*name == '\0' && bare_seconds) {
        name = "s";
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(units[i].name, name) == 0) {
            return &units[i];
        }
    }
    return NULL;
}

/* The part of a unit that a decimal fraction (its digits, after the point) stands for, in
 * ms, rounded up. Moves *at behind it. */
static uint64_t read_fraction(const char **at, const char *digits, uint64_t unit_ms)
{
    const uint64_t one = UINT64_C(1000000000); /* nine digits are exact for every unit */
    uint64_t part = 0;
    uint64_t scale = one;
    bool more = false;
    while (is_digit(*digits)) {
        scale /= 10;
        part += scale * (uint64_t)(*digits - '0');
        more = more || (scale == 0 && *digits != '0');
        digits++;
    }
    *at = digits;
    return (part * unit_ms + one - 1) / one + (more && part * unit_ms % one == 0 ? 1 : 0);
}

static const char *skip_digits(const char *at)
{
    return at + strspn(at, "0123456789");
}

const char *pk_values_read_span(const char *text, bool bare_seconds, uint64_t *ms)
{
    const char *at = text;
    uint64_t whole = 0;
    const char *after = skip_digits(text);
    const char *fraction = *after == '.' ? after + 1 : NULL;
    after = fraction != NULL ? skip_digits(fraction) : after;
    const struct unit *unit = find_unit(after, bare_seconds);
    if (*text == '-') {
        return "is negative; say 10s or 500ms";
    }
    if (!is_digit(*text) || (fraction != NULL && after == fraction)) {
        return "is not a time; say 10s or 500ms";
    }
    if (*after == '\0' && unit == NULL) {
        return "has no unit; say 10s or 500ms";
    }
    if (unit == NULL) {
        return "has an unknown unit; say ms, s, m, h or d, as in 10s or 500ms";
    }
    if (!read_digits(&at, &whole) || whole > UINT64_MAX / 2 / DAY) {
        return "is too long a time";
    }
    *ms = whole * unit->ms;
    if (fraction != NULL) {
        *ms += read_fraction(&at, fraction, unit->ms);
    }
    return NULL;
}

const char *pk_values_span(uint64_t ms, char buf[PK_SPAN_ROOM])
{
    unsigned long long n = ms;
    if (n < SECOND) {
        (void)snprintf(buf, PK_SPAN_ROOM, "%llums", n);
    } else if (n < 10ULL * SECOND && n % SECOND >= 100) {
        (void)snprintf(buf, PK_SPAN_ROOM, "%llu.%llus", n / SECOND, n % SECOND / 100);
    } else if (n < MINUTE) {
        (void)snprintf(buf, PK_SPAN_ROOM, "%llus", n / SECOND);
    } else if (n < HOUR) {
        (void)snprintf(buf, PK_SPAN_ROOM, n % MINUTE >= SECOND ? "%llum%02llus" : "%llum",
                       n / MINUTE, n % MINUTE / SECOND);
    } else if (n < DAY) {
        (void)snprintf(buf, PK_SPAN_ROOM, n % HOUR >= MINUTE ? "%lluh%02llum" : "%lluh",
                       n / HOUR, n % HOUR / MINUTE);
    } else {
        (void)snprintf(buf, PK_SPAN_ROOM, n % DAY >= HOUR ? "%llud%lluh" : "%llud",
                       n / DAY, n % DAY / HOUR);
    }
    return buf;
}
