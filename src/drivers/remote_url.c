/* SPDX-License-Identifier: MIT */
#include "drivers/remote_url.h"

#include <string.h>

#include "client/error.h"

#define FORM "picket://HOST[:PORT],HOST[:PORT],..."

enum picket_status pk_remote_places(const char *rest, struct pk_places *out)
{
    const char *wrong = "two slashes are missing";
    if (strncmp(rest, "//", 2) == 0) {
        wrong = pk_places_read(pk_text(rest + 2), PK_REMOTE_PORT, out);
    }
    return wrong == NULL
               ? PICKET_OK
               : pk_fail(PICKET_BADARG, "picket:%s: %s; it is " FORM, rest, wrong);
}
