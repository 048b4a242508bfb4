/* SPDX-License-Identifier: MIT */
/* The core's doors (core/door.h) for ordinary programs. */
#include "core/door.h"
#include "host/memory.h"

#include <stdio.h>
#include <stdlib.h>

void *pk_door_resize(void *old, size_t size)
{
    if (size == 0) {
        free(old);
        return NULL;
    }
    void *p = realloc(old, size);
    if (p == NULL) {
        pk_memory_out();
    }
    return p;
}

_Noreturn void pk_door_stop(const char *file, int line, const char *why)
{
    fprintf(stderr, "picket: stopping: %s (%s:%d)\n", why, file, line);
    abort();
}
