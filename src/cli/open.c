/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/errors.h"
#include "client/client.h"
#include "client/url.h"
#include "host/memory.h"

int pk_cli_open_for(const struct pk_common *c, const struct picket_options *o,
                    const char *program, struct picket **out)
{
    enum picket_status s = pk_client_open(c->url, o, program, out);
    return s == PICKET_OK ? 0 : pk_errors_status(s);
}

int pk_cli_open(const struct pk_common *c, const struct picket_options *o,
                struct picket **out)
{
    return pk_cli_open_for(c, o, NULL, out);
}

int pk_cli_check_class(const char *require)
{
    bool known = require == NULL || strcmp(require, "correctness") == 0 ||
                 strcmp(require, "efficiency") == 0;
    return known ? 0
                 : pk_errors_fail(
                       "--require \"%s\" is neither correctness nor efficiency", require);
}

char *pk_cli_url(const struct pk_common *c)
{
    static const char scheme[] = "local:";
    const char *url = c->url != NULL ? c->url : getenv("PICKET_URL");
    if (url == NULL || url[0] == '\0') {
        url = scheme;
    }
    const char *dir = url + strlen(scheme);
    bool local = strncmp(url, scheme, strlen(scheme)) == 0;
    if (local && dir[0] != '\0' && dir[0] != '/') {
        char *here = getcwd(NULL, 0);
        if (here != NULL) {
            char *absolute = pk_memory_print("%s%s/%s", scheme, here, dir);
            free(here);
            return absolute;
        }
        if (errno == ENOMEM) {
            pk_memory_out();
        }
    }
    return pk_memory_copy(url);
}

char *pk_cli_shown_url(const struct pk_common *c)
{
    char *url = pk_cli_url(c);
    char *shown = pk_url_redact(url);
    free(url);
    return shown;
}

int pk_cli_give_up(struct picket *p, enum picket_status s)
{
    int code = pk_errors_status(s);
    picket_close(p);
    return code;
}
