/* SPDX-License-Identifier: MIT */
/*
 * URLs of servers: SCHEME://[USER[:PASSWORD]@][HOST[:PORT]][/PATH][?socket=FILE], with
 * %XX for what is special. IPv6 addresses stand in brackets.
 */
#ifndef PICKET_FENCE_URL_H
#define PICKET_FENCE_URL_H

#include <picket.h>
#include <stdint.h>

struct pk_url {
    char *text;                                         /* what the others point into */
    const char *user, *password, *host, *path, *socket; /* "" if not given */
    uint16_t port;                                      /* 0 if not given */
};

/* Reads it. BADARG with a sentence in which `form` says what it should look like; nothing
 * of the URL is quoted, because that may be a password. */
enum picket_status pk_url_read(const char *url, const char *form, struct pk_url *out);
void pk_url_free(struct pk_url *u);

/* Writes it without the password, as `scheme`://... */
void pk_url_show(const struct pk_url *u, const char *scheme, char *out, size_t size);

#endif
