/* SPDX-License-Identifier: MIT */
/*
 * URLs of stores: SCHEME://[USER[:PASSWORD]@][HOST[:PORT],...][/PATH][?NAME=VALUE&...],
 * with %XX for what is special. IPv6 addresses stand in brackets.
 */
#ifndef PICKET_CLIENT_URL_H
#define PICKET_CLIENT_URL_H

#include <picket.h>

#include "client/place.h"

enum { PK_URL_OPTIONS_MAX = 8 };

struct pk_url_option {
    const char *name, *value;
};

struct pk_url {
    char *text;                                 /* what the others point into */
    char *shown;                                /* the URL as pk_url_redact() has it */
    const char *user, *password, *hosts, *path; /* "" if not given */
    struct pk_url_option options[PK_URL_OPTIONS_MAX];
    uint32_t n_options;
};

/* Reads it. `known` are the names that options may have, with blanks between; `form` is
 * what it should look like, for the sentence of a BADARG. Nothing of the URL is quoted
 * there, because that may be a password. */
enum picket_status pk_url_read(const char *url, const char *known, const char *form,
                               struct pk_url *out);
void pk_url_free(struct pk_url *u);

/* The option's value; "" if it isn't given. */
const char *pk_url_option(const struct pk_url *u, const char *name);
/* Its hosts. BADARG: there is none, or one is wrong. */
enum picket_status pk_url_places(const struct pk_url *u, uint16_t port, const char *form,
                                 struct pk_places *out);
/* The only host; "" and 0 if there is none. BADARG: it is wrong, or one of several. */
enum picket_status pk_url_place(const struct pk_url *u, const char *form,
                                struct pk_place *out);

/* Writes it for people: u->shown. */
void pk_url_show(const struct pk_url *u, char *out, size_t size);

/* The URL for people, to be freed: USER:PASSWORD@ becomes USER@, and options whose names
 * end in password, passwd, secret or token lose their values. For any text, also one that
 * is no URL. Whatever shows, logs or stores a URL goes through here; the result is never
 * longer than the URL. */
char *pk_url_redact(const char *url);

#endif
