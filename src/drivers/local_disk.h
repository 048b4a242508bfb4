/* SPDX-License-Identifier: MIT */
/* What `picket doctor` has to say about the place where an embedded store is. */
#ifndef PICKET_DRIVERS_LOCAL_DISK_H
#define PICKET_DRIVERS_LOCAL_DISK_H

#include <picket.h>

#include "client/findings.h"

/* `dir_fd` is the open directory, `path` its name for people. */
enum picket_status pk_local_disk_examine(int dir_fd, const char *path,
                                         struct pk_findings *out);

#endif
