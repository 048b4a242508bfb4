/* SPDX-License-Identifier: MIT */
#include "drivers/remote_url.h"

#include <stdlib.h>
#include <string.h>

#include "client/error.h"
#include "client/url.h"
#include "host/memory.h"

#define FORM "picket://HOST[:PORT],HOST[:PORT],..."

enum picket_status pk_remote_places(const char *rest, struct pk_places *out)
{
    const char *wrong = "two slashes are missing";
    if (strncmp(rest, "//", 2) == 0) {
        wrong = pk_places_read(pk_text(rest + 2), PK_REMOTE_PORT, out);
    }
    if (wrong == NULL) {
        return PICKET_OK;
    }
    char *url = pk_memory_print("picket:%s", rest);
    char *shown = pk_url_redact(url);
    enum picket_status s = pk_fail(PICKET_BADARG, "%s: %s; it is " FORM, shown, wrong);
    free(shown);
    free(url);
    return s;
}
