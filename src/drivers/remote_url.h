/* SPDX-License-Identifier: MIT */
/* Where the nodes of a cluster are: picket://HOST[:PORT],HOST[:PORT],... */
#ifndef PICKET_DRIVERS_REMOTE_URL_H
#define PICKET_DRIVERS_REMOTE_URL_H

#include <picket.h>

#include "client/place.h"

enum { PK_REMOTE_PORT = 7420 };

/* Reads what stands behind "picket:". BADARG with a sentence that says what is wrong. */
enum picket_status pk_remote_places(const char *rest, struct pk_places *out);

#endif
