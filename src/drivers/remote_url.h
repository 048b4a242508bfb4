/* SPDX-License-Identifier: MIT */
/* Where the nodes of a cluster are: picket://HOST[:PORT],HOST[:PORT],... */
#ifndef PICKET_DRIVERS_REMOTE_URL_H
#define PICKET_DRIVERS_REMOTE_URL_H

#include <picket.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/bytes.h"

enum {
    PK_PLACES_MAX = 16,
    PK_HOST_MAX = 253, /* bytes of a name, as DNS has it */
    PK_PLACE_PORT = 7420,
};

struct pk_place {
    char host[PK_HOST_MAX + 1]; /* a name or an address; IPv6 without its brackets */
    uint16_t port;
    char text[PK_HOST_MAX + 9]; /* "host:port", for people */
};

struct pk_places {
    struct pk_place list[PK_PLACES_MAX];
    uint32_t count;
};

/* Reads what stands behind "picket:". BADARG with a sentence that says what is wrong. */
enum picket_status pk_places_read(const char *rest, struct pk_places *out);
/* Reads one HOST[:PORT]; NULL, or what is wrong with it. */
const char *pk_place_read(struct pk_bytes text, struct pk_place *out);

#endif
