/* SPDX-License-Identifier: MIT */
/* The one sentence about data, or a node, that this build can't work with. */
#ifndef PICKET_HOST_VERSION_H
#define PICKET_HOST_VERSION_H

#include <stdint.h>

/* "WHAT needs cluster version 3; this build runs 1 to 2; install a newer picket". Good
 * until this thread calls a function of this file again. */
const char *pk_version_needed(const char *what, uint32_t version);
/* The same for a format that does not depend on the cluster version: a file's frame. */
const char *pk_format_needed(const char *what, uint32_t format, uint32_t known);
/* The cluster versions that a build runs: "cluster version 1", "cluster versions 1 to 2".
 */
const char *pk_version_range(uint32_t oldest, uint32_t newest);

#endif
