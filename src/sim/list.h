/* SPDX-License-Identifier: MIT */
/* Lists that grow. */
#ifndef PICKET_SIM_LIST_H
#define PICKET_SIM_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "core/door.h"

/* A list of `count` things of that size, with room for one more. */
static inline void *pk_list_room(void *list, size_t size, uint32_t count,
                                 uint32_t *capacity)
{
    if (count < *capacity) {
        return list;
    }
    *capacity = *capacity == 0 ? 8 : 2 * *capacity;
    return pk_door_resize(list, *capacity * size);
}

#endif
