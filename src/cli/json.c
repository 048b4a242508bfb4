/* SPDX-License-Identifier: MIT */
/* The JSON half of cli/output.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/output.h"
#include "cli/text.h"
#include "core/door.h"

static void put_string(const char *text, size_t len)
{
    size_t at = 0;
    (void)putchar('"');
    while (at < len) {
        uint32_t code = 0;
        size_t n = pk_text_decode(text + at, len - at, &code);
        if (n == 0) {
            (void)fputs("\\ufffd", stdout);
            n = 1;
        } else if (code == '"' || code == '\\') {
            (void)printf("\\%c", (int)code);
        } else if (code == '\n') {
            (void)fputs("\\n", stdout);
        } else if (pk_text_is_control(code)) {
            (void)printf("\\u%04" PRIx32, code);
        } else {
            (void)fwrite(text + at, 1, n, stdout);
        }
        at += n;
    }
    (void)putchar('"');
}

/* A comma if one is due, and the key. */
static void begin(struct pk_json *j, const char *key)
{
    if (j->filled[j->depth]) {
        (void)putchar(',');
    }
    j->filled[j->depth] = j->depth > 0;
    if (key != NULL) {
        put_string(key, strlen(key));
        (void)putchar(':');
    }
}

static void enter(struct pk_json *j, const char *key, char bracket)
{
    begin(j, key);
    (void)putchar(bracket);
    PK_ASSERT(j->depth + 1 < PK_JSON_DEPTH_MAX);
    j->filled[++j->depth] = false;
}

static void leave(struct pk_json *j, char bracket)
{
    PK_ASSERT(j->depth > 0);
    (void)putchar(bracket);
    if (--j->depth == 0) {
        (void)putchar('\n');
    }
}

void pk_json_object(struct pk_json *j, const char *key)
{
    enter(j, key, '{');
}

void pk_json_end_object(struct pk_json *j)
{
    leave(j, '}');
}

void pk_json_array(struct pk_json *j, const char *key)
{
    enter(j, key, '[');
}

void pk_json_end_array(struct pk_json *j)
{
    leave(j, ']');
}

void pk_json_text(struct pk_json *j, const char *key, const char *text)
{
    begin(j, key);
    put_string(text, strlen(text));
}

void pk_json_number(struct pk_json *j, const char *key, uint64_t n)
{
    begin(j, key);
    (void)printf("%" PRIu64, n);
}

void pk_json_id(struct pk_json *j, const char *key, uint64_t id)
{
    begin(j, key);
    (void)printf("\"%" PRIu64 "\"", id);
}

void pk_json_bool(struct pk_json *j, const char *key, bool b)
{
    begin(j, key);
    (void)fputs(b ? "true" : "false", stdout);
}

void pk_json_null(struct pk_json *j, const char *key)
{
    begin(j, key);
    (void)fputs("null", stdout);
}

static void put_base64(const unsigned char *bytes, size_t len)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    (void)putchar('"');
    for (size_t i = 0; i < len; i += 3) {
        size_t n = len - i < 3 ? len - i : 3;
        uint32_t group = (uint32_t)bytes[i] << 16;
        group |= n > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        group |= n > 2 ? (uint32_t)bytes[i + 2] : 0;
        (void)putchar(digits[group >> 18]);
        (void)putchar(digits[group >> 12 & 63]);
        (void)putchar(n > 1 ? digits[group >> 6 & 63] : '=');
        (void)putchar(n > 2 ? digits[group & 63] : '=');
    }
    (void)putchar('"');
}

void pk_json_bytes(struct pk_json *j, const char *key, const void *bytes, size_t len)
{
    char base64_key[64];
    if (pk_text_is_utf8(bytes, len)) {
        begin(j, key);
        put_string(bytes, len);
        return;
    }
    (void)snprintf(base64_key, sizeof base64_key, "%s_base64", key);
    begin(j, base64_key);
    put_base64(bytes, len);
}
