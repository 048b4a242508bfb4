/* SPDX-License-Identifier: MIT */
#include "drivers/card.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/door.h"
#include "host/memory.h"

/* ---- %XX ---- */

static bool plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_-.:@+=,~", c) != NULL);
}

static size_t escape(struct pk_bytes in, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    for (uint32_t i = 0; i < in.len; i++) {
        unsigned char c = (unsigned char)in.data[i];
        if (plain(in.data[i])) {
            out[n++] = in.data[i];
        } else {
            out[n++] = '%';
            out[n++] = digits[c >> 4];
            out[n++] = digits[c & 15];
        }
    }
    return n;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decodes into `out`, which has room for in.len bytes; false if it is broken. */
static bool unescape(struct pk_bytes in, char *out, size_t *len)
{
    *len = 0;
    for (uint32_t i = 0; i < in.len; i++) {
        char c = in.data[i];
        if (c == '%') {
            int high = i + 2 < in.len ? digit(in.data[i + 1]) : -1;
            int low = i + 2 < in.len ? digit(in.data[i + 2]) : -1;
            if (high < 0 || low < 0) {
                return false;
            }
            c = (char)(high * 16 + low);
            i += 2;
        }
        out[(*len)++] = c;
    }
    return true;
}

/* ---- keys ---- */

void pk_key_escape(const char *name, char out[PK_KEY_MAX])
{
    PK_ASSERT(strlen(name) <= PK_NAME_MAX);
    size_t n = 0;
    if (name[strspn(name, ".")] == '\0' && name[0] == '.') {
        memcpy(out, "%2E", 3); /* "." and ".." mean something else in a path */
        n = 3;
        name++;
    }
    n += escape(pk_text(name), out + n);
    out[n] = '\0';
}

bool pk_key_unescape(struct pk_bytes key, char out[PK_NAME_MAX + 1])
{
    char room[PK_KEY_MAX];
    size_t len = 0;
    if (key.len == 0 || key.len >= sizeof room || !unescape(key, room, &len) ||
        len > PK_NAME_MAX) {
        return false;
    }
    memcpy(out, room, len);
    out[len] = '\0';
    return pk_name_wrong(pk_bytes(out, len)) == NULL;
}

/* ---- cards ---- */

char *pk_card_write(const struct pk_card *card, size_t *len)
{
    char *value = pk_door_resize(NULL, 3 * (size_t)card->value.len + 1);
    value[escape(card->value, value)] = '\0';
    char *text =
        pk_memory_print("picket=1\nlease=%" PRIu64 "\nrequest=%" PRIu64
                        "\nmode=%s\nsince=%" PRIu64 "\nttl=%" PRIu64 "\n%s%s%s%.*s",
                        card->lease, card->request, pk_mode_name(card->mode),
                        card->since_ms, card->ttl_ms, card->value.len > 0 ? "value=" : "",
                        value, card->value.len > 0 ? "\n" : "", (int)card->label.len,
                        card->label.data != NULL ? card->label.data : "");
    (void)pk_door_resize(value, 0);
    *len = strlen(text);
    return text;
}

/* Takes "KEY=...\n" from the front of `text`; false, and takes nothing: it isn't there.
 */
static bool take_line(struct pk_bytes *text, const char *key, struct pk_bytes *value)
{
    size_t key_len = strlen(key);
    if (text->len <= key_len || memcmp(text->data, key, key_len) != 0 ||
        text->data[key_len] != '=') {
        return false;
    }
    const char *at = text->data + key_len + 1;
    const char *end = text->data + text->len;
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    const char *stop = newline != NULL ? newline : end;
    const char *next = newline != NULL ? newline + 1 : end;
    *value = pk_bytes(at, (size_t)(stop - at));
    *text = pk_bytes(next, (size_t)(end - next));
    return true;
}

static bool take_number(struct pk_bytes *text, const char *key, uint64_t *out)
{
    struct pk_bytes digits;
    if (!take_line(text, key, &digits) || digits.len == 0 || digits.len > 20) {
        return false;
    }
    *out = 0;
    for (uint32_t i = 0; i < digits.len; i++) {
        if (digits.data[i] < '0' || digits.data[i] > '9') {
            return false;
        }
        *out = *out * 10 + (uint64_t)(digits.data[i] - '0');
    }
    return true;
}

bool pk_card_read(struct pk_bytes text, char *room, struct pk_card *out)
{
    struct pk_bytes mode, value;
    uint64_t version = 0;
    *out = (struct pk_card){.mode = PK_EXCLUSIVE};
    if (!take_number(&text, "picket", &version) || version != 1 ||
        !take_number(&text, "lease", &out->lease) ||
        !take_number(&text, "request", &out->request) ||
        !take_line(&text, "mode", &mode) ||
        !take_number(&text, "since", &out->since_ms) ||
        !take_number(&text, "ttl", &out->ttl_ms)) {
        *out = (struct pk_card){.mode = PK_EXCLUSIVE};
        return false;
    }
    if (pk_bytes_equal(mode, pk_text(pk_mode_name(PK_SHARED)))) {
        out->mode = PK_SHARED;
    }
    size_t len = 0;
    if (take_line(&text, "value", &value) && unescape(value, room, &len)) {
        out->value = pk_bytes(room, len);
    }
    out->label = text;
    return true;
}

uint64_t pk_card_now(void)
{
    struct timespec t;
    PK_ASSERT(clock_gettime(CLOCK_REALTIME, &t) == 0);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}
