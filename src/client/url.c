/* SPDX-License-Identifier: MIT */
#include "client/url.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/error.h"
#include "host/memory.h"

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes %XX in place; false if one is broken, or stands for a control character. */
static bool decode(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        int high = digit(at[1]);
        int low = high < 0 ? -1 : digit(at[2]);
        if (low < 0 || high < 2) {
            return false;
        }
        *to++ = (char)(high * 16 + low);
        at += 2;
    }
    *to = '\0';
    return true;
}

/* Cuts `text` at `c`: what stands behind it, or "" if it isn't there. */
static char *cut(char *text, char c)
{
    char *at = strchr(text, c);
    if (at == NULL) {
        return text + strlen(text);
    }
    *at = '\0';
    return at + 1;
}

/* Whether `word` is one of `words`, which have blanks between them. */
static bool is_among(const char *word, const char *words)
{
    size_t len = strlen(word);
    while (*words != '\0') {
        size_t n = strcspn(words, " ");
        if (n == len && memcmp(word, words, n) == 0) {
            return true;
        }
        words += n + (words[n] == ' ');
    }
    return false;
}

/* NAME=VALUE&NAME=VALUE; each name has to be among `known`. */
static bool read_options(char *query, const char *known, struct pk_url *out)
{
    for (char *next; *query != '\0'; query = next) {
        next = cut(query, '&');
        char *value = cut(query, '=');
        if (!is_among(query, known) || out->n_options == PK_URL_OPTIONS_MAX ||
            !decode(value)) {
            return false;
        }
        out->options[out->n_options++] = (struct pk_url_option){query, value};
    }
    return true;
}

static bool read_parts(char *text, const char *known, struct pk_url *out)
{
    char *place = strstr(text, "://");
    if (place == NULL) {
        return false;
    }
    place += 3;
    char *query = cut(place, '?');
    char *path = cut(place, '/');
    char *at = strrchr(place, '@');
    char *user = place + strlen(place); /* "" */
    if (at != NULL) {
        *at = '\0';
        user = place;
        place = at + 1;
    }
    char *password = cut(user, ':');
    out->user = user;
    out->password = password;
    out->hosts = place;
    out->path = path;
    return read_options(query, known, out) && decode(user) && decode(password) &&
           decode(path);
}

enum picket_status pk_url_read(const char *url, const char *known, const char *form,
                               struct pk_url *out)
{
    *out = (struct pk_url){.text = pk_memory_copy(url), .shown = pk_url_redact(url)};
    if (read_parts(out->text, known, out)) {
        return PICKET_OK;
    }
    pk_url_free(out);
    return pk_fail(PICKET_BADARG,
                   "that URL can't be read; it is %s, with %%XX for "
                   "what is special in a name or a password",
                   form);
}

void pk_url_free(struct pk_url *u)
{
    free(u->text);
    free(u->shown);
    u->text = NULL;
    u->shown = NULL;
}

const char *pk_url_option(const struct pk_url *u, const char *name)
{
    for (uint32_t i = 0; i < u->n_options; i++) {
        if (strcmp(u->options[i].name, name) == 0) {
            return u->options[i].value;
        }
    }
    return "";
}

enum picket_status pk_url_places(const struct pk_url *u, uint16_t port, const char *form,
                                 struct pk_places *out)
{
    const char *wrong = pk_places_read(pk_text(u->hosts), port, out);
    return wrong == NULL ? PICKET_OK
                         : pk_fail(PICKET_BADARG, "that URL can't be read: %s; it is %s",
                                   wrong, form);
}

enum picket_status pk_url_place(const struct pk_url *u, const char *form,
                                struct pk_place *out)
{
    *out = (struct pk_place){0};
    const char *wrong =
        u->hosts[0] == '\0' ? NULL : pk_place_read(pk_text(u->hosts), 0, out);
    return wrong == NULL ? PICKET_OK
                         : pk_fail(PICKET_BADARG, "that URL can't be read: %s; it is %s",
                                   wrong, form);
}

void pk_url_show(const struct pk_url *u, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", u->shown);
}

/* ---- without secrets ---- */

static bool is_secret(const char *name, size_t len)
{
    static const char *const secrets[] = {"password", "passwd", "secret", "token"};
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++) {
        size_t n = strlen(secrets[i]);
        if (len >= n && strncasecmp(name + len - n, secrets[i], n) == 0) {
            return true; /* "sslpassword" too */
        }
    }
    return false;
}

/* NAME=VALUE becomes NAME=, for each name of a secret. */
static void hide_options(char *text)
{
    for (char *name = text; *name != '\0';) {
        char *end = name + strcspn(name, "?& ");
        char *equals = memchr(name, '=', (size_t)(end - name));
        if (equals != NULL && is_secret(name, (size_t)(equals - name))) {
            memmove(equals + 1, end, strlen(end) + 1);
            end = equals + 1;
        }
        name = end + (*end != '\0');
    }
}

/* The '@' that ends USER:PASSWORD, or NULL. A password may have an '@' or a '?' in it
 * and, by mistake, a '/': then what stands before the '/' is no list of hosts. */
static char *end_of_login(char *from)
{
    size_t len = strcspn(from, "/");
    char *at = memrchr(from, '@', len);
    struct pk_places places;
    if (at == NULL && pk_places_read(pk_bytes(from, len), 1, &places) != NULL) {
        at = strrchr(from, '@');
    }
    return at;
}

char *pk_url_redact(const char *url)
{
    char *text = pk_memory_copy(url);
    char *scheme_end = strstr(text, "://");
    char *from = scheme_end != NULL ? scheme_end + 3 : text + strlen(text);
    char *at = end_of_login(from);
    char *colon = at == NULL ? NULL : memchr(from, ':', (size_t)(at - from));
    if (colon != NULL) { /* the '@' goes too if no user is before it */
        char *rest = colon > from ? at : at + 1;
        memmove(colon, rest, strlen(rest) + 1);
    }
    hide_options(text);
    return text;
}
