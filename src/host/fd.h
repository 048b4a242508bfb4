/* SPDX-License-Identifier: MIT */
#ifndef PICKET_HOST_FD_H
#define PICKET_HOST_FD_H

#include <unistd.h>

/* Closes the descriptor if there is one, and forgets it: -1 is none. */
static inline void pk_fd_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

#endif
