/* SPDX-License-Identifier: MIT */
#include "fence/url.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "core/door.h"

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

static bool read_port(const char *text, uint16_t *out)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);
    *out = (uint16_t)port;
    return isdigit((unsigned char)text[0]) && *end == '\0' && port > 0 &&
           port <= UINT16_MAX;
}

/* HOST, HOST:PORT, [ADDRESS] or [ADDRESS]:PORT. */
static bool read_host(char *text, struct pk_url *out)
{
    char *rest = text;
    if (text[0] == '[') {
        out->host = text + 1;
        rest = strchr(text, ']');
        if (rest == NULL) {
            return false;
        }
        *rest++ = '\0';
    } else {
        out->host = text;
        rest += strcspn(text, ":");
    }
    if (*rest == '\0') {
        return true;
    }
    bool colon = *rest == ':';
    *rest = '\0';
    return colon && read_port(rest + 1, &out->port);
}

static bool read_parts(char *text, struct pk_url *out)
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
    char *socket = query;
    if (query[0] != '\0') {
        socket = cut(query, '=');
    }
    bool fine = (query[0] == '\0' || strcmp(query, "socket") == 0) && decode(user) &&
                decode(password) && decode(path) && decode(socket) &&
                read_host(place, out);
    out->user = user;
    out->password = password;
    out->path = path;
    out->socket = socket;
    return fine;
}

enum picket_status pk_url_read(const char *url, const char *form, struct pk_url *out)
{
    *out = (struct pk_url){.text = strdup(url), .host = ""};
    PK_ASSERT(out->text != NULL);
    if (read_parts(out->text, out)) {
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
    u->text = NULL;
}

void pk_url_show(const struct pk_url *u, const char *scheme, char *out, size_t size)
{
    char port[8] = "";
    bool bracketed = strchr(u->host, ':') != NULL;
    if (u->port != 0) {
        (void)snprintf(port, sizeof port, ":%u", (unsigned)u->port);
    }
    (void)snprintf(out, size, "%s://%s%s%s%s%s%s%s%s%s%s", scheme, u->user,
                   u->user[0] != '\0' ? "@" : "", bracketed ? "[" : "", u->host,
                   bracketed ? "]" : "", port, u->path[0] != '\0' ? "/" : "", u->path,
                   u->socket[0] != '\0' ? "?socket=" : "", u->socket);
}
