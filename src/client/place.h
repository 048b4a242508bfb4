/* SPDX-License-Identifier: MIT */
/* Where servers are: HOST[:PORT], or several of them with commas between. */
#ifndef PICKET_CLIENT_PLACE_H
#define PICKET_CLIENT_PLACE_H

#include <stdint.h>

#include "core/bytes.h"

enum {
    PK_PLACES_MAX = 16,
    PK_HOST_MAX = 253, /* bytes of a name, as DNS has it */
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

/* Both: NULL, or what is wrong with it. `port` is meant where none is given. */
const char *pk_place_read(struct pk_bytes text, uint16_t port, struct pk_place *out);
const char *pk_places_read(struct pk_bytes text, uint16_t port, struct pk_places *out);

#endif
