/* SPDX-License-Identifier: MIT */
/* The words of `picket fence`, and those of its actions that have a file of their own. */
#ifndef PICKET_CLI_FENCE_H
#define PICKET_CLI_FENCE_H

#include <picket_fence.h>

#include "cli/options.h"

struct pk_fence_words {
    struct pk_common common;
    uint64_t token;
    const char *url;  /* of the resource; NULL: the lock store */
    const char *name; /* RESOURCE, PATH or, for install, URL */
    const char *word; /* VALUE, if given */
    const char *file;
    bool print;
    struct picket_fence_table table;
    char *const *command;
};

/* Opens what keeps the fence. 0, or an exit code after having said why. */
int pk_fence_open(const struct pk_fence_words *s, struct picket_resource **out);

/* Both return the exit code. */
int pk_fence_file(const struct pk_fence_words *s);
int pk_fence_install(const struct pk_fence_words *s);

#endif
